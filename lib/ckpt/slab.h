/* SPDX-License-Identifier: Apache-2.0 */
/* slab.h - cuts a tensor into boxes of bounded size that follow each other in row-major order. Pure. */
#ifndef DTPI_CKPT_SLAB_H
#define DTPI_CKPT_SLAB_H

#include <dtp/ckpt.h>

#include "base/base.h"

typedef struct dtpi_slab {
    uint32_t n_dims, cut;       /* cut: the dimension that is cut into rows */
    int64_t shape[DTP_CKPT_MAX_DIMS];
    int64_t rows;
    dtp_dtype dtype;
    bool whole, done;
    int64_t offset[DTP_CKPT_MAX_DIMS], extent[DTP_CKPT_MAX_DIMS];  /* the box at hand */
    uint64_t bytes;             /* of it */
} dtpi_slab;

/*
 * The first box, the largest; `done` at once for a tensor without elements. A box has at most `most` bytes, and
 * at least as many elements as are whole bytes. Where rows of more than that begin within bytes the tensor is
 * one box.
 */
void dtpi_slab_begin(dtpi_slab *s, const dtp_ckpt_tensor *t, uint64_t most);
/* To the next box. */
void dtpi_slab_next(dtpi_slab *s);

#endif /* DTPI_CKPT_SLAB_H */
