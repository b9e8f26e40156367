/* SPDX-License-Identifier: Apache-2.0 */
/* A save of several ranks and what it refuses; loads are compared with known bytes. */
#include "ranks.h"

#include <errno.h>

#include "ckpt/steps.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;
static const char dir[] = "ck";
static const char step1[] = "ck/step-00000000000000000001";

static dtpi_load *load(dtpi_files *files, uint64_t step)
{
    dtpi_load *l = NULL;

    assert_ok(dtpi_load_open(A, files, dir, step, &l, ERR));
    return l;
}

/* Two ranks: w cut by rows, b whole on both, s a scalar of rank 1. */
static const int64_t w_shape[] = { 6, 5 }, w_half[] = { 3, 5 }, w_low[] = { 3, 0 }, b_shape[] = { 7 };

static void give_two(rank_run *r)
{
    give(&r[0], "w", DTP_F32, 2, w_shape, NULL, w_half, 1);
    give(&r[1], "w", DTP_F32, 2, w_shape, w_low, w_half, 1);
    give(&r[0], "b", DTP_BF16, 1, b_shape, NULL, NULL, 2);
    give(&r[1], "b", DTP_BF16, 1, b_shape, NULL, NULL, 2);
    give(&r[1], "s", DTP_I64, 0, NULL, NULL, NULL, 3);
}

static void check_two(dtpi_files *files, uint64_t step)
{
    static const int64_t offset[] = { 2, 1 }, extent[] = { 3, 3 };
    DTPI_AUTO(load) dtpi_load *l = load(files, step);

    assert_ok(read_known(l, "w", DTP_F32, 2, w_shape, NULL, NULL, 1));
    assert_ok(read_known(l, "w", DTP_F32, 2, w_shape, offset, extent, 1));
    assert_ok(read_known(l, "b", DTP_BF16, 1, b_shape, NULL, NULL, 2));
    assert_ok(read_known(l, "s", DTP_I64, 0, NULL, NULL, NULL, 3));
    assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
}

static void test_two_ranks_save_and_any_box_is_read(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, dir);
    give_two(r);
    r[0].opts.meta_json = "{\"lr\": 0.1}";
    assert_ok(ranks_save(r, 2, 1));
    check_two(files, 1);
    DTPI_AUTO(load) dtpi_load *l = load(files, 1);
    assert_string_equal((char *)l->m.meta.data, "{\"lr\": 0.1}");
    assert_int_equal(l->m.world_size, 2);
    ranks_free(r, 2);
}

static void test_types_of_whole_bytes_and_empty_tensors_survive(void **state)
{
    static const int64_t shape[] = { 3, 4 }, empty[] = { 4, 0, 2 };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    char names[DTP_DTYPE_END][16];
    rank_run r[1];

    (void)state;
    for (int codec = 0; codec < 2; codec++) {
        const uint64_t step = (uint64_t)codec + 1;
        ranks_init(r, 1, files, dir);
        r[0].opts.codec = codec;
        for (int d = 1; d < DTP_F4; d++) {
            snprintf(names[d], sizeof(names[d]), "t%d", d);
            give(&r[0], names[d], d, 2, shape, NULL, NULL, (uint64_t)d);
        }
        give(&r[0], "empty", DTP_F16, 3, empty, NULL, NULL, 1);
        give(&r[0], "sc\"al\\ar \xc3\xa9\n", DTP_U8, 0, NULL, NULL, NULL, 9);
        assert_ok(ranks_save(r, 1, step));
        DTPI_AUTO(load) dtpi_load *l = load(files, step);
        for (int d = 1; d < DTP_F4; d++)
            assert_ok(read_known(l, names[d], d, 2, shape, NULL, NULL, (uint64_t)d));
        assert_ok(read_known(l, "empty", DTP_F16, 3, empty, NULL, NULL, 1));
        assert_ok(read_known(l, "sc\"al\\ar \xc3\xa9\n", DTP_U8, 0, NULL, NULL, NULL, 9));
        assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
        ranks_free(r, 1);
    }
}

static void test_no_tensors_make_an_empty_checkpoint(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    uint64_t step = 0;
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, dir);
    assert_ok(ranks_save(r, 2, 9));
    assert_ok(dtpi_steps_latest(files, &silent, dir, &step, ERR));
    assert_int_equal(step, 9);
}

