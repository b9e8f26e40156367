/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_parent.c - how an agent reaches its parent: races the addresses, and the first that proves the
 * secret has won.
 */
#include "group/agent_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* One that accepts and stays silent is no parent. */
enum { SILENT_MS = 5000, SILENT_AMONG_OTHERS_MS = 2000, TROUBLE_TEXT = 170 };

/* What the verdict says where nobody was reached until the deadline. */
static void tell_trouble(dtpi_agent *agent)
{
    char text[TROUBLE_TEXT];

    dtpi_race_text(agent->race, text, sizeof(text));
    dtpi_core_parent_trouble(agent->core, text);
}

/* ---- the race ---- */

static void race_connected(void *user, uint32_t try, int fd_take)
{
    dtpi_agent *agent = user;
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));

    struct agent_conn *conn = agent_conn_new(agent, fd_take, CONN_CONNECTING, DTPI_HS_AGENT);
    if (!conn) {
        dtpi_close_fd(&fd_take);
        dtpi_race_lost(agent->race, try, "out of memory");
        return;
    }
    conn->slot = try;
    dtpi_hs_hello(&conn->hs, &b);
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    if (!m || !dtpi_link_send(conn->link, m, NULL, 0))
        agent_parent_failed(conn, DTP_ERR_NOMEM);
    else
        agent_after_input(agent);
}

static void race_failed(void *user)
{
    tell_trouble(user);
}

static const dtpi_race_ops race_ops = { .connected = race_connected, .failed = race_failed };

dtp_status agent_parent_seek(dtpi_agent *agent, const char *candidates, dtp_error *err)
{
    agent_parent_stop(agent);
    return dtpi_race_open(agent->ctx, candidates, agent->port, &race_ops, agent, &agent->race, err);
}

bool agent_parent_is_near(const dtpi_agent *agent)
{
    const struct agent_conn *conn = agent->conns;

    while (conn && conn->role != CONN_CONNECTING)
        conn = conn->next;
    return conn;
}

static void close_connecting(dtpi_agent *agent)
{
    for (struct agent_conn *conn = agent->conns, *next; conn; conn = next) {
        next = conn->next;
        if (conn->role == CONN_CONNECTING)
            agent_conn_close(conn);
    }
}

void agent_parent_stop(dtpi_agent *agent)
{
    close_connecting(agent);
    dtpi_race_close(DTPI_TAKE(agent->race));
}

/* ---- those who do not answer, or wrongly ---- */

/* One connection at a time asks for a place, so that nobody takes this agent twice. */
static void ask_next(dtpi_agent *agent)
{
    struct agent_conn *next = NULL;

    for (struct agent_conn *conn = agent->conns; conn; conn = conn->next) {
        if (conn->role == CONN_CONNECTING && conn->has_come)
            return;
        if (conn->role == CONN_CONNECTING && conn->is_ready)
            next = conn;        /* the oldest */
    }
    if (next && !agent_tree_come(next))
        dtpi_link_break(next->link);
}

void agent_parent_lost(struct agent_conn *conn, const char *why)
{
    dtpi_agent *agent = conn->agent;
    const uint32_t try = conn->slot;

    agent_conn_close(conn);
    dtpi_race_lost(agent->race, try, why);
    tell_trouble(agent);
    ask_next(agent);
}

/* It proved itself, but large messages do not pass: comes again with smaller segments. */
static void shrink(struct agent_conn *conn)
{
    dtpi_agent *agent = conn->agent;
    const uint32_t try = conn->slot;
    char peer[DTPI_ADDR_TEXT];

    dtpi_tcp_peer_text(dtpi_link_fd(conn->link), peer, sizeof(peer));
    DTPI_LOG(agent->ctx, DTP_LOG_WARN, "group", "large messages to %s vanish on the way (MTU): trying smaller "
             "segments", peer);
    agent_conn_close(conn);
    dtpi_race_shrink(agent->race, try);
    tell_trouble(agent);
    ask_next(agent);
}

/* A large message is under way. */
static bool is_probing(const struct agent_conn *conn)
{
    return conn->is_proven && !conn->is_ready;
}

static int64_t silent_ns(const dtpi_agent *agent)
{
    const int ms = dtpi_race_n_tries(agent->race) == 1 ? SILENT_MS : SILENT_AMONG_OTHERS_MS;

    return ms * DTPI_NS_PER_MS;
}

int64_t agent_parent_next_ns(const dtpi_agent *agent)
{
    int64_t at = INT64_MAX;

    for (const struct agent_conn *conn = agent->conns; agent->race && conn; conn = conn->next)
        if (conn->role == CONN_CONNECTING)
            at = DTPI_MIN(at, is_probing(conn) ? agent_probe_next_ns(dtp_ctx_now_ns(agent->ctx))
                                               : conn->since_ns + silent_ns(agent));
    return at;
}

