/* SPDX-License-Identifier: Apache-2.0 */
/* ctx.c - opens and closes a context, and its clock. The loop is loop.c. */
#include "ctx/internal.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int64_t dtpi_monotonic_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * DTPI_NS_PER_S + ts.tv_nsec;
}

int64_t dtp_ctx_now_ns(const dtp_ctx *ctx)
{
    if (ctx->clock == DTP_CLOCK_VIRTUAL)
        return atomic_load_explicit(&ctx->virtual_ns, memory_order_relaxed);
    return dtpi_monotonic_ns();
}

dtp_status dtp_ctx_advance(dtp_ctx *ctx, int64_t ns, dtp_error *err)
{
    if (ctx->clock != DTP_CLOCK_VIRTUAL)
        return dtpi_fail(err, DTP_ERR_INVAL, "only a virtual clock can be advanced");
    if (ns < 0)
        return dtpi_fail(err, DTP_ERR_INVAL, "a clock does not go back (%lld ns)", (long long)ns);
    dtp_status st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return st;
    int64_t at;
    if (__builtin_add_overflow(dtp_ctx_now_ns(ctx), ns, &at)) {
        st = dtpi_fail(err, DTP_ERR_INVAL, "the clock ends before %lld ns more", (long long)ns);
    } else {
        atomic_store_explicit(&ctx->virtual_ns, at, memory_order_relaxed);
        dtpi_ctx_rearm(ctx);
    }
    dtpi_ctx_leave(ctx);
    return st;
}

int64_t dtpi_ctx_deadline(const dtp_ctx *ctx, int timeout_ms, int default_ms)
{
    const int ms = timeout_ms == 0 ? default_ms : timeout_ms;

    return ms < 0 ? INT64_MAX : dtp_ctx_now_ns(ctx) + ms * DTPI_NS_PER_MS;
}

const dtp_allocator *dtpi_ctx_alloc(const dtp_ctx *ctx)
{
    return &ctx->a;
}

const dtpi_log *dtpi_ctx_log(const dtp_ctx *ctx)
{
    return &ctx->log;
}

void *dtpi_ctx_slot(const dtp_ctx *ctx, dtpi_slot slot)
{
    return ctx->slots[slot].value;
}

void dtpi_ctx_set_slot(dtp_ctx *ctx, dtpi_slot slot, void *value,
                       void (*close)(dtp_ctx *ctx, void *value))
{
    assert(value && !ctx->slots[slot].value);
    ctx->slots[slot].value = value;
    ctx->slots[slot].close = close;
    ctx->slot_order[ctx->n_slots++] = slot;
}

static void close_slot(dtp_ctx *ctx, dtpi_slot slot)
{
    void *value = ctx->slots[slot].value;

    ctx->slots[slot].value = NULL;
    if (value)
        ctx->slots[slot].close(ctx, value);
}

static void close_slots(dtp_ctx *ctx)
{
    while (ctx->n_slots > 0)
        close_slot(ctx, ctx->slot_order[--ctx->n_slots]);
}

int dtp_ctx_fd(const dtp_ctx *ctx)
{
    return ctx->epoll_fd;
}

bool dtpi_ctx_interrupted(dtp_ctx *ctx)
{
    return ctx->interrupted && ctx->interrupted(ctx->interrupted_user);
}

static dtp_status check_opts(const dtp_ctx_opts *o, dtp_error *err)
{
    if (o->allocator && (!o->allocator->alloc || !o->allocator->free))
        return dtpi_fail(err, DTP_ERR_INVAL, "an allocator needs both alloc and free");
    if (o->clock != DTP_CLOCK_REAL && o->clock != DTP_CLOCK_VIRTUAL)
        return dtpi_fail(err, DTP_ERR_INVAL, "unknown clock %d", (int)o->clock);
    if (o->busy != DTP_BUSY_FAIL && o->busy != DTP_BUSY_WAIT)
        return dtpi_fail(err, DTP_ERR_INVAL, "unknown busy mode %d", (int)o->busy);
    if (o->n_pool_threads > 256)
        return dtpi_fail(err, DTP_ERR_INVAL, "%u pool threads are more than 256", o->n_pool_threads);
    return DTP_OK;
}

static void ctx_init(dtp_ctx *ctx, const dtp_ctx_opts *o, const dtp_allocator *a)
{
    ctx->a = *a;
    ctx->log = (dtpi_log){ o->log, o->log_user, o->log_level ? o->log_level : DTP_LOG_WARN };
    ctx->clock = o->clock;
    ctx->busy = o->busy;
    ctx->interrupted = o->interrupted;
    ctx->interrupted_user = o->interrupted_user;
    ctx->pid = getpid();
    ctx->epoll_fd = ctx->event_fd = ctx->timer_fd = -1;
    ctx->post_tail = &ctx->post_head;
    ctx->deferred_tail = &ctx->deferred_head;
    pthread_mutex_init(&ctx->post_mutex, NULL);
}

dtp_status dtp_ctx_open(const dtp_ctx_opts *user, dtp_ctx **ctx_out, dtp_error *err)
{
    dtp_ctx_opts o;

    dtp_status st = DTPI_OPTS_READ(&o, user, err);
    if (st < 0)
        return st;
    st = check_opts(&o, err);
    if (st < 0)
        return st;
    const dtp_allocator *a = o.allocator ? o.allocator : &dtpi_malloc_allocator;
    dtp_ctx *ctx = dtpi_alloc(a, sizeof(*ctx));
    if (!ctx)
        return dtpi_fail_nomem(err, sizeof(*ctx));
    ctx_init(ctx, &o, a);
    st = dtpi_pool_open(ctx, o.n_pool_threads, err);
    if (st >= 0)
        st = dtpi_lock_open(ctx, err);
    if (st >= 0)
        st = dtpi_loop_open(ctx, err);
    if (st >= 0 && o.module_dir) {
        ctx->module_dir = dtpi_text_dup(a, o.module_dir);
        if (!ctx->module_dir)
            st = dtpi_fail_nomem(err, strlen(o.module_dir));
    }
    if (st < 0) {
        dtp_ctx_close(ctx);
        return st;
    }
    *ctx_out = ctx;
    return DTP_OK;
}

/* Work that ends, cancels and news on their way hold memory: let them arrive. */
static void settle(dtp_ctx *ctx)
{
    /* Its threads use the pool and the loop. */
    close_slot(ctx, DTPI_SLOT_CKPT);
    dtpi_pool_stop(ctx);
    dtpi_loop_post_deferred(ctx);
    while (dtpi_loop_run_posted(ctx))
        continue;
    close_slots(ctx);
    while (dtpi_loop_run_posted(ctx))
        continue;
    if (ctx->sources)
        DTPI_LOG(ctx, DTP_LOG_ERROR, "ctx", "closed before what was opened on it");
}

void dtp_ctx_close(dtp_ctx *ctx)
{
    if (!ctx)
        return;
    /* A helper may be inside. */
    const bool entered = dtpi_ctx_alive(ctx) && dtpi_ctx_enter(ctx, NULL) >= 0;
    ctx->closing = true;
    /* A forked child has no workers, and may have inherited held mutexes. */
    if (dtpi_ctx_alive(ctx))
        settle(ctx);
    else
        close_slots(ctx);
    if (entered)
        dtpi_ctx_leave(ctx);
    dtpi_loop_close(ctx);
    dtpi_pool_free(ctx);
    dtpi_lock_close(ctx);
    dtpi_text_free(&ctx->a, ctx->module_dir);
    const dtp_allocator a = ctx->a;
    dtpi_free(&a, ctx, sizeof(*ctx));
}
