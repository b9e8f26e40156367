/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_state.c - what ranks save and load. Numbers repeat with a tile of a prime length, and each row of
 * each tensor begins at another place of it, so that a piece in the wrong place does not fit and no two
 * boxes are equal.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "ckpt.h"

enum { TILE = 4194301, ALIGN = 4096 };

static uint64_t align_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

uint8_t *ckpt_make_tile(const ckpt_type *t, uint64_t seed)
{
    const size_t bytes = align_up((size_t)TILE * dtp_dtype_bytes(t->dtype), 8);
    uint8_t *tile = malloc(bytes);

    if (tile)
        ckpt_fill(t, tile, bytes, seed);
    return tile;
}

static uint64_t box_stride(const ckpt_state *s)
{
    const uint64_t bytes = (uint64_t)s->extent[0] * (uint64_t)s->extent[1] * s->width;

    return align_up(bytes, ALIGN);
}

static void cut(ckpt_state *s, int dim, int rank, int n_ranks)
{
    const int64_t whole = s->shape[dim];

    s->offset[dim] = whole * rank / n_ranks;
    s->extent[dim] = whole * (rank + 1) / n_ranks - s->offset[dim];
}

bool ckpt_state_make(ckpt_state *s, const ckpt_options *o, const uint8_t *tile, int rank, int n_ranks,
                     bool by_columns)
{
    *s = (ckpt_state){ .tile = tile, .width = dtp_dtype_bytes(o->type->dtype) };
    s->shape[1] = CKPT_COLUMNS;
    s->shape[0] = (int64_t)(o->tensor_bytes / (CKPT_COLUMNS * s->width));
    s->extent[0] = s->shape[0];
    s->extent[1] = s->shape[1];
    cut(s, by_columns, rank, n_ranks);
    s->n_tensors = o->bytes / o->tensor_bytes;
    s->bytes = s->n_tensors * box_stride(s);
    s->data = aligned_alloc(ALIGN, s->bytes + ALIGN);
    s->tensors = calloc(s->n_tensors, sizeof(*s->tensors));
    s->names = calloc(s->n_tensors, sizeof(*s->names));
    if (!s->data || !s->tensors || !s->names) {
        fprintf(stderr, "dtp-bench ckpt: rank %d: no memory for %llu bytes\n", rank,
                (unsigned long long)s->bytes);
        return false;
    }
    for (size_t i = 0; i < s->n_tensors; i++) {
        snprintf(s->names[i], sizeof(s->names[i]), "layer.%zu.weight", i);
        s->tensors[i] = (dtp_ckpt_tensor){ sizeof(s->tensors[i]), s->names[i], o->type->dtype, 2, s->shape,
                                           s->offset, s->extent, s->data + i * box_stride(s) };
    }
    return true;
}

/* Calls fn for each piece of a row that lies in one piece in the tile, too; returns how many it counts. */
typedef uint64_t (*piece_fn)(uint8_t *data, const uint8_t *expected, size_t bytes);

static uint64_t each_piece(const ckpt_state *s, piece_fn fn)
{
    uint64_t count = 0;

    for (size_t t = 0; t < s->n_tensors; t++)
        for (int64_t row = 0; row < s->extent[0]; row++) {
            const uint64_t nth = (t * (uint64_t)s->shape[0] + (uint64_t)(s->offset[0] + row)) * CKPT_COLUMNS +
                                 (uint64_t)s->offset[1] + t * 977;
            const size_t bytes = (size_t)s->extent[1] * s->width, at = nth % TILE * s->width;
            const size_t first = DTPI_MIN(bytes, TILE * s->width - at);
            uint8_t *to = (uint8_t *)s->tensors[t].data + (size_t)row * bytes;
            count += fn(to, s->tile + at, first);
            if (first < bytes)
                count += fn(to + first, s->tile, bytes - first);
        }
    return count;
}

static uint64_t put(uint8_t *data, const uint8_t *expected, size_t bytes)
{
    memcpy(data, expected, bytes);
    return 0;
}

static uint64_t differs(uint8_t *data, const uint8_t *expected, size_t bytes)
{
    return memcmp(data, expected, bytes) != 0;
}

void ckpt_state_fill(ckpt_state *s)
{
    memset(s->data, 0, s->bytes);
    each_piece(s, put);
}

uint64_t ckpt_state_wrong(const ckpt_state *s)
{
    return each_piece(s, differs);
}

void ckpt_state_free(ckpt_state *s)
{
    free(s->data);
    free(s->tensors);
    free(s->names);
    *s = (ckpt_state){ 0 };
}
