/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that take over what the step before has: everything comes back, bounds hold, damage is named. */
#include "deltas.h"

static const int64_t flat[] = { 20000 }, table[] = { 200, 100 }, upper[] = { 100, 100 }, low[] = { 100, 0 };

static void test_a_lineage_is_the_parent_and_the_newest_of_its_own(void **state)
{
    dtpi_manifest m = { .step = 100, .n_lineage = 16 };
    dtpi_lineage l;

    (void)state;
    for (uint64_t i = 0; i < 16; i++)
        m.lineage[i] = (i * 7) % 16 + 50;
    dtpi_lineage_after(&m, &l);
    assert_int_equal(l.n, 16);
    assert_int_equal(l.steps[0], 100);
    for (uint64_t i = 1; i < 16; i++)
        assert_int_equal(l.steps[i], 66 - i);
    m.n_lineage = 0;
    dtpi_lineage_after(&m, &l);
    assert_int_equal(l.n, 1);
}

static void test_steps_that_stay_need_their_lineage_and_no_more(void **state)
{
    dtpi_step_facts f[] = { { .step = 1 }, { .step = 2, .n_lineage = 1, .lineage = { 1 } },
                            { .step = 3, .n_lineage = 1, .lineage = { 2 } },
                            { .step = 4, .stays = true, .n_lineage = 2, .lineage = { 3, 9 } } };

    (void)state;
    dtpi_retain_need(f, 4);
    assert_false(f[0].is_needed || f[1].is_needed || f[3].is_needed);
    assert_true(f[2].is_needed);
}

static void test_without_sizes_every_chunk_has_its_base(void **state)
{
    static const uint32_t sizes[] = { 7, 9 | DTPI_CHUNK_ALONE };
    dtpi_manifest m = { .sizes = { .data = (uint8_t *)(uintptr_t)sizes, .len = sizeof(sizes) } };
    dtpi_mf_box b = { .base = 0, .sizes_at = DTPI_NO_SIZES };

    (void)state;
    assert_true(dtpi_chunk_is_xor(&m, &b, 1000));
    b.sizes_at = 0;
    assert_true(dtpi_chunk_is_xor(&m, &b, 0));
    assert_false(dtpi_chunk_is_xor(&m, &b, 1));
    b.base = DTPI_NO_BASE;
    assert_false(dtpi_chunk_is_xor(&m, &b, 0));
}

/* A tied pair and all kinds of change, on two ranks. */
static void add_all(training *t)
{
    training_add(t, 0, "frozen", 1, flat, NULL, NULL, FROZEN);
    training_add(t, 0, "noise", 1, flat, NULL, NULL, NOISE);
    training_add(t, 0, "rows", 1, flat, NULL, NULL, ROWS);
    training_add(t, 0, "slow", 2, table, NULL, upper, SLOW);
    training_add(t, 1, "slow", 2, table, low, upper, SLOW);
    training_add(t, 1, "own", 1, flat, NULL, NULL, SLOW);
    training_add(t, 1, "tied", 1, flat, NULL, NULL, FROZEN);
    memcpy(t->r[1].tensors[2].data, t->r[1].tensors[1].data, 40000);
}

static void test_twenty_steps_come_back_bit_exactly(void **state)
{
    static const dtp_codec codecs[] = { DTP_CODEC_NONE, DTP_CODEC_ZSTD, DTP_CODEC_PLANES };
    const uint64_t seed = check_seed();

    (void)state;
    for (size_t c = 0; c < DTPI_ARRAY_LEN(codecs); c++) {
        DTPI_AUTO(training) training *t = training_new(seed, codecs[c], 1);
        add_all(t);
        for (uint64_t step = 1; step <= 20; step++) {
            training_save(t, step);
            training_step(t);
        }
        for (uint64_t step = 1; step <= 20; step++)
            training_check(t, step);
    }
}

