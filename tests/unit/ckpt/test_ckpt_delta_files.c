/* SPDX-License-Identifier: Apache-2.0 */
/* Delta over real files, by the public calls: drivers, threads, saves in the background, little memory. */
#include "deltas.h"
#include "failalloc.h"
#include "folder.h"

enum { N = 1 << 20, SOME_CHUNKS = 256 << 10 };

static const int64_t shape[] = { N };

/* A step of the training of two tensors; the second is frozen. */
static void change_some(uint16_t *w, uint64_t *seed)
{
    for (size_t i = check_random(seed) % 7; i < N; i += 1 + check_random(seed) % 15)
        w[i] ^= 1;
}

static void check_step(dtp_ctx *ctx, const char *dir, uint64_t step, const uint16_t *w, const uint16_t *f)
{
    uint16_t *got = malloc(N * sizeof(*got));
    dtp_ckpt_tensor t = { sizeof(t), "w", DTP_BF16, 1, shape, NULL, NULL, got };
    dtp_ckpt *ckpt = NULL;

    assert_ok(dtp_ckpt_open(ctx, dir, step, &ckpt, ERR));
    assert_ok(dtp_ckpt_read(ckpt, &t, 1, ERR));
    assert_memory_equal(got, w, N * sizeof(*got));
    t.name = "f";
    assert_ok(dtp_ckpt_read(ckpt, &t, 1, ERR));
    assert_memory_equal(got, f, N * sizeof(*got));
    assert_ok(dtp_ckpt_verify(ckpt, NULL, NULL, ERR));
    dtp_ckpt_close(ckpt);
    free(got);
}

static void run(const char *files, bool in_background, dtp_codec codec)
{
    uint64_t seed = check_seed();
    uint16_t *w = malloc(N * sizeof(*w)), *f = malloc(N * sizeof(*f));
    const dtp_ckpt_tensor t[] = { { sizeof(*t), "w", DTP_BF16, 1, shape, NULL, NULL, w },
                                  { sizeof(*t), "f", DTP_BF16, 1, shape, NULL, NULL, f } };
    dtp_ckpt_save_opts opts = { .size = sizeof(opts), .codec = codec, .delta = 1, .keep_last = 2,
                                .chunk_bytes = SOME_CHUNKS, .files = files };
    char dir[DTPI_PATH_MAX];
    dtp_ctx *ctx = NULL;

    snprintf(dir, sizeof(dir), "%s/%s-%d-%d", base, files ? files : "auto", in_background, codec);
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    for (size_t i = 0; i < N; i++) {
        w[i] = (uint16_t)(0x3c00 + (check_random(&seed) & 0x81ff));
        f[i] = (uint16_t)check_random(&seed);
    }
    for (uint64_t step = 1; step <= 5; step++) {
        dtp_op *op = NULL;
        if (in_background) {
            assert_ok(dtp_ckpt_save_start(ctx, NULL, dir, step, t, 2, &opts, &op, ERR));
            assert_ok(dtp_op_wait(op, -1, ERR));
            dtp_op_free(op);
        } else {
            assert_ok(dtp_ckpt_save(ctx, NULL, dir, step, t, 2, &opts, ERR));
        }
        check_step(ctx, dir, step, w, f);
        change_some(w, &seed);
    }
    dtp_ctx_close(ctx);
    free(w);
    free(f);
}

static void test_every_driver_takes_over_and_reads_back(void **state)
{
    dtpi_files *files = NULL;

    (void)state;
    run(NULL, false, DTP_CODEC_PLANES);
    run("posix", false, DTP_CODEC_NONE);
    if (dtpi_files_open(&dtpi_malloc_allocator, "uring", &files, ERR) < 0) {
        print_message("without io_uring: %s\n", check_err.text);
        return;
    }
    dtpi_files_close(files);
    run("uring", false, DTP_CODEC_ZSTD);
}

static void test_a_save_in_the_background_takes_over(void **state)
{
    (void)state;
    run(NULL, true, DTP_CODEC_PLANES);
}

/* One rank, so that no other waits while memory fails. */
static void test_no_memory_fails_a_save_and_loses_nothing(void **state)
{
    static const int64_t small[] = { 9000 };
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_PLANES, 1);
    uint64_t step = 1;

    (void)state;
    t->r[0].link.base.size = 1;
    training_add(t, 0, "w", 1, small, NULL, NULL, SLOW);
    training_add(t, 0, "f", 1, small, NULL, NULL, FROZEN);
    assert_ok(ranks_save(t->r, 1, step));
    FOR_EACH_FAILURE(f) {
        const dtp_allocator a = *failalloc_of(&f);
        t->r[0].in.a = &a;
        training_step(t);
        const bool ok = failalloc_ok(&f, ranks_save(t->r, 1, step + 1));
        t->r[0].in.a = &dtpi_malloc_allocator;
        uint64_t latest = 0;
        assert_ok(dtpi_steps_latest(t->files, &silent, training_dir, &latest, ERR));
        /* Where the verdict could not be heard the step may be complete all the same. */
        assert_true(latest == step + 1 || (!ok && latest == step));
        step = latest;
    }
    DTPI_AUTO(load) dtpi_load *l = training_load(t, step);
    assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
}

/* It reads what was saved, or lacks memory, as often as it is asked. */
static void read_or_lack(dtpi_load *l, const dtp_ckpt_tensor *want, const void *was, size_t bytes)
{
    const dtp_status st = dtpi_load_read(l, want, ERR);

    if (st != DTP_ERR_NOMEM) {
        assert_ok(st);
        assert_memory_equal(want->data, was, bytes);
    }
}

static void test_a_load_that_lacked_memory_is_safe_to_use(void **state)
{
    static const int64_t small[] = { 9000 };
    DTPI_AUTO(training) training *t = training_new(check_seed(), DTP_CODEC_PLANES, 1);
    uint16_t got[9000];
    dtp_ckpt_tensor want = { sizeof(want), "w", DTP_BF16, 1, small, NULL, NULL, got };

    (void)state;
    training_add(t, 0, "w", 1, small, NULL, NULL, SLOW);
    training_add(t, 0, "f", 1, small, NULL, NULL, FROZEN);
    training_add(t, 1, "g", 1, small, NULL, NULL, FROZEN);
    for (uint64_t step = 1; step <= 3; step++) {
        training_save(t, step);
        training_step(t);
    }
    FOR_EACH_FAILURE(f) {
        dtpi_load *l = NULL;
        if (!failalloc_ok(&f, dtpi_load_open(failalloc_of(&f), t->files, training_dir, 3, &l, ERR)))
            continue;
        for (int k = 0; k < 4; k++) {
            want.name = k % 2 ? "w" : "f";
            read_or_lack(l, &want, t->was[3][0][k % 2 ? 0 : 1], sizeof(got));
        }
        dtpi_load_close(l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_driver_takes_over_and_reads_back),
        cmocka_unit_test(test_a_save_in_the_background_takes_over),
        cmocka_unit_test(test_no_memory_fails_a_save_and_loses_nothing),
        cmocka_unit_test(test_a_load_that_lacked_memory_is_safe_to_use),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
