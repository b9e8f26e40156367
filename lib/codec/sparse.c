/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse.c - packs the units that are not zero. Eight units at a time share a byte of bits, which is found
 * without looking at each: where it is zero nothing else is done, which is the case that counts.
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

/*
 * A bit for each lane of a word that is not zero, the lowest lane first. Adding all ones but the highest
 * carries into a lane's highest bit where anything is set; the product brings those bits together, and
 * no two terms of it meet.
 */
FLAT unsigned lanes_of_1(uint64_t x)
{
    const uint64_t low = 0x7f7f7f7f7f7f7f7full;

    return (unsigned)(((((x & low) + low) | x) >> 7 & 0x0101010101010101ull) * 0x0102040810204080ull >> 56);
}

FLAT unsigned lanes_of_2(uint64_t x)
{
    const uint64_t low = 0x7fff7fff7fff7fffull;

    return (unsigned)(((((x & low) + low) | x) >> 15 & 0x0001000100010001ull) *
                          (1ull << 48 | 1ull << 33 | 1ull << 18 | 1ull << 3) >> 48) & 15;
}

FLAT unsigned lanes_of_4(uint64_t x)
{
    return (unsigned)((uint32_t)x != 0) | (unsigned)(x >> 32 != 0) << 1;
}

/* Of eight units. */
FLAT unsigned mask_of(const uint8_t *p, size_t width)
{
    unsigned mask = 0;

    for (size_t i = 0; i < width; i++) {
        const uint64_t x = get_unit(p + 8 * i, 8);
        const unsigned lanes = width == 1   ? lanes_of_1(x)
                               : width == 2 ? lanes_of_2(x)
                               : width == 4 ? lanes_of_4(x)
                                            : x != 0;
        mask |= lanes << i * (8 / width);
    }
    return mask;
}

/* Eight units, without a branch for each: those that are zero are overwritten by the next. */
FLAT size_t pack_group(const uint8_t *in, unsigned mask, size_t width, uint8_t *values, size_t k)
{
    for (size_t j = 0; j < 8; j++) {
        memcpy(values + k * width, in + j * width, width);
        k += mask >> j & 1;
    }
    return k;
}

FLAT size_t pack(const uint8_t *in, size_t n, size_t width, uint8_t *bits, uint8_t *values, size_t max)
{
    uint8_t last[8 * 8] = { 0 };
    size_t k = 0, i = 0;

    for (; i + 64 <= n; i += 64) {
        uint64_t masks = 0;
        for (size_t g = 0; g < 8; g++)
            masks |= (uint64_t)mask_of(in + (i + 8 * g) * width, width) << 8 * g;
        memcpy(bits + i / 8, &masks, 8);
        for (size_t g = 0; g < 8 && masks != 0 && k <= max; g++)
            k = pack_group(in + (i + 8 * g) * width, masks >> 8 * g & 255, width, values, k);
        if (k > max)
            return SIZE_MAX;
    }
    for (; i < n; i += 8) {
        memset(last, 0, sizeof(last));
        memcpy(last, in + i * width, DTPI_MIN(n - i, (size_t)8) * width);
        bits[i / 8] = (uint8_t)mask_of(last, width);
        k = pack_group(last, bits[i / 8], width, values, k);
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
    const size_t n_bytes = (n + 7) / 8;
    size_t count = 0, i = 0;

    for (; i + 8 <= n_bytes; i += 8)
        count += (size_t)__builtin_popcountll(get_unit(bits + i, 8));
    for (; i < n_bytes; i++)
        count += (size_t)__builtin_popcount(bits[i]);
    return n % 8 && bits[n / 8] >> n % 8 ? SIZE_MAX : count;
}

/* Eight units out of at least eight values, without a branch for each; how many values it took. */
FLAT size_t unpack_group(unsigned mask, const uint8_t *values, size_t width, uint8_t *out)
{
    size_t k = 0;

    for (size_t j = 0; j < 8; j++) {
        const uint64_t is_there = mask >> j & 1, v = get_unit(values + k * width, width) & -is_there;
        memcpy(out + j * width, &v, width);
        k += is_there;
    }
    return k;
}

/* At most eight units out of any number of values. */
FLAT size_t unpack_last(unsigned mask, const uint8_t *values, size_t width, uint8_t *out, size_t n)
{
    uint8_t units[8 * 8] = { 0 };
    size_t k = 0;

    for (; mask; mask &= mask - 1, k++)
        memcpy(units + (size_t)__builtin_ctz(mask) * width, values + k * width, width);
    memcpy(out, units, n * width);
    return k;
}

/* Unit by unit, so that what is written stays behind what is read. */
FLAT void unpack(const uint8_t *bits, const uint8_t *values, size_t left, size_t n, size_t width,
                 uint8_t *out)
{
    for (size_t i = 0; i < n;) {
        if (n - i >= 64 && i % 64 == 0 && get_unit(bits + i / 8, 8) == 0) {
            memset(out + i * width, 0, 64 * width);
            i += 64;
            continue;
        }
        const size_t k = left >= 8 && n - i >= 8
                             ? unpack_group(bits[i / 8], values, width, out + i * width)
                             : unpack_last(bits[i / 8], values, width, out + i * width,
                                           DTPI_MIN(n - i, (size_t)8));
        values += k * width;
        left -= k;
        i += 8;
    }
}

void dtpi_sparse_unpack(unsigned log2_width, const uint8_t *bits, const uint8_t *values,
                        size_t n_values, size_t n, uint8_t *out)
{
    switch (log2_width) {
    case 0:
        unpack(bits, values, n_values, n, 1, out);
        break;
    case 1:
        unpack(bits, values, n_values, n, 2, out);
        break;
    case 2:
        unpack(bits, values, n_values, n, 4, out);
        break;
    default:
        unpack(bits, values, n_values, n, 8, out);
        break;
    }
}
