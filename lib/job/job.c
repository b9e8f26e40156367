/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - the public functions of a job: start it, take it over, look at it, wait, cancel. */
#include "job/job.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/shim.h"

enum { START_TIMEOUT_MS = 60000, ATTACH_TIMEOUT_MS = 10000, RETRY_MS = 2, RETRIES = 500 };

static dtp_status new_job(dtp_ctx *ctx, const dtp_job_opts *opts, dtp_job **job_out, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(ctx);
    dtp_job *job = dtpi_alloc(a, sizeof(*job));

    if (!job)
        return dtpi_fail_nomem(err, sizeof(*job));
    job->ctx = ctx;
    job->a = a;
    dtpi_spec_init(&job->spec, a);
    job->record.alive_fd = -1;
    job->place.locks_fd = -1;
    job->on_event = opts->on_event;
    if (job->on_event)
        dtpi_ctx_forbid_help(ctx, true);
    job->user = opts->user;
    job->look_only = opts->look_only != 0;
    job->topo = opts->topo;
    dtpi_job_init_conn(job);
    atomic_init(&job->n_refs, 1);
    if (opts->shim) {
        job->shim = dtpi_text_dup(a, opts->shim);
        if (!job->shim) {
            dtp_job_close(job);
            return dtpi_fail_nomem(err, 0);
        }
    }
    *job_out = job;
    return DTP_OK;
}

static void init_state(dtp_job *job)
{
    const dtpi_spec *s = &job->spec;

    dtpi_job_state_init(&job->state, s->n_ranks, s->min_ranks, s->max_restarts, s->reform_ms > 0);
    snprintf(job->log_dir, sizeof(job->log_dir), "%s/logs", job->record.dir);
}

/* ---- start ---- */

static bool is_started(void *user)
{
    const dtp_job *job = user;

    return job->closed || job->finished || job->state.in_attempt || job->state.attempt > 0;
}

static dtp_status own_cwd(dtp_job *job, dtp_error *err)
{
    char cwd[PATH_MAX], path[PATH_MAX];

    if (job->spec.cwd && job->spec.cwd[0] == '/')
        return DTP_OK;
    if (!getcwd(cwd, sizeof(cwd)))
        return dtpi_fail(err, DTP_ERR_IO, "cannot find the present folder: %m");
    const int n = job->spec.cwd ? snprintf(path, sizeof(path), "%s/%s", cwd, job->spec.cwd)
                                : snprintf(path, sizeof(path), "%s", cwd);
    if (n >= (int)sizeof(path))
        return dtpi_fail(err, DTP_ERR_INVAL, "cwd: the name is too long");
    dtpi_text_free(job->a, job->spec.cwd);
    job->spec.cwd = dtpi_text_dup(job->a, path);
    return job->spec.cwd ? DTP_OK : dtpi_fail_nomem(err, 0);
}

static dtp_status wait_started(dtp_job *job, dtp_error *err)
{
    const int64_t deadline = dtpi_ctx_deadline(job->ctx, START_TIMEOUT_MS, 0);

    job->starting = true;
    job->told_state = DTP_JOB_STARTING;
    dtpi_job_kick(job);
    const dtp_status st = dtpi_ctx_wait(job->ctx, is_started, job, deadline, err);
    job->starting = false;
    if (st == DTP_ERR_TIMEOUT)
        return dtpi_fail(err, st, "job '%s': its shim did not answer", job->spec.name);
    if (st < 0)
        return st;
    if (job->state.cause.kind == DTPI_CAUSE_START && job->finished) {
        if (err)
            *err = job->start_error;
        return job->start_error.status;
    }
    return DTP_OK;
}

static dtp_status start(dtp_job *job, const dtp_job_spec *spec, const dtp_job_opts *opts,
                        dtp_error *err)
{
    dtp_status st = dtpi_spec_copy(&job->spec, spec, err);
    if (st >= 0)
        st = own_cwd(job, err);
    if (st >= 0)
        st = dtpi_record_create(&job->record, opts->run_dir, &job->spec, err);
    if (st < 0)
        return st;
    init_state(job);
    st = wait_started(job, err);
    /* Given up half-way: what was started is killed, and the record says so. */
    if (st < 0 && !job->finished) {
        dtpi_conn_send(&job->conn, &(dtpi_shim_msg){ .type = DTPI_SHIM_END }, NULL);
        dtpi_record_write(&job->record,
                          &(dtpi_journal_entry){ .type = DTPI_JOURNAL_END, .rank = -1, .code = 125,
                                                 .status = DTP_JOB_FAILED },
                          NULL);
    }
    return st;
}

