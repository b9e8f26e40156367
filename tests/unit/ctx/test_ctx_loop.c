/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ctx/ctx.h"

/* One end of a pipe in the loop. */
typedef struct end {
    dtpi_source s;
    int fds[2];
    int n_ready;
    uint32_t last_events;
    struct end *removes; /* taken out, and its memory spoilt, when this one is ready */
    bool reads;
    bool has_work; /* what `arm` says */
    int n_armed;
} end;

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

static void ready(dtpi_source *s, uint32_t revents)
{
    end *e = DTPI_CONTAINER(s, end, s);
    char c;

    e->n_ready++;
    e->last_events = revents;
    e->has_work = false;
    if (e->reads && (revents & EPOLLIN))
        assert_int_equal(read(e->fds[0], &c, 1), 1);
    if (e->removes) {
        dtpi_source_remove(ctx, &e->removes->s);
        if (e->removes != e)
            memset(&e->removes->s, 0, sizeof(e->removes->s));
    }
}

static bool arm(dtpi_source *s)
{
    end *e = DTPI_CONTAINER(s, end, s);

    e->n_armed++;
    return !e->has_work;
}

static void end_open(end *e)
{
    memset(e, 0, sizeof(*e));
    assert_int_equal(pipe(e->fds), 0);
    e->s = (dtpi_source){ .fd = e->fds[0], .events = EPOLLIN, .ready = ready };
    e->reads = true;
}

static void end_close(end *e)
{
    dtpi_source_remove(ctx, &e->s);
    close(e->fds[0]);
    close(e->fds[1]);
}

static void put(const end *e)
{
    assert_int_equal(write(e->fds[1], "x", 1), 1);
}

static bool is_readable(void)
{
    struct pollfd p = { .fd = dtp_ctx_fd(ctx), .events = POLLIN };

    return poll(&p, 1, 0) == 1;
}

static void test_ready_source_is_called_once_a_turn(void **state)
{
    end e;

    end_open(&e);
    assert_ok(dtpi_source_add(ctx, &e.s, ERR));
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 0, ERR));
    assert_false(is_readable());
    put(&e);
    put(&e);
    assert_true(is_readable());
    assert_ok(dtp_ctx_dispatch(ctx, -1, ERR));
    assert_int_equal(e.n_ready, 1);
    assert_ok(dtp_ctx_dispatch(ctx, 0, ERR));
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 0, ERR));
    assert_int_equal(e.n_ready, 2);
    end_close(&e);
    dtpi_source_remove(ctx, &e.s);
}

static void test_modify_changes_what_is_waited_for(void **state)
{
    int fds[2];
    end e;

    memset(&e, 0, sizeof(e));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    e.s = (dtpi_source){ .fd = fds[0], .events = EPOLLIN, .ready = ready };
    assert_ok(dtpi_source_add(ctx, &e.s, ERR));
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 0, ERR));
    assert_ok(dtpi_source_modify(ctx, &e.s, EPOLLIN | EPOLLOUT, ERR));
    assert_ok(dtp_ctx_dispatch(ctx, 0, ERR));
    assert_int_equal(e.last_events, EPOLLOUT);
    assert_ok(dtpi_source_modify(ctx, &e.s, 0, ERR));
    assert_ok(dtpi_source_modify(ctx, &e.s, 0, ERR));
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 0, ERR));
    dtpi_source_remove(ctx, &e.s);
    close(fds[0]);
    close(fds[1]);
}

static void test_bad_descriptors_are_errors(void **state)
{
    end e, again;

    end_open(&e);
    again = e;
    again.s.fd = -1;
    assert_status(DTP_ERR_IO, dtpi_source_add(ctx, &again.s, ERR));
    assert_null(again.s.prev);
    assert_ok(dtpi_source_add(ctx, &e.s, ERR));
    again.s.fd = e.s.fd;
    assert_status(DTP_ERR_EXISTS, dtpi_source_add(ctx, &again.s, ERR));
    end_close(&e);
}

static void test_source_removed_by_another_is_not_called(void **state)
{
    end a, b;

    end_open(&a);
    end_open(&b);
    assert_ok(dtpi_source_add(ctx, &a.s, ERR));
    assert_ok(dtpi_source_add(ctx, &b.s, ERR));
    a.removes = &b;
    b.removes = &a;
    put(&a);
    put(&b);
    assert_ok(dtp_ctx_dispatch(ctx, 0, ERR));
    assert_int_equal(a.n_ready + b.n_ready, 1);
    /* The other one's memory is spoilt: it is out already. */
    close(a.fds[0]);
    close(a.fds[1]);
    close(b.fds[0]);
    close(b.fds[1]);
    if (a.n_ready)
        dtpi_source_remove(ctx, &a.s);
    else
        dtpi_source_remove(ctx, &b.s);
}

