/* SPDX-License-Identifier: Apache-2.0 */
/* test_group_handshake.c - strangers prove nothing, and members that contradict each other are told how. */
#include "check.h"

#include "group/frame.h"
#include "group/handshake.h"

static const uint8_t secret[DTP_SECRET_BYTES] = "one", other[DTP_SECRET_BYTES] = "two";

struct pair {
    dtpi_hs client, server;
    dtpi_buf up, down;
};

static void pair_open_as(struct pair *p, dtpi_hs_role role, const uint8_t *client,
                         const uint8_t *server)
{
    dtpi_hs_init(&p->client, &(dtpi_hs_opts){ .role = role, .job = "job", .attempt = 1, .generation = 2,
                                              .world = 4, .who = 3, .host = "host2",
                                              .secret = client });
    dtpi_hs_init(&p->server, &(dtpi_hs_opts){ .role = role, .job = "job", .attempt = 1, .generation = 2,
                                              .world = 4, .who = 0, .host = "host1",
                                              .secret = server });
    p->up = dtpi_buf_init(&dtpi_malloc_allocator);
    p->down = dtpi_buf_init(&dtpi_malloc_allocator);
}

static void pair_open(struct pair *p, const uint8_t *client, const uint8_t *server)
{
    pair_open_as(p, DTPI_HS_RANK, client, server);
}

static void pair_close(struct pair *p)
{
    dtpi_buf_free(&p->up);
    dtpi_buf_free(&p->down);
}

/* Up to and with the challenge, or the refusal that the server writes. */
static dtp_status begin(struct pair *p)
{
    dtpi_hs_hello(&p->client, &p->up);
    const dtp_status st = dtpi_hs_serve(&p->server, p->up.data, p->up.len, &p->down, ERR);
    if (st < 0)
        dtpi_hs_refuse(&p->server, &p->down, ERR);
    p->up.len = 0;
    return st;
}

/* The client reads the server's words. */
static dtp_status answer(struct pair *p)
{
    return dtpi_hs_answer(&p->client, p->down.data, p->down.len, &p->up, ERR);
}

static void test_both_sides_prove_and_get_the_same_keys(void **state)
{
    dtpi_seal k[4];
    struct pair p;

    (void)state;
    pair_open(&p, secret, secret);
    assert_status(DTP_PENDING, begin(&p));
    assert_ok(answer(&p));
    assert_ok(dtpi_hs_serve(&p.server, p.up.data, p.up.len, &p.down, ERR));
    assert_int_equal(p.server.peer.who, 3);
    assert_int_equal(p.server.peer.world, 4);
    assert_string_equal(p.server.peer.host, "host2");
    dtpi_hs_seals(&p.client, &k[0], &k[1]);
    dtpi_hs_seals(&p.server, &k[2], &k[3]);
    assert_memory_equal(k[0].key, k[2].key, 32);
    assert_memory_equal(k[1].key, k[3].key, 32);
    assert_memory_not_equal(k[0].key, k[1].key, 32);
    assert_false(k[0].encrypts);
    /* The proof again is a second handshake. */
    assert_status(DTP_ERR_PROTO, dtpi_hs_serve(&p.server, p.up.data, p.up.len, &p.down, ERR));
    pair_close(&p);
}

static void test_another_secret_is_seen_at_the_first_message(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, secret, other);
    assert_status(DTP_ERR_AUTH, begin(&p));
    assert_text("rank 3 has another secret for job job (DTP_SECRET)");
    assert_false(p.server.is_ours);
    assert_status(DTP_ERR_AUTH, answer(&p));
    assert_false(p.client.is_proven);
    pair_close(&p);
}

static void test_a_server_without_the_secret_is_seen_by_the_client(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, secret, secret);
    assert_status(DTP_PENDING, begin(&p));
    p.down.data[p.down.len - 1] ^= 1;
    assert_status(DTP_ERR_AUTH, answer(&p));
    assert_text("another secret");
    pair_close(&p);
}

