/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_door.c - the door of an agent: listens, lets strangers prove the secret, refuses them.
 *
 * Connections that have not proven it are few, short-lived and small.
 */
#include "group/agent_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/text.h"

enum { ACCEPTS_PER_TURN = 64, MAX_STRANGERS = 256, HELLO_TIMEOUT_MS = 5000 };

/* ---- proving ---- */

/*
 * Strangers that are none of ours get no answer. One of ours that cannot fit will be missing: before the
 * group stands everybody is told why, not only the one who came.
 */
static void refuse(struct agent_conn *conn, const dtp_error *err)
{
    dtpi_agent *agent = conn->agent;
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));
    const bool ends_all = conn->hs.disagrees && !dtpi_core_has_table(agent->core);

    if (err->status != DTP_ERR_PROTO) {
        DTPI_LOG(agent->ctx, DTP_LOG_WARN, "group", "refused a connection: %s", err->text);
        dtpi_hs_refuse(&conn->hs, &b, err);
        DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
        if (m)
            dtpi_link_send(conn->link, m, NULL, 0);
    }
    agent_conn_close(conn);
    if (ends_all)
        dtpi_core_fail(agent->core, err->status, err->text, dtp_ctx_now_ns(agent->ctx));
}

/*
 * A process may join, leave and join again: its new group meets elsewhere, once this one is over. Said at
 * the hello, because a client that has proven itself takes no refusal any more.
 */
static dtp_status check_is_due(const struct agent_conn *conn, dtp_error *err)
{
    const dtpi_agent *agent = conn->agent;
    const int32_t who = conn->hs.peer.who;

    if (conn->hs.role == DTPI_HS_RANK && dtpi_core_has_left(agent->core, who))
        return dtpi_fail(err, DTP_ERR_BUSY, "rank %d has left the group of job %s (attempt %u), which "
                         "still goes on", who, agent->job, agent->o.attempt);
    if (conn->hs.role == DTPI_HS_AGENT && dtpi_core_has_table(agent->core))
        return dtpi_fail(err, DTP_ERR_BUSY, "a group of job %s (attempt %u) stands already", agent->job,
                         agent->o.attempt);
    return DTP_PENDING;
}

void agent_stranger_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(conn->agent->ctx));
    dtp_error err;

    dtp_status st = dtpi_hs_serve(&conn->hs, data, bytes, &b, &err);
    if (st == DTP_PENDING)
        st = check_is_due(conn, &err);
    if (st < 0) {
        dtpi_buf_free(&b);
        refuse(conn, &err);
        return;
    }
    if (st == DTP_OK) {
        if (!agent_promote(conn))
            agent_conn_close(conn);
        return;
    }
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    if (m)
        dtpi_link_send(conn->link, m, NULL, 0);
}

/* ---- listening ---- */

/* Makes room by dropping the stranger that has waited longest; the list is newest first. */
static void drop_oldest_stranger(dtpi_agent *agent)
{
    struct agent_conn *oldest = NULL;

    for (struct agent_conn *conn = agent->conns; conn; conn = conn->next)
        if (conn->role == CONN_STRANGER)
            oldest = conn;
    if (oldest)
        agent_conn_close(oldest);
}

