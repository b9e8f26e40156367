/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt.c - `dtp-bench ckpt`: what to measure, and its options. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"
#include "ckpt.h"

static const char help[] =
    "usage: dtp-bench ckpt save|load|reshard|stall|codec [OPTIONS]\n"
    "\n"
    "save, load: --ranks processes save a state of --size bytes, or load it again, in turns with the same\n"
    "processes writing or reading plain files of as many bytes (pwrite and fsync, pread) and copying them in\n"
    "memory. reshard: --ranks save, cut along the rows; --to load, cut along the columns. stall: --ranks save\n"
    "in the background while collectives of the same group go on; how long it takes until they may, beside\n"
    "one copy of the state in memory. Every byte that comes back is compared. codec: one core encodes and\n"
    "decodes numbers like those of training, chunk by chunk, with checksums. Rates are plain bytes of all ranks\n"
    "per second (codec: of processor time); a GB is 10^9 bytes; figures are medians, a round lasts until its\n"
    "slowest rank is done.\n"
    "\n"
    "options:\n"
    "      --dir DIR        where files go, into a folder of their own (default .)\n"
    "      --ranks N        processes (default 2)\n"
    "      --to N           processes that load (reshard; default half of --ranks)\n"
    "      --size N         bytes of all ranks together, rounded up to whole tensors (default 256M); codec: of\n"
    "                       one type, rounded up to MiB (default 64M)\n"
    "      --tensor N       bytes of a tensor of 4096 columns (default 64M)\n"
    "      --type TYPE      bf16 f32 f16 (normal weights), adam-m, adam-v, random (default bf16); codec: or all\n"
    "      --codec CODEC    none, zstd or planes (default none; codec: planes)\n"
    "      --files HOW      saves write through uring or posix (default: what is best here)\n"
    "      --rounds N       that count, after one to warm up (default 5; codec: 7)\n"
    "      --warm           load from the page cache (default: files are dropped from it before a round)\n"
    "      --alone          let each rank read for itself what it wants\n"
    "      --check-whole    read of chunks that are wanted in part nothing else, and do not check them\n"
    "      --no-sync        save without fsync, and plain files too\n"
    "      --fio            also what fio reaches with direct I/O, as many processes and bytes; the best of 3\n"
    "      --timeout MS     for ranks to wait for each other (default 300000)\n"
    "      --seed N         of the numbers (default 1)\n"
    "      --format FORMAT  table, or json: one object per line, with the fields bench op codec type ranks bytes\n"
    "                       gb_per_s; codec: ratio encode_gb_per_s decode_gb_per_s memcpy_gb_per_s; the others:\n"
    "                       saved_by rounds min_gb_per_s max_gb_per_s plain_gb_per_s of_plain memcpy_gb_per_s\n"
    "                       cache sync fs cpus, with --fio fio_gb_per_s of_fio, and of a load ratio, read_ratio\n"
    "                       (bytes read to bytes wanted) and extra_bytes (most memory of a rank beside its state);\n"
    "                       stall: stall_ms max_stall_ms memcpy_ms of_memcpy durable_gb_per_s collectives grown_bytes\n"
    "  -h, --help           this text\n"
    "\n"
    "exit status:\n"
    "  0 all bytes came back, 1 they did not or something failed, 2 wrong options\n";

enum {
    OPT_TYPE = 256, OPT_CODEC, OPT_SIZE, OPT_ROUNDS, OPT_SEED, OPT_FORMAT, OPT_DIR, OPT_RANKS, OPT_TO, OPT_TENSOR,
    OPT_WARM, OPT_FILES, OPT_NO_SYNC, OPT_FIO, OPT_TIMEOUT, OPT_CHECK_WHOLE,
    OPT_ALONE
};

static const struct option long_options[] = {
    { "type", required_argument, NULL, OPT_TYPE },     { "codec", required_argument, NULL, OPT_CODEC },
    { "size", required_argument, NULL, OPT_SIZE },     { "rounds", required_argument, NULL, OPT_ROUNDS },
    { "seed", required_argument, NULL, OPT_SEED },     { "format", required_argument, NULL, OPT_FORMAT },
    { "dir", required_argument, NULL, OPT_DIR },       { "ranks", required_argument, NULL, OPT_RANKS },
    { "to", required_argument, NULL, OPT_TO },         { "tensor", required_argument, NULL, OPT_TENSOR },
    { "files", required_argument, NULL, OPT_FILES },
    { "warm", no_argument, NULL, OPT_WARM },           { "no-sync", no_argument, NULL, OPT_NO_SYNC },
    { "fio", no_argument, NULL, OPT_FIO },             { "timeout", required_argument, NULL, OPT_TIMEOUT },
    { "alone", no_argument, NULL, OPT_ALONE },
    { "check-whole", no_argument, NULL, OPT_CHECK_WHOLE },
    { "help", no_argument, NULL, 'h' },                { NULL, 0, NULL, 0 },
};

