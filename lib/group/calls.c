/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.c - collective calls of a rank: a contribution goes to the agent, an operation waits for the
 * result. A deadline asks the group who is missing; the answer is the same for all.
 */
#include "group/group_internal.h"

#include <stdlib.h>

static void call_free(struct call *c)
{
    const dtp_allocator *a = dtpi_ctx_alloc(c->ctx);

    dtpi_buf_free(&c->result);
    dtpi_free(a, c->sizes, c->n * sizeof(*c->sizes));
    dtpi_free(a, c, sizeof(*c));
}

static void unlist(struct call *c)
{
    if (!c->prev)
        return;
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->prev = NULL;
}

static void call_end(struct call *c, dtp_status status, const dtp_error *why)
{
    unlist(c);
    dtpi_timer_clear(c->ctx, &c->timer);
    dtpi_op_end(c->op, status, why);
}

static void op_cancel(dtp_op *op)
{
    call_end(dtpi_op_owner(op), DTP_ERR_CANCELED, NULL);
}

static void op_destroy(dtp_op *op)
{
    call_free(dtpi_op_owner(op));
}

static const dtpi_op_ops call_ops = { .name = "group call", .cancel = op_cancel,
                                      .destroy = op_destroy };

const dtpi_gathered *dtpi_group_gathered(const dtp_op *op)
{
    const struct call *c = dtpi_op_owner(op);

    return &c->gathered;
}

/* ---- results ---- */

static bool keep_gathered(struct call *c, dtpi_rd *r)
{
    uint64_t total = 0;

    c->sizes = dtpi_alloc_array(dtpi_ctx_alloc(c->ctx), c->n, sizeof(*c->sizes));
    if (!c->sizes)
        return false;
    for (uint32_t i = 0; i < c->n; i++) {
        c->sizes[i] = dtpi_rd_u32(r);
        total += c->sizes[i];
    }
    if (r->failed || total != r->left)
        return false;
    dtpi_buf_append(&c->result, r->p, r->left);
    c->gathered = (dtpi_gathered){ .data = c->result.data, .sizes = c->sizes,
                                   .bytes = c->result.len };
    return !c->result.failed;
}

/* The whole result of a split stays as it came: frame.h reads it. */
static bool keep_whole(struct call *c, dtpi_rd *r)
{
    dtpi_buf_append(&c->result, r->p, r->left);
    c->gathered = (dtpi_gathered){ .data = c->result.data, .bytes = c->result.len };
    return !c->result.failed;
}

static void keep_early(struct session *s, const dtpi_frame *f, const dtp_error *e)
{
    struct early *n = dtpi_alloc(dtpi_ctx_alloc(s->ctx), sizeof(*n));

    if (!n)
        return;     /* the call will meet its own deadline */
    *n = (struct early){ .next = s->earlies, .id = f->group, .lane = f->lane, .seq = f->seq,
                         .error = *e };
    s->earlies = n;
}

static void down_failed(struct session *s, struct call *c, const dtpi_frame *f,
                        const dtpi_down *down)
{
    dtp_error e;

    dtpi_fail_rank(&e, down->status, down->rank, "%s", down->text);
    dtpi_noun(&e, "group", down->status);
    if (c)
        call_end(c, down->status, &e);
    else
        keep_early(s, f, &e);
}

void calls_down(struct session *s, const dtpi_frame *f)
{
    struct call *c = s->calls;
    dtpi_down down;
    dtp_error e;

    while (c && (c->id != f->group || c->lane != f->lane || c->seq != f->seq))
        c = c->next;
    if (!dtpi_down_read(f, &down))
        return;
    if (down.status < 0) {
        down_failed(s, c, f, &down);
        return;
    }
    if (!c)
        return;     /* cancelled */
    const bool ok = down.kind == c->kind &&
                    (c->kind == DTPI_KIND_GATHER ? keep_gathered(c, &down.rest)
                                                 : keep_whole(c, &down.rest));
    if (ok)
        call_end(c, DTP_OK, NULL);
    else
        call_end(c, dtpi_fail(&e, DTP_ERR_PROTO, "malformed result of %s %u",
                              dtpi_kind_name(c->kind), c->seq), &e);
}

static bool take_early(struct session *s, const struct call *c, dtp_error *out)
{
    for (struct early **p = &s->earlies; *p; p = &(*p)->next) {
        struct early *n = *p;
        if (n->id != c->id || n->lane != c->lane || n->seq != c->seq)
            continue;
        *out = n->error;
        *p = n->next;
        dtpi_free(dtpi_ctx_alloc(s->ctx), n, sizeof(*n));
        return true;
    }
    return false;
}

