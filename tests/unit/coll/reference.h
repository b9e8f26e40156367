/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.h - what a reduction must give, element by element, written apart from the kernels.
 *
 * Inputs are made so that order matters: magnitudes differ, and infinities, NaNs, zeros of both signs and
 * subnormals occur.
 */
#ifndef DTP_TESTS_COLL_REFERENCE_H
#define DTP_TESTS_COLL_REFERENCE_H

#include <math.h>

#include <dtp/coll.h>

#include "coll/kernel_f16.h"

static const dtp_dtype ref_types[] = { DTP_F64, DTP_F32, DTP_F16, DTP_BF16, DTP_I64, DTP_I32, DTP_U8 };
static const dtp_redop ref_ops[] = { DTP_SUM, DTP_MIN, DTP_MAX, DTP_PROD, DTP_AVG };
enum { REF_N_TYPES = 7, REF_N_OPS = 5 };

static inline uint64_t ref_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static inline uint16_t ref_bf16(float f)
{
    const uint32_t b = dtpi_bits_of_float(f);

    return (uint16_t)(f != f ? 0x7fc0 : (b + 0x7fff + (b >> 16 & 1)) >> 16);
}

static inline float ref_of_bf16(uint16_t h)
{
    return dtpi_float_of_bits((uint32_t)h << 16);
}

/* Element `i` of `rank`, written to `out` in its type. */
static inline void ref_input(dtp_dtype t, uint64_t seed, uint32_t rank, size_t i, void *out)
{
    const uint64_t r = ref_mix(seed + rank * 0x9e3779b97f4a7c15ull + i * 0xd1342543de82ef95ull);
    double v = ldexp((double)(int64_t)(r & 0xfffff) - 0x80000, (int)(r >> 20 & 15) - 26);
    const unsigned special = (unsigned)(r >> 32 & 1023);

    if (special < 6)
        v = (const double[]){ NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e-41 }[special];
    if (t == DTP_F64)
        memcpy(out, &v, 8);
    else if (t == DTP_F32)
        *(float *)out = (float)v;
    else if (t == DTP_F16)
        *(uint16_t *)out = dtpi_f16_of_float((float)v);
    else if (t == DTP_BF16)
        *(uint16_t *)out = ref_bf16((float)v);
    else if (t == DTP_I64)
        *(int64_t *)out = (int64_t)r;
    else if (t == DTP_I32)
        *(int32_t *)out = (int32_t)r;
    else
        *(uint8_t *)out = (uint8_t)r;
}

typedef union ref_value {
    double d;
    float f;
    int64_t i;
} ref_value;

static inline ref_value ref_load(dtp_dtype t, const void *p)
{
    ref_value v = { .i = 0 };

    switch (t) {
    case DTP_F64: v.d = *(const double *)p; break;
    case DTP_F32: v.f = *(const float *)p; break;
    case DTP_F16: v.f = dtpi_float_of_f16(*(const uint16_t *)p); break;
    case DTP_BF16: v.f = ref_of_bf16(*(const uint16_t *)p); break;
    case DTP_I64: v.i = *(const int64_t *)p; break;
    case DTP_I32: v.i = *(const int32_t *)p; break;
    default: v.i = *(const uint8_t *)p; break;
    }
    return v;
}

#define REF_FLOAT(field)                                                                            \
    (op == DTP_MIN   ? (isnan(a.field) ? a.field : a.field < b.field ? a.field : b.field)           \
     : op == DTP_MAX ? (isnan(a.field) ? a.field : a.field > b.field ? a.field : b.field)           \
     : op == DTP_PROD ? a.field * b.field                                                           \
                      : a.field + b.field)

static inline ref_value ref_combine(dtp_dtype t, dtp_redop op, ref_value a, ref_value b)
{
    ref_value v = { .i = 0 };

    if (t == DTP_F64)
        v.d = REF_FLOAT(d);
    else if (t == DTP_F32 || t == DTP_F16 || t == DTP_BF16)
        v.f = REF_FLOAT(f);
    else if (op == DTP_MIN || op == DTP_MAX)
        v.i = (a.i < b.i) == (op == DTP_MIN) ? a.i : b.i;
    else
        v.i = (int64_t)(op == DTP_PROD ? (uint64_t)a.i * (uint64_t)b.i : (uint64_t)a.i + (uint64_t)b.i);
    /* Values of i32 and u8 wrap except in an average. */
    if (t == DTP_I32 && op != DTP_AVG)
        v.i = (int32_t)v.i;
    if (t == DTP_U8 && op != DTP_AVG)
        v.i = (uint8_t)v.i;
    return v;
}

static inline ref_value ref_tree(dtp_dtype t, dtp_redop op, const ref_value *v, uint32_t n)
{
    uint32_t left = 1;

    if (n == 1)
        return *v;
    while (left * 2 < n)
        left *= 2;
    return ref_combine(t, op, ref_tree(t, op, v, left), ref_tree(t, op, v + left, n - left));
}

/* Expected bits of element `i` over n ranks. */
static inline void ref_expect(dtp_dtype t, dtp_redop op, uint64_t seed, uint32_t n, size_t i, void *out)
{
    ref_value v[64], r;
    uint64_t raw = 0;

    for (uint32_t rank = 0; rank < n; rank++) {
        ref_input(t, seed, rank, i, &raw);
        v[rank] = ref_load(t, &raw);
    }
    if (n == 1) {
        memcpy(out, &raw, dtp_dtype_bytes(t));
        return;
    }
    r = ref_tree(t, op, v, n);
    switch (t) {
    case DTP_F64:
        r.d = op == DTP_AVG ? r.d / n : r.d;
        *(double *)out = isnan(r.d) ? (double)NAN : r.d;
        break;
    case DTP_F32:
    case DTP_F16:
    case DTP_BF16:
        r.f = op == DTP_AVG ? r.f / (float)n : r.f;
        r.f = isnan(r.f) ? (float)NAN : r.f;
        if (t == DTP_F32)
            *(float *)out = r.f;
        else
            *(uint16_t *)out = t == DTP_F16 ? dtpi_f16_of_float(r.f) : ref_bf16(r.f);
        break;
    case DTP_I64:
        *(int64_t *)out = op == DTP_AVG ? r.i / (int64_t)n : r.i;
        break;
    case DTP_I32:
        *(int32_t *)out = (int32_t)(op == DTP_AVG ? r.i / (int64_t)n : r.i);
        break;
    default:
        *(uint8_t *)out = (uint8_t)(op == DTP_AVG ? r.i / (int64_t)n : r.i);
        break;
    }
}

#endif /* DTP_TESTS_COLL_REFERENCE_H */