static void test_equal_content_of_a_step_is_stored_once_always(void **state)
{
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_NONE, 0);

    (void)state;
    training_add(t, 0, "a", 1, flat, NULL, NULL, SLOW);
    training_add(t, 0, "b", 1, flat, NULL, NULL, SLOW);
    training_add(t, 1, "c", 1, flat, NULL, NULL, SLOW);
    memcpy(t->r[0].tensors[1].data, t->r[0].tensors[0].data, 40000);
    training_save(t, 1);
    assert_int_equal(training_data(t, 1), 80000);
    training_check(t, 1);
    ((uint8_t *)t->r[0].tensors[1].data)[39999] ^= 1;
    training_save(t, 2);
    assert_int_equal(training_data(t, 2), 120000);
    training_check(t, 2);
}

static void test_a_tied_pair_of_two_shapes_has_one_base(void **state)
{
    static const int64_t shape[] = { 2, 5, 2000 };
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_PLANES, 1);

    (void)state;
    training_add(t, 0, "a", 3, shape, NULL, NULL, SLOW);
    training_add(t, 0, "b", 1, flat, NULL, NULL, FROZEN);
    for (uint64_t step = 1; step <= 5; step++) {
        memcpy(t->r[0].tensors[1].data, t->r[0].tensors[0].data, 40000);
        training_save(t, step);
        training_check(t, step);
        training_step(t);
    }
    DTPI_AUTO(load) dtpi_load *l = training_load(t, 5);
    assert_ok(dtpi_load_place(l, 0, ERR));
    for (size_t i = 0; i < 2; i++)
        assert_int_not_equal(dtpi_mf_box_at(&l->m, i)->base, DTPI_NO_BASE);
    assert_int_equal(dtpi_mf_box_at(&l->m, 0)->base, dtpi_mf_box_at(&l->m, 1)->base);
}

static void test_names_stay_lent_while_parts_bring_files(void **state)
{
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_PLANES, 1);
    const char *names[6];

    (void)state;
    add_all(t);
    for (uint64_t step = 1; step <= 9; step++) {
        training_save(t, step);
        training_step(t);
    }
    DTPI_AUTO(load) dtpi_load *l = training_load(t, 9);
    assert_int_equal(dtpi_mf_n_tensors(&l->m), 6);
    for (size_t i = 0; i < 6; i++)
        names[i] = dtpi_mf_text(&l->m, dtpi_mf_tensor_at(&l->m, i)->name_at);
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(dtpi_load_place(l, i, ERR));
    assert_true(dtpi_mf_n_files(&l->m) > 12);
    for (size_t i = 0; i < 6; i++)
        assert_ptr_equal(dtpi_mf_text(&l->m, dtpi_mf_tensor_at(&l->m, i)->name_at), names[i]);
}

static void test_frozen_tensors_are_written_once(void **state)
{
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_NONE, 1);
    uint64_t data, parts;

    (void)state;
    training_add(t, 0, "a", 1, flat, NULL, NULL, FROZEN);
    training_add(t, 1, "b", 2, table, NULL, NULL, FROZEN);
    for (uint64_t step = 1; step <= 30; step++)
        training_save(t, step);
    training_bytes(t, 30, &data, &parts);
    assert_int_equal(data, 0);
    assert_true(parts < 2000);
    training_check(t, 30);
    DTPI_AUTO(load) dtpi_load *l = training_load(t, 30);
    assert_int_equal(l->m.n_lineage, 1);
    assert_int_equal(l->m.lineage[0], 1);
}

static void test_another_box_or_type_is_stored_anew(void **state)
{
    static const int64_t other[] = { 10000, 2 };
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_NONE, 1);

    (void)state;
    training_add(t, 0, "a", 1, flat, NULL, NULL, FROZEN);
    training_add(t, 0, "b", 2, table, NULL, NULL, FROZEN);
    training_save(t, 1);
    t->r[0].tensors[0].dtype = DTP_F16;
    t->r[0].tensors[1].shape = t->r[0].tensors[1].extent = other;
    training_save(t, 2);
    assert_int_equal(training_data(t, 2), 80000);
    training_check(t, 2);
}

