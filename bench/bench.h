/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - what a benchmark of `dtp-bench` is, and what all of them use.
 *
 * A benchmark is a file that defines `const bench_cmd bench_<name>`, a line in main.c's table and a source
 * in meson.build. Results go to stdout as a table or as JSON Lines, failures as one line to stderr.
 */
#ifndef DTP_BENCH_H
#define DTP_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dtp/coll.h>

typedef struct bench_cmd {
    const char *name;
    const char *summary;
    const char *help;
    int (*run)(int argc, char **argv);
    bool wide_ranks;            /* a rank gets its share of the processors, not one of them */
} bench_cmd;

enum { BENCH_OK = 0, BENCH_FAILED = 1, BENCH_USAGE = 2 };

extern const bench_cmd bench_allreduce, bench_boot, bench_ckpt, bench_topo;

int bench_usage(const bench_cmd *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int bench_fail(const bench_cmd *cmd, const dtp_error *err);
/* Flushes stdout: `rc`, or BENCH_FAILED with a line where it was OK and the output is lost. */
int bench_finish(int rc);

/* ---- options.c ---- */

struct option;

typedef struct bench_options {
    const bench_cmd *cmd;
    const char *letters;            /* as getopt's, ':' first */
    const struct option *names;     /* as getopt_long's; 'h' prints the help */
    bool (*take)(void *user, int c, const char *value);     /* false: the value is not possible */
    void *user;
} bench_options;

enum { BENCH_GO_ON = -1 };
/* BENCH_GO_ON, or the exit status: the help was printed, or a line about what is wrong. */
int bench_read_options(const bench_options *o, int argc, char **argv);
const char *bench_option_name(const struct option *options, int c);

/* ---- ranks.c ---- */

/*
 * Runs fn(group, user) in n ranks: forked here, or this very process where a launcher has started it
 * (DTP_RANK is set). Returns the exit code: 0, or 1 with a line on stderr.
 */
typedef int (*bench_rank_fn)(dtp_group *group, void *user);
int bench_run_ranks(const bench_cmd *cmd, int n, int timeout_ms, bench_rank_fn fn, void *user);
/* A launcher has started this process as one of its ranks. */
bool bench_is_launched(void);
/* Processors this process may use. */
int bench_n_cpus(void);

/* ---- stats.c ---- */

enum { BENCH_MAX_BATCHES = 101 };

int64_t bench_now_ns(void);
/* Sorts and gives median, minimum, maximum and the distance of the quartiles. */
typedef struct bench_stats {
    double median, min, max, spread;
} bench_stats;
bench_stats bench_summarise(double *values, int n);

/* ---- values.c: inputs whose result is known ---- */

enum { BENCH_TILE = 1021 };     /* a prime: a piece in the wrong place does not fit */

/* Elements of a rank repeat with the tile; the result repeats with it too. */
typedef struct bench_tile {
    size_t elem_bytes;
    uint8_t data[BENCH_TILE * 8];
} bench_tile;

void bench_input_tile(bench_tile *t, dtp_dtype dtype, dtp_redop redop, int rank);
void bench_result_tile(bench_tile *t, dtp_dtype dtype, dtp_redop redop, int world_size);
void bench_fill(const bench_tile *t, void *out, size_t count);
/* How many elements differ. */
size_t bench_count_wrong(const bench_tile *t, const void *data, size_t count);

#endif /* DTP_BENCH_H */
