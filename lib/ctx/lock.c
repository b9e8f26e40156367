/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock.c - one thread at a time in a context, and knowing a forked child without a system call.
 *
 * The lock is a word: 0 free, 1 held, 2 held and wanted. A page that the kernel wipes in a forked
 * child tells parent and child apart.
 */
#include "ctx/internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096 };

dtp_status dtpi_lock_open(dtp_ctx *ctx, dtp_error *err)
{
    _Atomic uint32_t *mark = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (mark == MAP_FAILED)
        return dtpi_fail(err, DTP_ERR_NOMEM, "cannot map a page: %m");
    if (madvise(mark, PAGE_BYTES, MADV_WIPEONFORK) == 0) {
        atomic_store(mark, 1);
        ctx->fork_mark = mark;
    } else {
        munmap(mark, PAGE_BYTES);
    }
    return DTP_OK;
}

void dtpi_lock_close(dtp_ctx *ctx)
{
    if (ctx->fork_mark)
        munmap((void *)(uintptr_t)ctx->fork_mark, PAGE_BYTES);
    ctx->fork_mark = NULL;
}

bool dtpi_ctx_alive(const dtp_ctx *ctx)
{
    if (DTPI_LIKELY(ctx->fork_mark != NULL))
        return atomic_load_explicit(ctx->fork_mark, memory_order_relaxed) != 0;
    return getpid() == ctx->pid;
}

static void lock_wait(dtp_ctx *ctx)
{
    while (atomic_exchange_explicit(&ctx->lock, 2, memory_order_acquire) != 0)
        syscall(SYS_futex, &ctx->lock, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

dtp_status dtpi_ctx_enter(dtp_ctx *ctx, dtp_error *err)
{
    const uintptr_t self = (uintptr_t)pthread_self();
    uint32_t free_word = 0;

    if (DTPI_UNLIKELY(!dtpi_ctx_alive(ctx)))
        return dtpi_fail(err, DTP_ERR_FORKED, "the context was opened by process %d, before a fork",
                         (int)ctx->pid);
    if (DTPI_LIKELY(atomic_compare_exchange_strong_explicit(
            &ctx->lock, &free_word, 1, memory_order_acquire, memory_order_relaxed))) {
        atomic_store_explicit(&ctx->owner, self, memory_order_relaxed);
        ctx->depth = 1;
        return DTP_OK;
    }
    if (atomic_load_explicit(&ctx->owner, memory_order_relaxed) == self) {
        ctx->depth++;
        return DTP_OK;
    }
    if (ctx->busy == DTP_BUSY_FAIL)
        return dtpi_fail(err, DTP_ERR_BUSY, "another thread is using this context");
    lock_wait(ctx);
    atomic_store_explicit(&ctx->owner, self, memory_order_relaxed);
    ctx->depth = 1;
    return DTP_OK;
}

void dtpi_ctx_leave(dtp_ctx *ctx)
{
    assert(ctx->depth > 0);
    if (ctx->depth > 1) {
        ctx->depth--;
        return;
    }
    if (DTPI_UNLIKELY(ctx->needs_arm))
        dtpi_loop_arm(ctx);
    ctx->depth = 0;
    atomic_store_explicit(&ctx->owner, 0, memory_order_relaxed);
    if (DTPI_UNLIKELY(atomic_exchange_explicit(&ctx->lock, 0, memory_order_release) == 2))
        syscall(SYS_futex, &ctx->lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