void agent_parent_tick(dtpi_agent *agent, int64_t now_ns)
{
    for (struct agent_conn *conn = agent->conns, *next; agent->race && conn; conn = next) {
        next = conn->next;
        if (conn->role != CONN_CONNECTING)
            continue;
        if (is_probing(conn) && agent_probe_is_stuck(conn, now_ns))
            shrink(conn);
        else if (!is_probing(conn) && now_ns - conn->since_ns >= silent_ns(agent))
            agent_parent_failed(conn, DTP_ERR_TIMEOUT);
    }
}

void agent_parent_failed(struct agent_conn *conn, dtp_status why)
{
    dtpi_agent *agent = conn->agent;
    int e = 0;
    socklen_t len = sizeof(e);

    if (is_probing(conn) && agent_probe_may_have_failed(conn)) {
        shrink(conn);
        agent_after_input(agent);
        return;
    }
    getsockopt(dtpi_link_fd(conn->link), SOL_SOCKET, SO_ERROR, &e, &len);
    agent_parent_lost(conn, e && e != EPIPE          ? strerror(e)
                            : why == DTP_END || e    ? "it closed the connection"
                            : why == DTP_ERR_TIMEOUT ? "it accepts, but does not speak"
                                                     : dtp_status_text(why));
    agent_after_input(agent);
}

/* `heard_take` is to be said before the connection ends; may be empty. */
static void refused(struct agent_conn *conn, dtpi_buf *heard_take, const dtp_error *err)
{
    DTPI_AUTO(msg) dtpi_msg *m = heard_take->len > 0 ? dtpi_msg_new(heard_take) : NULL;
    dtpi_agent *agent = conn->agent;
    /* Anybody can refuse; at the one address there is, it is believed without proof. */
    const bool is_final = conn->hs.is_proven
                              ? err->status != DTP_ERR_BUSY
                              : dtpi_race_n_tries(agent->race) == 1 &&
                                    (err->status == DTP_ERR_AUTH || err->status == DTP_ERR_VERSION);

    if (m)
        dtpi_link_send(conn->link, m, NULL, 0);
    if (is_final) {
        agent_parent_stop(agent);
        dtpi_core_parent_end(agent->core, err->status, err->text, dtp_ctx_now_ns(agent->ctx));
    } else {
        agent_parent_lost(conn, err->text);
    }
}

/* What somebody gave may be anything; what this machine lacks will not come. */
static void no_secret(struct agent_conn *conn, const dtp_error *err)
{
    dtpi_agent *agent = conn->agent;

    if (err->status != DTP_ERR_UNSUPPORTED && err->status != DTP_ERR_IO) {
        agent_parent_lost(conn, err->text);
        return;
    }
    agent_parent_stop(agent);
    agent_secret_failed(agent, err->status, err->text);
    dtpi_core_parent_end(agent->core, err->status, err->text, dtp_ctx_now_ns(agent->ctx));
}

/* ---- the one that proves itself ---- */

void agent_parent_is(struct agent_conn *conn)
{
    dtpi_agent *agent = conn->agent;

    dtpi_link_set_max(conn->link, DTPI_LINK_MAX_FRAME);
    dtpi_hs_wipe(&conn->hs);
    conn->role = CONN_PARENT;
    agent->parent = conn;
    agent_parent_stop(agent);
    agent_files_say_met(agent, conn);
    dtpi_core_parent_open(agent->core, dtp_ctx_now_ns(agent->ctx));
    agent_carrier_offer(conn);
}

void agent_parent_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(conn->agent->ctx));
    dtp_error err;

    if (conn->has_come) {
        agent_tree_placed(conn, data, bytes);
        return;
    }
    if (conn->is_proven) {
        if (conn->is_ready || !agent_probe_answer(conn, data, bytes)) {
            agent_parent_failed(conn, DTP_ERR_PROTO);
            return;
        }
        conn->is_ready = true;
        conn->since_ns = dtp_ctx_now_ns(conn->agent->ctx);
        ask_next(conn->agent);
        return;
    }
    const dtp_status st = agent_secret_take(conn, data, bytes, &err);
    if (st < 0)
        no_secret(conn, &err);
    if (st != DTP_PENDING)
        return;
    if (dtpi_hs_answer(&conn->hs, data, bytes, &b, &err) < 0) {
        refused(conn, &b, &err);
        return;
    }
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    if (!m || !dtpi_link_send(conn->link, m, NULL, 0)) {
        agent_parent_failed(conn, DTP_ERR_IO);
        return;
    }
    agent_probe_start(conn, true);
    if (conn->is_ready)
        ask_next(conn->agent);
}
