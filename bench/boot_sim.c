/* SPDX-License-Identifier: Apache-2.0 */
/* boot_sim.c - `dtp-bench boot --simulate`: the numbers of one run in simulation. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/base.h"
#include "boot.h"
#include "group/tree.h"
#include "sim/sim.h"

static int64_t ns_of(double us)
{
    return (int64_t)(us * 1e3 + 0.5);
}

static sim_opts opts_of(const boot_opts *o)
{
    const int per_node = (o->n_ranks + o->n_nodes - 1) / o->n_nodes;

    return (sim_opts){
        .n_ranks = (uint32_t)o->n_ranks,
        .n_nodes = (uint32_t)o->n_nodes,
        .radix = o->radix ? (uint32_t)o->radix
                          : dtpi_tree_radix((uint32_t)o->n_ranks, (uint32_t)o->n_nodes),
        .n_cores = (uint32_t)(o->n_cores ? o->n_cores : per_node),
        .spawn_ns = ns_of(o->spawn_us),
        .exec_ns = ns_of(o->exec_us),
        .link_ns = ns_of(o->link_us),
        .main_ns = ns_of(o->main_us),
        .node_ns = ns_of(o->node_us),
        .row_ns = (int64_t)o->row_ns,
        .timeout_ns = o->timeout_ms * DTPI_NS_PER_MS,
        .net = { .seed = (uint64_t)o->seed, .latency_ns = ns_of(o->latency_us), .near_ns = ns_of(o->near_us),
                 .bytes_per_s = (uint64_t)(o->gbps * 1e9 / 8), .head_bytes = 86,
                 .send_cpu_ns = ns_of(o->cpu_us), .recv_cpu_ns = ns_of(o->cpu_us),
                 .cpu_ns_per_kib = (int64_t)o->cpu_ns_per_kib, .n_cores = (uint32_t)o->n_cores_of_all,
                 .loss_ppm = (uint32_t)(o->loss * 1e6), .resend_ns = 5 * DTPI_NS_PER_MS,
                 .jitter_ns = o->seed ? ns_of(o->latency_us) / 2 : 0 },
    };
}

/* Spread over the whole, so that many nodes miss one. */
static sim_fault *missing_ranks(const boot_opts *o)
{
    sim_fault *f = calloc((size_t)o->n_missing + 1, sizeof(*f));

    for (int i = 0; f && i < o->n_missing; i++)
        f[i] = (sim_fault){ .what = SIM_STAYS_AWAY,
                            .index = (uint32_t)((int64_t)o->n_ranks * i / o->n_missing) };
    return f;
}

/* All that ended saw the same. */
static int judge(const boot_opts *o, const sim_result *s)
{
    const sim_rank_result *first = NULL;
    int n_ended = 0;

    for (uint32_t i = 0; i < s->n_ranks; i++) {
        const sim_rank_result *r = &s->ranks[i];
        if (r->status == DTP_PENDING)
            continue;
        n_ended++;
        if (first && (r->status != first->status || r->failed_sum != first->failed_sum)) {
            fprintf(stderr, "dtp-bench boot: rank %u saw %s, others %s: %s\n", i, dtp_status_name(r->status),
                    dtp_status_name(first->status), s->text);
            return BENCH_FAILED;
        }
        first = first ? first : r;
    }
    if (n_ended != o->n_ranks - o->n_missing) {
        fprintf(stderr, "dtp-bench boot: %d of %d ranks did not end\n", o->n_ranks - o->n_missing - n_ended,
                o->n_ranks);
        return BENCH_FAILED;
    }
    if (s->text[0])
        fprintf(stderr, "dtp-bench boot: %s\n", s->text);
    return (first->status < 0) == (o->n_missing > 0) ? BENCH_OK : BENCH_FAILED;
}

static void report(const boot_opts *o, const sim_result *s, boot_report *r)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    r->simulated = true;
    r->n_ranks = o->n_ranks;
    r->n_nodes = o->n_nodes;
    r->radix = (int)opts_of(o).radix;
    r->spawned_ms = (double)s->spawned_ns / 1e6;
    r->joined_ms = (double)s->joined_ns / 1e6;
    r->total_ms = (double)s->total_ns / 1e6;
    r->cpu_us_per_rank = (double)s->cpu_ns / 1e3 / o->n_ranks;
    r->agent_us_per_rank = (double)s->agent_cpu_ns / 1e3 / o->n_ranks;
    r->exec_us_per_rank = o->exec_us + o->link_us;
    r->messages = s->n_join_messages;
    r->all_messages = s->n_messages;
    r->bytes = s->n_bytes;
    r->rounds = s->join_rounds;
    r->max_fds = r->agent_fds = (int)s->max_conns;     /* an agent's: a rank has one */
    r->slowest_rank = (int)s->slowest_rank;
    r->max_rss_mib = (double)usage.ru_maxrss / 1024;
}

int boot_simulate(const boot_opts *o, boot_report *r)
{
    const int64_t start_ns = bench_now_ns();
    sim_opts so = opts_of(o);
    sim_fault *faults = missing_ranks(o);
    sim_result s;
    dtp_error err = { 0 };

    *r = (boot_report){ 0 };
    so.faults = faults;
    so.n_faults = faults ? (uint32_t)o->n_missing : 0;
    if (sim_run(&so, &s, &err) < 0) {
        free(faults);
        return bench_fail(&bench_boot, &err);
    }
    report(o, &s, r);
    r->wall_s = (double)(bench_now_ns() - start_ns) / 1e9;
    const int rc = judge(o, &s);
    sim_result_free(&s);
    free(faults);
    return rc;
}
