/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_ckpt.c - `dtp ckpt`: reads the arguments; the commands are in ckpt/. */
#include <errno.h>
#include <getopt.h>

#include "base/text.h"
#include "ckpt/ckpt.h"

static const char help[] =
    "usage: dtp ckpt ls DIR [--format FORMAT]\n"
    "       dtp ckpt show CKPT [STEP] [--format FORMAT]\n"
    "       dtp ckpt verify CKPT [STEP] [--all] [--format FORMAT]\n"
    "       dtp ckpt diff CKPT CKPT [--format FORMAT]\n"
    "       dtp ckpt convert CKPT DIR [--to hf|step] [--max-shard SIZE] [--step N] [--codec CODEC]\n"
    "                        [--format FORMAT]\n"
    "       dtp ckpt gc DIR [--keep N] [--keep-every K] [--yes] [--format FORMAT]\n"
    "       dtp ckpt pin DIR STEP\n"
    "       dtp ckpt unpin DIR STEP\n"
    "\n"
    "Looks after checkpoints. CKPT is a folder of steps (its newest complete one, or STEP), DIR:STEP, the\n"
    "folder of one step, or what others wrote: a safetensors file or folder (Hugging Face), a folder of\n"
    "torch.distributed.checkpoint, a file of torch.save with a plain state dict. Pickles in those are read as\n"
    "data, never executed.\n"
    "\n"
    "commands:\n"
    "  ls       every step, whether it is complete, and what is wrong with it if not\n"
    "  show     what a checkpoint holds: its tensors, its metadata\n"
    "  verify   reads every byte and compares it with its checksums\n"
    "  diff     tensors that are in one only (-, +) or differ (~) in type, shape or content: in how many\n"
    "           chunks of 1 MiB, and where first\n"
    "  convert  writes a Hugging Face model (a step's default) or a step (the default of what others wrote;\n"
    "           it is held in memory)\n"
    "  gc       old steps, and remains of saves: says what would go, removes it with --yes; the newest\n"
    "           complete step, pinned ones and files that others need always stay\n"
    "  pin      marks a complete step, so that no save and no gc removes it; unpin takes the mark away\n"
    "\n"
    "options:\n"
    "  --format FORMAT   text (the default) or json: one object a line\n"
    "  --all             verify every step that has a manifest\n"
    "  --to KIND         hf: safetensors files and an index; step: a checkpoint under DIR\n"
    "  --max-shard SIZE  bytes of a Hugging Face file, with K, M or G (default 5 GB)\n"
    "  --step N          number of the step that convert writes (default: that of CKPT, else 0)\n"
    "  --codec CODEC     of the step that convert writes: none (the default), zstd or planes\n"
    "  --keep N          newest complete steps that gc leaves (default 1)\n"
    "  --keep-every K    gc leaves complete steps that are multiples of K, too\n"
    "  --yes             gc removes\n"
    "  -h, --help        this text\n"
    "\n"
    "A progress bar with rate and time left is shown where stderr is a terminal.\n"
    "exit code: 0; 1 when something is damaged, missing or cannot be read (one line says what). Of diff: 0\n"
    "equal, 1 different, 2 when something cannot be read or an argument is wrong.\n";

enum { OPT_FORMAT = 256, OPT_ALL, OPT_TO, OPT_SHARD, OPT_STEP, OPT_CODEC, OPT_KEEP, OPT_EVERY, OPT_YES };

/* Which options and how many paths a command takes. */
static const struct verb {
    const char *name;
    int (*run)(dtp_ctx *ctx, const ckpt_args *a);
    int n_paths;
    bool step;                  /* a step may follow the path */
    const char *options;        /* names, each with blanks around */
} verbs[] = {
    { "ls", ckpt_ls, 1, false, " format " },
    { "show", ckpt_show, 1, true, " format " },
    { "verify", ckpt_verify, 1, true, " format all " },
    { "diff", ckpt_diff, 2, false, " format " },
    { "convert", ckpt_convert, 2, false, " format to max-shard step codec " },
    { "gc", ckpt_gc, 1, false, " format keep keep-every yes " },
    { "pin", ckpt_pin, 1, true, "" },
    { "unpin", ckpt_unpin, 1, true, "" },
};
static const char verb_names[] = "ls, show, verify, diff, convert, gc, pin or unpin";

static const struct option options[] = {
    { "format", required_argument, NULL, OPT_FORMAT },
    { "all", no_argument, NULL, OPT_ALL },
    { "to", required_argument, NULL, OPT_TO },
    { "max-shard", required_argument, NULL, OPT_SHARD },
    { "step", required_argument, NULL, OPT_STEP },
    { "codec", required_argument, NULL, OPT_CODEC },
    { "keep", required_argument, NULL, OPT_KEEP },
    { "keep-every", required_argument, NULL, OPT_EVERY },
    { "yes", no_argument, NULL, OPT_YES },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

static bool parse_number(const char *text, uint64_t *out)
{
    char *end = NULL;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && errno == 0;
}

static bool parse_codec(const char *text, dtp_codec *out)
{
    static const char *const names[] = { "none", "zstd", "planes" };

    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (dtp_codec)i;
            return true;
        }
    }
    return false;
}

