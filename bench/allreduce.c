/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allreduce.c - time and bandwidth of allreduce over sizes, in the columns of nccl-tests.
 *
 * A batch is as many calls as fit two milliseconds; of a batch the slowest rank counts, of the batches
 * the median. After the batches the result of one more call is compared element by element on every rank.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/text.h"
#include "bench.h"
#include "group/group.h"

enum {
    BATCH_NS = 2000 * 1000,
    MAX_CALLS = 2000,
    BATCHES = 21,
    BATCHES_SLOW = 9,           /* where a call takes longer than a batch should */
    SLOW_NS = 10 * 1000 * 1000
};

typedef struct options {
    int n_ranks;
    uint64_t min_bytes, max_bytes, factor;
    dtp_dtype dtype;
    dtp_redop redop;
    int n_warm, n_calls;        /* n_calls 0: chosen */
    int timeout_ms;
    bool no_check, in_place, json;
} options;

static const char *const redop_names[] = { "sum", "min", "max", "prod", "avg" };

/* ---- a measurement ---- */

typedef struct row {
    size_t bytes, count;
    bench_stats time_ns;
    int64_t wrong;              /* of all ranks; -1: not checked */
} row;

typedef struct state {
    const options *o;
    dtp_group *group;
    uint8_t *in, *out;
    bench_tile input, result;
    dtp_error err;
} state;

static dtp_status call_n(state *s, size_t count, int n)
{
    dtp_status st = DTP_OK;

    for (int i = 0; i < n && st >= 0; i++)
        st = dtp_allreduce(s->group, s->in, s->out, count, s->o->dtype, s->o->redop, s->o->timeout_ms,
                           &s->err);
    return st;
}

/* In place, results become inputs; refilled, so that they do not grow out of the type. */
static void refill(state *s, size_t count)
{
    if (s->o->in_place)
        bench_fill(&s->input, s->in, count);
}

/* Calls per batch, and batches: rank 0 decides for all. */
static dtp_status calibrate(state *s, size_t count, int64_t plan_out[2])
{
    const int64_t start = bench_now_ns();

    dtp_status st = call_n(s, count, s->o->n_warm);
    const int64_t each = (bench_now_ns() - start) / DTPI_MAX(s->o->n_warm, 1) + 1;
    plan_out[0] = s->o->n_calls ? s->o->n_calls : DTPI_MAX(DTPI_MIN(BATCH_NS / each, MAX_CALLS), 1);
    plan_out[1] = each > SLOW_NS ? BATCHES_SLOW : BATCHES;
    if (st >= 0)
        st = dtp_broadcast(s->group, plan_out, 2, DTP_I64, 0, s->o->timeout_ms, &s->err);
    return st;
}

static dtp_status check(state *s, row *r)
{
    r->wrong = -1;
    if (s->o->no_check)
        return DTP_OK;
    bench_fill(&s->input, s->in, r->count);
    if (!s->o->in_place)
        memset(s->out, 0xee, r->bytes);
    const dtp_status st = call_n(s, r->count, 1);
    if (st < 0)
        return st;
    r->wrong = (int64_t)bench_count_wrong(&s->result, s->out, r->count);
    if (!s->o->in_place)
        r->wrong += (int64_t)bench_count_wrong(&s->input, s->in, r->count);
    return dtp_allreduce(s->group, &r->wrong, &r->wrong, 1, DTP_I64, DTP_SUM, s->o->timeout_ms, &s->err);
}

static dtp_status measure(state *s, size_t bytes, row *r)
{
    double times[BENCH_MAX_BATCHES];
    int64_t plan[2];

    *r = (row){ .bytes = bytes, .count = bytes / dtp_dtype_bytes(s->o->dtype) };
    refill(s, r->count);
    dtp_status st = calibrate(s, r->count, plan);
    if (st >= 0)
        st = dtp_group_barrier(s->group, s->o->timeout_ms, &s->err);
    for (int64_t b = -1; b < plan[1] && st >= 0; b++) {
        refill(s, r->count);
        const int64_t start = bench_now_ns();
        st = call_n(s, r->count, (int)plan[0]);
        if (b >= 0)
            times[b] = (double)(bench_now_ns() - start) / (double)plan[0];
    }
    if (st >= 0)
        st = dtp_allreduce(s->group, times, times, (size_t)plan[1], DTP_F64, DTP_MAX, s->o->timeout_ms,
                           &s->err);
    if (st < 0)
        return st;
    r->time_ns = bench_summarise(times, (int)plan[1]);
    return check(s, r);
}

