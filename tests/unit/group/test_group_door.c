/* SPDX-License-Identifier: Apache-2.0 */
/* test_group_door.c - an agent's door under a flood: who is kept, who goes, and when. */
#include "check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "group/agent.h"
#include "group/handshake.h"
#include "net/sock.h"

static const uint8_t secret[DTP_SECRET_BYTES] = "a secret of thirty-two bytes...";

struct door {
    dtp_ctx *ctx;
    dtpi_agent *agent;
    struct sockaddr_in at;
    char text[DTP_ERROR_TEXT];  /* last refusal in the log */
    int n_logged;
};

static void keep_log(void *user, dtp_log_level level, const char *topic, const char *text)
{
    struct door *d = user;

    (void)topic;
    if (level > DTP_LOG_WARN)
        return;
    snprintf(d->text, sizeof(d->text), "%s", text);
    d->n_logged++;
}

/* The root of two nodes, in this process. */
static void door_open(struct door *d)
{
    char socket_name[64], root[64];
    socklen_t len = sizeof(d->at);

    memset(d, 0, sizeof(*d));
    d->at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&d->at, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&d->at, &len), 0);
    close(fd);
    snprintf(root, sizeof(root), "127.0.0.1:%u", ntohs(d->at.sin_port));
    snprintf(socket_name, sizeof(socket_name), "@dtp-door-%d-%u", getpid(), ntohs(d->at.sin_port));
    const dtp_ctx_opts co = { .size = sizeof(co), .clock = DTP_CLOCK_VIRTUAL, .log = keep_log,
                              .log_user = d, .log_level = DTP_LOG_INFO };
    const dtpi_agent_opts o = { .job = "job", .world_size = 4, .n_local = 2, .socket = socket_name,
                                .root = root, .is_root = true, .secret = secret };
    assert_ok(dtp_ctx_open(&co, &d->ctx, ERR));
    assert_ok(dtpi_agent_open(d->ctx, &o, &d->agent, ERR));
}

static void door_close(struct door *d)
{
    dtpi_agent_close(d->agent);
    dtp_ctx_close(d->ctx);
}

static void turn(struct door *d)
{
    for (int i = 0; i < 20; i++)
        assert_true(dtp_ctx_dispatch(d->ctx, 0, ERR) >= 0);
}

/* From 127.0.0.`from`. */
static int come(struct door *d, int from)
{
    struct sockaddr_in own = { .sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + (uint32_t)from) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&d->at, sizeof(d->at)), 0);
    return fd;
}

static bool is_open(int fd)
{
    char c;

    return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static void say(int fd, const uint8_t *data, size_t bytes)
{
    dtpi_buf out = dtpi_buf_init(&dtpi_malloc_allocator);

    dtpi_wr_block(&out, data, bytes);
    assert_int_equal(send(fd, out.data, out.len, MSG_NOSIGNAL), (ssize_t)out.len);
    dtpi_buf_free(&out);
}

/* As the agent of another node would; what it needs to go on is in `hs`. */
static void say_hello_of(int fd, const uint8_t *with_secret, uint32_t world, dtpi_hs *hs)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    dtpi_hs_init(hs, &(dtpi_hs_opts){ .role = DTPI_HS_AGENT, .job = "job", .generation = 1, .world = world,
                                      .who = 2, .host = "host2", .secret = with_secret });
    dtpi_hs_hello(hs, &b);
    say(fd, b.data, b.len);
    dtpi_buf_free(&b);
}

static void say_hello(int fd, const uint8_t *with_secret)
{
    dtpi_hs hs;

    say_hello_of(fd, with_secret, 4, &hs);
}

/* The type of the handshake's message that came, 0 when none did. */
static int heard(int fd)
{
    uint8_t raw[600];
    const ssize_t n = recv(fd, raw, sizeof(raw), MSG_DONTWAIT);

    return n < 11 ? 0 : raw[10];
}

static void test_a_flood_from_one_address_pushes_out_its_own(void **state)
{
    int flood[400], honest[4], n_left = 0, n_kept = 0;
    struct door d;

    (void)state;
    door_open(&d);
    for (int i = 0; i < 4; i++)
        honest[i] = come(&d, 3 + i);
    turn(&d);
    for (int i = 0; i < 400; i++) {
        flood[i] = come(&d, 2);
        if (i % 50 == 49)
            turn(&d);
    }
    for (int i = 0; i < 400; i++) {
        n_left += is_open(flood[i]);
        close(flood[i]);
    }
    assert_in_range(n_left, 200, 258);
    /* One or the other may have the flood's share. */
    for (int i = 0; i < 4; i++)
        if (is_open(honest[i])) {
            say_hello(honest[i], secret);
            turn(&d);
            n_kept += heard(honest[i]) == 2;
        }
    assert_in_range(n_kept, 2, 4);
    for (int i = 0; i < 4; i++)
        close(honest[i]);
    door_close(&d);
}

