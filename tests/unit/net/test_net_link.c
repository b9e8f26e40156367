/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_net_link.c - sealed links: what was recorded, left out, reordered, reflected, cut or comes from
 * another connection does not get through, with a MAC and encrypted.
 */
#include "check.h"

#include <sys/socket.h>
#include <unistd.h>

#include "net/link.h"

static const dtpi_seal mac_there = { .key = "there" }, mac_back = { .key = "back" };
static const dtpi_seal aead_there = { .key = "there", .encrypts = true };
static const dtpi_seal aead_back = { .key = "back", .encrypts = true };

struct end {
    dtpi_link *link;
    char text[256];
    dtp_status why;
};

static void frame(dtpi_link *link, void *user, const uint8_t *data, size_t bytes)
{
    struct end *e = user;
    const size_t at = strlen(e->text);

    (void)link;
    assert_true(at + bytes < sizeof(e->text));
    memcpy(e->text + at, data, bytes);
    e->text[at + bytes] = '\0';
}

static void closed(dtpi_link *link, void *user, dtp_status why)
{
    struct end *e = user;

    (void)link;
    e->why = why;
}

static const dtpi_link_ops ops = { .frame = frame, .closed = closed };

/* A link on one end of a socket pair; the test holds the raw other end. */
static int open_end(dtp_ctx *ctx, struct end *e, const dtpi_seal *out, const dtpi_seal *in)
{
    int fd[2];

    memset(e, 0, sizeof(*e));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    assert_ok(dtpi_link_open(ctx, fd[0], 1024, &ops, e, &e->link, ERR));
    dtpi_link_seal(e->link, out, in);
    return fd[1];
}

static void close_end(struct end *e, int fd)
{
    close(fd);
    dtpi_link_close(e->link);
}

/* What goes over the wire for each of `n` messages. */
struct record {
    uint8_t data[64];
    size_t bytes;
};

static void record(dtp_ctx *ctx, const dtpi_seal *out, const dtpi_seal *in, const char *const *texts,
                   int n, struct record *r)
{
    struct end e;
    const int fd = open_end(ctx, &e, out, in);

    for (int i = 0; i < n; i++) {
        dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
        dtpi_buf_append(&b, texts[i], strlen(texts[i]));
        DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
        assert_true(dtpi_link_send(e.link, m, NULL, 0));
        const ssize_t got = read(fd, r[i].data, sizeof(r[i].data));
        assert_true(got > 0);
        r[i].bytes = (size_t)got;
    }
    close_end(&e, fd);
}

static const char *const texts[3] = { "first.", "second.", "third." };

/* Plays records `order` (ends with -1) to a fresh link; what came out, and why it ended. */
static dtp_status play(dtp_ctx *ctx, const dtpi_seal *out, const dtpi_seal *in, struct record *r,
                       const int *order, char *text_out)
{
    struct end e;
    const int fd = open_end(ctx, &e, out, in);

    for (; *order >= 0; order++)
        assert_int_equal(write(fd, r[*order].data, r[*order].bytes), r[*order].bytes);
    shutdown(fd, SHUT_WR);
    while (!e.why)
        assert_ok(dtp_ctx_dispatch(ctx, -1, ERR));
    strcpy(text_out, e.text);
    close_end(&e, fd);
    return e.why;
}

static void check_recorded(const dtpi_seal *there, const dtpi_seal *back)
{
    static const int in_order[] = { 0, 1, 2, -1 }, replayed[] = { 0, 0, -1 }, swapped[] = { 1, 0, -1 },
                     left_out[] = { 0, 2, -1 }, one[] = { 0, -1 };
    struct record r[3];
    char text[256];
    dtp_ctx *ctx;

    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    record(ctx, there, back, texts, 3, r);
    assert_int_equal(play(ctx, back, there, r, in_order, text), DTP_END);
    assert_string_equal(text, "first.second.third.");
    assert_int_equal(play(ctx, back, there, r, replayed, text), DTP_ERR_AUTH);
    assert_string_equal(text, "first.");
    assert_int_equal(play(ctx, back, there, r, swapped, text), DTP_ERR_AUTH);
    assert_string_equal(text, "");
    assert_int_equal(play(ctx, back, there, r, left_out, text), DTP_ERR_AUTH);
    assert_string_equal(text, "first.");
    /* To the one who sent it, and into another connection. */
    assert_int_equal(play(ctx, there, back, r, one, text), DTP_ERR_AUTH);
    dtpi_seal elsewhere = *there;
    elsewhere.key[31] = 1;
    assert_int_equal(play(ctx, back, &elsewhere, r, one, text), DTP_ERR_AUTH);
    assert_string_equal(text, "");
    dtp_ctx_close(ctx);
}

