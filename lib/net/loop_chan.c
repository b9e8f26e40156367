/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_chan.c - channels: how long a message takes, what it costs, who hears of it.
 *
 * A channel is a stream: what was lost comes later and holds up what follows it, nothing else.
 */
#include "net/loop_internal.h"

/* ---- making ---- */

static void enlist(dtpi_loop_chan *c, int who)
{
    dtpi_loop_proc *p = c->sides[who].proc;

    if (!p)
        return;
    c->next_of[who] = p->chans;
    p->chans = c;
}

static void place(dtpi_loop_chan *c)
{
    const dtpi_loop_proc *a = c->sides[0].proc, *b = c->sides[1].proc;

    c->is_far = !a || !b || a->host != b->host;
}

static dtpi_loop_chan *chan_new(dtpi_loop *l)
{
    dtpi_loop_chan *c = dtpi_alloc(&l->a, sizeof(*c));

    if (!c)
        return NULL;
    c->loop = l;
    c->next = l->chans;
    l->chans = c;
    return c;
}

dtpi_loop_chan *dtpi_loop_connect(dtpi_loop *l, const dtpi_loop_side sides[2])
{
    dtpi_loop_chan *c = chan_new(l);

    for (int who = 0; c && who < 2; who++) {
        c->sides[who] = sides[who];
        enlist(c, who);
    }
    if (c)
        place(c);
    return c;
}

void dtpi_loop_adopt(dtpi_loop_chan *c, int who, const dtpi_loop_side *side)
{
    const bool is_new = c->sides[who].proc != side->proc;

    c->sides[who] = *side;
    if (is_new)
        enlist(c, who);
    place(c);
}

/* ---- how long it takes ---- */

static int64_t bytes_ns(const dtpi_loop *l, size_t bytes)
{
    return l->o.bytes_per_s ? (int64_t)((__uint128_t)bytes * 1000000000u / l->o.bytes_per_s) : 0;
}

static int64_t kib_ns(const dtpi_loop *l, const dtpi_msg *m)
{
    return (int64_t)(m->buf.len * (uint64_t)l->o.cpu_ns_per_kib / 1024);
}

int64_t loop_cost(const dtpi_loop *l, const struct loop_event *e)
{
    return e->what == LOOP_MESSAGE ? l->o.recv_cpu_ns + kib_ns(l, e->msg) : 0;
}

/* Through both ports, each of which carries one message after the other. */
static int64_t through_ports(dtpi_loop_host *from, dtpi_loop_host *to, int64_t at_ns, int64_t span_ns,
                             int64_t latency_ns)
{
    if (from) {
        at_ns = DTPI_MAX(at_ns, from->out_free_ns) + span_ns;
        from->out_free_ns = at_ns;
    }
    at_ns += latency_ns;
    if (to) {
        at_ns = DTPI_MAX(at_ns, to->in_free_ns + span_ns);
        to->in_free_ns = at_ns;
    }
    return at_ns;
}

static dtpi_loop_host *host_of(const dtpi_loop_chan *c, int who)
{
    return c->sides[who].proc ? c->sides[who].proc->host : NULL;
}

static int64_t arrival(dtpi_loop_chan *c, int from, size_t bytes)
{
    dtpi_loop *l = c->loop;
    const dtpi_loop_proc *p = c->sides[from].proc;
    int64_t at = l->now_ns + (p && l->running == p ? l->spent_ns : 0);

    if (!c->is_far) {
        at += l->o.near_ns;
    } else {
        int64_t latency = l->o.latency_ns;
        if (l->o.jitter_ns)
            latency += (int64_t)(loop_random(l) % (uint64_t)l->o.jitter_ns);
        if (l->o.loss_ppm && loop_random(l) % 1000000 < l->o.loss_ppm) {
            latency += l->o.resend_ns;
            l->stats.n_late++;
        }
        at = through_ports(host_of(c, from), host_of(c, !from), at, bytes_ns(l, bytes), latency);
    }
    at = DTPI_MAX(at, c->last_ns[from]);
    c->last_ns[from] = at;
    return at;
}

/* ---- sending ---- */

static bool is_cut(const dtpi_loop_chan *c)
{
    const dtpi_loop_host *a = host_of(c, 0), *b = host_of(c, 1);

    return c->is_far && ((a && a->is_cut) || (b && b->is_cut));
}

