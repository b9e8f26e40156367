/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.c - the public face: reads the request, says what is missing, and keeps the answer as text.
 */
#include "placement/placement.h"

#include <stdio.h>

#include "base/buf.h"

/* Most ranks of one machine. */
enum { MAX_RANKS = 65536 };

typedef struct answer {
    char *cpus, *gpus, *nics;
    int64_t numa;
    bool shares_cores;
} answer;

struct dtp_placement {
    dtp_allocator a;
    answer *ranks;
    uint32_t n;
};

DTPI_DEFINE_AUTO(placement, dtp_placement, dtp_placement_free);

void dtp_placement_free(dtp_placement *placement)
{
    if (!placement)
        return;
    const dtp_allocator a = placement->a;
    for (uint32_t i = 0; placement->ranks && i < placement->n; i++) {
        dtpi_text_free(&a, placement->ranks[i].cpus);
        dtpi_text_free(&a, placement->ranks[i].gpus);
        dtpi_text_free(&a, placement->ranks[i].nics);
    }
    dtpi_free(&a, placement->ranks, placement->n * sizeof(*placement->ranks));
    dtpi_free(&a, placement, sizeof(*placement));
}

/* Shares with room for their cores and GPUs, in one block of indices. */
typedef struct hand {
    const dtp_allocator *a;
    dtpi_place_share *shares;
    uint32_t *indices;
    uint32_t n, c, g;
} hand;

static void hand_free(hand *h)
{
    if (!h->a)
        return;
    dtpi_free(h->a, h->shares, h->n * sizeof(*h->shares));
    dtpi_free(h->a, h->indices, (size_t)h->n * (h->c + h->g) * sizeof(*h->indices));
}

static dtp_status hand_new(hand *h, const dtp_allocator *a, uint32_t n, uint32_t c, uint32_t g,
                           dtp_error *err)
{
    *h = (hand){ .a = a, .n = n, .c = c, .g = g };
    h->shares = dtpi_alloc_array(a, n, sizeof(*h->shares));
    h->indices = dtpi_alloc_array(a, (size_t)n * (c + g), sizeof(*h->indices));
    if (!h->shares || !h->indices)
        return dtpi_fail_nomem(err, (size_t)n * (c + g) * sizeof(*h->indices));
    for (uint32_t i = 0; i < n; i++) {
        h->shares[i].cores = h->indices + (size_t)i * (c + g);
        h->shares[i].gpus = h->shares[i].cores + c;
    }
    return DTP_OK;
}

/* ---- is there enough? ---- */

static dtp_status check_request(const dtp_placement_req *req, dtp_error *err)
{
    if (req->n_ranks < 1 || req->n_ranks > MAX_RANKS)
        return dtpi_fail(err, DTP_ERR_INVAL, "n_ranks is %u, 1 to %d can be placed", req->n_ranks,
                         (int)MAX_RANKS);
    if (req->cores_per_rank > DTPI_CPUSET_MAX || req->gpus_per_rank > DTPI_CPUSET_MAX)
        return dtpi_fail(err, DTP_ERR_INVAL, "a rank can have at most %d cores and GPUs",
                         (int)DTPI_CPUSET_MAX);
    return DTP_OK;
}

static dtp_status fail_cores(const dtpi_place_pool *pool, uint32_t n, uint32_t c, dtp_error *err)
{
    const uint64_t need = (uint64_t)n * c;

    return dtpi_fail(err, DTP_ERR_LIMIT,
                     "%u %s x %u %s need %llu cores, %u are free (allowed %u, busy %u)", n,
                     n == 1 ? "rank" : "ranks", c, c == 1 ? "core" : "cores",
                     (unsigned long long)need, pool->n_cores, pool->n_allowed_cores,
                     pool->n_allowed_cores - pool->n_cores);
}

/* Cores per rank, and whether they must be shared. */
static dtp_status choose_cores(const dtpi_place_pool *pool, const dtp_placement_req *req,
                               uint32_t *c_out, bool *share_out, dtp_error *err)
{
    const uint32_t c = req->cores_per_rank ? req->cores_per_rank
                                           : DTPI_MAX(pool->n_cores / req->n_ranks, 1u);
    const bool enough = (uint64_t)c * req->n_ranks <= pool->n_cores;

    if (!enough && (!req->oversubscribe || c > pool->n_cores))
        return fail_cores(pool, req->n_ranks, c, err);
    *c_out = c;
    *share_out = !enough;
    return DTP_OK;
}

static dtp_status check_gpus(const dtpi_place_pool *pool, const dtp_placement_req *req,
                             dtp_error *err)
{
    const uint64_t need = (uint64_t)req->n_ranks * req->gpus_per_rank;

    if (need <= pool->n_gpus)
        return DTP_OK;
    return dtpi_fail(err, DTP_ERR_LIMIT,
                     "%u %s x %u %s need %llu GPUs, %u are free (present %u, busy %u)",
                     req->n_ranks, req->n_ranks == 1 ? "rank" : "ranks", req->gpus_per_rank,
                     req->gpus_per_rank == 1 ? "GPU" : "GPUs", (unsigned long long)need,
                     pool->n_gpus, pool->n_all_gpus, pool->n_all_gpus - pool->n_gpus);
}

