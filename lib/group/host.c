/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - the agent in a thread of the first local rank, where no shim plays it. The thread has a
 * context of its own and blocks all signals.
 */
#include "group/group_internal.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <stdio.h>
#include <unistd.h>

#include "group/agent.h"
#include "group/tree.h"
#include "net/sock.h"

/* How long a rank that closes first lets the others of its node, and the nodes below, be served. */
enum { LINGER_MS = 200, LINGER_FAILED_MS = 500, LINGER_LATE_MS = 100, LINGER_BUSY_MS = 2000, STEP_MS = 10 };

struct host {
    dtp_ctx *user_ctx;
    dtp_ctx *ctx;
    dtpi_agent *agent;
    pthread_t thread;
    _Atomic bool stop;
    int64_t join_deadline_ns;
    dtpi_task seek;
    pthread_mutex_t mutex;      /* root */
    char root[DTPI_BOARD_VALUE];
};

/* After the stop: until all have left, or a little while. */
static void linger(struct host *h)
{
    const int64_t start = dtp_ctx_now_ns(h->ctx);

    for (;;) {
        const int64_t ms = (dtp_ctx_now_ns(h->ctx) - start) / DTPI_NS_PER_MS;
        const bool failed = dtpi_agent_failed_early(h->agent);
        const bool in_time = dtp_ctx_now_ns(h->ctx) < h->join_deadline_ns;
        /* Who is at the door may be stopped there: nobody is held up by it after the deadline. */
        const bool heard = !failed || !in_time || !dtpi_agent_has_strangers(h->agent);
        const bool idle = dtpi_agent_is_idle(h->agent) && heard;
        const bool done = dtpi_agent_is_done(h->agent) && !dtpi_agent_serves_below(h->agent);
        /* Ranks that come late to a group that failed are told why; after the deadline they know. */
        const int failed_ms = in_time ? LINGER_FAILED_MS : LINGER_LATE_MS;
        const int limit = failed ? failed_ms : done ? 0 : LINGER_MS;
        if (ms >= LINGER_BUSY_MS || (idle && ms >= limit))
            return;
        dtp_ctx_dispatch(h->ctx, STEP_MS, NULL);
    }
}

static void *run(void *arg)
{
    struct host *h = arg;

    while (!atomic_load(&h->stop))
        if (dtp_ctx_dispatch(h->ctx, -1, NULL) < 0)
            break;
    linger(h);
    dtpi_agent_close(h->agent);
    return NULL;
}

/* ---- the root that was not where it was said ---- */

static void seek_run(dtpi_task *t)
{
    struct host *h = DTPI_CONTAINER(t, struct host, seek);
    char root[DTPI_BOARD_VALUE];
    dtp_error err;

    pthread_mutex_lock(&h->mutex);
    memcpy(root, h->root, sizeof(root));
    pthread_mutex_unlock(&h->mutex);
    if (dtpi_agent_seek(h->agent, root, &err) < 0)
        DTPI_LOG(h->ctx, DTP_LOG_WARN, "group", "%s", err.text);
}

void host_seek(struct host *h, const char *root)
{
    pthread_mutex_lock(&h->mutex);
    snprintf(h->root, sizeof(h->root), "%s", root);
    pthread_mutex_unlock(&h->mutex);
    dtpi_post(h->ctx, &h->seek);
}

const char *host_candidates(const struct host *h)
{
    return dtpi_agent_candidates(h->agent);
}

/* ---- life ---- */

static dtp_status start_thread(struct host *h, dtp_error *err)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int e = pthread_create(&h->thread, NULL, run, h);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e == 0)
        return DTP_OK;
    errno = e;
    return dtpi_fail(err, DTP_ERR_LIMIT, "cannot start the agent's thread: %m");
}

static dtp_status open_agent(struct host *h, const dtp_group_opts *o, bool listens, const char *socket,
                             dtp_error *err)
{
    const dtpi_agent_opts ao = {
        .job = o->job,
        .attempt = o->attempt,
        .world_size = (uint32_t)o->world_size,
        .n_local = (uint32_t)o->local_size,
        .socket = socket,
        .root = o->root,
        .is_root = o->rank == 0,
        .listens = listens,
        .listen = o->listen,
        .secret = o->insecure ? NULL : o->secret,
        .munge = o->insecure ? NULL : o->munge,
        .net = o->net,
        .encrypt = o->encrypt,
        .timeout_ms = o->timeout_ms,
        .node = (uint32_t)o->node,
        .n_nodes = (uint32_t)o->n_nodes,
        .radix = (uint32_t)o->radix,
        .parent = o->parent,
        .host_rank_plus_1 = o->rank + 1,
    };
    return dtpi_agent_open(h->ctx, &ao, &h->agent, err);
}

static dtp_status open_host(struct host *h, const dtp_group_opts *o, bool listens, const char *socket,
                            dtp_error *err)
{
    const dtpi_log *log = dtpi_ctx_log(h->user_ctx);
    const dtp_ctx_opts co = { .size = sizeof(co), .allocator = dtpi_ctx_alloc(h->user_ctx),
                              .log = log->fn, .log_user = log->user, .log_level = log->level,
                              .n_pool_threads = 1 };

    dtp_status st = dtp_ctx_open(&co, &h->ctx, err);
    if (st >= 0)
        st = open_agent(h, o, listens, socket, err);
    if (st < 0)
        dtp_ctx_close(DTPI_TAKE(h->ctx));
    return st;
}

