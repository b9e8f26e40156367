/* SPDX-License-Identifier: Apache-2.0 */
/* agent_parent.c - how an agent reaches its parent: tries address after address until one has the secret. */
#include "group/agent_internal.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { RETRY_FIRST_MS = 10, RETRY_MAX_MS = 250 };

static int64_t retry_ns(const dtpi_agent *agent)
{
    const uint32_t round = agent->n_connects / DTPI_MAX(1u, dtpi_endpoint_n_attempts(&agent->root));
    const int64_t ms = (int64_t)RETRY_FIRST_MS << DTPI_MIN(round, 5u);

    return DTPI_MIN(ms, (int64_t)RETRY_MAX_MS) * DTPI_NS_PER_MS;
}

static void try_later(dtpi_agent *agent, const char *why)
{
    char text[DTP_ERROR_TEXT];

    snprintf(text, sizeof(text), "%s: %s", agent->o.root, why);
    dtpi_core_parent_trouble(agent->core, text);
    agent->connect_at_ns = dtp_ctx_now_ns(agent->ctx) + retry_ns(agent);
}

static void start(dtpi_agent *agent)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));
    DTPI_AUTO_FD int fd = -1;
    dtp_error err;
    dtpi_sa to;

    agent->connect_at_ns = INT64_MAX;
    dtpi_endpoint_get(&agent->root, agent->n_connects++, &to);
    if (dtpi_tcp_connect(&to, 0, &fd, &err) < 0) {
        try_later(agent, err.text);
        return;
    }
    struct agent_conn *conn = agent_conn_new(agent, fd, CONN_CONNECTING, DTPI_HS_AGENT);
    if (!conn) {
        try_later(agent, "out of memory");
        return;
    }
    fd = -1;
    agent->connecting = conn;
    dtpi_hs_hello(&conn->hs, &b);
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    if (m)
        dtpi_link_send(conn->link, m, NULL, 0);
}

void agent_parent_tick(dtpi_agent *agent, int64_t now_ns)
{
    if (now_ns >= agent->connect_at_ns && !agent->parent && !agent->connecting)
        start(agent);
    /* One that accepts and stays silent is no root. */
    if (agent->connecting && now_ns - agent->connecting->since_ns > 5 * DTPI_NS_PER_S)
        agent_parent_failed(agent->connecting, DTP_ERR_TIMEOUT);
}

void agent_parent_failed(struct agent_conn *conn, dtp_status why)
{
    dtpi_agent *agent = conn->agent;
    int e = 0;
    socklen_t len = sizeof(e);

    getsockopt(dtpi_link_fd(conn->link), SOL_SOCKET, SO_ERROR, &e, &len);
    agent->connecting = NULL;
    agent_conn_close(conn);
    try_later(agent, e ? strerror(e) : why == DTP_END ? "connection refused or closed"
                                                     : dtp_status_text(why));
    agent_after_input(agent);
}

static void refused(struct agent_conn *conn, const dtp_error *err)
{
    dtpi_agent *agent = conn->agent;
    /* Anybody can refuse; at the one address there is, it is believed without proof. */
    const bool is_final = conn->hs.is_proven
                              ? err->status != DTP_ERR_BUSY
                              : dtpi_endpoint_n_attempts(&agent->root) == 1 &&
                                    (err->status == DTP_ERR_AUTH || err->status == DTP_ERR_VERSION);

    agent->connecting = NULL;
    agent_conn_close(conn);
    if (is_final)
        dtpi_core_parent_end(agent->core, err->status, err->text, dtp_ctx_now_ns(agent->ctx));
    else
        try_later(agent, err->text);
}

void agent_parent_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    dtpi_agent *agent = conn->agent;
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));
    dtpi_seal out, in;
    dtp_error err;

    if (dtpi_hs_answer(&conn->hs, data, bytes, &b, &err) < 0) {
        dtpi_buf_free(&b);
        refused(conn, &err);
        return;
    }
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    if (!m || !dtpi_link_send(conn->link, m, NULL, 0)) {
        agent_parent_failed(conn, DTP_ERR_IO);
        return;
    }
    dtpi_hs_seals(&conn->hs, &out, &in);
    agent_seal(conn, &out, &in);
    sodium_memzero(&out, sizeof(out));
    sodium_memzero(&in, sizeof(in));
    dtpi_link_set_max(conn->link, DTPI_LINK_MAX_FRAME);
    dtpi_hs_wipe(&conn->hs);
    conn->role = CONN_PARENT;
    agent->connecting = NULL;
    agent->parent = conn;
    dtpi_core_parent_open(agent->core, dtp_ctx_now_ns(agent->ctx));
    agent_carrier_offer(conn);
}
