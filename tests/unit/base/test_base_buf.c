/* SPDX-License-Identifier: Apache-2.0 */
#include "failalloc.h"

#include "base/buf.h"

static void test_empty_buffer_is_empty_text(void **state)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    assert_true(dtpi_buf_append(&b, NULL, 0));
    assert_string_equal(dtpi_buf_text(&b), "");
    assert_int_equal(b.len, 0);
}

static void test_grows_and_keeps_bytes(void **state)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    for (int i = 0; i < 10000; i++)
        assert_true(dtpi_buf_append(&b, &(uint8_t){ (uint8_t)i }, 1));
    assert_int_equal(b.len, 10000);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(b.data[i], (uint8_t)i);
}

static void test_printf_appends_long_text(void **state)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    assert_true(dtpi_buf_printf(&b, "%d-", 7));
    assert_true(dtpi_buf_printf(&b, "%0600d", 1));
    assert_int_equal(b.len, 602);
    assert_int_equal(dtpi_buf_text(&b)[601], '1');
}

static void test_consume_drops_the_front(void **state)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    dtpi_buf_append(&b, "abcdef", 6);
    dtpi_buf_consume(&b, 2);
    assert_string_equal(dtpi_buf_text(&b), "cdef");
    dtpi_buf_consume(&b, 4);
    assert_string_equal(dtpi_buf_text(&b), "");
    dtpi_buf_consume(&b, 0);
}

static void test_failure_stays_until_reset(void **state)
{
    FOR_EACH_FAILURE(f)
    {
        dtpi_buf b = dtpi_buf_init(failalloc_of(&f));

        dtpi_buf_append(&b, "abc", 3);
        dtpi_buf_printf(&b, "%0500d", 1);
        dtpi_buf_append(&b, "end", 3);
        const char *text = dtpi_buf_text(&b);
        assert_int_equal(b.failed, f.has_failed);
        assert_int_equal(text == NULL, f.has_failed);
        if (f.has_failed) {
            assert_false(dtpi_buf_append(&b, "x", 1));
            assert_null(dtpi_buf_reserve(&b, 1));
        }
        dtpi_buf_reset(&b);
        assert_true(dtpi_buf_append(&b, "x", 1));
        dtpi_buf_free(&b);
    }
}

static void test_absurd_reserve_fails(void **state)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    dtpi_buf_append(&b, "abc", 3);
    assert_null(dtpi_buf_reserve(&b, SIZE_MAX - 1));
    assert_true(b.failed);
    assert_int_equal(b.len, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_buffer_is_empty_text),
        cmocka_unit_test(test_grows_and_keeps_bytes),
        cmocka_unit_test(test_printf_appends_long_text),
        cmocka_unit_test(test_consume_drops_the_front),
        cmocka_unit_test(test_failure_stays_until_reset),
        cmocka_unit_test(test_absurd_reserve_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
