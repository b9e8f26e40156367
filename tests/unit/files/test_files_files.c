/* SPDX-License-Identifier: Apache-2.0 */
/* All members of the file family behave alike; what only one can do is tested beside it. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files/files.h"
#include "files/mem.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;
static char base[] = "/tmp/dtp-test-files-XXXXXX";

static dtpi_files *open_kind(void **state)
{
    dtpi_files *files = NULL;
    bool made;

    if (strcmp(*state, "mem") == 0) {
        assert_ok(dtpi_files_mem_open(A, &files, ERR));
        assert_ok(files->ops->make_dir(files, "/tmp", &made, ERR));
        assert_ok(files->ops->make_dir(files, base, &made, ERR));
    } else {
        const dtp_status st = dtpi_files_open(A, *state, &files, ERR);
        if (st == DTP_ERR_UNSUPPORTED) {
            print_message("skipped: %s\n", check_err.text);
            skip();
        }
        assert_int_equal(st, DTP_OK);
    }
    return files;
}

static const char *in_base(const char *name)
{
    static char path[4][DTPI_PATH_MAX];
    static unsigned turn;
    char *p = path[turn++ % 4];

    assert_ok(dtpi_path_join(p, base, name, ERR));
    return p;
}

static void put(dtpi_files *f, const char *path, const void *data, size_t bytes)
{
    dtpi_file *file = NULL;

    assert_ok(f->ops->create(f, path, bytes, &file, ERR));
    assert_ok(f->ops->write(file, 0, data, bytes, ERR));
    assert_ok(f->ops->sync(file, ERR));
    assert_ok(f->ops->close_file(file, ERR));
}

static dtp_status count_names(void *user, const char *name, dtp_error *err)
{
    (void)name;
    (void)err;
    ++*(int *)user;
    return DTP_OK;
}

static void test_what_is_written_is_read_back(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_kind(state);
    const char *path = in_base("a");
    uint64_t bytes = 0;
    char text[8] = "";
    dtpi_file *file = NULL;

    put(f, path, "hello, you", 10);
    assert_ok(f->ops->open(f, path, &file, &bytes, ERR));
    assert_int_equal(bytes, 10);
    assert_ok(f->ops->read(file, 7, text, 3, ERR));
    assert_string_equal(text, "you");
    assert_status(DTP_ERR_TRUNCATED, f->ops->read(file, 7, text, 4, ERR));
    assert_text(path);
    assert_ok(f->ops->close_file(file, ERR));
    assert_ok(f->ops->remove(f, path, ERR));
}

static void test_create_refuses_what_is_there(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_kind(state);
    const char *path = in_base("b");
    dtpi_file *file = NULL;

    put(f, path, "x", 1);
    assert_status(DTP_ERR_EXISTS, f->ops->create(f, path, 0, &file, ERR));
    assert_text(path);
    assert_ok(f->ops->remove(f, path, ERR));
    assert_status(DTP_ERR_NOT_FOUND, f->ops->remove(f, path, ERR));
}

static void test_publish_keeps_an_older_file(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_kind(state);
    const char *old = in_base("old"), *fresh = in_base("new");
    DTPI_AUTO_BUF dtpi_buf buf = dtpi_buf_init(A);

    put(f, old, "old", 3);
    put(f, fresh, "new", 3);
    assert_status(DTP_ERR_EXISTS, f->ops->publish(f, fresh, old, false, ERR));
    assert_ok(dtpi_files_read_all(f, old, 100, &buf, ERR));
    assert_memory_equal(buf.data, "old", 3);
    assert_ok(f->ops->publish(f, fresh, old, true, ERR));
    assert_ok(dtpi_files_read_all(f, old, 100, &buf, ERR));
    assert_memory_equal(buf.data, "new", 3);
    assert_status(DTP_ERR_LIMIT, dtpi_files_read_all(f, old, 2, &buf, ERR));
    assert_ok(f->ops->remove(f, old, ERR));
}

static void test_publish_all_leaves_no_temporary_file(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_kind(state);
    const char *temp = in_base("m.tmp"), *path = in_base("m");
    uint64_t bytes;

    assert_ok(dtpi_files_publish_all(f, base, temp, path, "abc", 3, false, ERR));
    assert_status(DTP_ERR_EXISTS,
                  dtpi_files_publish_all(f, base, temp, path, "abcd", 4, false, ERR));
    assert_status(DTP_ERR_NOT_FOUND, f->ops->size(f, temp, &bytes, ERR));
    assert_ok(f->ops->size(f, path, &bytes, ERR));
    assert_int_equal(bytes, 3);
    assert_ok(f->ops->remove(f, path, ERR));
}

static void test_folders_are_made_with_their_parents(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_kind(state);
    int n = 0;

    assert_ok(dtpi_files_make_dirs(f, in_base("d/e/f"), false, ERR));
    assert_ok(dtpi_files_make_dirs(f, in_base("d/e/f"), false, ERR));
    put(f, in_base("d/e/one"), "1", 1);
    assert_ok(f->ops->list(f, in_base("d/e"), count_names, &n, ERR));
    assert_int_equal(n, 2);
    assert_status(DTP_ERR_NOT_FOUND, f->ops->list(f, in_base("none"), count_names, &n, ERR));
    assert_true(f->ops->remove_dir(f, in_base("d/e"), ERR) < 0);
    assert_ok(f->ops->remove(f, in_base("d/e/one"), ERR));
    assert_ok(f->ops->remove_dir(f, in_base("d/e/f"), ERR));
    assert_ok(f->ops->remove_dir(f, in_base("d/e"), ERR));
    assert_ok(f->ops->remove_dir(f, in_base("d"), ERR));
}

static void test_lock_has_one_holder(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_kind(state);
    dtpi_file *first = NULL, *second = NULL;
    const char *path = in_base("lock");

    assert_ok(f->ops->lock(f, path, &first, ERR));
    assert_status(DTP_ERR_BUSY, f->ops->lock(f, path, &second, ERR));
    assert_text(path);
    assert_ok(f->ops->close_file(first, ERR));
    assert_ok(f->ops->lock(f, path, &second, ERR));
    assert_ok(f->ops->close_file(second, ERR));
    assert_ok(f->ops->remove(f, path, ERR));
}

static void test_a_lock_is_given_back_though_a_forked_child_lives(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = NULL;
    dtpi_file *first = NULL, *second = NULL;
    const char *path = in_base("lock");
    int gate[2];
    char c;

    (void)state;
    assert_ok(dtpi_files_open(A, "posix", &f, ERR));
    assert_int_equal(pipe(gate), 0);
    assert_ok(f->ops->lock(f, path, &first, ERR));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(gate[1]);
        _exit(read(gate[0], &c, 1) == 0 ? 0 : 1);
    }
    assert_ok(f->ops->close_file(first, ERR));
    const dtp_status st = f->ops->lock(f, path, &second, ERR);
    close(gate[1]);
    close(gate[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(st, DTP_OK);
    assert_ok(f->ops->close_file(second, ERR));
    assert_ok(f->ops->remove(f, path, ERR));
}

static void test_paths_too_long_are_refused(void **state)
{
    char path[DTPI_PATH_MAX], name[DTPI_PATH_MAX];

    (void)state;
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_status(DTP_ERR_LIMIT, dtpi_path_join(path, "/tmp", name, ERR));
}

static void test_full_disk_says_how_much_is_missing(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = NULL;
    dtpi_file *file = NULL;
    char path[DTPI_PATH_MAX], data[65536] = { 1 };

    (void)state;
    assert_ok(dtpi_files_open(A, "posix", &f, ERR));
    assert_ok(dtpi_files_make_dirs(f, in_base("small"), true, ERR));
    if (mount("none", in_base("small"), "tmpfs", 0, "size=1M") < 0) {
        assert_ok(f->ops->remove_dir(f, in_base("small"), ERR));
        print_message("skipped: may not mount a small file system\n");
        skip();
    }
    assert_ok(dtpi_path_join(path, in_base("small"), "x", ERR));
    assert_status(DTP_ERR_NOSPC, f->ops->create(f, path, 3 << 20, &file, ERR));
    assert_text(path);
    assert_text("3145728 bytes wanted, 2097152 missing");
    assert_status(DTP_ERR_NOT_FOUND, f->ops->remove(f, path, ERR));

    /* Of unknown size: found when it is written. */
    dtp_status st = DTP_OK;
    assert_ok(f->ops->create(f, path, 0, &file, ERR));
    for (uint64_t at = 0; st == DTP_OK; at += sizeof(data))
        st = f->ops->write(file, at, data, sizeof(data), ERR);
    assert_int_equal(st, DTP_ERR_NOSPC);
    assert_text("missing");
    dtpi_file_drop(file);
    assert_int_equal(umount(in_base("small")), 0);
    assert_ok(f->ops->remove_dir(f, in_base("small"), ERR));
}

