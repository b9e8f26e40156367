/* SPDX-License-Identifier: Apache-2.0 */
#include "failalloc.h"

#include "base/cpuset.h"

static void check_list(const char *text, const char *want)
{
    dtpi_cpuset s;

    assert_ok(dtpi_cpuset_parse(text, &s, ERR));
    char *list = dtpi_cpuset_format(&s, &dtpi_malloc_allocator);
    assert_string_equal(list, want);
    dtpi_text_free(&dtpi_malloc_allocator, list);
}

static void test_lists_round_trip(void **state)
{
    check_list("0-3,8", "0-3,8");
    check_list("", "");
    check_list("\n", "");
    check_list(" 3 , 1-2\n", "1-3");
    check_list("0-8191", "0-8191");
    check_list("63-64,127,128", "63-64,127-128");
    check_list("5,5,5-5", "5");
}

static void test_malformed_lists_are_named(void **state)
{
    static const char *const bad[] = { "1,",
                                       ",1",
                                       "1-",
                                       "-1",
                                       "3-1",
                                       "a",
                                       "1 2",
                                       "8192",
                                       "0-8192",
                                       "1--2",
                                       "0x1",
                                       "1,,2",
                                       "99999999999999999999",
                                       "1-2-3" };

    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++) {
        dtpi_cpuset s = { { 42 } };
        assert_status(DTP_ERR_FORMAT, dtpi_cpuset_parse(bad[i], &s, ERR));
        assert_text(bad[i]);
        assert_int_equal(s.bits[0], 42);
    }
}

static void test_members_at_word_ends(void **state)
{
    dtpi_cpuset s = { { 0 } };

    dtpi_cpuset_set(&s, 63);
    dtpi_cpuset_set(&s, 64);
    dtpi_cpuset_set(&s, 8191);
    dtpi_cpuset_set(&s, 8192);
    assert_int_equal(dtpi_cpuset_count(&s), 3);
    assert_int_equal(dtpi_cpuset_next(&s, 0), 63);
    assert_int_equal(dtpi_cpuset_next(&s, 64), 64);
    assert_int_equal(dtpi_cpuset_next(&s, 65), 8191);
    assert_int_equal(dtpi_cpuset_next(&s, 8192), -1);
    assert_int_equal(dtpi_cpuset_next(&s, UINT32_MAX), -1);
    assert_false(dtpi_cpuset_has(&s, 8192));
    dtpi_cpuset_unset(&s, 64);
    dtpi_cpuset_unset(&s, 9000);
    assert_false(dtpi_cpuset_has(&s, 64));
}

static void test_set_algebra(void **state)
{
    dtpi_cpuset a, b, c;

    assert_ok(dtpi_cpuset_parse("0-9", &a, ERR));
    assert_ok(dtpi_cpuset_parse("5-14", &b, ERR));
    c = a;
    dtpi_cpuset_and(&c, &b);
    assert_int_equal(dtpi_cpuset_count(&c), 5);
    assert_true(dtpi_cpuset_within(&c, &a));
    assert_false(dtpi_cpuset_within(&a, &c));
    c = a;
    dtpi_cpuset_minus(&c, &b);
    assert_false(dtpi_cpuset_intersects(&c, &b));
    dtpi_cpuset_or(&c, &b);
    assert_int_equal(dtpi_cpuset_count(&c), 15);
}

static void test_format_without_memory_is_null(void **state)
{
    dtpi_cpuset s;

    assert_ok(dtpi_cpuset_parse("1,3,5,7", &s, ERR));
    FOR_EACH_FAILURE(f)
    {
        char *list = dtpi_cpuset_format(&s, failalloc_of(&f));
        assert_int_equal(list == NULL, f.has_failed);
        dtpi_text_free(&f.a, list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_round_trip),
        cmocka_unit_test(test_malformed_lists_are_named),
        cmocka_unit_test(test_members_at_word_ends),
        cmocka_unit_test(test_set_algebra),
        cmocka_unit_test(test_format_without_memory_is_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
