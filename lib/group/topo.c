/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo.c - the topology of the nodes of a group: the first rank of a node that asks discovers it, the
 * others of the node read it from node memory, those of other nodes from keys of the group of all ranks.
 *
 * Keys (hidden): topo/node/<node> is {u64 id, what only that node has}; topo/shape/<id> the shape, once for
 * all nodes that are built alike.
 */
#include "group/group_internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "topo/pack.h"

enum { TOPO_TAG = 0x706f7400, TOPO_ROOM = 8 << 20, SLICE_MS = 10 };

/* Of the word in node memory. */
enum { NOBODY = 0, BUSY = 1, DONE = 2, TOO_LARGE = 3 };

struct topo_page {
    _Atomic uint32_t word;
    uint32_t reserved;
    uint64_t id, shape_bytes, own_bytes;
    uint8_t data[];
};

struct topo_shape {
    struct topo_shape *next;
    uint64_t id;
    dtpi_buf bytes;
};

/* What a session keeps. */
struct session_topo {
    struct topo_page *page;     /* of this node */
    uint32_t generation;        /* for which the page was asked */
    bool is_mine;               /* discovered by this rank */
    uint32_t published;         /* generation whose keys have it, plus one */
    struct topo_shape *shapes;  /* of other nodes */
};

static void unmap_page(struct session_topo *t)
{
    if (t->page)
        munmap(t->page, TOPO_ROOM);
    t->page = NULL;
}

void session_topo_close(struct session *s)
{
    const dtp_allocator *a = dtpi_ctx_alloc(s->ctx);

    if (!s->topo)
        return;
    unmap_page(s->topo);
    while (s->topo->shapes) {
        struct topo_shape *p = s->topo->shapes;
        s->topo->shapes = p->next;
        dtpi_buf_free(&p->bytes);
        dtpi_free(a, p, sizeof(*p));
    }
    dtpi_free(a, s->topo, sizeof(*s->topo));
    s->topo = NULL;
}

/* The group of all ranks, to ask by, whichever group the caller has. */
static dtp_group world_of(const dtp_group *g)
{
    return (dtp_group){ .ctx = g->ctx, .session = g->session, .id = DTPI_WORLD_ID };
}

/* ---- this node ---- */

