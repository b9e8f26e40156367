/* SPDX-License-Identifier: Apache-2.0 */
/*
 * renew.c - a rank's side of a re-form: it calls, and takes the session of the next generation.
 *
 * The new session takes the connection with the agent over; the old one keeps its verdict, or learns that
 * the group was re-formed, so that its groups stay valid to close.
 */
#include "group/group_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

static int compare_ranks(const void *a, const void *b)
{
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : *(const int32_t *)a > *(const int32_t *)b;
}

int32_t session_rank_of(const struct session *s, int32_t identity)
{
    const int32_t *at;

    if (!s->members || identity < 0)
        return identity;
    at = bsearch(&identity, s->members, s->n_members, sizeof(*s->members), compare_ranks);
    return at ? (int32_t)(at - s->members) : -1;
}

int32_t session_size(const struct session *s)
{
    return s->members ? (int32_t)s->n_members : s->world;
}

/* ---- the old session ---- */

static int32_t identity_of(const struct session *s, int32_t rank)
{
    return s->members ? s->members[rank] : rank;
}

/* All that were in the old generation and are not in the new one, as its verdict. */
static void end_generation(struct session *old, const struct session *next)
{
    dtpi_verdict v = { .status = DTP_ERR_PEER };
    const dtp_allocator *a = dtpi_ctx_alloc(old->ctx);
    const int32_t n = session_size(old);
    int32_t *lost = dtpi_alloc_array(a, (size_t)n, sizeof(*lost));
    char ranks[100] = "";

    for (int32_t i = 0; lost && i < n; i++)
        if (session_rank_of(next, identity_of(old, i)) < 0)
            lost[v.n_failed++] = i;
    if (v.n_failed)
        dtpi_format_ranks(lost, v.n_failed, ranks, sizeof(ranks));
    for (uint32_t i = 0; i < v.n_failed; i++)
        lost[i] = identity_of(old, lost[i]);
    v.failed = lost;
    snprintf(v.text, sizeof(v.text), "the group was re-formed as generation %u%s%s%s: split and open anew",
             next->generation, v.n_failed ? " without rank" : "",
             v.n_failed == 0 ? "" : v.n_failed == 1 ? " " : "s ", ranks);
    session_fail(old, &v);
    dtpi_free(a, lost, (size_t)n * sizeof(*lost));
}

/* ---- the new session ---- */

static bool take_members(struct session *s, const dtpi_buf *list)
{
    const uint32_t n = (uint32_t)(list->len / sizeof(int32_t));

    s->members = dtpi_alloc_array(dtpi_ctx_alloc(s->ctx), n, sizeof(int32_t));
    if (!s->members)
        return false;
    memcpy(s->members, list->data, list->len);
    s->n_members = n;
    return true;
}

static struct session *next_session(const struct session *old)
{
    struct session *s = dtpi_alloc(dtpi_ctx_alloc(old->ctx), sizeof(*s));

    if (!s)
        return NULL;
    s->ctx = old->ctx;
    s->rank = old->rank;
    s->world = old->world;
    s->local_rank = old->local_rank;
    s->attempt = old->attempt;
    s->generation = old->generation + 1;
    s->timeout_ms = old->timeout_ms;
    s->agent_pid = old->agent_pid;
    s->agent_pidfd = -1;
    s->next_seq = old->next_seq;
    s->state = SESSION_MEMBER;
    memcpy(s->job, old->job, sizeof(s->job));
    memcpy(s->root, old->root, sizeof(s->root));
    pthread_mutex_init(&s->mutex, NULL);
    session_init_abort(s);
    return s;
}

/* The connection, and the agent in this process, go over. */
static void hand_over(struct session *old, struct session *next)
{
    pthread_mutex_lock(&old->mutex);
    next->link = DTPI_TAKE(old->link);
    pthread_mutex_unlock(&old->mutex);
    dtpi_link_set_user(next->link, next);
    next->host = DTPI_TAKE(old->host);
    dtpi_source_remove(old->ctx, &old->agent_source);
    next->agent_pidfd = dtpi_take_fd(&old->agent_pidfd);
    session_watch_pidfd(next);
}

/* Nobody here waits for the new group (any more): the others must not wait for this rank. */
static void decline(struct session *s)
{
    dtpi_verdict v = { .status = DTP_ERR_PEER };

    s->generation++;
    dtpi_buf b = session_begin(s, DTPI_F_LEAVE, DTPI_WORLD_ID, 0, 0);
    session_send(s, &b);
    snprintf(v.text, sizeof(v.text), "the group was re-formed as generation %u, for which this rank did "
             "not wait", s->generation);
    session_fail(s, &v);
}

static dtp_status make_next(struct session *s, const dtpi_buf *members, int control_fd, int table_fd,
                            struct session **out, dtp_error *err)
{
    struct session *next = next_session(s);

    if (!next || !take_members(next, members)) {
        session_close(next);
        return dtpi_fail_nomem(err, members->len);
    }
    const dtp_status st = session_map_files(next, control_fd, table_fd, err);
    if (st < 0)
        session_close(next);
    else
        *out = next;
    return st;
}

