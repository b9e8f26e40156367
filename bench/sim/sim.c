/* SPDX-License-Identifier: Apache-2.0 */
/* sim.c - a gang in simulation: builds it, lets faults happen, runs it, sums up. */
#include <stdlib.h>
#include <string.h>

#include "sim_internal.h"

/* How long after a deadline a rank may still wait. */
#define PATIENCE_NS (10 * DTPI_NS_PER_S)

const dtpi_hs_opts *sim_hs_opts(dtpi_hs_role role, uint32_t world, int32_t who, dtpi_hs_opts *room)
{
    static const uint8_t secret[DTP_SECRET_BYTES] = "the secret of a gang of no use.";

    *room = (dtpi_hs_opts){ .role = role, .job = "sim", .generation = 1, .world = world, .who = who,
                            .host = "sim", .secret = secret };
    return room;
}

void sim_send(struct sim *s, dtpi_loop_chan *chan, int from, dtpi_buf *b_take)
{
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(b_take);

    if (!m || !dtpi_loop_send_msg(chan, from, m))
        s->failed = true;
}

/* ---- starting processes ---- */

static void spawn_next(void *user, uint64_t key);

static void exec_done(void *user, uint64_t key)
{
    struct sim_rank *r = user;
    struct sim *s = r->sim;
    struct sim_agent *a = r->agent;

    (void)key;
    dtpi_loop_proc_at(a->launcher, dtpi_loop_now(s->loop), spawn_next, a, 0);
    dtpi_loop_work(s->loop, s->o.link_ns);
    dtpi_loop_proc_at(r->proc, dtpi_loop_now(s->loop) + s->o.link_ns, sim_rank_main, r, 0);
}

static void exec_begins(void *user, uint64_t key)
{
    struct sim_rank *r = user;
    struct sim *s = r->sim;

    (void)key;
    dtpi_loop_work(s->loop, s->o.exec_ns);
    dtpi_loop_proc_at(r->proc, dtpi_loop_now(s->loop) + s->o.exec_ns, exec_done, r, 0);
}

/* A launcher waits for each process to be executed, and serves when all are. */
static void spawn_next(void *user, uint64_t key)
{
    struct sim_agent *a = user;
    struct sim *s = a->sim;

    (void)key;
    if (a->n_started == a->n) {
        dtpi_loop_proc_stop(a->proc, false);
        return;
    }
    struct sim_rank *r = &s->ranks[a->first + a->n_started++];
    dtpi_loop_work(s->loop, s->o.spawn_ns);
    const int64_t at = dtpi_loop_now(s->loop) + s->o.spawn_ns;
    if (dtpi_loop_proc_is_alive(r->proc))
        dtpi_loop_proc_at(r->proc, at, exec_begins, r, 0);
    else
        dtpi_loop_proc_at(a->launcher, at, spawn_next, a, 0);
}

/* Where starting costs nothing all are there at once. */
static void start_node(void *user, uint64_t key)
{
    struct sim_agent *a = user;
    struct sim *s = a->sim;

    (void)key;
    sim_agent_meet_parent(a);
    dtpi_loop_work(s->loop, s->o.node_ns);
    if (s->o.spawn_ns + s->o.exec_ns + s->o.link_ns > 0) {
        dtpi_loop_proc_stop(a->proc, true);
        dtpi_loop_proc_at(a->launcher, dtpi_loop_now(s->loop), spawn_next, a, 0);
        return;
    }
    for (uint32_t i = 0; i < a->n; i++)
        dtpi_loop_proc_at(s->ranks[a->first + i].proc, 0, sim_rank_main, &s->ranks[a->first + i], 0);
}

/* ---- faults ---- */

static void kill_rank(struct sim *s, uint32_t rank)
{
    struct sim_rank *r = &s->ranks[rank];

    dtpi_loop_proc_kill(r->proc);
    sim_rank_over(r, DTP_ERR_CANCELED);
    sim_agent_rank_died(r->agent, rank);
}

static void cut_node(struct sim *s, struct sim_agent *a)
{
    dtpi_loop_host_cut(a->host);
    dtpi_loop_proc_kill(a->proc);
    for (uint32_t i = a->first; i < a->first + a->n; i++) {
        dtpi_loop_proc_kill(s->ranks[i].proc);
        sim_rank_over(&s->ranks[i], DTP_ERR_CANCELED);
    }
}

static void happen(void *user, uint64_t key)
{
    struct sim *s = user;
    const sim_fault *f = &s->o.faults[key];

    switch (f->what) {
    case SIM_RANK_DIES:
        kill_rank(s, f->index);
        break;
    case SIM_RANK_STOPS:
        dtpi_loop_proc_stop(s->ranks[f->index].proc, true);
        break;
    case SIM_AGENT_DIES:
        dtpi_loop_proc_kill(s->agents[f->index].proc);
        break;
    case SIM_NODE_IS_CUT:
        cut_node(s, &s->agents[f->index]);
        break;
    case SIM_STAYS_AWAY:
        break;
    }
}

/* Marks whom the fault keeps from ending. */
static void mark_out(struct sim *s, const sim_fault *f)
{
    if (f->what == SIM_NODE_IS_CUT)
        for (uint32_t i = 0; i < s->agents[f->index].n; i++)
            s->is_out[s->agents[f->index].first + i] = 1;
    else if (f->what != SIM_AGENT_DIES)
        s->is_out[f->index] = 1;
    if (f->what == SIM_STAYS_AWAY)
        dtpi_loop_proc_kill(s->ranks[f->index].proc);
}

