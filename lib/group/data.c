/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.c - bulk data between the ranks of a group, over UCX.
 *
 * A session has one worker; groups that open the data path agree on a number, which with sender and tag
 * makes the 64-bit tag: 12 bits group, 20 bits sender, 32 bits the caller's. Each rank leaves its address
 * under a key that is not counted among the group's; who sends to it first asks for it.
 */
#include "group/group_internal.h"

#include <stdio.h>
#include <sys/epoll.h>

enum { MAX_NUMBER = 4095, MAX_SENDER = (1 << 20) - 1, VERSION_ROOM = 16,
       CANCEL_TURNS = 100000 };

struct session_net {
    const struct dtpi_net_ops *ops;
    dtpi_net *net;
    dtpi_source source;
    uint32_t next_number;
    uint32_t n_users;
    char version[VERSION_ROOM];
    dtpi_net_choice choice;
    struct session *session;
};

struct group_data {
    struct session_net *net;
    uint32_t number;
    dtpi_net_ep **eps;          /* by rank, made on first use */
    dtpi_xfer *xfers;           /* not done */
    bool is_over;
};

/* ---- the worker ---- */

static void net_ready(dtpi_source *s, uint32_t revents)
{
    struct session_net *n = DTPI_CONTAINER(s, struct session_net, source);

    (void)revents;
    while (n->ops->progress(n->net))
        continue;
}

static bool net_arm(dtpi_source *s)
{
    struct session_net *n = DTPI_CONTAINER(s, struct session_net, source);

    return n->ops->arm(n->net);
}

static void net_free(struct session_net *n)
{
    const dtp_allocator *a = dtpi_ctx_alloc(n->session->ctx);

    dtpi_source_remove(n->session->ctx, &n->source);
    if (n->net)
        n->ops->close(n->net);
    n->session->net = NULL;
    dtpi_free(a, n, sizeof(*n));
}

static dtp_status net_open(struct session *s, dtp_error *err)
{
    dtp_ctx *ctx = s->ctx;
    struct session_net *n = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*n));

    if (!n)
        return dtpi_fail_nomem(err, sizeof(*n));
    n->session = s;
    n->next_number = 1;
    dtp_status st = dtpi_module_load(ctx, "net-ucx", (const void **)&n->ops, err);
    dtpi_net_choose(s->root[0] ? s->root : NULL, &n->choice);
    const dtpi_net_opts o = { .allocator = dtpi_ctx_alloc(ctx), .log = dtpi_ctx_log(ctx),
                              .transports = n->choice.transports,
                              .devices = n->choice.devices[0] ? n->choice.devices : NULL };
    if (st >= 0)
        st = n->ops->open(&o, &n->net, err);
    if (st >= 0) {
        n->ops->version(n->version, sizeof(n->version));
        n->source = (dtpi_source){ .fd = n->ops->fd(n->net), .events = EPOLLIN, .ready = net_ready,
                                   .arm = net_arm };
        st = dtpi_source_add(ctx, &n->source, err);
    }
    if (st < 0) {
        net_free(n);
        return st;
    }
    DTPI_LOG(ctx, DTP_LOG_INFO, "group", "data over UCX %s on %s (%s)", n->version,
             n->choice.devices[0] ? n->choice.devices : "all devices", n->choice.transports);
    s->net = n;
    return DTP_OK;
}

/* ---- opening ---- */

static void data_free(dtp_group *g, struct group_data *d)
{
    const dtp_allocator *a = dtpi_ctx_alloc(g->ctx);
    const size_t n = (size_t)g->size;

    dtpi_free(a, d->eps, n * sizeof(*d->eps));
    dtpi_free(a, d, sizeof(*d));
}

static void address_key(int32_t rank, char *key_out, size_t room)
{
    snprintf(key_out, room, DTPI_KEY_HIDDEN "ucx/%d", rank);
}

static int ms_left(const dtp_ctx *ctx, int64_t deadline_ns)
{
    const int64_t ms = (deadline_ns - dtp_ctx_now_ns(ctx)) / DTPI_NS_PER_MS;

    return deadline_ns == INT64_MAX ? -1 : (int)DTPI_MIN(DTPI_MAX(ms, 1), (int64_t)INT32_MAX);
}

static dtp_status leave_address(dtp_group *g, int64_t deadline_ns, dtp_error *err)
{
    struct session_net *n = g->session->net;
    char key[32];
    size_t bytes = 0;
    const void *address = n->ops->address(n->net, &bytes);

    address_key(g->rank, key, sizeof(key));
    return dtp_group_set(g, key, address, bytes, ms_left(g->ctx, deadline_ns), err);
}

/* What each rank says: status, then the group number wanted and its UCX's version, or why it has none. */
static void write_own(struct session *s, dtp_status st, const dtp_error *why, dtpi_buf *b)
{
    dtpi_wr_u32(b, (uint32_t)st);
    if (st >= 0)
        dtpi_wr_u32(b, s->net->next_number);
    dtpi_wr_text(b, st < 0 ? why->text : s->net->version);
}

