/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "topo/parse.h"

static void test_pci_addresses_order_as_numbers(void **state)
{
    uint64_t a = 0, b = 0, host = 0, far = 0;

    (void)state;
    assert_true(dtpi_topo_parse_pci("0000:9b:00.0", &a));
    assert_true(dtpi_topo_parse_pci("0000:9b:00.1", &b));
    assert_true(dtpi_topo_parse_pci("pci0000:9b", &host));
    assert_true(dtpi_topo_parse_pci("10000:00:00.0", &far));
    assert_true(host < a && a < b && b < far);
}

static void test_odd_pci_addresses_are_refused(void **state)
{
    static const char *const odd[] = { "", "0000", "0000:3b:00", "0000:3b:00.8", "0000:3b:20.0",
                                       "0000:3b:00.0 ", ":3b:00.0", "0000:13b:00.0", "pci0000",
                                       "pci0000:3b:00.0", "123456789:00:00.0", "-1:00:00.0" };
    uint64_t place;

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(odd); i++)
        if (dtpi_topo_parse_pci(odd[i], &place))
            fail_msg("'%s' was taken", odd[i]);
}

static void test_masks_of_several_words(void **state)
{
    dtpi_cpuset set;

    (void)state;
    assert_true(dtpi_topo_parse_cpumask("ff,00000003\n", &set));
    assert_int_equal(dtpi_cpuset_count(&set), 10);
    assert_true(dtpi_cpuset_has(&set, 0) && dtpi_cpuset_has(&set, 1) && dtpi_cpuset_has(&set, 39));
    assert_true(dtpi_topo_parse_cpumask("0", &set));
    assert_int_equal(dtpi_cpuset_count(&set), 0);
}

static void test_odd_masks_are_refused(void **state)
{
    static const char *const odd[] = { "", "\n", ",", "1,", ",1", "1,,1", "x", "123456789", "1 2" };
    dtpi_cpuset set;

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(odd); i++)
        if (dtpi_topo_parse_cpumask(odd[i], &set))
            fail_msg("'%s' was taken", odd[i]);
}

static void test_a_mask_beyond_the_limit_is_refused(void **state)
{
    char text[9 * 300 + 1];
    dtpi_cpuset set;

    (void)state;
    text[0] = '\0';
    for (int i = 0; i < 300; i++)
        strcat(text, i ? ",00000000" : "80000000");
    assert_false(dtpi_topo_parse_cpumask(text, &set));
}

static void test_links_lose_what_the_line_code_takes(void **state)
{
    int64_t mbps = 0;

    (void)state;
    assert_true(dtpi_topo_parse_pci_link("16.0 GT/s PCIe", "16", &mbps));
    assert_int_equal(mbps, 252061);
    assert_true(dtpi_topo_parse_pci_link("2.5 GT/s", "1", &mbps));
    assert_int_equal(mbps, 2000);
    assert_true(dtpi_topo_parse_pci_link("8 GT/s", "4", &mbps));
    assert_int_equal(mbps, 31507);
}

static void test_unknown_links_stay_unknown(void **state)
{
    static const char *const odd[][2] = { { "Unknown", "16" }, { "16.0 GT/s PCIe", "0" },
                                          { "16.0 GT/s PCIe", "255" }, { "", "" },
                                          { "16.0 GT/s PCIe", "" }, { "32 GT/s PCIe/s", "x16" },
                                          { "0 GT/s", "4" }, { "9999999999 GT/s", "4" } };
    int64_t mbps = -7;

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(odd); i++)
        if (dtpi_topo_parse_pci_link(odd[i][0], odd[i][1], &mbps))
            fail_msg("'%s' x '%s' was taken", odd[i][0], odd[i][1]);
    assert_int_equal(mbps, -7);
}

