/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huf_encode.c - writes a zstd frame of Huffman-coded literals.
 *
 * Codes are made from every eighth part of the bytes; every value between the smallest and the largest
 * gets one, so that what the sample did not meet can be written too.
 */
#include "codec/huf.h"

#include "base/cpu.h"

#include <stdlib.h>

enum {
    RUN = 64,                   /* bytes counted at a time */
    STRIDE = 8,                 /* of that many runs one is counted */
    MAX_VALUE = 128,            /* weights are written as they are, not compressed */
    HEAD_BYTES = 9,             /* of the frame */
    BLOCK_HEAD_BYTES = 3,
    LITERALS_HEAD_BYTES = 5,
    JUMP_BYTES = 6,
    STREAMS = 4
};

/* Codes are taken again where the bytes cost as much as those they were made for, but for this part. */
#define SAME_COST 0.005f

/* ---- codes ---- */

/* A node of the tree: leaves first, in order of their count. */
struct node {
    uint32_t count;
    uint16_t parent;
    uint8_t value;
};

static int by_count(const void *a_, const void *b_)
{
    const struct node *a = a_, *b = b_;

    return a->count != b->count ? (a->count < b->count ? -1 : 1) : (int)a->value - (int)b->value;
}

/* Lengths of a tree over n >= 2 leaves, in `bits` by value; the longest is returned. */
static unsigned tree_bits(struct node *nodes, unsigned n, uint8_t *bits)
{
    unsigned leaf = 0, inner = n, depth[512], longest = 0;

    for (unsigned next = n; next < 2 * n - 1; next++) {
        uint32_t sum = 0;
        for (int i = 0; i < 2; i++) {
            const bool is_leaf = leaf < n && (inner >= next || nodes[leaf].count <= nodes[inner].count);
            struct node *p = &nodes[is_leaf ? leaf++ : inner++];
            p->parent = (uint16_t)next;
            sum += p->count;
        }
        nodes[next].count = sum;
    }
    depth[2 * n - 2] = 0;
    for (unsigned i = 2 * n - 2; i-- > 0;) {
        depth[i] = depth[nodes[i].parent] + 1;
        if (i >= n)
            continue;
        bits[nodes[i].value] = (uint8_t)DTPI_MIN(depth[i], 255);
        longest = depth[i] > longest ? depth[i] : longest;
    }
    return longest;
}

/* Code lengths of at most 11 bits: where they come out longer, counts are flattened. */
static unsigned make_bits(uint32_t *count, unsigned first, unsigned last, uint8_t *bits)
{
    struct node nodes[512];
    unsigned longest;

    do {
        unsigned n = 0;
        for (unsigned v = first; v <= last; v++) {
            nodes[n++] = (struct node){ .count = count[v], .value = (uint8_t)v };
            count[v] = count[v] / 2 + 1;
        }
        qsort(nodes, n, sizeof(*nodes), by_count);
        longest = tree_bits(nodes, n, bits);
    } while (longest > DTPI_HUF_BITS);
    return longest;
}

/* As RFC 8878, 4.2.1: values in order, those with the longest codes first. */
static void make_codes(dtpi_huf_codes *c)
{
    uint32_t at = 0;

    for (unsigned bits = c->max_bits; bits > 0; bits--)
        for (unsigned v = c->first; v <= c->last; v++)
            if (c->bits[v] == bits) {
                c->code[v] = (uint16_t)(at >> (c->max_bits - bits));
                at += 1u << (c->max_bits - bits);
            }
}

static void count_some(const uint8_t *in, size_t n, uint32_t *count)
{
    uint32_t part[4][256] = { 0 };
    const size_t step = n >= STRIDE * DTPI_HUF_MIN ? (size_t)RUN * STRIDE : RUN;

    for (size_t at = 0; at + RUN <= n; at += step)
        for (size_t i = 0; i < RUN; i += 4)
            for (size_t k = 0; k < 4; k++)
                part[k][in[at + i + k]]++;
    for (int v = 0; v < 256; v++)
        count[v] = 1 + part[0][v] + part[1][v] + part[2][v] + part[3][v];
}

/* Bits a byte, counted over the values that have codes. */
static float cost_of(const dtpi_huf_codes *c, const uint32_t *count)
{
    uint64_t bits = 0, n = 0;

    for (unsigned v = c->first; v <= c->last; v++) {
        bits += (uint64_t)count[v] * c->bits[v];
        n += count[v];
    }
    return (float)bits / (float)n;
}

/* False where libzstd is to do it. */
static bool find_codes(const dtpi_huf_kernels *k, const uint8_t *in, size_t n, dtpi_huf_codes *c)
{
    uint32_t count[256], flat[256];
    uint8_t min, max;

    k->range(in, n, &min, &max);
    if (min == max || max > MAX_VALUE)
        return false;
    count_some(in, n, count);
    if (c->max_bits && min >= c->first && max <= c->last) {
        const float cost = cost_of(c, count);
        if (cost < c->cost * (1 + SAME_COST) && cost > c->cost * (1 - SAME_COST))
            return true;
    }
    *c = (dtpi_huf_codes){ .first = min, .last = max };
    memcpy(flat, count, sizeof(flat));
    c->max_bits = make_bits(flat, min, max, c->bits);
    make_codes(c);
    c->cost = cost_of(c, count);
    return true;
}

/* ---- the frame ---- */

