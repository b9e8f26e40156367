/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.c - the agent behind sockets: watches processes and does what the core decides. It runs in the
 * loop of the context that opened it.
 *
 * Nothing of a peer reaches the core before the peer has proven the secret (agent_door.c).
 */
#include "group/agent_internal.h"
#include "group/tree.h"

#include <sodium.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TELL_TWICE = 2, FAR_MS = 3600000 };

/* ---- the core's wishes ---- */

static void send_to(struct agent_conn *conn, dtpi_msg *msg)
{
    if (conn && conn->link && !agent_carry(conn, msg))
        agent_unsent(conn);
}

void agent_unsent(struct agent_conn *conn)
{
    dtpi_agent *agent = conn->agent;

    if (dtpi_core_verdict(agent->core) || agent->trouble.status < 0)
        dtpi_link_break(conn->link);
    else
        dtpi_fail(&agent->trouble, DTP_ERR_NOMEM, "its agent has no memory for a message");
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
    agent_secret_failed(agent, v->status, v->text);
}

static void on_table(void *user)
{
    agent_welcome_all(user);
}

static void on_formed(void *user, dtpi_msg *msg)
{
    dtpi_agent *agent = user;

    agent_formed_all(agent, msg);
    if (agent->o.formed)
        agent->o.formed(agent->o.user, dtpi_core_generation(agent->core),
                        dtpi_core_n_members(agent->core));
}

/* Sought when the core is left: this may be inside of one of its callbacks. */
static void on_orphan(void *user)
{
    dtpi_agent *agent = user;

    agent->is_orphan = true;
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
    .formed = on_formed,
    .orphan = on_orphan,
};

/* ---- connections ---- */

struct agent_conn *agent_conn_of(dtpi_agent *agent, enum conn_role role, uint32_t slot)
{
    struct agent_conn **map = role == CONN_LOCAL ? agent->by_local : agent->by_child;
    const uint32_t n = role == CONN_LOCAL ? agent->n_by_local : agent->n_by_child;

    return slot < n ? map[slot] : NULL;
}

static bool grow_slots(dtpi_agent *agent, struct agent_conn ***map, uint32_t *n)
{
    const dtp_allocator *a = dtpi_ctx_alloc(agent->ctx);
    const uint32_t cap = *n ? *n * 2 : 32;
    struct agent_conn **p = dtpi_alloc_array(a, cap, sizeof(struct agent_conn *));

    if (!p)
        return false;
    if (*n)
        memcpy(p, *map, *n * sizeof(struct agent_conn *));
    dtpi_free(a, *map, *n * sizeof(struct agent_conn *));
    *map = p;
    *n = cap;
    return true;
}

/* A slot for a member; UINT32_MAX without memory. */
static uint32_t give_slot(dtpi_agent *agent, struct agent_conn *conn, enum conn_role role)
{
    struct agent_conn ***map = role == CONN_LOCAL ? &agent->by_local : &agent->by_child;
    uint32_t *n = role == CONN_LOCAL ? &agent->n_by_local : &agent->n_by_child;
    uint32_t slot = 0;

    while (slot < *n && ((*map)[slot] ||
                         (role == CONN_LOCAL && !dtpi_core_slot_is_free(agent->core, slot)) ||
                         (role == CONN_CHILD && dtpi_core_has_table(agent->core))))
        slot++;
    if (slot == *n && !grow_slots(agent, map, n))
        return UINT32_MAX;
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
        agent_door_forget(conn);
    if (agent->parent == conn)
        agent->parent = NULL;
    unlist(conn);
    dtpi_source_remove(agent->ctx, &conn->pid_source);
    dtpi_close_fd(&conn->pidfd);
    dtpi_timer_clear(agent->ctx, &conn->probe_timer);
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
    const dtpi_agent_opts *o = &conn->agent->o;

    if (conn->pid <= 0 || (o->is_watched && o->is_watched(o->user, conn->rank, conn->pid)))
        return;
    conn->pidfd = (int)syscall(SYS_pidfd_open, conn->pid, 0);
    if (conn->pidfd < 0)
        return;         /* gone already, or in another pid namespace: end of file tells */
    conn->pid_source = (dtpi_source){ .fd = conn->pidfd, .events = EPOLLIN, .ready = pid_ended };
    dtpi_source_add(conn->agent->ctx, &conn->pid_source, NULL);
}

