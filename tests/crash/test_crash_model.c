/* SPDX-License-Identifier: Apache-2.0 */
/* What the model of a crash keeps and loses, on logs of a few operations. */
#include "check.h"

#include "crash/states.h"

static const uint8_t letters[3 * CRASH_PAGE] = { [0] = 'a', [CRASH_PAGE] = 'b', [2 * CRASH_PAGE] = 'c' };

/* The state after a log with the units of `keep` ('1': kept) and a choice of sizes. */
static const crash_state *after(crash_model *m, const crash_op *ops, size_t n, const char *keep, crash_size size)
{
    static uint8_t bits[64];
    const crash_choice c = { CRASH_PAGE, size, bits };

    for (size_t i = 0; i < n; i++)
        crash_step(m, &ops[i]);
    assert_int_equal(crash_n_names(m) + crash_n_pieces(m, CRASH_PAGE), strlen(keep));
    for (size_t i = 0; keep[i]; i++)
        bits[i] = keep[i] == '1';
    return crash_build(m, &c);
}

#define AFTER(ops, keep, size) after(m, ops, DTPI_ARRAY_LEN(ops), keep, size)

static int new_model(void **state)
{
    *state = crash_model_new();
    return 0;
}

static int free_model(void **state)
{
    crash_model_free(*state);
    return 0;
}

static void test_unsynced_data_and_names_go_apart(void **state)
{
    const crash_op ops[] = {
        { CRASH_CREATE, 0, "a", NULL, 0, NULL, 0 },
        { CRASH_WRITE, 0, "a", NULL, 0, letters, sizeof(letters) },
    };
    crash_model *m = *state;

    assert_int_equal(AFTER(ops, "0111", CRASH_SIZE_TOLD)->n, 0);
    const crash_state *s = after(m, ops, 0, "1010", CRASH_SIZE_TOLD);
    assert_int_equal(s->n, 1);
    assert_int_equal(s->entries[0].bytes, sizeof(letters));
    assert_int_equal(s->entries[0].data[0], 0);
    assert_int_equal(s->entries[0].data[CRASH_PAGE], 'b');
    assert_int_equal(s->entries[0].data[2 * CRASH_PAGE], 0);
    s = after(m, ops, 0, "1010", CRASH_SIZE_KEPT);
    assert_int_equal(s->entries[0].bytes, 2 * CRASH_PAGE);
    s = after(m, ops, 0, "1010", CRASH_SIZE_DURABLE);
    assert_int_equal(s->entries[0].bytes, 0);
}

static void test_synced_data_and_names_stay(void **state)
{
    const crash_op ops[] = {
        { CRASH_MAKE_DIR, 0, "d", NULL, 0, NULL, 0 },
        { CRASH_CREATE, 1, "d/a", NULL, 0, NULL, 0 },
        { CRASH_WRITE, 1, "d/a", NULL, 0, letters, 10 },
        { CRASH_SYNC, 1, NULL, NULL, 0, NULL, 0 },
        { CRASH_SYNC_DIR, 0, "d", NULL, 0, NULL, 0 },
    };
    const crash_op root = { CRASH_SYNC_DIR, CRASH_ROOT, ".", NULL, 0, NULL, 0 };
    crash_model *m = *state;

    /* The folder itself is not durable. */
    assert_int_equal(AFTER(ops, "0", CRASH_SIZE_KEPT)->n, 0);
    assert_int_equal(after(m, ops, 0, "1", CRASH_SIZE_KEPT)->n, 2);
    const crash_state *s = after(m, &root, 1, "", CRASH_SIZE_KEPT);
    assert_int_equal(s->n, 2);
    assert_string_equal(s->entries[1].path, "d/a");
    assert_int_equal(s->entries[1].bytes, 10);
    assert_int_equal(s->entries[1].data[0], 'a');
}

static void test_rename_happens_or_does_not(void **state)
{
    const crash_op ops[] = {
        { CRASH_CREATE, 0, "a", NULL, 0, NULL, 0 },
        { CRASH_SYNC_DIR, CRASH_ROOT, ".", NULL, 0, NULL, 0 },
        { CRASH_CREATE, 1, "a.tmp", NULL, 0, NULL, 0 },
        { CRASH_RENAME, 1, "a.tmp", "a", 0, NULL, 0 },
    };
    crash_model *m = *state;

    const crash_state *s = AFTER(ops, "01", CRASH_SIZE_KEPT);
    assert_int_equal(s->n, 1);
    assert_int_equal(s->entries[0].node, 1);
    s = after(m, ops, 0, "10", CRASH_SIZE_KEPT);
    assert_int_equal(s->n, 2);
    assert_int_equal(s->entries[0].node, 0);
}

static void test_failed_sync_is_not_mended_by_the_next(void **state)
{
    const crash_op ops[] = {
        { CRASH_CREATE, 0, "a", NULL, 0, NULL, 0 },
        { CRASH_SYNC_DIR, CRASH_ROOT, ".", NULL, 0, NULL, 0 },
        { CRASH_WRITE, 0, "a", NULL, 0, letters, 10 },
        { CRASH_SYNC_LOST, 0, "a", NULL, 0, NULL, 0 },
        { CRASH_SYNC, 0, "a", NULL, 0, NULL, 0 },
    };
    crash_model *m = *state;

    assert_int_equal(AFTER(ops, "0", CRASH_SIZE_KEPT)->entries[0].bytes, 0);
    assert_int_equal(after(m, ops, 0, "1", CRASH_SIZE_KEPT)->entries[0].bytes, 10);
}

