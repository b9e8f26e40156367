/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that lie in tests/data/ckpt stay readable for ever, damaged ones stay refused: version 1, and
 * version 2 in folders that begin with "v2-". `test_ckpt_golden write DIR` made them; nothing else may
 * change them.
 */
#include "ranks.h"

#include "files/posix.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;
static const int64_t w_shape[] = { 40, 60 }, w_half[] = { 20, 60 }, w_low[] = { 20, 0 };
static const int64_t e_shape[] = { 0, 3 }, b_shape[] = { 5 };

static void write_one(const char *dir, const char *name, dtp_codec codec)
{
    DTPI_AUTO(files) dtpi_files *files = NULL;
    char path[DTPI_PATH_MAX];
    rank_run r[2];

    assert_ok(dtpi_files_posix_open(A, &files, ERR));
    assert_ok(dtpi_path_join(path, dir, name, ERR));
    ranks_init(r, 2, files, path);
    for (int i = 0; i < 2; i++) {
        r[i].opts.codec = codec;
        r[i].opts.chunk_bytes = 4096;
        r[i].opts.meta_json = "{\"epoch\": 3, \"lr\": [0.1, 0.01]}";
    }
    give(&r[0], "w", DTP_F32, 2, w_shape, NULL, w_half, 1);
    give(&r[1], "w", DTP_F32, 2, w_shape, w_low, w_half, 1);
    memset(r[1].tensors[0].data, 7, 3000);      /* something that shrinks */
    give(&r[0], "b \xc3\xa9", DTP_BF16, 1, b_shape, NULL, NULL, 2);
    give(&r[1], "b \xc3\xa9", DTP_BF16, 1, b_shape, NULL, NULL, 2);
    give(&r[1], "s", DTP_I64, 0, NULL, NULL, NULL, 3);
    give(&r[0], "e", DTP_F16, 2, e_shape, NULL, NULL, 4);
    assert_ok(ranks_save(r, 2, 42));
    ranks_free(r, 2);
}

/* ---- steps that refer to steps before them ---- */

enum { N_WEIGHTS = 8000, FIRST = 40, LAST = 42 };
static const int64_t d_shape[] = { N_WEIGHTS };

/* bf16 weights that change a little from step to step. */
static void weights_of(uint64_t step, uint8_t *out)
{
    for (uint64_t i = 0; i < 2 * N_WEIGHTS; i++) {
        out[i] = known_byte(5, i);
        if (i % 2)
            out[i] = (uint8_t)(0x3c + out[i] % 4);
        else if (i % 26 == 0)
            out[i] ^= (uint8_t)((step - FIRST) & 3);
    }
}

/* Weights stored as XOR, a frozen tensor that the first step has, and two that are equal. */
static void write_delta(const char *dir)
{
    DTPI_AUTO(files) dtpi_files *files = NULL;
    char path[DTPI_PATH_MAX];
    rank_run r[2];

    assert_ok(dtpi_files_posix_open(A, &files, ERR));
    assert_ok(dtpi_path_join(path, dir, "delta", ERR));
    ranks_init(r, 2, files, path);
    for (int i = 0; i < 2; i++) {
        r[i].opts.codec = DTP_CODEC_PLANES;
        r[i].opts.chunk_bytes = 4096;
        r[i].opts.delta = 1;
    }
    give(&r[0], "weights", DTP_BF16, 1, d_shape, NULL, NULL, 0);
    give(&r[1], "frozen", DTP_I32, 1, d_shape, NULL, NULL, 6);
    give(&r[1], "tied.a", DTP_U8, 1, d_shape, NULL, NULL, 7);
    give(&r[1], "tied.b", DTP_U8, 1, d_shape, NULL, NULL, 7);
    for (uint64_t step = FIRST; step <= LAST; step++) {
        weights_of(step, r[0].tensors[0].data);
        assert_ok(ranks_save(r, 2, step));
    }
    ranks_free(r, 2);
}

static dtp_status open_golden_step(const char *name, uint64_t step, dtpi_files *files, dtpi_load **l)
{
    const char *source = getenv("DTP_TEST_SOURCE");
    char path[DTPI_PATH_MAX];

    snprintf(path, sizeof(path), "%s/tests/data/ckpt/%s", source ? source : ".", name);
    return dtpi_load_open(A, files, path, step, l, ERR);
}

static void test_good_steps_that_refer_to_others_stay_readable(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = NULL;
    static uint8_t want[2 * N_WEIGHTS], got[2 * N_WEIGHTS];

    (void)state;
    assert_ok(dtpi_files_posix_open(A, &files, ERR));
    for (uint64_t step = FIRST; step <= LAST; step++) {
        DTPI_AUTO(load) dtpi_load *l = NULL;
        const dtp_ckpt_tensor t = { sizeof(t), "weights", DTP_BF16, 1, d_shape, NULL, NULL, got };
        assert_ok(open_golden_step("v2-delta", step, files, &l));
        assert_int_equal(l->m.n_lineage, step - FIRST);
        assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
        assert_ok(dtpi_load_read(l, &t, ERR));
        weights_of(step, want);
        assert_memory_equal(got, want, sizeof(want));
        assert_ok(read_known(l, "frozen", DTP_I32, 1, d_shape, NULL, NULL, 6));
        assert_ok(read_known(l, "tied.a", DTP_U8, 1, d_shape, NULL, NULL, 7));
        assert_ok(read_known(l, "tied.b", DTP_U8, 1, d_shape, NULL, NULL, 7));
        assert_true(step == FIRST || dtpi_mf_n_files(&l->m) > l->m.n_own_files);
        assert_true(step == FIRST || l->m.base_buf.len > 0);
    }
}

