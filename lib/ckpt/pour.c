/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pour.c - chunks go to the file in units of neighbours. Each member of the team takes a unit, sums its
 * chunks and submits one write; while that is under way it takes the next. A plain unit's place is known,
 * and where its memory is in one piece it is written from there; a coded one waits, when it has been
 * encoded, until the unit before it knows where it ends.
 */
#include "ckpt/pour.h"

#include "base/sum.h"
#include "ckpt/team.h"

enum {
    UNIT_BYTES = 2 << 20,       /* a unit is full with it; one chunk may be larger */
    DEPTH = 4,                  /* units of a member that are under way */
    BUDGET = 24 << 20           /* of all buffers together; one unit's is had whatever it takes */
};

/* Chunks [first, end) of all; the first is chunk `chunk` of item `item`. */
typedef struct unit {
    uint64_t first, end;
    size_t item;
    uint64_t chunk;
    uint64_t at;                /* behind the first byte; coded: by when it has been encoded */
    uint64_t bytes;             /* plain */
} unit;

typedef struct slot {
    dtpi_io io;
    uint64_t unit;
    uint8_t *buffer;
    bool is_busy;
} slot;

typedef struct member {
    dtpi_queue *queue;
    dtpi_codec codec;
    slot slots[DEPTH];
} member;

typedef struct pour {
    const dtpi_pour *in;
    dtpi_line line;
    bool is_coded;
    unit *units;
    size_t n_units;
    uint64_t end;               /* where the unit whose turn it is begins */
    size_t buffer_bytes;
    uint32_t n_members, depth;
    member members[DTPI_TEAM_MAX];
} pour;

static uint64_t chunks_of(const dtpi_pour *in, const dtpi_pour_item *item)
{
    return item->bytes / in->chunk_bytes + (item->bytes % in->chunk_bytes != 0);
}

uint64_t dtpi_pour_chunks(const dtpi_pour *in)
{
    uint64_t n = 0;

    for (size_t i = 0; i < in->n_items; i++)
        n += chunks_of(in, &in->items[i]);
    return n;
}

static size_t chunk_len(const dtpi_pour *in, const dtpi_pour_item *item, uint64_t chunk)
{
    return (size_t)DTPI_MIN((uint64_t)in->chunk_bytes, item->bytes - chunk * in->chunk_bytes);
}

/* ---- units ---- */

/* Cuts all chunks into units; counts them where `out` is NULL. */
static size_t cut_units(const dtpi_pour *in, unit *out, size_t *largest_out)
{
    unit u = { 0 };
    size_t n = 0, largest = 1;

    for (size_t i = 0; i < in->n_items; i++) {
        const uint64_t n_chunks = chunks_of(in, &in->items[i]);
        for (uint64_t c = 0; c < n_chunks; c++) {
            const size_t len = chunk_len(in, &in->items[i], c);
            if (u.bytes > 0 && u.bytes + len > UNIT_BYTES) {
                if (out)
                    out[n] = u;
                n++;
                u = (unit){ .first = u.end, .end = u.end, .at = u.at + u.bytes };
            }
            if (u.bytes == 0) {
                u.item = i;
                u.chunk = c;
            }
            u.end++;
            u.bytes += len;
            largest = DTPI_MAX(largest, (size_t)u.bytes);
        }
    }
    if (out && u.bytes > 0)
        out[n] = u;
    *largest_out = largest;
    return n + (u.bytes > 0);
}

static dtp_status make_units(pour *p, dtp_error *err)
{
    size_t largest;

    p->n_units = cut_units(p->in, NULL, &largest);
    p->units = dtpi_alloc_array(p->in->a, p->n_units + 1, sizeof(*p->units));
    if (!p->units)
        return dtpi_fail_nomem(err, p->n_units * sizeof(*p->units));
    cut_units(p->in, p->units, &largest);
    /* Room to begin anywhere in a block, so that what the file calls aligned is so in memory. */
    p->buffer_bytes = largest + 4096;
    return DTP_OK;
}

/* ---- members ---- */