/* Identities of newcomers follow each other, and are the last of the members. */
static int32_t own_identity(const struct session *s, const dtpi_buf *members, dtpi_rd new)
{
    const uint32_t n = (uint32_t)(members->len / sizeof(int32_t)), n_new = dtpi_rd_u32(&new);
    const int32_t *list = (const int32_t *)(const void *)members->data;
    dtpi_newcomer one;

    for (uint32_t i = 0; i < n_new && n_new <= n && dtpi_newcomer_read(&new, &one); i++)
        if (one.id == s->newcomer)
            return list[n - n_new + i];
    return -1;
}

/* A newcomer joins with the generation that takes it in. */
static void taken_in(struct session *s, const dtpi_frame *f, const dtpi_buf *members, dtpi_rd new)
{
    DTPI_AUTO_FD int control_fd = dtpi_link_take_fd(s->link);
    DTPI_AUTO_FD int table_fd = dtpi_link_take_fd(s->link);
    const int32_t identity = own_identity(s, members, new);

    if (identity < 0 || s->state != SESSION_JOINING)
        return;
    s->rank = identity;
    s->newcomer = 0;
    s->generation = f->generation + 1;
    if (members->failed || !take_members(s, members))
        dtpi_fail_nomem(&s->join_error, members->len);
    else
        session_map_files(s, control_fd, table_fd, &s->join_error);
    s->state = s->join_error.status < 0 ? SESSION_FAILED : SESSION_MEMBER;
}

void session_formed(struct session *s, const dtpi_frame *f)
{
    DTPI_AUTO_BUF dtpi_buf members = dtpi_buf_init(dtpi_ctx_alloc(s->ctx));
    /* A newcomer knows nothing of those who were taken in before it. */
    const uint32_t limit = s->newcomer ? DTPI_WORLD_MAX : (uint32_t)s->world;
    struct renewal *r = s->renewal;
    DTPI_AUTO_FD int control_fd = -1;
    DTPI_AUTO_FD int table_fd = -1;
    char text[DTP_ERROR_TEXT];
    dtp_status status;
    dtpi_rd new;

    if ((f->seq != s->round && !s->newcomer) ||
        !dtpi_formed_read(f, limit, &status, text, sizeof(text), &members, &new))
        return;
    if (s->newcomer) {
        if (status == DTP_OK)
            taken_in(s, f, &members, new);
        return;
    }
    if (status < 0) {
        s->round++;
        if (r) {
            dtpi_fail(&r->error, status, "%s", text);
            r->done = true;
        }
        return;
    }
    control_fd = dtpi_link_take_fd(s->link);
    table_fd = dtpi_link_take_fd(s->link);
    if (!r) {
        decline(s);
        return;
    }
    r->done = true;
    if (members.failed)
        dtpi_fail_nomem(&r->error, 0);
    else
        make_next(s, &members, control_fd, table_fd, &r->next, &r->error);
    if (!r->next) {
        decline(s);
        return;
    }
    hand_over(s, r->next);
    end_generation(s, r->next);
}

/* Dropped; but a next generation that fails before it reaches this rank ends the wait for it. */
void session_other_generation(struct session *s, const dtpi_frame *f)
{
    struct renewal *r = s->renewal;
    dtpi_rd rd = dtpi_rd_init(f->body, f->bytes);
    char text[DTP_ERROR_TEXT];

    if (!r || r->done || f->type != DTPI_F_VERDICT || f->generation != s->generation + 1)
        return;
    const dtp_status status = (dtp_status)dtpi_rd_u32(&rd);
    if (!dtpi_rd_text(&rd, text, sizeof(text)) || status >= 0)
        return;
    dtpi_fail(&r->error, status, "%s", text);
    r->done = true;
}

/* ---- the call ---- */

static bool is_over(void *user)
{
    const struct renewal *r = user;
    const struct session *s = r->session;

    return r->done || !s->link || s->agent_gone || s->state == SESSION_FAILED ||
           (atomic_load(&s->has_verdict) && s->verdict.status == DTP_ERR_ABORTED);
}

static dtp_status why_not(struct session *s, dtp_error *err)
{
    dtp_error why = { .status = DTP_OK };
    const dtp_status st = session_verdict(s, &why);

    /* A rank's process may host the agent; under a launcher's it is not lost with one. */
    if (s->link && s->agent_gone && st != DTP_ERR_ABORTED)
        return dtpi_fail_rank(err, DTP_ERR_PEER, why.rank, "re-form: the agent of this node is gone%s%.150s",
                              st < 0 ? ": " : "", st < 0 ? why.text : "");
    if (err && st < 0)
        *err = why;
    return st < 0 ? st : dtpi_fail(err, DTP_ERR_PEER, "re-form: this group is over");
}

