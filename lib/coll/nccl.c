/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.c - NCCL's unique ids and communicators: the right ranks make ids, one call of the group spreads
 * them, and what goes wrong on one rank before NCCL's own start is told to all.
 *
 * A rank's piece: u8 0 and its id, if it makes one; or u8 minus the status and why.
 */
#include <dtp/nccl.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "base/wire.h"
#include "gpu/gpu.h"
#include "gpu/nccl_api.h"
#include "group/group.h"

enum { MAX_IDS = 8000, PIECE_ROOM = 1 + DTP_NCCL_ID_BYTES, POLL_NS = 1000000 };

static_assert(sizeof(ncclUniqueId) == DTP_NCCL_ID_BYTES, "an id is plain bytes");

/* The config of 2.14, which every later NCCL still takes. Source: nccl.h of 2.14 and 2.32. */
typedef struct config_2_14 {
    size_t size;
    unsigned int magic, version;
    int blocking;
} config_2_14;
enum { CONFIG_MAGIC = (int)0xcafebeef, CONFIG_VERSION = 21400 };

#if DTPI_HAVE_NCCL_H
static_assert(offsetof(ncclConfig_t, magic) == offsetof(config_2_14, magic) &&
                  offsetof(ncclConfig_t, version) == offsetof(config_2_14, version) &&
                  offsetof(ncclConfig_t, blocking) == offsetof(config_2_14, blocking),
              "the head of a config does not change");
#endif

/* ---- who makes ids ---- */

/* NCCL deals ranks to ids evenly, the first ids get one more. Source: NCCL's bootstrap.cc, 2.23 on. */
static int32_t root_of_id(int32_t id, int32_t n, int32_t n_ids)
{
    return id * (n / n_ids) + DTPI_MIN(id, n % n_ids);
}

/* The id that this rank makes, -1 none. */
static int32_t id_of_root(int32_t rank, int32_t n, int32_t n_ids)
{
    for (int32_t i = (int32_t)((int64_t)rank * n_ids / n); i >= 0 && root_of_id(i, n, n_ids) >= rank; i--)
        if (root_of_id(i, n, n_ids) == rank)
            return i;
    return -1;
}

static dtp_status count_ids(int32_t n, int32_t ranks_per_id, int32_t *n_out, dtp_error *err)
{
    const int32_t n_ids = ranks_per_id > 0 ? (n - 1) / ranks_per_id + 1 : 1;

    if (ranks_per_id < 0)
        return dtpi_fail(err, DTP_ERR_INVAL, "%d ranks per NCCL id", ranks_per_id);
    if (n_ids > MAX_IDS)
        return dtpi_fail(err, DTP_ERR_LIMIT, "%d NCCL ids for %d ranks: at most %d are possible", n_ids,
                         n, MAX_IDS);
    *n_out = n_ids;
    return DTP_OK;
}

/* ---- pieces ---- */

typedef struct piece {
    uint8_t data[PIECE_ROOM];
    size_t bytes;
} piece;

static void piece_fails(piece *p, dtp_status st, const char *why)
{
    p->data[0] = (uint8_t)-st;
    p->bytes = 1 + DTPI_MIN(strlen(why), sizeof(p->data) - 1);
    memcpy(p->data + 1, why, p->bytes - 1);
}

static void piece_of_nccl(piece *p, ncclResult_t result, const dtpi_nccl *nccl, const char *function)
{
    char why[PIECE_ROOM];

    snprintf(why, sizeof(why), "%s: %s", function, nccl->ncclGetErrorString(result));
    piece_fails(p, DTP_ERR_IO, why);
}

/* Makes the id of this rank where it is a root. */
static void make_piece(dtp_ctx *ctx, bool makes, const dtpi_nccl *nccl, piece *p)
{
    ncclUniqueId id;
    dtp_error e;

    *p = (piece){ .bytes = 1 };
    if (!makes)
        return;
    const dtp_status st = nccl ? DTP_OK : dtpi_gpu_nccl(ctx, &nccl, &e);
    if (st < 0) {
        piece_fails(p, st, e.text);
        return;
    }
    const ncclResult_t result = nccl->ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
        piece_of_nccl(p, result, nccl, "ncclGetUniqueId");
        return;
    }
    memcpy(p->data + 1, &id, sizeof(id));
    p->bytes = PIECE_ROOM;
}

/* The failure of the first rank that has one, and which ranks failed. */
static dtp_status say_failed(const uint8_t *at, size_t bytes, const int32_t *ranks, size_t n_failed,
                             int32_t n, dtp_error *err)
{
    char list[100];

    dtpi_format_ranks(ranks, n_failed, list, sizeof(list));
    return dtpi_fail_rank(err, -(dtp_status)at[0], ranks[0], "NCCL: rank%s %s of %d: %.*s",
                          n_failed == 1 ? "" : "s", list, n, (int)(bytes - 1), (const char *)at + 1);
}

