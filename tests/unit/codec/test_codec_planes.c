/* SPDX-License-Identifier: Apache-2.0 */
/* Byte planes: variants agree, numbers of every kind come back, ratios hold, hostile bytes are refused. */
#include "check.h"

#include <math.h>
#include <zstd.h>

#include "codec/codec.h"
#include "codec/huf.h"
#include "codec/planes.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

enum { BYTES = 1 << 20 };

static double gauss(uint64_t *seed)
{
    const double u = ((double)(check_random(seed) >> 11) + 1) / 9007199254740993.0;
    const double v = (double)(check_random(seed) >> 11) / 9007199254740992.0;

    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static uint16_t bf16_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static void fill_bf16(uint8_t *out, uint64_t *seed)
{
    for (size_t i = 0; i < BYTES / 2; i++) {
        const uint16_t v = bf16_of((float)(0.02 * gauss(seed)));
        memcpy(out + 2 * i, &v, 2);
    }
}

static void fill_f32(uint8_t *out, uint64_t *seed, bool squared)
{
    for (size_t i = 0; i < BYTES / 4; i++) {
        const double g = gauss(seed);
        const float v = (float)(squared ? 1e-6 * g * g : 0.02 * g);
        memcpy(out + 4 * i, &v, 4);
    }
}

/* Stores and restores; the stored size. */
static size_t through(dtpi_codec *codec, const uint8_t *in, size_t bytes, dtp_dtype dtype)
{
    uint8_t *scratch = malloc(bytes + 1), *out = malloc(bytes + 1);
    const void *stored = NULL;
    size_t n = 0;

    assert_ok(dtpi_codec_store(codec, in, bytes, dtype, scratch, &stored, &n, ERR));
    assert_ok(dtpi_codec_restore(codec, stored, n, out, bytes, ERR));
    assert_memory_equal(out, in, bytes);
    free(scratch);
    free(out);
    return n;
}

static void test_variants_split_and_merge_alike(void **state)
{
    static const char *const names[] = { "avx2", "avx512" };
    static const size_t counts[] = { 1, 2, 7, 63, 64, 65, 1000, 4097 };
    uint64_t seed = check_seed();
    uint8_t in[8 * 4097], out[8 * 4097];
    static uint8_t room[2][DTPI_PLANES_MAX][4097];

    (void)state;
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (uint8_t)check_random(&seed);
    for (size_t v = 0; v < DTPI_ARRAY_LEN(names); v++) {
        const dtpi_planes *other = dtpi_planes_find(names[v]);
        for (int kind = 0; other && kind < DTPI_PLANES_KINDS; kind++)
            for (size_t c = 0; c < DTPI_ARRAY_LEN(counts); c++) {
                uint8_t *a[DTPI_PLANES_MAX], *b[DTPI_PLANES_MAX];
                const size_t n = counts[c], width = (size_t)1 << (kind & 3);
                for (size_t k = 0; k < DTPI_PLANES_MAX; k++) {
                    a[k] = room[0][k];
                    b[k] = room[1][k];
                }
                dtpi_planes_base.split[kind](in, n, a);
                other->split[kind](in, n, b);
                for (size_t k = 0; k < width; k++)
                    assert_memory_equal(a[k], b[k], n);
                other->merge[kind]((const uint8_t *const *)a, n, out);
                assert_memory_equal(out, in, n * width);
                dtpi_planes_base.merge[kind]((const uint8_t *const *)b, n, out);
                assert_memory_equal(out, in, n * width);
            }
    }
}

static void test_sign_goes_to_the_bottom(void **state)
{
    const uint16_t minus_one = 0xbf80;      /* bf16: sign, exponent 127, mantissa 0 */
    uint8_t low, high, *planes[2] = { &low, &high };

    (void)state;
    dtpi_planes_base.split[4 + 1]((const uint8_t *)&minus_one, 1, planes);
    assert_int_equal(high, 127);
    assert_int_equal(low, 1);
}

static void test_every_type_and_length_comes_back(void **state)
{
    static const size_t sizes[] = { 2, 8, 15, 16, 4096, 65535, 65536, 262144, 262152, 262146, BYTES };
    uint64_t seed = check_seed();
    uint8_t *in = malloc(BYTES);
    dtpi_codec codec;

    (void)state;
    assert_ok(dtpi_codec_open(A, "planes", &codec, ERR));
    for (int fill = 0; fill < 5; fill++) {
        for (size_t i = 0; i < BYTES; i++)
            in[i] = fill == 0   ? (uint8_t)check_random(&seed)
                    : fill == 1 ? 0
                    : fill == 2 ? (uint8_t)(i / 8)
                    : fill == 3 ? (uint8_t)(120 + (check_random(&seed) % 16))   /* across value 128 */
                                : (uint8_t)(i % 8 == 7 ? 0x80 : check_random(&seed) % 3);
        for (int type = 1; type < DTP_DTYPE_END; type++)
            for (size_t i = 0; i < DTPI_ARRAY_LEN(sizes); i++)
                assert_true(through(&codec, in, sizes[i], (dtp_dtype)type) <= sizes[i]);
    }
    dtpi_codec_close(&codec);
    free(in);
}

static void test_weights_and_moments_shrink(void **state)
{
    uint64_t seed = check_seed();
    uint8_t *in = malloc(BYTES);
    dtpi_codec codec;

    (void)state;
    assert_ok(dtpi_codec_open(A, "planes", &codec, ERR));
    fill_bf16(in, &seed);
    assert_true(BYTES / 1.505 > (double)through(&codec, in, BYTES, DTP_BF16));
    fill_f32(in, &seed, false);
    assert_true(BYTES / 1.20 > (double)through(&codec, in, BYTES, DTP_F32));
    fill_f32(in, &seed, true);      /* never negative: the sign is constant */
    assert_true(BYTES / 1.20 > (double)through(&codec, in, BYTES, DTP_F32));
    dtpi_codec_close(&codec);
    free(in);
}

/* Values with few bits each, from `first` on. */
static void fill_values(uint8_t *out, size_t n, unsigned first, unsigned spread, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t r = check_random(seed) | 1ull << spread;
        out[i] = (uint8_t)(first + (unsigned)__builtin_ctzll(r));
    }
}

