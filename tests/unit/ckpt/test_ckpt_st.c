/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors reader against the reference's own byte vectors (safetensors/src/tensor.rs) and what
 * other readers let pass.
 */
#include "check.h"

#include "ckpt/st.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

static dtp_status read_text(const char *text, uint64_t data_bytes, dtpi_st *st)
{
    return dtpi_st_read(A, text, strlen(text), data_bytes, "x.safetensors", st, ERR);
}

static void assert_refused(dtp_status want, const char *text, uint64_t data_bytes)
{
    dtpi_st st;
    const dtp_status got = read_text(text, data_bytes, &st);

    if (got != want)
        fail_msg("%s: expected %s, got %s: %s", text, dtp_status_name(want), dtp_status_name(got), check_err.text);
    assert_text("x.safetensors");
}

static void assert_taken(const char *text, uint64_t data_bytes, size_t n)
{
    dtpi_st st;

    if (read_text(text, data_bytes, &st) < 0)
        fail_msg("%s: %s", text, check_err.text);
    assert_int_equal(st.n, n);
    dtpi_st_free(&st);
}

#define T(name, type, shape, from, to)                                                              \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void test_well_formed_headers_are_taken(void **state)
{
    (void)state;
    assert_taken("{}", 0, 0);
    assert_taken("{}\r \t\n", 0, 0);
    assert_taken("\t\n{}\r ", 0, 0);
    assert_taken("{" T("test", "I32", "[2,2]", 0, 16) "}", 16, 1);
    assert_taken("{" T("test", "I32", "[2,0]", 0, 0) "}", 0, 1);
    assert_taken("{" T("test", "I32", "[]", 0, 4) "}", 4, 1);
    assert_taken("{" T("test", "I32", "[9223372036854775807,0]", 0, 0) "}", 0, 1);
    assert_taken("{" T("b", "U8", "[3]", 8, 11) "," T("a", "F64", "[1]", 0, 8) "}", 11, 2);
    assert_taken("{" T("z", "U8", "[0]", 0, 0) "," T("a", "U8", "[1]", 0, 1) "}", 1, 2);
    assert_taken("{" T("f", "F4", "[2,3]", 0, 3) "}", 3, 1);
    assert_taken("{\"__metadata__\":{\"format\":\"pt\"}," T("a", "U8", "[1]", 0, 1) "}", 1, 1);
    assert_taken("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":[{}]}}", 1, 1);
}

static void test_malformed_headers_are_refused(void **state)
{
    static const char *const bad[] = {
        "", "{", "[]", "1", "{}x", "{}{}",
        "{\"a\":1}",
        "{" T("a", "I32", "[2,2]", 0, 4) "}",
        "{" T("a", "I32", "[2,18446744073709551614]", 0, 16) "}",
        "{" T("a", "I32", "[2,9223372036854775807]", 0, 16) "}",
        "{" T("a", "I32", "[2,18446744073709551616]", 0, 16) "}",
        "{" T("a", "I32", "[-1]", 0, 16) "}",
        "{" T("a", "I32", "[4.0]", 0, 16) "}",
        "{" T("a", "I32", "4", 0, 16) "}",
        "{" T("a", "F4", "[1,3]", 0, 1) "}",
        "{" T("a", "X32", "[4]", 0, 16) "}",
        "{" T("a", "f32", "[4]", 0, 16) "}",
        "{" T("a", "I32", "[4]", 16, 0) "}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[16]}}",
        "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,16]}}",
        "{\"a\":{\"shape\":[16],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16,0]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0]}}",
        "{\"a\":[\"U8\",[16],[0,16]]}",
        "{" T("a", "U8", "[16]", 0, 16) "," T("a", "U8", "[16]", 0, 16) "}",
        "{" T("a", "U8", "[16]", 0, 16) "," T("b", "U8", "[16]", 0, 16) "}",
        "{" T("a", "U8", "[8]", 0, 8) "," T("\\u0061", "U8", "[8]", 8, 16) "}",
        "{" T("a", "U8", "[8]", 8, 16) "}",
        "{" T("a", "U8", "[7]", 0, 7) "," T("b", "U8", "[8]", 8, 16) "}",
        "{" T("a", "U8", "[9]", 0, 9) "," T("b", "U8", "[8]", 8, 16) "}",
        "{" T("a", "U8", "[15]", 0, 15) "}",            /* a byte left over */
        "{" T("a\\u0000", "U8", "[16]", 0, 16) "}",
        "{\"__metadata__\":{\"a\":1}," T("a", "U8", "[16]", 0, 16) "}",
        "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}," T("a", "U8", "[16]", 0, 16) "}",
        "{\"__metadata__\":{},\"__metadata__\":{}," T("a", "U8", "[16]", 0, 16) "}",
        "{\"__metadata__\":[]," T("a", "U8", "[16]", 0, 16) "}",
    };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++)
        assert_refused(DTP_ERR_FORMAT, bad[i], 16);
    assert_refused(DTP_ERR_TRUNCATED, "{" T("a", "U8", "[16]", 0, 16) "}", 14);
}

