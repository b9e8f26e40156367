/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delta_save.h - what becomes of each piece of a shard: stored, as another piece of it, left where the
 * parent has it, or stored as the XOR with the parent's.
 */
#ifndef DTPI_CKPT_DELTA_SAVE_H
#define DTPI_CKPT_DELTA_SAVE_H

#include <pthread.h>

#include "ckpt/delta.h"
#include "ckpt/delta_load.h"
#include "ckpt/plan.h"

typedef enum dtpi_fate_kind {
    DTPI_FATE_NEW = 0,
    DTPI_FATE_SAME,             /* the bytes of another piece */
    DTPI_FATE_KEPT,             /* the bytes that the parent has */
    DTPI_FATE_XOR               /* stored, chunk by chunk as XOR where that is smaller */
} dtpi_fate_kind;

typedef struct dtpi_fate {
    uint8_t kind;
    uint32_t of;                /* SAME: another place in the part; KEPT, XOR: a box of the parent */
    uint64_t first_chunk;       /* XOR: in dtpi_delta.is_xor */
} dtpi_fate;

/* One thread's means to store chunks as XOR. */
typedef struct dtpi_xorer {
    dtpi_chunks base;
    uint8_t *mixed, *room;      /* a chunk each */
    struct dtpi_xorer *next;
} dtpi_xorer;

typedef struct dtpi_delta_in {
    dtpi_files *files;
    const dtpi_log *log;
    const dtpi_plan *plan;
    const dtpi_layout *layout;
    const dtp_ckpt_tensor *tensors;
    const char *codec;
    uint32_t chunk_bytes;
    const char *dir;
    uint64_t parent, parent_id; /* its step; id 0: there is none */
} dtpi_delta_in;

typedef struct dtpi_delta {
    const dtp_allocator *a;
    const dtpi_layout *layout;
    dtpi_layout stored;         /* its pieces that have bytes in the shard; keys are lent */
    dtpi_fate *fates;           /* by place in the part (dtpi_piece.nth) */
    dtpi_load *parent;          /* NULL: nothing is taken from it */
    dtpi_lineage lineage;
    uint32_t used;              /* bits of the lineage; after finish */
    uint32_t chunk_bytes;
    dtpi_buf is_xor;            /* a byte for each chunk of a piece whose fate is XOR */
    pthread_mutex_t mutex;
    dtpi_xorer *idle;
} dtpi_delta;

/*
 * Decides. A parent that cannot be read, or was written with another codec or chunk size, is no failure:
 * nothing is taken from it, and the log says why. Errors: NOMEM. Free it, also after a failure.
 */
dtp_status dtpi_delta_decide(const dtp_allocator *a, const dtpi_delta_in *in, dtpi_delta *out,
                             dtp_error *err);
void dtpi_delta_free(dtpi_delta *d);

/*
 * The stored form of a chunk of a piece whose fate is XOR: as dtpi_codec_store. A base that cannot be read
 * only means that the chunk stands alone. Any thread; the codec and `scratch` are its own.
 */
dtp_status dtpi_delta_store(dtpi_delta *d, const dtpi_piece *p, uint64_t chunk, dtpi_codec *codec,
                            const uint8_t *data, size_t bytes, uint8_t *scratch,
                            const void **stored_out, size_t *n_out, dtp_error *err);

/*
 * Gives all pieces without bytes of their own their ranges, and XORed ones their bases; the ranges of
 * stored pieces are known, and the shard's digest was taken. Errors: NOMEM.
 */
dtp_status dtpi_delta_finish(dtpi_delta *d, dtpi_part *part, dtp_error *err);

#endif /* DTPI_CKPT_DELTA_SAVE_H */
