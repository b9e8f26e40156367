/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c - decides for a job: which failure was the first, whether there is another attempt, with
 * how many ranks, and what the job ends as. Nobody else does.
 */
#include "job/state.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

void dtpi_job_state_init(dtpi_job_state *s, uint32_t n_ranks, uint32_t min_ranks,
                         uint32_t max_restarts, bool has_reform)
{
    *s = (dtpi_job_state){
        .n_ranks = n_ranks, .min_ranks = min_ranks, .max_restarts = max_restarts,
        .has_reform = has_reform, .state = DTP_JOB_STARTING, .n = n_ranks,
    };
}

static void end(dtpi_job_state *s, dtp_job_state state, int32_t exit_code)
{
    s->state = state;
    s->exit_code = exit_code;
    s->in_attempt = false;
}

/*
 * Ranks of the next attempt: where fewer are allowed, each rank that was lost is given up. Lost are
 * the first cause and those that something else killed before the gang was ended; survivors that
 * gave up because of it are not.
 */
static uint32_t next_size(const dtpi_job_state *s)
{
    const uint32_t lost = s->n_killed > 1 ? s->n_killed : 1;

    if (s->min_ranks >= s->n_ranks)
        return s->n_ranks;
    return s->n > s->min_ranks + lost ? s->n - lost : s->min_ranks;
}

/* The attempt is over and has failed: once more, or for good. */
static void after_failure(dtpi_job_state *s)
{
    if (s->canceled) {
        end(s, DTP_JOB_CANCELED, 128 + SIGINT);
        return;
    }
    if (s->attempt >= s->max_restarts) {
        end(s, DTP_JOB_FAILED, dtpi_cause_exit_code(&s->cause));
        return;
    }
    s->n = next_size(s);
    s->attempt++;
    s->state = DTP_JOB_STARTING;
    s->in_attempt = s->failed = s->ending = s->kill = s->reform_over = false;
    s->n_ended = s->n_ok = s->n_killed = s->n_given_up = 0;
    s->asked = 0;
}

static bool on_attempt(dtpi_job_state *s, const dtpi_journal_entry *e)
{
    if (s->state != DTP_JOB_STARTING || s->in_attempt || e->attempt != s->attempt || e->n == 0)
        return false;
    s->in_attempt = true;
    s->n = e->n;
    s->state = s->canceled ? DTP_JOB_STOPPING : DTP_JOB_RUNNING;
    return true;
}

/* Ranks that ended, and not well. */
static uint32_t n_bad(const dtpi_job_state *s)
{
    return s->n_ended - s->n_ok;
}

/* The survivors go on: the failure is made good, unless there are fewer than the least. */
static bool on_reformed(dtpi_job_state *s, const dtpi_journal_entry *e)
{
    if (!s->in_attempt || e->attempt != s->attempt || !s->has_reform || s->ending || s->canceled ||
        e->n == 0 || e->n > s->n || e->n < s->min_ranks || s->n - e->n < s->n_given_up)
        return false;
    s->n_given_up = s->n - e->n;
    if (!s->failed || n_bad(s) > s->n_given_up)
        return true;
    s->failed = s->reform_over = false;
    s->state = DTP_JOB_RUNNING;
    s->asked &= ~(1u << DTPI_JOB_LET_REFORM);
    return true;
}

static bool on_exit_of(dtpi_job_state *s, const dtpi_journal_entry *e)
{
    if (!s->in_attempt || e->attempt != s->attempt || s->n_ended >= s->n || e->rank < 0 ||
        (uint32_t)e->rank >= s->n)
        return false;
    s->n_ended++;
    if (e->wstatus == 0) {
        s->n_ok++;
        return true;
    }
    if (!s->ending && WIFSIGNALED(e->wstatus) && WTERMSIG(e->wstatus) == SIGKILL)
        s->n_killed++;
    /* The cause of a re-form has been taken into account already, or is now. */
    if (s->failed || s->canceled || n_bad(s) <= s->n_given_up)
        return true;
    s->failed = true;
    s->state = DTP_JOB_STOPPING;
    s->cause = (dtpi_cause){ .kind = DTPI_CAUSE_RANK, .attempt = s->attempt, .n = s->n,
                             .rank = e->rank, .wstatus = e->wstatus };
    return true;
}

static bool on_gone(dtpi_job_state *s, const dtpi_journal_entry *e)
{
    if (!s->in_attempt || e->attempt != s->attempt || s->n_ended < s->n)
        return false;
    s->in_attempt = false;
    if (n_bad(s) <= s->n_given_up && !s->failed && !s->canceled)
        end(s, DTP_JOB_DONE, 0);
    else
        after_failure(s);
    return true;
}

/* What could not start once will not start again: a missing program, no room on the machine. */
static bool on_failed(dtpi_job_state *s, const dtpi_journal_entry *e)
{
    if (s->state != DTP_JOB_STARTING || s->in_attempt || e->attempt != s->attempt)
        return false;
    s->cause = (dtpi_cause){ .kind = DTPI_CAUSE_START, .attempt = s->attempt, .n = s->n,
                             .rank = e->rank, .status = e->status, .code = e->code };
    snprintf(s->cause.text, sizeof(s->cause.text), "%s", e->text);
    if (s->canceled)
        end(s, DTP_JOB_CANCELED, 128 + SIGINT);
    else
        end(s, DTP_JOB_FAILED, dtpi_cause_exit_code(&s->cause));
    return true;
}

