/* SPDX-License-Identifier: Apache-2.0 */
/* Saves in the background of a group: exchanges go on whatever the ranks do, and failures reach all. */
#include "unit/group/ranks.h"
#include "folder.h"

#include <pthread.h>

#include <dtp/ckpt.h>
#include <dtp/coll.h>

#include "group/group.h"

enum { N = 4, ROWS = 1000 };

static const uint8_t secret[DTP_SECRET_BYTES] = "a secret of thirty-two bytes...";

typedef struct rank_state {
    dtp_ctx *ctx;
    dtp_group *g;
    int rank;
    float rows[ROWS];
    int64_t shape[2], offset[2], extent[2];
    dtp_ckpt_tensor t;
    dtp_ckpt_save_opts opts;
} rank_state;

static void fill(rank_state *s, float first)
{
    for (int i = 0; i < ROWS; i++)
        s->rows[i] = first + (float)s->rank;
}

static void join(rank_state *s, const char *job, int rank, int n)
{
    const dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = n, .job = job,
                               .secret = secret, .timeout_ms = 25000 };

    memset(s, 0, sizeof(*s));
    RANK_OK(dtp_ctx_open(NULL, &s->ctx, ERR));
    RANK_OK(dtp_group_join(s->ctx, &o, &s->g, ERR));
    s->rank = rank;
    s->shape[0] = n;
    s->shape[1] = s->extent[1] = ROWS;
    s->offset[0] = rank;
    s->extent[0] = 1;
    s->t = (dtp_ckpt_tensor){ sizeof(s->t), "w", DTP_F32, 2, s->shape, s->offset, s->extent, s->rows };
    s->opts = (dtp_ckpt_save_opts){ .size = sizeof(s->opts), .no_sync = 1 };
    fill(s, 1);
}

static void leave(rank_state *s)
{
    dtp_group_close(s->g);
    dtp_ctx_close(s->ctx);
}

static dtp_op *start(rank_state *s, uint64_t step)
{
    dtp_op *op = NULL;

    RANK_OK(dtp_ckpt_save_start(s->ctx, s->g, base, step, &s->t, 1, &s->opts, &op, ERR));
    return op;
}

/* Every rank reads the row of its neighbour. */
static void check_step(rank_state *s, uint64_t step, float first)
{
    const int other = (s->rank + 1) % (int)s->shape[0];
    const int64_t offset[2] = { other, 0 };
    float back[ROWS];
    dtp_ckpt_tensor t = s->t;
    dtp_ckpt *ckpt = NULL;

    t.offset = offset;
    t.data = back;
    RANK_OK(dtp_ckpt_open(s->ctx, base, step, &ckpt, ERR));
    RANK_OK(dtp_ckpt_read(ckpt, &t, 1, ERR));
    for (int i = 0; i < ROWS; i++)
        RANK_CHECK(back[i] == first + (float)other);
    dtp_ckpt_close(ckpt);
}

static void run_mixed(int rank, int n, void *user)
{
    rank_state s;

    join(&s, user, rank, n);
    for (uint64_t step = 1; step <= 5; step++) {
        fill(&s, (float)step);
        dtp_op *op = start(&s, step);
        fill(&s, -1);
        for (int i = 0; i < 20; i++) {
            double one = rank, sum = 0;
            RANK_OK(dtp_group_barrier(s.g, 0, ERR));
            RANK_OK(dtp_allreduce(s.g, &one, &sum, 1, DTP_F64, DTP_SUM, 0, ERR));
            RANK_CHECK(sum == n * (n - 1) / 2);
        }
        RANK_OK(dtp_op_wait(op, -1, ERR));
        dtp_op_free(op);
        check_step(&s, step, (float)step);
    }
    leave(&s);
}

static void test_barriers_and_allreduces_mix_with_a_save(void **state)
{
    (void)state;
    ranks_run(N, run_mixed, (void *)ranks_job());
}

/* Some wait for the save first, others are in a collective that these join only afterwards. */
static void run_crossed(int rank, int n, void *user)
{
    double one = 1, sum = 0;
    rank_state s;

    join(&s, user, rank, n);
    RANK_OK(dtp_allreduce(s.g, &one, &sum, 1, DTP_F64, DTP_SUM, 0, ERR));
    for (uint64_t step = 11; step <= 13; step++) {
        dtp_op *op = start(&s, step);
        if (rank % 2)
            RANK_OK(dtp_op_wait(op, -1, ERR));
        if (step % 2)
            RANK_OK(dtp_allreduce(s.g, &one, &sum, 1, DTP_F64, DTP_SUM, 0, ERR));
        else
            RANK_OK(dtp_group_barrier(s.g, 0, ERR));
        RANK_OK(dtp_op_wait(op, -1, ERR));
        dtp_op_free(op);
    }
    leave(&s);
}

static void test_a_rank_in_a_collective_moves_the_save_of_one_that_waits(void **state)
{
    (void)state;
    ranks_run(N, run_crossed, (void *)ranks_job());
}