void calls_fail(struct session *s, const dtp_error *why)
{
    while (s->calls)
        call_end(s->calls, why->status, why);
}

void calls_cancel(dtp_group *group)
{
    for (struct call *c = group->session->calls, *next; c; c = next) {
        next = c->next;
        if (c->group == group)
            call_end(c, DTP_ERR_CANCELED, NULL);
    }
}

void calls_free(struct session *s)
{
    while (s->earlies) {
        struct early *n = s->earlies;
        s->earlies = n->next;
        dtpi_free(dtpi_ctx_alloc(s->ctx), n, sizeof(*n));
    }
}

/* ---- deadlines ---- */

/* First the group is asked who is missing; without an answer the call ends by itself. */
static void deadline_due(dtpi_timer *t)
{
    struct call *c = DTPI_CONTAINER(t, struct call, timer);
    struct session *s = c->group->session;
    dtp_error e;

    if (c->expired) {
        call_end(c, dtpi_fail(&e, DTP_ERR_TIMEOUT, "%s %u: no answer from the group in time",
                              dtpi_kind_name(c->kind), c->seq), &e);
        return;
    }
    c->expired = true;
    dtpi_buf b = session_begin(s, DTPI_F_EXPIRE, c->id, c->lane, c->seq);
    session_send(s, &b);
    dtpi_timer_set(c->ctx, t, dtp_ctx_now_ns(c->ctx) + GROUP_GRACE_MS * DTPI_NS_PER_MS, NULL);
}

/* ---- starting ---- */

static dtp_status call_new(dtp_group *g, uint8_t lane, uint8_t kind, struct call **out,
                           dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(g->ctx);
    struct call *c = dtpi_alloc(a, sizeof(*c));

    if (!c)
        return dtpi_fail_nomem(err, sizeof(*c));
    *c = (struct call){ .ctx = g->ctx, .group = g, .id = g->id, .lane = lane, .kind = kind,
                        .seq = g->seq[lane] + 1, .n = (uint32_t)g->size,
                        .timer = { .due = deadline_due }, .result = dtpi_buf_init(a) };
    const dtp_status st = dtpi_op_new(g->ctx, &call_ops, c, &c->op, err);
    if (st < 0) {
        call_free(c);
        return st;
    }
    *out = c;
    return DTP_OK;
}

/* A group of one is its own answer. */
static void answer_alone(struct call *c, const void *data, size_t bytes)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(c->ctx));
    dtp_error e;

    if (c->kind != DTPI_KIND_BROADCAST && c->kind != DTPI_KIND_BARRIER)
        dtpi_wr_u32(&b, (uint32_t)bytes);
    dtpi_buf_append(&b, data, bytes);
    dtpi_rd r = dtpi_rd_init(b.data, b.len);
    const bool ok = !b.failed && (c->kind == DTPI_KIND_GATHER ? keep_gathered(c, &r)
                                                              : keep_whole(c, &r));
    dtpi_buf_free(&b);
    if (ok)
        call_end(c, DTP_OK, NULL);
    else
        call_end(c, dtpi_fail_nomem(&e, bytes), &e);
}

static dtpi_msg *up_msg(const struct call *c, int32_t root, const void *data, size_t bytes)
{
    dtpi_buf b = session_begin(c->group->session, DTPI_F_UP, c->id, c->lane, c->seq);

    dtpi_up_write(&b, c->kind, (uint32_t)c->group->rank, root, data, bytes);
    return dtpi_msg_new(&b);
}

dtp_status call_start(dtp_group *g, uint8_t lane, uint8_t kind, int32_t root, const void *data,
                      size_t bytes, int64_t deadline_ns, dtp_op **op_out, dtp_error *err)
{
    struct session *s = g->session;
    struct call *c = NULL;
    dtp_error e;

    dtp_status st = dtpi_group_check(g, err);
    if (st < 0)
        return st;
    if (bytes > DTP_GROUP_MAX_MSG)
        return dtpi_fail(err, DTP_ERR_LIMIT, "%s of %zu bytes: at most %d are possible",
                         dtpi_kind_name(kind), bytes, DTP_GROUP_MAX_MSG);
    st = call_new(g, lane, kind, &c, err);
    if (st < 0)
        return st;
    DTPI_AUTO(msg) dtpi_msg *m = s->link ? up_msg(c, root, data, bytes) : NULL;
    if (s->link && !m)
        st = dtpi_fail_nomem(err, bytes);
    if (m && deadline_ns != INT64_MAX)
        st = dtpi_timer_set(g->ctx, &c->timer, deadline_ns, err);
    if (st < 0) {
        dtp_op *op = c->op;
        call_end(c, st, NULL);
        dtp_op_free(op);
        return st;
    }
    g->seq[lane]++;
    *op_out = c->op;
    c->next = s->calls;
    c->prev = &s->calls;
    if (c->next)
        c->next->prev = &c->next;
    s->calls = c;
    if (!m) {
        answer_alone(c, data, bytes);
        return DTP_OK;
    }
    /* A broken link ends the call through `closed`. */
    if (!dtpi_link_send(s->link, m, NULL, 0) && !dtpi_link_is_broken(s->link)) {
        g->seq[lane]--;
        call_end(c, DTP_ERR_NOMEM, NULL);
        dtp_op_free(*op_out);
        *op_out = NULL;
        return dtpi_fail_nomem(err, bytes);
    }
    if (take_early(s, c, &e))
        call_end(c, e.status, &e);
    return DTP_OK;
}

