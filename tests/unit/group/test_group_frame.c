/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a group, with nasty bytes. */
#include "check.h"

#include "group/frame.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_round_trip_keeps_every_field),
        cmocka_unit_test(test_verdict_must_be_ascending_and_inside_the_world),
        cmocka_unit_test(test_split_sorts_by_color_key_and_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
