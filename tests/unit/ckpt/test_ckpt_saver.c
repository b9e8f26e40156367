/* SPDX-License-Identifier: Apache-2.0 */
/* Saves in the background of one process: what is copied, what is told, and what stays the same. */
#include "failalloc.h"
#include "folder.h"

#include <dirent.h>
#include <semaphore.h>
#include <sys/wait.h>

#include <dtp/ckpt.h>

enum { BIG = 5 << 20 };         /* floats: shared among workers */

static const int64_t shape[] = { 2, 3 };
static float data[6];

static dtp_ckpt_tensor small(float first)
{
    for (int i = 0; i < 6; i++)
        data[i] = first + (float)i;
    return (dtp_ckpt_tensor){ sizeof(dtp_ckpt_tensor), "w", DTP_F32, 2, shape, NULL, NULL, data };
}

static dtp_ctx *open_ctx(const dtp_allocator *a)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    dtp_ctx *ctx = NULL;

    o.allocator = a;
    assert_ok(dtp_ctx_open(&o, &ctx, ERR));
    return ctx;
}

static float first_of(dtp_ctx *ctx, const char *dir, uint64_t step)
{
    float back[6] = { 0 };
    dtp_ckpt_tensor t = { sizeof(t), "w", DTP_F32, 2, shape, NULL, NULL, back };
    dtp_ckpt *ckpt = NULL;

    assert_ok(dtp_ckpt_open(ctx, dir, step, &ckpt, ERR));
    assert_ok(dtp_ckpt_read(ckpt, &t, 1, ERR));
    dtp_ckpt_close(ckpt);
    return back[0];
}

static void test_tensors_may_change_while_a_save_goes_on(void **state)
{
    dtp_ctx *ctx = open_ctx(NULL);
    dtp_ckpt_tensor t = small(7);
    dtp_op *op = NULL;

    (void)state;
    assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 1, &t, 1, NULL, &op, ERR));
    data[0] = 99;
    assert_ok(dtp_op_wait(op, -1, ERR));
    assert_ok(dtp_op_status(op, ERR));
    dtp_op_free(op);
    assert_true(first_of(ctx, base, 1) == 7);
    dtp_ctx_close(ctx);
}

static void test_a_large_tensor_is_copied_whole(void **state)
{
    const int64_t many[] = { BIG };
    float *big = malloc(BIG * sizeof(float)), *back = malloc(BIG * sizeof(float));
    dtp_ckpt_tensor t = { sizeof(t), "big", DTP_F32, 1, many, NULL, NULL, big };
    dtp_ctx *ctx = open_ctx(NULL);
    dtp_ckpt *ckpt = NULL;
    dtp_op *op = NULL;

    (void)state;
    for (int i = 0; i < BIG; i++)
        big[i] = (float)i;
    assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 2, &t, 1, NULL, &op, ERR));
    memset(big, 0xff, BIG * sizeof(float));
    assert_ok(dtp_op_wait(op, -1, ERR));
    dtp_op_free(op);
    assert_ok(dtp_ckpt_open(ctx, base, 2, &ckpt, ERR));
    t.data = back;
    assert_ok(dtp_ckpt_read(ckpt, &t, 1, ERR));
    for (int i = 0; i < BIG; i++)
        if (back[i] != (float)i)
            fail_msg("element %d is %f", i, (double)back[i]);
    dtp_ckpt_close(ckpt);
    dtp_ctx_close(ctx);
    free(big);
    free(back);
}

static void test_elements_that_are_no_whole_bytes_are_copied(void **state)
{
    static const dtp_dtype types[3] = { DTP_F4, DTP_F6_E2M3, DTP_F6_E3M2 };
    const int64_t many[] = { 800 };
    dtp_ctx *ctx = open_ctx(NULL);
    dtp_ckpt *ckpt = NULL;

    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        uint8_t own[600], back[600] = { 0 };
        const size_t bytes = 800 * dtp_dtype_bits(types[i]) / 8;
        dtp_ckpt_tensor t = { sizeof(t), "f", types[i], 1, many, NULL, NULL, own };
        dtp_op *op = NULL;
        memset(own, 0x5a, sizeof(own));
        assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 5 + i, &t, 1, NULL, &op, ERR));
        memset(own, 0xff, sizeof(own));
        assert_ok(dtp_op_wait(op, -1, ERR));
        dtp_op_free(op);
        assert_ok(dtp_ckpt_open(ctx, base, 5 + i, &ckpt, ERR));
        t.data = back;
        assert_ok(dtp_ckpt_read(ckpt, &t, 1, ERR));
        for (size_t k = 0; k < bytes; k++)
            assert_int_equal(back[k], 0x5a);
        dtp_ckpt_close(ckpt);
    }
    dtp_ctx_close(ctx);
}

