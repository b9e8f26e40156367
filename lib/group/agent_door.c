/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_door.c - the door of an agent: listens, lets strangers prove the secret, refuses them.
 *
 * Connections that have not proven it are few, short-lived and small, and a flood from one place does not
 * push out who comes from another, nor who has begun to prove.
 */
#include "group/agent_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/sum.h"
#include "base/text.h"

enum { ACCEPTS_PER_TURN = 64, MAX_STRANGERS = 256, HELLO_TIMEOUT_MS = 5000, LOGS_PER_SECOND = 8 };
/* A storm: accepting is worth a pause. */
enum { WINDOW_MS = 100, STORM_PER_WINDOW = 20, REST_MS = 5 };

static void remember(struct agent_conn *conn, uint8_t share)
{
    struct agent_door *d = &conn->agent->door;

    conn->asks = false;
    conn->share = share;
    conn->older = d->youngest;
    conn->younger = NULL;
    if (d->youngest)
        d->youngest->younger = conn;
    else
        d->oldest = conn;
    d->youngest = conn;
    d->n++;
    d->in_share[share]++;
}

/* ---- proving ---- */

/* What was refused, to the log; of a flood the number. */
__attribute__((format(printf, 2, 3)))
static void say(dtpi_agent *agent, const char *format, ...)
{
    struct agent_door *d = &agent->door;
    const int64_t now = dtp_ctx_now_ns(agent->ctx);
    char text[DTP_ERROR_TEXT];
    va_list args;

    if (now - d->said_ns >= DTPI_NS_PER_S) {
        d->said_ns = now;
        d->n_said = 0;
    }
    if (d->n_said++ >= LOGS_PER_SECOND) {
        d->n_unsaid++;
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (d->n_unsaid)
        DTPI_LOG(agent->ctx, DTP_LOG_WARN, "group", "refused %u more connections", d->n_unsaid);
    d->n_unsaid = 0;
    DTPI_LOG(agent->ctx, DTP_LOG_WARN, "group", "refused %s", text);
}

/*
 * Strangers that are none of ours get no answer. One of ours that cannot fit will be missing: before the
 * group stands everybody is told why, once he has said that he heard it and is no echo of an earlier run.
 */
static void refuse(struct agent_conn *conn, const dtp_error *err)
{
    dtpi_agent *agent = conn->agent;
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));
    bool waits = false;

    if (err->status != DTP_ERR_PROTO) {
        conn->hs.disagrees &= !dtpi_core_has_table(agent->core);
        say(agent, "a connection: %s", err->text);
        dtpi_hs_refuse(&conn->hs, &b, err);
        DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
        waits = m && dtpi_link_send(conn->link, m, NULL, 0) && conn->hs.disagrees;
    }
    if (!waits)
        agent_conn_close(conn);
}

/* He is there, and cannot come. */
static void end_all(struct agent_conn *conn, const dtp_error *err)
{
    dtpi_agent *agent = conn->agent;

    agent_conn_close(conn);
    if (!dtpi_core_has_table(agent->core))
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
    return DTP_PENDING;
}

/* One who asks for the secret before proving it. False: it does not. */
static bool serve_ask(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    dtp_error err;

    dtp_status st = dtpi_hs_serve_ask(&conn->hs, data, bytes, &err);
    if (st == DTP_PENDING)
        return false;
    if (st >= 0)
        st = agent_secret_give(conn, &err);
    if (st == DTP_PENDING) {
        agent_door_forget(conn);
        conn->asks = true;
    } else if (st < 0) {
        refuse(conn, &err);
    }
    return true;
}

/* Those who wait are of our user and this machine; their time begins again. */
void agent_door_secret_is_there(dtpi_agent *agent)
{
    dtp_error err;

    for (struct agent_conn *conn = agent->conns, *next; conn; conn = next) {
        next = conn->next;
        if (conn->role != CONN_STRANGER || !conn->asks)
            continue;
        conn->since_ns = dtp_ctx_now_ns(agent->ctx);
        remember(conn, conn->share);
        if (agent_secret_give(conn, &err) < 0)
            refuse(conn, &err);
    }
}

