/* SPDX-License-Identifier: Apache-2.0 */
/* cpuset.c - sets of processors as bits, from and to lists such as "0-3,8". */
#include "base/cpuset.h"

#include <ctype.h>

#include "base/buf.h"

enum { WORDS = DTPI_CPUSET_MAX / 64 };

uint32_t dtpi_cpuset_count(const dtpi_cpuset *s)
{
    uint32_t n = 0;

    for (int i = 0; i < WORDS; i++)
        n += (uint32_t)__builtin_popcountll(s->bits[i]);
    return n;
}

int32_t dtpi_cpuset_next(const dtpi_cpuset *s, uint32_t from)
{
    for (uint32_t w = from / 64; w < WORDS; w++) {
        uint64_t word = s->bits[w];
        if (w == from / 64)
            word &= ~0ull << (from % 64);
        if (word)
            return (int32_t)(w * 64 + (uint32_t)__builtin_ctzll(word));
    }
    return -1;
}

void dtpi_cpuset_and(dtpi_cpuset *a, const dtpi_cpuset *b)
{
    for (int i = 0; i < WORDS; i++)
        a->bits[i] &= b->bits[i];
}

void dtpi_cpuset_or(dtpi_cpuset *a, const dtpi_cpuset *b)
{
    for (int i = 0; i < WORDS; i++)
        a->bits[i] |= b->bits[i];
}

void dtpi_cpuset_minus(dtpi_cpuset *a, const dtpi_cpuset *b)
{
    for (int i = 0; i < WORDS; i++)
        a->bits[i] &= ~b->bits[i];
}

bool dtpi_cpuset_intersects(const dtpi_cpuset *a, const dtpi_cpuset *b)
{
    for (int i = 0; i < WORDS; i++)
        if (a->bits[i] & b->bits[i])
            return true;
    return false;
}

bool dtpi_cpuset_within(const dtpi_cpuset *a, const dtpi_cpuset *b)
{
    for (int i = 0; i < WORDS; i++)
        if (a->bits[i] & ~b->bits[i])
            return false;
    return true;
}

static const char *skip_blanks(const char *p)
{
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

/* A number below DTPI_CPUSET_MAX; NULL when there is none. */
static const char *parse_cpu(const char *p, uint32_t *out)
{
    uint32_t v = 0;

    if (!isdigit((unsigned char)*p))
        return NULL;
    for (; isdigit((unsigned char)*p); p++) {
        v = v * 10 + (uint32_t)(*p - '0');
        if (v >= DTPI_CPUSET_MAX)
            return NULL;
    }
    *out = v;
    return p;
}

dtp_status dtpi_cpuset_parse(const char *text, dtpi_cpuset *out, dtp_error *err)
{
    dtpi_cpuset s = { { 0 } };
    const char *p = skip_blanks(text);

    while (*p) {
        uint32_t first, last;

        p = parse_cpu(p, &first);
        if (!p)
            goto malformed;
        last = first;
        if (*p == '-') {
            p = parse_cpu(p + 1, &last);
            if (!p || last < first)
                goto malformed;
        }
        for (uint32_t c = first; c <= last; c++)
            dtpi_cpuset_set(&s, c);
        p = skip_blanks(p);
        if (*p == ',') {
            p = skip_blanks(p + 1);
            if (!*p)
                goto malformed;
        } else if (*p) {
            goto malformed;
        }
    }
    *out = s;
    return DTP_OK;

malformed:
    return dtpi_fail(err, DTP_ERR_FORMAT, "list of processors '%.80s' is not of the form 0-3,8",
                     text);
}

char *dtpi_cpuset_format(const dtpi_cpuset *s, const dtp_allocator *a)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(a);

    for (int32_t first = dtpi_cpuset_next(s, 0); first >= 0;) {
        int32_t last = first;
        while (dtpi_cpuset_has(s, (uint32_t)last + 1))
            last++;
        dtpi_buf_printf(&b, "%s%d", b.len ? "," : "", first);
        if (last > first)
            dtpi_buf_printf(&b, "-%d", last);
        first = dtpi_cpuset_next(s, (uint32_t)last + 1);
    }
    const char *text = dtpi_buf_text(&b);
    return text ? dtpi_text_dup(a, text) : NULL;
}
