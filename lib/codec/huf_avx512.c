/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huf_avx512.c - bit streams on x86 processors with AVX-512 VBMI.
 *
 * 64 symbols at a time: lengths and codes come out of registers by permutation, neighbours are joined to
 * pairs and pairs to fours, and 16 fours of at most 44 bits are appended one after the other.
 */
#include <immintrin.h>

#include "codec/huf.h"

#define KERNEL __attribute__((target("bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")))

enum { STEP = 64, VALUES = 128 };

/* By value, as bytes: 128 values in two registers. */
struct tables {
    __m512i bits[2], low[2], high[2];
};

/* Bits to append, from the end of the symbols to their beginning. */
struct writer {
    uint64_t bits;
    uint64_t n_bits;            /* below 8 between calls */
    uint8_t *out;
};

KERNEL static inline __m512i pick(const __m512i table[2], __m512i index)
{
    return _mm512_permutex2var_epi8(table[0], index, table[1]);
}

KERNEL static inline void append(struct writer *w, uint64_t code, uint64_t bits)
{
    w->bits |= code << w->n_bits;
    w->n_bits += bits;
    memcpy(w->out, &w->bits, 8);
    w->out += w->n_bits >> 3;
    w->bits >>= w->n_bits & 56;
    w->n_bits &= 7;
}

/* Lanes of half the width, each in a lane of its own. */
#define LOW16(v) _mm512_and_si512(v, _mm512_set1_epi32(0xffff))
#define HIGH16(v) _mm512_srli_epi32(v, 16)
#define LOW32(v) _mm512_and_si512(v, _mm512_set1_epi64(0xffffffff))
#define HIGH32(v) _mm512_srli_epi64(v, 32)

KERNEL static void append_step(struct writer *w, const struct tables *t, const uint8_t *in)
{
    const __m512i v = _mm512_loadu_si512(in), byte = _mm512_set1_epi16(0xff);
    const __m512i low = pick(t->low, v), high = pick(t->high, v), bits = pick(t->bits, v);
    /* 16-bit lanes: codes of the first and the second of each two. */
    const __m512i code0 = _mm512_or_si512(_mm512_and_si512(low, byte), _mm512_slli_epi16(high, 8));
    const __m512i code1 = _mm512_or_si512(_mm512_srli_epi16(low, 8), _mm512_andnot_si512(byte, high));
    const __m512i bits0 = _mm512_and_si512(bits, byte), bits1 = _mm512_srli_epi16(bits, 8);
    const __m512i pair_bits = _mm512_add_epi16(bits0, bits1);
    /* 32-bit lanes: the first and the second pair of each four. */
    const __m512i pair0 =
        _mm512_or_si512(_mm512_sllv_epi32(LOW16(code0), LOW16(bits1)), LOW16(code1));
    const __m512i pair1 =
        _mm512_or_si512(_mm512_sllv_epi32(HIGH16(code0), HIGH16(bits1)), HIGH16(code1));
    const __m512i bits_a = LOW16(pair_bits), bits_b = HIGH16(pair_bits);
    const __m512i four_bits = _mm512_add_epi32(bits_a, bits_b);
    /* 64-bit lanes: even and odd fours. */
    const __m512i even = _mm512_or_si512(_mm512_sllv_epi64(LOW32(pair0), LOW32(bits_b)), LOW32(pair1));
    const __m512i odd = _mm512_or_si512(_mm512_sllv_epi64(HIGH32(pair0), HIGH32(bits_b)), HIGH32(pair1));
    uint64_t codes[2][8];
    uint32_t lens[16];

    _mm512_storeu_si512(codes[0], even);
    _mm512_storeu_si512(codes[1], odd);
    _mm512_storeu_si512(lens, four_bits);
    for (int m = 15; m >= 0; m--)
        append(w, codes[m & 1][m >> 1], lens[m]);
}

KERNEL static void load_tables(const dtpi_huf_codes *c, struct tables *t)
{
    uint8_t low[VALUES], high[VALUES];

    for (int v = 0; v < VALUES; v++) {
        low[v] = (uint8_t)c->code[v];
        high[v] = (uint8_t)(c->code[v] >> 8);
    }
    for (int i = 0; i < 2; i++) {
        t->bits[i] = _mm512_loadu_si512(c->bits + STEP * i);
        t->low[i] = _mm512_loadu_si512(low + STEP * i);
        t->high[i] = _mm512_loadu_si512(high + STEP * i);
    }
}

KERNEL static size_t stream_avx512(const dtpi_huf_codes *c, const uint8_t *in, size_t n, uint8_t *out,
                                   size_t room)
{
    /* The most that a step writes, and eight bytes beyond. */
    const size_t step_bytes = STEP * DTPI_HUF_BITS / 8 + 8;
    struct writer w = { .out = out };
    struct tables t;
    size_t i = n;

    if (c->last >= VALUES)
        return dtpi_huf_base.stream(c, in, n, out, room);
    load_tables(c, &t);
    while (i % STEP != 0 && (size_t)(w.out - out) + 8 <= room) {
        i--;
        append(&w, c->code[in[i]], c->bits[in[i]]);
    }
    while (i >= STEP && (size_t)(w.out - out) + step_bytes <= room) {
        i -= STEP;
        append_step(&w, &t, in + i);
    }
    while (i > 0 && (size_t)(w.out - out) + 8 <= room) {
        i--;
        append(&w, c->code[in[i]], c->bits[in[i]]);
    }
    if (i > 0 || (size_t)(w.out - out) + 1 > room)
        return 0;
    *w.out = (uint8_t)(w.bits | 1ull << w.n_bits);
    return (size_t)(w.out - out) + 1;
}

KERNEL static void range_avx512(const uint8_t *in, size_t n, uint8_t *min_out, uint8_t *max_out)
{
    __m512i min = _mm512_set1_epi8(-1), max = _mm512_setzero_si512();
    uint8_t mins[STEP], maxs[STEP], a = 255, b = 0;
    size_t i = 0;

    for (; i + STEP <= n; i += STEP) {
        const __m512i v = _mm512_loadu_si512(in + i);
        min = _mm512_min_epu8(min, v);
        max = _mm512_max_epu8(max, v);
    }
    _mm512_storeu_si512(mins, min);
    _mm512_storeu_si512(maxs, max);
    for (int k = 0; k < STEP; k++) {
        a = mins[k] < a ? mins[k] : a;
        b = maxs[k] > b ? maxs[k] : b;
    }
    for (; i < n; i++) {
        a = in[i] < a ? in[i] : a;
        b = in[i] > b ? in[i] : b;
    }
    *min_out = a;
    *max_out = b;
}

const dtpi_huf_kernels dtpi_huf_avx512 = {
    .name = "avx512", .stream = stream_avx512, .range = range_avx512
};