static void test_a_client_that_goes_on_with_a_wrong_proof_is_refused(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, secret, secret);
    assert_status(DTP_PENDING, begin(&p));
    assert_ok(answer(&p));
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
    assert_text("rank 3 came without a secret, the group has one (DTP_INSECURE must be the same");
    pair_close(&p);
    pair_open(&p, secret, NULL);
    assert_status(DTP_ERR_AUTH, begin(&p));
    assert_text("DTP_INSECURE");
    pair_close(&p);
    pair_open(&p, NULL, NULL);
    assert_status(DTP_PENDING, begin(&p));
    pair_close(&p);
}

static void test_other_attempts_jobs_generations_and_roles_are_refused(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, secret, secret);
    p.client.self.attempt = 2;
    assert_status(DTP_ERR_INVAL, begin(&p));
    assert_text("rank 3 belongs to attempt 2 of job job, this is attempt 1");
    assert_false(p.server.disagrees);
    assert_status(DTP_ERR_INVAL, answer(&p));
    assert_true(p.client.is_proven);
    pair_close(&p);
    pair_open(&p, secret, secret);
    strcpy(p.client.self.job, "jab");
    assert_status(DTP_ERR_AUTH, begin(&p));
    assert_text("rank 3 belongs to job jab, this is job job");
    pair_close(&p);
    pair_open(&p, secret, secret);
    p.client.self.generation = 1;
    assert_status(DTP_ERR_INVAL, begin(&p));
    assert_text("rank 3 belongs to generation 1, this is generation 2");
    pair_close(&p);
    pair_open(&p, secret, secret);
    p.client.self.generation = 0;
    assert_status(DTP_PENDING, begin(&p));
    pair_close(&p);
    pair_open(&p, secret, secret);
    p.client.role = DTPI_HS_AGENT;
    assert_status(DTP_ERR_PROTO, begin(&p));
    pair_close(&p);
}

static void test_strangers_learn_nothing_of_the_job(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, other, secret);
    strcpy(p.client.self.job, "jab");
    p.client.self.attempt = 7;
    assert_status(DTP_ERR_AUTH, begin(&p));
    assert_text("rank 3 has another secret for job jab (DTP_SECRET)");
    pair_close(&p);
}

static void test_contradictions_name_both_values(void **state)
{
    struct pair p;

    (void)state;
    pair_open_as(&p, DTPI_HS_AGENT, secret, secret);
    p.client.self.world = 5;
    assert_status(DTP_ERR_INVAL, begin(&p));
    assert_text("the agent of rank 3 (node host2) says world size 5, that of node host1 says 4");
    assert_true(p.server.disagrees);
    assert_status(DTP_ERR_INVAL, answer(&p));
    assert_true(p.client.is_proven);
    pair_close(&p);
    pair_open(&p, secret, secret);
    strcpy(p.client.self.version, "9.8.7");
    assert_status(DTP_ERR_VERSION, begin(&p));
    assert_text("rank 3 has libdtp 9.8.7, the agent of node host1 has " DTPI_VERSION);
    assert_true(p.server.disagrees);
    pair_close(&p);
    pair_open_as(&p, DTPI_HS_AGENT, secret, secret);
    p.client.self.who = -1;
    p.client.self.flags |= 2;
    assert_status(DTP_ERR_INVAL, begin(&p));
    assert_text("the agent of node host2 says encrypt 1, the agent of node host1 says 0 (DTP_ENCRYPT");
    assert_true(p.server.disagrees);
    pair_close(&p);
}

/* The server reads what the client says to its refusal. */
static dtp_status hear(struct pair *p)
{
    return dtpi_hs_serve(&p->server, p->up.data, p->up.len, &p->down, ERR);
}

static void test_who_is_refused_for_a_contradiction_says_that_it_is_there(void **state)
{
    struct pair p;

    (void)state;
    pair_open_as(&p, DTPI_HS_AGENT, secret, secret);
    p.client.self.world = 5;
    assert_status(DTP_ERR_INVAL, begin(&p));
    assert_status(DTP_ERR_INVAL, answer(&p));
    assert_false(p.server.is_heard);
    assert_status(DTP_ERR_INVAL, hear(&p));
    assert_text("the agent of rank 3 (node host2) says world size 5, that of node host1 says 4");
    assert_true(p.server.is_heard);
    /* Once. */
    assert_status(DTP_ERR_PROTO, hear(&p));
    pair_close(&p);
    /* Nobody waits for a word of who belongs elsewhere. */
    pair_open(&p, secret, secret);
    p.client.self.attempt = 2;
    assert_status(DTP_ERR_INVAL, begin(&p));
    assert_status(DTP_ERR_INVAL, answer(&p));
    assert_true(p.client.is_proven);
    assert_int_equal(p.up.len, 0);
    pair_close(&p);
}