bool dtpi_loop_send_msg(dtpi_loop_chan *c, int from, dtpi_msg *msg)
{
    dtpi_loop *l = c->loop;

    if (c->dead[0] || c->dead[1] || is_cut(c))
        return true;
    struct loop_event *e = loop_event_new(l, LOOP_MESSAGE);
    if (!e)
        return false;
    dtpi_loop_work(l, l->o.send_cpu_ns + kib_ns(l, msg));
    e->msg = dtpi_msg_ref(msg);
    e->chan = c;
    e->to = !from;
    e->proc = c->sides[!from].proc;
    e->key = c->counts ? 1 + (c->sides[from].proc ? c->sides[from].proc->chain : 0) : 0;
    return loop_push(l, e, arrival(c, from, msg->buf.len + l->o.head_bytes));
}

void dtpi_loop_count(dtpi_loop_chan *c, bool counts)
{
    c->counts = counts;
}

bool dtpi_loop_send(dtpi_loop_chan *c, int from, const void *data, size_t bytes)
{
    dtpi_buf b = dtpi_buf_init(&c->loop->a);

    dtpi_buf_append(&b, data, bytes);
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    return m && dtpi_loop_send_msg(c, from, m);
}

void dtpi_loop_kill(dtpi_loop_chan *c, int who)
{
    struct loop_event *e;

    if (c->dead[who])
        return;
    c->dead[who] = true;
    if (c->dead[!who] || is_cut(c) || !c->sides[!who].closed)
        return;
    e = loop_event_new(c->loop, LOOP_END);
    if (!e)
        return;
    e->chan = c;
    e->to = !who;
    e->proc = c->sides[!who].proc;
    loop_push(c->loop, e, arrival(c, who, 0));
}

/* ---- doors ---- */

bool dtpi_loop_dial(dtpi_loop *l, const dtpi_loop_door *door, const dtpi_loop_side *side, dtpi_loop_done done)
{
    dtpi_loop_chan *c = chan_new(l);
    struct loop_event *e = c ? loop_event_new(l, LOOP_KNOCK) : NULL;

    if (!e)
        return false;
    c->sides[0] = *side;
    c->sides[1].proc = door->proc;
    enlist(c, 0);
    place(c);
    c->door = door;
    c->done = done;
    e->chan = c;
    return is_cut(c) || loop_push(l, e, arrival(c, 0, 0));
}

/* The system takes connections for a process that is busy: no time of its own is spent. */
void loop_knock(dtpi_loop *l, struct loop_event *e)
{
    dtpi_loop_chan *c = e->chan;
    const dtpi_loop_door *door = c->door;
    dtpi_loop_side side = { .proc = door->proc };

    if (c->dead[0])
        return;     /* who asked has given up */
    c->is_refused = door->refuses || (door->proc && door->proc->dead) ||
                    !door->accept(door->user, c, &side);
    if (!c->is_refused) {
        c->sides[1] = side;
        enlist(c, 1);
        place(c);
    }
    struct loop_event *answer = loop_event_new(l, LOOP_ANSWER);
    if (!answer)
        return;
    answer->chan = c;
    answer->proc = c->sides[0].proc;
    loop_push(l, answer, arrival(c, 1, 0));
}

/* ---- hearing ---- */

void loop_handle(dtpi_loop *l, struct loop_event *e)
{
    dtpi_loop_chan *c = e->chan;
    const dtpi_loop_side *side = c ? &c->sides[e->to] : NULL;

    if (e->what == LOOP_CALL) {
        e->fn(e->user, e->key);
        return;
    }
    if (c->dead[e->to])
        return;
    if (e->what == LOOP_ANSWER) {
        c->done(side->user, side->key, c->is_refused ? NULL : c);
        return;
    }
    if (e->what == LOOP_END) {
        side->closed(side->user, side->key);
        return;
    }
    if (e->proc)
        e->proc->chain = DTPI_MAX(e->proc->chain, (uint32_t)e->key);
    l->stats.n_delivered++;
    l->stats.n_bytes += e->msg->buf.len;
    l->stats.n_far += c->is_far;
    l->stats.n_far_bytes += c->is_far ? e->msg->buf.len : 0;
    if (side->shared)
        side->shared(side->user, side->key, e->msg);
    else
        side->message(side->user, side->key, e->msg->buf.data, e->msg->buf.len);
}
