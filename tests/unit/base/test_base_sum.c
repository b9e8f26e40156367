/* SPDX-License-Identifier: Apache-2.0 */
#include "failalloc.h"

#include "base/sum.h"

static void test_known_sums(void **state)
{
    /* Source: XXH3 64 and 128 bit of nothing, seed 0, as xxhsum -H3 and -H2 print them. */
    assert_true(dtpi_sum64("", 0) == 0x2d06800538d394c2ull);
    assert_true(dtpi_sum128_of("", 0).lo == 0x6001c324468d497full);
    assert_true(dtpi_sum128_of("", 0).hi == 0x99aa06d3014798d8ull);
}

static void test_pieces_give_the_sum_of_the_whole(void **state)
{
    static uint8_t data[5000];
    uint64_t seed = check_seed();
    dtpi_sum_state *s = dtpi_sum_new(&dtpi_malloc_allocator);

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)check_random(&seed);
    for (int round = 0; round < 50; round++) {
        const size_t bytes = check_random(&seed) % sizeof(data);
        dtpi_sum_reset(s);
        for (size_t at = 0; at < bytes;) {
            const size_t piece = check_random(&seed) % 600;
            const size_t take = DTPI_MIN(bytes - at, piece);
            dtpi_sum_update(s, data + at, take);
            at += take;
        }
        assert_true(dtpi_sum_digest(s) == dtpi_sum64(data, bytes));
    }
    dtpi_sum_free(&dtpi_malloc_allocator, s);
}

static void test_wide_registers_give_the_same_sum(void **state)
{
    static uint8_t data[70000];
    uint64_t seed = check_seed();
    dtpi_sum_state *s = dtpi_sum_new(&dtpi_malloc_allocator);

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)check_random(&seed);
    for (int round = 0; round < 200; round++) {
        const size_t from = check_random(&seed) % 100;
        const size_t bytes = check_random(&seed) % (sizeof(data) - from);
        dtpi_sum_reset(s);
        dtpi_sum_update(s, data + from, bytes);
        assert_true(dtpi_sum_digest(s) == dtpi_sum64(data + from, bytes));
    }
    dtpi_sum_free(&dtpi_malloc_allocator, s);
}

static void test_state_without_memory_is_null(void **state)
{
    FOR_EACH_FAILURE(f)
    {
        dtpi_sum_state *s = dtpi_sum_new(failalloc_of(&f));
        assert_int_equal(s == NULL, f.has_failed);
        dtpi_sum_free(&f.a, s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_sums),
        cmocka_unit_test(test_pieces_give_the_sum_of_the_whole),
        cmocka_unit_test(test_wide_registers_give_the_same_sum),
        cmocka_unit_test(test_state_without_memory_is_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
