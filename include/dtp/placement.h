/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtp/placement.h - which GPUs, NICs and cores a gang gets. Pure: it reads a topology and answers.
 */
#ifndef DTP_PLACEMENT_H
#define DTP_PLACEMENT_H

#include <dtp/topo.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtp_placement dtp_placement;

typedef struct dtp_placement_req {
    size_t size;
    uint32_t n_ranks;           /* ranks on this machine, at least 1 */
    uint32_t gpus_per_rank;     /* 0: none */
    uint32_t cores_per_rank;    /* 0: an equal share of what is free, at least 1 */
    const char *busy_cpus;      /* PUs held by others, "0-3,8"; NULL: none */
    const char *busy_gpus;      /* GPU ordinals held by others, "0,2"; NULL: none */
    uint32_t oversubscribe;     /* 1: ranks may share cores when there are too few */
} dtp_placement_req;

#define DTP_PLACEMENT_REQ_INIT { .size = sizeof(dtp_placement_req) }

typedef struct dtp_placement_rank {
    size_t size;
    const char *cpus;           /* PUs of the rank, "0-3"; lent by the placement */
    const char *gpus;           /* GPU ordinals, "0,1"; "" where none */
    const char *nics;           /* names of the nearest NICs, "mlx5_0"; "" where none */
    int64_t numa;               /* the one NUMA node it lies in; DTP_UNKNOWN when it spans several */
    uint32_t shares_cores;      /* 1: cores are shared with another rank of this placement */
} dtp_placement_rank;

/*
 * Places `n_ranks` ranks: NUMA-local where that is possible, disjoint, all or none; exact for the
 * number of ranks whose resources span NUMA nodes. Same input, same answer.
 * Errors: INVAL, FORMAT (a CPU list), LIMIT (does not fit; the text says what is missing), NOMEM.
 * Caller frees. Threads: any. Since 0.1.
 */
DTP_API dtp_status dtp_placement_solve(const dtp_topo *topo, const dtp_placement_req *req,
                                       dtp_placement **placement_out, dtp_error *err);

/* Frees a placement; NULL is fine. Threads: any. Since 0.1. */
DTP_API void dtp_placement_free(dtp_placement *placement);

/* What local rank `i` gets. Errors: RANGE. Threads: any. Since 0.1. */
DTP_API dtp_status dtp_placement_get(const dtp_placement *placement, uint32_t i,
                                     dtp_placement_rank *rank_out, dtp_error *err);

#ifdef __cplusplus
}
#endif

#endif /* DTP_PLACEMENT_H */
