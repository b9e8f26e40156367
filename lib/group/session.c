/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.c - a rank's connection with its agent: joining, what the agent says, and the verdict.
 */
#include "group/group_internal.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text.h"

enum { TELL_TWICE = 2, ENDING_MS = 50 };

/* ---- sending ---- */

dtpi_buf session_begin(const struct session *s, uint8_t type, uint64_t group, uint8_t lane,
                       uint32_t seq)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(s->ctx));
    const dtpi_frame f = { .type = type, .lane = lane, .attempt = s->attempt,
                           .generation = s->generation, .seq = seq, .group = group,
                           .rank = s->rank };

    dtpi_frame_begin(&b, &f);
    return b;
}

bool session_send(struct session *s, dtpi_buf *b_take)
{
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(b_take);

    return m && s->link && dtpi_link_send(s->link, m, NULL, 0);
}

void session_tell(struct session *s, uint8_t type, uint64_t group)
{
    bool sent = false;

    for (int i = 0; i < TELL_TWICE && !sent; i++) {
        dtpi_buf b = session_begin(s, type, group, 0, 0);
        sent = session_send(s, &b);
    }
}

void session_announce(struct session *s, const dtp_error *why)
{
    bool sent = false;

    for (int i = 0; i < TELL_TWICE && !sent; i++) {
        dtpi_buf b = session_begin(s, DTPI_F_FAILED, DTPI_WORLD_ID, 0, 0);
        dtpi_wr_text(&b, why->text);
        sent = session_send(s, &b);
    }
}

/* ---- the table ---- */

const struct shared_row *session_row(const struct session *s, int32_t world_rank)
{
    const struct shared_row *rows = (const struct shared_row *)(const void *)(s->table + 1);

    return &rows[world_rank];
}

const struct shared_node *session_node(const struct session *s, uint32_t node)
{
    const struct shared_node *nodes =
        (const struct shared_node *)(const void *)session_row(s, s->world);

    return &nodes[node];
}

static bool table_fits(const struct session *s)
{
    const struct shared_table *t = s->table;

    if (t->magic != SHARED_MAGIC || t->version != DTPI_WIRE_VERSION ||
        t->n_ranks != (uint32_t)s->world || t->n_nodes == 0 || t->n_nodes > t->n_ranks ||
        s->table_bytes != sizeof(*t) + t->n_ranks * sizeof(struct shared_row) +
                              t->n_nodes * sizeof(struct shared_node))
        return false;
    for (int32_t i = 0; i < s->world; i++)
        if (session_row(s, i)->node >= t->n_nodes)
            return false;
    for (uint32_t i = 0; i < t->n_nodes; i++)
        if (session_node(s, i)->host[sizeof(session_node(s, i)->host) - 1])
            return false;
    return true;
}

dtp_status session_map_files(struct session *s, int control_fd, int table_fd, dtp_error *err)
{
    struct stat st;

    if (control_fd < 0 || table_fd < 0)
        return dtpi_fail(err, DTP_ERR_LIMIT, "no descriptors are left for the agent's memory files");
    if (fstat(control_fd, &st) < 0 || st.st_size != SHARED_PAGE_BYTES || fstat(table_fd, &st) < 0 ||
        st.st_size < (off_t)sizeof(*s->table))
        return dtpi_fail(err, DTP_ERR_PROTO, "the agent sent no usable memory files");
    void *p = mmap(NULL, SHARED_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, control_fd, 0);
    if (p == MAP_FAILED)
        return dtpi_fail(err, DTP_ERR_NOMEM, "cannot map the control page: %m");
    s->control = p;
    if (s->control->root[0])
        snprintf(s->root, sizeof(s->root), "%.*s", (int)sizeof(s->root) - 1, s->control->root);
    void *t = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, table_fd, 0);
    if (t == MAP_FAILED)
        return dtpi_fail(err, DTP_ERR_NOMEM, "cannot map the table of ranks: %m");
    s->table = t;
    s->table_bytes = (size_t)st.st_size;
    /* Newcomers have rows, too. */
    if (s->generation > 1 && s->table->n_ranks <= DTPI_WORLD_MAX)
        s->world = (int32_t)s->table->n_ranks;
    if (!table_fits(s))
        return dtpi_fail(err, DTP_ERR_PROTO, "the agent's table of ranks is malformed");
    return DTP_OK;
}