/* ---- what the floors above use ---- */

dtp_status dtpi_group_allgather_start(dtp_group *g, uint32_t lane, const void *data, size_t bytes,
                                      int64_t deadline_ns, dtp_op **op_out, dtp_error *err)
{
    dtp_status st = dtpi_ctx_enter(g->ctx, err);

    if (st < 0)
        return st;
    st = lane > DTPI_LANE_MAX
             ? dtpi_fail(err, DTP_ERR_INVAL, "lane %u", lane)
             : call_start(g, (uint8_t)lane, DTPI_KIND_GATHER, 0, data, bytes, deadline_ns, op_out,
                          err);
    dtpi_ctx_leave(g->ctx);
    return dtpi_noun(err, "group", st);
}

/* Starts a call and waits for its end; the operation is given to the caller on success. */
static dtp_status call_and_wait(dtp_group *g, uint32_t lane, uint8_t kind, int32_t root,
                                const void *data, size_t bytes, int64_t deadline_ns,
                                dtp_op **op_out, dtp_error *err)
{
    dtp_op *op = NULL;

    dtp_status st = dtpi_ctx_enter(g->ctx, err);
    if (st < 0)
        return st;
    st = call_start(g, (uint8_t)lane, kind, root, data, bytes, deadline_ns, &op, err);
    if (st >= 0)
        st = dtp_op_wait(op, -1, err);
    if (st < 0)
        dtp_op_free(op);
    else
        *op_out = op;
    dtpi_ctx_leave(g->ctx);
    return dtpi_noun(err, "group", st);
}

dtp_status dtpi_group_allgather_on(dtp_group *g, uint32_t lane, const void *data, size_t bytes,
                                   int64_t deadline_ns, dtp_op **op_out, dtp_error *err)
{
    return call_and_wait(g, lane, DTPI_KIND_GATHER, 0, data, bytes, deadline_ns, op_out, err);
}

dtp_status dtpi_group_barrier_on(dtp_group *g, uint32_t lane, int64_t deadline_ns, dtp_error *err)
{
    dtp_op *op = NULL;
    const dtp_status st =
        call_and_wait(g, lane, DTPI_KIND_BARRIER, 0, NULL, 0, deadline_ns, &op, err);

    if (st >= 0)
        dtp_op_free(op);
    return st;
}

/* ---- public calls ---- */

dtp_status dtp_group_barrier(dtp_group *g, int timeout_ms, dtp_error *err)
{
    return dtpi_group_barrier_on(g, DTPI_LANE_USER,
                                 dtpi_ctx_deadline(g->ctx, timeout_ms, dtpi_group_timeout_ms(g)),
                                 err);
}

dtp_status dtp_group_allgather(dtp_group *g, const void *data, size_t bytes, void **data_out,
                               size_t *sizes_out, size_t *bytes_out, int timeout_ms, dtp_error *err)
{
    const int64_t deadline = dtpi_ctx_deadline(g->ctx, timeout_ms, dtpi_group_timeout_ms(g));
    dtp_op *op = NULL;

    const dtp_status st =
        dtpi_group_allgather_on(g, DTPI_LANE_USER, data, bytes, deadline, &op, err);
    if (st < 0)
        return st;
    const dtpi_gathered *all = dtpi_group_gathered(op);
    void *copy = malloc(all->bytes ? all->bytes : 1);
    if (copy) {
        if (all->bytes)
            memcpy(copy, all->data, all->bytes);
        if (sizes_out)
            memcpy(sizes_out, all->sizes, (size_t)g->size * sizeof(*sizes_out));
        *data_out = copy;
        if (bytes_out)
            *bytes_out = all->bytes;
    }
    const size_t total = all->bytes;
    dtp_op_free(op);
    return copy ? DTP_OK : dtpi_noun(err, "group", dtpi_fail_nomem(err, total));
}

