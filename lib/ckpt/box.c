/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box.c - the algebra of boxes, a proof of coverage, and the walk that copies one box into another.
 *
 * Coverage: the mixed difference of a box's indicator is +-1 at its corners. Boxes cover a tensor exactly
 * once if and only if their corners, added with their signs, are the tensor's: a sort, no pairs. At the
 * lexicographically first corner that disagrees, the difference is the number of boxes too many there.
 * Most tensors are cut by a grid and their boxes come in its order; that is seen without a sort.
 */
#include "ckpt/box.h"

#include <dtp/ckpt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool dtpi_box_count(uint32_t n_dims, const int64_t *extent, uint64_t *count_out)
{
    uint64_t n = 1;
    bool empty = false;

    for (uint32_t i = 0; i < n_dims; i++) {
        if (extent[i] < 0)
            return false;
        if (extent[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(n, (uint64_t)extent[i], &n) || n >> 62)
            return false;
    }
    *count_out = empty ? 0 : n;
    return true;
}

bool dtpi_box_bytes(uint32_t n_dims, const int64_t *extent, dtp_dtype dtype, uint64_t *bytes_out)
{
    const uint32_t bits = dtp_dtype_bits(dtype);
    uint64_t count = 0;

    if (bits == 0 || !dtpi_box_count(n_dims, extent, &count) ||
        count / 8 > (uint64_t)INT64_MAX / bits - 1 || count % 8 * bits % 8)
        return false;
    *bytes_out = dtpi_bits_bytes(count, bits);
    return true;
}

bool dtpi_box_inside(uint32_t n_dims, const int64_t *offset, const int64_t *extent,
                     const int64_t *shape)
{
    for (uint32_t i = 0; i < n_dims; i++)
        if (offset[i] < 0 || extent[i] < 0 || offset[i] > shape[i] ||
            extent[i] > shape[i] - offset[i])
            return false;
    return true;
}

bool dtpi_box_meet(uint32_t n_dims, const int64_t *a_offset, const int64_t *a_extent,
                   const int64_t *b_offset, const int64_t *b_extent, int64_t *offset_out,
                   int64_t *extent_out)
{
    for (uint32_t i = 0; i < n_dims; i++) {
        const int64_t low = DTPI_MAX(a_offset[i], b_offset[i]);
        const int64_t high = DTPI_MIN(a_offset[i] + a_extent[i], b_offset[i] + b_extent[i]);
        if (high <= low)
            return false;
        offset_out[i] = low;
        extent_out[i] = high - low;
    }
    return true;
}

void dtpi_dims_text(uint32_t n_dims, const int64_t *dims, char *text_out, size_t room)
{
    size_t at = (size_t)snprintf(text_out, room, "[");

    for (uint32_t i = 0; i < n_dims && at < room; i++)
        at += (size_t)snprintf(text_out + at, room - at, "%s%" PRId64, i ? ", " : "", dims[i]);
    if (at < room)
        snprintf(text_out + at, room - at, "]");
}

void dtpi_box_text(uint32_t n_dims, const int64_t *offset, const int64_t *extent, char *text_out,
                   size_t room)
{
    char a[96], b[96];

    dtpi_dims_text(n_dims, offset, a, sizeof(a));
    dtpi_dims_text(n_dims, extent, b, sizeof(b));
    snprintf(text_out, room, "%s + %s", a, b);
}

/* ---- coverage ---- */

/* Enough for 11 million boxes cut in 2 dimensions. */
#define MAX_CORNER_BYTES ((size_t)1 << 30)

/* Corners lie in rows of `width` numbers: coordinates of the cut dimensions, then the sign. */
typedef struct corners {
    int64_t *rows;
    size_t n, width;
} corners;

static int by_place(const void *x, const void *y, void *user)
{
    const int64_t *a = x, *b = y;
    const size_t n = ((const corners *)user)->width - 1;

    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* Adds the 2^k corners of a box. */
static void add_corners(corners *c, const uint32_t *cut, const int64_t *offset,
                        const int64_t *extent, int64_t sign)
{
    const size_t k = c->width - 1;

    for (size_t bits = 0; bits < (size_t)1 << k; bits++) {
        int64_t *row = c->rows + c->n++ * c->width;
        for (size_t i = 0; i < k; i++)
            row[i] = offset[cut[i]] + (bits >> i & 1 ? extent[cut[i]] : 0);
        row[k] = __builtin_popcountll(bits) % 2 ? -sign : sign;
    }
}

/* The first place where the signs do not cancel; NULL when all do. */
static const int64_t *first_difference(corners *c, int64_t *sum_out)
{
    const size_t k = c->width - 1;

    qsort_r(c->rows, c->n, c->width * sizeof(*c->rows), by_place, c);
    for (size_t i = 0; i < c->n;) {
        const int64_t *row = c->rows + i * c->width;
        int64_t sum = 0;
        for (; i < c->n && by_place(row, c->rows + i * c->width, c) == 0; i++)
            sum += c->rows[i * c->width + k];
        if (sum) {
            *sum_out = sum;
            return row;
        }
    }
    return NULL;
}

/* Dimensions in which some box is not the whole tensor; the others play no part. */
static size_t cut_dims(uint32_t n_dims, const int64_t *shape, size_t n,
                       const int64_t *(*get)(void *user, size_t i), void *user, uint32_t *cut_out)
{
    bool is_cut[DTP_CKPT_MAX_DIMS] = { false };
    size_t k = 0;

    for (size_t i = 0; i < n; i++) {
        const int64_t *box = get(user, i);
        for (uint32_t d = 0; d < n_dims; d++)
            is_cut[d] |= box[n_dims + d] != shape[d];
    }
    for (uint32_t d = 0; d < n_dims; d++)
        if (is_cut[d])
            cut_out[k++] = d;
    return k;
}

/* How boxes are asked for. */
typedef struct boxes {
    uint32_t n_dims;
    size_t n;
    const int64_t *(*get)(void *user, size_t i);
    void *user;
} boxes;

/* Boxes at a stride follow each other along dimension `d` from 0 to `end`; how many, 0 where they do not. */
static size_t count_steps(const boxes *b, uint32_t d, size_t stride, int64_t end)
{
    int64_t at = 0;
    size_t n = 0;

    for (size_t i = 0; at < end; i += stride, n++) {
        const int64_t *box = i < b->n ? b->get(b->user, i) : NULL;
        if (!box || box[d] != at)
            return 0;
        at += box[b->n_dims + d];
    }
    return at == end ? n : 0;
}

/*
 * The boxes are those of a grid, the last cut dimension running fastest: true proves coverage, false says
 * nothing.
 */
static bool is_grid(const boxes *b, const int64_t *shape, const uint32_t *cut, size_t k)
{
    size_t strides[DTP_CKPT_MAX_DIMS], counts[DTP_CKPT_MAX_DIMS], stride = 1;

    for (size_t j = k; j-- > 0;) {
        strides[j] = stride;
        counts[j] = count_steps(b, cut[j], stride, shape[cut[j]]);
        if (counts[j] == 0 || !dtpi_mul(stride, counts[j], &stride))
            return false;
    }
    if (stride != b->n)
        return false;
    for (size_t i = 0; i < b->n; i++) {
        const int64_t *box = b->get(b->user, i);
        for (size_t j = 0; j < k; j++) {
            const int64_t *like = b->get(b->user, i / strides[j] % counts[j] * strides[j]);
            if (box[cut[j]] != like[cut[j]] ||
                box[b->n_dims + cut[j]] != like[b->n_dims + cut[j]])
                return false;
        }
    }
    return true;
}

dtp_status dtpi_box_tiling(const dtp_allocator *a, uint32_t n_dims, const int64_t *shape, size_t n,
                           const int64_t *(*get)(void *user, size_t i), void *user,
                           int64_t *point_out, uint32_t *count_out, dtp_error *err)
{
    static const int64_t zero[DTP_CKPT_MAX_DIMS];
    uint32_t cut[DTP_CKPT_MAX_DIMS];
    const size_t k = cut_dims(n_dims, shape, n, get, user, cut);
    corners c = { .width = k + 1 };
    const boxes all = { n_dims, n, get, user };
    size_t rows, bytes;
    int64_t sum = 0;

    *count_out = 1;
    if (is_grid(&all, shape, cut, k))
        return DTP_OK;
    /* A box of a manifest may be 100 bytes of text and have 2^8 corners. */
    if (!dtpi_mul(n + 1, (size_t)1 << k, &rows) ||
        !dtpi_mul(rows, c.width * sizeof(int64_t), &bytes) || bytes > MAX_CORNER_BYTES)
        return dtpi_fail(err, DTP_ERR_LIMIT,
                         "%zu boxes cut in %zu dimensions are too many for one tensor", n, k);
    c.rows = dtpi_alloc_aligned(a, bytes, 64);
    if (!c.rows)
        return dtpi_fail_nomem(err, bytes);
    for (size_t i = 0; i < n; i++)
        add_corners(&c, cut, get(user, i), get(user, i) + n_dims, 1);
    add_corners(&c, cut, zero, shape, -1);
    const int64_t *row = first_difference(&c, &sum);
    *count_out = 1;
    if (row) {
        for (uint32_t d = 0; d < n_dims; d++)
            point_out[d] = 0;
        for (size_t i = 0; i < k; i++)
            point_out[cut[i]] = row[i];
        *count_out = (uint32_t)(1 + sum);
    }
    dtpi_free(a, c.rows, bytes);
    return DTP_OK;
}

/* ---- the walk ---- */

void dtpi_walk_begin(dtpi_walk *w, uint32_t n_dims, const int64_t *from_offset,
                     const int64_t *from_extent, const int64_t *to_offset, const int64_t *to_extent,
                     const int64_t *offset, const int64_t *extent)
{
    uint64_t from_stride[8], to_stride[8], from_n = 1, to_n = 1;
    uint32_t d = n_dims;

    *w = (dtpi_walk){ .run = 1 };
    for (uint32_t i = n_dims; i-- > 0;) {
        from_stride[i] = from_n;
        to_stride[i] = to_n;
        from_n *= (uint64_t)from_extent[i];
        to_n *= (uint64_t)to_extent[i];
        w->from += from_stride[i] * (uint64_t)(offset[i] - from_offset[i]);
        w->to += to_stride[i] * (uint64_t)(offset[i] - to_offset[i]);
        w->done |= extent[i] == 0;
    }
    /* Dimensions that are whole in both join the run, and one that is not ends it. */
    while (d > 0) {
        d--;
        w->run *= (uint64_t)extent[d];
        if (extent[d] != from_extent[d] || extent[d] != to_extent[d])
            break;
    }
    w->n_outer = d;
    for (uint32_t i = 0; i < d; i++) {
        w->counts[i] = extent[i];
        w->from_step[i] = from_stride[i];
        w->to_step[i] = to_stride[i];
    }
}

void dtpi_walk_next(dtpi_walk *w)
{
    for (uint32_t i = w->n_outer; i-- > 0;) {
        w->from += w->from_step[i];
        w->to += w->to_step[i];
        if (++w->at[i] < w->counts[i])
            return;
        w->from -= w->from_step[i] * (uint64_t)w->counts[i];
        w->to -= w->to_step[i] * (uint64_t)w->counts[i];
        w->at[i] = 0;
    }
    w->done = true;
}

void dtpi_walk_seek(dtpi_walk *w, uint64_t from)
{
    if (w->done || from < w->from + w->run)
        return;
    uint64_t left = from - w->from;
    /* A step is never shorter than all steps inside it together. */
    for (uint32_t i = 0; i < w->n_outer; i++) {
        const uint64_t k = DTPI_MIN(left / w->from_step[i], (uint64_t)w->counts[i] - 1);
        w->at[i] = (int64_t)k;
        w->from += k * w->from_step[i];
        w->to += k * w->to_step[i];
        left -= k * w->from_step[i];
    }
    if (from >= w->from + w->run)
        dtpi_walk_next(w);
}
