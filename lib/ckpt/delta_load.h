/* SPDX-License-Identifier: Apache-2.0 */
/* delta_load.h - chunks of a load, one at a time, whatever they are XORed with. */
#ifndef DTPI_CKPT_DELTA_LOAD_H
#define DTPI_CKPT_DELTA_LOAD_H

#include "ckpt/load.h"
#include "ckpt/part.h"

/* One thread's means to read chunks. Never more than two chunks are held, however long a chain is. */
typedef struct dtpi_chunks {
    dtpi_load *l;
    dtpi_codec codec;
    uint8_t *stored, *below;
    size_t bytes;               /* of each */
    struct {                    /* where a chunk begins among sizes; for each level of a chain */
        uint64_t sizes_at;      /* tells ranges apart, also when boxes have moved */
        uint64_t chunk, at;
    } seen[DTPI_PART_MAX_CHAIN + 1];
} dtpi_chunks;

/* Errors: NOMEM, UNSUPPORTED. Close it, also after a failure. */
dtp_status dtpi_chunks_open(dtpi_load *l, dtpi_chunks *out, dtp_error *err);
void dtpi_chunks_close(dtpi_chunks *c);

/*
 * Opens the files of a box and of its bases, so that the calls below may be made by several threads, each
 * with its own means. The box is placed.
 */
dtp_status dtpi_chunks_files(dtpi_load *l, const dtpi_mf_box *b, dtp_error *err);

/*
 * The plain bytes of a chunk to `out`. Every stored chunk on the way is compared with its sum, and the
 * result, where others lie below it, with the sum of the plain chunk.
 */
dtp_status dtpi_chunks_read(dtpi_chunks *c, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                            uint64_t chunk, uint8_t *out, dtp_error *err);

/* The second half of it: `out` holds what the stored chunk of the box itself decodes to. */
dtp_status dtpi_chunks_below(dtpi_chunks *c, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                             uint64_t chunk, uint8_t *out, dtp_error *err);

/* The chunk is the XOR of what it decodes to with the chunk of the base. */
static inline bool dtpi_chunk_is_xor(const dtpi_manifest *m, const dtpi_mf_box *b, uint64_t chunk)
{
    return b->base != DTPI_NO_BASE &&
           (b->sizes_at == DTPI_NO_SIZES ||
            !(*DTPI_MF_GET(uint32_t, m->sizes, b->sizes_at + chunk) & DTPI_CHUNK_ALONE));
}

#endif /* DTPI_CKPT_DELTA_LOAD_H */
