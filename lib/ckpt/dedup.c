/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dedup.c - equal contents. A sum of a few samples puts candidates side by side; then all bytes are
 * compared, which ends early for those that differ and costs less than writing for those that do not.
 */
#include "ckpt/dedup.h"

#include <stdlib.h>

#include "base/sum.h"

enum {
    SAMPLES = 8,
    SAMPLE_BYTES = 64,
    MAX_TRIED = 8               /* different contents with the same samples */
};

typedef struct candidate {
    uint64_t key;
    uint32_t i;
} candidate;

/* Of dtype, length, and samples from the first to the last byte. */
static uint64_t key_of(const dtpi_content *c)
{
    uint8_t sample[SAMPLES * SAMPLE_BYTES + 16] = { 0 };
    const uint64_t step = (c->bytes - SAMPLE_BYTES) / (SAMPLES - 1);

    for (uint64_t i = 0; i < SAMPLES; i++)
        memcpy(sample + i * SAMPLE_BYTES, (const uint8_t *)c->data + i * step, SAMPLE_BYTES);
    memcpy(sample + SAMPLES * SAMPLE_BYTES, &c->bytes, sizeof(c->bytes));
    sample[SAMPLES * SAMPLE_BYTES + 8] = c->dtype;
    return dtpi_sum64(sample, sizeof(sample));
}

static int by_key(const void *x, const void *y)
{
    const candidate *a = x, *b = y;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->i < b->i ? -1 : a->i > b->i;
}

static bool is_equal(const dtpi_content *a, const dtpi_content *b)
{
    return a->dtype == b->dtype && a->bytes == b->bytes &&
           (a->data == b->data || memcmp(a->data, b->data, a->bytes) == 0);
}

/* Candidates of one key, in ascending order of their index. */
static void settle(const dtpi_content *contents, const candidate *c, size_t n, uint32_t *same_out)
{
    uint32_t tried[MAX_TRIED];
    size_t n_tried = 0;

    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < n_tried && !is_equal(&contents[tried[k]], &contents[c[i].i]))
            k++;
        if (k < n_tried)
            same_out[c[i].i] = tried[k];
        else if (n_tried < MAX_TRIED)
            tried[n_tried++] = c[i].i;
    }
}

dtp_status dtpi_dedup_find(const dtp_allocator *a, const dtpi_content *contents, size_t n,
                           uint32_t *same_out, dtp_error *err)
{
    size_t n_found = 0;

    for (size_t i = 0; i < n; i++)
        same_out[i] = (uint32_t)i;
    if (n < 2)
        return DTP_OK;
    candidate *found = dtpi_alloc_array(a, n, sizeof(*found));
    if (!found)
        return dtpi_fail_nomem(err, n * sizeof(*found));
    for (size_t i = 0; i < n; i++)
        if (contents[i].bytes >= DTPI_DEDUP_MIN)
            found[n_found++] = (candidate){ key_of(&contents[i]), (uint32_t)i };
    if (n_found > 1)
        qsort(found, n_found, sizeof(*found), by_key);
    for (size_t i = 0, k; i < n_found; i = k) {
        for (k = i + 1; k < n_found && found[k].key == found[i].key; k++)
            ;
        settle(contents, found + i, k - i, same_out);
    }
    dtpi_free(a, found, n * sizeof(*found));
    return DTP_OK;
}
