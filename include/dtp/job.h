/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtp/job.h - a job: a gang of ranks started, watched, restarted and ended as one.
 *
 * The ranks are owned by a small shim process, never by the caller: a host that dies leaves the job
 * running and attaches again. The caller's context drives the state machine; no thread is started.
 */
#ifndef DTP_JOB_H
#define DTP_JOB_H

#include <dtp/placement.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtp_job dtp_job;

typedef struct dtp_job_spec {
    size_t size;
    const char *name;           /* 1 to 63 of [A-Za-z0-9._-]; NULL: made from time and pid */
    const char *const *argv;    /* NULL-terminated; argv[0] is looked up in PATH */
    const char *const *env;     /* NULL-terminated NAME=VALUE, added to env_base */
    const char *const *env_base;/* NULL-terminated; NULL: the caller's environment is not inherited */
    const char *cwd;            /* NULL: the caller's */
    uint32_t n_ranks;           /* at least 1 */
    uint32_t min_ranks;         /* smallest gang to restart with; 0: n_ranks */
    uint32_t max_restarts;      /* 0: none */
    uint32_t gpus_per_rank;
    uint32_t cores_per_rank;    /* 0: an equal share */
    uint32_t no_bind;           /* 1: no CPU binding and no locks on cores */
    const char *ckpt_dir;       /* given to ranks as DTP_CKPT_DIR; NULL: none */
    int32_t grace_ms;           /* between SIGTERM and SIGKILL; 0: 5000 */
    int32_t reform_ms;          /* wait for the survivors after a death before ending them; 0: none */
} dtp_job_spec;

#define DTP_JOB_SPEC_INIT { .size = sizeof(dtp_job_spec) }

typedef enum dtp_job_state {
    DTP_JOB_STARTING = 1,
    DTP_JOB_RUNNING = 2,
    DTP_JOB_STOPPING = 3,       /* ending the gang, to restart or for good */
    DTP_JOB_DONE = 4,           /* the last attempt succeeded */
    DTP_JOB_FAILED = 5,
    DTP_JOB_CANCELED = 6
} dtp_job_state;

typedef enum dtp_job_event_type {
    DTP_JOB_EV_STATE = 1,       /* `state` is new */
    DTP_JOB_EV_OUTPUT = 2,      /* `text` is one line (without newline) of `rank`, `stream` 1 or 2;
                                   lines over 64 KiB come in pieces; rank -1: the shim itself */
    DTP_JOB_EV_EXIT = 3,        /* `rank` ended with `exit_code` or `signal` */
    DTP_JOB_EV_CAUSE = 4        /* `text` is the first cause of a failure */
} dtp_job_event_type;

typedef struct dtp_job_event {
    size_t size;
    dtp_job_event_type type;
    dtp_job_state state;
    uint32_t attempt;
    int32_t rank;               /* -1 where no rank is concerned */
    int32_t stream;
    int32_t exit_code;          /* -1 when it ended by a signal */
    int32_t signal;
    const char *text;           /* lent during the call, terminated; NULL where there is none */
    size_t text_bytes;          /* its length: a line of output may hold any byte */
} dtp_job_event;

typedef void (*dtp_job_fn)(void *user, dtp_job *job, const dtp_job_event *event);

typedef struct dtp_job_opts {
    size_t size;
    const char *run_dir;        /* state, sockets, locks and logs; NULL: /run/dtp for root, /tmp/dtp-UID
                                   else */
    const char *shim;           /* the dtp-shim program; NULL: beside the library, then PATH of env_base */
    const dtp_topo *topo;       /* for placement; NULL: load it */
    dtp_job_fn on_event;        /* runs inside dispatch, wait and start; may close the job; NULL: none */
    void *user;
    uint32_t all_output;        /* attach: 1: output of the present attempt from its beginning */
    uint32_t look_only;         /* attach: 1: read what is known now and supervise nothing */
} dtp_job_opts;

#define DTP_JOB_OPTS_INIT { .size = sizeof(dtp_job_opts) }

