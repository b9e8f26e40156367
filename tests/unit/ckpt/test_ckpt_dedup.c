/* SPDX-License-Identifier: Apache-2.0 */
/* Equal contents in memory are found, different ones never taken for equal. */
#include "check.h"

#include "ckpt/dedup.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

enum { BYTES = 10000 };

static void test_tied_and_equal_contents_name_the_first(void **state)
{
    static uint8_t zero[BYTES], also_zero[BYTES], other[BYTES];
    uint32_t same[6];

    (void)state;
    memset(other, 7, BYTES);
    const dtpi_content c[] = { { other, BYTES, DTP_F32 }, { zero, BYTES, DTP_F32 },
                               { also_zero, BYTES, DTP_F32 }, { other, BYTES, DTP_F32 },
                               { zero, BYTES, DTP_BF16 }, { zero, BYTES - 4, DTP_F32 } };
    assert_ok(dtpi_dedup_find(A, c, 6, same, ERR));
    const uint32_t want[] = { 0, 1, 1, 0, 4, 5 };
    assert_memory_equal(same, want, sizeof(want));
}

static void test_one_different_byte_keeps_contents_apart(void **state)
{
    uint64_t seed = check_seed();
    uint8_t *a = malloc(BYTES), *b = malloc(BYTES);
    uint32_t same[2];

    (void)state;
    memset(a, 1, BYTES);
    for (int i = 0; i < 200; i++) {
        const dtpi_content c[] = { { a, BYTES, DTP_U8 }, { b, BYTES, DTP_U8 } };
        const size_t at = check_random(&seed) % BYTES;
        memcpy(b, a, BYTES);
        b[at] ^= (uint8_t)(1u << check_random(&seed) % 8);
        assert_ok(dtpi_dedup_find(A, c, 2, same, ERR));
        assert_int_equal(same[1], 1);
    }
    free(a);
    free(b);
}

static void test_small_and_empty_contents_are_left_alone(void **state)
{
    static const uint8_t zero[DTPI_DEDUP_MIN];
    uint32_t same[4];

    (void)state;
    const dtpi_content c[] = { { NULL, 0, DTP_F32 }, { NULL, 0, DTP_F32 }, { zero, DTPI_DEDUP_MIN - 1, DTP_F32 },
                               { zero, DTPI_DEDUP_MIN - 1, DTP_F32 } };
    assert_ok(dtpi_dedup_find(A, c, 4, same, ERR));
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(same[i], i);
    assert_ok(dtpi_dedup_find(A, c, 0, same, ERR));
}

/* Many that agree in every sample: at worst a pair is missed. */
static void test_contents_with_equal_samples_stay_right(void **state)
{
    enum { N = 40 };
    uint64_t seed = check_seed();
    uint8_t *data[N];
    dtpi_content c[N];
    uint32_t same[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        data[i] = calloc(1, BYTES);
        data[i][700] = (uint8_t)(check_random(&seed) % 20);
        c[i] = (dtpi_content){ data[i], BYTES, DTP_U8 };
    }
    assert_ok(dtpi_dedup_find(A, c, N, same, ERR));
    for (int i = 0; i < N; i++) {
        assert_true(same[i] <= (uint32_t)i);
        assert_int_equal(same[same[i]], same[i]);
        assert_memory_equal(data[i], data[same[i]], BYTES);
    }
    for (int i = 0; i < N; i++)
        free(data[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tied_and_equal_contents_name_the_first),
        cmocka_unit_test(test_one_different_byte_keeps_contents_apart),
        cmocka_unit_test(test_small_and_empty_contents_are_left_alone),
        cmocka_unit_test(test_contents_with_equal_samples_stay_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
