/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_agent.c - an agent in simulation: the core that ships, between channels instead of sockets.
 *
 * What lib/group/agent*.c do with sockets is done here with channels: strangers prove themselves and become
 * members with a slot, the parent is reached, the core's wishes are carried.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/tree.h"
#include "sim_internal.h"

enum { RETRY_FIRST_MS = 10, RETRY_MAX_MS = 250, GIVE_UP_MS = 500 };

/* What is said about the place in the tree, once proven: the words are played, of about the true size. */
enum { PLACE_BYTES = 120, PLACE_NEW = 1, PLACE_TABLE = 2, PLACE_AGAIN = 3, PLACE_GIVEN = 4,
       PLACE_BUSY = 5 };

/* One that has connected and not yet proven itself. */
struct stranger {
    struct stranger *next, **prev;
    struct sim_agent *agent;
    dtpi_loop_chan *chan;
    bool is_near, is_proven;
    dtpi_hs hs;
};

static int64_t now_of(const struct sim_agent *a)
{
    return dtpi_loop_now(a->sim->loop);
}

/* ---- time ---- */

static void tick(void *user, uint64_t key);

static void dial(void *user, uint64_t key);

static void after(struct sim_agent *a)
{
    if (a->is_orphan) {
        a->is_orphan = false;
        if (a->parent)          /* silent: the other end may be there */
            dtpi_loop_kill(a->parent, 0);
        a->parent = NULL;
        a->n_dials = 1;         /* the root first */
        if (!dtpi_loop_proc_at(a->proc, now_of(a), dial, a, 0))
            a->sim->failed = true;
    }
    const int64_t at = dtpi_core_next_ns(a->core), now = now_of(a);

    if (at == INT64_MAX || (a->tick_ns > now && a->tick_ns <= at))
        return;
    a->tick_ns = DTPI_MAX(at, now + 1);
    if (!dtpi_loop_proc_at(a->proc, a->tick_ns, tick, a, 0))
        a->sim->failed = true;
}

static void tick(void *user, uint64_t key)
{
    struct sim_agent *a = user;

    (void)key;
    if (now_of(a) < a->tick_ns)
        return;     /* another is planned */
    a->tick_ns = 0;
    dtpi_core_tick(a->core, now_of(a));
    after(a);
}

/* ---- the core's wishes ---- */

static void send_to(struct sim_agent *a, dtpi_loop_chan *chan, int from, dtpi_msg *m)
{
    if (chan && !dtpi_loop_send_msg(chan, from, m))
        a->sim->failed = true;
}

static void to_local(void *user, uint32_t slot, dtpi_msg *m)
{
    struct sim_agent *a = user;

    send_to(a, slot < a->n_locals ? a->locals[slot] : NULL, 1, m);
}

static void to_child(void *user, uint32_t slot, dtpi_msg *m)
{
    struct sim_agent *a = user;

    send_to(a, slot < a->n_children ? a->children[slot] : NULL, 1, m);
}

static void to_parent(void *user, dtpi_msg *m)
{
    struct sim_agent *a = user;

    send_to(a, a->parent, 0, m);
}

static void on_table(void *user)
{
    struct sim_agent *a = user;
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_frame f = { .type = DTPI_F_WELCOME, .generation = 1, .group = DTPI_WORLD_ID, .rank = -1 };

    dtpi_loop_work(a->sim->loop, a->sim->o.row_ns * a->sim->o.n_ranks);
    dtpi_frame_begin(&b, &f);
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    for (uint32_t i = 0; m && i < a->n_locals; i++)
        if (!dtpi_core_slot_is_free(a->core, i))
            to_local(a, i, m);
}

static void on_verdict(void *user, const dtpi_verdict *v)
{
    (void)user;
    (void)v;
}

static void drop(dtpi_loop_chan **chan)
{
    if (*chan)
        dtpi_loop_kill(*chan, 1);
    *chan = NULL;
}

