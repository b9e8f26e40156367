/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - a network inside one process: a heap of events ordered by time, then by their number. */
#include "net/loop.h"

struct event {
    int64_t at_ns;
    uint64_t number;
    void (*fn)(void *user, uint64_t key);
    void *user;
    uint64_t key;
    dtpi_loop_chan *chan;       /* a message or an end, to side `to` */
    int to;
    bool is_end;
    size_t bytes;
    uint8_t data[];
};

struct dtpi_loop_chan {
    dtpi_loop_chan *next;
    dtpi_loop *loop;
    dtpi_loop_side sides[2];
    bool dead[2];
    int64_t last_ns[2];         /* order within a direction */
};

struct dtpi_loop {
    dtp_allocator a;
    dtpi_loop_opts o;
    int64_t now_ns;
    uint64_t n_events, n_delivered;
    struct event **heap;        /* 1-based */
    size_t n_heap, cap_heap;
    dtpi_loop_chan *chans;
};

dtpi_loop *dtpi_loop_new(const dtp_allocator *a, const dtpi_loop_opts *opts)
{
    dtpi_loop *l = dtpi_alloc(a, sizeof(*l));

    if (l) {
        l->a = *a;
        l->o = *opts;
    }
    return l;
}

static void event_free(dtpi_loop *l, struct event *e)
{
    dtpi_free(&l->a, e, sizeof(*e) + e->bytes);
}

void dtpi_loop_free(dtpi_loop *l)
{
    if (!l)
        return;
    const dtp_allocator a = l->a;
    for (size_t i = 1; i <= l->n_heap; i++)
        event_free(l, l->heap[i]);
    dtpi_free(&a, l->heap, l->cap_heap * sizeof(struct event *));
    while (l->chans) {
        dtpi_loop_chan *c = l->chans;
        l->chans = c->next;
        dtpi_free(&a, c, sizeof(*c));
    }
    dtpi_free(&a, l, sizeof(*l));
}

int64_t dtpi_loop_now(const dtpi_loop *l)
{
    return l->now_ns;
}

uint64_t dtpi_loop_n_delivered(const dtpi_loop *l)
{
    return l->n_delivered;
}

/* ---- heap ---- */

static bool before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

static bool heap_push(dtpi_loop *l, struct event *e)
{
    if (l->n_heap + 1 >= l->cap_heap) {
        const size_t cap = l->cap_heap ? l->cap_heap * 2 : 64;
        struct event **heap = dtpi_alloc_array(&l->a, cap, sizeof(struct event *));
        if (!heap)
            return false;
        if (l->heap)
            memcpy(heap, l->heap, l->cap_heap * sizeof(struct event *));
        dtpi_free(&l->a, l->heap, l->cap_heap * sizeof(struct event *));
        l->heap = heap;
        l->cap_heap = cap;
    }
    size_t at = ++l->n_heap;
    for (; at > 1 && before(e, l->heap[at / 2]); at /= 2)
        l->heap[at] = l->heap[at / 2];
    l->heap[at] = e;
    return true;
}

static struct event *heap_pop(dtpi_loop *l)
{
    struct event *top = l->heap[1], *last = l->heap[l->n_heap--];
    size_t at = 1;

    for (size_t child = 2; child <= l->n_heap; child = at * 2) {
        if (child < l->n_heap && before(l->heap[child + 1], l->heap[child]))
            child++;
        if (!before(l->heap[child], last))
            break;
        l->heap[at] = l->heap[child];
        at = child;
    }
    l->heap[at] = last;
    return top;
}

static struct event *event_new(dtpi_loop *l, int64_t at_ns, size_t bytes)
{
    struct event *e = dtpi_alloc(&l->a, sizeof(*e) + bytes);

    if (e) {
        e->at_ns = at_ns;
        e->number = l->n_events++;
        e->bytes = bytes;
    }
    return e;
}

static bool push_or_free(dtpi_loop *l, struct event *e)
{
    if (heap_push(l, e))
        return true;
    event_free(l, e);
    return false;
}

/* ---- channels ---- */

dtpi_loop_chan *dtpi_loop_connect(dtpi_loop *l, const dtpi_loop_side sides[2])
{
    dtpi_loop_chan *c = dtpi_alloc(&l->a, sizeof(*c));

    if (!c)
        return NULL;
    c->loop = l;
    c->sides[0] = sides[0];
    c->sides[1] = sides[1];
    c->next = l->chans;
    l->chans = c;
    return c;
}

static uint64_t random_of(dtpi_loop *l)
{
    uint64_t z = (l->o.seed += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static bool send(dtpi_loop_chan *c, int from, const void *data, size_t bytes, bool is_end)
{
    dtpi_loop *l = c->loop;
    int64_t at = l->now_ns + l->o.latency_ns;

    if (l->o.jitter_ns)
        at += (int64_t)(random_of(l) % (uint64_t)l->o.jitter_ns);
    at = DTPI_MAX(at, c->last_ns[from]);
    struct event *e = event_new(l, at, bytes);
    if (!e)
        return false;
    c->last_ns[from] = at;
    e->chan = c;
    e->to = !from;
    e->is_end = is_end;
    if (bytes)
        memcpy(e->data, data, bytes);
    return push_or_free(l, e);
}

bool dtpi_loop_send(dtpi_loop_chan *c, int from, const void *data, size_t bytes)
{
    return c->dead[0] || c->dead[1] || send(c, from, data, bytes, false);
}

void dtpi_loop_kill(dtpi_loop_chan *c, int who)
{
    if (c->dead[who])
        return;
    c->dead[who] = true;
    if (!c->dead[!who])
        send(c, who, NULL, 0, true);
}

/* ---- time ---- */

bool dtpi_loop_at(dtpi_loop *l, int64_t at_ns, void (*fn)(void *user, uint64_t key), void *user,
                  uint64_t key)
{
    struct event *e = event_new(l, DTPI_MAX(at_ns, l->now_ns), 0);

    if (!e)
        return false;
    e->fn = fn;
    e->user = user;
    e->key = key;
    return push_or_free(l, e);
}

static void deliver(dtpi_loop *l, const struct event *e)
{
    const dtpi_loop_side *side = &e->chan->sides[e->to];

    if (e->chan->dead[e->to])
        return;
    if (e->is_end) {
        side->closed(side->user, side->key);
        return;
    }
    l->n_delivered++;
    side->message(side->user, side->key, e->data, e->bytes);
}

bool dtpi_loop_step(dtpi_loop *l, int64_t until_ns)
{
    if (l->n_heap == 0 || l->heap[1]->at_ns > until_ns) {
        l->now_ns = DTPI_MAX(l->now_ns, until_ns);
        return false;
    }
    struct event *e = heap_pop(l);
    l->now_ns = e->at_ns;
    if (e->fn)
        e->fn(e->user, e->key);
    else
        deliver(l, e);
    event_free(l, e);
    return true;
}
