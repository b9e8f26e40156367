/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.c - the agent behind sockets: listens, proves secrets, watches processes, and does what the
 * core decides. It runs in the loop of the context that opened it.
 *
 * Nothing of a peer reaches the core before the peer has proven the secret; connections that have not
 * are few, short-lived and small.
 */
#include "group/agent_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ACCEPTS_PER_TURN = 64, MAX_STRANGERS = 256, HELLO_TIMEOUT_MS = 5000 };

/* ---- the core's wishes ---- */

static void send_to(struct agent_conn *conn, dtpi_msg *msg)
{
    if (conn && conn->link)
        agent_carry(conn, msg);
}

static void to_local(void *user, uint32_t slot, dtpi_msg *msg)
{
    send_to(agent_conn_of(user, CONN_LOCAL, slot), msg);
}

static void to_child(void *user, uint32_t slot, dtpi_msg *msg)
{
    send_to(agent_conn_of(user, CONN_CHILD, slot), msg);
}

static void to_parent(void *user, dtpi_msg *msg)
{
    dtpi_agent *agent = user;

    send_to(agent->parent, msg);
}

static void on_verdict(void *user, const dtpi_verdict *v)
{
    dtpi_agent *agent = user;

    DTPI_LOG(agent->ctx, DTP_LOG_WARN, "group", "%s", v->text);
    agent_set_word(agent, v->status);
}

static void on_table(void *user)
{
    agent_welcome_all(user);
}

static void drop_local(void *user, uint32_t slot)
{
    struct agent_conn *conn = agent_conn_of(user, CONN_LOCAL, slot);

    if (conn)
        agent_conn_close(conn);
}

static void drop_child(void *user, uint32_t slot)
{
    struct agent_conn *conn = agent_conn_of(user, CONN_CHILD, slot);

    if (conn)
        agent_conn_close(conn);
}

static const dtpi_core_ops core_ops = {
    .to_local = to_local,
    .to_child = to_child,
    .to_parent = to_parent,
    .table = on_table,
    .verdict = on_verdict,
    .drop_local = drop_local,
    .drop_child = drop_child,
};

/* ---- connections ---- */

struct agent_conn *agent_conn_of(dtpi_agent *agent, enum conn_role role, uint32_t slot)
{
    struct agent_conn **map = role == CONN_LOCAL ? agent->by_local : agent->by_child;
    const uint32_t n = role == CONN_LOCAL ? agent->n_by_local : agent->n_by_child;

    return slot < n ? map[slot] : NULL;
}

/* A slot for a member; UINT32_MAX without memory. */
static uint32_t give_slot(dtpi_agent *agent, struct agent_conn *conn, enum conn_role role)
{
    struct agent_conn ***map = role == CONN_LOCAL ? &agent->by_local : &agent->by_child;
    uint32_t *n = role == CONN_LOCAL ? &agent->n_by_local : &agent->n_by_child;
    const dtp_allocator *a = dtpi_ctx_alloc(agent->ctx);
    uint32_t slot = 0;

    while (slot < *n && ((*map)[slot] ||
                         (role == CONN_LOCAL && !dtpi_core_slot_is_free(agent->core, slot)) ||
                         (role == CONN_CHILD && dtpi_core_has_table(agent->core))))
        slot++;
    if (slot == *n) {
        const uint32_t cap = *n ? *n * 2 : 16;
        struct agent_conn **p = dtpi_alloc_array(a, cap, sizeof(struct agent_conn *));
        if (!p)
            return UINT32_MAX;
        if (*n)
            memcpy(p, *map, *n * sizeof(struct agent_conn *));
        dtpi_free(a, *map, *n * sizeof(struct agent_conn *));
        *map = p;
        *n = cap;
    }
    (*map)[slot] = conn;
    return slot;
}

static void unlist(struct agent_conn *conn)
{
    *conn->prev = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
}

