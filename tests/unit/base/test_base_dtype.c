/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "base/base.h"

static void test_every_type_has_a_name_that_parses(void **state)
{
    for (int i = 1; i < DTP_DTYPE_END; i++) {
        const uint32_t bits = dtp_dtype_bits((dtp_dtype)i);
        assert_true(bits >= 4);
        assert_int_equal(dtp_dtype_bytes((dtp_dtype)i), bits % 8 ? 0 : bits / 8);
        assert_int_equal(dtp_dtype_parse(dtp_dtype_name((dtp_dtype)i)), i);
    }
}

static void test_unknown_types_are_none(void **state)
{
    assert_int_equal(dtp_dtype_bytes(DTP_DTYPE_NONE), 0);
    assert_int_equal(dtp_dtype_bytes(DTP_DTYPE_END), 0);
    assert_int_equal(dtp_dtype_bits(DTP_DTYPE_NONE), 0);
    assert_int_equal(dtp_dtype_bits(DTP_DTYPE_END), 0);
    assert_int_equal(dtp_dtype_bytes((dtp_dtype)-1), 0);
    assert_string_equal(dtp_dtype_name((dtp_dtype)99), "none");
    assert_int_equal(dtp_dtype_parse(NULL), DTP_DTYPE_NONE);
    assert_int_equal(dtp_dtype_parse(""), DTP_DTYPE_NONE);
    assert_int_equal(dtp_dtype_parse("none"), DTP_DTYPE_NONE);
    assert_int_equal(dtp_dtype_parse("f320"), DTP_DTYPE_NONE);
}

static void test_case_does_not_matter(void **state)
{
    assert_int_equal(dtp_dtype_parse("BF16"), DTP_BF16);
    assert_int_equal(dtp_dtype_parse("F8_E4M3"), DTP_F8_E4M3);
    assert_int_equal(dtp_dtype_bytes(DTP_C64), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_has_a_name_that_parses),
        cmocka_unit_test(test_unknown_types_are_none),
        cmocka_unit_test(test_case_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