/* Takes the ids out of all ranks' pieces. What failed explains more than what does not fit. */
static dtp_status read_pieces(const uint8_t *data, const size_t *sizes, int32_t n, int32_t n_ids,
                              uint8_t *ids, int32_t *failed, dtp_error *err)
{
    const uint8_t *first = NULL;
    size_t n_failed = 0, first_bytes = 0;
    int32_t n_found = 0, odd = -1;

    for (int32_t rank = 0; rank < n; data += sizes[rank++]) {
        const bool is_root = n_found < n_ids && root_of_id(n_found, n, n_ids) == rank;
        const bool has_id = sizes[rank] == PIECE_ROOM && data[0] == 0;

        if (sizes[rank] > 0 && data[0] != 0) {
            first_bytes = first ? first_bytes : sizes[rank];
            first = first ? first : data;
            failed[n_failed++] = rank;
        } else if (is_root != has_id) {
            odd = odd < 0 ? rank : odd;
        } else if (is_root) {
            memcpy(ids + (size_t)n_found * DTP_NCCL_ID_BYTES, data + 1, DTP_NCCL_ID_BYTES);
        }
        n_found += is_root;
    }
    if (first)
        return say_failed(first, first_bytes, failed, n_failed, n, err);
    if (odd >= 0)
        return dtpi_fail_rank(err, DTP_ERR_INVAL, odd,
                              "rank %d wants another number of NCCL ids than %d for %d ranks", odd,
                              n_ids, n);
    return DTP_OK;
}

static void piece_without_memory(piece *p)
{
    if (p->data[0] == 0)
        piece_fails(p, DTP_ERR_NOMEM, "out of memory");
}

/* A rank without memory for what comes (`ids` may be NULL) takes part, so that nobody waits for it. */
static dtp_status spread_many(dtp_group *g, piece *p, int32_t n_ids, uint8_t *ids, int timeout_ms,
                              dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(dtpi_group_ctx(g));
    const int32_t n = dtp_group_size(g);
    size_t *sizes = dtpi_alloc_array(a, (size_t)n, sizeof(*sizes));
    int32_t *failed = dtpi_alloc_array(a, (size_t)n, sizeof(*failed));
    void *all = NULL;

    const bool has_room = ids && sizes && failed;
    if (!has_room)
        piece_without_memory(p);
    dtp_status st = dtp_group_allgather(g, p->data, p->bytes, &all, has_room ? sizes : NULL, NULL, timeout_ms,
                                        err);
    if (!has_room)
        st = dtpi_fail_nomem(err, (size_t)n_ids * DTP_NCCL_ID_BYTES);
    if (st >= 0)
        st = read_pieces(all, sizes, n, n_ids, ids, failed, err);
    dtp_group_free(all);
    dtpi_free(a, sizes, (size_t)n * sizeof(*sizes));
    dtpi_free(a, failed, (size_t)n * sizeof(*failed));
    return st;
}

/* One id needs no more than a broadcast. A rank without memory (`id` NULL) hears it and lets it go. */
static dtp_status spread_one(dtp_group *g, piece *p, uint8_t *id, int timeout_ms, dtp_error *err)
{
    const int32_t root = 0;

    const dtp_status st = dtp_group_broadcast(g, root, p->data, sizeof(p->data), timeout_ms, err);
    if (st < 0)
        return st;
    if (p->data[0])
        return say_failed(p->data, 1 + strnlen((const char *)p->data + 1, sizeof(p->data) - 1), &root, 1,
                          dtp_group_size(g), err);
    if (!id)
        return dtpi_fail_nomem(err, DTP_NCCL_ID_BYTES);
    memcpy(id, p->data + 1, DTP_NCCL_ID_BYTES);
    return DTP_OK;
}

