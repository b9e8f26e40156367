/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather.c - collective calls: contributions go up and are joined, the top's result goes down.
 *
 * A call is {group, lane, seq}. A rank that has left the group counts as a contribution that fails; a
 * call whose deadline passed is probed, which makes every agent below say at once who is missing.
 */
#include "group/core_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

/* How long the top waits for the answers to a probe, and how much less each level below. */
enum { PROBE_MS = 150, PROBE_STEP_MS = 30 };

void core_gather_free(dtpi_core *c, struct core_gather *x)
{
    dtpi_buf_free(&x->missing);
    dtpi_buf_free(&x->entries);
    dtpi_free(&c->a, x->got, x->n_got);
    dtpi_free(&c->a, x, sizeof(*x));
}

static struct core_gather *find(const struct core_group *g, uint8_t lane, uint32_t seq)
{
    struct core_gather *x = g->gathers;

    while (x && (x->lane != lane || x->seq != seq))
        x = x->next;
    return x;
}

static bool is_done(const struct core_group *g, uint8_t lane, uint32_t seq)
{
    return (int32_t)(seq - g->done[lane]) <= 0;
}

static void mark(struct core_gather *x, size_t source)
{
    x->got[source] = 1;
    x->n_in++;
}

/* ---- joining contributions ---- */

/* Of a subtree in which nobody has called yet. */
enum { KIND_UNKNOWN = 255 };

static void fail(struct core_gather *x, dtp_status status, int32_t rank, const char *text)
{
    if (x->status < 0)
        return;
    x->status = status;
    x->rank = rank;
    snprintf(x->text, sizeof(x->text), "%s", text);
}

static bool merge_missing(struct core_gather *x, const struct core_group *g, dtpi_rd *r)
{
    const uint32_t n = dtpi_rd_u32(r);

    if (n > g->n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t index = dtpi_rd_u32(r);
        if (r->failed || index >= g->n)
            return false;
        dtpi_buf_append(&x->missing, &index, sizeof(index));
    }
    return true;
}

static void merge_sizes(struct core_gather *x, const struct core_group *g, int32_t root,
                        uint64_t min, uint64_t max, uint32_t min_index, uint32_t max_index)
{
    char text[128];

    if (!x->has_root) {
        x->has_root = true;
        x->root = root;
        x->min = min;
        x->max = max;
        x->min_index = min_index;
        x->max_index = max_index;
    }
    if (min < x->min) {
        x->min = min;
        x->min_index = min_index;
    }
    if (max > x->max) {
        x->max = max;
        x->max_index = max_index;
    }
    if (root != x->root) {
        snprintf(text, sizeof(text), "broadcast %u: ranks name different roots, %d and %d", x->seq,
                 x->root, root);
        fail(x, DTP_ERR_INVAL, core_member(g, min_index), text);
    } else if (x->min != x->max) {
        snprintf(text, sizeof(text), "broadcast %u: rank %u passes %llu bytes, rank %u %llu", x->seq,
                 x->min_index, (unsigned long long)x->min, x->max_index,
                 (unsigned long long)x->max);
        fail(x, DTP_ERR_INVAL, core_member(g, x->min_index), text);
    }
}

static bool merge_broadcast(struct core_gather *x, const struct core_group *g, dtpi_rd *r)
{
    size_t bytes = 0;
    const int32_t root = (int32_t)dtpi_rd_u32(r);
    const uint64_t min = dtpi_rd_u64(r), max = dtpi_rd_u64(r);
    const uint32_t min_index = dtpi_rd_u32(r), max_index = dtpi_rd_u32(r);
    const bool has_data = dtpi_rd_u8(r);
    const uint8_t *data = dtpi_rd_block(r, DTP_GROUP_MAX_MSG, &bytes);

    if (r->failed || root < 0 || root >= (int32_t)g->n || min_index >= g->n || max_index >= g->n)
        return false;
    merge_sizes(x, g, root, min, max, min_index, max_index);
    if (has_data && !x->has_data) {
        x->has_data = true;
        dtpi_buf_append(&x->entries, data, bytes);
    }
    return true;
}

