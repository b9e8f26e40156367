/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - exchanges of any size on top of a bounded allgather: first the lengths, then rounds. */
#include "ckpt/link.h"

#include "base/wire.h"

static dtp_status gather_alone(dtpi_link *link, const void *data, size_t bytes, dtpi_buf *out,
                               size_t *sizes_out, dtp_error *err)
{
    (void)link;
    sizes_out[0] = bytes;
    return dtpi_buf_append(out, data, bytes) ? DTP_OK : dtpi_fail_nomem(err, bytes);
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

/* What every exchange needs; made before the ranks talk, so that only a rank without memory fails. */
typedef struct rounds {
    dtpi_link *link;
    dtpi_buf in;
    size_t *sizes;
    size_t share;               /* of a rank in a round */
    size_t longest;
} rounds;

static dtp_status gather_lengths(rounds *r, size_t bytes, dtpi_pieces *out, dtp_error *err)
{
    uint8_t raw[8];

    for (int i = 0; i < 8; i++)
        raw[i] = (uint8_t)((uint64_t)bytes >> (8 * i));
    const dtp_status st = r->link->gather(r->link, raw, sizeof(raw), &r->in, r->sizes, err);
    if (st < 0)
        return st;
    dtpi_rd rd = dtpi_rd_init(r->in.data, r->in.len);
    for (int32_t i = 0; i < r->link->size; i++) {
        const uint64_t n = dtpi_rd_u64(&rd);
        if (n > SIZE_MAX / 4 - out->at[i])
            return dtpi_fail_rank(err, DTP_ERR_PROTO, i, "rank %d announces an impossible message",
                                  i);
        out->at[i + 1] = out->at[i] + (size_t)n;
        r->longest = DTPI_MAX(r->longest, (size_t)n);
    }
    return dtpi_rd_done(&rd) ? DTP_OK
                             : dtpi_fail(err, DTP_ERR_PROTO, "lengths of an exchange are cut");
}

/* One round: the next piece of everybody to its place. */
static dtp_status gather_round(rounds *r, const uint8_t *data, size_t bytes, size_t from,
                               dtpi_pieces *out, bool keep, dtp_error *err)
{
    const size_t mine = from < bytes ? DTPI_MIN(bytes - from, r->share) : 0;

    dtpi_buf_reset(&r->in);
    const dtp_status st =
        r->link->gather(r->link, mine ? data + from : NULL, mine, &r->in, r->sizes, err);
    if (st < 0)
        return st;
    size_t at = 0;
    for (int32_t i = 0; i < r->link->size; i++) {
        const size_t whole = out->at[i + 1] - out->at[i];
        const size_t want = from < whole ? DTPI_MIN(whole - from, r->share) : 0;
        if (r->sizes[i] != want)
            return dtpi_fail_rank(err, DTP_ERR_PROTO, i, "rank %d sent %zu bytes instead of %zu", i,
                                  r->sizes[i], want);
        if (keep && want)
            memcpy(out->data.data + out->at[i] + from, r->in.data + at, want);
        at += want;
    }
    return DTP_OK;
}

static dtp_status gather_all(rounds *r, const void *data, size_t bytes, dtpi_pieces *out,
                             dtp_error *err)
{
    dtp_status st = gather_lengths(r, bytes, out, err);

    if (st < 0)
        return st;
    const size_t total = out->at[r->link->size];
    const bool keep = dtpi_buf_reserve(&out->data, total + 1) != NULL;
    for (size_t from = 0; st >= 0 && from < r->longest; from += r->share)
        st = gather_round(r, data, bytes, from, out, keep, err);
    if (st >= 0 && !keep)
        return dtpi_fail_nomem(err, total);
    out->data.len = total;
    return st;
}

dtp_status dtpi_link_exchange(const dtp_allocator *a, dtpi_link *link, const void *data,
                              size_t bytes, dtpi_pieces *out, dtp_error *err)
{
    const size_t n = (size_t)link->size;
    rounds r = { .link = link, .in = dtpi_buf_init(a) };
    dtp_status st = DTP_OK;

    *out = (dtpi_pieces){ .data = dtpi_buf_init(a), .size = link->size };
    r.share = DTPI_MAX((size_t)1, link->max_bytes / n);
    r.sizes = dtpi_alloc_array(a, n, sizeof(*r.sizes));
    out->at = dtpi_alloc_array(a, n + 1, sizeof(*out->at));
    /* Taken now: in the middle of the rounds a rank without memory would leave the others alone. */
    if (link->size > 1)
        dtpi_buf_reserve(&r.in, DTPI_MAX(n * 8, r.share * n));
    if (!r.sizes || !out->at || r.in.failed)
        st = dtpi_fail_nomem(err, n * sizeof(*r.sizes));
    else
        st = gather_all(&r, data, bytes, out, err);
    dtpi_free(a, r.sizes, n * sizeof(*r.sizes));
    dtpi_buf_free(&r.in);
    if (st < 0)
        dtpi_pieces_free(a, out);
    return st;
}
