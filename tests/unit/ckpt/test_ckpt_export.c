/* SPDX-License-Identifier: Apache-2.0 */
/* A step goes out as a Hugging Face model and comes back as the same tensors. */
#include "ranks.h"

#include <errno.h>

#include "ckpt/export.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;
static const int64_t w_shape[] = { 40, 60 }, w_half[] = { 20, 60 }, w_low[] = { 20, 0 };
static const int64_t e_shape[] = { 0, 3 }, b_shape[] = { 5 }, f_shape[] = { 2, 4 };

/* Two ranks save `w` in halves, and one of each kind beside it. */
static void save_step(dtpi_files *files, dtp_codec codec)
{
    rank_run r[2];

    ranks_init(r, 2, files, "c");
    for (int i = 0; i < 2; i++)
        r[i].opts.codec = codec;
    give(&r[0], "w", DTP_F32, 2, w_shape, NULL, w_half, 1);
    give(&r[1], "w", DTP_F32, 2, w_shape, w_low, w_half, 1);
    give(&r[0], "b \xc3\xa9\"", DTP_BF16, 1, b_shape, NULL, NULL, 2);
    give(&r[1], "s", DTP_I64, 0, NULL, NULL, NULL, 3);
    give(&r[0], "e", DTP_F16, 2, e_shape, NULL, NULL, 4);
    dtp_ckpt_tensor *f = give(&r[0], "f", DTP_F4, 2, f_shape, NULL, NULL, 5);
    free(f->data);
    f->data = calloc(1, 4);
    assert_ok(ranks_save(r, 2, 42));
    ranks_free(r, 2);
}

static dtpi_files *fresh_files(dtp_codec codec)
{
    dtpi_files *files = NULL;

    assert_ok(dtpi_files_mem_open(A, &files, ERR));
    save_step(files, codec);
    return files;
}

static dtp_status export_to(dtpi_files *files, const char *dir, uint64_t max)
{
    const dtp_ckpt_export_opts opts = { .size = sizeof(opts), .max_shard_bytes = max };
    DTPI_AUTO(load) dtpi_load *l = NULL;

    const dtp_status st = dtpi_load_open(A, files, "c", 42, &l, ERR);
    return st < 0 ? st : dtpi_export(l, dir, &opts, ERR);
}

static void assert_back(dtpi_files *files, const char *path)
{
    DTPI_AUTO(load) dtpi_load *l = NULL;

    assert_ok(dtpi_load_open_path(A, files, path, &l, ERR));
    assert_int_equal(dtpi_mf_n_tensors(&l->m), 5);
    for (int64_t row = 0; row < 40; row += 20) {
        const int64_t offset[] = { row, 0 };
        assert_ok(read_known(l, "w", DTP_F32, 2, w_shape, offset, w_half, 1));
    }
    assert_ok(read_known(l, "b \xc3\xa9\"", DTP_BF16, 1, b_shape, NULL, NULL, 2));
    assert_ok(read_known(l, "s", DTP_I64, 0, NULL, NULL, NULL, 3));
    assert_ok(read_known(l, "e", DTP_F16, 2, e_shape, NULL, NULL, 4));
}

static void test_a_small_model_is_one_file(void **state)
{
    static const dtp_codec codecs[] = { DTP_CODEC_NONE, DTP_CODEC_ZSTD, DTP_CODEC_PLANES };
    uint64_t bytes = 0;

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(codecs); i++) {
        DTPI_AUTO(files) dtpi_files *files = fresh_files(codecs[i]);
        assert_ok(export_to(files, "out/m", 0));
        assert_back(files, "out/m/model.safetensors");
        assert_back(files, "out/m");
        assert_status(DTP_ERR_NOT_FOUND,
                      files->ops->size(files, "out/m/model.safetensors.index.json", &bytes, ERR));
    }
}

static void test_a_large_model_is_several_files_and_an_index(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files(DTP_CODEC_PLANES);
    uint64_t bytes = 0;

    (void)state;
    assert_ok(export_to(files, "m", 16));
    assert_ok(files->ops->size(files, "m/model-00001-of-00003.safetensors", &bytes, ERR));
    assert_ok(files->ops->size(files, "m/model.safetensors.index.json", &bytes, ERR));
    assert_back(files, "m");
}

