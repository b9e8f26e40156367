/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers in flight behave alike whoever does them. */
#include "check.h"

#include <unistd.h>

#include "files/files.h"
#include "files/mem.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;
static char base[] = "/tmp/dtp-test-queue-XXXXXX";

/* Enough for direct access, and no number of blocks. */
enum { N = 7, PIECE = 700001 };

static dtpi_files *open_kind(void **state)
{
    dtpi_files *files = NULL;
    bool made;

    if (strcmp(*state, "mem") != 0) {
        const dtp_status st = dtpi_files_open(A, *state, &files, ERR);
        if (st == DTP_ERR_UNSUPPORTED) {
            print_message("skipped: %s\n", check_err.text);
            skip();
        }
        assert_int_equal(st, DTP_OK);
        return files;
    }
    assert_ok(dtpi_files_mem_open(A, &files, ERR));
    assert_ok(files->ops->make_dir(files, "/tmp", &made, ERR));
    assert_ok(files->ops->make_dir(files, base, &made, ERR));
    return files;
}

static const char *path_of(const char *name)
{
    static char path[DTPI_PATH_MAX];

    assert_ok(dtpi_path_join(path, base, name, ERR));
    return path;
}

static void fill(dtpi_io *ios, dtpi_file *file, uint8_t *data, bool is_write)
{
    for (size_t i = 0; i < N; i++)
        ios[i] = (dtpi_io){ .file = file,
                            .at = i * PIECE,
                            .data = data + i * PIECE,
                            .bytes = PIECE,
                            .is_write = is_write };
}

static void make(dtpi_files *f, const char *path, uint8_t *data)
{
    DTPI_AUTO(queue) dtpi_queue *q = NULL;
    dtpi_io ios[N];
    dtpi_file *file = NULL;

    for (size_t i = 0; i < N * PIECE; i++)
        data[i] = (uint8_t)(i * 31 + i / 251);
    assert_ok(f->ops->create(f, path, N * PIECE, &file, ERR));
    assert_ok(dtpi_queue_open(f, 3, &q, ERR));
    fill(ios, file, data, true);
    assert_ok(dtpi_queue_run(q, ios, N, ERR));
    assert_ok(f->ops->sync(file, ERR));
    assert_ok(f->ops->close_file(file, ERR));
}

static void test_transfers_run_many_at_once(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_kind(state);
    DTPI_AUTO(queue) dtpi_queue *q = NULL;
    static uint8_t data[N * PIECE], back[N * PIECE];
    dtpi_io ios[N];
    dtpi_file *file = NULL;
    uint64_t bytes;

    make(f, path_of("many"), data);
    assert_ok(f->ops->open(f, path_of("many"), &file, &bytes, ERR));
    assert_int_equal(bytes, sizeof(data));
    assert_ok(dtpi_queue_open(f, N, &q, ERR));
    fill(ios, file, back, false);
    for (size_t i = 0; i < N; i++)
        dtpi_queue_submit(q, &ios[i]);
    assert_true(dtpi_queue_is_full(q));
    unsigned seen = 0;
    for (size_t i = 0; i < N; i++) {
        const dtpi_io *io = dtpi_queue_wait(q);
        assert_int_equal(io->status, DTP_OK);
        seen |= 1u << (io - ios);
    }
    assert_int_equal(seen, (1u << N) - 1);
    assert_null(dtpi_queue_wait(q));
    assert_memory_equal(back, data, sizeof(data));
    assert_ok(f->ops->close_file(file, ERR));
    assert_ok(f->ops->remove(f, path_of("many"), ERR));
}

static void test_the_first_failure_is_told(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_kind(state);
    DTPI_AUTO(queue) dtpi_queue *q = NULL;
    static uint8_t data[N * PIECE];
    dtpi_io ios[N];
    dtpi_file *file = NULL;
    uint64_t bytes;

    make(f, path_of("short"), data);
    assert_ok(f->ops->open(f, path_of("short"), &file, &bytes, ERR));
    assert_ok(dtpi_queue_open(f, 2, &q, ERR));
    fill(ios, file, data, false);
    ios[3].at = N * PIECE - 10;
    assert_status(DTP_ERR_TRUNCATED, dtpi_queue_run(q, ios, N, ERR));
    assert_text("/short ends");
    assert_text("too early");
    assert_null(dtpi_queue_wait(q));
    assert_ok(dtpi_queue_run(q, ios, 3, ERR));
    assert_ok(f->ops->close_file(file, ERR));
    assert_ok(f->ops->remove(f, path_of("short"), ERR));
}

static void test_closing_waits_for_what_is_in_flight(void **state)
{
    DTPI_AUTO(files) dtpi_files *f = open_kind(state);
    static uint8_t data[N * PIECE], back[N * PIECE];
    dtpi_queue *q = NULL;
    dtpi_io ios[N];
    dtpi_file *file = NULL;
    uint64_t bytes;

    make(f, path_of("late"), data);
    assert_ok(f->ops->open(f, path_of("late"), &file, &bytes, ERR));
    assert_ok(dtpi_queue_open(f, N, &q, ERR));
    fill(ios, file, back, false);
    for (size_t i = 0; i < N; i++)
        dtpi_queue_submit(q, &ios[i]);
    dtpi_queue_close(q);
    assert_memory_equal(back, data, sizeof(data));
    assert_ok(f->ops->close_file(file, ERR));
    assert_ok(f->ops->remove(f, path_of("late"), ERR));
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
        EACH(test_transfers_run_many_at_once),
        EACH(test_the_first_failure_is_told),
        EACH(test_closing_waits_for_what_is_in_flight),
    };
    return cmocka_run_group_tests(tests, make_base, drop_base);
}