static bool is_codec(const char *value)
{
    return strcmp(value, "none") == 0 || strcmp(value, "zstd") == 0 || strcmp(value, "planes") == 0;
}

static bool take_int(const char *value, int max, int *out)
{
    int64_t n;

    if (!dtpi_parse_i64(value, 1, max, &n))
        return false;
    *out = (int)n;
    return true;
}

/* False: the value is not possible. */
static bool take_option(void *user, int c, const char *value)
{
    ckpt_options *o = user;
    int64_t n = 0;

    switch (c) {
    case OPT_TYPE:
        o->type = ckpt_type_of(value);
        return o->type || (strcmp(o->op, "codec") == 0 && strcmp(value, "all") == 0);
    case OPT_CODEC:
        o->codec = value;
        return is_codec(value);
    case OPT_SIZE:
        return dtpi_parse_bytes(value, &o->bytes) && o->bytes <= 1ull << 44;
    case OPT_TENSOR:
        return dtpi_parse_bytes(value, &o->tensor_bytes) && o->tensor_bytes <= 1ull << 40;
    case OPT_ROUNDS:
        return take_int(value, CKPT_MAX_ROUNDS, &o->rounds);
    case OPT_RANKS:
        return take_int(value, CKPT_MAX_RANKS, &o->ranks);
    case OPT_TO:
        return take_int(value, CKPT_MAX_RANKS, &o->to);
    case OPT_TIMEOUT:
        return take_int(value, 1 << 30, &o->timeout_ms);
    case OPT_SEED:
        if (!dtpi_parse_i64(value, 0, INT64_MAX, &n))
            return false;
        o->seed = (uint64_t)n;
        return true;
    case OPT_DIR:
        o->dir = value;
        return value[0] && !strchr(value, '\'');
    case OPT_FILES:
        o->files = value;
        return strcmp(value, "uring") == 0 || strcmp(value, "posix") == 0;
    case OPT_WARM:
        o->warm = true;
        return true;
    case OPT_ALONE:
        o->alone = true;
        return true;
    case OPT_CHECK_WHOLE:
        o->check_whole = true;
        return true;
    case OPT_NO_SYNC:
        o->no_sync = true;
        return true;
    case OPT_FIO:
        o->fio = true;
        return true;
    default:
        o->json = strcmp(value, "json") == 0;
        return o->json || strcmp(value, "table") == 0;
    }
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return DTPI_MAX((n + to - 1) / to, (uint64_t)1) * to;
}

static int run_files(ckpt_options *o)
{
    if (bench_is_launched())
        return bench_usage(&bench_ckpt, "starts its ranks itself: no launcher before it");
    o->type = o->type ? o->type : ckpt_type_of("bf16");
    o->tensor_bytes = round_up(DTPI_MIN(o->tensor_bytes, o->bytes),
                               CKPT_COLUMNS * dtp_dtype_bytes(o->type->dtype));
    o->bytes = round_up(o->bytes, o->tensor_bytes);
    o->to = o->to ? o->to : DTPI_MAX(o->ranks / 2, 1);
    return ckpt_run_files(o);
}

static int run(int argc, char **argv)
{
    static const char *const ops[] = { "save", "load", "reshard", "stall", "codec" };
    ckpt_options o = { .dir = ".", .bytes = 256 << 20, .tensor_bytes = 64 << 20, .ranks = 2, .rounds = 5,
                       .timeout_ms = 300000, .codec = "none", .seed = 1 };
    const bench_options read = { &bench_ckpt, ":h", long_options, take_option, &o };

    if (argc < 2)
        return bench_usage(&bench_ckpt, "what to measure is missing: save, load, reshard, stall or codec");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(help, stdout);
        return BENCH_OK;
    }
    for (size_t i = 0; i < DTPI_ARRAY_LEN(ops); i++)
        if (strcmp(argv[1], ops[i]) == 0)
            o.op = ops[i];
    if (!o.op)
        return bench_usage(&bench_ckpt, "'%s' is nothing to measure: save, load, reshard, stall or codec", argv[1]);
    const bool codec = strcmp(o.op, "codec") == 0;
    if (codec) {
        o.bytes = 64 << 20;
        o.rounds = 7;
        o.codec = "planes";
    }
    const int rc = bench_read_options(&read, argc - 1, argv + 1);
    if (rc != BENCH_GO_ON)
        return rc;
    if (!codec)
        return run_files(&o);
    o.bytes = round_up(o.bytes, 1 << 20);
    if (o.bytes > 16ull << 30)
        return bench_usage(&bench_ckpt, "--size: at most 16G of one type");
    return ckpt_run_codec(&o);
}

const bench_cmd bench_ckpt = {
    .name = "ckpt",
    .summary = "saves and loads of checkpoints beside plain files; ratio and speed of the codecs",
    .help = help,
    .run = run,
    .wide_ranks = true,
};