static void welcome(struct session *s, const dtpi_frame *f)
{
    DTPI_AUTO_FD int control_fd = dtpi_link_take_fd(s->link);
    DTPI_AUTO_FD int table_fd = dtpi_link_take_fd(s->link);

    if (s->state != SESSION_JOINING || s->newcomer)
        return;
    s->generation = f->generation;
    s->state = session_map_files(s, control_fd, table_fd, &s->join_error) < 0 ? SESSION_FAILED
                                                                              : SESSION_MEMBER;
}

/* ---- the verdict ---- */

static void fail_error(const struct session *s, const dtpi_verdict *v, dtp_error *out)
{
    dtpi_fail_rank(out, v->status, v->n_failed ? session_rank_of(s, v->failed[0]) : -1, "%s", v->text);
    dtpi_noun(out, "group", v->status);
}

void session_fail(struct session *s, const dtpi_verdict *v)
{
    const dtp_allocator *a = dtpi_ctx_alloc(s->ctx);
    dtp_error e;

    pthread_mutex_lock(&s->mutex);
    const bool is_first = !atomic_load(&s->has_verdict);
    if (is_first) {
        s->verdict = *v;
        s->verdict.failed = v->n_failed ? dtpi_alloc_array(a, v->n_failed, sizeof(int32_t)) : NULL;
        if (s->verdict.failed)
            memcpy(s->verdict.failed, v->failed, v->n_failed * sizeof(int32_t));
        if (!s->verdict.failed)
            s->verdict.n_failed = 0;
        atomic_store(&s->has_verdict, true);
    }
    /* An abort says that a re-form is not to be waited for either. */
    if (!is_first && v->status == DTP_ERR_ABORTED) {
        s->verdict.status = v->status;
        memcpy(s->verdict.text, v->text, sizeof(s->verdict.text));
    }
    pthread_mutex_unlock(&s->mutex);
    if (!is_first)
        return;
    if (s->control)
        dtpi_control_set(s->control, v->status);
    fail_error(s, v, &e);
    if (s->state < SESSION_MEMBER) {
        s->join_error = e;
        s->state = SESSION_FAILED;
    }
    calls_fail(s, &e);
    asks_fail(s, &e);
}

dtp_status session_verdict(struct session *s, dtp_error *err)
{
    if (!atomic_load(&s->has_verdict))
        return DTP_OK;
    pthread_mutex_lock(&s->mutex);
    dtp_error e;
    fail_error(s, &s->verdict, &e);
    pthread_mutex_unlock(&s->mutex);
    if (err)
        *err = e;
    return e.status;
}

/* The process behind the agent; one that is ending closes its sockets a moment before. */
static bool agent_lives(const struct session *s)
{
    struct pollfd p = { .fd = s->agent_pidfd, .events = POLLIN };
    int n;

    if (s->agent_pid == getpid())
        return true;
    if (s->agent_pidfd < 0)
        return false;
    do {
        n = poll(&p, 1, ENDING_MS);
    } while (n < 0 && errno == EINTR);
    return n == 0;
}

/* The agent goes on without this rank. */
static void agent_lost(struct session *s, dtp_status why)
{
    dtpi_verdict v = { .status = why == DTP_ERR_NOMEM ? why : DTP_ERR_PEER, .n_failed = 1,
                       .failed = &s->rank };

    snprintf(v.text, sizeof(v.text), "rank %d of %d lost its connection with the agent of this node%s%s",
             session_rank_of(s, s->rank), session_size(s), why < 0 ? ": " : "",
             why < 0 ? dtp_status_text(why) : "");
    dtpi_link_break(s->link);
    session_fail(s, &v);
}

/*
 * The ranks that the end of this node's agent takes away, as the root counts them: all of the node. Where
 * there is no other node, only the rank that hosted it.
 */
static uint32_t lost_with_agent(const struct session *s, int32_t *lost)
{
    const uint32_t node = session_row(s, s->rank)->node;
    const int32_t host = session_node(s, node)->host_rank;
    uint32_t n = 0;

    for (int32_t i = 0; i < s->world; i++)
        if (session_row(s, i)->node == node && session_rank_of(s, i) >= 0 &&
            (s->table->n_nodes > 1 || host < 0 || host == i))
            lost[n++] = i;
    return n;
}

