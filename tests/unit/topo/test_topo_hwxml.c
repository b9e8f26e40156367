/* SPDX-License-Identifier: Apache-2.0 */
#include "facts.h"
#include "tree.h"

#include "base/buf.h"
#include "failalloc.h"

#include <dtp/placement.h>

static dtp_ctx *ctx;

/* Loads `bytes` bytes as an XML file. */
static dtp_status load_bytes(const void *data, size_t bytes, dtp_topo **topo_out)
{
    char path[] = "/tmp/dtp-topo-XXXXXX";
    const dtp_topo_opts opts = { .size = sizeof(opts), .hwloc_xml = path };
    const int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
    close(fd);
    const dtp_status st = dtp_topo_load(ctx, &opts, topo_out, ERR);
    unlink(path);
    return st;
}

static dtpi_buf good_file(void)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    char path[1024], chunk[4096];
    size_t n;

    data_path(path, sizeof(path), "two-nodes.xml");
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        assert_true(dtpi_buf_append(&b, chunk, n));
    fclose(f);
    return b;
}

static void test_a_recorded_machine_has_devices_and_views(void **state)
{
    DTPI_AUTO_BUF dtpi_buf good = good_file();
    dtp_topo *topo = NULL;

    (void)state;
    assert_ok(load_bytes(good.data, good.len, &topo));
    assert_int_equal(dtp_topo_count(topo, DTP_TOPO_CORE), 4);
    assert_string_equal(dtp_topo_cpus(topo, DTP_CPUS_ALLOWED), "0-2");
    assert_null(dtp_topo_cpus(topo, DTP_CPUS_BOUND));
    const dtp_topo_obj gpu = nth(topo, DTP_TOPO_GPU, 0), nic = nth(topo, DTP_TOPO_NIC, 0);
    assert_string_equal(gpu.model, "Example GPU");
    assert_int_equal(gpu.link_mbps, 504123);
    assert_int_equal(gpu.numa, 0);
    assert_string_equal(nic.name, "mlx5_0");
    assert_string_equal(nic.netdev, "ib0");
    assert_int_equal(nic.port_state, 4);
    assert_int_equal(nic.port_mbps, DTP_UNKNOWN);
    assert_string_equal(nic.gid, "fe80:0000:0000:0000:0011:7500:0077:cfc8");
    dtp_topo_close(topo);
}

static void test_other_documents_are_refused(void **state)
{
    static const char *const bad[] = {
        "", "x", "<topology", "<topology>", "<topology version=\"2.0\">", "<topology/>",
        "<topology version=\"2.0\"></topology>", "<topologyx version=\"2.0\"/>",
        "{ \"topology\": 1 }", "<?xml version=\"1.0\"?><system version=\"1\"></system>",
        "<topology version=\"2.0\"><object type=\"Machine\"/></topology>",
        "<topology version=\"2.0\"><object type=\"PU\" os_index=\"4000000000\"/></topology>",
    };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++) {
        dtp_topo *topo = NULL;
        assert_status(DTP_ERR_FORMAT, load_bytes(bad[i], strlen(bad[i]), &topo));
        assert_text("/tmp/dtp-topo-");
    }
}

static void test_a_newer_format_is_named(void **state)
{
    static const char text[] = "<topology version=\"4.0\"><object/></topology>";
    dtp_topo *topo = NULL;

    (void)state;
    assert_status(DTP_ERR_FORMAT, load_bytes(text, strlen(text), &topo));
    assert_text("version 4.0 of hwloc's XML, 1 to 3 can be read");
}

static void test_files_cut_short_are_refused(void **state)
{
    DTPI_AUTO_BUF dtpi_buf good = good_file();

    (void)state;
    for (size_t cut = 0; cut < good.len - 2; cut += 97) {
        dtp_topo *topo = NULL;
        assert_status(DTP_ERR_FORMAT, load_bytes(good.data, cut, &topo));
    }
}

