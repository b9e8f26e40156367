/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <limits.h>

#include "gpu/gpu.h"
#include "gpu/nccl_api.h"

static dtp_ctx *open_in(const char *sub)
{
    const char *build = getenv("DTP_TEST_BUILD");
    char dir[PATH_MAX];
    dtp_ctx *ctx = NULL;

    snprintf(dir, sizeof(dir), "%s/tests/unit/gpu%s", build ? build : ".", sub);
    setenv("FAKE_NVML", "plain", 1);
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtpi_gpu_set_dir(ctx, dir, ERR));
    return ctx;
}

static void test_nccl_is_called_through_its_table(void **state)
{
    const float send[3] = { 1, 2, 3 };
    dtp_ctx *ctx = open_in("");
    const dtpi_nccl *nccl = NULL;
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    float recv[3];

    assert_ok(dtpi_gpu_nccl(ctx, &nccl, ERR));
    assert_int_equal(nccl->ncclGetUniqueId(&id), ncclSuccess);
    assert_int_equal(nccl->ncclCommInitRank(&comm, 4, id, 4), ncclInvalidArgument);
    assert_string_equal(nccl->ncclGetErrorString(ncclInvalidArgument), "invalid argument");
    assert_int_equal(nccl->ncclCommInitRank(&comm, 4, id, 3), ncclSuccess);
    assert_int_equal(nccl->ncclAllReduce(send, recv, 3, ncclFloat32, ncclSum, comm, NULL),
                     ncclSuccess);
    assert_true(recv[0] == 4 && recv[1] == 8 && recv[2] == 12);
    assert_int_equal(nccl->ncclCommDestroy(comm), ncclSuccess);
    /* An optional function that this library lacks. */
    assert_null(nccl->ncclCommInitRankScalable);
    dtp_ctx_close(ctx);
}

static void test_absent_library_is_named(void **state)
{
    const dtpi_cuda *cuda = NULL;
    dtp_ctx *ctx = open_in("");

    assert_status(DTP_ERR_UNSUPPORTED, dtpi_gpu_cuda(ctx, &cuda, ERR));
    assert_text("libcuda.so.1 is not on this machine");
    assert_null(cuda);
    dtp_ctx_close(ctx);
}

static void test_probe_tells_versions(void **state)
{
    dtp_ctx *ctx = open_in("");
    dtpi_gpu_versions v;

    assert_ok(dtpi_gpu_probe(ctx, &v, ERR));
    assert_string_equal(v.driver, "580.65.06");
    assert_string_equal(v.nvml, "13.580.65.06");
    assert_string_equal(v.nccl, "2.32.3");
    assert_string_equal(v.cuda, "");
    assert_string_equal(v.cudart, "");
    dtp_ctx_close(ctx);
    ctx = open_in("/empty");
    assert_ok(dtpi_gpu_probe(ctx, &v, ERR));
    assert_string_equal(v.driver, "");
    assert_string_equal(v.nccl, "");
    dtp_ctx_close(ctx);
}

static void test_folder_cannot_change_after_use(void **state)
{
    dtp_ctx *ctx = open_in("");
    const dtpi_nccl *nccl = NULL;

    assert_ok(dtpi_gpu_set_dir(ctx, "/elsewhere", ERR));
    assert_status(DTP_ERR_UNSUPPORTED, dtpi_gpu_nccl(ctx, &nccl, ERR));
    assert_status(DTP_ERR_INVAL, dtpi_gpu_set_dir(ctx, "/tmp", ERR));
    dtp_ctx_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl_is_called_through_its_table),
        cmocka_unit_test(test_absent_library_is_named),
        cmocka_unit_test(test_probe_tells_versions),
        cmocka_unit_test(test_folder_cannot_change_after_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