dtp_status dtp_nccl_unique_ids(dtp_group *g, int32_t ranks_per_id, void **ids_out, uint32_t *n_out,
                               int timeout_ms, dtp_error *err)
{
    const int32_t n = dtp_group_size(g);
    int32_t n_ids = 0;
    piece p;

    dtp_status st = count_ids(n, ranks_per_id, &n_ids, err);
    if (st < 0)
        return dtpi_noun(err, "nccl", st);
    uint8_t *ids = malloc((size_t)n_ids * DTP_NCCL_ID_BYTES);
    st = dtpi_ctx_enter(dtpi_group_ctx(g), err);
    if (st >= 0) {
        make_piece(dtpi_group_ctx(g), id_of_root(dtp_group_rank(g), n, n_ids) >= 0, NULL, &p);
        if (!ids)
            piece_without_memory(&p);
        st = n_ids == 1 ? spread_one(g, &p, ids, timeout_ms, err)
                        : spread_many(g, &p, n_ids, ids, timeout_ms, err);
        dtpi_ctx_leave(dtpi_group_ctx(g));
    }
    if (st < 0) {
        free(ids);
        return dtpi_noun(err, "nccl", st);
    }
    *ids_out = ids;
    *n_out = (uint32_t)n_ids;
    return DTP_OK;
}

/* ---- communicators ---- */

typedef struct start {
    dtp_group *g;
    const dtpi_nccl *nccl;
    dtp_nccl_opts o;
    config_2_14 config;
    bool is_blocking;
    ncclComm_t comm;
    ncclResult_t result;
    dtpi_timer timer;
} start;

/* NULL: nothing. */
static const char *wrong_with(const dtp_nccl_opts *o)
{
    const config_2_14 *config = o->config;

    if (o->blocking > 1)
        return "blocking is neither 0 nor 1";
    if (config && config->magic != (unsigned int)CONFIG_MAGIC)
        return "config is not an ncclConfig_t (NCCL_CONFIG_INITIALIZER)";
    return NULL;
}

/* How the communicator is to be made here; what is missing goes into the piece. */
static void plan(start *s, piece *p)
{
    const config_2_14 *given = s->o.config;
    const dtpi_nccl *nccl = s->nccl;

    s->is_blocking = given ? given->blocking != 0 : s->o.blocking;
    if (!given && !s->o.blocking && (!nccl->ncclCommInitRankConfig || !nccl->ncclCommGetAsyncError))
        s->is_blocking = true;
    if (!given && !s->is_blocking)
        s->config = (config_2_14){ sizeof(s->config), (unsigned int)CONFIG_MAGIC, CONFIG_VERSION, 0 };
    if (given && !nccl->ncclCommInitRankConfig)
        piece_fails(p, DTP_ERR_UNSUPPORTED, "this NCCL has no ncclCommInitRankConfig (2.14)");
    if (given && !s->is_blocking && !nccl->ncclCommGetAsyncError)
        piece_fails(p, DTP_ERR_UNSUPPORTED, "this NCCL has no ncclCommGetAsyncError (2.14)");
}

static ncclResult_t begin(start *s, ncclUniqueId *ids, int32_t n_ids)
{
    const int n = dtp_group_size(s->g), rank = dtp_group_rank(s->g);
    ncclConfig_t *config = (ncclConfig_t *)(uintptr_t)s->o.config;

    if (!config && s->config.size)
        config = (ncclConfig_t *)(void *)&s->config;
    if (n_ids > 1)
        return s->nccl->ncclCommInitRankScalable(&s->comm, n, rank, n_ids, ids, config);
    if (config)
        return s->nccl->ncclCommInitRankConfig(&s->comm, n, ids[0], rank, config);
    return s->nccl->ncclCommInitRank(&s->comm, n, ids[0], rank);
}

static void poll_again(dtpi_timer *t)
{
    start *s = DTPI_CONTAINER(t, start, timer);
    dtp_ctx *ctx = dtpi_group_ctx(s->g);

    dtpi_timer_set(ctx, t, dtp_ctx_now_ns(ctx) + POLL_NS, NULL);
}

static bool is_made(void *user)
{
    start *s = user;

    if (atomic_load(dtpi_group_verdict_word(s->g)))
        return true;
    const ncclResult_t asked = s->nccl->ncclCommGetAsyncError(s->comm, &s->result);
    if (asked != ncclSuccess)
        s->result = asked;
    return s->result != ncclInProgress;
}

/* NCCL says nothing when it is done: it is asked every millisecond. */
static dtp_status await(start *s, int64_t deadline_ns, dtp_error *err)
{
    dtp_ctx *ctx = dtpi_group_ctx(s->g);

    s->timer.due = poll_again;
    dtp_status st = dtpi_timer_set(ctx, &s->timer, dtp_ctx_now_ns(ctx) + POLL_NS, err);
    if (st >= 0)
        st = dtpi_ctx_wait(ctx, is_made, s, deadline_ns, err);
    dtpi_timer_clear(ctx, &s->timer);
    if (st == DTP_ERR_TIMEOUT)
        dtpi_fail(err, st, "rank %d of %d: NCCL did not come up in time", dtp_group_rank(s->g),
                  dtp_group_size(s->g));
    if (st >= 0)
        st = dtpi_group_check(s->g, err);
    return st;
}