bool agent_promote(struct agent_conn *conn)
{
    dtpi_agent *agent = conn->agent;
    const enum conn_role role = conn->hs.role == DTPI_HS_RANK ? CONN_LOCAL : CONN_CHILD;
    const int64_t now = dtp_ctx_now_ns(agent->ctx);

    const uint32_t slot = give_slot(agent, conn, role);
    if (slot == UINT32_MAX)
        return false;
    agent_door_forget(conn);
    conn->role = role;
    conn->slot = slot;
    dtpi_link_set_max(conn->link, DTPI_LINK_MAX_FRAME);
    if (role == CONN_LOCAL) {
        conn->rank = conn->hs.peer.who;
        watch_process(conn);
        dtpi_core_local_open(agent->core, slot, conn->hs.peer.who, conn->pid, now);
    } else {
        if (agent->o.is_root)
            agent_files_say_met(agent, conn);
        dtpi_core_child_open(agent->core, slot, now);
        agent_carrier_offer(conn);
    }
    dtpi_hs_wipe(&conn->hs);
    return true;
}

void agent_member_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    dtpi_agent *agent = conn->agent;
    const int64_t now = dtp_ctx_now_ns(agent->ctx);
    const dtpi_in in = { .data = data, .bytes = bytes };

    switch (conn->role) {
    case CONN_LOCAL:
        if (!agent_memory_frame(conn, data, bytes))
            dtpi_core_local_msg(agent->core, conn->slot, &in, now);
        break;
    case CONN_CHILD:
        dtpi_core_child_msg(agent->core, conn->slot, &in, now);
        break;
    default:
        dtpi_core_parent_msg(agent->core, &in, now);
        break;
    }
}

