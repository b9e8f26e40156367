/* SPDX-License-Identifier: Apache-2.0 */
/* boot.c - how long a gang takes to stand: options and output of `dtp-bench boot`. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"
#include "boot.h"
#include "group/tree.h"

/* ---- output ---- */

static void print_json(const boot_report *r)
{
    printf("{\"bench\":\"boot\",\"ranks\":%d,\"nodes\":%d,\"radix\":%d,\"simulated\":%s,\"total_ms\":%.3f,",
           r->n_ranks, r->n_nodes, r->radix, r->simulated ? "true" : "false", r->total_ms);
    printf("\"spawned_ms\":%.3f,\"joined_ms\":%.3f,\"cpu_us_per_rank\":%.1f,\"agent_us_per_rank\":%.1f,"
           "\"exec_us_per_rank\":%.1f,", r->spawned_ms, r->joined_ms, r->cpu_us_per_rank, r->agent_us_per_rank,
           r->exec_us_per_rank);
    printf("\"messages\":%llu,\"all_messages\":%llu,\"rounds\":%u,\"bytes\":%llu,",
           (unsigned long long)r->messages, (unsigned long long)r->all_messages, r->rounds,
           (unsigned long long)r->bytes);
    if (r->n_lost)
        printf("\"lost\":%d,\"reform_ms\":%.3f,", r->n_lost, r->reform_ms);
    printf("\"max_fds\":%d,\"agent_fds\":%d,\"slowest_rank\":%d,\"wall_s\":%.3f,\"max_rss_mib\":%.1f,"
           "\"cpus\":%d,\"version\":\"%s\"}\n", r->max_fds, r->agent_fds, r->slowest_rank, r->wall_s,
           r->max_rss_mib, bench_n_cpus(), dtp_version());
}

static void print_table(const boot_report *r)
{
    printf("%8d %6d %5d %9.2f %9.2f %9.2f %8.1f %8.1f %8.1f", r->n_ranks, r->n_nodes, r->radix, r->spawned_ms,
           r->joined_ms, r->total_ms, r->cpu_us_per_rank, r->agent_us_per_rank, r->exec_us_per_rank);
    printf(" %9llu %6u %11llu %4d %6d %8d %7.2f %8.1f\n", (unsigned long long)r->messages, r->rounds,
           (unsigned long long)r->bytes, r->max_fds, r->agent_fds, r->slowest_rank, r->wall_s, r->max_rss_mib);
    if (r->n_lost)
        printf("# without %d ranks that died: re-formed and through a barrier in %.2f ms\n", r->n_lost,
               r->reform_ms);
}

static void print_head(const boot_opts *o)
{
    printf("# dtp-bench boot: libdtp %s, %d processors, %s; ms since the first process, CPU in us a rank\n",
           dtp_version(), bench_n_cpus(), o->simulate ? "simulated" : "real processes");
    printf("#%7s %6s %5s %9s %9s %9s %8s %8s %8s", "ranks", "nodes", "radix", "spawned", "joined", "total", "cpu",
           "(agent)", "exec");
    printf(" %9s %6s %11s %4s %6s %8s %7s %8s\n", "messages", "rounds", "bytes", "fds", "a-fds", "slowest",
           "wall s", "rss MiB");
}

/* ---- options ---- */

static const char help[] =
    "usage: dtp-bench boot [OPTIONS]\n"
    "\n"
    "Starts a gang of processes and measures how long it takes from the first process until all are through\n"
    "a barrier and have the table of all ranks. The processes are executed, not forked, and link libdtp.so.\n"
    "With --simulate the agents and ranks of any number run in this process, over a network with virtual time:\n"
    "the code that decides is the same.\n"
    "\n"
    "options:\n"
    "  -n, --ranks N        ranks to start (default 64)\n"
    "      --nodes M        artificial nodes, with an agent each, that meet over loopback TCP (default 1)\n"
    "      --radix R        children of an agent in their tree (default: chosen by the library)\n"
    "  -r, --runs N         runs, a line each (default 1)\n"
    "      --lose P         of a hundred ranks P die after the barrier (1 to 50), and the others re-form: the time\n"
    "                       from the first death to their own barrier is told (fields lost, reform_ms)\n"
    "      --timeout MS     of the join and of the barrier (default 60000)\n"
    "      --format FORMAT  table, or json: one object per line, with the fields bench ranks nodes radix\n"
    "                       simulated total_ms spawned_ms joined_ms cpu_us_per_rank agent_us_per_rank\n"
    "                       exec_us_per_rank messages (that make the table, without handshakes and the\n"
    "                       barrier) all_messages rounds bytes max_fds agent_fds slowest_rank wall_s max_rss_mib cpus\n"
    "                       version\n"
    "      --simulate N     simulate N ranks\n"
    "      --calibrate      measure what things cost here; print real runs beside simulated ones that assume it\n"
    "                       (the least of -r runs)\n"
    "  -h, --help           this text\n"
    "\n"
    "options of the simulation:\n"
    "      --ppn N          ranks on a node (default 8), in place of --nodes\n"
    "      --latency-us X   between nodes (default 25)\n"
    "      --near-us X      within a node (default 5)\n"
    "      --gbps X         of a node's port, each way (default 25)\n"
    "      --cpu-us X       processor time of a message, at its sender and at its receiver (default 15)\n"
    "      --cpu-ns-per-kib X  and for its bytes (default 0)\n"
    "      --row-ns X       and for a row of the table, at agents and ranks (default 10)\n"
    "      --spawn-us X     a launcher's time for a process, one after the other (default 0)\n"
    "      --exec-us X      of the process, while the launcher waits (default 0)\n"
    "      --link-us X      of the process, until main() (default 0)\n"
    "      --node-us X      a launcher's time before it starts anything (default 0)\n"
    "      --main-us X      of the process, until it meets its agent (default 0)\n"
    "      --cores N        of a node (default: one for each rank)\n"
    "      --all-cores N    that all nodes share (default: none are shared)\n"
    "      --loss P         part of the messages between nodes that come 5 ms later (default 0)\n"
    "      --seed N         of what is random: delays between nodes then vary by half (default: nothing is)\n"
    "      --missing N      ranks that never start: the others must all name them\n"
    "\n"
    "exit status:\n"
    "  0 all ranks came through, 1 a failure, 2 wrong options\n";

