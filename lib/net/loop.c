/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - a network inside one process: a heap of events ordered by time, then by their number. */
#include "net/loop_internal.h"

enum { SLAB_EVENTS = 1024 };

struct loop_slab {
    struct loop_slab *next;
    struct loop_event events[SLAB_EVENTS];
};

dtpi_loop *dtpi_loop_new(const dtp_allocator *a, const dtpi_loop_opts *opts)
{
    dtpi_loop *l = dtpi_alloc(a, sizeof(*l));

    if (!l)
        return NULL;
    l->a = *a;
    l->o = *opts;
    if (opts->n_cores && !loop_cores_init(l, &l->cores, opts->n_cores)) {
        dtpi_free(a, l, sizeof(*l));
        return NULL;
    }
    return l;
}

static void free_procs(dtpi_loop *l)
{
    while (l->procs) {
        dtpi_loop_proc *p = l->procs;
        l->procs = p->next;
        while (p->inbox) {
            struct loop_event *e = p->inbox;
            p->inbox = e->next;
            loop_event_free(l, e);
        }
        dtpi_free(&l->a, p, sizeof(*p));
    }
    while (l->hosts) {
        dtpi_loop_host *h = l->hosts;
        l->hosts = h->next;
        dtpi_free(&l->a, h->own.free_ns, h->own.n * sizeof(int64_t));
        dtpi_free(&l->a, h, sizeof(*h));
    }
    dtpi_free(&l->a, l->cores.free_ns, l->cores.n * sizeof(int64_t));
}

void dtpi_loop_free(dtpi_loop *l)
{
    if (!l)
        return;
    const dtp_allocator a = l->a;
    for (size_t i = 0; i < l->n_heap; i++)
        loop_event_free(l, l->heap[i].event);
    dtpi_free(&a, l->heap, l->cap_heap * sizeof(*l->heap));
    free_procs(l);
    while (l->chans) {
        dtpi_loop_chan *c = l->chans;
        l->chans = c->next;
        dtpi_free(&a, c, sizeof(*c));
    }
    while (l->slabs) {
        struct loop_slab *s = l->slabs;
        l->slabs = s->next;
        dtpi_free(&a, s, sizeof(*s));
    }
    dtpi_free(&a, l, sizeof(*l));
}

int64_t dtpi_loop_now(const dtpi_loop *l)
{
    return l->now_ns;
}

const dtpi_loop_stats *dtpi_loop_get_stats(const dtpi_loop *l)
{
    return &l->stats;
}

uint64_t dtpi_loop_n_delivered(const dtpi_loop *l)
{
    return l->stats.n_delivered;
}

uint64_t loop_random(dtpi_loop *l)
{
    uint64_t z = (l->o.seed += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* ---- events ---- */

struct loop_event *loop_event_new(dtpi_loop *l, enum loop_what what)
{
    if (!l->free) {
        struct loop_slab *s = dtpi_alloc(&l->a, sizeof(*s));
        if (!s)
            return NULL;
        s->next = l->slabs;
        l->slabs = s;
        for (size_t i = 0; i < SLAB_EVENTS; i++) {
            s->events[i].next = l->free;
            l->free = &s->events[i];
        }
    }
    struct loop_event *e = l->free;
    l->free = e->next;
    *e = (struct loop_event){ .what = (uint8_t)what };
    return e;
}

void loop_event_free(dtpi_loop *l, struct loop_event *e)
{
    if (e->what == LOOP_MESSAGE)
        dtpi_msg_unref(e->msg);
    e->next = l->free;
    l->free = e;
}

/* ---- the heap ---- */

static bool before(const struct loop_entry *a, const struct loop_entry *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

static bool grow_heap(dtpi_loop *l)
{
    const size_t cap = l->cap_heap ? l->cap_heap * 2 : 64;
    struct loop_entry *heap = dtpi_alloc_array(&l->a, cap, sizeof(*heap));

    if (!heap)
        return false;
    if (l->heap)
        memcpy(heap, l->heap, l->n_heap * sizeof(*heap));
    dtpi_free(&l->a, l->heap, l->cap_heap * sizeof(*heap));
    l->heap = heap;
    l->cap_heap = cap;
    return true;
}

bool loop_push(dtpi_loop *l, struct loop_event *e, int64_t at_ns)
{
    const struct loop_entry x = { DTPI_MAX(at_ns, l->now_ns), l->n_numbers++, e };

    if (l->n_heap == l->cap_heap && !grow_heap(l)) {
        loop_event_free(l, e);
        return false;
    }
    size_t at = l->n_heap++;
    for (; at > 0 && before(&x, &l->heap[(at - 1) / 4]); at = (at - 1) / 4)
        l->heap[at] = l->heap[(at - 1) / 4];
    l->heap[at] = x;
    return true;
}

static struct loop_event *heap_pop(dtpi_loop *l)
{
    struct loop_event *top = l->heap[0].event;
    const struct loop_entry last = l->heap[--l->n_heap];
    size_t at = 0;

    for (size_t first = 1; first < l->n_heap; first = 4 * at + 1) {
        const size_t end = DTPI_MIN(first + 4, l->n_heap);
        size_t least = first;
        for (size_t i = first + 1; i < end; i++)
            if (before(&l->heap[i], &l->heap[least]))
                least = i;
        if (!before(&l->heap[least], &last))
            break;
        l->heap[at] = l->heap[least];
        at = least;
    }
    if (l->n_heap)
        l->heap[at] = last;
    return top;
}

/* ---- time ---- */

static bool call_at(dtpi_loop *l, dtpi_loop_proc *p, int64_t at_ns, void (*fn)(void *user, uint64_t key),
                    void *user, uint64_t key)
{
    struct loop_event *e = loop_event_new(l, LOOP_CALL);

    if (!e)
        return false;
    e->proc = p;
    e->fn = fn;
    e->user = user;
    e->key = key;
    return loop_push(l, e, at_ns);
}

bool dtpi_loop_at(dtpi_loop *l, int64_t at_ns, void (*fn)(void *user, uint64_t key), void *user,
                  uint64_t key)
{
    return call_at(l, NULL, at_ns, fn, user, key);
}

bool dtpi_loop_proc_at(dtpi_loop_proc *p, int64_t at_ns, void (*fn)(void *user, uint64_t key), void *user,
                       uint64_t key)
{
    return call_at(p->loop, p, at_ns, fn, user, key);
}

bool dtpi_loop_step(dtpi_loop *l, int64_t until_ns)
{
    if (l->n_heap == 0 || l->heap[0].at_ns > until_ns) {
        l->now_ns = DTPI_MAX(l->now_ns, until_ns);
        return false;
    }
    l->now_ns = l->heap[0].at_ns;
    struct loop_event *e = heap_pop(l);
    l->stats.n_events++;
    switch (e->what) {
    case LOOP_READY:
        loop_proc_ready(e->proc);
        loop_event_free(l, e);
        break;
    case LOOP_CORE:
        e->cores->waits = false;
        loop_cores_run(l, e->cores);
        loop_event_free(l, e);
        break;
    case LOOP_KNOCK:
        loop_knock(l, e);
        loop_event_free(l, e);
        break;
    default:
        loop_give(l, e);
        break;
    }
    return true;
}
