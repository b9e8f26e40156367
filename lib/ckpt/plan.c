/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - gathers the ranks' declarations: a name and a shape are kept once, however many ranks have a box
 * of it; a box is 20 bytes and its numbers.
 */
#include "ckpt/plan.h"

#include <stdio.h>

#include "base/sum.h"
#include "base/text.h"
#include "ckpt/box.h"

enum { MAX_NAME = 1023, FIRST_SLOTS = 64 };

void dtpi_plan_init(dtpi_plan *plan, const dtp_allocator *a)
{
    *plan = (dtpi_plan){ .a = a };
    plan->box_buf = dtpi_buf_init(a);
    plan->tensor_buf = dtpi_buf_init(a);
    plan->dim_buf = dtpi_buf_init(a);
    plan->shape_buf = dtpi_buf_init(a);
    plan->text = dtpi_buf_init(a);
    plan->slot_buf = dtpi_buf_init(a);
    /* So that the numbers of scalars can be pointed at; a failure shows at the end. */
    dtpi_buf_append(&plan->dim_buf, &(int64_t){ 0 }, sizeof(int64_t));
    dtpi_buf_append(&plan->shape_buf, &(int64_t){ 0 }, sizeof(int64_t));
}

void dtpi_plan_free(dtpi_plan *plan)
{
    dtpi_buf_free(&plan->box_buf);
    dtpi_buf_free(&plan->tensor_buf);
    dtpi_buf_free(&plan->dim_buf);
    dtpi_buf_free(&plan->shape_buf);
    dtpi_buf_free(&plan->text);
    dtpi_buf_free(&plan->slot_buf);
    dtpi_free(plan->a, plan->order, plan->n_order * sizeof(*plan->order));
    plan->order = NULL;
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
    uint64_t bytes = 0;

    dtpi_box_bytes(t->n_dims, t->extent ? t->extent : t->shape, t->dtype, &bytes);
    return bytes;
}

/* ---- tensors by name ---- */

static dtpi_plan_tensor *tensor_at(const dtpi_plan *p, size_t i)
{
    return (dtpi_plan_tensor *)(void *)p->tensor_buf.data + i;
}

static bool has_name(const dtpi_plan *p, size_t i, const char *name, size_t bytes)
{
    const dtpi_plan_tensor *t = tensor_at(p, i);

    return t->name_bytes == bytes && memcmp(p->text.data + t->name_at, name, bytes) == 0;
}

/* The slot of a name, or the free one where it belongs; a power of two of them, half of them free. */
static uint32_t *find_slot(const dtpi_plan *p, const char *name, size_t bytes)
{
    uint32_t *slots = (uint32_t *)(void *)p->slot_buf.data;
    const size_t mask = p->slot_buf.len / sizeof(*slots) - 1;
    size_t i = dtpi_sum64(name, bytes) & mask;

    while (slots[i] && !has_name(p, slots[i] - 1, name, bytes))
        i = (i + 1) & mask;
    return &slots[i];
}

static bool grow_slots(dtpi_plan *p)
{
    const size_t old = p->slot_buf.len / sizeof(uint32_t);
    const size_t n = old ? 2 * old : FIRST_SLOTS, bytes = n * sizeof(uint32_t);

    dtpi_buf_reset(&p->slot_buf);
    if (!dtpi_buf_reserve(&p->slot_buf, bytes))
        return false;
    p->slot_buf.len = bytes;
    memset(p->slot_buf.data, 0, bytes);
    for (size_t i = 0; i < p->tensor_buf.len / sizeof(dtpi_plan_tensor); i++) {
        const dtpi_plan_tensor *t = tensor_at(p, i);
        *find_slot(p, (const char *)p->text.data + t->name_at, t->name_bytes) = (uint32_t)i + 1;
    }
    return true;
}

static dtp_status add_tensor(dtpi_plan *p, dtpi_plan_tensor *t, const char *name,
                             const int64_t *shape, uint32_t *i_out, dtp_error *err)
{
    const size_t i = p->tensor_buf.len / sizeof(*t);

    if (2 * (i + 1) > p->slot_buf.len / sizeof(uint32_t) && !grow_slots(p))
        return dtpi_fail_nomem(err, 0);
    t->name_at = (uint32_t)p->text.len;
    t->shape_at = (uint32_t)(p->shape_buf.len / sizeof(*shape));
    if (p->text.len > UINT32_MAX - MAX_NAME - 1)
        return dtpi_fail(err, DTP_ERR_LIMIT, "the names of one checkpoint are too long");
    if (!dtpi_buf_append(&p->text, name, t->name_bytes) || !dtpi_buf_append(&p->text, "", 1) ||
        !dtpi_buf_append(&p->shape_buf, shape, t->n_dims * sizeof(*shape)) ||
        !dtpi_buf_append(&p->tensor_buf, t, sizeof(*t)))
        return dtpi_fail_nomem(err, t->name_bytes);
    *find_slot(p, name, t->name_bytes) = (uint32_t)i + 1;
    *i_out = (uint32_t)i;
    return DTP_OK;
}