void agent_stranger_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(conn->agent->ctx));
    dtp_error err;

    if (conn->is_proven) {
        agent_probe_serve(conn, data, bytes);
        return;
    }
    if (serve_ask(conn, data, bytes))
        return;
    dtp_status st = dtpi_hs_serve(&conn->hs, data, bytes, &b, &err);
    if (st == DTP_PENDING)
        st = check_is_due(conn, &err);
    if (st < 0) {
        dtpi_buf_free(&b);
        if (conn->hs.is_heard)
            end_all(conn, &err);
        else
            refuse(conn, &err);
        return;
    }
    if (st == DTP_OK) {
        if (conn->hs.role == DTPI_HS_AGENT)
            agent_probe_start(conn, false);
        else if (!agent_promote(conn))
            agent_conn_close(conn);
        return;
    }
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    /* Who is dropped unproven comes again. */
    if (!m || !dtpi_link_send(conn->link, m, NULL, 0))
        agent_conn_close(conn);
}

/* ---- room for strangers ---- */

/* Of a network address (the network of an IPv6 host), or of a process of this machine. */
static uint8_t share_of(const dtpi_agent *agent, const struct sockaddr_storage *sa, pid_t pid)
{
    uint64_t raw[2] = { agent->door.seed, (uint64_t)pid };

    if (sa->ss_family == AF_INET)
        raw[1] = ((const struct sockaddr_in *)sa)->sin_addr.s_addr;
    else if (sa->ss_family == AF_INET6)
        memcpy(&raw[1], &((const struct sockaddr_in6 *)sa)->sin6_addr, sizeof(raw[1]));
    return (uint8_t)(dtpi_sum64(raw, sizeof(raw)) % DOOR_SHARES);
}

void agent_door_forget(struct agent_conn *conn)
{
    struct agent_door *d = &conn->agent->door;

    if (conn->asks)
        return;
    if (conn->older)
        conn->older->younger = conn->younger;
    else
        d->oldest = conn->younger;
    if (conn->younger)
        conn->younger->older = conn->older;
    else
        d->youngest = conn->older;
    d->n--;
    d->in_share[conn->share]--;
}

void agent_door_renew(struct agent_conn *conn)
{
    agent_door_forget(conn);
    conn->since_ns = dtp_ctx_now_ns(conn->agent->ctx);
    remember(conn, conn->share);
}

/*
 * Ends the oldest connection of the fullest share, rather one that has not said a HELLO with our secret.
 * A joiner says it at once and proves itself a round trip later. False: nobody is there.
 */
static bool make_room(dtpi_agent *agent)
{
    struct agent_door *d = &agent->door;
    struct agent_conn *quiet = NULL, *any = NULL;

    for (struct agent_conn *conn = d->oldest; conn; conn = conn->younger) {
        const uint32_t n = d->in_share[conn->share];
        if (!any || n > d->in_share[any->share])
            any = conn;
        if (!conn->hs.is_ours && (!quiet || n > d->in_share[quiet->share]))
            quiet = conn;
    }
    if (quiet || any)
        agent_conn_close(quiet ? quiet : any);
    return quiet || any;
}

/* ---- listening ---- */

/* Descriptors are out, and no stranger holds one: accept and close, so that the loop does not spin. */
static void accept_and_close(dtpi_agent *agent, int listen_fd)
{
    dtpi_close_fd(&agent->spare_fd);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    dtpi_close_fd(&fd);
    agent->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* A first message of one without our secret: answered as later, but without a connection of ours. */
static bool is_of_a_stranger(dtpi_agent *agent, int fd, const uint8_t *data, size_t bytes,
                             dtpi_hs_role role)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));
    dtpi_rd r = dtpi_rd_init(data, bytes);
    size_t n;
    dtp_error err;
    dtpi_hs hs;

    data = dtpi_rd_block(&r, DTPI_HS_MAX_FRAME, &n);
    if (!data)
        return false;           /* not all of it is there */
    agent_hs_init(agent, &hs, CONN_STRANGER, role);
    const bool is_ask = dtpi_hs_serve_ask(&hs, data, n, &err) != DTP_PENDING;
    const dtp_status st = is_ask ? DTP_OK : dtpi_hs_serve(&hs, data, n, &b, &err);
    if (st < 0 && !hs.is_ours && st != DTP_ERR_PROTO) {
        say(agent, "a connection: %s", err.text);
        dtpi_buf out = dtpi_buf_init(b.a);
        b.len = 0;
        dtpi_hs_refuse(&hs, &b, &err);
        dtpi_wr_block(&out, b.data, b.len);
        /* Who does not take it does without. */
        const ssize_t n_sent = send(fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)n_sent;
        dtpi_buf_free(&out);
    }
    const bool is_hopeless = st < 0 && !hs.is_ours;
    dtpi_hs_wipe(&hs);
    return is_hopeless;
}

