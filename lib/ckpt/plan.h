/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - from what all ranks declare to which rank writes which box. Pure and deterministic: every
 * rank computes the same plan, or the same refusal, from the same declarations.
 */
#ifndef DTPI_CKPT_PLAN_H
#define DTPI_CKPT_PLAN_H

#include <dtp/ckpt.h>

#include "base/buf.h"

/* A box that a rank has. Its numbers lie in the plan's `dims`: offset, extent. */
typedef struct dtpi_plan_box {
    uint32_t tensor;            /* after finish: in plan.tensors */
    int32_t rank;
    uint32_t index;             /* in the rank's list */
    uint32_t dims_at;
    uint8_t dtype;
    uint8_t n_dims;
} dtpi_plan_box;

/* A tensor: after finish its boxes are boxes[first .. first + n). */
typedef struct dtpi_plan_tensor {
    size_t first, n;
    uint32_t name_at, name_bytes;       /* in `text`, terminated */
    uint32_t shape_at;                  /* in `shape_buf` */
    int32_t rank;                       /* that declared it first */
    uint8_t dtype;
    uint8_t n_dims;
} dtpi_plan_tensor;

typedef struct dtpi_plan {
    const dtp_allocator *a;
    dtpi_buf box_buf, tensor_buf, dim_buf, shape_buf;
    dtpi_buf text;              /* each name once */
    dtpi_buf slot_buf;          /* uint32_t: tensors by the hash of their names, 1 + index */
    uint32_t *order;            /* after finish, boxes by rank, behind where each rank's begin */
    size_t n_order;
    dtpi_plan_box *boxes;       /* after finish: by name, then place; each written once */
    dtpi_plan_tensor *tensors;
    const int64_t *dims;
    size_t n_boxes, n_tensors;
    int32_t n_ranks;            /* 1 + the highest that declared */
} dtpi_plan;

void dtpi_plan_init(dtpi_plan *plan, const dtp_allocator *a);
void dtpi_plan_free(dtpi_plan *plan);

/* A tensor by itself: name, dtype, dimensions, box. Errors: INVAL, RANGE (names tensor and box). */
dtp_status dtpi_plan_check(const dtp_ckpt_tensor *t, dtp_error *err);

/* Bytes of the box of a tensor that dtpi_plan_check likes. */
uint64_t dtpi_plan_bytes(const dtp_ckpt_tensor *t);

/* Room for so many boxes and the numbers of their offsets and extents. Errors: NOMEM. */
dtp_status dtpi_plan_reserve(dtpi_plan *plan, size_t n_boxes, size_t n_numbers, dtp_error *err);

/* Adds what rank `rank` declares. Errors: INVAL (another dtype or shape than before), LIMIT, NOMEM. */
dtp_status dtpi_plan_add(dtpi_plan *plan, int32_t rank, uint32_t index, const char *name,
                         dtp_dtype dtype, uint32_t n_dims, const int64_t *shape,
                         const int64_t *offset, const int64_t *extent, dtp_error *err);

/*
 * Sorts, drops replicas (the lowest rank writes) and empty boxes, and proves coverage. Errors: INVAL
 * (a box twice by one rank), CORRUPT (hole or overlap), LIMIT, NOMEM.
 */
dtp_status dtpi_plan_finish(dtpi_plan *plan, dtp_error *err);

/* The boxes that a rank writes, as indexes in `boxes`, ascending; after finish. */
const uint32_t *dtpi_plan_of_rank(const dtpi_plan *p, int32_t rank, size_t *n_out);

static inline const int64_t *dtpi_plan_shape(const dtpi_plan *p, const dtpi_plan_box *b)
{
    return (const int64_t *)(const void *)p->shape_buf.data + p->tensors[b->tensor].shape_at;
}
static inline const char *dtpi_plan_name(const dtpi_plan *p, const dtpi_plan_box *b)
{
    return (const char *)p->text.data + p->tensors[b->tensor].name_at;
}
/* The offset; the extent follows it. */
static inline const int64_t *dtpi_plan_offset(const dtpi_plan *p, const dtpi_plan_box *b)
{
    return p->dims + b->dims_at;
}
static inline const int64_t *dtpi_plan_extent(const dtpi_plan *p, const dtpi_plan_box *b)
{
    return p->dims + b->dims_at + b->n_dims;
}

/* ---- the file of one rank ---- */

typedef struct dtpi_piece {
    size_t box;                 /* in plan.boxes */
    uint32_t nth;               /* of the rank's boxes in the plan's order: its place in the part */
    uint32_t key_at, key_bytes; /* its name in the file, in `keys` */
    uint64_t bytes;             /* plain */
} dtpi_piece;

typedef struct dtpi_layout {
    dtpi_buf piece_buf, keys;
    size_t n;
    uint64_t bytes;
} dtpi_layout;

/* Which boxes rank `rank` writes, in the order of its file: wide types first, then by key. */
dtp_status dtpi_layout_make(const dtpi_plan *plan, int32_t rank, dtpi_layout *out, dtp_error *err);
void dtpi_layout_free(dtpi_layout *l);
static inline const dtpi_piece *dtpi_layout_get(const dtpi_layout *l, size_t i)
{
    return (const dtpi_piece *)(const void *)l->piece_buf.data + i;
}
static inline const char *dtpi_layout_key(const dtpi_layout *l, const dtpi_piece *p)
{
    return (const char *)l->keys.data + p->key_at;
}

#endif /* DTPI_CKPT_PLAN_H */