/* In the root's words. */
static void say_lost(const struct session *s, dtpi_verdict *v)
{
    const dtp_allocator *a = dtpi_ctx_alloc(s->ctx);
    const struct shared_node *node = session_node(s, session_row(s, s->rank)->node);
    int32_t *numbers = v->n_failed ? dtpi_alloc_array(a, v->n_failed, sizeof(*numbers)) : NULL;
    char ranks[120] = "?";

    for (uint32_t i = 0; numbers && i < v->n_failed; i++)
        numbers[i] = session_rank_of(s, v->failed[i]);
    if (numbers)
        dtpi_format_ranks(numbers, v->n_failed, ranks, sizeof(ranks));
    if (v->n_failed == 1 && node->host_rank == v->failed[0])
        snprintf(v->text, sizeof(v->text), "rank %s of %d (node %s, pid %d) died", ranks, session_size(s),
                 node->host, session_row(s, node->host_rank)->pid);
    else
        snprintf(v->text, sizeof(v->text), "rank%s %s of %d lost: the agent of node %s ended",
                 v->n_failed == 1 ? "" : "s", ranks, session_size(s), node->host);
    dtpi_free(a, numbers, v->n_failed * sizeof(*numbers));
}

/*
 * The agent that ends had not proven itself yet: it may be that of the group before. Its connection and its
 * process end in either order, or at once.
 */
static bool comes_again(struct session *s)
{
    if (s->may_try_again && s->state == SESSION_PROVING)
        s->state = SESSION_AGAIN;
    return s->may_try_again && s->state == SESSION_AGAIN;
}

/* The agent is gone: with its host, or with the node's shim. */
static void agent_died(struct session *s)
{
    dtpi_verdict v = { .status = DTP_ERR_PEER };
    int32_t *lost = NULL;
    const dtp_allocator *a = dtpi_ctx_alloc(s->ctx);

    if (comes_again(s))
        return;
    s->agent_gone = true;
    if (s->state == SESSION_FAILED)
        return;
    if (s->state != SESSION_MEMBER) {
        s->is_told = true;
        dtpi_fail(&s->join_error, DTP_ERR_PEER, "the agent of this node ended before all ranks had joined");
        s->state = SESSION_FAILED;
        return;
    }
    if (s->agent_left) {
        snprintf(v.text, sizeof(v.text), "the agent of this node has left");
        session_fail(s, &v);
        return;
    }
    lost = dtpi_alloc_array(a, (size_t)s->world, sizeof(*lost));
    v.failed = lost;
    if (lost)
        v.n_failed = lost_with_agent(s, lost);
    say_lost(s, &v);
    session_fail(s, &v);
    dtpi_free(a, lost, (size_t)s->world * sizeof(*lost));
}

static void on_verdict(struct session *s, const dtpi_frame *f)
{
    const dtp_allocator *a = dtpi_ctx_alloc(s->ctx);
    int32_t *failed = dtpi_alloc_array(a, (size_t)s->world, sizeof(*failed));
    dtpi_verdict v;

    if (failed && dtpi_verdict_read(f, (uint32_t)s->world, &v, failed)) {
        session_fail(s, &v);
    } else {
        v = (dtpi_verdict){ .status = DTP_ERR_PEER, .text = "the group has failed" };
        session_fail(s, &v);
    }
    s->is_told = true;
    dtpi_free(a, failed, (size_t)s->world * sizeof(*failed));
}

static void on_refuse(struct session *s, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    dtpi_verdict v = { .status = (dtp_status)dtpi_rd_u32(&r) };

    if (!dtpi_rd_text(&r, v.text, sizeof(v.text)) || v.status >= 0) {
        v.status = DTP_ERR_PROTO;
        snprintf(v.text, sizeof(v.text), "the agent refused without a reason");
    }
    s->is_told = true;
    session_fail(s, &v);
}

/* ---- messages ---- */

/* Where the agent has closed the connection, `closed` says so and this rank comes again. */
static void cannot_send(struct session *s)
{
    if (dtpi_link_is_broken(s->link))
        return;
    dtpi_fail(&s->join_error, DTP_ERR_NOMEM, "rank %d has no memory for a message to its agent", s->rank);
    s->state = SESSION_FAILED;
}

