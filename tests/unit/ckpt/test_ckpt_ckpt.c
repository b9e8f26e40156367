/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls, on real files: what they give, what they refuse, and every failing allocation. */
#include "failalloc.h"
#include "folder.h"

#include <fcntl.h>
#include <stdbool.h>

#include <dtp/ckpt.h>

static float w_data[6] = { 1, 2, 3, 4, 5, 6 };
static int8_t s_data = -7;
static const int64_t w_shape[] = { 2, 3 };

static void two_tensors(dtp_ckpt_tensor t[2])
{
    t[0] = (dtp_ckpt_tensor){ sizeof(*t), "w", DTP_F32, 2, w_shape, NULL, NULL, w_data };
    t[1] = (dtp_ckpt_tensor){ sizeof(*t), "s", DTP_I8, 0, NULL, NULL, NULL, &s_data };
}

static dtp_ctx *open_ctx(void)
{
    dtp_ctx *ctx = NULL;

    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    return ctx;
}

static void test_what_is_saved_is_told_and_read(void **state)
{
    dtp_ckpt_info info = { .size = sizeof(info) };
    dtp_ckpt_tensor t[2], got = { .size = sizeof(got) };
    dtp_ckpt_save_opts opts = { .size = sizeof(opts), .meta_json = "{\"epoch\":3}" };
    dtp_ctx *ctx = open_ctx();
    uint64_t steps[4], step = 0;
    dtp_ckpt *ckpt = NULL;
    float back[6] = { 0 };
    uint32_t i = 9;
    size_t n = 0;

    (void)state;
    two_tensors(t);
    assert_ok(dtp_ckpt_save(ctx, NULL, base, 5, t, 2, &opts, ERR));
    assert_ok(dtp_ckpt_save(ctx, NULL, base, 6, t, 2, NULL, ERR));
    assert_ok(dtp_ckpt_latest(ctx, base, &step, ERR));
    assert_int_equal(step, 6);
    assert_ok(dtp_ckpt_list(ctx, base, NULL, 0, &n, ERR));     /* how many? */
    assert_int_equal(n, 2);
    n = 0;
    assert_ok(dtp_ckpt_list(ctx, base, steps, 1, &n, ERR));
    assert_int_equal(n, 2);
    assert_int_equal(steps[0], 5);
    assert_ok(dtp_ckpt_open(ctx, base, 5, &ckpt, ERR));
    assert_ok(dtp_ckpt_get_info(ckpt, &info, ERR));
    assert_int_equal(info.step, 5);
    assert_int_equal(info.world_size, 1);
    assert_int_equal(info.n_tensors, 2);
    assert_int_equal(info.n_shards, 1);
    assert_int_equal(info.bytes, 25);
    assert_int_equal(info.stored_bytes, 4096 + 25);
    assert_string_equal(info.meta_json, "{\"epoch\":3}");
    assert_ok(dtp_ckpt_find(ckpt, "w", &i, ERR));
    assert_int_equal(i, 1);
    assert_ok(dtp_ckpt_get_tensor(ckpt, i, &got, ERR));
    assert_string_equal(got.name, "w");
    assert_int_equal(got.dtype, DTP_F32);
    assert_int_equal(got.shape[1], 3);
    assert_status(DTP_ERR_RANGE, dtp_ckpt_get_tensor(ckpt, 2, &got, ERR));
    assert_status(DTP_ERR_NOT_FOUND, dtp_ckpt_find(ckpt, "v", &i, ERR));
    assert_string_equal(check_err.noun, "ckpt");
    got = (dtp_ckpt_tensor){ sizeof(got), "w", DTP_F32, 2, NULL, NULL, NULL, back };
    assert_ok(dtp_ckpt_read(ckpt, &got, 1, ERR));
    assert_memory_equal(back, w_data, sizeof(back));
    got.n_dims = 1;
    assert_status(DTP_ERR_INVAL, dtp_ckpt_read(ckpt, &got, 1, ERR));
    assert_ok(dtp_ckpt_verify(ckpt, NULL, NULL, ERR));
    dtp_ckpt_close(ckpt);
    dtp_ckpt_close(NULL);
    dtp_ctx_close(ctx);
}

