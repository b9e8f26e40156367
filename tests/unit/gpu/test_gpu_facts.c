/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "facts.h"

static void test_own_declarations_agree_with_the_headers(void **state)
{
    size_t i = 0;

    for (; facts_own[i].name; i++) {
        assert_string_equal(facts_own[i].name, facts_real[i].name);
        if (facts_own[i].value != facts_real[i].value)
            fail_msg("%s is %ld here and %ld there", facts_own[i].name, facts_own[i].value,
                     facts_real[i].value);
    }
    assert_null(facts_real[i].name);
    print_message("%zu facts compared\n", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_declarations_agree_with_the_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
