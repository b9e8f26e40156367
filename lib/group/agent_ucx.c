/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_ucx.c - carries control messages between agents: over the TCP link, or over UCX once both ends
 * have exchanged their addresses through the proven link.
 *
 * A message over UCX is {token, counter, frame, tag}. The token names the connection at the receiver,
 * the counter orders messages and, in the tag, forbids replays. The link stays: its end is a death.
 */
#include "group/agent_internal.h"

#include <sodium.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "net/net.h"

enum { HEAD_BYTES = 16, MAX_HELD = 1024, ADDRESS_MAX = 4096 };

/* The agent's worker. */
struct agent_ucx {
    const struct dtpi_net_ops *ops;
    dtpi_net *net;
    dtpi_source source;
    dtpi_agent *agent;
    char version[16];
    bool is_auto;               /* nobody has said that it must be UCX */
    dtpi_net_choice choice;
    bool has_held;              /* messages wait to be handed over */
};

/* A message that came before those in front of it. */
struct held {
    struct held *next;
    uint64_t count;
    size_t bytes;
    uint8_t data[];
};

struct agent_carrier {
    uint64_t own_token, peer_token;
    dtpi_seal seal_out, seal_in;
    uint64_t n_out, n_in;
    dtpi_net_ep *ep;            /* NULL: still over the link */
    bool switched;              /* the peer's last message over the link has come */
    struct held *held;
    uint32_t n_held;
};

static void on_message(void *user, const uint8_t *data, size_t bytes);
static void ucx_ready(dtpi_source *s, uint32_t revents);
static bool ucx_arm(dtpi_source *s);

/* ---- the worker, and what is sealed ---- */

/*
 * Strangers must not end the agent: by itself it goes over UCX where there is RDMA, then without UCX's TCP,
 * or where a UCX that survives them is in the process anyway.
 */
static bool may_carry(const struct agent_ucx *u)
{
    if (!u->is_auto)
        return true;
    return u->choice.has_rdma || (dtpi_net_is_loaded() && dtpi_net_survives_strangers(u->version));
}

/* On the devices that go with the address of the first connection. PENDING: better not. */
static dtp_status open_worker(struct agent_ucx *u, int fd, dtp_error *err)
{
    dtp_ctx *ctx = u->agent->ctx;
    char text[DTPI_ADDR_TEXT];
    dtpi_sa own;

    if (!dtpi_sa_own(fd, &own))
        return DTP_PENDING;
    dtpi_sa_text(&own, text, sizeof(text));
    dtpi_net_choose(text, &u->choice);
    if (!may_carry(u))
        return DTP_PENDING;
    if (u->is_auto && u->choice.has_rdma && !dtpi_net_survives_strangers(u->version))
        strcpy(u->choice.transports, "rc,ud");
    const dtpi_net_opts o = { .allocator = dtpi_ctx_alloc(ctx), .log = dtpi_ctx_log(ctx),
                              .transports = u->choice.transports,
                              .devices = u->choice.devices[0] ? u->choice.devices : NULL,
                              .message = on_message, .user = u->agent };
    const dtp_status st = u->ops->open(&o, &u->net, err);
    if (st < 0)
        return st;
    u->source = (dtpi_source){ .fd = u->ops->fd(u->net), .events = EPOLLIN, .ready = ucx_ready,
                               .arm = ucx_arm };
    return dtpi_source_add(ctx, &u->source, err);
}

/* At the first connection with another agent. */
static bool has_worker(struct agent_conn *conn)
{
    dtpi_agent *agent = conn->agent;
    struct agent_ucx *u = agent->ucx;
    dtp_error why;

    if (!u || u->net)
        return u;
    const dtp_status st = open_worker(u, dtpi_link_fd(conn->link), &why);
    if (st == DTP_OK)
        return true;
    if (st < 0 && !u->is_auto)
        agent->trouble = why;
    else if (st < 0)
        DTPI_LOG(agent->ctx, DTP_LOG_INFO, "group", "control stays on tcp: %s", why.text);
    agent_carriers_close(agent);
    return false;
}