static dtp_status open_page(dtp_group *g, int64_t deadline_ns, struct topo_page **out, dtp_error *err)
{
    struct session *s = g->session;
    dtp_group world = world_of(g);
    DTPI_AUTO_FD int fd = -1;

    if (!s->topo)
        s->topo = dtpi_alloc(dtpi_ctx_alloc(g->ctx), sizeof(*s->topo));
    if (!s->topo)
        return dtpi_fail_nomem(err, sizeof(*s->topo));
    /* Who discovered for a generation that failed half-way may be dead. */
    if (s->topo->page && s->topo->generation != s->generation && atomic_load(&s->topo->page->word) != DONE)
        unmap_page(s->topo);
    if (!s->topo->page) {
        const dtp_status st = dtpi_group_node_memory(&world, TOPO_TAG + s->generation % 256, TOPO_ROOM,
                                                     deadline_ns, &fd, err);
        if (st < 0)
            return st;
        void *p = mmap(NULL, TOPO_ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            return dtpi_fail(err, DTP_ERR_NOMEM, "cannot map node memory: %m");
        s->topo->page = p;
        s->topo->generation = s->generation;
    }
    *out = s->topo->page;
    return DTP_OK;
}

static void set_word(struct topo_page *p, uint32_t word)
{
    atomic_store(&p->word, word);
    syscall(SYS_futex, &p->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Somebody on this node discovers: waits for the end of that. */
static dtp_status await_page(dtp_group *g, struct topo_page *p, int64_t deadline_ns, dtp_error *err)
{
    const struct timespec slice = { 0, SLICE_MS * DTPI_NS_PER_MS };
    dtp_status st = DTP_OK;

    while (st >= 0 && atomic_load(&p->word) == BUSY) {
        if (syscall(SYS_futex, &p->word, FUTEX_WAIT, BUSY, &slice, NULL, 0) == 0 || errno != ETIMEDOUT)
            continue;
        dtpi_group_poll(g);
        st = dtpi_group_check(g, err);
        if (st >= 0 && dtpi_ctx_interrupted(g->ctx))
            st = dtpi_fail(err, DTP_ERR_INTERRUPTED, "interrupted");
        if (st >= 0 && dtp_ctx_now_ns(g->ctx) >= deadline_ns)
            st = dtpi_fail(err, DTP_ERR_TIMEOUT, "another rank did not discover this node in time");
    }
    return st;
}

/* A topology that is too large for a key stays here. */
static dtp_status write_keys(dtp_group *g, const struct topo_page *p, const uint8_t *shape,
                          const uint8_t *own, dtp_error *err)
{
    const uint32_t node = session_row(g->session, g->session->rank)->node;
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(g->ctx));
    dtp_group world = world_of(g);
    char key[48];
    int64_t n_before = 0;

    dtpi_wr_u64(&b, p->id);
    dtpi_buf_append(&b, own, p->own_bytes);
    if (b.failed)
        return dtpi_fail_nomem(err, p->own_bytes);
    if (b.len > DTP_GROUP_MAX_MSG || p->shape_bytes > DTP_GROUP_MAX_MSG)
        return DTP_OK;
    snprintf(key, sizeof(key), DTPI_KEY_HIDDEN "topo/have/%016llx", (unsigned long long)p->id);
    dtp_status st = dtp_group_add(&world, key, 1, &n_before, 0, err);
    snprintf(key, sizeof(key), DTPI_KEY_HIDDEN "topo/shape/%016llx", (unsigned long long)p->id);
    if (st >= 0 && n_before == 1)
        st = dtp_group_set(&world, key, shape, p->shape_bytes, 0, err);
    snprintf(key, sizeof(key), DTPI_KEY_HIDDEN "topo/node/%u", node);
    return st < 0 ? st : dtp_group_set(&world, key, b.data, b.len, 0, err);
}

/* Tells the other nodes, once a generation: keys do not outlive it. Without room for keys they wait in vain. */
static dtp_status publish(dtp_group *g, const struct topo_page *p, const uint8_t *shape,
                          const uint8_t *own, dtp_error *err)
{
    struct session *s = g->session;
    dtp_error e;

    if (!s->topo->is_mine || s->topo->published == s->generation + 1)
        return DTP_OK;
    const dtp_status st = write_keys(g, p, shape, own, &e);
    if (st == DTP_ERR_LIMIT) {
        DTPI_LOG(g->ctx, DTP_LOG_WARN, "group", "other nodes do not see this one's topology: %s", e.text);
    } else if (st < 0) {
        if (err)
            *err = e;
        return st;
    }
    s->topo->published = s->generation + 1;
    return DTP_OK;
}

static dtp_status fill_page(dtp_group *g, struct topo_page *p, dtp_topo **topo_out, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf shape = dtpi_buf_init(dtpi_ctx_alloc(g->ctx));
    DTPI_AUTO_BUF dtpi_buf own = dtpi_buf_init(dtpi_ctx_alloc(g->ctx));
    DTPI_AUTO(topo) dtp_topo *topo = NULL;

    dtp_status st = dtp_topo_load(g->ctx, NULL, &topo, err);
    if (st < 0)
        return st;
    dtpi_topo_pack(topo, &shape, &own);
    if (shape.failed || own.failed)
        return dtpi_fail_nomem(err, shape.len);
    p->id = dtpi_topo_id(shape.data, shape.len);
    p->shape_bytes = shape.len;
    p->own_bytes = own.len;
    const bool fits = sizeof(*p) + shape.len + own.len <= TOPO_ROOM;
    if (fits) {
        memcpy(p->data, shape.data, shape.len);
        memcpy(p->data + shape.len, own.data, own.len);
    }
    g->session->topo->is_mine = true;
    set_word(p, fits ? DONE : TOO_LARGE);
    st = publish(g, p, shape.data, own.data, err);
    if (st >= 0)
        *topo_out = DTPI_TAKE(topo);
    return st;
}

/* What the page holds; another process wrote it. */
static dtp_status read_page(dtp_group *g, const struct topo_page *p, dtp_topo **topo_out, dtp_error *err)
{
    const uint64_t room = TOPO_ROOM - sizeof(*p), shape = p->shape_bytes, own = p->own_bytes;

    if (shape > room || own > room - shape)
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed topology in node memory");
    dtp_status st = dtpi_topo_unpack(dtpi_ctx_alloc(g->ctx), p->data, shape, p->data + shape, own,
                                     topo_out, err);
    if (st >= 0)
        st = dtpi_topo_view_bound(*topo_out, err);
    return st < 0 ? st : publish(g, p, p->data, p->data + shape, err);
}

static dtp_status topo_here(dtp_group *g, int64_t deadline_ns, dtp_topo **topo_out, uint64_t *id_out,
                            dtp_error *err)
{
    DTPI_AUTO(topo) dtp_topo *topo = NULL;
    struct topo_page *p = NULL;

    dtp_status st = open_page(g, deadline_ns, &p, err);
    while (st >= 0 && !topo) {
        uint32_t word = NOBODY;
        if (atomic_compare_exchange_strong(&p->word, &word, BUSY)) {
            st = fill_page(g, p, &topo, err);
            if (st < 0 && atomic_load(&p->word) == BUSY)
                set_word(p, NOBODY);    /* the next one may try */
        } else if (word == BUSY) {
            st = await_page(g, p, deadline_ns, err);
        } else if (word == DONE) {
            st = read_page(g, p, &topo, err);
        } else {
            st = dtp_topo_load(g->ctx, NULL, &topo, err);
        }
    }
    if (st < 0)
        return st;
    *id_out = p->id;
    *topo_out = DTPI_TAKE(topo);
    return DTP_OK;
}

/* ---- other nodes ---- */

static dtp_status find_shape(dtp_group *g, uint64_t id, int timeout_ms, const dtpi_buf **out,
                             dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(g->ctx);
    struct session *s = g->session;
    dtp_group world = world_of(g);
    void *value = NULL;
    size_t bytes = 0;
    char key[48];

    if (!s->topo)
        s->topo = dtpi_alloc(a, sizeof(*s->topo));
    for (struct topo_shape *p = s->topo ? s->topo->shapes : NULL; p; p = p->next)
        if (p->id == id) {
            *out = &p->bytes;
            return DTP_OK;
        }
    snprintf(key, sizeof(key), DTPI_KEY_HIDDEN "topo/shape/%016llx", (unsigned long long)id);
    const dtp_status st = dtp_group_lookup(&world, key, &value, &bytes, timeout_ms, err);
    if (st < 0)
        return st;
    struct topo_shape *p = s->topo ? dtpi_alloc(a, sizeof(*p)) : NULL;
    if (p) {
        *p = (struct topo_shape){ .next = s->topo->shapes, .id = id, .bytes = dtpi_buf_init(a) };
        dtpi_buf_append(&p->bytes, value, bytes);
        s->topo->shapes = p;
    }
    dtp_group_free(value);
    if (!p || p->bytes.failed)
        return dtpi_fail_nomem(err, bytes);
    *out = &p->bytes;
    return DTP_OK;
}

static dtp_status topo_there(dtp_group *g, uint32_t node, int timeout_ms, dtp_topo **topo_out,
                             uint64_t *id_out, dtp_error *err)
{
    dtp_group world = world_of(g);
    const dtpi_buf *shape = NULL;
    void *value = NULL;
    size_t bytes = 0;
    char key[48];

    snprintf(key, sizeof(key), DTPI_KEY_HIDDEN "topo/node/%u", node);
    dtp_status st = dtp_group_lookup(&world, key, &value, &bytes, timeout_ms, err);
    if (st == DTP_ERR_TIMEOUT || st == DTP_ERR_NOT_FOUND)
        return dtpi_fail(err, st, "no rank of node %s has asked for its topology",
                         session_node(g->session, node)->host);
    if (st < 0)
        return st;
    dtpi_rd r = dtpi_rd_init(value, bytes);
    const uint64_t id = dtpi_rd_u64(&r);
    if (r.failed)
        st = dtpi_fail(err, DTP_ERR_PROTO, "malformed topology of node %u", node);
    if (st >= 0 && topo_out)
        st = find_shape(g, id, timeout_ms, &shape, err);
    if (st >= 0 && topo_out)
        st = dtpi_topo_unpack(dtpi_ctx_alloc(g->ctx), shape->data, shape->len, r.p, r.left, topo_out, err);
    dtp_group_free(value);
    if (st >= 0)
        *id_out = id;
    return st;
}

/* ---- public ---- */

static dtp_status topo_alone(dtp_group *g, dtp_topo **topo_out, uint64_t *id_out, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf shape = dtpi_buf_init(dtpi_ctx_alloc(g->ctx));
    DTPI_AUTO_BUF dtpi_buf own = dtpi_buf_init(dtpi_ctx_alloc(g->ctx));
    DTPI_AUTO(topo) dtp_topo *topo = NULL;

    const dtp_status st = dtp_topo_load(g->ctx, NULL, &topo, err);
    if (st < 0)
        return st;
    dtpi_topo_pack(topo, &shape, &own);
    if (shape.failed || own.failed)
        return dtpi_fail_nomem(err, shape.len);
    *id_out = dtpi_topo_id(shape.data, shape.len);
    *topo_out = DTPI_TAKE(topo);
    return DTP_OK;
}

static dtp_status group_topo(dtp_group *g, int32_t rank, dtp_topo **topo_out, uint64_t *id_out,
                             int timeout_ms, dtp_error *err)
{
    DTPI_AUTO(topo) dtp_topo *topo = NULL;
    dtp_status st;

    if (rank < 0 || rank >= g->size)
        return dtpi_fail_rank(err, DTP_ERR_RANGE, rank, "rank %d is outside a group of %d", rank, g->size);
    st = dtpi_group_check(g, err);
    if (st < 0)
        return st;
    if (!g->session->link)
        st = topo_alone(g, &topo, id_out, err);
    else if (g->node[rank] == g->node[g->rank])
        st = topo_here(g, dtpi_ctx_deadline(g->ctx, timeout_ms, dtpi_group_timeout_ms(g)), &topo, id_out,
                       err);
    else
        st = topo_there(g, session_row(g->session, group_world_rank(g, rank))->node, timeout_ms,
                        topo_out ? &topo : NULL, id_out, err);
    if (st >= 0 && topo_out)
        *topo_out = DTPI_TAKE(topo);
    return st;
}

dtp_status dtp_group_topo(dtp_group *g, int32_t rank, dtp_topo **topo_out, uint64_t *id_out,
                          int timeout_ms, dtp_error *err)
{
    uint64_t id = 0;

    dtp_status st = dtpi_ctx_enter(g->ctx, err);
    if (st < 0)
        return st;
    st = group_topo(g, rank, topo_out, &id, timeout_ms, err);
    if (st >= 0 && id_out)
        *id_out = id;
    dtpi_ctx_leave(g->ctx);
    return dtpi_noun(err, "group", st);
}
