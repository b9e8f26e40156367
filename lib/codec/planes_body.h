/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planes_body.h - the loops, written once for the compiler to vectorise; each planes_*.c sets KERNEL (the
 * attributes of its processor).
 */
#include "codec/planes.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "units are read as little-endian numbers"
#endif

#define TURN_LEFT(type, v) ((type)((v) << 1) | (type)((v) >> (8 * sizeof(type) - 1)))
#define TURN_RIGHT(type, v) ((type)((v) >> 1) | (type)((v) << (8 * sizeof(type) - 1)))
#define KEEP(type, v) (v)

KERNEL static void split8(const uint8_t *in, size_t n, uint8_t *const *planes)
{
    memcpy(planes[0], in, n);
}

KERNEL static void merge8(const uint8_t *const *planes, size_t n, uint8_t *out)
{
    memcpy(out, planes[0], n);
}

#define SPLIT16(name, TURN)                                                                         \
    KERNEL static void name(const uint8_t *in_, size_t n, uint8_t *const *planes)                   \
    {                                                                                               \
        uint8_t *restrict p0 = planes[0], *restrict p1 = planes[1];                                 \
        const uint8_t *restrict in = in_;                                                           \
        for (size_t i = 0; i < n; i++) {                                                            \
            uint16_t v;                                                                             \
            memcpy(&v, in + 2 * i, 2);                                                              \
            v = TURN(uint16_t, v);                                                                  \
            p0[i] = (uint8_t)v;                                                                     \
            p1[i] = (uint8_t)(v >> 8);                                                              \
        }                                                                                           \
    }

#define MERGE16(name, TURN)                                                                         \
    KERNEL static void name(const uint8_t *const *planes, size_t n, uint8_t *out_)                  \
    {                                                                                               \
        const uint8_t *restrict p0 = planes[0], *restrict p1 = planes[1];                           \
        uint8_t *restrict out = out_;                                                               \
        for (size_t i = 0; i < n; i++) {                                                            \
            uint16_t v = (uint16_t)(p0[i] | p1[i] << 8);                                            \
            v = TURN(uint16_t, v);                                                                  \
            memcpy(out + 2 * i, &v, 2);                                                             \
        }                                                                                           \
    }

#define SPLIT32(name, TURN)                                                                         \
    KERNEL static void name(const uint8_t *in_, size_t n, uint8_t *const *planes)                   \
    {                                                                                               \
        uint8_t *restrict p0 = planes[0], *restrict p1 = planes[1];                                 \
        uint8_t *restrict p2 = planes[2], *restrict p3 = planes[3];                                 \
        const uint8_t *restrict in = in_;                                                           \
        for (size_t i = 0; i < n; i++) {                                                            \
            uint32_t v;                                                                             \
            memcpy(&v, in + 4 * i, 4);                                                              \
            v = TURN(uint32_t, v);                                                                  \
            p0[i] = (uint8_t)v;                                                                     \
            p1[i] = (uint8_t)(v >> 8);                                                              \
            p2[i] = (uint8_t)(v >> 16);                                                             \
            p3[i] = (uint8_t)(v >> 24);                                                             \
        }                                                                                           \
    }

#define MERGE32(name, TURN)                                                                         \
    KERNEL static void name(const uint8_t *const *planes, size_t n, uint8_t *out_)                  \
    {                                                                                               \
        const uint8_t *restrict p0 = planes[0], *restrict p1 = planes[1];                           \
        const uint8_t *restrict p2 = planes[2], *restrict p3 = planes[3];                           \
        uint8_t *restrict out = out_;                                                               \
        for (size_t i = 0; i < n; i++) {                                                            \
            uint32_t v = p0[i] | (uint32_t)p1[i] << 8 | (uint32_t)p2[i] << 16 | (uint32_t)p3[i] << 24; \
            v = TURN(uint32_t, v);                                                                  \
            memcpy(out + 4 * i, &v, 4);                                                             \
        }                                                                                           \
    }

#define SPLIT64(name, TURN)                                                                         \
    KERNEL static void name(const uint8_t *in_, size_t n, uint8_t *const *planes)                   \
    {                                                                                               \
        uint8_t *restrict p0 = planes[0], *restrict p1 = planes[1];                                 \
        uint8_t *restrict p2 = planes[2], *restrict p3 = planes[3];                                 \
        uint8_t *restrict p4 = planes[4], *restrict p5 = planes[5];                                 \
        uint8_t *restrict p6 = planes[6], *restrict p7 = planes[7];                                 \
        const uint8_t *restrict in = in_;                                                           \
        for (size_t i = 0; i < n; i++) {                                                            \
            uint64_t v;                                                                             \
            memcpy(&v, in + 8 * i, 8);                                                              \
            v = TURN(uint64_t, v);                                                                  \
            p0[i] = (uint8_t)v;                                                                     \
            p1[i] = (uint8_t)(v >> 8);                                                              \
            p2[i] = (uint8_t)(v >> 16);                                                             \
            p3[i] = (uint8_t)(v >> 24);                                                             \
            p4[i] = (uint8_t)(v >> 32);                                                             \
            p5[i] = (uint8_t)(v >> 40);                                                             \
            p6[i] = (uint8_t)(v >> 48);                                                             \
            p7[i] = (uint8_t)(v >> 56);                                                             \
        }                                                                                           \
    }

#define AT(p, shift) ((uint64_t)(p)[i] << (shift))
#define MERGE64(name, TURN)                                                                         \
    KERNEL static void name(const uint8_t *const *planes, size_t n, uint8_t *out_)                  \
    {                                                                                               \
        const uint8_t *restrict p0 = planes[0], *restrict p1 = planes[1];                           \
        const uint8_t *restrict p2 = planes[2], *restrict p3 = planes[3];                           \
        const uint8_t *restrict p4 = planes[4], *restrict p5 = planes[5];                           \
        const uint8_t *restrict p6 = planes[6], *restrict p7 = planes[7];                           \
        uint8_t *restrict out = out_;                                                               \
        for (size_t i = 0; i < n; i++) {                                                            \
            uint64_t v = AT(p0, 0) | AT(p1, 8) | AT(p2, 16) | AT(p3, 24) | AT(p4, 32) |             \
                         AT(p5, 40) | AT(p6, 48) | AT(p7, 56);                                      \
            v = TURN(uint64_t, v);                                                                  \
            memcpy(out + 8 * i, &v, 8);                                                             \
        }                                                                                           \
    }

SPLIT16(split16, KEEP)
SPLIT16(split16_turned, TURN_LEFT)
MERGE16(merge16, KEEP)
MERGE16(merge16_turned, TURN_RIGHT)
SPLIT32(split32, KEEP)
SPLIT32(split32_turned, TURN_LEFT)
MERGE32(merge32, KEEP)
MERGE32(merge32_turned, TURN_RIGHT)
SPLIT64(split64, KEEP)
SPLIT64(split64_turned, TURN_LEFT)
MERGE64(merge64, KEEP)
MERGE64(merge64_turned, TURN_RIGHT)

#define DEFINE_PLANES(var, text)                                                                    \
    const dtpi_planes var = {                                                                       \
        .name = text,                                                                               \
        .split = { split8, split16, split32, split64, split8, split16_turned, split32_turned,       \
                   split64_turned },                                                                \
        .merge = { merge8, merge16, merge32, merge64, merge8, merge16_turned, merge32_turned,       \
                   merge64_turned },                                                                \
    }
