/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h - writes the file of one rank: a safetensors file, checksummed on the way. */
#ifndef DTPI_CKPT_SHARD_H
#define DTPI_CKPT_SHARD_H

#include "ckpt/delta_save.h"
#include "ckpt/msg.h"
#include "ckpt/part.h"
#include "ckpt/plan.h"
#include "files/files.h"

typedef struct dtpi_shard_in {
    dtp_ctx *ctx;               /* whose pool helps; NULL: nobody's */
    dtpi_files *files;
    const char *path;           /* a name of its own, not yet there */
    const dtpi_plan *plan;
    dtpi_delta *delta;          /* what becomes of each piece: those in `stored` are written */
    const dtpi_layout *layout;  /* the stored ones */
    const dtp_ckpt_tensor *tensors;     /* data by dtpi_plan_box.index */
    const char *codec;
    uint32_t chunk_bytes;
    uint64_t step, id;
    int32_t rank, world_size;
    bool no_sync;
} dtpi_shard_in;

/*
 * Writes, syncs and closes; `part` (initialised) learns where each box lies, `out` the numbers of the
 * shard, not those of the part. A failure leaves no file. Errors: NOSPC, IO, PERM, EXISTS, LIMIT, NOMEM.
 */
dtp_status dtpi_shard_write(const dtp_allocator *a, const dtpi_shard_in *in, dtpi_part *part,
                            dtpi_written *out, dtp_error *err);

#endif /* DTPI_CKPT_SHARD_H */