static void test_a_handle_given_back_leaves_the_save_running(void **state)
{
    dtp_ctx *ctx = open_ctx(NULL);
    dtp_ckpt_tensor t = small(3);
    dtp_op *op = NULL;

    (void)state;
    assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 3, &t, 1, NULL, &op, ERR));
    dtp_op_free(op);
    dtp_ctx_close(ctx);         /* waits */
    ctx = open_ctx(NULL);
    assert_true(first_of(ctx, base, 3) == 3);
    dtp_ctx_close(ctx);
}

static int always(void *user)
{
    (void)user;
    return 1;
}

static void test_closing_waits_for_a_save_whatever_interrupts(void **state)
{
    const dtp_ctx_opts o = { .size = sizeof(o), .interrupted = always };
    dtp_ckpt_tensor t = small(4);
    dtp_ctx *ctx = NULL;
    dtp_op *op = NULL;

    (void)state;
    assert_ok(dtp_ctx_open(&o, &ctx, ERR));
    assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 4, &t, 1, NULL, &op, ERR));
    dtp_op_free(op);
    dtp_ctx_close(ctx);
    ctx = open_ctx(NULL);
    assert_true(first_of(ctx, base, 4) == 4);
    dtp_ctx_close(ctx);
}

static void test_the_next_save_waits_for_the_one_before(void **state)
{
    dtp_ctx *ctx = open_ctx(NULL);
    dtp_op *op[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        dtp_ckpt_tensor t = small((float)i);
        assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 10 + (uint64_t)i, &t, 1, NULL, &op[i], ERR));
        if (i)
            assert_ok(dtp_op_status(op[i - 1], ERR));
    }
    dtp_ckpt_tensor t = small(13);
    assert_ok(dtp_ckpt_save(ctx, NULL, base, 13, &t, 1, NULL, ERR));
    for (int i = 0; i < 3; i++) {
        assert_ok(dtp_op_status(op[i], ERR));
        dtp_op_free(op[i]);
        assert_true(first_of(ctx, base, 10 + (uint64_t)i) == (float)i);
    }
    dtp_ctx_close(ctx);
}

static void test_a_failure_nobody_was_told_is_the_next_saves(void **state)
{
    dtp_ctx *ctx = open_ctx(NULL);
    dtp_ckpt_tensor t = small(1);
    dtp_op *op = NULL;

    (void)state;
    assert_ok(dtp_ckpt_save(ctx, NULL, base, 20, &t, 1, NULL, ERR));
    assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 20, &t, 1, NULL, &op, ERR));
    dtp_op_free(op);
    op = NULL;
    assert_status(DTP_ERR_EXISTS, dtp_ckpt_save_start(ctx, NULL, base, 21, &t, 1, NULL, &op, ERR));
    assert_text("the save of step 20 before failed: step 20 is already complete");
    assert_null(op);
    assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 21, &t, 1, NULL, &op, ERR));
    assert_ok(dtp_op_wait(op, -1, ERR));
    dtp_op_free(op);
    dtp_ctx_close(ctx);
}

static void test_a_failure_that_was_told_is_told_once(void **state)
{
    dtp_ctx *ctx = open_ctx(NULL);
    dtp_ckpt_tensor t = small(1);
    dtp_op *op = NULL;

    (void)state;
    assert_ok(dtp_ckpt_save(ctx, NULL, base, 30, &t, 1, NULL, ERR));
    assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 30, &t, 1, NULL, &op, ERR));
    assert_status(DTP_ERR_EXISTS, dtp_op_wait(op, -1, ERR));
    assert_string_equal(check_err.noun, "ckpt");
    dtp_op_free(op);
    assert_ok(dtp_ckpt_save(ctx, NULL, base, 31, &t, 1, NULL, ERR));
    dtp_ctx_close(ctx);
}

