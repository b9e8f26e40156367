/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctx/ctx.h"

static dtp_ctx *open_ctx(dtp_busy busy)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    dtp_ctx *ctx = NULL;

    o.busy = busy;
    assert_ok(dtp_ctx_open(&o, &ctx, ERR));
    return ctx;
}

/* A second thread enters once and keeps what it got. */
typedef struct other {
    dtp_ctx *ctx;
    dtp_status status;
    dtp_error err;
    _Atomic int has_entered;
} other;

static void *enter_once(void *arg)
{
    other *o = arg;

    o->status = dtpi_ctx_enter(o->ctx, &o->err);
    atomic_store(&o->has_entered, 1);
    if (o->status >= 0)
        dtpi_ctx_leave(o->ctx);
    return NULL;
}

static void test_same_thread_enters_again(void **state)
{
    dtp_ctx *ctx = open_ctx(DTP_BUSY_FAIL);

    assert_ok(dtpi_ctx_enter(ctx, ERR));
    assert_ok(dtpi_ctx_enter(ctx, ERR));
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 0, ERR));
    dtpi_ctx_leave(ctx);
    dtpi_ctx_leave(ctx);
    dtp_ctx_close(ctx);
}

static void test_second_thread_gets_busy(void **state)
{
    dtp_ctx *ctx = open_ctx(DTP_BUSY_FAIL);
    other o = { .ctx = ctx };
    pthread_t t;

    assert_ok(dtpi_ctx_enter(ctx, ERR));
    assert_int_equal(pthread_create(&t, NULL, enter_once, &o), 0);
    pthread_join(t, NULL);
    assert_int_equal(o.status, DTP_ERR_BUSY);
    assert_string_equal(o.err.text, "another thread is using this context");
    dtpi_ctx_leave(ctx);
    assert_int_equal(pthread_create(&t, NULL, enter_once, &o), 0);
    pthread_join(t, NULL);
    assert_int_equal(o.status, DTP_OK);
    dtp_ctx_close(ctx);
}

static void test_second_thread_waits_when_asked_to(void **state)
{
    dtp_ctx *ctx = open_ctx(DTP_BUSY_WAIT);
    other o[4] = { { .ctx = ctx }, { .ctx = ctx }, { .ctx = ctx }, { .ctx = ctx } };
    pthread_t t[4];

    assert_ok(dtpi_ctx_enter(ctx, ERR));
    assert_ok(dtpi_ctx_enter(ctx, ERR));
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, enter_once, &o[i]), 0);
    dtpi_ctx_leave(ctx);
    for (int i = 0; i < 4; i++)
        assert_int_equal(atomic_load(&o[i].has_entered), 0);
    dtpi_ctx_leave(ctx);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(o[i].status, DTP_OK);
    }
    dtp_ctx_close(ctx);
}

/* Many threads change one number that only the lock guards. */
typedef struct counter {
    dtp_ctx *ctx;
    int n;
} counter;

static void *count_up(void *arg)
{
    counter *c = arg;

    for (int i = 0; i < 2000; i++) {
        if (dtpi_ctx_enter(c->ctx, NULL) < 0)
            return arg;
        c->n++;
        dtpi_ctx_leave(c->ctx);
    }
    return NULL;
}

static void test_lock_excludes(void **state)
{
    counter c = { .ctx = open_ctx(DTP_BUSY_WAIT) };
    pthread_t t[4];

    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, count_up, &c), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(t[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(c.n, 8000);
    dtp_ctx_close(c.ctx);
}

/* What a forked child sees, as bits; 0 when all is as it should be. */
static int child_checks(dtp_ctx *ctx, dtp_op *op)
{
    dtp_error err;
    int wrong = 0;

    if (dtpi_ctx_alive(ctx))
        wrong |= 1;
    if (dtp_ctx_dispatch(ctx, 0, &err) != DTP_ERR_FORKED || !strstr(err.text, "before a fork"))
        wrong |= 2;
    if (dtp_op_wait(op, 0, NULL) != DTP_ERR_FORKED)
        wrong |= 4;
    dtp_ctx_wake(ctx);
    dtp_op_cancel(op);
    dtp_op_on_done(op, NULL, NULL);
    dtp_op_free(op);
    dtp_ctx_close(ctx);
    return wrong;
}

static void slow(dtpi_work *w)
{
    usleep(1000);
}

static void work_done(dtpi_work *w)
{
}

static void test_forked_child_is_told_and_harms_nothing(void **state)
{
    static const dtpi_op_ops ops = { .name = "test" };
    dtp_ctx *ctx = open_ctx(DTP_BUSY_FAIL);
    dtpi_work w = { .work = slow, .done = work_done };
    dtp_op *op = NULL;
    int status;

    assert_ok(dtpi_op_new(ctx, &ops, NULL, &op, ERR));
    assert_ok(dtpi_pool_submit(ctx, &w, ERR));
    /* Forked while the context is held, with a worker running. */
    assert_ok(dtpi_ctx_enter(ctx, ERR));
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(child_checks(ctx, op));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(dtpi_ctx_alive(ctx));
    dtpi_ctx_leave(ctx);
    assert_int_equal(dtp_op_status(op, NULL), DTP_PENDING);
    dtpi_op_end(op, DTP_OK, NULL);
    assert_ok(dtp_op_wait(op, 0, ERR));
    dtp_op_free(op);
    dtp_ctx_close(ctx);
}

/* ---- lending ---- */

typedef struct lender {
    dtp_ctx *ctx;
    bool done;                  /* guarded by the context */
    dtp_status status;
    _Atomic int is_in;
} lender;

static bool is_done(void *user)
{
    lender *l = user;

    atomic_store(&l->is_in, 1);
    return l->done;
}

static void *lend(void *arg)
{
    lender *l = arg;

    if (dtpi_ctx_enter(l->ctx, NULL) < 0)
        return arg;
    l->status = dtpi_ctx_wait_lending(l->ctx, is_done, l, dtp_ctx_now_ns(l->ctx) + 10000000000, NULL);
    dtpi_ctx_leave(l->ctx);
    return NULL;
}

static void test_a_wait_lends_the_context_to_others(void **state)
{
    dtp_ctx *ctx = open_ctx(DTP_BUSY_FAIL);
    lender l[8];
    pthread_t t[8];
    void *failed;

    assert_status(DTP_ERR_INVAL, dtp_ctx_set_busy(ctx, (dtp_busy)2, ERR));
    assert_ok(dtp_ctx_set_busy(ctx, DTP_BUSY_WAIT, ERR));
    for (int i = 0; i < 8; i++) {
        l[i] = (lender){ .ctx = ctx, .status = DTP_PENDING };
        assert_int_equal(pthread_create(&t[i], NULL, lend, &l[i]), 0);
        while (!atomic_load(&l[i].is_in))
            sched_yield();
    }
    for (int i = 0; i < 8; i++) {
        assert_ok(dtpi_ctx_enter(ctx, ERR));
        l[i].done = true;
        dtpi_ctx_leave(ctx);
        dtp_ctx_wake(ctx);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], &failed);
        assert_null(failed);
        assert_int_equal(l[i].status, DTP_OK);
    }
    dtp_ctx_close(ctx);
}