void agent_seal(struct agent_conn *conn, const dtpi_seal *out, const dtpi_seal *in)
{
    static const char label[] = "libdtp over ucx";
    const dtp_allocator *a = dtpi_ctx_alloc(conn->agent->ctx);

    dtpi_link_seal(conn->link, out, in);
    if (!has_worker(conn))
        return;
    conn->carrier = dtpi_alloc(a, sizeof(*conn->carrier));
    if (!conn->carrier)
        return;     /* goes on over TCP */
    dtpi_seal_derive(out, label, &conn->carrier->seal_out);
    dtpi_seal_derive(in, label, &conn->carrier->seal_in);
    randombytes_buf(&conn->carrier->own_token, sizeof(conn->carrier->own_token));
}

/* ---- receiving ---- */

static struct agent_conn *conn_by_token(dtpi_agent *agent, uint64_t token)
{
    for (struct agent_conn *conn = agent->conns; conn; conn = conn->next)
        if (conn->carrier && conn->carrier->own_token == token)
            return conn;
    return NULL;
}

static bool is_held(const struct agent_carrier *c, uint64_t count)
{
    for (const struct held *h = c->held; h; h = h->next)
        if (h->count == count)
            return true;
    return false;
}

/* Keeps a message if it is what was sealed: what does not fit is a stranger's, or came before. */
static void hold(struct agent_conn *conn, const uint8_t *head, uint64_t count, const uint8_t *data,
                 size_t bytes)
{
    const dtp_allocator *a = dtpi_ctx_alloc(conn->agent->ctx);
    struct agent_carrier *c = conn->carrier;

    struct held *h = dtpi_alloc_aligned(a, sizeof(*h) + bytes, 16);
    if (!h) {
        /* Without this message nothing goes on: end the connection. */
        dtpi_link_break(conn->link);
        return;
    }
    memcpy(h->data, data, bytes);
    const bool fits = dtpi_seal_open(&c->seal_in, count, head, HEAD_BYTES, h->data, bytes, data + bytes);
    const bool is_far = count - c->n_in >= MAX_HELD;
    if (!fits || is_far) {
        dtpi_free(a, h, sizeof(*h) + bytes);
        if (fits)
            dtpi_link_break(conn->link);    /* not kept, it would be missed for ever */
        return;
    }
    h->count = count;
    h->bytes = bytes;
    h->next = c->held;
    c->held = h;
    c->n_held++;
}

static struct held *take_held(struct agent_carrier *c, uint64_t count)
{
    for (struct held **p = &c->held; *p; p = &(*p)->next) {
        struct held *h = *p;
        if (h->count != count)
            continue;
        *p = h->next;
        c->n_held--;
        return h;
    }
    return NULL;
}

/* Hands over what is due. The connection may be closed by any of them. */
static void run_held(dtpi_agent *agent, uint64_t token)
{
    struct agent_conn *conn = conn_by_token(agent, token);

    while (conn && conn->carrier->switched) {
        struct held *h = take_held(conn->carrier, conn->carrier->n_in);
        if (!h)
            return;
        conn->carrier->n_in++;
        agent_member_frame(conn, h->data, h->bytes);
        dtpi_free(dtpi_ctx_alloc(agent->ctx), h, sizeof(*h) + h->bytes);
        conn = conn_by_token(agent, token);
    }
}

/* Inside UCX's progress, where nothing may be closed: keeps the message for later. */
static void on_message(void *user, const uint8_t *data, size_t bytes)
{
    dtpi_agent *agent = user;
    dtpi_rd r = dtpi_rd_init(data, bytes);
    const uint64_t token = dtpi_rd_u64(&r), count = dtpi_rd_u64(&r);

    struct agent_conn *conn = r.failed ? NULL : conn_by_token(agent, token);
    if (!conn || bytes < HEAD_BYTES + DTPI_FRAME_BYTES + DTPI_SEAL_TAG_BYTES ||
        bytes > DTPI_LINK_MAX_FRAME)
        return;     /* a stranger's */
    if (count < conn->carrier->n_in || is_held(conn->carrier, count))
        return;
    hold(conn, data, count, data + HEAD_BYTES, bytes - HEAD_BYTES - DTPI_SEAL_TAG_BYTES);
    agent->ucx->has_held = true;
}

