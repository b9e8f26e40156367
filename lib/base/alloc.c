/* SPDX-License-Identifier: Apache-2.0 */
/* alloc.c - memory through the caller's allocator; sizes are passed back on free. */
#include "base/base.h"

#include <stdlib.h>

enum { SMALL_ALIGN = 16, LARGE_ALIGN = 64, LARGE_BYTES = 4096 };

static void *malloc_alloc(void *user, size_t bytes, size_t align)
{
    void *p = NULL;

    (void)user;
    if (align <= sizeof(void *) * 2)
        return malloc(bytes);
    if (posix_memalign(&p, align, bytes))
        return NULL;
    return p;
}

static void malloc_free(void *user, void *p, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(p);
}

const dtp_allocator dtpi_malloc_allocator = { malloc_alloc, malloc_free, NULL };

/* An allocator may answer NULL for nothing, which is no failure: never ask for nothing. */
static size_t at_least_one(size_t bytes)
{
    return bytes ? bytes : 1;
}

void *dtpi_alloc_aligned(const dtp_allocator *a, size_t bytes, size_t align)
{
    return a->alloc(a->user, at_least_one(bytes), align);
}

void *dtpi_alloc(const dtp_allocator *a, size_t bytes)
{
    void *p = dtpi_alloc_aligned(a, bytes, bytes >= LARGE_BYTES ? LARGE_ALIGN : SMALL_ALIGN);

    if (p)
        memset(p, 0, bytes);
    return p;
}

void dtpi_free(const dtp_allocator *a, void *p, size_t bytes)
{
    if (p)
        a->free(a->user, p, at_least_one(bytes));
}

void *dtpi_alloc_array(const dtp_allocator *a, size_t n, size_t bytes)
{
    size_t total;

    if (!dtpi_mul(n, bytes, &total))
        return NULL;
    return dtpi_alloc(a, total);
}

char *dtpi_text_ndup(const dtp_allocator *a, const char *text, size_t bytes)
{
    size_t total;

    if (!dtpi_add(bytes, sizeof(size_t) + 1, &total))
        return NULL;
    char *p = a->alloc(a->user, total, sizeof(size_t));
    if (!p)
        return NULL;
    memcpy(p, &total, sizeof(total));
    if (bytes)
        memcpy(p + sizeof(size_t), text, bytes);
    p[sizeof(size_t) + bytes] = '\0';
    return p + sizeof(size_t);
}

char *dtpi_text_dup(const dtp_allocator *a, const char *text)
{
    return text ? dtpi_text_ndup(a, text, strlen(text)) : NULL;
}

void dtpi_text_free(const dtp_allocator *a, char *text)
{
    size_t total;

    if (!text)
        return;
    memcpy(&total, text - sizeof(size_t), sizeof(total));
    a->free(a->user, text - sizeof(size_t), total);
}
