/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded trainings: tensors freeze, thaw, change slowly or wholly, are tied; codec, chunk size, retention and
 * world change; steps are damaged and saved again. Whatever is complete is what it was.
 */
#include "deltas.h"

static const int64_t sizes[] = { 1, 100, 2048, 2049, 9000, 30000 };
static const int64_t tables[][2] = { { 1, 1 }, { 10, 10 }, { 32, 64 }, { 3, 683 }, { 90, 100 }, { 100, 300 } };
static char names[MAX_BOXES][8];

static void add_some(training *t)
{
    const size_t n = 4 + check_random(&t->seed) % 8;

    for (size_t i = 0; i < n; i++) {
        const size_t size = check_random(&t->seed) % DTPI_ARRAY_LEN(sizes);
        const bool is_table = check_random(&t->seed) % 3 == 0;
        snprintf(names[i], sizeof(names[i]), "t%zu", i);
        training_add(t, (int)(check_random(&t->seed) % 2), names[i], is_table ? 2 : 1,
                     is_table ? tables[size] : &sizes[size], NULL, NULL, check_random(&t->seed) % CHANGES);
    }
}

/* Another way to change for one box; sometimes it becomes equal to its neighbour. */
static void change_ways(training *t)
{
    const int rank = (int)(check_random(&t->seed) % 2);
    rank_run *r = &t->r[rank];

    if (r->n == 0)
        return;
    const size_t k = check_random(&t->seed) % r->n;
    t->how[rank][k] = check_random(&t->seed) % CHANGES;
    const size_t other = check_random(&t->seed) % r->n;
    if (check_random(&t->seed) % 4 == 0 && box_bytes(&r->tensors[k]) == box_bytes(&r->tensors[other]))
        memmove(r->tensors[k].data, r->tensors[other].data, box_bytes(&r->tensors[k]));
}

static void change_options(training *t)
{
    const uint64_t what = check_random(&t->seed) % 24, r = check_random(&t->seed);

    for (int i = 0; i < 2; i++) {
        if (what == 0)
            t->r[i].opts.codec = (dtp_codec)(r % 3);
        if (what == 1)
            t->r[i].opts.chunk_bytes = CHUNK << r % 2;
        if (what == 2)
            t->r[i].opts.delta = r % 4 != 0;
        if (what == 3)
            t->r[i].opts.keep_last = (uint32_t)(r % 4);
    }
}

/* All complete steps are read; how many there are. */
static size_t check_all(training *t)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(&dtpi_malloc_allocator);
    size_t n = 0;

    assert_ok(dtpi_steps_list(t->files, training_dir, &list, ERR));
    for (size_t i = 0; i < list.len / sizeof(uint64_t); i++) {
        const uint64_t step = *DTPI_MF_GET(uint64_t, list, i);
        if (dtpi_step_check(t->files, training_dir, step, NULL) < 0)
            continue;
        training_check(t, step);
        n++;
    }
    return n;
}

static void run_training(uint64_t seed)
{
    DTPI_AUTO(training) training *t = training_new(seed, (dtp_codec)(seed % 3), 1);

    add_some(t);
    for (uint64_t step = 1; step < 40; step += 1 + check_random(&t->seed) % 2) {
        change_options(t);
        change_ways(t);
        training_save(t, step);
        training_check(t, step);
        training_step(t);
    }
    assert_true(check_all(t) >= 1);
}

static void test_random_trainings_come_back(void **state)
{
    const uint64_t seed = check_seed();
    const int n = getenv("DTP_TEST_LONG") ? 1000 : 12;

    (void)state;
    for (int i = 0; i < n; i++)
        run_training(seed + (uint64_t)i);
}

/* Ranks save what others saved: boxes that moved are found by their place, not by who wrote them. */
static void test_frozen_boxes_are_kept_when_another_rank_has_them(void **state)
{
    static const int64_t flat[] = { 20000 };
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_NONE, 1);

    (void)state;
    training_add(t, 0, "a", 1, flat, NULL, NULL, FROZEN);
    training_add(t, 1, "b", 1, flat, NULL, NULL, FROZEN);
    training_save(t, 1);
    const dtp_ckpt_tensor a = t->r[0].tensors[0];
    t->r[0].tensors[0] = t->r[1].tensors[0];
    t->r[1].tensors[0] = a;
    training_save(t, 2);
    assert_int_equal(training_data(t, 2), 0);
    training_check(t, 2);
}

/* With delta a step is no larger than without, but for what its parts say. */
static void test_delta_never_takes_more_room(void **state)
{
    static const dtp_codec codecs[] = { DTP_CODEC_NONE, DTP_CODEC_ZSTD, DTP_CODEC_PLANES };
    const uint64_t seed = check_seed();

    (void)state;
    for (size_t c = 0; c < DTPI_ARRAY_LEN(codecs); c++) {
        DTPI_AUTO(training) training *with = training_new(seed, codecs[c], 1);
        DTPI_AUTO(training) training *without = training_new(seed, codecs[c], 0);
        add_some(with);
        add_some(without);
        for (uint64_t step = 1; step < 14; step++) {
            training_save(with, step);
            training_save(without, step);
            assert_true(training_data(with, step) <= training_data(without, step));
            training_step(with);
            training_step(without);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_trainings_come_back),
        cmocka_unit_test(test_frozen_boxes_are_kept_when_another_rank_has_them),
        cmocka_unit_test(test_delta_never_takes_more_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
