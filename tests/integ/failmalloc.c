/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failmalloc.c - preloaded into a test: fails the Nth allocation of the whole process, libraries
 * included, and counts the blocks that are alive. Built on glibc's own names, so that it needs no
 * dlsym.
 */
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "failat.h"
#include "failmalloc.h"

#define EXPORT __attribute__((visibility("default")))

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *p, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern void __libc_free(void *p);

static _Atomic long left = -1; /* allocations until one fails; negative: none will */
static _Atomic long n_alive;
static _Atomic int has_failed;

EXPORT void failmalloc_arm(long nth)
{
    atomic_store(&has_failed, 0);
    atomic_store(&left, nth);
}

EXPORT int failmalloc_disarm(void)
{
    atomic_store(&left, -1);
    return atomic_load(&has_failed);
}

EXPORT long failmalloc_alive(void)
{
    return atomic_load(&n_alive);
}

__attribute__((constructor)) static void arm_from_env(void)
{
    const long nth = failat_nth("allocation");

    if (nth > 0)
        failmalloc_arm(nth);
}

static int fails(void)
{
    if (atomic_load_explicit(&left, memory_order_relaxed) < 0 || atomic_fetch_sub(&left, 1) != 1)
        return 0;
    atomic_store(&left, -1);
    atomic_store(&has_failed, 1);
    failat_say("allocation", ENOMEM);
    errno = ENOMEM;
    return 1;
}

static void *counted(void *p)
{
    if (p)
        atomic_fetch_add(&n_alive, 1);
    return p;
}

EXPORT void *malloc(size_t bytes)
{
    return fails() ? NULL : counted(__libc_malloc(bytes));
}

EXPORT void *calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : counted(__libc_calloc(n, bytes));
}

EXPORT void *realloc(void *p, size_t bytes)
{
    if (fails())
        return NULL;
    void *q = __libc_realloc(p, bytes);
    if (!p)
        return counted(q);
    if (!q && bytes == 0)
        atomic_fetch_sub(&n_alive, 1);
    return q;
}

EXPORT void *memalign(size_t align, size_t bytes)
{
    return fails() ? NULL : counted(__libc_memalign(align, bytes));
}

EXPORT void *aligned_alloc(size_t align, size_t bytes)
{
    return memalign(align, bytes);
}

EXPORT int posix_memalign(void **p, size_t align, size_t bytes)
{
    void *q = memalign(align, bytes);

    if (!q)
        return ENOMEM;
    *p = q;
    return 0;
}

EXPORT void free(void *p)
{
    if (p)
        atomic_fetch_sub(&n_alive, 1);
    __libc_free(p);
}
