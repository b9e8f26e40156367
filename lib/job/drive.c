/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drive.c - carries out what the state machine decides and feeds it what the shim reports.
 *
 * Decisions are carried out in a task of their own, never inside a callback of the connection, so
 * that a step may close it and make another.
 */
#include "job/job.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "job/env.h"
#include "launch/shim.h"
#include "launch/spawn.h"

enum { PATIENCE_MS = 1000, SWEEPS = 50 };

static void step(dtpi_task *t);

/* ---- life of the handle ---- */

/* Once; a step that was posted before may find it done. */
static void release(dtp_job *job)
{
    if (job->released)
        return;
    job->released = true;
    dtpi_conn_close(&job->conn);
    dtpi_timer_clear(job->ctx, &job->timer);
    dtpi_job_unref(job);
}

void dtpi_job_unref(dtp_job *job)
{
    if (atomic_fetch_sub(&job->n_refs, 1) > 1)
        return;
    const dtp_allocator *a = job->a;
    if (job->on_event)
        dtpi_ctx_forbid_help(job->ctx, false);
    dtpi_job_free_ranks(job);
    dtpi_place_free(job);
    dtpi_record_unlock(&job->record);
    dtp_topo_close(job->own_topo);
    dtpi_text_free(a, job->shim);
    dtpi_spec_free(&job->spec);
    dtpi_free(a, job, sizeof(*job));
}

void dtpi_job_kick(dtp_job *job)
{
    if (job->step_posted)
        return;
    job->step_posted = true;
    job->step_task.run = step;
    atomic_fetch_add(&job->n_refs, 1);
    dtpi_post(job->ctx, &job->step_task);
}

void dtp_job_close(dtp_job *job)
{
    if (!job)
        return;
    job->closed = true;
    if (job->depth > 0)
        dtpi_job_kick(job);     /* from inside a callback: released when it has returned */
    else
        release(job);
}

bool dtpi_job_lock_alive(dtp_job *job)
{
    for (int ms = 0; !dtpi_record_lock(&job->record); ms++) {
        if (ms >= PATIENCE_MS)
            return false;
        poll(NULL, 0, 1);
    }
    return true;
}

/* The mark is the name of the job's secret file, which no other job has. */
void dtpi_job_sweep(dtp_job *job)
{
    char mark[PATH_MAX + 64];

    snprintf(mark, sizeof(mark), "DTP_SECRET_FILE=%s/secret", job->record.dir);
    for (int i = 0; i < SWEEPS && dtpi_sweep(job->a, mark, SIGKILL) > 0; i++)
        poll(NULL, 0, 2);
}

/* ---- events ---- */

void dtpi_job_event(dtp_job *job, const dtpi_journal_entry *e)
{
    if (dtpi_job_apply(&job->state, e)) {
        dtpi_job_note(job, e);
        if (e->type == DTPI_JOURNAL_EXIT)
            dtpi_job_tell_exit(job, e);
        dtpi_job_tell(job);
    }
    dtpi_job_kick(job);
}

/* An event that only the supervisor knows: into the journal as well. */
static void own_event(dtp_job *job, dtpi_journal_entry e)
{
    dtp_error err;

    if (dtpi_record_write(&job->record, &e, &err) < 0)
        DTPI_LOG(job->ctx, DTP_LOG_WARN, "job", "%s: %s", job->spec.name, err.text);
    dtpi_job_event(job, &e);
}

static void start_failed(dtp_job *job, const dtp_error *why)
{
    dtpi_journal_entry e = { .type = DTPI_JOURNAL_FAILED, .attempt = job->state.attempt,
                             .status = why->status, .code = why->sys_errno, .rank = why->rank };

    job->step = DTPI_STEP_NONE;
    job->start_error = *why;
    snprintf(e.text, sizeof(e.text), "%s", why->text);
    own_event(job, e);
}

/* ---- starting an attempt ---- */

static void say(dtp_job *job, const dtpi_shim_msg *msg)
{
    dtp_error err;

    if (dtpi_conn_send(&job->conn, msg, &err) < 0)
        start_failed(job, &err);
}