/* Nobody calls anything: the threads do it alone. */
static void run_idle(int rank, int n, void *user)
{
    rank_state s;

    join(&s, user, rank, n);
    dtp_op *op = start(&s, 21);
    for (int i = 0; i < 20000 && dtp_op_status(op, NULL) == DTP_PENDING; i++)
        usleep(1000);
    RANK_OK(dtp_op_status(op, ERR));
    dtp_op_free(op);
    check_step(&s, 21, 1);
    RANK_OK(dtp_group_barrier(s.g, 0, ERR));
    leave(&s);
}

static void test_a_save_ends_while_nobody_uses_the_context(void **state)
{
    (void)state;
    ranks_run(N, run_idle, (void *)ranks_job());
}

/* A rank whose call is wrong tells the others at once; the next save is fine again. */
static void run_wrong_call(int rank, int n, void *user)
{
    dtp_op *op = NULL;
    rank_state s;

    join(&s, user, rank, n);
    for (int how = 0; how < 4; how++) {
        const int64_t before = ranks_now_ns();
        const uint64_t step = 31 + (uint64_t)how;
        dtp_ckpt_save_opts opts = s.opts;
        dtp_status st;
        if (rank == 2)
            opts.size = 3;
        if (how % 2 == 0) {
            RANK_STATUS(DTP_ERR_INVAL, dtp_ckpt_save(s.ctx, s.g, base, step, &s.t, 1, &opts, ERR));
        } else {
            st = dtp_ckpt_save_start(s.ctx, s.g, base, step, &s.t, 1, &opts, &op, ERR);
            if (rank != 2) {
                RANK_CHECK(st == DTP_OK);
                st = dtp_op_wait(op, -1, ERR);
                dtp_op_free(op);
            }
            RANK_CHECK(st == DTP_ERR_INVAL);
        }
        RANK_TEXT("rank 2: ");
        RANK_CHECK(ranks_now_ns() - before < 20000000000);      /* not by the timeout */
    }
    op = start(&s, 35);
    RANK_OK(dtp_op_wait(op, -1, ERR));
    dtp_op_free(op);
    check_step(&s, 35, 1);
    leave(&s);
}

static void test_a_wrong_call_of_one_rank_fails_on_all_at_once(void **state)
{
    (void)state;
    ranks_run(3, run_wrong_call, (void *)ranks_job());
}

/* One that was not told of the last failure passes it on. */
static void run_untold(int rank, int n, void *user)
{
    dtp_op *op = NULL;
    rank_state s;

    join(&s, user, rank, n);
    op = start(&s, 41);
    RANK_OK(dtp_op_wait(op, -1, ERR));
    dtp_op_free(op);
    op = start(&s, 41);
    if (rank != 1)
        RANK_STATUS(DTP_ERR_EXISTS, dtp_op_wait(op, -1, ERR));
    dtp_op_free(op);
    op = NULL;
    dtp_status st = dtp_ckpt_save_start(s.ctx, s.g, base, 42, &s.t, 1, &s.opts, &op, ERR);
    if (rank != 1) {
        RANK_CHECK(st == DTP_OK);
        st = dtp_op_wait(op, -1, ERR);
        dtp_op_free(op);
    }
    RANK_CHECK(st == DTP_ERR_EXISTS);
    RANK_TEXT("rank 1: the save of step 41 before failed: rank 0: step 41 is already complete");
    op = start(&s, 43);
    RANK_OK(dtp_op_wait(op, -1, ERR));
    dtp_op_free(op);
    leave(&s);
}

static void test_a_failure_one_rank_was_not_told_fails_the_next_on_all(void **state)
{
    (void)state;
    ranks_run(3, run_untold, (void *)ranks_job());
}

static void run_disagreeing(int rank, int n, void *user)
{
    rank_state s;

    join(&s, user, rank, n);
    RANK_STATUS(DTP_ERR_INVAL, dtp_ckpt_save(s.ctx, s.g, base, rank == 1 ? 46 : 45, &s.t, 1, &s.opts, ERR));
    RANK_TEXT("rank 0 saves step 45, rank 1 step 46");
    leave(&s);
}

static void test_ranks_that_save_different_steps_are_told(void **state)
{
    (void)state;
    ranks_run(3, run_disagreeing, (void *)ranks_job());
}

/* Rank 1 does not come, and closes only when the others gave up. */
static void run_waiting(int rank, int n, void *user)
{
    dtp_op *op = NULL;
    rank_state s;

    join(&s, user, rank, n);
    s.opts.timeout_ms = 200;
    if (rank == 0) {
        RANK_STATUS(DTP_ERR_TIMEOUT, dtp_ckpt_save(s.ctx, s.g, base, 47, &s.t, 1, &s.opts, ERR));
    } else if (rank == 2) {
        RANK_OK(dtp_ckpt_save_start(s.ctx, s.g, base, 47, &s.t, 1, &s.opts, &op, ERR));
        RANK_STATUS(DTP_ERR_TIMEOUT, dtp_op_wait(op, -1, ERR));
        dtp_op_free(op);
    }
    RANK_OK(dtp_group_barrier(s.g, 0, ERR));
    leave(&s);
}