/* One option into `a`; false when its value is none. */
static bool take(int c, const char *value, ckpt_args *a)
{
    uint64_t v = 0;

    switch (c) {
    case OPT_ALL: return a->all = true;
    case OPT_YES: return a->yes = true;
    case OPT_FORMAT:
        a->json = strcmp(value, "json") == 0;
        return a->json || strcmp(value, "text") == 0;
    case OPT_TO:
        a->to = value;
        return strcmp(value, "hf") == 0 || strcmp(value, "step") == 0;
    case OPT_SHARD:
        return dtpi_parse_bytes(value, &a->max_shard_bytes) && a->max_shard_bytes > 0;
    case OPT_STEP: return a->has_step = parse_number(value, &a->step);
    case OPT_CODEC: return parse_codec(value, &a->codec);
    case OPT_EVERY: return parse_number(value, &a->keep_every) && a->keep_every > 0;
    default:
        if (!parse_number(value, &v) || v == 0 || v > UINT32_MAX)
            return false;
        a->keep = (uint32_t)v;
        return true;
    }
}

static const struct verb *find(const char *name)
{
    for (size_t i = 0; i < DTPI_ARRAY_LEN(verbs); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

/* The paths behind the command, and a step. */
static int parse_paths(const struct verb *v, int argc, char **argv, ckpt_args *a)
{
    const int n = argc - optind - 1;
    char **path = argv + optind + 1;

    if (n < v->n_paths)
        return cmd_usage(&cmd_ckpt, n < 1 ? "which checkpoint?" : "%s takes two of them", v->name);
    if (n > v->n_paths + v->step)
        return cmd_usage(&cmd_ckpt, "unexpected argument %s", path[v->n_paths + v->step]);
    a->verb = v->name;
    a->path = path[0];
    a->other = v->n_paths > 1 ? path[1] : NULL;
    if (n > v->n_paths) {
        a->has_step = parse_number(path[v->n_paths], &a->step);
        if (!a->has_step)
            return cmd_usage(&cmd_ckpt, "%s is no step", path[v->n_paths]);
    }
    if (a->all && a->has_step)
        return cmd_usage(&cmd_ckpt, "--all is for verify without a step");
    return CMD_OK;
}

/* CMD_OK and a filled `a`, or a message and CMD_FAILED; `*verb_out` stays NULL after --help. */
static int parse(int argc, char **argv, ckpt_args *a, const struct verb **verb_out)
{
    uint32_t seen = 0;
    int i = 0;

    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", options, &i)) != -1;) {
        if (c == 'h')
            return cmd_help(&cmd_ckpt);
        if (c == '?' || c == ':')
            return cmd_bad_option(&cmd_ckpt, c, argv);
        if (!take(c, optarg, a))
            return cmd_usage(&cmd_ckpt, "--%s cannot be %s", options[i].name, optarg);
        seen |= 1u << i;
    }
    if (optind == argc)
        return cmd_usage(&cmd_ckpt, "%s?", verb_names);
    const struct verb *v = find(argv[optind]);
    if (!v)
        return cmd_usage(&cmd_ckpt, "unknown command %s: %s", argv[optind], verb_names);
    for (i = 0; options[i].name; i++) {
        char name[32];
        snprintf(name, sizeof(name), " %s ", options[i].name);
        if (seen >> i & 1 && !strstr(v->options, name))
            return cmd_usage(&cmd_ckpt, "%s takes no --%s", v->name, options[i].name);
    }
    const int rc = parse_paths(v, argc, argv, a);
    *verb_out = rc == CMD_OK ? v : NULL;
    return rc;
}

static int run(int argc, char **argv)
{
    const bool is_diff = argc > 1 && strcmp(argv[1], "diff") == 0;
    const int failed = is_diff ? CKPT_DIFF_TROUBLE : CMD_FAILED;
    const struct verb *verb = NULL;
    ckpt_args a = { 0 };
    dtp_error err = { 0 };
    dtp_ctx *ctx = NULL;

    int rc = parse(argc, argv, &a, &verb);
    if (!verb)
        return rc == CMD_OK ? rc : failed;
    if (dtp_ctx_open(NULL, &ctx, &err) < 0) {
        cmd_fail(&cmd_ckpt, &err);
        return failed;
    }
    rc = verb->run(ctx, &a);
    dtp_ctx_close(ctx);
    return rc;
}

const dtp_cmd cmd_ckpt = {
    .name = "ckpt",
    .summary = "list, show, verify, compare, convert and clear checkpoints",
    .help = help,
    .run = run,
};
