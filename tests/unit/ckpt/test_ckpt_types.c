/* SPDX-License-Identifier: Apache-2.0 */
/* All number types, scalars, empty tensors, any bits, and any names, through a save and a load. */
#include "ranks.h"

#include "ckpt/plan.h"
#include "ckpt/st.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

static uint64_t bytes_of(uint64_t count, dtp_dtype dtype)
{
    return count * dtp_dtype_bits(dtype) / 8;
}

/* Any bits: NaN payloads, subnormals, and what is no bool. */
static void *any_bytes(uint64_t *seed, uint64_t bytes)
{
    uint8_t *p = malloc(bytes + 1);

    for (uint64_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)(check_random(seed) >> 13);
    return p;
}

/* A rank's tensor whose bytes are `data`. */
static void put(rank_run *r, const char *name, dtp_dtype dtype, uint32_t n_dims, const int64_t *shape,
                const int64_t *offset, const int64_t *extent, void *data)
{
    r->tensors[r->n++] = (dtp_ckpt_tensor){ sizeof(dtp_ckpt_tensor), name, dtype, n_dims, shape,
                                            offset, extent, data };
}

static void assert_reads(dtpi_load *l, const char *name, dtp_dtype dtype, uint32_t n_dims,
                         const int64_t *shape, const int64_t *offset, const int64_t *extent,
                         const void *want, uint64_t bytes)
{
    uint8_t *got = calloc(1, bytes + 1);
    const dtp_ckpt_tensor t = { sizeof(t), name, dtype, n_dims, shape, offset, extent, got };

    assert_ok(dtpi_load_read(l, &t, ERR));
    assert_memory_equal(got, want, bytes);
    free(got);
}

/* Both halves of [8, 6], an empty [0, 3], and a scalar where a scalar is whole bytes. */
static void try_type(dtp_dtype dtype, dtp_codec codec, uint64_t *seed)
{
    static const int64_t shape[] = { 8, 6 }, low[] = { 4, 0 }, half[] = { 4, 6 }, empty[] = { 0, 3 };
    static const int64_t rows[] = { 2, 6 }, odd[] = { 2, 0 };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    DTPI_AUTO(load) dtpi_load *l = NULL;
    const bool whole = dtp_dtype_bits(dtype) % 8 == 0;
    const uint64_t n = bytes_of(24, dtype);
    rank_run r[2];

    ranks_init(r, 2, files, "ck");
    for (int i = 0; i < 2; i++) {
        r[i].opts.codec = codec;
        r[i].opts.chunk_bytes = 4096;
        put(&r[i], "w", dtype, 2, shape, i ? low : NULL, half, any_bytes(seed, n));
    }
    put(&r[0], "e", dtype, 2, empty, NULL, NULL, any_bytes(seed, 0));
    if (whole)
        put(&r[1], "s", dtype, 0, NULL, NULL, NULL, any_bytes(seed, dtp_dtype_bytes(dtype)));
    assert_ok(ranks_save(r, 2, 1));
    assert_ok(dtpi_load_open(A, files, "ck", 1, &l, ERR));
    assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
    assert_reads(l, "w", dtype, 2, shape, NULL, half, r[0].tensors[0].data, n);
    assert_reads(l, "w", dtype, 2, shape, low, half, r[1].tensors[0].data, n);
    assert_reads(l, "w", dtype, 2, shape, odd, rows,
                 (uint8_t *)r[0].tensors[0].data + bytes_of(12, dtype), bytes_of(12, dtype));
    assert_reads(l, "e", dtype, 2, empty, NULL, NULL, r[0].tensors[1].data, 0);
    if (whole)
        assert_reads(l, "s", dtype, 0, NULL, NULL, NULL, r[1].tensors[1].data, dtp_dtype_bytes(dtype));
    ranks_free(r, 2);
}

static void test_every_type_is_saved_and_loaded(void **state)
{
    static const dtp_codec codecs[] = { DTP_CODEC_NONE, DTP_CODEC_ZSTD, DTP_CODEC_PLANES };
    uint64_t seed = check_seed();
    int n = 0;

    (void)state;
    for (int type = 1; type < DTP_DTYPE_END; type++, n++)
        for (size_t c = 0; c < DTPI_ARRAY_LEN(codecs); c++)
            try_type((dtp_dtype)type, codecs[c], &seed);
    assert_int_equal(n, 22);
}

static void test_every_type_is_one_of_safetensors(void **state)
{
    (void)state;
    for (int type = 1; type < DTP_DTYPE_END; type++) {
        const dtpi_st_type *t = dtpi_st_type_of((dtp_dtype)type);
        assert_non_null(t);
        assert_int_equal(t->bits, dtp_dtype_bits((dtp_dtype)type));
        assert_int_equal(dtp_dtype_parse(t->name), type);
    }
}