/* Every byte of a message matters, its length too; a cut one is no message. */
static void check_changed(const dtpi_seal *there, const dtpi_seal *back)
{
    static const int one[] = { 0, -1 };
    struct record r[1], bad;
    char text[256];
    dtp_ctx *ctx;

    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    record(ctx, there, back, texts, 1, r);
    for (size_t i = 0; i < r[0].bytes; i++) {
        bad = r[0];
        bad.data[i] ^= 1;
        assert_true(play(ctx, back, there, &bad, one, text) != DTP_OK);
        assert_string_equal(text, "");
        bad = r[0];
        bad.bytes = i;
        assert_int_equal(play(ctx, back, there, &bad, one, text), DTP_END);
        assert_string_equal(text, "");
    }
    dtp_ctx_close(ctx);
}

static void test_recorded_bytes_with_a_mac_fit_only_once(void **state)
{
    (void)state;
    check_recorded(&mac_there, &mac_back);
    check_changed(&mac_there, &mac_back);
}

static void test_recorded_bytes_encrypted_fit_only_once(void **state)
{
    (void)state;
    check_recorded(&aead_there, &aead_back);
    check_changed(&aead_there, &aead_back);
}

static void test_encryption_hides_the_words(void **state)
{
    struct record plain, secret;
    dtp_ctx *ctx;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    record(ctx, &mac_there, &mac_back, texts, 1, &plain);
    record(ctx, &aead_there, &aead_back, texts, 1, &secret);
    assert_non_null(memmem(plain.data, plain.bytes, "first.", 6));
    assert_null(memmem(secret.data, secret.bytes, "first.", 6));
    assert_int_equal(plain.bytes, secret.bytes);
    dtp_ctx_close(ctx);
}

static void test_one_message_for_two_encrypted_links_stays_whole(void **state)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    uint8_t raw[2][64];
    struct end e[2];
    dtp_ctx *ctx;
    int fd[2];

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    fd[0] = open_end(ctx, &e[0], &aead_there, &aead_back);
    fd[1] = open_end(ctx, &e[1], &aead_back, &aead_there);
    dtpi_buf_append(&b, "for both", 8);
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    for (int i = 0; i < 2; i++) {
        assert_true(dtpi_link_send(e[i].link, m, NULL, 0));
        assert_int_equal(read(fd[i], raw[i], sizeof(raw[i])), 4 + 8 + DTPI_SEAL_TAG_BYTES);
    }
    assert_memory_equal(m->buf.data, "for both", 8);
    assert_memory_not_equal(raw[0] + 4, raw[1] + 4, 8);
    for (int i = 0; i < 2; i++)
        close_end(&e[i], fd[i]);
    dtp_ctx_close(ctx);
}

static void test_seal_of_another_carrier_has_another_key(void **state)
{
    dtpi_seal a, b;

    (void)state;
    dtpi_seal_derive(&aead_there, "one", &a);
    dtpi_seal_derive(&aead_there, "two", &b);
    assert_memory_not_equal(a.key, b.key, sizeof(a.key));
    assert_memory_not_equal(a.key, aead_there.key, sizeof(a.key));
    assert_true(a.encrypts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_bytes_with_a_mac_fit_only_once),
        cmocka_unit_test(test_recorded_bytes_encrypted_fit_only_once),
        cmocka_unit_test(test_encryption_hides_the_words),
        cmocka_unit_test(test_one_message_for_two_encrypted_links_stays_whole),
        cmocka_unit_test(test_seal_of_another_carrier_has_another_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