void agent_conn_close(struct agent_conn *conn)
{
    dtpi_agent *agent = conn->agent;

    if (conn->role == CONN_LOCAL && agent->by_local[conn->slot] == conn)
        agent->by_local[conn->slot] = NULL;
    if (conn->role == CONN_CHILD && agent->by_child[conn->slot] == conn)
        agent->by_child[conn->slot] = NULL;
    if (conn->role == CONN_STRANGER)
        agent->n_strangers--;
    if (agent->parent == conn)
        agent->parent = NULL;
    unlist(conn);
    dtpi_source_remove(agent->ctx, &conn->pid_source);
    dtpi_close_fd(&conn->pidfd);
    agent_carrier_close(conn);
    if (dtpi_ctx_alive(agent->ctx))
        dtpi_link_close(conn->link);
    else
        dtpi_link_forget(conn->link);
    dtpi_hs_wipe(&conn->hs);
    dtpi_free(dtpi_ctx_alloc(agent->ctx), conn, sizeof(*conn));
}

/* The process behind a local rank has ended, whatever still holds its socket. */
static void pid_ended(dtpi_source *s, uint32_t revents)
{
    struct agent_conn *conn = DTPI_CONTAINER(s, struct agent_conn, pid_source);
    dtpi_agent *agent = conn->agent;
    const uint32_t slot = conn->slot;

    (void)revents;
    /* Its last words may say that it left. */
    dtpi_link_drain(conn->link);
    if (agent_conn_of(agent, CONN_LOCAL, slot) != conn)
        return;
    agent_conn_close(conn);
    dtpi_core_local_end(agent->core, slot, NULL, dtp_ctx_now_ns(agent->ctx));
    agent_after_input(agent);
}

static void watch_process(struct agent_conn *conn)
{
    if (conn->pid <= 0)
        return;
    conn->pidfd = (int)syscall(SYS_pidfd_open, conn->pid, 0);
    if (conn->pidfd < 0)
        return;         /* gone already, or in another pid namespace: end of file tells */
    conn->pid_source = (dtpi_source){ .fd = conn->pidfd, .events = EPOLLIN, .ready = pid_ended };
    dtpi_source_add(conn->agent->ctx, &conn->pid_source, NULL);
}

static bool promote(struct agent_conn *conn)
{
    dtpi_agent *agent = conn->agent;
    const enum conn_role role = conn->hs.role == DTPI_HS_RANK ? CONN_LOCAL : CONN_CHILD;
    const int64_t now = dtp_ctx_now_ns(agent->ctx);
    uint8_t in[DTPI_LINK_KEY_BYTES], out[DTPI_LINK_KEY_BYTES];

    const uint32_t slot = give_slot(agent, conn, role);
    if (slot == UINT32_MAX)
        return false;
    agent->n_strangers--;
    conn->role = role;
    conn->slot = slot;
    dtpi_link_set_max(conn->link, DTPI_LINK_MAX_FRAME);
    if (role == CONN_LOCAL) {
        conn->rank = conn->hs.who;
        watch_process(conn);
        dtpi_core_local_open(agent->core, slot, conn->hs.who, conn->pid, now);
    } else {
        dtpi_hs_keys(&conn->hs, in, out);
        agent_seal(conn, out, in);
        dtpi_core_child_open(agent->core, slot, now);
        agent_carrier_offer(conn);
    }
    dtpi_hs_wipe(&conn->hs);
    return true;
}

static void refuse(struct agent_conn *conn, const dtp_error *err)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(conn->agent->ctx));

    /* Strangers that are none of ours get no answer. */
    if (err->status != DTP_ERR_PROTO) {
        DTPI_LOG(conn->agent->ctx, DTP_LOG_WARN, "group", "refused a connection: %s", err->text);
        dtpi_hs_refuse(&b, err);
        DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
        if (m)
            dtpi_link_send(conn->link, m, NULL, 0);
    }
    agent_conn_close(conn);
}

/*
 * A process may join, leave and join again: its new group meets elsewhere, once this one is over. Said at
 * the hello, because a client that has proven itself takes no refusal any more.
 */
static dtp_status check_is_due(const struct agent_conn *conn, dtp_error *err)
{
    const dtpi_agent *agent = conn->agent;
    const int32_t who = conn->hs.who;

    if (conn->hs.role == DTPI_HS_RANK && dtpi_core_has_left(agent->core, who))
        return dtpi_fail(err, DTP_ERR_BUSY, "rank %d has left the group of job %s (attempt %u), which "
                         "still goes on", who, agent->job, agent->o.attempt);
    if (conn->hs.role == DTPI_HS_AGENT && dtpi_core_has_table(agent->core))
        return dtpi_fail(err, DTP_ERR_BUSY, "a group of job %s (attempt %u) stands already", agent->job,
                         agent->o.attempt);
    return DTP_PENDING;
}

