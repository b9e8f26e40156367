/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delta.c - which steps a step may refer to and which must therefore stay. A lineage is complete: it names
 * every step whose files are read, so one look at a manifest says all, and nothing is followed from step to step.
 */
#include "ckpt/delta.h"

void dtpi_lineage_after(const dtpi_manifest *parent, dtpi_lineage *out)
{
    out->n = 0;
    out->steps[out->n++] = parent->step;
    for (uint32_t i = 0; i < parent->n_lineage; i++) {
        const uint64_t step = parent->lineage[i];
        uint32_t at = out->n;
        if (out->n == DTPI_LINEAGE_MAX) {
            if (step < out->steps[DTPI_LINEAGE_MAX - 1])
                continue;
            at--;
        } else {
            out->n++;
        }
        for (; at > 1 && out->steps[at - 1] < step; at--)
            out->steps[at] = out->steps[at - 1];
        out->steps[at] = step;
    }
}

static uint32_t bit_of(const dtpi_lineage *l, uint64_t step)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->steps[i] == step)
            return 1u << i;
    return 0;
}

uint32_t dtpi_lineage_mask(const dtpi_lineage *l, const dtpi_manifest *m, const dtpi_mf_box *b)
{
    uint32_t mask = 0;

    for (;;) {
        const uint32_t bit = bit_of(l, dtpi_mf_file_at(m, b->file)->step);
        if (bit == 0)
            return 0;
        mask |= bit;
        if (b->base == DTPI_NO_BASE)
            return mask;
        b = dtpi_mf_base_at(m, b->base);
    }
}

uint32_t dtpi_chain_length(const dtpi_manifest *m, const dtpi_mf_box *b)
{
    uint32_t n = 0;

    for (; b->base != DTPI_NO_BASE; n++)
        b = dtpi_mf_base_at(m, b->base);
    return n;
}

static int compare_dims(const int64_t *a, const int64_t *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

const dtpi_mf_box *dtpi_mf_find_box(const dtpi_manifest *m, const dtpi_mf_tensor *t,
                                    const int64_t *offset, const int64_t *extent)
{
    uint32_t low = 0, high = t->n_boxes;

    /* Ours are sorted by offset; in a manifest of others a box may be missed, which costs room alone. */
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        const dtpi_mf_box *b = dtpi_mf_box_at(m, t->first_box + mid);
        const int64_t *dims = dtpi_mf_dims(m, b->dims_at);
        int c = compare_dims(dims, offset, t->n_dims);
        if (c == 0)
            c = compare_dims(dims + t->n_dims, extent, t->n_dims);
        if (c == 0)
            return b;
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

void dtpi_xor(uint8_t *restrict to, const uint8_t *restrict with, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] ^= with[i];
}