static void test_zstd_chunks_are_read_at_random(void **state)
{
    static const int64_t shape[] = { 64, 1024 }, offset[] = { 13, 100 }, extent[] = { 20, 700 };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    rank_run r[1];

    (void)state;
    ranks_init(r, 1, files, dir);
    r[0].opts.codec = DTP_CODEC_ZSTD;
    r[0].opts.chunk_bytes = 4096;
    float *w = give(&r[0], "w", DTP_F32, 2, shape, NULL, NULL, 5)->data;
    for (size_t i = 0; i < 64 * 1024; i++)
        w[i] = (float)(i / 3);
    assert_ok(ranks_save(r, 1, 1));
    DTPI_AUTO(load) dtpi_load *l = load(files, 1);
    float got[20][700];
    const dtp_ckpt_tensor t = { sizeof(t), "w", DTP_F32, 2, shape, offset, extent, got };
    assert_ok(dtpi_load_read(l, &t, ERR));
    for (size_t y = 0; y < 20; y++)
        for (size_t x = 0; x < 700; x++)
            assert_true(got[y][x] == (float)(((13 + y) * 1024 + 100 + x) / 3));
    assert_true(dtpi_mf_file_at(&l->m, 0)->bytes < 64 * 1024 * 4 / 2);
    assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
    ranks_free(r, 1);
}

static void test_one_rank_gives_many_boxes_of_a_tensor(void **state)
{
    static const int64_t shape[] = { 10 }, at[][1] = { { 0 }, { 3 }, { 4 } }, len[][1] = { { 3 }, { 1 }, { 6 } };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    rank_run r[1];

    (void)state;
    ranks_init(r, 1, files, dir);
    for (int i = 0; i < 3; i++)
        give(&r[0], "flat", DTP_F32, 1, shape, at[i], len[i], 1);
    give(&r[0], "flat@3", DTP_F32, 1, shape, NULL, NULL, 2);    /* the name a made-up key would take */
    assert_ok(ranks_save(r, 1, 1));
    DTPI_AUTO(load) dtpi_load *l = load(files, 1);
    assert_ok(read_known(l, "flat", DTP_F32, 1, shape, NULL, NULL, 1));
    assert_ok(read_known(l, "flat@3", DTP_F32, 1, shape, NULL, NULL, 2));
    assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
    ranks_free(r, 1);
}

/* ---- refusals ---- */

static void test_complete_step_is_refused_and_stays(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, dir);
    give_two(r);
    assert_ok(ranks_save(r, 2, 1));
    assert_status(DTP_ERR_EXISTS, ranks_save(r, 2, 1));
    assert_text("step 1 is already complete");
    check_two(files, 1);
    ranks_free(r, 2);
}

static void test_damaged_step_is_replaced(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    char path[128];
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, dir);
    give_two(r);
    assert_ok(ranks_save(r, 2, 1));
    snprintf(path, sizeof(path), "%s/shard-00001-of-00002.0000000000001007.safetensors", step1);
    assert_ok(dtpi_files_mem_resize(files, path, 10, ERR));
    assert_status(DTP_ERR_TRUNCATED, dtpi_step_check(files, dir, 1, ERR));
    assert_text("shard-00001-of-00002");
    assert_ok(ranks_save(r, 2, 1));
    check_two(files, 1);
    ranks_free(r, 2);
}

static void test_box_outside_its_tensor_names_both(void **state)
{
    static const int64_t offset[] = { 4, 0 };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, dir);
    give_two(r);
    r[1].tensors[0].offset = offset;
    assert_status(DTP_ERR_RANGE, ranks_save(r, 2, 1));
    assert_text("rank 1: tensor w: box [4, 0] + [3, 5] lies outside its shape [6, 5]");
    assert_int_equal(check_err.rank, 1);
    ranks_free(r, 2);
}