/* ---- sending ---- */

bool agent_carry(struct agent_conn *conn, dtpi_msg *msg)
{
    struct agent_carrier *c = conn->carrier;
    dtpi_agent *agent = conn->agent;
    uint8_t tag[DTPI_SEAL_TAG_BYTES];

    if (!c || !c->ep)
        return dtpi_link_send(conn->link, msg, NULL, 0) || dtpi_link_is_broken(conn->link);
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));
    dtpi_wr_u64(&b, c->peer_token);
    dtpi_wr_u64(&b, c->n_out);
    dtpi_buf_append(&b, msg->buf.data, msg->buf.len);
    if (!b.failed) {
        uint8_t *const data = b.data + HEAD_BYTES;
        dtpi_seal_close(&c->seal_out, c->n_out, b.data, HEAD_BYTES, data, msg->buf.len, data, tag);
    }
    c->n_out++;
    dtpi_buf_append(&b, tag, sizeof(tag));
    if (b.failed || agent->ucx->ops->post(c->ep, b.data, b.len, NULL) < 0)
        dtpi_link_break(conn->link);
    return true;
}

static void send_over_link(struct agent_conn *conn, dtpi_buf *b_take)
{
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(b_take);

    if (!m || !dtpi_link_send(conn->link, m, NULL, 0))
        dtpi_link_break(conn->link);
}

static dtpi_buf begin(const dtpi_agent *agent, uint8_t type)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));
    const dtpi_frame f = { .type = type, .attempt = agent->o.attempt, .generation = dtpi_core_generation(agent->core),
                           .group = DTPI_WORLD_ID, .rank = -1 };

    dtpi_frame_begin(&b, &f);
    return b;
}

/* ---- going over to UCX ---- */

void agent_carrier_offer(struct agent_conn *conn)
{
    struct agent_ucx *u = conn->agent->ucx;
    size_t bytes = 0;

    if (!u || !conn->carrier)
        return;
    dtpi_buf b = begin(conn->agent, DTPI_F_UCX);
    dtpi_wr_text(&b, u->version);
    dtpi_wr_u64(&b, conn->carrier->own_token);
    const void *address = u->ops->address(u->net, &bytes);
    dtpi_wr_block(&b, address, bytes);
    send_over_link(conn, &b);
}

static void take_offer(struct agent_conn *conn, const dtpi_frame *f)
{
    dtpi_agent *agent = conn->agent;
    struct agent_ucx *u = agent->ucx;
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    char version[16], lane[64];
    size_t bytes = 0;
    dtp_error err;

    dtpi_rd_text(&r, version, sizeof(version));
    const uint64_t token = dtpi_rd_u64(&r);
    const uint8_t *address = dtpi_rd_block(&r, ADDRESS_MAX, &bytes);
    if (!dtpi_rd_done(&r) || !u || !conn->carrier || conn->carrier->ep)
        return;
    if (strcmp(version, u->version) != 0) {
        DTPI_LOG(agent->ctx, DTP_LOG_WARN, "group", "control stays on tcp: UCX %s here, %s there",
                 u->version, version);
        return;
    }
    conn->carrier->peer_token = token;
    dtpi_net_ep *ep;
    if (u->ops->connect(u->net, address, bytes, &ep, &err) < 0) {
        DTPI_LOG(agent->ctx, DTP_LOG_WARN, "group", "control stays on tcp: %s", err.text);
        return;
    }
    u->ops->lane(ep, lane, sizeof(lane));
    if (u->is_auto && !dtpi_net_lane_is_rdma(lane) && !dtpi_net_survives_strangers(u->version)) {
        DTPI_LOG(agent->ctx, DTP_LOG_INFO, "group", "control stays on tcp: UCX %s would go over %s", version,
                 lane);
        u->ops->disconnect(ep, false);
        return;
    }
    dtpi_buf b = begin(agent, DTPI_F_SWITCH);
    send_over_link(conn, &b);
    conn->carrier->ep = ep;
    DTPI_LOG(agent->ctx, DTP_LOG_INFO, "group", "control goes over UCX %s, %s", u->version, lane);
}

