/* SPDX-License-Identifier: Apache-2.0 */
/* A shard's data comes out the same whoever helps, and the first failure is told. */
#include "check.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/sum.h"
#include "ckpt/pour.h"
#include "ckpt/team.h"
#include "files/mem.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

enum { CHUNK = 64 << 10, BYTES = 6 << 20, N_ITEMS = 7, AT = 4096 };

/* Of chunk and unit sizes, and between. */
static const uint64_t lengths[N_ITEMS] = { 10, CHUNK, 0, 3 * CHUNK + 5, (2 << 20) + 3, 2 << 20, 77 };

static uint8_t data[BYTES];

static dtp_ctx *open_ctx(uint32_t n_threads)
{
    dtp_ctx_opts opts = { .size = sizeof(opts), .n_pool_threads = n_threads };
    dtp_ctx *ctx = NULL;

    assert_ok(dtp_ctx_open(&opts, &ctx, ERR));
    return ctx;
}

static void fill(uint64_t seed)
{
    /* Like bf16 weights: one byte of two says little. */
    for (size_t i = 0; i < BYTES; i += 2) {
        const uint64_t r = check_random(&seed);
        data[i] = (uint8_t)r;
        data[i + 1] = (uint8_t)(0x3c + (r >> 60) % 4);
    }
}

/* Every other byte, as if the rest were somewhere else. */
static dtp_status store_half(const dtpi_pour_item *item, uint64_t i, dtpi_codec *codec,
                             const uint8_t *from, size_t bytes, uint8_t *scratch,
                             const void **stored_out, size_t *n_out, dtp_error *err)
{
    (void)codec;
    (void)err;
    assert_ptr_equal(from, item->data + i * CHUNK);
    *n_out = (bytes + 1) / 2;
    for (size_t k = 0; k < *n_out; k++)
        scratch[k] = from[2 * k];
    *stored_out = scratch;
    return DTP_OK;
}

static size_t make_items(dtpi_pour_item *items)
{
    size_t at = 0;

    for (size_t i = 0; i < N_ITEMS; i++) {
        items[i] = (dtpi_pour_item){ .data = data + at, .bytes = lengths[i], .dtype = DTP_BF16 };
        at += lengths[i];
    }
    items[3].store = store_half;
    return at;
}

/* Everything that comes out as one sum. */
static uint64_t pour(dtp_ctx *ctx, const char *codec)
{
    DTPI_AUTO(files) dtpi_files *files = NULL;
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(A);
    static uint64_t sums[256];
    static uint32_t sizes[256];
    dtpi_pour_item items[N_ITEMS];
    dtpi_file *file = NULL;
    uint64_t end = 0, all = 0;

    const size_t bytes = make_items(items);
    assert_ok(dtpi_files_mem_open(A, &files, ERR));
    assert_ok(files->ops->create(files, "x", 0, &file, ERR));
    const dtpi_pour in = { A, ctx, files, file, AT, codec, CHUNK, items, N_ITEMS, sums, sizes, NULL };
    const uint64_t n = dtpi_pour_chunks(&in);
    assert_in_range(n, 1, 255);
    assert_ok(dtpi_pour_run(&in, &end, ERR));
    for (uint64_t i = 0; i < n; i++)
        all += sizes[i];
    assert_int_equal(end, AT + all);
    if (strcmp(codec, "none") == 0)
        assert_int_equal(all, bytes);
    else
        assert_in_range(all, 1, bytes * 9 / 10);
    assert_ok(files->ops->close_file(file, ERR));
    assert_ok(dtpi_files_read_all(files, "x", 1 << 24, &text, ERR));
    assert_int_equal(text.len, end);
    uint64_t at = AT;
    for (uint64_t i = 0; i < n; at += sizes[i++])
        assert_int_equal(sums[i], dtpi_sum64(text.data + at, sizes[i]));
    dtpi_buf_append(&text, sums, n * sizeof(*sums));
    dtpi_buf_append(&text, sizes, n * sizeof(*sizes));
    return dtpi_sum64(text.data, text.len);
}

static void test_bytes_do_not_depend_on_the_number_of_threads(void **state)
{
    static const char *const codecs[] = { "none", "zstd", "planes" };

    (void)state;
    fill(check_seed());
    for (size_t c = 0; c < DTPI_ARRAY_LEN(codecs); c++) {
        const uint64_t alone = pour(NULL, codecs[c]);
        for (uint32_t n = 1; n <= 4; n++) {
            dtp_ctx *ctx = open_ctx(n);
            for (int round = 0; round < 3; round++)
                assert_int_equal(pour(ctx, codecs[c]), alone);
            dtp_ctx_close(ctx);
        }
    }
}

