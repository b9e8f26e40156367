/* SPDX-License-Identifier: Apache-2.0 */
/* The memory member remembers what was done, and fails on demand. */
#include "check.h"

#include <errno.h>
#include <pthread.h>

#include "files/mem.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

static void test_operations_are_written_down(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = NULL;
    dtpi_file *file = NULL;
    dtpi_mem_op op;
    bool made;

    (void)state;
    assert_ok(dtpi_files_mem_open(A, &f, ERR));
    assert_ok(f->ops->make_dir(f, "d", &made, ERR));
    assert_ok(f->ops->create(f, "d/a", 7, &file, ERR));
    assert_ok(f->ops->write(file, 3, "data", 4, ERR));
    assert_ok(f->ops->close_file(file, ERR));
    assert_ok(f->ops->publish(f, "d/a", "d/b", false, ERR));
    assert_ok(f->ops->sync_dir(f, "d", ERR));
    assert_int_equal(dtpi_files_mem_n_ops(f), 5);
    dtpi_files_mem_op(f, 1, &op);
    assert_int_equal(op.kind, DTPI_MEM_CREATE);
    assert_int_equal(op.node, 1);
    assert_int_equal(op.at, 7);
    dtpi_files_mem_op(f, 2, &op);
    assert_int_equal(op.kind, DTPI_MEM_WRITE);
    assert_int_equal(op.at, 3);
    assert_memory_equal(op.data, "data", op.bytes);
    dtpi_files_mem_op(f, 3, &op);
    assert_int_equal(op.node, 1);
    assert_string_equal(op.to, "d/b");
    dtpi_files_mem_op(f, 4, &op);
    assert_int_equal(op.kind, DTPI_MEM_SYNC_DIR);
    assert_int_equal(op.node, 0);
}

static void test_failed_calls_leave_their_traces(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = NULL;
    dtpi_file *file = NULL;
    uint64_t bytes = 0;
    dtpi_mem_op op;

    (void)state;
    assert_ok(dtpi_files_mem_open(A, &f, ERR));
    assert_ok(f->ops->create(f, "a", 0, &file, ERR));
    dtpi_files_mem_fail(f, 1, ENOSPC);
    assert_status(DTP_ERR_NOSPC, f->ops->write(file, 0, "12345678", 8, ERR));
    assert_ok(f->ops->size(f, "a", &bytes, ERR));
    assert_int_equal(bytes, 4);
    dtpi_files_mem_fail(f, 1, EIO);
    assert_status(DTP_ERR_IO, f->ops->sync(file, ERR));
    dtpi_files_mem_op(f, 2, &op);
    assert_int_equal(op.kind, DTPI_MEM_SYNC_LOST);
    dtpi_file_drop(file);
    dtpi_files_mem_fail_late(f, true);
    dtpi_files_mem_fail(f, 1, EIO);
    assert_status(DTP_ERR_IO, f->ops->publish(f, "a", "b", false, ERR));
    assert_ok(f->ops->size(f, "b", &bytes, ERR));
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
        cmocka_unit_test(test_operations_are_written_down),
        cmocka_unit_test(test_failed_calls_leave_their_traces),
        cmocka_unit_test(test_chosen_call_fails_once),
        cmocka_unit_test(test_room_is_bounded),
        cmocka_unit_test(test_deep_folders_need_little_stack),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
