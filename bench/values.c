/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.c - small whole numbers, so that the result is exact in any order and known without running it.
 */
#include <string.h>

#include "base/base.h"
#include "bench.h"
#include "coll/kernel_f16.h"

static int value_of(dtp_redop redop, int rank, int i)
{
    const int r = (i * 31 + rank * 17) % 97;

    return redop == DTP_PROD ? 1 + r % 2 : r % 8;
}

static uint16_t bf16_of(float f)
{
    const uint32_t bits = dtpi_bits_of_float(f);

    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Floats are rounded once; integers wrap as they do in the type. */
static void store(uint8_t *out, dtp_dtype dtype, double f, uint64_t u)
{
    const float single = (float)f;
    const uint16_t half = dtype == DTP_F16 ? dtpi_f16_of_float(single) : bf16_of(single);

    if (dtype == DTP_F64)
        memcpy(out, &f, 8);
    else if (dtype == DTP_F32)
        memcpy(out, &single, 4);
    else if (dtype == DTP_F16 || dtype == DTP_BF16)
        memcpy(out, &half, 2);
    else
        memcpy(out, &u, dtp_dtype_bytes(dtype));    /* little end first */
}

void bench_input_tile(bench_tile *t, dtp_dtype dtype, dtp_redop redop, int rank)
{
    t->elem_bytes = dtp_dtype_bytes(dtype);
    for (int i = 0; i < BENCH_TILE; i++) {
        const int v = value_of(redop, rank, i);
        store(t->data + (size_t)i * t->elem_bytes, dtype, v, (uint64_t)v);
    }
}

static void combine(dtp_redop redop, int v, double *f, uint64_t *u)
{
    switch (redop) {
    case DTP_MIN:
        *f = DTPI_MIN(*f, v);
        *u = DTPI_MIN(*u, (uint64_t)v);
        break;
    case DTP_MAX:
        *f = DTPI_MAX(*f, v);
        *u = DTPI_MAX(*u, (uint64_t)v);
        break;
    case DTP_PROD:
        *f *= v;
        *u *= (uint64_t)v;
        break;
    default:
        *f += v;
        *u += (uint64_t)v;
        break;
    }
}

void bench_result_tile(bench_tile *t, dtp_dtype dtype, dtp_redop redop, int world_size)
{
    t->elem_bytes = dtp_dtype_bytes(dtype);
    for (int i = 0; i < BENCH_TILE; i++) {
        double f = value_of(redop, 0, i);
        uint64_t u = (uint64_t)f;
        for (int r = 1; r < world_size; r++)
            combine(redop, value_of(redop, r, i), &f, &u);
        if (redop == DTP_AVG) {
            f = dtype == DTP_F64 ? f / world_size : (double)((float)f / (float)world_size);
            u /= (uint64_t)world_size;
        }
        store(t->data + (size_t)i * t->elem_bytes, dtype, f, u);
    }
}

void bench_fill(const bench_tile *t, void *out, size_t count)
{
    uint8_t *to = out;

    for (size_t at = 0; at < count; at += BENCH_TILE)
        memcpy(to + at * t->elem_bytes, t->data,
               DTPI_MIN(count - at, (size_t)BENCH_TILE) * t->elem_bytes);
}

size_t bench_count_wrong(const bench_tile *t, const void *data, size_t count)
{
    const uint8_t *from = data;
    size_t wrong = 0;

    for (size_t at = 0; at < count; at += BENCH_TILE) {
        const size_t n = DTPI_MIN(count - at, (size_t)BENCH_TILE);
        const uint8_t *piece = from + at * t->elem_bytes;
        if (memcmp(piece, t->data, n * t->elem_bytes) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            wrong += memcmp(piece + i * t->elem_bytes, t->data + i * t->elem_bytes, t->elem_bytes) != 0;
    }
    return wrong;
}
