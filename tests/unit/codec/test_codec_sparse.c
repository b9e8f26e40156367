/* SPDX-License-Identifier: Apache-2.0 */
/* Units that are mostly zero: they come back, take little room, and hostile bytes are refused. */
#include "check.h"

#include "codec/codec.h"
#include "codec/sparse.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

enum { BYTES = 1 << 20 };

/* One unit in `one_in` is there. */
static void fill(uint8_t *out, size_t bytes, size_t width, uint64_t one_in, uint64_t *seed)
{
    memset(out, 0, bytes);
    for (size_t i = 0; i + width <= bytes; i += width)
        if (check_random(seed) % one_in == 0)
            for (size_t k = 0; k < width; k++)
                out[i + k] = (uint8_t)check_random(seed);
}

static size_t through(dtpi_codec *codec, const uint8_t *in, size_t bytes, dtp_dtype dtype)
{
    uint8_t *scratch = malloc(bytes + 1), *out = malloc(bytes + 1);
    const void *stored = NULL;
    size_t n = 0;

    memset(out, 0xee, bytes + 1);
    assert_ok(dtpi_codec_store(codec, in, bytes, dtype, scratch, &stored, &n, ERR));
    assert_ok(dtpi_codec_restore(codec, stored, n, out, bytes, ERR));
    assert_memory_equal(out, in, bytes);
    assert_int_equal(out[bytes], 0xee);
    free(scratch);
    free(out);
    return n;
}

static void test_packed_units_come_back_in_place(void **state)
{
    uint64_t seed = check_seed();

    (void)state;
    for (unsigned log2 = 0; log2 < 4; log2++)
        for (size_t n = 1; n < 200; n += 1 + n / 9) {
            const size_t bytes = n << log2;
            uint8_t *in = malloc(bytes), *out = malloc(bytes), *bits = malloc(n / 8 + 1);
            uint8_t *values = malloc((n + 8) << log2);
            fill(in, bytes, (size_t)1 << log2, 1 + n % 5, &seed);
            const size_t k = dtpi_sparse_pack(log2, in, n, bits, values, n);
            assert_int_equal(dtpi_sparse_count(bits, n), k);
            memcpy(out + ((n - k) << log2), values, k << log2);
            dtpi_sparse_unpack(log2, bits, out + ((n - k) << log2), k, n, out);
            assert_memory_equal(out, in, bytes);
            if (k > 0)
                assert_true(dtpi_sparse_pack(log2, in, n, bits, values, k - 1) == SIZE_MAX);
            free(in);
            free(out);
            free(bits);
            free(values);
        }
}

static void test_a_bit_behind_the_last_unit_is_found(void **state)
{
    const uint8_t bits[] = { 0xff, 0x0f };

    (void)state;
    assert_int_equal(dtpi_sparse_count(bits, 12), 12);
    assert_int_equal(dtpi_sparse_count(bits, 16), 12);
    assert_true(dtpi_sparse_count(bits, 11) == SIZE_MAX);
}

static void test_sparse_numbers_shrink_to_their_share(void **state)
{
    static const struct { uint64_t one_in; double ratio; } want[] = { { 3, 2.4 }, { 10, 7 }, { 100, 60 },
                                                                      { 10000, 2000 } };
    uint64_t seed = check_seed();
    uint8_t *in = malloc(BYTES);
    dtpi_codec codec;

    (void)state;
    assert_ok(dtpi_codec_open(A, "planes", &codec, ERR));
    for (size_t i = 0; i < DTPI_ARRAY_LEN(want); i++) {
        fill(in, BYTES, 2, want[i].one_in, &seed);
        assert_true((double)BYTES / (double)through(&codec, in, BYTES, DTP_BF16) > want[i].ratio);
    }
    dtpi_codec_close(&codec);
    free(in);
}

static void test_every_type_length_and_share_comes_back(void **state)
{
    static const size_t sizes[] = { 512, 1024, 4096, 4104, 65536, 262144, 262152, BYTES };
    static const uint64_t shares[] = { 1, 2, 7, 500, 1000000 };
    uint64_t seed = check_seed();
    uint8_t *in = malloc(BYTES);
    dtpi_codec codec;

    (void)state;
    assert_ok(dtpi_codec_open(A, "planes", &codec, ERR));
    for (size_t s = 0; s < DTPI_ARRAY_LEN(shares); s++)
        for (int type = 1; type < DTP_DTYPE_END; type++) {
            fill(in, BYTES, (size_t)1 << (type % 4), shares[s], &seed);
            for (size_t i = 0; i < DTPI_ARRAY_LEN(sizes); i++)
                assert_true(through(&codec, in, sizes[i], (dtp_dtype)type) <= sizes[i]);
        }
    dtpi_codec_close(&codec);
    free(in);
}

/* Whatever the bytes are, the reader ends; what it takes is not looked at. */
static void test_damaged_sparse_chunks_end_within_bounds(void **state)
{
    uint64_t seed = check_seed();
    uint8_t *in = malloc(BYTES), *good = malloc(BYTES), *out = malloc(BYTES);
    const size_t bytes = 64 << 10;
    const void *stored;
    dtpi_codec codec;
    size_t n;

    (void)state;
    assert_ok(dtpi_codec_open(A, "planes", &codec, ERR));
    fill(in, bytes, 2, 30, &seed);
    assert_ok(dtpi_codec_store(&codec, in, bytes, DTP_BF16, good, &stored, &n, ERR));
    assert_ptr_equal(stored, good);
    assert_int_equal(good[0], 8 + 4 + 1);
    assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, good, n - 1, out, bytes, ERR));
    for (size_t cut = 1; cut < 9; cut++)
        assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, good, cut, out, bytes, ERR));
    for (int i = 0; i < 3000; i++) {
        uint8_t *exact = malloc(n);     /* so that a sanitizer sees the end */
        memcpy(exact, good, n);
        for (uint64_t k = 0; k <= check_random(&seed) % 3; k++)
            exact[check_random(&seed) % (i % 2 ? n : 16)] = (uint8_t)check_random(&seed);
        dtpi_codec_restore(&codec, exact, n, out, bytes, NULL);
        free(exact);
    }
    dtpi_codec_close(&codec);
    free(in);
    free(good);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_units_come_back_in_place),
        cmocka_unit_test(test_a_bit_behind_the_last_unit_is_found),
        cmocka_unit_test(test_sparse_numbers_shrink_to_their_share),
        cmocka_unit_test(test_every_type_length_and_share_comes_back),
        cmocka_unit_test(test_damaged_sparse_chunks_end_within_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
