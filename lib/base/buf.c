/* SPDX-License-Identifier: Apache-2.0 */
/* buf.c - a byte buffer that grows by doubling, or at once to what is asked for. */
#include "base/buf.h"

#include <stdio.h>

void dtpi_buf_free(dtpi_buf *b)
{
    if (b->data)
        dtpi_free(b->a, b->data, b->cap);
    b->data = NULL;
    b->len = b->cap = 0;
}

static bool buf_grow(dtpi_buf *b, size_t need)
{
    size_t cap;

    if (!dtpi_mul(b->cap ? b->cap : 128, 2, &cap))
        return false;
    cap = DTPI_MAX(cap, need);
    uint8_t *data = dtpi_alloc_aligned(b->a, cap, 16);
    if (!data)
        return false;
    if (b->data) {
        memcpy(data, b->data, b->len);
        dtpi_free(b->a, b->data, b->cap);
    }
    b->data = data;
    b->cap = cap;
    return true;
}

uint8_t *dtpi_buf_reserve(dtpi_buf *b, size_t bytes)
{
    size_t need;

    if (b->failed)
        return NULL;
    if (!dtpi_add(b->len, bytes, &need) || ((need > b->cap || !b->data) && !buf_grow(b, need))) {
        b->failed = true;
        return NULL;
    }
    return b->data + b->len;
}

bool dtpi_buf_append(dtpi_buf *b, const void *data, size_t bytes)
{
    uint8_t *p = dtpi_buf_reserve(b, bytes);

    if (!p)
        return false;
    if (bytes)
        memcpy(p, data, bytes);
    b->len += bytes;
    return true;
}

bool dtpi_buf_printf(dtpi_buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : (char *)dtpi_buf_reserve(b, (size_t)n + 1);
    if (!p) {
        b->failed = true;
        return false;
    }
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return true;
}

void dtpi_buf_consume(dtpi_buf *b, size_t bytes)
{
    assert(bytes <= b->len);
    b->len -= bytes;
    if (b->len)
        memmove(b->data, b->data + bytes, b->len);
}

const char *dtpi_buf_text(dtpi_buf *b)
{
    uint8_t *p = dtpi_buf_reserve(b, 1);

    if (!p)
        return NULL;
    *p = 0;
    return (const char *)b->data;
}
