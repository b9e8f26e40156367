/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_ckpt.c - `dtp ckpt`: lists, shows and verifies checkpoints. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dtp/ckpt.h>

#include "ckpt/json.h"
#include "ckpt/steps.h"
#include "cmd.h"

static const char help[] =
    "usage: dtp ckpt ls DIR [--format FORMAT]\n"
    "       dtp ckpt show DIR [STEP] [--format FORMAT]\n"
    "       dtp ckpt verify DIR [STEP] [--all]\n"
    "\n"
    "Looks at the checkpoints under DIR. STEP is a number; without it, the newest complete step.\n"
    "\n"
    "commands:\n"
    "  ls      every step, whether it is complete, and what is wrong with it if not\n"
    "  show    what a step holds: its tensors, its metadata\n"
    "  verify  reads every byte of a step and compares it with its checksums; shows a progress bar "
    "on\n"
    "          a terminal\n"
    "\n"
    "options:\n"
    "  --format FORMAT  text (the default) or json: one object a line\n"
    "  --all            verify every step that has a manifest\n"
    "  -h, --help       this text\n"
    "\n"
    "exit code: 0; 1 when something is damaged, missing or cannot be read (one line says what).\n";

typedef struct args {
    const char *verb, *dir;
    bool has_step, json, all;
    uint64_t step;
} args;

static void human(uint64_t bytes, char *text_out, size_t room)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    double v = (double)bytes;
    size_t u = 0;

    for (; v >= 1024 && u + 1 < sizeof(units) / sizeof(units[0]); u++)
        v /= 1024;
    snprintf(text_out, room, u ? "%.1f %s" : "%.0f %s", v, units[u]);
}

static void print_json_text(const char *text)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    dtpi_json_put(&b, text, strlen(text));
    fwrite(b.data, 1, b.len, stdout);
    dtpi_buf_free(&b);
}

/* What a file says, on one line: blanks of a JSON text may be newlines, and a name may hold escapes. */
static void print_line(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text);
}

static void print_shape(const dtp_ckpt_tensor *t)
{
    putchar('[');
    for (uint32_t i = 0; i < t->n_dims; i++)
        printf("%s%" PRId64, i ? ", " : "", t->shape[i]);
    putchar(']');
}

/* All step numbers; free the array. */
static dtp_status list_steps(dtp_ctx *ctx, const char *dir, uint64_t **steps_out, size_t *n_out,
                             dtp_error *err)
{
    size_t n = 0, room = 0;
    uint64_t *steps = NULL;

    do {
        room = n;
        free(steps);
        steps = calloc(room + 1, sizeof(*steps));
        if (!steps)
            return dtpi_fail_nomem(err, room * sizeof(*steps));
        const dtp_status st = dtp_ckpt_list(ctx, dir, steps, room, &n, err);
        if (st < 0) {
            free(steps);
            return st;
        }
    } while (n > room);
    *steps_out = steps;
    *n_out = n;
    return DTP_OK;
}

/* Manifest and the sizes of files, as dtp_ckpt_latest looks at them. */
static dtp_status check_step(const char *dir, uint64_t step, dtp_error *err)
{
    DTPI_AUTO(files) dtpi_files *files = NULL;
    const dtp_status st = dtpi_files_open(&dtpi_malloc_allocator, "posix", &files, err);

    return st < 0 ? st : dtpi_step_check(files, dir, step, err);
}

static bool has_manifest(const char *dir, uint64_t step)
{
    char step_dir[DTPI_PATH_MAX], path[DTPI_PATH_MAX];

    return dtpi_step_path(step_dir, dir, step, NULL) >= 0 &&
           dtpi_path_join(path, step_dir, DTPI_MANIFEST_NAME, NULL) >= 0 && access(path, F_OK) == 0;
}

/* ---- ls ---- */

