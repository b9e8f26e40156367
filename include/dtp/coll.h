/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtp/coll.h - collectives on host memory: allreduce, reduce-scatter, allgather, broadcast.
 *
 * Results are the same bits on all ranks, from run to run and from layout to layout: the order of
 * additions is a function of the world size alone (docs/coll.md). f16 and bf16 accumulate in f32 and are
 * rounded once; a NaN of a result is the canonical quiet one, and MIN and MAX give NaN where any input is
 * NaN; integers wrap, but not inside an average of i32 or u8. Every rank calls the same collectives in
 * the same order. A rank that stops waiting (TIMEOUT, INTERRUPTED, a cancelled operation) ends the
 * collectives of the group: the others get PEER, which names it.
 */
#ifndef DTP_COLL_H
#define DTP_COLL_H

#include <dtp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dtp_redop {
    DTP_SUM = 0,
    DTP_MIN = 1,
    DTP_MAX = 2,
    DTP_PROD = 3,
    DTP_AVG = 4                 /* sum divided by the world size; integers truncate towards zero */
} dtp_redop;

/*
 * Reduces `count` elements of every rank into `out` on every rank; `in == out` is in place.
 * Types: f64 f32 f16 bf16 i64 i32 u8. `timeout_ms` 0: the group's default.
 * Errors: INVAL (a rank passes other counts, types or operations), UNSUPPORTED (type), RANGE (too many
 * elements), PEER, TIMEOUT, ABORTED, NOMEM, BUSY, FORKED, INTERRUPTED; of a group's first call also LIMIT
 * (ranks), and across nodes UNSUPPORTED (no UCX) and VERSION. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_allreduce(dtp_group *group, const void *in, void *out, size_t count,
                                 dtp_dtype dtype, dtp_redop redop, int timeout_ms, dtp_error *err);

/*
 * Reduces `count_per_rank` x size elements and leaves block `rank` in `out`.
 * Errors: as dtp_allreduce. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_reduce_scatter(dtp_group *group, const void *in, void *out,
                                      size_t count_per_rank, dtp_dtype dtype, dtp_redop redop,
                                      int timeout_ms, dtp_error *err);

/*
 * Gathers `count_per_rank` elements of every rank into `out` (count_per_rank x size elements, in rank
 * order) on every rank; any type. Errors: as dtp_allreduce. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_allgather(dtp_group *group, const void *in, void *out, size_t count_per_rank,
                                 dtp_dtype dtype, int timeout_ms, dtp_error *err);

/*
 * Gives `count` elements of `root` to all, in place; any type. Errors: as dtp_allreduce, RANGE (`root`).
 * Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_broadcast(dtp_group *group, void *data, size_t count, dtp_dtype dtype,
                                 int32_t root, int timeout_ms, dtp_error *err);

/*
 * The same as operations: they return at once, move in dispatch and waits, and need their buffers
 * until they end. Operations of one group run in the order in which they were started, and a blocking call
 * behind them. They end after the group's default timeout, counted from when they are the first in line; to
 * cancel one ends the collectives of the group. Free with
 * dtp_op_free(). Errors at start: INVAL, UNSUPPORTED, NOMEM, BUSY, FORKED. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_allreduce_start(dtp_group *group, const void *in, void *out, size_t count,
                                       dtp_dtype dtype, dtp_redop redop, dtp_op **op_out,
                                       dtp_error *err);
DTP_API dtp_status dtp_reduce_scatter_start(dtp_group *group, const void *in, void *out,
                                            size_t count_per_rank, dtp_dtype dtype,
                                            dtp_redop redop, dtp_op **op_out, dtp_error *err);
DTP_API dtp_status dtp_allgather_start(dtp_group *group, const void *in, void *out,
                                       size_t count_per_rank, dtp_dtype dtype, dtp_op **op_out,
                                       dtp_error *err);
DTP_API dtp_status dtp_broadcast_start(dtp_group *group, void *data, size_t count, dtp_dtype dtype,
                                       int32_t root, dtp_op **op_out, dtp_error *err);

#ifdef __cplusplus
}
#endif

#endif /* DTP_COLL_H */
