/* SPDX-License-Identifier: Apache-2.0 */
/* slab.c - everything behind the dimension that is cut is whole, everything before it is one row. */
#include "ckpt/slab.h"

#include "ckpt/box.h"

static void set_extent(dtpi_slab *s)
{
    if (!s->whole)
        s->extent[s->cut] = DTPI_MIN(s->rows, s->shape[s->cut] - s->offset[s->cut]);
    dtpi_box_bytes(s->n_dims, s->extent, s->dtype, &s->bytes);
}

/* Rows of so many bits that are whole bytes together. */
static uint64_t byte_rows(uint64_t bits)
{
    return bits % 8 == 0 ? 1 : bits % 4 == 0 ? 2 : bits % 2 == 0 ? 4 : 8;
}

void dtpi_slab_begin(dtpi_slab *s, const dtp_ckpt_tensor *t, uint64_t most)
{
    const uint64_t most_bits = 8 * DTPI_MIN(most, UINT64_MAX / 8);
    uint64_t inner = dtp_dtype_bits(t->dtype), bytes = 0;

    *s = (dtpi_slab){ .n_dims = t->n_dims, .dtype = t->dtype };
    if (t->n_dims)
        memcpy(s->shape, t->shape, t->n_dims * sizeof(*s->shape));
    memcpy(s->extent, s->shape, sizeof(s->extent));
    dtpi_box_bytes(t->n_dims, s->shape, t->dtype, &bytes);
    s->done = bytes == 0;
    s->whole = bytes <= most || t->n_dims == 0;
    if (s->done || s->whole) {
        set_extent(s);
        return;
    }
    for (s->cut = t->n_dims; s->cut > 1; s->cut--) {
        const uint64_t n = (uint64_t)s->shape[s->cut - 1];
        if (n > most_bits / inner || n * inner > most_bits / byte_rows(n * inner))
            break;
        inner *= n;
    }
    s->cut--;
    const uint64_t step = byte_rows(inner);
    s->rows = (int64_t)(DTPI_MAX(most_bits / inner / step, 1u) * step);
    /* A box begins and ends at bytes: not where rows begin within one. */
    s->whole = (uint64_t)s->shape[s->cut] % step != 0;
    for (uint32_t i = 0; i < s->cut && !s->whole; i++)
        s->extent[i] = 1;
    set_extent(s);
}

void dtpi_slab_next(dtpi_slab *s)
{
    if (s->whole) {
        s->done = true;
        return;
    }
    s->offset[s->cut] += s->extent[s->cut];
    for (uint32_t i = s->cut; i > 0 && s->offset[i] == s->shape[i]; i--) {
        s->offset[i] = 0;
        s->offset[i - 1]++;
    }
    s->done = s->offset[0] == s->shape[0];
    if (!s->done)
        set_extent(s);
}
