/* SPDX-License-Identifier: Apache-2.0 */
/* Names of sockets and end points, and who listens there. */
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/sock.h"

/* ---- Unix ---- */

static void path_of(char *path_out, size_t room)
{
    snprintf(path_out, room, "/tmp/dtp-sock-%d", (int)getpid());
    unlink(path_out);
}

static void test_a_path_is_taken_over_only_from_the_dead(void **state)
{
    char path[64];
    struct stat st;
    int first, second;

    (void)state;
    path_of(path, sizeof(path));
    assert_ok(dtpi_unix_listen(path, &first, ERR));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_status(DTP_ERR_EXISTS, dtpi_unix_listen(path, &second, ERR));
    assert_non_null(strstr(check_err.text, path));
    close(first);
    assert_ok(dtpi_unix_listen(path, &second, ERR));
    close(second);
    unlink(path);
}

static void test_a_listener_whose_queue_is_full_keeps_its_path(void **state)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    int waiting[8], n = 0, fd;

    (void)state;
    path_of(sa.sun_path, sizeof(sa.sun_path));
    const int busy = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(busy, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(listen(busy, 1), 0);
    while (n < 8 && dtpi_unix_connect(sa.sun_path, &waiting[n], ERR) == DTP_OK)
        n++;
    assert_in_range(n, 1, 7);
    assert_status(DTP_ERR_EXISTS, dtpi_unix_listen(sa.sun_path, &fd, ERR));
    assert_int_equal(access(sa.sun_path, F_OK), 0);
    while (n > 0)
        close(waiting[--n]);
    close(busy);
    unlink(sa.sun_path);
}

static void test_names_that_do_not_fit_are_refused(void **state)
{
    char name[200];
    int fd;

    (void)state;
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_status(DTP_ERR_INVAL, dtpi_unix_listen(name, &fd, ERR));
    assert_non_null(strstr(check_err.text, "has 199 characters"));
    assert_status(DTP_ERR_INVAL, dtpi_unix_connect("", &fd, ERR));
    assert_status(DTP_PENDING, dtpi_unix_connect("@dtp-nobody-listens-here", &fd, ERR));
}

/* ---- TCP ---- */

static void test_end_points_are_read_exactly(void **state)
{
    static const char *const bad[] = { "", ":", "host", "host:", ":1", "host:0", "host:65536", "host:1-0",
                                       "host:1-65", "host:1-", "host:-1", "::1:5", "[::1]", "[]:1",
                                       "host:1x", "host: 1", "host:99999999999999999999" };
    dtpi_endpoint e;

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++) {
        if (dtpi_endpoint_parse(bad[i], &e, ERR) != DTP_ERR_FORMAT)
            fail_msg("'%s' was taken", bad[i]);
        assert_non_null(strstr(check_err.text, "is not host:port"));
    }
    assert_ok(dtpi_endpoint_parse("node1:7000-7063", &e, ERR));
    assert_string_equal(e.host, "node1");
    assert_int_equal(e.first_port, 7000);
    assert_int_equal(e.last_port, 7063);
    assert_ok(dtpi_endpoint_parse("[::1]:65535", &e, ERR));
    assert_string_equal(e.host, "::1");
    assert_ok(dtpi_endpoint_resolve(&e, ERR));
    assert_int_equal(e.addrs[0].ss_family, AF_INET6);
    assert_int_equal(dtpi_endpoint_n_attempts(&e), e.n_addrs);
}

static void test_the_first_free_port_of_a_range_is_taken(void **state)
{
    char text[80], first[80];
    dtpi_endpoint e;
    int fds[2], fd;

    (void)state;
    /* Below the range from which the kernel gives ports to those who connect. */
    const unsigned port = 10000 + (unsigned)getpid() % 20000;
    snprintf(text, sizeof(text), "127.0.0.1:%u-%u", port, port + 20);
    assert_ok(dtpi_endpoint_parse(text, &e, ERR));
    assert_ok(dtpi_endpoint_resolve(&e, ERR));
    assert_ok(dtpi_tcp_listen(&e, &fds[0], first, sizeof(first), ERR));
    assert_ok(dtpi_tcp_listen(&e, &fds[1], text, sizeof(text), ERR));
    assert_string_not_equal(first, text);
    assert_ok(dtpi_endpoint_parse(first, &e, ERR));
    assert_ok(dtpi_endpoint_resolve(&e, ERR));
    assert_status(DTP_ERR_EXISTS, dtpi_tcp_listen(&e, &fd, text, sizeof(text), ERR));
    assert_non_null(strstr(check_err.text, "cannot listen on 127.0.0.1 port"));
    assert_ok(dtpi_tcp_connect(&e, 7, &fd, ERR));
    close(fd);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_path_is_taken_over_only_from_the_dead),
        cmocka_unit_test(test_a_listener_whose_queue_is_full_keeps_its_path),
        cmocka_unit_test(test_names_that_do_not_fit_are_refused),
        cmocka_unit_test(test_end_points_are_read_exactly),
        cmocka_unit_test(test_the_first_free_port_of_a_range_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
