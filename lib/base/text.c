/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - strict numbers from text, and sets of ranks as text. */
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool dtpi_parse_i64(const char *text, int64_t min, int64_t max, int64_t *out)
{
    char *end;

    if (!text || (*text != '-' && !isdigit((unsigned char)*text)))
        return false;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < min || v > max)
        return false;
    *out = v;
    return true;
}

bool dtpi_parse_bytes(const char *text, uint64_t *out)
{
    char *end;
    uint64_t unit = 1;

    if (!text || !isdigit((unsigned char)*text))
        return false;
    errno = 0;
    const unsigned long long v = strtoull(text, &end, 10);
    if (errno)
        return false;
    switch (toupper((unsigned char)*end)) {
    case 'K':
        unit = 1ull << 10;
        end++;
        break;
    case 'M':
        unit = 1ull << 20;
        end++;
        break;
    case 'G':
        unit = 1ull << 30;
        end++;
        break;
    default:
        break;
    }
    if (*end || __builtin_mul_overflow((uint64_t)v, unit, out))
        return false;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool dtpi_parse_hex(const char *text, uint8_t *out, size_t bytes)
{
    if (!text || strlen(text) != 2 * bytes)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        const int hi = hex_digit(text[2 * i]), lo = hex_digit(text[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    return true;
}

void dtpi_format_hex(const uint8_t *data, size_t bytes, char *text_out)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < bytes; i++) {
        text_out[2 * i] = digits[data[i] >> 4];
        text_out[2 * i + 1] = digits[data[i] & 15];
    }
    text_out[2 * bytes] = '\0';
}

/* Room to keep for "... and 4294967295 more" behind a range. */
enum { MORE_ROOM = 32 };

void dtpi_format_ranks(const int32_t *ranks, size_t n, char *text_out, size_t room)
{
    size_t at = 0;

    assert(room > MORE_ROOM);
    text_out[0] = '\0';
    for (size_t i = 0; i < n;) {
        size_t last = i;
        char one[32];

        while (last + 1 < n && (int64_t)ranks[last + 1] == (int64_t)ranks[last] + 1)
            last++;
        int len = snprintf(one, sizeof(one), "%s%" PRId32, i ? ", " : "", ranks[i]);
        if (last > i)
            len += snprintf(one + len, sizeof(one) - (size_t)len, "-%" PRId32, ranks[last]);
        const bool is_end = last + 1 == n;
        if (at + (size_t)len + (is_end ? 1 : MORE_ROOM) > room) {
            snprintf(text_out + at, room - at, "%s... and %zu more", i ? ", " : "", n - i);
            return;
        }
        memcpy(text_out + at, one, (size_t)len + 1);
        at += (size_t)len;
        i = last + 1;
    }
}

/* Bytes of the sequence that starts with `c`, 0 for an illegal start. */
static size_t utf8_len(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return 2;
    if (c >= 0xe0 && c <= 0xef)
        return 3;
    if (c >= 0xf0 && c <= 0xf4)
        return 4;
    return 0;
}

/*
 * Bytes of the valid sequence at `p`, 0 where there is none.
 * Source: RFC 3629 section 4 (no overlong forms, no surrogates, nothing above U+10FFFF).
 */
static size_t utf8_sequence(const unsigned char *p, size_t left)
{
    const size_t len = utf8_len(p[0]);

    if (len == 0 || len > left || p[0] == 0)
        return 0;
    for (size_t k = 1; k < len; k++)
        if ((p[k] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

bool dtpi_utf8_ok(const char *text, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)text;

    for (size_t i = 0; i < bytes;) {
        const size_t len = utf8_sequence(p + i, bytes - i);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

void dtpi_text_flatten(char *text)
{
    unsigned char *p = (unsigned char *)text;
    size_t left = strlen(text);

    while (left > 0) {
        size_t len = utf8_sequence(p, left);

        if (len == 0) {
            *p = '?';
            len = 1;
        } else if (*p < 0x20 || *p == 0x7f) {
            *p = ' ';
        }
        p += len;
        left -= len;
    }
}

/* Not isalnum: what a letter is must not depend on the host's locale. */
static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

bool dtpi_name_ok(const char *name, size_t max)
{
    size_t n = 0;

    if (!name || *name == '.' || *name == '-')
        return false;
    for (; name[n]; n++)
        if (n == max || !name_char(name[n]))
            return false;
    return n > 0;
}