static dtp_status make_comm(start *s, ncclUniqueId *ids, int32_t n_ids, int64_t deadline_ns,
                            dtp_error *err)
{
    dtp_status st = DTP_OK;

    s->result = begin(s, ids, n_ids);
    if (s->result == ncclInProgress || (s->result == ncclSuccess && !s->is_blocking))
        st = await(s, deadline_ns, err);
    if (st >= 0 && s->result != ncclSuccess)
        st = dtpi_fail_rank(err, DTP_ERR_IO, dtp_group_rank(s->g), "NCCL: rank %d of %d: %s",
                            dtp_group_rank(s->g), dtp_group_size(s->g),
                            s->nccl->ncclGetErrorString(s->result));
    if (st < 0 && s->comm) {
        s->nccl->ncclCommAbort(s->comm);
        s->comm = NULL;
    }
    return st;
}

static dtp_status choose_ids(const start *s, int32_t *n_ids_out, piece *p, dtp_error *err)
{
    const int32_t n = dtp_group_size(s->g);
    const bool can = s->nccl && s->nccl->ncclCommInitRankScalable;
    int32_t per_id = s->o.ranks_per_id;

    if (per_id == 0 && can && n > DTP_NCCL_RANKS_PER_ID)
        per_id = DTP_NCCL_RANKS_PER_ID;
    const dtp_status st = count_ids(n, per_id, n_ids_out, err);
    if (st >= 0 && *n_ids_out > 1 && s->nccl && !can)
        piece_fails(p, DTP_ERR_UNSUPPORTED, "this NCCL has no ncclCommInitRankScalable (2.23)");
    return st;
}

static dtp_status comm_init(start *s, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(dtpi_group_ctx(s->g));
    const int32_t n = dtp_group_size(s->g);
    const int64_t deadline_ns = dtpi_ctx_deadline(dtpi_group_ctx(s->g), s->o.timeout_ms,
                                                  dtpi_group_timeout_ms(s->g));
    piece p = { .bytes = 1 }, made;
    int32_t n_ids = 0;
    dtp_error e;

    const dtp_status has = dtpi_gpu_nccl(dtpi_group_ctx(s->g), &s->nccl, &e);
    const char *wrong = wrong_with(&s->o);
    if (wrong)
        piece_fails(&p, DTP_ERR_INVAL, wrong);
    else if (has < 0)
        piece_fails(&p, has, e.text);
    else
        plan(s, &p);
    dtp_status st = choose_ids(s, &n_ids, &p, err);
    if (st < 0)
        return st;
    ncclUniqueId *ids = dtpi_alloc_array(a, (size_t)n_ids, sizeof(*ids));
    if (p.data[0] == 0 && ids) {
        make_piece(dtpi_group_ctx(s->g), id_of_root(dtp_group_rank(s->g), n, n_ids) >= 0, s->nccl, &made);
        p = made;
    }
    st = spread_many(s->g, &p, n_ids, (uint8_t *)ids, s->o.timeout_ms, err);
    if (st >= 0)
        st = make_comm(s, ids, n_ids, deadline_ns, err);
    dtpi_free(a, ids, (size_t)n_ids * sizeof(*ids));
    return st;
}

dtp_status dtp_nccl_comm_init(dtp_group *g, const dtp_nccl_opts *opts, void **comm_out, dtp_error *err)
{
    start s = { .g = g };

    dtp_status st = DTPI_OPTS_READ(&s.o, opts, err);
    if (st >= 0)
        st = dtpi_ctx_enter(dtpi_group_ctx(g), err);
    if (st < 0)
        return dtpi_noun(err, "nccl", st);
    st = comm_init(&s, err);
    if (st >= 0)
        *comm_out = s.comm;
    dtpi_ctx_leave(dtpi_group_ctx(g));
    return dtpi_noun(err, "nccl", st);
}

void dtp_nccl_comm_close(dtp_ctx *ctx, void *comm, uint32_t abort)
{
    const dtpi_nccl *nccl = NULL;

    if (!comm || dtpi_ctx_enter(ctx, NULL) < 0)
        return;
    if (dtpi_gpu_nccl(ctx, &nccl, NULL) >= 0) {
        const ncclResult_t result =
            abort ? nccl->ncclCommAbort(comm) : nccl->ncclCommDestroy(comm);
        if (result != ncclSuccess && result != ncclInProgress)
            DTPI_LOG(ctx, DTP_LOG_WARN, "nccl", "a communicator did not end well: %s",
                     nccl->ncclGetErrorString(result));
    }
    dtpi_ctx_leave(ctx);
}
