/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.c - what the codecs of checkpoints gain and cost: one chunk after the other on one core, each
 * stored byte with its checksum, as a save and a load do it.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "base/sum.h"
#include "base/text.h"
#include "bench.h"
#include "codec/codec.h"
#include "coll/kernel_f16.h"

enum { CHUNK = 1 << 20, MAX_ROUNDS = 101, MAX_CHUNKS = 1 << 14 };

typedef struct options {
    uint64_t bytes;
    int rounds;
    const char *codec, *type;
    uint64_t seed;
    bool json;
} options;

/* ---- data that looks like training's ---- */

static uint64_t random_of(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static double gauss(uint64_t *seed)
{
    const double u = ((double)(random_of(seed) >> 11) + 1) * 0x1p-53;
    const double v = (double)(random_of(seed) >> 11) * 0x1p-53;

    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static void put_f32(void *out, size_t i, double v)
{
    ((float *)out)[i] = (float)v;
}

static void put_bf16(void *out, size_t i, double v)
{
    const float f = (float)v;
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    ((uint16_t *)out)[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static void put_f16(void *out, size_t i, double v)
{
    ((uint16_t *)out)[i] = dtpi_f16_of_float((float)v);
}

static double weight(uint64_t *seed)
{
    return 0.02 * gauss(seed);
}

/* First moments: a mean of gradients, whose scale differs from weight to weight. */
static double moment(uint64_t *seed)
{
    return 1e-4 * gauss(seed) * exp(0.25 * gauss(seed));
}

/* Second moments: never negative, a mean of many squares. */
static double moment2(uint64_t *seed)
{
    return 1e-8 * exp(0.7 * gauss(seed));
}

static const struct data_type {
    const char *name;
    dtp_dtype dtype;
    void (*put)(void *out, size_t i, double v);
    double (*value)(uint64_t *seed);    /* NULL: every bit is random */
} data_types[] = {
    { "bf16", DTP_BF16, put_bf16, weight },  { "f32", DTP_F32, put_f32, weight },
    { "f16", DTP_F16, put_f16, weight },     { "adam-m", DTP_F32, put_f32, moment },
    { "adam-v", DTP_F32, put_f32, moment2 }, { "random", DTP_F32, put_f32, NULL },
};

static const struct data_type *type_of(const char *name)
{
    for (size_t i = 0; i < DTPI_ARRAY_LEN(data_types); i++)
        if (strcmp(data_types[i].name, name) == 0)
            return &data_types[i];
    return NULL;
}

static void fill(const struct data_type *t, uint8_t *out, size_t bytes, uint64_t seed)
{
    const size_t width = dtp_dtype_bytes(t->dtype);

    for (size_t i = 0; !t->value && i < bytes / 8; i++) {
        const uint64_t v = random_of(&seed);
        memcpy(out + 8 * i, &v, sizeof(v));
    }
    for (size_t i = 0; t->value && i < bytes / width; i++)
        t->put(out, i, t->value(&seed));
}

/* ---- a measurement ---- */

/* Of this thread: what else runs on the machine does not count. */
static int64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

typedef struct run {
    const options *o;
    const struct data_type *type;
    dtpi_codec codec;
    uint8_t *in, *stored, *out;
    size_t sizes[MAX_CHUNKS];
    uint64_t sums[MAX_CHUNKS];
    size_t stored_bytes;
    dtp_error err;
} run_state;

static dtp_status encode(run_state *r)
{
    r->stored_bytes = 0;
    for (size_t at = 0; at < r->o->bytes; at += CHUNK) {
        const size_t i = at / CHUNK;
        const void *stored;
        const dtp_status st = dtpi_codec_store(&r->codec, r->in + at, CHUNK, r->type->dtype, r->stored + at,
                                               &stored, &r->sizes[i], &r->err);
        if (st < 0)
            return st;
        r->sums[i] = dtpi_sum64(stored, r->sizes[i]);
        if (stored != r->stored + at)
            memcpy(r->stored + at, stored, r->sizes[i]);
        r->stored_bytes += r->sizes[i];
    }
    return DTP_OK;
}

static dtp_status decode(run_state *r)
{
    for (size_t at = 0; at < r->o->bytes; at += CHUNK) {
        const size_t i = at / CHUNK;
        if (dtpi_sum64(r->stored + at, r->sizes[i]) != r->sums[i])
            return dtpi_fail(&r->err, DTP_ERR_CORRUPT, "chunk %zu: checksum mismatch", i);
        const dtp_status st =
            dtpi_codec_restore(&r->codec, r->stored + at, r->sizes[i], r->out + at, CHUNK, &r->err);
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

typedef struct result {
    double encode_s, decode_s, copy_s;
} result;

static dtp_status measure(run_state *r, result *out)
{
    double in[MAX_ROUNDS], back[MAX_ROUNDS], copy[MAX_ROUNDS];
    dtp_status st = DTP_OK;

    for (int i = -1; i < r->o->rounds && st >= 0; i++) {
        const int64_t t0 = cpu_ns();
        st = encode(r);
        const int64_t t1 = cpu_ns();
        if (st >= 0)
            st = decode(r);
        const int64_t t2 = cpu_ns();
        if (st >= 0 && memcmp(r->in, r->out, r->o->bytes) != 0)
            st = dtpi_fail(&r->err, DTP_ERR_CORRUPT, "%s: other bytes come back", r->o->codec);
        const int64_t t3 = cpu_ns();
        memcpy(r->out, r->in, r->o->bytes);
        if (i < 0)
            continue;           /* touches the memory */
        in[i] = (double)(t1 - t0) * 1e-9;
        back[i] = (double)(t2 - t1) * 1e-9;
        copy[i] = (double)(cpu_ns() - t3) * 1e-9;
    }
    if (st >= 0)
        *out = (result){ bench_summarise(in, r->o->rounds).median,
                         bench_summarise(back, r->o->rounds).median,
                         bench_summarise(copy, r->o->rounds).median };
    return st;
}

static void print_result(const run_state *r, const result *m)
{
    const options *o = r->o;
    const double gb = (double)o->bytes * 1e-9, ratio = (double)o->bytes / (double)r->stored_bytes;

    if (o->json) {
        printf("{\"bench\":\"ckpt\",\"op\":\"codec\",\"codec\":\"%s\",\"type\":\"%s\",\"ranks\":1,\"bytes\":%llu,"
               "\"ratio\":%.5f,\"gb_per_s\":%.4f,\"encode_gb_per_s\":%.4f,\"decode_gb_per_s\":%.4f,"
               "\"memcpy_gb_per_s\":%.4f,\"version\":\"%s\"}\n",
               o->codec, r->type->name, (unsigned long long)o->bytes, ratio, gb / m->encode_s,
               gb / m->encode_s, gb / m->decode_s, gb / m->copy_s, dtp_version());
        return;
    }
    printf("%8s %8s %12llu %8.4f %10.2f %10.2f %10.2f\n", o->codec, r->type->name,
           (unsigned long long)o->bytes, ratio, gb / m->encode_s, gb / m->decode_s, gb / m->copy_s);
}

static dtp_status measure_type(run_state *r)
{
    result m;

    r->in = aligned_alloc(CHUNK, r->o->bytes);
    r->stored = aligned_alloc(CHUNK, r->o->bytes);
    r->out = aligned_alloc(CHUNK, r->o->bytes);
    dtp_status st = r->in && r->stored && r->out ? DTP_OK : dtpi_fail_nomem(&r->err, r->o->bytes);
    if (st >= 0)
        st = dtpi_codec_open(&dtpi_malloc_allocator, r->o->codec, &r->codec, &r->err);
    if (st >= 0) {
        fill(r->type, r->in, r->o->bytes, r->o->seed);
        st = measure(r, &m);
        dtpi_codec_close(&r->codec);
    }
    if (st >= 0)
        print_result(r, &m);
    free(r->in);
    free(r->stored);
    free(r->out);
    return st;
}

/* ---- options ---- */

static const char help[] =
    "usage: dtp-bench ckpt codec [OPTIONS]\n"
    "\n"
    "Encodes and decodes numbers like those of training on one core, chunk by chunk, with checksums, and\n"
    "compares what comes back. Rates are plain bytes per second of processor time; a GB is 10^9 bytes;\n"
    "times are medians.\n"
    "\n"
    "options:\n"
    "      --type TYPE      bf16 f32 f16 (normal weights), adam-m, adam-v, random, or all (default all)\n"
    "      --codec CODEC    none, zstd or planes (default planes)\n"
    "      --size N         bytes of one type, rounded up to MiB (default 64M)\n"
    "      --rounds N       of encoding and decoding (default 7)\n"
    "      --seed N         of the numbers (default 1)\n"
    "      --format FORMAT  table, or json: one object per line, with the fields bench op codec type ranks\n"
    "                       bytes ratio gb_per_s encode_gb_per_s decode_gb_per_s memcpy_gb_per_s version\n"
    "  -h, --help           this text\n"
    "\n"
    "exit status:\n"
    "  0 all bytes came back, 1 they did not or something failed, 2 wrong options\n";

enum { OPT_TYPE = 256, OPT_CODEC, OPT_SIZE, OPT_ROUNDS, OPT_SEED, OPT_FORMAT };

static const struct option long_options[] = {
    { "type", required_argument, NULL, OPT_TYPE },     { "codec", required_argument, NULL, OPT_CODEC },
    { "size", required_argument, NULL, OPT_SIZE },     { "rounds", required_argument, NULL, OPT_ROUNDS },
    { "seed", required_argument, NULL, OPT_SEED },     { "format", required_argument, NULL, OPT_FORMAT },
    { "help", no_argument, NULL, 'h' },                { NULL, 0, NULL, 0 },
};

/* False: the value is not possible. */
static bool take_option(void *user, int c, const char *value)
{
    options *o = user;
    int64_t n = 0;

    switch (c) {
    case OPT_TYPE:
        o->type = value;
        return strcmp(value, "all") == 0 || type_of(value);
    case OPT_CODEC:
        o->codec = value;
        return true;
    case OPT_SIZE:
        if (!dtpi_parse_bytes(value, &o->bytes) || o->bytes > (uint64_t)MAX_CHUNKS * CHUNK)
            return false;
        o->bytes = DTPI_MAX((o->bytes + CHUNK - 1) / CHUNK, 1) * CHUNK;
        return true;
    case OPT_ROUNDS:
        if (!dtpi_parse_i64(value, 1, MAX_ROUNDS, &n))
            return false;
        o->rounds = (int)n;
        return true;
    case OPT_SEED:
        if (!dtpi_parse_i64(value, 0, INT64_MAX, &n))
            return false;
        o->seed = (uint64_t)n;
        return true;
    default:
        o->json = strcmp(value, "json") == 0;
        return o->json || strcmp(value, "table") == 0;
    }
}

static int run_codec(const options *o)
{
    run_state *r = calloc(1, sizeof(*r));
    dtp_status st = r ? DTP_OK : DTP_ERR_NOMEM;

    if (!r)
        return BENCH_FAILED;
    if (!o->json)
        printf("#  codec     type         size    ratio     encode     decode     memcpy\n"
               "#                        bytes              (GB/s)     (GB/s)     (GB/s)\n");
    for (size_t i = 0; i < DTPI_ARRAY_LEN(data_types) && st >= 0; i++) {
        if (strcmp(o->type, "all") != 0 && strcmp(o->type, data_types[i].name) != 0)
            continue;
        r->o = o;
        r->type = &data_types[i];
        st = measure_type(r);
    }
    const int rc = st < 0 ? bench_fail(&bench_ckpt, &r->err) : BENCH_OK;
    free(r);
    return rc;
}

static int run(int argc, char **argv)
{
    options o = { .bytes = 64 << 20, .rounds = 7, .codec = "planes", .type = "all", .seed = 1 };
    const bench_options read = { &bench_ckpt, ":h", long_options, take_option, &o };

    if (argc < 2)
        return bench_usage(&bench_ckpt, "what to measure is missing: codec");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(help, stdout);
        return BENCH_OK;
    }
    if (strcmp(argv[1], "codec") != 0)
        return bench_usage(&bench_ckpt, "'%s' is nothing to measure: codec", argv[1]);
    const int rc = bench_read_options(&read, argc - 1, argv + 1);
    if (rc != BENCH_GO_ON)
        return rc;
    return run_codec(&o);
}

const bench_cmd bench_ckpt = { "ckpt", "ratio and speed of the codecs of checkpoints", help, run };