static void test_same_offsets_for_all_are_refused(void **state)
{
    char text[4096] = "{";

    (void)state;
    for (int i = 0; i < 10; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s\"weight_%d\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}", i ? "," : "", i);
    strcat(text, "}");
    assert_refused(DTP_ERR_FORMAT, text, 16);
}

static void test_lengths_are_bounded_by_the_file(void **state)
{
    static const uint8_t n60[8] = { 0x3c }, huge[8] = { 0x3c, 0, 0, 0, 0, 0xff, 0xff, 0xff };
    static const uint8_t n100mb[8] = { 0x00, 0xe1, 0xf5, 0x05 }, more[8] = { 0x01, 0xe1, 0xf5, 0x05 };
    static const uint8_t all[8] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
    uint64_t n;

    (void)state;
    assert_status(DTP_ERR_TRUNCATED, dtpi_st_header_bytes(n60, 0, "f", &n, ERR));
    assert_status(DTP_ERR_TRUNCATED, dtpi_st_header_bytes(n60, 7, "f", &n, ERR));
    assert_status(DTP_ERR_TRUNCATED, dtpi_st_header_bytes(n60, 8, "f", &n, ERR));
    assert_status(DTP_ERR_LIMIT, dtpi_st_header_bytes(huge, 1 << 20, "f", &n, ERR));
    assert_status(DTP_ERR_LIMIT, dtpi_st_header_bytes(all, UINT64_MAX, "f", &n, ERR));
    assert_status(DTP_ERR_LIMIT, dtpi_st_header_bytes(more, UINT64_MAX, "f", &n, ERR));
    assert_status(DTP_ERR_TRUNCATED, dtpi_st_header_bytes(n100mb, 1024, "f", &n, ERR));
    assert_text("f claims a header of 100000000 bytes but has 1024");
    assert_ok(dtpi_st_header_bytes(n60, 68, "f", &n, ERR));
    assert_int_equal(n, 60);
}

static void test_names_and_metadata_are_found(void **state)
{
    dtpi_st st;

    (void)state;
    assert_ok(read_text("{\"__metadata__\":{\"k\":\"v\\n\",\"l\":\"\"}," T("b\\u00e9", "I16", "[1,2]", 0, 4) "," T("a", "U8", "[1]", 4, 5) "}", 5, &st));
    assert_string_equal(dtpi_st_meta(&st, "k"), "v\n");
    assert_string_equal(dtpi_st_meta(&st, "l"), "");
    assert_null(dtpi_st_meta(&st, "v\n"));
    const dtpi_st_entry *e = dtpi_st_find(&st, "b\xc3\xa9", 3);
    assert_non_null(e);
    assert_int_equal(e->n_dims, 2);
    assert_int_equal(dtpi_st_dims(&st, e)[1], 2);
    assert_int_equal(dtpi_st_entry_type(e)->dtype, DTP_I16);
    assert_null(dtpi_st_find(&st, "b", 1));
    dtpi_st_free(&st);
}

