/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deal.c - who gets what. Exact for the number of ranks inside one NUMA node.
 *
 * Ranks are alike, so node k holds at most min(cores_k / c, gpus_k / g) whole ranks, and the sum over
 * the nodes bounds the number of local ranks. Filling the nodes one after another reaches the bound;
 * what is left always suffices for the other ranks, since only totals count for them. Lower nodes,
 * cores and GPUs come first, so the same input gives the same answer.
 */
#include "placement/placement.h"

typedef struct dealer {
    dtpi_place_pool *pool;
    uint32_t c, g;
    bool share_cores;
} dealer;

static uint32_t n_cores_of(const dtpi_place_pool *pool, uint32_t node)
{
    return pool->core_first[node + 1] - pool->core_first[node];
}

static uint32_t n_gpus_of(const dtpi_place_pool *pool, uint32_t node)
{
    return pool->gpu_first[node + 1] - pool->gpu_first[node];
}

/* Whole ranks that a node can hold. */
static uint32_t room_of(const dealer *d, uint32_t node)
{
    const uint32_t cores = n_cores_of(d->pool, node);
    uint32_t room = d->share_cores ? (cores >= d->c ? UINT32_MAX : 0) : cores / d->c;

    if (d->g)
        room = DTPI_MIN(room, n_gpus_of(d->pool, node) / d->g);
    return room;
}

/* Cores of a node in use, counted once per rank. */
static uint64_t load_of(const dealer *d, uint32_t node)
{
    uint64_t load = 0;

    for (uint32_t i = d->pool->core_first[node]; i < d->pool->core_first[node + 1]; i++)
        load += d->pool->cores[i].n_users;
    return load;
}

/* The core of a node with the fewest users that `rank` has not yet; the lowest of those; -1: none. */
static int64_t pick_core(const dealer *d, uint32_t node, uint32_t rank)
{
    int64_t best = -1;

    for (uint32_t i = d->pool->core_first[node]; i < d->pool->core_first[node + 1]; i++) {
        const dtpi_place_core *core = &d->pool->cores[i];
        if (core->n_users && (!d->share_cores || core->last_user == rank))
            continue;
        if (best < 0 || core->n_users < d->pool->cores[best].n_users)
            best = i;
    }
    return best;
}

/* Cores of a node into a share that has `n` already, until it has c; how many it has then. */
static uint32_t take_cores(dealer *d, dtpi_place_share *share, uint32_t rank, uint32_t node,
                           uint32_t n)
{
    for (int64_t core; n < d->c && (core = pick_core(d, node, rank)) >= 0; n++) {
        share->cores[n] = (uint32_t)core;
        d->pool->cores[core].n_users++;
        d->pool->cores[core].last_user = rank;
    }
    return n;
}

static void take_gpu(dealer *d, dtpi_place_share *share, uint32_t n, uint32_t gpu)
{
    share->gpus[n] = gpu;
    d->pool->gpus[gpu].taken = true;
}

static void deal_local(dealer *d, dtpi_place_share *share, uint32_t rank, uint32_t node)
{
    uint32_t n = 0;

    take_cores(d, share, rank, node, 0);
    for (uint32_t i = d->pool->gpu_first[node]; n < d->g; i++)
        if (!d->pool->gpus[i].taken)
            take_gpu(d, share, n++, i);
}

/* The free GPU with the lowest ordinal. */
static uint32_t lowest_gpu(const dealer *d)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t i = 0; i < d->pool->n_gpus; i++)
        if (!d->pool->gpus[i].taken &&
            (best == UINT32_MAX || d->pool->gpus[i].ordinal < d->pool->gpus[best].ordinal))
            best = i;
    return best;
}

/* Resources of several nodes: GPUs in order, cores near them first. */
static void deal_spanning(dealer *d, dtpi_place_share *share, uint32_t rank)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < d->g; i++)
        take_gpu(d, share, i, lowest_gpu(d));
    for (uint32_t i = 0; i < d->g; i++)
        n = take_cores(d, share, rank, d->pool->gpus[share->gpus[i]].node, n);
    for (uint32_t node = 0; node <= d->pool->n_nodes; node++)
        n = take_cores(d, share, rank, node, n);
}

/* Where the next local rank goes: the lowest node with room; shared cores: the least loaded. */
static uint32_t pick_node(const dealer *d, const uint32_t *room)
{
    uint32_t best = UINT32_MAX;
    uint64_t best_load = 0;

    for (uint32_t k = 0; k < d->pool->n_nodes; k++) {
        if (!room[k])
            continue;
        if (!d->share_cores)
            return k;
        const uint64_t load = load_of(d, k);
        if (best == UINT32_MAX ||
            load * n_cores_of(d->pool, best) < best_load * n_cores_of(d->pool, k)) {
            best = k;
            best_load = load;
        }
    }
    return best;
}

void dtpi_place_deal(dtpi_place_pool *pool, dtpi_place_share *shares, uint32_t n, uint32_t c,
                     uint32_t g, bool share_cores)
{
    dealer d = { .pool = pool, .c = c, .g = g, .share_cores = share_cores };

    for (uint32_t k = 0; k < pool->n_nodes; k++)
        pool->room[k] = room_of(&d, k);
    for (uint32_t rank = 0; rank < n; rank++) {
        const uint32_t node = pick_node(&d, pool->room);
        if (node == UINT32_MAX) {
            deal_spanning(&d, &shares[rank], rank);
        } else {
            deal_local(&d, &shares[rank], rank, node);
            pool->room[node]--;
        }
    }
}