static void stranger_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes)
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
        if (!promote(conn))
            agent_conn_close(conn);
        return;
    }
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    if (m)
        dtpi_link_send(conn->link, m, NULL, 0);
}

void agent_member_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    dtpi_agent *agent = conn->agent;
    const int64_t now = dtp_ctx_now_ns(agent->ctx);

    switch (conn->role) {
    case CONN_LOCAL:
        if (!agent_memory_frame(conn, data, bytes))
            dtpi_core_local_msg(agent->core, conn->slot, data, bytes, now);
        break;
    case CONN_CHILD:
        dtpi_core_child_msg(agent->core, conn->slot, data, bytes, now);
        break;
    default:
        dtpi_core_parent_msg(agent->core, data, bytes, now);
        break;
    }
}

static void conn_frame(dtpi_link *link, void *user, const uint8_t *data, size_t bytes)
{
    struct agent_conn *conn = user;
    dtpi_agent *agent = conn->agent;

    (void)link;
    if (conn->role == CONN_STRANGER)
        stranger_frame(conn, data, bytes);
    else if (conn->role == CONN_CONNECTING)
        agent_parent_frame(conn, data, bytes);
    else if (conn->role == CONN_LOCAL || !agent_carrier_frame(conn, data, bytes))
        agent_member_frame(conn, data, bytes);
    agent_after_input(agent);
}

static void conn_closed(dtpi_link *link, void *user, dtp_status why)
{
    struct agent_conn *conn = user;
    dtpi_agent *agent = conn->agent;
    const enum conn_role role = conn->role;
    const uint32_t slot = conn->slot;
    const int64_t now = dtp_ctx_now_ns(agent->ctx);

    (void)link;
    if (role == CONN_CONNECTING) {
        agent_parent_failed(conn, why);
        return;
    }
    agent_conn_close(conn);
    if (role == CONN_LOCAL)
        dtpi_core_local_end(agent->core, slot, NULL, now);
    else if (role == CONN_CHILD)
        dtpi_core_child_end(agent->core, slot, now);
    else if (role == CONN_PARENT)
        dtpi_core_parent_end(agent->core, DTP_OK, NULL, now);
    agent_after_input(agent);
}

static const dtpi_link_ops conn_ops = { .frame = conn_frame, .closed = conn_closed };

