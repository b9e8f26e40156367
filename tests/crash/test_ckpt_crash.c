/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ckpt_crash.c - saves of 1, 2, 4 and 8 ranks, cut off after any operation: whatever a crash kept of
 * what was not synced, the newest step is one that was acknowledged or a later one, and every step that
 * looks complete is so bit for bit.
 *
 * DTP_TEST_LONG=1 looks at a million states and more, DTP_TEST_SEED repeats a run.
 */
#include "crash/stage.h"
#include "crash/story.h"

#include <errno.h>

#include "ckpt/steps.h"

static story_walk walk;

typedef struct job {
    int n;
    rank_run ranks[MAX_RANKS];
    story_boxes boxes[MAX_RANKS];
    stage stage;
} job;

static void job_init(job *j, int n, dtpi_files *files)
{
    memset(j, 0, sizeof(*j));
    j->n = n;
    walk.every = (size_t)n;     /* of more ranks there is more to look at */
    j->stage.seed = check_random(&walk.seed);
    ranks_init(j->ranks, n, files, story_dir);
    for (int i = 0; i < n; i++) {
        j->ranks[i].opts.chunk_bytes = 4096;
        story_boxes_init(&j->boxes[i], n, i);
        memcpy(j->ranks[i].tensors, j->boxes[i].tensors, sizeof(j->boxes[i].tensors));
        j->ranks[i].n = STORY_TENSORS;
    }
}

static void job_free(job *j)
{
    for (int i = 0; i < j->n; i++)
        story_boxes_free(&j->boxes[i]);
}

static dtp_status job_save(job *j, uint64_t step)
{
    static uint64_t id = 1;

    for (int i = 0; i < j->n; i++)
        story_boxes_fill(&j->boxes[i], step);
    const dtp_status st = stage_save(&j->stage, j->ranks, j->n, step, id++);
    check_err = j->ranks[0].err;
    return st;
}

/* A save that has to succeed, and its promise. */
static void job_must_save(job *j, story *s, uint64_t step)
{
    s->newest = step;
    assert_ok(job_save(j, step));
    story_acked(s, step, j->stage.n_ops_acked);
}

static crash_op *all_ops(dtpi_files *files, size_t *n_out)
{
    const size_t n = dtpi_files_mem_n_ops(files);
    crash_op *ops = malloc((n + 1) * sizeof(*ops));

    for (size_t i = 0; i < n; i++)
        ops[i] = crash_op_of_mem(files, (uint32_t)i);
    *n_out = n;
    return ops;
}

static void look(story *s, dtpi_files *files, size_t settled, size_t from, size_t max_all, size_t n_random)
{
    size_t n;
    crash_op *ops = all_ops(files, &n);

    story_look(&walk, s, ops, n, settled, from, max_all, n_random);
    free(ops);
}

static size_t effort(size_t in_short, size_t in_long)
{
    return check_is_long() ? in_long : in_short;
}

typedef struct plan {
    const char *title;
    dtp_codec codec;
    uint32_t keep_last, delta;
    uint64_t keep_every;
    uint64_t steps[6];          /* 0 ends it */
} plan;

static const plan plans[] = {
    { "two saves", DTP_CODEC_NONE, 0, 0, 0, { 1, 2 } },
    { "a save that removes the step before", DTP_CODEC_NONE, 1, 0, 0, { 1, 2, 3 } },
    { "packed saves", DTP_CODEC_PLANES, 1, 0, 0, { 1, 2 } },
    { "saves that refer to the step before", DTP_CODEC_PLANES, 2, 1, 2, { 1, 2, 3, 4, 5 } },
};

/* The last step refers to earlier ones: else the plan tries nothing. */
static void check_refers(dtpi_files *files, uint64_t step)
{
    dtpi_manifest m;

    assert_ok(dtpi_step_read(files, story_dir, step, &m, ERR));
    assert_true(m.n_lineage > 0);
    dtpi_manifest_free(&m);
}

static void run_plan(const plan *p, int n)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    story s = { .title = p->title, .n = n };
    static job j;

    job_init(&j, n, files);
    for (int i = 0; i < n; i++) {
        j.ranks[i].opts.codec = p->codec;
        j.ranks[i].opts.keep_last = p->keep_last;
        j.ranks[i].opts.keep_every = p->keep_every;
        j.ranks[i].opts.delta = p->delta;
    }
    for (size_t i = 0; i < DTPI_ARRAY_LEN(p->steps) && p->steps[i]; i++)
        job_must_save(&j, &s, p->steps[i]);
    if (p->delta)
        check_refers(files, s.newest);
    walk.every = check_is_long() ? 1 : walk.every;
    look(&s, files, 0, 0, effort(30, 3000), effort(4, 600));
    job_free(&j);
}

static void test_saves_cut_off_anywhere(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n *= 2)
        for (size_t i = 0; i < DTPI_ARRAY_LEN(plans); i++)
            if (check_is_long() || n < MAX_RANKS || i % 2)
                run_plan(&plans[i], n);
}

