/* SPDX-License-Identifier: Apache-2.0 */
/* base64.c - the alphabet of RFC 4648 section 4; unused bits must be zero, so that a value has one text. */
#include "ckpt/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void dtpi_base64_put(dtpi_buf *out, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    char *q = (char *)dtpi_buf_reserve(out, (bytes + 2) / 3 * 4);

    if (!q)
        return;
    for (size_t i = 0; i < bytes; i += 3) {
        const size_t n = DTPI_MIN(bytes - i, (size_t)3);
        const uint32_t v = (uint32_t)p[i] << 16 | (n > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                           (n > 2 ? p[i + 2] : 0);
        *q++ = alphabet[v >> 18];
        *q++ = alphabet[v >> 12 & 63];
        *q++ = n > 1 ? alphabet[v >> 6 & 63] : '=';
        *q++ = n > 2 ? alphabet[v & 63] : '=';
    }
    out->len += (bytes + 2) / 3 * 4;
}

static int digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Four characters to `n` bytes at `q`. */
static bool get_group(const char *t, size_t n, uint8_t *q)
{
    uint32_t v = 0;

    for (size_t i = 0; i < 4; i++) {
        const int d = i <= n ? digit(t[i]) : t[i] == '=' ? 0 : -1;
        if (d < 0)
            return false;
        v = v << 6 | (uint32_t)d;
    }
    if (v & (0xffffffu >> (8 * n)) & 0xffffffu)
        return false;
    for (size_t i = 0; i < n; i++)
        q[i] = (uint8_t)(v >> (16 - 8 * i));
    return true;
}

bool dtpi_base64_get(dtpi_buf *out, const char *text, size_t chars, size_t *bytes_out)
{
    if (chars % 4)
        return false;
    uint8_t *q = dtpi_buf_reserve(out, chars / 4 * 3);
    if (!q && chars)
        return false;
    size_t bytes = 0;
    for (size_t i = 0; i < chars; i += 4) {
        const bool last = i + 4 == chars;
        const size_t n = last && text[i + 3] == '=' ? (text[i + 2] == '=' ? 1 : 2) : 3;
        if (!get_group(text + i, n, q + bytes))
            return false;
        bytes += n;
    }
    out->len += bytes;
    *bytes_out = bytes;
    return true;
}
