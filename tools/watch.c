/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - prints a job's lines as they come and turns signals into its end. */
#include "watch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Signals of this process; the handler wakes the one context. */
static volatile sig_atomic_t n_signals, last_signal;
static dtp_ctx *volatile woken;

static void on_signal(int sig)
{
    const int saved = errno;

    n_signals = n_signals + 1;
    last_signal = sig;
    if (woken)
        dtp_ctx_wake(woken);
    errno = saved;
}

static int is_interrupted(void *user)
{
    (void)user;
    return n_signals > 0;
}

dtp_status watch_open(watch *w, dtp_error *err)
{
    static const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
    dtp_ctx_opts opts = { .size = sizeof(opts) };

    opts.interrupted = is_interrupted;
    const dtp_status st = dtp_ctx_open(&opts, &w->ctx, err);
    if (st < 0)
        return st;
    woken = w->ctx;
    for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++) {
        struct sigaction old, sa = { .sa_handler = on_signal };
        /* nohup and shells' background jobs ignore some: so do we. */
        if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(caught[i], &sa, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    /* Lines leave at the end of a turn of the loop, not one by one. */
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    setvbuf(stderr, NULL, _IOFBF, 1 << 16);
    return st;
}

void watch_close(watch *w)
{
    woken = NULL;
    dtp_ctx_close(w->ctx);
    w->ctx = NULL;
    fflush(stdout);
    fflush(stderr);
}

static void say(const watch *w, const char *text)
{
    fprintf(stderr, "dtp %s: %s\n", w->cmd->name, text);
}

static void print_line(const watch *w, const dtp_job_event *ev)
{
    FILE *out = ev->stream == 2 ? stderr : stdout;

    /* A reader that has gone does not end the training. */
    if (ferror(out))
        return;
    if (!w->no_prefix)
        fprintf(out, "[%d] ", (int)ev->rank);
    fwrite(ev->text, 1, ev->text_bytes, out);
    putc('\n', out);
}

static void print_state(const watch *w, const dtp_job *job, const dtp_job_event *ev)
{
    dtp_job_info info = { .size = sizeof(info) };

    if (ev->state != DTP_JOB_STARTING || ev->attempt == 0 || dtp_job_get_info(job, &info, NULL) < 0)
        return;
    fprintf(stderr, "dtp %s: attempt %u starts with %u rank%s\n", w->cmd->name, ev->attempt,
            info.n_ranks, info.n_ranks == 1 ? "" : "s");
}

void watch_event(void *user, dtp_job *job, const dtp_job_event *ev)
{
    const watch *w = user;

    switch (ev->type) {
    case DTP_JOB_EV_OUTPUT:
        if (ev->rank < 0)
            say(w, ev->text);
        else
            print_line(w, ev);
        break;
    case DTP_JOB_EV_CAUSE:
        say(w, ev->text);
        break;
    case DTP_JOB_EV_STATE:
        print_state(w, job, ev);
        break;
    case DTP_JOB_EV_EXIT:
        break;
    }
}

int watch_fail(const watch *w, const dtp_error *err)
{
    if (err->status == DTP_ERR_INTERRUPTED && n_signals > 0)
        return 128 + (int)last_signal;
    cmd_fail(w->cmd, err);
    if (err->status == DTP_ERR_EXEC && err->sys_errno != 0)
        return err->sys_errno == ENOENT ? WATCH_NOT_FOUND : WATCH_NOT_EXECUTABLE;
    return WATCH_FAILED;
}

static bool is_over(const dtp_job *job, dtp_job_info *info)
{
    info->size = sizeof(*info);
    return dtp_job_wait((dtp_job *)(uintptr_t)job, 0, NULL) == DTP_OK &&
           dtp_job_get_info(job, info, NULL) == DTP_OK;
}

/* The first signal ends the job with grace, the second without, a third leaves at once. */
static bool on_signals(watch *w, dtp_job *job, int *seen)
{
    for (; *seen < n_signals; (*seen)++) {
        if (w->lets_go || *seen >= 2)
            return false;
        say(w, *seen == 0 ? "ending the job (once more to kill it)" : "killing the job");
        dtp_job_cancel(job);
    }
    return true;
}

/* A full disk is said once; a reader that has gone, or none from the start, has been meant so. */
static void flush_lines(watch *w, const dtp_job *job)
{
    dtp_job_info info = { .size = sizeof(info) };

    fflush(stderr);
    if (fflush(stdout) == 0 || w->lost)
        return;
    w->lost = true;
    const int why = errno;
    if (why == EPIPE || why == EBADF || dtp_job_get_info(job, &info, NULL) < 0)
        return;
    fprintf(stderr, "dtp %s: cannot write the output: %s (the logs have it: dtp logs %s)\n", w->cmd->name,
            strerror(why), info.name);
    fflush(stderr);
}

int watch_run(watch *w, dtp_job *job)
{
    dtp_job_info info;
    dtp_error err = { 0 };
    int seen = 0;

    dtp_ctx_dispatch(w->ctx, 0, NULL);      /* an ended job tells why, once */
    while (!is_over(job, &info)) {
        flush_lines(w, job);
        if (!on_signals(w, job, &seen)) {
            say(w, "the job goes on");
            return 128 + (int)last_signal;
        }
        const dtp_status st = dtp_ctx_dispatch(w->ctx, -1, &err);
        if (st < 0 && st != DTP_ERR_INTERRUPTED)
            return watch_fail(w, &err);
    }
    flush_lines(w, job);
    if (info.state == DTP_JOB_CANCELED && seen > 0)
        return 128 + (int)last_signal;
    if (info.state == DTP_JOB_CANCELED)
        say(w, "the job was cancelled");
    return info.exit_code;
}
