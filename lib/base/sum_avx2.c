/* SPDX-License-Identifier: Apache-2.0 */
/* sum_avx2.c - XXH3 in registers of 256 bits: more than twice as fast on data in the cache. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sum.h"

uint64_t dtpi_sum64_avx2(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}
