/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - the job's state machine: what happened goes in, what to do comes out. Pure.
 *
 * Events are the entries of the journal, live or read back, so a supervisor that attaches gets the
 * same state by replaying. Decisions are a function of the state: dtpi_job_next() names what is
 * still to be done, once.
 */
#ifndef DTPI_JOB_STATE_H
#define DTPI_JOB_STATE_H

#include <dtp/job.h>

#include "launch/journal.h"

typedef enum dtpi_job_action {
    DTPI_JOB_WAIT = 0,          /* for an event */
    DTPI_JOB_START,             /* attempt `attempt` with `n` ranks */
    DTPI_JOB_LET_REFORM,        /* give the survivors time; then dtpi_job_reform_due() */
    DTPI_JOB_END,               /* SIGTERM, grace, SIGKILL */
    DTPI_JOB_KILL,              /* SIGKILL now */
    DTPI_JOB_FINISH             /* the job has ended: `state` and `exit_code` */
} dtpi_job_action;

typedef enum dtpi_cause_kind {
    DTPI_CAUSE_NONE = 0,
    DTPI_CAUSE_RANK,            /* a rank ended with `wstatus` */
    DTPI_CAUSE_START,           /* an attempt could not start: `status`, `text` */
    DTPI_CAUSE_SHIM             /* the shim died */
} dtpi_cause_kind;

/* The first cause of a failed attempt. */
typedef struct dtpi_cause {
    dtpi_cause_kind kind;
    uint32_t attempt, n;
    int32_t rank, wstatus, status, code;
    char text[DTP_ERROR_TEXT];
} dtpi_cause;

typedef struct dtpi_job_state {
    uint32_t n_ranks, min_ranks, max_restarts;
    bool has_reform;

    dtp_job_state state;
    uint32_t attempt, n;        /* present or coming attempt and its ranks */
    bool in_attempt;            /* it has started and is not gone */
    uint32_t n_ended, n_ok, n_killed;
    uint32_t n_given_up;        /* ranks without which the survivors go on */
    bool failed, ending, canceled, kill, reform_over;
    dtpi_cause cause;           /* of the last attempt that failed */
    int32_t exit_code;          /* valid when ended */
    uint32_t asked;             /* actions that dtpi_job_next has named already */
} dtpi_job_state;

void dtpi_job_state_init(dtpi_job_state *s, uint32_t n_ranks, uint32_t min_ranks,
                         uint32_t max_restarts, bool has_reform);

/* An event; false when it does not fit the state (it is ignored). */
bool dtpi_job_apply(dtpi_job_state *s, const dtpi_journal_entry *e);
void dtpi_job_reform_due(dtpi_job_state *s);

/* What to do now; each decision is given once. */
dtpi_job_action dtpi_job_next(dtpi_job_state *s);
/* After a replay: what was decided before may not have been done, so it is given again. */
void dtpi_job_ask_again(dtpi_job_state *s);

static inline bool dtpi_job_ended(const dtpi_job_state *s)
{
    return s->state >= DTP_JOB_DONE;
}

/* "rank 2 of 4 killed by signal 9 (attempt 0)"; "" without a cause. */
void dtpi_cause_text(const dtpi_cause *c, char *text_out, size_t room);
/* What a shell would return: the code, 128 + signal, 126 or 127 for a program, 125 for the rest. */
int32_t dtpi_cause_exit_code(const dtpi_cause *c);

#endif /* DTPI_JOB_STATE_H */
