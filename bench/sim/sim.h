/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - a gang in simulation: the agents' core, the handshake and the frames of ranks, which ship, over the
 * network in a process, with virtual time. Only what sockets do is played.
 *
 * One run: processes start, ranks meet their agents, agents their parents, the table goes up and down, all
 * pass a barrier. Faults are told before.
 */
#ifndef DTP_BENCH_SIM_H
#define DTP_BENCH_SIM_H

#include "net/loop.h"

typedef enum sim_what {
    SIM_STAYS_AWAY,             /* the rank's process never starts */
    SIM_RANK_DIES,
    SIM_RANK_STOPS,             /* as SIGSTOP */
    SIM_AGENT_DIES,             /* of node `index`, and its ranks live on */
    SIM_NODE_IS_CUT             /* as when the power fails: nobody hears of an end */
} sim_what;

typedef struct sim_fault {
    sim_what what;
    uint32_t index;             /* of the rank or node */
    int64_t at_ns;
} sim_fault;

typedef struct sim_opts {
    uint32_t n_ranks, n_nodes;  /* ranks are spread in blocks */
    uint32_t radix;             /* of the tree of agents */
    dtpi_loop_opts net;
    uint32_t n_cores;           /* of each node */
    int64_t node_ns;            /* a launcher's time before it does anything */
    int64_t spawn_ns;           /* a launcher's time for one process, each after the other */
    int64_t exec_ns;            /* the process's time, for which the launcher waits */
    int64_t link_ns;            /* more of it until main() */
    int64_t main_ns;            /* and until it meets its agent */
    int64_t row_ns;             /* for each row of the table, at an agent and at a rank */
    int64_t timeout_ns;         /* of the join and of the barrier */
    const sim_fault *faults;
    uint32_t n_faults;
} sim_opts;

typedef struct sim_rank_result {
    dtp_status status;          /* OK, or that of the verdict; PENDING: it did not end */
    int64_t end_ns;
    uint32_t n_failed;
    uint64_t failed_sum;        /* of the sorted set: equal on all who saw the same */
} sim_rank_result;

typedef struct sim_result {
    int64_t spawned_ns, joined_ns, total_ns;    /* of the last rank */
    uint32_t slowest_rank;
    uint64_t n_proof_messages;  /* of handshakes, and about the place in the tree */
    uint64_t n_join_messages;   /* of the table and of failures: not of handshakes, the barrier, heartbeats */
    uint64_t n_messages, n_bytes;   /* all */
    uint32_t join_rounds, rounds;   /* longest chains, without handshakes */
    uint32_t max_conns;         /* connections of an agent */
    int64_t cpu_ns;             /* of all processes, main() to the end */
    int64_t agent_cpu_ns;
    uint64_t n_events;
    char text[DTP_ERROR_TEXT];  /* of the first verdict */
    uint8_t *is_lost;           /* by rank: the first verdict names it */
    sim_rank_result *ranks;     /* n_ranks; sim_result_free */
    uint32_t n_ranks;
} sim_result;

/* Errors: NOMEM, INVAL. */
dtp_status sim_run(const sim_opts *opts, sim_result *result_out, dtp_error *err);
void sim_result_free(sim_result *result);

#endif /* DTP_BENCH_SIM_H */