static void conn_frame(dtpi_link *link, void *user, const uint8_t *data, size_t bytes)
{
    struct agent_conn *conn = user;
    dtpi_agent *agent = conn->agent;

    (void)link;
    if (conn->role == CONN_STRANGER)
        agent_stranger_frame(conn, data, bytes);
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

void agent_hs_init(const dtpi_agent *agent, dtpi_hs *hs, enum conn_role role, dtpi_hs_role hs_role)
{
    dtpi_hs_init(hs, &(dtpi_hs_opts){
        .role = hs_role, .job = agent->job, .attempt = agent->o.attempt,
        .generation = role == CONN_CONNECTING ? 0 : dtpi_core_generation(agent->core),
        .world = agent->o.world_size,
        .who = agent->o.host_rank_plus_1 - 1, .host = agent->host,
        .secret = agent->insecure || agent->lacks_secret ? NULL : agent->secret,
        .asks = agent->lacks_secret, .encrypts = agent->o.encrypt });
}

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
    agent_hs_init(agent, &conn->hs, role, hs_role);
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

/* ---- time ---- */

static void timer_due(dtpi_timer *t)
{
    dtpi_agent *agent = DTPI_CONTAINER(t, dtpi_agent, timer);
    const int64_t now = dtp_ctx_now_ns(agent->ctx);

    agent_door_tick(agent, now);
    agent_parent_tick(agent, now);
    agent_tree_tick(agent, now);
    dtpi_core_tick(agent->core, now);
    agent_after_input(agent);
}

void agent_after_input(dtpi_agent *agent)
{
    int64_t at;

    for (int i = 0; agent->trouble.status < 0 && i < TELL_TWICE; i++) {
        const dtp_error e = agent->trouble;
        agent->trouble.status = 0;
        dtpi_core_fail(agent->core, e.status, e.text, dtp_ctx_now_ns(agent->ctx));
    }
    /* The parent cannot be told: it sees the end of this agent. */
    if (agent->trouble.status < 0 && agent->parent)
        dtpi_link_break(agent->parent->link);
    agent_tree_orphan(agent);
    agent_note_newcomers(agent);
    at = DTPI_MIN(dtpi_core_next_ns(agent->core), agent_parent_next_ns(agent));
    at = DTPI_MIN(at, DTPI_MIN(agent_door_next_ns(agent), agent_tree_next_ns(agent)));
    if (agent->timer.slot && agent->timer.at_ns <= at)
        return;
    if (at != INT64_MAX)
        dtpi_timer_set(agent->ctx, &agent->timer, at, NULL);
}

/* ---- life ---- */

/* Keeps a copy; NULL stays NULL. */
static dtp_status set_text(dtpi_agent *agent, char **kept, const char *text, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(agent->ctx);
    char *copy = text ? dtpi_text_dup(a, text) : NULL;

    if (text && !copy)
        return dtpi_fail_nomem(err, strlen(text));
    dtpi_text_free(a, *kept);
    *kept = copy;
    return DTP_OK;
}

static dtp_status check_place(const dtpi_agent_opts *o, dtp_error *err)
{
    if (o->radix > DTPI_TREE_MAX_RADIX)
        return dtpi_fail(err, DTP_ERR_RANGE, "radix %d: 1 to %d children of an agent are possible",
                         (int)o->radix, DTPI_TREE_MAX_RADIX);
    if (o->n_nodes > o->world_size || (o->n_nodes && o->node >= o->n_nodes))
        return dtpi_fail(err, DTP_ERR_RANGE, "node %d of %d in a group of %u", (int)o->node,
                         (int)o->n_nodes, o->world_size);
    return DTP_OK;
}

static dtp_status copy_opts(dtpi_agent *agent, const dtpi_agent_opts *o, dtp_error *err)
{
    dtp_status st = check_place(o, err);
    if (st < 0)
        return st;
    agent->o = *o;
    snprintf(agent->job, sizeof(agent->job), "%s", o->job ? o->job : "default");
    if (o->job && strlen(o->job) >= sizeof(agent->job))
        return dtpi_fail(err, DTP_ERR_INVAL, "job name '%.40s...' is longer than %zu bytes", o->job,
                         sizeof(agent->job) - 1);
    st = set_text(agent, &agent->root_text, o->root, err);
    if (st >= 0)
        st = set_text(agent, &agent->parent_text, o->parent, err);
    if (st < 0)
        return st;
    agent->o.root = agent->root_text;
    agent->o.parent = agent->parent_text;
    agent->insecure = !o->secret && !o->munge;
    agent->lacks_secret = !o->secret && o->munge;
    snprintf(agent->munge, sizeof(agent->munge), "%s", o->munge ? o->munge : "");
    if (o->munge && strlen(o->munge) >= sizeof(agent->munge))
        return dtpi_fail(err, DTP_ERR_INVAL, "munged's socket '%.40s...' is longer than %zu bytes", o->munge,
                         sizeof(agent->munge) - 1);
    if (agent->lacks_secret && (o->is_root || !o->root))
        agent_secret_make(agent);
    if (o->secret)
        memcpy(agent->secret, o->secret, sizeof(agent->secret));
    agent->o.job = agent->job;
    agent->o.secret = NULL;
    agent->o.munge = o->munge ? agent->munge : NULL;
    if (o->net && strcmp(o->net, "tcp") != 0 && strcmp(o->net, "ucx") != 0 && strcmp(o->net, "auto") != 0)
        return dtpi_fail(err, DTP_ERR_INVAL, "net '%.20s' is neither tcp nor ucx nor auto", o->net);
    if (!o->socket)
        return dtpi_fail(err, DTP_ERR_INVAL, "an agent needs a socket");
    return DTP_OK;
}

static dtp_status open_core(dtpi_agent *agent, dtp_error *err)
{
    if (gethostname(agent->host, sizeof(agent->host) - 1) < 0 || !agent->host[0])
        snprintf(agent->host, sizeof(agent->host), "localhost");
    randombytes_buf(&agent->node_id, sizeof(agent->node_id));
    agent->node_id = agent->node_id >> 1 | 1;       /* neither of the values that mean no node */
    const dtpi_core_opts co = {
        .a = dtpi_ctx_alloc(agent->ctx),
        .world_size = agent->o.world_size,
        .n_local = agent->o.n_local,
        .attempt = agent->o.attempt,
        .is_root = agent->o.is_root || !agent->o.root,
        .host = agent->host,
        .node_id = agent->node_id,
        .host_rank = agent->o.host_rank_plus_1 - 1,
        .now_ns = dtp_ctx_now_ns(agent->ctx),
        .join_timeout_ns = agent->o.timeout_ms > 0 ? agent->o.timeout_ms * DTPI_NS_PER_MS : 0,
    };
    return dtpi_core_new(&co, &core_ops, agent, &agent->core, err);
}

static dtp_status open_network(dtpi_agent *agent, dtp_error *err)
{
    dtpi_endpoint e;

    if (agent->o.listens) {
        const dtp_status st = agent_listen_at(agent, agent->o.listen, err);
        if (st < 0 || agent->o.is_root)
            return st;
    }
    if (!agent->o.root)
        return DTP_OK;
    if (agent->o.is_root) {
        const dtp_status st = dtpi_endpoint_parse(agent->o.root, &e, err);
        return st < 0 ? st : agent_listen_tcp(agent, &e, err);
    }
    /* Others may be sent here. */
    const dtp_status st = agent->tcp_fd < 0 ? agent_listen_at(agent, agent->o.listen, err) : DTP_OK;
    return st < 0 ? st : agent_tree_seek(agent, err);
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
    agent->spare_fd = -1;
    agent->timer.due = timer_due;
    st = copy_opts(agent, opts, err);
    if (st >= 0)
        st = open_core(agent, err);
    if (st >= 0)
        st = agent_files_open(agent, err);
    if (st >= 0)
        agent_tree_open(agent);
    if (st >= 0)
        st = open_network(agent, err);
    if (st >= 0)
        st = agent_carriers_open(agent, err);
    if (st >= 0)
        st = agent_listen_unix(agent, err);
    if (st >= 0)
        agent_files_say_root(agent);
    /* Room for the first members and the timer now: where it cannot be had, nobody has come yet. */
    if (st >= 0 && (!grow_slots(agent, &agent->by_local, &agent->n_by_local) ||
                    !grow_slots(agent, &agent->by_child, &agent->n_by_child)))
        st = dtpi_fail_nomem(err, 0);
    if (st >= 0)
        st = dtpi_timer_set(ctx, &agent->timer, dtp_ctx_now_ns(ctx) + FAR_MS * DTPI_NS_PER_MS, err);
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
    agent_parent_stop(agent);
    while (agent->conns)
        agent_conn_close(agent->conns);
    dtpi_timer_clear(agent->ctx, &agent->timer);
    agent_door_close(agent);
    agent_carriers_close(agent);
    agent_files_close(agent);
    agent_tree_close(agent);
    dtpi_text_free(a, agent->root_text);
    dtpi_text_free(a, agent->parent_text);
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

const char *dtpi_agent_candidates(const dtpi_agent *agent)
{
    return agent->own;
}

dtp_status dtpi_agent_seek(dtpi_agent *agent, const char *root, dtp_error *err)
{
    dtp_status st = dtpi_ctx_enter(agent->ctx, err);

    if (st < 0)
        return st;
    if (!agent->parent) {
        /* A parent that is not the root was said by those who said where the root was. */
        const bool is_parent = agent->o.parent && strcmp(agent->o.parent, agent->root_text) == 0;
        agent->n_gave_up = 0;
        st = set_text(agent, &agent->root_text, root, err);
        if (st >= 0)
            st = set_text(agent, &agent->parent_text, is_parent ? root : NULL, err);
        agent->o.root = agent->root_text;
        agent->o.parent = agent->parent_text;
        if (st >= 0)
            st = agent_tree_seek(agent, err);
    }
    agent_after_input(agent);
    dtpi_ctx_leave(agent->ctx);
    return st;
}

void dtpi_agent_rank_failed(dtpi_agent *agent, int32_t rank, int32_t pid, const char *why)
{
    dtpi_core_rank_failed(agent->core, rank, pid, why, dtp_ctx_now_ns(agent->ctx));
    agent_after_input(agent);
}

void dtpi_agent_get_stats(const dtpi_agent *agent, dtpi_agent_stats *out)
{
    const int own[] = { agent->unix_fd, agent->tcp_fd, agent->spare_fd, agent->control_fd,
                        agent->table_fd };

    *out = (dtpi_agent_stats){ .number = agent->number, .n_fds = 3 };  /* the loop's: epoll, timer, event */
    for (size_t i = 0; i < DTPI_ARRAY_LEN(own); i++)
        out->n_fds += own[i] >= 0;
    for (const struct agent_conn *conn = agent->conns; conn; conn = conn->next) {
        out->n_fds += 1 + (conn->pidfd >= 0);
        out->n_children += conn->role == CONN_CHILD;
        out->n_locals += conn->role == CONN_LOCAL;
        out->n_strangers += conn->role == CONN_STRANGER || conn->role == CONN_CONNECTING;
    }
}

bool dtpi_agent_is_done(const dtpi_agent *agent)
{
    return dtpi_core_is_done(agent->core);
}

bool dtpi_agent_serves_below(const dtpi_agent *agent)
{
    return dtpi_core_serves_below(agent->core);
}

bool dtpi_agent_failed_early(const dtpi_agent *agent)
{
    /* Who may get children cannot tell how many are still on their way. */
    return dtpi_core_verdict(agent->core) && !dtpi_core_has_table(agent->core) &&
           (agent->tcp_fd >= 0 || !dtpi_core_all_came(agent->core));
}

bool dtpi_agent_has_strangers(const dtpi_agent *agent)
{
    return agent->door.n > 0;
}

bool dtpi_agent_is_idle(const dtpi_agent *agent)
{
    for (struct agent_conn *conn = agent->conns; conn; conn = conn->next)
        if (!dtpi_link_is_idle(conn->link))
            return false;
    return true;
}