static dtp_status find_shim(dtp_job *job, char path[PATH_MAX], dtp_error *err)
{
    if (job->shim)
        return dtpi_find_program(job->shim, NULL, NULL, path, err);
    if (dtpi_find_beside(job->ctx, "dtp-shim", path, PATH_MAX))
        return DTP_OK;
    return dtpi_find_program("dtp-shim", dtpi_env_lookup(&job->spec, "PATH"), NULL, path, err);
}

dtp_status dtpi_job_use(dtp_job *job, int fd_take, bool all_output, dtp_error *err)
{
    job->shim_lost = false;
    job->welcomed = false;
    const dtp_status st = dtpi_conn_open(&job->conn, job->ctx, fd_take, err);
    if (st < 0) {
        dtpi_close_fd(&fd_take);
        return st;
    }
    return dtpi_conn_send(&job->conn,
                          &(dtpi_shim_msg){ .type = DTPI_SHIM_HELLO, .magic = DTPI_SHIM_MAGIC,
                                            .version = DTPI_SHIM_VERSION,
                                            .role = DTPI_SHIM_SUPERVISOR, .output = all_output },
                          err);
}

/* env_base as a vector: the shim runs in the environment of its job. */
static const char **shim_env(dtp_job *job)
{
    const dtpi_texts texts = dtpi_list_texts(&job->spec.env_base);
    const char **v = dtpi_alloc_array(job->a, (size_t)texts.n + 1, sizeof(*v));
    size_t n = 0;

    for (const char *t = dtpi_texts_next(&texts, NULL); v && t; t = dtpi_texts_next(&texts, t))
        v[n++] = t;
    return v;
}

static dtp_status start_shim(dtp_job *job, dtp_error *err)
{
    char program[PATH_MAX];
    int fd = -1;

    dtp_status st = find_shim(job, program, err);
    if (st < 0)
        return st;
    if (!dtpi_job_lock_alive(job))
        return dtpi_fail(err, DTP_ERR_BUSY, "another supervisor has taken job '%s'",
                         job->spec.name);
    const char **env = shim_env(job);
    if (!env)
        return dtpi_fail_nomem(err, 0);
    const dtpi_shim_start start = { .program = program, .job_dir = job->record.dir, .env = env,
                                    .alive_fd = job->record.alive_fd,
                                    .locks_fd = job->place.locks_fd };
    st = dtpi_shim_spawn(&start, &fd, err);
    dtpi_free(job->a, env, ((size_t)job->spec.env_base.n + 1) * sizeof(*env));
    if (st < 0)
        return st;
    /* From here on both locks are the shim's. */
    dtpi_record_unlock(&job->record);
    dtpi_close_fd(&job->place.locks_fd);
    return dtpi_job_use(job, fd, false, err);
}

static void ask_ports(dtp_job *job)
{
    job->step = DTPI_STEP_PORTS;
    say(job, &(dtpi_shim_msg){ .type = DTPI_SHIM_ASK_PORTS, .n = dtpi_env_n_ports(job->state.n) });
}

static void do_start(dtp_job *job)
{
    dtp_error err = { .rank = -1 };

    dtp_status st = dtpi_job_place(job, job->state.n, &err);
    if (st >= 0)
        st = dtpi_job_set_ranks(job, job->state.n, &err);
    if (st >= 0 && dtpi_conn_is_open(&job->conn)) {
        ask_ports(job);
        return;
    }
    job->step = DTPI_STEP_HELLO;
    if (st >= 0) {
        st = start_shim(job, &err);
        err.sys_errno = 0;      /* it is not the job's program that is missing */
    }
    if (st < 0)
        start_failed(job, &err);
}

static void send_rank(dtp_job *job, const dtpi_env_attempt *at, uint32_t i, dtpi_list *env)
{
    const dtpi_place_rank *p = &job->place.ranks[i];
    const dtpi_env_rank r = { .rank = i, .n_cores = p->n_cores, .gpus = p->gpus };
    dtp_error err;

    if (dtpi_env_of_rank(at, &r, env, &err) < 0)
        start_failed(job, &err);
    else
        say(job, &(dtpi_shim_msg){ .type = DTPI_SHIM_RANK, .rank = (int32_t)i, .cpus = p->cpus,
                                    .env = dtpi_list_texts(env) });
}

