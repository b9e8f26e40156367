/* SPDX-License-Identifier: Apache-2.0 */
/* sim_internal.h - agents and ranks of a gang in simulation, for sim*.c. */
#ifndef DTP_BENCH_SIM_INTERNAL_H
#define DTP_BENCH_SIM_INTERNAL_H

#include "group/core.h"
#include "group/handshake.h"
#include "sim.h"

struct sim;
struct stranger;

struct sim_agent {
    struct sim *sim;
    uint32_t index, first, n;   /* its ranks */
    dtpi_core *core;
    dtpi_loop_host *host;
    dtpi_loop_proc *proc, *launcher;
    dtpi_loop_door near, far;   /* for ranks and for agents */
    dtpi_loop_chan *parent;     /* side 0 */
    dtpi_loop_chan *trying;     /* connected, without a place yet */
    dtpi_loop_chan **locals, **children;    /* by slot, side 1 */
    uint32_t n_locals, n_children, cap_locals, cap_children;
    uint32_t n_started;         /* of its ranks */
    uint32_t n_dials, n_parents;
    bool is_orphan;             /* said by the core, and not yet acted upon */
    dtpi_hs *hs;                /* towards the parent */
    int64_t tick_ns;
};

struct sim_rank {
    struct sim *sim;
    struct sim_agent *agent;
    dtpi_loop_proc *proc;
    dtpi_loop_chan *chan;       /* side 0 */
    dtpi_hs *hs;                /* until it is proven */
    uint32_t rank;
    enum { SIM_PROVING, SIM_JOINING, SIM_CALLING, SIM_OVER } state;
    int64_t main_cpu_ns;
    sim_rank_result result;
};

struct sim {
    sim_opts o;
    dtpi_loop *loop;
    struct sim_agent *agents;
    struct sim_rank *ranks;
    uint32_t n_over, n_expected;    /* ranks that will end */
    uint8_t *is_out;            /* by rank: a fault will keep it from ending */
    struct stranger *strangers;
    sim_result *result;
    bool failed;                /* memory is out */
};

/* sim_agent.c */
dtp_status sim_agent_open(struct sim_agent *a, dtp_error *err);
void sim_agent_close(struct sim_agent *a);
void sim_strangers_free(struct sim *s);
void sim_agent_meet_parent(struct sim_agent *a);
void sim_agent_rank_died(struct sim_agent *a, uint32_t rank);

/* sim_rank.c */
void sim_rank_main(void *rank, uint64_t unused);
void sim_rank_over(struct sim_rank *r, dtp_status status);

/* sim.c */
const dtpi_hs_opts *sim_hs_opts(dtpi_hs_role role, uint32_t world, int32_t who, dtpi_hs_opts *room);
/* A message of this type was heard. */
static inline void sim_count(struct sim *s, uint8_t type)
{
    s->result->n_join_messages += type != DTPI_F_UP && type != DTPI_F_DOWN && type != DTPI_F_BEAT;
}
void sim_send(struct sim *s, dtpi_loop_chan *chan, int from, dtpi_buf *b_take);

#endif /* DTP_BENCH_SIM_INTERNAL_H */
