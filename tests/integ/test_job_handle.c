/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_job_handle.c - the handle of a job as a host uses it: its callback may close it at any time.
 *
 * Every allocation has pages of its own, which go when it is freed: use after free ends the test.
 */
#include "check.h"

#include <ftw.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <dtp/job.h>

static char run_dir[] = "/tmp/dtp-test-XXXXXX";
static dtp_ctx *ctx;
static dtp_job_event_type close_at;
static dtp_job_state close_in;
static int n_closed;

static void *alloc_pages(void *user, size_t bytes, size_t align)
{
    (void)user;
    (void)align;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void free_pages(void *user, void *p, size_t bytes)
{
    (void)user;
    munmap(p, bytes);
}

static int remove_one(const char *path, const struct stat *sb, int kind, struct FTW *ftw)
{
    (void)sb;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static int set_up(void **state)
{
    const dtp_allocator pages = { alloc_pages, free_pages, NULL };
    dtp_ctx_opts opts = DTP_CTX_OPTS_INIT;

    (void)state;
    opts.module_dir = check_module_dir();
    opts.allocator = &pages;
    return mkdtemp(run_dir) ? dtp_ctx_open(&opts, &ctx, NULL) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    dtp_ctx_close(ctx);
    return nftw(run_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void on_event(void *user, dtp_job *job, const dtp_job_event *ev)
{
    (void)user;
    if (ev->type != close_at || (close_in && ev->state != close_in))
        return;
    n_closed++;
    dtp_job_close(job);
}

static dtp_status start(const char *name, const char *script, dtp_job **job_out)
{
    const char *const argv[] = { "sh", "-c", script, NULL };
    const char *const env[] = { "PATH=/usr/bin:/bin", NULL };
    dtp_job_spec spec = DTP_JOB_SPEC_INIT;
    dtp_job_opts opts = DTP_JOB_OPTS_INIT;

    spec.name = name;
    spec.argv = argv;
    spec.env_base = env;
    spec.n_ranks = 1;
    spec.no_bind = 1;
    opts.run_dir = run_dir;
    opts.on_event = on_event;
    n_closed = 0;
    return dtp_job_start(ctx, &spec, &opts, job_out, ERR);
}

/* Until the job's shim has let go of its name. */
static void wait_ended(const char *name)
{
    dtp_job_opts opts = DTP_JOB_OPTS_INIT;
    dtp_job *job = NULL;

    opts.run_dir = run_dir;
    assert_ok(dtp_job_attach(ctx, name, &opts, &job, ERR));
    assert_ok(dtp_job_wait(job, 20000, ERR));
    dtp_job_close(job);
}

static void test_a_callback_may_close_the_job_while_it_is_started(void **state)
{
    dtp_job *job = (dtp_job *)run_dir;

    (void)state;
    close_at = DTP_JOB_EV_STATE;
    close_in = DTP_JOB_RUNNING;
    assert_ok(start("early", "exit 0", &job));
    assert_null(job);
    assert_int_equal(n_closed, 1);
    close_at = 0;
    wait_ended("early");
}

static void test_a_callback_may_close_the_job_while_it_is_waited_for(void **state)
{
    dtp_job *job = NULL;

    (void)state;
    close_at = DTP_JOB_EV_OUTPUT;
    close_in = 0;
    assert_ok(start("late", "sleep 0.2; echo one; echo two; exit 0", &job));
    assert_non_null(job);
    assert_status(DTP_ERR_CANCELED, dtp_job_wait(job, 20000, ERR));
    assert_text("job 'late' was closed");
    assert_int_equal(n_closed, 1);
    close_at = 0;
    wait_ended("late");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_callback_may_close_the_job_while_it_is_started),
        cmocka_unit_test(test_a_callback_may_close_the_job_while_it_is_waited_for),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
