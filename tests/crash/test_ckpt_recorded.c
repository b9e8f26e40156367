/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ckpt_recorded.c - jobs of 1, 2 and 4 processes save to a real folder, in the background, too, under
 * the recorder; then what a crash may have left after each of their operations is looked at.
 *
 *   test_ckpt_recorded SAVER RECORDER
 */
#include "crash/recorded.h"
#include "crash/story.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *saver, *recorder;
static story_walk walk;

static void remove_tree(const char *path)
{
    char child[4096];
    DIR *d = opendir(path);

    for (const struct dirent *e; d && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(child, sizeof(child), "%s/%s", path, e->d_name);
        if (unlink(child) < 0)
            remove_tree(child);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static void run_saver(const char *dir, const char *log, int n, const char *const *args)
{
    char ranks[16];
    int status = -1;

    snprintf(ranks, sizeof(ranks), "%d", n);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("DTP_CRASH_DIR", dir, 1);
        setenv("DTP_CRASH_LOG", log, 1);
        setenv("LD_PRELOAD", recorder, 1);
        execl(saver, saver, dir, ranks, args[0], args[1], args[2], args[3], (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void look(const recorded *r, const char *title, int n, uint64_t steps)
{
    story s = { .title = title, .n = n, .newest = steps };

    for (size_t i = 0; i < r->n_marks; i++)
        story_acked(&s, r->marks[i].what, r->marks[i].done);
    assert_int_equal(story_promise(&s, r->n), steps);
    story_look(&walk, &s, r->ops, r->n, 0, 0, check_is_long() ? 3000 : 50, check_is_long() ? 1000 : 6);
}

/* Codec, steps to keep, delta, steps. */
static const char *const jobs[][4] = {
    { "0", "2", "0", "4" },
    { "2", "1", "1", "4" },
};

static void test_recorded_saves_cut_off_anywhere(void **state)
{
    const char *base = getenv("TMPDIR");
    char top[256], dir[300], log[300];

    (void)state;
    for (int n = 1; n <= 4; n *= 2)
        for (size_t i = 0; i < DTPI_ARRAY_LEN(jobs); i++) {
            recorded r;
            snprintf(top, sizeof(top), "%s/dtp-recorded-XXXXXX", base ? base : "/tmp");
            assert_non_null(mkdtemp(top));
            snprintf(dir, sizeof(dir), "%s/d", top);
            snprintf(log, sizeof(log), "%s/log", top);
            assert_int_equal(mkdir(dir, 0777), 0);
            run_saver(dir, log, n, jobs[i]);
            assert_int_equal(recorded_read(&r, log, dir), 0);
            look(&r, i ? "recorded, packed, with references" : "recorded", n, 4);
            print_message("%d ranks: %zu operations\n", n, r.n);
            recorded_free(&r);
            remove_tree(top);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_saves_cut_off_anywhere),
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
