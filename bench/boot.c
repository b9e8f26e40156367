/* SPDX-License-Identifier: Apache-2.0 */
/* boot.c - how long a gang takes to stand: options and output of `dtp-bench boot`. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"
#include "boot.h"

/* ---- output ---- */

static void print_json(const boot_report *r)
{
    printf("{\"bench\":\"boot\",\"ranks\":%d,\"nodes\":%d,\"radix\":%d,\"simulated\":%s,\"total_ms\":%.3f,"
           "\"spawned_ms\":%.3f,\"joined_ms\":%.3f,\"cpu_us_per_rank\":%.1f,\"agent_us_per_rank\":%.1f,\"exec_us_per_rank\":%.1f,"
           "\"messages\":%llu,\"rounds\":%u,\"bytes\":%llu,\"max_fds\":%d,\"agent_fds\":%d,"
           "\"slowest_rank\":%d,\"wall_s\":%.3f,\"max_rss_mib\":%.1f,\"cpus\":%d,\"version\":\"%s\"}\n",
           r->n_ranks, r->n_nodes, r->radix, r->simulated ? "true" : "false", r->total_ms, r->spawned_ms,
           r->joined_ms, r->cpu_us_per_rank, r->agent_us_per_rank, r->exec_us_per_rank,
           (unsigned long long)r->messages, r->rounds, (unsigned long long)r->bytes, r->max_fds, r->agent_fds, r->slowest_rank, r->wall_s,
           r->max_rss_mib, bench_n_cpus(), dtp_version());
}

static void print_table(const boot_report *r)
{
    printf("%8d %6d %9.2f %9.2f %9.2f %9.1f %9.1f %9.1f %9llu %6u %10llu %7d %7d %8d\n", r->n_ranks, r->n_nodes,
           r->spawned_ms, r->joined_ms, r->total_ms, r->cpu_us_per_rank, r->agent_us_per_rank, r->exec_us_per_rank,
           (unsigned long long)r->messages, r->rounds, (unsigned long long)r->bytes, r->max_fds,
           r->agent_fds, r->slowest_rank);
}

static void print_head(void)
{
    printf("# dtp-bench boot: libdtp %s, %d processors; ms since the first process; CPU in us a rank\n",
           dtp_version(), bench_n_cpus());
    printf("#%7s %6s %9s %9s %9s %9s %9s %9s %9s %6s %10s %7s %7s %8s\n", "ranks", "nodes", "spawned", "joined",
           "total", "cpu", "(agent)", "exec", "messages", "rounds", "bytes", "fds", "a-fds", "slowest");
}

/* ---- options ---- */

static const char help[] =
    "usage: dtp-bench boot [OPTIONS]\n"
    "\n"
    "Starts a gang of processes and measures how long it takes from the first process until all are through\n"
    "a barrier and have the table of all ranks. The processes are executed, not forked, and link libdtp.so.\n"
    "\n"
    "options:\n"
    "  -n, --ranks N        ranks to start (default 64)\n"
    "      --nodes M        artificial nodes, with an agent each, that meet over loopback TCP (default 1)\n"
    "      --radix R        children of an agent in their tree (default: chosen by the library)\n"
    "  -r, --runs N         runs, a line each (default 1)\n"
    "      --timeout MS     of the join and of the barrier (default 60000)\n"
    "      --format FORMAT  table, or json: one object per line, with the fields bench ranks nodes radix\n"
    "                       simulated total_ms spawned_ms joined_ms cpu_us_per_rank agent_us_per_rank\n"
    "                       exec_us_per_rank messages rounds bytes max_fds agent_fds slowest_rank wall_s max_rss_mib cpus\n"
    "                       version\n"
    "  -h, --help           this text\n"
    "\n"
    "exit status:\n"
    "  0 all ranks came through, 1 a failure, 2 wrong options\n";

enum { OPT_NODES = 256, OPT_RADIX, OPT_TIMEOUT, OPT_FORMAT };

static const struct option long_options[] = {
    { "ranks", required_argument, NULL, 'n' },
    { "nodes", required_argument, NULL, OPT_NODES },
    { "radix", required_argument, NULL, OPT_RADIX },
    { "runs", required_argument, NULL, 'r' },
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

static const char *long_name(int c)
{
    for (const struct option *o = long_options; o->name; o++)
        if (o->val == c)
            return o->name;
    return "?";
}

/* False: the value is not possible. */
static bool take_option(boot_opts *o, int c, const char *value)
{
    switch (c) {
    case 'n':
        return parse_int(value, 2, BOOT_MAX_RANKS, &o->n_ranks);
    case 'r':
        return parse_int(value, 1, 1000, &o->n_runs);
    case OPT_NODES:
        return parse_int(value, 1, BOOT_MAX_NODES, &o->n_nodes);
    case OPT_RADIX:
        return parse_int(value, 1, 1024, &o->radix);
    case OPT_TIMEOUT:
        return parse_int(value, 1, 1 << 30, &o->timeout_ms);
    case OPT_FORMAT:
        o->json = strcmp(value, "json") == 0;
        return o->json || strcmp(value, "table") == 0;
    default:
        return false;
    }
}

static int run_all(const boot_opts *o)
{
    int rc = BENCH_OK;

    if (!o->json)
        print_head();
    for (int i = 0; i < o->n_runs && rc == BENCH_OK; i++) {
        boot_report r;
        rc = boot_run(o, &r);
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

static int run(int argc, char **argv)
{
    boot_opts o = { .n_ranks = 64, .n_nodes = 1, .n_runs = 1, .timeout_ms = 60000 };
    int c;

    opterr = 0;
    optind = 1;
    while ((c = getopt_long(argc, argv, ":n:r:h", long_options, NULL)) != -1) {
        if (c == 'h') {
            fputs(help, stdout);
            return BENCH_OK;
        }
        if (c == ':')
            return bench_usage(&bench_boot, "option %s needs a value", argv[optind - 1]);
        if (c == '?' && optopt == 0)
            return bench_usage(&bench_boot, "unknown option %s", argv[optind - 1]);
        if (c == '?')
            return bench_usage(&bench_boot, "unknown option -%c", optopt);
        if (!take_option(&o, c, optarg))
            return bench_usage(&bench_boot, "--%s: '%s' is not possible", long_name(c), optarg);
    }
    if (optind < argc)
        return bench_usage(&bench_boot, "'%s' is one word too many", argv[optind]);
    if (o.n_nodes > o.n_ranks)
        return bench_usage(&bench_boot, "%d nodes for %d ranks", o.n_nodes, o.n_ranks);
    return run_all(&o);
}

const bench_cmd bench_boot = {
    .name = "boot",
    .summary = "time from the first process of a gang to a barrier of all",
    .help = help,
    .run = run,
};
