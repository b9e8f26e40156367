/* SPDX-License-Identifier: Apache-2.0 */
#include "failalloc.h"

#include <poll.h>

#include "ctx/ctx.h"

typedef struct alarm {
    dtpi_timer timer;
    int id;
    int n_fired;
    struct alarm *clears; /* this one, when it fires */
    int64_t again_ns;     /* sets itself again */
} alarm_t;

static dtp_ctx *ctx;
static int order[64], n_order;

static void due(dtpi_timer *t)
{
    alarm_t *a = DTPI_CONTAINER(t, alarm_t, timer);

    a->n_fired++;
    if (n_order < 64)
        order[n_order++] = a->id;
    if (a->clears)
        dtpi_timer_clear(ctx, &a->clears->timer);
    if (a->again_ns >= 0)
        dtpi_timer_set(ctx, t, a->again_ns, NULL);
}

static alarm_t make(int id)
{
    return (alarm_t){ .timer = { .due = due }, .id = id, .again_ns = -1 };
}

static int open_virtual(void **state)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;

    o.clock = DTP_CLOCK_VIRTUAL;
    n_order = 0;
    return dtp_ctx_open(&o, &ctx, NULL);
}

static int close_ctx(void **state)
{
    dtp_ctx_close(ctx);
    ctx = NULL;
    return 0;
}

static void run_to(int64_t at_ns)
{
    assert_ok(dtp_ctx_advance(ctx, at_ns - dtp_ctx_now_ns(ctx), ERR));
    while (dtp_ctx_dispatch(ctx, 0, ERR) == DTP_OK)
        continue;
}

static void test_timers_fire_in_order_of_time_then_of_setting(void **state)
{
    alarm_t a[5];

    for (int i = 0; i < 5; i++)
        a[i] = make(i);
    assert_ok(dtpi_timer_set(ctx, &a[0].timer, 30, ERR));
    for (int i = 1; i < 4; i++)
        assert_ok(dtpi_timer_set(ctx, &a[i].timer, 20, ERR));
    assert_ok(dtpi_timer_set(ctx, &a[4].timer, 10, ERR));
    run_to(9);
    assert_int_equal(n_order, 0);
    run_to(30);
    const int want[] = { 4, 1, 2, 3, 0 };
    assert_int_equal(n_order, 5);
    assert_memory_equal(order, want, sizeof(want));
    run_to(1000);
    assert_int_equal(n_order, 5);
}

static void test_setting_again_moves_a_timer(void **state)
{
    alarm_t a = make(1);

    assert_ok(dtpi_timer_set(ctx, &a.timer, 10, ERR));
    assert_ok(dtpi_timer_set(ctx, &a.timer, 50, ERR));
    run_to(49);
    assert_int_equal(a.n_fired, 0);
    assert_ok(dtpi_timer_set(ctx, &a.timer, 5, ERR));
    run_to(50);
    assert_int_equal(a.n_fired, 1);
}

static void test_callback_may_clear_another_and_set_itself(void **state)
{
    alarm_t a = make(1), b = make(2);

    a.clears = &b;
    a.again_ns = 10; /* already past: waits for the next turn, never for ever in one */
    assert_ok(dtpi_timer_set(ctx, &a.timer, 10, ERR));
    assert_ok(dtpi_timer_set(ctx, &b.timer, 10, ERR));
    assert_ok(dtp_ctx_advance(ctx, 10, ERR));
    assert_ok(dtp_ctx_dispatch(ctx, 0, ERR));
    assert_int_equal(b.n_fired, 0);
    const int n = a.n_fired;
    assert_in_range(n, 1, 2);
    assert_ok(dtp_ctx_dispatch(ctx, 0, ERR));
    assert_true(a.n_fired > n);
    dtpi_timer_clear(ctx, &a.timer);
    dtpi_timer_clear(ctx, &a.timer);
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 0, ERR));
}

