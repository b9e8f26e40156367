/* SPDX-License-Identifier: Apache-2.0 */
/* The public collectives over a real group; ranks are forked processes. */
#include "unit/group/ranks.h"

#include "coll/coll.h"
#include "reference.h"

static const uint8_t secret[DTP_SECRET_BYTES] = "collectives need a secret too..";

static dtp_group *join(const char *job, int rank, int n, dtp_ctx **ctx_out)
{
    dtp_group_opts o = DTP_GROUP_OPTS_INIT;
    dtp_group *g;

    o.rank = rank;
    o.world_size = n;
    o.job = job;
    o.secret = secret;
    o.timeout_ms = 10000;
    RANK_OK(dtp_ctx_open(NULL, ctx_out, ERR));
    RANK_OK(dtp_group_join(*ctx_out, &o, &g, ERR));
    return g;
}

static void leave(dtp_ctx *ctx, dtp_group *g)
{
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void test_group_of_one_copies(void **state)
{
    float in[3] = { 1, 2, 3 }, out[3] = { 0 };
    dtp_op *op;
    dtp_group *g;
    dtp_ctx *ctx;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtp_group_join(ctx, NULL, &g, ERR));
    assert_ok(dtp_allreduce(g, in, out, 3, DTP_F32, DTP_AVG, 0, ERR));
    assert_memory_equal(in, out, sizeof(in));
    assert_ok(dtp_broadcast(g, in, 3, DTP_F32, 0, 0, ERR));
    assert_ok(dtp_reduce_scatter_start(g, in, out + 1, 2, DTP_F32, DTP_SUM, &op, ERR));
    assert_ok(dtp_op_wait(op, 1000, ERR));
    dtp_op_free(op);
    assert_memory_equal(in, out + 1, 8);
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void test_arguments_are_checked(void **state)
{
    float buf[8] = { 0 };
    dtp_group *g;
    dtp_ctx *ctx;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtp_group_join(ctx, NULL, &g, ERR));
    assert_status(DTP_ERR_INVAL, dtp_allreduce(g, buf, NULL, 3, DTP_F32, DTP_SUM, 0, ERR));
    assert_string_equal(check_err.noun, "coll");
    assert_status(DTP_ERR_INVAL, dtp_allreduce(g, buf, buf + 1, 3, DTP_F32, DTP_SUM, 0, ERR));
    assert_text("overlap");
    assert_status(DTP_ERR_INVAL, dtp_allreduce(g, buf, buf, 3, (dtp_dtype)77, DTP_SUM, 0, ERR));
    assert_status(DTP_ERR_INVAL, dtp_allreduce(g, buf, buf, 3, DTP_F32, (dtp_redop)5, 0, ERR));
    assert_status(DTP_ERR_UNSUPPORTED, dtp_allreduce(g, buf, buf, 3, DTP_I8, DTP_SUM, 0, ERR));
    assert_status(DTP_ERR_RANGE, dtp_broadcast(g, buf, 3, DTP_F32, 1, 0, ERR));
    assert_status(DTP_ERR_RANGE, dtp_allreduce(g, buf, buf, SIZE_MAX / 2, DTP_F32, DTP_SUM, 0, ERR));
    assert_status(DTP_ERR_INVAL, dtp_allreduce(g, (char *)buf + 1, (char *)buf + 1, 3, DTP_F32, DTP_SUM,
                                               0, ERR));
    assert_text("aligned");
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void check_allreduce(dtp_group *g, size_t count, uint64_t seed, bool as_op)
{
    float *in = malloc(count * 4 + 4), *out = malloc(count * 4 + 4);
    dtp_op *op;

    for (size_t i = 0; i < count; i++)
        ref_input(DTP_F32, seed, (uint32_t)rank_me, i, &in[i]);
    if (as_op) {
        RANK_OK(dtp_allreduce_start(g, in, out, count, DTP_F32, DTP_SUM, &op, ERR));
        RANK_OK(dtp_op_wait(op, 10000, ERR));
        dtp_op_free(op);
    } else {
        RANK_OK(dtp_allreduce(g, in, out, count, DTP_F32, DTP_SUM, 0, ERR));
    }
    for (size_t i = 0; i < count; i++) {
        float want;
        ref_expect(DTP_F32, DTP_SUM, seed, (uint32_t)dtp_group_size(g), i, &want);
        RANK_CHECK(memcmp(&want, &out[i], 4) == 0);
    }
    free(in);
    free(out);
}

static void calls_rank(int rank, int n, void *user)
{
    dtp_ctx *ctx;
    dtp_group *g = join(user, rank, n, &ctx);

    for (size_t i = 0; i < 60; i++)
        check_allreduce(g, i * i * 7 % 5000, i, i % 7 == 0);
    leave(ctx, g);
}

static void test_calls_and_operations_mix(void **state)
{
    (void)state;
    ranks_run(2, calls_rank, (void *)(uintptr_t)ranks_job());
    ranks_run(3, calls_rank, (void *)(uintptr_t)ranks_job());
}

static void order_rank(int rank, int n, void *user)
{
    enum { N = 5 };
    static int32_t in[N], out[N], all[N * 3];
    dtp_op *ops[N], *gather;
    dtp_ctx *ctx;
    dtp_group *g = join(user, rank, n, &ctx);

    for (int i = 0; i < N; i++) {
        in[i] = rank + i * 10;
        RANK_OK(dtp_allreduce_start(g, &in[i], &out[i], 1, DTP_I32, DTP_SUM, &ops[i], ERR));
    }
    RANK_OK(dtp_allgather_start(g, in, all, N, DTP_I32, &gather, ERR));
    /* A blocking call runs behind them. */
    int64_t word = rank == 1 ? 4711 : 0;
    RANK_OK(dtp_broadcast(g, &word, 1, DTP_I64, 1, 0, ERR));
    RANK_CHECK(word == 4711);
    for (int i = 0; i < N; i++) {
        RANK_STATUS(DTP_OK, dtp_op_status(ops[i], ERR));
        RANK_CHECK(out[i] == n * (n - 1) / 2 + n * i * 10);
        dtp_op_free(ops[i]);
    }
    RANK_STATUS(DTP_OK, dtp_op_status(gather, ERR));
    for (int i = 0; i < n * N; i++)
        RANK_CHECK(all[i] == i / N + i % N * 10);
    dtp_op_free(gather);
    leave(ctx, g);
}

static void test_operations_keep_their_order(void **state)
{
    (void)state;
    ranks_run(3, order_rank, (void *)(uintptr_t)ranks_job());
}

static void split_rank(int rank, int n, void *user)
{
    int32_t one = 1, sum = 0;
    dtp_group *half;
    dtp_ctx *ctx;
    dtp_group *g = join(user, rank, n, &ctx);

    RANK_OK(dtp_group_split(g, rank % 2, -rank, 0, &half, ERR));
    RANK_OK(dtp_allreduce(half, &one, &sum, 1, DTP_I32, DTP_SUM, 0, ERR));
    RANK_CHECK(sum == dtp_group_size(half));
    RANK_OK(dtp_allreduce(g, &one, &sum, 1, DTP_I32, DTP_SUM, 0, ERR));
    RANK_CHECK(sum == n);
    dtp_group_close(half);
    leave(ctx, g);
}

static void test_groups_that_were_split_reduce_apart(void **state)
{
    (void)state;
    ranks_run(4, split_rank, (void *)(uintptr_t)ranks_job());
}

static void dead_rank(int rank, int n, void *user)
{
    float x = 1;
    dtp_ctx *ctx;
    dtp_group *g = join(user, rank, n, &ctx);

    RANK_OK(dtp_allreduce(g, &x, &x, 1, DTP_F32, DTP_SUM, 0, ERR));
    if (rank == 1)
        kill(getpid(), SIGKILL);
    RANK_STATUS(DTP_ERR_PEER, dtp_allreduce(g, &x, &x, 1, DTP_F32, DTP_SUM, 0, ERR));
    RANK_TEXT("rank 1");
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void test_a_killed_rank_is_named_to_those_who_wait(void **state)
{
    const char *job = ranks_job();
    pid_t pids[3];
    int status[3];

    (void)state;
    ranks_start(3, dead_rank, (void *)(uintptr_t)job, pids);
    ranks_wait(3, pids, status);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[2], 0);
}

static void leaving_rank(int rank, int n, void *user)
{
    float x = 1, y;
    dtp_ctx *ctx;
    dtp_group *g = join(user, rank, n, &ctx);

    RANK_OK(dtp_allreduce(g, &x, &y, 1, DTP_F32, DTP_SUM, 0, ERR));
    if (rank != 1) {
        RANK_STATUS(DTP_ERR_PEER, dtp_allreduce(g, &x, &y, 1, DTP_F32, DTP_SUM, 60000, ERR));
        RANK_TEXT("rank 1 has left the group");
    }
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void test_a_rank_that_left_is_named_to_those_who_wait(void **state)
{
    const char *job = ranks_job();
    pid_t pids[3];
    int status[3];

    (void)state;
    ranks_start(3, leaving_rank, (void *)(uintptr_t)job, pids);
    ranks_wait(3, pids, status);
    for (int i = 0; i < 3; i++)
        assert_int_equal(status[i], 0);
}

static void cancel_rank(int rank, int n, void *user)
{
    float x = 1, y;
    dtp_op *op, *behind;
    dtp_ctx *ctx;
    dtp_group *g = join(user, rank, n, &ctx);

    if (rank == 0) {
        RANK_OK(dtp_allreduce_start(g, &x, &y, 1, DTP_F32, DTP_SUM, &op, ERR));
        RANK_OK(dtp_allreduce_start(g, &x, &x, 1, DTP_F32, DTP_SUM, &behind, ERR));
        dtp_op_cancel(op);
        RANK_STATUS(DTP_ERR_CANCELED, dtp_op_wait(op, 5000, ERR));
        RANK_STATUS(DTP_ERR_CANCELED, dtp_op_wait(behind, 5000, ERR));
        dtp_op_free(op);
        dtp_op_free(behind);
        RANK_STATUS(DTP_ERR_CANCELED, dtp_allreduce(g, &x, &x, 1, DTP_F32, DTP_SUM, 0, ERR));
    }
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    /* The first one had its numbers out already. */
    if (rank != 0) {
        RANK_OK(dtp_allreduce(g, &x, &y, 1, DTP_F32, DTP_SUM, 0, ERR));
        RANK_STATUS(DTP_ERR_PEER, dtp_allreduce(g, &x, &y, 1, DTP_F32, DTP_SUM, 0, ERR));
        RANK_TEXT("rank 0 gave up");
    }
    leave(ctx, g);
}

static void test_a_cancelled_collective_ends_those_of_the_group(void **state)
{
    (void)state;
    ranks_run(2, cancel_rank, (void *)(uintptr_t)ranks_job());
}

static void pending_rank(int rank, int n, void *user)
{
    static float x[4], y[4];
    dtp_op *op;
    dtp_ctx *ctx;
    dtp_group *g = join(user, rank, n, &ctx);

    RANK_OK(dtp_allreduce(g, x, y, 4, DTP_F32, DTP_SUM, 0, ERR));
    if (rank == 0)
        RANK_OK(dtp_allreduce_start(g, x, y, 4, DTP_F32, DTP_SUM, &op, ERR));
    dtp_group_close(g);
    if (rank == 0) {
        RANK_STATUS(DTP_ERR_CANCELED, dtp_op_status(op, ERR));
        dtp_op_free(op);
    }
    dtp_ctx_close(ctx);
}

static void test_closing_the_group_cancels_what_is_pending(void **state)
{
    (void)state;
    ranks_run(2, pending_rank, (void *)(uintptr_t)ranks_job());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_of_one_copies),
        cmocka_unit_test(test_arguments_are_checked),
        cmocka_unit_test(test_calls_and_operations_mix),
        cmocka_unit_test(test_operations_keep_their_order),
        cmocka_unit_test(test_groups_that_were_split_reduce_apart),
        cmocka_unit_test(test_a_killed_rank_is_named_to_those_who_wait),
        cmocka_unit_test(test_a_rank_that_left_is_named_to_those_who_wait),
        cmocka_unit_test(test_a_cancelled_collective_ends_those_of_the_group),
        cmocka_unit_test(test_closing_the_group_cancels_what_is_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
