/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes: counts, common parts, the proof of coverage against counting, and walks against indexing. */
#include "check.h"

#include "ckpt/box.h"
#include "ckpt/plan.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

enum { D = 3, SIDE = 4, CELLS = SIDE * SIDE * SIDE };

static void test_counts_do_not_overflow(void **state)
{
    const int64_t fine[] = { 3, 4 }, zero[] = { INT64_MAX / 4, 0, 1 }, big[] = { INT64_MAX, 2 }, negative[] = { 3, -1 };
    uint64_t n;

    (void)state;
    assert_true(dtpi_box_count(2, fine, &n));
    assert_int_equal(n, 12);
    assert_true(dtpi_box_count(0, NULL, &n));
    assert_int_equal(n, 1);
    assert_true(dtpi_box_count(3, zero, &n));
    assert_int_equal(n, 0);
    assert_false(dtpi_box_count(2, big, &n));
    assert_false(dtpi_box_count(2, negative, &n));
}

static void test_inside_does_not_overflow(void **state)
{
    const int64_t shape[] = { 10 };

    (void)state;
    assert_true(dtpi_box_inside(1, (int64_t[]){ 10 }, (int64_t[]){ 0 }, shape));
    assert_true(dtpi_box_inside(1, (int64_t[]){ 0 }, (int64_t[]){ 10 }, shape));
    assert_false(dtpi_box_inside(1, (int64_t[]){ 1 }, (int64_t[]){ 10 }, shape));
    assert_false(dtpi_box_inside(1, (int64_t[]){ -1 }, (int64_t[]){ 2 }, shape));
    assert_false(dtpi_box_inside(1, (int64_t[]){ INT64_MAX }, (int64_t[]){ INT64_MAX }, shape));
    assert_false(dtpi_box_inside(1, (int64_t[]){ 5 }, (int64_t[]){ INT64_MAX }, shape));
}

/* A box of a cube as offset, extent; never empty. */
static void random_box(uint64_t *seed, int64_t box[2 * D])
{
    for (int d = 0; d < D; d++) {
        box[d] = (int64_t)(check_random(seed) % SIDE);
        box[D + d] = 1 + (int64_t)(check_random(seed) % (uint64_t)(SIDE - box[d]));
    }
}

static void count_cells(const int64_t *box, int *cells)
{
    for (int64_t x = 0; x < box[D]; x++)
        for (int64_t y = 0; y < box[D + 1]; y++)
            for (int64_t z = 0; z < box[D + 2]; z++)
                cells[((box[0] + x) * SIDE + box[1] + y) * SIDE + box[2] + z]++;
}

static const int64_t *get(void *user, size_t i)
{
    return (const int64_t *)user + i * 2 * D;
}

/* Cuts a box in two at random, over and over. */
static size_t random_tiling(uint64_t *seed, int64_t *boxes, size_t cuts)
{
    const int64_t whole[2 * D] = { 0, 0, 0, SIDE, SIDE, SIDE };
    size_t n = 1;

    memcpy(boxes, whole, sizeof(whole));
    for (size_t c = 0; c < cuts; c++) {
        int64_t *b = boxes + check_random(seed) % n * 2 * D;
        const uint64_t d = check_random(seed) % D;
        if (b[D + d] < 2)
            continue;
        const int64_t at = 1 + (int64_t)(check_random(seed) % (uint64_t)(b[D + d] - 1));
        int64_t *fresh = boxes + n++ * 2 * D;
        memcpy(fresh, b, 2 * D * sizeof(*b));
        fresh[d] += at;
        fresh[D + d] -= at;
        b[D + d] = at;
    }
    return n;
}

static void test_coverage_agrees_with_counting(void **state)
{
    const int64_t shape[D] = { SIDE, SIDE, SIDE };
    uint64_t seed = check_seed();
    int64_t boxes[32 * 2 * D], point[D];
    int n_good = 0;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        size_t n = random_tiling(&seed, boxes, check_random(&seed) % 12);
        if (round % 3 == 1)
            random_box(&seed, boxes + n++ * 2 * D);
        if (round % 3 == 2)
            random_box(&seed, boxes + check_random(&seed) % n * 2 * D);
        int cells[CELLS] = { 0 };
        uint32_t count = 0;
        bool good = true;
        for (size_t i = 0; i < n; i++)
            count_cells(boxes + i * 2 * D, cells);
        for (int i = 0; i < CELLS; i++)
            good &= cells[i] == 1;
        assert_ok(dtpi_box_tiling(A, D, shape, n, get, boxes, point, &count, ERR));
        assert_int_equal(count == 1, good);
        if (!good)
            assert_int_equal(cells[(point[0] * SIDE + point[1]) * SIDE + point[2]], count);
        n_good += good;
    }
    assert_true(n_good > 900 && n_good < 2900);
}

