/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors of others: alone, with an index, in shards that say where their parts begin. */
#include "check.h"

#include "ckpt/load.h"
#include "ckpt/st.h"
#include "files/mem.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

static dtpi_files *fresh_files(void)
{
    dtpi_files *files = NULL;
    bool made = false;

    assert_ok(dtpi_files_mem_open(A, &files, ERR));
    assert_ok(files->ops->make_dir(files, "m", &made, ERR));
    return files;
}

static void put_file(dtpi_files *files, const char *path, const void *data, size_t bytes)
{
    dtpi_file *file = NULL;

    assert_ok(files->ops->create(files, path, bytes, &file, ERR));
    assert_ok(files->ops->write(file, 0, data, bytes, ERR));
    assert_ok(files->ops->close_file(file, ERR));
}

/* A header and `bytes` bytes of data that count up from `first`. */
static void put_st(dtpi_files *files, const char *path, const char *header, size_t bytes,
                   uint8_t first)
{
    const uint64_t n = strlen(header);
    uint8_t all[2048];

    assert_true(8 + n + bytes <= sizeof(all));
    memcpy(all, &n, 8);
    memcpy(all + 8, header, n);
    for (size_t i = 0; i < bytes; i++)
        all[8 + n + i] = (uint8_t)(first + i);
    put_file(files, path, all, 8 + n + bytes);
}

static void put_text(dtpi_files *files, const char *path, const char *text)
{
    put_file(files, path, text, strlen(text));
}

#define ONE(name, shape, bytes)                                                                     \
    "{\"__metadata__\":{\"format\":\"pt\"},\"" name "\":{\"dtype\":\"U8\",\"shape\":" shape         \
    ",\"data_offsets\":[0," bytes "]}}"
#define SHARD(info, name, shape, bytes)                                                             \
    "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"" name "\\\":{\\\"saved_offsets\\\":" info     \
    "}}\"},\"" name "\":{\"dtype\":\"U8\",\"shape\":" shape ",\"data_offsets\":[0," bytes "]}}"

static dtp_status open_at(dtpi_files *files, const char *path, dtpi_load **l)
{
    return dtpi_load_open_path(A, files, path, l, ERR);
}

static void test_a_file_alone_is_read(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    static const int64_t offset[] = { 1, 1 }, extent[] = { 1, 2 };
    DTPI_AUTO(load) dtpi_load *l = NULL;
    uint8_t all[6], part[2];
    const dtp_ckpt_tensor t = { sizeof(t), "w", DTP_U8, 2, NULL, NULL, NULL, all };
    const dtp_ckpt_tensor p = { sizeof(p), "w", DTP_U8, 2, NULL, offset, extent, part };

    (void)state;
    put_st(files, "m/a.safetensors", ONE("w", "[2,3]", "6"), 6, 10);
    assert_ok(open_at(files, "m/a.safetensors", &l));
    assert_string_equal(l->m.format, "safetensors");
    assert_string_equal((char *)l->m.meta.data, "{\"source\":\"safetensors\",\"format\":\"pt\"}");
    assert_ok(dtpi_load_read(l, &t, ERR));
    assert_int_equal(all[0], 10);
    assert_int_equal(all[5], 15);
    assert_ok(dtpi_load_read(l, &p, ERR));
    assert_int_equal(part[0], 14);
    assert_int_equal(part[1], 15);
    assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
}

static const char index_text[] = "{\"metadata\":{\"total_size\":5},\"weight_map\":{"
                                 "\"b\":\"y.safetensors\",\"a\":\"x.safetensors\"}}";

static void test_an_index_says_which_file_has_what(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    DTPI_AUTO(load) dtpi_load *l = NULL;
    uint8_t b[3];
    const dtp_ckpt_tensor t = { sizeof(t), "b", DTP_U8, 1, NULL, NULL, NULL, b };

    (void)state;
    put_st(files, "m/x.safetensors", ONE("a", "[2]", "2"), 2, 1);
    put_st(files, "m/y.safetensors", ONE("b", "[3]", "3"), 3, 50);
    put_text(files, "m/model.safetensors.index.json", index_text);
    assert_ok(open_at(files, "m/", &l));
    assert_string_equal(l->m.format, "huggingface");
    assert_int_equal(dtpi_mf_n_tensors(&l->m), 2);
    assert_ok(dtpi_load_read(l, &t, ERR));
    assert_int_equal(b[2], 52);
}