static dtp_status send_attempt(dtp_job *job, const dtpi_env_attempt *at, dtp_error *err)
{
    dtpi_list env = { .buf = dtpi_buf_init(job->a) }, common = { .buf = dtpi_buf_init(job->a) };
    const dtpi_env_rank first = { .n_cores = job->place.ranks[0].n_cores,
                                  .gpus = job->place.ranks[0].gpus };
    char cwd[PATH_MAX];

    dtp_status st = dtpi_env_of_rank(at, &first, &env, err);
    if (st >= 0)
        st = dtpi_env_common(&job->spec, &env, &common, err);
    snprintf(cwd, sizeof(cwd), "%s", job->spec.cwd);
    if (st >= 0)
        st = dtpi_conn_send(&job->conn,
                            &(dtpi_shim_msg){ .type = DTPI_SHIM_ATTEMPT, .attempt = at->attempt,
                                              .n = at->n, .grace_ms = job->spec.grace_ms,
                                              .name = at->agent, .secret = at->secret_file,
                                              .cwd = cwd, .argv = dtpi_list_texts(&job->spec.argv),
                                              .env = dtpi_list_texts(&common) },
                            err);
    dtpi_buf_free(&env.buf);
    dtpi_buf_free(&common.buf);
    return st;
}

/* The shim has reserved ports: everything about the ranks is known now. */
static void on_ports(dtp_job *job, const dtpi_shim_msg *m)
{
    const uint32_t n = job->state.n, n_ports = (uint32_t)(m->data_bytes / 2);
    char secret[PATH_MAX + 16], agent[96];
    uint64_t nonce = 0;
    dtp_error err = { .rank = -1 };

    if (job->step != DTPI_STEP_PORTS)
        return;
    uint16_t *ports = NULL;
    if (n_ports != dtpi_env_n_ports(n))
        dtpi_fail(&err, DTP_ERR_PROTO, "the shim gave %u ports instead of %u", n_ports,
                  dtpi_env_n_ports(n));
    else if (!(ports = dtpi_alloc_array(job->a, n_ports, sizeof(*ports))))
        dtpi_fail_nomem(&err, 0);
    if (!ports) {
        start_failed(job, &err);
        return;
    }
    for (uint32_t i = 0; i < n_ports; i++)
        ports[i] = (uint16_t)(m->data[2 * i] | m->data[2 * i + 1] << 8);
    snprintf(secret, sizeof(secret), "%s/secret", job->record.dir);
    if (getrandom(&nonce, sizeof(nonce), 0) < 0)
        nonce = (uint64_t)dtp_ctx_now_ns(job->ctx);
    snprintf(agent, sizeof(agent), "@dtp/%s/%u/%016llx", job->spec.name, job->state.attempt,
             (unsigned long long)nonce);
    const dtpi_env_attempt at = { .spec = &job->spec, .name = job->spec.name,
                                  .attempt = job->state.attempt, .n = n,
                                  .agent = agent, .secret_file = secret,
                                  .hide_gpus = job->spec.gpus_per_rank == 0 &&
                                               access("/dev/nvidiactl", F_OK) == 0,
                                  .ports = ports, .n_ports = n_ports };
    job->step = DTPI_STEP_SENT;
    if (send_attempt(job, &at, &err) < 0)
        start_failed(job, &err);
    for (uint32_t i = 0; i < n && job->step == DTPI_STEP_SENT; i++) {
        dtpi_list env = { .buf = dtpi_buf_init(job->a) };
        send_rank(job, &at, i, &env);
        dtpi_buf_free(&env.buf);
    }
    if (job->step == DTPI_STEP_SENT)
        say(job, &(dtpi_shim_msg){ .type = DTPI_SHIM_GO });
    dtpi_free(job->a, ports, n_ports * sizeof(*ports));
}

