/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtp/nccl.h - NCCL's unique ids spread by a group, and NCCL communicators made of its ranks.
 *
 * NCCL is loaded at run time (libnccl.so.2); its types appear here as bytes and pointers. A process that
 * links NCCL itself has the same library, and may use what is made here with it.
 */
#ifndef DTP_NCCL_H
#define DTP_NCCL_H

#include <dtp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DTP_NCCL_ID_BYTES = 128, DTP_NCCL_RANKS_PER_ID = 128 };

/*
 * Makes unique ids and gives them to all ranks: `*ids_out` gets `*n_out` ids of DTP_NCCL_ID_BYTES each,
 * the same on every rank; free with dtp_group_free(). `ranks_per_id` 0: one id, made by rank 0, for
 * ncclCommInitRank; else one for that many ranks, rounded up, for ncclCommInitRankScalable: each is made
 * by the first of its ranks as NCCL deals them. Collective. At most 8000 ids.
 * Errors: UNSUPPORTED (a rank that makes one has no NCCL) and IO (NCCL failed) on all ranks, naming the
 * rank; INVAL (`ranks_per_id` negative, or not the same on all), LIMIT, as dtp_group_allgather.
 * Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_nccl_unique_ids(dtp_group *group, int32_t ranks_per_id, void **ids_out,
                                       uint32_t *n_out, int timeout_ms, dtp_error *err);

typedef struct dtp_nccl_opts {
    size_t size;
    int32_t ranks_per_id;       /* 0: one per 128 where NCCL can (2.23) and there are more, else one id */
    int32_t timeout_ms;         /* 0: the group's default; negative: no deadline */
    uint32_t blocking;          /* 1: a blocking communicator, without a deadline */
    uint32_t reserved;
    const void *config;         /* ncclConfig_t of the caller, its `blocking` too; NULL: NCCL's defaults */
} dtp_nccl_opts;

#define DTP_NCCL_OPTS_INIT { .size = sizeof(dtp_nccl_opts) }

/*
 * Makes an ncclComm_t of all ranks of the group, rank for rank, on the calling thread's CUDA device, by
 * ncclCommInitRank, ncclCommInitRankConfig or ncclCommInitRankScalable. Collective.
 *
 * By default the communicator is a non-blocking one (NCCL 2.14): a deadline, a death or an abort of the
 * group ends the call everywhere, and the communicator is aborted with ncclCommAbort. Its later calls
 * may return ncclInProgress, as NCCL's manual says. With `blocking`, or an older NCCL, a rank that dies
 * inside NCCL's own start leaves the others there: only what comes before has a deadline.
 *
 * Errors: UNSUPPORTED (on all ranks, naming those without NCCL, or without the function that is needed),
 * IO (NCCL's words), TIMEOUT, PEER, ABORTED, INVAL, as dtp_nccl_unique_ids. Caller closes.
 * Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_nccl_comm_init(dtp_group *group, const dtp_nccl_opts *opts, void **comm_out,
                                      dtp_error *err);

/*
 * Ends a communicator: ncclCommDestroy, or ncclCommAbort where `abort` is 1 (after a failure of the
 * group: it does not wait for the others). NULL is fine. Threads: ctx. Since 0.1.
 */
DTP_API void dtp_nccl_comm_close(dtp_ctx *ctx, void *comm, uint32_t abort);

#ifdef __cplusplus
}
#endif

#endif /* DTP_NCCL_H */