static void drop_local(void *user, uint32_t slot)
{
    struct sim_agent *a = user;

    drop(&a->locals[slot]);
}

static void drop_child(void *user, uint32_t slot)
{
    struct sim_agent *a = user;

    drop(&a->children[slot]);
}

static void on_orphan(void *user)
{
    struct sim_agent *a = user;

    a->is_orphan = true;
}

static const dtpi_core_ops core_ops = {
    .to_local = to_local,
    .to_child = to_child,
    .to_parent = to_parent,
    .table = on_table,
    .verdict = on_verdict,
    .drop_local = drop_local,
    .drop_child = drop_child,
    .orphan = on_orphan,
};

/* ---- members ---- */

static dtpi_in in_of(dtpi_msg *m)
{
    return (dtpi_in){ .data = m->buf.data, .bytes = m->buf.len, .msg = m };
}

static void local_frame(void *user, uint64_t slot, dtpi_msg *m)
{
    struct sim_agent *a = user;
    const dtpi_in in = in_of(m);

    sim_count(a->sim, m->buf.data[1]);
    dtpi_core_local_msg(a->core, (uint32_t)slot, &in, now_of(a));
    after(a);
}

static void local_closed(void *user, uint64_t slot)
{
    struct sim_agent *a = user;

    a->locals[slot] = NULL;
    dtpi_core_local_end(a->core, (uint32_t)slot, NULL, now_of(a));
    after(a);
}

static void child_frame(void *user, uint64_t slot, dtpi_msg *m)
{
    struct sim_agent *a = user;
    const dtpi_in in = in_of(m);

    sim_count(a->sim, m->buf.data[1]);
    dtpi_core_child_msg(a->core, (uint32_t)slot, &in, now_of(a));
    after(a);
}

static void child_closed(void *user, uint64_t slot)
{
    struct sim_agent *a = user;

    a->children[slot] = NULL;
    dtpi_core_child_end(a->core, (uint32_t)slot, now_of(a));
    after(a);
}

/* ---- strangers ---- */

static bool add_slot(dtpi_loop_chan ***map, uint32_t *n, uint32_t *cap, dtpi_loop_chan *chan)
{
    if (*n == *cap) {
        const uint32_t want = *cap ? 2 * *cap : 8;
        dtpi_loop_chan **p = realloc(*map, want * sizeof(dtpi_loop_chan *));
        if (!p)
            return false;
        *map = p;
        *cap = want;
    }
    (*map)[(*n)++] = chan;
    return true;
}

static void promote(struct stranger *x)
{
    struct sim_agent *a = x->agent;
    dtpi_loop_side side = { .user = a, .proc = a->proc };

    if (x->is_near ? !add_slot(&a->locals, &a->n_locals, &a->cap_locals, x->chan)
                   : !add_slot(&a->children, &a->n_children, &a->cap_children, x->chan)) {
        a->sim->failed = true;
        return;
    }
    side.shared = x->is_near ? local_frame : child_frame;
    side.closed = x->is_near ? local_closed : child_closed;
    side.key = x->is_near ? a->n_locals - 1 : a->n_children - 1;
    dtpi_loop_adopt(x->chan, 1, &side);
    if (x->is_near)
        dtpi_core_local_open(a->core, (uint32_t)side.key, x->hs.peer.who, x->hs.peer.who + 1, now_of(a));
    else
        dtpi_core_child_open(a->core, (uint32_t)side.key, now_of(a));
    dtpi_loop_count(x->chan, true);     /* from here on messages belong to the table */
    after(a);
}

static void stranger_free(struct stranger *x)
{
    *x->prev = x->next;
    if (x->next)
        x->next->prev = x->prev;
    free(x);
}

void sim_strangers_free(struct sim *s)
{
    while (s->strangers)
        stranger_free(s->strangers);
}

