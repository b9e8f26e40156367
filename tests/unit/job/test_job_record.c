/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a job: made once, replaced only when the job has surely ended, read in spite of damage. */
#include "check.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job/record.h"

static char run_dir[] = "/tmp/dtp-test-XXXXXX";

static int remove_one(const char *path, const struct stat *sb, int kind, struct FTW *ftw)
{
    (void)sb;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(run_dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(run_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static dtp_status create(dtpi_record *r, const char *name)
{
    const char *const argv[] = { "true", NULL };
    const dtp_job_spec user = { .size = sizeof(user), .name = name, .argv = argv, .n_ranks = 1 };
    DTPI_AUTO_SPEC dtpi_spec spec;

    dtpi_spec_init(&spec, &dtpi_malloc_allocator);
    assert_ok(dtpi_spec_copy(&spec, &user, ERR));
    return dtpi_record_create(r, run_dir, &spec, ERR);
}

static bool has(const dtpi_record *r, const char *file)
{
    char path[PATH_MAX + 16];

    snprintf(path, sizeof(path), "%s/%s", r->dir, file);
    return access(path, F_OK) == 0;
}

static void test_an_ended_job_is_replaced_and_a_running_one_is_not(void **state)
{
    dtpi_record one, two;

    (void)state;
    assert_ok(create(&one, "j"));
    assert_true(has(&one, "spec") && has(&one, "secret") && has(&one, "journal"));
    assert_true(dtpi_record_is_alive(&one));
    assert_status(DTP_ERR_EXISTS, create(&two, "j"));
    assert_text("job 'j' is running already");
    dtpi_record_unlock(&one);
    assert_false(dtpi_record_is_alive(&one));
    assert_ok(create(&two, "j"));
    dtpi_record_unlock(&two);
}

static void test_a_job_of_which_nobody_knows_is_not_replaced(void **state)
{
    char path[PATH_MAX + 16];
    dtpi_record one, two;

    (void)state;
    assert_ok(create(&one, "unknown"));
    dtpi_record_unlock(&one);
    snprintf(path, sizeof(path), "%s/alive", one.dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);     /* cannot be opened, as when descriptors are out */
    assert_true(dtpi_record_is_alive(&one));
    assert_status(DTP_ERR_EXISTS, create(&two, "unknown"));
    assert_true(has(&one, "spec") && has(&one, "journal"));
}

static void count(void *user, const dtpi_journal_entry *e)
{
    uint32_t *seen = user;

    *seen |= 1u << e->type;
}

static void test_what_follows_a_torn_line_is_read(void **state)
{
    const dtpi_journal_entry attempt = { .type = DTPI_JOURNAL_ATTEMPT, .n = 1, .rank = -1 },
                             gone = { .type = DTPI_JOURNAL_GONE, .rank = -1 };
    char path[PATH_MAX + 16];
    uint32_t seen = 0;
    dtpi_record r;

    (void)state;
    assert_ok(create(&r, "torn"));
    assert_ok(dtpi_record_write(&r, &attempt, ERR));
    snprintf(path, sizeof(path), "%s/journal", r.dir);
    const int fd = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "17 exit 0", 9), 9);     /* the disk was full */
    close(fd);
    assert_ok(dtpi_record_write(&r, &gone, ERR));
    assert_ok(dtpi_record_read(&r, &dtpi_malloc_allocator, UINT64_MAX, count, &seen, ERR));
    assert_int_equal(seen, 1u << DTPI_JOURNAL_ATTEMPT | 1u << DTPI_JOURNAL_GONE);
    dtpi_record_unlock(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_ended_job_is_replaced_and_a_running_one_is_not),
        cmocka_unit_test(test_a_job_of_which_nobody_knows_is_not_replaced),
        cmocka_unit_test(test_what_follows_a_torn_line_is_read),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
