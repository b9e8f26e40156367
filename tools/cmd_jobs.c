/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_jobs.c - `dtp ps`, `dtp attach`, `dtp cancel`: jobs that others have started. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include <dtp/job.h>

#include "cmd.h"
#include "watch.h"

static const char *state_name(dtp_job_state state)
{
    switch (state) {
    case DTP_JOB_STARTING:
        return "starting";
    case DTP_JOB_RUNNING:
        return "running";
    case DTP_JOB_STOPPING:
        return "stopping";
    case DTP_JOB_DONE:
        return "done";
    case DTP_JOB_FAILED:
        return "failed";
    case DTP_JOB_CANCELED:
        return "canceled";
    }
    return "unknown";
}

/* What these commands have in common: an optional run directory, and the name of a job. */
typedef struct args {
    const char *run_dir;
    const char *name;
    bool help, pids, no_prefix;
} args;

/* 0, or an exit code. */
static int read_args(const dtp_cmd *cmd, bool needs_name, int argc, char **argv, args *a)
{
    static const struct option options[] = {
        { "run-dir", required_argument, NULL, 'r' }, { "pids", no_argument, NULL, 'p' },
        { "no-prefix", no_argument, NULL, 'x' },     { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };

    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        switch (c) {
        case 'r':
            a->run_dir = optarg;
            break;
        case 'p':
            a->pids = true;
            break;
        case 'x':
            a->no_prefix = true;
            break;
        case 'h':
            a->help = true;
            break;
        default:
            cmd_bad_option(cmd, c, argv);
            return WATCH_FAILED;
        }
    }
    a->name = optind < argc ? argv[optind] : NULL;
    if (optind + 1 < argc || (needs_name && !a->name && !a->help)) {
        cmd_usage(cmd, needs_name ? "the name of one job is expected"
                                  : "at most the name of one job is expected");
        return WATCH_FAILED;
    }
    return 0;
}

/* ---- ps ---- */

static const char ps_help[] =
    "usage: dtp ps [OPTIONS] [JOB]\n"
    "\n"
    "Lists the jobs of the run directory, running and ended.\n"
    "\n"
    "options:\n"
    "  --pids          the ranks of JOB instead: rank, process, state, one a line\n"
    "  --run-dir DIR   where records are (/run/dtp, or /tmp/dtp-UID)\n"
    "  -h, --help      this text\n";

static dtp_status open_job(dtp_ctx *ctx, const char *name, const args *a, dtp_job **job_out,
                           dtp_error *err)
{
    const dtp_job_opts opts = { .size = sizeof(opts), .run_dir = a->run_dir, .look_only = 1 };

    return dtp_job_attach(ctx, name, &opts, job_out, err);
}

static void print_head(void)
{
    printf("%-32s %-9s %7s %5s %4s  %s\n", "NAME", "STATE", "ATTEMPT", "RANKS", "EXIT", "CAUSE");
}

static void print_job(const dtp_job *job)
{
    dtp_job_info info = { .size = sizeof(info) };
    char code[16] = "-";

    if (dtp_job_get_info(job, &info, NULL) < 0)
        return;
    if (info.state >= DTP_JOB_DONE)
        snprintf(code, sizeof(code), "%d", (int)info.exit_code);
    printf("%-32s %-9s %7u %5u %4s  %s\n", info.name, state_name(info.state), info.attempt,
           info.n_ranks, code, info.cause ? info.cause : "");
}

static void print_ranks(const dtp_job *job)
{
    dtp_job_rank r = { .size = sizeof(r) };

    for (uint32_t i = 0; dtp_job_get_rank(job, i, &r, NULL) == DTP_OK; i++) {
        if (!r.ended)
            printf("%u %d running\n", i, (int)r.pid);
        else if (r.signal)
            printf("%u %d signal %d\n", i, (int)r.pid, (int)r.signal);
        else
            printf("%u %d exit %d\n", i, (int)r.pid, (int)r.exit_code);
    }
}

static dtp_status show(dtp_ctx *ctx, const char *name, const args *a, dtp_error *err)
{
    dtp_job *job = NULL;

    const dtp_status st = open_job(ctx, name, a, &job, err);
    if (st < 0)
        return st;
    if (a->pids) {
        print_ranks(job);
    } else {
        if (a->name)
            print_head();
        print_job(job);
    }
    dtp_job_close(job);
    return DTP_OK;
}

