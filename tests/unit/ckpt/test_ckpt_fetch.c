/* SPDX-License-Identifier: Apache-2.0 */
/* Many boxes read at once, by one thread or several, from memory or a disk. */
#include "check.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "ckpt/fetch.h"
#include "ckpt/steps.h"
#include "ranks.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;
static char base[] = "/tmp/dtp-test-fetch-XXXXXX";

enum { ROWS = 96, COLUMNS = 1030, N_SMALL = 40, N_RANKS = 3 };

static const int64_t matrix[2] = { ROWS, COLUMNS }, small[1] = { 37 };
static char names[N_SMALL][8];

static dtp_ctx *open_ctx(uint32_t n_threads)
{
    dtp_ctx_opts opts = { .size = sizeof(opts), .n_pool_threads = n_threads };
    dtp_ctx *ctx = NULL;

    assert_ok(dtp_ctx_open(&opts, &ctx, ERR));
    return ctx;
}

/* A matrix cut by rows, and many small tensors. */
static void save(dtpi_files *files, const char *dir, dtp_codec codec, uint64_t step)
{
    static rank_run ranks[N_RANKS];
    static int64_t offset[N_RANKS][2], extent[N_RANKS][2];

    ranks_init(ranks, N_RANKS, files, dir);
    for (int32_t i = 0; i < N_RANKS; i++) {
        offset[i][0] = i * (ROWS / N_RANKS);
        extent[i][0] = ROWS / N_RANKS;
        extent[i][1] = COLUMNS;
        ranks[i].opts.codec = codec;
        ranks[i].opts.chunk_bytes = 8192;
        ranks[i].opts.no_sync = 1;
        give(&ranks[i], "matrix", DTP_F32, 2, matrix, offset[i], extent[i], 7);
        give(&ranks[i], "again", DTP_BF16, 2, matrix, offset[i], extent[i], 8);
    }
    for (int k = 0; k < N_SMALL; k++) {
        snprintf(names[k], sizeof(names[k]), "s%02d", k);
        give(&ranks[k % N_RANKS], names[k], DTP_F32, 1, small, NULL, NULL, 100 + (uint64_t)k);
    }
    assert_ok(ranks_save(ranks, N_RANKS, step));
    ranks_free(ranks, N_RANKS);
}

/* A random box of the matrix, or a small tensor whole. */
static void want(dtp_ckpt_tensor *t, uint64_t *seed, int64_t box[4])
{
    static const int64_t zero[1];
    const uint64_t kind = check_random(seed) % 4;

    if (kind == 3) {
        const int k = (int)(check_random(seed) % N_SMALL);
        *t = (dtp_ckpt_tensor){ sizeof(*t), names[k], DTP_F32, 1, small, zero, small, NULL };
        return;
    }
    for (int d = 0; d < 2; d++) {
        box[d] = (int64_t)(check_random(seed) % (uint64_t)matrix[d]);
        box[2 + d] = 1 + (int64_t)(check_random(seed) % (uint64_t)(matrix[d] - box[d]));
    }
    if (kind == 1) {
        box[1] = 0;
        box[3] = COLUMNS;
    }
    *t = (dtp_ckpt_tensor){ sizeof(*t), kind == 2 ? "again" : "matrix",
                            kind == 2 ? DTP_BF16 : DTP_F32, 2, matrix, box, box + 2, NULL };
}

static uint64_t seed_of(const dtp_ckpt_tensor *t)
{
    return strcmp(t->name, "matrix") == 0 ? 7
           : strcmp(t->name, "again") == 0
               ? 8
               : 100 + (uint64_t)(t->name[1] - '0') * 10 + (uint64_t)(t->name[2] - '0');
}

static void read_many(dtpi_load *l, uint64_t *seed)
{
    enum { N = 30 };
    dtp_ckpt_tensor t[N];
    int64_t boxes[N][4];

    for (int i = 0; i < N; i++) {
        want(&t[i], seed, boxes[i]);
        t[i].data = malloc(box_bytes(&t[i]) + 1);
        memset(t[i].data, 0xee, box_bytes(&t[i]) + 1);
    }
    assert_ok(dtpi_load_read_all(l, t, N, ERR));
    for (int i = 0; i < N; i++) {
        const uint64_t bytes = box_bytes(&t[i]);
        uint8_t *known = malloc(bytes + 1);
        fill_box(&t[i], seed_of(&t[i]), known);
        assert_memory_equal(t[i].data, known, bytes);
        assert_int_equal(((uint8_t *)t[i].data)[bytes], 0xee);
        free(known);
        free(t[i].data);
    }
}

