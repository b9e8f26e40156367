/* SPDX-License-Identifier: Apache-2.0 */
/* Starting processes: failures are known at return, and the child has what it was given. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/spawn.h"

static const char *const env[] = { "PATH=/usr/bin:/bin", "A=b c", NULL };

/* Runs a shell command; its output and wait status. */
static int run(const char *command, const dtpi_spawn_req *more, char *out, size_t room)
{
    const char *const argv[] = { "sh", "-c", command, NULL };
    dtpi_spawn_req req = more ? *more : (dtpi_spawn_req){ .keep_fd = -1 };
    dtpi_child child;
    size_t len = 0;
    int wstatus;

    req.path = "/bin/sh";
    req.argv = argv;
    req.envp = env;
    assert_ok(dtpi_spawn(&req, &child, ERR));
    for (;;) {
        struct pollfd p = { .fd = child.out_fd, .events = POLLIN };
        assert_int_equal(poll(&p, 1, 10000), 1);
        const ssize_t n = read(child.out_fd, out + len, room - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    out[len] = '\0';
    struct pollfd p = { .fd = child.pidfd, .events = POLLIN };
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_int_equal(waitpid(child.pid, &wstatus, 0), child.pid);
    close(child.pidfd);
    close(child.out_fd);
    close(child.err_fd);
    return wstatus;
}

static void test_the_child_gets_what_it_was_given(void **state)
{
    dtpi_cpuset one = { { 0 } }, own = { { 0 } };
    const dtpi_spawn_req req = { .cwd = "/usr", .cpus = &one, .keep_fd = -1 };
    char out[512], want[64];

    (void)state;
    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC); /* what the test itself was given is not the point */
    assert_int_equal(sched_getaffinity(0, sizeof(own.bits), (cpu_set_t *)own.bits), 0);
    dtpi_cpuset_set(&one, (uint32_t)dtpi_cpuset_next(&own, 0));
    assert_int_equal(
        run("pwd; echo $A; read x || echo eof; cut -d' ' -f5 /proc/$$/stat; echo $$; "
            "grep Cpus_allowed_list /proc/self/status | cut -f2; ls /proc/self/fd | wc -l",
            &req, out, sizeof(out)),
        0);
    int pgid, pid, n_fds;
    char cpus[32], cwd[32], a[32], eof[8];
    assert_int_equal(
        sscanf(out, "%31s b %31s %7s %d %d %31s %d", cwd, a, eof, &pgid, &pid, cpus, &n_fds), 7);
    assert_string_equal(cwd, "/usr");
    assert_string_equal(eof, "eof");
    assert_int_equal(pgid, pid);
    snprintf(want, sizeof(want), "%d", dtpi_cpuset_next(&own, 0));
    assert_string_equal(cpus, want);
    assert_int_equal(n_fds, 4);     /* 0, 1, 2 and the folder that ls reads */
}

static void test_signals_are_as_in_a_fresh_process(void **state)
{
    sigset_t usr1;
    char out[64];

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    assert_int_equal(
        run("grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f2", NULL, out, sizeof(out)), 0);
    assert_string_equal(out, "0000000000000000\n0000000000000000\n");
    sigprocmask(SIG_UNBLOCK, &usr1, NULL);
    signal(SIGPIPE, SIG_DFL);
}

static void test_a_kept_descriptor_stays_open_and_a_limit_is_restored(void **state)
{
    const struct rlimit files = { 77, 77 };
    const int fd = fcntl(2, F_DUPFD_CLOEXEC, 50);
    const dtpi_spawn_req req = { .keep_fd = fd, .files = &files };
    char out[64];

    (void)state;
    assert_int_equal(run("ulimit -n; [ -e /proc/self/fd/50 ] && echo kept", &req, out, sizeof(out)),
                     0);
    assert_string_equal(out, "77\nkept\n");
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
}

static void test_what_cannot_be_executed_is_known_at_return(void **state)
{
    const char *const argv[] = { "x", NULL };
    dtpi_spawn_req req = { .argv = argv, .envp = env, .keep_fd = -1 };
    dtpi_cpuset none = { { 0 } };
    dtpi_child child;

    (void)state;
    req.path = "/no/such/program";
    assert_status(DTP_ERR_EXEC, dtpi_spawn(&req, &child, ERR));
    assert_text("cannot execute '/no/such/program': No such file");
    assert_int_equal(ERR->sys_errno, ENOENT);
    req.path = "/etc/passwd";
    assert_status(DTP_ERR_EXEC, dtpi_spawn(&req, &child, ERR));
    assert_int_equal(ERR->sys_errno, EACCES);
    req.path = "/bin/true";
    req.cwd = "/no/such/folder";
    assert_status(DTP_ERR_NOT_FOUND, dtpi_spawn(&req, &child, ERR));
    assert_text("cannot enter folder '/no/such/folder'");
    req.cwd = NULL;
    dtpi_cpuset_set(&none, DTPI_CPUSET_MAX - 1);
    req.cpus = &none;
    assert_true(dtpi_spawn(&req, &child, ERR) < 0);
    assert_text("cannot bind to its processors");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);   /* nothing is left to reap */
}