struct agent_conn *agent_conn_new(dtpi_agent *agent, int fd_take, enum conn_role role,
                                  dtpi_hs_role hs_role)
{
    const dtp_allocator *a = dtpi_ctx_alloc(agent->ctx);
    struct agent_conn *conn = dtpi_alloc(a, sizeof(*conn));

    if (!conn)
        return NULL;
    conn->agent = agent;
    conn->role = role;
    conn->pidfd = -1;
    conn->since_ns = dtp_ctx_now_ns(agent->ctx);
    dtpi_hs_init(&conn->hs, hs_role, agent->job, agent->o.attempt, -1,
                 agent->insecure ? NULL : agent->secret);
    if (dtpi_link_open(agent->ctx, fd_take, DTPI_HS_MAX_FRAME, &conn_ops, conn, &conn->link, NULL) <
        0) {
        dtpi_free(a, conn, sizeof(*conn));
        return NULL;
    }
    conn->next = agent->conns;
    conn->prev = &agent->conns;
    if (conn->next)
        conn->next->prev = &conn->next;
    agent->conns = conn;
    return conn;
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

static void drop_slow_strangers(dtpi_agent *agent, int64_t now)
{
    for (struct agent_conn *conn = agent->conns, *next; conn; conn = next) {
        next = conn->next;
        if (conn->role == CONN_STRANGER && now - conn->since_ns >= HELLO_TIMEOUT_MS * DTPI_NS_PER_MS)
            agent_conn_close(conn);
    }
}

static void timer_due(dtpi_timer *t)
{
    dtpi_agent *agent = DTPI_CONTAINER(t, dtpi_agent, timer);
    const int64_t now = dtp_ctx_now_ns(agent->ctx);

    drop_slow_strangers(agent, now);
    agent_parent_tick(agent, now);
    dtpi_core_tick(agent->core, now);
    agent_after_input(agent);
}

void agent_after_input(dtpi_agent *agent)
{
    int64_t at;

    if (agent->trouble.status < 0) {
        const dtp_error e = agent->trouble;
        agent->trouble.status = 0;
        dtpi_core_fail(agent->core, e.status, e.text, dtp_ctx_now_ns(agent->ctx));
    }
    at = DTPI_MIN(dtpi_core_next_ns(agent->core), agent->connect_at_ns);
    if (agent->n_strangers)
        at = DTPI_MIN(at, dtp_ctx_now_ns(agent->ctx) + HELLO_TIMEOUT_MS * DTPI_NS_PER_MS);
    if (agent->timer.slot && agent->timer.at_ns <= at)
        return;
    if (at != INT64_MAX)
        dtpi_timer_set(agent->ctx, &agent->timer, at, NULL);
}

/* ---- life ---- */

static dtp_status copy_opts(dtpi_agent *agent, const dtpi_agent_opts *o, dtp_error *err)
{
    agent->o = *o;
    snprintf(agent->job, sizeof(agent->job), "%s", o->job ? o->job : "default");
    if (o->job && strlen(o->job) >= sizeof(agent->job))
        return dtpi_fail(err, DTP_ERR_INVAL, "job name '%.40s...' is longer than %zu bytes", o->job,
                         sizeof(agent->job) - 1);
    agent->insecure = !o->secret;
    if (o->secret)
        memcpy(agent->secret, o->secret, sizeof(agent->secret));
    agent->o.job = agent->job;
    agent->o.secret = NULL;
    if (o->net && strcmp(o->net, "tcp") != 0 && strcmp(o->net, "ucx") != 0)
        return dtpi_fail(err, DTP_ERR_INVAL, "net '%.20s' is neither tcp nor ucx", o->net);
    agent->wants_ucx = o->net && strcmp(o->net, "ucx") == 0;
    if (!o->socket)
        return dtpi_fail(err, DTP_ERR_INVAL, "an agent needs a socket");
    return DTP_OK;
}

static dtp_status open_core(dtpi_agent *agent, dtp_error *err)
{
    char host[DTPI_HOST_MAX + 1] = "";
    uint64_t id;

    if (gethostname(host, sizeof(host) - 1) < 0 || !host[0])
        snprintf(host, sizeof(host), "localhost");
    randombytes_buf(&id, sizeof(id));
    const dtpi_core_opts co = {
        .a = dtpi_ctx_alloc(agent->ctx),
        .world_size = agent->o.world_size,
        .n_local = agent->o.n_local,
        .attempt = agent->o.attempt,
        .is_root = agent->o.is_root || !agent->o.root,
        .host = host,
        .node_id = id,
        .host_rank = agent->o.host_rank_plus_1 - 1,
        .now_ns = dtp_ctx_now_ns(agent->ctx),
        .join_timeout_ns = agent->o.timeout_ms > 0 ? agent->o.timeout_ms * DTPI_NS_PER_MS : 0,
    };
    return dtpi_core_new(&co, &core_ops, agent, &agent->core, err);
}

static dtp_status listen_unix(dtpi_agent *agent, dtp_error *err)
{
    dtp_status st = dtpi_unix_listen(agent->o.socket, &agent->unix_fd, err);

    if (st < 0)
        return st;
    if (agent->o.socket[0] != '@')
        agent->socket_path = dtpi_text_dup(dtpi_ctx_alloc(agent->ctx), agent->o.socket);
    agent->unix_source =
        (dtpi_source){ .fd = agent->unix_fd, .events = EPOLLIN, .ready = unix_ready };
    return dtpi_source_add(agent->ctx, &agent->unix_source, err);
}

static dtp_status open_network(dtpi_agent *agent, dtp_error *err)
{
    char text[80];

    if (!agent->o.root)
        return DTP_OK;
    dtp_status st = dtpi_endpoint_parse(agent->o.root, &agent->root, err);
    if (st >= 0)
        st = dtpi_endpoint_resolve(&agent->root, err);
    if (st < 0)
        return st;
    if (!agent->o.is_root) {
        agent->connect_at_ns = 0;
        return DTP_OK;
    }
    st = dtpi_tcp_listen(&agent->root, &agent->tcp_fd, text, sizeof(text), err);
    if (st < 0)
        return st;
    DTPI_LOG(agent->ctx, DTP_LOG_INFO, "group", "the root agent listens on %s", text);
    agent->tcp_source = (dtpi_source){ .fd = agent->tcp_fd, .events = EPOLLIN, .ready = tcp_ready };
    return dtpi_source_add(agent->ctx, &agent->tcp_source, err);
}

dtp_status dtpi_agent_open(dtp_ctx *ctx, const dtpi_agent_opts *opts, dtpi_agent **agent_out,
                           dtp_error *err)
{
    if (sodium_init() < 0)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "libsodium does not start");
    dtp_status st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return st;
    dtpi_agent *agent = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*agent));
    if (!agent) {
        dtpi_ctx_leave(ctx);
        return dtpi_fail_nomem(err, sizeof(*agent));
    }
    agent->ctx = ctx;
    agent->unix_fd = agent->tcp_fd = agent->control_fd = agent->table_fd = -1;
    agent->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    agent->connect_at_ns = INT64_MAX;
    agent->timer.due = timer_due;
    st = copy_opts(agent, opts, err);
    if (st >= 0)
        st = open_core(agent, err);
    if (st >= 0)
        st = agent_files_open(agent, err);
    if (st >= 0)
        st = agent_carriers_open(agent, err);
    if (st >= 0)
        st = listen_unix(agent, err);
    if (st >= 0)
        st = open_network(agent, err);
    if (st < 0) {
        dtpi_agent_close(agent);
        dtpi_ctx_leave(ctx);
        return dtpi_noun(err, "group", st);
    }
    agent_after_input(agent);
    *agent_out = agent;
    dtpi_ctx_leave(ctx);
    return DTP_OK;
}