static void test_speeds_of_hwloc_are_rounded_to_megabits(void **state)
{
    static const char *const odd[] = { "", "0.000000", "-1", "nan", "inf", "10000", "1,5", "15.7 GB/s" };
    int64_t mbps = -7;

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(odd); i++)
        assert_false(dtpi_topo_parse_gb_per_s(odd[i], &mbps));
    assert_int_equal(mbps, -7);
    assert_true(dtpi_topo_parse_gb_per_s("15.753846", &mbps));
    assert_int_equal(mbps, 126031);
    assert_true(dtpi_topo_parse_gb_per_s("0.5", &mbps));
    assert_int_equal(mbps, 4000);
}

static void test_sizes_and_memory(void **state)
{
    int64_t bytes = 0;

    (void)state;
    assert_true(dtpi_topo_parse_kib("32768K", &bytes));
    assert_int_equal(bytes, 32 << 20);
    assert_false(dtpi_topo_parse_kib("32768", &bytes));
    assert_true(dtpi_topo_find_kib("Node 0 MemFree: 1 kB\nNode 0 MemTotal:       131072 kB\n",
                                   "MemTotal", &bytes));
    assert_int_equal(bytes, 128 << 20);
    assert_false(dtpi_topo_find_kib("MemTotal: 99999999999999999 kB", "MemTotal", &bytes));
    assert_false(dtpi_topo_find_kib("MemTotal: kB", "MemTotal", &bytes));
    assert_false(dtpi_topo_find_kib("", "MemTotal", &bytes));
}

static void test_ports(void **state)
{
    int64_t mbps = 0;

    (void)state;
    assert_int_equal(dtpi_topo_parse_port_state("4: ACTIVE"), 4);
    assert_int_equal(dtpi_topo_parse_port_state("1: DOWN"), 1);
    assert_int_equal(dtpi_topo_parse_port_state("5: ACTIVE_DEFER"), 0);
    assert_int_equal(dtpi_topo_parse_port_state(""), 0);
    assert_true(dtpi_topo_parse_port_rate("400 Gb/sec (4X NDR)", &mbps));
    assert_int_equal(mbps, 400000);
    assert_true(dtpi_topo_parse_port_rate("2.5 Gb/sec (1X SDR)", &mbps));
    assert_int_equal(mbps, 2500);
    assert_false(dtpi_topo_parse_port_rate("0 Gb/sec", &mbps));
    assert_false(dtpi_topo_parse_port_rate("fast", &mbps));
}

static void test_gids_are_told_apart(void **state)
{
    (void)state;
    assert_int_equal(dtpi_topo_parse_gid("0000:0000:0000:0000:0000:0000:0000:0000"), DTPI_GID_NONE);
    assert_int_equal(dtpi_topo_parse_gid("fe80:0000:0000:0000:0000:0000:0000:0000"), DTPI_GID_NONE);
    assert_int_equal(dtpi_topo_parse_gid("fe80:0000:0000:0000:a4ed:ccff:fe8b:1994"), DTPI_GID_LOCAL);
    assert_int_equal(dtpi_topo_parse_gid("fe80::ac0:ebff:feda:1cfb, RoCE v2"), DTPI_GID_LOCAL);
    assert_int_equal(dtpi_topo_parse_gid("0000:0000:0000:0000:0000:ffff:0a98:000c"),
                     DTPI_GID_ROUTED);
    assert_int_equal(dtpi_topo_parse_gid("::ffff:200.0.209.6"), DTPI_GID_ROUTED);
    assert_int_equal(dtpi_topo_parse_gid("not a gid"), DTPI_GID_NONE);
    assert_int_equal(dtpi_topo_parse_gid(""), DTPI_GID_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pci_addresses_order_as_numbers),
        cmocka_unit_test(test_odd_pci_addresses_are_refused),
        cmocka_unit_test(test_masks_of_several_words),
        cmocka_unit_test(test_odd_masks_are_refused),
        cmocka_unit_test(test_a_mask_beyond_the_limit_is_refused),
        cmocka_unit_test(test_links_lose_what_the_line_code_takes),
        cmocka_unit_test(test_unknown_links_stay_unknown),
        cmocka_unit_test(test_speeds_of_hwloc_are_rounded_to_megabits),
        cmocka_unit_test(test_sizes_and_memory),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_gids_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
