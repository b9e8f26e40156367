/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delta.h - what a step may take over from the step before it, its parent. Pure.
 *
 * A box whose content did not change names the bytes where they lie; a changed one may be stored as its
 * XOR with the parent's. So a step needs files of earlier steps, its lineage: at most DTPI_LINEAGE_MAX of
 * them, all named by its manifest, and at most DTPI_PART_MAX_CHAIN XORs lie on each other. What would go
 * beyond is stored anew, which frees the oldest steps.
 */
#ifndef DTPI_CKPT_DELTA_H
#define DTPI_CKPT_DELTA_H

#include "ckpt/manifest.h"

/* Steps that a save may refer to, newest first: the parent, then those that it refers to. */
typedef struct dtpi_lineage {
    uint32_t n;
    uint64_t steps[DTPI_LINEAGE_MAX];
} dtpi_lineage;

/* Where the parent refers to as many as there may be, the oldest is left out. */
void dtpi_lineage_after(const dtpi_manifest *parent, dtpi_lineage *out);

/*
 * The steps in which a box and its bases lie, bit `i` for steps[i]; 0 where one of them is not listed.
 * The places of the box are known.
 */
uint32_t dtpi_lineage_mask(const dtpi_lineage *l, const dtpi_manifest *m, const dtpi_mf_box *b);

/* How many XORs lie on each other below a box. */
uint32_t dtpi_chain_length(const dtpi_manifest *m, const dtpi_mf_box *b);

/* The box of a tensor with this offset and extent; NULL. */
const dtpi_mf_box *dtpi_mf_find_box(const dtpi_manifest *m, const dtpi_mf_tensor *t,
                                    const int64_t *offset, const int64_t *extent);

/* `to` ^= `with`. */
void dtpi_xor(uint8_t *to, const uint8_t *with, size_t bytes);

#endif /* DTPI_CKPT_DELTA_H */
