/* SPDX-License-Identifier: Apache-2.0 */
#include "failalloc.h"

#include <pthread.h>

#include "ctx/ctx.h"

/* An operation whose owner counts what happens to it. */
typedef struct owner {
    int n_canceled;
    int n_destroyed;
    bool ends_on_cancel;
    int n_told;
    dtp_status told;
    bool frees_when_told;
    dtp_status nested; /* what a blocking call from the callback got */
} owner;

static void cancel(dtp_op *op)
{
    owner *o = dtpi_op_owner(op);

    o->n_canceled++;
    if (o->ends_on_cancel)
        dtpi_op_end(op, DTP_ERR_CANCELED, NULL);
}

static void destroy(dtp_op *op)
{
    owner *o = dtpi_op_owner(op);

    o->n_destroyed++;
}

static const dtpi_op_ops ops = { .name = "save", .cancel = cancel, .destroy = destroy };

static dtp_ctx *ctx;

static int open_real(void **state)
{
    return dtp_ctx_open(NULL, &ctx, NULL);
}

static int close_ctx(void **state)
{
    dtp_ctx_close(ctx);
    ctx = NULL;
    return 0;
}

static void told(void *user, dtp_op *op, dtp_status status)
{
    owner *o = user;

    o->n_told++;
    o->told = status;
    o->nested = dtp_op_wait(op, -1, NULL);
    if (o->frees_when_told)
        dtp_op_free(op);
}

static void run_all(void)
{
    while (dtp_ctx_dispatch(ctx, 0, ERR) == DTP_OK)
        continue;
}

static void test_op_ends_once_and_tells_once(void **state)
{
    owner o = { 0 };
    dtp_op *op = NULL;

    assert_ok(dtpi_op_new(ctx, &ops, &o, &op, ERR));
    dtp_op_on_done(op, told, &o);
    assert_status(DTP_PENDING, dtp_op_status(op, ERR));
    dtpi_op_end(op, DTP_OK, NULL);
    assert_ok(dtp_op_status(op, ERR));
    assert_int_equal(o.n_told, 0);
    run_all();
    assert_int_equal(o.n_told, 1);
    run_all();
    assert_int_equal(o.n_told, 1);
    assert_int_equal(o.n_destroyed, 0);
    dtp_op_free(op);
    assert_int_equal(o.n_destroyed, 1);
    assert_int_equal(o.n_canceled, 0);
}

static void test_callback_set_late_is_told_at_the_next_dispatch(void **state)
{
    owner o = { .frees_when_told = true };
    dtp_op *op = NULL;

    assert_ok(dtpi_op_new(ctx, &ops, &o, &op, ERR));
    dtpi_op_end(op, DTP_ERR_NOSPC, NULL);
    dtp_op_on_done(op, told, &o);
    assert_int_equal(o.n_told, 0);
    run_all();
    assert_int_equal(o.told, DTP_ERR_NOSPC);
    assert_int_equal(o.n_destroyed, 1);
}

static void test_detail_reaches_the_waiter(void **state)
{
    owner o = { 0 };
    dtp_error detail;
    dtp_op *op = NULL;

    assert_ok(dtpi_op_new(ctx, &ops, &o, &op, ERR));
    dtpi_fail_rank(&detail, DTP_ERR_PEER, 3, "rank 3 died");
    dtpi_op_end(op, DTP_ERR_PEER, &detail);
    assert_status(DTP_ERR_PEER, dtp_op_wait(op, -1, ERR));
    assert_text("rank 3 died");
    assert_int_equal(ERR->rank, 3);
    dtp_op_free(op);
    assert_ok(dtpi_op_new(ctx, &ops, &o, &op, ERR));
    dtpi_op_end(op, DTP_ERR_NOSPC, NULL);
    assert_status(DTP_ERR_NOSPC, dtp_op_status(op, ERR));
    assert_text("save: no space left");
    dtp_op_free(op);
}

static void test_waiting_too_short_leaves_it_running(void **state)
{
    owner o = { 0 };
    dtp_op *op = NULL;

    assert_ok(dtpi_op_new(ctx, &ops, &o, &op, ERR));
    assert_status(DTP_ERR_TIMEOUT, dtp_op_wait(op, 0, ERR));
    assert_status(DTP_ERR_TIMEOUT, dtp_op_wait(op, 2, ERR));
    assert_text("save did not end within 2 ms");
    assert_status(DTP_PENDING, dtp_op_status(op, ERR));
    dtpi_op_end(op, DTP_OK, NULL);
    assert_ok(dtp_op_wait(op, 0, ERR));
    dtp_op_free(op);
}

typedef struct ender {
    dtpi_task task;
    dtp_op *op;
} ender;

static void end_op(dtpi_task *t)
{
    dtpi_op_end(DTPI_CONTAINER(t, ender, task)->op, DTP_OK, NULL);
}

static void test_waiting_zero_looks_once(void **state)
{
    owner o = { 0 };
    dtp_op *op = NULL;

    assert_ok(dtpi_op_new(ctx, &ops, &o, &op, ERR));
    ender e = { .task = { .run = end_op }, .op = op };
    dtpi_post(ctx, &e.task);
    assert_ok(dtp_op_wait(op, 0, ERR));
    dtp_op_free(op);
}