static void test_what_the_index_promises_must_be_there(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    dtpi_load *l = NULL;

    (void)state;
    put_st(files, "m/x.safetensors", ONE("a", "[2]", "2"), 2, 1);
    put_text(files, "m/model.safetensors.index.json", index_text);
    assert_status(DTP_ERR_NOT_FOUND, open_at(files, "m", &l));
    assert_text("y.safetensors");
    put_st(files, "m/y.safetensors", ONE("c", "[3]", "3"), 3, 50);
    assert_status(DTP_ERR_NOT_FOUND, open_at(files, "m", &l));
    assert_text("tensor b is not in y.safetensors");
}

static void test_an_index_of_nothing_is_an_empty_checkpoint(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    DTPI_AUTO(load) dtpi_load *l = NULL;

    (void)state;
    put_text(files, "m/model.safetensors.index.json", "{\"weight_map\":{}}");
    assert_ok(open_at(files, "m", &l));
    assert_int_equal(dtpi_mf_n_tensors(&l->m), 0);
    assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
}

static void test_an_index_cannot_lead_out_of_its_folder(void **state)
{
    static const char *const bad[] = { "../x.safetensors", "/x.safetensors", "a//b", "./x", "" };
    char text[200];

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++) {
        DTPI_AUTO(files) dtpi_files *files = fresh_files();
        dtpi_load *l = NULL;
        put_st(files, "x.safetensors", ONE("a", "[2]", "2"), 2, 1);
        snprintf(text, sizeof(text), "{\"weight_map\":{\"a\":\"%s\"}}", bad[i]);
        put_text(files, "m/model.safetensors.index.json", text);
        assert_status(DTP_ERR_FORMAT, open_at(files, "m", &l));
        assert_text("is not inside the folder");
    }
}

static void test_broken_indexes_are_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "", "byte 0" },
        { "[]", "byte" },
        { "{}", "no weight_map" },
        { "{\"weight_map\":{},\"weight_map\":{}}", "twice" },
        { "{\"weight_map\":{\"a\":1}}", "byte" },
        { "{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"x.safetensors\"}}", "tensor a twice" },
        { "{\"weight_map\":{\"a\":\"x.safetensors\"}} x", "byte" },
    };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++) {
        DTPI_AUTO(files) dtpi_files *files = fresh_files();
        dtpi_load *l = NULL;
        put_st(files, "m/x.safetensors", ONE("a", "[2]", "2"), 2, 1);
        put_text(files, "m/model.safetensors.index.json", bad[i].text);
        assert_status(DTP_ERR_FORMAT, open_at(files, "m", &l));
        assert_text(bad[i].says);
    }
}

static void put_shards(dtpi_files *files, int skip)
{
    static const char *const names[] = { "m/shard-00001-model-00001-of-00001.safetensors",
                                         "m/shard-00002-model-00001-of-00001.safetensors",
                                         "m/shard-00003-model-00001-of-00001.safetensors" };
    static const char *const heads[] = { SHARD("[0,0]", "w", "[2,2]", "4"),
                                         SHARD("[2,0]", "w", "[2,2]", "4"),
                                         SHARD("[4,0]", "w", "[1,2]", "2") };

    for (int i = 0; i < 3; i++)
        if (i != skip)
            put_st(files, names[i], heads[i], i == 2 ? 2 : 4, (uint8_t)(10 * i));
}

static void test_shards_join_by_their_offsets(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    DTPI_AUTO(load) dtpi_load *l = NULL;
    static const uint8_t want[] = { 0, 1, 2, 3, 10, 11, 12, 13, 20, 21 };
    static const int64_t shape[] = { 5, 2 };
    uint8_t w[10];
    const dtp_ckpt_tensor t = { sizeof(t), "w", DTP_U8, 2, shape, NULL, NULL, w };

    (void)state;
    put_shards(files, -1);
    assert_ok(open_at(files, "m", &l));
    assert_ok(dtpi_load_read(l, &t, ERR));
    assert_memory_equal(w, want, sizeof(want));
}

static void test_a_missing_shard_leaves_a_hole(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    dtpi_load *l = NULL;

    (void)state;
    put_shards(files, 1);
    assert_status(DTP_ERR_CORRUPT, open_at(files, "m", &l));
    assert_text("tensor w: element [2, 0] is in no file");
}

static void test_a_shard_twice_is_refused(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    dtpi_load *l = NULL;

    (void)state;
    put_shards(files, -1);
    put_st(files, "m/more.safetensors", SHARD("[2,0]", "w", "[2,2]", "4"), 4, 0);
    assert_status(DTP_ERR_CORRUPT, open_at(files, "m", &l));
    assert_text("element [2, 0] is there 2 times");
}

