/* SPDX-License-Identifier: Apache-2.0 */
#include "facts.h"

static dtp_topo_path path(const dtp_topo *topo, dtp_topo_type ta, uint32_t a, dtp_topo_type tb,
                          uint32_t b)
{
    dtp_topo_path there = DTP_PATH_UNKNOWN, back = DTP_PATH_UNKNOWN;
    const uint32_t ia = (uint32_t)nth(topo, ta, a).index, ib = (uint32_t)nth(topo, tb, b).index;

    assert_ok(dtp_topo_path_between(topo, ia, ib, &there, NULL, ERR));
    assert_ok(dtp_topo_path_between(topo, ib, ia, &back, NULL, ERR));
    assert_int_equal(there, back);
    return there;
}

static void test_paths_follow_bridges_and_nodes(void **state)
{
    dtp_topo *topo = facts_gpu_machine();

    (void)state;
    assert_int_equal(path(topo, DTP_TOPO_GPU, 0, DTP_TOPO_GPU, 0), DTP_PATH_SELF);
    assert_int_equal(path(topo, DTP_TOPO_GPU, 0, DTP_TOPO_NIC, 0), DTP_PATH_PIX);
    assert_int_equal(path(topo, DTP_TOPO_GPU, 2, DTP_TOPO_NIC, 1), DTP_PATH_PXB);
    assert_int_equal(path(topo, DTP_TOPO_GPU, 0, DTP_TOPO_GPU, 1), DTP_PATH_PHB);
    assert_int_equal(path(topo, DTP_TOPO_GPU, 0, DTP_TOPO_GPU, 2), DTP_PATH_SYS);
    dtp_topo_close(topo);
}

static void test_host_bridges_of_one_node_are_node(void **state)
{
    facts f = facts_begin();

    (void)state;
    facts_processors(&f, 2, 2, 1);
    facts_device(&f, DTP_TOPO_BRIDGE, "pci0000:00", NULL, NULL, "0-1");
    facts_device(&f, DTP_TOPO_GPU, NULL, "0000:00:01.0", "pci0000:00", NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, "pci0000:40", NULL, NULL, "0-1");
    facts_device(&f, DTP_TOPO_GPU, NULL, "0000:40:01.0", "pci0000:40", NULL);
    facts_device(&f, DTP_TOPO_GPU, NULL, "0000:50:01.0", NULL, NULL);
    dtp_topo *topo = facts_end(&f);
    assert_int_equal(path(topo, DTP_TOPO_GPU, 0, DTP_TOPO_GPU, 1), DTP_PATH_NODE);
    /* Where the node is not known, neither is the path. */
    assert_int_equal(path(topo, DTP_TOPO_GPU, 0, DTP_TOPO_GPU, 2), DTP_PATH_UNKNOWN);
    dtp_topo_close(topo);
}

static void test_nvlinks_win_and_are_counted(void **state)
{
    facts f = facts_begin();
    dtp_topo_path p = DTP_PATH_UNKNOWN;
    uint32_t n = 0;

    (void)state;
    facts_processors(&f, 1, 1, 1);
    facts_device(&f, DTP_TOPO_GPU, NULL, "0000:01:00.0", NULL, NULL);
    facts_device(&f, DTP_TOPO_GPU, NULL, "0000:02:00.0", NULL, NULL);
    dtpi_topo_sink *sink = dtpi_topo_build_sink(f.build);
    assert_ok(sink->link(sink, "0000:02:00.0", "0000:01:00.0", 12, ERR));
    dtp_topo *topo = facts_end(&f);
    assert_ok(dtp_topo_path_between(topo, (uint32_t)nth(topo, DTP_TOPO_GPU, 0).index,
                                    (uint32_t)nth(topo, DTP_TOPO_GPU, 1).index, &p, &n, ERR));
    assert_int_equal(p, DTP_PATH_NVLINK);
    assert_int_equal(n, 12);
    assert_status(DTP_ERR_RANGE, dtp_topo_path_between(topo, 0, 99, &p, &n, ERR));
    dtp_topo_close(topo);
}

static void test_errors_name_the_noun(void **state)
{
    dtp_topo *topo = facts_gpu_machine();
    dtp_topo_obj obj = { .size = 1 };

    (void)state;
    assert_true(dtp_topo_get(topo, 0, &obj, ERR) < 0);
    assert_string_equal(check_err.noun, "topo");
    assert_true(dtp_topo_nth(topo, DTP_TOPO_GPU, 0, &obj, ERR) < 0);
    assert_string_equal(check_err.noun, "topo");
    dtp_topo_close(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths_follow_bridges_and_nodes),
        cmocka_unit_test(test_host_bridges_of_one_node_are_node),
        cmocka_unit_test(test_nvlinks_win_and_are_counted),
        cmocka_unit_test(test_errors_name_the_noun),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