/* Descriptors are out: accept and close, so that the loop does not spin. */
static void accept_and_close(dtpi_agent *agent, int listen_fd)
{
    dtpi_close_fd(&agent->spare_fd);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    dtpi_close_fd(&fd);
    agent->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void welcome_stranger(dtpi_agent *agent, int fd_take, bool is_unix)
{
    uid_t uid = (uid_t)-1;
    pid_t pid = 0;

    if (is_unix && (dtpi_unix_peer(fd_take, &uid, &pid, NULL) < 0 ||
                    (uid != geteuid() && uid != 0))) {
        DTPI_LOG(agent->ctx, DTP_LOG_WARN, "group", "refused a connection of user %u", (unsigned)uid);
        dtpi_close_fd(&fd_take);
        return;
    }
    if (!is_unix)
        dtpi_tcp_tune(fd_take);
    if (agent->n_strangers >= MAX_STRANGERS + agent->o.n_local)
        drop_oldest_stranger(agent);
    struct agent_conn *conn = agent_conn_new(agent, fd_take, CONN_STRANGER,
                                             is_unix ? DTPI_HS_RANK : DTPI_HS_AGENT);
    if (!conn) {
        dtpi_close_fd(&fd_take);
        return;
    }
    conn->pid = pid;
    agent->n_strangers++;
}

static void accept_some(dtpi_agent *agent, int listen_fd, bool is_unix)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        const int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            welcome_stranger(agent, fd, is_unix);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            accept_and_close(agent, listen_fd);
        if (errno != ECONNABORTED && errno != EINTR)
            break;
    }
    agent_after_input(agent);
}

static void unix_ready(dtpi_source *s, uint32_t revents)
{
    (void)revents;
    accept_some(DTPI_CONTAINER(s, dtpi_agent, unix_source), s->fd, true);
}

static void tcp_ready(dtpi_source *s, uint32_t revents)
{
    (void)revents;
    accept_some(DTPI_CONTAINER(s, dtpi_agent, tcp_source), s->fd, false);
}

/* ---- time ---- */

void agent_door_tick(dtpi_agent *agent, int64_t now)
{
    for (struct agent_conn *conn = agent->conns, *next; conn; conn = next) {
        next = conn->next;
        if (conn->role == CONN_STRANGER && now - conn->since_ns >= HELLO_TIMEOUT_MS * DTPI_NS_PER_MS)
            agent_conn_close(conn);
    }
}

int64_t agent_door_next_ns(const dtpi_agent *agent)
{
    return agent->n_strangers ? dtp_ctx_now_ns(agent->ctx) + HELLO_TIMEOUT_MS * DTPI_NS_PER_MS
                              : INT64_MAX;
}

/* ---- life ---- */

dtp_status agent_listen_unix(dtpi_agent *agent, dtp_error *err)
{
    agent->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dtp_status st = dtpi_unix_listen(agent->o.socket, &agent->unix_fd, err);
    if (st < 0)
        return st;
    if (agent->o.socket[0] != '@')
        agent->socket_path = dtpi_text_dup(dtpi_ctx_alloc(agent->ctx), agent->o.socket);
    agent->unix_source =
        (dtpi_source){ .fd = agent->unix_fd, .events = EPOLLIN, .ready = unix_ready };
    return dtpi_source_add(agent->ctx, &agent->unix_source, err);
}

dtp_status agent_listen_tcp(dtpi_agent *agent, dtpi_endpoint *at, dtp_error *err)
{
    char text[80];

    const dtp_status st = dtpi_tcp_listen(at, &agent->tcp_fd, text, sizeof(text), err);
    if (st < 0)
        return st;
    DTPI_LOG(agent->ctx, DTP_LOG_INFO, "group", "the root agent listens on %s", text);
    agent->tcp_source = (dtpi_source){ .fd = agent->tcp_fd, .events = EPOLLIN, .ready = tcp_ready };
    return dtpi_source_add(agent->ctx, &agent->tcp_source, err);
}

void agent_door_close(dtpi_agent *agent)
{
    dtpi_source_remove(agent->ctx, &agent->unix_source);
    dtpi_source_remove(agent->ctx, &agent->tcp_source);
    dtpi_close_fd(&agent->unix_fd);
    dtpi_close_fd(&agent->tcp_fd);
    dtpi_close_fd(&agent->spare_fd);
    if (agent->socket_path && dtpi_ctx_alive(agent->ctx))
        unlink(agent->socket_path);
    dtpi_text_free(dtpi_ctx_alloc(agent->ctx), agent->socket_path);
}