/* A look at what is there already tells most garbage, before it costs much. */
static bool is_garbage(dtpi_agent *agent, int fd, dtpi_hs_role role, bool *has_data_out)
{
    uint8_t first[DTPI_HS_MAX_FRAME + 4];
    const ssize_t n = recv(fd, first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);

    *has_data_out = n > 0;
    if (n < 0)
        return errno != EAGAIN && errno != EINTR;
    if (n == 0 || !dtpi_hs_may_be_hello(first, (size_t)n))
        return true;
    if (!is_of_a_stranger(agent, fd, first, (size_t)n, role))
        return false;
    /* What stays unread would reset the connection, and with it the words of the refusal. */
    return recv(fd, first, sizeof(first), MSG_DONTWAIT) != 0;
}

static bool is_allowed(dtpi_agent *agent, int fd, pid_t *pid_out)
{
    uid_t uid = (uid_t)-1;

    if (dtpi_unix_peer(fd, &uid, pid_out, NULL) >= 0 && (uid == geteuid() || uid == 0))
        return true;
    say(agent, "a connection of user %u", (unsigned)uid);
    return false;
}

static void welcome_stranger(dtpi_agent *agent, int fd_take, const struct sockaddr_storage *sa)
{
    const bool is_unix = sa->ss_family == AF_UNIX;
    const dtpi_hs_role role = is_unix ? DTPI_HS_RANK : DTPI_HS_AGENT;
    bool has_data;
    pid_t pid = 0;

    if ((is_unix && !is_allowed(agent, fd_take, &pid)) ||
        is_garbage(agent, fd_take, role, &has_data)) {
        dtpi_close_fd(&fd_take);
        return;
    }
    if (!is_unix)
        dtpi_tcp_tune(fd_take);
    if (agent->door.n >= MAX_STRANGERS + agent->o.n_local)
        make_room(agent);
    struct agent_conn *conn = agent_conn_new(agent, fd_take, CONN_STRANGER, role);
    if (!conn) {
        dtpi_close_fd(&fd_take);
        return;
    }
    conn->pid = pid;
    remember(conn, share_of(agent, sa, pid));
    /* Not on this machine: a rank that joins again has said goodbye on a connection that is read first. */
    if (has_data && !is_unix)
        dtpi_link_drain(conn->link);
}

static void listen_for(dtpi_agent *agent, uint32_t events)
{
    if (agent->unix_fd >= 0)
        dtpi_source_modify(agent->ctx, &agent->unix_source, events, NULL);
    if (agent->tcp_fd >= 0)
        dtpi_source_modify(agent->ctx, &agent->tcp_source, events, NULL);
}

/*
 * Once the group stands nobody is waited for: who storms the door is then let in by the handful, not one
 * by one, so that members get the processor.
 */
static void maybe_rest(dtpi_agent *agent)
{
    struct agent_door *d = &agent->door;
    const int64_t now = dtp_ctx_now_ns(agent->ctx);

    if (now - d->window_ns >= WINDOW_MS * DTPI_NS_PER_MS) {
        d->window_ns = now;
        d->n_in_window = 0;
    }
    if (++d->n_in_window < STORM_PER_WINDOW || d->rest_until_ns || !dtpi_core_has_table(agent->core))
        return;
    d->rest_until_ns = now + REST_MS * DTPI_NS_PER_MS;
    listen_for(agent, 0);
}

