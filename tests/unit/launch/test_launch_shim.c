/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the shim program and reaching one: what it inherits, and who does not answer. */
#include "check.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "launch/shim.h"

static char dir[] = "/tmp/dtp-test-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(dir);
}

/* A program that says on its socket which of the descriptors 3, 4 and 5 it has. */
static void write_program(const char *path)
{
    const char script[] = "#!/bin/sh\n"
                          "for i in 3 4 5; do [ -e /proc/self/fd/$i ] && printf $i >&3; done\n"
                          "exit 0\n";
    const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0700);

    assert_int_equal(write(fd, script, sizeof(script) - 1), sizeof(script) - 1);
    close(fd);
}

static void expect_fds(const dtpi_shim_start *start, const char *want)
{
    char got[8] = "";
    int fd = -1;

    assert_ok(dtpi_shim_spawn(start, &fd, ERR));
    for (size_t len = 0; len < sizeof(got) - 1;) {
        const ssize_t n = read(fd, got + len, sizeof(got) - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    assert_string_equal(got, want);
}

static void test_a_shim_without_locks_does_not_get_a_descriptor_of_the_host(void **state)
{
    const char *const env[] = { "PATH=/usr/bin:/bin", NULL };
    const int host = open("/dev/null", O_RDONLY);
    char program[64];

    (void)state;
    snprintf(program, sizeof(program), "%s/shim", dir);
    write_program(program);
    assert_int_equal(dup2(host, DTPI_SHIM_FD_LOCKS), DTPI_SHIM_FD_LOCKS);   /* without CLOEXEC */
    dtpi_shim_start start = { .program = program, .job_dir = dir, .env = env, .alive_fd = host,
                              .locks_fd = -1 };
    expect_fds(&start, "34");
    start.locks_fd = host;
    expect_fds(&start, "345");
    close(DTPI_SHIM_FD_LOCKS);
    close(host);
    unlink(program);
}

static void test_a_missing_shim_is_named(void **state)
{
    const char *const env[] = { NULL };
    const dtpi_shim_start start = { .program = "/no/such/shim", .job_dir = dir, .env = env,
                                    .alive_fd = 0, .locks_fd = -1 };
    int fd = -1;

    (void)state;
    assert_status(DTP_ERR_EXEC, dtpi_shim_spawn(&start, &fd, ERR));
    assert_text("cannot start the shim /no/such/shim: No such file");
    assert_int_equal(fd, -1);
}

static void test_nobody_who_listens_is_not_found(void **state)
{
    int fd = -1;

    (void)state;
    assert_status(DTP_ERR_NOT_FOUND, dtpi_shim_connect(dir, &fd, ERR));
    assert_text("no shim listens in");
    assert_status(DTP_ERR_NOT_FOUND, dtpi_shim_connect("/no/such/folder", &fd, ERR));
    assert_text("cannot open /no/such/folder");
}

/* A stopped shim accepts nobody: once its queue is full, a blocking connect would never return. */
static void test_a_shim_that_accepts_nobody_does_not_hold_a_caller_up(void **state)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fds[8], n = 0;
    dtp_status st = DTP_OK;

    (void)state;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/sock", dir);
    assert_int_equal(bind(listener, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 1), 0);
    alarm(20);
    while (st >= 0 && n < 8)
        if ((st = dtpi_shim_connect(dir, &fds[n], ERR)) >= 0)
            n++;
    alarm(0);
    assert_int_equal(st, DTP_ERR_BUSY);
    assert_text("accepts nobody at present");
    while (n > 0)
        close(fds[--n]);
    close(listener);
    unlink(addr.sun_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_shim_without_locks_does_not_get_a_descriptor_of_the_host),
        cmocka_unit_test(test_a_missing_shim_is_named),
        cmocka_unit_test(test_nobody_who_listens_is_not_found),
        cmocka_unit_test(test_a_shim_that_accepts_nobody_does_not_hold_a_caller_up),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
