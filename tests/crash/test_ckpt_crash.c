/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ckpt_crash.c - saves of 1, 2, 4 and 8 ranks, cut off after any operation: whatever a crash kept of
 * what was not synced, the newest step is one that was acknowledged or a later one, and every step that
 * looks complete is so bit for bit.
 *
 * DTP_TEST_LONG=1 looks at a million states and more, DTP_TEST_SEED repeats a run.
 */
#include "crash/stage.h"
#include "crash/states.h"

#include <errno.h>

#include "ckpt/steps.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;
static const char dir[] = "ck";

/* ---- what is saved ---- */

enum { ROWS = 12, WIDTH = 64, FROZEN = 1500, MOVING = 1000, N_TENSORS = 6 };

typedef enum content { FRESH, SAME, SOME } content;

typedef struct spec {
    const char *name;
    dtp_dtype dtype;
    content content;
    uint64_t seed;
    int64_t rows, width;        /* of a rank; width 0: one dimension */
} spec;

static const spec specs[N_TENSORS] = {
    { "w", DTP_F32, FRESH, 1, ROWS, WIDTH },
    { "frozen", DTP_U8, SAME, 2, FROZEN, 0 },
    { "tied", DTP_U8, SAME, 2, FROZEN, 0 },     /* the same bytes */
    { "moving", DTP_BF16, SOME, 3, MOVING, 0 },
    { "empty", DTP_F32, FRESH, 4, 0, 0 },
    { "small", DTP_I64, FRESH, 5, 1, 0 },
};

/* Byte `i` of a whole tensor at a step: always new, always the same, or new at some places. */
static uint8_t content_byte(const spec *s, uint64_t step, uint64_t i)
{
    const bool changes = s->content == FRESH || (s->content == SOME && i % 16 == step % 16);

    return known_byte(s->seed * 1000 + (changes ? step : 0), i);
}

/* A job: its ranks, and where their boxes lie. */
typedef struct job {
    int n;
    rank_run ranks[MAX_RANKS];
    int64_t shapes[N_TENSORS][2], offsets[MAX_RANKS][N_TENSORS][2], extents[N_TENSORS][2];
    stage stage;
} job;

static uint64_t row_bytes(const spec *s)
{
    return dtp_dtype_bytes(s->dtype) * (uint64_t)(s->width ? s->width : 1);
}

static void job_give(job *j, int rank, int t)
{
    const spec *s = &specs[t];
    rank_run *r = &j->ranks[rank];

    j->shapes[t][0] = s->rows * j->n;
    j->shapes[t][1] = j->extents[t][1] = s->width;
    j->extents[t][0] = s->rows;
    j->offsets[rank][t][0] = s->rows * rank;
    r->tensors[r->n++] = (dtp_ckpt_tensor){
        sizeof(dtp_ckpt_tensor), s->name, s->dtype, s->width ? 2 : 1, j->shapes[t],
        j->offsets[rank][t], j->extents[t], malloc((size_t)s->rows * row_bytes(s) + 1),
    };
}

static void job_init(job *j, int n, dtpi_files *files, uint64_t seed)
{
    memset(j, 0, sizeof(*j));
    j->n = n;
    j->stage.seed = seed;
    ranks_init(j->ranks, n, files, dir);
    for (int i = 0; i < n; i++) {
        j->ranks[i].opts.chunk_bytes = 4096;
        for (int t = 0; t < N_TENSORS; t++)
            job_give(j, i, t);
    }
}

static void job_free(job *j)
{
    ranks_free(j->ranks, j->n);
}

static dtp_status job_save(job *j, uint64_t step)
{
    static uint64_t id = 1;

    for (int i = 0; i < j->n; i++)
        for (int t = 0; t < N_TENSORS; t++) {
            const uint64_t bytes = (uint64_t)specs[t].rows * row_bytes(&specs[t]);
            uint8_t *p = j->ranks[i].tensors[t].data;
            for (uint64_t k = 0; k < bytes; k++)
                p[k] = content_byte(&specs[t], step, bytes * (uint64_t)i + k);
        }
    const dtp_status st = stage_save(&j->stage, j->ranks, j->n, step, id++);
    check_err = j->ranks[0].err;
    return st;
}

/* ---- what is left ---- */

