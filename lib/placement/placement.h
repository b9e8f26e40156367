/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.h - a placement from inside: what is free, sorted by NUMA node, and who gets what.
 */
#ifndef DTPI_PLACEMENT_H
#define DTPI_PLACEMENT_H

#include <dtp/placement.h>

#include "base/base.h"
#include "base/cpuset.h"
#include "topo/topo.h"

/* A core that may be dealt: its allowed PUs (a PU without a core stands for itself). */
typedef struct dtpi_place_core {
    uint32_t node;              /* index of its NUMA node; n_nodes: not known */
    dtpi_cpuset pus;
    uint32_t n_users;           /* ranks that hold it */
    uint32_t last_user;         /* of them, where there is one */
} dtpi_place_core;

typedef struct dtpi_place_gpu {
    uint32_t node;
    uint32_t ordinal;
    bool taken;
} dtpi_place_gpu;

/* What is free on the machine; cores and GPUs are grouped by node, unknown ones last. */
typedef struct dtpi_place_pool {
    const dtp_allocator *a;
    int64_t *node_ids;          /* OS index */
    uint32_t n_nodes, n_entries;
    dtpi_place_core *cores;
    uint32_t n_cores, cap_cores;
    dtpi_place_gpu *gpus;
    uint32_t n_gpus, cap_gpus;
    uint32_t *core_first;       /* of a node; one past the unknown ones ends it */
    uint32_t *gpu_first;
    uint32_t *room;             /* local ranks that a node can still hold */
    uint32_t n_allowed_cores;   /* before busy ones were taken away */
    uint32_t n_all_gpus;
} dtpi_place_pool;

dtp_status dtpi_place_pool_fill(dtpi_place_pool *pool, const dtp_topo *topo,
                                const dtp_placement_req *req, dtp_error *err);
void dtpi_place_pool_free(dtpi_place_pool *pool);

/* What a rank gets: indices into the pool. */
typedef struct dtpi_place_share {
    uint32_t *cores;
    uint32_t *gpus;
} dtpi_place_share;

/*
 * Deals `c` cores and `g` GPUs to each of `n` shares (whose arrays have room for c and g). The caller
 * has checked that there is enough, or that cores may be shared and there are at least c.
 */
void dtpi_place_deal(dtpi_place_pool *pool, dtpi_place_share *shares, uint32_t n, uint32_t c,
                     uint32_t g, bool share_cores);

/* Names of the NICs nearest to a share, comma separated; `*text_out` is a text of pool->a. */
dtp_status dtpi_place_nics(const dtp_topo *topo, const dtpi_place_pool *pool,
                           const dtpi_place_share *share, uint32_t n_gpus, int64_t numa,
                           char **text_out, dtp_error *err);

#endif /* DTPI_PLACEMENT_H */