/* ---- helpers ---- */

typedef struct helper {
    dtp_ctx *ctx;
    _Atomic bool is_done;
    dtpi_task task;
    pthread_t ran_on;
} helper;

static bool helper_done(void *user)
{
    return atomic_load(&((helper *)user)->is_done);
}

static void run_task(dtpi_task *t)
{
    helper *h = DTPI_CONTAINER(t, helper, task);

    h->ran_on = pthread_self();
    atomic_store(&h->is_done, true);
    dtpi_ctx_help_news(h->ctx);
}

static void *help(void *arg)
{
    helper *h = arg;

    dtpi_post(h->ctx, &h->task);
    dtpi_ctx_help(h->ctx, helper_done, h);
    return NULL;
}

static void test_a_helper_runs_the_loop_where_nobody_does(void **state)
{
    dtp_ctx *ctx = open_ctx(DTP_BUSY_FAIL);
    helper h = { .ctx = ctx, .task = { .run = run_task } };
    pthread_t t;

    assert_int_equal(pthread_create(&t, NULL, help, &h), 0);
    pthread_join(t, NULL);
    assert_true(pthread_equal(h.ran_on, t));
    dtp_ctx_close(ctx);
}

static void test_a_caller_runs_the_loop_for_a_helper(void **state)
{
    dtp_ctx *ctx = open_ctx(DTP_BUSY_FAIL);
    helper h = { .ctx = ctx, .task = { .run = run_task } };
    pthread_t t;

    dtpi_ctx_forbid_help(ctx, true);
    assert_int_equal(pthread_create(&t, NULL, help, &h), 0);
    while (!atomic_load(&h.is_done))
        assert_true(dtp_ctx_dispatch(ctx, 1000, ERR) >= 0);
    pthread_join(t, NULL);
    assert_true(pthread_equal(h.ran_on, pthread_self()));
    dtpi_ctx_forbid_help(ctx, false);
    dtp_ctx_close(ctx);
}

/* It waits for nothing, so it would stay in the loop for ever. */
static void test_a_helper_makes_way_for_a_caller(void **state)
{
    dtp_ctx *ctx = open_ctx(DTP_BUSY_FAIL);
    helper h = { .ctx = ctx, .task = { .run = run_task } };
    pthread_t t;

    atomic_store(&h.is_done, false);
    h.task.is_queued = true;    /* its own post does nothing */
    assert_int_equal(pthread_create(&t, NULL, help, &h), 0);
    for (int i = 0; i < 100; i++) {
        assert_ok(dtpi_ctx_enter(ctx, ERR));
        dtpi_ctx_leave(ctx);
        if (i % 10 == 0)
            sched_yield();
    }
    atomic_store(&h.is_done, true);
    dtpi_ctx_help_news(ctx);
    dtp_ctx_wake(ctx);
    pthread_join(t, NULL);
    dtp_ctx_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_thread_enters_again),
        cmocka_unit_test(test_second_thread_gets_busy),
        cmocka_unit_test(test_second_thread_waits_when_asked_to),
        cmocka_unit_test(test_lock_excludes),
        cmocka_unit_test(test_forked_child_is_told_and_harms_nothing),
        cmocka_unit_test(test_a_wait_lends_the_context_to_others),
        cmocka_unit_test(test_a_helper_runs_the_loop_where_nobody_does),
        cmocka_unit_test(test_a_caller_runs_the_loop_for_a_helper),
        cmocka_unit_test(test_a_helper_makes_way_for_a_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