/* Enters, makes a job, runs `go` on it; a callback that closes the job meanwhile keeps the handle. */
static dtp_status with_new_job(dtp_ctx *ctx, const dtp_job_opts *user, dtp_job **job_out,
                               dtp_status (*go)(dtp_job *job, const void *what,
                                                const dtp_job_opts *opts, dtp_error *err),
                               const void *what, dtp_error *err)
{
    dtp_job_opts opts;
    dtp_job *job = NULL;

    dtp_status st = DTPI_OPTS_READ(&opts, user, err);
    if (st >= 0)
        st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return dtpi_noun(err, "job", st);
    st = new_job(ctx, &opts, &job, err);
    if (st >= 0) {
        atomic_fetch_add(&job->n_refs, 1);
        st = go(job, what, &opts, err);
        if (st < 0)
            dtp_job_close(job);
        else
            *job_out = job->closed ? NULL : job;
        dtpi_job_unref(job);
    }
    dtpi_ctx_leave(ctx);
    return st < 0 ? dtpi_noun(err, "job", st) : st;
}

static dtp_status go_start(dtp_job *job, const void *what, const dtp_job_opts *opts, dtp_error *err)
{
    return start(job, what, opts, err);
}

dtp_status dtp_job_start(dtp_ctx *ctx, const dtp_job_spec *spec, const dtp_job_opts *opts,
                         dtp_job **job_out, dtp_error *err)
{
    return with_new_job(ctx, opts, job_out, go_start, spec, err);
}

/* ---- attach ---- */

static void apply_entry(void *user, const dtpi_journal_entry *e)
{
    dtp_job *job = user;

    if (dtpi_job_apply(&job->state, e))
        dtpi_job_note(job, e);
}

dtp_status dtpi_job_replay(dtp_job *job, uint64_t bytes, dtp_error *err)
{
    const dtp_status st = dtpi_record_read(&job->record, job->a, bytes, apply_entry, job, err);

    if (st < 0)
        return st;
    dtpi_job_ask_again(&job->state);
    dtpi_cause_text(&job->state.cause, job->cause_text, sizeof(job->cause_text));
    /* An ended state without a shim is all there is; with one, the step lets go of it. */
    if (dtpi_job_ended(&job->state) && !dtpi_conn_is_open(&job->conn))
        job->finishing = job->finished = true;
    return DTP_OK;
}

static bool is_answered(void *user)
{
    const dtp_job *job = user;

    return job->closed || job->welcomed || job->refused.status < 0 || job->shim_lost;
}

static dtp_status attach_to_shim(dtp_job *job, int fd_take, bool all_output, dtp_error *err)
{
    const int64_t deadline = dtpi_ctx_deadline(job->ctx, ATTACH_TIMEOUT_MS, 0);

    job->attaching = true;
    dtp_status st = dtpi_job_use(job, fd_take, all_output, err);
    if (st >= 0)
        st = dtpi_ctx_wait(job->ctx, is_answered, job, deadline, err);
    job->attaching = false;
    if (st == DTP_ERR_TIMEOUT)
        return dtpi_fail(err, st, "job '%s': its shim does not answer", job->spec.name);
    if (st < 0)
        return st;
    if (job->refused.status < 0) {
        if (err)
            *err = job->refused;
        return job->refused.status;
    }
    if (!job->welcomed && !job->closed)
        return dtpi_fail(err, DTP_ERR_NOT_FOUND, "the shim of job '%s' has just ended",
                         job->spec.name);
    return DTP_OK;
}

/* It ended before it had answered. */
static void forget_shim(dtp_job *job)
{
    dtpi_conn_close(&job->conn);
    dtpi_job_init_conn(job);
    job->shim_lost = false;
    job->refused = (dtp_error){ 0 };
}

/* No shim: the journal says all there is to know; an attempt that it leaves open was lost. */
static dtp_status attach_without_shim(dtp_job *job, dtp_error *err)
{
    dtp_status st = dtpi_job_replay(job, UINT64_MAX, err);
    if (st < 0 || job->finished)
        return st;
    if (job->state.in_attempt) {
        const dtpi_journal_entry lost = { .type = DTPI_JOURNAL_LOST, .rank = -1,
                                          .attempt = job->state.attempt };
        dtpi_job_sweep(job);
        st = dtpi_record_write(&job->record, &lost, err);
        if (st < 0)
            return st;
        dtpi_job_event(job, &lost);
    }
    return DTP_OK;
}

