/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failalloc.h - an allocator that counts and fails the Nth allocation, to be tried for every N:
 *
 *     FOR_EACH_FAILURE(f) {
 *         dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
 *         o.allocator = failalloc_of(&f);
 *         if (failalloc_ok(&f, dtp_ctx_open(&o, &ctx, ERR)))
 *             dtp_ctx_close(ctx);
 *     }
 *
 * The body runs with the 1st, 2nd, .. allocation failing until one run needs no more; every run
 * must give back what it took, with the right sizes.
 */
#ifndef DTP_TESTS_FAILALLOC_H
#define DTP_TESTS_FAILALLOC_H

#include <pthread.h>
#include <stdbool.h>

#include "check.h"

typedef struct failalloc {
    dtp_allocator a;
    pthread_mutex_t mutex;
    unsigned long fail_at; /* 1-based; 0: never */
    unsigned long n_allocs;
    size_t bytes_open; /* not yet given back */
    bool has_failed;
    bool is_done;
} failalloc;

/* In front of each block: what the owner must say again. */
typedef struct failalloc_head {
    void *raw;
    size_t bytes;
} failalloc_head;

static inline void *failalloc_alloc(void *user, size_t bytes, size_t align)
{
    failalloc *f = user;

    pthread_mutex_lock(&f->mutex);
    const bool fails = ++f->n_allocs == f->fail_at;
    f->has_failed |= fails;
    if (!fails)
        f->bytes_open += bytes;
    pthread_mutex_unlock(&f->mutex);
    if (fails)
        return NULL;
    if (bytes == 0 || align == 0 || (align & (align - 1)))
        fail_msg("allocation of %zu bytes aligned to %zu", bytes, align);
    char *raw = malloc(bytes + align + sizeof(failalloc_head));
    assert_non_null(raw);
    uintptr_t at = (uintptr_t)raw + sizeof(failalloc_head);
    at = (at + align - 1) & ~((uintptr_t)align - 1);
    const failalloc_head head = { raw, bytes };
    memcpy((char *)at - sizeof(head), &head, sizeof(head));
    memset((char *)at, 0xa5, bytes);
    return (void *)at;
}

static inline void failalloc_free(void *user, void *p, size_t bytes)
{
    failalloc *f = user;
    failalloc_head head;

    memcpy(&head, (char *)p - sizeof(head), sizeof(head));
    if (head.bytes != bytes)
        fail_msg("a block of %zu bytes was given back as %zu", head.bytes, bytes);
    pthread_mutex_lock(&f->mutex);
    f->bytes_open -= bytes;
    pthread_mutex_unlock(&f->mutex);
    memset(p, 0x5a, bytes);
    free(head.raw);
}

static inline const dtp_allocator *failalloc_of(failalloc *f)
{
    f->a = (dtp_allocator){ failalloc_alloc, failalloc_free, f };
    return &f->a;
}

/* Between two runs: nothing may be open; the next one fails one allocation later. */
static inline bool failalloc_next(failalloc *f)
{
    if (f->fail_at > 0) {
        if (f->bytes_open)
            fail_msg("allocation %lu failed: %zu bytes were not given back", f->fail_at,
                     f->bytes_open);
        f->is_done = !f->has_failed;
    }
    f->fail_at++;
    f->n_allocs = 0;
    f->has_failed = false;
    return !f->is_done;
}

#define FOR_EACH_FAILURE(f)                                                                        \
    for (failalloc f = { .mutex = PTHREAD_MUTEX_INITIALIZER }; failalloc_next(&f);)

/* OK where nothing failed so far, NOMEM with a text where something did; true when OK. */
static inline bool failalloc_check(failalloc *f, dtp_status st, const char *expr)
{
    const dtp_status want = f->has_failed ? DTP_ERR_NOMEM : DTP_OK;

    if (st != want)
        fail_msg("%s with allocation %lu failing: expected %s, got %s: %s", expr, f->fail_at,
                 dtp_status_name(want), dtp_status_name(st), check_err.text);
    if (st < 0 && !check_err.text[0])
        fail_msg("%s: no error text", expr);
    return st >= 0;
}
#define failalloc_ok(f, expr) (memset(ERR, 0, sizeof(*ERR)), failalloc_check((f), (expr), #expr))

#endif /* DTP_TESTS_FAILALLOC_H */