/* Its own medicine: without syncs steps are lost, and the walk has to see it. */
static void test_saves_without_syncs_are_seen_to_be_lost(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    story s = { .title = "saves without syncs", .n = 2, .newest = 2, .may_lose = true };
    static job j;

    (void)state;
    job_init(&j, 2, files);
    j.ranks[0].opts.no_sync = j.ranks[1].opts.no_sync = 1;
    for (uint64_t step = 1; step <= 2; step++)
        job_must_save(&j, &s, step);
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

    job_init(&j, n, files);
    for (int i = 0; i < n; i++) {
        j.ranks[i].opts.keep_last = nth % 2;
        j.ranks[i].opts.delta = nth / 2 % 2;
    }
    job_must_save(&j, &s, 1);
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
            st = story_check_step(files, n, 2, ERR);
    }
    if (st < 0)
        fail_msg("%d ranks, call %u, errno %d: %s", n, nth, e, check_err.text);
    if (j.stage.n_ops_acked != UINT32_MAX)
        story_acked(&s, 2, j.stage.n_ops_acked);
    look(&s, files, 0, from, 0, effort(0, 4));
    job_free(&j);
    return was_reached;
}

static void test_any_call_may_fail(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n *= 2) {
        const uint32_t stride = check_is_long() ? 1 : 5 * (uint32_t)n;
        uint32_t nth = 1 + (uint32_t)(check_random(&walk.seed) % stride);
        for (bool more = true; more; nth += stride)
            for (size_t i = 0; i < DTPI_ARRAY_LEN(errnos); i++)
                if (check_is_long() || (nth / stride + i) % 3 == 0)
                    more = fail_one(n, nth, errnos[i], (nth + i) % 2) || i + 3 < DTPI_ARRAY_LEN(errnos);
    }
}

/*
 * All ranks are killed before the nth call of the second save; the machine lives on, and others save the
 * same step and a next one. False: the save ended before.
 */
static bool kill_one(int n, uint32_t nth)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    story s = { .title = "saves after a killed one", .n = n };
    static job j;

    job_init(&j, n, files);
    for (int i = 0; i < n; i++) {
        j.ranks[i].opts.keep_last = nth % 2;
        j.ranks[i].opts.delta = nth / 2 % 2;
    }
    dtpi_files_mem_die(files, nth % 3 ? 0 : 1 + nth / 3);       /* the very first, too */
    s.newest = 1;
    if (job_save(&j, 1) < 0) {
        dtpi_files_mem_die(files, 0);
        const dtp_status st = job_save(&j, 1);
        if (st < 0 && st != DTP_ERR_EXISTS)
            fail_msg("%d ranks, killed before call %u: %s", n, 1 + nth / 3, check_err.text);
    }
    if (j.stage.n_ops_acked != UINT32_MAX)
        story_acked(&s, 1, j.stage.n_ops_acked);
    s.newest = 2;
    dtpi_files_mem_die(files, nth);
    dtp_status st = job_save(&j, 2);
    dtpi_files_mem_die(files, 0);
    const bool was_reached = st < 0;
    if (st < 0)
        st = job_save(&j, 2);
    if (st < 0 && st != DTP_ERR_EXISTS)
        fail_msg("%d ranks, killed before call %u: %s", n, nth, check_err.text);
    if (st >= 0)
        story_acked(&s, 2, j.stage.n_ops_acked);
    job_must_save(&j, &s, 3);
    look(&s, files, 0, 0, 0, effort(1, 3));
    job_free(&j);
    return was_reached;
}

static void test_saves_after_a_killed_one(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n *= 2) {
        const uint32_t stride = check_is_long() ? 1 : 7 * (uint32_t)n - 4;
        for (uint32_t nth = 1 + (uint32_t)(check_random(&walk.seed) % stride); kill_one(n, nth);)
            nth += stride;
    }
}

/* ---- two writers of a step, and no locks ---- */

/* The first attempt sleeps before its nth call; the next one saves meanwhile, and may be killed at it. */
typedef struct overtaking {
    job late, fresh;
    dtpi_files *files;
    uint32_t left, dies_at;
    dtp_status fresh_status;
} overtaking;

static dtp_status save_alone(job *j, uint64_t step)
{
    rank_run *r = &j->ranks[0];
    static uint64_t id = 1 << 20;

    story_boxes_fill(&j->boxes[0], step);
    r->in.step = step;
    r->in.id = id++;
    r->in.n_tensors = r->n;
    memset(&r->err, 0, sizeof(r->err));
    return dtpi_save(&r->in, &r->err);
}

static void overtake(void *user)
{
    overtaking *o = user;

    if (o->left == 0 || --o->left > 0)
        return;
    dtpi_files_mem_hook(o->files, NULL, NULL);
    dtpi_files_mem_die(o->files, o->dies_at);
    o->fresh_status = save_alone(&o->fresh, 2);
    dtpi_files_mem_die(o->files, 0);
}