static void send_place(struct sim_agent *a, dtpi_loop_chan *chan, int from, uint8_t word)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    memset(dtpi_buf_reserve(&b, PLACE_BYTES), word, PLACE_BYTES);
    b.len = PLACE_BYTES;
    sim_send(a->sim, chan, from, &b);
}

/* As agent_tree_serve: whoever has no table yet is a child; one that lost its parent comes to the judge. */
static void give_place(struct stranger *x, dtpi_msg *m)
{
    struct sim_agent *a = x->agent;
    const bool has_table = dtpi_core_has_table(a->core);
    const bool fits = has_table ? m->buf.data[0] == PLACE_TABLE || m->buf.data[0] == PLACE_AGAIN
                                : m->buf.data[0] != PLACE_TABLE;

    a->sim->result->n_proof_messages += 2;
    if (!fits || (has_table && !dtpi_core_is_judge(a->core))) {
        send_place(a, x->chan, 1, PLACE_BUSY);
        dtpi_loop_kill(x->chan, 1);
    } else {
        send_place(a, x->chan, 1, PLACE_GIVEN);
        promote(x);
    }
    stranger_free(x);
}

static void stranger_frame(void *user, uint64_t key, dtpi_msg *m)
{
    struct stranger *x = user;
    struct sim_agent *a = x->agent;
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    dtp_error err;

    (void)key;
    if (x->is_proven) {
        give_place(x, m);
        return;
    }
    const dtp_status st = dtpi_hs_serve(&x->hs, m->buf.data, m->buf.len, &b, &err);
    if (st == DTP_PENDING) {
        sim_send(a->sim, x->chan, 1, &b);
        return;
    }
    dtpi_buf_free(&b);
    if (st == DTP_OK && !x->is_near) {
        x->is_proven = true;
        return;
    }
    if (st < 0)
        dtpi_loop_kill(x->chan, 1);
    else
        promote(x);
    stranger_free(x);
}

static void stranger_closed(void *user, uint64_t key)
{
    (void)key;
    stranger_free(user);
}

/* The room for a handshake is taken when the first bytes come: all may connect at once. */
static void first_frame(void *user, uint64_t key, dtpi_msg *m)
{
    struct sim_agent *a = user;
    dtpi_loop_chan *chan = (dtpi_loop_chan *)(uintptr_t)(key & ~(uint64_t)1);
    struct stranger *x = calloc(1, sizeof(*x));
    const dtpi_loop_side side = { .shared = stranger_frame, .closed = stranger_closed, .user = x,
                                  .proc = a->proc };
    dtpi_hs_opts room;

    if (!x) {
        a->sim->failed = true;
        return;
    }
    x->next = a->sim->strangers;
    x->prev = &a->sim->strangers;
    if (x->next)
        x->next->prev = &x->next;
    a->sim->strangers = x;
    x->agent = a;
    x->chan = chan;
    x->is_near = key & 1;
    dtpi_hs_init(&x->hs, sim_hs_opts(x->is_near ? DTPI_HS_RANK : DTPI_HS_AGENT, a->sim->o.n_ranks, -1, &room));
    dtpi_loop_adopt(chan, 1, &side);
    stranger_frame(x, 0, m);
}

static void nobody_closed(void *user, uint64_t key)
{
    (void)user;
    (void)key;
}

static bool accept_near(void *user, dtpi_loop_chan *chan, dtpi_loop_side *side_out)
{
    struct sim_agent *a = user;

    *side_out = (dtpi_loop_side){ .shared = first_frame, .closed = nobody_closed, .user = a,
                                  .key = (uintptr_t)chan | 1, .proc = a->proc };
    return true;
}

static bool accept_far(void *user, dtpi_loop_chan *chan, dtpi_loop_side *side_out)
{
    accept_near(user, chan, side_out);
    side_out->key = (uintptr_t)chan;
    return true;
}

/* ---- the parent ---- */