static dtp_status go_attach(dtp_job *job, const void *what, const dtp_job_opts *opts,
                            dtp_error *err)
{
    dtp_status st = dtpi_record_open(&job->record, opts->run_dir, what, &job->spec, err);
    if (st < 0)
        return st;
    init_state(job);
    if (opts->look_only) {
        st = dtpi_job_replay(job, UINT64_MAX, err);
        job->finished = true;
        return st;
    }
    st = dtpi_record_get_held(&job->record, job->a, &job->place.cpus, &job->place.gpus, err);
    if (st < 0)
        return st;
    /* A shim that starts or ends right now is neither reachable nor gone: ask again. */
    for (int i = 0;; i++) {
        int fd = -1;
        st = dtpi_shim_connect(job->record.dir, &fd, err);
        if (st >= 0)
            st = attach_to_shim(job, fd, opts->all_output != 0, err);
        if (st >= 0)
            break;
        if (st != DTP_ERR_NOT_FOUND)
            return st;
        forget_shim(job);
        if (dtpi_record_lock(&job->record)) {
            st = attach_without_shim(job, err);
            break;
        }
        if (i == RETRIES)
            return dtpi_fail(err, DTP_ERR_BUSY,
                             "job '%s' is being started or taken over by another", job->spec.name);
        poll(NULL, 0, RETRY_MS);
    }
    if (st >= 0)
        dtpi_job_kick(job);
    return st;
}

dtp_status dtp_job_attach(dtp_ctx *ctx, const char *name, const dtp_job_opts *opts,
                          dtp_job **job_out, dtp_error *err)
{
    return with_new_job(ctx, opts, job_out, go_attach, name, err);
}

/* ---- looking ---- */

dtp_status dtp_job_get_info(const dtp_job *job, dtp_job_info *info_out, dtp_error *err)
{
    const dtp_job_info info = {
        .name = job->spec.name,
        .state = job->state.state,
        .attempt = job->state.attempt,
        .n_ranks = job->state.n,
        .exit_code = job->state.exit_code,
        .cause = job->cause_text[0] ? job->cause_text : NULL,
        .log_dir = job->log_dir,
        .n_ranks_asked = job->spec.n_ranks,
    };

    return DTPI_RESULT_WRITE(info_out, &info, err);
}

dtp_status dtp_job_get_rank(const dtp_job *job, uint32_t rank, dtp_job_rank *rank_out,
                            dtp_error *err)
{
    if (rank >= job->n_ranks)
        return dtpi_fail(err, DTP_ERR_RANGE, "rank %u of %u", rank, job->n_ranks);
    const dtpi_rank_state *r = &job->ranks[rank];
    const bool by_signal = r->ended && WIFSIGNALED(r->wstatus);
    const dtp_job_rank own = {
        .pid = r->pid,
        .ended = r->ended,
        .exit_code = by_signal ? -1 : WEXITSTATUS(r->wstatus),
        .signal = by_signal ? WTERMSIG(r->wstatus) : 0,
    };

    return DTPI_RESULT_WRITE(rank_out, &own, err);
}

static bool is_finished(void *user)
{
    const dtp_job *job = user;

    return job->finished || job->closed;
}

dtp_status dtp_job_wait(dtp_job *job, int timeout_ms, dtp_error *err)
{
    dtp_ctx *ctx = job->ctx;

    dtp_status st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return st;
    const int64_t now = dtp_ctx_now_ns(ctx);
    const int64_t deadline = timeout_ms < 0 ? INT64_MAX : now + timeout_ms * DTPI_NS_PER_MS;
    atomic_fetch_add(&job->n_refs, 1);
    st = dtpi_ctx_wait(ctx, is_finished, job, deadline, err);
    if (st == DTP_ERR_TIMEOUT)
        dtpi_fail(err, st, "job '%s' has not ended within %d ms", job->spec.name, timeout_ms);
    else if (st >= 0 && job->closed)
        st = dtpi_fail(err, DTP_ERR_CANCELED, "job '%s' was closed while it was waited for",
                       job->spec.name);
    dtpi_job_unref(job);
    dtpi_ctx_leave(ctx);
    return st < 0 ? dtpi_noun(err, "job", st) : st;
}

/* ---- cancelling ---- */