static void test_changed_bytes_never_crash(void **state)
{
    DTPI_AUTO_BUF dtpi_buf good = good_file();
    uint64_t seed = check_seed();

    (void)state;
    for (int round = 0; round < 200; round++) {
        dtp_topo *topo = NULL;
        const size_t at = check_random(&seed) % good.len;
        const uint8_t was = good.data[at];
        good.data[at] = (uint8_t)check_random(&seed);
        const dtp_status st = load_bytes(good.data, good.len, &topo);
        assert_true(st == DTP_OK || st == DTP_ERR_FORMAT || st == DTP_ERR_LIMIT);
        good.data[at] = was;
        dtp_topo_close(topo);
    }
}

static void test_a_bad_line_is_named(void **state)
{
    static const char text[] = "<topology version=\"2.0\">\n<object type=\"Machine\">\n"
                               "<object type=\"PCIDev\"/></object></topology>";
    dtp_topo *topo = NULL;

    (void)state;
    assert_status(DTP_ERR_FORMAT, load_bytes(text, strlen(text), &topo));
    assert_text(":3: a PCI device without an address");
}

static void put_gpu(dtpi_buf *b, uint32_t i)
{
    dtpi_buf_printf(b, "<object type=\"PCIDev\" gp_index=\"%u\" pci_busid=\"0000:%02x:00.0\" "
                    "pci_type=\"0302 [10de:2330]\"/>", i, i);
}

/* A matrix names its ends before the devices in it make the list of devices move. */
static void test_devices_inside_a_matrix_leave_its_ends_alone(void **state)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    dtp_topo_path path = DTP_PATH_UNKNOWN;
    dtp_topo *topo = NULL;
    uint32_t n_links = 0;

    (void)state;
    dtpi_buf_printf(&b, "<topology version=\"2.0\"><object type=\"Machine\">"
                    "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\"/>");
    for (uint32_t i = 1; i <= 64; i++)
        put_gpu(&b, i);
    dtpi_buf_printf(&b, "</object><distances2 name=\"NVLinkBandwidth\" nbobjs=\"2\">"
                    "<indexes>PCIDev:1 PCIDev:2</indexes>");
    for (uint32_t i = 65; i <= 70; i++)
        put_gpu(&b, i);
    dtpi_buf_printf(&b, "<u64values>0 100000 100000 0</u64values></distances2></topology>");
    assert_false(b.failed);
    assert_ok(load_bytes(b.data, b.len, &topo));
    assert_ok(dtp_topo_path_between(topo, (uint32_t)nth(topo, DTP_TOPO_GPU, 0).index,
                                    (uint32_t)nth(topo, DTP_TOPO_GPU, 1).index, &path, &n_links, ERR));
    assert_int_equal(path, DTP_PATH_NVLINK);
    assert_int_equal(n_links, 4);
    dtp_topo_close(topo);
}

static void test_every_lack_of_memory_is_told(void **state)
{
    char path[1024];
    const dtp_topo_opts opts = { .size = sizeof(opts), .hwloc_xml = path };
    const dtp_placement_req req = { .size = sizeof(req), .n_ranks = 1, .gpus_per_rank = 1 };

    (void)state;
    data_path(path, sizeof(path), "two-nodes.xml");
    FOR_EACH_FAILURE(f) {
        dtp_ctx_opts o = { .size = sizeof(o), .allocator = failalloc_of(&f) };
        dtp_ctx *own = NULL;
        dtp_topo *topo = NULL;
        dtp_placement *p = NULL;
        if (!failalloc_ok(&f, dtp_ctx_open(&o, &own, ERR)))
            continue;
        if (failalloc_ok(&f, dtp_topo_load(own, &opts, &topo, ERR)) &&
            failalloc_ok(&f, dtp_placement_solve(topo, &req, &p, ERR)))
            dtp_placement_free(p);
        dtp_topo_close(topo);
        dtp_ctx_close(own);
    }
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
        cmocka_unit_test(test_a_recorded_machine_has_devices_and_views),
        cmocka_unit_test(test_other_documents_are_refused),
        cmocka_unit_test(test_a_newer_format_is_named),
        cmocka_unit_test(test_files_cut_short_are_refused),
        cmocka_unit_test(test_changed_bytes_never_crash),
        cmocka_unit_test(test_a_bad_line_is_named),
        cmocka_unit_test(test_devices_inside_a_matrix_leave_its_ends_alone),
        cmocka_unit_test(test_every_lack_of_memory_is_told),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
