/* SPDX-License-Identifier: Apache-2.0 */
/* Locks on cores and GPUs: all or none, by name, free when the last process is gone. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/locks.h"

static char dir[] = "/tmp/dtp-locks-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "%s/locks", dir);
    unlink(path);
    return rmdir(dir);
}

static dtpi_cpuset set_of(const char *text)
{
    dtpi_cpuset s;

    assert_ok(dtpi_cpuset_parse(text, &s, ERR));
    return s;
}

static int open_locks(void)
{
    int fd = -1;

    assert_ok(dtpi_locks_open(dir, &fd, ERR));
    return fd;
}

static void assert_busy(int fd, const char *cpus, const char *gpus)
{
    dtpi_cpuset c, g;

    assert_ok(dtpi_locks_busy(fd, &c, &g, ERR));
    char *c_text = dtpi_cpuset_format(&c, &dtpi_malloc_allocator);
    char *g_text = dtpi_cpuset_format(&g, &dtpi_malloc_allocator);
    assert_string_equal(c_text, cpus);
    assert_string_equal(g_text, gpus);
    dtpi_text_free(&dtpi_malloc_allocator, c_text);
    dtpi_text_free(&dtpi_malloc_allocator, g_text);
}

static void test_what_one_job_holds_another_cannot_take(void **state)
{
    const dtpi_cpuset cpus = set_of("0-3,8,8191"), gpus = set_of("1"), none = set_of("");
    const dtpi_cpuset free_cpus = set_of("4-5"), some = set_of("5-8"), gpu = set_of("0-1");
    int a = open_locks(), b = open_locks(), c = open_locks();

    (void)state;
    assert_busy(b, "", "");
    assert_ok(dtpi_locks_take(a, "first", &cpus, &gpus, ERR));
    assert_busy(a, "", "");
    assert_busy(b, "0-3,8,8191", "1");
    assert_ok(dtpi_locks_take(b, "second", &free_cpus, &none, ERR));
    assert_busy(c, "0-5,8,8191", "1");
    assert_status(DTP_ERR_BUSY, dtpi_locks_take(c, "third", &some, &none, ERR));
    assert_text("core 5 is held by job 'second'");
    assert_status(DTP_ERR_BUSY, dtpi_locks_take(c, "third", &none, &gpu, ERR));
    assert_text("GPU 1 is held by job 'first'");
    assert_busy(b, "0-3,8,8191", "1");      /* nothing of the third is left */
    close(b);
    assert_busy(c, "0-3,8,8191", "1");
    close(a);
    assert_busy(c, "", "");
    close(c);
}

static void test_a_forked_child_keeps_the_lock(void **state)
{
    const dtpi_cpuset cpus = set_of("7"), none = set_of("");
    int a = open_locks(), b = open_locks();

    (void)state;
    assert_ok(dtpi_locks_take(a, "parent", &cpus, &none, ERR));
    const pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    close(a);
    assert_busy(b, "7", "");
    assert_status(DTP_ERR_BUSY, dtpi_locks_take(b, "other", &cpus, &none, ERR));
    assert_text("core 7 is held by job 'parent'");
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_ok(dtpi_locks_take(b, "other", &cpus, &none, ERR));
    close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_one_job_holds_another_cannot_take),
        cmocka_unit_test(test_a_forked_child_keeps_the_lock),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