static void test_who_has_said_hello_stays_in_a_flood_from_the_same_address(void **state)
{
    struct door d;
    int flood[400];

    (void)state;
    door_open(&d);
    const int honest = come(&d, 2), other = come(&d, 2);
    say_hello(honest, secret);
    turn(&d);
    for (int i = 0; i < 400; i++) {
        flood[i] = come(&d, 2);
        if (i % 50 == 49)
            turn(&d);
    }
    assert_int_equal(heard(honest), 2);
    assert_true(is_open(honest));
    assert_false(is_open(other));
    for (int i = 0; i < 400; i++)
        close(flood[i]);
    close(honest);
    close(other);
    door_close(&d);
}

static void test_garbage_ends_at_once_and_slow_senders_after_five_seconds(void **state)
{
    struct door d;

    (void)state;
    door_open(&d);
    const int garbage = come(&d, 2), slow = come(&d, 2), half = come(&d, 2);
    assert_int_equal(send(garbage, "GET / HTTP/1.1\r\n", 16, 0), 16);
    assert_int_equal(send(half, "\x90\0\0\0\x64\x74", 6, 0), 6);
    turn(&d);
    assert_false(is_open(garbage));
    assert_true(is_open(slow) && is_open(half));
    /* A byte now and then does not help. */
    for (int i = 0; i < 4; i++) {
        assert_ok(dtp_ctx_advance(d.ctx, DTPI_NS_PER_S, ERR));
        assert_int_equal(send(half, &"\x70\x07\x01\x00"[i], 1, 0), 1);
        turn(&d);
    }
    assert_true(is_open(slow) && is_open(half));
    assert_ok(dtp_ctx_advance(d.ctx, DTPI_NS_PER_S, ERR));
    turn(&d);
    assert_false(is_open(slow) || is_open(half));
    close(garbage);
    close(slow);
    close(half);
    door_close(&d);
}

/* As the client does; reads what came. */
static void prove(int fd, dtpi_hs *hs)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    uint8_t raw[600];
    const ssize_t n = recv(fd, raw, sizeof(raw), MSG_DONTWAIT);

    assert_true(n > 4);
    assert_ok(dtpi_hs_answer(hs, raw + 4, (size_t)n - 4, &b, ERR));
    say(fd, b.data, b.len);
    dtpi_buf_free(&b);
}

static void test_nobody_stays_longer_because_one_before_him_got_on(void **state)
{
    struct door d;
    dtpi_hs hs;

    (void)state;
    door_open(&d);
    const int honest = come(&d, 2);
    turn(&d);
    const int slow = come(&d, 3);
    say_hello_of(honest, secret, 4, &hs);
    turn(&d);
    assert_ok(dtp_ctx_advance(d.ctx, 4 * DTPI_NS_PER_S, ERR));
    prove(honest, &hs);
    turn(&d);
    assert_true(is_open(honest) && is_open(slow));
    assert_ok(dtp_ctx_advance(d.ctx, DTPI_NS_PER_S, ERR));
    turn(&d);
    assert_true(is_open(honest));
    assert_false(is_open(slow));
    assert_ok(dtp_ctx_advance(d.ctx, 4 * DTPI_NS_PER_S, ERR));
    turn(&d);
    assert_false(is_open(honest));
    close(honest);
    close(slow);
    door_close(&d);
}

static void test_strangers_give_way_when_descriptors_are_out(void **state)
{
    struct rlimit old, low;
    struct door d;
    int quiet[20];

    (void)state;
    door_open(&d);
    for (int i = 0; i < 20; i++)
        quiet[i] = come(&d, 2);
    const int honest = come(&d, 3);
    say_hello(honest, secret);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)honest + 6;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    turn(&d);
    assert_int_equal(heard(honest), 2);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    for (int i = 0; i < 20; i++)
        close(quiet[i]);
    close(honest);
    door_close(&d);
}

static void test_a_flood_of_wrong_secrets_is_refused_and_logged_a_little(void **state)
{
    struct door d;

    (void)state;
    door_open(&d);
    for (int i = 0; i < 100; i++) {
        const int fd = come(&d, 2);
        say_hello(fd, NULL);
        turn(&d);
        assert_int_equal(heard(fd), 4);
        close(fd);
    }
    assert_in_range(d.n_logged, 1, 10);
    assert_non_null(strstr(d.text, "came without a secret"));
    assert_ok(dtp_ctx_advance(d.ctx, 2 * DTPI_NS_PER_S, ERR));
    const int fd = come(&d, 2);
    say_hello(fd, secret);
    turn(&d);
    assert_int_equal(heard(fd), 2);
    close(fd);
    door_close(&d);
}