static dtp_status read_one(dtp_group *g, struct group_data *d, int32_t rank, dtpi_rd *r,
                           dtp_error *err)
{
    char text[DTP_ERROR_TEXT];
    const dtp_status st = (dtp_status)dtpi_rd_u32(r);
    const uint32_t number = st < 0 ? 0 : dtpi_rd_u32(r);

    dtpi_rd_text(r, text, sizeof(text));
    if (!dtpi_rd_done(r) || number > MAX_NUMBER)
        return dtpi_fail_rank(err, DTP_ERR_PROTO, rank, "rank %d sent a malformed number of its data", rank);
    if (st < 0)
        return dtpi_fail_rank(err, st, rank, "rank %d cannot open the network: %s", rank, text);
    if (strcmp(text, d->net->version) != 0)
        return dtpi_fail_rank(err, DTP_ERR_VERSION, rank, "rank %d has UCX %s, rank %d has %s", rank,
                              text, g->rank, d->net->version);
    d->number = DTPI_MAX(d->number, number);
    return DTP_OK;
}

static dtp_status read_all(dtp_group *g, struct group_data *d, const dtpi_gathered *all, dtp_error *err)
{
    const uint8_t *p = all->data;

    for (int32_t i = 0; i < g->size; i++) {
        dtpi_rd r = dtpi_rd_init(p, all->sizes[i]);
        const dtp_status st = read_one(g, d, i, &r, err);
        if (st < 0)
            return st;
        p += all->sizes[i];
    }
    if (d->number >= MAX_NUMBER || g->size > MAX_SENDER)
        return dtpi_fail(err, DTP_ERR_LIMIT, "more than %d groups with data, or more than %d ranks",
                         MAX_NUMBER, MAX_SENDER);
    d->net->next_number = d->number + 1;
    return DTP_OK;
}

/* Also a rank that cannot open takes part, so that all fail alike. */
static dtp_status data_open(dtp_group *g, struct group_data *d, int64_t deadline_ns, dtp_error *err)
{
    struct session *s = g->session;
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(g->ctx));
    dtp_error why = { 0 };

    dtp_op *op = NULL;

    dtp_status st = s->net ? DTP_OK : net_open(s, &why);
    if (st >= 0)
        st = leave_address(g, deadline_ns, &why);
    write_own(s, st, &why, &b);
    if (b.failed)
        return dtpi_fail_nomem(err, 0);
    const dtp_status own = st;
    st = dtpi_group_allgather_on(g, DTPI_LANE_DATA, b.data, b.len, deadline_ns, &op, err);
    if (st >= 0 && own < 0) {
        if (err)
            *err = why;
        st = own;
    } else if (st >= 0) {
        d->net = s->net;
        st = read_all(g, d, dtpi_group_gathered(op), err);
    }
    dtp_op_free(op);
    return st;
}

dtp_status dtpi_group_data_open(dtp_group *g, int64_t deadline_ns, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(g->ctx);
    const size_t n = (size_t)g->size;

    dtp_status st = dtpi_ctx_enter(g->ctx, err);
    if (st < 0)
        return st;
    if (g->data) {
        dtpi_ctx_leave(g->ctx);
        return DTP_OK;
    }
    struct group_data *d = dtpi_alloc(a, sizeof(*d));
    if (d)
        d->eps = dtpi_alloc_array(a, n, sizeof(*d->eps));
    st = d && d->eps ? data_open(g, d, deadline_ns, err) : dtpi_fail_nomem(err, n * sizeof(*d->eps));
    if (st >= 0) {
        d->net->n_users++;
        g->data = d;
    } else if (d) {
        data_free(g, d);
    }
    if (st < 0 && g->session->net && g->session->net->n_users == 0)
        net_free(g->session->net);
    dtpi_ctx_leave(g->ctx);
    return dtpi_noun(err, "group", st);
}

/* ---- transfers ---- */

static uint64_t full_tag(const struct group_data *d, int32_t sender, uint32_t tag)
{
    return (uint64_t)d->number << 52 | (uint64_t)(uint32_t)sender << 32 | tag;
}

static void list(struct group_data *d, dtpi_xfer *x)
{
    x->next = d->xfers;
    x->prev = &d->xfers;
    if (x->next)
        x->next->prev = &x->next;
    d->xfers = x;
}

static dtp_status check(dtp_group *g, int32_t peer, dtp_error *err)
{
    if (!g->data)
        return dtpi_fail(err, DTP_ERR_INVAL, "the data path of the group is not open");
    if (peer < 0 || peer >= g->size)
        return dtpi_fail(err, DTP_ERR_RANGE, "rank %d is outside a group of %d", peer, g->size);
    const dtp_status st = dtpi_group_check(g, err);
    if (st < 0)
        return st;
    if (g->data->is_over)
        return dtpi_fail(err, DTP_ERR_ABORTED, "the group's transfers were cancelled");
    return DTP_OK;
}