static void test_nothing_is_overwritten(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files(DTP_CODEC_NONE);

    (void)state;
    assert_ok(export_to(files, "m", 0));
    assert_status(DTP_ERR_EXISTS, export_to(files, "m", 0));
    assert_text("m/model.safetensors is there already");
}

static void test_slabs_join_to_tensors_larger_than_the_buffer(void **state)
{
    static const int64_t shape[] = { 3, 3000, 1000 };
    DTPI_AUTO(files) dtpi_files *files = NULL;
    DTPI_AUTO(load) dtpi_load *l = NULL;
    rank_run r[1];

    (void)state;
    assert_ok(dtpi_files_mem_open(A, &files, ERR));
    ranks_init(r, 1, files, "c");
    give(&r[0], "big", DTP_F32, 3, shape, NULL, NULL, 9);
    assert_ok(ranks_save(r, 1, 42));
    ranks_free(r, 1);
    assert_ok(export_to(files, "m", 0));
    assert_ok(dtpi_load_open_path(A, files, "m", &l, ERR));
    assert_ok(read_known(l, "big", DTP_F32, 3, shape, NULL, NULL, 9));
}

/* A chunk that two slabs share is verified, also for who asks loads for less. */
static void test_a_flipped_bit_between_slabs_is_found(void **state)
{
    static const int64_t shape[] = { 4200, 1000 };
    DTPI_AUTO(files) dtpi_files *files = NULL;
    DTPI_AUTO(load) dtpi_load *l = NULL;
    const dtp_ckpt_export_opts opts = { .size = sizeof(opts) };
    char path[DTPI_PATH_MAX];
    rank_run r[1];

    (void)state;
    assert_ok(dtpi_files_mem_open(A, &files, ERR));
    ranks_init(r, 1, files, "c");
    give(&r[0], "w", DTP_F32, 2, shape, NULL, NULL, 9);
    assert_ok(ranks_save(r, 1, 42));
    ranks_free(r, 1);
    assert_ok(dtpi_load_open(A, files, "c", 42, &l, ERR));
    const dtpi_mf_file *f = dtpi_mf_file_at(&l->m, 0);
    assert_ok(dtpi_path_join(path, l->step_dir, dtpi_mf_text(&l->m, f->name_at), ERR));
    /* The first slab has 4194 rows of 4000 bytes. */
    assert_ok(dtpi_files_mem_flip(files, path, f->bytes - 6 * 4000 - 1, 1, ERR));
    l->checks = DTP_CKPT_CHECK_WHOLE;
    assert_status(DTP_ERR_CORRUPT, dtpi_export(l, "m", &opts, ERR));
    assert_text("tensor w");
    assert_int_equal(l->checks, DTP_CKPT_CHECK_WHOLE);
}

/* Rows of six million bytes, and of eighteen: cut between rows, and within one. */
static void test_slabs_join_to_large_tensors_of_half_bytes(void **state)
{
    static const int64_t shapes[][2] = { { 3, 12000000 }, { 1, 36000000 } };
    enum { BYTES = 18000000 };
    uint8_t *back = malloc(BYTES);

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(shapes); i++) {
        DTPI_AUTO(files) dtpi_files *files = NULL;
        DTPI_AUTO(load) dtpi_load *l = NULL;
        rank_run r[1];
        assert_ok(dtpi_files_mem_open(A, &files, ERR));
        ranks_init(r, 1, files, "c");
        dtp_ckpt_tensor *f = give(&r[0], "f", DTP_F4, 2, shapes[i], NULL, NULL, 1);
        free(f->data);
        uint8_t *data = f->data = malloc(BYTES);
        for (size_t k = 0; k < BYTES; k++)
            data[k] = (uint8_t)(k * 2654435761u >> 24);
        assert_ok(ranks_save(r, 1, 42));
        assert_ok(export_to(files, "m", 0));
        assert_ok(dtpi_load_open_path(A, files, "m", &l, ERR));
        const dtp_ckpt_tensor want = { sizeof(want), "f", DTP_F4, 2, shapes[i], NULL, NULL, back };
        assert_ok(dtpi_load_read(l, &want, ERR));
        assert_memory_equal(back, data, BYTES);
        ranks_free(r, 1);
    }
    free(back);
}

