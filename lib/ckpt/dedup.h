/* SPDX-License-Identifier: Apache-2.0 */
/* dedup.h - which contents in memory are equal, so that they are stored once: tied weights, zeros. Pure. */
#ifndef DTPI_CKPT_DEDUP_H
#define DTPI_CKPT_DEDUP_H

#include "base/base.h"

/* Less is not looked at: naming a range takes room, too. */
enum { DTPI_DEDUP_MIN = 4096 };

typedef struct dtpi_content {
    const void *data;
    uint64_t bytes;
    uint8_t dtype;
} dtpi_content;

/*
 * `same_out[i]` becomes the first content that equals content `i` in dtype, length and every byte, `i`
 * itself where there is none before it. Finds equals by samples and then compares all bytes; of many
 * contents with equal samples and different bytes some pairs may be missed. Errors: NOMEM.
 */
dtp_status dtpi_dedup_find(const dtp_allocator *a, const dtpi_content *contents, size_t n,
                           uint32_t *same_out, dtp_error *err);

#endif /* DTPI_CKPT_DEDUP_H */