static void on_started(dtp_job *job, const dtpi_shim_msg *m)
{
    const uint32_t n = (uint32_t)(m->data_bytes / 4);

    job->step = DTPI_STEP_NONE;
    dtpi_job_event(job, &(dtpi_journal_entry){ .type = DTPI_JOURNAL_ATTEMPT, .rank = -1,
                                               .attempt = m->attempt, .n = n });
    for (uint32_t i = 0; i < n && i < job->n_ranks; i++) {
        const uint8_t *p = m->data + 4 * (size_t)i;
        job->ranks[i].pid = (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                                      (uint32_t)p[3] << 24);
    }
}

static void on_start_failed(dtp_job *job, const dtpi_shim_msg *m)
{
    dtpi_journal_entry e = { .type = DTPI_JOURNAL_FAILED, .attempt = m->attempt,
                             .status = m->status, .code = m->code, .rank = m->rank };

    job->step = DTPI_STEP_NONE;
    dtpi_fail_rank(&job->start_error, m->status, m->rank, "%s", m->text);
    job->start_error.sys_errno = m->code;
    snprintf(e.text, sizeof(e.text), "%s", m->text);
    dtpi_job_event(job, &e);
}

/* ---- what the shim says ---- */

static void on_welcome(dtp_job *job, const dtpi_shim_msg *m)
{
    job->welcomed = true;
    if (job->step == DTPI_STEP_HELLO)
        ask_ports(job);
    else
        dtpi_job_replay(job, m->bytes, &job->refused);     /* before what comes behind it */
}

static void on_refused(dtp_job *job, const dtpi_shim_msg *m)
{
    dtpi_fail(&job->refused, m->status < 0 ? m->status : DTP_ERR_PROTO, "job '%s': %s",
              job->spec.name, m->text);
    if (job->step != DTPI_STEP_NONE)
        start_failed(job, &job->refused);
    else if (job->welcomed)
        DTPI_LOG(job->ctx, DTP_LOG_WARN, "job", "%s", job->refused.text);
}

static void handle(dtp_job *job, const dtpi_shim_msg *m)
{
    dtpi_journal_entry e = { .attempt = m->attempt, .rank = m->rank, .wstatus = m->code };

    switch (m->type) {
    case DTPI_SHIM_WELCOME:
        on_welcome(job, m);
        break;
    case DTPI_SHIM_REFUSED:
        on_refused(job, m);
        break;
    case DTPI_SHIM_PORTS:
        on_ports(job, m);
        break;
    case DTPI_SHIM_STARTED:
        on_started(job, m);
        break;
    case DTPI_SHIM_FAILED:
        on_start_failed(job, m);
        break;
    case DTPI_SHIM_OUTPUT:
        dtpi_job_output(job, m);
        break;
    case DTPI_SHIM_EXIT:
        e.type = DTPI_JOURNAL_EXIT;
        dtpi_job_event(job, &e);
        break;
    case DTPI_SHIM_ENDING:
        e.type = DTPI_JOURNAL_ENDING;
        dtpi_job_event(job, &e);
        break;
    case DTPI_SHIM_REFORMED:
        e.type = DTPI_JOURNAL_REFORMED;
        e.n = m->n;
        dtpi_job_event(job, &e);
        break;
    case DTPI_SHIM_GONE:
        e.type = DTPI_JOURNAL_GONE;
        dtpi_job_event(job, &e);
        break;
    case DTPI_SHIM_CANCELED:
        e.type = DTPI_JOURNAL_CANCEL;
        own_event(job, e);
        break;
    default:
        break;
    }
}

static void on_msg(dtpi_conn *c, const dtpi_shim_msg *m)
{
    dtp_job *job = c->user;

    job->depth++;
    if (!job->closed)
        handle(job, m);
    job->depth--;
}

static void on_conn_lost(dtpi_conn *c, const dtp_error *why)
{
    dtp_job *job = c->user;

    if (why->status < 0)
        DTPI_LOG(job->ctx, DTP_LOG_WARN, "job", "%s: %s", job->spec.name, why->text);
    job->shim_lost = true;
    dtpi_job_kick(job);
}

void dtpi_job_init_conn(dtp_job *job)
{
    job->conn = (dtpi_conn){ .fd = -1, .on_msg = on_msg, .on_lost = on_conn_lost, .user = job };
}

/* ---- steps ---- */

