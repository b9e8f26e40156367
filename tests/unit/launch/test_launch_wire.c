/* SPDX-License-Identifier: Apache-2.0 */
/* The shim protocol: what goes in comes out, cut or bent frames are refused. */
#include "check.h"

#include "launch/journal.h"
#include "launch/wire.h"

static dtpi_texts make_list(dtpi_buf *b, const char *const *texts)
{
    uint32_t n = 0;

    for (; *texts; texts++)
        dtpi_texts_add(b, &n, *texts);
    return (dtpi_texts){ .n = n, .data = (const char *)b->data, .bytes = b->len };
}

static void test_an_attempt_comes_out_as_it_went_in(void **state)
{
    static const char *const args[] = { "python", "", "x y", NULL };
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(&dtpi_malloc_allocator);
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_shim_msg in = { .type = DTPI_SHIM_ATTEMPT, .attempt = 3, .n = 4, .grace_ms = 5000,
                               .name = "@a", .secret = "/s", .cwd = "/", .argv = make_list(&list, args) };
    dtpi_shim_msg out;
    size_t used;

    (void)state;
    assert_ok(dtpi_shim_encode(&b, &in, ERR));
    assert_ok(dtpi_shim_decode(b.data, b.len, &out, &used, ERR));
    assert_int_equal(used, b.len);
    assert_int_equal(out.attempt, 3);
    assert_int_equal(out.n, 4);
    assert_int_equal(out.grace_ms, 5000);
    assert_string_equal(out.name, "@a");
    assert_int_equal(out.argv.n, 3);
    assert_int_equal(out.env.n, 0);
    const char *at = dtpi_texts_next(&out.argv, NULL);
    for (int i = 0; i < 3; i++, at = dtpi_texts_next(&out.argv, at))
        assert_string_equal(at, args[i]);
    assert_null(at);
    assert_null(dtpi_texts_next(&out.env, NULL));
}

static void test_part_of_a_frame_is_pending(void **state)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_shim_msg out;
    size_t used;

    (void)state;
    assert_ok(dtpi_shim_encode(&b, &(dtpi_shim_msg){ .type = DTPI_SHIM_EXIT, .rank = 7 }, ERR));
    for (size_t i = 0; i < b.len; i++)
        assert_status(DTP_PENDING, dtpi_shim_decode(b.data, i, &out, &used, ERR));
    assert_ok(dtpi_shim_decode(b.data, b.len, &out, &used, ERR));
    assert_int_equal(out.rank, 7);
}

static void test_bent_frames_are_refused(void **state)
{
    static const struct {
        uint8_t bytes[24];
        size_t n;
        const char *text;
    } cases[] = {
        { { 0, 0, 0, 0 }, 4, "a shim frame of 0 bytes" },
        { { 0xff, 0xff, 0xff, 0xff }, 4, "a shim frame of 4294967295 bytes" },
        { { 1, 0, 0, 0, 200 }, 5, "unknown type 200" },
        { { 2, 0, 0, 0, DTPI_SHIM_GO, 0 }, 6, "malformed shim frame GO" },
        { { 3, 0, 0, 0, DTPI_SHIM_END, 1, 2 }, 7, "malformed shim frame END" },
        /* A text without its terminator, and one with a NUL inside. */
        { { 11, 0, 0, 0, DTPI_SHIM_REFUSED, 0, 0, 0, 0, 2, 0, 0, 0, 'a', 'b' }, 15, "REFUSED" },
        { { 12, 0, 0, 0, DTPI_SHIM_REFUSED, 0, 0, 0, 0, 3, 0, 0, 0, 'a', 0, 0 }, 16, "REFUSED" },
        { { 9, 0, 0, 0, DTPI_SHIM_REFUSED, 0, 0, 0, 0, 0, 0, 0, 0 }, 13, "REFUSED" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dtpi_shim_msg out;
        size_t used;
        assert_status(DTP_ERR_PROTO,
                      dtpi_shim_decode(cases[i].bytes, cases[i].n, &out, &used, ERR));
        assert_text(cases[i].text);
    }
}

static void test_a_list_must_hold_as_many_texts_as_it_says(void **state)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_shim_msg in = { .type = DTPI_SHIM_RANK, .cpus = "",
                               .env = { .n = 2, .data = "A=1", .bytes = 4 } };
    dtpi_shim_msg out;
    size_t used;

    (void)state;
    assert_ok(dtpi_shim_encode(&b, &in, ERR));
    assert_status(DTP_ERR_PROTO, dtpi_shim_decode(b.data, b.len, &out, &used, ERR));
}

