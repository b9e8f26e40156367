/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_run.c - `dtp run`: starts a gang on this machine and stays with it until it ends. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "job/spec.h"

#include "cmd.h"
#include "watch.h"

static const char help[] =
    "usage: dtp run [OPTIONS] -n N -- PROGRAM [ARGUMENTS]\n"
    "       dtp run [OPTIONS] -f SPEC.yaml\n"
    "\n"
    "Starts N ranks of PROGRAM on this machine, bound to cores and GPUs, and prints their output with\n"
    "the rank in front. When a rank fails, the others are ended, and the gang is started again as often\n"
    "as --max-restarts allows. Ctrl-C ends the job, a second one kills it.\n"
    "\n"
    "options:\n"
    "  -n, --ranks N         ranks to start\n"
    "  --max-restarts K      attempts after the first (0)\n"
    "  --min-ranks M         a restart may have fewer ranks, but not fewer than M (N)\n"
    "  --reform SECONDS      survivors of a death get so long to form a group of at least M ranks (0);\n"
    "                        needs --min-ranks, else no group without the dead is large enough\n"
    "  --ckpt DIR            folder for checkpoints, given to the ranks as DTP_CKPT_DIR\n"
    "  --name NAME           name of the job (made from time and process)\n"
    "  --gpus-per-rank G     GPUs of a rank (0)\n"
    "  --cores-per-rank C    cores of a rank (an equal share)\n"
    "  --no-bind             no binding to cores, and no locks on them\n"
    "  --grace SECONDS       between SIGTERM and SIGKILL (5)\n"
    "  --env NAME=VALUE      a variable for the ranks; may be given several times\n"
    "  --cwd DIR             folder of the ranks (the present one)\n"
    "  --run-dir DIR         where records, locks and logs are (/run/dtp, or /tmp/dtp-UID)\n"
    "  -f, --file SPEC.yaml  the same from a file; options given here win (docs/formats/job-spec.md)\n"
    "  --no-prefix           print lines without the rank\n"
    "  -h, --help            this text\n"
    "\n"
    "exit code: 0 when the last attempt succeeded; else what its first failed rank ended with: its code,\n"
    "or 128 + n for signal n. 125 when dtp itself fails, 126 and 127 when PROGRAM cannot be executed or\n"
    "is not found, 130 after Ctrl-C.\n";

enum {
    OPT_RESTARTS = 256, OPT_MIN, OPT_CKPT, OPT_NAME, OPT_GPUS, OPT_CORES, OPT_NO_BIND, OPT_GRACE,
    OPT_REFORM,
    OPT_ENV, OPT_CWD, OPT_RUN_DIR, OPT_NO_PREFIX
};

