/* SPDX-License-Identifier: Apache-2.0 */
/* Save with N ranks, load with M: random tensors, cut at random, read in other cuts, bit for bit. */
#include "ranks.h"

#include "ckpt/steps.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

enum { MAX_TENSORS = 5, MAX_CUTS = 12 };

typedef struct shape_of {
    char name[16];
    dtp_dtype dtype;
    uint32_t n_dims;
    int64_t shape[4];
    int64_t boxes[MAX_CUTS + 1][2][4];      /* of the save */
    size_t n_boxes;
} shape_of;

static void random_shape(uint64_t *seed, shape_of *t, int i)
{
    snprintf(t->name, sizeof(t->name), "tensor.%d", i);
    t->dtype = 1 + (dtp_dtype)(check_random(seed) % (DTP_F4 - 1));
    t->n_dims = (uint32_t)(check_random(seed) % 5);
    for (uint32_t d = 0; d < t->n_dims; d++)
        t->shape[d] = (int64_t)(check_random(seed) % 3 ? 1 + check_random(seed) % 13 : check_random(seed) % 60);
}

/* Cuts the tensor into boxes at random. */
static void random_cuts(uint64_t *seed, shape_of *t)
{
    memset(t->boxes, 0, sizeof(t->boxes));
    memcpy(t->boxes[0][1], t->shape, sizeof(t->shape));
    t->n_boxes = 1;
    for (uint64_t c = check_random(seed) % MAX_CUTS; t->n_dims && c > 0; c--) {
        int64_t(*b)[4] = t->boxes[check_random(seed) % t->n_boxes];
        const uint32_t d = (uint32_t)(check_random(seed) % t->n_dims);
        if (b[1][d] < 2)
            continue;
        const int64_t at = 1 + (int64_t)(check_random(seed) % (uint64_t)(b[1][d] - 1));
        int64_t(*fresh)[4] = t->boxes[t->n_boxes++];
        memcpy(fresh, b, sizeof(t->boxes[0]));
        fresh[0][d] += at;
        fresh[1][d] -= at;
        b[1][d] = at;
    }
}

static void give_random(uint64_t *seed, rank_run *r, int n, shape_of *tensors, int n_tensors)
{
    for (int i = 0; i < n_tensors; i++) {
        shape_of *t = &tensors[i];
        random_shape(seed, t, i);
        random_cuts(seed, t);
        for (size_t b = 0; b < t->n_boxes; b++) {
            const int owner = (int)(check_random(seed) % (uint64_t)n);
            const int twin = check_random(seed) % 3 == 0 ? (int)(check_random(seed) % (uint64_t)n) : owner;
            give(&r[owner], t->name, t->dtype, t->n_dims, t->shape, t->boxes[b][0], t->boxes[b][1], (uint64_t)i);
            if (twin != owner)
                give(&r[twin], t->name, t->dtype, t->n_dims, t->shape, t->boxes[b][0], t->boxes[b][1], (uint64_t)i);
        }
    }
}

static void read_random(uint64_t *seed, dtpi_load *l, shape_of *tensors, int n_tensors)
{
    for (int i = 0; i < n_tensors; i++) {
        shape_of *t = &tensors[i];
        random_cuts(seed, t);
        for (size_t b = 0; b < t->n_boxes; b++)
            assert_ok(read_known(l, t->name, t->dtype, t->n_dims, t->shape, t->boxes[b][0], t->boxes[b][1], (uint64_t)i));
        int64_t offset[4] = { 0 }, extent[4] = { 0 };
        for (uint32_t d = 0; d < t->n_dims; d++) {
            offset[d] = (int64_t)(check_random(seed) % (uint64_t)(t->shape[d] + 1));
            extent[d] = (int64_t)(check_random(seed) % (uint64_t)(t->shape[d] - offset[d] + 1));
        }
        assert_ok(read_known(l, t->name, t->dtype, t->n_dims, t->shape, offset, extent, (uint64_t)i));
    }
}

static void one_reshard(uint64_t *seed, int n, int m)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    shape_of tensors[MAX_TENSORS] = { 0 };
    const int n_tensors = 1 + (int)(check_random(seed) % MAX_TENSORS);
    const uint32_t codec = (uint32_t)(check_random(seed) % 2);
    rank_run r[MAX_RANKS];

    ranks_init(r, n, files, "ck");
    give_random(seed, r, n, tensors, n_tensors);
    for (int i = 0; i < n; i++) {
        r[i].opts.codec = (dtp_codec)codec;
        r[i].opts.chunk_bytes = 4096;
    }
    assert_ok(ranks_save(r, n, 7));
    for (int i = 0; i < m; i++) {
        dtpi_load *l = NULL;
        assert_ok(dtpi_load_open(A, files, "ck", 7, &l, ERR));
        read_random(seed, l, tensors, n_tensors);
        if (i == 0)
            assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
        dtpi_load_close(l);
    }
    ranks_free(r, n);
}

