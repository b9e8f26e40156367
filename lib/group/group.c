/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - the public face of a group: join, close, who is who, abort, what failed.
 */
#include "group/group_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"

enum { DEFAULT_TIMEOUT_MS = 300000 };

/* ---- joining ---- */

static dtp_status check_secret(const dtp_group_opts *o, dtp_error *err)
{
    if (o->secret && o->insecure)
        return dtpi_fail(err, DTP_ERR_INVAL, "both a secret and insecure (DTP_SECRET, DTP_INSECURE)");
    if (!o->secret && !o->insecure && !o->munge)
        return dtpi_fail(err, DTP_ERR_AUTH,
                         "rank %d of %d has no job secret: set DTP_SECRET or DTP_SECRET_FILE, or "
                         "DTP_INSECURE=1 on every rank", o->rank, o->world_size);
    if (o->insecure > 1)
        return dtpi_fail(err, DTP_ERR_INVAL, "insecure is 0 or 1, not %u", o->insecure);
    return DTP_OK;
}

/* One that is to be taken in by a group that stands: its local rank is only told on. */
static dtp_status check_newcomer(const dtp_group_opts *o, dtp_error *err)
{
    if (o->world_size < 2)
        return dtpi_fail(err, DTP_ERR_INVAL, "a newcomer names the group's first world size, at least 2, not %d",
                         o->world_size);
    if (o->local_rank < 0)
        return dtpi_fail(err, DTP_ERR_RANGE, "a newcomer with local rank %d", o->local_rank);
    return check_secret(o, err);
}

static dtp_status check_opts(dtp_group_opts *o, bool has_board, dtp_error *err)
{
    if (!o->job)
        o->job = "default";
    if (!o->timeout_ms)
        o->timeout_ms = DEFAULT_TIMEOUT_MS;
    if (strlen(o->job) > 63)
        return dtpi_fail(err, DTP_ERR_INVAL, "job name '%.40s...' is longer than 63 bytes", o->job);
    if (!dtpi_utf8_ok(o->job, strlen(o->job)))
        return dtpi_fail(err, DTP_ERR_INVAL, "job name '%s' is not UTF-8", o->job);
    if (o->world_size < 0 || o->world_size > DTPI_WORLD_MAX)
        return dtpi_fail(err, DTP_ERR_RANGE, "a group of %d ranks: at most %d are possible",
                         o->world_size, DTPI_WORLD_MAX);
    if (o->rank == DTP_RANK_NEW)
        return check_newcomer(o, err);
    if (o->rank < 0 || o->rank >= DTPI_MAX(o->world_size, 1))
        return dtpi_fail_rank(err, DTP_ERR_RANGE, o->rank, "rank %d is outside a group of %d",
                              o->rank, DTPI_MAX(o->world_size, 1));
    if (o->world_size <= 1)
        return DTP_OK;
    if (o->local_size == 0) {
        o->local_size = o->world_size;
        o->local_rank = o->rank;
    }
    if (o->local_size < 0 || o->local_size > o->world_size || o->local_rank < 0 ||
        o->local_rank >= o->local_size)
        return dtpi_fail(err, DTP_ERR_RANGE, "rank %d: local rank %d of %d in a group of %d", o->rank,
                         o->local_rank, o->local_size, o->world_size);
    if (!o->root && !o->agent && !has_board && o->local_size < o->world_size)
        return dtpi_fail(err, DTP_ERR_INVAL,
                         "rank %d: %d of %d ranks are here, and no root says where the others meet "
                         "(DTP_ROOT)", o->rank, o->local_size, o->world_size);
    return check_secret(o, err);
}

static dtp_status join_as_newcomer(dtp_ctx *ctx, const dtp_group_opts *o, dtp_group **group_out,
                                   dtp_error *err)
{
    struct session *s;

    const dtp_status st = session_open(ctx, o, NULL, &s, err);
    return st < 0 ? st : session_group(ctx, s, group_out, err);
}