static bool on_lost(dtpi_job_state *s, const dtpi_journal_entry *e)
{
    if (e->attempt != s->attempt || (!s->in_attempt && s->state != DTP_JOB_STARTING))
        return false;
    if (!s->failed)
        s->cause = (dtpi_cause){ .kind = DTPI_CAUSE_SHIM, .attempt = s->attempt, .n = s->n,
                                 .rank = -1 };
    after_failure(s);
    return true;
}

static bool on_cancel(dtpi_job_state *s)
{
    s->kill = s->canceled;
    s->canceled = true;
    if (s->in_attempt)
        s->state = DTP_JOB_STOPPING;
    return true;
}

bool dtpi_job_apply(dtpi_job_state *s, const dtpi_journal_entry *e)
{
    if (dtpi_job_ended(s))
        return false;
    switch (e->type) {
    case DTPI_JOURNAL_ATTEMPT:
        return on_attempt(s, e);
    case DTPI_JOURNAL_RANK:
        return s->in_attempt && e->attempt == s->attempt;
    case DTPI_JOURNAL_EXIT:
        return on_exit_of(s, e);
    case DTPI_JOURNAL_ENDING:
        s->ending = s->ending || (s->in_attempt && e->attempt == s->attempt);
        return s->ending;
    case DTPI_JOURNAL_REFORMED:
        return on_reformed(s, e);
    case DTPI_JOURNAL_GONE:
        return on_gone(s, e);
    case DTPI_JOURNAL_FAILED:
        return on_failed(s, e);
    case DTPI_JOURNAL_LOST:
        return on_lost(s, e);
    case DTPI_JOURNAL_CANCEL:
        return on_cancel(s);
    case DTPI_JOURNAL_END:
        if (e->status < DTP_JOB_DONE || e->status > DTP_JOB_CANCELED)
            return false;
        end(s, (dtp_job_state)e->status, e->code);
        return true;
    }
    return false;
}

void dtpi_job_reform_due(dtpi_job_state *s)
{
    /* A time that was set for a failure made good since then means nothing. */
    if (s->failed)
        s->reform_over = true;
}

static dtpi_job_action wanted(const dtpi_job_state *s)
{
    if (dtpi_job_ended(s))
        return DTPI_JOB_FINISH;
    if (s->state == DTP_JOB_STARTING)
        return DTPI_JOB_START;
    if (s->state != DTP_JOB_STOPPING)
        return DTPI_JOB_WAIT;
    if (s->kill)
        return DTPI_JOB_KILL;
    if (s->has_reform && !s->reform_over && !s->canceled)
        return DTPI_JOB_LET_REFORM;
    return DTPI_JOB_END;
}

dtpi_job_action dtpi_job_next(dtpi_job_state *s)
{
    /* Cancelled before it was started: nothing is to be ended. */
    if (s->state == DTP_JOB_STARTING && s->canceled && !(s->asked & 1u << DTPI_JOB_START))
        end(s, DTP_JOB_CANCELED, 128 + SIGINT);
    const dtpi_job_action action = wanted(s);

    if (action == DTPI_JOB_WAIT || (s->asked & 1u << action))
        return DTPI_JOB_WAIT;
    s->asked |= 1u << action;
    return action;
}

void dtpi_job_ask_again(dtpi_job_state *s)
{
    s->asked = 0;
}

void dtpi_cause_text(const dtpi_cause *c, char *text_out, size_t room)
{
    text_out[0] = '\0';
    switch (c->kind) {
    case DTPI_CAUSE_NONE:
        break;
    case DTPI_CAUSE_RANK:
        if (WIFSIGNALED(c->wstatus))
            snprintf(text_out, room, "rank %d of %u killed by signal %d (attempt %u)", c->rank,
                     c->n, WTERMSIG(c->wstatus), c->attempt);
        else
            snprintf(text_out, room, "rank %d of %u exited with code %d (attempt %u)", c->rank,
                     c->n, WEXITSTATUS(c->wstatus), c->attempt);
        break;
    case DTPI_CAUSE_START:
        if (c->attempt == 0)
            snprintf(text_out, room, "%s", c->text);
        else
            snprintf(text_out, room, "attempt %u could not start: %s", c->attempt, c->text);
        break;
    case DTPI_CAUSE_SHIM:
        snprintf(text_out, room, "the shim died (attempt %u)", c->attempt);
        break;
    }
}

int32_t dtpi_cause_exit_code(const dtpi_cause *c)
{
    if (c->kind == DTPI_CAUSE_RANK)
        return WIFSIGNALED(c->wstatus) ? 128 + WTERMSIG(c->wstatus) : WEXITSTATUS(c->wstatus);
    if (c->kind == DTPI_CAUSE_START && c->status == DTP_ERR_EXEC && c->code != 0)
        return c->code == ENOENT ? 127 : 126;
    return c->kind == DTPI_CAUSE_NONE ? 0 : 125;
}
