/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ckpt_recorded.c - jobs of 1, 2 and 4 processes save to a real folder, in the background, too, under
 * the recorder; then what a crash may have left after each of their operations is looked at.
 *
 *   test_ckpt_recorded SAVER RECORDER
 */
#include "crash/record.h"
#include "crash/recorded.h"
#include "crash/story.h"
#include "tree.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *saver, *recorder;
static story_walk walk;

/* Its exit status. */
static int run_saver(const char *dir, const char *log, int n, const char *const *args, int nth, int how)
{
    char ranks[16], nth_text[16], how_text[16];
    int status = -1;

    snprintf(ranks, sizeof(ranks), "%d", n);
    snprintf(nth_text, sizeof(nth_text), "%d", nth);
    snprintf(how_text, sizeof(how_text), "%d", how);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("DTP_CRASH_DIR", dir, 1);
        setenv("DTP_CRASH_LOG", log, 1);
        setenv("LD_PRELOAD", recorder, 1);
        execl(saver, saver, dir, ranks, args[0], args[1], args[2], args[3], nth < 0 ? NULL : nth_text, how_text,
              (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void look(const recorded *r, const char *title, int n, uint64_t steps, size_t max_all, size_t n_random)
{
    story s = { .title = title, .n = n, .newest = steps };

    for (size_t i = 0; i < r->n_marks; i++)
        story_acked(&s, r->marks[i].what, r->marks[i].done);
    story_look(&walk, &s, r->ops, r->n, 0, 0, max_all, n_random);
}

static void make_folders(char top[256], char dir[300], char log[300])
{
    const char *base = getenv("TMPDIR");

    snprintf(top, 256, "%s/dtp-recorded-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(top));
    snprintf(dir, 300, "%s/d", top);
    snprintf(log, 300, "%s/log", top);
    assert_int_equal(mkdir(dir, 0777), 0);
}

/* Codec, steps to keep, delta, steps. */
static const char *const jobs[][4] = {
    { "0", "2", "0", "4" },
    { "2", "1", "1", "4" },
};

static void test_recorded_saves_cut_off_anywhere(void **state)
{
    char top[256], dir[300], log[300];

    (void)state;
    walk.every = 1;
    for (int n = 1; n <= 4; n *= 2)
        for (size_t i = 0; i < DTPI_ARRAY_LEN(jobs); i++) {
            recorded r;
            make_folders(top, dir, log);
            assert_int_equal(run_saver(dir, log, n, jobs[i], -1, 0), 0);
            assert_int_equal(recorded_read(&r, log, dir), 0);
            assert_int_equal(r.marks[r.n_marks - 1].what, 4);
            look(&r, i ? "recorded, packed, with references" : "recorded", n, 4, check_is_long() ? 3000 : 50,
                 check_is_long() ? 1000 : 6);
            print_message("%d ranks: %zu operations\n", n, r.n);
            recorded_free(&r);
            tree_remove(top);
        }
}

/* Where a system call fails the step before is there, and the next attempt goes through. */
static int fail_call(int n, const char *const *job, int nth, int how)
{
    char top[256], dir[300], log[300];
    recorded r;

    make_folders(top, dir, log);
    const int rc = run_saver(dir, log, n, job, nth, how);
    if (rc != 0 && rc != 10)
        fail_msg("%d ranks, call %d, how %d: exit %d", n, nth, how, rc);
    assert_int_equal(recorded_read(&r, log, dir), 0);
    look(&r, "with a failing system call", n, 2, 0, check_is_long() ? 10 : 0);
    recorded_free(&r);
    tree_remove(top);
    return rc;
}

static void test_any_system_call_may_fail(void **state)
{
    static const int hows[] = { CRASH_SHORT, EINTR, EIO, ENOSPC, EDQUOT, EROFS, ESTALE };
    static const char *const failing[][4] = { { "0", "1", "0", "2" }, { "2", "0", "1", "2" } };
    const int stride = check_is_long() ? 1 : 13;
    int n_runs = 0;

    (void)state;
    walk.every = check_is_long() ? 1 : 8;
    for (int n = 1; n <= 2; n++)
        for (size_t i = 0; i < DTPI_ARRAY_LEN(hows); i++) {
            int at = (int)(check_random(&walk.seed) % (unsigned)stride);
            while (fail_call(n, failing[at % 2], at, hows[i]) == 0) {
                at += stride;
                n_runs++;
            }
        }
    print_message("%d failing calls\n", n_runs);
    assert_true(n_runs > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_saves_cut_off_anywhere),
        cmocka_unit_test(test_any_system_call_may_fail),
    };

    if (argc != 3)
        return 2;
    saver = argv[1];
    recorder = argv[2];
    walk.seed = check_seed();
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    print_message("%zu states built, %zu distinct ones checked\n", walk.n_built, walk.n_distinct);
    crash_seen_free(&walk.seen);
    return rc;
}