static void put_le(uint8_t *out, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(v >> 8 * i);
}

/* Weights of the values below the last one, half a byte each. Returns the bytes written. */
static size_t put_weights(const dtpi_huf_codes *c, uint8_t *out)
{
    const size_t n = c->last;

    out[0] = (uint8_t)(127 + n);
    for (size_t v = 0; v < n; v += 2) {
        const unsigned a = c->bits[v] ? c->max_bits + 1 - c->bits[v] : 0;
        const unsigned b = v + 1 < n && c->bits[v + 1] ? c->max_bits + 1 - c->bits[v + 1] : 0;
        out[1 + v / 2] = (uint8_t)(a << 4 | b);
    }
    return 1 + (n + 1) / 2;
}

/* Four streams behind their sizes; 0 where there is no room. */
static size_t put_streams(const dtpi_huf_kernels *k, const dtpi_huf_codes *c, const uint8_t *in, size_t n,
                          uint8_t *out, size_t room)
{
    const size_t part = (n + STREAMS - 1) / STREAMS;
    size_t at = JUMP_BYTES;

    if (room < JUMP_BYTES)
        return 0;
    for (size_t i = 0; i < STREAMS; i++) {
        const size_t from = i * part;
        const size_t bytes = k->stream(c, in + from, DTPI_MIN(part, n - from), out + at, room - at);
        if (bytes == 0 || bytes > UINT16_MAX)
            return 0;
        if (i + 1 < STREAMS)
            put_le(out + 2 * i, bytes, 2);
        at += bytes;
    }
    return at;
}

size_t dtpi_huf_encode(const dtpi_huf_kernels *k, dtpi_huf_codes *codes, const uint8_t *in, size_t n,
                       uint8_t *out, size_t room)
{
    const size_t head = HEAD_BYTES + BLOCK_HEAD_BYTES + LITERALS_HEAD_BYTES;

    if (n < DTPI_HUF_MIN || n > DTPI_HUF_MAX || room < head + 1 + MAX_VALUE / 2 + 1)
        return 0;
    if (!find_codes(k, in, n, codes))
        return 0;
    const size_t weights = put_weights(codes, out + head);
    const size_t streams =
        put_streams(k, codes, in, n, out + head + weights, room - head - weights - 1);
    if (streams == 0 || weights + streams >= n)
        return 0;
    /* Magic; one segment with a content size of four bytes, no checksum. */
    put_le(out, 0xfd2fb528, 4);
    out[4] = 0xa0;
    put_le(out + 5, n, 4);
    /* The last block, compressed: literals in four streams with sizes of 18 bits, then no sequences. */
    put_le(out + 9, 1 | 2 << 1 | (uint64_t)(LITERALS_HEAD_BYTES + weights + streams + 1) << 3, 3);
    put_le(out + 12, 2 | 3 << 2 | (uint64_t)n << 4 | (uint64_t)(weights + streams) << 22, 5);
    out[head + weights + streams] = 0;
    return head + weights + streams + 1;
}

/* ---- any processor ---- */

/* Symbols go in from the last to the first; the reader starts at the end, below the highest one. */
static size_t stream_base(const dtpi_huf_codes *c, const uint8_t *in, size_t n, uint8_t *out, size_t room)
{
    uint64_t bits = 0;
    unsigned n_bits = 0;
    size_t at = 0, i = n;

    while (i > 0) {
        for (int k = 0; k < 4 && i > 0; k++) {
            const uint8_t v = in[--i];
            bits |= (uint64_t)c->code[v] << n_bits;
            n_bits += c->bits[v];
        }
        if (at + 8 > room)
            return 0;
        memcpy(out + at, &bits, 8);
        at += n_bits / 8;
        bits >>= n_bits & ~7u;
        n_bits &= 7;
    }
    if (at + 1 > room)
        return 0;
    out[at] = (uint8_t)(bits | 1u << n_bits);
    return at + 1;
}

static void range_base(const uint8_t *in, size_t n, uint8_t *min_out, uint8_t *max_out)
{
    uint8_t min = 255, max = 0;

    for (size_t i = 0; i < n; i++) {
        min = in[i] < min ? in[i] : min;
        max = in[i] > max ? in[i] : max;
    }
    *min_out = min;
    *max_out = max;
}

const dtpi_huf_kernels dtpi_huf_base = { .name = "base", .stream = stream_base, .range = range_base };

static bool runs_here(const dtpi_huf_kernels *k)
{
#ifdef __x86_64__
    if (k == &dtpi_huf_avx512)
        return dtpi_cpu_has(DTPI_CPU_AVX512 | DTPI_CPU_AVX512_VBMI | DTPI_CPU_BMI2);
#endif
    return k == &dtpi_huf_base;
}

const dtpi_huf_kernels *dtpi_huf_find(const char *name)
{
#ifdef __x86_64__
    if (strcmp(name, dtpi_huf_avx512.name) == 0)
        return runs_here(&dtpi_huf_avx512) ? &dtpi_huf_avx512 : NULL;
#endif
    return strcmp(name, dtpi_huf_base.name) == 0 ? &dtpi_huf_base : NULL;
}

const dtpi_huf_kernels *dtpi_huf_best(void)
{
#ifdef __x86_64__
    if (runs_here(&dtpi_huf_avx512))
        return &dtpi_huf_avx512;
#endif
    return &dtpi_huf_base;
}