static void test_a_long_name_leaves_room_for_the_cause(void **state)
{
    static const int64_t offset[] = { 4, 0 };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    char name[1024];
    rank_run r[1];

    (void)state;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    ranks_init(r, 1, files, dir);
    give(&r[0], name, DTP_F32, 2, w_shape, NULL, NULL, 1);
    r[0].tensors[0].offset = offset;
    assert_status(DTP_ERR_RANGE, ranks_save(r, 1, 1));
    assert_text("nnn: box [4, 0] + [6, 5] lies outside its shape [6, 5]");
    r[0].tensors[0].offset = NULL;
    assert_ok(ranks_save(r, 1, 1));
    DTPI_AUTO(load) dtpi_load *l = load(files, 1);
    assert_status(DTP_ERR_INVAL, read_known(l, name, DTP_I32, 2, w_shape, NULL, NULL, 1));
    assert_text("is stored as f32, wanted as i32");
    ranks_free(r, 1);
}

static void test_hole_and_overlap_are_named(void **state)
{
    static const int64_t offset[] = { 2, 0 }, less[] = { 2, 5 };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, dir);
    give_two(r);
    r[1].tensors[0].offset = offset;
    assert_status(DTP_ERR_CORRUPT, ranks_save(r, 2, 1));
    assert_text("tensor w: boxes of ranks 0 and 1 overlap at element [2, 0]");
    r[1].tensors[0].offset = w_low;
    r[0].tensors[0].extent = less;
    assert_status(DTP_ERR_CORRUPT, ranks_save(r, 2, 1));
    assert_text("tensor w: element [2, 0] is in no rank's box");
    ranks_free(r, 2);
}

static void test_ranks_that_disagree_are_named(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, dir);
    give_two(r);
    r[1].tensors[0].dtype = DTP_I32;
    assert_status(DTP_ERR_INVAL, ranks_save(r, 2, 1));
    assert_text("tensor w is f32 [6, 5] on rank 0 and i32 [6, 5] on rank 1");
    r[1].tensors[0].dtype = DTP_F32;
    r[1].tensors[1].shape = r[1].tensors[1].extent = (int64_t[]){ 6 };
    assert_status(DTP_ERR_INVAL, ranks_save(r, 2, 1));
    assert_text("tensor b is bf16 [7] on rank 0 and bf16 [6] on rank 1");
    r[1].tensors[1].shape = r[1].tensors[1].extent = b_shape;
    r[1].opts.chunk_bytes = 8192;
    assert_status(DTP_ERR_INVAL, ranks_save(r, 2, 1));
    assert_text("rank 0 saves with codec none and chunks of 1048576 bytes, rank 1 with none and 8192");
    r[1].opts.codec = DTP_CODEC_PLANES;
    assert_status(DTP_ERR_INVAL, ranks_save(r, 2, 1));
    assert_text("rank 1 with planes and 8192");
    ranks_free(r, 2);
}

static void test_tensor_given_twice_is_refused(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, dir);
    give_two(r);
    give(&r[1], "b", DTP_BF16, 1, b_shape, NULL, NULL, 2);
    assert_status(DTP_ERR_INVAL, ranks_save(r, 2, 1));
    assert_text("rank 1 gives tensor b twice");
    ranks_free(r, 2);
}

static void test_bad_names_and_options_are_refused(void **state)
{
    static const char *const names[] = { "", "__metadata__", "\xff", "\xc0\x80" };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    rank_run r[1];

    (void)state;
    ranks_init(r, 1, files, dir);
    give(&r[0], "x", DTP_U8, 0, NULL, NULL, NULL, 1);
    for (size_t i = 0; i < DTPI_ARRAY_LEN(names); i++) {
        r[0].tensors[0].name = names[i];
        assert_status(DTP_ERR_INVAL, ranks_save(r, 1, 1));
    }
    r[0].tensors[0].name = "x";
    r[0].opts.chunk_bytes = 5000;
    assert_status(DTP_ERR_INVAL, ranks_save(r, 1, 1));
    r[0].opts.chunk_bytes = 0;
    r[0].opts.meta_json = "[1]";
    assert_status(DTP_ERR_FORMAT, ranks_save(r, 1, 1));
    assert_text("meta_json");
    r[0].opts.meta_json = "{\"a\":}";
    assert_status(DTP_ERR_FORMAT, ranks_save(r, 1, 1));
    ranks_free(r, 1);
}