/*
 * Places, locks and starts a gang; returns once the shim has it or says why not. `*job_out` is NULL
 * where on_event has closed the job meanwhile (after dtp_job_attach too).
 * Errors: INVAL, LIMIT (does not fit), BUSY (GPUs or cores held by another job; the context is used by
 * another thread), EXISTS (name in use), EXEC (program or shim cannot be started), NOT_FOUND (folder),
 * TIMEOUT (the shim does not answer), INTERRUPTED, FORKED, IO, NOSPC, PERM, NOMEM. Caller closes.
 * Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_job_start(dtp_ctx *ctx, const dtp_job_spec *spec, const dtp_job_opts *opts,
                                 dtp_job **job_out, dtp_error *err);

/*
 * Takes a running (or just ended) job over again by its name, from a restarted host. The first dispatch
 * tells its state.
 * Errors: INVAL (no name of a job), NOT_FOUND, BUSY (another supervisor is attached), FORMAT and VERSION
 * (of its record), TIMEOUT (its shim does not answer), INTERRUPTED, FORKED, IO, PERM, LIMIT, NOMEM.
 * Caller closes. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_job_attach(dtp_ctx *ctx, const char *name, const dtp_job_opts *opts,
                                  dtp_job **job_out, dtp_error *err);

typedef struct dtp_job_info {
    size_t size;
    const char *name;           /* lent */
    dtp_job_state state;
    uint32_t attempt;
    uint32_t n_ranks;           /* of the present attempt */
    int32_t exit_code;          /* valid when ended: what `dtp run` exits with */
    const char *cause;          /* first cause of the last failure; NULL none; lent */
    const char *log_dir;        /* lent; attempt-A/rank-R.out and .err are in it */
    uint32_t n_ranks_asked;     /* of the first attempt */
} dtp_job_info;

/* Threads: ctx. Since 0.1. */
DTP_API dtp_status dtp_job_get_info(const dtp_job *job, dtp_job_info *info_out, dtp_error *err);

/*
 * Dispatches until the job has ended or the time is up (negative: for ever).
 * Errors: TIMEOUT, INTERRUPTED, CANCELED (on_event has closed the job), BUSY, FORKED, IO. A failed job
 * is not an error of this call.
 * Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_job_wait(dtp_job *job, int timeout_ms, dtp_error *err);

/* One rank of the present or last attempt. */
typedef struct dtp_job_rank {
    size_t size;
    int32_t pid;
    uint32_t ended;             /* 1: it has ended with `exit_code` or `signal` */
    int32_t exit_code;          /* -1 when it ended by a signal */
    int32_t signal;
} dtp_job_rank;

/* What is known of `rank`. Errors: RANGE. Threads: ctx. Since 0.1. */
DTP_API dtp_status dtp_job_get_rank(const dtp_job *job, uint32_t rank, dtp_job_rank *rank_out,
                                    dtp_error *err);

/*
 * Ends the gang: SIGTERM, grace, SIGKILL, descendants included; the job ends as CANCELED. A second
 * call skips the grace. Threads: any. Since 0.1.
 */
DTP_API void dtp_job_cancel(dtp_job *job);

/*
 * Asks for the job `name` to be cancelled, whoever supervises it, and returns when that is known to
 * its shim. Errors: INVAL (no name of a job), NOT_FOUND (none runs under that name), FORMAT, VERSION, IO,
 * PERM, TIMEOUT, INTERRUPTED, BUSY, FORKED, NOMEM. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_job_stop(dtp_ctx *ctx, const char *name, const dtp_job_opts *opts,
                                dtp_error *err);

/* Lets go of the handle; the job goes on. NULL is fine. Threads: ctx. Since 0.1. */
DTP_API void dtp_job_close(dtp_job *job);

/*
 * Names of the jobs that have a record under the run directory, one per line; free with
 * dtp_text_free(). Errors: NOT_FOUND (no such run directory), IO, NOMEM. Threads: any. Since 0.1.
 */
DTP_API dtp_status dtp_job_list(dtp_ctx *ctx, const dtp_job_opts *opts, char **names_out,
                                dtp_error *err);

#ifdef __cplusplus
}
#endif

#endif /* DTP_JOB_H */
