/* SPDX-License-Identifier: Apache-2.0 */
/* tell.c - what the caller hears of a job: output line by line, ends of ranks, causes, states. */
#include "job/job.h"

#include <sys/wait.h>

#include "job/lines.h"

dtp_status dtpi_job_set_ranks(dtp_job *job, uint32_t n, dtp_error *err)
{
    dtpi_job_free_ranks(job);
    job->ranks = dtpi_alloc_array(job->a, n, sizeof(*job->ranks));
    if (!job->ranks)
        return dtpi_fail_nomem(err, n * sizeof(*job->ranks));
    job->n_ranks = n;
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            job->ranks[i].part[k] = dtpi_buf_init(job->a);
    return DTP_OK;
}

void dtpi_job_free_ranks(dtp_job *job)
{
    for (uint32_t i = 0; i < job->n_ranks; i++)
        for (int k = 0; k < 2; k++)
            dtpi_buf_free(&job->ranks[i].part[k]);
    dtpi_free(job->a, job->ranks, job->n_ranks * sizeof(*job->ranks));
    job->ranks = NULL;
    job->n_ranks = 0;
}

void dtpi_job_note(dtp_job *job, const dtpi_journal_entry *e)
{
    if (e->type == DTPI_JOURNAL_ATTEMPT && e->n >= 1 && e->n <= job->spec.n_ranks)
        dtpi_job_set_ranks(job, e->n, NULL);
    if (e->rank < 0 || (uint32_t)e->rank >= job->n_ranks)
        return;
    dtpi_rank_state *r = &job->ranks[e->rank];
    if (e->type == DTPI_JOURNAL_RANK)
        r->pid = e->pid;
    if (e->type == DTPI_JOURNAL_EXIT) {
        r->ended = true;
        r->wstatus = e->wstatus;
    }
}

static void emit(dtp_job *job, dtp_job_event *ev)
{
    if (!job->on_event || job->closed)
        return;
    ev->size = sizeof(*ev);
    ev->state = job->state.state;
    job->depth++;
    job->on_event(job->user, job, ev);
    job->depth--;
}

void dtpi_job_tell_exit(dtp_job *job, const dtpi_journal_entry *e)
{
    const bool by_signal = WIFSIGNALED(e->wstatus);
    dtp_job_event ev = {
        .type = DTP_JOB_EV_EXIT, .attempt = e->attempt, .rank = e->rank,
        .exit_code = by_signal ? -1 : WEXITSTATUS(e->wstatus),
        .signal = by_signal ? WTERMSIG(e->wstatus) : 0,
    };

    emit(job, &ev);
}

static bool same_cause(const dtpi_cause *a, const dtpi_cause *b)
{
    return a->kind == b->kind && a->attempt == b->attempt && a->rank == b->rank;
}

static void tell_cause(dtp_job *job)
{
    const dtpi_cause *c = &job->state.cause;

    if (c->kind == DTPI_CAUSE_NONE || same_cause(c, &job->told_cause))
        return;
    job->told_cause = *c;
    dtpi_cause_text(c, job->cause_text, sizeof(job->cause_text));
    if (c->kind == DTPI_CAUSE_START && job->starting)
        return;
    dtp_job_event ev = { .type = DTP_JOB_EV_CAUSE, .attempt = c->attempt, .rank = c->rank,
                         .text = job->cause_text, .text_bytes = strlen(job->cause_text) };
    emit(job, &ev);
}

void dtpi_job_tell(dtp_job *job)
{
    const dtpi_job_state *s = &job->state;

    tell_cause(job);
    if (s->state == job->told_state && s->attempt == job->told_attempt)
        return;
    job->told_state = s->state;
    job->told_attempt = s->attempt;
    if (s->state == DTP_JOB_FAILED && job->starting)
        return;
    dtp_job_event ev = { .type = DTP_JOB_EV_STATE, .attempt = s->attempt, .rank = -1 };
    emit(job, &ev);
}

/* ---- output ---- */

typedef struct line_of {
    dtp_job *job;
    int32_t rank, stream;
} line_of;

static void on_line(void *user, const char *line, size_t bytes)
{
    const line_of *l = user;
    dtp_job_event ev = { .type = DTP_JOB_EV_OUTPUT, .attempt = l->job->state.attempt,
                         .rank = l->rank, .stream = l->stream, .text = line, .text_bytes = bytes };

    emit(l->job, &ev);
}

void dtpi_job_output(dtp_job *job, const dtpi_shim_msg *m)
{
    line_of l = { .job = job, .rank = m->rank, .stream = m->stream };

    if (m->stream != 1 && m->stream != 2)
        return;
    if (m->rank == -1) {
        DTPI_AUTO_BUF dtpi_buf part = dtpi_buf_init(job->a);
        dtpi_lines_feed(&part, m->data, m->data_bytes, on_line, &l);
        return;
    }
    if (m->rank < 0 || (uint32_t)m->rank >= job->n_ranks)
        return;
    dtpi_buf *part = &job->ranks[m->rank].part[m->stream - 1];
    if (m->data_bytes > 0)
        dtpi_lines_feed(part, m->data, m->data_bytes, on_line, &l);
    else
        dtpi_lines_end(part, on_line, &l);
}
