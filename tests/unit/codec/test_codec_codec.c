/* SPDX-License-Identifier: Apache-2.0 */
/* Every codec gives back what it was given, never grows it, and refuses bytes that are not its own. */
#include "check.h"

#include "codec/codec.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

static void round_trip(dtpi_codec *codec, const uint8_t *in, size_t bytes, size_t *stored_bytes_out)
{
    uint8_t *scratch = malloc(bytes + 1), *out = malloc(bytes + 1);
    const void *stored = NULL;
    size_t n = 0;

    assert_ok(dtpi_codec_store(codec, in, bytes, DTP_F32, scratch, &stored, &n, ERR));
    assert_true(n <= bytes);
    assert_ok(dtpi_codec_restore(codec, stored, n, out, bytes, ERR));
    assert_memory_equal(out, in, bytes);
    *stored_bytes_out = n;
    free(scratch);
    free(out);
}

static void test_every_codec_gives_back_every_size(void **state)
{
    static const size_t sizes[] = { 0, 1, 2, 3, 100, 4096, 65536, 1 << 20 };
    uint64_t seed = check_seed();
    uint8_t *in = malloc(1 << 20);
    size_t n;

    (void)state;
    for (size_t c = 0; dtpi_codecs[c]; c++) {
        dtpi_codec codec;
        assert_ok(dtpi_codec_open(A, dtpi_codecs[c]->name, &codec, ERR));
        for (size_t i = 0; i < DTPI_ARRAY_LEN(sizes); i++) {
            for (size_t k = 0; k < sizes[i]; k++)
                in[k] = (uint8_t)check_random(&seed);
            round_trip(&codec, in, sizes[i], &n);
            assert_int_equal(n, sizes[i]);      /* noise does not shrink */
            memset(in, 7, sizes[i]);
            round_trip(&codec, in, sizes[i], &n);
        }
        dtpi_codec_close(&codec);
    }
    free(in);
}

static void test_zstd_shrinks_what_repeats(void **state)
{
    dtpi_codec codec;
    uint8_t in[65536];
    size_t n;

    (void)state;
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (uint8_t)(i / 64);
    assert_ok(dtpi_codec_open(A, "zstd", &codec, ERR));
    round_trip(&codec, in, sizeof(in), &n);
    assert_true(n < sizeof(in) / 10);
    dtpi_codec_close(&codec);
}

static void test_foreign_bytes_are_refused(void **state)
{
    dtpi_codec codec;
    uint8_t in[4096] = { 0 }, out[4096], scratch[4096];
    const void *stored;
    size_t n;

    (void)state;
    assert_ok(dtpi_codec_open(A, "zstd", &codec, ERR));
    assert_ok(dtpi_codec_store(&codec, in, sizeof(in), DTP_U8, scratch, &stored, &n, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, stored, n, out, 4000, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, stored, n - 1, out, 4096, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, "garbage", 7, out, 4096, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, in, 4096, out, 100, ERR));
    dtpi_codec_close(&codec);
    assert_ok(dtpi_codec_open(A, "none", &codec, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, in, 50, out, 100, ERR));
    dtpi_codec_close(&codec);
}

static void test_unknown_codec_is_named(void **state)
{
    dtpi_codec codec;

    (void)state;
    assert_status(DTP_ERR_UNSUPPORTED, dtpi_codec_open(A, "brotli", &codec, ERR));
    assert_text("brotli");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_codec_gives_back_every_size),
        cmocka_unit_test(test_zstd_shrinks_what_repeats),
        cmocka_unit_test(test_foreign_bytes_are_refused),
        cmocka_unit_test(test_unknown_codec_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