static void test_any_number_of_ranks_loads_what_any_other_saved(void **state)
{
    uint64_t seed = check_seed();
    const int rounds = check_is_long() ? 6000 : 6;

    (void)state;
    for (int round = 0; round < rounds; round++)
        for (int n = 1; n <= 4; n++)
            for (int m = 1; m <= 4; m++)
                one_reshard(&seed, n, m);
}

static void test_large_boxes_cross_many_chunks(void **state)
{
    static const int64_t shape[] = { 300, 700 }, half[] = { 300, 350 }, right[] = { 0, 350 };
    static const int64_t rows[] = { 150, 700 }, low[] = { 150, 0 };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    rank_run r[2];

    (void)state;
    ranks_init(r, 2, files, "ck");
    give(&r[0], "w", DTP_F64, 2, shape, NULL, half, 3);
    give(&r[1], "w", DTP_F64, 2, shape, right, half, 3);
    r[0].opts.chunk_bytes = r[1].opts.chunk_bytes = 8192;
    assert_ok(ranks_save(r, 2, 1));
    dtpi_load *l = NULL;
    assert_ok(dtpi_load_open(A, files, "ck", 1, &l, ERR));
    assert_ok(read_known(l, "w", DTP_F64, 2, shape, NULL, rows, 3));
    assert_ok(read_known(l, "w", DTP_F64, 2, shape, low, rows, 3));
    assert_ok(read_known(l, "w", DTP_F64, 2, shape, right, half, 3));
    dtpi_load_close(l);
    ranks_free(r, 2);
}

/* Every bit of a small checkpoint, shard, part and manifest, is missed by nothing. */
static void test_every_flipped_bit_is_found(void **state)
{
    static const int64_t shape[] = { 40 };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    static const char *const names[] = { "ck/step-00000000000000000001/shard-00000-of-00001.0000000000001007.safetensors",
                                         "ck/step-00000000000000000001/part-00000-of-00001.0000000000001007.bin",
                                         "ck/step-00000000000000000001/manifest.json" };
    uint64_t bytes = 0, n = 0;
    rank_run r[1];

    (void)state;
    ranks_init(r, 1, files, "ck");
    give(&r[0], "w", DTP_F32, 1, shape, NULL, NULL, 3);
    give(&r[0], "b", DTP_I8, 1, shape, NULL, NULL, 4);
    assert_ok(ranks_save(r, 1, 1));
    for (size_t f = 0; f < DTPI_ARRAY_LEN(names); f++) {
        assert_ok(files->ops->size(files, names[f], &bytes, ERR));
        for (uint64_t bit = f == 0 ? 8 * 4000 : 0; bit < 8 * bytes; bit++, n++) {
            dtpi_load *l = NULL;
            assert_ok(dtpi_files_mem_flip(files, names[f], bit / 8, (uint8_t)(1 << bit % 8), ERR));
            dtp_status st = dtpi_load_open(A, files, "ck", 1, &l, ERR);
            if (st >= 0)
                st = dtpi_load_verify(l, NULL, NULL, ERR);
            dtpi_load_close(l);
            if (st >= 0)
                fail_msg("bit %llu of %s", (unsigned long long)bit, names[f]);
            assert_ok(dtpi_files_mem_flip(files, names[f], bit / 8, (uint8_t)(1 << bit % 8), ERR));
        }
    }
    print_message("%llu bits\n", (unsigned long long)n);
    ranks_free(r, 1);
}

static void tell(void *user, uint64_t done, uint64_t total)
{
    uint64_t *last = user;

    assert_true(done > last[0] && done <= total);
    last[0] = done;
    last[1] = total;
}

static void test_verify_tells_its_progress(void **state)
{
    static const int64_t shape[] = { 10000 };
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    uint64_t last[2] = { 0 };
    rank_run r[1];

    (void)state;
    ranks_init(r, 1, files, "ck");
    give(&r[0], "w", DTP_F32, 1, shape, NULL, NULL, 3);
    r[0].opts.chunk_bytes = 4096;
    assert_ok(ranks_save(r, 1, 1));
    dtpi_load *l = NULL;
    assert_ok(dtpi_load_open(A, files, "ck", 1, &l, ERR));
    assert_ok(dtpi_load_verify(l, tell, last, ERR));
    assert_int_equal(last[0], last[1]);
    assert_int_equal(last[0], 4096 + 40000);
    dtpi_load_close(l);
    ranks_free(r, 1);
}

static void test_a_codec_of_another_library_is_named(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    dtpi_load *l = NULL;
    dtpi_manifest m;

    (void)state;
    assert_ok(dtpi_manifest_init(&m, A, ERR));
    memcpy(m.codec, "brotli", 7);
    assert_status(DTP_ERR_UNSUPPORTED, dtpi_load_adopt(A, files, "ckpts/step-7", &m, &l, ERR));
    assert_text("ckpts/step-7: no codec is named brotli");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_ranks_loads_what_any_other_saved),
        cmocka_unit_test(test_large_boxes_cross_many_chunks),
        cmocka_unit_test(test_every_flipped_bit_is_found),
        cmocka_unit_test(test_verify_tells_its_progress),
        cmocka_unit_test(test_a_codec_of_another_library_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