static void finished(dtp_job *job)
{
    dtpi_timer_clear(job->ctx, &job->timer);
    dtpi_conn_close(&job->conn);
    dtpi_place_free(job);
    dtpi_record_unlock(&job->record);
    job->finished = true;
}

static void on_patience_over(dtpi_timer *t)
{
    dtp_job *job = DTPI_CONTAINER(t, dtp_job, timer);

    job->shim_lost = true;
    dtpi_job_kick(job);
}

static void handle_lost(dtp_job *job)
{
    job->shim_lost = false;
    dtpi_conn_close(&job->conn);
    if (job->finishing)
        finished(job);
    if (job->look_only || dtpi_job_ended(&job->state))
        return;
    if (job->step != DTPI_STEP_NONE) {
        dtp_error err;
        dtpi_fail(&err, DTP_ERR_EXEC, "the shim ended before it had started the ranks");
        err.sys_errno = 0;
        start_failed(job, &err);
        return;
    }
    if (!job->state.in_attempt)
        return;                 /* between attempts: the next one gets a new shim */
    dtpi_job_sweep(job);
    own_event(job, (dtpi_journal_entry){ .type = DTPI_JOURNAL_LOST, .rank = -1,
                                         .attempt = job->state.attempt });
}

static void finish(dtp_job *job)
{
    const dtpi_journal_entry e = { .type = DTPI_JOURNAL_END, .rank = -1,
                                   .status = (int32_t)job->state.state,
                                   .code = job->state.exit_code };
    dtp_error err;

    if (dtpi_record_write(&job->record, &e, &err) < 0)
        DTPI_LOG(job->ctx, DTP_LOG_WARN, "job", "%s: %s", job->spec.name, err.text);
    job->finishing = true;
    /* Who waits for the job wants cores and name back: the shim closes when they are free. */
    job->timer.due = on_patience_over;
    if (!dtpi_conn_is_open(&job->conn) || job->conn.lost ||
        shutdown(job->conn.fd, SHUT_WR) < 0 ||
        dtpi_timer_set(job->ctx, &job->timer,
                       dtp_ctx_now_ns(job->ctx) + PATIENCE_MS * DTPI_NS_PER_MS, NULL) < 0)
        finished(job);
}

static void on_reform_due(dtpi_timer *t)
{
    dtp_job *job = DTPI_CONTAINER(t, dtp_job, timer);

    dtpi_job_reform_due(&job->state);
    dtpi_job_kick(job);
}

static void let_reform(dtp_job *job)
{
    const int64_t at = dtp_ctx_now_ns(job->ctx) + job->spec.reform_ms * DTPI_NS_PER_MS;

    job->timer.due = on_reform_due;
    if (dtpi_timer_set(job->ctx, &job->timer, at, NULL) < 0)
        dtpi_job_reform_due(&job->state);
}

static void end_gang(dtp_job *job, int32_t grace_ms)
{
    say(job, &(dtpi_shim_msg){ .type = DTPI_SHIM_END, .grace_ms = grace_ms });
}

static void run_steps(dtp_job *job)
{
    while (!job->finishing && !job->closed) {
        const dtpi_job_action action = dtpi_job_next(&job->state);
        dtpi_job_tell(job);
        switch (action) {
        case DTPI_JOB_WAIT:
            return;
        case DTPI_JOB_START:
            do_start(job);
            break;
        case DTPI_JOB_LET_REFORM:
            let_reform(job);
            break;
        case DTPI_JOB_END:
            end_gang(job, job->spec.grace_ms);
            break;
        case DTPI_JOB_KILL:
            end_gang(job, 0);
            break;
        case DTPI_JOB_FINISH:
            finish(job);
            break;
        }
    }
}

static void step(dtpi_task *t)
{
    dtp_job *job = DTPI_CONTAINER(t, dtp_job, step_task);

    job->step_posted = false;
    if (job->closed) {
        release(job);
    } else if (!job->look_only && !job->attaching) {
        job->depth++;
        if (job->shim_lost)
            handle_lost(job);
        dtpi_job_tell(job);     /* after an attach: where it stands, an ended job too */
        run_steps(job);
        job->depth--;
    }
    dtpi_job_unref(job);
}
