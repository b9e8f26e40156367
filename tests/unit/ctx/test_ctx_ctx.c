/* SPDX-License-Identifier: Apache-2.0 */
#include "failalloc.h"

#include <dirent.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ctx/ctx.h"

static int n_entries(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void test_open_costs_three_descriptors_and_no_thread(void **state)
{
    const int fds = n_entries("/proc/self/fd"), threads = n_entries("/proc/self/task");
    dtp_ctx *ctx = NULL;

    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_int_equal(n_entries("/proc/self/fd"), fds + 3);
    assert_int_equal(n_entries("/proc/self/task"), threads);
    dtp_ctx_close(ctx);
    assert_int_equal(n_entries("/proc/self/fd"), fds);
    dtp_ctx_close(NULL);
}

static void test_open_survives_every_failing_allocation(void **state)
{
    FOR_EACH_FAILURE(f)
    {
        dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
        dtp_ctx *ctx = NULL;

        o.allocator = failalloc_of(&f);
        o.module_dir = "/somewhere";
        if (failalloc_ok(&f, dtp_ctx_open(&o, &ctx, ERR)))
            dtp_ctx_close(ctx);
        else
            assert_null(ctx);
    }
}

static void test_open_refuses_bad_options(void **state)
{
    const dtp_allocator half = { NULL, dtpi_malloc_allocator.free, NULL };
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    dtp_ctx *ctx = NULL;

    o.clock = (dtp_clock)7;
    assert_status(DTP_ERR_INVAL, dtp_ctx_open(&o, &ctx, ERR));
    assert_text("clock");
    o = (dtp_ctx_opts)DTP_CTX_OPTS_INIT;
    o.busy = (dtp_busy)7;
    assert_status(DTP_ERR_INVAL, dtp_ctx_open(&o, &ctx, ERR));
    o = (dtp_ctx_opts)DTP_CTX_OPTS_INIT;
    o.allocator = &half;
    assert_status(DTP_ERR_INVAL, dtp_ctx_open(&o, &ctx, ERR));
    o = (dtp_ctx_opts)DTP_CTX_OPTS_INIT;
    o.n_pool_threads = 257;
    assert_status(DTP_ERR_INVAL, dtp_ctx_open(&o, &ctx, ERR));
    o.size = 1;
    assert_status(DTP_ERR_INVAL, dtp_ctx_open(&o, &ctx, ERR));
    assert_null(ctx);
}

static void test_open_without_descriptors_is_a_limit(void **state)
{
    struct rlimit old, low;
    dtp_ctx *ctx = NULL;

    const int lowest = dup(0);
    close(lowest);
    getrlimit(RLIMIT_NOFILE, &old);
    low = old;
    for (int n_left = 0; n_left < 3; n_left++) {
        low.rlim_cur = (rlim_t)(lowest + n_left);
        setrlimit(RLIMIT_NOFILE, &low);
        const dtp_status st = dtp_ctx_open(NULL, &ctx, ERR);
        setrlimit(RLIMIT_NOFILE, &old);
        assert_int_equal(st, DTP_ERR_LIMIT);
        assert_text("Too many open files");
    }
    assert_null(ctx);
}

static void test_virtual_clock_moves_only_when_told(void **state)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    dtp_ctx *ctx = NULL;

    o.clock = DTP_CLOCK_VIRTUAL;
    assert_ok(dtp_ctx_open(&o, &ctx, ERR));
    assert_int_equal(dtp_ctx_now_ns(ctx), 0);
    assert_ok(dtp_ctx_advance(ctx, 5, ERR));
    assert_int_equal(dtp_ctx_now_ns(ctx), 5);
    assert_status(DTP_ERR_INVAL, dtp_ctx_advance(ctx, -1, ERR));
    assert_status(DTP_ERR_INVAL, dtp_ctx_advance(ctx, INT64_MAX, ERR));
    assert_int_equal(dtp_ctx_now_ns(ctx), 5);
    dtp_ctx_close(ctx);
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_status(DTP_ERR_INVAL, dtp_ctx_advance(ctx, 1, ERR));
    assert_true(dtp_ctx_now_ns(ctx) > 0);
    dtp_ctx_close(ctx);
}

static void test_deadlines_know_default_and_never(void **state)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    dtp_ctx *ctx = NULL;

    o.clock = DTP_CLOCK_VIRTUAL;
    assert_ok(dtp_ctx_open(&o, &ctx, ERR));
    assert_int_equal(dtpi_ctx_deadline(ctx, 0, 7), 7 * DTPI_NS_PER_MS);
    assert_int_equal(dtpi_ctx_deadline(ctx, 3, 7), 3 * DTPI_NS_PER_MS);
    assert_true(dtpi_ctx_deadline(ctx, -1, 7) == INT64_MAX);
    assert_true(dtpi_ctx_deadline(ctx, INT_MAX, 7) > 0);
    dtp_ctx_close(ctx);
}

static int closed_order[2], n_closed;

static void slot_close(dtp_ctx *ctx, void *value)
{
    closed_order[n_closed++] = *(int *)value;
}

static void test_slots_close_last_first(void **state)
{
    static int one = 1, two = 2;
    dtp_ctx *ctx = NULL;

    n_closed = 0;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_null(dtpi_ctx_slot(ctx, DTPI_SLOT_NET));
    dtpi_ctx_set_slot(ctx, DTPI_SLOT_NET, &one, slot_close);
    dtpi_ctx_set_slot(ctx, DTPI_SLOT_GPU, &two, slot_close);
    assert_ptr_equal(dtpi_ctx_slot(ctx, DTPI_SLOT_NET), &one);
    dtp_ctx_close(ctx);
    assert_int_equal(n_closed, 2);
    assert_int_equal(closed_order[0], 2);
    assert_int_equal(closed_order[1], 1);
}

static void keep_line(void *user, dtp_log_level level, const char *topic, const char *text)
{
    snprintf(user, 200, "%s: %s", topic, text);
}

static void never_ready(dtpi_source *s, uint32_t revents)
{
    fail();
}

static void test_closing_too_early_is_said(void **state)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    dtp_ctx *ctx = NULL;
    char line[200] = "";
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    o.log = keep_line;
    o.log_user = line;
    assert_ok(dtp_ctx_open(&o, &ctx, ERR));
    dtpi_source s = { .fd = fds[0], .events = EPOLLIN, .ready = never_ready };
    assert_ok(dtpi_source_add(ctx, &s, ERR));
    dtp_ctx_close(ctx);
    assert_string_equal(line, "ctx: closed before what was opened on it");
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_costs_three_descriptors_and_no_thread),
        cmocka_unit_test(test_open_survives_every_failing_allocation),
        cmocka_unit_test(test_open_refuses_bad_options),
        cmocka_unit_test(test_open_without_descriptors_is_a_limit),
        cmocka_unit_test(test_virtual_clock_moves_only_when_told),
        cmocka_unit_test(test_deadlines_know_default_and_never),
        cmocka_unit_test(test_slots_close_last_first),
        cmocka_unit_test(test_closing_too_early_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