static void test_boxes_come_back_whoever_reads_them(void **state)
{
    static const dtp_codec codecs[] = { DTP_CODEC_NONE, DTP_CODEC_ZSTD, DTP_CODEC_PLANES };
    uint64_t seed = check_seed();

    (void)state;
    for (int k = 0; k < 6; k++) {
        DTPI_AUTO(files) dtpi_files *files = NULL;
        DTPI_AUTO(load) dtpi_load *l = NULL;
        dtp_ctx *ctx = open_ctx(k < 3 ? 4 : 1);
        const char *dir = k < 3 ? base : "ck";
        if (k < 3)
            assert_ok(dtpi_files_open(A, NULL, &files, ERR));
        else
            files = mem_files();
        save(files, dir, codecs[k % 3], (uint64_t)k);
        assert_ok(dtpi_load_open(A, files, dir, (uint64_t)k, &l, ERR));
        l->ctx = ctx;
        for (int round = 0; round < 6; round++) {
            l->checks = round % 2 ? DTP_CKPT_CHECK_WHOLE : DTP_CKPT_CHECK_ALL;
            read_many(l, &seed);
        }
        assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
        dtp_ctx_close(ctx);
    }
}

/* ---- what is read ---- */

static atomic_uint_fast64_t n_bytes, n_reads;
static dtp_status (*real_read)(dtpi_file *file, uint64_t at, void *data, size_t bytes,
                               dtp_error *err);

static dtp_status counted_read(dtpi_file *file, uint64_t at, void *data, size_t bytes,
                               dtp_error *err)
{
    atomic_fetch_add(&n_bytes, bytes);
    atomic_fetch_add(&n_reads, 1);
    return real_read(file, at, data, bytes, err);
}

static void test_a_load_reads_little_more_than_it_needs(void **state)
{
    struct dtpi_files_ops ops;  /* outlives the files that use it */
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    DTPI_AUTO(load) dtpi_load *l = NULL;
    dtp_ckpt_tensor t[N_SMALL + 1];
    uint64_t wanted = 0;

    (void)state;
    save(files, "ck", DTP_CODEC_NONE, 1);
    ops = *files->ops;
    real_read = ops.read;
    ops.read = counted_read;
    files->ops = &ops;
    assert_ok(dtpi_load_open(A, files, "ck", 1, &l, ERR));

    /* Rows: whole chunks, and the ends of two. */
    static const int64_t offset[2] = { 4, 0 }, extent[2] = { ROWS - 4, COLUMNS }, zero[1];
    t[0] = (dtp_ckpt_tensor){ sizeof(*t), "matrix", DTP_F32, 2, matrix, offset, extent, NULL };
    t[0].data = malloc(box_bytes(&t[0]));
    assert_ok(dtpi_load_read_all(l, t, 1, ERR));    /* reads the parts, too */
    atomic_store(&n_bytes, 0);
    assert_ok(dtpi_load_read_all(l, t, 1, ERR));
    assert_in_range(atomic_load(&n_bytes), box_bytes(&t[0]), box_bytes(&t[0]) + 3 * 8192);

    /* Columns, unchecked: nothing else. */
    static const int64_t second[2] = { 0, 300 }, columns[2] = { ROWS, 100 };
    dtp_ckpt_tensor c = { sizeof(c), "matrix", DTP_F32, 2, matrix, second, columns, t[0].data };
    l->checks = DTP_CKPT_CHECK_WHOLE;
    atomic_store(&n_bytes, 0);
    assert_ok(dtpi_load_read_all(l, &c, 1, ERR));
    assert_int_equal(atomic_load(&n_bytes), box_bytes(&c));
    l->checks = DTP_CKPT_CHECK_ALL;

    /* Small neighbours: one read a file. */
    for (int i = 0; i < N_SMALL; i++) {
        t[1 + i] = (dtp_ckpt_tensor){ sizeof(*t), names[i], DTP_F32, 1, small, zero, small, NULL };
        t[1 + i].data = malloc(box_bytes(&t[1 + i]));
        wanted += box_bytes(&t[1 + i]);
    }
    atomic_store(&n_bytes, 0);
    atomic_store(&n_reads, 0);
    assert_ok(dtpi_load_read_all(l, t + 1, N_SMALL, ERR));
    assert_int_equal(atomic_load(&n_bytes), wanted);
    assert_in_range(atomic_load(&n_reads), 1, N_RANKS);
    for (int i = 0; i <= N_SMALL; i++)
        free(t[i].data);
}

/* ---- damage ---- */

static dtp_status each_shard(void *user, const char *name, dtp_error *err)
{
    (void)err;
    if (strncmp(name, "shard-00001", 11) == 0)
        strcpy(user, name);
    return DTP_OK;
}