static void test_a_rank_that_does_not_come_is_waited_for_no_longer_than_said(void **state)
{
    (void)state;
    ranks_run(3, run_waiting, (void *)ranks_job());
}

static void run_cancel(int rank, int n, void *user)
{
    rank_state s;

    join(&s, user, rank, n);
    /* The others cannot be quicker than the barrier. */
    if (rank == 1)
        RANK_OK(dtp_group_barrier(s.g, 0, ERR));
    dtp_op *op = start(&s, 51);
    if (rank == 0) {
        dtp_op_cancel(op);
        RANK_OK(dtp_ctx_dispatch(s.ctx, 0, ERR) < 0 ? DTP_ERR_IO : DTP_OK);
    }
    if (rank != 1)
        RANK_OK(dtp_group_barrier(s.g, 0, ERR));
    RANK_STATUS(DTP_ERR_CANCELED, dtp_op_wait(op, -1, ERR));
    RANK_TEXT("rank 0: the save of step 51 was cancelled");
    dtp_op_free(op);
    leave(&s);
}

static void test_a_cancelled_save_fails_on_all(void **state)
{
    (void)state;
    ranks_run(3, run_cancel, (void *)ranks_job());
}

/* A rank leaves, or aborts, while a save waits for it. */
static void run_leaving(int rank, int n, void *user)
{
    rank_state s;

    join(&s, user, rank, n);
    if (rank == 0) {
        dtp_op *op = start(&s, 61);
        dtp_group_close(s.g);
        RANK_CHECK(dtp_op_wait(op, -1, ERR) < 0);
        dtp_op_free(op);
        dtp_ctx_close(s.ctx);
        return;
    }
    dtp_group_abort(s.g, "enough");
    dtp_op *op = NULL;
    RANK_CHECK(dtp_ckpt_save(s.ctx, s.g, base, 61, &s.t, 1, &s.opts, ERR) == DTP_ERR_ABORTED);
    if (dtp_ckpt_save_start(s.ctx, s.g, base, 61, &s.t, 1, &s.opts, &op, ERR) == DTP_OK)
        RANK_STATUS(DTP_ERR_ABORTED, dtp_op_wait(op, -1, ERR));
    dtp_op_free(op);
    leave(&s);
}

static void test_closing_and_aborting_end_a_save(void **state)
{
    (void)state;
    ranks_run(2, run_leaving, (void *)ranks_job());
}

/* A parent group and a part of it save at the same time, each into a folder of its own. */
static void run_two_groups(int rank, int n, void *user)
{
    dtp_op *whole, *part = NULL;
    dtp_group *sub = NULL;
    char dir[96];
    rank_state s;

    join(&s, user, rank, n);
    RANK_OK(dtp_group_split(s.g, rank % 2, 0, 0, &sub, ERR));
    snprintf(dir, sizeof(dir), "%s/part%d", base, rank % 2);
    whole = start(&s, 71);
    const int64_t shape[2] = { 2, ROWS }, offset[2] = { rank / 2, 0 };
    const dtp_ckpt_tensor t = { sizeof(t), "w", DTP_F32, 2, shape, offset, s.extent, s.rows };
    RANK_OK(dtp_ckpt_save_start(s.ctx, sub, dir, 71, &t, 1, &s.opts, &part, ERR));
    RANK_OK(dtp_op_wait(part, -1, ERR));
    RANK_OK(dtp_op_wait(whole, -1, ERR));
    dtp_op_free(part);
    dtp_op_free(whole);
    check_step(&s, 71, 1);
    dtp_group_close(sub);
    leave(&s);
}

static void test_two_groups_save_at_a_time(void **state)
{
    (void)state;
    ranks_run(N, run_two_groups, (void *)ranks_job());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barriers_and_allreduces_mix_with_a_save),
        cmocka_unit_test(test_a_rank_in_a_collective_moves_the_save_of_one_that_waits),
        cmocka_unit_test(test_a_save_ends_while_nobody_uses_the_context),
        cmocka_unit_test(test_a_wrong_call_of_one_rank_fails_on_all_at_once),
        cmocka_unit_test(test_a_failure_one_rank_was_not_told_fails_the_next_on_all),
        cmocka_unit_test(test_ranks_that_save_different_steps_are_told),
        cmocka_unit_test(test_a_rank_that_does_not_come_is_waited_for_no_longer_than_said),
        cmocka_unit_test(test_a_cancelled_save_fails_on_all),
        cmocka_unit_test(test_closing_and_aborting_end_a_save),
        cmocka_unit_test(test_two_groups_save_at_a_time),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
