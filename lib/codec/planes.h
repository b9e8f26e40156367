/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planes.h - splitting numbers into byte planes and back: one variant per kind of processor, all of them
 * equal bit for bit.
 *
 * A unit of `width` bytes (1, 2, 4 or 8, little-endian) gives one byte to each of `width` planes, the lowest
 * first. Rotated units are turned left by one bit before: of a floating-point number the sign goes to the
 * bottom, so that the highest plane holds exponent bits alone.
 */
#ifndef DTPI_CODEC_PLANES_H
#define DTPI_CODEC_PLANES_H

#include "base/base.h"

enum { DTPI_PLANES_MAX = 8, DTPI_PLANES_KINDS = 8 };

typedef void dtpi_split_fn(const uint8_t *in, size_t n_units, uint8_t *const *planes);
typedef void dtpi_merge_fn(const uint8_t *const *planes, size_t n_units, uint8_t *out);

/* Indexed by log2 of the width, plus 4 where units are rotated. */
typedef struct dtpi_planes {
    const char *name;
    dtpi_split_fn *split[DTPI_PLANES_KINDS];
    dtpi_merge_fn *merge[DTPI_PLANES_KINDS];
} dtpi_planes;

extern const dtpi_planes dtpi_planes_base;
#ifdef __x86_64__
extern const dtpi_planes dtpi_planes_avx2;
extern const dtpi_planes dtpi_planes_avx512;
#endif

/* The best variant for this processor. */
const dtpi_planes *dtpi_planes_best(void);
/* By name ("base", "avx2", "avx512"); NULL where it is not there or would not run here. */
const dtpi_planes *dtpi_planes_find(const char *name);

#endif /* DTPI_CODEC_PLANES_H */
