/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "base/base.h"

static void test_every_status_has_a_name_and_text_of_its_own(void **state)
{
    for (int a = DTP_ERR_INTERRUPTED; a <= DTP_END; a++) {
        assert_int_equal(strncmp(dtp_status_name(a), "DTP_", 4), 0);
        assert_true(strlen(dtp_status_text(a)) > 3);
        for (int b = DTP_ERR_INTERRUPTED; b < a; b++) {
            assert_string_not_equal(dtp_status_name(a), dtp_status_name(b));
            assert_string_not_equal(dtp_status_text(a), dtp_status_text(b));
        }
    }
}

static void test_other_numbers_are_unknown(void **state)
{
    assert_string_equal(dtp_status_name(DTP_ERR_INTERRUPTED - 1), "unknown");
    assert_string_equal(dtp_status_name(INT32_MAX), "unknown");
    assert_string_equal(dtp_status_text(-99), "unknown status");
    assert_string_equal(dtp_status_name(DTP_OK), "DTP_OK");
}

static void test_version_is_told(void **state)
{
    assert_string_equal(dtp_version(), DTPI_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_status_has_a_name_and_text_of_its_own),
        cmocka_unit_test(test_other_numbers_are_unknown),
        cmocka_unit_test(test_version_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