bool agent_carrier_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    dtpi_frame f;

    if (!dtpi_frame_read(data, bytes, &f) || (f.type != DTPI_F_UCX && f.type != DTPI_F_SWITCH))
        return false;
    if (f.type == DTPI_F_UCX) {
        take_offer(conn, &f);
    } else if (conn->carrier) {
        conn->carrier->switched = true;
        run_held(conn->agent, conn->carrier->own_token);
    }
    return true;
}

/* ---- life ---- */

/* A message may close connections: start again after each that had some. */
static void run_all_held(struct agent_ucx *u)
{
    u->has_held = false;
    for (struct agent_conn *conn = u->agent->conns; conn; conn = conn->next) {
        struct agent_carrier *c = conn->carrier;
        if (!c || !c->switched || !c->n_held)
            continue;
        const uint32_t before = c->n_held;
        const uint64_t token = c->own_token;
        run_held(u->agent, token);
        conn = conn_by_token(u->agent, token);
        if (!conn || conn->carrier->n_held < before) {
            u->has_held = true;
            return;
        }
    }
}

static void ucx_ready(dtpi_source *s, uint32_t revents)
{
    struct agent_ucx *u = DTPI_CONTAINER(s, struct agent_ucx, source);

    (void)revents;
    while (u->ops->progress(u->net))
        continue;
    while (u->has_held)
        run_all_held(u);
    agent_after_input(u->agent);
    for (struct agent_conn *conn = u->agent->conns; conn; conn = conn->next)
        if (conn->carrier && conn->carrier->ep && u->ops->is_broken(conn->carrier->ep))
            dtpi_link_break(conn->link);
}

static bool ucx_arm(dtpi_source *s)
{
    struct agent_ucx *u = DTPI_CONTAINER(s, struct agent_ucx, source);

    return !u->has_held && u->ops->arm(u->net);
}

dtp_status agent_carriers_open(dtpi_agent *agent, dtp_error *err)
{
    dtp_ctx *ctx = agent->ctx;
    const char *net = agent->o.net ? agent->o.net : "auto";
    const bool is_auto = strcmp(net, "auto") == 0;
    dtp_error why;

    /* UCX is not loaded only to learn that it will not be used. */
    if (strcmp(net, "tcp") == 0 || !agent->o.root ||
        (is_auto && !dtpi_net_has_rdma() && !dtpi_net_is_loaded()))
        return DTP_OK;
    struct agent_ucx *u = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*u));
    if (!u)
        return dtpi_fail_nomem(err, sizeof(*u));
    agent->ucx = u;
    u->agent = agent;
    u->is_auto = is_auto;
    const dtp_status st = dtpi_module_load(ctx, "net-ucx", (const void **)&u->ops, &why);
    if (st >= 0) {
        u->ops->version(u->version, sizeof(u->version));
        return DTP_OK;
    }
    agent_carriers_close(agent);
    if (is_auto) {
        DTPI_LOG(ctx, DTP_LOG_INFO, "group", "control stays on tcp: %s", why.text);
        return DTP_OK;
    }
    if (err)
        *err = why;
    return st;
}

void agent_carrier_close(struct agent_conn *conn)
{
    const dtp_allocator *a = dtpi_ctx_alloc(conn->agent->ctx);
    struct agent_carrier *c = conn->carrier;

    if (!c)
        return;
    conn->carrier = NULL;
    while (c->held) {
        struct held *h = c->held;
        c->held = h->next;
        dtpi_free(a, h, sizeof(*h) + h->bytes);
    }
    if (c->ep)
        conn->agent->ucx->ops->disconnect(c->ep, true);
    sodium_memzero(c, sizeof(*c));
    dtpi_free(a, c, sizeof(*c));
}

void agent_carriers_close(dtpi_agent *agent)
{
    struct agent_ucx *u = agent->ucx;

    if (!u)
        return;
    dtpi_source_remove(agent->ctx, &u->source);
    if (u->net)
        u->ops->close(u->net);
    dtpi_free(dtpi_ctx_alloc(agent->ctx), u, sizeof(*u));
    agent->ucx = NULL;
}
