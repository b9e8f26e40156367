/* SPDX-License-Identifier: Apache-2.0 */
/* What only the member around the page cache can get wrong: edges of blocks, cold and warm reads. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files/files.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;
static char path[] = "/tmp/dtp-test-uring-XXXXXX";

enum { BYTES = 6 * 1000 * 1000 + 77, DEPTH = 4, N_MAX = 64 };

static uint8_t data[BYTES + 64], back[BYTES + 64];

static dtpi_files *open_uring(void)
{
    dtpi_files *files = NULL;
    const dtp_status st = dtpi_files_open(A, "uring", &files, ERR);

    if (st == DTP_ERR_UNSUPPORTED) {
        print_message("skipped: %s\n", check_err.text);
        skip();
    }
    assert_int_equal(st, DTP_OK);
    return files;
}

/* Cuts [0, BYTES) at random: some pieces tiny, some large, and memory at any address. */
static size_t cut(uint64_t *seed, dtpi_io *ios, dtpi_file *file, uint8_t *memory, bool is_write)
{
    size_t n = 0;

    for (uint64_t at = 0; at < BYTES; n++) {
        static const uint32_t widest[] = { 9, 5000, 300000, 3000000 };
        uint64_t bytes = 1 + check_random(seed) % widest[check_random(seed) % 4];
        if (check_random(seed) % 4 == 0)
            bytes = (bytes + 4095) / 4096 * 4096;
        if (bytes > BYTES - at || n + 1 == N_MAX)
            bytes = BYTES - at;
        ios[n] = (dtpi_io){
            .file = file, .at = at, .data = memory + at, .bytes = bytes, .is_write = is_write
        };
        at += bytes;
    }
    return n;
}

static void write_all(dtpi_files *f, uint64_t *seed)
{
    DTPI_AUTO(queue) dtpi_queue *q = NULL;
    static dtpi_io ios[N_MAX];
    dtpi_file *file = NULL;

    unlink(path);
    assert_ok(f->ops->create(f, path, BYTES, &file, ERR));
    assert_ok(dtpi_queue_open(f, DEPTH, &q, ERR));
    const size_t n = cut(seed, ios, file, data + check_random(seed) % 3, true);
    assert_ok(dtpi_queue_run(q, ios, n, ERR));
    assert_ok(f->ops->sync(file, ERR));
    assert_ok(f->ops->close_file(file, ERR));
}

/* Out of the page cache, where the system lets go. */
static void make_cold(void)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void read_back(dtpi_files *f, uint64_t *seed, size_t shift)
{
    DTPI_AUTO(queue) dtpi_queue *q = NULL;
    static dtpi_io ios[N_MAX];
    dtpi_file *file = NULL;
    uint64_t bytes;

    memset(back, 0, sizeof(back));
    assert_ok(f->ops->open(f, path, &file, &bytes, ERR));
    assert_int_equal(bytes, BYTES);
    assert_ok(dtpi_queue_open(f, DEPTH, &q, ERR));
    const size_t n = cut(seed, ios, file, back + shift, false);
    assert_ok(dtpi_queue_run(q, ios, n, ERR));
    assert_ok(f->ops->close_file(file, ERR));
}

static void test_any_range_of_any_memory_is_written_and_read(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_uring();
    DTPI_AUTO(files) dtpi_files *plain = NULL;
    uint64_t seed = check_seed();

    (void)state;
    assert_ok(dtpi_files_open(A, "posix", &plain, ERR));
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(check_random(&seed) >> 56);
    for (int round = 0; round < 6; round++) {
        write_all(f, &seed);
        /* The pieces began somewhere in `data`; the first bytes tell where. */
        read_back(round % 2 ? f : plain, &seed, 0);
        size_t from = 0;
        while (from < 3 && memcmp(back, data + from, 64) != 0)
            from++;
        assert_true(from < 3);
        assert_memory_equal(back, data + from, BYTES);
        make_cold();
        read_back(f, &seed, check_random(&seed) % 64);
        const uint8_t *at = back;
        while (memcmp(at, data + from, 64) != 0 && at < back + 64)
            at++;
        assert_memory_equal(at, data + from, BYTES);
    }
    unlink(path);
}

