/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a node that read the same chunks: what each gets, and how much is read. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

#include "ckpt/share.h"
#include "ckpt/steps.h"
#include "ranks.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

enum { ROWS = 96, COLUMNS = 1030, SAVERS = 3, READERS = 4 };

static const int64_t matrix[2] = { ROWS, COLUMNS };

static atomic_uint_fast64_t n_bytes;
static dtp_status (*real_read)(dtpi_file *file, uint64_t at, void *data, size_t bytes,
                               dtp_error *err);

static dtp_status counted_read(dtpi_file *file, uint64_t at, void *data, size_t bytes,
                               dtp_error *err)
{
    atomic_fetch_add(&n_bytes, bytes);
    return real_read(file, at, data, bytes, err);
}

/* Two matrices cut by rows, and readers that share memory. */
typedef struct node {
    struct dtpi_files_ops ops;
    dtpi_files *files;
    void *memory;
    dtpi_load *l[READERS];
} node;

static void save(dtpi_files *files, dtp_codec codec, uint64_t step)
{
    static rank_run ranks[SAVERS];
    static int64_t offset[SAVERS][2], extent[SAVERS][2];

    ranks_init(ranks, SAVERS, files, "ck");
    for (int32_t i = 0; i < SAVERS; i++) {
        offset[i][0] = i * (ROWS / SAVERS);
        extent[i][0] = ROWS / SAVERS;
        extent[i][1] = COLUMNS;
        ranks[i].opts.codec = codec;
        ranks[i].opts.chunk_bytes = 4096;
        ranks[i].opts.no_sync = 1;
        give(&ranks[i], "first", DTP_F32, 2, matrix, offset[i], extent[i], 7);
        give(&ranks[i], "second", DTP_BF16, 2, matrix, offset[i], extent[i], 8);
    }
    assert_ok(ranks_save(ranks, SAVERS, step));
    ranks_free(ranks, SAVERS);
}

static void join(node *n, int reader, uint64_t step)
{
    dtpi_load *l = NULL;

    assert_ok(dtpi_load_open(A, n->files, "ck", step, &l, ERR));
    if (!n->memory) {
        n->memory = dtpi_alloc_aligned(A, dtpi_share_bytes(&l->m, READERS), 4096);
        memset(n->memory, 0, dtpi_share_bytes(&l->m, READERS));
    }
    assert_ok(dtpi_share_new(A, &l->m, n->memory, READERS, (uint32_t)reader, &l->share, ERR));
    n->l[reader] = l;
}

static void open_node(node *n, dtp_codec codec)
{
    *n = (node){ .files = mem_files() };
    n->ops = *n->files->ops;
    save(n->files, codec, 1);
    save(n->files, codec, 2);
    real_read = n->ops.read;
    n->ops.read = counted_read;
    n->files->ops = &n->ops;
}

static void close_node(node *n)
{
    const size_t bytes = dtpi_share_bytes(&n->l[0]->m, READERS);

    for (int i = 0; i < READERS; i++) {
        if (n->l[i])
            dtpi_share_free(n->l[i]->share);
        if (i > 0)
            dtpi_load_close(n->l[i]);
    }
    dtpi_load_close(n->l[0]);
    dtpi_free(A, n->memory, bytes);
    dtpi_files_close(n->files);
}

/* A box of a matrix: what it should be is what comes back. */
static dtp_status read_box(dtpi_load *l, bool second, const int64_t box[4], dtp_error *err)
{
    dtp_ckpt_tensor t = { sizeof(t), second ? "second" : "first", second ? DTP_BF16 : DTP_F32, 2,
                          matrix, box, box + 2, NULL };
    const uint64_t bytes = box_bytes(&t);
    uint8_t *known = malloc(bytes);

    t.data = calloc(bytes, 1);
    const dtp_status st = dtpi_load_read(l, &t, err);
    if (st >= 0) {
        fill_box(&t, second ? 8 : 7, known);
        assert_memory_equal(t.data, known, bytes);
    }
    free(known);
    free(t.data);
    return st;
}

static const int64_t left[4] = { 0, 0, ROWS, 500 }, right[4] = { 0, 530, ROWS, 500 };
/* 32 chunks of the first saver: fewer than there are slots. */
static const int64_t few[4] = { 0, 0, ROWS / SAVERS, 500 };

static void test_a_chunk_is_read_by_the_first_who_wants_it(void **state)
{
    node n;

    (void)state;
    for (int codec = DTP_CODEC_NONE; codec <= DTP_CODEC_PLANES; codec++) {
        open_node(&n, (dtp_codec)codec);
        join(&n, 0, 1);
        join(&n, 1, 1);
        for (int i = 0; i < 2; i++)         /* opens files, reads parts */
            assert_ok(read_box(n.l[i], true, few, ERR));
        assert_ok(read_box(n.l[0], false, few, ERR));
        atomic_store(&n_bytes, 0);
        assert_ok(read_box(n.l[1], false, few, ERR));
        assert_int_equal(atomic_load(&n_bytes), 0);
        close_node(&n);
    }
}

static void test_who_is_far_behind_holds_nobody_up(void **state)
{
    node n;

    (void)state;
    open_node(&n, DTP_CODEC_PLANES);
    join(&n, 0, 1);
    join(&n, 1, 1);             /* and never reads */
    assert_ok(read_box(n.l[0], false, left, ERR));
    assert_ok(read_box(n.l[0], true, right, ERR));
    /* Now it does, and finds chunks that are not its next. */
    assert_ok(read_box(n.l[1], false, right, ERR));
    close_node(&n);
}