static void send_join(struct session *s)
{
    dtpi_buf b = session_begin(s, DTPI_F_JOIN, DTPI_WORLD_ID, 0, 0);

    dtpi_wr_u32(&b, (uint32_t)s->world);
    dtpi_wr_u32(&b, (uint32_t)s->local_rank);
    dtpi_wr_u32(&b, (uint32_t)getpid());
    if (s->newcomer)
        dtpi_wr_u64(&b, s->newcomer);
    if (!session_send(s, &b))
        cannot_send(s);
}

static void prove(struct session *s, const uint8_t *data, size_t bytes)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(s->ctx));

    if (session_take_secret(s, data, bytes))
        return;
    if (dtpi_hs_answer(&s->hs, data, bytes, &b, &s->join_error) < 0) {
        if (b.len > 0)
            session_send(s, &b);    /* that it heard */
        dtpi_buf_free(&b);
        s->is_told = true;
        s->state = s->may_try_again && s->join_error.status == DTP_ERR_BUSY ? SESSION_AGAIN
                                                                            : SESSION_FAILED;
        return;
    }
    dtpi_hs_wipe(&s->hs);
    dtpi_link_set_max(s->link, DTPI_LINK_MAX_FRAME);
    s->state = SESSION_JOINING;
    s->is_proven = session_send(s, &b);
    if (!s->is_proven) {
        cannot_send(s);
    } else if (s->last_words) {
        session_announce(s, s->last_words);
        s->state = SESSION_FAILED;
    } else {
        send_join(s);
    }
}

static void link_frame(dtpi_link *link, void *user, const uint8_t *data, size_t bytes)
{
    struct session *s = user;
    dtpi_frame f;

    if (s->state == SESSION_PROVING) {
        prove(s, data, bytes);
        return;
    }
    if (s->state >= SESSION_FAILED || !dtpi_frame_read(data, bytes, &f) || f.attempt != s->attempt)
        return;
    /* The fence: nothing of another generation is acted on. */
    if (s->state == SESSION_MEMBER && f.generation != s->generation) {
        session_other_generation(s, &f);
        return;
    }
    switch (f.type) {
    case DTPI_F_WELCOME:
        welcome(s, &f);
        break;
    case DTPI_F_DOWN:
        calls_down(s, &f);
        break;
    case DTPI_F_VALUE:
        asks_answer(s, &f, -1);
        break;
    case DTPI_F_MEMORY_IS:
        asks_answer(s, &f, dtpi_link_take_fd(link));
        break;
    case DTPI_F_VERDICT:
        on_verdict(s, &f);
        break;
    case DTPI_F_REFUSE:
        on_refuse(s, &f);
        break;
    case DTPI_F_BYE:
        s->agent_left = true;
        break;
    case DTPI_F_FORMED:
        session_formed(s, &f);
        break;
    default:
        break;
    }
}

static void link_closed(dtpi_link *link, void *user, dtp_status why)
{
    struct session *s = user;

    (void)link;
    if (comes_again(s) || s->state == SESSION_AGAIN || s->state == SESSION_FAILED)
        return;
    /* It did not take this rank in: busy, or out of memory. */
    if (s->state < SESSION_MEMBER && !s->agent_left && agent_lives(s))
        s->state = SESSION_AGAIN;
    else if (s->state == SESSION_MEMBER && !s->agent_left && agent_lives(s))
        agent_lost(s, why);
    else
        agent_died(s);
}

const dtpi_link_ops session_link_ops = { .frame = link_frame, .closed = link_closed };

static void agent_ended(dtpi_source *source, uint32_t revents)
{
    struct session *s = DTPI_CONTAINER(source, struct session, agent_source);

    (void)revents;
    dtpi_source_remove(s->ctx, source);
    /* Its last words first: it may have said goodbye or given a verdict. */
    if (s->link)
        dtpi_link_drain(s->link);
    if (!s->agent_left)
        agent_died(s);
}

/* Our parent plays the agent, and its end is ours: nothing is left to be noticed. */
static bool dies_with(pid_t pid)
{
    int signal = 0;

    return getppid() == pid && prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == SIGKILL;
}

void session_watch_none(struct session *s)
{
    dtpi_source_remove(s->ctx, &s->agent_source);
    dtpi_close_fd(&s->agent_pidfd);
}

void session_watch_agent(struct session *s)
{
    session_watch_none(s);
    if (s->agent_pid <= 0 || s->agent_pid == getpid() || dies_with(s->agent_pid))
        return;
    s->agent_pidfd = (int)syscall(SYS_pidfd_open, s->agent_pid, 0);
    session_watch_pidfd(s);
}