static bool merge_entries(struct core_gather *x, const struct core_group *g, dtpi_rd *r)
{
    char text[128];
    const uint32_t n = dtpi_rd_u32(r);

    if (n > g->n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = 0;
        const uint32_t index = dtpi_rd_u32(r);
        const uint8_t *data = dtpi_rd_block(r, DTP_GROUP_MAX_MSG, &bytes);
        if (r->failed || index >= g->n || (x->kind == DTPI_KIND_SPLIT && bytes != DTPI_SPLIT_BYTES))
            return false;
        x->data_bytes += bytes;
        if (x->kind != DTPI_KIND_SPLIT && x->data_bytes > DTP_GROUP_MAX_MSG) {
            snprintf(text, sizeof(text), "%s %u: more than %d bytes in all (rank %u passes %zu)",
                     dtpi_kind_name(x->kind), x->seq, DTP_GROUP_MAX_MSG, index, bytes);
            fail(x, DTP_ERR_LIMIT, core_member(g, index), text);
            continue;
        }
        dtpi_wr_u32(&x->entries, index);
        dtpi_wr_block(&x->entries, data, bytes);
        x->n_entries++;
    }
    return true;
}

/* Joins one contribution; false where it is malformed. */
static bool merge(struct core_gather *x, const struct core_group *g, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    char text[DTP_ERROR_TEXT];

    const uint8_t kind = dtpi_rd_u8(&r);
    const dtp_status status = (dtp_status)dtpi_rd_u32(&r);
    const int32_t rank = (int32_t)dtpi_rd_u32(&r);
    dtpi_rd_text(&r, text, sizeof(text));
    if (r.failed || (kind >= DTPI_KIND_END && kind != KIND_UNKNOWN) || status > 0)
        return false;
    if (status < 0)
        fail(x, status, rank, text);
    const size_t n_missing = x->missing.len;
    if (!merge_missing(x, g, &r))
        return false;
    if (!x->has_kind && kind != KIND_UNKNOWN) {
        x->has_kind = true;
        x->kind = kind;
    } else if (kind != x->kind && kind != KIND_UNKNOWN) {
        snprintf(text, sizeof(text), "rank %d calls %s where others call %s (call %u)", f->rank,
                 dtpi_kind_name(kind), dtpi_kind_name(x->kind), x->seq);
        fail(x, DTP_ERR_INVAL, f->rank, text);
        return true;
    }
    if (status < 0 || x->missing.len > n_missing)
        return true;        /* carries no data */
    if (kind == DTPI_KIND_BARRIER)
        return dtpi_rd_done(&r);
    return (kind == DTPI_KIND_BROADCAST ? merge_broadcast(x, g, &r) : merge_entries(x, g, &r)) &&
           dtpi_rd_done(&r);
}

/* ---- results ---- */

static void remove_gather(dtpi_core *c, struct core_group *g, struct core_gather *x)
{
    for (struct core_gather **p = &g->gathers; *p; p = &(*p)->next)
        if (*p == x) {
            *p = x->next;
            break;
        }
    g->n_open--;
    core_gather_free(c, x);
}

/* Gives a result to everybody below, and forgets the call. */
static void deliver(dtpi_core *c, struct core_group *g, uint8_t lane, uint32_t seq, dtpi_msg *m)
{
    struct core_gather *x = find(g, lane, seq);

    if (x)
        remove_gather(c, g, x);
    if (!is_done(g, lane, seq))
        g->done[lane] = seq;
    for (uint32_t i = 0; i < g->n_sources; i++) {
        const struct core_source *s = &g->sources[i];
        if (s->n_left == s->n)
            continue;
        if (s->is_child)
            core_send_child(c, s->slot, m);
        else
            core_send_local(c, s->slot, m);
    }
}

/* Sizes and bytes in order of the members; PROTO where somebody contributed twice or never. */
static dtp_status write_entries(dtpi_core *c, const struct core_group *g, const struct core_gather *x,
                                dtpi_buf *b)
{
    struct piece {
        const uint8_t *data;
        size_t bytes;
        bool has;
    } *pieces = dtpi_alloc_array(&c->a, g->n, sizeof(*pieces));
    dtpi_rd r = dtpi_rd_init(x->entries.data, x->entries.len);
    bool ok = x->n_entries == g->n;

    if (!pieces)
        return DTP_ERR_NOMEM;
    for (uint32_t i = 0; ok && i < x->n_entries; i++) {
        struct piece *p = &pieces[dtpi_rd_u32(&r)];
        ok = !p->has;
        p->has = true;
        p->data = dtpi_rd_block(&r, DTP_GROUP_MAX_MSG, &p->bytes);
    }
    for (uint32_t i = 0; ok && i < g->n; i++)
        dtpi_wr_u32(b, (uint32_t)pieces[i].bytes);
    for (uint32_t i = 0; ok && i < g->n; i++)
        dtpi_buf_append(b, pieces[i].data, pieces[i].bytes);
    dtpi_free(&c->a, pieces, g->n * sizeof(*pieces));
    return ok ? DTP_OK : DTP_ERR_PROTO;
}