static dtp_status join(dtp_ctx *ctx, const dtp_group_opts *o, const dtpi_board_opts *board,
                       dtp_group **group_out, dtp_error *err)
{
    if (o->rank == DTP_RANK_NEW)
        return join_as_newcomer(ctx, o, group_out, err);
    dtp_group *g = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*g));

    if (!g) {
        dtpi_fail_nomem(err, sizeof(*g));
        session_last_words(ctx, o, err);
        return DTP_ERR_NOMEM;
    }
    g->ctx = ctx;
    g->id = DTPI_WORLD_ID;
    g->size = DTPI_MAX(o->world_size, 1);
    g->rank = o->rank;
    dtp_status st = session_open(ctx, o, board, &g->session, err);
    if (st >= 0) {
        g->session->n_groups = 1;
        st = layout_make(g, err);
        if (st < 0 && g->session->link)
            session_announce(g->session, err);
    }
    if (st < 0) {
        dtp_group_close(g);
        return st;
    }
    *group_out = g;
    return DTP_OK;
}

dtp_status group_join(dtp_ctx *ctx, const dtp_group_opts *opts, const dtpi_board_opts *board,
                      dtp_group **group_out, dtp_error *err)
{
    dtp_error e = { .status = DTP_OK };     /* the others are told, too */
    dtp_group_opts o;

    dtp_status st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return st;
    st = DTPI_OPTS_READ(&o, opts, &e);
    if (st >= 0)
        st = check_opts(&o, board != NULL, &e);
    if (st >= 0)
        st = join(ctx, &o, board, group_out, &e);
    dtpi_ctx_leave(ctx);
    if (st < 0 && err)
        *err = e;
    return dtpi_noun(err, "group", st);
}

dtp_status dtp_group_join(dtp_ctx *ctx, const dtp_group_opts *opts, dtp_group **group_out,
                          dtp_error *err)
{
    return group_join(ctx, opts, NULL, group_out, err);
}

/* ---- leaving ---- */

static bool is_flushed(void *user)
{
    struct session *s = user;

    return dtpi_link_is_idle(s->link) || atomic_load(&s->has_verdict);
}

static void leave(dtp_group *g)
{
    struct session *s = g->session;
    const bool is_last = --s->n_groups == 0;

    if (s->link && dtpi_ctx_alive(g->ctx)) {
        calls_cancel(g);
        if (g->id != DTPI_WORLD_ID)
            session_tell(s, DTPI_F_LEAVE, g->id);
        if (is_last) {
            session_tell(s, DTPI_F_LEAVE, DTPI_WORLD_ID);
            dtpi_ctx_wait(g->ctx, is_flushed, s,
                          dtp_ctx_now_ns(g->ctx) + GROUP_GRACE_MS * DTPI_NS_PER_MS, NULL);
        }
    }
    if (is_last)
        session_close(s);
}

void dtp_group_close(dtp_group *g)
{
    if (!g)
        return;
    dtp_ctx *ctx = g->ctx;
    const bool entered = dtpi_ctx_alive(ctx) && dtpi_ctx_enter(ctx, NULL) >= 0;
    const dtp_allocator *a = dtpi_ctx_alloc(ctx);
    for (uint32_t i = 0; i < DTPI_N_GUESTS; i++)
        if (g->guests[i])
            g->guests[i]->destroy(g->guests[i]);
    group_data_close(g);
    if (g->session) {
        asks_cancel(g);
        leave(g);
    }
    layout_free(g);
    pairs_free(g);
    dtpi_free(a, g->members, (size_t)g->size * sizeof(int32_t));
    dtpi_free(a, g, sizeof(*g));
    if (entered)
        dtpi_ctx_leave(ctx);
}

/* ---- who is who ---- */

int32_t dtp_group_rank(const dtp_group *g)
{
    return g->rank;
}

int32_t dtp_group_size(const dtp_group *g)
{
    return g->size;
}

int32_t dtp_group_local_rank(const dtp_group *g)
{
    if (g->id == DTPI_WORLD_ID && g->session->table && !g->members)
        return (int32_t)session_row(g->session, g->rank)->local_rank;
    return (int32_t)g->index[g->rank];
}

int32_t dtp_group_local_size(const dtp_group *g)
{
    return (int32_t)dtpi_group_n_on_node(g, g->node[g->rank]);
}

uint32_t dtp_group_attempt(const dtp_group *g)
{
    return g->session->attempt;
}

uint32_t dtp_group_generation(const dtp_group *g)
{
    return g->session->generation;
}

