/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a group and the handshake, with nasty bytes. */
#include "check.h"

#include "group/frame.h"
#include "group/handshake.h"

static void test_frame_round_trip_keeps_every_field(void **state)
{
    const dtpi_frame in = { .type = DTPI_F_UP, .lane = 15, .attempt = 3, .generation = 9, .seq = 77,
                            .group = 0x0123456789abcdefull, .rank = -1 };
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_frame out;

    (void)state;
    dtpi_frame_begin(&b, &in);
    assert_int_equal(b.len, DTPI_FRAME_BYTES);
    dtpi_wr_u8(&b, 42);
    assert_true(dtpi_frame_read(b.data, b.len, &out));
    assert_int_equal(out.type, in.type);
    assert_int_equal(out.lane, in.lane);
    assert_int_equal(out.attempt, in.attempt);
    assert_int_equal(out.generation, in.generation);
    assert_int_equal(out.seq, in.seq);
    assert_true(out.group == in.group);
    assert_int_equal(out.rank, in.rank);
    assert_int_equal(out.bytes, 1);
    assert_int_equal(out.body[0], 42);
    for (size_t n = 0; n < DTPI_FRAME_BYTES; n++)
        assert_false(dtpi_frame_read(b.data, n, &out));
    b.data[0] = 2;
    assert_false(dtpi_frame_read(b.data, b.len, &out));
    b.data[0] = DTPI_WIRE_VERSION;
    b.data[2] = 16;
    assert_false(dtpi_frame_read(b.data, b.len, &out));
    dtpi_buf_free(&b);
}

static void test_verdict_must_be_ascending_and_inside_the_world(void **state)
{
    int32_t failed[3] = { 1, 4, 7 }, room[8];
    dtpi_verdict v = { .status = DTP_ERR_PEER, .n_failed = 3, .failed = failed, .text = "x" }, out;
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_frame f = { 0 };

    (void)state;
    dtpi_verdict_write(&b, &v);
    f.body = b.data;
    f.bytes = b.len;
    assert_true(dtpi_verdict_read(&f, 8, &out, room));
    assert_int_equal(out.failed[2], 7);
    assert_false(dtpi_verdict_read(&f, 7, &out, room));
    assert_false(dtpi_verdict_read(&f, 2, &out, room));
    failed[1] = 1;
    b.len = 0;
    dtpi_verdict_write(&b, &v);
    f.body = b.data;
    assert_false(dtpi_verdict_read(&f, 8, &out, room));
    dtpi_buf_free(&b);
}

static void test_split_sorts_by_color_key_and_rank(void **state)
{
    static const int32_t items[4][2] = { { 1, 5 }, { 0, 9 }, { 1, -5 }, { 1, 5 } };
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_split_item out[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        dtpi_wr_u32(&b, 8);
    for (int i = 0; i < 4; i++) {
        dtpi_wr_u32(&b, (uint32_t)items[i][0]);
        dtpi_wr_u32(&b, (uint32_t)items[i][1]);
    }
    dtpi_rd r = dtpi_rd_init(b.data, b.len);
    assert_true(dtpi_split_read(&r, 4, out));
    assert_int_equal(out[0].index, 1);
    assert_int_equal(out[1].index, 2);
    assert_int_equal(out[2].index, 0);
    assert_int_equal(out[3].index, 3);
    uint32_t first, n;
    assert_true(dtpi_split_find(out, 4, 1, 3, &first, &n));
    assert_int_equal(first, 1);
    assert_int_equal(n, 3);
    /* A result without our color, or with the color but without us. */
    assert_false(dtpi_split_find(out, 4, 2, 3, &first, &n));
    assert_false(dtpi_split_find(out, 4, 0, 3, &first, &n));
    r = dtpi_rd_init(b.data, b.len - 1);
    assert_false(dtpi_split_read(&r, 4, out));
    assert_true(dtpi_split_id(1, 0, 5, 0) != dtpi_split_id(1, 0, 5, 1));
    assert_true(dtpi_split_id(1, 0, 5, 0) != dtpi_split_id(1, 0, 6, 0));
    dtpi_buf_free(&b);
}

/* ---- handshake ---- */

static const uint8_t secret[DTP_SECRET_BYTES] = "one", other[DTP_SECRET_BYTES] = "two";

struct pair {
    dtpi_hs client, server;
    dtpi_buf up, down;
};

static void pair_open(struct pair *p, const uint8_t *client, const uint8_t *server)
{
    dtpi_hs_init(&p->client, DTPI_HS_RANK, "job", 1, 3, client);
    dtpi_hs_init(&p->server, DTPI_HS_RANK, "job", 1, -1, server);
    p->up = dtpi_buf_init(&dtpi_malloc_allocator);
    p->down = dtpi_buf_init(&dtpi_malloc_allocator);
}

static void pair_close(struct pair *p)
{
    dtpi_buf_free(&p->up);
    dtpi_buf_free(&p->down);
}

/* Up to and with the challenge. */
static dtp_status begin(struct pair *p)
{
    dtpi_hs_hello(&p->client, &p->up);
    const dtp_status st = dtpi_hs_serve(&p->server, p->up.data, p->up.len, &p->down, ERR);
    p->up.len = 0;
    return st;
}

static void test_both_sides_prove_and_get_the_same_keys(void **state)
{
    uint8_t k[4][32];
    struct pair p;

    (void)state;
    pair_open(&p, secret, secret);
    assert_status(DTP_PENDING, begin(&p));
    assert_ok(dtpi_hs_answer(&p.client, p.down.data, p.down.len, &p.up, ERR));
    assert_ok(dtpi_hs_serve(&p.server, p.up.data, p.up.len, &p.down, ERR));
    assert_int_equal(p.server.who, 3);
    dtpi_hs_keys(&p.client, k[0], k[1]);
    dtpi_hs_keys(&p.server, k[2], k[3]);
    assert_memory_equal(k[0], k[2], 32);
    assert_memory_equal(k[1], k[3], 32);
    assert_memory_not_equal(k[0], k[1], 32);
    /* The proof again is a second handshake. */
    assert_status(DTP_ERR_PROTO, dtpi_hs_serve(&p.server, p.up.data, p.up.len, &p.down, ERR));
    pair_close(&p);
}

static void test_another_secret_is_seen_by_the_client(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, secret, other);
    assert_status(DTP_PENDING, begin(&p));
    assert_status(DTP_ERR_AUTH, dtpi_hs_answer(&p.client, p.down.data, p.down.len, &p.up, ERR));
    assert_text("another secret");
    pair_close(&p);
}