/* Something exists: the node's socket, held by another local rank 0 or by somebody else, or the port. */
static dtp_status is_taken(const dtp_group_opts *o, const char *socket, dtp_error *err)
{
    DTPI_AUTO_FD int fd = -1;
    uid_t uid = geteuid();
    pid_t pid = 0;

    if (dtpi_unix_connect(socket, &fd, NULL) != DTP_OK || dtpi_unix_peer(fd, &uid, &pid, NULL) < 0)
        return DTP_ERR_EXISTS;
    if (uid != geteuid())
        return dtpi_fail(err, DTP_ERR_PERM, "user %u holds the socket %s of job %s: choose another job name",
                         (unsigned)uid, socket, o->job);
    return dtpi_fail(err, DTP_ERR_EXISTS, "local rank 0 of job %s (attempt %u) exists twice on this machine",
                     o->job, o->attempt);
}

void host_say_why(dtp_ctx *ctx, const dtp_group_opts *o, const char *socket, const dtp_error *why)
{
    struct host h = { .user_ctx = ctx };
    dtp_group_opts alone = *o;

    /* Without what may be why. */
    alone.root = alone.parent = alone.listen = alone.net = NULL;
    alone.radix = alone.n_nodes = 0;
    if (open_host(&h, o, false, socket, NULL) < 0 && open_host(&h, &alone, false, socket, NULL) < 0)
        return;
    dtpi_agent_rank_failed(h.agent, o->rank, (int32_t)getpid(), why->text);
    const int64_t start = dtp_ctx_now_ns(h.ctx);
    int64_t ms = 0;
    /* Who has knocked in time is told. */
    while (ms < LINGER_FAILED_MS || (ms < LINGER_BUSY_MS && dtpi_agent_has_strangers(h.agent))) {
        dtp_ctx_dispatch(h.ctx, STEP_MS, NULL);
        ms = (dtp_ctx_now_ns(h.ctx) - start) / DTPI_NS_PER_MS;
    }
    dtpi_agent_close(h.agent);
    dtp_ctx_close(h.ctx);
}

/* Sockets and processes of the local ranks, sockets of agents, the agent's own, and the ranks' of this process. */
static dtp_status check_files(const dtp_group_opts *o, dtp_error *err)
{
    const int32_t n_agents = o->root ? (o->radix ? o->radix : DTPI_TREE_MAX_RADIX) : 0;
    const uint64_t need = 2 * (uint64_t)o->local_size + (uint64_t)n_agents + 24;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= need)
        return DTP_OK;
    return dtpi_fail(err, DTP_ERR_LIMIT, "rank %d: the agent of %d ranks needs %llu descriptors, limit %llu "
                     "(ulimit -n)", o->rank, o->local_size, (unsigned long long)need,
                     (unsigned long long)limit.rlim_cur);
}

static dtp_status start(struct host *h, const dtp_group_opts *o, bool listens, const char *socket,
                            dtp_error *err)
{
    dtp_status st = check_files(o, err);

    if (st >= 0)
        st = open_host(h, o, listens, socket, err);
    if (st >= 0)
        st = start_thread(h, err);
    if (st < 0 && h->ctx) {
        dtpi_agent_close(h->agent);
        dtp_ctx_close(h->ctx);
    }
    return st;
}

dtp_status host_start(dtp_ctx *ctx, const dtp_group_opts *o, bool listens, const char *socket,
                      struct host **out, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(ctx);
    struct host *h = dtpi_alloc(a, sizeof(*h));

    if (!h)
        return dtpi_fail_nomem(err, sizeof(*h));
    h->user_ctx = ctx;
    h->join_deadline_ns = dtpi_ctx_deadline(ctx, o->timeout_ms, 0);
    h->seek.run = seek_run;
    pthread_mutex_init(&h->mutex, NULL);
    dtp_status st = start(h, o, listens, socket, err);
    if (st < 0) {
        pthread_mutex_destroy(&h->mutex);
        dtpi_free(a, h, sizeof(*h));
        return st == DTP_ERR_EXISTS ? is_taken(o, socket, err) : st;
    }
    *out = h;
    return DTP_OK;
}

void host_stop(struct host *h)
{
    const dtp_allocator *a = dtpi_ctx_alloc(h->user_ctx);

    /* In a forked child the thread does not exist, and what it was changing is not to be touched. */
    if (!dtpi_ctx_alive(h->user_ctx))
        return;
    atomic_store(&h->stop, true);
    dtp_ctx_wake(h->ctx);
    pthread_join(h->thread, NULL);
    dtpi_post_cancel(h->ctx, &h->seek);
    dtp_ctx_close(h->ctx);
    pthread_mutex_destroy(&h->mutex);
    dtpi_free(a, h, sizeof(*h));
}