static void print_good(const args *a, const dtp_ckpt_info *i)
{
    char bytes[32], stored[32];

    if (a->json) {
        printf("{\"step\":%" PRIu64
               ",\"complete\":true,\"world_size\":%u,\"tensors\":%u,\"shards\":%u,"
               "\"bytes\":%" PRIu64 ",\"stored_bytes\":%" PRIu64 "}\n",
               i->step, i->world_size, i->n_tensors, i->n_shards, i->bytes, i->stored_bytes);
        return;
    }
    human(i->bytes, bytes, sizeof(bytes));
    human(i->stored_bytes, stored, sizeof(stored));
    printf("%12" PRIu64 "  complete  %6u  %8u  %7u  %10s  %10s\n", i->step, i->world_size,
           i->n_tensors, i->n_shards, bytes, stored);
}

static void print_bad(const args *a, uint64_t step, const char *state, const char *why)
{
    if (a->json) {
        printf("{\"step\":%" PRIu64 ",\"complete\":false,\"state\":\"%s\",\"why\":", step, state);
        print_json_text(why);
        printf("}\n");
        return;
    }
    printf("%12" PRIu64 "  %s: %s\n", step, state, why);
}

/* A step without a manifest is a save that did not end; one with a wrong manifest or shard is damaged. */
static bool print_step(dtp_ctx *ctx, const args *a, uint64_t step)
{
    dtp_ckpt_info info = { .size = sizeof(info) };
    dtp_ckpt *ckpt = NULL;
    dtp_error err = { 0 };

    if (!has_manifest(a->dir, step)) {
        print_bad(a, step, "incomplete", "no manifest (a save that did not end)");
        return true;
    }
    dtp_status st = check_step(a->dir, step, &err);
    if (st >= 0)
        st = dtp_ckpt_open(ctx, a->dir, step, &ckpt, &err);
    if (st >= 0)
        st = dtp_ckpt_get_info(ckpt, &info, &err);
    if (st >= 0)
        print_good(a, &info);
    else
        print_bad(a, step, "damaged", err.text);
    dtp_ckpt_close(ckpt);
    return st >= 0;
}

static int run_ls(dtp_ctx *ctx, const args *a)
{
    uint64_t *steps = NULL;
    dtp_error err = { 0 };
    bool good = true;
    size_t n = 0;

    if (list_steps(ctx, a->dir, &steps, &n, &err) < 0)
        return cmd_fail(&cmd_ckpt, &err);
    if (!a->json && n > 0)
        printf("%12s  %-8s  %6s  %8s  %7s  %10s  %10s\n", "step", "state", "ranks", "tensors",
               "shards", "bytes", "stored");
    for (size_t i = 0; i < n; i++)
        good &= print_step(ctx, a, steps[i]);
    free(steps);
    const int rc = cmd_finish(&cmd_ckpt);
    return good ? rc : CMD_FAILED;
}

/* ---- show ---- */

static void print_tensor(const args *a, const dtp_ckpt_tensor *t)
{
    if (a->json) {
        printf("{\"tensor\":");
        print_json_text(t->name);
        printf(",\"dtype\":\"%s\",\"shape\":", dtp_dtype_name(t->dtype));
        print_shape(t);
        printf("}\n");
        return;
    }
    printf("  %-8s ", dtp_dtype_name(t->dtype));
    print_shape(t);
    printf("  ");
    print_line(t->name);
    putchar('\n');
}

static void print_head(const args *a, const dtp_ckpt_info *i)
{
    char bytes[32], stored[32];

    human(i->bytes, bytes, sizeof(bytes));
    human(i->stored_bytes, stored, sizeof(stored));
    if (a->json)
        printf("{\"step\":%" PRIu64
               ",\"world_size\":%u,\"tensors\":%u,\"shards\":%u,\"bytes\":%" PRIu64
               ",\"stored_bytes\":%" PRIu64 ",\"meta\":",
               i->step, i->world_size, i->n_tensors, i->n_shards, i->bytes, i->stored_bytes);
    else
        printf("step %" PRIu64 ": %u tensors, %s (%s in %u shards), saved by %u ranks\nmeta: ",
               i->step, i->n_tensors, bytes, stored, i->n_shards, i->world_size);
    print_line(i->meta_json);
    puts(a->json ? "}" : "");
}