void dtpi_agent_close(dtpi_agent *agent)
{
    if (!agent)
        return;
    const dtp_allocator *a = dtpi_ctx_alloc(agent->ctx);
    const bool alive = dtpi_ctx_alive(agent->ctx);
    if (agent->core && alive)
        dtpi_core_bye(agent->core);
    while (agent->conns)
        agent_conn_close(agent->conns);
    dtpi_timer_clear(agent->ctx, &agent->timer);
    dtpi_source_remove(agent->ctx, &agent->unix_source);
    dtpi_source_remove(agent->ctx, &agent->tcp_source);
    dtpi_close_fd(&agent->unix_fd);
    dtpi_close_fd(&agent->tcp_fd);
    dtpi_close_fd(&agent->spare_fd);
    if (agent->socket_path && alive)
        unlink(agent->socket_path);
    dtpi_text_free(a, agent->socket_path);
    agent_carriers_close(agent);
    agent_files_close(agent);
    dtpi_core_free(agent->core);
    dtpi_free(a, agent->by_local, agent->n_by_local * sizeof(struct agent_conn *));
    dtpi_free(a, agent->by_child, agent->n_by_child * sizeof(struct agent_conn *));
    sodium_memzero(agent->secret, sizeof(agent->secret));
    dtpi_free(a, agent, sizeof(*agent));
}

void dtpi_agent_rank_ended(dtpi_agent *agent, int32_t rank, int32_t pid, int wstatus)
{
    struct agent_conn *conn = NULL;
    char cause[32];

    for (uint32_t i = 0; i < agent->n_by_local && !conn; i++)
        if (agent->by_local[i] && agent->by_local[i]->rank == rank && agent->by_local[i]->pid == pid)
            conn = agent->by_local[i];
    if (conn)
        dtpi_link_drain(conn->link);
    if (WIFSIGNALED(wstatus))
        snprintf(cause, sizeof(cause), "signal %d", WTERMSIG(wstatus));
    else
        snprintf(cause, sizeof(cause), "exit %d", WEXITSTATUS(wstatus));
    dtpi_core_rank_ended(agent->core, rank, pid, cause, dtp_ctx_now_ns(agent->ctx));
    agent_after_input(agent);
}

bool dtpi_agent_is_done(const dtpi_agent *agent)
{
    return dtpi_core_is_done(agent->core);
}

bool dtpi_agent_failed_early(const dtpi_agent *agent)
{
    return dtpi_core_verdict(agent->core) && !dtpi_core_has_table(agent->core) &&
           !dtpi_core_all_came(agent->core);
}

bool dtpi_agent_is_idle(const dtpi_agent *agent)
{
    for (struct agent_conn *conn = agent->conns; conn; conn = conn->next)
        if (!dtpi_link_is_idle(conn->link))
            return false;
    return true;
}