/* Takes the library's call: signals come faster than it is done, as on a busy tmpfs under a profiler. */
static bool is_disturbed;

int fallocate(int fd, int mode, off_t at, off_t bytes)
{
    static int n_disturbed;
    sigset_t blocked;

    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!is_disturbed || sigismember(&blocked, SIGPROF))
        return (int)syscall(SYS_fallocate, fd, mode, at, bytes);
    if (++n_disturbed == 1000)
        fail_msg("begins anew for ever");
    errno = EINTR;
    return -1;
}

static void test_signals_do_not_keep_room_from_being_reserved(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = NULL;
    dtpi_file *file = NULL;
    sigset_t before, after;

    (void)state;
    assert_ok(dtpi_files_open(A, "posix", &f, ERR));
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    is_disturbed = true;
    assert_ok(f->ops->create(f, in_base("room"), 70000, &file, ERR));
    is_disturbed = false;
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&after, SIGPROF), sigismember(&before, SIGPROF));
    assert_ok(f->ops->close_file(file, ERR));
    assert_ok(f->ops->remove(f, in_base("room"), ERR));
}

static void test_what_is_no_file_is_not_read(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = NULL;
    dtpi_file *file = NULL;
    uint64_t bytes;

    (void)state;
    assert_ok(dtpi_files_open(A, "posix", &f, ERR));
    assert_status(DTP_ERR_FORMAT, f->ops->open(f, base, &file, &bytes, ERR));
    assert_status(DTP_ERR_UNSUPPORTED, dtpi_files_open(A, "paper", &f, ERR));
    assert_text("no file driver is named paper: uring or posix");
}