static void free_members(pour *p)
{
    for (uint32_t i = 0; i < p->n_members; i++) {
        member *m = &p->members[i];
        dtpi_queue_close(m->queue);
        for (uint32_t k = 0; k < p->depth; k++)
            dtpi_free(p->in->a, m->slots[k].buffer, p->buffer_bytes);
        dtpi_codec_close(&m->codec);
    }
}

static dtp_status make_member(pour *p, member *m, dtp_error *err)
{
    const dtp_allocator *a = p->in->a;

    dtp_status st = dtpi_codec_open(a, p->in->codec, &m->codec, err);
    if (st < 0)
        return st;
    p->is_coded = m->codec.ops->encode != NULL;
    st = dtpi_queue_open(p->in->files, p->depth, &m->queue, err);
    if (st < 0)
        return st;
    for (uint32_t k = 0; k < p->depth; k++) {
        m->slots[k].buffer = dtpi_alloc_aligned(a, p->buffer_bytes, 4096);
        if (!m->slots[k].buffer)
            return dtpi_fail_nomem(err, p->buffer_bytes);
    }
    return DTP_OK;
}

static dtp_status make_members(pour *p, dtp_error *err)
{
    const uint32_t width =
        (uint32_t)DTPI_MIN((uint64_t)dtpi_team_width(p->in->ctx), DTPI_MAX(p->n_units, (size_t)1));
    const uint64_t room = BUDGET / p->buffer_bytes;
    dtp_status st = DTP_OK;

    const uint32_t n = (uint32_t)DTPI_MAX(DTPI_MIN((uint64_t)width, room), 1u);
    p->depth = (uint32_t)DTPI_MAX(DTPI_MIN((uint64_t)DEPTH, room / n), 1u);
    while (p->n_members < n && st >= 0)
        st = make_member(p, &p->members[p->n_members++], err);
    return st;
}

/* ---- one unit ---- */

/* Walks over the chunks of a unit. */
typedef struct walk {
    const dtpi_pour_item *item;
    uint64_t chunk, nth, end;   /* of the item; of all */
} walk;

static walk walk_begin(const pour *p, const unit *u)
{
    return (walk){ &p->in->items[u->item], u->chunk, u->first, u->end };
}

static void walk_next(const pour *p, walk *w)
{
    w->nth++;
    if (++w->chunk < chunks_of(p->in, w->item) || w->nth == w->end)
        return;
    w->chunk = 0;
    do {
        w->item++;
    } while (w->item->bytes == 0);
}

static const uint8_t *data_of(const pour *p, const walk *w)
{
    return w->item->data + w->chunk * p->in->chunk_bytes;
}

/* All chunks of a plain unit are in one piece of memory. */
static bool in_one_piece(const pour *p, const unit *u)
{
    const dtpi_pour_item *item = &p->in->items[u->item];

    return u->chunk + (u->end - u->first) <= chunks_of(p->in, item);
}

/* Sums a plain unit, and collects it unless it is written from where it is. */
static void fill_plain(pour *p, slot *s, const unit *u)
{
    const uint64_t at = p->in->at + u->at;
    uint8_t *to = in_one_piece(p, u) ? NULL : s->buffer + at % 4096;
    walk w = walk_begin(p, u);

    s->io.data = to ? to : (uint8_t *)data_of(p, &w);
    s->io.at = at;
    s->io.bytes = u->bytes;
    for (; w.nth < w.end; walk_next(p, &w)) {
        const size_t len = chunk_len(p->in, w.item, w.chunk);
        p->in->sums[w.nth] = dtpi_sum64(data_of(p, &w), len);
        p->in->sizes[w.nth] = (uint32_t)len;
        if (p->in->plains)
            p->in->plains[w.nth] = p->in->sums[w.nth];
        if (to) {
            memcpy(to, data_of(p, &w), len);
            to += len;
        }
    }
}