static void test_an_echo_of_a_contradiction_is_not_its_author(void **state)
{
    struct pair a, b;

    (void)state;
    pair_open(&a, secret, secret);
    a.client.self.flags |= 2;
    assert_status(DTP_ERR_INVAL, begin(&a));
    assert_status(DTP_ERR_INVAL, answer(&a));
    pair_open(&b, secret, secret);
    assert_status(DTP_ERR_INVAL,
                  dtpi_hs_serve(&b.server, a.client.hello, a.client.n_hello, &b.down, ERR));
    assert_true(b.server.disagrees);
    dtpi_hs_refuse(&b.server, &b.down, ERR);
    /* The recorded word was about another refusal. */
    assert_status(DTP_ERR_AUTH, dtpi_hs_serve(&b.server, a.up.data, a.up.len, &b.up, ERR));
    assert_false(b.server.is_heard || b.server.disagrees);
    /* Nor does another try help, nor a proof where the word is due. */
    assert_status(DTP_ERR_PROTO, dtpi_hs_serve(&b.server, a.up.data, a.up.len, &b.up, ERR));
    a.up.data[6] = 3;
    assert_status(DTP_ERR_PROTO, hear(&a));
    assert_false(a.server.is_heard);
    pair_close(&a);
    pair_close(&b);
}

static void test_every_cut_and_flipped_word_about_a_refusal_is_none(void **state)
{
    struct pair p;

    (void)state;
    for (size_t at = 0; at < 39; at++) {
        pair_open(&p, secret, secret);
        p.client.self.flags |= 2;
        assert_status(DTP_ERR_INVAL, begin(&p));
        assert_status(DTP_ERR_INVAL, answer(&p));
        assert_int_equal(p.up.len, 39);
        p.up.data[at] ^= 1;
        assert_true(hear(&p) < 0);
        assert_false(p.server.is_heard);
        p.server.state = 3;
        p.up.data[at] ^= 1;
        p.up.len = at;
        assert_true(hear(&p) < 0);
        assert_false(p.server.is_heard);
        pair_close(&p);
    }
}

static void test_a_newcomer_that_does_not_fit_ends_nothing(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, secret, secret);
    p.client.self.who = DTP_RANK_NEW;
    strcpy(p.client.self.version, "9.8.7");
    assert_status(DTP_ERR_VERSION, begin(&p));
    assert_text("a newcomer has libdtp 9.8.7");
    assert_false(p.server.disagrees);
    assert_status(DTP_ERR_VERSION, answer(&p));
    assert_true(p.client.is_proven);
    pair_close(&p);
}

static void test_another_wire_version_names_who_came(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, secret, secret);
    dtpi_hs_hello(&p.client, &p.up);
    p.up.data[4] = 9;
    assert_status(DTP_ERR_VERSION, dtpi_hs_serve(&p.server, p.up.data, p.up.len, &p.down, ERR));
    assert_text("rank 3 speaks wire version 9 (libdtp " DTPI_VERSION "), this agent 1");
    /* The refusal reaches the client with its words. */
    dtpi_hs_refuse(&p.server, &p.down, ERR);
    assert_status(DTP_ERR_VERSION, answer(&p));
    assert_text("version 9");
    assert_false(p.client.is_proven);
    /* What is behind may be anything. */
    assert_status(DTP_ERR_VERSION, dtpi_hs_serve(&p.server, p.up.data, 6, &p.down, ERR));
    assert_text("a peer speaks wire version 9");
    pair_close(&p);
}

static void test_a_refusal_of_another_hello_is_not_proven(void **state)
{
    struct pair a, b;

    (void)state;
    pair_open(&a, secret, secret);
    pair_open(&b, secret, secret);
    a.client.self.attempt = b.client.self.attempt = 2;
    assert_status(DTP_ERR_INVAL, begin(&a));
    assert_status(DTP_ERR_INVAL, begin(&b));
    assert_status(DTP_ERR_INVAL,
                  dtpi_hs_answer(&b.client, a.down.data, a.down.len, &b.up, ERR));
    assert_false(b.client.is_proven);
    pair_close(&a);
    pair_close(&b);
}