static dtp_status show_all(dtp_ctx *ctx, const args *a, dtp_error *err)
{
    const dtp_job_opts opts = { .size = sizeof(opts), .run_dir = a->run_dir };
    char *names = NULL, *rest, *name;

    const dtp_status st = dtp_job_list(ctx, &opts, &names, err);
    if (st < 0)
        return st;
    print_head();
    for (rest = names; (name = strsep(&rest, "\n"));)
        if (*name && show(ctx, name, a, err) < 0)
            fprintf(stderr, "dtp ps: %s: %s\n", name, err->text);
    dtp_text_free(names);
    return DTP_OK;
}

static int run_ps(int argc, char **argv)
{
    args a = { .run_dir = NULL };
    dtp_error err = { 0 };
    dtp_ctx *ctx = NULL;

    const int code = read_args(&cmd_ps, false, argc, argv, &a);
    if (code)
        return code;
    if (a.help)
        return cmd_help(&cmd_ps);
    if (a.pids && !a.name) {
        cmd_usage(&cmd_ps, "--pids needs the name of a job");
        return WATCH_FAILED;
    }
    dtp_status st = dtp_ctx_open(NULL, &ctx, &err);
    if (st >= 0)
        st = a.name ? show(ctx, a.name, &a, &err) : show_all(ctx, &a, &err);
    dtp_ctx_close(ctx);
    if (st < 0) {
        cmd_fail(&cmd_ps, &err);
        return WATCH_FAILED;
    }
    return cmd_finish(&cmd_ps);
}

const dtp_cmd cmd_ps = { "ps", "list jobs, or the ranks of one", ps_help, run_ps };

/* ---- cancel ---- */

static const char cancel_help[] =
    "usage: dtp cancel [OPTIONS] JOB\n"
    "\n"
    "Ends a running job: SIGTERM to its ranks, SIGKILL after its grace. Once more: SIGKILL now.\n"
    "\n"
    "options:\n"
    "  --run-dir DIR   where records are (/run/dtp, or /tmp/dtp-UID)\n"
    "  -h, --help      this text\n";

static int run_cancel(int argc, char **argv)
{
    args a = { .run_dir = NULL };
    dtp_error err = { 0 };
    dtp_ctx *ctx = NULL;

    const int code = read_args(&cmd_cancel, true, argc, argv, &a);
    if (code)
        return code;
    if (a.help)
        return cmd_help(&cmd_cancel);
    const dtp_job_opts opts = { .size = sizeof(opts), .run_dir = a.run_dir };
    dtp_status st = dtp_ctx_open(NULL, &ctx, &err);
    if (st >= 0)
        st = dtp_job_stop(ctx, a.name, &opts, &err);
    dtp_ctx_close(ctx);
    if (st < 0) {
        cmd_fail(&cmd_cancel, &err);
        return WATCH_FAILED;
    }
    return 0;
}

const dtp_cmd cmd_cancel = { "cancel", "end a running job", cancel_help, run_cancel };

/* ---- attach ---- */

static const char attach_help[] =
    "usage: dtp attach [OPTIONS] JOB\n"
    "\n"
    "Takes over a job whose supervisor has died: prints its output from the beginning of the present\n"
    "attempt, restarts it as `dtp run` would, and exits with its exit code. Ctrl-C lets go of it.\n"
    "\n"
    "options:\n"
    "  --run-dir DIR   where records are (/run/dtp, or /tmp/dtp-UID)\n"
    "  --no-prefix     print lines without the rank\n"
    "  -h, --help      this text\n";

static int run_attach(int argc, char **argv)
{
    args a = { .run_dir = NULL };
    watch w = { .cmd = &cmd_attach, .lets_go = true };
    dtp_error err = { 0 };
    dtp_job *job = NULL;

    int code = read_args(&cmd_attach, true, argc, argv, &a);
    if (code)
        return code;
    if (a.help)
        return cmd_help(&cmd_attach);
    w.no_prefix = a.no_prefix;
    const dtp_job_opts opts = { .size = sizeof(opts), .run_dir = a.run_dir, .on_event = watch_event,
                                .user = &w, .all_output = 1 };
    if (watch_open(&w, &err) < 0 || dtp_job_attach(w.ctx, a.name, &opts, &job, &err) < 0)
        code = watch_fail(&w, &err);
    else
        code = watch_run(&w, job);
    dtp_job_close(job);
    watch_close(&w);
    return code;
}

const dtp_cmd cmd_attach = { "attach", "take over a job whose supervisor has died", attach_help,
                             run_attach };