/* Cuts 0..SIDE into `n` steps at random; the ends of all but the last in `at`. */
static int random_steps(uint64_t *seed, int64_t at[SIDE + 1])
{
    int n = 0;

    at[n] = 0;
    while (at[n] < SIDE) {
        at[n + 1] = at[n] + 1 + (int64_t)(check_random(seed) % (uint64_t)(SIDE - at[n]));
        n++;
    }
    return n;
}

/* All boxes of a random grid, the last dimension running fastest. */
static size_t random_grid(uint64_t *seed, int64_t *boxes)
{
    int64_t at[D][SIDE + 1];
    int steps[D], i[D];
    size_t n = 0;

    for (int d = 0; d < D; d++)
        steps[d] = random_steps(seed, at[d]);
    for (i[0] = 0; i[0] < steps[0]; i[0]++)
        for (i[1] = 0; i[1] < steps[1]; i[1]++)
            for (i[2] = 0; i[2] < steps[2]; i[2]++, n++)
                for (int d = 0; d < D; d++) {
                    boxes[n * 2 * D + (size_t)d] = at[d][i[d]];
                    boxes[n * 2 * D + D + (size_t)d] = at[d][i[d] + 1] - at[d][i[d]];
                }
    return n;
}

static void test_a_grid_with_one_wrong_box_is_no_grid(void **state)
{
    const int64_t shape[D] = { SIDE, SIDE, SIDE };
    int64_t *boxes = calloc(CELLS * 2 * D, sizeof(*boxes)), point[D];
    uint64_t seed = check_seed();
    int n_good = 0;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        const size_t n = random_grid(&seed, boxes);
        int64_t *b = boxes + check_random(&seed) % n * 2 * D;
        const uint64_t d = check_random(&seed) % D;
        int cells[CELLS] = { 0 };
        uint32_t count = 0;
        bool good = true;
        if (round % 2 && b[D + d] > 1)
            b[D + d]--;
        if (round % 4 == 3 && b[d] + b[D + d] < SIDE)
            b[d]++;
        for (size_t i = 0; i < n; i++)
            count_cells(boxes + i * 2 * D, cells);
        for (int i = 0; i < CELLS; i++)
            good &= cells[i] == 1;
        assert_ok(dtpi_box_tiling(A, D, shape, n, get, boxes, point, &count, ERR));
        assert_int_equal(count == 1, good);
        n_good += good;
    }
    assert_true(n_good >= 1000 && n_good < 2000);
    free(boxes);
}

static const int64_t *get_flat(void *user, size_t i)
{
    return (const int64_t *)user + i * 2;
}

static void test_many_boxes_are_proved_quickly(void **state)
{
    enum { N = 200000 };
    int64_t *boxes = calloc(2 * N, sizeof(*boxes));
    const int64_t shape[] = { 3 * N };
    int64_t point[1];
    uint32_t count = 0;

    (void)state;
    for (size_t i = 0; i < N; i++) {
        boxes[2 * i] = 3 * (int64_t)((i * 7919) % N);
        boxes[2 * i + 1] = 3;
    }
    assert_ok(dtpi_box_tiling(A, 1, shape, N, get_flat, boxes, point, &count, ERR));
    assert_int_equal(count, 1);
    boxes[2 * 5] -= 3;
    assert_ok(dtpi_box_tiling(A, 1, shape, N, get_flat, boxes, point, &count, ERR));
    assert_int_not_equal(count, 1);
    free(boxes);
}

static const int64_t *get_same(void *user, size_t i)
{
    (void)i;
    return user;
}

static void test_more_corners_than_memory_should_hold_are_refused(void **state)
{
    const int64_t shape[] = { 8, 8, 8, 8, 8, 8, 8, 8 };
    int64_t box[16] = { [8] = 1, 1, 1, 1, 1, 1, 1, 1 }, point[8];
    uint32_t count = 0;

    (void)state;
    assert_status(DTP_ERR_LIMIT, dtpi_box_tiling(A, 8, shape, 100000, get_same, box, point, &count, ERR));
    assert_text("100000 boxes cut in 8 dimensions");
    assert_ok(dtpi_box_tiling(A, 8, shape, 1000, get_same, box, point, &count, ERR));
    assert_int_equal(count, 1000);
}

