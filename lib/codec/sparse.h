/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse.h - units that are mostly zero: a bit for each says whether it is there, and those that are follow
 * each other. Pure.
 *
 * Bit i % 8 of byte i / 8 stands for unit i; bits behind the last unit are zero.
 */
#ifndef DTPI_CODEC_SPARSE_H
#define DTPI_CODEC_SPARSE_H

#include "base/base.h"

/*
 * Writes a bit for each of `n` units of `1 << log2_width` bytes (0 to 3) to `bits`, and the units that are
 * not zero to `values`, at most `max` of them. How many there are; SIZE_MAX where they are more than `max`
 * (both outputs then hold anything). `values` needs room for 8 units more than `max`.
 */
size_t dtpi_sparse_pack(unsigned log2_width, const uint8_t *in, size_t n, uint8_t *bits, uint8_t *values,
                        size_t max);

/* How many units the bits say are there; SIZE_MAX where one stands behind the last unit. */
size_t dtpi_sparse_count(const uint8_t *bits, size_t n);

/*
 * The reverse. `values` holds n_values units, dtpi_sparse_count of them, and may be the last bytes of `out`
 * itself: what is written never overtakes what is read.
 */
void dtpi_sparse_unpack(unsigned log2_width, const uint8_t *bits, const uint8_t *values,
                        size_t n_values, size_t n, uint8_t *out);

#endif /* DTPI_CODEC_SPARSE_H */