static void test_blocking_inside_a_callback_is_refused(void **state)
{
    owner first = { 0 }, second = { 0 };
    dtp_op *a = NULL, *b = NULL;

    assert_ok(dtpi_op_new(ctx, &ops, &first, &a, ERR));
    assert_ok(dtpi_op_new(ctx, &ops, &second, &b, ERR));
    dtp_op_on_done(a, told, &first);
    dtpi_op_end(a, DTP_OK, NULL);
    run_all();
    assert_int_equal(first.nested, DTP_OK); /* it had ended: nothing to wait for */
    dtpi_op_end(b, DTP_OK, NULL);
    dtp_op_free(a);
    dtp_op_free(b);
}

static void wait_for_other(void *user, dtp_op *op, dtp_status status)
{
    *(dtp_status *)user = dtp_ctx_dispatch(ctx, -1, NULL);
}

static void test_dispatch_inside_a_callback_is_busy(void **state)
{
    owner o = { 0 };
    dtp_status nested = DTP_OK;
    dtp_op *op = NULL;

    assert_ok(dtpi_op_new(ctx, &ops, &o, &op, ERR));
    dtp_op_on_done(op, wait_for_other, &nested);
    dtpi_op_end(op, DTP_OK, NULL);
    run_all();
    assert_int_equal(nested, DTP_ERR_BUSY);
    dtp_op_free(op);
}

static void test_freed_op_is_cancelled_and_tells_nobody(void **state)
{
    owner o = { .ends_on_cancel = true };
    dtp_op *op = NULL;

    assert_ok(dtpi_op_new(ctx, &ops, &o, &op, ERR));
    dtp_op_on_done(op, told, &o);
    dtp_op_free(op);
    assert_int_equal(o.n_destroyed, 0);
    run_all();
    assert_int_equal(o.n_canceled, 1);
    assert_int_equal(o.n_destroyed, 1);
    assert_int_equal(o.n_told, 0);
    dtp_op_free(NULL);
}

static void test_op_that_ends_before_its_cancel_arrives(void **state)
{
    owner o = { 0 };
    dtp_op *op = NULL;

    assert_ok(dtpi_op_new(ctx, &ops, &o, &op, ERR));
    dtp_op_cancel(op);
    dtp_op_cancel(op);
    dtpi_op_end(op, DTP_OK, NULL);
    run_all();
    assert_int_equal(o.n_canceled, 0);
    assert_ok(dtp_op_wait(op, 0, ERR));
    dtp_op_cancel(op);
    dtp_op_free(op);
    assert_int_equal(o.n_destroyed, 1);
}

static void *cancel_from_elsewhere(void *arg)
{
    dtp_op_cancel(arg);
    return NULL;
}

static void test_cancel_from_another_thread_ends_a_wait(void **state)
{
    owner o = { .ends_on_cancel = true };
    dtp_op *op = NULL;
    pthread_t t;

    assert_ok(dtpi_op_new(ctx, &ops, &o, &op, ERR));
    assert_int_equal(pthread_create(&t, NULL, cancel_from_elsewhere, op), 0);
    assert_status(DTP_ERR_CANCELED, dtp_op_wait(op, -1, ERR));
    pthread_join(t, NULL);
    dtp_op_free(op);
    assert_int_equal(o.n_destroyed, 1);
}

static void test_news_on_their_way_are_dropped_by_close(void **state)
{
    owner o = { .ends_on_cancel = true };
    dtp_ctx *own = NULL;
    dtp_op *op = NULL, *canceled = NULL;

    assert_ok(dtp_ctx_open(NULL, &own, ERR));
    assert_ok(dtpi_op_new(own, &ops, &o, &op, ERR));
    assert_ok(dtpi_op_new(own, &ops, &o, &canceled, ERR));
    dtp_op_on_done(op, told, &o);
    dtpi_op_end(op, DTP_OK, NULL);
    dtp_op_free(canceled);
    dtp_op_free(op);
    dtp_ctx_close(own);
    assert_int_equal(o.n_told, 0);
    assert_int_equal(o.n_canceled, 1);
    assert_int_equal(o.n_destroyed, 2);
}

static void test_op_without_memory_is_told(void **state)
{
    FOR_EACH_FAILURE(f)
    {
        dtp_ctx_opts opts = DTP_CTX_OPTS_INIT;
        owner o = { 0 };
        dtp_ctx *own = NULL;
        dtp_op *op = NULL;

        opts.allocator = failalloc_of(&f);
        if (!failalloc_ok(&f, dtp_ctx_open(&opts, &own, ERR)))
            continue;
        if (failalloc_ok(&f, dtpi_op_new(own, &ops, &o, &op, ERR))) {
            dtp_op_cancel(op);
            dtpi_op_end(op, DTP_OK, NULL);
            dtp_op_free(op);
        }
        dtp_ctx_close(own);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_real, close_ctx)
    const struct CMUnitTest tests[] = {
        TEST(test_op_ends_once_and_tells_once),
        TEST(test_callback_set_late_is_told_at_the_next_dispatch),
        TEST(test_detail_reaches_the_waiter),
        TEST(test_waiting_too_short_leaves_it_running),
        TEST(test_waiting_zero_looks_once),
        TEST(test_blocking_inside_a_callback_is_refused),
        TEST(test_dispatch_inside_a_callback_is_busy),
        TEST(test_freed_op_is_cancelled_and_tells_nobody),
        TEST(test_op_that_ends_before_its_cancel_arrives),
        TEST(test_cancel_from_another_thread_ends_a_wait),
        TEST(test_news_on_their_way_are_dropped_by_close),
        TEST(test_op_without_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
