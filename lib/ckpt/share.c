/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.c - chunks are numbered in the order of the manifest, and every rank goes through those it wants in
 * that order. Chunk k may lie in slot k mod N while no rank has yet to come to a chunk N or more below it:
 * each rank writes where it stands, and claims a slot by writing the chunk's number into its tag.
 *
 * Who finds its chunk claimed by another meanwhile reads the next ones. A rank writes its place before it
 * looks at a tag, and a tag before it looks at the places, so that one of two always sees the other.
 */
#include "ckpt/share.h"

#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum {
    SLOT_BUDGET = 16 << 20,
    SLOTS_MIN = 4,
    SLOTS_MAX = 64,
    LINE = 128,                 /* bytes that two ranks do not write both */
    READ_WAIT_MS = 1000,        /* for a chunk that another one reads */
    MOVE_WAIT_MS = 100          /* for ranks that stand far behind */
};
#define AT_REST UINT64_MAX

/* Of a tag, in its two lowest bits; the chunk's number plus one lies above. */
enum { CLAIMED = 1, READY = 2, FAILED = 3 };

typedef struct word {
    alignas(LINE) _Atomic uint64_t v;
} word;

struct dtpi_share {
    const dtp_allocator *a;
    uint64_t *first;            /* number of the first chunk of each box */
    size_t n_boxes;
    const dtpi_manifest *m;
    word *places, *tags;        /* a word per member; one per slot */
    uint8_t *slots;
    size_t slot_bytes;
    uint32_t n, index, n_slots;
    uint64_t stuck;             /* the lowest place, when waiting for it was in vain; AT_REST: it was not */
    bool is_off;
};

static uint32_t n_slots_of(const dtpi_manifest *m)
{
    return (uint32_t)DTPI_MIN(SLOT_BUDGET / DTPI_MAX(m->chunk_bytes, 1u), (uint32_t)SLOTS_MAX);
}

size_t dtpi_share_bytes(const dtpi_manifest *m, uint32_t n)
{
    const uint32_t n_slots = n_slots_of(m);

    if (n_slots < SLOTS_MIN || n > DTPI_SHARE_MAX_MEMBERS)
        return 0;
    const size_t words = (1 + (size_t)n + n_slots) * sizeof(word);
    return (words + 4095) / 4096 * 4096 + (size_t)n_slots * m->chunk_bytes;
}

static dtp_status number_chunks(dtpi_share *s, dtp_error *err)
{
    uint64_t next = 0;

    s->first = dtpi_alloc_array(s->a, s->n_boxes + 1, sizeof(*s->first));
    if (!s->first)
        return dtpi_fail_nomem(err, s->n_boxes * sizeof(*s->first));
    for (size_t i = 0; i < dtpi_mf_n_tensors(s->m); i++) {
        const dtpi_mf_tensor *t = dtpi_mf_tensor_at(s->m, i);
        for (uint32_t k = 0; k < t->n_boxes; k++) {
            const uint64_t bytes =
                dtpi_mf_box_bytes(s->m, t, dtpi_mf_box_at(s->m, t->first_box + k));
            s->first[t->first_box + k] = next;
            next += bytes / s->m->chunk_bytes + 1;
        }
    }
    return DTP_OK;
}

dtp_status dtpi_share_new(const dtp_allocator *a, const dtpi_manifest *m, void *memory, uint32_t n,
                          uint32_t index, dtpi_share **share_out, dtp_error *err)
{
    dtpi_share *s = dtpi_alloc(a, sizeof(*s));
    word *words = memory;
    const uint64_t key = (m->id ^ m->step * 0x9e3779b97f4a7c15ull) | 1;
    uint64_t none = 0;

    if (!s)
        return dtpi_fail_nomem(err, sizeof(*s));
    *s = (dtpi_share){ .a = a, .m = m, .n = n, .index = index, .n_slots = n_slots_of(m),
                       .slot_bytes = m->chunk_bytes, .n_boxes = dtpi_mf_n_boxes(m), .stuck = AT_REST };
    const dtp_status st = number_chunks(s, err);
    if (st < 0) {
        dtpi_free(a, s, sizeof(*s));
        return st;
    }
    s->places = words + 1;
    s->tags = s->places + n;
    s->slots = (uint8_t *)memory + (dtpi_share_bytes(m, n) - (size_t)s->n_slots * s->slot_bytes);
    s->is_off = !atomic_compare_exchange_strong(&words->v, &none, key) && none != key;
    if (s->is_off)
        atomic_store(&s->places[index].v, AT_REST);
    *share_out = s;
    return DTP_OK;
}

void dtpi_share_free(dtpi_share *s)
{
    if (!s)
        return;
    dtpi_share_rest(s);
    dtpi_free(s->a, s->first, (s->n_boxes + 1) * sizeof(*s->first));
    dtpi_free(s->a, s, sizeof(*s));
}

void dtpi_share_rest(dtpi_share *s)
{
    atomic_store(&s->places[s->index].v, AT_REST);
}

bool dtpi_share_wants(const dtpi_share *s, const dtpi_fetch_job *j)
{
    return !s->is_off && j->want && !j->direct && !j->is_part && j->box->sums_at != DTPI_NO_SUMS &&
           j->plain <= s->slot_bytes;
}

/* ---- numbers, places and tags ---- */