static int compare_indices(const void *a, const void *b)
{
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : *(const int32_t *)a > *(const int32_t *)b;
}

static void name_missing(const struct core_group *g, struct core_gather *x)
{
    const uint32_t n = (uint32_t)(x->missing.len / sizeof(int32_t));
    int32_t *list = (int32_t *)(void *)x->missing.data;
    char ranks[140], text[DTP_ERROR_TEXT];

    if (n == 0)
        return;
    qsort(list, n, sizeof(*list), compare_indices);
    dtpi_format_ranks(list, n, ranks, sizeof(ranks));
    snprintf(text, sizeof(text), "%s %u: rank%s %s of %u did not come in time",
             dtpi_kind_name(x->kind), x->seq, n == 1 ? "" : "s", ranks, g->n);
    fail(x, DTP_ERR_TIMEOUT, core_member(g, (uint32_t)list[0]), text);
}

static void down_head(dtpi_buf *b, const struct core_gather *x)
{
    dtpi_wr_u8(b, x->kind);
    dtpi_wr_u32(b, (uint32_t)x->status);
    dtpi_wr_u32(b, (uint32_t)x->rank);
    dtpi_wr_text(b, x->text);
}

/* At the top, all contributions are here. */
static void finish(dtpi_core *c, struct core_group *g, struct core_gather *x)
{
    dtp_status st = DTP_OK;

    name_missing(g, x);
    if (x->missing.failed || (x->status == DTP_OK && x->entries.failed)) {
        core_nomem(c);
        return;
    }
    dtpi_buf b = core_begin(c, DTPI_F_DOWN, g->id, x->lane, x->seq, -1);
    const size_t head = b.len;
    down_head(&b, x);
    const size_t rest = b.len;
    if (x->status == DTP_OK && x->kind == DTPI_KIND_BROADCAST)
        dtpi_buf_append(&b, x->entries.data, x->entries.len);
    else if (x->status == DTP_OK && x->kind != DTPI_KIND_BARRIER)
        st = write_entries(c, g, x, &b);
    b.failed |= st == DTP_ERR_NOMEM;
    if (st == DTP_ERR_PROTO) {
        b.len = head;
        fail(x, st, -1, "contributions do not fit together");
        down_head(&b, x);
    }
    DTPI_AUTO(msg) dtpi_msg *m = core_msg(c, &b);
    if (!m)
        return;
    const dtpi_frame f = { .lane = x->lane, .seq = x->seq, .group = g->id };
    if (x->status == DTP_OK && x->kind == DTPI_KIND_SPLIT &&
        !core_split(c, g, &f, dtpi_rd_init(m->buf.data + rest, m->buf.len - rest))) {
        core_nomem(c);
        return;
    }
    deliver(c, g, f.lane, f.seq, m);
}

/* Below the top: one contribution for the whole subtree. */
static void pass_up(dtpi_core *c, struct core_group *g, struct core_gather *x)
{
    dtpi_buf b = core_begin(c, DTPI_F_UP, g->id, x->lane, x->seq, -1);
    const uint32_t n_missing = (uint32_t)(x->missing.len / sizeof(uint32_t));

    x->sent = true;
    const bool has_data = x->status == DTP_OK && n_missing == 0;

    dtpi_wr_u8(&b, x->has_kind ? x->kind : KIND_UNKNOWN);
    /* A call that is only late fails at the top, which names all who are. */
    dtpi_wr_u32(&b, (uint32_t)x->status);
    dtpi_wr_u32(&b, (uint32_t)x->rank);
    dtpi_wr_text(&b, x->text);
    dtpi_wr_u32(&b, n_missing);
    for (uint32_t i = 0; i < n_missing; i++) {
        uint32_t index;
        memcpy(&index, x->missing.data + i * sizeof(index), sizeof(index));
        dtpi_wr_u32(&b, index);
    }
    if (has_data && x->kind == DTPI_KIND_BROADCAST) {
        dtpi_wr_u32(&b, (uint32_t)x->root);
        dtpi_wr_u64(&b, x->min);
        dtpi_wr_u64(&b, x->max);
        dtpi_wr_u32(&b, x->min_index);
        dtpi_wr_u32(&b, x->max_index);
        dtpi_wr_u8(&b, x->has_data);
        dtpi_wr_block(&b, x->entries.data, x->entries.len);
    } else if (has_data && x->kind != DTPI_KIND_BARRIER) {
        dtpi_wr_u32(&b, x->n_entries);
        dtpi_buf_append(&b, x->entries.data, x->entries.len);
    }
    dtpi_buf_free(&x->entries);
    b.failed |= x->missing.failed || (has_data && x->entries.failed);
    core_to_parent(c, &b);
}

