/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several end points answers, and what is said of the others. */
#include "check.h"

#include <errno.h>
#include <unistd.h>

#include "net/race.h"

struct seen {
    dtpi_race *race;
    uint32_t n_connected, n_failed, try;
    char peer[DTPI_ADDR_TEXT];
    int fd;
    bool close_in_call, lose;
    uint32_t n_shrinks;
};

static dtp_ctx *ctx;

static void connected(void *user, uint32_t try, int fd_take)
{
    struct seen *s = user;

    s->n_connected++;
    s->try = try;
    dtpi_tcp_peer_text(fd_take, s->peer, sizeof(s->peer));
    if (s->lose || s->n_shrinks) {
        close(fd_take);
        if (s->lose)
            dtpi_race_lost(s->race, try, "another group lives there");
        else if (s->n_shrinks--)
            dtpi_race_shrink(s->race, try);
        return;
    }
    s->fd = fd_take;
    if (s->close_in_call) {
        dtpi_race_close(s->race);
        s->race = NULL;
    }
}

static void failed(void *user)
{
    struct seen *s = user;

    s->n_failed++;
}

static const dtpi_race_ops ops = { .connected = connected, .failed = failed };

static int setup(void **state)
{
    const dtp_ctx_opts o = { .size = sizeof(o) };

    (void)state;
    return dtp_ctx_open(&o, &ctx, ERR);
}

static int teardown(void **state)
{
    (void)state;
    dtp_ctx_close(ctx);
    return 0;
}

static bool has_fd(void *user)
{
    return ((struct seen *)user)->fd >= 0;
}

static bool has_connected_thrice(void *user)
{
    return ((struct seen *)user)->n_connected >= 3;
}

static void wait_for(bool (*done)(void *), struct seen *s, dtp_status want)
{
    assert_ok(dtpi_ctx_enter(ctx, ERR));
    assert_int_equal(dtpi_ctx_wait(ctx, done, s, dtp_ctx_now_ns(ctx) + 3000 * DTPI_NS_PER_MS, ERR), want);
    dtpi_ctx_leave(ctx);
}

static int listen_here(uint16_t *port_out)
{
    int fd;

    assert_ok(dtpi_tcp_listen_at(NULL, &fd, port_out, ERR));
    return fd;
}

static void test_the_candidate_that_answers_wins(void **state)
{
    struct seen s = { .fd = -1, .close_in_call = true };
    char list[200], want[80];
    uint16_t port;

    (void)state;
    const int fd = listen_here(&port);
    snprintf(list, sizeof(list), "127.0.0.1:1-9,[::1]:1,127.0.0.1:%u", port);
    snprintf(want, sizeof(want), "127.0.0.1:%u", port);
    assert_ok(dtpi_race_open(ctx, list, 0, &ops, &s, &s.race, ERR));
    assert_int_equal(dtpi_race_n_tries(s.race), 11);
    wait_for(has_fd, &s, DTP_OK);
    assert_string_equal(s.peer, want);
    assert_int_equal(s.n_connected, 1);
    close(s.fd);
    close(fd);
}

static bool has_failed_often(void *user)
{
    return ((struct seen *)user)->n_failed >= 8;
}

static void test_a_refusal_names_both_ends_and_the_ports(void **state)
{
    struct seen s = { .fd = -1 };
    char text[DTP_ERROR_TEXT];

    (void)state;
    assert_ok(dtpi_race_open(ctx, "127.0.0.1:1-3,[ff02::1]:2", 0, &ops, &s, &s.race, ERR));
    wait_for(has_failed_often, &s, DTP_OK);
    dtpi_race_text(s.race, text, sizeof(text));
    assert_non_null(strstr(text, "127.0.0.1:1-3 from 127.0.0.1 (lo): Connection refused; [ff02::1]:2"));
    dtpi_race_text(s.race, text, 40);
    assert_string_equal(text, "127.0.0.1:1-3 from 127.0.0.1 (lo): Conn");
    dtpi_race_close(s.race);
}

static void test_who_comes_late_is_found(void **state)
{
    struct seen s = { .fd = -1 };
    char where[64];
    uint16_t port;

    (void)state;
    int fd = listen_here(&port);
    close(fd);
    snprintf(where, sizeof(where), "127.0.0.1:%u", port);
    assert_ok(dtpi_race_open(ctx, where, 0, &ops, &s, &s.race, ERR));
    wait_for(has_failed_often, &s, DTP_OK);
    assert_int_equal(s.n_connected, 0);
    assert_ok(dtpi_tcp_listen_at(where, &fd, &port, ERR));
    wait_for(has_fd, &s, DTP_OK);
    dtpi_race_close(s.race);
    close(s.fd);
    close(fd);
}

