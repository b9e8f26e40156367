/* SPDX-License-Identifier: Apache-2.0 */
#include "failalloc.h"

#include "base/wire.h"

static void test_numbers_round_trip_little_endian(void **state)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    dtpi_wr_u8(&b, 0xfe);
    dtpi_wr_u16(&b, 0xfedc);
    dtpi_wr_u32(&b, 0xfedcba98);
    dtpi_wr_u64(&b, 0xfedcba9876543210ull);
    dtpi_wr_text(&b, "hi");
    assert_int_equal(b.data[1], 0xdc);
    dtpi_rd r = dtpi_rd_init(b.data, b.len);
    char text[3];
    assert_int_equal(dtpi_rd_u8(&r), 0xfe);
    assert_int_equal(dtpi_rd_u16(&r), 0xfedc);
    assert_true(dtpi_rd_u32(&r) == 0xfedcba98);
    assert_true(dtpi_rd_u64(&r) == 0xfedcba9876543210ull);
    assert_false(dtpi_rd_done(&r));
    assert_true(dtpi_rd_text(&r, text, sizeof(text)));
    assert_string_equal(text, "hi");
    assert_true(dtpi_rd_done(&r));
}

static void test_reading_past_the_end_fails_for_good(void **state)
{
    const uint8_t data[] = { 1, 2, 3 };

    dtpi_rd r = dtpi_rd_init(data, 3);
    assert_int_equal(dtpi_rd_u32(&r), 0);
    assert_true(r.failed);
    assert_int_equal(dtpi_rd_u8(&r), 0);
    assert_null(dtpi_rd_bytes(&r, 0));
    assert_false(dtpi_rd_done(&r));
    r = dtpi_rd_init(data, 3);
    assert_null(dtpi_rd_bytes(&r, SIZE_MAX));
    assert_true(r.failed);
}

static void test_empty_message(void **state)
{
    dtpi_rd r = dtpi_rd_init(NULL, 0);

    dtpi_rd_bytes(&r, 0);
    assert_true(dtpi_rd_done(&r));
    assert_int_equal(dtpi_rd_u8(&r), 0);
    assert_true(r.failed);
}

static void test_block_is_bounded_before_it_is_believed(void **state)
{
    const uint8_t huge[] = { 0xff, 0xff, 0xff, 0xff, 1, 2 }, cut[] = { 3, 0, 0, 0, 1, 2 };
    const uint8_t good[] = { 2, 0, 0, 0, 1, 2 }, empty[] = { 0, 0, 0, 0 };
    size_t bytes = 99;

    dtpi_rd r = dtpi_rd_init(huge, sizeof(huge));
    assert_null(dtpi_rd_block(&r, SIZE_MAX, &bytes));
    assert_int_equal(bytes, 0);
    r = dtpi_rd_init(cut, sizeof(cut));
    assert_null(dtpi_rd_block(&r, 100, &bytes));
    r = dtpi_rd_init(good, sizeof(good));
    assert_null(dtpi_rd_block(&r, 1, &bytes));
    assert_true(r.failed);
    r = dtpi_rd_init(good, sizeof(good));
    assert_ptr_equal(dtpi_rd_block(&r, 2, &bytes), good + 4);
    assert_int_equal(bytes, 2);
    r = dtpi_rd_init(empty, sizeof(empty));
    assert_non_null(dtpi_rd_block(&r, 0, &bytes));
    assert_true(dtpi_rd_done(&r));
}

static void test_text_fits_or_is_refused(void **state)
{
    const uint8_t three[] = { 3, 0, 0, 0, 'a', 'b', 'c' }, nul[] = { 3, 0, 0, 0, 'a', 0, 'c' };
    const uint8_t none[] = { 0, 0, 0, 0 };
    char text[4] = "zzz";

    dtpi_rd r = dtpi_rd_init(three, sizeof(three));
    assert_true(dtpi_rd_text(&r, text, 4));
    assert_string_equal(text, "abc");
    r = dtpi_rd_init(three, sizeof(three));
    assert_false(dtpi_rd_text(&r, text, 3));
    assert_string_equal(text, "");
    r = dtpi_rd_init(nul, sizeof(nul));
    assert_false(dtpi_rd_text(&r, text, 4));
    assert_true(r.failed);
    r = dtpi_rd_init(none, sizeof(none));
    assert_true(dtpi_rd_text(&r, text, 1));
}

static void test_writing_without_memory_is_told_once(void **state)
{
    FOR_EACH_FAILURE(f)
    {
        dtpi_buf b = dtpi_buf_init(failalloc_of(&f));

        for (int i = 0; i < 200; i++)
            dtpi_wr_u64(&b, 1);
        dtpi_wr_block(&b, "x", 1);
        assert_int_equal(b.failed, f.has_failed);
        dtpi_buf_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_round_trip_little_endian),
        cmocka_unit_test(test_reading_past_the_end_fails_for_good),
        cmocka_unit_test(test_empty_message),
        cmocka_unit_test(test_block_is_bounded_before_it_is_believed),
        cmocka_unit_test(test_text_fits_or_is_refused),
        cmocka_unit_test(test_writing_without_memory_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
