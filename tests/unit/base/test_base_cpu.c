/* SPDX-License-Identifier: Apache-2.0 */
/* What the processor has is what the system says of it. */
#include "check.h"

#include <stdio.h>
#include <string.h>

#include "base/cpu.h"

static void test_features_are_those_that_the_system_tells(void **state)
{
    static const struct {
        const char *word;
        uint32_t feature;
    } known[] = { { " avx2 ", DTPI_CPU_AVX2 },
                  { " f16c ", DTPI_CPU_F16C },
                  { " bmi2 ", DTPI_CPU_BMI2 },
                  { " avx512bw ", DTPI_CPU_AVX512 },
                  { " avx512vbmi ", DTPI_CPU_AVX512_VBMI } };
    char line[8192] = "";

    (void)state;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof(line), f) && strncmp(line, "flags", 5) != 0)
        continue;
    if (f)
        fclose(f);
    if (strncmp(line, "flags", 5) != 0)
        skip();
    line[strcspn(line, "\n")] = ' ';
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        assert_int_equal(dtpi_cpu_has(known[i].feature), strstr(line, known[i].word) != NULL);
}

static void test_nothing_is_always_there(void **state)
{
    (void)state;
    assert_true(dtpi_cpu_has(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features_are_those_that_the_system_tells),
        cmocka_unit_test(test_nothing_is_always_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
