/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_finish.c - sorts the declared boxes by tensor and place, drops replicas, proves coverage.
 *
 * Tensors are sorted by name, boxes only counted into their tensors, in place: no pairs, and no second
 * array of boxes.
 */
#include <stdlib.h>

#include "ckpt/box.h"
#include "ckpt/plan.h"

static int compare_dims(const int64_t *a, const int64_t *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* The order in which ranks speak. */
static int by_rank(const dtpi_plan_box *a, const dtpi_plan_box *b)
{
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static int by_place(const void *x, const void *y, void *user)
{
    const dtpi_plan_box *a = x, *b = y;
    const dtpi_plan *p = user;
    int c = compare_dims(dtpi_plan_offset(p, a), dtpi_plan_offset(p, b), a->n_dims);

    if (!c)
        c = compare_dims(dtpi_plan_extent(p, a), dtpi_plan_extent(p, b), a->n_dims);
    return c ? c : by_rank(a, b);
}

static bool is_empty(const dtpi_plan *p, const dtpi_plan_box *b)
{
    uint64_t count = 0;

    return !dtpi_box_count(b->n_dims, dtpi_plan_extent(p, b), &count) || count == 0;
}

static bool same_place(const dtpi_plan *p, const dtpi_plan_box *a, const dtpi_plan_box *b)
{
    return compare_dims(dtpi_plan_offset(p, a), dtpi_plan_offset(p, b), 2 * a->n_dims) == 0;
}

/* Keeps one box of each place, and no empty one; how many are left in `*n`. */
static dtp_status drop_replicas(const dtpi_plan *p, dtpi_plan_box *boxes, size_t *n, dtp_error *err)
{
    size_t kept = 0;

    for (size_t i = 0; i < *n; i++) {
        const dtpi_plan_box *b = &boxes[i];
        if (i > 0 && same_place(p, &boxes[i - 1], b) && boxes[i - 1].rank == b->rank)
            return dtpi_fail_rank(err, DTP_ERR_INVAL, b->rank,
                                  "rank %d gives tensor %.80s twice (entries %u and %u)", b->rank,
                                  dtpi_plan_name(p, b), boxes[i - 1].index, b->index);
    }
    for (size_t i = 0; i < *n; i++) {
        const dtpi_plan_box b = boxes[i];
        if (!is_empty(p, &b) && (kept == 0 || !same_place(p, &boxes[kept - 1], &b)))
            boxes[kept++] = b;
    }
    *n = kept;
    return DTP_OK;
}

typedef struct tiled {
    const dtpi_plan *plan;
    const dtpi_plan_box *boxes;
} tiled;

static const int64_t *get_box(void *user, size_t i)
{
    const tiled *t = user;

    return dtpi_plan_offset(t->plan, &t->boxes[i]);
}

static dtp_status check_coverage(const dtpi_plan *p, const dtpi_plan_box *boxes, size_t n,
                                 const int64_t *shape, const char *name, uint32_t n_dims,
                                 dtp_error *err)
{
    static const int64_t one[DTP_CKPT_MAX_DIMS] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    int64_t point[DTP_CKPT_MAX_DIMS], skip[DTP_CKPT_MAX_DIMS * 2];
    int32_t ranks[2] = { -1, -1 };
    uint32_t count = 1, found = 0;
    char text[100];
    tiled t = { p, boxes };

    const dtp_status st = dtpi_box_tiling(p->a, n_dims, shape, n, get_box, &t, point, &count, err);
    if (st == DTP_ERR_LIMIT)
        return dtpi_fail(err, st, "tensor %.80s has too many boxes to be checked", name);
    if (st < 0 || count == 1)
        return st;
    dtpi_dims_text(n_dims, point, text, sizeof(text));
    if (count == 0)
        return dtpi_fail(err, DTP_ERR_CORRUPT, "tensor %.80s: element %s is in no rank's box", name,
                         text);
    for (size_t i = 0; i < n && found < 2; i++)
        if (dtpi_box_meet(n_dims, point, one, get_box(&t, i), get_box(&t, i) + n_dims, skip,
                          skip + n_dims))
            ranks[found++] = boxes[i].rank;
    return dtpi_fail_rank(err, DTP_ERR_CORRUPT, ranks[1],
                          "tensor %.80s: boxes of ranks %d and %d overlap at element %s", name,
                          ranks[0], ranks[1], text);
}

static void sort_boxes(dtpi_plan *p, dtpi_plan_box *boxes, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (by_place(&boxes[i - 1], &boxes[i], p) > 0) {
            qsort_r(boxes, n, sizeof(*boxes), by_place, p);
            return;
        }
    }
}

/* An empty tensor's one box is the whole, and the lowest rank's. */
static void keep_empty(dtpi_plan *p, const dtpi_plan_box *lowest, const int64_t *shape,
                       dtpi_plan_box *out)
{
    int64_t *dims = (int64_t *)(void *)p->dim_buf.data + lowest->dims_at;

    *out = *lowest;
    for (uint32_t i = 0; i < lowest->n_dims; i++) {
        dims[i] = 0;
        dims[lowest->n_dims + i] = shape[i];
    }
}

/* One tensor: of its `*n` boxes in `boxes` so many stay, in their order. */
static dtp_status finish_tensor(dtpi_plan *p, const dtpi_plan_tensor *t, dtpi_plan_box *boxes,
                                size_t *n, dtp_error *err)
{
    const int64_t *shape = (const int64_t *)(const void *)p->shape_buf.data + t->shape_at;
    dtpi_plan_box lowest = boxes[0];
    uint64_t count = 0;

    for (size_t i = 1; i < *n; i++)
        if (by_rank(&boxes[i], &lowest) < 0)
            lowest = boxes[i];
    sort_boxes(p, boxes, *n);
    const dtp_status st = drop_replicas(p, boxes, n, err);
    if (st < 0)
        return st;
    dtpi_box_count(t->n_dims, shape, &count);
    if (count > 0)
        return check_coverage(p, boxes, *n, shape, (const char *)p->text.data + t->name_at,
                              t->n_dims, err);
    keep_empty(p, &lowest, shape, boxes);
    *n = 1;
    return DTP_OK;
}

/* ---- boxes by tensor ---- */

static int by_name(const void *x, const void *y, void *user)
{
    const dtpi_plan *p = user;
    const char *text = (const char *)p->text.data;

    return strcmp(text + p->tensors[*(const uint32_t *)x].name_at,
                  text + p->tensors[*(const uint32_t *)y].name_at);
}

/* Tensors by name; boxes learn the new indexes. `order` has room for all tensors, twice. */
static dtp_status sort_tensors(dtpi_plan *p, uint32_t *order, dtp_error *err)
{
    const size_t n = p->n_tensors, bytes = n * sizeof(dtpi_plan_tensor);
    uint32_t *place = order + n;
    bool sorted = true;

    for (size_t i = 0; i < n; i++) {
        order[i] = (uint32_t)i;
        sorted = sorted && (i == 0 || by_name(&order[i - 1], &order[i], p) < 0);
    }
    if (sorted)
        return DTP_OK;
    dtpi_plan_tensor *old = dtpi_alloc_aligned(p->a, bytes, 64);
    if (!old)
        return dtpi_fail_nomem(err, bytes);
    qsort_r(order, n, sizeof(*order), by_name, p);
    memcpy(old, p->tensors, bytes);
    for (size_t i = 0; i < n; i++) {
        p->tensors[i] = old[order[i]];
        place[order[i]] = (uint32_t)i;
    }
    for (size_t i = 0; i < p->n_boxes; i++)
        p->boxes[i].tensor = place[p->boxes[i].tensor];
    dtpi_free(p->a, old, bytes);
    return DTP_OK;
}

/* Boxes of a tensor side by side, in the order in which they came; `to` has room for all boxes. */
static void group_boxes(dtpi_plan *p, uint32_t *to)
{
    size_t at = 0;

    for (size_t i = 0; i < p->n_boxes; i++)
        p->tensors[p->boxes[i].tensor].n++;
    for (size_t t = 0; t < p->n_tensors; t++) {
        p->tensors[t].first = at;
        at += p->tensors[t].n;
        p->tensors[t].n = 0;
    }
    for (size_t i = 0; i < p->n_boxes; i++) {
        dtpi_plan_tensor *t = &p->tensors[p->boxes[i].tensor];
        to[i] = (uint32_t)(t->first + t->n++);
    }
    for (size_t i = 0; i < p->n_boxes; i++) {
        while (to[i] != i) {
            const uint32_t k = to[i];
            const dtpi_plan_box b = p->boxes[k];
            p->boxes[k] = p->boxes[i];
            p->boxes[i] = b;
            to[i] = to[k];
            to[k] = k;
        }
    }
}

/* ---- boxes by rank ---- */

/* So that each rank's layout is made without a look at the others. */
static void order_by_rank(dtpi_plan *p)
{
    const size_t n_ranks = (size_t)p->n_ranks;
    uint32_t *at = p->order;

    memset(at, 0, (n_ranks + 2) * sizeof(*at));
    for (size_t i = 0; i < p->n_boxes; i++)
        at[p->boxes[i].rank + 2]++;
    for (size_t i = 2; i < n_ranks + 2; i++)
        at[i] += at[i - 1];
    /* Filling moves each start to the next rank's, which is where it is wanted. */
    for (size_t i = 0; i < p->n_boxes; i++)
        at[n_ranks + 2 + at[p->boxes[i].rank + 1]++] = (uint32_t)i;
}

const uint32_t *dtpi_plan_of_rank(const dtpi_plan *p, int32_t rank, size_t *n_out)
{
    *n_out = 0;
    if (rank < 0 || rank >= p->n_ranks)
        return NULL;
    *n_out = p->order[rank + 1] - p->order[rank];
    return p->order + p->n_ranks + 2 + p->order[rank];
}

/* ---- the whole ---- */

/* Tensor by tensor; boxes that stay move together. */
static dtp_status finish_tensors(dtpi_plan *p, dtp_error *err)
{
    size_t to = 0;

    for (size_t i = 0; i < p->n_tensors; i++) {
        dtpi_plan_tensor *t = &p->tensors[i];
        size_t n = t->n;
        const dtp_status st = finish_tensor(p, t, p->boxes + t->first, &n, err);
        if (st < 0)
            return st;
        memmove(p->boxes + to, p->boxes + t->first, n * sizeof(*p->boxes));
        t->first = to;
        t->n = n;
        to += n;
    }
    p->n_boxes = to;
    return DTP_OK;
}

dtp_status dtpi_plan_finish(dtpi_plan *p, dtp_error *err)
{
    p->boxes = (dtpi_plan_box *)(void *)p->box_buf.data;
    p->n_boxes = p->box_buf.len / sizeof(dtpi_plan_box);
    p->tensors = (dtpi_plan_tensor *)(void *)p->tensor_buf.data;
    p->n_tensors = p->tensor_buf.len / sizeof(dtpi_plan_tensor);
    p->dims = (const int64_t *)(const void *)p->dim_buf.data;
    /* Enough for each of the three uses it has. */
    p->n_order = DTPI_MAX(p->n_boxes + (size_t)p->n_ranks + 2, 2 * p->n_tensors);
    p->order = dtpi_alloc_array(p->a, p->n_order, sizeof(*p->order));
    if (!p->order || p->dim_buf.failed || p->shape_buf.failed)
        return dtpi_fail_nomem(err, p->n_order * sizeof(*p->order));
    dtp_status st = sort_tensors(p, p->order, err);
    if (st < 0)
        return st;
    group_boxes(p, p->order);
    st = finish_tensors(p, err);
    if (st >= 0)
        order_by_rank(p);
    return st;
}