/* ---- output ---- */

static double algbw(const row *r)
{
    return (double)r->bytes / r->time_ns.median;
}

static double busbw(const row *r, int n)
{
    return algbw(r) * 2 * (n - 1) / n;
}

static void print_head(const options *o, int n)
{
    if (o->json)
        return;
    printf("# dtp-bench allreduce: libdtp %s, %d ranks, %d processors, %s\n", dtp_version(), n,
           bench_n_cpus(), o->in_place ? "in place" : "out of place");
    printf("#%11s %12s %6s %6s %11s %8s %8s %7s %8s\n", "size", "count", "type", "redop", "time", "algbw",
           "busbw", "#wrong", "spread");
    printf("#%11s %12s %6s %6s %11s %8s %8s %7s %8s\n", "(B)", "(elements)", "", "", "(us)", "(GB/s)",
           "(GB/s)", "", "(%)");
}

/* What UCX made of the network between nodes, as this rank sees it; "" where none is used. */
static void find_lane(dtp_group *group, char *text_out, size_t room)
{
    text_out[0] = '\0';
    for (int rank = 0; rank < dtp_group_size(group) && !text_out[0]; rank++)
        dtpi_group_data_lane(group, rank, text_out, room);
}

static void print_row(const options *o, const row *r, int n, const char *lane)
{
    char wrong[24] = "N/A";
    const char *type = dtp_dtype_name(o->dtype), *redop = redop_names[o->redop];

    if (o->json) {
        printf("{\"bench\":\"allreduce\",\"ranks\":%d,\"size\":%zu,\"count\":%zu,\"type\":\"%s\","
               "\"redop\":\"%s\",\"time_us\":%.4f,\"min_us\":%.4f,\"max_us\":%.4f,\"spread_us\":%.4f,"
               "\"algbw_gb_per_s\":%.5f,\"busbw_gb_per_s\":%.5f,\"wrong\":%lld,\"in_place\":%s,"
               "\"cpus\":%d,\"version\":\"%s\",\"lane\":\"%s\"}\n",
               n, r->bytes, r->count, type, redop, r->time_ns.median / 1e3, r->time_ns.min / 1e3,
               r->time_ns.max / 1e3, r->time_ns.spread / 1e3, algbw(r), busbw(r, n),
               (long long)r->wrong, o->in_place ? "true" : "false", bench_n_cpus(), dtp_version(), lane);
    } else {
        if (r->wrong >= 0)
            snprintf(wrong, sizeof(wrong), "%lld", (long long)r->wrong);
        printf("%12zu %12zu %6s %6s %11.2f %8.3f %8.3f %7s %8.1f\n", r->bytes, r->count, type, redop,
               r->time_ns.median / 1e3, algbw(r), busbw(r, n), wrong,
               r->time_ns.spread / r->time_ns.median * 100);
    }
    fflush(stdout);
}

