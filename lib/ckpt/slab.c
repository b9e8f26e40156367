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

void dtpi_slab_begin(dtpi_slab *s, const dtp_ckpt_tensor *t, uint64_t most)
{
    uint64_t inner = dtp_dtype_bytes(t->dtype), bytes = 0;

    *s = (dtpi_slab){ .n_dims = t->n_dims, .dtype = t->dtype };
    if (t->n_dims)
        memcpy(s->shape, t->shape, t->n_dims * sizeof(*s->shape));
    memcpy(s->extent, s->shape, sizeof(s->extent));
    dtpi_box_bytes(t->n_dims, s->shape, t->dtype, &bytes);
    s->done = bytes == 0;
    s->whole = bytes <= most || inner == 0 || t->n_dims == 0;
    if (s->done || s->whole) {
        set_extent(s);
        return;
    }
    for (s->cut = t->n_dims; s->cut > 1 && inner * (uint64_t)s->shape[s->cut - 1] <= most;)
        inner *= (uint64_t)s->shape[--s->cut];
    s->cut--;
    s->rows = (int64_t)DTPI_MAX(most / inner, 1u);
    for (uint32_t i = 0; i < s->cut; i++)
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
