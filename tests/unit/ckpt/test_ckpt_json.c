/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer takes what RFC 8259 allows, refuses the rest, and says where. */
#include "check.h"

#include "ckpt/base64.h"
#include "ckpt/json.h"

static bool accepts(const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);     /* no terminator within reach */
    dtpi_json j;
    dtpi_json_token t;

    memcpy(copy, text, bytes);
    j = dtpi_json_init(copy, bytes);
    while ((t = dtpi_json_next(&j)) > DTPI_JSON_END)
        ;
    free(copy);
    return t == DTPI_JSON_END;
}

static void test_valid_documents_are_taken(void **state)
{
    static const char *const texts[] = {
        "0", "-0", "1.5e+10", "\"\"", "true", "null", " [ ] ", "{}", "[1,[2,{\"a\":[]}],3]",
        "{\"a\":{\"b\":null},\"c\":[false]}", "\"\\u00e9\\ud83d\\ude00\\n\\/\"", "\"\xf0\x9f\x98\x80\"",
        "\t\r\n 1 \t", "123456789012345678901234567890", "\"\x7f\"",
    };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(texts); i++)
        if (!accepts(texts[i], strlen(texts[i])))
            fail_msg("refused: %s", texts[i]);
}

static void test_everything_else_is_refused(void **state)
{
    static const char *const texts[] = {
        "", " ", "01", "-", "+1", "1.", ".5", "1e", "0x10", "tru", "nulll", "[", "]", "[1,]", "[,1]",
        "[1 2]", "{", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{\"a\":1 \"b\":2}", "{1:2}", "[}",
        "\"", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"",
        "\"\\u0000\"", "\"\n\"", "\"\x80\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "1 2", "{} {}",
        "\xef\xbb\xbf{}", "'a'", "NaN", "Infinity", "[1]x", "{\"a\":1}}", "/**/1", ",", ":",
    };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(texts); i++)
        if (accepts(texts[i], strlen(texts[i])))
            fail_msg("taken: %s", texts[i]);
    assert_false(accepts("\"a\0b\"", 5));
    assert_false(accepts("1\0", 2));
}

static void test_depth_is_bounded(void **state)
{
    char text[2 * (DTPI_JSON_MAX_DEPTH + 1) + 1];
    const size_t n = DTPI_JSON_MAX_DEPTH;

    (void)state;
    memset(text, '[', n + 1);
    memset(text + n + 1, ']', n + 1);
    assert_false(accepts(text, 2 * n + 2));
    assert_true(accepts(text + 1, 2 * n));
}

static void test_tokens_come_with_their_text(void **state)
{
    static const char text[] = "{\"k\\u00e9y\":[\"v\",-1.5e3]}";
    DTPI_AUTO_BUF dtpi_buf scratch = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_json j = dtpi_json_init(text, strlen(text));
    size_t n;

    (void)state;
    assert_int_equal(dtpi_json_next(&j), DTPI_JSON_OBJECT);
    assert_int_equal(dtpi_json_next(&j), DTPI_JSON_KEY);
    const char *key = dtpi_json_plain(&j, &scratch, &n);
    assert_int_equal(n, 4);
    assert_memory_equal(key, "k\xc3\xa9y", 4);
    assert_int_equal(dtpi_json_next(&j), DTPI_JSON_ARRAY);
    assert_int_equal(dtpi_json_next(&j), DTPI_JSON_STRING);
    assert_int_equal(j.text_bytes, 1);
    assert_int_equal(dtpi_json_next(&j), DTPI_JSON_NUMBER);
    assert_memory_equal(j.text, "-1.5e3", j.text_bytes);
    assert_int_equal(dtpi_json_next(&j), DTPI_JSON_ARRAY_END);
    assert_int_equal(dtpi_json_next(&j), DTPI_JSON_OBJECT_END);
    assert_int_equal(dtpi_json_next(&j), DTPI_JSON_END);
    assert_int_equal(dtpi_json_next(&j), DTPI_JSON_END);
}

static void test_every_escape_is_decoded(void **state)
{
    static const char text[] = "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u07ff\\uffff\\uD83D\\uDE00\"";
    static const char want[] = "\"\\/\b\f\n\r\tA\xdf\xbf\xef\xbf\xbf\xf0\x9f\x98\x80";
    DTPI_AUTO_BUF dtpi_buf scratch = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_json j = dtpi_json_init(text, strlen(text));
    size_t n;

    (void)state;
    assert_int_equal(dtpi_json_next(&j), DTPI_JSON_STRING);
    const char *got = dtpi_json_plain(&j, &scratch, &n);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(got, want, n);
}

