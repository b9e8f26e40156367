/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c - the order of boxes in one rank's file and the name of each there.
 *
 * Types of more bytes come first, so that every tensor is aligned to its element. A file cannot hold one
 * name twice: the first box of a tensor has the tensor's name, others get "NAME@OFFSET".
 */
#include <inttypes.h>
#include <stdlib.h>

#include "ckpt/box.h"
#include "ckpt/plan.h"

typedef struct sorter {
    const dtpi_plan *plan;
    const dtpi_layout *layout;
} sorter;

void dtpi_layout_free(dtpi_layout *l)
{
    dtpi_buf_free(&l->piece_buf);
    dtpi_buf_free(&l->keys);
}

static int by_key(const void *x, const void *y, void *user)
{
    const dtpi_layout *l = ((const sorter *)user)->layout;

    return strcmp(dtpi_layout_key(l, x), dtpi_layout_key(l, y));
}

static int by_order(const void *x, const void *y, void *user)
{
    const dtpi_plan *plan = ((const sorter *)user)->plan;
    const dtpi_piece *a = x, *b = y;
    const uint32_t wide_a = dtp_dtype_bits(plan->boxes[a->box].dtype);
    const uint32_t wide_b = dtp_dtype_bits(plan->boxes[b->box].dtype);

    if (wide_a != wide_b)
        return wide_a > wide_b ? -1 : 1;
    return by_key(x, y, user);
}

static void put_key(dtpi_layout *l, const dtpi_plan *plan, const dtpi_plan_box *b, bool first)
{
    const dtpi_plan_tensor *t = &plan->tensors[b->tensor];

    dtpi_buf_append(&l->keys, plan->text.data + t->name_at, t->name_bytes);
    if (!first) {
        for (uint32_t i = 0; i < b->n_dims; i++)
            dtpi_buf_printf(&l->keys, "%c%" PRId64, i ? ',' : '@', dtpi_plan_offset(plan, b)[i]);
    }
    dtpi_buf_append(&l->keys, "", 1);
}

static dtp_status add_piece(dtpi_layout *l, const dtpi_plan *plan, size_t box, bool first,
                            dtp_error *err)
{
    const dtpi_plan_box *b = &plan->boxes[box];
    dtpi_piece piece = { .box = box, .nth = (uint32_t)l->n, .key_at = (uint32_t)l->keys.len };

    dtpi_box_bytes(b->n_dims, dtpi_plan_extent(plan, b), b->dtype, &piece.bytes);
    put_key(l, plan, b, first);
    piece.key_bytes = (uint32_t)(l->keys.len - 1 - piece.key_at);
    if (!dtpi_buf_append(&l->piece_buf, &piece, sizeof(piece)) || l->keys.failed)
        return dtpi_fail_nomem(err, sizeof(piece));
    l->n++;
    if (__builtin_add_overflow(l->bytes, piece.bytes, &l->bytes) || l->bytes > INT64_MAX / 2)
        return dtpi_fail(err, DTP_ERR_LIMIT, "the boxes of a rank are too large for one file");
    return DTP_OK;
}

/* A made-up key may be the name of another tensor: '+' is added until it is alone. */
static bool part_twins(dtpi_layout *l, sorter *s, bool *again_out)
{
    dtpi_piece *p = (dtpi_piece *)(void *)l->piece_buf.data;

    *again_out = false;
    qsort_r(p, l->n, sizeof(*p), by_key, s);
    for (size_t i = 1; i < l->n; i++) {
        if (by_key(&p[i - 1], &p[i], s) != 0)
            continue;
        dtpi_piece *made =
            strcmp(dtpi_plan_name(s->plan, &s->plan->boxes[p[i].box]), dtpi_layout_key(l, &p[i]))
                ? &p[i]
                : &p[i - 1];
        const uint32_t at = (uint32_t)l->keys.len;
        if (!dtpi_buf_reserve(&l->keys, made->key_bytes + 2))
            return false;
        dtpi_buf_append(&l->keys, dtpi_layout_key(l, made), made->key_bytes);
        dtpi_buf_append(&l->keys, "+", 2);
        made->key_at = at;
        made->key_bytes++;
        *again_out = true;
    }
    return true;
}

dtp_status dtpi_layout_make(const dtpi_plan *plan, int32_t rank, dtpi_layout *out, dtp_error *err)
{
    dtpi_layout l = { .piece_buf = dtpi_buf_init(plan->a), .keys = dtpi_buf_init(plan->a) };
    sorter s = { plan, &l };
    dtp_status st = DTP_OK;
    bool again = true;
    size_t n = 0;

    const uint32_t *own = dtpi_plan_of_rank(plan, rank, &n);
    for (size_t i = 0; i < n && st >= 0; i++) {
        const bool first =
            i == 0 || plan->boxes[own[i]].tensor != plan->boxes[own[i - 1]].tensor;
        st = add_piece(&l, plan, own[i], first, err);
    }
    while (st >= 0 && again && l.n > 1)
        if (!part_twins(&l, &s, &again))
            st = dtpi_fail_nomem(err, 0);
    if (st < 0) {
        dtpi_layout_free(&l);
        return st;
    }
    if (l.n > 1)
        qsort_r(l.piece_buf.data, l.n, sizeof(dtpi_piece), by_order, &s);
    *out = l;
    return DTP_OK;
}