static void test_programs_are_found_as_a_shell_finds_them(void **state)
{
    char path[PATH_MAX], dir[] = "/tmp/dtp-test-XXXXXX", file[64];

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/prog", dir);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    assert_status(DTP_ERR_EXEC, dtpi_find_program("prog", dir, NULL, path, ERR));
    assert_int_equal(ERR->sys_errno, EACCES);
    assert_text("'prog' is not an executable program");
    assert_int_equal(chmod(file, 0700), 0);
    assert_ok(dtpi_find_program("prog", dir, NULL, path, ERR));
    assert_string_equal(path, file);
    assert_ok(dtpi_find_program("./prog", NULL, dir, path, ERR));
    assert_ok(dtpi_find_program("prog", "/nowhere::/else", dir, path, ERR)); /* "" is the folder */
    assert_ok(dtpi_find_program("sh", NULL, NULL, path, ERR));
    assert_status(DTP_ERR_EXEC, dtpi_find_program("prog", "/nowhere", NULL, path, ERR));
    assert_int_equal(ERR->sys_errno, ENOENT);
    assert_text("program 'prog' not found");
    assert_status(DTP_ERR_EXEC, dtpi_find_program("", NULL, NULL, path, ERR));
    assert_status(DTP_ERR_EXEC, dtpi_find_program(dir, NULL, NULL, path, ERR));
    assert_int_equal(ERR->sys_errno, EACCES);
    unlink(file);
    rmdir(dir);
}

static void test_too_few_descriptors_are_said_with_both_numbers(void **state)
{
    struct rlimit old;
    char want[128];

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    struct rlimit low = old;
    low.rlim_max = low.rlim_cur = 100;
    /* In a child: a hard limit cannot be raised again by everybody. */
    const pid_t pid = fork();
    if (pid == 0) {
        dtp_error err;
        struct rlimit before;
        setrlimit(RLIMIT_NOFILE, &low);
        const dtp_status st = dtpi_raise_files(2048, &before, &err);
        snprintf(want, sizeof(want), "need 2048 descriptors, limit 100");
        _exit(st == DTP_ERR_LIMIT && strcmp(err.text, want) == 0 ? 0 : 1);
    }
    int wstatus;
    assert_int_equal(waitpid(pid, &wstatus, 0), pid);
    assert_int_equal(wstatus, 0);
}

/* Starts a process; the kernel lets go of the parent a little before the new environment can be read. */
static void spawn_and_see(const dtpi_spawn_req *req, dtpi_child *child)
{
    char path[64], first = 0;

    assert_ok(dtpi_spawn(req, child, ERR));
    snprintf(path, sizeof(path), "/proc/%d/environ", (int)child->pid);
    for (int i = 0; i < 5000 && !first; i++) {
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        if (read(fd, &first, 1) < 1)
            poll(NULL, 0, 1);
        close(fd);
    }
    assert_true(first);
}

static void test_processes_are_found_by_a_mark_in_their_environment(void **state)
{
    const char *const argv[] = { "sleep", "100", NULL };
    const char *const marked[] = { "X=1", "DTP_TEST_MARK=here", NULL };
    const char *const other[] = { "DTP_TEST_MARK=here2", "XDTP_TEST_MARK=here", NULL };
    dtpi_spawn_req req = { .path = "/bin/sleep", .argv = argv, .envp = marked, .keep_fd = -1 };
    dtpi_child a, b;
    int wstatus;

    (void)state;
    spawn_and_see(&req, &a);
    req.envp = other;
    spawn_and_see(&req, &b);
    assert_int_equal(dtpi_sweep(&dtpi_malloc_allocator, "DTP_TEST_MARK=here", 0), 1);
    assert_int_equal(dtpi_sweep(&dtpi_malloc_allocator, "DTP_TEST_MARK=here", SIGKILL), 1);
    assert_int_equal(waitpid(a.pid, &wstatus, 0), a.pid);
    assert_int_equal(WTERMSIG(wstatus), SIGKILL);
    assert_int_equal(waitpid(b.pid, &wstatus, WNOHANG), 0);
    assert_int_equal(dtpi_signal_children(SIGKILL, NULL, NULL), 1);
    assert_int_equal(waitpid(b.pid, &wstatus, 0), b.pid);
    assert_int_equal(dtpi_signal_children(SIGKILL, NULL, NULL), 0);
    for (const dtpi_child *c = &a; c; c = c == &a ? &b : NULL) {
        close(c->pidfd);
        close(c->out_fd);
        close(c->err_fd);
    }
}

static void test_a_mark_is_found_behind_a_large_environment(void **state)
{
    enum { N_FILLERS = 10, FILLER = 100 << 10 };
    const char *const argv[] = { "sleep", "100", NULL };
    const char *marked[N_FILLERS + 2] = { NULL };
    char *filler = malloc(FILLER);
    dtpi_child child;

    (void)state;
    assert_non_null(filler);
    memset(filler, 'x', FILLER - 1);
    memcpy(filler, "FILLER=", 7);
    filler[FILLER - 1] = '\0';
    for (int i = 0; i < N_FILLERS; i++)
        marked[i] = filler;
    marked[N_FILLERS] = "DTP_TEST_MARK=behind";
    const dtpi_spawn_req req = { .path = "/bin/sleep", .argv = argv, .envp = marked, .keep_fd = -1 };
    spawn_and_see(&req, &child);
    const uint32_t n = dtpi_sweep(&dtpi_malloc_allocator, "DTP_TEST_MARK=behind", 0);
    kill(child.pid, SIGKILL);
    assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
    close(child.pidfd);
    close(child.out_fd);
    close(child.err_fd);
    free(filler);
    assert_int_equal(n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_child_gets_what_it_was_given),
        cmocka_unit_test(test_signals_are_as_in_a_fresh_process),
        cmocka_unit_test(test_a_kept_descriptor_stays_open_and_a_limit_is_restored),
        cmocka_unit_test(test_what_cannot_be_executed_is_known_at_return),
        cmocka_unit_test(test_programs_are_found_as_a_shell_finds_them),
        cmocka_unit_test(test_too_few_descriptors_are_said_with_both_numbers),
        cmocka_unit_test(test_processes_are_found_by_a_mark_in_their_environment),
        cmocka_unit_test(test_a_mark_is_found_behind_a_large_environment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