static void test_walks_copy_what_indexing_copies(void **state)
{
    uint64_t seed = check_seed();
    int64_t a[2 * D], b[2 * D], offset[D], extent[D];
    dtpi_walk w;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        int from[CELLS], to[CELLS], want[CELLS], n = 0;
        random_box(&seed, a);
        random_box(&seed, b);
        if (!dtpi_box_meet(D, a, a + D, b, b + D, offset, extent))
            continue;
        for (int i = 0; i < CELLS; i++)
            from[i] = i + 1, to[i] = want[i] = 0;
        for (int64_t x = offset[0]; x < offset[0] + extent[0]; x++)
            for (int64_t y = offset[1]; y < offset[1] + extent[1]; y++)
                for (int64_t z = offset[2]; z < offset[2] + extent[2]; z++, n++)
                    want[((x - b[0]) * b[D + 1] + y - b[1]) * b[D + 2] + z - b[2]] =
                        from[((x - a[0]) * a[D + 1] + y - a[1]) * a[D + 2] + z - a[2]];
        uint64_t last = 0;
        for (dtpi_walk_begin(&w, D, a, a + D, b, b + D, offset, extent); !w.done; dtpi_walk_next(&w)) {
            assert_true(w.from >= last);
            last = w.from + w.run;
            memcpy(to + w.to, from + w.from, w.run * sizeof(int));
            n -= (int)w.run;
        }
        assert_int_equal(n, 0);
        assert_memory_equal(to, want, sizeof(to));
    }
}

static void test_equal_boxes_are_one_run(void **state)
{
    const int64_t a[] = { 0, 0, 0, 4, 4, 4 }, b[] = { 1, 0, 0, 2, 4, 4 };
    dtpi_walk w;

    (void)state;
    dtpi_walk_begin(&w, D, a, a + D, b, b + D, b, b + D);
    assert_int_equal(w.run, 32);
    assert_int_equal(w.from, 16);
    dtpi_walk_next(&w);
    assert_true(w.done);
    dtpi_walk_begin(&w, 0, NULL, NULL, NULL, NULL, NULL, NULL);
    assert_int_equal(w.run, 1);
}

static void test_replicas_go_to_the_lowest_rank(void **state)
{
    const int64_t shape[] = { 4 }, low[] = { 0 }, high[] = { 2 }, half[] = { 2 }, none[] = { 0 };
    dtpi_layout l;
    dtpi_plan p;

    (void)state;
    dtpi_plan_init(&p, A);
    assert_ok(dtpi_plan_add(&p, 2, 0, "w", DTP_F32, 1, shape, high, half, ERR));
    assert_ok(dtpi_plan_add(&p, 1, 0, "w", DTP_F32, 1, shape, high, half, ERR));
    assert_ok(dtpi_plan_add(&p, 0, 0, "w", DTP_F32, 1, shape, low, half, ERR));
    assert_ok(dtpi_plan_add(&p, 0, 1, "w", DTP_F32, 1, shape, high, none, ERR));
    assert_ok(dtpi_plan_add(&p, 3, 0, "a", DTP_U8, 0, NULL, NULL, NULL, ERR));
    assert_ok(dtpi_plan_finish(&p, ERR));
    assert_int_equal(p.n_tensors, 2);
    assert_int_equal(p.n_boxes, 3);
    assert_string_equal(dtpi_plan_name(&p, &p.boxes[0]), "a");
    assert_int_equal(p.boxes[1].rank, 0);
    assert_int_equal(p.boxes[2].rank, 1);
    assert_ok(dtpi_layout_make(&p, 2, &l, ERR));
    assert_int_equal(l.n, 0);
    dtpi_layout_free(&l);
    dtpi_plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_do_not_overflow),
        cmocka_unit_test(test_inside_does_not_overflow),
        cmocka_unit_test(test_coverage_agrees_with_counting),
        cmocka_unit_test(test_a_grid_with_one_wrong_box_is_no_grid),
        cmocka_unit_test(test_many_boxes_are_proved_quickly),
        cmocka_unit_test(test_more_corners_than_memory_should_hold_are_refused),
        cmocka_unit_test(test_walks_copy_what_indexing_copies),
        cmocka_unit_test(test_equal_boxes_are_one_run),
        cmocka_unit_test(test_replicas_go_to_the_lowest_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
