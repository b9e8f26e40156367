/* SPDX-License-Identifier: Apache-2.0 */
/* The memory member remembers, fails on demand, and knows what a crash leaves. */
#include "check.h"

#include <errno.h>
#include <pthread.h>

#include "files/mem.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

static void put(dtpi_files *f, const char *path, const char *text, bool sync)
{
    dtpi_file *file = NULL;

    assert_ok(f->ops->create(f, path, 0, &file, ERR));
    assert_ok(f->ops->write(file, 0, text, strlen(text), ERR));
    if (sync)
        assert_ok(f->ops->sync(file, ERR));
    assert_ok(f->ops->close_file(file, ERR));
}

static void assert_reads(dtpi_files *f, uint32_t n_ops, dtpi_mem_crash how, const char *path,
                         const char *want, size_t bytes)
{
    DTPI_AUTO(files) dtpi_files *after = NULL;
    DTPI_AUTO_BUF dtpi_buf buf = dtpi_buf_init(A);

    assert_ok(dtpi_files_mem_crash(f, n_ops, how, &after, ERR));
    if (!want) {
        assert_status(DTP_ERR_NOT_FOUND, dtpi_files_read_all(after, path, 100, &buf, ERR));
        return;
    }
    assert_ok(dtpi_files_read_all(after, path, 100, &buf, ERR));
    assert_int_equal(buf.len, bytes);
    assert_memory_equal(buf.data, want, bytes);
}

static void test_crash_loses_what_was_not_synced(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = NULL;

    (void)state;
    assert_ok(dtpi_files_mem_open(A, &f, ERR));
    put(f, "a", "data", false);
    assert_reads(f, 2, DTPI_MEM_ALL, "a", "data", 4);
    assert_reads(f, 2, DTPI_MEM_TORN, "a", "da", 2);
    assert_reads(f, 2, DTPI_MEM_SYNCED, "a", NULL, 0);
    assert_reads(f, 2, DTPI_MEM_NAMES, "a", "\0\0\0\0", 4);
    assert_reads(f, 1, DTPI_MEM_ALL, "a", "", 0);
    assert_reads(f, 0, DTPI_MEM_ALL, "a", NULL, 0);
}

static void test_crash_keeps_synced_names_and_data(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = NULL;
    bool made;

    (void)state;
    assert_ok(dtpi_files_mem_open(A, &f, ERR));
    assert_ok(f->ops->make_dir(f, "d", &made, ERR));
    put(f, "d/a.tmp", "data", true);
    assert_ok(f->ops->publish(f, "d/a.tmp", "d/a", false, ERR));
    assert_reads(f, 9, DTPI_MEM_SYNCED, "d/a", NULL, 0);
    assert_ok(f->ops->sync_dir(f, "d", ERR));
    assert_reads(f, 9, DTPI_MEM_SYNCED, "d/a", NULL, 0);   /* the folder itself is lost */
    assert_ok(f->ops->sync_dir(f, ".", ERR));
    assert_reads(f, 9, DTPI_MEM_SYNCED, "d/a", "data", 4);
    assert_reads(f, 9, DTPI_MEM_SYNCED, "d/a.tmp", NULL, 0);
}

static void test_chosen_call_fails_once(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = NULL;
    dtpi_file *file = NULL;

    (void)state;
    assert_ok(dtpi_files_mem_open(A, &f, ERR));
    assert_ok(f->ops->create(f, "a", 0, &file, ERR));
    dtpi_files_mem_fail(f, 2, EIO);
    assert_ok(f->ops->write(file, 0, "x", 1, ERR));
    assert_status(DTP_ERR_IO, f->ops->sync(file, ERR));
    assert_text("cannot sync a");
    assert_int_equal(check_err.sys_errno, EIO);
    assert_ok(f->ops->sync(file, ERR));
    dtpi_files_mem_fail(f, 1, EACCES);
    assert_status(DTP_ERR_PERM, f->ops->close_file(file, ERR));
}

static void test_room_is_bounded(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = NULL;
    dtpi_file *file = NULL;

    (void)state;
    assert_ok(dtpi_files_mem_open(A, &f, ERR));
    dtpi_files_mem_limit(f, 10);
    assert_status(DTP_ERR_NOSPC, f->ops->create(f, "a", 12, &file, ERR));
    assert_text("12 bytes wanted, 2 missing");
    assert_ok(f->ops->create(f, "a", 10, &file, ERR));
    assert_ok(f->ops->write(file, 0, "12345678", 8, ERR));
    assert_status(DTP_ERR_NOSPC, f->ops->write(file, 8, "1234", 4, ERR));
    dtpi_file_drop(file);
    assert_ok(f->ops->remove(f, "a", ERR));
    assert_ok(f->ops->create(f, "b", 10, &file, ERR));
    dtpi_file_drop(file);
}

static void *make_deep(void *files)
{
    char path[1200] = "";

    for (size_t i = 0; i < 500; i++)
        strcpy(path + 2 * i, i < 499 ? "d/" : "d");
    assert_ok(dtpi_files_make_dirs(files, path, false, ERR));
    return NULL;
}

static void test_deep_folders_need_little_stack(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = NULL;
    pthread_attr_t attr;
    pthread_t thread;

    (void)state;
    assert_ok(dtpi_files_mem_open(A, &f, ERR));
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 512 << 10);
    assert_int_equal(pthread_create(&thread, &attr, make_deep, f), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    assert_int_equal(dtpi_files_mem_n_ops(f), 1000);    /* made and synced */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crash_loses_what_was_not_synced),
        cmocka_unit_test(test_crash_keeps_synced_names_and_data),
        cmocka_unit_test(test_chosen_call_fails_once),
        cmocka_unit_test(test_room_is_bounded),
        cmocka_unit_test(test_deep_folders_need_little_stack),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
