/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "ctx/ctx.h"

typedef struct job {
    dtpi_work w;
    pthread_t main_thread;
    _Atomic int *n_worked;
    bool was_elsewhere;
    bool had_signals_blocked;
    int n_done;
    dtp_ctx *resubmit_on;
    dtp_status resubmit_status;
} job;

static void work(dtpi_work *w)
{
    job *j = DTPI_CONTAINER(w, job, w);
    sigset_t set;

    pthread_sigmask(SIG_SETMASK, NULL, &set);
    j->had_signals_blocked = sigismember(&set, SIGTERM) && sigismember(&set, SIGCHLD);
    j->was_elsewhere = !pthread_equal(pthread_self(), j->main_thread);
    atomic_fetch_add(j->n_worked, 1);
}

static void done(dtpi_work *w)
{
    job *j = DTPI_CONTAINER(w, job, w);

    assert_true(pthread_equal(pthread_self(), j->main_thread));
    j->n_done++;
    if (j->resubmit_on)
        j->resubmit_status = dtpi_pool_submit(j->resubmit_on, w, NULL);
}

static job make(_Atomic int *n_worked)
{
    return (job){ .w = { .work = work, .done = done },
                  .main_thread = pthread_self(),
                  .n_worked = n_worked };
}

static bool all_done(void *user)
{
    job *jobs = user;

    for (int i = 0; i < 50; i++)
        if (!jobs[i].n_done)
            return false;
    return true;
}

static void run_jobs(dtp_clock clock)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    _Atomic int n_worked = 0;
    dtp_ctx *ctx = NULL;
    job jobs[50];

    o.n_pool_threads = 3;
    o.clock = clock;
    assert_ok(dtp_ctx_open(&o, &ctx, ERR));
    assert_int_equal(dtpi_pool_width(ctx), 3);
    for (int i = 0; i < 50; i++) {
        jobs[i] = make(&n_worked);
        assert_ok(dtpi_pool_submit(ctx, &jobs[i].w, ERR));
    }
    assert_ok(dtpi_ctx_enter(ctx, ERR));
    assert_ok(dtpi_ctx_wait(ctx, all_done, jobs, INT64_MAX, ERR));
    dtpi_ctx_leave(ctx);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(jobs[i].n_done, 1);
        assert_true(jobs[i].was_elsewhere);
        assert_true(jobs[i].had_signals_blocked);
    }
    dtp_ctx_close(ctx);
}

static void test_work_runs_elsewhere_and_news_come_home(void **state)
{
    run_jobs(DTP_CLOCK_REAL);
}

static void test_virtual_clock_stands_still_while_workers_work(void **state)
{
    run_jobs(DTP_CLOCK_VIRTUAL);
}

static void test_closing_finishes_what_is_queued(void **state)
{
    _Atomic int n_worked = 0;
    dtp_ctx *ctx = NULL;
    job jobs[50];

    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    for (int i = 0; i < 50; i++) {
        jobs[i] = make(&n_worked);
        jobs[i].resubmit_on = i % 10 == 0 ? ctx : NULL;
        assert_ok(dtpi_pool_submit(ctx, &jobs[i].w, ERR));
    }
    dtp_ctx_close(ctx);
    assert_int_equal(atomic_load(&n_worked), 50);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(jobs[i].n_done, 1);
        if (jobs[i].resubmit_on)
            assert_int_equal(jobs[i].resubmit_status, DTP_ERR_CANCELED);
    }
}

static void free_itself(dtpi_work *w)
{
    job *j = DTPI_CONTAINER(w, job, w);

    atomic_fetch_add(j->n_worked, 1);
    free(j);
}

static void test_work_without_done_may_free_itself(void **state)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    _Atomic int n_worked = 0;
    dtp_ctx *ctx = NULL;

    o.clock = DTP_CLOCK_VIRTUAL;
    assert_ok(dtp_ctx_open(&o, &ctx, ERR));
    for (int i = 0; i < 20; i++) {
        job *j = calloc(1, sizeof(*j));
        j->w.work = free_itself;
        j->n_worked = &n_worked;
        assert_ok(dtpi_pool_submit(ctx, &j->w, ERR));
    }
    dtp_ctx_close(ctx);
    assert_int_equal(atomic_load(&n_worked), 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_runs_elsewhere_and_news_come_home),
        cmocka_unit_test(test_virtual_clock_stands_still_while_workers_work),
        cmocka_unit_test(test_closing_finishes_what_is_queued),
        cmocka_unit_test(test_work_without_done_may_free_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
