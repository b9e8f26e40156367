/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "coll/kernel.h"
#include "reference.h"

static const char *const variants[] = { "base", "avx2", "avx512" };

/* All types and operations of one variant, n inputs of `count` elements, against the reference. */
static void check_variant(const dtpi_kernels *k, uint32_t n, size_t count, dtpi_finish finish)
{
    static uint64_t in[8][1200], out[1200];
    int32_t program[16];
    dtpi_input inputs[8];
    dtpi_reduction r;

    for (int t = 0; t < REF_N_TYPES; t++)
        for (int o = 0; o < REF_N_OPS; o++) {
            const size_t bytes = dtp_dtype_bytes(ref_types[t]);
            assert_ok(dtpi_reduction_init(&r, k, ref_types[t], ref_ops[o], (int32_t)n, ERR));
            for (uint32_t m = 0; m < n; m++) {
                inputs[m] = (dtpi_input){ in[m], false };
                for (size_t i = 0; i < count; i++)
                    ref_input(ref_types[t], 7, m, i, (char *)in[m] + i * bytes);
            }
            dtpi_reduce(&r, program, dtpi_tree_program(program, 0, n), inputs, out, count, finish);
            r.k->stream_end();
            for (size_t i = 0; i < count; i++) {
                uint64_t want = 0;
                ref_expect(ref_types[t], ref_ops[o], 7, n, i, &want);
                if (memcmp(&want, (char *)out + i * bytes, bytes) != 0)
                    fail_msg("%s %s op %d: %u inputs, element %zu of %zu differs", k->name,
                             dtp_dtype_name(ref_types[t]), ref_ops[o], n, i, count);
            }
        }
}

static void test_every_variant_gives_the_bits_of_the_reference(void **state)
{
    static const size_t counts[] = { 0, 1, 7, 31, 255, 256, 257, 1111 };

    for (size_t v = 0; v < DTPI_ARRAY_LEN(variants); v++) {
        const dtpi_kernels *k = dtpi_kernels_find(variants[v]);
        if (!k) {
            print_message("skipped: no %s here\n", variants[v]);
            continue;
        }
        for (uint32_t n = 1; n <= 8; n++)
            for (size_t c = 0; c < DTPI_ARRAY_LEN(counts); c++)
                check_variant(k, n, counts[c], DTPI_FINISH_FINAL);
        check_variant(k, 2, 1111, DTPI_FINISH_STREAM);
        check_variant(k, 4, 1111, DTPI_FINISH_STREAM);
        check_variant(k, 5, 1111, DTPI_FINISH_STREAM);
    }
}

static void test_f16_conversion_of_all_values_returns_them(void **state)
{
    static uint16_t in[65536], out[65536];
    static float wide[65536];

    for (uint32_t i = 0; i < 65536; i++)
        in[i] = (uint16_t)i;
    for (size_t v = 0; v < DTPI_ARRAY_LEN(variants); v++) {
        const dtpi_kernels *k = dtpi_kernels_find(variants[v]);
        if (!k)
            continue;
        k->widen_f16(wide, in, 65536);
        k->narrow_f16(out, wide, 65536);
        for (uint32_t i = 0; i < 65536; i++)
            assert_int_equal(out[i], (i & 0x7fff) > 0x7c00 ? 0x7e00 : i);
    }
}

static void test_f16_rounding_agrees_between_variants(void **state)
{
    static float in[4096];
    static uint16_t want[4096], got[4096];
    uint64_t seed = check_seed();

    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 4096; i++)
            in[i] = dtpi_float_of_bits((uint32_t)check_random(&seed));
        dtpi_kernels_base.narrow_f16(want, in, 4096);
        for (size_t v = 1; v < DTPI_ARRAY_LEN(variants); v++) {
            const dtpi_kernels *k = dtpi_kernels_find(variants[v]);
            if (!k)
                continue;
            k->narrow_f16(got, in, 4096);
            assert_memory_equal(got, want, sizeof(want));
        }
    }
}

static void test_tree_splits_at_the_largest_power_of_two(void **state)
{
    static const int32_t want[] = { 0, 1, -1, 2, 3, -1, -1, 4, 5, -1, 6, -1, -1 };
    int32_t program[16];

    assert_int_equal(dtpi_tree_split(2), 1);
    assert_int_equal(dtpi_tree_split(7), 4);
    assert_int_equal(dtpi_tree_split(8), 4);
    assert_int_equal(dtpi_tree_split(9), 8);
    assert_int_equal(dtpi_tree_program(program, 0, 7), 13);
    assert_memory_equal(program, want, sizeof(want));
}

static void test_types_and_operations_that_do_not_exist_are_refused(void **state)
{
    dtpi_reduction r;

    assert_status(DTP_ERR_UNSUPPORTED,
                  dtpi_reduction_init(&r, &dtpi_kernels_base, DTP_C64, DTP_SUM, 2, ERR));
    assert_text("c64");
    assert_status(DTP_ERR_INVAL,
                  dtpi_reduction_init(&r, &dtpi_kernels_base, DTP_F32, (dtp_redop)9, 2, ERR));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_variant_gives_the_bits_of_the_reference),
        cmocka_unit_test(test_f16_conversion_of_all_values_returns_them),
        cmocka_unit_test(test_f16_rounding_agrees_between_variants),
        cmocka_unit_test(test_tree_splits_at_the_largest_power_of_two),
        cmocka_unit_test(test_types_and_operations_that_do_not_exist_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