static void test_what_is_not_there_is_not_found(void **state)
{
    dtp_ctx *ctx = open_ctx();
    dtp_ckpt *ckpt = NULL;
    uint64_t step;
    size_t n;

    (void)state;
    assert_status(DTP_ERR_NOT_FOUND, dtp_ckpt_open(ctx, base, 77, &ckpt, ERR));
    assert_text("step-00000000000000000077/manifest.json");
    assert_status(DTP_ERR_NOT_FOUND, dtp_ckpt_latest(ctx, "/nonexistent/dir", &step, ERR));
    /* No reason to begin anew: the first save would find that it is no folder. */
    assert_status(DTP_ERR_INVAL, dtp_ckpt_latest(ctx, "/dev/null", &step, ERR));
    assert_text("/dev/null: Not a directory");
    assert_status(DTP_ERR_NOT_FOUND, dtp_ckpt_list(ctx, "/nonexistent/dir", NULL, 0, &n, ERR));
    assert_status(DTP_ERR_INVAL, dtp_ckpt_save(ctx, NULL, "", 1, NULL, 0, NULL, ERR));
    assert_status(DTP_ERR_INVAL, dtp_ckpt_save(ctx, NULL, base, 1, NULL, 3, NULL, ERR));
    assert_text("3 tensors are announced, none is given");
    assert_status(DTP_ERR_INVAL, dtp_ckpt_latest(ctx, NULL, &step, ERR));
    assert_status(DTP_ERR_INVAL, dtp_ckpt_list(ctx, NULL, NULL, 0, &n, ERR));
    assert_status(DTP_ERR_INVAL, dtp_ckpt_open(ctx, NULL, 1, &ckpt, ERR));
    assert_string_equal(check_err.noun, "ckpt");
    assert_null(ckpt);
    dtp_ctx_close(ctx);
}

static void test_longer_tensor_structs_of_newer_callers_are_read(void **state)
{
    struct newer {
        dtp_ckpt_tensor t;
        uint64_t more;
    } t[2] = { 0 };
    dtp_ctx *ctx = open_ctx();

    (void)state;
    t[0].t = (dtp_ckpt_tensor){ sizeof(t[0]), "w", DTP_F32, 2, w_shape, NULL, NULL, w_data };
    t[1].t = (dtp_ckpt_tensor){ sizeof(t[0]), "s", DTP_I8, 0, NULL, NULL, NULL, &s_data };
    assert_ok(dtp_ckpt_save(ctx, NULL, base, 20, &t[0].t, 2, NULL, ERR));
    t[1].more = 1;
    assert_status(DTP_ERR_VERSION, dtp_ckpt_save(ctx, NULL, base, 21, &t[0].t, 2, NULL, ERR));
    t[1].t.size = 0;
    assert_status(DTP_ERR_INVAL, dtp_ckpt_save(ctx, NULL, base, 21, &t[0].t, 2, NULL, ERR));
    dtp_ctx_close(ctx);
}

static void test_folder_that_is_a_file_is_named(void **state)
{
    dtp_ctx *ctx = open_ctx();
    dtp_ckpt_tensor t[2];
    char path[128];

    (void)state;
    two_tensors(t);
    snprintf(path, sizeof(path), "%s/file", base);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_true(dtp_ckpt_save(ctx, NULL, path, 1, t, 2, NULL, ERR) < 0);
    assert_text(path);
    dtp_ctx_close(ctx);
}

static void test_every_failing_allocation_is_survived(void **state)
{
    uint64_t step_no = 1000;

    (void)state;
    FOR_EACH_FAILURE(f) {
        dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
        dtp_ckpt_save_opts save = { .size = sizeof(save), .codec = DTP_CODEC_ZSTD, .no_sync = 1 };
        dtp_ckpt_tensor t[2];
        dtp_ckpt *ckpt = NULL;
        dtp_ctx *ctx = NULL;
        uint64_t step = 0;
        float back[6];
        two_tensors(t);
        o.allocator = failalloc_of(&f);
        if (!failalloc_ok(&f, dtp_ctx_open(&o, &ctx, ERR)))
            continue;
        step_no++;
        if (failalloc_ok(&f, dtp_ckpt_save(ctx, NULL, base, step_no, t, 2, &save, ERR)) &&
            failalloc_ok(&f, dtp_ckpt_latest(ctx, base, &step, ERR)) &&
            failalloc_ok(&f, dtp_ckpt_open(ctx, base, step, &ckpt, ERR))) {
            assert_int_equal(step, step_no);
            t[0].data = back;
            if (failalloc_ok(&f, dtp_ckpt_read(ckpt, t, 1, ERR)) &&
                failalloc_ok(&f, dtp_ckpt_verify(ckpt, NULL, NULL, ERR)))
                assert_memory_equal(back, w_data, sizeof(back));
        }
        dtp_ckpt_close(ckpt);
        dtp_ctx_close(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_saved_is_told_and_read),
        cmocka_unit_test(test_what_is_not_there_is_not_found),
        cmocka_unit_test(test_longer_tensor_structs_of_newer_callers_are_read),
        cmocka_unit_test(test_folder_that_is_a_file_is_named),
        cmocka_unit_test(test_every_failing_allocation_is_survived),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