static void test_a_peer_that_lost_is_tried_again_and_speaks_for_its_host(void **state)
{
    struct seen s = { .fd = -1, .lose = true };
    char list[64], text[DTP_ERROR_TEXT], want[128];
    uint16_t port;

    (void)state;
    const int fd = listen_here(&port);
    snprintf(list, sizeof(list), "127.0.0.1:1,127.0.0.1:%u", port);
    snprintf(want, sizeof(want), "127.0.0.1:%u from 127.0.0.1 (lo): another group lives there", port);
    assert_ok(dtpi_race_open(ctx, list, 0, &ops, &s, &s.race, ERR));
    wait_for(has_connected_thrice, &s, DTP_OK);
    dtpi_race_text(s.race, text, sizeof(text));
    assert_string_equal(text, want);
    dtpi_race_close(s.race);
    close(fd);
}

static void test_an_agent_never_meets_itself(void **state)
{
    struct seen s = { .fd = -1 };
    char list[64], text[DTP_ERROR_TEXT];
    uint16_t port;

    (void)state;
    const int fd = listen_here(&port);
    snprintf(list, sizeof(list), "127.0.0.1:%u,127.0.0.1:1", port);
    assert_ok(dtpi_race_open(ctx, list, port, &ops, &s, &s.race, ERR));
    wait_for(has_failed_often, &s, DTP_OK);
    assert_int_equal(s.n_connected, 0);
    dtpi_race_text(s.race, text, sizeof(text));
    assert_non_null(strstr(text, "that is this agent itself"));
    dtpi_race_close(s.race);
    close(fd);
}

static void test_smaller_segments_are_tried_at_once_and_not_for_ever(void **state)
{
    struct seen s = { .fd = -1, .n_shrinks = 5 };
    char where[64], text[DTP_ERROR_TEXT];
    uint16_t port;

    (void)state;
    const int fd = listen_here(&port);
    snprintf(where, sizeof(where), "127.0.0.1:%u", port);
    assert_ok(dtpi_race_open(ctx, where, 0, &ops, &s, &s.race, ERR));
    wait_for(has_connected_thrice, &s, DTP_OK);
    dtpi_race_text(s.race, text, sizeof(text));
    assert_non_null(strstr(text, "large messages vanish on the way (MTU)"));
    wait_for(has_fd, &s, DTP_OK);
    assert_int_equal(s.n_connected, 6);
    dtpi_race_close(s.race);
    close(s.fd);
    close(fd);
}

static bool never(void *user)
{
    (void)user;
    return false;
}

/* A listener whose queue is full lets connections hang. */
static void check_that_it_sleeps(int n_hanging)
{
    enum { HANGING = 8 };
    struct seen s = { .fd = -1 };
    int fds[HANGING], queued[HANGING][8];
    char list[HANGING * 32] = "";

    for (int i = 0; i < n_hanging; i++) {
        uint16_t port;
        dtpi_sa to;
        fds[i] = listen_here(&port);
        assert_int_equal(listen(fds[i], 0), 0);
        assert_true(dtpi_sa_parse("127.0.0.1", &to));
        dtpi_sa_set_port(&to, port);
        for (int k = 0; k < 8; k++)
            assert_ok(dtpi_tcp_connect(&to, 0, &queued[i][k], ERR));
        snprintf(list + strlen(list), 32, "%s127.0.0.1:%u", i ? "," : "", port);
    }
    assert_ok(dtpi_race_open(ctx, list, 0, &ops, &s, &s.race, ERR));
    assert_ok(dtpi_ctx_enter(ctx, ERR));
    assert_int_equal(dtpi_ctx_wait(ctx, never, NULL, dtp_ctx_now_ns(ctx) + 400 * DTPI_NS_PER_MS, ERR),
                     DTP_ERR_TIMEOUT);
    dtpi_ctx_leave(ctx);
    /* `failed` is called in every turn of the race. */
    assert_in_range(s.n_failed, 2, 60);
    dtpi_race_close(s.race);
    for (int i = 0; i < n_hanging; i++) {
        close(fds[i]);
        for (int k = 0; k < 8; k++)
            close(queued[i][k]);
    }
}

static void test_candidates_that_hang_are_waited_for_asleep(void **state)
{
    (void)state;
    check_that_it_sleeps(2);    /* room for more */
    check_that_it_sleeps(8);    /* more than are tried at once */
}

static void test_a_name_is_looked_up_beside_the_literals(void **state)
{
    struct seen s = { .fd = -1, .close_in_call = true };
    char list[200];
    uint16_t port;

    (void)state;
    CHECK_SKIP_UNDER_TSAN("the C library's own thread for look-ups ends a process under it");
    const int fd = listen_here(&port);
    snprintf(list, sizeof(list), "no-such-host.invalid:5,127.0.0.1:1,localhost:%u", port);
    assert_ok(dtpi_race_open(ctx, list, 0, &ops, &s, &s.race, ERR));
    wait_for(has_fd, &s, DTP_OK);
    close(s.fd);
    close(fd);
    assert_status(DTP_ERR_FORMAT, dtpi_race_open(ctx, "here", 0, &ops, &s, &s.race, ERR));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_candidate_that_answers_wins, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_refusal_names_both_ends_and_the_ports, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_comes_late_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_peer_that_lost_is_tried_again_and_speaks_for_its_host, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_an_agent_never_meets_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(test_smaller_segments_are_tried_at_once_and_not_for_ever, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_candidates_that_hang_are_waited_for_asleep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_name_is_looked_up_beside_the_literals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
