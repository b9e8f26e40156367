/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock.c - one thread at a time in a context, and knowing a forked child without a system call.
 *
 * The lock is a word: 0 free, 1 held, 2 held and wanted, 3 held by a helper (help.c). A page that the kernel wipes in a forked
 * child tells parent and child apart. Who waits inside for something that another thread's turn can
 * bring as well lends the lock meanwhile: to new callers at once, and when something happened to each of
 * the others that wait inside (they rest), which then see whether it was for them.
 */
#include "ctx/internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, REST_MS = 50, HANDOVER_MS = 2, HELPED = 3 };

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

/* False when `ns` (negative: for ever) passed first. */
static bool futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t ns)
{
    const struct timespec ts = { ns / DTPI_NS_PER_S, ns % DTPI_NS_PER_S };

    return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ns < 0 ? NULL : &ts, NULL, 0) == 0 ||
           errno != ETIMEDOUT;
}

static void become_owner(dtp_ctx *ctx)
{
    atomic_store_explicit(&ctx->owner, (uintptr_t)pthread_self(), memory_order_relaxed);
    ctx->depth = 1;
    atomic_fetch_add(&ctx->turns, 1);
    if (atomic_load(&ctx->n_resting))
        syscall(SYS_futex, &ctx->turns, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static bool lock_wait(dtp_ctx *ctx, int64_t ns)
{
    while (atomic_exchange_explicit(&ctx->lock, 2, memory_order_acquire) != 0)
        if (!futex_wait(&ctx->lock, 2, ns))
            return false;
    become_owner(ctx);
    return true;
}

/* Waits as one whom the holder, if it lends, lets in at once. What it does may be news for others. */
static void lock_want(dtp_ctx *ctx)
{
    atomic_fetch_add(&ctx->n_wanting, 1);
    if (atomic_load(&ctx->is_lending))
        dtpi_loop_signal(ctx);
    lock_wait(ctx, -1);
    atomic_fetch_sub(&ctx->n_wanting, 1);
}

void dtpi_lock_set_lending(dtp_ctx *ctx, bool lends)
{
    atomic_store(&ctx->is_lending, lends);
}

void dtpi_lock_news(dtp_ctx *ctx)
{
    ctx->n_stale = atomic_load(&ctx->n_resting);
}

bool dtpi_lock_is_wanted(const dtp_ctx *ctx)
{
    return atomic_load(&ctx->n_wanting) > 0 || ctx->n_stale > 0;
}

/* After REST_MS it looks for itself: nobody promises in which order the kernel wakes. */
void dtpi_lock_lend(dtp_ctx *ctx, int64_t deadline_ns)
{
    const int64_t left = DTPI_MAX(deadline_ns - dtp_ctx_now_ns(ctx), 0);
    const uint32_t turn = atomic_load(&ctx->turns);

    atomic_fetch_add(&ctx->n_resting, 1);
    dtpi_ctx_leave(ctx);
    futex_wait(&ctx->turns, turn, HANDOVER_MS * DTPI_NS_PER_MS);
    if (!lock_wait(ctx, DTPI_MIN(left, REST_MS * DTPI_NS_PER_MS)))
        lock_want(ctx);
    atomic_fetch_sub(&ctx->n_resting, 1);
    if (ctx->n_stale)
        ctx->n_stale--;
}

bool dtpi_lock_try_help(dtp_ctx *ctx)
{
    uint32_t free_word = 0;

    if (atomic_load(&ctx->n_wanting) || atomic_load(&ctx->n_forbid_help) ||
        !atomic_compare_exchange_strong_explicit(&ctx->lock, &free_word, HELPED,
                                                 memory_order_acquire, memory_order_relaxed))
        return false;
    become_owner(ctx);
    return true;
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
    if (free_word != HELPED &&
        atomic_load_explicit(&ctx->busy, memory_order_relaxed) == DTP_BUSY_FAIL)
        return dtpi_fail(err, DTP_ERR_BUSY, "another thread is using this context");
    lock_want(ctx);
    dtpi_lock_news(ctx);
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

dtp_status dtp_ctx_set_busy(dtp_ctx *ctx, dtp_busy busy, dtp_error *err)
{
    if (busy != DTP_BUSY_FAIL && busy != DTP_BUSY_WAIT)
        return dtpi_fail(err, DTP_ERR_INVAL, "unknown busy mode %d", (int)busy);
    atomic_store_explicit(&ctx->busy, busy, memory_order_relaxed);
    return DTP_OK;
}
