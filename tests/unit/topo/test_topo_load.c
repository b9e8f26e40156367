/* SPDX-License-Identifier: Apache-2.0 */
#include "facts.h"
#include "tree.h"

#include "base/buf.h"

static dtp_ctx *ctx;

static dtp_topo *load_tree(char *root)
{
    const dtp_topo_opts opts = { .size = sizeof(opts), .fsroot = root };
    dtp_topo *topo = NULL;

    tree_unpack(root, "gpu-node.tree");
    assert_ok(dtp_topo_load(ctx, &opts, &topo, ERR));
    return topo;
}

static void read_file(const char *name, dtpi_buf *out)
{
    char path[1024], chunk[4096];
    size_t n;

    data_path(path, sizeof(path), name);
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("cannot open %s", path);
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        assert_true(dtpi_buf_append(out, chunk, n));
    fclose(f);
}

/* The rendering equals a golden file; DTP_TEST_WRITE=1 writes it anew. */
static void compare(const dtp_topo *topo, dtp_topo_format format, const char *name)
{
    DTPI_AUTO_BUF dtpi_buf want = dtpi_buf_init(&dtpi_malloc_allocator);
    char path[1024], *text = NULL;

    assert_ok(dtp_topo_render(topo, format, &text, ERR));
    if (getenv("DTP_TEST_WRITE")) {
        data_path(path, sizeof(path), name);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(text, f);
        fclose(f);
    }
    read_file(name, &want);
    assert_string_equal(text, dtpi_buf_text(&want));
    dtp_text_free(text);
}

static void test_a_recorded_tree_renders_as_its_golden_files(void **state)
{
    char root[] = "/tmp/dtp-topo-XXXXXX";
    dtp_topo *topo = load_tree(root);

    (void)state;
    compare(topo, DTP_TOPO_TEXT, "gpu-node.txt");
    compare(topo, DTP_TOPO_MATRIX, "gpu-node.matrix");
    compare(topo, DTP_TOPO_JSON, "gpu-node.json");
    dtp_topo_close(topo);
    tree_remove(root);
}

static void test_a_recorded_tree_knows_its_views(void **state)
{
    char root[] = "/tmp/dtp-topo-XXXXXX";
    dtp_topo *topo = load_tree(root);

    (void)state;
    assert_string_equal(dtp_topo_cpus(topo, DTP_CPUS_MACHINE), "0-6");
    assert_string_equal(dtp_topo_cpus(topo, DTP_CPUS_ALLOWED), "0-2,4-6");
    assert_null(dtp_topo_cpus(topo, DTP_CPUS_BOUND));
    dtp_topo_close(topo);
    tree_remove(root);
}

static void test_ports_gids_and_links_are_read(void **state)
{
    char root[] = "/tmp/dtp-topo-XXXXXX";
    dtp_topo *topo = load_tree(root);

    (void)state;
    const dtp_topo_obj ib = nth(topo, DTP_TOPO_NIC, 0), eth = nth(topo, DTP_TOPO_NIC, 1);
    assert_string_equal(ib.name, "mlx5_0");
    assert_int_equal(ib.port_mbps, 400000);
    assert_string_equal(ib.gid, "fe80:0000:0000:0000:0011:7500:0077:cfc8");
    assert_int_equal(ib.link_mbps, 252061);
    assert_int_equal(ib.link_max_mbps, 504123);
    /* The active port stands for the device; routed RoCE v2 before all else. */
    assert_string_equal(eth.name, "mlx5_1");
    assert_string_equal(eth.netdev, "ens1");
    assert_int_equal(eth.port_state, 4);
    assert_int_equal(eth.port_mbps, 100000);
    assert_string_equal(eth.gid, "0000:0000:0000:0000:0000:ffff:0a98:000c");
    assert_int_equal(eth.link_mbps, DTP_UNKNOWN);
    /* Its NUMA node has only memory: the nearest one with processors is told. */
    assert_int_equal(eth.numa, 1);
    assert_int_equal(nth(topo, DTP_TOPO_NVME, 0).link_mbps, DTP_UNKNOWN);
    assert_int_equal(nth(topo, DTP_TOPO_PCI, 0).numa, DTP_UNKNOWN);
    dtp_topo_close(topo);
    tree_remove(root);
}