enum { OPT_NODES = 256, OPT_RADIX, OPT_TIMEOUT, OPT_FORMAT, OPT_SIMULATE, OPT_PPN, OPT_CORES, OPT_ALL_CORES,
       OPT_SEED, OPT_MISSING, OPT_CALIBRATE, OPT_LOSE,
       OPT_NUMBERS };

/* Numbers of the simulation: from OPT_NUMBERS on, in this order. */
static const struct number {
    const char *name;
    size_t at;
    double max;
} numbers[] = {
    { "latency-us", offsetof(boot_opts, latency_us), 1e9 },
    { "near-us", offsetof(boot_opts, near_us), 1e9 },
    { "gbps", offsetof(boot_opts, gbps), 1e6 },
    { "cpu-us", offsetof(boot_opts, cpu_us), 1e9 },
    { "cpu-ns-per-kib", offsetof(boot_opts, cpu_ns_per_kib), 1e9 },
    { "row-ns", offsetof(boot_opts, row_ns), 1e9 },
    { "spawn-us", offsetof(boot_opts, spawn_us), 1e9 },
    { "exec-us", offsetof(boot_opts, exec_us), 1e9 },
    { "link-us", offsetof(boot_opts, link_us), 1e9 },
    { "main-us", offsetof(boot_opts, main_us), 1e9 },
    { "loss", offsetof(boot_opts, loss), 0.9 },
    { "node-us", offsetof(boot_opts, node_us), 1e9 },
};

