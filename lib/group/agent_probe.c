/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_probe.c - whether large messages pass between two agents that have proven themselves.
 *
 * A path that drops large packets without a word (a tunnel, a switch with a smaller MTU, firewalls that eat
 * the errors) lets handshakes pass, and the table of ranks never arrives. So a message as large as a jumbo
 * frame goes up and comes back before the parent counts on the child. Where it does not, the child comes
 * again with smaller segments.
 */
#include "group/agent_internal.h"

#include <linux/tcp.h>
#include <sodium.h>

enum { PAD_BYTES = 9216, PAD_FRAME_MAX = 2 * PAD_BYTES, STUCK_MS = 250, SILENT_MS = 2000, CHECK_MS = 50 };

static bool send_pad(struct agent_conn *conn, size_t bytes)
{
    static const uint8_t zeros[PAD_BYTES];
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(conn->agent->ctx));
    const dtpi_frame f = { .type = DTPI_F_PAD, .attempt = conn->agent->o.attempt,
                           .generation = dtpi_core_generation(conn->agent->core), .group = DTPI_WORLD_ID, .rank = -1 };

    dtpi_frame_begin(&b, &f);
    dtpi_buf_append(&b, zeros, bytes);
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    return m && dtpi_link_send(conn->link, m, NULL, 0);
}

static bool is_pad(const uint8_t *data, size_t bytes)
{
    dtpi_frame f;

    return dtpi_frame_read(data, bytes, &f) && f.type == DTPI_F_PAD;
}

/* Within one machine nothing gets lost by its size. */
static bool is_on_this_machine(int fd)
{
    dtpi_sa own, peer;

    return dtpi_sa_own(fd, &own) && dtpi_sa_peer(fd, &peer) && dtpi_sa_same_host(&own, &peer);
}

/* Both ends: what follows the proof is sealed. The child is ready at once where there is nothing to find out. */
void agent_probe_start(struct agent_conn *conn, bool is_client)
{
    dtpi_seal up, down;

    dtpi_hs_seals(&conn->hs, &up, &down);
    agent_seal(conn, is_client ? &up : &down, is_client ? &down : &up);
    sodium_memzero(&up, sizeof(up));
    sodium_memzero(&down, sizeof(down));
    dtpi_link_set_max(conn->link, PAD_FRAME_MAX);
    conn->is_proven = true;
    if (!is_client) {
        agent_door_renew(conn);
        return;
    }
    conn->since_ns = dtp_ctx_now_ns(conn->agent->ctx);
    conn->is_ready = is_on_this_machine(dtpi_link_fd(conn->link));
    if (!conn->is_ready && !send_pad(conn, PAD_BYTES))
        dtpi_link_break(conn->link);
}

/* The child cannot see that what it waits for never arrived: tell it by ending the connection. */
static void probe_due(dtpi_timer *t)
{
    struct agent_conn *conn = DTPI_CONTAINER(t, struct agent_conn, probe_timer);
    dtpi_agent *agent = conn->agent;
    const int64_t now = dtp_ctx_now_ns(agent->ctx);
    const struct linger at_once = { .l_onoff = 1 };

    if (conn->role != CONN_STRANGER)
        return;
    if (!agent_probe_is_stuck(conn, now)) {
        dtpi_timer_set(agent->ctx, t, agent_probe_next_ns(now), NULL);
        return;
    }
    /* A reset passes; an orderly end would wait behind what got stuck. */
    setsockopt(dtpi_link_fd(conn->link), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    agent_conn_close(conn);
}

/* The parent's end: sends it back; when that has arrived, the child says who it is. */
void agent_probe_serve(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    dtpi_frame f;

    if (is_pad(data, bytes) && send_pad(conn, PAD_BYTES)) {
        agent_door_renew(conn);
        conn->probe_timer.due = probe_due;
        dtpi_timer_set(conn->agent->ctx, &conn->probe_timer, conn->since_ns + STUCK_MS * DTPI_NS_PER_MS, NULL);
        return;
    }
    if (!dtpi_frame_read(data, bytes, &f) || f.type != DTPI_F_COME || !agent_tree_serve(conn, &f))
        agent_conn_close(conn);
}

/* The child's end: true when its message came back. */
bool agent_probe_answer(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    (void)conn;
    return is_pad(data, bytes);
}

/* Old enough that the parent may have ended it because its answer got stuck. */
bool agent_probe_may_have_failed(const struct agent_conn *conn)
{
    return dtp_ctx_now_ns(conn->agent->ctx) - conn->since_ns >= STUCK_MS * DTPI_NS_PER_MS;
}

int64_t agent_probe_next_ns(int64_t now_ns)
{
    return now_ns + CHECK_MS * DTPI_NS_PER_MS;
}

/* Bytes that were sent and never acknowledged, or an answer that never came. */
bool agent_probe_is_stuck(const struct agent_conn *conn, int64_t now_ns)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    const int64_t age_ms = (now_ns - conn->since_ns) / DTPI_NS_PER_MS;

    if (age_ms < STUCK_MS)
        return false;
    if (age_ms >= SILENT_MS)
        return true;
    if (getsockopt(dtpi_link_fd(conn->link), IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
        age_ms < STUCK_MS + 2 * (int64_t)info.tcpi_rtt / 1000)
        return false;
    return info.tcpi_notsent_bytes > 0 || (info.tcpi_unacked > 0 && info.tcpi_total_retrans > 0);
}
