/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_smoke.c - every noun once, through the public interface alone, in one process.
 *
 * Quick enough for valgrind, which runs it in `./dev test`.
 */
#include "check.h"

#include <dtp/dtp.h>

#include <unistd.h>

static dtp_ctx *ctx;

static int open_ctx(void **state)
{
    dtp_ctx_opts opts = DTP_CTX_OPTS_INIT;

    opts.module_dir = check_module_dir();
    return dtp_ctx_open(&opts, &ctx, NULL);
}

static int close_ctx(void **state)
{
    dtp_ctx_close(ctx);
    return 0;
}

static void test_machine_is_loaded_rendered_and_placed_on(void **state)
{
    dtp_placement_req req = DTP_PLACEMENT_REQ_INIT;
    dtp_placement_rank rank = { sizeof(rank) };
    dtp_placement *placement = NULL;
    dtp_topo *topo = NULL;
    char *text = NULL;

    assert_ok(dtp_topo_load(ctx, NULL, &topo, ERR));
    assert_true(dtp_topo_count(topo, DTP_TOPO_PU) > 0);
    assert_ok(dtp_topo_render(topo, DTP_TOPO_TEXT, &text, ERR));
    assert_true(text[0] != '\0');
    dtp_text_free(text);
    req.n_ranks = 1;
    assert_ok(dtp_placement_solve(topo, &req, &placement, ERR));
    assert_ok(dtp_placement_get(placement, 0, &rank, ERR));
    assert_true(rank.cpus[0] != '\0');
    dtp_placement_free(placement);
    dtp_topo_close(topo);
}

static void test_missing_topology_file_is_named(void **state)
{
    dtp_topo_opts opts = DTP_TOPO_OPTS_INIT;
    dtp_topo *topo = NULL;

    opts.hwloc_xml = "/nowhere/machine.xml";
    assert_status(DTP_ERR_NOT_FOUND, dtp_topo_load(ctx, &opts, &topo, ERR));
    assert_text("/nowhere/machine.xml");
}

static void test_group_of_one_reduces(void **state)
{
    dtp_group_opts opts = DTP_GROUP_OPTS_INIT;
    dtp_group *group = NULL;
    float x[3] = { 1, 2, 3 };

    assert_ok(dtp_group_join(ctx, &opts, &group, ERR));
    assert_int_equal(dtp_group_size(group), 1);
    assert_ok(dtp_group_barrier(group, 0, ERR));
    assert_ok(dtp_allreduce(group, x, x, 3, DTP_F32, DTP_SUM, 0, ERR));
    assert_true(x[2] == 3);
    dtp_group_close(group);
}

/* What read gives back is what save got. */
static void test_checkpoint_is_saved_found_read_and_verified(void **state)
{
    char dir[] = "/tmp/dtp-smoke-XXXXXX", command[64];
    float saved[6] = { 1, 2, 3, 4, 5, 6 }, read[6] = { 0 };
    const int64_t shape[] = { 2, 3 };
    dtp_ckpt_tensor tensor = { sizeof(tensor), "w", DTP_F32, 2, shape, NULL, NULL, saved };
    dtp_ckpt *ckpt = NULL;
    uint64_t step = 0;

    assert_non_null(mkdtemp(dir));
    assert_status(DTP_ERR_NOT_FOUND, dtp_ckpt_latest(ctx, dir, &step, ERR));
    assert_ok(dtp_ckpt_save(ctx, NULL, dir, 7, &tensor, 1, NULL, ERR));
    assert_ok(dtp_ckpt_latest(ctx, dir, &step, ERR));
    assert_int_equal(step, 7);
    assert_ok(dtp_ckpt_open(ctx, dir, step, &ckpt, ERR));
    tensor.data = read;
    assert_ok(dtp_ckpt_read(ckpt, &tensor, 1, ERR));
    assert_memory_equal(read, saved, sizeof(saved));
    assert_ok(dtp_ckpt_verify(ckpt, NULL, NULL, ERR));
    dtp_ckpt_close(ckpt);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machine_is_loaded_rendered_and_placed_on),
        cmocka_unit_test(test_missing_topology_file_is_named),
        cmocka_unit_test(test_group_of_one_reduces),
        cmocka_unit_test(test_checkpoint_is_saved_found_read_and_verified),
    };

    return cmocka_run_group_tests(tests, open_ctx, close_ctx);
}
