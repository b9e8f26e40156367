/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.c - chunks are read in groups of neighbours, and each member of the team keeps several groups under
 * way. Whole plain chunks that lie behind each other in the file and in memory are read right there;
 * others go through a buffer, out of which they are decoded or copied. A sum is taken of what was read
 * while it is in the cache.
 */
#include "ckpt/fetch.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sum.h"
#include "ckpt/delta_load.h"
#include "ckpt/team.h"

enum {
    GROUP_BYTES = 2 << 20,      /* a group is full with it; one chunk may be larger */
    GAP_BYTES = 4096,           /* between neighbours; read and thrown away */
    ALONE_BYTES = 64 << 10,     /* a chunk of so many is worth a transfer of its own */
    GROUP_PARTS = 128,          /* short pieces that one member reads one after the other */
    DEPTH = 4,                  /* groups of a member that are under way */
    BUDGET = 24 << 20           /* of all buffers together; one group's is had whatever it takes */
};

typedef struct slot {
    dtpi_io io;
    uint64_t group;
    uint8_t *buffer;
    bool is_busy;
} slot;

typedef struct member {
    dtpi_queue *queue;
    dtpi_codec codec;
    slot slots[DEPTH];
    uint8_t *plain;             /* a decoded chunk that goes to several places */
    dtpi_chunks below;          /* once a chunk is XORed with others */
} member;

/* Jobs [first, end) and the range they are read in. */
typedef struct group {
    uint32_t first, end;
    uint64_t lo, hi;
    bool is_direct;
    bool is_parts;              /* short pieces with gaps, each to its place */
} group;

struct dtpi_fetch {
    dtpi_load *l;
    size_t buffer_bytes, plain_bytes;   /* of the members that are there */
    uint32_t n_members, depth;
    member members[DTPI_TEAM_MAX];
    /* of the run */
    const dtpi_fetch_job *jobs;
    const group *groups;
    dtpi_line line;
    atomic_uint_fast64_t done;
    void (*progress)(void *user, uint64_t done);
    void *user;
};

dtp_status dtpi_fetch_new(dtpi_load *l, dtpi_fetch **fetch_out, dtp_error *err)
{
    dtpi_fetch *f = dtpi_alloc(l->a, sizeof(*f));

    if (!f)
        return dtpi_fail_nomem(err, sizeof(*f));
    f->l = l;
    *fetch_out = f;
    return DTP_OK;
}

/* ---- members ---- */

static void free_members(dtpi_fetch *f)
{
    for (uint32_t i = 0; i < f->n_members; i++) {
        member *m = &f->members[i];
        dtpi_queue_close(m->queue);
        for (uint32_t k = 0; k < f->depth; k++)
            dtpi_free(f->l->a, m->slots[k].buffer, f->buffer_bytes);
        dtpi_free(f->l->a, m->plain, f->plain_bytes);
        dtpi_codec_close(&m->codec);
        dtpi_chunks_close(&m->below);
        *m = (member){ 0 };
    }
    f->n_members = 0;
}

void dtpi_fetch_free(dtpi_fetch *f)
{
    if (!f)
        return;
    free_members(f);
    dtpi_free(f->l->a, f, sizeof(*f));
}

static dtp_status make_member(dtpi_fetch *f, member *m, dtp_error *err)
{
    dtp_status st = dtpi_codec_open(f->l->a, f->l->m.codec, &m->codec, err);
    if (st >= 0)
        st = dtpi_queue_open(f->l->files, f->depth, &m->queue, err);
    if (st < 0)
        return st;
    for (uint32_t k = 0; k < f->depth; k++) {
        m->slots[k].buffer = dtpi_alloc_aligned(f->l->a, f->buffer_bytes, 4096);
        if (!m->slots[k].buffer)
            return dtpi_fail_nomem(err, f->buffer_bytes);
    }
    m->plain = dtpi_alloc_aligned(f->l->a, f->plain_bytes, 4096);
    return m->plain ? DTP_OK : dtpi_fail_nomem(err, f->plain_bytes);
}