/* ---- the answer ---- */

static int64_t common_numa(const dtpi_place_pool *pool, const dtpi_place_share *share, uint32_t c,
                           uint32_t g)
{
    const uint32_t node = pool->cores[share->cores[0]].node;
    bool one = node < pool->n_nodes;

    for (uint32_t i = 0; i < c; i++)
        one &= pool->cores[share->cores[i]].node == node;
    for (uint32_t i = 0; i < g; i++)
        one &= pool->gpus[share->gpus[i]].node == node;
    return one ? pool->node_ids[node] : DTP_UNKNOWN;
}

static char *gpu_list(const dtpi_place_pool *pool, const dtpi_place_share *share, uint32_t g)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(pool->a);

    for (uint32_t i = 0; i < g; i++)
        dtpi_buf_printf(&list, "%s%u", i ? "," : "", pool->gpus[share->gpus[i]].ordinal);
    return list.failed ? NULL : dtpi_text_ndup(pool->a, (const char *)list.data, list.len);
}

static dtp_status write_answer(const dtp_topo *topo, const dtpi_place_pool *pool,
                               const dtpi_place_share *share, uint32_t c, uint32_t g, answer *out,
                               dtp_error *err)
{
    dtpi_cpuset pus = { 0 };

    for (uint32_t i = 0; i < c; i++) {
        dtpi_cpuset_or(&pus, &pool->cores[share->cores[i]].pus);
        out->shares_cores |= pool->cores[share->cores[i]].n_users > 1;
    }
    out->numa = common_numa(pool, share, c, g);
    out->cpus = dtpi_cpuset_format(&pus, pool->a);
    out->gpus = gpu_list(pool, share, g);
    if (!out->cpus || !out->gpus)
        return dtpi_fail_nomem(err, 0);
    return dtpi_place_nics(topo, pool, share, g, out->numa, &out->nics, err);
}

static dtp_status solve(const dtp_topo *topo, const dtp_placement_req *req, dtpi_place_pool *pool,
                        dtp_placement *placement, dtp_error *err)
{
    __attribute__((cleanup(hand_free))) hand h = { 0 };
    const uint32_t n = req->n_ranks, g = req->gpus_per_rank;
    bool share = false;
    uint32_t c = 0;
    dtp_status st = dtpi_place_pool_fill(pool, topo, req, err);

    if (st >= 0)
        st = choose_cores(pool, req, &c, &share, err);
    if (st >= 0)
        st = check_gpus(pool, req, err);
    if (st >= 0)
        st = hand_new(&h, pool->a, n, c, g, err);
    if (st < 0)
        return st;
    dtpi_place_deal(pool, h.shares, n, c, g, share);
    placement->ranks = dtpi_alloc_array(pool->a, n, sizeof(*placement->ranks));
    if (!placement->ranks)
        return dtpi_fail_nomem(err, n * sizeof(*placement->ranks));
    placement->n = n;
    for (uint32_t i = 0; i < n && st >= 0; i++)
        st = write_answer(topo, pool, &h.shares[i], c, g, &placement->ranks[i], err);
    return st;
}

dtp_status dtp_placement_solve(const dtp_topo *topo, const dtp_placement_req *user,
                               dtp_placement **placement_out, dtp_error *err)
{
    __attribute__((cleanup(dtpi_place_pool_free))) dtpi_place_pool pool = { 0 };
    DTPI_AUTO(placement) dtp_placement *placement = NULL;
    dtp_placement_req req;
    dtp_status st = DTPI_OPTS_READ(&req, user, err);

    if (st >= 0)
        st = check_request(&req, err);
    if (st < 0)
        return dtpi_noun(err, "placement", st);
    placement = dtpi_alloc(&topo->a, sizeof(*placement));
    if (!placement)
        return dtpi_noun(err, "placement", dtpi_fail_nomem(err, sizeof(*placement)));
    placement->a = topo->a;
    st = solve(topo, &req, &pool, placement, err);
    if (st < 0)
        return dtpi_noun(err, "placement", st);
    *placement_out = DTPI_TAKE(placement);
    return DTP_OK;
}

dtp_status dtp_placement_get(const dtp_placement *placement, uint32_t i,
                             dtp_placement_rank *rank_out, dtp_error *err)
{
    if (i >= placement->n)
        return dtpi_noun(err, "placement", dtpi_fail(err, DTP_ERR_RANGE, "rank %u of %u", i,
                                                     placement->n));
    const answer *from = &placement->ranks[i];
    const dtp_placement_rank rank = { .size = sizeof(rank),
                                      .cpus = from->cpus,
                                      .gpus = from->gpus,
                                      .nics = from->nics,
                                      .numa = from->numa,
                                      .shares_cores = from->shares_cores };
    return dtpi_noun(err, "placement", DTPI_RESULT_WRITE(rank_out, &rank, err));
}