static void test_a_read_beyond_the_end_is_too_early(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_uring();
    DTPI_AUTO(queue) dtpi_queue *q = NULL;
    uint64_t seed = 1, bytes;
    dtpi_file *file = NULL;

    (void)state;
    write_all(f, &seed);
    make_cold();
    assert_ok(f->ops->open(f, path, &file, &bytes, ERR));
    assert_ok(dtpi_queue_open(f, DEPTH, &q, ERR));
    dtpi_io io = { .file = file, .at = BYTES - 100000, .data = back, .bytes = 100001 };
    assert_status(DTP_ERR_TRUNCATED, dtpi_queue_run(q, &io, 1, ERR));
    assert_text("1 bytes too early");
    assert_ok(f->ops->close_file(file, ERR));
    unlink(path);
}

static void test_a_cut_file_is_as_long_as_its_data(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_uring();
    uint64_t bytes = 0;
    dtpi_file *file = NULL;

    (void)state;
    assert_ok(f->ops->create(f, path, BYTES, &file, ERR));
    assert_ok(f->ops->set_size(file, 5001, ERR));
    assert_ok(f->ops->close_file(file, ERR));
    assert_ok(f->ops->size(f, path, &bytes, ERR));
    assert_int_equal(bytes, 5001);
    unlink(path);
}

/* ---- where io_uring is refused ---- */

/* As filters in containers do it; for good, so only in a child. */
static bool refuse_call(unsigned nr)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0;
}

enum { NO_FILTERS = 77 };

static int open_without_setup(void)
{
    dtpi_files *files = NULL;

    if (!refuse_call(SYS_io_uring_setup))
        return NO_FILTERS;
    if (dtpi_files_open(A, "uring", &files, NULL) != DTP_ERR_UNSUPPORTED)
        return 1;
    if (dtpi_files_open(A, NULL, &files, NULL) < 0 || strcmp(files->ops->name, "posix") != 0)
        return 2;
    dtpi_files_close(files);
    return 0;
}

/* The filter comes when the ring is there already. */
static int write_without_enter(void)
{
    dtpi_files *files = NULL;
    dtpi_queue *q = NULL;
    dtpi_file *file = NULL;
    static dtpi_io ios[3];

    if (dtpi_files_open(A, "uring", &files, NULL) < 0 ||
        dtpi_queue_open(files, 2, &q, NULL) < 0 ||
        files->ops->create(files, path, BYTES, &file, NULL) < 0)
        return 3;
    if (!refuse_call(SYS_io_uring_enter))
        return NO_FILTERS;
    for (size_t i = 0; i < 3; i++) {
        const uint64_t at = i * (BYTES / 3);
        ios[i] = (dtpi_io){ .file = file,
                            .at = at,
                            .data = data + at,
                            .bytes = i < 2 ? BYTES / 3 : BYTES - at,
                            .is_write = true };
    }
    if (dtpi_queue_run(q, ios, 3, NULL) < 0)
        return 4;
    dtpi_queue_close(q);
    if (files->ops->close_file(file, NULL) < 0)
        return 5;
    dtpi_files_close(files);
    return 0;
}

static void run_child(int (*child)(void))
{
    int status;

    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(child());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_FILTERS) {
        print_message("skipped: no filters of system calls here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_without_io_uring_plain_calls_are_taken(void **state)
{
    (void)state;
    run_child(open_without_setup);
}

static void test_a_ring_that_is_refused_later_loses_nothing(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_uring();
    uint64_t seed = 5;

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(check_random(&seed) >> 56);
    run_child(write_without_enter);
    read_back(f, &seed, 0);
    assert_memory_equal(back, data, BYTES);
    unlink(path);
}

static int make_path(void **state)
{
    const int fd = mkstemp(path);

    (void)state;
    close(fd);
    return fd < 0 ? -1 : unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_range_of_any_memory_is_written_and_read),
        cmocka_unit_test(test_a_read_beyond_the_end_is_too_early),
        cmocka_unit_test(test_a_cut_file_is_as_long_as_its_data),
        cmocka_unit_test(test_without_io_uring_plain_calls_are_taken),
        cmocka_unit_test(test_a_ring_that_is_refused_later_loses_nothing),
    };
    return cmocka_run_group_tests(tests, make_path, NULL);
}