static dtp_status refuse(const dtpi_pour_item *item, uint64_t i, dtpi_codec *codec, const uint8_t *from,
                         size_t bytes, uint8_t *scratch, const void **stored_out, size_t *n_out,
                         dtp_error *err)
{
    (void)codec;
    (void)scratch;
    *stored_out = from;
    *n_out = bytes;
    if (i % 40 == 39)
        return dtpi_fail(err, DTP_ERR_CORRUPT, "chunk %d of item %s", (int)i, (char *)item->user);
    return DTP_OK;
}

static void test_the_first_failure_is_told(void **state)
{
    dtp_ctx *ctx = open_ctx(4);
    static uint64_t sums[256];
    static uint32_t sizes[256];
    char names[2][2] = { "a", "b" };

    (void)state;
    for (int round = 0; round < 20; round++) {
        DTPI_AUTO(files) dtpi_files *files = NULL;
        dtpi_file *file = NULL;
        uint64_t end = 0;
        dtpi_pour_item items[2];
        for (int i = 0; i < 2; i++)
            items[i] = (dtpi_pour_item){ data, BYTES, DTP_U8, refuse, names[i] };
        assert_ok(dtpi_files_mem_open(A, &files, ERR));
        assert_ok(files->ops->create(files, "x", 0, &file, ERR));
        const dtpi_pour in = { A,    ctx,   files, file, 0, round % 2 ? "zstd" : "planes", CHUNK,
                               items, 2,     sums,  sizes, NULL };
        assert_status(DTP_ERR_CORRUPT, dtpi_pour_run(&in, &end, ERR));
        assert_text("chunk 39 of item a");
        dtpi_file_drop(file);
    }
    dtp_ctx_close(ctx);
}

static void test_a_failed_write_is_told(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = NULL;
    static uint64_t sums[256];
    static uint32_t sizes[256];
    dtpi_pour_item items[N_ITEMS];
    dtpi_file *file = NULL;
    uint64_t end = 0;

    (void)state;
    make_items(items);
    assert_ok(dtpi_files_mem_open(A, &files, ERR));
    assert_ok(files->ops->create(files, "x", 0, &file, ERR));
    dtpi_files_mem_fail(files, 2, EIO);
    const dtpi_pour in = { A, NULL, files, file, AT, "none", CHUNK, items, N_ITEMS, sums, sizes, NULL };
    assert_status(DTP_ERR_IO, dtpi_pour_run(&in, &end, ERR));
    assert_text("cannot write x");
    dtpi_file_drop(file);
}

static void test_nothing_is_poured_where_nothing_is(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = NULL;
    const dtpi_pour_item none = { .dtype = DTP_U8 };
    dtpi_file *file = NULL;
    uint64_t end = 0;

    (void)state;
    assert_ok(dtpi_files_mem_open(A, &files, ERR));
    assert_ok(files->ops->create(files, "x", 0, &file, ERR));
    const dtpi_pour in = { A, NULL, files, file, AT, "planes", CHUNK, &none, 1, NULL, NULL, NULL };
    assert_ok(dtpi_pour_run(&in, &end, ERR));
    assert_int_equal(end, AT);
    dtpi_file_drop(file);
}

typedef struct hold {
    dtpi_work work;
    pthread_mutex_t mutex;
} hold;

static void hold_work(dtpi_work *w)
{
    hold *h = DTPI_CONTAINER(w, hold, work);

    pthread_mutex_lock(&h->mutex);
    pthread_mutex_unlock(&h->mutex);
}

static void count(void *user, uint32_t member)
{
    (void)member;
    atomic_fetch_add((atomic_int *)user, 1);
}

static void test_a_busy_pool_holds_nobody_up(void **state)
{
    dtp_ctx *ctx = open_ctx(1);
    hold h = { .work = { .work = hold_work }, .mutex = PTHREAD_MUTEX_INITIALIZER };
    atomic_int n = 0;

    (void)state;
    pthread_mutex_lock(&h.mutex);
    assert_ok(dtpi_pool_submit(ctx, &h.work, ERR));
    assert_ok(dtpi_team_run(ctx, 4, count, &n, ERR));
    assert_int_equal(atomic_load(&n), 1);
    pthread_mutex_unlock(&h.mutex);
    dtp_ctx_close(ctx);
    assert_int_equal(atomic_load(&n), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(test_the_first_failure_is_told),
        cmocka_unit_test(test_a_failed_write_is_told),
        cmocka_unit_test(test_nothing_is_poured_where_nothing_is),
        cmocka_unit_test(test_a_busy_pool_holds_nobody_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
