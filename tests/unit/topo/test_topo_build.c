/* SPDX-License-Identifier: Apache-2.0 */
#include "facts.h"

static void test_processors_nest_by_their_sets(void **state)
{
    facts f = facts_begin();

    (void)state;
    facts_processors(&f, 2, 2, 2);
    facts_cpu(&f, DTP_TOPO_CACHE, DTP_UNKNOWN, "0-1,4-5");
    dtp_topo *topo = facts_end(&f);
    assert_int_equal(dtp_topo_n_objs(topo), 1 + 2 + 2 + 1 + 4 + 8);
    const dtp_topo_obj pu = nth(topo, DTP_TOPO_PU, 5);
    assert_string_equal(pu.cpus, "5");
    assert_int_equal(pu.numa, 0);
    const dtp_topo_obj core = object(topo, pu.parent);
    assert_string_equal(core.cpus, "1,5");
    const dtp_topo_obj cache = object(topo, core.parent);
    assert_int_equal(cache.type, DTP_TOPO_CACHE);
    const dtp_topo_obj numa = object(topo, cache.parent);
    assert_int_equal(numa.type, DTP_TOPO_NUMA);
    const dtp_topo_obj package = object(topo, numa.parent);
    assert_int_equal(package.type, DTP_TOPO_PACKAGE);
    assert_int_equal(object(topo, package.parent).type, DTP_TOPO_MACHINE);
    dtp_topo_close(topo);
}

static void test_parents_come_first(void **state)
{
    dtp_topo *topo = facts_gpu_machine();

    (void)state;
    for (uint32_t i = 0; i < dtp_topo_n_objs(topo); i++)
        assert_true(object(topo, (int32_t)i).parent < (int32_t)i);
    dtp_topo_close(topo);
}

static void test_devices_know_their_numa_node_and_order(void **state)
{
    dtp_topo *topo = facts_gpu_machine();

    (void)state;
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_GPU), 3);
    const dtp_topo_obj gpu = nth(topo, DTP_TOPO_GPU, 2);
    assert_string_equal(gpu.name, "GPU2");
    assert_string_equal(gpu.pci, "0000:84:00.0");
    assert_string_equal(gpu.cpus, "4-7");
    assert_int_equal(gpu.numa, 1);
    assert_int_equal(gpu.mem_bytes, DTP_UNKNOWN);
    assert_null(gpu.model);
    dtp_topo_close(topo);
}

static void test_facts_about_one_device_are_merged(void **state)
{
    facts f = facts_begin();
    dtpi_topo_fact rdma = dtpi_topo_fact_of(DTP_TOPO_NIC);

    (void)state;
    facts_processors(&f, 1, 1, 1);
    facts_device(&f, DTP_TOPO_PCI, NULL, "0000:04:00.0", NULL, "0");
    facts_device(&f, DTP_TOPO_NIC, "eth0", "0000:04:00.0", NULL, NULL);
    rdma.obj.pci = "0000:04:00.0";
    rdma.obj.name = "mlx5_0";
    rdma.obj.port_mbps = 100000;
    facts_add(&f, &rdma, NULL);
    facts_device(&f, DTP_TOPO_PCI, NULL, "0000:04:00.0", NULL, NULL);
    dtp_topo *topo = facts_end(&f);
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_PCI), 0);
    const dtp_topo_obj nic = nth(topo, DTP_TOPO_NIC, 0);
    assert_string_equal(nic.name, "mlx5_0");
    assert_int_equal(nic.port_mbps, 100000);
    assert_string_equal(nic.cpus, "0");
    dtp_topo_close(topo);
}

static void test_memory_nodes_name_the_nearest_node_with_processors(void **state)
{
    facts f = facts_begin();
    dtpi_topo_fact hbm = dtpi_topo_fact_of(DTP_TOPO_NUMA);

    (void)state;
    facts_processors(&f, 2, 2, 1);
    facts_cpu(&f, DTP_TOPO_NUMA, 4, "2-3");      /* the same processors as node 1 */
    hbm.obj.os_index = 5;
    hbm.obj.numa = 1;
    facts_add(&f, &hbm, NULL);                  /* no processors */
    facts_device(&f, DTP_TOPO_NIC, "mlx5_0", NULL, NULL, NULL);
    dtpi_topo_fact gpu = dtpi_topo_fact_of(DTP_TOPO_GPU);
    gpu.obj.pci = "0000:01:00.0";
    gpu.obj.numa = 5;
    facts_add(&f, &gpu, NULL);
    dtp_topo *topo = facts_end(&f);
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_NUMA), 4);
    assert_int_equal(nth(topo, DTP_TOPO_NUMA, 2).numa, 1);
    assert_int_equal(nth(topo, DTP_TOPO_NUMA, 3).numa, 1);
    assert_int_equal(nth(topo, DTP_TOPO_CORE, 3).numa, 1);
    assert_int_equal(nth(topo, DTP_TOPO_GPU, 0).numa, 1);
    assert_string_equal(nth(topo, DTP_TOPO_GPU, 0).cpus, "2-3");
    assert_int_equal(nth(topo, DTP_TOPO_NIC, 0).numa, DTP_UNKNOWN);
    assert_null(nth(topo, DTP_TOPO_NIC, 0).cpus);
    dtp_topo_close(topo);
}

