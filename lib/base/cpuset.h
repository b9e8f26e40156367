/* SPDX-License-Identifier: Apache-2.0 */
/* cpuset.h - sets of processors as bits, from and to lists such as "0-3,8". */
#ifndef DTPI_CPUSET_H
#define DTPI_CPUSET_H

#include "base/base.h"

enum { DTPI_CPUSET_MAX = 8192 };

typedef struct dtpi_cpuset {
    uint64_t bits[DTPI_CPUSET_MAX / 64];
} dtpi_cpuset;

static inline void dtpi_cpuset_set(dtpi_cpuset *s, uint32_t cpu)
{
    if (cpu < DTPI_CPUSET_MAX)
        s->bits[cpu / 64] |= 1ull << (cpu % 64);
}
static inline void dtpi_cpuset_unset(dtpi_cpuset *s, uint32_t cpu)
{
    if (cpu < DTPI_CPUSET_MAX)
        s->bits[cpu / 64] &= ~(1ull << (cpu % 64));
}
static inline bool dtpi_cpuset_has(const dtpi_cpuset *s, uint32_t cpu)
{
    return cpu < DTPI_CPUSET_MAX && (s->bits[cpu / 64] >> (cpu % 64) & 1);
}

uint32_t dtpi_cpuset_count(const dtpi_cpuset *s);
/* First member at or after `from`, -1 when there is none. */
int32_t dtpi_cpuset_next(const dtpi_cpuset *s, uint32_t from);
void dtpi_cpuset_and(dtpi_cpuset *a, const dtpi_cpuset *b);
void dtpi_cpuset_or(dtpi_cpuset *a, const dtpi_cpuset *b);
void dtpi_cpuset_minus(dtpi_cpuset *a, const dtpi_cpuset *b);
bool dtpi_cpuset_intersects(const dtpi_cpuset *a, const dtpi_cpuset *b);
bool dtpi_cpuset_within(const dtpi_cpuset *a, const dtpi_cpuset *b);

/* "0-3,8", blanks and a final newline allowed, "" is the empty set. FORMAT names the text. */
dtp_status dtpi_cpuset_parse(const char *text, dtpi_cpuset *out, dtp_error *err);

/* The list; a terminated text of the caller's allocator (dtpi_text_free), NULL without memory. */
char *dtpi_cpuset_format(const dtpi_cpuset *s, const dtp_allocator *a);

#endif /* DTPI_CPUSET_H */
