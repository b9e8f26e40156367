/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box.h - boxes of a tensor: [offset, offset + extent) in each dimension. Pure.
 *
 * A box is two arrays of n_dims numbers, offset then extent. With 0 dimensions it is one element.
 */
#ifndef DTPI_CKPT_BOX_H
#define DTPI_CKPT_BOX_H

#include "base/base.h"

/* Elements of an extent; false when they are negative or do not fit into 62 bits. */
bool dtpi_box_count(uint32_t n_dims, const int64_t *extent, uint64_t *count_out);

/* Bytes of elements of so many bits, where that is a whole number (eight always are). */
static inline uint64_t dtpi_bits_bytes(uint64_t count, uint64_t bits)
{
    return count / 8 * bits + count % 8 * bits / 8;
}

/* Bytes of a dense box; false when they do not fit into 63 bits or its end is not that of a byte. */
bool dtpi_box_bytes(uint32_t n_dims, const int64_t *extent, dtp_dtype dtype, uint64_t *bytes_out);

/* The box lies inside [0, shape). */
bool dtpi_box_inside(uint32_t n_dims, const int64_t *offset, const int64_t *extent,
                     const int64_t *shape);

/* The common part of two boxes; false when it is empty. */
bool dtpi_box_meet(uint32_t n_dims, const int64_t *a_offset, const int64_t *a_extent,
                   const int64_t *b_offset, const int64_t *b_extent, int64_t *offset_out,
                   int64_t *extent_out);

/* Text such as "[0, 16] + [8, 8]" (offset + extent), cut to `room`. */
void dtpi_box_text(uint32_t n_dims, const int64_t *offset, const int64_t *extent, char *text_out,
                   size_t room);
/* Text such as "[4, 16]". */
void dtpi_dims_text(uint32_t n_dims, const int64_t *dims, char *text_out, size_t room);

/*
 * Proves that `n` non-empty boxes inside `shape` cover every element exactly once, in O(n log n) for a
 * fixed number of dimensions. `get` lends box `i` (offset, then extent). `*count_out` becomes how many
 * boxes cover the element `point_out`: 1 when all is well, else the first element that is covered by
 * none (0) or several. Errors: LIMIT (more corners than fit a gigabyte), NOMEM.
 */
dtp_status dtpi_box_tiling(const dtp_allocator *a, uint32_t n_dims, const int64_t *shape, size_t n,
                           const int64_t *(*get)(void *user, size_t i), void *user,
                           int64_t *point_out, uint32_t *count_out, dtp_error *err);

/*
 * A walk over the part of a dense box that another dense box wants: runs of elements that are contiguous
 * in both, in the order of the first.
 */
typedef struct dtpi_walk {
    uint32_t n_outer;           /* dimensions that are counted */
    int64_t counts[8], at[8];
    uint64_t from_step[8], to_step[8];
    uint64_t from, to;          /* of the next run, in elements */
    uint64_t run;               /* its elements */
    bool done;
} dtpi_walk;

/*
 * Both boxes are parts of one tensor of at most 8 dimensions; `offset` and `extent` are their common
 * part. The walk is done at once where that is empty.
 */
void dtpi_walk_begin(dtpi_walk *w, uint32_t n_dims, const int64_t *from_offset,
                     const int64_t *from_extent, const int64_t *to_offset, const int64_t *to_extent,
                     const int64_t *offset, const int64_t *extent);
/* To the next run. */
void dtpi_walk_next(dtpi_walk *w);
/* Of a walk that has just begun: to the first run that ends behind element `from` of the first box. */
void dtpi_walk_seek(dtpi_walk *w, uint64_t from);

#endif /* DTPI_CKPT_BOX_H */