/* Encodes a unit into the slot's buffer, then waits for its place. */
static dtp_status fill_coded(pour *p, member *m, slot *s, const unit *u, dtp_error *err)
{
    walk w = walk_begin(p, u);
    size_t n = 0;

    for (; w.nth < w.end; walk_next(p, &w)) {
        const size_t len = chunk_len(p->in, w.item, w.chunk);
        const uint8_t *data = data_of(p, &w);
        const void *stored;
        size_t bytes = 0;
        const dtp_status st =
            w.item->store ? w.item->store(w.item, w.chunk, &m->codec, data, len, s->buffer + n,
                                          &stored, &bytes, err)
                          : dtpi_codec_store(&m->codec, data, len, w.item->dtype, s->buffer + n,
                                             &stored, &bytes, err);
        if (st < 0)
            return st;
        if (stored != s->buffer + n)
            memcpy(s->buffer + n, stored, bytes);
        p->in->sums[w.nth] = dtpi_sum64(s->buffer + n, bytes);
        if (p->in->plains)
            p->in->plains[w.nth] = bytes == len ? p->in->sums[w.nth] : dtpi_sum64(data, len);
        p->in->sizes[w.nth] = (uint32_t)bytes;
        n += bytes;
    }
    s->io.data = s->buffer;
    s->io.bytes = n;
    return DTP_OK;
}

/* A coded unit learns where it begins; false: one before it failed. */
static bool take_place(pour *p, slot *s)
{
    if (!dtpi_line_enter(&p->line, s->unit))
        return false;
    s->io.at = p->in->at + p->end;
    p->end += s->io.bytes;
    dtpi_line_leave(&p->line);
    return true;
}

static void start_unit(pour *p, member *m, slot *s)
{
    const unit *u = &p->units[s->unit];
    dtp_error err = { 0 };

    s->io = (dtpi_io){ .file = p->in->file, .is_write = true, .user = s };
    if (p->is_coded) {
        const dtp_status st = fill_coded(p, m, s, u, &err);
        if (st < 0)
            dtpi_line_fail(&p->line, s->unit, st, &err);
        if (st < 0 || !take_place(p, s))
            return;
    } else {
        fill_plain(p, s, u);
    }
    s->is_busy = true;
    dtpi_queue_submit(m->queue, &s->io);
}

static bool end_unit(pour *p, member *m)
{
    const dtpi_io *io = dtpi_queue_wait(m->queue);

    if (!io)
        return false;
    slot *s = io->user;
    s->is_busy = false;
    if (io->status < 0)
        dtpi_line_fail(&p->line, s->unit, io->status, &io->why);
    return true;
}

static void pour_units(void *user, uint32_t i)
{
    pour *p = user;
    member *m = &p->members[i];
    uint64_t nth;

    for (;;) {
        slot *s = NULL;
        for (uint32_t k = 0; k < p->depth && !s; k++)
            if (!m->slots[k].is_busy)
                s = &m->slots[k];
        if (!s) {
            end_unit(p, m);
            continue;
        }
        if (!dtpi_line_take(&p->line, &nth))
            break;
        s->unit = nth;
        start_unit(p, m, s);
    }
    while (end_unit(p, m))
        continue;
}

static dtp_status run(pour *p, dtp_error *err)
{
    dtp_status st = make_units(p, err);

    if (st >= 0)
        st = make_members(p, err);
    if (st < 0)
        return st;
    dtpi_line_init(&p->line, p->n_units);
    st = dtpi_team_run(p->in->ctx, p->n_members, pour_units, p, err);
    if (st >= 0)
        st = dtpi_line_result(&p->line, err);
    dtpi_line_free(&p->line);
    return st;
}

dtp_status dtpi_pour_run(const dtpi_pour *in, uint64_t *end_out, dtp_error *err)
{
    pour p = { .in = in };
    const dtp_status st = run(&p, err);

    if (st >= 0 && p.n_units > 0) {
        const unit *last = &p.units[p.n_units - 1];
        *end_out = in->at + (p.is_coded ? p.end : last->at + last->bytes);
    } else if (st >= 0) {
        *end_out = in->at;
    }
    free_members(&p);
    dtpi_free(in->a, p.units, (p.n_units + 1) * sizeof(*p.units));
    return st;
}
