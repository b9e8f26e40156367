/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_f16.h - f16 to f32 and back in integers: the twin of the processor's own conversions. */
#ifndef DTPI_COLL_KERNEL_F16_H
#define DTPI_COLL_KERNEL_F16_H

#include <stdint.h>
#include <string.h>

static inline float dtpi_float_of_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline uint32_t dtpi_bits_of_float(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static inline float dtpi_float_of_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t rest = h & 0x7fffu;

    if (rest >= 0x7c00u)
        return dtpi_float_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest >= 0x400u)
        return dtpi_float_of_bits(sign | ((rest << 13) + (112u << 23)));
    /* A subnormal counts units of 2^-24. */
    return dtpi_float_of_bits(sign | dtpi_bits_of_float((float)rest * 0x1p-24f));
}

/* To nearest, ties to even; overflow gives infinity; any NaN the canonical one. */
static inline uint16_t dtpi_f16_of_float(float f)
{
    const uint32_t bits = dtpi_bits_of_float(f);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t rest = bits & 0x7fffffffu;

    if (rest > 0x7f800000u)
        return 0x7e00u;
    if (rest >= 0x47800000u)
        return (uint16_t)(sign | 0x7c00u);
    if (rest >= 0x38800000u)
        return (uint16_t)(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13);
    /* Adding 0.5 lets the adder round to units of 2^-24. */
    return (uint16_t)(sign |
                      (dtpi_bits_of_float(dtpi_float_of_bits(rest) + 0.5f) - 0x3f000000u));
}

#endif /* DTPI_COLL_KERNEL_F16_H */