static void test_bad_calls_start_nothing(void **state)
{
    dtp_ckpt_save_opts opts = DTP_CKPT_SAVE_OPTS_INIT;
    dtp_ctx *ctx = open_ctx(NULL);
    dtp_ckpt_tensor t = small(1);
    dtp_op *op = NULL;

    (void)state;
    assert_status(DTP_ERR_INVAL, dtp_ckpt_save_start(ctx, NULL, NULL, 1, &t, 1, NULL, &op, ERR));
    t.data = NULL;
    assert_status(DTP_ERR_INVAL, dtp_ckpt_save_start(ctx, NULL, base, 40, &t, 1, NULL, &op, ERR));
    assert_text("tensor w has no data");
    t = small(1);
    opts.files = "tape";
    assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 40, &t, 1, &opts, &op, ERR));
    assert_status(DTP_ERR_UNSUPPORTED, dtp_op_wait(op, -1, ERR));
    dtp_op_free(op);
    assert_status(DTP_ERR_UNSUPPORTED, dtp_ckpt_save(ctx, NULL, base, 40, &t, 1, &opts, ERR));
    opts = (dtp_ckpt_save_opts){ .size = 3 };
    assert_status(DTP_ERR_INVAL, dtp_ckpt_save_start(ctx, NULL, base, 40, &t, 1, &opts, &op, ERR));
    dtp_ctx_close(ctx);
}

static int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* 1000 of them when asked for at length. */
static void test_many_saves_grow_nothing(void **state)
{
    const bool is_long = getenv("DTP_TEST_LONG") != NULL;
    dtp_ckpt_save_opts opts = { .size = sizeof(opts), .keep_last = 2, .no_sync = 1 };
    failalloc f = { .mutex = PTHREAD_MUTEX_INITIALIZER };
    dtp_ctx *ctx = open_ctx(failalloc_of(&f));
    dtp_ckpt_tensor t = small(1);
    size_t bytes = 0;
    int fds = 0;

    (void)state;
    for (uint64_t i = 0; i < (is_long ? 1000 : 100); i++) {
        dtp_op *op = NULL;
        assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 1000 + i, &t, 1, &opts, &op, ERR));
        if (i % 2)
            assert_ok(dtp_op_wait(op, -1, ERR));
        dtp_op_free(op);
        if (i % 2 == 0)
            continue;
        if (i == 1) {
            bytes = f.bytes_open;
            fds = count_fds();
        }
        assert_int_equal(f.bytes_open, bytes);
        assert_int_equal(count_fds(), fds);
    }
    dtp_ctx_close(ctx);
    assert_int_equal(f.bytes_open, 0);
}

static void test_no_memory_is_told_and_loses_nothing(void **state)
{
    dtp_ckpt_tensor t = small(5);

    (void)state;
    FOR_EACH_FAILURE(f) {
        dtp_ckpt_save_opts opts = { .size = sizeof(opts), .no_sync = 1 };
        dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
        dtp_ctx *ctx = NULL;
        dtp_op *op = NULL;
        o.allocator = failalloc_of(&f);
        if (!failalloc_ok(&f, dtp_ctx_open(&o, &ctx, ERR)))
            continue;
        /* The thread behind it may have failed before the start returns. */
        dtp_status st = dtp_ckpt_save_start(ctx, NULL, base, 3000 + f.fail_at, &t, 1, &opts, &op, ERR);
        if (st >= 0)
            st = dtp_op_wait(op, -1, ERR);
        failalloc_check(&f, st, "a save");
        dtp_op_free(op);
        dtp_ctx_close(ctx);
    }
}

static void test_a_forked_child_leaves_the_save_alone(void **state)
{
    dtp_ctx *ctx = open_ctx(NULL);
    dtp_ckpt_tensor t = small(50);
    dtp_op *op = NULL;
    int status;

    (void)state;
    assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 50, &t, 1, NULL, &op, ERR));
    const pid_t pid = fork();
    if (pid == 0) {
        const bool ok = dtp_op_wait(op, -1, NULL) == DTP_ERR_FORKED &&
                        dtp_ckpt_save_start(ctx, NULL, base, 51, &t, 1, NULL, &op, NULL) ==
                            DTP_ERR_FORKED;
        dtp_ctx_close(ctx);
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_ok(dtp_op_wait(op, -1, ERR));
    dtp_op_free(op);
    assert_true(first_of(ctx, base, 50) == 50);
    dtp_ctx_close(ctx);
}

/* An allocator that stops the save's thread when it has freed what the save before left. */
typedef struct gate {
    pthread_t caller;
    pthread_mutex_t mutex;
    void *open[512];            /* what threads allocated */
    size_t n;
    _Atomic bool is_armed;
    _Atomic(void *) gone;
    sem_t stopped, go;
} gate;