/* Nobody above is left to give a result: whoever was there has left the group. */
static void fail_without_parent(dtpi_core *c, struct core_group *g, struct core_gather *x)
{
    const uint32_t index = core_first_above(c, g);
    char text[DTP_ERROR_TEXT];

    snprintf(text, sizeof(text), "%s %u: rank %u of %u has left the group", dtpi_kind_name(x->kind),
             x->seq, index, g->n);
    fail(x, DTP_ERR_PEER, core_member(g, index), text);
    dtpi_buf b = core_begin(c, DTPI_F_DOWN, g->id, x->lane, x->seq, -1);
    down_head(&b, x);
    DTPI_AUTO(msg) dtpi_msg *m = core_msg(c, &b);
    if (m)
        deliver(c, g, x->lane, x->seq, m);
}

static void check_full(dtpi_core *c, struct core_group *g, struct core_gather *x)
{
    if (x->sent || x->n_in < g->n_sources)
        return;
    if (g->is_top)
        finish(c, g, x);
    else if (c->parent_left)
        fail_without_parent(c, g, x);
    else
        pass_up(c, g, x);
}

/* ---- starting ---- */

static void left_text(const dtpi_core *c, const struct core_group *g, const struct core_source *s,
                      struct core_gather *x)
{
    char text[DTP_ERROR_TEXT];
    uint32_t index = s->index;

    /* Of a child's ranks the first that left. */
    if (s->is_child)
        for (int32_t i = core_next_member(c, g, -1); i >= 0; i = core_next_member(c, g, i))
            if (core_child_of(c, core_member(g, (uint32_t)i)) == (int32_t)s->slot) {
                index = (uint32_t)i;
                break;
            }
    snprintf(text, sizeof(text), "%s %u: rank %u of %u has left the group", dtpi_kind_name(x->kind),
             x->seq, index, g->n);
    fail(x, DTP_ERR_PEER, core_member(g, index), text);
}

static struct core_gather *start(dtpi_core *c, struct core_group *g, uint8_t lane, uint32_t seq)
{
    struct core_gather *x = g->n_open < CORE_MAX_OPEN ? dtpi_alloc(&c->a, sizeof(*x)) : NULL;

    if (!x) {
        core_nomem(c);
        return NULL;
    }
    x->lane = lane;
    x->seq = seq;
    x->rank = -1;
    x->missing = dtpi_buf_init(&c->a);
    x->entries = dtpi_buf_init(&c->a);
    x->n_got = g->n_sources;
    x->got = dtpi_alloc(&c->a, g->n_sources);
    if (!x->got) {
        core_gather_free(c, x);
        core_nomem(c);
        return NULL;
    }
    x->next = g->gathers;
    g->gathers = x;
    g->n_open++;
    for (uint32_t i = 0; i < g->n_sources; i++)
        if (g->sources[i].n_left == g->sources[i].n) {
            mark(x, i);
            left_text(c, g, &g->sources[i], x);
        }
    return x;
}

static struct core_gather *find_or_start(dtpi_core *c, struct core_group *g, const dtpi_frame *f)
{
    struct core_gather *x = find(g, f->lane, f->seq);

    return x ? x : start(c, g, f->lane, f->seq);
}

bool core_on_up(dtpi_core *c, struct core_group *g, struct core_source *s, const dtpi_frame *f)
{
    const size_t at = (size_t)(s - g->sources);

    if (c->has_verdict || is_done(g, f->lane, f->seq))
        return true;
    struct core_gather *x = find_or_start(c, g, f);
    if (!x)
        return true;
    if (x->got[at])
        return x->probed || s->n_left > 0;      /* late, after it was named missing */
    if (!merge(x, g, f))
        return false;
    mark(x, at);
    check_full(c, g, x);
    return true;
}