dtp_status dtp_group_get(const dtp_group *g, int32_t rank, dtp_group_member *member_out,
                         dtp_error *err)
{
    dtp_group_member m = { .rank = rank, .host = "localhost" };

    if (rank < 0 || rank >= g->size)
        return dtpi_noun(err, "group", dtpi_fail_rank(err, DTP_ERR_RANGE, rank,
                                                      "rank %d is outside a group of %d", rank,
                                                      g->size));
    m.node = (int32_t)g->node[rank];
    m.local_rank = (int32_t)g->index[rank];
    if (g->session->table) {
        const struct shared_row *row = session_row(g->session, group_world_rank(g, rank));
        m.pid = row->pid;
        m.host = session_node(g->session, row->node)->host;
        m.identity = group_world_rank(g, rank);
        if (g->id == DTPI_WORLD_ID && !g->members)
            m.local_rank = (int32_t)row->local_rank;
    } else {
        m.pid = (int32_t)getpid();  /* alone */
    }
    return dtpi_noun(err, "group", DTPI_RESULT_WRITE(member_out, &m, err));
}

dtpi_group_guest **dtpi_group_guest_slot(dtp_group *g, uint32_t guest)
{
    return &g->guests[guest];
}

const char *dtpi_group_job(const dtp_group *g)
{
    return g->session->job;
}

dtp_ctx *dtpi_group_ctx(const dtp_group *g)
{
    return g->ctx;
}

int dtpi_group_timeout_ms(const dtp_group *g)
{
    return g->session->timeout_ms;
}

/* ---- failing ---- */

const _Atomic uint32_t *dtpi_group_verdict_word(const dtp_group *g)
{
    return &g->session->control->word;
}

static bool knows_verdict(void *user)
{
    struct session *s = user;

    return atomic_load(&s->has_verdict);
}

/* The word is set; its text is on its way. */
static dtp_status await_verdict(struct session *s, dtp_error *err)
{
    dtpi_verdict v = { 0 };

    dtpi_ctx_wait(s->ctx, knows_verdict, s,
                  dtp_ctx_now_ns(s->ctx) + GROUP_GRACE_MS * DTPI_NS_PER_MS, NULL);
    if (!knows_verdict(s)) {
        v.status = -(dtp_status)atomic_load(&s->control->word);
        snprintf(v.text, sizeof(v.text), "%s",
                 v.status == DTP_ERR_ABORTED ? "the group was aborted" : "the group has failed");
        session_fail(s, &v);
    }
    return session_verdict(s, err);
}

dtp_status dtpi_group_verdict(dtp_group *g, dtp_error *err)
{
    dtp_status st = dtpi_ctx_enter(g->ctx, err);

    if (st < 0)
        return st;
    st = atomic_load(&g->session->control->word) ? await_verdict(g->session, err)
                                                 : session_verdict(g->session, err);
    dtpi_ctx_leave(g->ctx);
    return st;
}

dtp_status dtpi_group_check(dtp_group *g, dtp_error *err)
{
    struct session *s = g->session;

    if (DTPI_UNLIKELY(!dtpi_ctx_alive(g->ctx)))
        return dtpi_fail(err, DTP_ERR_FORKED, "the group was joined by the parent process");
    if (DTPI_LIKELY(!atomic_load_explicit(&s->control->word, memory_order_acquire) &&
                    !atomic_load_explicit(&s->has_verdict, memory_order_acquire)))
        return DTP_OK;
    return dtpi_group_verdict(g, err);
}

void dtpi_group_poll(dtp_group *g)
{
    if (dtpi_ctx_enter(g->ctx, NULL) < 0)
        return;
    session_poll(g->session);
    dtpi_ctx_leave(g->ctx);
}

static int compare_ranks(const void *a, const void *b)
{
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : *(const int32_t *)a > *(const int32_t *)b;
}

size_t dtp_group_failed(const dtp_group *g, int32_t *ranks_out, size_t capacity)
{
    struct session *s = g->session;
    size_t n = 0;

    pthread_mutex_lock(&s->mutex);
    const uint32_t n_failed = atomic_load(&s->has_verdict) ? s->verdict.n_failed : 0;
    for (int32_t i = 0; n_failed > 0 && i < g->size; i++) {
        const int32_t rank = group_world_rank(g, i);
        if (!bsearch(&rank, s->verdict.failed, n_failed, sizeof(rank), compare_ranks))
            continue;
        if (n < capacity)
            ranks_out[n] = i;
        n++;
    }
    pthread_mutex_unlock(&s->mutex);
    return n;
}