static void accept_some(dtpi_agent *agent, int listen_fd, int family)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage sa = { 0 };
        socklen_t len = sizeof(sa);
        const int fd = accept4(listen_fd, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            if (family == AF_UNIX)
                sa.ss_family = AF_UNIX;
            welcome_stranger(agent, fd, &sa);
            continue;
        }
        if (errno == ECONNABORTED || errno == EINTR)
            continue;
        if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS)
            break;
        if (!make_room(agent)) {
            accept_and_close(agent, listen_fd);
            break;
        }
    }
    maybe_rest(agent);
    agent_after_input(agent);
}

static void unix_ready(dtpi_source *s, uint32_t revents)
{
    (void)revents;
    accept_some(DTPI_CONTAINER(s, dtpi_agent, unix_source), s->fd, AF_UNIX);
}

static void tcp_ready(dtpi_source *s, uint32_t revents)
{
    (void)revents;
    accept_some(DTPI_CONTAINER(s, dtpi_agent, tcp_source), s->fd, AF_INET);
}

/* ---- time ---- */

static int64_t slow_at_ns(const dtpi_agent *agent)
{
    const struct agent_conn *oldest = agent->door.oldest;

    return oldest ? oldest->since_ns + HELLO_TIMEOUT_MS * DTPI_NS_PER_MS : INT64_MAX;
}

void agent_door_tick(dtpi_agent *agent, int64_t now)
{
    struct agent_door *d = &agent->door;

    while (now >= slow_at_ns(agent))
        agent_conn_close(d->oldest);
    if (d->rest_until_ns && now >= d->rest_until_ns) {
        d->rest_until_ns = 0;
        listen_for(agent, EPOLLIN);
    }
}

int64_t agent_door_next_ns(const dtpi_agent *agent)
{
    const int64_t at = slow_at_ns(agent), rest = agent->door.rest_until_ns;

    return rest ? DTPI_MIN(at, rest) : at;
}

/* ---- life ---- */

dtp_status agent_listen_unix(dtpi_agent *agent, dtp_error *err)
{
    agent->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    randombytes_buf(&agent->door.seed, sizeof(agent->door.seed));
    dtp_status st = dtpi_unix_listen(agent->o.socket, &agent->unix_fd, err);
    if (st < 0)
        return st;
    if (agent->o.socket[0] != '@')
        agent->socket_path = dtpi_text_dup(dtpi_ctx_alloc(agent->ctx), agent->o.socket);
    agent->unix_source =
        (dtpi_source){ .fd = agent->unix_fd, .events = EPOLLIN, .ready = unix_ready };
    return dtpi_source_add(agent->ctx, &agent->unix_source, err);
}

static dtp_status watch_tcp(dtpi_agent *agent, dtp_error *err)
{
    dtpi_sa own = { 0 };
    socklen_t len = sizeof(own);

    if (getsockname(agent->tcp_fd, &own.any, &len) == 0)
        agent->port = dtpi_sa_port(&own);
    agent->tcp_source = (dtpi_source){ .fd = agent->tcp_fd, .events = EPOLLIN, .ready = tcp_ready };
    return dtpi_source_add(agent->ctx, &agent->tcp_source, err);
}

dtp_status agent_listen_tcp(dtpi_agent *agent, dtpi_endpoint *at, dtp_error *err)
{
    char text[80];

    const dtp_status st = dtpi_tcp_listen(at, &agent->tcp_fd, text, sizeof(text), err);
    if (st < 0)
        return st;
    DTPI_LOG(agent->ctx, DTP_LOG_INFO, "group", "the root agent listens on %s", text);
    return watch_tcp(agent, err);
}

dtp_status agent_listen_at(dtpi_agent *agent, const char *where, dtp_error *err)
{
    uint16_t port;

    const dtp_status st = dtpi_tcp_listen_at(where, &agent->tcp_fd, &port, err);
    if (st < 0)
        return st;
    dtpi_listener_candidates(agent->tcp_fd, NULL, 0, agent->own, sizeof(agent->own));
    if (agent->o.is_root && !agent->o.root)
        agent->o.root = agent->own;
    DTPI_LOG(agent->ctx, DTP_LOG_INFO, "group", "the agent listens on %s", agent->own);
    return watch_tcp(agent, err);
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