/* As many as the work is worth; those of the run before serve again where their buffers suffice. */
static dtp_status make_members(dtpi_fetch *f, size_t n_groups, size_t largest, size_t plain,
                               bool has_bases, uint32_t *n_out, dtp_error *err)
{
    const size_t buffer_bytes = largest + 4096, plain_bytes = DTPI_MAX(plain, (size_t)1);
    dtp_status st = DTP_OK;

    if (f->n_members > 0 && (f->buffer_bytes < buffer_bytes || f->plain_bytes < plain_bytes))
        free_members(f);
    if (f->n_members == 0) {
        f->buffer_bytes = buffer_bytes;
        f->plain_bytes = plain_bytes;
        f->depth = (uint32_t)DTPI_MAX(
            DTPI_MIN((uint64_t)DEPTH, BUDGET / buffer_bytes / dtpi_team_width(f->l->ctx)), 1u);
    }
    const uint64_t room = DTPI_MAX(BUDGET / f->buffer_bytes / f->depth, 1u);
    const uint32_t width = (uint32_t)DTPI_MIN((uint64_t)dtpi_team_width(f->l->ctx), room);
    const uint32_t n = (uint32_t)DTPI_MIN((uint64_t)width, (n_groups + 1) / 2);
    while (f->n_members < n && st >= 0)
        st = make_member(f, &f->members[f->n_members++], err);
    if (st < 0)
        free_members(f);        /* none that is half made is there for the next run */
    for (uint32_t i = 0; i < n && has_bases && st >= 0; i++) {
        /* Anew: what it remembers of boxes may have moved. */
        dtpi_chunks_close(&f->members[i].below);
        st = dtpi_chunks_open(f->l, &f->members[i].below, err);
    }
    *n_out = n;
    return st;
}

/* ---- groups ---- */

static int by_place(const void *x, const void *y)
{
    const dtpi_fetch_job *a = x, *b = y;

    if (a->box->file != b->box->file)
        return a->box->file < b->box->file ? -1 : 1;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a->stored < b->stored ? -1 : a->stored > b->stored;
}

static bool is_direct(const dtpi_fetch_job *j)
{
    return j->direct && j->stored == j->plain && j->box->base == DTPI_NO_BASE;
}

static bool is_short_part(const dtpi_fetch_job *j)
{
    return j->is_part && j->stored < ALONE_BYTES;
}

/* The job joins the group before it. */
static bool joins(const group *g, const dtpi_fetch_job *jobs, const dtpi_fetch_job *j)
{
    const dtpi_fetch_job *last = &jobs[g->end - 1];

    if (g->is_parts || is_short_part(j))
        return g->is_parts && is_short_part(j) && j->file == last->file &&
               g->end - g->first < GROUP_PARTS;
    if (j->file != last->file || j->at + j->stored > g->lo + GROUP_BYTES)
        return false;
    if (g->is_direct)
        return is_direct(j) && j->at == g->hi && j->direct == last->direct + last->stored;
    return j->at <= g->hi + GAP_BYTES && !(is_direct(j) && j->stored >= ALONE_BYTES);
}

/* Into `out`, room for `n`. Returns how many; says what the largest buffer and chunk take. */
static size_t cut_groups(const dtpi_fetch_job *jobs, size_t n, group *out, size_t *largest_out,
                         size_t *plain_out)
{
    size_t n_groups = 0;

    *largest_out = *plain_out = 0;
    for (size_t i = 0; i < n; i++) {
        group *g = n_groups ? &out[n_groups - 1] : NULL;
        if (g && joins(g, jobs, &jobs[i])) {
            g->end++;
            g->hi = DTPI_MAX(g->hi, jobs[i].at + jobs[i].stored);
        } else {
            g = &out[n_groups++];
            *g = (group){ (uint32_t)i, (uint32_t)i + 1, jobs[i].at, jobs[i].at + jobs[i].stored,
                          is_direct(&jobs[i]) && jobs[i].stored >= ALONE_BYTES,
                          is_short_part(&jobs[i]) };
        }
        if (!g->is_direct && !g->is_parts)
            *largest_out = DTPI_MAX(*largest_out, (size_t)(g->hi - g->lo));
        if (!is_direct(&jobs[i]))
            *plain_out = DTPI_MAX(*plain_out, (size_t)jobs[i].plain);
    }
    return n_groups;
}

/* ---- one chunk ---- */

static dtp_status check_sum(const dtpi_fetch *f, const dtpi_fetch_job *j, const uint8_t *stored,
                            dtp_error *err)
{
    char text[100];

    if (j->is_part || j->box->sums_at == DTPI_NO_SUMS)
        return DTP_OK;
    const uint64_t want = dtpi_mf_sum(&f->l->m, j->box, j->chunk), got = dtpi_sum64(stored, j->stored);
    if (want == got)
        return DTP_OK;
    snprintf(text, sizeof(text),
             "checksum mismatch (stored %016" PRIx64 ", computed %016" PRIx64 ")", want, got);
    return dtpi_load_bad_chunk(f->l, j->tensor, j->box, j->chunk, text, err);
}

