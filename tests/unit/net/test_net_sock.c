/* SPDX-License-Identifier: Apache-2.0 */
/* Names of sockets and end points, and who listens there. */
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/net.h"
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
    assert_string_equal(e.hosts[0].name, "node1");
    assert_int_equal(e.hosts[0].first_port, 7000);
    assert_int_equal(e.hosts[0].last_port, 7063);
    assert_int_equal(dtpi_endpoint_next_name(&e), 0);
    assert_int_equal(dtpi_endpoint_n_attempts(&e), 0);
    assert_ok(dtpi_endpoint_parse("[::1]:65535", &e, ERR));
    assert_string_equal(e.hosts[0].name, "::1");
    assert_int_equal(dtpi_endpoint_next_name(&e), -1);
    assert_int_equal(e.addrs[0].sa.any.sa_family, AF_INET6);
    assert_int_equal(dtpi_endpoint_n_attempts(&e), e.n_addrs);
}

static void test_a_list_of_end_points_gives_first_ports_first(void **state)
{
    static const char *const want[] = { "10.0.0.1:7000", "[fd00::1]:80", "10.0.0.1:7001" };
    char text[DTPI_ADDR_TEXT];
    dtpi_endpoint e;
    dtpi_sa sa;

    (void)state;
    assert_ok(dtpi_endpoint_parse("10.0.0.1:7000-7001,[fd00::1]:80", &e, ERR));
    assert_int_equal(dtpi_endpoint_n_attempts(&e), 3);
    for (uint32_t i = 0; i < 6; i++) {
        dtpi_endpoint_get(&e, i, &sa);
        dtpi_sa_text(&sa, text, sizeof(text));
        assert_string_equal(text, want[i % 3]);
    }
    assert_status(DTP_ERR_FORMAT, dtpi_endpoint_parse("10.0.0.1:1,", &e, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_endpoint_parse(",10.0.0.1:1", &e, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_endpoint_parse("[host]:1", &e, ERR));
    assert_status(DTP_ERR_FORMAT,
                  dtpi_endpoint_parse("a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1",
                                      &e, ERR));
}

static void test_link_local_addresses_keep_their_scope(void **state)
{
    char text[DTPI_ADDR_TEXT];
    dtpi_endpoint e;
    dtpi_sa sa;

    (void)state;
    assert_ok(dtpi_endpoint_parse("[fe80::1%lo]:5", &e, ERR));
    assert_int_equal(e.n_addrs, 1);
    dtpi_endpoint_get(&e, 0, &sa);
    dtpi_sa_text(&sa, text, sizeof(text));
    assert_string_equal(text, "[fe80::1%lo]:5");
    assert_false(dtpi_endpoint_relink(&e));
    /* Without one: a try on every link, once. */
    assert_ok(dtpi_endpoint_parse("[fe80::1]:5", &e, ERR));
    const uint32_t n = e.n_addrs;
    assert_true(dtpi_endpoint_relink(&e));
    assert_int_equal(e.n_addrs, n);
}

static void test_a_listener_says_its_port_before_anybody_hears_of_it(void **state)
{
    char text[64];
    int fd, again, other;
    uint16_t port, same;
    dtpi_sa sa;

    (void)state;
    assert_ok(dtpi_tcp_listen_at(NULL, &fd, &port, ERR));
    assert_true(port > 0);
    assert_true(dtpi_sa_parse("127.0.0.1", &sa));
    dtpi_sa_set_port(&sa, port);
    assert_ok(dtpi_tcp_connect(&sa, 0, &other, ERR));
    close(other);
    snprintf(text, sizeof(text), ":%u", port);
    assert_status(DTP_ERR_EXISTS, dtpi_tcp_listen_at(text, &again, &same, ERR));
    snprintf(text, sizeof(text), "fd:%d", fd);
    assert_ok(dtpi_tcp_listen_at(text, &again, &same, ERR));
    assert_int_equal(same, port);
    close(again);
    close(fd);
    assert_status(DTP_ERR_FORMAT, dtpi_tcp_listen_at("fd:x", &fd, &port, ERR));
    assert_status(DTP_ERR_INVAL, dtpi_tcp_listen_at("fd:0", &fd, &port, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_tcp_listen_at("here", &fd, &port, ERR));
    assert_non_null(strstr(check_err.text, "listen 'here'"));
}

static void test_own_candidates_put_the_one_that_faces_the_root_first(void **state)
{
    char text[DTPI_OWN_TEXT];
    dtpi_sa root;

    (void)state;
    assert_true(dtpi_sa_parse("127.0.0.1", &root));
    assert_true(dtpi_own_candidates(77, &root, 1, text, sizeof(text)) >= 1);
    assert_int_equal(strncmp(text, "127.0.0.1:77", 12), 0);
    assert_true(dtpi_own_candidates(77, NULL, 0, text, sizeof(text)) >= 1);
    /* No room: whole addresses or none. */
    assert_int_equal(dtpi_own_candidates(77, &root, 1, text, 5), 0);
    assert_string_equal(text, "");
}

static void test_the_first_free_port_of_a_range_is_taken(void **state)
{
    char text[80], first[80];
    dtpi_endpoint e;
    int fds[2], fd;
    dtpi_sa sa;

    (void)state;
    /* Below the range from which the kernel gives ports to those who connect. */
    const unsigned port = 10000 + (unsigned)getpid() % 20000;
    snprintf(text, sizeof(text), "127.0.0.1:%u-%u", port, port + 20);
    assert_ok(dtpi_endpoint_parse(text, &e, ERR));
    assert_ok(dtpi_tcp_listen(&e, &fds[0], first, sizeof(first), ERR));
    assert_ok(dtpi_tcp_listen(&e, &fds[1], text, sizeof(text), ERR));
    assert_string_not_equal(first, text);
    assert_ok(dtpi_endpoint_parse(first, &e, ERR));
    assert_status(DTP_ERR_EXISTS, dtpi_tcp_listen(&e, &fd, text, sizeof(text), ERR));
    assert_non_null(strstr(check_err.text, "cannot listen on 127.0.0.1 port"));
    dtpi_endpoint_get(&e, 7, &sa);
    assert_ok(dtpi_tcp_connect(&sa, 0, &fd, ERR));
    close(fd);
    close(fds[0]);
    close(fds[1]);
}

/* ---- what UCX is told ---- */

static void test_lanes_and_versions_are_told_apart(void **state)
{
    const dtpi_net_choice c = { .devices = "mlx5_0:1,eth0" };
    dtpi_net_choice got;

    (void)state;
    assert_true(dtpi_net_lane_is_rdma("rc_mlx5/mlx5_0:1"));
    assert_true(dtpi_net_lane_is_rdma("ud/mlx5_0:1"));
    assert_false(dtpi_net_lane_is_rdma("tcp/eth0"));
    assert_false(dtpi_net_lane_is_rdma(""));
    assert_false(dtpi_net_lane_is_rdma("rcx"));
    assert_true(dtpi_net_lane_was_chosen(&c, "tcp/eth0"));
    assert_true(dtpi_net_lane_was_chosen(&c, "rc_mlx5/mlx5_0:1"));
    assert_false(dtpi_net_lane_was_chosen(&c, "tcp/eth01"));
    assert_false(dtpi_net_lane_was_chosen(&c, "tcp/docker0"));
    assert_false(dtpi_net_lane_was_chosen(&c, "tcp"));
    assert_true(dtpi_net_survives_strangers("1.22"));
    assert_true(dtpi_net_survives_strangers("2.0"));
    assert_false(dtpi_net_survives_strangers("1.13"));
    assert_false(dtpi_net_survives_strangers("1.9"));
    assert_false(dtpi_net_survives_strangers(""));
    dtpi_net_choose("127.0.0.1:5,[::1]:6", &got);
    assert_non_null(strstr(got.devices, "lo"));
    assert_non_null(strstr(got.transports, "tcp"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_path_is_taken_over_only_from_the_dead),
        cmocka_unit_test(test_a_listener_whose_queue_is_full_keeps_its_path),
        cmocka_unit_test(test_names_that_do_not_fit_are_refused),
        cmocka_unit_test(test_end_points_are_read_exactly),
        cmocka_unit_test(test_a_list_of_end_points_gives_first_ports_first),
        cmocka_unit_test(test_link_local_addresses_keep_their_scope),
        cmocka_unit_test(test_a_listener_says_its_port_before_anybody_hears_of_it),
        cmocka_unit_test(test_own_candidates_put_the_one_that_faces_the_root_first),
        cmocka_unit_test(test_lanes_and_versions_are_told_apart),
        cmocka_unit_test(test_the_first_free_port_of_a_range_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