static uint64_t number_of(const dtpi_share *s, const dtpi_fetch_job *j)
{
    return s->first[j->box - dtpi_mf_box_at(s->m, 0)] + j->chunk;
}

/* Where the last of all stands. */
static uint64_t lowest_place(const dtpi_share *s)
{
    uint64_t lowest = AT_REST;

    for (uint32_t i = 0; i < s->n; i++)
        lowest = DTPI_MIN(lowest, atomic_load(&s->places[i].v));
    return lowest;
}

static bool is_open(const dtpi_share *s, uint64_t number)
{
    const uint64_t lowest = lowest_place(s);

    return lowest == AT_REST || number < lowest + s->n_slots;
}

static uint64_t tag_of(uint64_t number, uint64_t state)
{
    return (number + 1) << 2 | state;
}

static word *slot_of(const dtpi_share *s, uint64_t number, uint8_t **bytes_out)
{
    const uint64_t k = number % s->n_slots;

    *bytes_out = s->slots + k * s->slot_bytes;
    return &s->tags[k];
}

/* The slot becomes this rank's to fill. A later chunk in it stays: one in front may be copying it. */
static bool claim(dtpi_share *s, uint64_t number)
{
    uint8_t *bytes;
    word *tag = slot_of(s, number, &bytes);
    uint64_t before = atomic_load(&tag->v);

    if ((before & 3) == CLAIMED || before >> 2 > number || !is_open(s, number) ||
        !atomic_compare_exchange_strong(&tag->v, &before, tag_of(number, CLAIMED)))
        return false;
    if (is_open(s, number))
        return true;
    atomic_store(&tag->v, before);      /* somebody began below, and may be reading it */
    return false;
}

static void fill(dtpi_share *s, dtpi_fetch *f, const dtpi_fetch_job *j)
{
    const uint64_t number = number_of(s, j);
    uint8_t *bytes;
    word *tag = slot_of(s, number, &bytes);

    /* Whoever needs a chunk that fails reads it again and says what is wrong. */
    const dtp_status st = dtpi_fetch_plain(f, j, bytes, NULL);
    atomic_store(&tag->v, tag_of(number, st < 0 ? FAILED : READY));
}

/* ---- one rank's way ---- */

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Reads one chunk that this rank will need, if there is one to be had. */
static bool read_ahead(dtpi_share *s, dtpi_fetch *f, const dtpi_fetch_job *jobs, size_t n)
{
    for (size_t i = 0; i < n && is_open(s, number_of(s, &jobs[i])); i++)
        if (claim(s, number_of(s, &jobs[i]))) {
            fill(s, f, &jobs[i]);
            return true;
        }
    return false;
}

/* False: not now, and not by waiting either. */
static bool may_wait(dtpi_share *s, bool is_claimed, int64_t since_ms, uint64_t *lowest)
{
    const int64_t waited_ms = now_ms() - since_ms;

    if (is_claimed) {
        s->is_off = waited_ms > READ_WAIT_MS;
        return !s->is_off;
    }
    const uint64_t now = lowest_place(s);
    if (now == s->stuck)
        return false;
    if (waited_ms > MOVE_WAIT_MS && now == *lowest)
        s->stuck = now;
    *lowest = now;
    return now != s->stuck;
}

/* The verified chunk of the first job; NULL: it has to be read alone. */
static const uint8_t *obtain(dtpi_share *s, dtpi_fetch *f, const dtpi_fetch_job *jobs, size_t n)
{
    const uint64_t number = number_of(s, jobs);
    const int64_t since_ms = now_ms();
    uint64_t lowest = AT_REST;
    uint8_t *bytes;
    word *tag = slot_of(s, number, &bytes);

    atomic_store(&s->places[s->index].v, number);
    for (;;) {
        const uint64_t v = atomic_load(&tag->v);
        if (v == tag_of(number, READY))
            return bytes;
        if (v == tag_of(number, FAILED) || v >> 2 > number + 1)
            return NULL;
        if (claim(s, number))
            fill(s, f, jobs);
        else if (!read_ahead(s, f, jobs + 1, n - 1)) {
            if (!may_wait(s, v == tag_of(number, CLAIMED), since_ms, &lowest))
                return NULL;
            sched_yield();
        }
    }
}

static int by_number(const void *x, const void *y)
{
    const dtpi_fetch_job *a = x, *b = y;

    if (a->box != b->box)
        return a->box < b->box ? -1 : 1;
    return a->chunk < b->chunk ? -1 : a->chunk > b->chunk;
}

dtp_status dtpi_share_run(dtpi_share *s, dtpi_fetch *f, dtpi_fetch_job *jobs, size_t n, dtp_error *err)
{
    dtp_status st = DTP_OK;

    qsort(jobs, n, sizeof(*jobs), by_number);
    for (size_t i = 0; i < n && st >= 0 && !s->is_off; i++) {
        const uint8_t *plain = obtain(s, f, &jobs[i], n - i);
        if (plain)
            dtpi_fetch_scatter(f, &jobs[i], plain);
        else
            st = dtpi_fetch_run(f, &jobs[i], 1, NULL, NULL, err);
        if (s->is_off && i + 1 < n && st >= 0) {
            dtpi_share_rest(s);
            return dtpi_fetch_run(f, &jobs[i + 1], n - i - 1, NULL, NULL, err);
        }
    }
    return st;
}