/* Each call of the export fails once: nothing is left that could be taken for a model. */
static void test_a_failed_export_leaves_nothing(void **state)
{
    uint32_t calls = 0;

    (void)state;
    for (uint32_t i = 0; i <= calls; i++) {
        DTPI_AUTO(files) dtpi_files *files = fresh_files(DTP_CODEC_NONE);
        DTPI_AUTO(load) dtpi_load *l = NULL;
        const uint32_t before = dtpi_files_mem_n_calls(files);
        if (i > 0)
            dtpi_files_mem_fail(files, i, EIO);
        const dtp_status st = export_to(files, "m", 16);
        if (i == 0)
            calls = dtpi_files_mem_n_calls(files) - before;
        dtpi_files_mem_fail(files, 0, 0);
        if (st >= 0)
            assert_back(files, "m");
        else if (dtpi_load_open_path(A, files, "m", &l, ERR) >= 0)
            fail_msg("a model is there after call %u failed", i);
    }
}

/* Somebody else's file appears while the export runs. */
typedef struct intruder {
    dtpi_files *files;
    const char *path;
} intruder;

static void intrude(void *user, uint64_t done, uint64_t total)
{
    const intruder *in = user;
    dtpi_file *file = NULL;

    (void)done;
    (void)total;
    if (in->files->ops->create(in->files, in->path, 0, &file, NULL) >= 0)
        assert_ok(in->files->ops->close_file(file, ERR));
}

static void test_two_exports_do_not_share_a_folder(void **state)
{
    static const char temp[] = "m/.model.safetensors.tmp";
    DTPI_AUTO(files) dtpi_files *files = fresh_files(DTP_CODEC_NONE);
    uint64_t bytes = 0;
    bool made = false;

    (void)state;
    assert_ok(files->ops->make_dir(files, "m", &made, ERR));
    intrude(&(intruder){ files, temp }, 0, 0);
    assert_status(DTP_ERR_EXISTS, export_to(files, "m", 16));
    assert_text("of another export, or of one that was killed");
    assert_ok(files->ops->size(files, temp, &bytes, ERR));
    assert_ok(files->ops->remove(files, temp, ERR));
    assert_ok(export_to(files, "m", 16));
    assert_back(files, "m");
}

static void test_what_somebody_else_put_there_stays(void **state)
{
    static const char *const paths[] = { "m/model-00002-of-00003.safetensors",
                                         "m/model.safetensors.index.json" };
    uint64_t bytes = 0;

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(paths); i++) {
        DTPI_AUTO(files) dtpi_files *files = fresh_files(DTP_CODEC_NONE);
        DTPI_AUTO(load) dtpi_load *l = NULL;
        intruder in = { files, paths[i] };
        const dtp_ckpt_export_opts opts = {
            .size = sizeof(opts), .max_shard_bytes = 16, .progress = intrude, .user = &in
        };
        assert_ok(dtpi_load_open(A, files, "c", 42, &l, ERR));
        assert_status(DTP_ERR_EXISTS, dtpi_export(l, "m", &opts, ERR));
        assert_ok(files->ops->size(files, paths[i], &bytes, ERR));
        assert_status(DTP_ERR_NOT_FOUND,
                      files->ops->size(files, "m/model-00001-of-00003.safetensors", &bytes, ERR));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_small_model_is_one_file),
        cmocka_unit_test(test_a_large_model_is_several_files_and_an_index),
        cmocka_unit_test(test_nothing_is_overwritten),
        cmocka_unit_test(test_slabs_join_to_tensors_larger_than_the_buffer),
        cmocka_unit_test(test_a_flipped_bit_between_slabs_is_found),
        cmocka_unit_test(test_slabs_join_to_large_tensors_of_half_bytes),
        cmocka_unit_test(test_a_failed_export_leaves_nothing),
        cmocka_unit_test(test_two_exports_do_not_share_a_folder),
        cmocka_unit_test(test_what_somebody_else_put_there_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