static void test_any_zstd_reads_what_is_written(void **state)
{
    static const char *const names[] = { "base", "avx512" };
    static const size_t sizes[] = { 4096, 4097, 5000, 65536, 100003, 131072 };
    static const struct { unsigned first, spread; } values[] = { { 0, 2 }, { 100, 12 }, { 90, 30 }, { 112, 16 },
                                                                 { 64, 63 } };
    uint64_t seed = check_seed();
    uint8_t *in = malloc(131072), *frame = malloc(131072), *out = malloc(131072);
    static dtpi_huf_table table;

    (void)state;
    for (size_t v = 0; v < DTPI_ARRAY_LEN(names); v++) {
        const dtpi_huf_kernels *k = dtpi_huf_find(names[v]);
        for (size_t i = 0; k && i < DTPI_ARRAY_LEN(sizes); i++)
            for (size_t c = 0; c < DTPI_ARRAY_LEN(values); c++) {
                dtpi_huf_codes codes = { 0 };
                const size_t n = sizes[i];
                fill_values(in, n, values[c].first, values[c].spread, &seed);
                const size_t bytes = dtpi_huf_encode(k, &codes, in, n, frame, n);
                assert_true(bytes > 0 && bytes < n);
                memset(out, 0xee, n);
                assert_int_equal(ZSTD_decompress(out, n, frame, bytes), n);
                assert_memory_equal(out, in, n);
                memset(out, 0xee, n);
                assert_true(dtpi_huf_decode(frame, bytes, out, n, &table));
                assert_memory_equal(out, in, n);
                assert_int_equal(dtpi_huf_encode(k, &codes, in, n, frame, bytes - 1), 0);
            }
    }
    free(in);
    free(frame);
    free(out);
}

static void test_variants_write_the_same_frame(void **state)
{
    const dtpi_huf_kernels *k = dtpi_huf_find("avx512");
    uint64_t seed = check_seed();
    uint8_t *in = malloc(65536), *a = malloc(65536), *b = malloc(65536);
    dtpi_huf_codes codes[2] = { 0 };

    (void)state;
    fill_values(in, 65536, 100, 20, &seed);
    const size_t n = dtpi_huf_encode(&dtpi_huf_base, &codes[0], in, 65536, a, 65536);
    assert_true(n > 0);
    if (k) {
        assert_int_equal(dtpi_huf_encode(k, &codes[1], in, 65536, b, 65536), n);
        assert_memory_equal(a, b, n);
    }
    free(in);
    free(a);
    free(b);
}