static void test_another_codec_or_chunk_takes_nothing_over(void **state)
{
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_NONE, 1);

    (void)state;
    training_add(t, 0, "a", 1, flat, NULL, NULL, FROZEN);
    training_save(t, 1);
    t->r[0].opts.chunk_bytes = t->r[1].opts.chunk_bytes = 2 * CHUNK;
    training_save(t, 2);
    assert_int_equal(training_data(t, 2), 40000);
    t->r[0].opts.codec = t->r[1].opts.codec = DTP_CODEC_PLANES;
    training_save(t, 3);
    assert_true(training_data(t, 3) > 20000);
    for (uint64_t step = 1; step <= 3; step++)
        training_check(t, step);
}

static void test_chains_and_lineages_are_bounded(void **state)
{
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_PLANES, 1);
    uint32_t longest = 0, most = 0;

    (void)state;
    add_all(t);
    for (uint64_t step = 1; step <= 25; step++) {
        training_save(t, step);
        training_step(t);
        DTPI_AUTO(load) dtpi_load *l = training_load(t, step);
        for (uint32_t i = 0; i < l->m.n_own_files; i++)
            assert_ok(dtpi_load_place(l, i, ERR));
        for (size_t i = 0; i < dtpi_mf_n_boxes(&l->m); i++)
            longest = DTPI_MAX(longest, dtpi_chain_length(&l->m, dtpi_mf_box_at(&l->m, i)));
        most = DTPI_MAX(most, l->m.n_lineage);
    }
    assert_int_equal(longest, DTPI_PART_MAX_CHAIN);
    assert_true(most >= 8 && most <= 10);
    training_check(t, 25);
}

/* Each step freezes another tensor, so that all steps would be needed for ever. */
static void test_the_oldest_steps_are_let_go(void **state)
{
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_NONE, 1);
    char names[30][8];

    (void)state;
    for (int i = 0; i < 30; i++) {
        snprintf(names[i], sizeof(names[i]), "t%02d", i);
        training_add(t, i % 2, names[i], 1, flat, NULL, NULL, NOISE);
    }
    for (uint64_t step = 1; step <= 30; step++) {
        training_save(t, step);
        t->how[(step - 1) % 2][(step - 1) / 2] = FROZEN;
        training_step(t);
        DTPI_AUTO(load) dtpi_load *l = training_load(t, step);
        assert_true(l->m.n_lineage <= DTPI_LINEAGE_MAX);
        if (step > 17)
            assert_int_equal(l->m.n_lineage, DTPI_LINEAGE_MAX);
    }
    training_check(t, 30);
}

static void test_resharded_loads_go_through_xor(void **state)
{
    static const int64_t offset[] = { 60, 13 }, extent[] = { 77, 50 };
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_PLANES, 1);
    uint16_t *got = malloc(77 * 50 * 2);

    (void)state;
    add_all(t);
    for (uint64_t step = 1; step <= 6; step++) {
        training_save(t, step);
        training_step(t);
    }
    DTPI_AUTO(load) dtpi_load *l = training_load(t, 6);
    const dtp_ckpt_tensor b = { sizeof(b), "slow", DTP_BF16, 2, table, offset, extent, got };
    assert_ok(dtpi_load_read(l, &b, ERR));
    for (int64_t y = 0; y < extent[0]; y++) {
        const int64_t row = offset[0] + y;
        const uint16_t *was = (const uint16_t *)(const void *)(row < 100 ? t->was[6][0][3] : t->was[6][1][0]);
        assert_memory_equal(got + y * extent[1], was + (row % 100) * 100 + offset[1], (size_t)extent[1] * 2);
    }
    free(got);
}