static void test_without_devices_there_are_none(void **state)
{
    char root[] = "/tmp/dtp-topo-XXXXXX";
    const dtp_topo_opts opts = { .size = sizeof(opts), .fsroot = root, .no_devices = 1 };
    dtp_topo *topo = NULL;

    (void)state;
    tree_unpack(root, "gpu-node.tree");
    assert_ok(dtp_topo_load(ctx, &opts, &topo, ERR));
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_NIC), 0);
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_BRIDGE), 0);
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_PU), 7);
    dtp_topo_close(topo);
    tree_remove(root);
}

static void test_links_do_not_lead_out_of_a_recorded_machine(void **state)
{
    char root[] = "/tmp/dtp-topo-XXXXXX";
    const dtp_topo_opts opts = { .size = sizeof(opts), .fsroot = root };
    dtp_topo *topo = NULL;

    (void)state;
    assert_non_null(mkdtemp(root));
    tree_link(root, "sys", "/sys");
    assert_status(DTP_ERR_FORMAT, dtp_topo_load(ctx, &opts, &topo, ERR));
    tree_remove(root);
}

static void test_bad_files_are_named(void **state)
{
    const struct {
        dtp_topo_opts opts;
        dtp_status status;
        const char *text;
    } bad[] = {
        { { .hwloc_xml = "/nowhere/node.xml" }, DTP_ERR_NOT_FOUND, "/nowhere/node.xml" },
        { { .hwloc_xml = "/dev/null" }, DTP_ERR_FORMAT, "/dev/null is not a regular file" },
        { { .hwloc_xml = "/" }, DTP_ERR_FORMAT, "/ is not a regular file" },
        { { .fsroot = "/nowhere" }, DTP_ERR_NOT_FOUND, "cannot open /nowhere" },
        { { .fsroot = "/etc" }, DTP_ERR_FORMAT, "/etc holds no sys/devices/system/cpu" },
        { { .fsroot = "/", .hwloc_xml = "x" }, DTP_ERR_INVAL, "exclude" },
    };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++) {
        dtp_topo_opts opts = bad[i].opts;
        dtp_topo *topo = NULL;
        opts.size = sizeof(opts);
        assert_status(bad[i].status, dtp_topo_load(ctx, &opts, &topo, ERR));
        assert_text(bad[i].text);
        assert_string_equal(ERR->noun, "topo");
        assert_null(topo);
    }
}

static void test_this_machine_is_seen(void **state)
{
    dtp_topo *topo = NULL;
    dtpi_cpuset machine, allowed, bound;

    (void)state;
    assert_ok(dtp_topo_load(ctx, NULL, &topo, ERR));
    assert_true(dtp_topo_count(topo, DTP_TOPO_PU) > 0);
    assert_true(dtp_topo_count(topo, DTP_TOPO_NUMA) > 0);
    assert_ok(dtpi_cpuset_parse(dtp_topo_cpus(topo, DTP_CPUS_MACHINE), &machine, ERR));
    assert_ok(dtpi_cpuset_parse(dtp_topo_cpus(topo, DTP_CPUS_ALLOWED), &allowed, ERR));
    assert_ok(dtpi_cpuset_parse(dtp_topo_cpus(topo, DTP_CPUS_BOUND), &bound, ERR));
    assert_true(dtpi_cpuset_within(&allowed, &machine));
    assert_true(dtpi_cpuset_within(&bound, &machine));
    assert_true(dtpi_cpuset_count(&bound) > 0);
    dtp_topo_close(topo);
}

static int set_up(void **state)
{
    dtp_ctx_opts opts = { .size = sizeof(opts), .module_dir = check_module_dir() };

    (void)state;
    return dtp_ctx_open(&opts, &ctx, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    dtp_ctx_close(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_recorded_tree_renders_as_its_golden_files),
        cmocka_unit_test(test_a_recorded_tree_knows_its_views),
        cmocka_unit_test(test_ports_gids_and_links_are_read),
        cmocka_unit_test(test_without_devices_there_are_none),
        cmocka_unit_test(test_links_do_not_lead_out_of_a_recorded_machine),
        cmocka_unit_test(test_bad_files_are_named),
        cmocka_unit_test(test_this_machine_is_seen),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
