/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_logs.c - `dtp logs`: prints the log files of a job, and follows them while it runs. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dtp/job.h>

#include "base/base.h"
#include "base/text.h"
#include "job/lines.h"

#include "cmd.h"
#include "watch.h"

static const char help[] =
    "usage: dtp logs [OPTIONS] JOB\n"
    "\n"
    "Prints what the ranks of JOB have written, with the rank in front, rank after rank; what they wrote\n"
    "to standard error goes there.\n"
    "\n"
    "options:\n"
    "  -f, --follow    go on until the job has ended\n"
    "  --rank R        of this rank only\n"
    "  --attempt A     of this attempt (the last)\n"
    "  --no-prefix     print lines without the rank\n"
    "  --run-dir DIR   where records are (/run/dtp, or /tmp/dtp-UID)\n"
    "  -h, --help      this text\n";

enum { LOOK_EVERY_MS = 100, CHUNK = 1 << 16, OPT_RANK = 256, OPT_ATTEMPT, OPT_RUN_DIR, OPT_NO_PREFIX };

typedef struct args {
    const char *name, *run_dir;
    int64_t rank, attempt;      /* -1: all, the last */
    bool follow, no_prefix, help;
} args;

/* One log file: what was printed of it, and a line that has not ended. */
typedef struct log {
    uint32_t rank;
    int stream;
    off_t at;
    dtpi_buf part;
    const args *a;
} log;

static bool read_number(const char *option, int64_t *out)
{
    if (dtpi_parse_i64(optarg, 0, INT32_MAX, out))
        return true;
    cmd_usage(&cmd_logs, "%s: '%s' is not a number", option, optarg);
    return false;
}

static int read_args(int argc, char **argv, args *a)
{
    static const struct option options[] = {
        { "follow", no_argument, NULL, 'f' },
        { "rank", required_argument, NULL, OPT_RANK },
        { "attempt", required_argument, NULL, OPT_ATTEMPT },
        { "run-dir", required_argument, NULL, OPT_RUN_DIR },
        { "no-prefix", no_argument, NULL, OPT_NO_PREFIX },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":fh", options, NULL)) != -1;) {
        switch (c) {
        case 'f':
            a->follow = true;
            break;
        case OPT_RANK:
            if (!read_number("rank", &a->rank))
                return WATCH_FAILED;
            break;
        case OPT_ATTEMPT:
            if (!read_number("attempt", &a->attempt))
                return WATCH_FAILED;
            break;
        case OPT_RUN_DIR:
            a->run_dir = optarg;
            break;
        case OPT_NO_PREFIX:
            a->no_prefix = true;
            break;
        case 'h':
            a->help = true;
            break;
        default:
            cmd_bad_option(&cmd_logs, c, argv);
            return WATCH_FAILED;
        }
    }
    a->name = optind + 1 == argc ? argv[optind] : NULL;
    if (!a->name && !a->help) {
        cmd_usage(&cmd_logs, "the name of one job is expected");
        return WATCH_FAILED;
    }
    return 0;
}

static void print_line(void *user, const char *line, size_t bytes)
{
    const log *l = user;
    FILE *out = l->stream == 2 ? stderr : stdout;

    if (!l->a->no_prefix)
        fprintf(out, "[%u] ", l->rank);
    fwrite(line, 1, bytes, out);
    putc('\n', out);
}

/* Prints what has come to the file; true when it was something. */
static bool print_new(log *l, const char *dir, uint32_t attempt)
{
    char path[PATH_MAX], data[CHUNK];
    bool any = false;

    if (snprintf(path, sizeof(path), "%s/attempt-%u/rank-%u.%s", dir, attempt, l->rank,
                 l->stream == 1 ? "out" : "err") >= (int)sizeof(path))
        return false;
    DTPI_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = pread(fd, data, sizeof(data), l->at)) > 0; l->at += n) {
        dtpi_lines_feed(&l->part, data, (size_t)n, print_line, l);
        any = true;
    }
    return any;
}

/* One round over all ranks of an attempt. */
static bool print_round(log *logs, uint32_t n, const char *dir, uint32_t attempt)
{
    bool any = false;

    for (uint32_t i = 0; i < 2 * n; i++)
        if (logs[i].a->rank < 0 || (uint32_t)logs[i].a->rank == logs[i].rank)
            any |= print_new(&logs[i], dir, attempt);
    fflush(stdout);
    fflush(stderr);
    return any;
}