static bool send_call(struct session *s, int64_t deadline_ns, uint32_t min_size)
{
    dtpi_buf b = session_begin(s, DTPI_F_REFORM, DTPI_WORLD_ID, 0, s->round);
    const int64_t left_ns = deadline_ns - dtp_ctx_now_ns(s->ctx);

    dtpi_wr_u32(&b, deadline_ns == INT64_MAX ? UINT32_MAX
                                             : (uint32_t)(DTPI_MAX(left_ns, 0) / DTPI_NS_PER_MS));
    dtpi_wr_u32(&b, min_size);
    return session_send(s, &b);
}

static dtp_status await_next(struct session *s, int64_t deadline_ns, uint32_t min_size,
                             struct session **out, dtp_error *err)
{
    struct renewal r = { .session = s };
    const int64_t give_up = deadline_ns == INT64_MAX
                                ? INT64_MAX : deadline_ns + GROUP_REFORM_GRACE_MS * DTPI_NS_PER_MS;

    if (is_over(&r))
        return why_not(s, err);
    if (!send_call(s, deadline_ns, min_size))
        return s->agent_gone ? why_not(s, err) : dtpi_fail(err, DTP_ERR_IO, "cannot send to the agent");
    s->renewal = &r;
    const dtp_status st = dtpi_ctx_wait(s->ctx, is_over, &r, give_up, err);
    s->renewal = NULL;
    if (r.next) {
        *out = r.next;
        return DTP_OK;
    }
    if (r.error.status < 0) {
        if (err)
            *err = r.error;
        return r.error.status;
    }
    if (st == DTP_ERR_TIMEOUT)
        return dtpi_fail(err, st, "re-form: no answer from the root agent in time");
    return st < 0 ? st : why_not(s, err);
}

static dtp_status alone_again(struct session *old, struct session **out, dtp_error *err)
{
    struct session *s = next_session(old);
    dtp_status st = DTP_OK;

    if (atomic_load(&old->has_verdict))
        st = session_verdict(old, err);
    else if (!s)
        st = dtpi_fail_nomem(err, sizeof(*s));
    if (st >= 0)
        st = session_open_alone(s, err);
    if (st < 0) {
        session_close(s);
        return st;
    }
    end_generation(old, s);
    *out = s;
    return DTP_OK;
}

dtp_status session_group(dtp_ctx *ctx, struct session *s, dtp_group **out, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(ctx);
    dtp_group *g = dtpi_alloc(a, sizeof(*g));
    const size_t n = (size_t)session_size(s);

    if (!g) {
        session_close(s);
        return dtpi_fail_nomem(err, sizeof(*g));
    }
    g->ctx = ctx;
    g->id = DTPI_WORLD_ID;
    g->session = s;
    g->size = (int32_t)n;
    g->rank = session_rank_of(s, s->rank);
    s->n_groups = 1;
    dtp_status st = g->rank < 0 ? dtpi_fail(err, DTP_ERR_PROTO, "a new group without this rank") : DTP_OK;
    if (st >= 0 && s->members) {
        g->members = dtpi_alloc_array(a, n, sizeof(int32_t));
        if (g->members)
            memcpy(g->members, s->members, n * sizeof(int32_t));
        else
            st = dtpi_fail_nomem(err, n);
    }
    if (st >= 0)
        st = layout_make(g, err);
    if (st < 0)
        dtp_group_close(g);
    else
        *out = g;
    return st;
}

static dtp_status check_opts(const dtp_group *g, const dtp_reform_opts *o, dtp_error *err)
{
    if (g->id != DTPI_WORLD_ID)
        return dtpi_fail(err, DTP_ERR_INVAL, "this group was split off: re-form the group of all ranks, "
                         "and split that");
    if (o->min_size < 0)
        return dtpi_fail(err, DTP_ERR_INVAL, "min_size is %d", o->min_size);
    if (g->session->renewal)
        return dtpi_fail(err, DTP_ERR_BUSY, "the group is being re-formed already");
    return DTP_OK;
}

static dtp_status reform(dtp_group *g, const dtp_reform_opts *user, dtp_group **out, dtp_error *err)
{
    struct session *next = NULL;
    dtp_reform_opts o;

    dtp_status st = DTPI_OPTS_READ(&o, user, err);
    if (st >= 0)
        st = check_opts(g, &o, err);
    if (st < 0)
        return st;
    if (!g->session->table)
        st = alone_again(g->session, &next, err);
    else
        st = await_next(g->session,
                        dtpi_ctx_deadline(g->ctx, o.timeout_ms, g->session->timeout_ms),
                        (uint32_t)o.min_size, &next, err);
    return st < 0 ? st : session_group(g->ctx, next, out, err);
}

dtp_status dtp_group_reform(dtp_group *g, const dtp_reform_opts *opts, dtp_group **group_out,
                            dtp_error *err)
{
    dtp_status st = dtpi_ctx_enter(g->ctx, err);

    if (st < 0)
        return st;
    st = reform(g, opts, group_out, err);
    dtpi_ctx_leave(g->ctx);
    return dtpi_noun(err, "group", st);
}

int32_t dtp_group_n_waiting(const dtp_group *g)
{
    return g->session->table ? (int32_t)atomic_load(&g->session->control->n_waiting) : 0;
}