static void test_written_headers_read_back_aligned(void **state)
{
    static const int64_t dims[] = { 2, 3 };
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(A);
    uint64_t n;
    dtpi_st st;

    (void)state;
    dtpi_st_write_begin(&b);
    assert_ok(dtpi_st_write_end(&b, 16, ERR));
    assert_memory_equal(b.data, "\x08\0\0\0\0\0\0\0{}      ", 16);

    dtpi_buf_reset(&b);
    dtpi_st_write_begin(&b);
    dtpi_st_write_meta(&b, "only", "meta", 4);
    assert_ok(dtpi_st_write_end(&b, 0, ERR));
    assert_ok(dtpi_st_read(A, (char *)b.data + 8, b.len - 8, 0, "f", &st, ERR));
    dtpi_st_free(&st);

    dtpi_buf_reset(&b);
    dtpi_st_write_begin(&b);
    dtpi_st_write_meta(&b, "a\"", "{\"x\":1}", 7);
    dtpi_st_write_meta(&b, "b", "", 0);
    dtpi_st_write_tensor(&b, "w\\", 2, "F32", 2, dims, 0, 24);
    dtpi_st_write_tensor(&b, "s", 1, "U8", 0, NULL, 24, 25);
    assert_ok(dtpi_st_write_end(&b, 0, ERR));
    assert_int_equal(b.len, DTPI_ST_ALIGN);
    assert_ok(dtpi_st_header_bytes(b.data, b.len + 25, "f", &n, ERR));
    assert_int_equal(n, b.len - 8);
    assert_ok(dtpi_st_read(A, (char *)b.data + 8, n, 25, "f", &st, ERR));
    assert_string_equal(dtpi_st_meta(&st, "a\""), "{\"x\":1}");
    assert_non_null(dtpi_st_find(&st, "w\\", 2));
    dtpi_st_free(&st);

    dtpi_buf_reset(&b);
    dtpi_st_write_begin(&b);
    assert_status(DTP_ERR_LIMIT, dtpi_st_write_end(&b, 8, ERR));
}

/* Memory follows the header: 20 000 tensors need at most four times its bytes. */
static size_t now, most;

static void *count_alloc(void *user, size_t bytes, size_t align)
{
    now += bytes;
    most = now > most ? now : most;
    return dtpi_malloc_allocator.alloc(user, bytes, align);
}

static void count_free(void *user, void *p, size_t bytes)
{
    now -= bytes;
    dtpi_malloc_allocator.free(user, p, bytes);
}

static void test_memory_stays_below_four_headers(void **state)
{
    const dtp_allocator counting = { count_alloc, count_free, NULL };
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(A);
    const int64_t dim = 4;
    char name[64];
    dtpi_st st;

    (void)state;
    dtpi_st_write_begin(&b);
    for (uint64_t i = 0; i < 20000; i++) {
        snprintf(name, sizeof(name), "layers.%llu.weight", (unsigned long long)i);
        dtpi_st_write_tensor(&b, name, strlen(name), "U8", 1, &dim, 4 * i, 4 * i + 4);
    }
    assert_ok(dtpi_st_write_end(&b, 0, ERR));
    assert_ok(dtpi_st_read(&counting, (char *)b.data + 8, b.len - 8, 80000, "f", &st, ERR));
    assert_int_equal(st.n, 20000);
    print_message("%zu bytes of header, %zu of memory\n", b.len, most);
    assert_true(most <= 4 * b.len);
    dtpi_st_free(&st);
    assert_int_equal(now, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_well_formed_headers_are_taken),
        cmocka_unit_test(test_malformed_headers_are_refused),
        cmocka_unit_test(test_same_offsets_for_all_are_refused),
        cmocka_unit_test(test_lengths_are_bounded_by_the_file),
        cmocka_unit_test(test_names_and_metadata_are_found),
        cmocka_unit_test(test_written_headers_read_back_aligned),
        cmocka_unit_test(test_memory_stays_below_four_headers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
