/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op.c - operations: pending now, ended later, once. References: the caller's handle, the owner that
 * will end it, and each task on its way to the loop.
 */
#include "ctx/internal.h"

struct dtp_op {
    dtp_ctx *ctx;
    const dtpi_op_ops *ops;
    void *owner;
    _Atomic int status;
    dtp_error error;
    _Atomic dtp_op_fn fn;
    void *fn_user;
    void (*on_end)(void *user, dtp_op *op);
    void *on_end_user;
    _Atomic uint32_t n_refs;
    _Atomic bool cancel_posted;
    _Atomic bool told;          /* fn was called or is on its way */
    dtpi_task cancel_task;
    dtpi_task tell_task;
};

static void op_unref(dtp_op *op)
{
    if (atomic_fetch_sub(&op->n_refs, 1) > 1)
        return;
    if (op->ops->destroy)
        op->ops->destroy(op);
    dtpi_free(dtpi_ctx_alloc(op->ctx), op, sizeof(*op));
}

dtp_status dtpi_op_new(dtp_ctx *ctx, const dtpi_op_ops *ops, void *owner, dtp_op **op_out,
                       dtp_error *err)
{
    dtp_op *op = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*op));

    if (!op)
        return dtpi_fail_nomem(err, sizeof(*op));
    op->ctx = ctx;
    op->ops = ops;
    op->owner = owner;
    atomic_init(&op->status, DTP_PENDING);
    atomic_init(&op->n_refs, 2);
    *op_out = op;
    return DTP_OK;
}

void *dtpi_op_owner(const dtp_op *op)
{
    return op->owner;
}

static void tell(dtpi_task *t)
{
    dtp_op *op = DTPI_CONTAINER(t, dtp_op, tell_task);

    if (dtpi_loop_defer(op->ctx, t))
        return;
    const dtp_op_fn fn = atomic_load(&op->fn);
    if (fn && !op->ctx->closing)
        fn(op->fn_user, op, atomic_load(&op->status));
    op_unref(op);
}

/* Callbacks run only inside dispatch, so the news travels as a task, once. */
static void post_tell(dtp_op *op)
{
    if (atomic_exchange(&op->told, true))
        return;
    atomic_fetch_add(&op->n_refs, 1);
    op->tell_task.run = tell;
    dtpi_post(op->ctx, &op->tell_task);
}

void dtpi_op_end(dtp_op *op, dtp_status status, const dtp_error *detail)
{
    assert(status != DTP_PENDING && atomic_load(&op->status) == DTP_PENDING);
    if (detail)
        op->error = *detail;
    else
        dtpi_fail(&op->error, status, "%s: %s", op->ops->name, dtp_status_text(status));
    /* The status before the function: who sets one meanwhile sees the other (dtp_op_on_done). */
    atomic_store(&op->status, status);
    if (atomic_load(&op->fn))
        post_tell(op);
    if (op->on_end)
        op->on_end(op->on_end_user, op);
    op_unref(op);
}

dtp_status dtp_op_status(const dtp_op *op, dtp_error *err)
{
    const dtp_status st = atomic_load_explicit(&op->status, memory_order_acquire);

    if (st < 0 && op->ops->told)
        op->ops->told(op);
    if (st < 0 && err)
        *err = op->error;
    return st;
}

void dtpi_op_on_end(dtp_op *op, void (*fn)(void *user, dtp_op *op), void *user)
{
    op->on_end = fn;
    op->on_end_user = user;
}

void dtp_op_on_done(dtp_op *op, dtp_op_fn fn, void *user)
{
    if (!dtpi_ctx_alive(op->ctx))
        return;
    op->fn_user = user;
    atomic_store(&op->fn, fn);
    if (fn && atomic_load(&op->status) != DTP_PENDING)
        post_tell(op);
}

static void run_cancel(dtpi_task *t)
{
    dtp_op *op = DTPI_CONTAINER(t, dtp_op, cancel_task);

    if (atomic_load(&op->status) == DTP_PENDING && op->ops->cancel)
        op->ops->cancel(op);
    op_unref(op);
}

void dtp_op_cancel(dtp_op *op)
{
    if (!dtpi_ctx_alive(op->ctx) || atomic_load(&op->status) != DTP_PENDING)
        return;
    if (atomic_exchange(&op->cancel_posted, true))
        return;
    atomic_fetch_add(&op->n_refs, 1);
    op->cancel_task.run = run_cancel;
    dtpi_post(op->ctx, &op->cancel_task);
}

static bool op_ended(void *user)
{
    const dtp_op *op = user;

    return atomic_load_explicit(&op->status, memory_order_acquire) != DTP_PENDING;
}

dtp_status dtp_op_wait(dtp_op *op, int timeout_ms, dtp_error *err)
{
    dtp_ctx *ctx = op->ctx;

    dtp_status st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return st;
    const int64_t deadline =
        timeout_ms < 0 ? INT64_MAX : dtp_ctx_now_ns(ctx) + timeout_ms * DTPI_NS_PER_MS;
    st = dtpi_ctx_wait(ctx, op_ended, op, deadline, err);
    if (st == DTP_ERR_TIMEOUT)
        dtpi_fail(err, st, "%s did not end within %d ms", op->ops->name, timeout_ms);
    if (st == DTP_OK)
        st = dtp_op_status(op, err);
    dtpi_ctx_leave(ctx);
    return st;
}

void dtp_op_free(dtp_op *op)
{
    if (!op)
        return;
    atomic_store(&op->fn, NULL);
    if (!op->ops->outlives_handle)
        dtp_op_cancel(op);
    op_unref(op);
}