static void test_box_that_cuts_a_byte_is_refused(void **state)
{
    static const int64_t shape[] = { 4, 3 }, row[] = { 1, 3 }, two[] = { 2, 3 }, column[] = { 4, 1 };
    static const int64_t pair[] = { 2, 2 }, right[] = { 0, 1 };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    DTPI_AUTO(load) dtpi_load *l = NULL;
    dtp_ckpt_tensor t = { sizeof(t), "w", DTP_F4, 2, shape, NULL, row, NULL };
    uint8_t data[6] = { 1, 2, 3, 4, 5, 6 }, got[6];
    rank_run r[1];

    (void)state;
    assert_status(DTP_ERR_INVAL, dtpi_plan_check(&t, ERR));
    assert_text("does not end at a byte (4 bits an element)");
    t = (dtp_ckpt_tensor){ sizeof(t), "w", DTP_F6_E2M3, 0, NULL, NULL, NULL, NULL };
    assert_status(DTP_ERR_INVAL, dtpi_plan_check(&t, ERR));

    ranks_init(r, 1, files, "ck");
    put(&r[0], "w", DTP_F4, 2, shape, NULL, NULL, data);
    assert_ok(ranks_save(r, 1, 1));
    assert_ok(dtpi_load_open(A, files, "ck", 1, &l, ERR));
    assert_reads(l, "w", DTP_F4, 2, shape, NULL, NULL, data, 6);
    assert_reads(l, "w", DTP_F4, 2, shape, NULL, two, data, 3);
    t = (dtp_ckpt_tensor){ sizeof(t), "w", DTP_F4, 2, shape, NULL, column, got };
    assert_status(DTP_ERR_UNSUPPORTED, dtpi_load_read(l, &t, ERR));
    assert_text("tensor w: the wanted box cuts a byte of f4");
    t = (dtp_ckpt_tensor){ sizeof(t), "w", DTP_F4, 2, shape, right, pair, got };
    assert_status(DTP_ERR_UNSUPPORTED, dtpi_load_read(l, &t, ERR));
}

static void test_names_are_any_utf8(void **state)
{
    static char longest[1024];
    static const char *const names[] = {
        "a", "a@0", "a@1", "a@0+", " ", "\"", "\\", "\n\t\x01\x1f", "\x7f", "__metadata", "\xc3\xa9",
        "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xef\xbf\xbf", "\xf4\x8f\xbf\xbf", "dtp.boxes", longest,
        "{\"a\":[1]}", "../../etc/passwd", "%s%n", "a/b",
    };
    static const int64_t shape[] = { 3 }, one[] = { 1 }, two[] = { 2 };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    DTPI_AUTO(load) dtpi_load *l = NULL;
    rank_run r[1];

    (void)state;
    memset(longest, 'x', sizeof(longest) - 1);
    ranks_init(r, 1, files, "ck");
    for (size_t i = 0; i < DTPI_ARRAY_LEN(names); i++) {
        give(&r[0], names[i], DTP_I16, 1, shape, NULL, one, i);
        give(&r[0], names[i], DTP_I16, 1, shape, one, two, i);
    }
    assert_ok(ranks_save(r, 1, 1));
    assert_ok(dtpi_load_open(A, files, "ck", 1, &l, ERR));
    assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
    for (size_t i = 0; i < DTPI_ARRAY_LEN(names); i++)
        assert_ok(read_known(l, names[i], DTP_I16, 1, shape, NULL, NULL, i));
    ranks_free(r, 1);
}

static void test_names_that_are_none_are_refused(void **state)
{
    static char too_long[1025];
    static const char *const names[] = { "", "__metadata__", "\xff", "\xc0\x80", "\xed\xa0\x80",
                                         "\xf4\x90\x80\x80", "a\xe2\x82", too_long };

    (void)state;
    memset(too_long, 'x', sizeof(too_long) - 1);
    for (size_t i = 0; i < DTPI_ARRAY_LEN(names); i++) {
        const dtp_ckpt_tensor t = { sizeof(t), names[i], DTP_U8, 0, NULL, NULL, NULL, NULL };
        assert_status(DTP_ERR_INVAL, dtpi_plan_check(&t, ERR));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_is_saved_and_loaded),
        cmocka_unit_test(test_every_type_is_one_of_safetensors),
        cmocka_unit_test(test_box_that_cuts_a_byte_is_refused),
        cmocka_unit_test(test_names_are_any_utf8),
        cmocka_unit_test(test_names_that_are_none_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