static void test_broken_sharding_info_is_refused(void **state)
{
    static const char *const infos[] = { "[0]", "[0,0,0]", "[-1,0]", "[0,9223372036854775807]",
                                         "[0,1.5]", "{}", "[0,[0]]", "[0,18446744073709551615]" };
    char head[400];

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(infos); i++) {
        DTPI_AUTO(files) dtpi_files *files = fresh_files();
        dtpi_load *l = NULL;
        snprintf(head, sizeof(head), SHARD("%s", "w", "[2,2]", "4"), infos[i]);
        put_st(files, "m/x.safetensors", head, 4, 0);
        assert_status(DTP_ERR_FORMAT, open_at(files, "m", &l));
    }
}

static void test_a_gap_in_a_numbered_series_is_named(void **state)
{
    static const char *const names[] = { "m/model-00001-of-00003.safetensors",
                                         "m/model-00002-of-00003.safetensors",
                                         "m/model-00003-of-00003.safetensors" };
    static const char *const heads[] = { ONE("a", "[1]", "1"), ONE("b", "[1]", "1"),
                                         ONE("c", "[1]", "1") };
    char text[40];

    (void)state;
    for (int skip = 0; skip < 3; skip++) {
        DTPI_AUTO(files) dtpi_files *files = fresh_files();
        dtpi_load *l = NULL;
        for (int i = 0; i < 3; i++)
            if (i != skip)
                put_st(files, names[i], heads[i], 1, 0);
        assert_status(DTP_ERR_NOT_FOUND, open_at(files, "m", &l));
        snprintf(text, sizeof(text), "file %d of 3 of model-", skip + 1);
        assert_text(text);
    }
}

static void test_a_series_may_count_from_zero(void **state)
{
    static const char *const names[] = { "m/model-00000-of-00003.safetensors",
                                         "m/model-00001-of-00003.safetensors",
                                         "m/model-00002-of-00003.safetensors" };
    static const char *const heads[] = { ONE("a", "[1]", "1"), ONE("b", "[1]", "1"),
                                         ONE("c", "[1]", "1") };
    /* Without its first file it is one from 1 that lacks its last. */
    static const char *const says[] = { "file 3 of 3", "file 1 of 3", "file 2 of 3" };

    (void)state;
    for (int skip = -1; skip < 3; skip++) {
        DTPI_AUTO(files) dtpi_files *files = fresh_files();
        DTPI_AUTO(load) dtpi_load *l = NULL;
        for (int i = 0; i < 3; i++)
            if (i != skip)
                put_st(files, names[i], heads[i], 1, 0);
        if (skip < 0) {
            assert_ok(open_at(files, "m", &l));
            continue;
        }
        assert_status(DTP_ERR_NOT_FOUND, open_at(files, "m", &l));
        assert_text(says[skip]);
    }
}

static void test_a_series_may_have_of_in_its_name(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    dtpi_load *l = NULL;

    (void)state;
    put_st(files, "m/best-of-n-00001-of-00003.safetensors", ONE("a", "[1]", "1"), 1, 0);
    put_st(files, "m/best-of-n-00003-of-00003.safetensors", ONE("c", "[1]", "1"), 1, 0);
    assert_status(DTP_ERR_NOT_FOUND, open_at(files, "m", &l));
    assert_text("file 2 of 3 of best-of-n-");
}

static void test_one_file_of_a_series_is_no_folder(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    dtpi_load *l = NULL;

    (void)state;
    put_st(files, "m/model-00001-of-00002.safetensors", ONE("a", "[1]", "1"), 1, 0);
    assert_status(DTP_ERR_NOT_FOUND, open_at(files, "m", &l));
    assert_text("file 2 of 2 of model-");
    /* Who names the file wants no more. */
    assert_ok(open_at(files, "m/model-00001-of-00002.safetensors", &l));
    dtpi_load_close(l);
}

static void test_a_file_that_is_refused_is_named(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    dtpi_load *l = NULL;

    (void)state;
    put_st(files, "m/noname.safetensors", ONE("", "[1]", "1"), 1, 0);
    assert_status(DTP_ERR_LIMIT, open_at(files, "m/noname.safetensors", &l));
    assert_text("m/noname.safetensors: a tensor's name has 0 bytes");
    put_st(files, "m/dims.safetensors", ONE("w", "[1,1,1,1,1,1,1,1,1]", "1"), 1, 0);
    assert_status(DTP_ERR_UNSUPPORTED, open_at(files, "m/dims.safetensors", &l));
    assert_text("m/dims.safetensors: tensor w has 9 dimensions");
}

