/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "base/text.h"

static void test_numbers_are_whole_and_in_range(void **state)
{
    int64_t v = 0;

    assert_true(dtpi_parse_i64("42", 0, 100, &v));
    assert_int_equal(v, 42);
    assert_true(dtpi_parse_i64("-5", -5, 100, &v));
    assert_int_equal(v, -5);
    assert_true(dtpi_parse_i64("9223372036854775807", 0, INT64_MAX, &v));
    static const char *const bad[] = { "",    " 1",  "1 ", "+1", "0x1",
                                       "1.0", "101", "-1", "-",  "9223372036854775808",
                                       "1e2" };
    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++)
        assert_false(dtpi_parse_i64(bad[i], 0, 100, &v));
    assert_false(dtpi_parse_i64(NULL, 0, 100, &v));
}

static void test_bytes_take_a_suffix(void **state)
{
    uint64_t v = 0;

    assert_true(dtpi_parse_bytes("64M", &v));
    assert_int_equal(v, 64u << 20);
    assert_true(dtpi_parse_bytes("1k", &v));
    assert_int_equal(v, 1024);
    assert_true(dtpi_parse_bytes("0", &v));
    assert_true(dtpi_parse_bytes("17179869183G", &v));
    static const char *const bad[] = {
        "", "M", "1MB", "-1", "1 M", "17179869184G", "18446744073709551616", "1T"
    };
    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++)
        assert_false(dtpi_parse_bytes(bad[i], &v));
    assert_false(dtpi_parse_bytes(NULL, &v));
}

static void test_hex_round_trips(void **state)
{
    uint8_t raw[4];
    char text[9];

    assert_true(dtpi_parse_hex("00fFa55A", raw, 4));
    dtpi_format_hex(raw, 4, text);
    assert_string_equal(text, "00ffa55a");
    assert_false(dtpi_parse_hex("00fFa55", raw, 4));
    assert_false(dtpi_parse_hex("00fFa55Ag", raw, 4));
    assert_false(dtpi_parse_hex("00fFa5:A", raw, 4));
    assert_false(dtpi_parse_hex(NULL, raw, 4));
    assert_true(dtpi_parse_hex("", raw, 0));
}

static void test_ranks_become_ranges(void **state)
{
    const int32_t ranks[] = { 17, 40, 41, 42, 43, 44, 45, 46, 47, 50 };
    char text[100];

    dtpi_format_ranks(ranks, 9, text, sizeof(text));
    assert_string_equal(text, "17, 40-47");
    dtpi_format_ranks(ranks, 10, text, sizeof(text));
    assert_string_equal(text, "17, 40-47, 50");
    dtpi_format_ranks(ranks, 1, text, sizeof(text));
    assert_string_equal(text, "17");
    dtpi_format_ranks(ranks, 0, text, sizeof(text));
    assert_string_equal(text, "");
}

static void test_ranks_that_do_not_fit_are_counted(void **state)
{
    int32_t ranks[1000];

    for (int i = 0; i < 1000; i++)
        ranks[i] = 2000000000 + 2 * i;
    for (size_t room = 33; room < 200; room++) {
        char text[200];
        unsigned left = 0;
        size_t n = 0;

        dtpi_format_ranks(ranks, 1000, text, room);
        assert_true(strlen(text) < room);
        const char *dots = strstr(text, "... and ");
        assert_non_null(dots);
        assert_int_equal(sscanf(dots, "... and %u more", &left), 1);
        for (const char *p = text; p < dots && *p; p++)
            n += *p == ',';
        assert_int_equal(n + left, 1000);
    }
}

static void test_ranks_at_the_ends_of_their_type(void **state)
{
    const int32_t ranks[] = { INT32_MIN, INT32_MIN + 1, INT32_MAX - 1, INT32_MAX, INT32_MIN };
    char text[100];

    dtpi_format_ranks(ranks, 5, text, sizeof(text));
    assert_string_equal(text, "-2147483648--2147483647, 2147483646-2147483647, -2147483648");
}

static void test_utf8_is_strict(void **state)
{
    static const struct {
        const char *text;
        bool ok;
    } rows[] = {
        { "", true },
        { "plain", true },
        { "gr\xc3\xbcn", true },
        { "\xe2\x82\xac \xf0\x9f\x98\x80", true },
        { "\xef\xbf\xbd\xf4\x8f\xbf\xbf", true },
        { "\xc3", false }, /* cut short */
        { "\xe2\x82", false },
        { "\xf0\x9f\x98", false },
        { "\x80", false },     /* a tail alone */
        { "\xc0\xaf", false }, /* overlong */
        { "\xc1\xbf", false },
        { "\xe0\x9f\xbf", false },
        { "\xf0\x8f\xbf\xbf", false },
        { "\xed\xa0\x80", false },     /* a surrogate */
        { "\xf4\x90\x80\x80", false }, /* above U+10FFFF */
        { "\xf5\x80\x80\x80", false },
        { "\xff", false },
        { "\xc3(", false },
        { "\xe2(\xa1", false },
        { "\xf0\x9f(\x80", false },
    };

    for (size_t i = 0; i < DTPI_ARRAY_LEN(rows); i++)
        assert_int_equal(dtpi_utf8_ok(rows[i].text, strlen(rows[i].text)), rows[i].ok);
    assert_false(dtpi_utf8_ok("a\0b", 3));
}

static void test_flatten_leaves_one_valid_line(void **state)
{
    char text[] = "a\r\n\x1b[31m\x7f\xe2\x82 \xed\xa0\x80\xc3\xbc";

    dtpi_text_flatten(text);
    assert_string_equal(text, "a   [31m ?? ???\xc3\xbc");
}

static void test_names_are_plain(void **state)
{
    assert_true(dtpi_name_ok("job_1.a-B", 20));
    assert_true(dtpi_name_ok("abc", 3));
    assert_false(dtpi_name_ok("abcd", 3));
    static const char *const bad[] = {
        "", ".x", "-x", "a/b", "a b", "a\n", "\xc3\xbc", "..", "a:b"
    };
    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++)
        assert_false(dtpi_name_ok(bad[i], 20));
    assert_false(dtpi_name_ok(NULL, 20));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_whole_and_in_range),
        cmocka_unit_test(test_bytes_take_a_suffix),
        cmocka_unit_test(test_hex_round_trips),
        cmocka_unit_test(test_ranks_become_ranges),
        cmocka_unit_test(test_ranks_that_do_not_fit_are_counted),
        cmocka_unit_test(test_ranks_at_the_ends_of_their_type),
        cmocka_unit_test(test_utf8_is_strict),
        cmocka_unit_test(test_flatten_leaves_one_valid_line),
        cmocka_unit_test(test_names_are_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
