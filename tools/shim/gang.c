/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gang.c - one attempt: all ranks start or none does, their ends are told in the order in which they
 * happened, and it is over only when no process is left that any of them started.
 *
 * The order comes from epoll, which lists pidfds as they became ready; SIGCHLD serves for reaping
 * what the shim inherits as a subreaper.
 */
#include "shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KILL_EVERY_MS = 10,
    FILES_BASE = 64,
    FILES_PER_RANK = 5          /* pidfd, two pipes, the agent's socket; and a reserved port */
};

static void check_gone(shim *s);

/* ---- what the supervisor sends before GO ---- */

dtp_status gang_prepare(shim *s, const dtpi_shim_msg *m, dtp_error *err)
{
    gang *g = &s->gang;

    if (g->phase != PHASE_NONE)
        return dtpi_fail(err, DTP_ERR_PROTO, "attempt %u while attempt %u is there", m->attempt,
                         g->attempt);
    if (m->n < 1 || m->n > DTPI_SHIM_MAX_RANKS || m->argv.n < 1 || m->grace_ms < 0)
        return dtpi_fail(err, DTP_ERR_PROTO, "attempt %u with %u ranks", m->attempt, m->n);
    *g = (gang){ .phase = PHASE_COLLECTING, .attempt = m->attempt, .n = m->n };
    DTPI_AUTO_BUF dtpi_buf copy = dtpi_buf_init(s->a);
    dtp_status st = dtpi_shim_encode(&copy, m, err);
    if (st < 0)
        return st;
    size_t used;
    g->ranks = dtpi_alloc_array(s->a, g->n, sizeof(*g->ranks));
    g->head = dtpi_alloc(s->a, copy.len);
    if (!g->ranks || !g->head)
        return dtpi_fail_nomem(err, copy.len);
    g->head_bytes = copy.len;
    memcpy(g->head, copy.data, copy.len);
    for (uint32_t i = 0; i < g->n; i++) {
        rank *r = &g->ranks[i];
        *r = (rank){ .shim = s, .index = (int32_t)i, .pid = -1 };
        r->death.fd = r->streams[0].source.fd = r->streams[1].source.fd = -1;
    }
    return dtpi_shim_decode(g->head, g->head_bytes, &g->msg, &used, err);
}

dtp_status gang_add_rank(shim *s, const dtpi_shim_msg *m, dtp_error *err)
{
    gang *g = &s->gang;

    if (g->phase != PHASE_COLLECTING || m->rank < 0 || (uint32_t)m->rank >= g->n ||
        g->ranks[m->rank].cpus)
        return dtpi_fail(err, DTP_ERR_PROTO, "rank %d out of order", m->rank);
    rank *r = &g->ranks[m->rank];
    r->cpus = dtpi_text_dup(s->a, m->cpus);
    r->env = dtpi_text_ndup(s->a, m->env.data, m->env.bytes);
    r->env_bytes = m->env.bytes;
    r->n_env = m->env.n;
    return r->cpus && r->env ? DTP_OK : dtpi_fail_nomem(err, m->env.bytes);
}

/* ---- starting ---- */

/* The texts of up to two lists as a NULL-terminated array. */
static const char **make_vector(shim *s, const dtpi_texts *one, const dtpi_texts *two)
{
    const char **v = dtpi_alloc_array(s->a, (size_t)one->n + two->n + 1, sizeof(*v));
    size_t n = 0;

    if (!v)
        return NULL;
    for (const char *t = dtpi_texts_next(one, NULL); t; t = dtpi_texts_next(one, t))
        v[n++] = t;
    for (const char *t = dtpi_texts_next(two, NULL); t; t = dtpi_texts_next(two, t))
        v[n++] = t;
    return v;
}

static void free_vector(shim *s, const char **v, size_t n)
{
    dtpi_free(s->a, v, (n + 1) * sizeof(*v));
}

