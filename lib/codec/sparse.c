/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse.c - packs the units that are not zero. Eight units at a time share a byte of bits: where that byte
 * is zero nothing else is done, which is the case that counts.
 */
#include "codec/sparse.h"

#define FLAT static inline __attribute__((always_inline))

/* A unit of a width that is known when this is compiled. */
FLAT uint64_t get_unit(const uint8_t *p, size_t width)
{
    uint64_t v = 0;

    memcpy(&v, p, width);
    return v;
}

/* Eight units are all zero: as many words as a unit has bytes. */
FLAT bool is_nothing(const uint8_t *p, size_t width)
{
    uint64_t any = 0;

    for (size_t i = 0; i < width; i++)
        any |= get_unit(p + 8 * i, 8);
    return any == 0;
}

/* Packs up to eight units; their bits. */
FLAT unsigned pack_group(const uint8_t *in, size_t n, size_t width, uint8_t *values, size_t *k)
{
    unsigned mask = 0;

    for (size_t j = 0; j < n; j++) {
        const uint64_t v = get_unit(in + j * width, width);
        memcpy(values + *k * width, &v, width);
        *k += v != 0;
        mask |= (unsigned)(v != 0) << j;
    }
    return mask;
}

FLAT size_t pack(const uint8_t *in, size_t n, size_t width, uint8_t *bits, uint8_t *values, size_t max)
{
    size_t k = 0;

    for (size_t i = 0; i < n; i += 8, in += 8 * width) {
        const size_t left = n - i;
        if (left >= 8 && is_nothing(in, width))
            bits[i / 8] = 0;
        else
            bits[i / 8] = (uint8_t)pack_group(in, left < 8 ? left : 8, width, values, &k);
        if (k > max)
            return SIZE_MAX;
    }
    return k;
}

size_t dtpi_sparse_pack(unsigned log2_width, const uint8_t *in, size_t n, uint8_t *bits, uint8_t *values,
                        size_t max)
{
    switch (log2_width) {
    case 0:
        return pack(in, n, 1, bits, values, max);
    case 1:
        return pack(in, n, 2, bits, values, max);
    case 2:
        return pack(in, n, 4, bits, values, max);
    default:
        return pack(in, n, 8, bits, values, max);
    }
}

size_t dtpi_sparse_count(const uint8_t *bits, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < (n + 7) / 8; i++)
        count += (size_t)__builtin_popcount(bits[i]);
    return n % 8 && bits[n / 8] >> n % 8 ? SIZE_MAX : count;
}

FLAT void unpack(const uint8_t *bits, const uint8_t *values, size_t n, size_t width, uint8_t *out)
{
    for (size_t i = 0; i < n; i += 8) {
        uint8_t units[8 * 8] = { 0 };
        for (unsigned mask = bits[i / 8]; mask; mask &= mask - 1) {
            memcpy(units + (size_t)__builtin_ctz(mask) * width, values, width);
            values += width;
        }
        if (n - i >= 8)
            memcpy(out + i * width, units, 8 * width);
        else
            memcpy(out + i * width, units, (n - i) * width);
    }
}

void dtpi_sparse_unpack(unsigned log2_width, const uint8_t *bits, const uint8_t *values, size_t n,
                        uint8_t *out)
{
    switch (log2_width) {
    case 0:
        unpack(bits, values, n, 1, out);
        break;
    case 1:
        unpack(bits, values, n, 2, out);
        break;
    case 2:
        unpack(bits, values, n, 4, out);
        break;
    default:
        unpack(bits, values, n, 8, out);
        break;
    }
}