static void test_whole_numbers_are_bounded(void **state)
{
    static const char *const bad[] = { "18446744073709551616", "-1", "1.0", "1e3", "\"1\"", "null", "99999999999999999999999" };
    uint64_t v = 0;

    (void)state;
    dtpi_json j = dtpi_json_init("18446744073709551615", 20);
    assert_true(dtpi_json_u64(&j, &v));
    assert_true(v == UINT64_MAX);
    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++) {
        j = dtpi_json_init(bad[i], strlen(bad[i]));
        assert_false(dtpi_json_u64(&j, &v));
    }
}

static void test_skip_passes_over_a_whole_value(void **state)
{
    static const char text[] = "{\"a\":{\"x\":[1,{}]},\"b\":7}";
    dtpi_json j = dtpi_json_init(text, strlen(text));
    uint64_t v = 0;

    (void)state;
    dtpi_json_next(&j);
    dtpi_json_next(&j);
    assert_true(dtpi_json_skip(&j));
    assert_int_equal(dtpi_json_next(&j), DTPI_JSON_KEY);
    assert_true(dtpi_json_u64(&j, &v));
    assert_int_equal(v, 7);
    assert_false(dtpi_json_skip(&j));
}

static void test_failure_says_where_and_what(void **state)
{
    dtpi_json j = dtpi_json_init("{\"a\" 1}", 7);

    (void)state;
    while (dtpi_json_next(&j) > DTPI_JSON_END)
        ;
    assert_status(DTP_ERR_FORMAT, dtpi_json_fail(&j, "file x", ERR));
    assert_text("file x: byte 5: expected ':'");
}

static void test_what_is_no_value_is_shown(void **state)
{
    static const char *const texts[][2] = {
        { "{\"loss\":NaN}", "meta: byte 8: expected a value, not NaN" },
        { "[Infinity", "meta: byte 1: expected a value, not Infinity" },
        { "[}", "meta: byte 1: expected a value" },
    };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(texts); i++) {
        dtpi_json j = dtpi_json_init(texts[i][0], strlen(texts[i][0]));
        while (dtpi_json_next(&j) > DTPI_JSON_END)
            ;
        assert_status(DTP_ERR_FORMAT, dtpi_json_fail(&j, "meta", ERR));
        assert_text(texts[i][1]);
    }
}

static void test_written_strings_read_back(void **state)
{
    static const char text[] = "a\"b\\c\x01\x1f\xc3\xa9/";
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    DTPI_AUTO_BUF dtpi_buf scratch = dtpi_buf_init(&dtpi_malloc_allocator);
    size_t n;

    (void)state;
    dtpi_json_put(&b, text, strlen(text));
    dtpi_json j = dtpi_json_init((char *)b.data, b.len);
    assert_int_equal(dtpi_json_next(&j), DTPI_JSON_STRING);
    const char *got = dtpi_json_plain(&j, &scratch, &n);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(got, text, n);
}

static void test_base64_has_one_text_for_each_value(void **state)
{
    static const char *const bad[] = { "A", "AA", "AAA", "A===", "AB==", "AAB=", "AA=A", "A A=", "====", "AAAA=AAA", "AA==AAAA" };
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(&dtpi_malloc_allocator);
    DTPI_AUTO_BUF dtpi_buf back = dtpi_buf_init(&dtpi_malloc_allocator);
    uint64_t seed = check_seed();
    uint8_t data[40];
    size_t n;

    (void)state;
    for (size_t len = 0; len < sizeof(data); len++) {
        for (size_t i = 0; i < len; i++)
            data[i] = (uint8_t)check_random(&seed);
        dtpi_buf_reset(&text);
        dtpi_buf_reset(&back);
        dtpi_base64_put(&text, data, len);
        assert_true(dtpi_base64_get(&back, (char *)text.data, text.len, &n));
        assert_int_equal(n, len);
        assert_memory_equal(back.data, data, len);
    }
    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++)
        if (dtpi_base64_get(&back, bad[i], strlen(bad[i]), &n))
            fail_msg("taken: %s", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_documents_are_taken),
        cmocka_unit_test(test_everything_else_is_refused),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_tokens_come_with_their_text),
        cmocka_unit_test(test_every_escape_is_decoded),
        cmocka_unit_test(test_whole_numbers_are_bounded),
        cmocka_unit_test(test_skip_passes_over_a_whole_value),
        cmocka_unit_test(test_failure_says_where_and_what),
        cmocka_unit_test(test_what_is_no_value_is_shown),
        cmocka_unit_test(test_written_strings_read_back),
        cmocka_unit_test(test_base64_has_one_text_for_each_value),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