void core_on_down(dtpi_core *c, struct core_group *g, const dtpi_frame *f, const dtpi_in *in)
{
    dtpi_down down;

    if (c->has_verdict || is_done(g, f->lane, f->seq) || !dtpi_down_read(f, &down))
        return;
    if (down.status == DTP_OK && down.kind == DTPI_KIND_SPLIT &&
        !core_split(c, g, f, down.rest)) {
        core_nomem(c);
        return;
    }
    DTPI_AUTO(msg) dtpi_msg *m = core_keep(c, in);
    if (m)
        deliver(c, g, f->lane, f->seq, m);
}

/* ---- leaving and deadlines ---- */

void core_source_left(dtpi_core *c, struct core_group *g, struct core_source *s)
{
    const size_t at = (size_t)(s - g->sources);

    for (struct core_gather *x = g->gathers, *next; x; x = next) {
        next = x->next;
        if (x->got[at])
            continue;
        mark(x, at);
        left_text(c, g, s, x);
        check_full(c, g, x);
    }
}

void core_parent_left(dtpi_core *c)
{
    for (struct core_group *g = c->groups; g; g = g->next)
        for (struct core_gather *x = g->gathers, *next; !g->is_top && x; x = next) {
            next = x->next;
            fail_without_parent(c, g, x);
        }
}

/* `ms`: how long the one above waits for the answer. */
static void probe(dtpi_core *c, struct core_group *g, struct core_gather *x, uint32_t ms)
{
    x->probed = true;
    x->answer_by_ns = c->now + ms * DTPI_NS_PER_MS;
    c->probe_at_ns = DTPI_MIN(c->probe_at_ns, x->answer_by_ns);
    for (uint32_t i = 0; i < g->n_sources; i++) {
        const struct core_source *s = &g->sources[i];
        if (x->got[i])
            continue;
        if (s->is_child) {
            dtpi_buf b = core_begin(c, DTPI_F_PROBE, g->id, x->lane, x->seq, -1);
            dtpi_wr_u32(&b, ms > PROBE_STEP_MS ? ms - PROBE_STEP_MS : 0);
            core_to_child(c, s->slot, &b);
        } else {
            mark(x, i);
            dtpi_buf_append(&x->missing, &s->index, sizeof(s->index));
        }
    }
    check_full(c, g, x);
}

/* All behind a child that does not answer. */
static void give_up_child(dtpi_core *c, struct core_group *g, struct core_gather *x, uint32_t at)
{
    mark(x, at);
    for (int32_t i = core_next_member(c, g, -1); i >= 0; i = core_next_member(c, g, i)) {
        const uint32_t index = (uint32_t)i;
        if (core_child_of(c, core_member(g, index)) == (int32_t)g->sources[at].slot)
            dtpi_buf_append(&x->missing, &index, sizeof(index));
    }
}

static void give_up(dtpi_core *c, struct core_group *g)
{
    for (struct core_gather *x = g->gathers, *next; x && !c->has_verdict; x = next) {
        next = x->next;
        if (!x->probed || x->sent)
            continue;
        if (c->now < x->answer_by_ns) {
            c->probe_at_ns = DTPI_MIN(c->probe_at_ns, x->answer_by_ns);
            continue;
        }
        for (uint32_t i = 0; i < g->n_sources; i++)
            if (!x->got[i] && g->sources[i].is_child)
                give_up_child(c, g, x, i);
        check_full(c, g, x);
    }
}

void core_gather_tick(dtpi_core *c)
{
    if (c->now < c->probe_at_ns)
        return;
    c->probe_at_ns = INT64_MAX;
    for (struct core_group *g = c->groups; g; g = g->next)
        give_up(c, g);
}

void core_on_expire(dtpi_core *c, struct core_group *g, const dtpi_frame *f)
{
    if (c->has_verdict || is_done(g, f->lane, f->seq))
        return;
    struct core_gather *x = find_or_start(c, g, f);
    if (!x || x->expired)
        return;
    x->expired = true;
    if (g->is_top) {
        probe(c, g, x, PROBE_MS);
        return;
    }
    dtpi_buf b = core_begin(c, DTPI_F_EXPIRE, g->id, f->lane, f->seq, f->rank);
    core_to_parent(c, &b);
}

void core_on_probe(dtpi_core *c, struct core_group *g, const dtpi_frame *f)
{
    if (c->has_verdict || is_done(g, f->lane, f->seq))
        return;
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    const uint32_t ms = dtpi_rd_u32(&r);
    struct core_gather *x = find_or_start(c, g, f);
    if (x && !x->sent && !x->probed)
        probe(c, g, x, dtpi_rd_done(&r) ? DTPI_MIN(ms, (uint32_t)PROBE_MS) : 0);
}
