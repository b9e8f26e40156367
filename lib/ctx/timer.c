/* SPDX-License-Identifier: Apache-2.0 */
/* timer.c - a binary heap of timers; the same for the real and the virtual clock. */
#include "ctx/internal.h"

static bool is_before(const dtpi_timer *a, const dtpi_timer *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->turn < b->turn);
}

static void heap_put(dtp_ctx *ctx, uint32_t slot, dtpi_timer *t)
{
    ctx->heap[slot] = t;
    t->slot = slot;
}

static void heap_up(dtp_ctx *ctx, uint32_t slot)
{
    dtpi_timer *t = ctx->heap[slot];

    for (; slot > 1 && is_before(t, ctx->heap[slot / 2]); slot /= 2)
        heap_put(ctx, slot, ctx->heap[slot / 2]);
    heap_put(ctx, slot, t);
}

static void heap_down(dtp_ctx *ctx, uint32_t slot)
{
    dtpi_timer *t = ctx->heap[slot];

    for (uint32_t child = slot * 2; child <= ctx->n_heap; child = slot * 2) {
        if (child < ctx->n_heap && is_before(ctx->heap[child + 1], ctx->heap[child]))
            child++;
        if (!is_before(ctx->heap[child], t))
            break;
        heap_put(ctx, slot, ctx->heap[child]);
        slot = child;
    }
    heap_put(ctx, slot, t);
}

static bool heap_grow(dtp_ctx *ctx)
{
    const uint32_t cap = ctx->cap_heap ? ctx->cap_heap * 2 : 16;
    dtpi_timer **heap = dtpi_alloc_array(&ctx->a, cap, sizeof(*heap));

    if (!heap)
        return false;
    if (ctx->heap) {
        memcpy(heap, ctx->heap, ctx->cap_heap * sizeof(*heap));
        dtpi_free(&ctx->a, ctx->heap, ctx->cap_heap * sizeof(*heap));
    }
    ctx->heap = heap;
    ctx->cap_heap = cap;
    return true;
}

dtp_status dtpi_timer_set(dtp_ctx *ctx, dtpi_timer *t, int64_t at_ns, dtp_error *err)
{
    dtpi_timer_clear(ctx, t);
    if (ctx->n_heap + 1 >= ctx->cap_heap && !heap_grow(ctx))
        return dtpi_fail_nomem(err, 0);
    t->at_ns = at_ns;
    t->turn = ctx->timer_turn++;
    heap_put(ctx, ++ctx->n_heap, t);
    heap_up(ctx, t->slot);
    if (t->slot == 1)
        dtpi_ctx_rearm(ctx);
    return DTP_OK;
}

void dtpi_timer_clear(dtp_ctx *ctx, dtpi_timer *t)
{
    const uint32_t slot = t->slot;

    if (!slot)
        return;
    assert(ctx->heap[slot] == t);
    dtpi_timer *last = ctx->heap[ctx->n_heap--];
    t->slot = 0;
    if (last == t)
        return;
    heap_put(ctx, slot, last);
    heap_up(ctx, slot);
    heap_down(ctx, last->slot);
}

int64_t dtpi_timers_next(const dtp_ctx *ctx)
{
    return ctx->n_heap ? ctx->heap[1]->at_ns : INT64_MAX;
}

bool dtpi_timers_run(dtp_ctx *ctx)
{
    const int64_t now = dtp_ctx_now_ns(ctx);
    bool ran = false;

    /* A timer that sets itself again at or before `now` waits for the next turn: bounded by count. */
    for (uint32_t budget = ctx->n_heap; budget > 0 && dtpi_timers_next(ctx) <= now; budget--) {
        dtpi_timer *t = ctx->heap[1];
        dtpi_timer_clear(ctx, t);
        t->due(t);
        ran = true;
    }
    return ran;
}

void dtpi_timers_free(dtp_ctx *ctx)
{
    dtpi_free(&ctx->a, ctx->heap, ctx->cap_heap * sizeof(*ctx->heap));
    ctx->heap = NULL;
    ctx->n_heap = ctx->cap_heap = 0;
}