static void test_codes_are_taken_again_only_where_they_fit(void **state)
{
    uint64_t seed = check_seed();
    uint8_t in[65536], frame[65536], out[65536];
    dtpi_huf_codes codes = { 0 };
    static dtpi_huf_table table;
    const dtpi_huf_kernels *k = dtpi_huf_best();

    (void)state;
    for (unsigned round = 0; round < 6; round++) {
        fill_values(in, sizeof(in), 100 - round / 2 * 10, round % 2 ? 20 : 8, &seed);
        const size_t n = dtpi_huf_encode(k, &codes, in, sizeof(in), frame, sizeof(frame));
        assert_true(n > 0);
        assert_true(dtpi_huf_decode(frame, n, out, sizeof(out), &table));
        assert_memory_equal(out, in, sizeof(in));
    }
}

/* Whatever is changed, our reader either gives way to libzstd or agrees with it. */
static void test_reader_agrees_with_zstd_on_damaged_frames(void **state)
{
    uint64_t seed = check_seed();
    uint8_t in[8192], frame[8192], bad[8192], a[8192], b[8192];
    dtpi_huf_codes codes = { 0 };
    unsigned taken = 0;

    (void)state;
    fill_values(in, sizeof(in), 100, 12, &seed);
    const size_t n = dtpi_huf_encode(dtpi_huf_best(), &codes, in, sizeof(in), frame, sizeof(frame));
    assert_true(n > 0);
    for (unsigned i = 0; i < 20000; i++) {
        dtpi_huf_table *table = calloc(1, sizeof(*table));
        size_t bytes = n;
        memcpy(bad, frame, n);
        for (uint64_t k = 1 + check_random(&seed) % 3; k > 0; k--)
            bad[check_random(&seed) % (check_random(&seed) % 2 ? 100 : n)] ^=
                (uint8_t)(1u << check_random(&seed) % 8);
        if (check_random(&seed) % 8 == 0)
            bytes -= check_random(&seed) % n;
        if (dtpi_huf_decode(bad, bytes, a, sizeof(a), table)) {
            assert_int_equal(ZSTD_decompress(b, sizeof(b), bad, bytes), sizeof(b));
            assert_memory_equal(a, b, sizeof(a));
            taken++;
        }
        free(table);
    }
    assert_true(taken > 0);     /* some changes only exchange codes */
}

static void test_hostile_chunks_are_refused(void **state)
{
    uint64_t seed = check_seed();
    uint8_t *in = malloc(BYTES), *scratch = malloc(BYTES), *out = malloc(BYTES);
    const void *stored;
    dtpi_codec codec;
    size_t n;

    (void)state;
    fill_bf16(in, &seed);
    assert_ok(dtpi_codec_open(A, "planes", &codec, ERR));
    assert_ok(dtpi_codec_store(&codec, in, BYTES, DTP_BF16, scratch, &stored, &n, ERR));
    assert_ptr_equal(stored, scratch);
    assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, scratch, n - 1, out, BYTES, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, scratch, n, out, BYTES - 2, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, scratch, n, out, BYTES - 1, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, scratch, 1, out, BYTES, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, scratch, 5, out, BYTES, ERR));
    for (size_t at = 0; at < 9; at++) {
        const uint8_t was = scratch[at];
        scratch[at] = 0xff;
        assert_status(DTP_ERR_FORMAT, dtpi_codec_restore(&codec, scratch, n, out, BYTES, ERR));
        scratch[at] = was;
    }
    assert_ok(dtpi_codec_restore(&codec, scratch, n, out, BYTES, ERR));
    assert_memory_equal(out, in, BYTES);
    dtpi_codec_close(&codec);
    free(in);
    free(scratch);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants_split_and_merge_alike),
        cmocka_unit_test(test_sign_goes_to_the_bottom),
        cmocka_unit_test(test_every_type_and_length_comes_back),
        cmocka_unit_test(test_weights_and_moments_shrink),
        cmocka_unit_test(test_any_zstd_reads_what_is_written),
        cmocka_unit_test(test_variants_write_the_same_frame),
        cmocka_unit_test(test_codes_are_taken_again_only_where_they_fit),
        cmocka_unit_test(test_reader_agrees_with_zstd_on_damaged_frames),
        cmocka_unit_test(test_hostile_chunks_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