static void test_bad_steps_that_refer_to_others_stay_refused(void **state)
{
    static const struct {
        const char *name;
        dtp_status want;
        const char *text;
    } cases[] = {
        { "v2-bad-delta-missing", DTP_ERR_NOT_FOUND, "step-00000000000000000040/shard-00000-of-00002" },
        { "v2-bad-delta-flip", DTP_ERR_CORRUPT, "step 40: shard-00000-of-00002" },
    };
    DTPI_AUTO(files) dtpi_files *files = NULL;

    (void)state;
    assert_ok(dtpi_files_posix_open(A, &files, ERR));
    for (size_t i = 0; i < DTPI_ARRAY_LEN(cases); i++) {
        DTPI_AUTO(load) dtpi_load *l = NULL;
        dtp_status st = open_golden_step(cases[i].name, LAST, files, &l);
        if (st >= 0)
            st = dtpi_load_verify(l, NULL, NULL, ERR);
        if (st != cases[i].want)
            fail_msg("%s: %s: %s", cases[i].name, dtp_status_name(st), check_err.text);
        assert_text(cases[i].text);
    }
}

static dtp_status open_golden(const char *name, dtpi_files *files, dtpi_load **l)
{
    return open_golden_step(name, 42, files, l);
}

static void test_good_checkpoints_stay_readable(void **state)
{
    static const char *const names[] = { "good", "good-zstd", "good-planes",
                                         "v2-good", "v2-good-zstd", "v2-good-planes" };
    DTPI_AUTO(files) dtpi_files *files = NULL;

    (void)state;
    assert_ok(dtpi_files_posix_open(A, &files, ERR));
    for (size_t i = 0; i < DTPI_ARRAY_LEN(names); i++) {
        DTPI_AUTO(load) dtpi_load *l = NULL;
        uint8_t half[20 * 60 * 4];
        const dtp_ckpt_tensor t = { sizeof(t), "w", DTP_F32, 2, w_shape, w_low, w_half, half };
        assert_ok(open_golden(names[i], files, &l));
        assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
        assert_string_equal((char *)l->m.meta.data, "{\"epoch\": 3, \"lr\": [0.1, 0.01]}");
        assert_ok(read_known(l, "w", DTP_F32, 2, w_shape, NULL, w_half, 1));
        assert_ok(read_known(l, "b \xc3\xa9", DTP_BF16, 1, b_shape, NULL, NULL, 2));
        assert_ok(read_known(l, "s", DTP_I64, 0, NULL, NULL, NULL, 3));
        assert_ok(read_known(l, "e", DTP_F16, 2, e_shape, NULL, NULL, 4));
        assert_ok(dtpi_load_read(l, &t, ERR));
        assert_int_equal(half[2999], 7);
        assert_int_equal(half[3000], known_byte(1, 20 * 60 * 4 + 3000));
    }
}

static void test_bad_checkpoints_stay_refused(void **state)
{
    static const struct {
        const char *name;
        dtp_status want;
        const char *text;
    } cases[] = {
        { "bad-cut", DTP_ERR_TRUNCATED, "shard-00001-of-00002" },
        { "bad-flip", DTP_ERR_CORRUPT, "tensor w: chunk 0 of 2: checksum mismatch" },
        { "bad-header", DTP_ERR_CORRUPT, "header: checksum mismatch" },
        { "bad-missing", DTP_ERR_NOT_FOUND, "shard-00000-of-00002" },
        { "bad-manifest", DTP_ERR_CORRUPT, "manifest.json: checksum mismatch" },
        { "bad-manifest-cut", DTP_ERR_TRUNCATED, "manifest.json" },
        { "bad-none", DTP_ERR_NOT_FOUND, "manifest.json" },
        { "v2-bad-part-flip", DTP_ERR_CORRUPT, "part-00001-of-00002" },
        { "v2-bad-part-cut", DTP_ERR_TRUNCATED, "part-00001-of-00002" },
        { "v2-bad-part-missing", DTP_ERR_NOT_FOUND, "part-00001-of-00002" },
        { "v2-bad-part-other", DTP_ERR_FORMAT, "part-00001-of-00002.000000000002a007.bin: the part of another shard" },
    };
    DTPI_AUTO(files) dtpi_files *files = NULL;

    (void)state;
    assert_ok(dtpi_files_posix_open(A, &files, ERR));
    for (size_t i = 0; i < DTPI_ARRAY_LEN(cases); i++) {
        DTPI_AUTO(load) dtpi_load *l = NULL;
        dtp_status st = open_golden(cases[i].name, files, &l);
        if (st >= 0)
            st = dtpi_load_verify(l, NULL, NULL, ERR);
        if (st != cases[i].want)
            fail_msg("%s: %s: %s", cases[i].name, dtp_status_name(st), check_err.text);
        assert_text(cases[i].text);
    }
}

static void test_write(void **state)
{
    write_one(*state, "good", DTP_CODEC_NONE);
    write_one(*state, "good-zstd", DTP_CODEC_ZSTD);
    write_one(*state, "good-planes", DTP_CODEC_PLANES);
    write_delta(*state);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_checkpoints_stay_readable),
        cmocka_unit_test(test_bad_checkpoints_stay_refused),
        cmocka_unit_test(test_good_steps_that_refer_to_others_stay_readable),
        cmocka_unit_test(test_bad_steps_that_refer_to_others_stay_refused),
    };

    if (argc == 3 && strcmp(argv[1], "write") == 0) {
        const struct CMUnitTest write[] = { cmocka_unit_test_prestate(test_write, argv[2]) };
        return cmocka_run_group_tests(write, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