static void test_source_may_remove_itself(void **state)
{
    end e;

    end_open(&e);
    assert_ok(dtpi_source_add(ctx, &e.s, ERR));
    e.removes = &e;
    put(&e);
    put(&e);
    assert_ok(dtp_ctx_dispatch(ctx, 0, ERR));
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 0, ERR));
    assert_int_equal(e.n_ready, 1);
    end_close(&e);
}

static void test_armed_driver_with_work_runs_without_its_descriptor(void **state)
{
    end e, idle;

    end_open(&e);
    end_open(&idle);
    e.s.arm = arm;
    idle.s.arm = arm;
    assert_ok(dtpi_source_add(ctx, &e.s, ERR));
    assert_ok(dtpi_source_add(ctx, &idle.s, ERR));
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 0, ERR));
    assert_true(e.n_armed > 0);
    e.has_work = true;
    assert_ok(dtp_ctx_dispatch(ctx, -1, ERR));
    assert_int_equal(e.n_ready, 1);
    assert_int_equal(e.last_events, 0);
    assert_int_equal(idle.n_ready, 0);
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 0, ERR));
    end_close(&e);
    end_close(&idle);
}

static void test_driver_given_work_outside_a_turn_wakes_a_polling_host(void **state)
{
    end e;

    end_open(&e);
    e.s.arm = arm;
    assert_ok(dtpi_source_add(ctx, &e.s, ERR));
    while (is_readable())
        dtp_ctx_dispatch(ctx, 0, ERR);
    assert_ok(dtpi_ctx_enter(ctx, ERR));
    e.has_work = true;
    dtpi_ctx_rearm(ctx);
    dtpi_ctx_leave(ctx);
    assert_true(is_readable());
    assert_ok(dtp_ctx_dispatch(ctx, 0, ERR));
    assert_int_equal(e.n_ready, 1);
    while (is_readable())
        dtp_ctx_dispatch(ctx, 0, ERR);
    end_close(&e);
}

static void test_armed_driver_may_be_removed_by_another(void **state)
{
    end e[3];

    for (int i = 0; i < 3; i++) {
        end_open(&e[i]);
        e[i].s.arm = arm;
        e[i].has_work = true;
        assert_ok(dtpi_source_add(ctx, &e[i].s, ERR));
    }
    /* The last added runs first and takes out the one behind it. */
    e[2].removes = &e[1];
    assert_ok(dtp_ctx_dispatch(ctx, 0, ERR));
    assert_int_equal(e[2].n_ready, 1);
    assert_int_equal(e[1].n_ready, 0);
    assert_int_equal(e[0].n_ready, 1);
    for (int i = 0; i < 3; i++)
        end_close(&e[i]);
}

/* ---- posted tasks ---- */

typedef struct note {
    dtpi_task task;
    int n_run;
    bool posts_itself;
    struct note *cancels;
    bool did_cancel;
} note;

static void note_run(dtpi_task *t)
{
    note *n = DTPI_CONTAINER(t, note, task);

    n->n_run++;
    if (n->posts_itself)
        dtpi_post(ctx, t);
    if (n->cancels)
        n->did_cancel = dtpi_post_cancel(ctx, &n->cancels->task);
}

static void test_task_runs_once_however_often_it_was_posted(void **state)
{
    note n = { .task = { .run = note_run } };

    for (int i = 0; i < 3; i++)
        dtpi_post(ctx, &n.task);
    assert_true(is_readable());
    assert_ok(dtp_ctx_dispatch(ctx, 0, ERR));
    assert_int_equal(n.n_run, 1);
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 0, ERR));
    assert_false(is_readable());
    dtpi_post(ctx, &n.task);
    assert_ok(dtp_ctx_dispatch(ctx, -1, ERR));
    assert_int_equal(n.n_run, 2);
}

static void test_task_that_posts_itself_does_not_hold_the_turn(void **state)
{
    note a = { .task = { .run = note_run }, .posts_itself = true },
         b = { .task = { .run = note_run } };

    dtpi_post(ctx, &a.task);
    dtpi_post(ctx, &b.task);
    assert_ok(dtp_ctx_dispatch(ctx, 0, ERR));
    assert_int_equal(a.n_run, 1);
    assert_int_equal(b.n_run, 1);
    assert_true(is_readable());
    a.posts_itself = false;
    assert_ok(dtp_ctx_dispatch(ctx, -1, ERR));
    assert_int_equal(a.n_run, 2);
    assert_false(is_readable());
}

