/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - merges the ranks' declarations: agreement, replicas, coverage. */
#include "ckpt/plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "ckpt/box.h"

enum { MAX_NAME = 1023 };

void dtpi_plan_init(dtpi_plan *plan, const dtp_allocator *a)
{
    *plan = (dtpi_plan){ .a = a };
    plan->box_buf = dtpi_buf_init(a);
    plan->tensor_buf = dtpi_buf_init(a);
    plan->dim_buf = dtpi_buf_init(a);
    plan->order_buf = dtpi_buf_init(a);
    /* So that the dimensions of scalars can be pointed at; a failure shows at the first add. */
    dtpi_buf_append(&plan->dim_buf, &(int64_t){ 0 }, sizeof(int64_t));
}

void dtpi_plan_free(dtpi_plan *plan)
{
    dtpi_buf_free(&plan->box_buf);
    dtpi_buf_free(&plan->tensor_buf);
    dtpi_buf_free(&plan->dim_buf);
    dtpi_buf_free(&plan->order_buf);
}

/* The numbers of one tensor: its whole shape, and the box inside it. */
static dtp_status check_box(const dtp_ckpt_tensor *t, dtp_error *err)
{
    static const int64_t zero[DTP_CKPT_MAX_DIMS];
    const int64_t *offset = t->offset ? t->offset : zero;
    const int64_t *extent = t->extent ? t->extent : t->shape;
    char shape[100], box[200];
    const uint32_t bits = dtp_dtype_bits(t->dtype);
    uint64_t count, bytes;

    if (!dtpi_box_count(t->n_dims, t->shape, &count) ||
        count / 8 > (uint64_t)INT64_MAX / bits - 1) {
        dtpi_dims_text(t->n_dims, t->shape, shape, sizeof(shape));
        return dtpi_fail(err, DTP_ERR_RANGE, "tensor %.80s: shape %s is no shape", t->name, shape);
    }
    const bool inside = dtpi_box_inside(t->n_dims, offset, extent, t->shape);
    if (inside && dtpi_box_bytes(t->n_dims, extent, t->dtype, &bytes))
        return DTP_OK;
    dtpi_dims_text(t->n_dims, t->shape, shape, sizeof(shape));
    if (inside)
        return dtpi_fail(err, DTP_ERR_INVAL,
                         "tensor %.80s: a box of %s of shape %s does not end at a byte (%u bits an "
                         "element)", t->name, dtp_dtype_name(t->dtype), shape, bits);
    dtpi_box_text(t->n_dims, offset, extent, box, sizeof(box));
    return dtpi_fail(err, DTP_ERR_RANGE, "tensor %.80s: box %s lies outside its shape %s", t->name,
                     box, shape);
}

dtp_status dtpi_plan_check(const dtp_ckpt_tensor *t, dtp_error *err)
{
    if (!t->name || strnlen(t->name, MAX_NAME + 1) > MAX_NAME || !*t->name)
        return dtpi_fail(err, DTP_ERR_INVAL, "a tensor's name must have 1 to %d bytes", MAX_NAME);
    if (!dtpi_utf8_ok(t->name, strlen(t->name)))
        return dtpi_fail(err, DTP_ERR_INVAL, "a tensor's name is not valid UTF-8");
    if (strcmp(t->name, "__metadata__") == 0)
        return dtpi_fail(err, DTP_ERR_INVAL, "no tensor can be named __metadata__ (safetensors)");
    if (dtp_dtype_bits(t->dtype) == 0)
        return dtpi_fail(err, DTP_ERR_INVAL, "tensor %.80s: unknown dtype %d", t->name,
                         (int)t->dtype);
    if (t->n_dims > DTP_CKPT_MAX_DIMS)
        return dtpi_fail(err, DTP_ERR_INVAL, "tensor %.80s: %u dimensions, at most %d", t->name,
                         t->n_dims, DTP_CKPT_MAX_DIMS);
    if (t->n_dims > 0 && !t->shape)
        return dtpi_fail(err, DTP_ERR_INVAL, "tensor %.80s has no shape", t->name);
    return check_box(t, err);
}

