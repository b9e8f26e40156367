/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of any size over a bounded gather; the other ranks follow a script, and some of them lie. */
#include "failalloc.h"

#include "ckpt/link.h"

enum { N = 3, BOUND = 96, SHARE = BOUND / N };

typedef struct scripted {
    dtpi_link base;
    const uint8_t *data[N];
    size_t bytes[N];
    uint64_t announced[N];
    size_t at;                  /* of the round under way */
    int n_rounds;
} scripted;

static uint8_t noise[3000];

/* First what each rank announces, then a share of each. This rank's pieces are looked at. */
static dtp_status say(dtpi_link *link, const void *data, size_t bytes, dtpi_link_each each, void *user,
                      dtp_error *err)
{
    scripted *s = (scripted *)(void *)link;
    uint8_t raw[8];

    (void)err;
    if (s->n_rounds++ == 0) {
        assert_int_equal(bytes, 8);
        for (int32_t i = 0; i < N; i++) {
            for (int k = 0; k < 8; k++)
                raw[k] = (uint8_t)(s->announced[i] >> (8 * k));
            each(user, i, raw, 8);
        }
        return DTP_OK;
    }
    for (int32_t i = 0; i < N; i++) {
        const size_t left = s->at < s->bytes[i] ? s->bytes[i] - s->at : 0;
        const size_t n = left < SHARE ? left : SHARE;
        if (i == link->rank) {
            assert_int_equal(bytes, n);
            assert_true(n == 0 || memcmp(data, s->data[i] + s->at, n) == 0);
        }
        each(user, i, n ? s->data[i] + s->at : NULL, n);
    }
    s->at += SHARE;
    return DTP_OK;
}

static scripted script(size_t a, size_t b, size_t c)
{
    scripted s = { .base = { .rank = 1, .size = N, .max_bytes = BOUND, .gather = say },
                   .data = { noise, noise + 1000, noise + 2000 },
                   .bytes = { a, b, c },
                   .announced = { a, b, c } };

    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)(i * 7 + i / 256);
    return s;
}

static dtp_status exchange(const dtp_allocator *a, scripted *s, dtpi_pieces *out)
{
    return dtpi_link_exchange(a, &s->base, s->data[1], s->bytes[1], out, ERR);
}

static void test_pieces_of_any_length_arrive_whole(void **state)
{
    static const size_t lengths[][N] = { { 0, 0, 0 }, { 5, 0, 1000 }, { SHARE, SHARE + 1, SHARE - 1 },
                                         { 0, 700, 0 } };

    (void)state;
    for (size_t k = 0; k < 4; k++) {
        scripted s = script(lengths[k][0], lengths[k][1], lengths[k][2]);
        dtpi_pieces all;
        assert_ok(exchange(&dtpi_malloc_allocator, &s, &all));
        for (int i = 0; i < N; i++) {
            assert_int_equal(all.at[i + 1] - all.at[i], s.bytes[i]);
            if (s.bytes[i])
                assert_memory_equal(all.data.data + all.at[i], s.data[i], s.bytes[i]);
        }
        dtpi_pieces_free(&dtpi_malloc_allocator, &all);
    }
}

static void test_a_rank_without_memory_goes_all_rounds(void **state)
{
    (void)state;
    FOR_EACH_FAILURE(f) {
        scripted s = script(300, 10, 0);
        dtpi_pieces all;
        if (failalloc_ok(&f, exchange(failalloc_of(&f), &s, &all)))
            dtpi_pieces_free(failalloc_of(&f), &all);
        assert_int_equal(s.n_rounds, 1 + (300 + SHARE - 1) / SHARE);
    }
}

/* Nobody goes round for ever because one rank says so. */
static void test_an_impossible_length_ends_it_at_once(void **state)
{
    static const uint64_t lies[] = { UINT64_MAX, UINT64_MAX / 8, 1ull << 50, (1ull << 32) + 1 };
    dtpi_pieces all;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        scripted s = script(1, 1, 1);
        s.announced[2] = lies[i];
        assert_status(DTP_ERR_PROTO, exchange(&dtpi_malloc_allocator, &s, &all));
        assert_text("rank 2 announces an impossible message");
        assert_int_equal(check_err.rank, 2);
        assert_int_equal(s.n_rounds, 1);
    }
}

static void test_another_length_than_announced_names_the_rank(void **state)
{
    dtpi_pieces all;

    (void)state;
    for (int64_t more = -1; more <= 1; more += 2) {
        scripted s = script(100, 50, 3);
        s.announced[0] = (uint64_t)(100 + more);
        assert_status(DTP_ERR_PROTO, exchange(&dtpi_malloc_allocator, &s, &all));
        assert_text("rank 0 sent another number of bytes than it had announced");
    }
}

/* ---- notes ---- */

enum { MANY = 5 };

typedef struct crowd {
    dtpi_link base;
    int32_t first;              /* who speaks first in this round */
    int n_rounds;
} crowd;

/* Two speak at a time, this rank, 4, in the last round. */
static dtp_status say_two(dtpi_link *link, const void *data, size_t bytes, dtpi_link_each each,
                          void *user, dtp_error *err)
{
    crowd *c = (crowd *)(void *)link;

    (void)err;
    assert_true((c->first == 4) == (bytes == 8 && data));
    for (int32_t i = 0; i < MANY; i++) {
        const bool speaks = i >= c->first && i < c->first + 2;
        const uint8_t raw[8] = { (uint8_t)i };
        each(user, i, speaks ? raw : NULL, speaks ? sizeof(raw) : 0);
    }
    c->first += 2;
    c->n_rounds++;
    return DTP_OK;
}

static void hear(void *user, int32_t rank, const void *data, size_t bytes)
{
    int32_t *next = user;

    assert_int_equal(rank, (*next)++);
    assert_int_equal(bytes, 8);
    assert_int_equal(*(const uint8_t *)data, rank);
}

static void test_notes_of_more_ranks_than_fit_are_heard_in_order(void **state)
{
    crowd c = { .base = { .rank = 4, .size = MANY, .max_bytes = 23, .gather = say_two } };
    const uint8_t own[8] = { 4 };
    int32_t next = 0;

    (void)state;
    assert_ok(dtpi_link_notes(&c.base, own, sizeof(own), hear, &next, ERR));
    assert_int_equal(next, MANY);
    assert_int_equal(c.n_rounds, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_of_any_length_arrive_whole),
        cmocka_unit_test(test_a_rank_without_memory_goes_all_rounds),
        cmocka_unit_test(test_an_impossible_length_ends_it_at_once),
        cmocka_unit_test(test_another_length_than_announced_names_the_rank),
        cmocka_unit_test(test_notes_of_more_ranks_than_fit_are_heard_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