/* Everybody says the same about dtype and shape. */
static dtp_status check_agreement(const dtpi_plan *p, const dtpi_plan_tensor *a, int32_t rank,
                                  dtp_dtype dtype, uint32_t n_dims, const int64_t *shape,
                                  dtp_error *err)
{
    const int64_t *own = (const int64_t *)(const void *)p->shape_buf.data + a->shape_at;
    char x[80], y[80];

    if (a->dtype == dtype && a->n_dims == n_dims &&
        (n_dims == 0 || memcmp(own, shape, n_dims * sizeof(*shape)) == 0))
        return DTP_OK;
    dtpi_dims_text(a->n_dims, own, x, sizeof(x));
    dtpi_dims_text(n_dims, shape, y, sizeof(y));
    return dtpi_fail_rank(err, DTP_ERR_INVAL, rank,
                          "tensor %.60s is %s %s on rank %d and %s %s on rank %d",
                          (const char *)p->text.data + a->name_at, dtp_dtype_name(a->dtype), x,
                          a->rank, dtp_dtype_name(dtype), y, rank);
}

/* ---- boxes ---- */

dtp_status dtpi_plan_reserve(dtpi_plan *plan, size_t n_boxes, size_t n_numbers, dtp_error *err)
{
    size_t boxes, numbers;

    if (!dtpi_mul(n_boxes, sizeof(dtpi_plan_box), &boxes) ||
        !dtpi_mul(n_numbers, sizeof(int64_t), &numbers) ||
        !dtpi_buf_reserve(&plan->box_buf, boxes) || !dtpi_buf_reserve(&plan->dim_buf, numbers))
        return dtpi_fail_nomem(err, 0);
    return DTP_OK;
}

/* The tensor of a name; ranks often name theirs in the same order, so that the next is a good guess. */
static dtp_status find_tensor(dtpi_plan *p, int32_t rank, const char *name, dtp_dtype dtype,
                              uint32_t n_dims, const int64_t *shape, uint32_t *i_out,
                              dtp_error *err)
{
    const size_t n = p->box_buf.len / sizeof(dtpi_plan_box), bytes = strlen(name);
    const dtpi_plan_box *last = n ? (dtpi_plan_box *)(void *)p->box_buf.data + n - 1 : NULL;
    const size_t n_tensors = p->tensor_buf.len / sizeof(dtpi_plan_tensor);
    size_t guess = last && last->rank == rank ? last->tensor + 1 : 0;
    dtpi_plan_tensor t = { .name_bytes = (uint32_t)bytes, .rank = rank, .dtype = (uint8_t)dtype,
                           .n_dims = (uint8_t)n_dims };

    if (guess >= n_tensors || !has_name(p, guess, name, bytes)) {
        const uint32_t slot = n_tensors ? *find_slot(p, name, bytes) : 0;
        if (!slot)
            return add_tensor(p, &t, name, shape, i_out, err);
        guess = slot - 1;
    }
    *i_out = (uint32_t)guess;
    return check_agreement(p, tensor_at(p, guess), rank, dtype, n_dims, shape, err);
}

dtp_status dtpi_plan_add(dtpi_plan *plan, int32_t rank, uint32_t index, const char *name,
                         dtp_dtype dtype, uint32_t n_dims, const int64_t *shape,
                         const int64_t *offset, const int64_t *extent, dtp_error *err)
{
    const size_t at = plan->dim_buf.len / sizeof(int64_t);
    dtpi_plan_box b = { .rank = rank, .index = index, .dims_at = (uint32_t)at,
                        .dtype = (uint8_t)dtype, .n_dims = (uint8_t)n_dims };

    if (at > UINT32_MAX - 2 * DTP_CKPT_MAX_DIMS)
        return dtpi_fail(err, DTP_ERR_LIMIT, "too many boxes in one checkpoint");
    const dtp_status st = find_tensor(plan, rank, name, dtype, n_dims, shape, &b.tensor, err);
    if (st < 0)
        return st;
    if (!dtpi_buf_append(&plan->dim_buf, offset, n_dims * sizeof(*shape)) ||
        !dtpi_buf_append(&plan->dim_buf, extent, n_dims * sizeof(*shape)) ||
        !dtpi_buf_append(&plan->box_buf, &b, sizeof(b)))
        return dtpi_fail_nomem(err, sizeof(b));
    plan->n_ranks = DTPI_MAX(plan->n_ranks, rank + 1);
    return DTP_OK;
}