static void test_posted_task_can_be_taken_back(void **state)
{
    note a = { .task = { .run = note_run } }, b = a, c = a;

    a.cancels = &c;
    dtpi_post(ctx, &a.task);
    dtpi_post(ctx, &b.task);
    dtpi_post(ctx, &c.task);
    assert_true(dtpi_post_cancel(ctx, &b.task));
    assert_false(dtpi_post_cancel(ctx, &b.task));
    assert_ok(dtp_ctx_dispatch(ctx, 0, ERR));
    assert_int_equal(a.n_run, 1);
    assert_true(a.did_cancel);
    assert_int_equal(b.n_run, 0);
    assert_int_equal(c.n_run, 0);
    /* The queue's end is right after its last one was taken out. */
    dtpi_post(ctx, &b.task);
    assert_ok(dtp_ctx_dispatch(ctx, -1, ERR));
    assert_int_equal(b.n_run, 1);
}

/* ---- waiting ---- */

static bool never(void *user)
{
    return false;
}

static bool is_true(void *user)
{
    return *(bool *)user;
}

static void test_wait_ends_at_its_deadline(void **state)
{
    assert_ok(dtpi_ctx_enter(ctx, ERR));
    const int64_t deadline = dtp_ctx_now_ns(ctx) + 3 * DTPI_NS_PER_MS;
    assert_status(DTP_ERR_TIMEOUT, dtpi_ctx_wait(ctx, never, NULL, deadline, ERR));
    assert_true(dtp_ctx_now_ns(ctx) >= deadline);
    assert_status(DTP_ERR_TIMEOUT, dtpi_ctx_wait(ctx, never, NULL, 0, ERR));
    dtpi_ctx_leave(ctx);
}

static void test_dispatch_waits_its_time(void **state)
{
    const int64_t start = dtp_ctx_now_ns(ctx);

    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 5, ERR));
    assert_true(dtp_ctx_now_ns(ctx) >= start + 5 * DTPI_NS_PER_MS);
}

static void *wake_often(void *arg)
{
    dtp_ctx_wake(arg);
    return NULL;
}

static void test_wake_from_another_thread_ends_a_dispatch(void **state)
{
    pthread_t t;

    for (int i = 0; i < 50; i++) {
        assert_int_equal(pthread_create(&t, NULL, wake_often, ctx), 0);
        assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, -1, ERR));
        pthread_join(t, NULL);
    }
    /* A wake that came when nobody waited ends the next one. */
    dtp_ctx_wake(ctx);
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, -1, ERR));
}

static _Atomic int n_asked;
static _Atomic int says_stop;

static int interrupted(void *user)
{
    atomic_fetch_add(&n_asked, 1);
    return atomic_load(&says_stop);
}

static dtp_ctx *open_interruptible(dtp_clock clock)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    dtp_ctx *own = NULL;

    atomic_store(&n_asked, 0);
    atomic_store(&says_stop, 0);
    o.interrupted = interrupted;
    o.clock = clock;
    assert_ok(dtp_ctx_open(&o, &own, ERR));
    return own;
}

static void *stop_soon(void *arg)
{
    while (atomic_load(&n_asked) < 2)
        usleep(1000);
    atomic_store(&says_stop, 1);
    dtp_ctx_wake(arg);
    return NULL;
}

static void check_interrupts_wait(dtp_clock clock)
{
    dtp_ctx *own = open_interruptible(clock);
    pthread_t t;

    assert_int_equal(pthread_create(&t, NULL, stop_soon, own), 0);
    assert_ok(dtpi_ctx_enter(own, ERR));
    assert_status(DTP_ERR_INTERRUPTED, dtpi_ctx_wait(own, never, NULL, INT64_MAX, ERR));
    assert_text("interrupted");
    dtpi_ctx_leave(own);
    pthread_join(t, NULL);
    dtp_ctx_close(own);
}

static void test_interrupted_ends_a_wait(void **state)
{
    check_interrupts_wait(DTP_CLOCK_REAL);
}

static void test_interrupted_ends_a_wait_on_a_virtual_clock(void **state)
{
    check_interrupts_wait(DTP_CLOCK_VIRTUAL);
}

static void test_interrupted_ends_a_dispatch_but_asking_does_not(void **state)
{
    dtp_ctx *own = open_interruptible(DTP_CLOCK_REAL);
    const int64_t start = dtp_ctx_now_ns(own);
    pthread_t t;

    assert_status(DTP_PENDING, dtp_ctx_dispatch(own, 120, ERR));
    assert_true(dtp_ctx_now_ns(own) >= start + 120 * DTPI_NS_PER_MS);
    assert_in_range(atomic_load(&n_asked), 1, 4);
    assert_int_equal(pthread_create(&t, NULL, stop_soon, own), 0);
    dtp_status st;
    while ((st = dtp_ctx_dispatch(own, -1, ERR)) == DTP_PENDING)
        continue;
    assert_int_equal(st, DTP_ERR_INTERRUPTED);
    pthread_join(t, NULL);
    dtp_ctx_close(own);
}

/* ---- a virtual clock ---- */

typedef struct tick {
    dtpi_timer timer;
    bool is_due;
} tick;