static void *gate_alloc(void *user, size_t bytes, size_t align)
{
    void *p = aligned_alloc(align, (bytes + align - 1) / align * align);
    gate *g = user;

    pthread_mutex_lock(&g->mutex);
    if (!pthread_equal(pthread_self(), g->caller) && !g->is_armed && g->n < 512)
        g->open[g->n++] = p;
    pthread_mutex_unlock(&g->mutex);
    return p;
}

static void gate_free(void *user, void *p, size_t bytes)
{
    bool stops = false;
    gate *g = user;

    (void)bytes;
    if (p && p == g->gone)
        _exit(1);               /* twice: only a forked child gets here */
    pthread_mutex_lock(&g->mutex);
    for (size_t i = 0; i < g->n; i++)
        if (g->open[i] == p) {
            stops = g->is_armed && !pthread_equal(pthread_self(), g->caller);
            g->open[i] = NULL;
        }
    if (stops) {
        g->is_armed = false;
        g->gone = p;
    }
    pthread_mutex_unlock(&g->mutex);
    if (stops) {
        sem_post(&g->stopped);
        sem_wait(&g->go);
        g->gone = NULL;
    }
    free(p);
}

static void test_a_forked_child_frees_nothing_that_the_thread_was_freeing(void **state)
{
    gate g = { .caller = pthread_self(), .mutex = PTHREAD_MUTEX_INITIALIZER };
    const dtp_allocator a = { gate_alloc, gate_free, &g };
    dtp_ctx *ctx = open_ctx(&a);
    dtp_ckpt_tensor t = small(1);
    dtp_op *op = NULL;
    int status;

    (void)state;
    sem_init(&g.stopped, 0, 0);
    sem_init(&g.go, 0, 0);
    assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 52, &t, 1, NULL, &op, ERR));
    assert_ok(dtp_op_wait(op, -1, ERR));
    dtp_op_free(op);
    g.is_armed = true;
    t.name = "another";         /* the plan of the save before is forgotten */
    assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 53, &t, 1, NULL, &op, ERR));
    sem_wait(&g.stopped);
    const pid_t pid = fork();
    if (pid == 0) {
        dtp_ctx_close(ctx);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    sem_post(&g.go);
    assert_int_equal(status, 0);
    assert_ok(dtp_op_wait(op, -1, ERR));
    dtp_op_free(op);
    dtp_ctx_close(ctx);
}

static void note_end(void *user, dtp_op *op, dtp_status status)
{
    (void)op;
    *(pthread_t *)user = pthread_self();
    assert_int_equal(status, DTP_OK);
}

static void test_its_function_is_called_on_the_callers_thread(void **state)
{
    dtp_ctx *ctx = open_ctx(NULL);
    dtp_ckpt_tensor t = small(60);
    pthread_t who = 0;
    dtp_op *op = NULL;

    (void)state;
    assert_ok(dtp_ckpt_save_start(ctx, NULL, base, 60, &t, 1, NULL, &op, ERR));
    dtp_op_on_done(op, note_end, &who);
    while (dtp_op_status(op, ERR) == DTP_PENDING)
        usleep(1000);           /* its own thread moves the loop */
    assert_true(who == 0);
    while (who == 0)
        dtp_ctx_dispatch(ctx, 1000, ERR);
    assert_true(pthread_equal(who, pthread_self()));
    dtp_op_free(op);
    dtp_ctx_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_may_change_while_a_save_goes_on),
        cmocka_unit_test(test_a_large_tensor_is_copied_whole),
        cmocka_unit_test(test_elements_that_are_no_whole_bytes_are_copied),
        cmocka_unit_test(test_a_handle_given_back_leaves_the_save_running),
        cmocka_unit_test(test_closing_waits_for_a_save_whatever_interrupts),
        cmocka_unit_test(test_the_next_save_waits_for_the_one_before),
        cmocka_unit_test(test_a_failure_nobody_was_told_is_the_next_saves),
        cmocka_unit_test(test_a_failure_that_was_told_is_told_once),
        cmocka_unit_test(test_bad_calls_start_nothing),
        cmocka_unit_test(test_many_saves_grow_nothing),
        cmocka_unit_test(test_no_memory_is_told_and_loses_nothing),
        cmocka_unit_test(test_a_forked_child_leaves_the_save_alone),
        cmocka_unit_test(test_a_forked_child_frees_nothing_that_the_thread_was_freeing),
        cmocka_unit_test(test_its_function_is_called_on_the_callers_thread),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