static void test_random_timers_fire_once_and_never_early(void **state)
{
    enum { N = 500 };
    static alarm_t a[N];
    uint64_t seed = check_seed();
    int64_t at[N], now = 0;

    for (int i = 0; i < N; i++) {
        a[i] = make(i);
        at[i] = (int64_t)(check_random(&seed) % 1000);
        assert_ok(dtpi_timer_set(ctx, &a[i].timer, at[i], ERR));
    }
    for (int i = 0; i < N; i++) {
        const int k = (int)(check_random(&seed) % N);
        if (check_random(&seed) % 2) {
            dtpi_timer_clear(ctx, &a[k].timer);
            at[k] = -1;
        } else {
            at[k] = (int64_t)(check_random(&seed) % 1000);
            assert_ok(dtpi_timer_set(ctx, &a[k].timer, at[k], ERR));
        }
    }
    while (now < 1000) {
        now += (int64_t)(check_random(&seed) % 50);
        run_to(now);
        for (int i = 0; i < N; i++)
            assert_int_equal(a[i].n_fired, at[i] >= 0 && at[i] <= now);
    }
}

static void test_a_timer_that_finds_no_memory_is_not_set(void **state)
{
    FOR_EACH_FAILURE(f)
    {
        dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
        dtp_ctx *own = NULL;
        alarm_t a[40];

        o.allocator = failalloc_of(&f);
        o.clock = DTP_CLOCK_VIRTUAL;
        if (!failalloc_ok(&f, dtp_ctx_open(&o, &own, ERR)))
            continue;
        for (int i = 0; i < 40; i++) {
            a[i] = make(i);
            if (!failalloc_ok(&f, dtpi_timer_set(own, &a[i].timer, i, ERR))) {
                assert_int_equal(a[i].timer.slot, 0);
                break;
            }
        }
        dtp_ctx_close(own);
    }
}

static void test_timer_set_outside_a_turn_wakes_a_polling_host(void **state)
{
    alarm_t a = make(1);
    dtp_ctx *real = NULL;

    assert_ok(dtp_ctx_open(NULL, &real, ERR));
    struct pollfd p = { .fd = dtp_ctx_fd(real), .events = POLLIN };
    assert_int_equal(poll(&p, 1, 0), 0);
    /* As a public function does it. */
    assert_ok(dtpi_ctx_enter(real, ERR));
    assert_ok(dtpi_timer_set(real, &a.timer, dtp_ctx_now_ns(real) + 2 * DTPI_NS_PER_MS, ERR));
    dtpi_ctx_leave(real);
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_ok(dtp_ctx_dispatch(real, 0, ERR));
    assert_int_equal(a.n_fired, 1);
    assert_int_equal(poll(&p, 1, 0), 0);
    /* A time long past is due at once. */
    assert_ok(dtpi_ctx_enter(real, ERR));
    assert_ok(dtpi_timer_set(real, &a.timer, -5, ERR));
    dtpi_ctx_leave(real);
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_ok(dtp_ctx_dispatch(real, 0, ERR));
    assert_int_equal(a.n_fired, 2);
    /* One that was cleared wakes nobody. */
    assert_ok(dtpi_ctx_enter(real, ERR));
    assert_ok(dtpi_timer_set(real, &a.timer, dtp_ctx_now_ns(real) + DTPI_NS_PER_MS, ERR));
    dtpi_ctx_leave(real);
    dtpi_timer_clear(real, &a.timer);
    assert_status(DTP_PENDING, dtp_ctx_dispatch(real, 0, ERR));
    assert_int_equal(poll(&p, 1, 3), 0);
    dtp_ctx_close(real);
}

static void test_real_timer_fires_on_time(void **state)
{
    alarm_t a = make(1);
    dtp_ctx *real = NULL;

    assert_ok(dtp_ctx_open(NULL, &real, ERR));
    const int64_t at = dtp_ctx_now_ns(real) + 3 * DTPI_NS_PER_MS;
    assert_ok(dtpi_timer_set(real, &a.timer, at, ERR));
    assert_ok(dtp_ctx_dispatch(real, -1, ERR));
    assert_int_equal(a.n_fired, 1);
    assert_true(dtp_ctx_now_ns(real) >= at);
    dtp_ctx_close(real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_timers_fire_in_order_of_time_then_of_setting,
                                        open_virtual, close_ctx),
        cmocka_unit_test_setup_teardown(test_setting_again_moves_a_timer, open_virtual, close_ctx),
        cmocka_unit_test_setup_teardown(test_callback_may_clear_another_and_set_itself,
                                        open_virtual, close_ctx),
        cmocka_unit_test_setup_teardown(test_random_timers_fire_once_and_never_early, open_virtual,
                                        close_ctx),
        cmocka_unit_test(test_a_timer_that_finds_no_memory_is_not_set),
        cmocka_unit_test(test_timer_set_outside_a_turn_wakes_a_polling_host),
        cmocka_unit_test(test_real_timer_fires_on_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
