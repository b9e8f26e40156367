/* SPDX-License-Identifier: Apache-2.0 */
/* sum.h - XXH3 checksums of data (not against an adversary; that is BLAKE2b's work). */
#ifndef DTPI_SUM_H
#define DTPI_SUM_H

#include "base/base.h"

typedef struct dtpi_sum128 {
    uint64_t lo;
    uint64_t hi;
} dtpi_sum128;

/* Source: XXH3 64 and 128 bit, seed 0, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md */
uint64_t dtpi_sum64(const void *data, size_t bytes);
/* The same on an x86 processor with AVX2; dtpi_sum64 takes it by itself. */
uint64_t dtpi_sum64_avx2(const void *data, size_t bytes);
dtpi_sum128 dtpi_sum128_of(const void *data, size_t bytes);

/* A running 64-bit sum over pieces; the state is plain data of DTPI_SUM_STATE bytes, 64-aligned. */
typedef struct dtpi_sum_state dtpi_sum_state;
dtpi_sum_state *dtpi_sum_new(const dtp_allocator *a);
void dtpi_sum_free(const dtp_allocator *a, dtpi_sum_state *s);
void dtpi_sum_reset(dtpi_sum_state *s);
void dtpi_sum_update(dtpi_sum_state *s, const void *data, size_t bytes);
uint64_t dtpi_sum_digest(const dtpi_sum_state *s);

#endif /* DTPI_SUM_H */
