/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_proc.c - who runs when: a process handles one event at a time, on a core that is free.
 *
 * Where process and core are free an event is handled as it comes; only then nothing more has to be planned.
 */
#include "net/loop_internal.h"

bool loop_cores_init(dtpi_loop *l, struct loop_cores *c, uint32_t n)
{
    *c = (struct loop_cores){ .n = n };
    c->ready_tail = &c->ready;
    c->free_ns = dtpi_alloc_array(&l->a, n, sizeof(int64_t));
    return c->free_ns != NULL;
}

dtpi_loop_host *dtpi_loop_host_new(dtpi_loop *l, uint32_t n_cores)
{
    dtpi_loop_host *h = dtpi_alloc(&l->a, sizeof(*h));

    if (!h)
        return NULL;
    h->loop = l;
    h->cores = l->o.n_cores ? &l->cores : &h->own;
    if (!l->o.n_cores && !loop_cores_init(l, &h->own, DTPI_MAX(n_cores, 1u))) {
        dtpi_free(&l->a, h, sizeof(*h));
        return NULL;
    }
    h->next = l->hosts;
    l->hosts = h;
    return h;
}

void dtpi_loop_host_cut(dtpi_loop_host *h)
{
    h->is_cut = true;
}

dtpi_loop_proc *dtpi_loop_proc_new(dtpi_loop *l, dtpi_loop_host *h)
{
    dtpi_loop_proc *p = dtpi_alloc(&l->a, sizeof(*p));

    if (!p)
        return NULL;
    p->loop = l;
    p->host = h;
    p->inbox_tail = &p->inbox;
    p->next = l->procs;
    l->procs = p;
    return p;
}

bool dtpi_loop_proc_is_alive(const dtpi_loop_proc *p)
{
    return !p->dead;
}

int64_t dtpi_loop_proc_cpu_ns(const dtpi_loop_proc *p)
{
    return p->cpu_ns;
}

uint32_t dtpi_loop_proc_chain(const dtpi_loop_proc *p)
{
    return p->chain;
}

void dtpi_loop_work(dtpi_loop *l, int64_t ns)
{
    if (l->running)
        l->spent_ns += ns;
}

/* ---- running ---- */

static struct loop_event *take(dtpi_loop_proc *p)
{
    struct loop_event *e = p->inbox;

    p->inbox = e->next;
    if (!p->inbox)
        p->inbox_tail = &p->inbox;
    return e;
}

/* A process with events waits for a time at which it is free. */
static void wake_at(dtpi_loop_proc *p, int64_t at_ns)
{
    struct loop_event *e;

    if (p->wakes || p->is_ready || p->stopped || p->dead)
        return;
    e = loop_event_new(p->loop, LOOP_READY);
    if (!e)
        return;
    e->proc = p;
    p->wakes = loop_push(p->loop, e, at_ns);
}

static void run(dtpi_loop *l, dtpi_loop_proc *p, struct loop_event *e, int64_t *core_ns)
{
    l->running = p;
    l->spent_ns = loop_cost(l, e);
    loop_handle(l, e);
    loop_event_free(l, e);
    l->running = NULL;
    p->cpu_ns += l->spent_ns;
    p->free_ns = *core_ns = l->now_ns + l->spent_ns;
    if (p->inbox)
        wake_at(p, p->free_ns);
}

static int64_t *free_core(struct loop_cores *c)
{
    int64_t *least = &c->free_ns[0];

    for (uint32_t i = 1; i < c->n; i++)
        if (c->free_ns[i] < *least)
            least = &c->free_ns[i];
    return least;
}

void loop_cores_run(dtpi_loop *l, struct loop_cores *c)
{
    while (c->ready) {
        int64_t *core = free_core(c);
        dtpi_loop_proc *p = c->ready;
        if (*core > l->now_ns) {
            struct loop_event *e = c->waits ? NULL : loop_event_new(l, LOOP_CORE);
            if (e) {
                e->cores = c;
                c->waits = loop_push(l, e, *core);
            }
            return;
        }
        c->ready = p->next_ready;
        if (!c->ready)
            c->ready_tail = &c->ready;
        p->is_ready = false;
        if (p->inbox && !p->dead && !p->stopped)
            run(l, p, take(p), core);
    }
}

void loop_proc_ready(dtpi_loop_proc *p)
{
    struct loop_cores *c = p->host->cores;

    p->wakes = false;
    if (p->dead || p->stopped || p->is_ready || !p->inbox)
        return;
    p->is_ready = true;
    p->next_ready = NULL;
    *c->ready_tail = p;
    c->ready_tail = &p->next_ready;
    loop_cores_run(p->loop, c);
}

static void queue(dtpi_loop_proc *p, struct loop_event *e)
{
    e->next = NULL;
    *p->inbox_tail = e;
    p->inbox_tail = &e->next;
}

void loop_give(dtpi_loop *l, struct loop_event *e)
{
    dtpi_loop_proc *p = e->proc;

    if (!p) {
        loop_handle(l, e);
        loop_event_free(l, e);
        return;
    }
    if (p->dead || (p->host->is_cut && e->what != LOOP_CALL)) {
        loop_event_free(l, e);
        return;
    }
    struct loop_cores *c = p->host->cores;
    int64_t *core = free_core(c);
    if (!p->inbox && !p->stopped && p->free_ns <= l->now_ns && !c->ready && *core <= l->now_ns) {
        run(l, p, e, core);
        return;
    }
    queue(p, e);
    wake_at(p, DTPI_MAX(p->free_ns, l->now_ns));
}

/* ---- ends ---- */

void dtpi_loop_proc_kill(dtpi_loop_proc *p)
{
    if (p->dead)
        return;
    p->dead = true;
    for (dtpi_loop_chan *c = p->chans, *next; c; c = next) {
        const int who = c->sides[0].proc == p ? 0 : 1;
        next = c->next_of[who];
        dtpi_loop_kill(c, who);
    }
    while (p->inbox)
        loop_event_free(p->loop, take(p));
}

void dtpi_loop_proc_stop(dtpi_loop_proc *p, bool stopped)
{
    p->stopped = stopped;
    if (!stopped && p->inbox)
        wake_at(p, DTPI_MAX(p->free_ns, p->loop->now_ns));
}