/* Whole tensors as they have to be, made once for each step and number of ranks. */
static const uint8_t *wanted(int n, uint64_t step, int t, uint64_t *bytes_out)
{
    static struct { int n; uint64_t step; uint8_t *data; } cache[256];
    static size_t n_cached;
    const uint64_t bytes = (uint64_t)(specs[t].rows * n) * row_bytes(&specs[t]);

    *bytes_out = bytes;
    for (size_t i = 0; i < n_cached; i += N_TENSORS)
        if (cache[i].n == n && cache[i].step == step)
            return cache[i + (size_t)t].data;
    assert_true(n_cached + N_TENSORS <= DTPI_ARRAY_LEN(cache));
    for (int k = 0; k < N_TENSORS; k++) {
        const uint64_t len = (uint64_t)(specs[k].rows * n) * row_bytes(&specs[k]);
        uint8_t *data = malloc(len + 1);
        for (uint64_t i = 0; i < len; i++)
            data[i] = content_byte(&specs[k], step, i);
        cache[n_cached++] = (typeof(cache[0])){ n, step, data };
    }
    return cache[n_cached - N_TENSORS + (size_t)t].data;
}

/* A step that says it is complete is so. */
static dtp_status check_step(dtpi_files *files, int n, uint64_t step, dtp_error *err)
{
    DTPI_AUTO(load) dtpi_load *l = NULL;
    static uint8_t got[MAX_RANKS * 4096];

    dtp_status st = dtpi_load_open(A, files, dir, step, &l, err);
    for (int t = 0; t < N_TENSORS && st >= 0; t++) {
        const spec *s = &specs[t];
        const int64_t shape[2] = { s->rows * n, s->width };
        uint64_t bytes = 0;
        const uint8_t *want = wanted(n, step, t, &bytes);
        assert_true(bytes <= sizeof(got));
        const dtp_ckpt_tensor whole = { sizeof(whole), s->name, s->dtype, s->width ? 2 : 1, shape, NULL, NULL, got };
        st = dtpi_load_read(l, &whole, err);
        if (st >= 0 && bytes && memcmp(got, want, bytes) != 0)
            st = dtpi_fail(err, DTP_ERR_CORRUPT, "tensor %s of step %d differs", s->name, (int)step);
    }
    return st < 0 ? st : dtpi_load_verify(l, NULL, NULL, err);
}

/* What the saves of a log promise. */
typedef struct story {
    const char *title;
    int n;
    const crash_op *ops;
    uint64_t newest;            /* step begun at all */
    struct { uint64_t step; size_t done; } acked[8];
    size_t n_acked;
    bool may_lose;              /* losses are counted */
    size_t n_lost;
} story;

/* The newest step acknowledged when `done` operations were done; 0: none. */
static uint64_t promised(void *user, size_t done)
{
    const story *s = user;
    uint64_t step = 0;

    for (size_t i = 0; i < s->n_acked; i++)
        if (s->acked[i].done <= done && s->acked[i].step > step)
            step = s->acked[i].step;
    return step;
}

static void fail_story(story *s, size_t done, const crash_state *left, const char *how, const char *why)
{
    char text[300] = "the beginning";

    s->n_lost++;
    if (s->may_lose)
        return;
    for (size_t i = done > 12 ? done - 12 : 0; i < done; i++) {
        crash_op_text(&s->ops[i], text, sizeof(text));
        print_message("  %4zu %s\n", i, text);
    }
    for (size_t i = 0; i < left->n; i++)
        print_message("  left: %s %zu\n", left->entries[i].path, left->entries[i].bytes);
    fail_msg("%s, %d ranks, crash after operation %zu (%s), %s: %s", s->title, s->n, done, text, how, why);
}

static int check_left(void *user, size_t done, const crash_state *left, const char *how)
{
    story *s = user;
    DTPI_AUTO(files) dtpi_files *files = crash_state_files(left);
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(A);
    const uint64_t must = promised(user, done);
    uint64_t latest = 0;
    dtp_error err = { 0 };

    const dtp_status st = dtpi_steps_latest(files, &silent, dir, &latest, &err);
    if (must > 0 && (st < 0 || latest < must))
        fail_story(s, done, left, how, st < 0 ? err.text : "an acknowledged step is lost");
    if (st >= 0 && latest > s->newest)
        fail_story(s, done, left, how, "a step out of nowhere");
    if (st < 0)
        return 0;
    assert_ok(dtpi_steps_list(files, dir, &list, ERR));
    for (size_t i = 0; i < list.len / 8; i++) {
        const uint64_t step = ((const uint64_t *)(const void *)list.data)[i];
        if (dtpi_step_check(files, dir, step, NULL) >= 0 && check_step(files, s->n, step, &err) < 0)
            fail_story(s, done, left, how, err.text);
    }
    return 0;
}

/* ---- going through the states of a log ---- */

static crash_seen seen;
static uint64_t seed;
static size_t n_built, n_distinct;

