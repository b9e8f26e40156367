/* SPDX-License-Identifier: Apache-2.0 */
/* What stays: the decision over every small case, then pins, gc and the newest valid step on files. */
#include "ranks.h"
#include "folder.h"

#include <ftw.h>

#include "ckpt/retain.h"
#include "ckpt/steps.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;
static const int64_t shape[] = { 8 };

/* ---- the decision ---- */

enum { CASE_STEPS = 5, KINDS = 6 };

/* Three kinds of state, pinned or not. */
static void make_case(unsigned number, dtpi_step_facts *steps)
{
    for (unsigned i = 0; i < CASE_STEPS; i++, number /= KINDS)
        steps[i] = (dtpi_step_facts){ .step = i + 1, .is_complete = number % 3 == 2,
                                      .may_be_complete = number % 3 > 0,
                                      .is_pinned = number % KINDS >= 3 };
}

static void check_case(const dtpi_retain *r, const dtpi_step_facts *steps)
{
    uint32_t n_newer = 0;

    for (unsigned i = CASE_STEPS; i-- > 0;) {
        const dtpi_step_facts *f = &steps[i];
        const bool is_multiple = r->keep_every && f->step % r->keep_every == 0;
        if (f->is_complete && n_newer < (r->keep_last ? r->keep_last : UINT32_MAX))
            assert_true(f->stays);
        if (f->is_pinned || f->step >= r->saved || (is_multiple && f->is_complete))
            assert_true(f->stays);
        if (f->stays && !f->is_pinned && f->step < r->saved && !(is_multiple && f->may_be_complete) &&
            r->keep_last)
            assert_true(n_newer < r->keep_last);
        n_newer += f->is_complete;
    }
}

static void test_the_newest_complete_step_stays_in_every_small_case(void **state)
{
    unsigned n = 1;

    (void)state;
    for (unsigned i = 0; i < CASE_STEPS; i++)
        n *= KINDS;
    for (unsigned number = 0; number < n; number++)
        for (uint32_t keep_last = 0; keep_last < 4; keep_last++)
            for (uint64_t keep_every = 0; keep_every < 4; keep_every++) {
                const dtpi_retain r = { .keep_last = keep_last, .keep_every = keep_every,
                                        .saved = number % 2 ? UINT64_MAX : CASE_STEPS };
                dtpi_step_facts steps[CASE_STEPS];
                make_case(number, steps);
                dtpi_retain_decide(&r, steps, CASE_STEPS);
                check_case(&r, steps);
            }
}

/* ---- on files ---- */

static void save(dtpi_files *files, const char *dir, uint64_t step, uint32_t keep_last,
                 uint64_t keep_every)
{
    rank_run r[1];

    ranks_init(r, 1, files, dir);
    give(&r[0], "w", DTP_F32, 1, shape, NULL, NULL, step);
    r[0].opts.keep_last = keep_last;
    r[0].opts.keep_every = keep_every;
    assert_ok(ranks_save(r, 1, step));
    ranks_free(r, 1);
}

static void assert_steps(dtpi_files *files, const char *dir, const char *want)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(A);
    char text[200] = "";

    assert_ok(dtpi_steps_list(files, dir, &b, ERR));
    for (size_t i = 0; i < b.len / 8; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%llu", i ? " " : "",
                 (unsigned long long)((uint64_t *)(void *)b.data)[i]);
    assert_string_equal(text, want);
}

static void test_multiples_and_pins_are_spared(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();

    (void)state;
    for (uint64_t step = 1; step <= 4; step++)
        save(files, "ck", step, 0, 0);
    assert_ok(dtpi_step_pin(files, "ck", 1, true, ERR));
    assert_ok(dtpi_step_pin(files, "ck", 1, true, ERR));
    for (uint64_t step = 5; step <= 13; step++)
        save(files, "ck", step, 2, 5);
    assert_steps(files, "ck", "1 5 10 12 13");
    assert_ok(dtpi_step_pin(files, "ck", 1, false, ERR));
    assert_ok(dtpi_step_pin(files, "ck", 1, false, ERR));
    save(files, "ck", 14, 2, 5);
    assert_steps(files, "ck", "5 10 13 14");
}

static void test_only_a_complete_step_can_be_pinned(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();

    (void)state;
    save(files, "ck", 1, 0, 0);
    assert_status(DTP_ERR_NOT_FOUND, dtpi_step_pin(files, "ck", 2, true, ERR));
    assert_ok(dtpi_step_pin(files, "ck", 2, false, ERR));
    assert_ok(files->ops->remove(files, "ck/step-00000000000000000001/manifest.json", ERR));
    assert_status(DTP_ERR_NOT_FOUND, dtpi_step_pin(files, "ck", 1, true, ERR));
}

static void test_a_pinned_step_that_is_damaged_is_replaced_and_stays_pinned(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();

    (void)state;
    save(files, "ck", 1, 0, 0);
    assert_ok(dtpi_step_pin(files, "ck", 1, true, ERR));
    assert_ok(files->ops->remove(files, "ck/step-00000000000000000001/manifest.json", ERR));
    save(files, "ck", 1, 0, 0);
    save(files, "ck", 2, 1, 0);
    save(files, "ck", 3, 1, 0);
    assert_steps(files, "ck", "1 3");
}

/* ---- the public calls ---- */

static void save_real(dtp_ctx *ctx, const char *dir, uint64_t step)
{
    static float data[8];
    const dtp_ckpt_tensor t = { sizeof(t), "w", DTP_F32, 1, shape, NULL, NULL, data };
    const dtp_ckpt_save_opts o = { .size = sizeof(o), .no_sync = 1 };

    assert_ok(dtp_ckpt_save(ctx, NULL, dir, step, &t, 1, &o, ERR));
}