static void test_a_later_write_brings_the_page_with_it(void **state)
{
    const crash_op ops[] = {
        { CRASH_CREATE, 0, "a", NULL, 0, NULL, 0 },
        { CRASH_SYNC_DIR, CRASH_ROOT, ".", NULL, 0, NULL, 0 },
        { CRASH_WRITE, 0, "a", NULL, 0, (const uint8_t *)"12", 2 },
        { CRASH_WRITE, 0, "a", NULL, 2, (const uint8_t *)"34", 2 },
    };
    crash_model *m = *state;

    assert_memory_equal(AFTER(ops, "01", CRASH_SIZE_KEPT)->entries[0].data, "1234", 4);
    assert_int_equal(after(m, ops, 0, "10", CRASH_SIZE_KEPT)->entries[0].bytes, 2);
}

static void test_truncation_comes_before_what_follows_it(void **state)
{
    const crash_op ops[] = {
        { CRASH_CREATE, 0, "a", NULL, 0, NULL, 0 },
        { CRASH_SYNC_DIR, CRASH_ROOT, ".", NULL, 0, NULL, 0 },
        { CRASH_WRITE, 0, "a", NULL, 0, letters, sizeof(letters) },
        { CRASH_SYNC, 0, "a", NULL, 0, NULL, 0 },
        { CRASH_CUT, 0, "a", NULL, 0, NULL, 0 },
        { CRASH_WRITE, 0, "a", NULL, 0, (const uint8_t *)"new", 3 },
    };
    crash_model *m = *state;

    assert_int_equal(AFTER(ops, "00", CRASH_SIZE_KEPT)->entries[0].bytes, sizeof(letters));
    assert_int_equal(after(m, ops, 0, "10", CRASH_SIZE_KEPT)->entries[0].bytes, 0);
    assert_int_equal(after(m, ops, 0, "01", CRASH_SIZE_KEPT)->entries[0].bytes, 3);
    assert_int_equal(after(m, ops, 0, "01", CRASH_SIZE_KEPT)->entries[0].data[0], 'n');
}

static void test_a_new_folder_has_nothing_of_the_old(void **state)
{
    const crash_op ops[] = {
        { CRASH_MAKE_DIR, 0, "d", NULL, 0, NULL, 0 },
        { CRASH_CREATE, 1, "d/a", NULL, 0, NULL, 0 },
        { CRASH_SYNC_DIR, 0, "d", NULL, 0, NULL, 0 },
        { CRASH_SYNC_DIR, CRASH_ROOT, ".", NULL, 0, NULL, 0 },
        { CRASH_REMOVE, 1, "d/a", NULL, 0, NULL, 0 },
        { CRASH_REMOVE, 0, "d", NULL, 0, NULL, 0 },
        { CRASH_MAKE_DIR, 2, "d", NULL, 0, NULL, 0 },
    };
    crash_model *m = *state;

    assert_int_equal(AFTER(ops, "000", CRASH_SIZE_KEPT)->n, 2);
    assert_int_equal(after(m, ops, 0, "001", CRASH_SIZE_KEPT)->n, 1);
    assert_int_equal(after(m, ops, 0, "010", CRASH_SIZE_KEPT)->n, 0);
}

static uint64_t no_promise(void *user, size_t done)
{
    (void)user;
    return done * 0;
}

static int count(void *user, size_t done, const crash_state *s, const char *how)
{
    (void)done;
    (void)s;
    (void)how;
    ++*(int *)user;
    return 0;
}

static void test_walk_finds_every_state_once(void **state)
{
    const crash_op ops[] = {
        { CRASH_CREATE, 0, "a", NULL, 0, NULL, 0 },
        { CRASH_SYNC_DIR, CRASH_ROOT, ".", NULL, 0, NULL, 0 },
        { CRASH_WRITE, 0, "a", NULL, 0, letters, sizeof(letters) },
    };
    crash_seen seen = { 0 };
    int n = 0;
    crash_walk w = { .ops = ops, .n = 3, .max_all = 100, .seed = 1, .seen = &seen, .promise = no_promise,
                     .check = count, .user = &n };

    (void)state;
    assert_int_equal(crash_walk_run(&w), 0);
    assert_int_equal(w.n_distinct, n);
    /* No file; empty; 7 sets of pages with either size; nothing but zeros; and torn sectors, drawn. */
    assert_true(n >= 12 && n <= 12 + 16);
    crash_seen_free(&seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unsynced_data_and_names_go_apart, new_model, free_model),
        cmocka_unit_test_setup_teardown(test_synced_data_and_names_stay, new_model, free_model),
        cmocka_unit_test_setup_teardown(test_rename_happens_or_does_not, new_model, free_model),
        cmocka_unit_test_setup_teardown(test_failed_sync_is_not_mended_by_the_next, new_model, free_model),
        cmocka_unit_test_setup_teardown(test_a_later_write_brings_the_page_with_it, new_model, free_model),
        cmocka_unit_test_setup_teardown(test_truncation_comes_before_what_follows_it, new_model, free_model),
        cmocka_unit_test_setup_teardown(test_a_new_folder_has_nothing_of_the_old, new_model, free_model),
        cmocka_unit_test(test_walk_finds_every_state_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
