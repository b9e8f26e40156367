/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - the supervisor of a job, from inside.
 *
 *   job.c     the public functions: start, attach, look, wait, cancel, close
 *   drive.c   does what the state machine decides, through the shim
 *   tell.c    turns what happens into events for the caller
 *   place.c   processors and GPUs for an attempt, and their locks
 */
#ifndef DTPI_JOB_JOB_H
#define DTPI_JOB_JOB_H

#include <stdatomic.h>

#include <dtp/job.h>

#include "base/cpuset.h"
#include "ctx/ctx.h"
#include "job/record.h"
#include "job/spec.h"
#include "job/state.h"
#include "launch/conn.h"

/* What one rank gets. */
typedef struct dtpi_place_rank {
    char *cpus;                 /* "" not bound */
    char *gpus;                 /* "" none */
    uint32_t n_cores;           /* for thread pools; at least 1 */
} dtpi_place_rank;

typedef struct dtpi_place {
    dtpi_cpuset cpus, gpus;     /* of this job: locked by it, now or through its shim */
    int locks_fd;               /* until the shim has it; -1 */
    dtpi_place_rank *ranks;
    uint32_t n;
} dtpi_place;

typedef struct dtpi_rank_state {
    int32_t pid, wstatus;
    bool ended;
    dtpi_buf part[2];           /* of its streams, without a newline yet */
} dtpi_rank_state;

/* How far a start has come. */
typedef enum dtpi_start_step {
    DTPI_STEP_NONE = 0,
    DTPI_STEP_HELLO,            /* a new shim is to say WELCOME */
    DTPI_STEP_PORTS,
    DTPI_STEP_SENT              /* STARTED or FAILED is to come */
} dtpi_start_step;

struct dtp_job {
    dtp_ctx *ctx;
    const dtp_allocator *a;
    dtpi_spec spec;
    dtpi_record record;
    char log_dir[PATH_MAX + 8];
    dtpi_job_state state;
    bool look_only;
    bool finishing;             /* ended and recorded; the shim is about to let go */
    bool finished;              /* nothing is left to do */

    dtp_job_fn on_event;
    void *user;
    dtp_job_state told_state;
    uint32_t told_attempt;
    dtpi_cause told_cause;
    char cause_text[DTP_ERROR_TEXT + 64];
    bool starting;              /* inside dtp_job_start: a failed start is its error, no event */
    dtp_error start_error;

    const dtp_topo *topo;       /* the caller's or own_topo */
    dtp_topo *own_topo;
    char *shim;
    dtpi_place place;

    dtpi_conn conn;
    bool shim_lost;
    bool attaching;             /* until the shim has answered nothing is decided */
    dtpi_start_step step;
    bool welcomed;
    dtp_error refused;
    dtpi_rank_state *ranks;     /* of the present attempt */
    uint32_t n_ranks;
    dtpi_timer timer;           /* of reforming, and of the shim's last answer */

    dtpi_task step_task, cancel_task;
    bool step_posted;
    _Atomic uint32_t n_cancels; /* asked for and not yet seen */
    _Atomic uint32_t n_refs;
    bool closed, released;
    uint32_t depth;             /* callbacks we are inside of */
};

/* ---- job.c ---- */

/* Brings state and ranks to where the first `bytes` of the journal end. Errors: IO, LIMIT. */
dtp_status dtpi_job_replay(dtp_job *job, uint64_t bytes, dtp_error *err);

/* ---- drive.c ---- */

/* An event has happened: the state machine is told, then the caller; decisions follow soon. */
void dtpi_job_event(dtp_job *job, const dtpi_journal_entry *e);
/* Posts the next step. */
void dtpi_job_kick(dtp_job *job);
/* Uses the socket of a running shim, which is closed on failure too, and says HELLO. Errors: IO, NOMEM. */
dtp_status dtpi_job_use(dtp_job *job, int fd_take, bool all_output, dtp_error *err);
/* Drops one reference. */
void dtpi_job_unref(dtp_job *job);
/* Takes `alive` of the record, waiting a second for a shim that is ending. */
bool dtpi_job_lock_alive(dtp_job *job);
/* Kills what a dead shim has left behind. */
void dtpi_job_sweep(dtp_job *job);

/* Callbacks of the connection; before its first use. */
void dtpi_job_init_conn(dtp_job *job);

/* ---- tell.c ---- */

/* New room for `n` ranks. Errors: NOMEM. */
dtp_status dtpi_job_set_ranks(dtp_job *job, uint32_t n, dtp_error *err);
void dtpi_job_free_ranks(dtp_job *job);
/* Notes what an entry says about ranks. */
void dtpi_job_note(dtp_job *job, const dtpi_journal_entry *e);
/* Tells of a rank's end. */
void dtpi_job_tell_exit(dtp_job *job, const dtpi_journal_entry *e);
/* Tells state and cause where they have changed. */
void dtpi_job_tell(dtp_job *job);
void dtpi_job_output(dtp_job *job, const dtpi_shim_msg *m);

/* ---- place.c ---- */

/* Places `n` ranks: freely and with locks at first, within what the job holds later. */
dtp_status dtpi_job_place(dtp_job *job, uint32_t n, dtp_error *err);
void dtpi_place_free(dtp_job *job);

#endif /* DTPI_JOB_JOB_H */