static void test_damage_names_file_tensor_and_chunk(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    char step_dir[DTPI_PATH_MAX], name[256] = "", path[DTPI_PATH_MAX];
    uint64_t bytes;

    (void)state;
    save(files, "ck", DTP_CODEC_NONE, 1);
    assert_ok(dtpi_step_path(step_dir, "ck", 1, ERR));
    assert_ok(files->ops->list(files, step_dir, each_shard, name, ERR));
    assert_ok(dtpi_path_join(path, step_dir, name, ERR));
    assert_ok(files->ops->size(files, path, &bytes, ERR));
    /* The header takes at least a block; wide numbers come first, so this hits the matrix. */
    assert_ok(dtpi_files_mem_flip(files, path, bytes / 2, 0x10, ERR));
    for (uint32_t n = 0; n <= 4; n += 4) {
        DTPI_AUTO(load) dtpi_load *l = NULL;
        dtp_ctx *ctx = n ? open_ctx(n) : NULL;
        dtp_ckpt_tensor t = { sizeof(t), "matrix", DTP_F32, 2, matrix, NULL, NULL, NULL };
        assert_ok(dtpi_load_open(A, files, "ck", 1, &l, ERR));
        l->ctx = ctx;
        t.data = malloc(ROWS * COLUMNS * 4);
        assert_status(DTP_ERR_CORRUPT, dtpi_load_read_all(l, &t, 1, ERR));
        assert_text(name);
        assert_text("tensor matrix: chunk ");
        assert_text("checksum mismatch");
        assert_status(DTP_ERR_CORRUPT, dtpi_load_verify(l, NULL, NULL, ERR));
        assert_text("tensor matrix: chunk ");
        free(t.data);
        dtp_ctx_close(ctx);
    }
}

static void test_a_failed_read_names_file_tensor_and_chunk(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    DTPI_AUTO(load) dtpi_load *l = NULL;
    dtp_ckpt_tensor t = { sizeof(t), "again", DTP_BF16, 2, matrix, NULL, NULL, NULL };

    (void)state;
    save(files, "ck", DTP_CODEC_NONE, 1);
    assert_ok(dtpi_load_open(A, files, "ck", 1, &l, ERR));
    t.data = malloc(ROWS * COLUMNS * 2);
    assert_ok(dtpi_load_read_all(l, &t, 1, ERR));
    dtpi_files_mem_fail(files, 1, EIO);
    assert_status(DTP_ERR_IO, dtpi_load_read_all(l, &t, 1, ERR));
    assert_text("shard-00000-of-00003");
    assert_text("Input/output error (tensor again: chunk 0)");
    assert_int_equal(check_err.sys_errno, EIO);

    /* In pieces, too. */
    static const int64_t second[2] = { 0, 300 }, columns[2] = { ROWS, 100 };
    t.offset = second;
    t.extent = columns;
    l->checks = DTP_CKPT_CHECK_WHOLE;
    dtpi_files_mem_fail(files, 1, EIO);
    assert_status(DTP_ERR_IO, dtpi_load_read_all(l, &t, 1, ERR));
    assert_text("Input/output error (tensor again: chunk 0)");
    free(t.data);
}

static void test_a_walk_seeks_to_the_run_that_ends_behind(void **state)
{
    static const int64_t zero[3], from[3] = { 5, 4, 6 }, offset[3] = { 1, 1, 2 }, extent[3] = { 3, 2, 3 };

    (void)state;
    for (uint64_t at = 0; at <= 5 * 4 * 6; at++) {
        dtpi_walk slow, fast;
        dtpi_walk_begin(&slow, 3, zero, from, offset, extent, offset, extent);
        fast = slow;
        while (!slow.done && slow.from + slow.run <= at)
            dtpi_walk_next(&slow);
        dtpi_walk_seek(&fast, at);
        assert_int_equal(fast.done, slow.done);
        if (!slow.done) {
            assert_int_equal(fast.from, slow.from);
            assert_int_equal(fast.to, slow.to);
            dtpi_walk_next(&slow);
            dtpi_walk_next(&fast);
            assert_int_equal(fast.done, slow.done);
            assert_true(slow.done || fast.from == slow.from);
        }
    }
}

static int make_base(void **state)
{
    (void)state;
    return mkdtemp(base) ? 0 : -1;
}

static int drop_base(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", base);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boxes_come_back_whoever_reads_them),
        cmocka_unit_test(test_a_load_reads_little_more_than_it_needs),
        cmocka_unit_test(test_damage_names_file_tensor_and_chunk),
        cmocka_unit_test(test_a_failed_read_names_file_tensor_and_chunk),
        cmocka_unit_test(test_a_walk_seeks_to_the_run_that_ends_behind),
    };
    return cmocka_run_group_tests(tests, make_base, drop_base);
}