/* ---- damage ---- */

static void shard_path(training *t, uint64_t step, int rank, char path_out[DTPI_PATH_MAX])
{
    char dir[DTPI_PATH_MAX], name[96];

    (void)t;
    snprintf(name, sizeof(name), "shard-%05d-of-00002.%016llx.safetensors", rank,
             0x1000 * (unsigned long long)step + 7);
    assert_ok(dtpi_step_path(dir, training_dir, step, ERR));
    assert_ok(dtpi_path_join(path_out, dir, name, ERR));
}

static void test_a_damaged_base_is_named_with_its_step(void **state)
{
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_PLANES, 1);
    char path[DTPI_PATH_MAX];
    uint64_t bytes;

    (void)state;
    training_add(t, 0, "w", 1, flat, NULL, NULL, SLOW);
    for (uint64_t step = 1; step <= 3; step++) {
        training_save(t, step);
        training_step(t);
    }
    shard_path(t, 1, 0, path);
    assert_ok(t->files->ops->size(t->files, path, &bytes, ERR));
    assert_ok(dtpi_files_mem_flip(t->files, path, bytes - 1, 4, ERR));
    assert_status(DTP_ERR_CORRUPT, training_read(t, 3));
    assert_text("step 1");
    assert_text("tensor w: chunk 9 of 10");
    DTPI_AUTO(load) dtpi_load *l = training_load(t, 3);
    assert_status(DTP_ERR_CORRUPT, dtpi_load_verify(l, NULL, NULL, ERR));
    assert_text("step 1");
}

static void test_a_missing_base_makes_a_step_damaged(void **state)
{
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_PLANES, 1);
    char path[DTPI_PATH_MAX];
    uint64_t step;

    (void)state;
    training_add(t, 0, "w", 1, flat, NULL, NULL, SLOW);
    training_add(t, 1, "v", 1, flat, NULL, NULL, FROZEN);
    training_save(t, 1);
    training_step(t);
    training_save(t, 2);
    t->r[0].opts.delta = t->r[1].opts.delta = 0;
    training_save(t, 3);
    t->r[0].opts.delta = t->r[1].opts.delta = 1;
    training_step(t);
    training_save(t, 4);
    shard_path(t, 3, 1, path);
    assert_ok(t->files->ops->remove(t->files, path, ERR));
    assert_status(DTP_ERR_NOT_FOUND, training_read(t, 4));
    assert_text("step-00000000000000000003");
    assert_status(DTP_ERR_NOT_FOUND, dtpi_step_check(t->files, training_dir, 4, ERR));
    assert_text("step-00000000000000000003");
    assert_ok(dtpi_steps_latest(t->files, &silent, training_dir, &step, ERR));
    assert_int_equal(step, 2);
}

static void test_a_parent_with_a_missing_part_only_costs_room(void **state)
{
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_NONE, 1);
    char dir[DTPI_PATH_MAX], path[DTPI_PATH_MAX];

    (void)state;
    training_add(t, 0, "w", 1, flat, NULL, NULL, FROZEN);
    training_save(t, 1);
    assert_ok(dtpi_step_path(dir, training_dir, 1, ERR));
    assert_ok(dtpi_path_join(path, dir, "part-00000-of-00002.0000000000001007.bin", ERR));
    assert_ok(dtpi_files_mem_flip(t->files, path, 100, 1, ERR));
    training_save(t, 2);
    assert_int_equal(training_data(t, 2), 40000);
    training_check(t, 2);
}

/* ---- retention ---- */

static size_t count_steps(training *t, size_t *complete_out)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(&dtpi_malloc_allocator);

    assert_ok(dtpi_steps_list(t->files, training_dir, &list, ERR));
    *complete_out = 0;
    for (size_t i = 0; i < list.len / sizeof(uint64_t); i++)
        *complete_out += dtpi_step_check(t->files, training_dir, *DTPI_MF_GET(uint64_t, list, i), NULL) >= 0;
    return list.len / sizeof(uint64_t);
}

