/* SPDX-License-Identifier: Apache-2.0 */
/* Which step is the newest, which go, and what a folder with other things in it does. */
#include "ranks.h"

#include <errno.h>

#include "ckpt/steps.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;
static const int64_t shape[] = { 8 };

static void save(dtpi_files *files, uint64_t step, uint32_t keep_last)
{
    rank_run r[1];

    ranks_init(r, 1, files, "ck");
    give(&r[0], "w", DTP_F32, 1, shape, NULL, NULL, step);
    r[0].opts.keep_last = keep_last;
    assert_ok(ranks_save(r, 1, step));
    ranks_free(r, 1);
}

static size_t list(dtpi_files *files, uint64_t *out)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(A);

    assert_ok(dtpi_steps_list(files, "ck", &b, ERR));
    memcpy(out, b.data, b.len);
    return b.len / sizeof(uint64_t);
}

static void shard_path(char *out, size_t room, uint64_t step)
{
    snprintf(out, room, "ck/step-%020llu/shard-00000-of-00001.%016llx.safetensors",
             (unsigned long long)step, (unsigned long long)(0x1000 * step + 7));
}

static void test_newest_is_a_number_not_a_text(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    uint64_t step = 0;

    (void)state;
    save(files, 9, 0);
    save(files, 10000, 0);
    save(files, 999, 0);
    save(files, UINT64_MAX, 0);
    assert_ok(dtpi_steps_latest(files, &silent, "ck", &step, ERR));
    assert_true(step == UINT64_MAX);
}

static void log_line(void *user, dtp_log_level level, const char *topic, const char *text)
{
    (void)level;
    (void)topic;
    strncat(user, text, 900 - strlen(user));
}

static void test_damaged_steps_are_passed_over_and_logged(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    char path[200], log_text[1000] = "";
    const dtpi_log log = { log_line, log_text, DTP_LOG_WARN };
    uint64_t step = 0;
    bool made;

    (void)state;
    for (uint64_t s = 1; s <= 4; s++)
        save(files, s, 0);
    assert_ok(files->ops->make_dir(files, "ck/step-00000000000000000005", &made, ERR));
    shard_path(path, sizeof(path), 4);
    assert_ok(dtpi_files_mem_resize(files, path, 4096, ERR));
    assert_ok(dtpi_files_mem_flip(files, "ck/step-00000000000000000003/manifest.json", 33, 1, ERR));
    shard_path(path, sizeof(path), 2);
    assert_ok(files->ops->remove(files, path, ERR));
    assert_ok(dtpi_steps_latest(files, &log, "ck", &step, ERR));
    assert_int_equal(step, 1);
    assert_non_null(strstr(log_text, "step 5 is passed over: cannot open ck/step-00000000000000000005/manifest.json"));
    assert_non_null(strstr(log_text, "step 4 is passed over: ck/step-00000000000000000004/shard-00000-of-00001.0000000000004007.safetensors has 4096 bytes instead of 4128"));
    assert_non_null(strstr(log_text, "step 3 is passed over: ck/step-00000000000000000003/manifest.json: checksum mismatch"));
    assert_non_null(strstr(log_text, "step 2 is passed over: cannot look at"));
}

static void test_steps_that_cannot_be_looked_at_are_not_missing(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    uint64_t step = 0;

    (void)state;
    save(files, 1, 0);
    dtpi_files_mem_fail(files, 2, EMFILE);      /* the list, then the manifest */
    assert_status(DTP_ERR_LIMIT, dtpi_steps_latest(files, &silent, "ck", &step, ERR));
    assert_text("cannot open ck/step-00000000000000000001/manifest.json");
    save(files, 2, 0);
    dtpi_files_mem_fail(files, 2, EIO);
    assert_ok(dtpi_steps_latest(files, &silent, "ck", &step, ERR));
    assert_int_equal(step, 1);
}

static void test_nothing_is_found_where_nothing_is(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    uint64_t step = 0;
    bool made;

    (void)state;
    assert_status(DTP_ERR_NOT_FOUND, dtpi_steps_latest(files, &silent, "ck", &step, ERR));
    assert_ok(files->ops->make_dir(files, "ck", &made, ERR));
    assert_ok(files->ops->make_dir(files, "ck/step-1", &made, ERR));
    assert_ok(files->ops->make_dir(files, "ck/step-99999999999999999999", &made, ERR));
    assert_ok(files->ops->make_dir(files, "ck/step-0000000000000000000x", &made, ERR));
    assert_status(DTP_ERR_NOT_FOUND, dtpi_steps_latest(files, &silent, "ck", &step, ERR));
    assert_text("no complete checkpoint under ck (0 steps looked at)");
}

static void test_retention_keeps_the_newest_complete_ones(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    char path[200];
    uint64_t steps[8], step = 0;
    bool made;

    (void)state;
    for (uint64_t s = 1; s <= 5; s++)
        save(files, s * 10, 0);
    shard_path(path, sizeof(path), 50);
    assert_ok(dtpi_files_mem_resize(files, path, 100, ERR));   /* damaged: does not count */
    assert_ok(files->ops->make_dir(files, "ck/step-00000000000000000005", &made, ERR));
    save(files, 60, 2);
    const size_t n = list(files, steps);
    assert_int_equal(n, 3);
    assert_int_equal(steps[0], 40);
    assert_int_equal(steps[1], 50);
    assert_int_equal(steps[2], 60);
    assert_ok(dtpi_steps_latest(files, &silent, "ck", &step, ERR));
    assert_int_equal(step, 60);
}

static void test_retention_never_removes_what_was_just_saved(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    uint64_t steps[8];

    (void)state;
    save(files, 100, 0);
    save(files, 200, 0);
    save(files, 50, 1);         /* a run that began again */
    assert_int_equal(list(files, steps), 3);
    save(files, 60, 1);
    assert_int_equal(list(files, steps), 3);
    assert_int_equal(steps[0], 60);
}

static void test_files_of_others_stay(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    dtpi_file *file = NULL;
    uint64_t steps[8], bytes;

    (void)state;
    save(files, 1, 0);
    assert_ok(files->ops->create(files, "ck/step-00000000000000000001/notes.txt", 0, &file, ERR));
    dtpi_file_drop(file);
    save(files, 2, 1);
    assert_int_equal(list(files, steps), 2);
    assert_ok(files->ops->size(files, "ck/step-00000000000000000001/notes.txt", &bytes, ERR));
    assert_status(DTP_ERR_NOT_FOUND, files->ops->size(files, "ck/step-00000000000000000001/manifest.json", &bytes, ERR));
    save(files, 1, 0);          /* and the number can be used again */
}

static void test_manifest_of_another_step_is_refused(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    bool made;

    (void)state;
    save(files, 1, 0);
    assert_ok(files->ops->make_dir(files, "ck/step-00000000000000000002", &made, ERR));
    assert_ok(files->ops->publish(files, "ck/step-00000000000000000001/manifest.json",
                                  "ck/step-00000000000000000002/manifest.json", false, ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_step_check(files, "ck", 2, ERR));
    assert_text("is the manifest of step 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newest_is_a_number_not_a_text),
        cmocka_unit_test(test_damaged_steps_are_passed_over_and_logged),
        cmocka_unit_test(test_steps_that_cannot_be_looked_at_are_not_missing),
        cmocka_unit_test(test_nothing_is_found_where_nothing_is),
        cmocka_unit_test(test_retention_keeps_the_newest_complete_ones),
        cmocka_unit_test(test_retention_never_removes_what_was_just_saved),
        cmocka_unit_test(test_files_of_others_stay),
        cmocka_unit_test(test_manifest_of_another_step_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
