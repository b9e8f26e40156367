/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_calibrate.c - what starting a process and handling a message cost on this machine, and how near a
 * simulation that assumes it comes to real runs.
 *
 * Two runs give the costs: 64 ranks behind one agent, and 64 with an agent each. All others are predicted from
 * these, with the processors of this machine for all.
 */
#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "boot.h"

enum { MAX_RUNS = BENCH_MAX_BATCHES, BASE_RANKS = 64 };

/* Messages of a rank with its agent, handshake and barrier included: 4 up, 3 down. */
enum { NEAR_MESSAGES = 7 };
/* Of an agent with its parent, at both ends: 5 up, 4 down. */
enum { FAR_MESSAGES = 2 * 9 };

/* The least of each number that matters: that of the run which others on this machine disturbed least. */
static int run_least(const boot_opts *o, boot_report *out)
{
    double total[MAX_RUNS], cpu[MAX_RUNS], agent[MAX_RUNS], exec[MAX_RUNS], spawn[MAX_RUNS], wall[MAX_RUNS];
    const int n = DTPI_MIN(o->n_runs, (int)MAX_RUNS);

    for (int i = 0; i < n; i++) {
        boot_report r;
        const int rc = boot_run(o, &r);
        if (rc != BENCH_OK)
            return rc;
        total[i] = r.total_ms;
        cpu[i] = r.cpu_us_per_rank;
        agent[i] = r.agent_us_per_rank;
        exec[i] = r.exec_us_per_rank;
        spawn[i] = r.spawn_cpu_us;
        wall[i] = r.spawn_wall_us;
        *out = r;
    }
    out->total_ms = bench_summarise(total, n).min;
    out->cpu_us_per_rank = bench_summarise(cpu, n).min;
    out->agent_us_per_rank = bench_summarise(agent, n).min;
    out->exec_us_per_rank = bench_summarise(exec, n).min;
    out->spawn_cpu_us = bench_summarise(spawn, n).min;
    out->spawn_wall_us = bench_summarise(wall, n).min;
    return BENCH_OK;
}

static int measure(const boot_opts *user, int n_ranks, int n_nodes, int radix, boot_report *out)
{
    boot_opts o = *user;

    o.n_ranks = n_ranks;
    o.n_nodes = n_nodes;
    o.radix = radix;
    return run_least(&o, out);
}

/* Fills in what the simulation assumes. */
static int find_costs(boot_opts *o)
{
    boot_report few, one, each;
    int rc = measure(o, 2, 1, 0, &few);         /* the launcher waits, and nobody disturbs it */

    if (rc == BENCH_OK)
        rc = measure(o, BASE_RANKS, 1, 0, &one);
    if (rc == BENCH_OK)
        rc = measure(o, BASE_RANKS, BASE_RANKS, 32, &each);
    if (rc != BENCH_OK)
        return rc;
    o->cpu_us = one.agent_us_per_rank / NEAR_MESSAGES;
    o->main_us = DTPI_MAX(one.cpu_us_per_rank - 2 * one.agent_us_per_rank, 0.0);
    o->spawn_us = one.spawn_cpu_us;
    o->exec_us = DTPI_MIN(DTPI_MAX(few.spawn_wall_us - few.spawn_cpu_us, 0.0), one.exec_us_per_rank);
    o->link_us = one.exec_us_per_rank - o->exec_us;
    o->node_us = DTPI_MAX(each.agent_us_per_rank - one.agent_us_per_rank - FAR_MESSAGES * o->cpu_us, 0.0);
    o->latency_us = 5;
    o->near_us = 2;
    o->gbps = 0;
    o->n_cores_of_all = bench_n_cpus();
    return BENCH_OK;
}

static void print_costs(const boot_opts *o)
{
    if (o->json)
        printf("{\"bench\":\"boot.costs\",\"cpu_us\":%.2f,\"spawn_us\":%.1f,\"exec_us\":%.1f,\"link_us\":%.1f,"
               "\"main_us\":%.1f,\"node_us\":%.1f,\"all_cores\":%d}\n", o->cpu_us, o->spawn_us, o->exec_us,
               o->link_us, o->main_us, o->node_us, o->n_cores_of_all);
    else
        printf("# dtp-bench boot: libdtp %s; of this machine, for --simulate:\n"
               "#   --cpu-us %.2f --spawn-us %.1f --exec-us %.1f --link-us %.1f --main-us %.1f --node-us %.1f "
               "--latency-us 5 --near-us 2 --gbps 0 --all-cores %d\n"
               "#%7s %6s %5s %10s %10s %8s\n", dtp_version(), o->cpu_us, o->spawn_us, o->exec_us, o->link_us,
               o->main_us, o->node_us, o->n_cores_of_all, "ranks", "nodes", "radix", "real ms", "simulated",
               "off %");
    fflush(stdout);
}

static int compare(const boot_opts *costs, int n_ranks, int n_nodes, int radix, double *worst)
{
    boot_report real, simulated;
    boot_opts o = *costs;

    int rc = measure(costs, n_ranks, n_nodes, radix, &real);
    o.n_ranks = n_ranks;
    o.n_nodes = n_nodes;
    o.radix = radix;
    if (rc == BENCH_OK)
        rc = boot_simulate(&o, &simulated);
    if (rc != BENCH_OK)
        return rc;
    const double off = (simulated.total_ms / real.total_ms - 1) * 100;
    *worst = fmax(*worst, fabs(off));
    if (o.json)
        printf("{\"bench\":\"boot.calibrate\",\"ranks\":%d,\"nodes\":%d,\"radix\":%d,\"real_ms\":%.2f,"
               "\"simulated_ms\":%.2f,\"off_percent\":%.1f,\"runs\":%d}\n", n_ranks, n_nodes, radix,
               real.total_ms, simulated.total_ms, off, o.n_runs);
    else
        printf("%8d %6d %5d %10.2f %10.2f %8.1f\n", n_ranks, n_nodes, radix, real.total_ms,
               simulated.total_ms, off);
    fflush(stdout);
    return BENCH_OK;
}

int boot_calibrate(const boot_opts *user)
{
    static const int ranks[] = { 64, 128, 256, 512 }, per_node[] = { 2, 8 }, radixes[] = { 4, 32 };
    boot_opts o = *user;
    double worst = 0;
    int rc = find_costs(&o);

    if (rc != BENCH_OK)
        return rc;
    print_costs(&o);
    for (size_t i = 0; i < DTPI_ARRAY_LEN(ranks) && rc == BENCH_OK; i++)
        for (size_t k = 0; k < 4 && rc == BENCH_OK; k++)
            rc = compare(&o, ranks[i], ranks[i] / per_node[k / 2], radixes[k % 2], &worst);
    if (rc == BENCH_OK && !o.json)
        printf("# at most %.1f %% off\n", worst);
    return rc;
}