static void look(story *s, dtpi_files *files, size_t settled, size_t from, size_t max_all, size_t n_random)
{
    const size_t n = dtpi_files_mem_n_ops(files);
    crash_op *ops = malloc((n + 1) * sizeof(*ops));
    crash_walk w = { .ops = ops, .n = n, .settled = settled, .from = from, .max_all = max_all,
                     .n_random = n_random, .seed = check_random(&seed), .seen = &seen,
                     .promise = promised, .check = check_left, .user = s };

    for (size_t i = 0; i < n; i++)
        ops[i] = crash_op_of_mem(files, (uint32_t)i);
    s->ops = ops;
    crash_walk_run(&w);
    n_built += w.n_built;
    n_distinct += w.n_distinct;
    free(ops);
}

static void acked(story *s, const job *j, uint64_t step)
{
    assert_true(s->n_acked < DTPI_ARRAY_LEN(s->acked));
    s->acked[s->n_acked].step = step;
    s->acked[s->n_acked++].done = j->stage.n_ops_acked;
}

static size_t effort(size_t in_short, size_t in_long)
{
    return check_is_long() ? in_long : in_short;
}

typedef struct plan {
    const char *title;
    dtp_codec codec;
    uint32_t keep_last;
    uint64_t steps[4];          /* 0 ends it */
} plan;

static const plan plans[] = {
    { "two saves", DTP_CODEC_NONE, 0, { 1, 2 } },
    { "a save that removes the step before", DTP_CODEC_NONE, 1, { 1, 2, 3 } },
    { "packed saves", DTP_CODEC_PLANES, 1, { 1, 2 } },
};

static void run_plan(const plan *p, int n)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    story s = { .title = p->title, .n = n };
    static job j;

    job_init(&j, n, files, check_random(&seed));
    for (int i = 0; i < n; i++) {
        j.ranks[i].opts.codec = p->codec;
        j.ranks[i].opts.keep_last = p->keep_last;
    }
    for (size_t i = 0; i < DTPI_ARRAY_LEN(p->steps) && p->steps[i]; i++) {
        s.newest = p->steps[i];
        assert_ok(job_save(&j, p->steps[i]));
        acked(&s, &j, p->steps[i]);
    }
    look(&s, files, 0, 0, effort(50, 3000), effort(24, 2500));
    job_free(&j);
}

static void test_saves_cut_off_anywhere(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n *= 2)
        for (size_t i = 0; i < DTPI_ARRAY_LEN(plans); i++)
            run_plan(&plans[i], n);
}

/* Its own medicine: without syncs steps are lost, and the walk has to see it. */
static void test_saves_without_syncs_are_seen_to_be_lost(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    story s = { .title = "saves without syncs", .n = 2, .newest = 2, .may_lose = true };
    static job j;

    (void)state;
    job_init(&j, 2, files, check_random(&seed));
    j.ranks[0].opts.no_sync = j.ranks[1].opts.no_sync = 1;
    for (uint64_t step = 1; step <= 2; step++) {
        assert_ok(job_save(&j, step));
        acked(&s, &j, step);
    }
    look(&s, files, 0, 0, 50, 24);
    print_message("%zu losses found\n", s.n_lost);
    assert_true(s.n_lost > 20);
    job_free(&j);
}

/* ---- failing calls ---- */

static const int errnos[] = { EIO, ENOSPC, EDQUOT, EROFS, ESTALE };

/*
 * The second save with its `nth` call failing, then again without; what a crash leaves at any time. False:
 * there is no such call.
 */
static bool fail_one(int n, uint32_t nth, int e, bool late)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    story s = { .title = "a save with a failing call", .n = n, .newest = 1 };
    static job j;

    job_init(&j, n, files, check_random(&seed));
    for (int i = 0; i < n; i++)
        j.ranks[i].opts.keep_last = nth % 2;
    assert_ok(job_save(&j, 1));
    acked(&s, &j, 1);
    const size_t from = dtpi_files_mem_n_ops(files);
    const uint32_t before = dtpi_files_mem_n_calls(files);
    s.newest = 2;
    dtpi_files_mem_fail(files, nth, e);
    dtpi_files_mem_fail_late(files, late);
    dtp_status st = job_save(&j, 2);
    const bool was_reached = dtpi_files_mem_n_calls(files) - before >= nth;
    dtpi_files_mem_fail(files, 0, 0);
    if (st < 0) {
        st = job_save(&j, 2);
        if (st == DTP_ERR_EXISTS)   /* it was published all the same */
            st = check_step(files, n, 2, ERR);
    }
    if (st < 0)
        fail_msg("%d ranks, call %u, errno %d: %s", n, nth, e, check_err.text);
    if (j.stage.n_ops_acked != UINT32_MAX)
        acked(&s, &j, 2);
    look(&s, files, 0, from, 0, effort(0, 40));
    job_free(&j);
    return was_reached;
}