/* The step asked for, or the newest complete one. */
static dtp_status choose(dtp_ctx *ctx, const args *a, uint64_t *step_out, dtp_error *err)
{
    *step_out = a->step;
    return a->has_step ? DTP_OK : dtp_ckpt_latest(ctx, a->dir, step_out, err);
}

static int run_show(dtp_ctx *ctx, const args *a)
{
    dtp_ckpt_info info = { .size = sizeof(info) };
    dtp_ckpt *ckpt = NULL;
    dtp_error err = { 0 };
    uint64_t step = 0;

    dtp_status st = choose(ctx, a, &step, &err);
    if (st >= 0)
        st = dtp_ckpt_open(ctx, a->dir, step, &ckpt, &err);
    if (st >= 0)
        st = dtp_ckpt_get_info(ckpt, &info, &err);
    if (st >= 0)
        print_head(a, &info);
    for (uint32_t i = 0; i < info.n_tensors && st >= 0; i++) {
        dtp_ckpt_tensor t = { .size = sizeof(t) };
        st = dtp_ckpt_get_tensor(ckpt, i, &t, &err);
        if (st >= 0)
            print_tensor(a, &t);
    }
    dtp_ckpt_close(ckpt);
    return st < 0 ? cmd_fail(&cmd_ckpt, &err) : cmd_finish(&cmd_ckpt);
}

/* ---- verify ---- */

typedef struct bar {
    dtp_ctx *ctx;
    uint64_t step;
    int64_t begun_ns, drawn_ns;
    bool on;
} bar;

static void draw(void *user, uint64_t done, uint64_t total)
{
    enum { WIDTH = 30 };
    bar *b = user;
    const int64_t now = dtp_ctx_now_ns(b->ctx);
    char marks[WIDTH + 1];

    if (!b->on || (done < total && now - b->drawn_ns < 100000000))
        return;
    b->drawn_ns = now;
    const double share = total ? (double)done / (double)total : 1;
    const double seconds = (double)(now - b->begun_ns) / 1e9 + 1e-9;
    memset(marks, ' ', WIDTH);
    memset(marks, '#', (size_t)(share * WIDTH));
    marks[WIDTH] = '\0';
    fprintf(stderr, "\rstep %" PRIu64 " [%s] %3.0f %%  %.2f GB/s  %.0f s left \x1b[K", b->step,
            marks, 100 * share, (double)done / seconds / 1e9,
            share > 0 ? seconds / share - seconds : 0.0);
    if (done == total)
        fprintf(stderr, "\r\x1b[K");
    fflush(stderr);
}

static bool verify_step(dtp_ctx *ctx, const args *a, uint64_t step)
{
    bar b = {
        .ctx = ctx, .step = step, .begun_ns = dtp_ctx_now_ns(ctx), .on = isatty(STDERR_FILENO)
    };
    dtp_ckpt_info info = { .size = sizeof(info) };
    dtp_ckpt *ckpt = NULL;
    dtp_error err = { 0 };
    char stored[32];

    dtp_status st = dtp_ckpt_open(ctx, a->dir, step, &ckpt, &err);
    if (st >= 0)
        st = dtp_ckpt_get_info(ckpt, &info, &err);
    if (st >= 0)
        st = dtp_ckpt_verify(ckpt, draw, &b, &err);
    dtp_ckpt_close(ckpt);
    if (st < 0) {
        if (b.drawn_ns)
            fprintf(stderr, "\r\x1b[K");
        cmd_fail(&cmd_ckpt, &err);
        return false;
    }
    human(info.stored_bytes, stored, sizeof(stored));
    const double seconds = (double)(dtp_ctx_now_ns(ctx) - b.begun_ns) / 1e9 + 1e-9;
    if (a->json)
        printf("{\"step\":%" PRIu64 ",\"ok\":true,\"stored_bytes\":%" PRIu64 ",\"seconds\":%.3f}\n",
               step, info.stored_bytes, seconds);
    else
        printf("step %" PRIu64 ": ok (%s, %u tensors, %.2f GB/s)\n", step, stored, info.n_tensors,
               (double)info.stored_bytes / seconds / 1e9);
    return true;
}