static dtp_status plan_faults(struct sim *s, dtp_error *err)
{
    for (uint32_t i = 0; i < s->o.n_faults; i++) {
        const sim_fault *f = &s->o.faults[i];
        const bool is_node = f->what == SIM_AGENT_DIES || f->what == SIM_NODE_IS_CUT;
        if (f->index >= (is_node ? s->o.n_nodes : s->o.n_ranks))
            return dtpi_fail(err, DTP_ERR_RANGE, "fault %u: there is no number %u", i, f->index);
        mark_out(s, f);
        if (!dtpi_loop_at(s->loop, f->at_ns, happen, s, i))
            return dtpi_fail_nomem(err, sizeof(*f));
    }
    s->n_expected = 0;
    for (uint32_t i = 0; i < s->o.n_ranks; i++)
        s->n_expected += !s->is_out[i];
    return DTP_OK;
}

/* ---- building ---- */

static dtp_status build_node(struct sim *s, uint32_t index, dtp_error *err)
{
    struct sim_agent *a = &s->agents[index];

    a->sim = s;
    a->index = index;
    a->first = (uint32_t)((uint64_t)s->o.n_ranks * index / s->o.n_nodes);
    a->n = (uint32_t)((uint64_t)s->o.n_ranks * (index + 1) / s->o.n_nodes) - a->first;
    dtp_status st = sim_agent_open(a, err);
    for (uint32_t i = a->first; st >= 0 && i < a->first + a->n; i++) {
        s->ranks[i] = (struct sim_rank){ .sim = s, .agent = a, .rank = i,
                                         .result = { .status = DTP_PENDING } };
        s->ranks[i].proc = dtpi_loop_proc_new(s->loop, a->host);
        if (!s->ranks[i].proc)
            st = dtpi_fail_nomem(err, sizeof(struct sim_rank));
    }
    if (st >= 0 && !dtpi_loop_proc_at(a->launcher, 0, start_node, a, 0))
        st = dtpi_fail_nomem(err, sizeof(*a));
    return st;
}

static dtp_status build(struct sim *s, dtp_error *err)
{
    s->loop = dtpi_loop_new(&dtpi_malloc_allocator, &s->o.net);
    s->agents = calloc(s->o.n_nodes, sizeof(*s->agents));
    s->ranks = calloc(s->o.n_ranks, sizeof(*s->ranks));
    s->is_out = calloc(s->o.n_ranks, 1);
    s->result->is_lost = calloc(s->o.n_ranks, 1);
    if (!s->result->is_lost || !s->loop || !s->agents || !s->ranks || !s->is_out)
        return dtpi_fail_nomem(err, s->o.n_ranks * sizeof(*s->ranks));
    dtp_status st = DTP_OK;
    for (uint32_t i = 0; i < s->o.n_nodes && st >= 0; i++)
        st = build_node(s, i, err);
    return st < 0 ? st : plan_faults(s, err);
}

static void tear_down(struct sim *s)
{
    dtpi_loop_free(s->loop);    /* messages go before the cores that made them */
    for (uint32_t i = 0; s->agents && i < s->o.n_nodes; i++)
        sim_agent_close(&s->agents[i]);
    sim_strangers_free(s);
    for (uint32_t i = 0; s->ranks && i < s->o.n_ranks; i++)
        free(s->ranks[i].hs);
    free(s->agents);
    free(s->ranks);
    free(s->is_out);
}

/* ---- summing up ---- */

static dtp_status sum_up(struct sim *s, sim_result *r, dtp_error *err)
{
    const dtpi_loop_stats *stats = dtpi_loop_get_stats(s->loop);

    r->n_ranks = s->o.n_ranks;
    r->ranks = calloc(s->o.n_ranks, sizeof(*r->ranks));
    if (!r->ranks)
        return dtpi_fail_nomem(err, s->o.n_ranks * sizeof(*r->ranks));
    for (uint32_t i = 0; i < s->o.n_ranks; i++) {
        const struct sim_rank *x = &s->ranks[i];
        r->ranks[i] = x->result;
        r->cpu_ns += dtpi_loop_proc_cpu_ns(x->proc) - x->main_cpu_ns;
        if (!s->is_out[i] && x->result.end_ns > r->total_ns) {
            r->total_ns = x->result.end_ns;
            r->slowest_rank = i;
        }
    }
    for (uint32_t i = 0; i < s->o.n_nodes; i++) {
        const struct sim_agent *a = &s->agents[i];
        r->agent_cpu_ns += dtpi_loop_proc_cpu_ns(a->proc);
        r->max_conns = DTPI_MAX(r->max_conns, a->n_locals + a->n_children + (i > 0));
    }
    r->cpu_ns += r->agent_cpu_ns;
    r->n_messages = stats->n_delivered;
    r->n_bytes = stats->n_bytes;
    r->n_events = stats->n_events;
    return DTP_OK;
}

dtp_status sim_run(const sim_opts *opts, sim_result *r, dtp_error *err)
{
    struct sim s = { .o = *opts, .result = r };

    *r = (sim_result){ 0 };
    if (opts->n_nodes < 1 || opts->n_nodes > opts->n_ranks || opts->radix < 1)
        return dtpi_fail(err, DTP_ERR_INVAL, "%u ranks on %u nodes in a tree of radix %u", opts->n_ranks,
                         opts->n_nodes, opts->radix);
    dtp_status st = build(&s, err);
    if (st >= 0) {
        const int64_t until = 2 * opts->timeout_ns + PATIENCE_NS;
        while (s.n_over < s.n_expected && !s.failed && dtpi_loop_step(s.loop, until))
            continue;
        st = s.failed ? dtpi_fail_nomem(err, 0) : sum_up(&s, r, err);
    }
    tear_down(&s);
    if (st < 0)
        sim_result_free(r);
    return st;
}

void sim_result_free(sim_result *r)
{
    free(r->ranks);
    free(r->is_lost);
    r->ranks = NULL;
    r->is_lost = NULL;
}
