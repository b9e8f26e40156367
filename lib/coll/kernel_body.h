/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_body.h - the loops, written once for the compiler to vectorise; each kernel_*.c sets KERNEL
 * (attributes of its processor), VARIANT (its name), and conversions and copies of its own.
 *
 * Inputs may be the output (same index), so loops are marked free of dependences instead of restrict.
 */
#include "coll/kernel.h"

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define COMBINE(name, type, as, expr)                                                               \
    KERNEL static void name##2(void *out_, const void *a_, const void *b_, size_t n)                \
    {                                                                                               \
        type *out = out_;                                                                           \
        const type *a = a_, *b = b_;                                                                \
        INDEPENDENT                                                                                 \
        for (size_t i = 0; i < n; i++) {                                                            \
            const as x = (as)a[i], y = (as)b[i];                                                    \
            out[i] = (type)(expr);                                                                  \
        }                                                                                           \
    }                                                                                               \
    KERNEL static inline type name##_one(type x_, type y_)                                          \
    {                                                                                               \
        const as x = (as)x_, y = (as)y_;                                                            \
        return (type)(expr);                                                                        \
    }                                                                                               \
    KERNEL static void name##4(void *out_, const void *a_, const void *b_, const void *c_,          \
                               const void *d_, size_t n)                                            \
    {                                                                                               \
        type *out = out_;                                                                           \
        const type *a = a_, *b = b_, *c = c_, *d = d_;                                              \
        INDEPENDENT                                                                                 \
        for (size_t i = 0; i < n; i++)                                                              \
            out[i] = name##_one(name##_one(a[i], b[i]), name##_one(c[i], d[i]));                    \
    }

#define CANON_F64(v) ((v) != (v) ? __builtin_nan("") : (v))
#define CANON_F32(v) ((v) != (v) ? __builtin_nanf("") : (v))

#define COMBINE_FLOAT(name, type, CANON)                                                            \
    COMBINE(name##_sum, type, type, CANON(x + y))                                                   \
    COMBINE(name##_min, type, type, CANON(x != x ? x : (x < y ? x : y)))                            \
    COMBINE(name##_max, type, type, CANON(x != x ? x : (x > y ? x : y)))                            \
    COMBINE(name##_prod, type, type, CANON(x * y))

/* Sums and products wrap, so they are made of unsigned numbers. */
#define COMBINE_INT(name, type, wrap)                                                               \
    COMBINE(name##_sum, type, wrap, x + y)                                                          \
    COMBINE(name##_min, type, type, x < y ? x : y)                                                  \
    COMBINE(name##_max, type, type, x > y ? x : y)                                                  \
    COMBINE(name##_prod, type, wrap, x * y)

COMBINE_FLOAT(f64, double, CANON_F64)
COMBINE_FLOAT(f32, float, CANON_F32)
COMBINE_INT(i64, int64_t, uint64_t)
COMBINE_INT(i32, int32_t, uint32_t)
COMBINE_INT(u8, uint8_t, uint32_t)

#define CONVERT(name, from, to, expr)                                                               \
    KERNEL static void name(void *out_, const void *in_, size_t n)                                  \
    {                                                                                               \
        to *out = out_;                                                                             \
        const from *in = in_;                                                                       \
        INDEPENDENT                                                                                 \
        for (size_t i = 0; i < n; i++) {                                                            \
            const from x = in[i];                                                                   \
            out[i] = (to)(expr);                                                                    \
        }                                                                                           \
    }

/* Bit patterns: a bf16 is the upper half of an f32; rounding is to nearest, ties to even. */
CONVERT(widen_bf16, uint16_t, uint32_t, (uint32_t)x << 16)
CONVERT(narrow_bf16, uint32_t, uint16_t,
        (x & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : (x + 0x7fffu + ((x >> 16) & 1u)) >> 16)
CONVERT(widen_i32, int32_t, int64_t, x)
CONVERT(narrow_i32, int64_t, int32_t, x)
CONVERT(widen_u8, uint8_t, int32_t, x)
CONVERT(narrow_u8, int32_t, uint8_t, x)

#define DIVIDE(name, type, as)                                                                      \
    KERNEL static void name(void *acc_, size_t n, int64_t divisor)                                  \
    {                                                                                               \
        type *acc = acc_;                                                                           \
        const as d = (as)divisor;                                                                   \
        INDEPENDENT                                                                                 \
        for (size_t i = 0; i < n; i++)                                                              \
            acc[i] = (type)(acc[i] / d);                                                            \
    }

DIVIDE(divide_f64, double, double)
DIVIDE(divide_f32, float, float)
DIVIDE(divide_i64, int64_t, int64_t)
DIVIDE(divide_i32, int32_t, int32_t)

#define ROW(t, n) { t##_sum##n, t##_min##n, t##_max##n, t##_prod##n }
#define TABLE(n)                                                                                    \
    {                                                                                               \
        [DTPI_ACC_F64] = ROW(f64, n), [DTPI_ACC_F32] = ROW(f32, n), [DTPI_ACC_I64] = ROW(i64, n),   \
        [DTPI_ACC_I32] = ROW(i32, n), [DTPI_ACC_U8] = ROW(u8, n),                                   \
    }

#define DEFINE_KERNELS(symbol)                                                                      \
    const dtpi_kernels symbol = {                                                                   \
        .name = VARIANT,                                                                            \
        .combine2 = TABLE(2),                                                                       \
        .combine4 = TABLE(4),                                                                       \
        .widen_f16 = widen_f16,                                                                     \
        .narrow_f16 = narrow_f16,                                                                   \
        .widen_bf16 = widen_bf16,                                                                   \
        .narrow_bf16 = narrow_bf16,                                                                 \
        .widen_i32 = widen_i32,                                                                     \
        .narrow_i32 = narrow_i32,                                                                   \
        .widen_u8 = widen_u8,                                                                       \
        .narrow_u8 = narrow_u8,                                                                     \
        .divide = { divide_f64, divide_f32, divide_i64, divide_i32 },                               \
        .stream = stream,                                                                           \
        .stream_end = stream_end,                                                                   \
    }