uint64_t dtpi_plan_bytes(const dtp_ckpt_tensor *t)
{
    uint64_t count = 0;

    dtpi_box_count(t->n_dims, t->extent ? t->extent : t->shape, &count);
    return count * dtp_dtype_bytes(t->dtype);
}

dtp_status dtpi_plan_add(dtpi_plan *plan, int32_t rank, uint32_t index, const char *name,
                         dtp_dtype dtype, uint32_t n_dims, const int64_t *shape,
                         const int64_t *offset, const int64_t *extent, dtp_error *err)
{
    const size_t at = plan->dim_buf.len / sizeof(int64_t);
    const dtpi_plan_box b = { name, (uint32_t)at, rank, index, (uint8_t)dtype, (uint8_t)n_dims };

    if (at > UINT32_MAX - 3 * DTP_CKPT_MAX_DIMS)
        return dtpi_fail(err, DTP_ERR_LIMIT, "too many boxes in one checkpoint");
    dtpi_buf_append(&plan->dim_buf, shape, n_dims * sizeof(*shape));
    dtpi_buf_append(&plan->dim_buf, offset, n_dims * sizeof(*shape));
    dtpi_buf_append(&plan->dim_buf, extent, n_dims * sizeof(*shape));
    dtpi_buf_append(&plan->box_buf, &b, sizeof(b));
    if (plan->dim_buf.failed || plan->box_buf.failed)
        return dtpi_fail_nomem(err, sizeof(b));
    plan->n_ranks = DTPI_MAX(plan->n_ranks, rank + 1);
    return DTP_OK;
}

