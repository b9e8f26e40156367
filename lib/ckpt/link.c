/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - exchanges of any size on top of a bounded allgather: first the lengths, then rounds. */
#include "ckpt/link.h"

#include "base/wire.h"

/* Of one rank: more than any manifest has. What is announced decides how many rounds all go. */
static const uint64_t max_announced = 1ull << 32;

static dtp_status gather_alone(dtpi_link *link, const void *data, size_t bytes, dtpi_link_each each,
                               void *user, dtp_error *err)
{
    (void)link;
    (void)err;
    each(user, 0, data, bytes);
    return DTP_OK;
}

void dtpi_link_alone(dtpi_link *link)
{
    *link = (dtpi_link){ .size = 1, .max_bytes = SIZE_MAX / 2, .gather = gather_alone };
}

void dtpi_pieces_free(const dtp_allocator *a, dtpi_pieces *p)
{
    dtpi_buf_free(&p->data);
    if (p->at)
        dtpi_free(a, p->at, ((size_t)p->size + 1) * sizeof(*p->at));
    p->at = NULL;
}

/* ---- any size ---- */

/* A rank without memory goes through the same rounds and keeps nothing. */
typedef struct rounds {
    dtpi_link *link;
    dtpi_pieces *out;
    bool keeps;
    size_t share;               /* of a rank in a round */
    size_t from;                /* of the round under way */
    uint64_t longest, total;
    int32_t bad;                /* a rank that sent something else than it had announced; -1: none */
} rounds;

static void hear_length(void *user, int32_t rank, const void *data, size_t bytes)
{
    rounds *r = user;
    dtpi_rd rd = dtpi_rd_init(data, bytes);
    const uint64_t n = dtpi_rd_u64(&rd);

    if (!dtpi_rd_done(&rd) || n > max_announced) {
        r->bad = r->bad < 0 ? rank : r->bad;
        return;
    }
    r->total += n;
    r->longest = DTPI_MAX(r->longest, n);
    if (r->out->at)
        r->out->at[rank + 1] = (size_t)r->total;
}

static dtp_status gather_lengths(rounds *r, size_t bytes, dtp_error *err)
{
    uint8_t raw[8];

    for (int i = 0; i < 8; i++)
        raw[i] = (uint8_t)((uint64_t)bytes >> (8 * i));
    const dtp_status st = dtpi_link_notes(r->link, raw, sizeof(raw), hear_length, r, err);
    if (st >= 0 && r->bad >= 0)
        return dtpi_fail_rank(err, DTP_ERR_PROTO, r->bad,
                              "rank %d announces an impossible message", r->bad);
    return st;
}

/* The next piece of a rank to its place. */
static void hear_piece(void *user, int32_t rank, const void *data, size_t bytes)
{
    rounds *r = user;

    if (!r->keeps)
        return;
    const size_t whole = r->out->at[rank + 1] - r->out->at[rank];
    const size_t want = r->from < whole ? DTPI_MIN(whole - r->from, r->share) : 0;
    if (bytes != want)
        r->bad = r->bad < 0 ? rank : r->bad;
    else if (want)
        memcpy(r->out->data.data + r->out->at[rank] + r->from, data, want);
}

static dtp_status gather_all(rounds *r, const uint8_t *data, size_t bytes, dtp_error *err)
{
    dtp_status st = gather_lengths(r, bytes, err);

    if (st < 0)
        return st;
    r->keeps = r->out->at && dtpi_buf_reserve(&r->out->data, (size_t)r->total + 1);
    for (; st >= 0 && r->from < r->longest; r->from += r->share) {
        const size_t mine = r->from < bytes ? DTPI_MIN(bytes - r->from, r->share) : 0;
        st = r->link->gather(r->link, mine ? data + r->from : NULL, mine, hear_piece, r, err);
        if (st >= 0 && r->bad >= 0)
            st = dtpi_fail_rank(err, DTP_ERR_PROTO, r->bad,
                                "rank %d sent another number of bytes than it had announced", r->bad);
    }
    if (st >= 0 && !r->keeps)
        return dtpi_fail_nomem(err, (size_t)r->total);
    r->out->data.len = (size_t)r->total;
    return st;
}

dtp_status dtpi_link_exchange(const dtp_allocator *a, dtpi_link *link, const void *data,
                              size_t bytes, dtpi_pieces *out, dtp_error *err)
{
    const size_t n = (size_t)link->size;
    rounds r = { .link = link, .out = out, .bad = -1 };

    *out = (dtpi_pieces){ .data = dtpi_buf_init(a), .size = link->size };
    out->at = dtpi_alloc_array(a, n + 1, sizeof(*out->at));
    r.share = DTPI_MAX((size_t)1, link->max_bytes / n);
    const dtp_status st = gather_all(&r, data, bytes, err);
    if (st < 0)
        dtpi_pieces_free(a, out);
    return st;
}

/* ---- one size ---- */

typedef struct notes {
    dtpi_link_each each;
    void *user;
    int32_t first, end;         /* ranks that speak in this round */
} notes;

static void hear_note(void *user, int32_t rank, const void *data, size_t bytes)
{
    const notes *n = user;

    if (rank >= n->first && rank < n->end)
        n->each(n->user, rank, data, bytes);
}

/* Where not all fit into one round, some ranks speak and the others listen. */
dtp_status dtpi_link_notes(dtpi_link *link, const void *data, size_t bytes, dtpi_link_each each,
                           void *user, dtp_error *err)
{
    const size_t fit = DTPI_MAX((size_t)1, link->max_bytes / bytes);
    const int32_t step = (int32_t)DTPI_MIN(fit, (size_t)link->size);
    dtp_status st = DTP_OK;

    for (int32_t first = 0; st >= 0 && first < link->size; first += step) {
        notes n = { each, user, first, DTPI_MIN(first + step, link->size) };
        const bool speaks = link->rank >= n.first && link->rank < n.end;
        st = link->gather(link, speaks ? data : NULL, speaks ? bytes : 0, hear_note, &n, err);
    }
    return st;
}
