/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo.c - what it costs until every rank of a node knows the node's topology: one process that discovers,
 * ranks that share one discovery, and ranks that all discover. Fresh processes each round, in turns.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dtp/topo.h>

#include "base/base.h"
#include "base/text.h"
#include "bench.h"
#include "group/group.h"

enum { MAX_ROUNDS = BENCH_MAX_BATCHES };

typedef struct options {
    int ranks, rounds;
    bool json;
} options;

/* Shared with the ranks. */
typedef struct round {
    int64_t ns;                 /* from the first rank's start to the last one's end */
    bool shares;
} round_state;

/* ---- a round ---- */

static int ask(dtp_group *group, void *user)
{
    dtp_ctx *ctx = dtpi_group_ctx(group);
    round_state *r = user;
    dtp_error err = { 0 };
    dtp_topo *topo = NULL;
    int64_t times[2], *all = NULL;

    dtp_status st = dtp_group_barrier(group, 0, &err);
    times[0] = bench_now_ns();
    if (st >= 0)
        st = r->shares ? dtp_group_topo(group, dtp_group_rank(group), &topo, NULL, 0, &err)
                       : dtp_topo_load(ctx, NULL, &topo, &err);
    times[1] = bench_now_ns();
    dtp_topo_close(topo);
    if (st >= 0)
        st = dtp_group_allgather(group, times, sizeof(times), (void **)&all, NULL, NULL, 0, &err);
    if (st < 0)
        return bench_fail(&bench_topo, &err);
    int64_t first = all[0], last = all[1];
    for (int i = 1; i < dtp_group_size(group); i++) {
        first = DTPI_MIN(first, all[2 * i]);
        last = DTPI_MAX(last, all[2 * i + 1]);
    }
    if (dtp_group_rank(group) == 0)
        r->ns = last - first;
    dtp_group_free(all);
    return BENCH_OK;
}

static int measure(round_state *r, int ranks, bool shares, double *ms_out)
{
    r->shares = shares;
    const int rc = bench_run_ranks(&bench_topo, ranks, 120000, ask, r);
    *ms_out = (double)r->ns / DTPI_NS_PER_MS;
    return rc;
}

static void print_results(const options *o, double *one, double *shared, double *each)
{
    const bench_stats a = bench_summarise(one, o->rounds), b = bench_summarise(shared, o->rounds),
                      c = bench_summarise(each, o->rounds);

    if (o->json) {
        printf("{\"bench\":\"topo\",\"ranks\":%d,\"rounds\":%d,\"one_ms\":%.3f,\"shared_ms\":%.3f,"
               "\"each_ms\":%.3f,\"ratio\":%.3f,\"cpus\":%d,\"version\":\"%s\"}\n",
               o->ranks, o->rounds, a.median, b.median, c.median, b.median / a.median, bench_n_cpus(),
               dtp_version());
        return;
    }
    printf("%d ranks, %d rounds, medians in ms (spread)\n", o->ranks, o->rounds);
    printf("%-36s %9.2f (%.2f)\n", "one process discovers", a.median, a.spread);
    printf("%-36s %9.2f (%.2f)  %.2f x\n", "all ranks share one discovery", b.median, b.spread,
           b.median / a.median);
    printf("%-36s %9.2f (%.2f)  %.2f x\n", "all ranks discover", c.median, c.spread, c.median / a.median);
}

static int run_rounds(const options *o)
{
    double one[MAX_ROUNDS], shared[MAX_ROUNDS], each[MAX_ROUNDS];
    round_state *r =
        mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int rc = BENCH_OK;

    if (r == MAP_FAILED) {
        perror("dtp-bench topo");
        return BENCH_FAILED;
    }
    for (int i = 0; i < o->rounds && rc == BENCH_OK; i++) {
        rc = measure(r, 1, false, &one[i]);
        if (rc == BENCH_OK)
            rc = measure(r, o->ranks, true, &shared[i]);
        if (rc == BENCH_OK)
            rc = measure(r, o->ranks, false, &each[i]);
    }
    munmap(r, sizeof(*r));
    if (rc == BENCH_OK)
        print_results(o, one, shared, each);
    return rc;
}

/* ---- options ---- */

static const char help[] =
    "usage: dtp-bench topo [OPTIONS]\n"
    "\n"
    "Times how long the ranks of this machine take until each has its topology: when they share one\n"
    "discovery (dtp_group_topo), beside one process that discovers, and beside ranks that all discover.\n"
    "\n"
    "options:\n"
    "  -n, --ranks N        ranks (default 64, at most 512)\n"
    "      --rounds N       of all three, in fresh processes (default 7)\n"
    "      --format FORMAT  table, or json: one object, with the fields bench ranks rounds one_ms shared_ms\n"
    "                       each_ms ratio (shared to one) cpus version\n"
    "  -h, --help           this text\n"
    "\n"
    "exit status:\n"
    "  0 done, 1 something failed, 2 wrong options\n";

enum { OPT_ROUNDS = 256, OPT_FORMAT };

static const struct option long_options[] = {
    { "ranks", required_argument, NULL, 'n' },
    { "rounds", required_argument, NULL, OPT_ROUNDS },
    { "format", required_argument, NULL, OPT_FORMAT },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

static bool take_option(void *user, int c, const char *value)
{
    options *o = user;
    int64_t n = 0;

    if (c == OPT_FORMAT) {
        o->json = strcmp(value, "json") == 0;
        return o->json || strcmp(value, "table") == 0;
    }
    if (!dtpi_parse_i64(value, 1, c == 'n' ? 512 : MAX_ROUNDS, &n))
        return false;
    *(c == 'n' ? &o->ranks : &o->rounds) = (int)n;
    return true;
}

static int run(int argc, char **argv)
{
    options o = { .ranks = 64, .rounds = 7 };
    const bench_options read = { &bench_topo, ":hn:", long_options, take_option, &o };
    const int rc = bench_read_options(&read, argc, argv);

    if (rc != BENCH_GO_ON)
        return rc;
    return run_rounds(&o);
}

const bench_cmd bench_topo = { "topo", "time until all ranks of a node have its topology", help, run };
