/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <limits.h>

#include <dtp/topo.h>

#include "gpu/gpu.h"

static void test_gpus_of_nvml_join_the_live_machine(void **state)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    dtp_topo_obj a = { .size = sizeof(a) }, b = { .size = sizeof(b) };
    const char *build = getenv("DTP_TEST_BUILD");
    dtp_topo_path path = DTP_PATH_UNKNOWN;
    dtp_topo *topo = NULL;
    dtp_ctx *ctx = NULL;
    uint32_t n_links = 0;
    char dir[PATH_MAX];

    /* The stand-in for NVML: two GPUs and four links. */
    snprintf(dir, sizeof(dir), "%s/tests/unit/gpu", build ? build : ".");
    setenv("FAKE_NVML", "plain", 1);
    o.module_dir = check_module_dir();
    assert_ok(dtp_ctx_open(&o, &ctx, ERR));
    assert_ok(dtpi_gpu_set_dir(ctx, dir, ERR));
    assert_ok(dtp_topo_load(ctx, NULL, &topo, ERR));
    if (dtp_topo_count(topo, DTP_TOPO_GPU) != 2) {
        print_message("skipped: this machine has GPUs of its own\n");
        dtp_topo_close(topo);
        dtp_ctx_close(ctx);
        skip();
    }
    assert_ok(dtp_topo_nth(topo, DTP_TOPO_GPU, 0, &a, ERR));
    assert_ok(dtp_topo_nth(topo, DTP_TOPO_GPU, 1, &b, ERR));
    assert_string_equal(a.pci, "0000:3b:00.0");
    assert_string_equal(a.model, "NVIDIA Fake 0");
    assert_true(a.mem_bytes == 80ll << 30);
    assert_true(b.mem_bytes == DTP_UNKNOWN);
    assert_ok(
        dtp_topo_path_between(topo, (uint32_t)a.index, (uint32_t)b.index, &path, &n_links, ERR));
    assert_int_equal(path, DTP_PATH_NVLINK);
    assert_int_equal(n_links, 4);
    dtp_topo_close(topo);
    dtp_ctx_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus_of_nvml_join_the_live_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