static void test_retention_keeps_what_kept_steps_need(void **state)
{
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_PLANES, 1);
    size_t complete, n;

    (void)state;
    t->r[0].opts.keep_last = 2;
    add_all(t);
    for (uint64_t step = 1; step <= 25; step++) {
        training_save(t, step);
        training_step(t);
        n = count_steps(t, &complete);
        assert_int_equal(complete, DTPI_MIN(step, (uint64_t)2));
        assert_true(n <= 2 + DTPI_LINEAGE_MAX);
        training_check(t, step);
        if (step > 1)
            training_check(t, step - 1);
    }
    assert_true(n > 2);
    /* A step that needs nothing lets all others go. */
    t->r[0].opts.delta = t->r[1].opts.delta = 0;
    training_save(t, 26);
    training_save(t, 27);
    assert_int_equal(count_steps(t, &complete), 2);
    training_check(t, 27);
}

static void test_saving_an_old_number_again_keeps_needed_shards(void **state)
{
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_NONE, 1);

    (void)state;
    training_add(t, 0, "w", 1, flat, NULL, NULL, FROZEN);
    t->r[0].opts.keep_last = 1;
    for (uint64_t step = 1; step <= 3; step++)
        training_save(t, step);
    assert_int_equal(training_data(t, 3), 0);
    t->r[0].opts.keep_last = 0;
    t->how[0][0] = NOISE;
    training_step(t);
    t->r[0].link.base.size = 1;         /* so that the shard has another name */
    assert_ok(ranks_save(t->r, 1, 1));
    memcpy(t->was[1][0][0], t->r[0].tensors[0].data, 40000);
    training_check(t, 1);
    training_check(t, 3);
}

/* An older library, or a hand, removed the shards: nothing is built on such a step. */
static void test_a_step_without_its_base_is_no_parent(void **state)
{
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_NONE, 1);
    char path[DTPI_PATH_MAX];

    (void)state;
    training_add(t, 0, "w", 1, flat, NULL, NULL, FROZEN);
    training_save(t, 1);
    training_save(t, 2);
    shard_path(t, 1, 0, path);
    assert_ok(t->files->ops->remove(t->files, path, ERR));
    training_save(t, 3);
    assert_int_equal(training_data(t, 3), 40000);
    training_check(t, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_lineage_is_the_parent_and_the_newest_of_its_own),
        cmocka_unit_test(test_steps_that_stay_need_their_lineage_and_no_more),
        cmocka_unit_test(test_without_sizes_every_chunk_has_its_base),
        cmocka_unit_test(test_twenty_steps_come_back_bit_exactly),
        cmocka_unit_test(test_equal_content_of_a_step_is_stored_once_always),
        cmocka_unit_test(test_a_tied_pair_of_two_shapes_has_one_base),
        cmocka_unit_test(test_names_stay_lent_while_parts_bring_files),
        cmocka_unit_test(test_frozen_tensors_are_written_once),
        cmocka_unit_test(test_another_box_or_type_is_stored_anew),
        cmocka_unit_test(test_another_codec_or_chunk_takes_nothing_over),
        cmocka_unit_test(test_chains_and_lineages_are_bounded),
        cmocka_unit_test(test_the_oldest_steps_are_let_go),
        cmocka_unit_test(test_resharded_loads_go_through_xor),
        cmocka_unit_test(test_a_damaged_base_is_named_with_its_step),
        cmocka_unit_test(test_a_missing_base_makes_a_step_damaged),
        cmocka_unit_test(test_a_parent_with_a_missing_part_only_costs_room),
        cmocka_unit_test(test_retention_keeps_what_kept_steps_need),
        cmocka_unit_test(test_saving_an_old_number_again_keeps_needed_shards),
        cmocka_unit_test(test_a_step_without_its_base_is_no_parent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