static void test_any_call_may_fail(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n *= 2) {
        const uint32_t stride = check_is_long() ? 1 : (uint32_t)n;
        uint32_t nth = 1 + (uint32_t)(check_random(&seed) % stride);
        for (bool more = true; more; nth += stride)
            for (size_t i = 0; i < DTPI_ARRAY_LEN(errnos); i++)
                if (check_is_long() || (nth / stride + i) % 3 == 0)
                    more = fail_one(n, nth, errnos[i], (nth + i) % 2) || i + 3 < DTPI_ARRAY_LEN(errnos);
    }
}

/* Every size of a disk on which the second step has no room, or just so. */
static void test_full_disk_names_the_missing_bytes(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n *= 2) {
        uint64_t room = (uint64_t)n * 20000;
        for (dtp_status st = DTP_ERR_NOSPC; st < 0; room += check_is_long() ? 701 : 7001) {
            DTPI_AUTO(files) dtpi_files *files = mem_files();
            story s = { .title = "a full disk", .n = n, .newest = 1 };
            static job j;
            job_init(&j, n, files, check_random(&seed));
            assert_ok(job_save(&j, 1));
            acked(&s, &j, 1);
            const size_t from = dtpi_files_mem_n_ops(files);
            dtpi_files_mem_limit(files, room);
            s.newest = 2;
            st = job_save(&j, 2);
            if (st < 0) {
                assert_int_equal(st, DTP_ERR_NOSPC);
                assert_text("missing");
                assert_ok(check_step(files, n, 1, ERR));
            } else {
                acked(&s, &j, 2);
            }
            look(&s, files, 0, from, 0, effort(3, 40));
            job_free(&j);
        }
    }
}

/* ---- again after a crash ---- */

/* A crash was survived: the same step is saved again upon its remains, and cut off again. */
typedef struct again {
    story first;
    size_t n_left, n_tried;
    size_t every;               /* one state in so many */
} again;

static int save_again(void *user, size_t done, const crash_state *left, const char *how)
{
    again *g = user;
    story s = { .title = "a save over remains", .n = g->first.n, .newest = 2 };
    static job j;

    check_left(&g->first, done, left, how);
    if (g->n_left++ % g->every)
        return 0;
    DTPI_AUTO(files) dtpi_files *files = crash_state_files(left);
    const size_t settled = dtpi_files_mem_n_ops(files);
    const bool had = dtpi_step_check(files, dir, 1, NULL) >= 0;
    job_init(&j, s.n, files, check_random(&seed));
    if (had)
        s.acked[s.n_acked++].step = 1;
    dtp_status st = job_save(&j, 2);
    if (st == DTP_ERR_EXISTS)
        st = check_step(files, s.n, 2, ERR);
    else if (st >= 0)
        acked(&s, &j, 2);
    if (st < 0)
        fail_story(&g->first, done, left, how, check_err.text);
    look(&s, files, settled, settled, 0, effort(2, 30));
    job_free(&j);
    g->n_tried++;
    return 0;
}

static uint64_t promised_first(void *user, size_t done)
{
    return promised(&((again *)user)->first, done);
}

static void test_save_over_the_remains_of_a_crash(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n *= 2) {
        DTPI_AUTO(files) dtpi_files *files = mem_files();
        again g = { .first = { .title = "two saves", .n = n, .newest = 2 }, .every = effort(13, 11) };
        static job j;
        job_init(&j, n, files, check_random(&seed));
        for (uint64_t step = 1; step <= 2; step++) {
            assert_ok(job_save(&j, step));
            acked(&g.first, &j, step);
        }
        const size_t n_ops = dtpi_files_mem_n_ops(files);
        crash_op *ops = malloc(n_ops * sizeof(*ops));
        for (size_t i = 0; i < n_ops; i++)
            ops[i] = crash_op_of_mem(files, (uint32_t)i);
        g.first.ops = ops;
        crash_walk w = { .ops = ops, .n = n_ops, .n_random = effort(20, 60), .seed = check_random(&seed),
                         .seen = &seen, .promise = promised_first, .check = save_again, .user = &g };
        crash_walk_run(&w);
        n_built += w.n_built;
        n_distinct += w.n_distinct;
        print_message("%d ranks: %zu saves over remains\n", n, g.n_tried);
        free(ops);
        job_free(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saves_cut_off_anywhere),
        cmocka_unit_test(test_saves_without_syncs_are_seen_to_be_lost),
        cmocka_unit_test(test_any_call_may_fail),
        cmocka_unit_test(test_full_disk_names_the_missing_bytes),
        cmocka_unit_test(test_save_over_the_remains_of_a_crash),
    };

    seed = check_seed();
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    print_message("%zu states built, %zu distinct ones checked\n", n_built, n_distinct);
    crash_seen_free(&seen);
    return rc;
}