static void try_later(struct sim_agent *a)
{
    const int64_t ms = (int64_t)RETRY_FIRST_MS << DTPI_MIN(a->n_dials - 1, 5u);

    dtpi_loop_proc_at(a->proc, now_of(a) + DTPI_MIN(ms, (int64_t)RETRY_MAX_MS) * DTPI_NS_PER_MS, dial, a, 0);
}

static void parent_frame(void *user, uint64_t key, dtpi_msg *m)
{
    struct sim_agent *a = user;
    const dtpi_in in = in_of(m);

    (void)key;
    sim_count(a->sim, m->buf.data[1]);
    dtpi_core_parent_msg(a->core, &in, now_of(a));
    after(a);
}

static void parent_closed(void *user, uint64_t key)
{
    struct sim_agent *a = user;

    (void)key;
    a->parent = NULL;
    dtpi_core_parent_end(a->core, DTP_OK, NULL, now_of(a));
    after(a);
}

static void proof_closed(void *user, uint64_t key)
{
    struct sim_agent *a = user;

    (void)key;
    a->trying = NULL;
    free(a->hs);
    a->hs = NULL;
    try_later(a);
}

static void placed(void *user, uint64_t key, dtpi_msg *m)
{
    struct sim_agent *a = user;
    dtpi_loop_chan *chan = (dtpi_loop_chan *)(uintptr_t)key;
    const dtpi_loop_side side = { .shared = parent_frame, .closed = parent_closed, .user = a,
                                  .proc = a->proc };

    a->trying = NULL;
    if (m->buf.data[0] != PLACE_GIVEN) {
        dtpi_loop_kill(chan, 0);
        try_later(a);
        return;
    }
    dtpi_loop_count(chan, true);
    dtpi_loop_adopt(chan, 0, &side);
    a->parent = chan;
    a->n_parents++;
    dtpi_core_parent_open(a->core, now_of(a));
    after(a);
}

static void prove(void *user, uint64_t key, dtpi_msg *m)
{
    struct sim_agent *a = user;
    dtpi_loop_chan *chan = (dtpi_loop_chan *)(uintptr_t)key;
    const dtpi_loop_side side = { .shared = placed, .closed = proof_closed, .user = a, .key = key,
                                  .proc = a->proc };
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    dtp_error err;

    const dtp_status st = dtpi_hs_answer(a->hs, m->buf.data, m->buf.len, &b, &err);
    free(a->hs);
    a->hs = NULL;
    if (st < 0) {
        a->trying = NULL;
        dtpi_buf_free(&b);
        dtpi_core_parent_end(a->core, st, err.text, now_of(a));
        after(a);
        return;
    }
    sim_send(a->sim, chan, 0, &b);
    a->sim->result->n_proof_messages += 3;
    dtpi_loop_adopt(chan, 0, &side);
    send_place(a, chan, 0, dtpi_core_has_table(a->core) ? PLACE_TABLE : a->n_parents ? PLACE_AGAIN : PLACE_NEW);
}

static void met(void *user, uint64_t key, dtpi_loop_chan *chan)
{
    struct sim_agent *a = user;
    const dtpi_loop_side side = { .shared = prove, .closed = proof_closed, .user = a,
                                  .key = (uintptr_t)chan, .proc = a->proc };
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_hs_opts room;

    if (key != a->n_dials) {    /* given up */
        if (chan)
            dtpi_loop_kill(chan, 0);
        return;
    }
    a->trying = chan;
    if (!chan) {
        try_later(a);
        return;
    }
    a->hs = malloc(sizeof(*a->hs));
    if (!a->hs) {
        a->sim->failed = true;
        return;
    }
    dtpi_loop_adopt(chan, 0, &side);
    dtpi_hs_init(a->hs, sim_hs_opts(DTPI_HS_AGENT, a->sim->o.n_ranks, -1, &room));
    dtpi_hs_hello(a->hs, &b);
    sim_send(a->sim, chan, 0, &b);
}