static void note_step(void *user, uint64_t step)
{
    char *text = user;

    snprintf(text + strlen(text), 100 - strlen(text), "%llu ", (unsigned long long)step);
}

static void test_gc_says_what_goes_and_removes_it(void **state)
{
    dtp_ckpt_gc_opts o = DTP_CKPT_GC_OPTS_INIT;
    char told[100] = "", removed[100] = "";
    dtp_ctx *ctx = NULL;
    uint64_t steps[8];
    size_t n = 0;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_status(DTP_ERR_NOT_FOUND, dtp_ckpt_gc(ctx, "/nonexistent/dir", NULL, ERR));
    for (uint64_t step = 1; step <= 6; step++)
        save_real(ctx, base, step);
    assert_ok(dtp_ckpt_pin(ctx, base, 2, 1, ERR));
    o.keep_every = 4;
    o.report = note_step;
    o.report_user = told;
    o.dry_run = 1;
    assert_ok(dtp_ckpt_gc(ctx, base, &o, ERR));
    assert_string_equal(told, "5 3 1 ");
    assert_ok(dtp_ckpt_list(ctx, base, steps, 8, &n, ERR));
    assert_int_equal(n, 6);
    o.dry_run = 0;
    o.report_user = removed;
    assert_ok(dtp_ckpt_gc(ctx, base, &o, ERR));
    assert_string_equal(removed, told);
    assert_ok(dtp_ckpt_list(ctx, base, steps, 8, &n, ERR));
    assert_int_equal(n, 3);
    assert_int_equal(steps[0], 2);
    assert_int_equal(steps[1], 4);
    assert_int_equal(steps[2], 6);
    dtp_ctx_close(ctx);
}

/* It can be asked while a training saves, and where nothing can be written. */
static void test_a_dry_run_takes_no_lock(void **state)
{
    dtp_ckpt_gc_opts o = { .size = sizeof(o), .dry_run = 1, .report = note_step };
    DTPI_AUTO(files) dtpi_files *files = NULL;
    static const char *const names[] = { ".lock", ".pins" };
    dtp_ctx *ctx = NULL;
    char dir[80], path[128];

    (void)state;
    snprintf(dir, sizeof(dir), "%s/dry", base);
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtpi_files_open(A, "posix", &files, ERR));
    for (uint64_t step = 1; step <= 2; step++)
        save_real(ctx, dir, step);
    for (int i = 0; i < 2; i++) {
        DTPI_AUTO(file) dtpi_file *lock = NULL;
        char told[100] = "";
        o.report_user = told;
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        assert_ok(files->ops->lock(files, path, &lock, ERR));
        assert_ok(dtp_ckpt_gc(ctx, dir, &o, ERR));
        assert_string_equal(told, "1 ");
        assert_status(DTP_ERR_BUSY, dtp_ckpt_gc(ctx, dir, NULL, ERR));
        assert_text(names[i]);
    }
    dtp_ctx_close(ctx);
}

typedef struct passed {
    uint64_t steps[4];
    dtp_status statuses[4];
    char texts[4][200];
    unsigned n;
} passed;

static void note_passed(void *user, uint64_t step, dtp_status status, const char *text)
{
    passed *p = user;

    assert_true(p->n < 4);
    p->steps[p->n] = step;
    p->statuses[p->n] = status;
    snprintf(p->texts[p->n++], sizeof(p->texts[0]), "%s", text);
}

static int flip_in_shard(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)where;
    if (type != FTW_F || !strstr(path, "step-00000000000000000009/shard-"))
        return 0;
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, (long)st->st_size - 1, SEEK_SET);
    fputc(0x55, f);
    fclose(f);
    return 0;
}

static void test_latest_valid_says_what_is_wrong_with_each_step(void **state)
{
    dtp_ctx *ctx = NULL;
    passed p = { .n = 0 };
    char path[128];
    uint64_t step = 0;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    for (uint64_t i = 8; i <= 10; i++)
        save_real(ctx, base, i);
    nftw(base, flip_in_shard, 16, FTW_PHYS);
    snprintf(path, sizeof(path), "%s/step-00000000000000000010/manifest.json", base);
    assert_int_equal(truncate(path, 50), 0);
    assert_status(DTP_ERR_INVAL, dtp_ckpt_latest_valid(ctx, base, 2, NULL, NULL, &step, ERR));
    assert_ok(dtp_ckpt_latest_valid(ctx, base, 0, note_passed, &p, &step, ERR));
    assert_int_equal(step, 9);
    assert_int_equal(p.n, 1);
    assert_int_equal(p.steps[0], 10);
    assert_true(p.statuses[0] < 0);
    p.n = 0;
    assert_ok(dtp_ckpt_latest_valid(ctx, base, 1, note_passed, &p, &step, ERR));
    assert_int_equal(step, 8);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.steps[1], 9);
    assert_int_equal(p.statuses[1], DTP_ERR_CORRUPT);
    assert_non_null(strstr(p.texts[1], "tensor w: chunk 0"));
    dtp_ctx_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newest_complete_step_stays_in_every_small_case),
        cmocka_unit_test(test_multiples_and_pins_are_spared),
        cmocka_unit_test(test_only_a_complete_step_can_be_pinned),
        cmocka_unit_test(test_a_pinned_step_that_is_damaged_is_replaced_and_stays_pinned),
        cmocka_unit_test(test_gc_says_what_goes_and_removes_it),
        cmocka_unit_test(test_a_dry_run_takes_no_lock),
        cmocka_unit_test(test_latest_valid_says_what_is_wrong_with_each_step),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