static void test_what_is_no_checkpoint_is_said(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    bool made = false;
    dtpi_load *l = NULL;

    (void)state;
    assert_status(DTP_ERR_NOT_FOUND, open_at(files, "nothing", &l));
    assert_status(DTP_ERR_FORMAT, open_at(files, "m", &l));
    assert_text("holds no checkpoint");
    assert_ok(files->ops->make_dir(files, "d", &made, ERR));
    put_text(files, "d/__0_0.distcp", "PK");
    assert_status(DTP_ERR_FORMAT, open_at(files, "d", &l));
    assert_text("d has *.distcp files, but no .metadata");
    assert_ok(files->ops->make_dir(files, "m/step-00000000000000000007", &made, ERR));
    assert_status(DTP_ERR_INVAL, open_at(files, "m", &l));
    assert_text("holds steps");
    put_text(files, "m/short", "abc");
    assert_status(DTP_ERR_TRUNCATED, open_at(files, "m/short", &l));
    put_text(files, "m/text", "hello, this is no checkpoint at all");
    assert_status(DTP_ERR_LIMIT, open_at(files, "m/text", &l));
}

/* ---- descriptors ---- */

static int n_now, n_most;
static struct dtpi_files_ops real_ops;

static dtp_status counted_open(dtpi_files *files, const char *path, dtpi_file **file_out,
                               uint64_t *bytes_out, dtp_error *err)
{
    const dtp_status st = real_ops.open(files, path, file_out, bytes_out, err);

    n_now += st >= 0;
    n_most = DTPI_MAX(n_most, n_now);
    return st;
}

static dtp_status counted_close(dtpi_file *file, dtp_error *err)
{
    n_now--;
    return real_ops.close_file(file, err);
}

static void test_a_load_of_many_files_has_few_of_them_open(void **state)
{
    enum { N = 3 * DTPI_LOAD_FILES };
    struct dtpi_files_ops ops;  /* outlives the files that use it */
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    static char names[N][8];
    static uint8_t got[N];
    static dtp_ckpt_tensor t[N];
    dtpi_load *l = NULL;

    (void)state;
    for (int i = 0; i < N; i++) {
        char path[64], header[128];
        snprintf(names[i], sizeof(names[i]), "t%03d", i);
        snprintf(path, sizeof(path), "m/f%03d.safetensors", i);
        snprintf(header, sizeof(header), "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 names[i]);
        put_st(files, path, header, 1, (uint8_t)(i * 7));
        t[i] = (dtp_ckpt_tensor){ sizeof(t[i]), names[i], DTP_U8, 1, NULL, NULL, NULL, &got[i] };
    }
    real_ops = ops = *files->ops;
    ops.open = counted_open;
    ops.close_file = counted_close;
    files->ops = &ops;
    assert_ok(open_at(files, "m", &l));
    assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
    assert_ok(dtpi_load_read_all(l, t, N, ERR));
    for (int i = 0; i < N; i++)
        assert_int_equal(got[i], (uint8_t)(i * 7));
    assert_in_range(n_most, 1, DTPI_LOAD_FILES);
    dtpi_load_close(l);
    assert_int_equal(n_now, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_alone_is_read),
        cmocka_unit_test(test_an_index_says_which_file_has_what),
        cmocka_unit_test(test_what_the_index_promises_must_be_there),
        cmocka_unit_test(test_an_index_of_nothing_is_an_empty_checkpoint),
        cmocka_unit_test(test_an_index_cannot_lead_out_of_its_folder),
        cmocka_unit_test(test_broken_indexes_are_refused),
        cmocka_unit_test(test_shards_join_by_their_offsets),
        cmocka_unit_test(test_a_missing_shard_leaves_a_hole),
        cmocka_unit_test(test_a_shard_twice_is_refused),
        cmocka_unit_test(test_broken_sharding_info_is_refused),
        cmocka_unit_test(test_a_gap_in_a_numbered_series_is_named),
        cmocka_unit_test(test_a_series_may_count_from_zero),
        cmocka_unit_test(test_a_series_may_have_of_in_its_name),
        cmocka_unit_test(test_one_file_of_a_series_is_no_folder),
        cmocka_unit_test(test_a_file_that_is_refused_is_named),
        cmocka_unit_test(test_what_is_no_checkpoint_is_said),
        cmocka_unit_test(test_a_load_of_many_files_has_few_of_them_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