static void test_a_client_that_goes_on_with_a_wrong_secret_is_refused(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, secret, secret);
    assert_status(DTP_PENDING, begin(&p));
    assert_ok(dtpi_hs_answer(&p.client, p.down.data, p.down.len, &p.up, ERR));
    p.up.data[p.up.len - 1] ^= 1;
    assert_status(DTP_ERR_AUTH, dtpi_hs_serve(&p.server, p.up.data, p.up.len, &p.down, ERR));
    assert_text("rank 3");
    pair_close(&p);
}

static void test_secret_and_none_do_not_mix(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, NULL, secret);
    assert_status(DTP_ERR_AUTH, begin(&p));
    assert_text("DTP_INSECURE");
    pair_close(&p);
    pair_open(&p, secret, NULL);
    assert_status(DTP_ERR_AUTH, begin(&p));
    assert_text("DTP_INSECURE");
    pair_close(&p);
    pair_open(&p, NULL, NULL);
    assert_status(DTP_PENDING, begin(&p));
    pair_close(&p);
}

static void test_other_attempts_jobs_roles_and_versions_are_refused(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, secret, secret);
    p.client.attempt = 2;
    assert_status(DTP_ERR_INVAL, begin(&p));
    assert_text("attempt 2");
    pair_close(&p);
    pair_open(&p, secret, secret);
    strcpy(p.client.job, "jab");
    assert_status(DTP_ERR_AUTH, begin(&p));
    pair_close(&p);
    pair_open(&p, secret, secret);
    p.client.role = DTPI_HS_AGENT;
    assert_status(DTP_ERR_PROTO, begin(&p));
    pair_close(&p);
    pair_open(&p, secret, secret);
    dtpi_hs_hello(&p.client, &p.up);
    p.up.data[4] = 9;
    assert_status(DTP_ERR_VERSION, dtpi_hs_serve(&p.server, p.up.data, p.up.len, &p.down, ERR));
    assert_text("version 9");
    /* The refusal reaches the client with its words. */
    dtpi_hs_refuse(&p.down, ERR);
    assert_status(DTP_ERR_VERSION, dtpi_hs_answer(&p.client, p.down.data, p.down.len, &p.up, ERR));
    assert_text("version 9");
    pair_close(&p);
}

static void test_a_hello_echoed_back_proves_nothing(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, secret, secret);
    dtpi_hs_hello(&p.client, &p.up);
    assert_status(DTP_ERR_PROTO, dtpi_hs_answer(&p.client, p.up.data, p.up.len, &p.down, ERR));
    pair_close(&p);
}

static void test_every_cut_and_flipped_handshake_is_refused(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < 200; cut++) {
        struct pair p;
        pair_open(&p, secret, secret);
        dtpi_hs_hello(&p.client, &p.up);
        if (cut < p.up.len)
            assert_status(DTP_ERR_PROTO, dtpi_hs_serve(&p.server, p.up.data, cut, &p.down, ERR));
        pair_close(&p);
        pair_open(&p, secret, secret);
        assert_status(DTP_PENDING, begin(&p));
        if (cut < p.down.len) {
            p.down.data[cut] ^= 0x80;
            assert_true(dtpi_hs_answer(&p.client, p.down.data, p.down.len, &p.up, ERR) < 0);
        }
        pair_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_round_trip_keeps_every_field),
        cmocka_unit_test(test_verdict_must_be_ascending_and_inside_the_world),
        cmocka_unit_test(test_split_sorts_by_color_key_and_rank),
        cmocka_unit_test(test_both_sides_prove_and_get_the_same_keys),
        cmocka_unit_test(test_another_secret_is_seen_by_the_client),
        cmocka_unit_test(test_a_client_that_goes_on_with_a_wrong_secret_is_refused),
        cmocka_unit_test(test_secret_and_none_do_not_mix),
        cmocka_unit_test(test_other_attempts_jobs_roles_and_versions_are_refused),
        cmocka_unit_test(test_a_hello_echoed_back_proves_nothing),
        cmocka_unit_test(test_every_cut_and_flipped_handshake_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