static dtp_status look(dtp_ctx *ctx, const args *a, dtp_job_info *info, dtp_job **job_out,
                       dtp_error *err)
{
    const dtp_job_opts opts = { .size = sizeof(opts), .run_dir = a->run_dir, .look_only = 1 };

    const dtp_status st = dtp_job_attach(ctx, a->name, &opts, job_out, err);
    info->size = sizeof(*info);
    return st < 0 ? st : dtp_job_get_info(*job_out, info, err);
}

/* Prints one attempt; with --follow until it is over. `*next_out`: the job has gone on to another. */
static dtp_status print_attempt(dtp_ctx *ctx, const args *a, uint32_t attempt, uint32_t n,
                                bool *next_out, dtp_error *err)
{
    log *logs = calloc(2 * (size_t)n, sizeof(*logs));
    bool is_over = false;
    dtp_status st = DTP_OK;

    for (uint32_t i = 0; logs && i < 2 * n; i++)
        logs[i] = (log){ .rank = i / 2, .stream = (int)(i % 2) + 1, .a = a,
                         .part = dtpi_buf_init(&dtpi_malloc_allocator) };
    for (bool any = true; logs && st >= 0 && (!is_over || any);) {
        dtp_job_info info;
        dtp_job *job = NULL;
        st = look(ctx, a, &info, &job, err);
        if (st >= 0) {
            *next_out = info.attempt > attempt;
            is_over = !a->follow || *next_out || info.state >= DTP_JOB_DONE;
            any = print_round(logs, n, info.log_dir, attempt);
        }
        dtp_job_close(job);
        if (!any && !is_over)
            poll(NULL, 0, LOOK_EVERY_MS);
    }
    for (uint32_t i = 0; logs && i < 2 * n; i++) {
        dtpi_lines_end(&logs[i].part, print_line, &logs[i]);
        dtpi_buf_free(&logs[i].part);
    }
    free(logs);
    return st;
}

static dtp_status print_job(dtp_ctx *ctx, const args *a, dtp_error *err)
{
    for (bool more = true; more;) {
        dtp_job_info info;
        dtp_job *job = NULL;
        dtp_status st = look(ctx, a, &info, &job, err);
        if (st < 0)
            return st;
        /* An earlier attempt may have had more ranks than the present one. */
        const uint32_t attempt = a->attempt < 0 ? info.attempt : (uint32_t)a->attempt;
        const uint32_t n = attempt == info.attempt ? info.n_ranks : info.n_ranks_asked;
        dtp_job_close(job);
        if (attempt > info.attempt && (!a->follow || info.state >= DTP_JOB_DONE))
            return dtpi_fail(err, DTP_ERR_NOT_FOUND, "job '%s' has no attempt %u, the last is %u", a->name,
                             attempt, info.attempt);
        if (a->rank >= (int64_t)n)
            return dtpi_fail(err, DTP_ERR_NOT_FOUND, "attempt %u of job '%s' has no rank %lld, only %u ranks",
                             attempt, a->name, (long long)a->rank, n);
        st = print_attempt(ctx, a, attempt, n, &more, err);
        if (st < 0)
            return st;
        more = more && a->follow && a->attempt < 0;
    }
    return DTP_OK;
}

static int run(int argc, char **argv)
{
    args a = { .rank = -1, .attempt = -1 };
    dtp_error err = { 0 };
    dtp_ctx *ctx = NULL;

    const int code = read_args(argc, argv, &a);
    if (code)
        return code;
    if (a.help)
        return cmd_help(&cmd_logs);
    dtp_status st = dtp_ctx_open(NULL, &ctx, &err);
    if (st >= 0)
        st = print_job(ctx, &a, &err);
    dtp_ctx_close(ctx);
    if (st < 0) {
        cmd_fail(&cmd_logs, &err);
        return WATCH_FAILED;
    }
    return cmd_finish(&cmd_logs);
}

const dtp_cmd cmd_logs = { "logs", "print what the ranks of a job wrote", help, run };
