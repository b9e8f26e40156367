/* SPDX-License-Identifier: Apache-2.0 */
/* sum.c - XXH3, inlined so that no library is needed at run time. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/cpu.h"
#include "base/sum.h"

struct dtpi_sum_state {
    XXH3_state_t xxh;
};

/* Below, the wider registers gain nothing. */
enum { WIDE_BYTES = 1024 };

uint64_t dtpi_sum64(const void *data, size_t bytes)
{
#ifdef __x86_64__
    if (bytes >= WIDE_BYTES && dtpi_cpu_has(DTPI_CPU_AVX2))
        return dtpi_sum64_avx2(data, bytes);
#endif
    return XXH3_64bits(data, bytes);
}

dtpi_sum128 dtpi_sum128_of(const void *data, size_t bytes)
{
    const XXH128_hash_t h = XXH3_128bits(data, bytes);

    return (dtpi_sum128){ h.low64, h.high64 };
}

dtpi_sum_state *dtpi_sum_new(const dtp_allocator *a)
{
    dtpi_sum_state *s = dtpi_alloc_aligned(a, sizeof(*s), 64);

    if (s)
        dtpi_sum_reset(s);
    return s;
}

void dtpi_sum_free(const dtp_allocator *a, dtpi_sum_state *s)
{
    dtpi_free(a, s, sizeof(*s));
}

void dtpi_sum_reset(dtpi_sum_state *s)
{
    XXH3_64bits_reset(&s->xxh);
}

void dtpi_sum_update(dtpi_sum_state *s, const void *data, size_t bytes)
{
    XXH3_64bits_update(&s->xxh, data, bytes);
}

uint64_t dtpi_sum_digest(const dtpi_sum_state *s)
{
    return XXH3_64bits_digest(&s->xxh);
}