static void test_full_disk_leaves_the_previous_step(void **state)
{
    static const int64_t shape[] = { 5000 };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    uint64_t step = 0;
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, dir);
    give_two(r);
    assert_ok(ranks_save(r, 2, 1));
    give(&r[1], "big", DTP_F64, 1, shape, NULL, NULL, 4);
    dtpi_files_mem_limit(files, 40000);
    assert_status(DTP_ERR_NOSPC, ranks_save(r, 2, 2));
    assert_text("rank 1: no space for ck/step-00000000000000000002/shard-00001-of-00002");
    assert_text("missing");
    check_two(files, 1);
    assert_ok(dtpi_steps_latest(files, &silent, dir, &step, ERR));
    assert_int_equal(step, 1);
    /* Room again: the same step goes through. */
    dtpi_files_mem_limit(files, UINT64_MAX);
    assert_ok(ranks_save(r, 2, 2));
    check_two(files, 2);
    ranks_free(r, 2);
}

static void test_a_second_writer_is_busy(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    dtpi_file *lock = NULL;
    bool made;
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, dir);
    give_two(r);
    assert_ok(files->ops->make_dir(files, dir, &made, ERR));
    assert_ok(files->ops->lock(files, "ck/.lock", &lock, ERR));
    assert_status(DTP_ERR_BUSY, ranks_save(r, 2, 1));
    assert_text("ck/.lock");
    dtpi_file_drop(lock);
    assert_ok(ranks_save(r, 2, 1));
    ranks_free(r, 2);
}

/* ---- damage on loading ---- */

static void test_every_kind_of_damage_is_named(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    const int64_t bad_offset[] = { 0, 3 }, bad_shape[] = { 5, 6 };
    dtpi_load *l = NULL;
    char shard[128], manifest[128];
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, dir);
    give_two(r);
    assert_ok(ranks_save(r, 2, 1));
    snprintf(shard, sizeof(shard), "%s/shard-00000-of-00002.0000000000001007.safetensors", step1);
    snprintf(manifest, sizeof(manifest), "%s/manifest.json", step1);

    l = load(files, 1);
    assert_status(DTP_ERR_NOT_FOUND, read_known(l, "nope", DTP_F32, 2, w_shape, NULL, NULL, 1));
    assert_text("tensor nope is not in step 1");
    assert_status(DTP_ERR_INVAL, read_known(l, "w", DTP_I32, 2, w_shape, NULL, NULL, 1));
    assert_text("tensor w is stored as f32, wanted as i32");
    assert_status(DTP_ERR_INVAL, read_known(l, "w", DTP_F32, 2, bad_shape, NULL, NULL, 1));
    assert_text("tensor w has shape [6, 5], wanted [5, 6]");
    /* Nothing is read behind the shape that was given. */
    const dtp_ckpt_tensor many = { sizeof(many), "w", DTP_F32, 200, w_shape, NULL, NULL, shard };
    assert_status(DTP_ERR_INVAL, dtpi_load_read(l, &many, ERR));
    assert_text("tensor w: 200 dimensions, at most 8");
    assert_status(DTP_ERR_RANGE, read_known(l, "w", DTP_F32, 2, w_shape, bad_offset, w_half, 1));
    assert_text("tensor w: box [0, 3] + [3, 5] lies outside its shape [6, 5]");
    dtpi_load_close(l);

    assert_ok(dtpi_files_mem_flip(files, shard, 4096 + 2, 0x10, ERR));
    l = load(files, 1);
    assert_status(DTP_ERR_CORRUPT, read_known(l, "w", DTP_F32, 2, w_shape, NULL, NULL, 1));
    assert_text("shard-00000-of-00002.0000000000001007.safetensors: tensor w: chunk 0 of 1: checksum");
    assert_status(DTP_ERR_CORRUPT, dtpi_load_verify(l, NULL, NULL, ERR));
    dtpi_load_close(l);
    assert_ok(dtpi_files_mem_flip(files, shard, 4096 + 2, 0x10, ERR));

    assert_ok(dtpi_files_mem_flip(files, shard, 4000, 0x01, ERR));
    l = load(files, 1);
    assert_status(DTP_ERR_CORRUPT, dtpi_load_verify(l, NULL, NULL, ERR));
    assert_text("header: checksum mismatch");
    dtpi_load_close(l);
    assert_ok(dtpi_files_mem_flip(files, shard, 4000, 0x01, ERR));

    assert_ok(dtpi_files_mem_flip(files, manifest, 60, 0x01, ERR));
    assert_status(DTP_ERR_CORRUPT, dtpi_load_open(A, files, dir, 1, &l, ERR));
    assert_text("manifest.json: checksum mismatch");
    assert_ok(dtpi_files_mem_flip(files, manifest, 60, 0x01, ERR));
    assert_ok(dtpi_files_mem_resize(files, manifest, 200, ERR));
    assert_status(DTP_ERR_TRUNCATED, dtpi_load_open(A, files, dir, 1, &l, ERR));
    assert_text("manifest.json");
    ranks_free(r, 2);
}