static void print_tail(const options *o, int64_t wrong, double busbw_sum, int n_rows, const char *lane)
{
    if (o->json)
        return;
    if (o->no_check)
        printf("# Out of bounds values : not checked\n");
    else
        printf("# Out of bounds values : %lld %s\n", (long long)wrong, wrong ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %.4f\n", n_rows ? busbw_sum / n_rows : 0);
    if (lane[0])
        printf("# Between nodes, UCX   : %s\n", lane);
}

/* ---- a rank ---- */

static int sweep(state *s, int n, bool prints)
{
    const options *o = s->o;
    int64_t wrong = 0;
    double sum = 0;
    char lane[64] = "";
    int n_rows = 0;

    if (prints)
        print_head(o, n);
    for (uint64_t bytes = o->min_bytes; bytes <= o->max_bytes; bytes *= o->factor) {
        row r;
        if (measure(s, bytes / dtp_dtype_bytes(o->dtype) * dtp_dtype_bytes(o->dtype), &r) < 0)
            return bench_fail(&bench_allreduce, &s->err);
        wrong += DTPI_MAX(r.wrong, 0);
        sum += busbw(&r, n);
        n_rows++;
        if (prints) {
            find_lane(s->group, lane, sizeof(lane));
            print_row(o, &r, n, lane);
        }
        if (bytes > UINT64_MAX / o->factor)
            break;
    }
    if (prints)
        print_tail(o, wrong, sum, n_rows, lane);
    return wrong ? BENCH_FAILED : BENCH_OK;
}

static int run_rank(dtp_group *group, void *user)
{
    const options *o = user;
    const int rank = dtp_group_rank(group), n = dtp_group_size(group);
    state s = { .o = o, .group = group };
    void *in = NULL, *out = NULL;

    if (posix_memalign(&in, 4096, o->max_bytes + 8) ||
        (!o->in_place && posix_memalign(&out, 4096, o->max_bytes + 8))) {
        fprintf(stderr, "dtp-bench allreduce: rank %d: no memory for %llu bytes\n", rank,
                (unsigned long long)o->max_bytes);
        free(in);
        return BENCH_FAILED;
    }
    s.in = in;
    s.out = o->in_place ? in : out;
    bench_input_tile(&s.input, o->dtype, o->redop, rank);
    bench_result_tile(&s.result, o->dtype, o->redop, n);
    memset(s.out, 0, o->max_bytes);
    bench_fill(&s.input, s.in, o->max_bytes / dtp_dtype_bytes(o->dtype));
    const int rc = sweep(&s, n, rank == 0);
    free(in);
    free(out);
    return rc;
}

/* ---- options ---- */

static const char help[] =
    "usage: dtp-bench allreduce [OPTIONS]\n"
    "\n"
    "Time and bandwidth of allreduce over a range of sizes. Starts its ranks on this machine, or is itself\n"
    "a rank where a launcher has started it (dtp run -n 4 -- dtp-bench allreduce). Every element of the\n"
    "result is verified on every rank. Columns as in nccl-tests: algbw is size / time, busbw is\n"
    "algbw * 2(n-1)/n; a GB is 10^9 bytes; time is the median of the batches, of each the slowest rank.\n"
    "\n"
    "options:\n"
    "  -n, --ranks N        ranks to start (default: one per processor, at least 2); each is bound to a\n"
    "                       processor of its own where there are enough\n"
    "  -b, --min-bytes N    smallest size; K, M and G are 1024s (default 8)\n"
    "  -e, --max-bytes N    largest size (default 64M)\n"
    "  -f, --factor N       from one size to the next (default 2)\n"
    "  -d, --type TYPE      f64 f32 f16 bf16 i64 i32 u8 (default f32)\n"
    "  -o, --op OP          sum min max prod avg (default sum)\n"
    "  -w, --warm N         calls before measuring (default 5)\n"
    "  -i, --iters N        calls per batch (default: what takes 2 ms)\n"
    "      --in-place       input and output are the same buffer\n"
    "      --check          verify every element (the default)\n"
    "      --no-check       do not verify\n"
    "      --timeout MS     of every call (default 60000)\n"
    "      --format FORMAT  table, or json: one object per line, with the fields bench ranks size count\n"
    "                       type redop time_us min_us max_us spread_us (distance of the quartiles)\n"
    "                       algbw_gb_per_s busbw_gb_per_s wrong in_place cpus version lane\n"
    "  -h, --help           this text\n"
    "\n"
    "exit status:\n"
    "  0 all results are right, 1 a wrong result or a failure, 2 wrong options\n";

enum { OPT_IN_PLACE = 256, OPT_CHECK, OPT_NO_CHECK, OPT_TIMEOUT, OPT_FORMAT };

static const struct option long_options[] = {
    { "ranks", required_argument, NULL, 'n' },
    { "min-bytes", required_argument, NULL, 'b' },
    { "max-bytes", required_argument, NULL, 'e' },
    { "factor", required_argument, NULL, 'f' },
    { "type", required_argument, NULL, 'd' },
    { "op", required_argument, NULL, 'o' },
    { "warm", required_argument, NULL, 'w' },
    { "iters", required_argument, NULL, 'i' },
    { "in-place", no_argument, NULL, OPT_IN_PLACE },
    { "check", no_argument, NULL, OPT_CHECK },
    { "no-check", no_argument, NULL, OPT_NO_CHECK },
    { "timeout", required_argument, NULL, OPT_TIMEOUT },
    { "format", required_argument, NULL, OPT_FORMAT },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

static bool parse_int(const char *text, int64_t min, int64_t max, int *out)
{
    int64_t v;

    if (!dtpi_parse_i64(text, min, max, &v))
        return false;
    *out = (int)v;
    return true;
}

static bool parse_redop(const char *text, dtp_redop *out)
{
    for (size_t i = 0; i < DTPI_ARRAY_LEN(redop_names); i++)
        if (strcmp(text, redop_names[i]) == 0) {
            *out = (dtp_redop)i;
            return true;
        }
    return false;
}

static bool can_reduce(dtp_dtype t)
{
    return t == DTP_F64 || t == DTP_F32 || t == DTP_F16 || t == DTP_BF16 || t == DTP_I64 || t == DTP_I32 ||
           t == DTP_U8;
}

/* False: the value is not possible. */
static bool take_option(void *user, int c, const char *value)
{
    options *o = user;
    int factor;

    switch (c) {
    case 'n':
        return parse_int(value, 1, 512, &o->n_ranks);
    case 'b':
        return dtpi_parse_bytes(value, &o->min_bytes);
    case 'e':
        return dtpi_parse_bytes(value, &o->max_bytes);
    case 'f':
        if (!parse_int(value, 2, 1 << 20, &factor))
            return false;
        o->factor = (uint64_t)factor;
        return true;
    case 'd':
        o->dtype = dtp_dtype_parse(value);
        return can_reduce(o->dtype);
    case 'o':
        return parse_redop(value, &o->redop);
    case 'w':
        return parse_int(value, 0, 1000000, &o->n_warm);
    case 'i':
        return parse_int(value, 1, 1000000, &o->n_calls);
    case OPT_IN_PLACE:
        o->in_place = true;
        return true;
    case OPT_CHECK:
        o->no_check = false;
        return true;
    case OPT_NO_CHECK:
        o->no_check = true;
        return true;
    case OPT_TIMEOUT:
        return parse_int(value, 1, 1 << 30, &o->timeout_ms);
    case OPT_FORMAT:
        o->json = strcmp(value, "json") == 0;
        return o->json || strcmp(value, "table") == 0;
    default:
        return false;
    }
}

static int run(int argc, char **argv)
{
    options o = { .min_bytes = 8, .max_bytes = 64 << 20, .factor = 2, .dtype = DTP_F32,
                  .n_warm = 5, .timeout_ms = 60000 };
    const bench_options read = { &bench_allreduce, ":n:b:e:f:d:o:w:i:h", long_options, take_option, &o };

    o.n_ranks = DTPI_MAX(bench_n_cpus(), 2);
    const int rc = bench_read_options(&read, argc, argv);
    if (rc != BENCH_GO_ON)
        return rc;
    if (o.min_bytes < dtp_dtype_bytes(o.dtype) || o.max_bytes < o.min_bytes || o.max_bytes > 1ull << 40)
        return bench_usage(&bench_allreduce, "sizes go from one element (%zu bytes) up to 1024G",
                           dtp_dtype_bytes(o.dtype));
    return bench_run_ranks(&bench_allreduce, o.n_ranks, o.timeout_ms, run_rank, &o);
}

const bench_cmd bench_allreduce = {
    .name = "allreduce",
    .summary = "time and bandwidth of allreduce over sizes, verified",
    .help = help,
    .run = run,
};