/* Nobody answered. */
static void give_up(void *user, uint64_t key)
{
    struct sim_agent *a = user;

    if (a->parent || key != a->n_dials)
        return;
    if (a->trying)
        dtpi_loop_kill(a->trying, 0);
    a->trying = NULL;
    proof_closed(a, 0);
}

/* The parent at first, then the root; one that has the table asks the standbys too, in turn. */
static const struct sim_agent *whom_to_ask(const struct sim_agent *a)
{
    dtpi_standby list[DTPI_STANDBYS];

    if (!dtpi_core_has_table(a->core) || a->n_dials == 0)
        return &a->sim->agents[a->n_dials == 0 ? dtpi_tree_parent(a->index, a->sim->o.radix) : 0];
    const uint32_t n = dtpi_core_standbys(a->core, list), turn = (a->n_dials - 1) % (n + 1);
    return &a->sim->agents[turn == 0 ? 0 : list[turn - 1].node - 1];
}

static void dial(void *user, uint64_t key)
{
    struct sim_agent *a = user;
    const struct sim_agent *to = whom_to_ask(a);
    dtpi_loop_side side = { .shared = prove, .closed = proof_closed, .user = a, .proc = a->proc };

    (void)key;
    if (a->parent || (dtpi_core_has_table(a->core) && !dtpi_core_seeks_parent(a->core)))
        return;
    side.key = ++a->n_dials;
    if (to == a)
        try_later(a);
    else if (!dtpi_loop_dial(a->sim->loop, &to->far, &side, met) ||
             !dtpi_loop_proc_at(a->proc, now_of(a) + GIVE_UP_MS * DTPI_NS_PER_MS, give_up, a, a->n_dials))
        a->sim->failed = true;
}

void sim_agent_meet_parent(struct sim_agent *a)
{
    if (a->index > 0)
        dial(a, 0);
}

/* ---- life ---- */

void sim_agent_rank_died(struct sim_agent *a, uint32_t rank)
{
    if (!dtpi_loop_proc_is_alive(a->proc))
        return;
    dtpi_core_rank_ended(a->core, (int32_t)rank, (int32_t)rank + 1, "signal 9", now_of(a));
    after(a);
}

dtp_status sim_agent_open(struct sim_agent *a, dtp_error *err)
{
    struct sim *s = a->sim;
    char host[24];

    snprintf(host, sizeof(host), "n%u", a->index);
    const dtpi_core_opts co = { .a = &dtpi_malloc_allocator, .world_size = s->o.n_ranks, .n_local = a->n,
                                .is_root = a->index == 0, .host = host, .node_id = 1 + a->index,
                                .host_rank = -1, .join_timeout_ns = s->o.timeout_ns,
                                .n_children_plus_1 = 1 + dtpi_tree_n_children(a->index, s->o.n_nodes, s->o.radix) };
    a->host = dtpi_loop_host_new(s->loop, s->o.n_cores);
    a->proc = a->host ? dtpi_loop_proc_new(s->loop, a->host) : NULL;
    a->launcher = a->host ? dtpi_loop_proc_new(s->loop, a->host) : NULL;
    if (!a->proc || !a->launcher)
        return dtpi_fail_nomem(err, sizeof(*a));
    a->near = (dtpi_loop_door){ .proc = a->proc, .user = a, .accept = accept_near };
    a->far = (dtpi_loop_door){ .proc = a->proc, .user = a, .accept = accept_far };
    const dtp_status st = dtpi_core_new(&co, &core_ops, a, &a->core, err);
    if (st >= 0) {
        dtpi_core_set_addresses(a->core, host);
        after(a);
    }
    return st;
}

void sim_agent_close(struct sim_agent *a)
{
    dtpi_core_free(a->core);
    free(a->hs);
    free(a->locals);
    free(a->children);
}
