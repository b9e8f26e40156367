/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.c - a thread of the library's own that waits for the loop, and moves it where nobody else does.
 *
 * Whoever is in the context comes first: a helper lends the lock at once, to a caller who would not wait
 * for a second thread, too. Turns that a helper runs call no function of the user; those news wait for the
 * next turn of a caller. While a caller has the context the helper looks every millisecond.
 */
#include "ctx/internal.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_NS = 1000 * 1000 };

static void rest(dtp_ctx *ctx, uint32_t news)
{
    const struct timespec ts = { .tv_nsec = LOOK_NS };

    syscall(SYS_futex, &ctx->help_news, FUTEX_WAIT_PRIVATE, news, &ts, NULL, 0);
}

/* Turns of the loop until `done`, or until somebody wants in. The lock is held. */
static void turns(dtp_ctx *ctx, bool (*done)(void *user), void *user)
{
    bool goes_on = true;

    ctx->is_helped = true;
    while (goes_on && !done(user)) {
        bool ran = false;

        dtpi_lock_set_lending(ctx, true);
        if (!dtpi_lock_is_wanted(ctx))
            goes_on = dtpi_loop_turn(ctx, INT64_MAX, &ran, NULL) >= 0;
        dtpi_lock_set_lending(ctx, false);
        if (ran)
            dtpi_lock_news(ctx);
        goes_on = goes_on && !dtpi_lock_is_wanted(ctx);
    }
    ctx->is_helped = false;
    if (ctx->deferred_head)
        dtpi_loop_signal(ctx);
}

void dtpi_ctx_help(dtp_ctx *ctx, bool (*done)(void *user), void *user)
{
    atomic_fetch_add(&ctx->n_helpers, 1);
    for (;;) {
        const uint32_t news = atomic_load(&ctx->help_news);

        if (done(user))
            break;
        if (ctx->clock == DTP_CLOCK_REAL && dtpi_lock_try_help(ctx)) {
            turns(ctx, done, user);
            dtpi_ctx_leave(ctx);
        } else {
            rest(ctx, news);
        }
    }
    atomic_fetch_sub(&ctx->n_helpers, 1);
}

void dtpi_ctx_forbid_help(dtp_ctx *ctx, bool forbids)
{
    if (forbids)
        atomic_fetch_add(&ctx->n_forbid_help, 1);
    else
        atomic_fetch_sub(&ctx->n_forbid_help, 1);
}

void dtpi_ctx_help_news(dtp_ctx *ctx)
{
    atomic_fetch_add(&ctx->help_news, 1);
    if (atomic_load(&ctx->n_helpers))
        syscall(SYS_futex, &ctx->help_news, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void dtpi_ctx_help_turn(dtp_ctx *ctx)
{
    const bool was_helped = ctx->is_helped;
    bool ran;

    if (!atomic_load_explicit(&ctx->n_helpers, memory_order_relaxed) || ctx->dispatching)
        return;
    ctx->is_helped = true;
    dtpi_loop_turn(ctx, dtp_ctx_now_ns(ctx), &ran, NULL);
    ctx->is_helped = was_helped;
    if (ctx->deferred_head && !was_helped)
        dtpi_loop_signal(ctx);
}

/* ---- news for the user ---- */

bool dtpi_loop_defer(dtp_ctx *ctx, dtpi_task *t)
{
    if (!ctx->is_helped)
        return false;
    t->next = NULL;
    *ctx->deferred_tail = t;
    ctx->deferred_tail = &t->next;
    return true;
}

void dtpi_loop_post_deferred(dtp_ctx *ctx)
{
    while (ctx->deferred_head) {
        dtpi_task *t = ctx->deferred_head;
        ctx->deferred_head = t->next;
        if (!ctx->deferred_head)
            ctx->deferred_tail = &ctx->deferred_head;
        dtpi_post(ctx, t);
    }
}