static int make_base(void **state)
{
    (void)state;
    return mkdtemp(base) ? 0 : -1;
}

static int drop_base(void **state)
{
    (void)state;
    return rmdir(base);
}

static char posix_name[] = "posix", mem_name[] = "mem", uring_name[] = "uring";

#define EACH(fn)                                                                                    \
    { #fn "_posix", fn, NULL, NULL, posix_name }, { #fn "_mem", fn, NULL, NULL, mem_name },         \
        { #fn "_uring", fn, NULL, NULL, uring_name }

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(test_what_is_written_is_read_back),
        EACH(test_create_refuses_what_is_there),
        EACH(test_publish_keeps_an_older_file),
        EACH(test_publish_all_leaves_no_temporary_file),
        EACH(test_folders_are_made_with_their_parents),
        EACH(test_lock_has_one_holder),
        cmocka_unit_test(test_a_lock_is_given_back_though_a_forked_child_lives),
        cmocka_unit_test(test_paths_too_long_are_refused),
        cmocka_unit_test(test_full_disk_says_how_much_is_missing),
        cmocka_unit_test(test_signals_do_not_keep_room_from_being_reserved),
        cmocka_unit_test(test_what_is_no_file_is_not_read),
    };

    return cmocka_run_group_tests(tests, make_base, drop_base);
}