/* False: the late one has no such call. */
static bool overtake_one(uint32_t nth, uint32_t dies_at)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    struct dtpi_files_ops no_locks = *files->ops;
    static overtaking o;
    uint64_t latest = 0;

    no_locks.lock = NULL;
    files->ops = &no_locks;
    o = (overtaking){ .files = files, .left = nth, .dies_at = dies_at, .fresh_status = DTP_ERR_PEER };
    job_init(&o.late, 1, files);
    job_init(&o.fresh, 1, files);
    dtpi_link_alone(&o.late.ranks[0].link.base);
    dtpi_link_alone(&o.fresh.ranks[0].link.base);
    o.late.ranks[0].link.base.attempt = 1;
    o.fresh.ranks[0].link.base.attempt = 2;
    assert_ok(save_alone(&o.late, 1));
    dtpi_files_mem_hook(files, overtake, &o);
    const dtp_status st = save_alone(&o.late, 2);
    dtpi_files_mem_hook(files, NULL, NULL);
    assert_ok(dtpi_steps_latest(files, &silent, story_dir, &latest, ERR));
    if ((st >= 0 || o.fresh_status >= 0) && latest != 2)
        fail_msg("attempt 1 %s, attempt 2 (before its call %u, killed at %u) %s, and the step is lost",
                 dtp_status_name(st), nth, dies_at, dtp_status_name(o.fresh_status));
    assert_ok(story_check_step(files, 1, latest, ERR));
    job_free(&o.late);
    job_free(&o.fresh);
    return o.left == 0;
}

static void test_late_writer_takes_nothing_away(void **state)
{
    (void)state;
    for (uint32_t dies_at = 0; dies_at < 60; dies_at++)
        for (uint32_t nth = 1; overtake_one(nth, dies_at);)
            nth++;
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
            job_init(&j, n, files);
            job_must_save(&j, &s, 1);
            const size_t from = dtpi_files_mem_n_ops(files);
            dtpi_files_mem_limit(files, room);
            s.newest = 2;
            st = job_save(&j, 2);
            if (st < 0) {
                assert_int_equal(st, DTP_ERR_NOSPC);
                assert_text("missing");
                assert_ok(story_check_step(files, n, 1, ERR));
            } else {
                story_acked(&s, 2, j.stage.n_ops_acked);
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

    story_check(&g->first, done, left, how);
    if (g->n_left++ % g->every)
        return 0;
    DTPI_AUTO(files) dtpi_files *files = crash_state_files(left);
    const size_t settled = dtpi_files_mem_n_ops(files);
    const uint32_t way = (uint32_t)check_random(&walk.seed);
    const bool had = dtpi_step_check(files, story_dir, 1, NULL) >= 0;
    job_init(&j, s.n, files);
    for (int i = 0; i < s.n; i++) {
        j.ranks[i].opts.keep_last = way & 1;
        j.ranks[i].opts.delta = way >> 1 & 1;
    }
    if (had)
        story_acked(&s, 1, 0);
    dtp_status st = job_save(&j, 2);
    if (st == DTP_ERR_EXISTS)
        st = story_check_step(files, s.n, 2, ERR);
    else if (st >= 0)
        story_acked(&s, 2, j.stage.n_ops_acked);
    if (st < 0)
        story_fail(&g->first, done, left, how, check_err.text);
    look(&s, files, settled, settled, 0, effort(2, 12));
    job_free(&j);
    g->n_tried++;
    return 0;
}

static uint64_t promised_first(void *user, size_t done)
{
    return story_promise(&((again *)user)->first, done);
}

static void test_save_over_the_remains_of_a_crash(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n *= 2) {
        DTPI_AUTO(files) dtpi_files *files = mem_files();
        again g = { .first = { .title = "two saves", .n = n, .newest = 2 }, .every = effort(61, 11) };
        static job j;
        job_init(&j, n, files);
        for (uint64_t step = 1; step <= 2; step++)
            job_must_save(&j, &g.first, step);
        size_t n_ops;
        crash_op *ops = all_ops(files, &n_ops);
        g.first.ops = ops;
        crash_walk w = { .ops = ops, .n = n_ops, .n_random = effort(20, 60), .seed = check_random(&walk.seed),
                         .seen = &walk.seen, .promise = promised_first, .check = save_again, .user = &g };
        crash_walk_run(&w);
        walk.n_built += w.n_built;
        walk.n_distinct += w.n_distinct;
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
        cmocka_unit_test(test_saves_after_a_killed_one),
        cmocka_unit_test(test_late_writer_takes_nothing_away),
        cmocka_unit_test(test_full_disk_names_the_missing_bytes),
        cmocka_unit_test(test_save_over_the_remains_of_a_crash),
    };

    walk.seed = check_seed();
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    print_message("%zu states built, %zu distinct ones checked\n", walk.n_built, walk.n_distinct);
    crash_seen_free(&walk.seen);
    /* With fewer it tries less than it says. */
    return rc ? rc : check_is_long() ? walk.n_built < 1000000 : walk.n_distinct < 10000;
}