bool dtpi_fetch_walk(const dtpi_manifest *m, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                     const dtp_ckpt_tensor *want, dtpi_walk *w_out)
{
    static const int64_t zero[DTP_CKPT_MAX_DIMS];
    const int64_t *from = dtpi_mf_dims(m, b->dims_at);
    const int64_t *offset = want->offset ? want->offset : zero;
    const int64_t *extent = want->extent ? want->extent : dtpi_mf_dims(m, t->dims_at);
    int64_t common_offset[DTP_CKPT_MAX_DIMS], common_extent[DTP_CKPT_MAX_DIMS];

    if (!dtpi_box_meet(t->n_dims, from, from + t->n_dims, offset, extent, common_offset,
                       common_extent))
        return false;
    dtpi_walk_begin(w_out, t->n_dims, from, from + t->n_dims, offset, extent, common_offset,
                    common_extent);
    return !w_out->done;
}

void dtpi_fetch_scatter(const dtpi_fetch *f, const dtpi_fetch_job *j, const uint8_t *plain)
{
    const uint64_t bits = dtp_dtype_bits(j->tensor->dtype);
    const uint64_t begin = j->chunk * f->l->m.chunk_bytes, end = begin + j->plain;
    dtpi_walk w;

    if (!dtpi_fetch_walk(&f->l->m, j->tensor, j->box, j->want, &w))
        return;
    for (dtpi_walk_seek(&w, begin * 8 / bits); !w.done; dtpi_walk_next(&w)) {
        const uint64_t from = dtpi_bits_bytes(w.from, bits);
        const uint64_t lo = DTPI_MAX(from, begin);
        const uint64_t hi = DTPI_MIN(from + dtpi_bits_bytes(w.run, bits), end);
        if (lo >= hi)
            break;
        memcpy((uint8_t *)j->want->data + dtpi_bits_bytes(w.to, bits) + (lo - from),
               plain + (lo - begin), hi - lo);
    }
}

/* A chunk that was read to `stored`. */
static dtp_status use_chunk(dtpi_fetch *f, member *m, const dtpi_fetch_job *j,
                            const uint8_t *stored, dtp_error *err)
{
    const bool is_xor = !j->is_part && dtpi_chunk_is_xor(&f->l->m, j->box, j->chunk);
    const bool as_is = j->stored == j->plain && !is_xor;
    uint8_t *to = j->direct ? j->direct : m->plain;
    dtp_error why = { 0 };

    dtp_status st = check_sum(f, j, stored, err);
    if (st < 0 || stored == j->direct)
        return st;
    if (as_is && !j->direct) {
        if (j->want)
            dtpi_fetch_scatter(f, j, stored);
        return DTP_OK;
    }
    st = dtpi_codec_restore(&m->codec, stored, j->stored, to, j->plain, &why);
    if (st < 0)
        return dtpi_load_not_decoded(f->l, j->tensor, j->box, j->chunk, &why, err);
    if (is_xor)
        st = dtpi_chunks_below(&m->below, j->tensor, j->box, j->chunk, to, err);
    if (st >= 0 && !j->direct && j->want)
        dtpi_fetch_scatter(f, j, to);
    return st;
}

dtp_status dtpi_fetch_plain(dtpi_fetch *f, const dtpi_fetch_job *job, uint8_t *out, dtp_error *err)
{
    dtpi_fetch_job j = *job;
    uint32_t n_members;

    dtp_status st = make_members(f, 1, j.stored, j.plain, j.box->base != DTPI_NO_BASE, &n_members, err);
    if (st < 0)
        return st;
    member *m = &f->members[0];
    const bool as_is = j.stored == j.plain && j.box->base == DTPI_NO_BASE;
    uint8_t *stored = as_is ? out : m->slots[0].buffer;
    st = f->l->files->ops->read(j.file, j.at, stored, j.stored, err);
    j.direct = out;
    return st < 0 ? st : use_chunk(f, m, &j, stored, err);
}

/* ---- one group ---- */

/* The file is named already: adds what was wanted of it. */
static void name_chunk(const dtpi_fetch *f, const dtpi_fetch_job *j, dtp_error *err)
{
    const int32_t e = err->sys_errno;

    dtpi_fail(err, err->status, "%.160s (tensor %.60s: chunk %" PRIu64 ")", err->text,
              dtpi_mf_text(&f->l->m, j->tensor->name_at), j->chunk);
    err->sys_errno = e;
}

/* A call each costs less than what lies between them. */
static void read_parts(dtpi_fetch *f, uint64_t nth)
{
    const group *g = &f->groups[nth];
    dtp_error err = { 0 };
    dtp_status st = DTP_OK;

    for (uint32_t i = g->first; i < g->end && st >= 0; i++) {
        const dtpi_fetch_job *j = &f->jobs[i];
        st = f->l->files->ops->read(j->file, j->at, j->direct, j->stored, &err);
        if (st < 0)
            name_chunk(f, j, &err);
    }
    if (st < 0)
        dtpi_line_fail(&f->line, nth, st, &err);
}