static void run_cancel(dtpi_task *t)
{
    dtp_job *job = DTPI_CONTAINER(t, dtp_job, cancel_task);
    const dtpi_journal_entry e = { .type = DTPI_JOURNAL_CANCEL, .rank = -1 };

    for (uint32_t n = atomic_exchange(&job->n_cancels, 0); n > 0; n--) {
        if (job->closed || job->finished)
            break;
        job->depth++;
        dtpi_record_write(&job->record, &e, NULL);
        dtpi_job_event(job, &e);
        job->depth--;
    }
    dtpi_job_unref(job);
}

void dtp_job_cancel(dtp_job *job)
{
    if (!dtpi_ctx_alive(job->ctx) || job->look_only)
        return;
    if (atomic_fetch_add(&job->n_cancels, 1) > 0)
        return;
    atomic_fetch_add(&job->n_refs, 1);
    job->cancel_task.run = run_cancel;
    dtpi_post(job->ctx, &job->cancel_task);
}

/* ---- asking for a job to be cancelled from outside ---- */

typedef struct asking {
    dtpi_conn conn;
    bool done, lost;
} asking;

static void on_answer(dtpi_conn *c, const dtpi_shim_msg *m)
{
    asking *q = c->user;

    q->done = q->done || m->type == DTPI_SHIM_CANCELED;
}

static void on_no_answer(dtpi_conn *c, const dtp_error *why)
{
    asking *q = c->user;

    (void)why;
    q->lost = true;
}

static bool is_asked(void *user)
{
    const asking *q = user;

    return q->done || q->lost;
}

static dtp_status ask_cancel(dtp_ctx *ctx, const char *dir, const char *name, dtp_error *err)
{
    asking q = { .conn = { .on_msg = on_answer, .on_lost = on_no_answer } };
    int fd = -1;

    dtp_status st = dtpi_shim_connect(dir, &fd, err);
    if (st == DTP_ERR_NOT_FOUND)
        return dtpi_fail(err, st, "job '%s' is not running", name);
    if (st < 0)
        return st;
    q.conn.user = &q;
    st = dtpi_conn_open(&q.conn, ctx, fd, err);
    if (st < 0) {
        dtpi_close_fd(&fd);
        return st;
    }
    st = dtpi_conn_send(&q.conn,
                        &(dtpi_shim_msg){ .type = DTPI_SHIM_HELLO, .magic = DTPI_SHIM_MAGIC,
                                          .version = DTPI_SHIM_VERSION, .role = DTPI_SHIM_CONTROL },
                        err);
    if (st >= 0)
        st = dtpi_conn_send(&q.conn, &(dtpi_shim_msg){ .type = DTPI_SHIM_CANCEL }, err);
    if (st >= 0)
        st = dtpi_ctx_wait(ctx, is_asked, &q, dtpi_ctx_deadline(ctx, ATTACH_TIMEOUT_MS, 0), err);
    dtpi_conn_close(&q.conn);
    if (st == DTP_ERR_TIMEOUT)
        return dtpi_fail(err, st, "job '%s': its shim does not answer", name);
    if (st >= 0 && !q.done)
        return dtpi_fail(err, DTP_ERR_NOT_FOUND, "job '%s' has just ended", name);
    return st;
}

dtp_status dtp_job_stop(dtp_ctx *ctx, const char *name, const dtp_job_opts *user, dtp_error *err)
{
    DTPI_AUTO_SPEC dtpi_spec spec;
    dtp_job_opts opts;
    dtpi_record record;

    dtpi_spec_init(&spec, dtpi_ctx_alloc(ctx));
    dtp_status st = DTPI_OPTS_READ(&opts, user, err);
    if (st >= 0)
        st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return dtpi_noun(err, "job", st);
    st = dtpi_record_open(&record, opts.run_dir, name, &spec, err);
    if (st >= 0)
        st = ask_cancel(ctx, record.dir, name, err);
    dtpi_ctx_leave(ctx);
    return st < 0 ? dtpi_noun(err, "job", st) : st;
}

dtp_status dtp_job_list(dtp_ctx *ctx, const dtp_job_opts *user, char **names_out, dtp_error *err)
{
    dtp_job_opts opts;

    dtp_status st = DTPI_OPTS_READ(&opts, user, err);
    if (st >= 0)
        st = dtpi_record_list(opts.run_dir, dtpi_ctx_alloc(ctx), names_out, err);
    return st < 0 ? dtpi_noun(err, "job", st) : st;
}