static void test_a_frame_that_is_too_large_is_not_sent(void **state)
{
    static uint8_t data[DTPI_SHIM_MAX_FRAME + 1];
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_shim_msg in = { .type = DTPI_SHIM_OUTPUT, .data = data, .data_bytes = sizeof(data) };

    (void)state;
    assert_status(DTP_ERR_LIMIT, dtpi_shim_encode(&b, &in, ERR));
    assert_int_equal(b.len, 0);
}

/* ---- journal ---- */

static void test_journal_lines_come_out_as_they_went_in(void **state)
{
    static const dtpi_journal_entry in[] = {
        { .type = DTPI_JOURNAL_ATTEMPT, .ms = 1, .attempt = 2, .n = 4, .rank = -1 },
        { .type = DTPI_JOURNAL_RANK, .ms = 1, .attempt = 2, .rank = 3, .pid = 4711 },
        { .type = DTPI_JOURNAL_EXIT, .ms = 1, .attempt = 2, .rank = 3, .wstatus = 0x8b },
        { .type = DTPI_JOURNAL_ENDING, .ms = 1, .attempt = 2, .rank = -1 },
        { .type = DTPI_JOURNAL_REFORMED, .ms = 1, .attempt = 2, .n = 3, .rank = -1 },
        { .type = DTPI_JOURNAL_GONE, .ms = 1796042229279, .attempt = 2, .rank = -1 },
        { .type = DTPI_JOURNAL_FAILED, .ms = 0, .status = -23, .code = 2, .rank = -1,
          .text = "program 'x y' not found" },
        { .type = DTPI_JOURNAL_LOST, .attempt = 9, .rank = -1 },
        { .type = DTPI_JOURNAL_CANCEL, .rank = -1 },
        { .type = DTPI_JOURNAL_END, .status = 5, .code = 137, .rank = -1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++) {
        DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
        dtpi_journal_entry out;
        dtpi_journal_format(&b, &in[i]);
        assert_int_equal(b.data[b.len - 1], '\n');
        assert_ok(dtpi_journal_parse((const char *)b.data, b.len - 1, &out, ERR));
        assert_memory_equal(&out, &in[i], sizeof(out));
    }
}

static void test_bent_journal_lines_are_refused(void **state)
{
    static const char *const lines[] = {
        "", "1", "x gone 1", "1 gone", "1 gone x", "1 gone 1 2", "1 gone -1", "1 what 1", "-1 gone 1",
        "1 exit 1 2", "1 gone 99999999999", "1  gone 1", "1 cancel 1", "1 end",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        dtpi_journal_entry out;
        assert_status(DTP_ERR_FORMAT, dtpi_journal_parse(lines[i], strlen(lines[i]), &out, ERR));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_attempt_comes_out_as_it_went_in),
        cmocka_unit_test(test_part_of_a_frame_is_pending),
        cmocka_unit_test(test_bent_frames_are_refused),
        cmocka_unit_test(test_a_list_must_hold_as_many_texts_as_it_says),
        cmocka_unit_test(test_a_frame_that_is_too_large_is_not_sent),
        cmocka_unit_test(test_journal_lines_come_out_as_they_went_in),
        cmocka_unit_test(test_bent_journal_lines_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