static void start_group(dtpi_fetch *f, member *m, slot *s)
{
    const group *g = &f->groups[s->group];
    const dtpi_fetch_job *first = &f->jobs[g->first];

    if (g->is_parts) {
        read_parts(f, s->group);
        return;
    }
    s->is_busy = true;
    s->io = (dtpi_io){ .file = first->file,
                       .at = g->lo,
                       .data = g->is_direct ? first->direct : s->buffer + g->lo % 4096,
                       .bytes = (size_t)(g->hi - g->lo),
                       /* Who wants a part of a chunk is seldom alone. */
                       .is_shared = first->want && !first->direct,
                       .user = s };
    dtpi_queue_submit(m->queue, &s->io);
}

static void use_group(dtpi_fetch *f, member *m, slot *s, bool is_caller)
{
    const group *g = &f->groups[s->group];
    dtp_error err = s->io.why;
    dtp_status st = s->io.status;
    uint64_t bytes = 0;

    for (uint32_t i = g->first; i < g->end && st >= 0; i++) {
        const dtpi_fetch_job *j = &f->jobs[i];
        st = use_chunk(f, m, j, (const uint8_t *)s->io.data + (j->at - g->lo), &err);
        bytes += j->stored;
    }
    s->is_busy = false;
    if (s->io.status < 0)
        name_chunk(f, &f->jobs[g->first], &err);
    if (st < 0)
        dtpi_line_fail(&f->line, s->group, st, &err);
    const uint64_t done = atomic_fetch_add(&f->done, bytes) + bytes;
    if (is_caller && f->progress)
        f->progress(f->user, done);
}

static void fetch_groups(void *user, uint32_t nth)
{
    dtpi_fetch *f = user;
    member *m = &f->members[nth];
    dtpi_io *io;
    uint64_t nth_group;
    bool is_there = false;      /* what was read last is still in the processor's cache */

    for (;;) {
        slot *s = NULL;
        for (uint32_t k = 0; k < f->depth && !s && !is_there; k++)
            if (!m->slots[k].is_busy)
                s = &m->slots[k];
        if (s && dtpi_line_take(&f->line, &nth_group)) {
            s->group = nth_group;
            start_group(f, m, s);
            is_there = s->is_busy && dtpi_queue_ended(m->queue, &s->io);
            continue;
        }
        is_there = false;
        io = dtpi_queue_wait(m->queue);
        if (!io)
            return;
        use_group(f, m, io->user, nth == 0);
    }
}

/* Most plans are in order already, and of short pieces any order will do. */
static void sort_jobs(dtpi_fetch_job *jobs, size_t n)
{
    bool in_order = true, all_short = true;

    for (size_t i = 0; i < n && (in_order || all_short); i++) {
        in_order &= i == 0 || by_place(&jobs[i - 1], &jobs[i]) <= 0;
        all_short &= is_short_part(&jobs[i]);
    }
    if (!in_order && !all_short)
        qsort(jobs, n, sizeof(*jobs), by_place);
}

static dtp_status run_groups(dtpi_fetch *f, dtpi_fetch_job *jobs, size_t n, group *groups,
                             dtp_error *err)
{
    size_t largest, plain;
    uint32_t n_members;
    bool has_bases = false;

    sort_jobs(jobs, n);
    const size_t n_groups = cut_groups(jobs, n, groups, &largest, &plain);
    for (size_t i = 0; i < n && !has_bases; i++)
        has_bases = jobs[i].box->base != DTPI_NO_BASE;
    dtp_status st = make_members(f, n_groups, largest, plain, has_bases, &n_members, err);
    if (st < 0)
        return st;
    f->jobs = jobs;
    f->groups = groups;
    dtpi_line_init(&f->line, n_groups);
    st = dtpi_team_run(f->l->ctx, n_members, fetch_groups, f, err);
    if (st >= 0)
        st = dtpi_line_result(&f->line, err);
    dtpi_line_free(&f->line);
    return st;
}

dtp_status dtpi_fetch_run(dtpi_fetch *f, dtpi_fetch_job *jobs, size_t n,
                          void (*progress)(void *user, uint64_t done), void *user, dtp_error *err)
{
    if (n == 0)
        return DTP_OK;
    group *groups = dtpi_alloc_array(f->l->a, n, sizeof(*groups));
    if (!groups)
        return dtpi_fail_nomem(err, n * sizeof(*groups));
    atomic_store(&f->done, 0);
    f->progress = progress;
    f->user = user;
    const dtp_status st = run_groups(f, jobs, n, groups, err);
    dtpi_free(f->l->a, groups, n * sizeof(*groups));
    return st;
}
