/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - `dtp run` and `dtp attach` from the moment they have a job: print what it says, end it
 * on signals, and know the exit code.
 */
#ifndef DTP_TOOLS_WATCH_H
#define DTP_TOOLS_WATCH_H

#include <stdbool.h>

#include <dtp/job.h>

#include "cmd.h"

/* Exit codes of `dtp run`, as a shell's; 128 + n for a signal. */
enum { WATCH_FAILED = 125, WATCH_NOT_EXECUTABLE = 126, WATCH_NOT_FOUND = 127 };

typedef struct watch {
    const dtp_cmd *cmd;
    bool no_prefix;
    bool lets_go;               /* a signal leaves the job alone (attach) */
    bool lost;                  /* the output cannot be written any more */
    dtp_ctx *ctx;
} watch;

/* Opens the context; from here on SIGINT, SIGTERM, SIGHUP and SIGQUIT are noted. */
dtp_status watch_open(watch *w, dtp_error *err);
void watch_close(watch *w);

/* The job's on_event, with the watch as user. */
void watch_event(void *user, dtp_job *job, const dtp_job_event *ev);

/* Until the job has ended or was let go; the exit code. */
int watch_run(watch *w, dtp_job *job);

/* Prints a failure and gives its exit code. */
int watch_fail(const watch *w, const dtp_error *err);

#endif /* DTP_TOOLS_WATCH_H */