static const struct option options[] = {
    { "ranks", required_argument, NULL, 'n' },
    { "max-restarts", required_argument, NULL, OPT_RESTARTS },
    { "min-ranks", required_argument, NULL, OPT_MIN },
    { "ckpt", required_argument, NULL, OPT_CKPT },
    { "name", required_argument, NULL, OPT_NAME },
    { "gpus-per-rank", required_argument, NULL, OPT_GPUS },
    { "cores-per-rank", required_argument, NULL, OPT_CORES },
    { "no-bind", no_argument, NULL, OPT_NO_BIND },
    { "reform", required_argument, NULL, OPT_REFORM },
    { "grace", required_argument, NULL, OPT_GRACE },
    { "env", required_argument, NULL, OPT_ENV },
    { "cwd", required_argument, NULL, OPT_CWD },
    { "run-dir", required_argument, NULL, OPT_RUN_DIR },
    { "file", required_argument, NULL, 'f' },
    { "no-prefix", no_argument, NULL, OPT_NO_PREFIX },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

static const char short_options[] = "+:n:f:h";

typedef struct run_args {
    dtpi_spec spec;
    const char *file;
    const char *run_dir;
    bool no_prefix;
    bool help;
} run_args;

static int bad(const char *option, const char *value, const char *want)
{
    cmd_usage(&cmd_run, "%s: '%s' is not %s", option, value, want);
    return WATCH_FAILED;
}

static bool read_u32(const char *text, uint32_t *out)
{
    int64_t v;

    if (!dtpi_parse_i64(text, 0, INT32_MAX, &v))
        return false;
    *out = (uint32_t)v;
    return true;
}

static bool read_ms(const char *text, int32_t *out)
{
    char *end;
    const double v = strtod(text, &end);

    if (end == text || *end || !(v >= 0.001 && v <= 86400))
        return false;
    *out = (int32_t)(v * 1000);
    return true;
}

static void set_text(dtpi_spec *s, char **at, const char *text)
{
    dtpi_text_free(s->a, *at);
    *at = dtpi_text_dup(s->a, text);
}

/* Where an option's number goes; NULL for others. */
static uint32_t *number_of(dtpi_spec *s, int c)
{
    switch (c) {
    case 'n':
        return &s->n_ranks;
    case OPT_RESTARTS:
        return &s->max_restarts;
    case OPT_MIN:
        return &s->min_ranks;
    case OPT_GPUS:
        return &s->gpus_per_rank;
    case OPT_CORES:
        return &s->cores_per_rank;
    default:
        return NULL;
    }
}

static const char *name_of(int c)
{
    for (const struct option *o = options; o->name; o++)
        if (o->val == c)
            return o->name;
    return "?";
}

/* One option of the second pass; 0 or an exit code. */
static int take_option(run_args *a, int c)
{
    dtpi_spec *s = &a->spec;
    uint32_t *number = number_of(s, c);
    size_t len;

    if (number)
        return read_u32(optarg, number) ? 0 : bad(name_of(c), optarg, "a number");
    switch (c) {
    case OPT_CKPT:
        set_text(s, &s->ckpt_dir, optarg);
        return 0;
    case OPT_NAME:
        set_text(s, &s->name, optarg);
        return 0;
    case OPT_CWD:
        set_text(s, &s->cwd, optarg);
        return 0;
    case OPT_NO_BIND:
        s->no_bind = 1;
        return 0;
    case OPT_GRACE:
        return read_ms(optarg, &s->grace_ms) ? 0 : bad("grace", optarg, "a number of seconds from 0.001 to 86400");
    case OPT_REFORM:
        return read_ms(optarg, &s->reform_ms) ? 0 : bad("reform", optarg, "a number of seconds from 0.001 to 86400");
    case OPT_ENV:
        if (!dtpi_var_ok(optarg, &len))
            return bad("env", optarg, "of the form NAME=VALUE");
        dtpi_texts_add(&s->env.buf, &s->env.n, optarg);
        return 0;
    case OPT_RUN_DIR:
        a->run_dir = optarg;
        return 0;
    case OPT_NO_PREFIX:
        a->no_prefix = true;
        return 0;
    case 'h':
        a->help = true;
        return 0;
    case 'f':
        a->file = optarg;
        return 0;
    default:
        return WATCH_FAILED;
    }
}

static int read_file(run_args *a)
{
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(a->spec.a);
    dtp_error err = { 0 };

    FILE *f = fopen(a->file, "re");
    if (!f) {
        fprintf(stderr, "dtp run: cannot open %s: %s\n", a->file, strerror(errno));
        return WATCH_FAILED;
    }
    while (!feof(f) && !ferror(f) && text.len <= DTPI_SPEC_MAX_FILE) {
        uint8_t *p = dtpi_buf_reserve(&text, 65536);
        if (!p)
            break;
        text.len += fread(p, 1, 65536, f);
    }
    const bool failed = ferror(f) || text.failed;
    fclose(f);
    if (failed) {
        fprintf(stderr, "dtp run: cannot read %s\n", a->file);
        return WATCH_FAILED;
    }
    if (dtpi_spec_parse(&a->spec, (const char *)text.data, text.len, &err) >= 0)
        return 0;
    fprintf(stderr, "dtp run: %s: %s\n", a->file, err.text);
    return WATCH_FAILED;
}

/* Two passes: the file first, so that options win over it. */
static int read_args(run_args *a, int argc, char **argv)
{
    int code = 0, c;

    opterr = 0;
    optind = 1;
    while ((c = getopt_long(argc, argv, short_options, options, NULL)) != -1) {
        if (c == '?' || c == ':') {
            cmd_bad_option(&cmd_run, c, argv);
            return WATCH_FAILED;
        }
        if (c == 'f')
            a->file = optarg;
        if (c == 'h')
            a->help = true;
    }
    if (a->help)
        return 0;
    if (a->file)
        code = read_file(a);
    optind = 1;
    while (code == 0 && (c = getopt_long(argc, argv, short_options, options, NULL)) != -1)
        code = take_option(a, c);
    if (code == 0 && optind < argc) {
        dtpi_buf_reset(&a->spec.argv.buf);
        a->spec.argv.n = 0;
        for (int i = optind; i < argc; i++)
            dtpi_texts_add(&a->spec.argv.buf, &a->spec.argv.n, argv[i]);
    }
    if (code == 0 && a->spec.n_ranks == 0) {
        cmd_usage(&cmd_run, "the number of ranks is missing: -n N");
        code = WATCH_FAILED;
    }
    if (code == 0 && a->spec.argv.n == 0) {
        cmd_usage(&cmd_run, "the program to run is missing");
        code = WATCH_FAILED;
    }
    return code;
}

/* A list as the NULL-terminated vector of the public struct. */
static const char **vector(const dtpi_list *l)
{
    const dtpi_texts texts = dtpi_list_texts(l);
    const char **v = calloc((size_t)texts.n + 1, sizeof(*v));
    size_t n = 0;

    for (const char *t = dtpi_texts_next(&texts, NULL); v && t; t = dtpi_texts_next(&texts, t))
        v[n++] = t;
    return v;
}

static int start(watch *w, const run_args *a)
{
    const dtpi_spec *s = &a->spec;
    const char **args = vector(&s->argv), **env = vector(&s->env);
    const dtp_job_spec spec = {
        .size = sizeof(spec), .name = s->name, .argv = args, .env = env,
        .env_base = (const char *const *)environ, .cwd = s->cwd, .n_ranks = s->n_ranks,
        .min_ranks = s->min_ranks, .max_restarts = s->max_restarts,
        .gpus_per_rank = s->gpus_per_rank, .cores_per_rank = s->cores_per_rank,
        .no_bind = s->no_bind, .ckpt_dir = s->ckpt_dir, .grace_ms = s->grace_ms,
        .reform_ms = s->reform_ms,
    };
    const dtp_job_opts opts = { .size = sizeof(opts), .run_dir = a->run_dir,
                                .on_event = watch_event, .user = w };
    dtp_error err = { 0 };
    dtp_job *job = NULL;
    int code;

    if (!args || !env)
        code = WATCH_FAILED;
    else if (dtp_job_start(w->ctx, &spec, &opts, &job, &err) < 0)
        code = watch_fail(w, &err);
    else
        code = watch_run(w, job);
    dtp_job_close(job);
    free(args);
    free(env);
    return code;
}

static int run(int argc, char **argv)
{
    run_args a = { .file = NULL };
    watch w = { .cmd = &cmd_run };
    dtp_error err = { 0 };

    dtpi_spec_init(&a.spec, &dtpi_malloc_allocator);
    int code = read_args(&a, argc, argv);
    if (code == 0 && a.help) {
        dtpi_spec_free(&a.spec);
        return cmd_help(&cmd_run);
    }
    w.no_prefix = a.no_prefix;
    if (code == 0 && watch_open(&w, &err) < 0)
        code = watch_fail(&w, &err);
    else if (code == 0)
        code = start(&w, &a);
    watch_close(&w);
    dtpi_spec_free(&a.spec);
    return code;
}

const dtp_cmd cmd_run = { "run", "start a gang of ranks and stay with it", help, run };