/* Every step that has a manifest, or only the newest of them: damage is to be found, not passed over. */
static int verify_many(dtp_ctx *ctx, const args *a)
{
    uint64_t *steps = NULL;
    dtp_error err = { 0 };
    bool good = true, any = false;
    size_t n = 0;

    if (list_steps(ctx, a->dir, &steps, &n, &err) < 0)
        return cmd_fail(&cmd_ckpt, &err);
    for (size_t i = n; i-- > 0 && (a->all || !any);) {
        if (!has_manifest(a->dir, steps[i]))
            continue;
        any = true;
        good &= verify_step(ctx, a, steps[i]);
    }
    free(steps);
    if (!any) {
        dtpi_fail(&err, DTP_ERR_NOT_FOUND, "no complete checkpoint under %s", a->dir);
        return cmd_fail(&cmd_ckpt, &err);
    }
    const int rc = cmd_finish(&cmd_ckpt);
    return good ? rc : CMD_FAILED;
}

static int run_verify(dtp_ctx *ctx, const args *a)
{
    if (!a->has_step)
        return verify_many(ctx, a);
    const bool good = verify_step(ctx, a, a->step);
    const int rc = cmd_finish(&cmd_ckpt);
    return good ? rc : CMD_FAILED;
}

/* ---- arguments ---- */

static bool parse_step(const char *text, uint64_t *out)
{
    char *end = NULL;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && errno == 0;
}

/* CMD_OK and a filled `a`, or a message and CMD_FAILED; `*done` after --help. */
static int parse(int argc, char **argv, args *a, bool *done)
{
    static const struct option options[] = {
        { "format", required_argument, NULL, 'f' },
        { "all", no_argument, NULL, 'a' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };

    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        if (c == 'h') {
            *done = true;
            return cmd_help(&cmd_ckpt);
        }
        if (c == '?' || c == ':')
            return cmd_bad_option(&cmd_ckpt, c, argv);
        if (c == 'a')
            a->all = true;
        else if (c == 'f' && strcmp(optarg, "json") == 0)
            a->json = true;
        else if (c == 'f' && strcmp(optarg, "text") != 0)
            return cmd_usage(&cmd_ckpt, "unknown format %s: text or json", optarg);
    }
    const int n = argc - optind;
    if (n < 2)
        return cmd_usage(&cmd_ckpt, n < 1 ? "ls, show or verify?" : "which folder?");
    a->verb = argv[optind];
    a->dir = argv[optind + 1];
    a->has_step = n > 2;
    if (n > 3 || (n > 2 && strcmp(a->verb, "ls") == 0))
        return cmd_usage(&cmd_ckpt, "unexpected argument %s", argv[argc - 1]);
    if (n > 2 && !parse_step(argv[optind + 2], &a->step))
        return cmd_usage(&cmd_ckpt, "%s is no step", argv[optind + 2]);
    if (a->all && (a->has_step || strcmp(a->verb, "verify") != 0))
        return cmd_usage(&cmd_ckpt, "--all is for verify without a step");
    return CMD_OK;
}

static int run(int argc, char **argv)
{
    static const struct {
        const char *verb;
        int (*run)(dtp_ctx *ctx, const args *a);
    } verbs[] = { { "ls", run_ls }, { "show", run_show }, { "verify", run_verify } };
    args a = { 0 };
    dtp_error err = { 0 };
    dtp_ctx *ctx = NULL;
    bool done = false;

    int rc = parse(argc, argv, &a, &done);
    if (rc != CMD_OK || done)
        return rc;
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(a.verb, verbs[i].verb) != 0)
            continue;
        if (dtp_ctx_open(NULL, &ctx, &err) < 0)
            return cmd_fail(&cmd_ckpt, &err);
        rc = verbs[i].run(ctx, &a);
        dtp_ctx_close(ctx);
        return rc;
    }
    return cmd_usage(&cmd_ckpt, "unknown command %s: ls, show or verify", a.verb);
}

const dtp_cmd cmd_ckpt = {
    .name = "ckpt", .summary = "list, show and verify checkpoints", .help = help, .run = run
};