static const char *find_env(const char *const *env, const char *name)
{
    const size_t len = strlen(name);

    for (; *env; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}

/* The end of a rank, in the order of the deaths. */
static void on_death(dtpi_source *source, uint32_t revents)
{
    rank *r = DTPI_CONTAINER(source, rank, death);
    shim *s = r->shim;

    (void)revents;
    if (!r->reaped && waitpid(r->pid, &r->wstatus, WNOHANG) != r->pid)
        return;
    r->reaped = true;
    agent_rank_ended(s, r);
    dtpi_source_remove(s->ctx, &r->death);
    dtpi_close_fd(&r->death.fd);
    output_drain(s, r);
    s->gang.n_alive--;
    shim_journal(s, (dtpi_journal_entry){ .type = DTPI_JOURNAL_EXIT, .attempt = s->gang.attempt,
                                          .rank = r->index, .wstatus = r->wstatus });
    serve_tell(s, &(dtpi_shim_msg){ .type = DTPI_SHIM_EXIT, .attempt = s->gang.attempt,
                                    .rank = r->index, .code = r->wstatus });
    if (s->gang.n_alive == 0)
        check_gone(s);
}

static dtp_status watch_rank(shim *s, rank *r, dtpi_child *child, dtp_error *err)
{
    int fds[2] = { child->out_fd, child->err_fd };

    r->pid = child->pid;
    r->death = (dtpi_source){ .fd = child->pidfd, .events = EPOLLIN, .ready = on_death };
    /* One whose end would not be seen is a child as any that is left over. */
    dtp_status st = dtpi_source_add(s->ctx, &r->death, err);
    if (st >= 0) {
        s->gang.n_alive++;
        st = output_open(s, r, fds, err);
    }
    dtpi_close_fd(&fds[0]);
    dtpi_close_fd(&fds[1]);
    return st;
}

static dtp_status start_rank(shim *s, rank *r, const struct rlimit *files, dtp_error *err)
{
    const dtpi_shim_msg *m = &s->gang.msg;
    const dtpi_texts own = { r->n_env, r->env, r->env_bytes }, none = { 0 };
    char program[PATH_MAX];
    dtpi_cpuset cpus;
    dtpi_child child;

    if (!r->cpus)
        return dtpi_fail_rank(err, DTP_ERR_PROTO, r->index, "rank %d was not described", r->index);
    dtp_status st = dtpi_cpuset_parse(r->cpus, &cpus, err);
    if (st < 0)
        return st;
    const char **argv = make_vector(s, &m->argv, &none);
    const char **envp = make_vector(s, &m->env, &own);
    st = argv && envp ? DTP_OK : dtpi_fail_nomem(err, 0);
    if (st >= 0)
        st = dtpi_find_program(argv[0], find_env(envp, "PATH"), m->cwd, program, err);
    const dtpi_spawn_req req = {
        .path = program, .argv = argv, .envp = envp, .cwd = m->cwd, .files = files,
        .cpus = *r->cpus ? &cpus : NULL, .keep_fd = s->locks_fd,
    };
    if (st >= 0)
        st = dtpi_spawn(&req, &child, err);
    free_vector(s, argv, m->argv.n);
    free_vector(s, envp, (size_t)m->env.n + r->n_env);
    return st < 0 ? st : watch_rank(s, r, &child, err);
}

static dtp_status start_all(shim *s, dtp_error *err)
{
    gang *g = &s->gang;
    struct rlimit files;

    dtp_status st = dtpi_raise_files(FILES_BASE + (uint64_t)g->n * FILES_PER_RANK, &files, err);
    if (st >= 0)
        st = output_make_folder(s, err);
    if (st >= 0)
        st = agent_open(s, err);
    for (uint32_t i = 0; i < g->n && st >= 0; i++)
        st = start_rank(s, &g->ranks[i], &files, err);
    return st;
}

static void tell_started(shim *s)
{
    const gang *g = &s->gang;
    DTPI_AUTO_BUF dtpi_buf pids = dtpi_buf_init(s->a);

    shim_journal(s, (dtpi_journal_entry){ .type = DTPI_JOURNAL_ATTEMPT, .attempt = g->attempt,
                                          .n = g->n });
    for (uint32_t i = 0; i < g->n; i++) {
        const uint32_t pid = (uint32_t)g->ranks[i].pid;
        const uint8_t raw[4] = { (uint8_t)pid, (uint8_t)(pid >> 8), (uint8_t)(pid >> 16),
                                 (uint8_t)(pid >> 24) };
        dtpi_buf_append(&pids, raw, sizeof(raw));
        shim_journal(s, (dtpi_journal_entry){ .type = DTPI_JOURNAL_RANK, .attempt = g->attempt,
                                              .rank = (int32_t)i, .pid = (int32_t)pid });
    }
    if (pids.failed)
        serve_lose(s);
    serve_tell(s, &(dtpi_shim_msg){ .type = DTPI_SHIM_STARTED, .attempt = g->attempt,
                                    .data = pids.data, .data_bytes = pids.len });
}

static void tell_failed(shim *s)
{
    const dtp_error *e = &s->gang.failure;
    dtpi_journal_entry j = { .type = DTPI_JOURNAL_FAILED, .attempt = s->gang.attempt,
                             .status = e->status, .code = e->sys_errno, .rank = e->rank };

    snprintf(j.text, sizeof(j.text), "%s", e->text);
    shim_journal(s, j);
    serve_tell(s, &(dtpi_shim_msg){ .type = DTPI_SHIM_FAILED, .attempt = s->gang.attempt,
                                    .status = e->status, .code = e->sys_errno, .rank = e->rank,
                                    .text = e->text });
}

void gang_go(shim *s)
{
    gang *g = &s->gang;

    if (g->phase != PHASE_COLLECTING)
        return;
    g->phase = PHASE_RUNNING;
    if (start_all(s, &g->failure) >= 0) {
        tell_started(s);
        return;
    }
    g->failed = true;
    gang_end(s, 0);
    if (g->n_alive == 0)
        check_gone(s);
}

/* ---- ending ---- */

static void signal_groups(shim *s, int signal)
{
    for (uint32_t i = 0; i < s->gang.n; i++) {
        const rank *r = &s->gang.ranks[i];
        /* The id of a group is its own as long as its leader is not reaped. */
        if (r->pid > 0 && !r->reaped)
            kill(-r->pid, signal);
    }
}

static bool is_rank(void *user, pid_t pid)
{
    const gang *g = user;

    for (uint32_t i = 0; i < g->n; i++)
        if (g->ranks[i].pid == pid && !g->ranks[i].reaped)
            return true;
    return false;
}

static void set_timer(shim *s, int32_t ms)
{
    dtpi_timer_set(s->ctx, &s->gang.timer, dtp_ctx_now_ns(s->ctx) + ms * DTPI_NS_PER_MS, NULL);
}

static void kill_step(shim *s)
{
    s->gang.killing = true;
    signal_groups(s, SIGKILL);
    dtpi_signal_children(SIGKILL, NULL, NULL);
    set_timer(s, KILL_EVERY_MS);
}

static void on_timer(dtpi_timer *t)
{
    kill_step(DTPI_CONTAINER(t, shim, gang.timer));
}

void gang_end(shim *s, int32_t grace_ms)
{
    gang *g = &s->gang;

    if (g->phase != PHASE_RUNNING && g->phase != PHASE_LEFTOVERS)
        return;
    g->timer.due = on_timer;
    if (!g->ending && !g->killing && !g->failed && g->phase == PHASE_RUNNING) {
        shim_journal(s, (dtpi_journal_entry){ .type = DTPI_JOURNAL_ENDING, .attempt = g->attempt });
        serve_tell(s, &(dtpi_shim_msg){ .type = DTPI_SHIM_ENDING, .attempt = g->attempt });
    }
    if (grace_ms <= 0 || g->killing) {
        kill_step(s);
        return;
    }
    if (g->ending)
        return;
    g->ending = true;
    if (g->phase == PHASE_RUNNING) {
        signal_groups(s, SIGTERM);
        signal_groups(s, SIGCONT);
    }
    /* Processes that left their rank's group and have lost their parent are ours already. */
    dtpi_signal_children(SIGTERM, is_rank, g);
    set_timer(s, grace_ms);
}

/* ---- until nothing is left ---- */

static void reap_all(shim *s)
{
    for (;;) {
        int wstatus;
        const pid_t pid = waitpid(-1, &wstatus, WNOHANG);
        if (pid <= 0)
            break;
        for (uint32_t i = 0; i < s->gang.n; i++) {
            rank *r = &s->gang.ranks[i];
            if (r->pid == pid && !r->reaped) {
                r->reaped = true;       /* its pidfd tells when it is its turn */
                r->wstatus = wstatus;
            }
        }
    }
}

void gang_reap(shim *s)
{
    reap_all(s);
    if (s->gang.phase == PHASE_LEFTOVERS)
        check_gone(s);
}

static bool have_children(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* The kernel has told everything; close the books. */
static void conclude(shim *s)
{
    gang *g = &s->gang;

    dtpi_timer_clear(s->ctx, &g->timer);
    for (uint32_t i = 0; i < g->n; i++) {
        output_drain(s, &g->ranks[i]);
        for (int k = 0; k < 2; k++) {
            stream *st = &g->ranks[i].streams[k];
            if (st->owner && st->source.fd >= 0) {
                dtpi_source_remove(s->ctx, &st->source);
                dtpi_close_fd(&st->source.fd);
            }
        }
    }
    agent_close(s);
    g->phase = PHASE_GONE;
    if (g->failed)
        tell_failed(s);
    else
        shim_journal(s, (dtpi_journal_entry){ .type = DTPI_JOURNAL_GONE, .attempt = g->attempt });
    gang_forget_if_done(s);
}

static void check_gone(shim *s)
{
    gang *g = &s->gang;

    if (g->n_alive > 0 || (g->phase != PHASE_RUNNING && g->phase != PHASE_LEFTOVERS))
        return;
    reap_all(s);
    if (!have_children()) {
        conclude(s);
        return;
    }
    const bool is_first = g->phase == PHASE_RUNNING;
    g->phase = PHASE_LEFTOVERS;
    if (g->killing)
        kill_step(s);
    else if (g->ending && is_first)
        dtpi_signal_children(SIGTERM, NULL, NULL);      /* what is left of the grace is for them */
    else if (!g->ending)
        gang_end(s, g->msg.grace_ms);
}

void gang_forget_if_done(shim *s)
{
    gang *g = &s->gang;
    const uint32_t attempt = g->attempt;

    if (g->phase != PHASE_GONE || !output_pump(s))
        return;
    const bool failed = g->failed;
    gang_drop(s);
    if (!failed)
        serve_tell(s, &(dtpi_shim_msg){ .type = DTPI_SHIM_GONE, .attempt = attempt });
}

void gang_drop(shim *s)
{
    gang *g = &s->gang;

    dtpi_timer_clear(s->ctx, &g->timer);
    agent_close(s);
    for (uint32_t i = 0; g->ranks && i < g->n; i++) {
        rank *r = &g->ranks[i];
        output_close(s, r);
        dtpi_source_remove(s->ctx, &r->death);
        dtpi_close_fd(&r->death.fd);
        dtpi_text_free(s->a, r->cpus);
        dtpi_text_free(s->a, r->env);
    }
    dtpi_free(s->a, g->ranks, g->n * sizeof(*g->ranks));
    dtpi_free(s->a, g->head, g->head_bytes);
    *g = (gang){ .phase = PHASE_NONE };
    for (uint32_t i = 0; i < s->n_ports; i++)
        dtpi_close_fd(&s->ports[i]);
    dtpi_free(s->a, s->ports, s->n_ports * sizeof(*s->ports));
    s->ports = NULL;
    s->n_ports = 0;
}