static void test_the_only_numa_node_is_the_nearest(void **state)
{
    facts f = facts_begin();

    (void)state;
    facts_processors(&f, 1, 2, 1);
    facts_device(&f, DTP_TOPO_NIC, "mlx5_0", "0000:01:00.0", NULL, NULL);
    dtp_topo *topo = facts_end(&f);
    assert_int_equal(nth(topo, DTP_TOPO_NIC, 0).numa, 0);
    assert_string_equal(nth(topo, DTP_TOPO_NIC, 0).cpus, "0-1");
    dtp_topo_close(topo);
}

static void test_overlapping_sets_drop_nothing(void **state)
{
    facts f = facts_begin();

    (void)state;
    facts_processors(&f, 2, 4, 1);
    facts_cpu(&f, DTP_TOPO_CACHE, DTP_UNKNOWN, "2-5");
    facts_cpu(&f, DTP_TOPO_PACKAGE, 7, "1-4");
    dtp_topo *topo = facts_end(&f);
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_PACKAGE), 3);
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_CACHE), 1);
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_CORE), 8);
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_PU), 8);
    dtp_topo_close(topo);
}

static void test_loops_of_bridges_end_at_the_machine(void **state)
{
    facts f = facts_begin();

    (void)state;
    facts_processors(&f, 1, 1, 1);
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:01:00.0", "0000:02:00.0", NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:02:00.0", "0000:01:00.0", NULL);
    facts_device(&f, DTP_TOPO_GPU, NULL, "0000:03:00.0", "0000:02:00.0", NULL);
    facts_device(&f, DTP_TOPO_NIC, "self", "0000:04:00.0", "0000:04:00.0", NULL);
    dtp_topo *topo = facts_end(&f);
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_GPU), 1);
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_NIC), 1);
    dtp_topo_close(topo);
}

static void test_bridges_without_devices_are_left_out(void **state)
{
    facts f = facts_begin();

    (void)state;
    facts_processors(&f, 1, 1, 1);
    facts_device(&f, DTP_TOPO_BRIDGE, "pci0000:00", NULL, NULL, NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:00:01.0", "pci0000:00", NULL);
    dtp_topo *topo = facts_end(&f);
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_BRIDGE), 0);
    dtp_topo_close(topo);
}

static void test_no_processors_are_refused(void **state)
{
    facts f = facts_begin();

    (void)state;
    facts_cpu(&f, DTP_TOPO_NUMA, 0, "0-3");
    assert_status(DTP_ERR_FORMAT, dtpi_topo_build_end(f.build, ERR));
    assert_text("no processors");
    dtpi_topo_build_free(f.build);
    dtp_topo_close(f.topo);
}

static void test_a_processor_twice_is_refused(void **state)
{
    facts f = facts_begin();

    (void)state;
    facts_cpu(&f, DTP_TOPO_PU, 3, NULL);
    facts_cpu(&f, DTP_TOPO_PU, 3, NULL);
    assert_status(DTP_ERR_FORMAT, dtpi_topo_build_end(f.build, ERR));
    assert_text("processor 3 is listed twice");
    dtpi_topo_build_free(f.build);
    dtp_topo_close(f.topo);
}

static void test_names_are_made_printable(void **state)
{
    facts f = facts_begin();

    (void)state;
    facts_processors(&f, 1, 1, 1);
    facts_device(&f, DTP_TOPO_NIC, "a\x1b[31m\xff" "b", NULL, NULL, NULL);
    dtp_topo *topo = facts_end(&f);
    assert_string_equal(nth(topo, DTP_TOPO_NIC, 0).name, "a?[31m?b");
    dtp_topo_close(topo);
}

static void test_objects_out_of_range_are_refused(void **state)
{
    dtp_topo *topo = facts_gpu_machine();
    dtp_topo_obj obj = { .size = sizeof(obj) };

    (void)state;
    assert_status(DTP_ERR_RANGE, dtp_topo_get(topo, dtp_topo_n_objs(topo), &obj, ERR));
    assert_status(DTP_ERR_RANGE, dtp_topo_nth(topo, DTP_TOPO_GPU, 3, &obj, ERR));
    assert_status(DTP_ERR_RANGE, dtp_topo_nth(topo, (dtp_topo_type)99, 0, &obj, ERR));
    dtp_topo_close(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processors_nest_by_their_sets),
        cmocka_unit_test(test_parents_come_first),
        cmocka_unit_test(test_devices_know_their_numa_node_and_order),
        cmocka_unit_test(test_facts_about_one_device_are_merged),
        cmocka_unit_test(test_memory_nodes_name_the_nearest_node_with_processors),
        cmocka_unit_test(test_the_only_numa_node_is_the_nearest),
        cmocka_unit_test(test_overlapping_sets_drop_nothing),
        cmocka_unit_test(test_loops_of_bridges_end_at_the_machine),
        cmocka_unit_test(test_bridges_without_devices_are_left_out),
        cmocka_unit_test(test_no_processors_are_refused),
        cmocka_unit_test(test_a_processor_twice_is_refused),
        cmocka_unit_test(test_names_are_made_printable),
        cmocka_unit_test(test_objects_out_of_range_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