static void test_recorded_messages_fit_no_other_connection(void **state)
{
    struct pair a, b;

    (void)state;
    pair_open(&a, secret, secret);
    assert_status(DTP_PENDING, begin(&a));
    assert_ok(answer(&a));
    /* The recorded hello gets another challenge, and the recorded proof does not fit it. */
    pair_open(&b, secret, secret);
    assert_status(DTP_PENDING, dtpi_hs_serve(&b.server, a.client.hello, a.client.n_hello, &b.down, ERR));
    assert_status(DTP_ERR_AUTH, dtpi_hs_serve(&b.server, a.up.data, a.up.len, &b.down, ERR));
    /* Nor does the recorded challenge convince another client. */
    dtpi_hs_hello(&b.client, &b.up);
    assert_status(DTP_ERR_AUTH, dtpi_hs_answer(&b.client, a.down.data, a.down.len, &b.up, ERR));
    pair_close(&a);
    pair_close(&b);
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
    for (size_t at = 0; at < 200; at++) {
        struct pair p;
        pair_open(&p, secret, secret);
        dtpi_hs_hello(&p.client, &p.up);
        if (at < p.up.len)
            assert_true(dtpi_hs_serve(&p.server, p.up.data, at, &p.down, ERR) < 0);
        if (at < p.up.len) {
            p.up.data[at] ^= 0x80;
            assert_true(dtpi_hs_serve(&p.server, p.up.data, p.up.len, &p.down, ERR) < 0);
        }
        pair_close(&p);
        pair_open(&p, secret, secret);
        assert_status(DTP_PENDING, begin(&p));
        if (at < p.down.len) {
            p.down.data[at] ^= 0x80;
            assert_true(answer(&p) < 0);
        }
        pair_close(&p);
    }
}

static void test_first_bytes_tell_garbage(void **state)
{
    static const uint8_t hello[8] = { 150, 0, 0, 0, 0x64, 0x74, 0x70, 0x07 };
    static const uint8_t web[8] = "GET / HT", zeros[8], big[8] = { 0, 3, 0, 0, 0x64, 0x74, 0x70, 0x07 };

    (void)state;
    assert_true(dtpi_hs_may_be_hello(hello, 8));
    assert_true(dtpi_hs_may_be_hello(hello, 5));
    assert_true(dtpi_hs_may_be_hello(hello, 0));
    assert_false(dtpi_hs_may_be_hello(web, 8));
    assert_false(dtpi_hs_may_be_hello(web, 4));
    assert_false(dtpi_hs_may_be_hello(zeros, 8));
    assert_false(dtpi_hs_may_be_hello(big, 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_sides_prove_and_get_the_same_keys),
        cmocka_unit_test(test_another_secret_is_seen_at_the_first_message),
        cmocka_unit_test(test_a_server_without_the_secret_is_seen_by_the_client),
        cmocka_unit_test(test_a_client_that_goes_on_with_a_wrong_proof_is_refused),
        cmocka_unit_test(test_secret_and_none_do_not_mix),
        cmocka_unit_test(test_other_attempts_jobs_generations_and_roles_are_refused),
        cmocka_unit_test(test_strangers_learn_nothing_of_the_job),
        cmocka_unit_test(test_contradictions_name_both_values),
        cmocka_unit_test(test_who_is_refused_for_a_contradiction_says_that_it_is_there),
        cmocka_unit_test(test_an_echo_of_a_contradiction_is_not_its_author),
        cmocka_unit_test(test_every_cut_and_flipped_word_about_a_refusal_is_none),
        cmocka_unit_test(test_a_newcomer_that_does_not_fit_ends_nothing),
        cmocka_unit_test(test_another_wire_version_names_who_came),
        cmocka_unit_test(test_a_refusal_of_another_hello_is_not_proven),
        cmocka_unit_test(test_recorded_messages_fit_no_other_connection),
        cmocka_unit_test(test_a_hello_echoed_back_proves_nothing),
        cmocka_unit_test(test_every_cut_and_flipped_handshake_is_refused),
        cmocka_unit_test(test_first_bytes_tell_garbage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