static int compare_dims(const int64_t *a, const int64_t *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int by_name(const void *x, const void *y)
{
    const dtpi_plan_box *a = x, *b = y;
    const int c = strcmp(a->name, b->name);

    if (c)
        return c;
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
    return c ? c : by_name(x, y);
}

/* Everybody says the same about dtype and shape. */
static dtp_status check_agreement(const dtpi_plan *p, const dtpi_plan_box *boxes, size_t n,
                                  dtp_error *err)
{
    const dtpi_plan_box *a = &boxes[0];

    for (size_t i = 1; i < n; i++) {
        const dtpi_plan_box *b = &boxes[i];
        char x[80], y[80];
        if (a->dtype == b->dtype && a->n_dims == b->n_dims &&
            compare_dims(dtpi_plan_shape(p, a), dtpi_plan_shape(p, b), a->n_dims) == 0)
            continue;
        dtpi_dims_text(a->n_dims, dtpi_plan_shape(p, a), x, sizeof(x));
        dtpi_dims_text(b->n_dims, dtpi_plan_shape(p, b), y, sizeof(y));
        return dtpi_fail_rank(err, DTP_ERR_INVAL, b->rank,
                              "tensor %.60s is %s %s on rank %d and %s %s on rank %d", a->name,
                              dtp_dtype_name(a->dtype), x, a->rank, dtp_dtype_name(b->dtype), y,
                              b->rank);
    }
    return DTP_OK;
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
                                  b->name, boxes[i - 1].index, b->index);
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

/* One tensor: boxes[first .. first + n) of the sorted input become boxes[to .. ) of the output. */
static dtp_status finish_tensor(dtpi_plan *p, dtpi_plan_box *boxes, size_t n, size_t *kept_out,
                                dtp_error *err)
{
    const dtpi_plan_box first = boxes[0];
    uint64_t count = 0;

    dtp_status st = check_agreement(p, boxes, n, err);
    if (st < 0)
        return st;
    dtpi_box_count(first.n_dims, dtpi_plan_shape(p, &first), &count);
    qsort_r(boxes, n, sizeof(*boxes), by_place, p);
    st = drop_replicas(p, boxes, &n, err);
    if (st < 0)
        return st;
    if (count == 0) {           /* an empty tensor: the lowest rank keeps its name */
        boxes[0] = first;
        n = 1;
    } else {
        st = check_coverage(p, boxes, n, dtpi_plan_shape(p, &first), first.name, first.n_dims, err);
    }
    *kept_out = n;
    return st;
}

/* An empty tensor's one box is the whole. */
static void widen_empty(dtpi_plan *p, const dtpi_plan_box *b)
{
    int64_t *dims = (int64_t *)(void *)p->dim_buf.data + b->dims_at;

    for (uint32_t i = 0; i < b->n_dims; i++) {
        dims[b->n_dims + i] = 0;
        dims[2 * b->n_dims + i] = dims[i];
    }
}

/* Boxes by rank, so that each rank's layout is made without a look at the others. */
static dtp_status order_by_rank(dtpi_plan *p, dtp_error *err)
{
    const size_t n_ranks = (size_t)p->n_ranks, bytes = (n_ranks + 2 + p->n_boxes) * sizeof(uint32_t);

    uint32_t *at = (uint32_t *)(void *)dtpi_buf_reserve(&p->order_buf, bytes);
    if (!at)
        return dtpi_fail_nomem(err, bytes);
    memset(at, 0, (n_ranks + 2) * sizeof(*at));
    p->order_buf.len = bytes;
    for (size_t i = 0; i < p->n_boxes; i++)
        at[p->boxes[i].rank + 2]++;
    for (size_t i = 2; i < n_ranks + 2; i++)
        at[i] += at[i - 1];
    /* Filling moves each start to the next rank's, which is where it is wanted. */
    for (size_t i = 0; i < p->n_boxes; i++)
        at[n_ranks + 2 + at[p->boxes[i].rank + 1]++] = (uint32_t)i;
    return DTP_OK;
}

const uint32_t *dtpi_plan_of_rank(const dtpi_plan *p, int32_t rank, size_t *n_out)
{
    const uint32_t *at = (const uint32_t *)(const void *)p->order_buf.data;

    *n_out = 0;
    if (rank < 0 || rank >= p->n_ranks || !at)
        return NULL;
    *n_out = at[rank + 1] - at[rank];
    return at + p->n_ranks + 2 + at[rank];
}

dtp_status dtpi_plan_finish(dtpi_plan *p, dtp_error *err)
{
    const size_t n_in = p->box_buf.len / sizeof(dtpi_plan_box);
    size_t at = 0, to = 0;

    p->boxes = (dtpi_plan_box *)(void *)p->box_buf.data;
    p->dims = (const int64_t *)(const void *)p->dim_buf.data;
    if (n_in > 1)
        qsort(p->boxes, n_in, sizeof(*p->boxes), by_name);
    while (at < n_in) {
        size_t n = 1, kept = 0;
        while (at + n < n_in && strcmp(p->boxes[at].name, p->boxes[at + n].name) == 0)
            n++;
        const dtp_status st = finish_tensor(p, p->boxes + at, n, &kept, err);
        if (st < 0)
            return st;
        const dtpi_plan_tensor t = { to, kept };
        if (!dtpi_buf_append(&p->tensor_buf, &t, sizeof(t)))
            return dtpi_fail_nomem(err, sizeof(t));
        memmove(p->boxes + to, p->boxes + at, kept * sizeof(*p->boxes));
        if (kept == 1 && is_empty(p, &p->boxes[to]))
            widen_empty(p, &p->boxes[to]);
        to += kept;
        at += n;
    }
    p->n_boxes = to;
    p->tensors = (dtpi_plan_tensor *)(void *)p->tensor_buf.data;
    p->n_tensors = p->tensor_buf.len / sizeof(dtpi_plan_tensor);
    return order_by_rank(p, err);
}
