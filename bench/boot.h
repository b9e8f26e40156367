/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot.h - what `dtp-bench boot` measures: how long a gang takes from its first process to the barrier
 * that all have passed, with the table of all ranks.
 *
 *   boot.c       options and output
 *   boot_run.c   real processes: a launcher with an agent for each artificial node
 *   boot_sim.c   the same in simulation (bench/sim/)
 *   boot_calibrate.c  what the simulation must assume here, and how near it then comes
 *   boot_rank.c  the program that they execute; public interface only
 */
#ifndef DTP_BENCH_BOOT_H
#define DTP_BENCH_BOOT_H

#include <stdatomic.h>

#include "bench.h"

enum { BOOT_MAX_RANKS = 4096, BOOT_MAX_NODES = 512, BOOT_MAGIC = 0x746f6f62 };

typedef struct boot_opts {
    int n_ranks, n_nodes;
    int radix;                  /* 0: chosen by the library */
    int n_runs;
    int timeout_ms;
    int lose_percent;           /* of the ranks die after the barrier, and the others re-form; 0: none */
    bool json;
    const char *of_simulation;  /* an option that was given and that only a simulation has; NULL: none */
    bool simulate;              /* what follows is for the simulation alone */
    double latency_us, near_us, gbps, cpu_us, cpu_ns_per_kib, row_ns, loss;
    double spawn_us, exec_us, link_us, main_us, node_us;
    bool calibrate;
    int ppn;                    /* ranks on a node; 0: 8 */
    int n_cores;                /* of each node; 0: one for each rank */
    int n_cores_of_all;         /* that all nodes share; 0: each has its own */
    int n_missing;              /* ranks that never start */
    int64_t seed;
} boot_opts;

typedef struct boot_report {
    bool simulated;
    int n_ranks, n_nodes, radix;
    double total_ms;            /* from the first process to the last that leaves the barrier */
    double spawned_ms;          /* until the last process reaches main() */
    double joined_ms;           /* until the last rank has the table */
    double cpu_us_per_rank;     /* from main() to the barrier's end, and the agent's share of it */
    double exec_us_per_rank;    /* before main(): execution and dynamic linking */
    double spawn_cpu_us, spawn_wall_us;     /* a launcher's, for each process */
    double agent_us_per_rank;   /* of that the agent's share */
    uint64_t messages, bytes;   /* that make the table: without handshakes and the barrier */
    uint64_t all_messages;      /* with handshakes and the barrier */
    uint32_t rounds;            /* longest chain of `messages` */
    int max_fds;                /* of a rank; in simulation: as agent_fds */
    int agent_fds;              /* of a launcher with its agent; in simulation: an agent's connections */
    int slowest_rank;
    int n_lost;
    double reform_ms;           /* from the first death to a barrier of those that are left */
    double wall_s, max_rss_mib;
} boot_report;

/* What the processes of one run write down; a memory file that all map. */
typedef struct boot_slot {
    int64_t main_ns, joined_ns, done_ns;
    int64_t died_ns, reformed_ns;
    int64_t cpu_main_ns, cpu_done_ns;
    int32_t n_fds;
    int32_t status;
    char text[DTP_ERROR_TEXT];
} boot_slot;

typedef struct boot_node {
    int64_t cpu_ns;             /* without starting processes */
    int64_t spawn_cpu_ns, spawn_wall_ns;    /* of starting them */
    int32_t n_fds;
    uint64_t n_messages, n_all, bytes;  /* that its agent heard, and that its ranks heard of it */
} boot_node;

typedef struct boot_page {
    uint32_t magic, n_ranks, lose_percent;
    _Atomic uint32_t n_over;    /* ranks that have passed the barrier or failed; a futex */
    _Atomic uint32_t n_ready;   /* to lose some */
    _Atomic uint32_t n_failed;
    boot_node nodes[BOOT_MAX_NODES];
    boot_slot ranks[];
} boot_page;

/* Whether a rank dies: they are spread evenly. */
static inline bool boot_is_lost(uint32_t rank, uint32_t percent)
{
    return rank * percent / 100 != (rank + 1) * percent / 100;
}

/* One run, with real processes or in simulation; a line on stderr where it fails. */
int boot_run(const boot_opts *o, boot_report *report_out);
int boot_simulate(const boot_opts *o, boot_report *report_out);
/* Measures what things cost here and prints real runs beside simulated ones. */
int boot_calibrate(const boot_opts *o);

#endif /* DTP_BENCH_BOOT_H */