static void tick_due(dtpi_timer *t)
{
    DTPI_CONTAINER(t, tick, timer)->is_due = true;
}

static void test_waiting_on_a_virtual_clock_jumps_to_the_timer(void **state)
{
    tick t = { .timer = { .due = tick_due } };
    dtp_ctx *own = open_interruptible(DTP_CLOCK_VIRTUAL);
    const int64_t hour = 3600 * DTPI_NS_PER_S;

    assert_ok(dtpi_ctx_enter(own, ERR));
    assert_ok(dtpi_timer_set(own, &t.timer, hour, ERR));
    assert_status(DTP_ERR_TIMEOUT, dtpi_ctx_wait(own, is_true, &t.is_due, hour - 1, ERR));
    assert_int_equal(dtp_ctx_now_ns(own), hour - 1);
    assert_ok(dtpi_ctx_wait(own, is_true, &t.is_due, hour, ERR));
    assert_int_equal(dtp_ctx_now_ns(own), hour);
    assert_ok(dtpi_timer_set(own, &t.timer, 2 * hour, ERR));
    t.is_due = false;
    assert_ok(dtpi_ctx_wait(own, is_true, &t.is_due, INT64_MAX, ERR));
    assert_int_equal(dtp_ctx_now_ns(own), 2 * hour);
    dtpi_ctx_leave(own);
    /* A host's dispatch does not move time. */
    assert_ok(dtpi_timer_set(own, &t.timer, 3 * hour, ERR));
    assert_status(DTP_PENDING, dtp_ctx_dispatch(own, 1000, ERR));
    assert_int_equal(dtp_ctx_now_ns(own), 2 * hour);
    dtp_ctx_close(own);
}

static void test_virtual_time_does_not_pass_what_is_ready(void **state)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    dtp_ctx *real = ctx;
    end e;

    o.clock = DTP_CLOCK_VIRTUAL;
    assert_ok(dtp_ctx_open(&o, &ctx, ERR));
    end_open(&e);
    assert_ok(dtpi_source_add(ctx, &e.s, ERR));
    for (int i = 0; i < 10; i++)
        put(&e);
    assert_ok(dtpi_ctx_enter(ctx, ERR));
    assert_status(DTP_ERR_TIMEOUT, dtpi_ctx_wait(ctx, never, NULL, 1000, ERR));
    assert_int_equal(e.n_ready, 10);
    assert_int_equal(dtp_ctx_now_ns(ctx), 1000);
    dtpi_ctx_leave(ctx);
    end_close(&e);
    dtp_ctx_close(ctx);
    ctx = real;
}

static void on_signal(int sig)
{
}

static void *send_signal(void *arg)
{
    usleep(2000);
    pthread_kill(*(pthread_t *)arg, SIGUSR1);
    return NULL;
}

static void test_signals_do_not_end_a_dispatch_early(void **state)
{
    struct sigaction sa = { .sa_handler = on_signal }, old;
    pthread_t self = pthread_self(), t;

    sigaction(SIGUSR1, &sa, &old);
    const int64_t start = dtp_ctx_now_ns(ctx);
    assert_int_equal(pthread_create(&t, NULL, send_signal, &self), 0);
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 20, ERR));
    assert_true(dtp_ctx_now_ns(ctx) >= start + 20 * DTPI_NS_PER_MS);
    pthread_join(t, NULL);
    sigaction(SIGUSR1, &old, NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_real, close_ctx)
    const struct CMUnitTest tests[] = {
        TEST(test_ready_source_is_called_once_a_turn),
        TEST(test_modify_changes_what_is_waited_for),
        TEST(test_bad_descriptors_are_errors),
        TEST(test_source_removed_by_another_is_not_called),
        TEST(test_source_may_remove_itself),
        TEST(test_armed_driver_with_work_runs_without_its_descriptor),
        TEST(test_driver_given_work_outside_a_turn_wakes_a_polling_host),
        TEST(test_armed_driver_may_be_removed_by_another),
        TEST(test_task_runs_once_however_often_it_was_posted),
        TEST(test_task_that_posts_itself_does_not_hold_the_turn),
        TEST(test_posted_task_can_be_taken_back),
        TEST(test_wait_ends_at_its_deadline),
        TEST(test_dispatch_waits_its_time),
        TEST(test_wake_from_another_thread_ends_a_dispatch),
        TEST(test_interrupted_ends_a_wait),
        TEST(test_interrupted_ends_a_wait_on_a_virtual_clock),
        TEST(test_interrupted_ends_a_dispatch_but_asking_does_not),
        TEST(test_waiting_on_a_virtual_clock_jumps_to_the_timer),
        TEST(test_virtual_time_does_not_pass_what_is_ready),
        TEST(test_signals_do_not_end_a_dispatch_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