/* What UCX made of the choice. */
static void report_lane(const dtp_group *g, int32_t rank)
{
    const struct group_data *d = g->data;
    char lane[64];

    d->net->ops->lane(d->eps[rank], lane, sizeof(lane));
    if (dtpi_net_lane_was_chosen(&d->net->choice, lane))
        DTPI_LOG(g->ctx, DTP_LOG_DEBUG, "group", "data to rank %d goes over %s", rank, lane);
    else
        DTPI_LOG(g->ctx, DTP_LOG_WARN, "group", "data to rank %d goes over %s, which is none of %s", rank, lane,
                 d->net->choice.devices);
}

static dtp_status connect_to(dtp_group *g, int32_t rank, dtp_error *err)
{
    struct group_data *d = g->data;
    char key[32];
    void *address;
    size_t bytes;

    if (d->eps[rank])
        return DTP_OK;
    address_key(rank, key, sizeof(key));
    dtp_status st = dtp_group_lookup(g, key, &address, &bytes, 0, err);
    if (st < 0)
        return st;
    /* Another thread may have come here while the answer was waited for. */
    if (!d->eps[rank])
        st = bytes ? d->net->ops->connect(d->net->net, address, bytes, &d->eps[rank], err)
                   : dtpi_fail_rank(err, DTP_ERR_PROTO, rank, "rank %d left no address", rank);
    dtp_group_free(address);
    if (st >= 0)
        report_lane(g, rank);
    return st;
}

static dtpi_xfer fresh(const dtpi_xfer *x)
{
    return (dtpi_xfer){ .user = x->user };
}

dtp_status dtpi_group_send(dtp_group *g, int32_t to, uint32_t tag, const void *data, size_t bytes,
                           dtpi_xfer *x, dtp_error *err)
{
    dtp_status st = check(g, to, err);

    if (st >= 0)
        st = connect_to(g, to, err);
    if (st < 0)
        return st;
    *x = fresh(x);
    g->data->net->ops->send(g->data->eps[to], full_tag(g->data, g->rank, tag), data, bytes, x);
    dtpi_ctx_rearm(g->ctx);
    if (!x->done)
        list(g->data, x);
    return DTP_OK;
}

dtp_status dtpi_group_recv(dtp_group *g, int32_t from, uint32_t tag, void *data, size_t bytes,
                           dtpi_xfer *x, dtp_error *err)
{
    const dtp_status st = check(g, from, err);

    if (st < 0)
        return st;
    *x = fresh(x);
    g->data->net->ops->recv(g->data->net->net, full_tag(g->data, from, tag), data, bytes, x);
    dtpi_ctx_rearm(g->ctx);
    if (!x->done)
        list(g->data, x);
    return DTP_OK;
}

bool dtpi_group_data_progress(dtp_group *g)
{
    struct group_data *d = g->data;

    if (!d || d->is_over)
        return false;
    if (DTPI_UNLIKELY(atomic_load_explicit(&g->session->control->word, memory_order_relaxed))) {
        dtpi_group_data_cancel(g);
        return true;
    }
    return d->net->ops->progress(d->net->net);
}

static void close_eps(dtp_group *g, bool flush)
{
    struct group_data *d = g->data;

    for (int32_t i = 0; i < g->size; i++) {
        dtpi_net_ep *ep = d->eps[i];
        d->eps[i] = NULL;
        if (ep)
            d->net->ops->disconnect(ep, flush);
    }
}

void dtpi_group_data_cancel(dtp_group *g)
{
    struct group_data *d = g->data;

    if (!d || d->is_over || !dtpi_ctx_alive(g->ctx))
        return;
    d->is_over = true;
    for (dtpi_xfer *x = d->xfers, *next; x; x = next) {
        next = x->next;
        d->net->ops->cancel(d->net->net, x);
    }
    close_eps(g, false);
    for (int turns = 0; turns < CANCEL_TURNS && d->xfers; turns++)
        d->net->ops->progress(d->net->net);
    /* Never seen; the owner must not wait for ever. */
    while (d->xfers)
        dtpi_xfer_end(d->xfers, DTP_ERR_CANCELED);
}

void dtpi_group_data_lane(dtp_group *g, int32_t rank, char *text_out, size_t room)
{
    text_out[0] = '\0';
    if (g->data && rank >= 0 && rank < g->size && g->data->eps[rank])
        g->data->net->ops->lane(g->data->eps[rank], text_out, room);
}

void group_data_close(dtp_group *g)
{
    struct group_data *d = g->data;

    /* In a forked child the worker is the parent's: leave it. */
    if (!d || !dtpi_ctx_alive(g->ctx))
        return;
    const bool healthy = !atomic_load(&g->session->control->word);
    if (d->xfers || !healthy)
        dtpi_group_data_cancel(g);
    else
        close_eps(g, true);
    struct session_net *n = d->net;
    data_free(g, d);
    g->data = NULL;
    if (--n->n_users == 0)
        net_free(n);
}