/* Reads the refusal, and what its client says to it. */
static void read_refusal(int fd, dtpi_hs *hs, dtpi_buf *word)
{
    uint8_t raw[600];
    const ssize_t n = recv(fd, raw, sizeof(raw), MSG_DONTWAIT);

    assert_true(n > 4);
    assert_status(DTP_ERR_INVAL, dtpi_hs_answer(hs, raw + 4, (size_t)n - 4, word, ERR));
    assert_text("says world size 5");
    assert_true(hs->is_proven && word->len > 0);
}

static void test_a_recorded_contradiction_does_not_end_a_group_that_forms(void **state)
{
    dtpi_buf word = dtpi_buf_init(&dtpi_malloc_allocator);
    struct door earlier, d;
    dtpi_hs hs;

    (void)state;
    /* A run of five that met one of four, with the same secret: both went down. */
    door_open(&earlier);
    const int author = come(&earlier, 2);
    say_hello_of(author, secret, 5, &hs);
    turn(&earlier);
    assert_false(dtpi_agent_failed_early(earlier.agent));
    read_refusal(author, &hs, &word);
    assert_true(is_open(author));
    say(author, word.data, word.len);
    turn(&earlier);
    assert_true(dtpi_agent_failed_early(earlier.agent));
    assert_non_null(strstr(earlier.text, "says world size 5"));
    close(author);
    door_close(&earlier);

    door_open(&d);
    const int echo = come(&d, 2), honest = come(&d, 3);
    say(echo, hs.hello, hs.n_hello);
    turn(&d);
    assert_int_equal(heard(echo), 4);
    say(echo, word.data, word.len);
    turn(&d);
    assert_false(dtpi_agent_failed_early(d.agent));
    assert_int_equal(heard(echo), 4);
    assert_false(is_open(echo));
    say_hello(honest, secret);
    turn(&d);
    assert_int_equal(heard(honest), 2);
    close(echo);
    close(honest);
    door_close(&d);
    dtpi_buf_free(&word);
}

static void test_who_waits_to_say_that_he_is_refused_goes_after_five_seconds(void **state)
{
    struct door d;
    dtpi_hs hs;

    (void)state;
    door_open(&d);
    const int mute = come(&d, 2);
    say_hello_of(mute, secret, 5, &hs);
    turn(&d);
    assert_int_equal(heard(mute), 4);
    assert_ok(dtp_ctx_advance(d.ctx, 4 * DTPI_NS_PER_S, ERR));
    turn(&d);
    assert_true(is_open(mute));
    assert_ok(dtp_ctx_advance(d.ctx, DTPI_NS_PER_S, ERR));
    turn(&d);
    assert_false(is_open(mute) || dtpi_agent_failed_early(d.agent));
    close(mute);
    door_close(&d);
}

static void test_a_name_that_does_not_fit_is_refused(void **state)
{
    char longer[200];
    dtpi_agent *agent;
    dtp_ctx *ctx;

    (void)state;
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    const dtpi_agent_opts rows[] = {
        { .job = longer, .world_size = 4, .n_local = 2, .socket = "@dtp-longer" },
        { .job = "job", .world_size = 4, .n_local = 2, .socket = longer },
        { .job = "job", .world_size = 4, .n_local = 2, .socket = "@dtp-longer", .munge = longer },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_status(DTP_ERR_INVAL, dtpi_agent_open(ctx, &rows[i], &agent, ERR));
        assert_non_null(strstr(check_err.text, "xxxx"));
    }
    dtp_ctx_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_flood_from_one_address_pushes_out_its_own),
        cmocka_unit_test(test_who_has_said_hello_stays_in_a_flood_from_the_same_address),
        cmocka_unit_test(test_garbage_ends_at_once_and_slow_senders_after_five_seconds),
        cmocka_unit_test(test_nobody_stays_longer_because_one_before_him_got_on),
        cmocka_unit_test(test_strangers_give_way_when_descriptors_are_out),
        cmocka_unit_test(test_a_flood_of_wrong_secrets_is_refused_and_logged_a_little),
        cmocka_unit_test(test_a_recorded_contradiction_does_not_end_a_group_that_forms),
        cmocka_unit_test(test_who_waits_to_say_that_he_is_refused_goes_after_five_seconds),
        cmocka_unit_test(test_a_name_that_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