static const struct option long_options[] = {
    { "ranks", required_argument, NULL, 'n' },
    { "nodes", required_argument, NULL, OPT_NODES },
    { "radix", required_argument, NULL, OPT_RADIX },
    { "runs", required_argument, NULL, 'r' },
    { "timeout", required_argument, NULL, OPT_TIMEOUT },
    { "format", required_argument, NULL, OPT_FORMAT },
    { "simulate", required_argument, NULL, OPT_SIMULATE },
    { "ppn", required_argument, NULL, OPT_PPN },
    { "cores", required_argument, NULL, OPT_CORES },
    { "all-cores", required_argument, NULL, OPT_ALL_CORES },
    { "seed", required_argument, NULL, OPT_SEED },
    { "missing", required_argument, NULL, OPT_MISSING },
    { "lose", required_argument, NULL, OPT_LOSE },
    { "calibrate", no_argument, NULL, OPT_CALIBRATE },
    { "help", no_argument, NULL, 'h' },
    { "latency-us", required_argument, NULL, OPT_NUMBERS },
    { "near-us", required_argument, NULL, OPT_NUMBERS + 1 },
    { "gbps", required_argument, NULL, OPT_NUMBERS + 2 },
    { "cpu-us", required_argument, NULL, OPT_NUMBERS + 3 },
    { "cpu-ns-per-kib", required_argument, NULL, OPT_NUMBERS + 4 },
    { "row-ns", required_argument, NULL, OPT_NUMBERS + 5 },
    { "spawn-us", required_argument, NULL, OPT_NUMBERS + 6 },
    { "exec-us", required_argument, NULL, OPT_NUMBERS + 7 },
    { "link-us", required_argument, NULL, OPT_NUMBERS + 8 },
    { "main-us", required_argument, NULL, OPT_NUMBERS + 9 },
    { "loss", required_argument, NULL, OPT_NUMBERS + 10 },
    { "node-us", required_argument, NULL, OPT_NUMBERS + 11 },
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

static bool take_number(boot_opts *o, const struct number *n, const char *value)
{
    char *end;
    const double v = strtod(value, &end);

    if (end == value || *end || !(v >= 0 && v <= n->max))
        return false;
    memcpy((char *)o + n->at, &v, sizeof(v));
    return true;
}

/* False: the value is not possible. */
static bool take_known(boot_opts *o, int c, const char *value)
{
    if (c >= OPT_NUMBERS)
        return take_number(o, &numbers[c - OPT_NUMBERS], value);
    switch (c) {
    case 'n':
        return parse_int(value, 2, BOOT_MAX_RANKS, &o->n_ranks);
    case 'r':
        return parse_int(value, 1, 1000, &o->n_runs);
    case OPT_NODES:
        return parse_int(value, 1, 1 << 22, &o->n_nodes);
    case OPT_RADIX:
        return parse_int(value, 1, 1024, &o->radix);
    case OPT_TIMEOUT:
        return parse_int(value, 1, 1 << 30, &o->timeout_ms);
    case OPT_FORMAT:
        o->json = strcmp(value, "json") == 0;
        return o->json || strcmp(value, "table") == 0;
    case OPT_SIMULATE:
        o->simulate = true;
        return parse_int(value, 2, 1 << 24, &o->n_ranks);
    case OPT_PPN:
        return parse_int(value, 1, 1 << 20, &o->ppn);
    case OPT_CORES:
        return parse_int(value, 1, 1 << 16, &o->n_cores);
    case OPT_ALL_CORES:
        return parse_int(value, 1, 1 << 16, &o->n_cores_of_all);
    case OPT_MISSING:
        return parse_int(value, 0, 1 << 20, &o->n_missing);
    case OPT_LOSE:
        return parse_int(value, 1, 50, &o->lose_percent);
    case OPT_CALIBRATE:
        o->calibrate = true;
        return true;
    case OPT_SEED:
        return dtpi_parse_i64(value, 0, INT64_MAX, &o->seed);
    default:
        return false;
    }
}

static int run_all(const boot_opts *o)
{
    int rc = BENCH_OK;

    if (o->calibrate)
        return boot_calibrate(o);
    if (!o->json)
        print_head(o);
    for (int i = 0; i < o->n_runs && rc == BENCH_OK; i++) {
        boot_report r;
        rc = o->simulate ? boot_simulate(o, &r) : boot_run(o, &r);
        if (rc != BENCH_OK)
            break;
        if (o->json)
            print_json(&r);
        else
            print_table(&r);
        fflush(stdout);
    }
    return rc;
}

static bool is_of_simulation(int c)
{
    return c >= OPT_NUMBERS || c == OPT_PPN || c == OPT_CORES || c == OPT_ALL_CORES || c == OPT_SEED;
}

static bool take_option(void *user, int c, const char *value)
{
    boot_opts *o = user;

    if (is_of_simulation(c))
        o->of_simulation = bench_option_name(long_options, c);
    return take_known(o, c, value);
}

/* How many nodes, and whether all fits together; a line on stderr where it does not. */
static int settle(boot_opts *o)
{
    const int per_node = o->ppn ? o->ppn : 8;

    if (o->of_simulation && !o->simulate && !o->calibrate)
        return bench_usage(&bench_boot, "--%s is for --simulate", o->of_simulation);
    if (!o->simulate && o->radix > DTPI_TREE_MAX_RADIX)
        return bench_usage(&bench_boot, "--radix is 1 to %d", DTPI_TREE_MAX_RADIX);
    if (!o->n_nodes)
        o->n_nodes = o->simulate ? (o->n_ranks + per_node - 1) / per_node : 1;
    if (o->n_nodes > o->n_ranks)
        return bench_usage(&bench_boot, "%d nodes for %d ranks", o->n_nodes, o->n_ranks);
    if (!o->simulate && o->n_nodes > BOOT_MAX_NODES)
        return bench_usage(&bench_boot, "--nodes is 1 to %d", BOOT_MAX_NODES);
    if (o->n_missing && !o->simulate)
        return bench_usage(&bench_boot, "--missing is for --simulate");
    if (o->lose_percent && (o->simulate || o->calibrate))
        return bench_usage(&bench_boot, "--lose is for runs of real processes alone");
    if (o->n_missing >= o->n_ranks)
        return bench_usage(&bench_boot, "%d of %d ranks missing", o->n_missing, o->n_ranks);
    return BENCH_OK;
}

static int run(int argc, char **argv)
{
    boot_opts o = { .n_ranks = 64, .n_runs = 1, .timeout_ms = 60000, .latency_us = 25, .near_us = 5,
                    .gbps = 25, .cpu_us = 15, .row_ns = 10 };
    const bench_options read = { &bench_boot, ":n:r:h", long_options, take_option, &o };
    const int rc = bench_read_options(&read, argc, argv);

    if (rc != BENCH_GO_ON)
        return rc;
    return settle(&o) == BENCH_OK ? run_all(&o) : BENCH_USAGE;
}

const bench_cmd bench_boot = {
    .name = "boot",
    .summary = "time from the first process of a gang to a barrier of all",
    .help = help,
    .run = run,
};