void session_watch_pidfd(struct session *s)
{
    if (s->agent_pidfd < 0)
        return;
    s->agent_source =
        (dtpi_source){ .fd = s->agent_pidfd, .events = EPOLLIN, .ready = agent_ended };
    dtpi_source_add(s->ctx, &s->agent_source, NULL);
}

void session_poll(struct session *s)
{
    struct pollfd p = { .fd = s->agent_pidfd, .events = POLLIN };

    if (s->link && s->agent_pidfd >= 0 && !atomic_load(&s->has_verdict) && poll(&p, 1, 0) > 0 &&
        s->agent_source.prev)
        agent_ended(&s->agent_source, 0);
}

/* ---- life ---- */

void session_close(struct session *s)
{
    if (!s)
        return;
    const dtp_allocator *a = dtpi_ctx_alloc(s->ctx);
    const bool alive = dtpi_ctx_alive(s->ctx);

    session_close_abort(s);
    session_topo_close(s);
    if (s->agent_pidfd >= 0)
        dtpi_source_remove(s->ctx, &s->agent_source);
    dtpi_close_fd(&s->agent_pidfd);
    if (alive)
        dtpi_link_close(s->link);
    else
        dtpi_link_forget(s->link);
    if (s->host)
        host_stop(s->host);
    calls_free(s);
    dtpi_hs_wipe(&s->hs);
    if (s->control_is_heap)
        dtpi_free(a, s->control, sizeof(*s->control));
    else if (s->control)
        munmap(s->control, SHARED_PAGE_BYTES);
    if (s->table)
        munmap((void *)(uintptr_t)s->table, s->table_bytes);
    if (s->verdict.failed)
        dtpi_free(a, s->verdict.failed, s->verdict.n_failed * sizeof(int32_t));
    dtpi_free(a, s->members, s->n_members * sizeof(int32_t));
    pthread_mutex_destroy(&s->mutex);
    dtpi_free(a, s, sizeof(*s));
}

dtp_status session_open_alone(struct session *s, dtp_error *err)
{
    s->control = dtpi_alloc(dtpi_ctx_alloc(s->ctx), sizeof(*s->control));
    if (!s->control)
        return dtpi_fail_nomem(err, sizeof(*s->control));
    s->control_is_heap = true;
    s->state = SESSION_MEMBER;
    s->rank = 0;
    s->world = 1;
    return DTP_OK;
}

static struct session *session_new(dtp_ctx *ctx, const dtp_group_opts *o, dtp_error *err)
{
    struct session *s = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*s));

    if (!s) {
        dtpi_fail_nomem(err, sizeof(*s));
        return NULL;
    }
    s->ctx = ctx;
    s->rank = o->rank;
    while (o->rank == DTP_RANK_NEW && s->newcomer == 0)
        randombytes_buf(&s->newcomer, sizeof(s->newcomer));
    s->world = o->world_size;
    s->local_rank = o->local_rank;
    s->attempt = o->attempt;
    s->generation = 1;
    s->timeout_ms = o->timeout_ms;
    s->agent_pidfd = -1;
    snprintf(s->job, sizeof(s->job), "%s", o->job);
    snprintf(s->root, sizeof(s->root), "%s", o->root ? o->root : "");
    pthread_mutex_init(&s->mutex, NULL);
    session_init_abort(s);
    return s;
}

void session_last_words(dtp_ctx *ctx, const dtp_group_opts *o, const dtp_error *why)
{
    struct session *s = o->world_size > 1 ? session_new(ctx, o, NULL) : NULL;

    if (!s)
        return;
    session_say_why(s, o, why);
    session_close(s);
}

dtp_status session_open(dtp_ctx *ctx, const dtp_group_opts *o, const dtpi_board_opts *board,
                        struct session **out, dtp_error *err)
{
    const int64_t deadline = dtpi_ctx_deadline(ctx, o->timeout_ms, 0);
    struct session *s = session_new(ctx, o, err);

    if (!s) {
        session_last_words(ctx, o, err);
        return DTP_ERR_NOMEM;
    }
    const dtp_status st = o->world_size <= 1 ? session_open_alone(s, err)
                                             : session_connect(s, o, board, deadline, err);
    if (st < 0) {
        session_say_why(s, o, err);
        session_close(s);
        return st;
    }
    *out = s;
    return DTP_OK;
}