static void test_a_reader_of_another_step_reads_alone(void **state)
{
    node n;

    (void)state;
    open_node(&n, DTP_CODEC_NONE);
    join(&n, 0, 1);
    join(&n, 1, 2);
    assert_ok(read_box(n.l[0], false, few, ERR));
    assert_ok(read_box(n.l[1], true, few, ERR));
    atomic_store(&n_bytes, 0);
    assert_ok(read_box(n.l[1], false, few, ERR));
    assert_in_range(atomic_load(&n_bytes), (uint64_t)(ROWS / SAVERS) * COLUMNS * 4 - 4096, UINT64_MAX);
    close_node(&n);
}

/* Words of the shared memory lie in lines of 128 bytes: the key, places, tags. */
static _Atomic uint64_t *word_at(const node *n, int i)
{
    return (void *)((uint8_t *)n->memory + (size_t)i * 128);
}

/* The claim of a reader that died is never filled. */
static void test_a_claim_that_is_never_filled_is_given_up(void **state)
{
    node n;

    (void)state;
    open_node(&n, DTP_CODEC_NONE);
    join(&n, 0, 1);
    join(&n, 1, 1);
    /* The tag of chunk 0. */
    atomic_store(word_at(&n, 1 + READERS), 1 << 2 | 1);
    assert_ok(read_box(n.l[0], false, few, ERR));
    assert_ok(read_box(n.l[1], false, few, ERR));
    close_node(&n);
}

/* One who starts late reads ahead while it waits for its first chunk, and the one in front copies from a slot. */
static void test_what_one_in_front_copies_from_is_not_written(void **state)
{
    enum { SLOTS = 64, AHEAD = SLOTS + 5, READY = 2, CLAIMED = 1 };
    uint8_t was[4096];
    node n;

    (void)state;
    open_node(&n, DTP_CODEC_NONE);
    join(&n, 0, 1);
    const size_t bytes = dtpi_share_bytes(&n.l[0]->m, READERS);
    uint8_t *slot = (uint8_t *)n.memory + bytes - (SLOTS - 5) * sizeof(was);
    memset(slot, 0xa5, sizeof(was));
    memcpy(was, slot, sizeof(was));
    atomic_store(word_at(&n, 1 + 2), AHEAD);
    atomic_store(word_at(&n, 1 + READERS), 1 << 2 | CLAIMED);
    atomic_store(word_at(&n, 1 + READERS + 5), (AHEAD + 1) << 2 | READY);
    for (int i = 1; i < READERS; i++)
        if (i != 2)
            atomic_store(word_at(&n, 1 + i), UINT64_MAX);
    assert_ok(read_box(n.l[0], false, few, ERR));
    assert_int_equal(atomic_load(word_at(&n, 1 + READERS + 5)), (AHEAD + 1) << 2 | READY);
    assert_memory_equal(slot, was, sizeof(was));
    close_node(&n);
}

static dtp_status bad_read(dtpi_file *file, uint64_t at, void *data, size_t bytes, dtp_error *err)
{
    const dtp_status st = real_read(file, at, data, bytes, err);

    if (st >= 0 && strstr(file->path, "shard-00000") && at >= 4096 + 2 * 4096)
        ((uint8_t *)data)[0] ^= 1;
    return st;
}

static void test_a_damaged_chunk_is_told_by_each_who_wants_it(void **state)
{
    node n;

    (void)state;
    open_node(&n, DTP_CODEC_NONE);
    join(&n, 0, 1);
    join(&n, 1, 1);
    n.ops.read = bad_read;
    for (int i = 0; i < 2; i++) {
        dtp_error err = { 0 };
        assert_int_equal(read_box(n.l[i], false, few, &err), DTP_ERR_CORRUPT);
        assert_non_null(strstr(err.text, "tensor first: chunk "));
    }
    n.ops.read = counted_read;
    assert_ok(read_box(n.l[0], false, few, ERR));
    close_node(&n);
}

typedef struct reader {
    node *n;
    int index;
    uint64_t seed;
    dtp_status status;
    dtp_error err;
} reader;

static void *read_boxes(void *user)
{
    reader *r = user;

    for (int i = 0; i < 12; i++) {
        int64_t box[4];
        for (int d = 0; d < 2; d++) {
            box[d] = (int64_t)(check_random(&r->seed) % (uint64_t)matrix[d] / 2);
            box[2 + d] = matrix[d] / 2 - 1;
        }
        const dtp_status st = read_box(r->n->l[r->index], check_random(&r->seed) & 1, box, &r->err);
        r->status = DTPI_MIN(r->status, st);
    }
    return NULL;
}

static void test_readers_in_any_order_get_what_was_saved(void **state)
{
    uint64_t seed = check_seed();
    node n;

    (void)state;
    for (int round = 0; round < 2; round++) {
        pthread_t threads[READERS];
        reader readers[READERS];
        open_node(&n, round ? DTP_CODEC_PLANES : DTP_CODEC_NONE);
        for (int i = 0; i < READERS; i++) {
            join(&n, i, 1);
            readers[i] = (reader){ .n = &n, .index = i, .seed = check_random(&seed) };
        }
        for (int i = 0; i < READERS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, read_boxes, &readers[i]), 0);
        for (int i = 0; i < READERS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < READERS; i++)
            assert_int_equal(readers[i].status, DTP_OK);
        close_node(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_chunk_is_read_by_the_first_who_wants_it),
        cmocka_unit_test(test_who_is_far_behind_holds_nobody_up),
        cmocka_unit_test(test_a_reader_of_another_step_reads_alone),
        cmocka_unit_test(test_a_claim_that_is_never_filled_is_given_up),
        cmocka_unit_test(test_what_one_in_front_copies_from_is_not_written),
        cmocka_unit_test(test_a_damaged_chunk_is_told_by_each_who_wants_it),
        cmocka_unit_test(test_readers_in_any_order_get_what_was_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