void dtp_group_free(void *p)
{
    free(p);
}

dtp_status dtp_group_broadcast(dtp_group *g, int32_t root, void *data, size_t bytes, int timeout_ms,
                               dtp_error *err)
{
    const int64_t deadline = dtpi_ctx_deadline(g->ctx, timeout_ms, dtpi_group_timeout_ms(g));
    dtp_op *op = NULL;

    if (root < 0 || root >= g->size)
        return dtpi_noun(err, "group",
                         dtpi_fail(err, DTP_ERR_RANGE, "broadcast from rank %d in a group of %d", root,
                                   g->size));
    const dtp_status st =
        call_and_wait(g, DTPI_LANE_USER, DTPI_KIND_BROADCAST, root, data, bytes, deadline, &op, err);
    if (st < 0)
        return st;
    const dtpi_gathered *all = dtpi_group_gathered(op);
    const bool fits = all->bytes == bytes;
    if (fits && bytes && g->rank != root)
        memcpy(data, all->data, bytes);
    dtp_op_free(op);
    return fits ? DTP_OK : dtpi_noun(err, "group", dtpi_fail(err, DTP_ERR_PROTO, "broadcast of a wrong size"));
}

/* ---- split ---- */

static dtp_status make_subgroup(dtp_group *g, const dtpi_split_item *items, uint32_t n, uint32_t seq,
                                dtp_group **out, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(g->ctx);
    dtp_group *sub = dtpi_alloc(a, sizeof(*sub));

    if (!sub)
        return dtpi_fail_nomem(err, sizeof(*sub));
    sub->ctx = g->ctx;
    sub->session = g->session;
    sub->id = dtpi_split_id(g->id, DTPI_LANE_USER, seq, items[0].color);
    sub->size = (int32_t)n;
    sub->members = dtpi_alloc_array(a, n, sizeof(int32_t));
    for (uint32_t i = 0; sub->members && i < n; i++) {
        sub->members[i] = group_world_rank(g, (int32_t)items[i].index);
        if ((int32_t)items[i].index == g->rank)
            sub->rank = (int32_t)i;
    }
    g->session->n_groups++;
    const dtp_status st = sub->members ? layout_make(sub, err) : dtpi_fail_nomem(err, n);
    if (st < 0)
        dtp_group_close(sub);
    else
        *out = sub;
    return st;
}

static dtp_status pick_color(dtp_group *g, const dtpi_gathered *all, int32_t color, uint32_t seq,
                             dtp_group **out, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(g->ctx);
    const uint32_t n = (uint32_t)g->size;
    dtpi_split_item *items = dtpi_alloc_array(a, n, sizeof(*items));
    dtpi_rd r = dtpi_rd_init(all->data, all->bytes);
    uint32_t first, n_found;

    if (!items)
        return dtpi_fail_nomem(err, n * sizeof(*items));
    const dtp_status st =
        dtpi_split_read(&r, n, items) &&
                dtpi_split_find(items, n, color, (uint32_t)g->rank, &first, &n_found)
            ? make_subgroup(g, items + first, n_found, seq, out, err)
            : dtpi_fail(err, DTP_ERR_PROTO, "malformed result of split");
    dtpi_free(a, items, n * sizeof(*items));
    return st;
}

dtp_status dtp_group_split(dtp_group *g, int32_t color, int32_t key, int timeout_ms,
                           dtp_group **group_out, dtp_error *err)
{
    const int64_t deadline = dtpi_ctx_deadline(g->ctx, timeout_ms, dtpi_group_timeout_ms(g));
    dtp_group *sub = NULL;
    dtp_op *op = NULL;
    uint8_t raw[8];

    for (size_t i = 0; i < 4; i++) {
        raw[i] = (uint8_t)((uint32_t)color >> (8 * i));
        raw[4 + i] = (uint8_t)((uint32_t)key >> (8 * i));
    }
    dtp_status st = dtpi_ctx_enter(g->ctx, err);
    if (st < 0)
        return st;
    const uint32_t seq = g->seq[DTPI_LANE_USER] + 1;
    st = call_and_wait(g, DTPI_LANE_USER, DTPI_KIND_SPLIT, 0, raw, sizeof(raw), deadline, &op, err);
    if (st >= 0 && color >= 0)
        st = pick_color(g, dtpi_group_gathered(op), color, seq, &sub, err);
    dtp_op_free(op);
    if (st >= 0)
        *group_out = sub;
    dtpi_ctx_leave(g->ctx);
    return dtpi_noun(err, "group", st);
}