static void test_shard_cut_short_is_truncated(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    char shard[128];
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, dir);
    give_two(r);
    assert_ok(ranks_save(r, 2, 1));
    snprintf(shard, sizeof(shard), "%s/shard-00001-of-00002.0000000000001007.safetensors", step1);
    assert_ok(dtpi_files_mem_resize(files, shard, 4100, ERR));
    DTPI_AUTO(load) dtpi_load *l = load(files, 1);
    assert_status(DTP_ERR_TRUNCATED, read_known(l, "w", DTP_F32, 2, w_shape, NULL, NULL, 1));
    assert_text("shard-00001-of-00002.0000000000001007.safetensors has 4100 bytes instead of");
    assert_ok(files->ops->remove(files, shard, ERR));
    assert_status(DTP_ERR_NOT_FOUND, dtpi_load_verify(l, NULL, NULL, ERR));
    assert_text("shard-00001-of-00002");
    ranks_free(r, 2);
}

/* ---- injected failures; crashes are in tests/crash ---- */

static void test_any_failing_call_fails_all_ranks_and_keeps_the_old_step(void **state)
{
    static const int errnos[] = { EIO, ENOSPC, EACCES };
    uint32_t n_failed = 0;
    rank_run r[2];

    (void)state;
    for (uint32_t nth = 1;; nth++) {
        DTPI_AUTO(files) dtpi_files *files = mem_files();
        uint64_t step = 0;
        ranks_init(r, 2, files, dir);
        give_two(r);
        assert_ok(ranks_save(r, 2, 1));
        dtpi_files_mem_fail(files, nth, errnos[nth % 3]);
        const dtp_status st = ranks_save(r, 2, 2);
        dtpi_files_mem_fail(files, 0, 0);
        check_two(files, 1);
        assert_ok(dtpi_steps_latest(files, &silent, dir, &step, ERR));
        if (st >= 0)
            assert_int_equal(step, 2);
        if (step == 2)
            check_two(files, 2);
        else
            assert_ok(ranks_save(r, 2, 2));
        n_failed += st < 0;
        ranks_free(r, 2);
        if (st >= 0 && nth > 60)
            break;
    }
    assert_true(n_failed > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ranks_save_and_any_box_is_read),
        cmocka_unit_test(test_types_of_whole_bytes_and_empty_tensors_survive),
        cmocka_unit_test(test_no_tensors_make_an_empty_checkpoint),
        cmocka_unit_test(test_zstd_chunks_are_read_at_random),
        cmocka_unit_test(test_one_rank_gives_many_boxes_of_a_tensor),
        cmocka_unit_test(test_complete_step_is_refused_and_stays),
        cmocka_unit_test(test_damaged_step_is_replaced),
        cmocka_unit_test(test_box_outside_its_tensor_names_both),
        cmocka_unit_test(test_a_long_name_leaves_room_for_the_cause),
        cmocka_unit_test(test_hole_and_overlap_are_named),
        cmocka_unit_test(test_ranks_that_disagree_are_named),
        cmocka_unit_test(test_tensor_given_twice_is_refused),
        cmocka_unit_test(test_bad_names_and_options_are_refused),
        cmocka_unit_test(test_full_disk_leaves_the_previous_step),
        cmocka_unit_test(test_a_second_writer_is_busy),
        cmocka_unit_test(test_every_kind_of_damage_is_named),
        cmocka_unit_test(test_shard_cut_short_is_truncated),
        cmocka_unit_test(test_any_failing_call_fails_all_ranks_and_keeps_the_old_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
