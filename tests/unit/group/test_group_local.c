/* SPDX-License-Identifier: Apache-2.0 */
/* A group on one machine, its agent in a thread of rank 0; ranks are forked processes. */
#include "unit/group/local.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "ctx/ctx.h"
#include "group/env.h"
#include "group/group.h"

/* ---- a group of one ---- */

static void test_group_of_one_needs_no_launcher_and_no_secret(void **state)
{
    dtp_group_member me = { .size = sizeof(me) };
    size_t sizes[1], bytes;
    dtp_group *g, *sub;
    dtp_ctx *ctx;
    void *data;
    int fd;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtp_group_join(ctx, NULL, &g, ERR));
    assert_int_equal(dtp_group_rank(g), 0);
    assert_ok(dtp_group_get(g, 0, &me, ERR));
    assert_int_equal(me.pid, getpid());
    assert_int_equal(dtp_group_size(g), 1);
    assert_int_equal(dtp_group_local_size(g), 1);
    assert_ok(dtp_group_barrier(g, 0, ERR));
    assert_ok(dtp_group_allgather(g, "abc", 3, &data, sizes, &bytes, 0, ERR));
    assert_int_equal(bytes, 3);
    assert_int_equal(sizes[0], 3);
    assert_memory_equal(data, "abc", 3);
    dtp_group_free(data);
    char word[4] = "xyz";
    assert_ok(dtp_group_broadcast(g, 0, word, 4, 0, ERR));
    assert_string_equal(word, "xyz");
    assert_ok(dtp_group_set(g, "k", "v1", 2, 0, ERR));
    assert_ok(dtp_group_set(g, "k", "v2", 2, 0, ERR));
    assert_ok(dtp_group_lookup(g, "k", &data, &bytes, 0, ERR));
    assert_memory_equal(data, "v2", 2);
    dtp_group_free(data);
    assert_status(DTP_ERR_NOT_FOUND, dtp_group_lookup(g, "none", &data, &bytes, -1, ERR));
    assert_status(DTP_ERR_TIMEOUT, dtp_group_lookup(g, "none", &data, &bytes, 5, ERR));
    assert_text("'none'");
    assert_ok(dtp_group_split(g, 3, 0, 0, &sub, ERR));
    assert_int_equal(dtp_group_size(sub), 1);
    assert_ok(dtp_group_barrier(sub, 0, ERR));
    dtp_group_close(sub);
    assert_ok(dtp_group_split(g, -1, 0, 0, &sub, ERR));
    assert_null(sub);
    assert_ok(dtpi_group_node_memory(g, 7, 4096, INT64_MAX, &fd, ERR));
    close(fd);
    assert_int_equal(dtpi_group_n_nodes(g), 1);
    assert_int_equal(dtpi_group_rank_on_node(g, 0, 0), 0);
    assert_int_equal(atomic_load(dtpi_group_verdict_word(g)), 0);
    dtp_group_abort(g, "enough");
    assert_status(DTP_ERR_ABORTED, dtp_group_barrier(g, 0, ERR));
    assert_text("enough");
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void test_wrong_options_say_what_is_wrong(void **state)
{
    dtp_group_opts o = opts_of("x", 0, 2);
    dtp_group *g;
    dtp_ctx *ctx;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    o.secret = NULL;
    assert_status(DTP_ERR_AUTH, dtp_group_join(ctx, &o, &g, ERR));
    assert_text("DTP_SECRET");
    o.secret = secret;
    o.insecure = 1;
    assert_status(DTP_ERR_INVAL, dtp_group_join(ctx, &o, &g, ERR));
    o = opts_of("x", 2, 2);
    assert_status(DTP_ERR_RANGE, dtp_group_join(ctx, &o, &g, ERR));
    assert_text("rank 2");
    o = opts_of("x", -2, 2);
    assert_status(DTP_ERR_RANGE, dtp_group_join(ctx, &o, &g, ERR));
    o = opts_of("x", 0, 4);
    o.local_size = 2;
    assert_status(DTP_ERR_INVAL, dtp_group_join(ctx, &o, &g, ERR));
    assert_text("DTP_ROOT");
    o = opts_of("\xff", 0, 2);
    assert_status(DTP_ERR_INVAL, dtp_group_join(ctx, &o, &g, ERR));
    assert_text("is not UTF-8");
    dtp_ctx_close(ctx);
}

/* ---- calls ---- */

static void all_calls(int rank, int n, void *job)
{
    size_t sizes[RANKS_MAX], bytes, at = 0;
    char mine[40], word[16] = "";
    dtp_ctx *ctx;
    void *data;
    dtp_group *g = join(job, rank, n, &ctx);

    RANK_CHECK(dtp_group_size(g) == n && dtp_group_rank(g) == rank);
    RANK_CHECK(dtp_group_local_rank(g) == rank && dtp_group_local_size(g) == n);
    for (int i = 0; i < 20; i++)
        RANK_OK(dtp_group_barrier(g, 0, ERR));
    memset(mine, 'a' + rank, sizeof(mine));
    RANK_OK(dtp_group_allgather(g, mine, (size_t)rank, &data, sizes, &bytes, 0, ERR));
    for (int i = 0; i < n; i++) {
        RANK_CHECK(sizes[i] == (size_t)i);
        for (int k = 0; k < i; k++)
            RANK_CHECK(((char *)data)[at++] == 'a' + i);
    }
    RANK_CHECK(at == bytes);
    dtp_group_free(data);
    for (int root = 0; root < n; root++) {
        if (rank == root)
            snprintf(word, sizeof(word), "from %d", root);
        RANK_OK(dtp_group_broadcast(g, root, word, sizeof(word), 0, ERR));
        snprintf(mine, sizeof(mine), "from %d", root);
        RANK_CHECK(strcmp(mine, word) == 0);
    }
    /* The reader may come before the writer. */
    if (rank == n - 1)
        RANK_OK(dtp_group_set(g, "key", "value", 6, 0, ERR));
    RANK_OK(dtp_group_lookup(g, "key", &data, &bytes, 0, ERR));
    RANK_CHECK(bytes == 6 && strcmp(data, "value") == 0);
    dtp_group_free(data);
    RANK_STATUS(DTP_ERR_NOT_FOUND, dtp_group_lookup(g, "other", &data, &bytes, -1, ERR));
    dtp_group_member m = { .size = sizeof(m) };
    RANK_OK(dtp_group_get(g, rank, &m, ERR));
    RANK_CHECK(m.pid == getpid() && m.node == 0 && m.host[0]);
    RANK_STATUS(DTP_ERR_RANGE, dtp_group_get(g, n, &m, ERR));
    leave(ctx, g);
}

static void test_calls_work_between_forked_ranks(void **state)
{
    (void)state;
    for (int n = 2; n <= 16; n = n * 2 + 1)
        ranks_run(n, all_calls, (void *)(uintptr_t)ranks_job());
}

static void big_and_many(int rank, int n, void *job)
{
    const size_t piece = DTP_GROUP_MAX_MSG / (size_t)n;
    dtp_ctx *ctx;
    dtp_group *g = join(job, rank, n, &ctx);
    uint8_t *mine = malloc(piece + 1);
    dtp_op *ops[30];
    size_t bytes;
    void *data;

    memset(mine, rank + 1, piece);
    for (int i = 0; i < 30; i++)
        RANK_OK(dtpi_group_allgather_start(g, DTPI_LANE_CKPT, mine, piece, INT64_MAX, &ops[i], ERR));
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    for (int i = 29; i >= 0; i--) {
        RANK_OK(dtp_op_wait(ops[i], 25000, ERR));
        const dtpi_gathered *all = dtpi_group_gathered(ops[i]);
        RANK_CHECK(all->bytes == piece * (size_t)n && all->data[0] == 1 &&
                   all->data[all->bytes - 1] == n);
        dtp_op_free(ops[i]);
    }
    RANK_STATUS(DTP_ERR_LIMIT,
                dtp_group_allgather(g, mine, piece + 1, &data, NULL, &bytes, 0, ERR));
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    free(mine);
    leave(ctx, g);
}

static void test_large_messages_on_another_lane_pass_a_barrier(void **state)
{
    (void)state;
    ranks_run(3, big_and_many, (void *)(uintptr_t)ranks_job());
}

static void calls_that_differ(int rank, int n, void *job)
{
    dtp_ctx *ctx;
    dtp_group *g = join(job, rank, n, &ctx);
    char data[8] = "";
    void *all;

    RANK_STATUS(DTP_ERR_INVAL, dtp_group_broadcast(g, 0, data, rank == 1 ? 8 : 4, 0, ERR));
    RANK_TEXT("bytes");
    if (rank == 2)
        RANK_STATUS(DTP_ERR_INVAL, dtp_group_barrier(g, 0, ERR));
    else
        RANK_STATUS(DTP_ERR_INVAL, dtp_group_allgather(g, "", 0, &all, NULL, NULL, 0, ERR));
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    leave(ctx, g);
}

static void test_calls_that_do_not_fit_together_fail_on_all(void **state)
{
    (void)state;
    ranks_run(3, calls_that_differ, (void *)(uintptr_t)ranks_job());
}

static void one_is_late(int rank, int n, void *job)
{
    dtp_ctx *ctx;
    dtp_group *g = join(job, rank, n, &ctx);
    size_t bytes;
    void *data;

    if (rank == 1) {
        /* Comes when the others have given up: it gets the same answer. */
        RANK_OK(dtp_group_lookup(g, "given up", &data, &bytes, 0, ERR));
        dtp_group_free(data);
        RANK_STATUS(DTP_ERR_TIMEOUT, dtp_group_barrier(g, 0, ERR));
        RANK_TEXT("rank 1 of 3 did not come in time");
    } else {
        const int64_t start = ranks_now_ns();
        RANK_STATUS(DTP_ERR_TIMEOUT, dtp_group_barrier(g, 100, ERR));
        RANK_CHECK(ranks_now_ns() - start < 3000 * DTPI_NS_PER_MS);
        RANK_TEXT("rank 1 of 3 did not come in time");
        RANK_CHECK(check_err.rank == 1);
        RANK_OK(dtp_group_set(g, "given up", "", 0, 0, ERR));
    }
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    leave(ctx, g);
}

static void test_deadline_names_who_is_late_to_all_and_the_lane_goes_on(void **state)
{
    (void)state;
    ranks_run(3, one_is_late, (void *)(uintptr_t)ranks_job());
}

static void one_leaves(int rank, int n, void *job)
{
    dtp_ctx *ctx;
    dtp_group *g = join(job, rank, n, &ctx);

    if (rank != 1) {
        RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
        RANK_TEXT("rank 1 of 3 has left");
    }
    leave(ctx, g);
}

static void test_a_rank_that_left_is_named_by_later_calls(void **state)
{
    (void)state;
    ranks_run(3, one_leaves, (void *)(uintptr_t)ranks_job());
}

static void shared_memory(int rank, int n, void *job)
{
    dtp_ctx *ctx;
    dtp_group *g = join(job, rank, n, &ctx);
    int fd;

    for (uint32_t round = 0; round < 3; round++) {
        RANK_OK(dtpi_group_node_memory(g, 5, 4096, INT64_MAX, &fd, ERR));
        int *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        RANK_CHECK(p != MAP_FAILED);
        close(fd);
        RANK_CHECK(p[rank] == 0);
        p[rank] = rank + 100;
        RANK_OK(dtp_group_barrier(g, 0, ERR));
        for (int i = 0; i < n; i++)
            RANK_CHECK(p[i] == i + 100);
        munmap(p, 4096);
        RANK_OK(dtp_group_barrier(g, 0, ERR));
    }
    /* Sizes must agree; the first to ask decides. */
    if (rank == 0)
        RANK_OK(dtpi_group_node_memory(g, 6, 4096, INT64_MAX, &fd, ERR));
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (rank == 1) {
        RANK_STATUS(DTP_ERR_INVAL, dtpi_group_node_memory(g, 6, 8192, INT64_MAX, &fd, ERR));
        RANK_TEXT("rank 1");
    }
    leave(ctx, g);
}

static void test_node_memory_is_the_same_file_for_all_members(void **state)
{
    (void)state;
    ranks_run(4, shared_memory, (void *)(uintptr_t)ranks_job());
}

/* ---- split ---- */

static void splits(int rank, int n, void *job)
{
    dtp_ctx *ctx;
    dtp_group *g = join(job, rank, n, &ctx), *half, *none, *pair;
    size_t sizes[RANKS_MAX], bytes;
    void *data;
    const char c = (char)('a' + rank);

    RANK_OK(dtp_group_split(g, rank % 2, -rank, 0, &half, ERR));
    RANK_CHECK(dtp_group_size(half) == n / 2);
    /* The key turns the order around. */
    RANK_CHECK(dtp_group_rank(half) == (n - 1 - rank) / 2);
    RANK_OK(dtp_group_allgather(half, &c, 1, &data, sizes, &bytes, 0, ERR));
    for (int i = 0; i < n / 2; i++)
        RANK_CHECK(((char *)data)[i] == 'a' + (n - 2 - 2 * i) + rank % 2);
    dtp_group_free(data);
    RANK_OK(dtp_group_split(g, rank == 0 ? -1 : 7, 0, 0, &none, ERR));
    RANK_CHECK((none == NULL) == (rank == 0));
    RANK_OK(dtp_group_split(half, dtp_group_rank(half) / 2, 0, 0, &pair, ERR));
    RANK_CHECK(dtp_group_size(pair) == 2);
    char word[8] = "";
    snprintf(word, sizeof(word), "%d", rank);
    RANK_OK(dtp_group_broadcast(pair, 1, word, sizeof(word), 0, ERR));
    dtp_group_member m = { .size = sizeof(m) };
    RANK_OK(dtp_group_get(pair, dtp_group_rank(pair), &m, ERR));
    RANK_CHECK(m.pid == getpid());
    RANK_OK(dtp_group_set(half, "k", &c, 1, 0, ERR));
    RANK_OK(dtp_group_barrier(half, 0, ERR));
    RANK_OK(dtp_group_lookup(half, "k", &data, &bytes, -1, ERR));
    RANK_CHECK((*(char *)data - 'a') % 2 == rank % 2);
    dtp_group_free(data);
    /* The world may close before what it was split into. */
    dtp_group_close(g);
    RANK_OK(dtp_group_barrier(half, 0, ERR));
    dtp_group_close(none);
    dtp_group_close(pair);
    dtp_group_close(half);
    dtp_ctx_close(ctx);
}

static void test_split_orders_by_key_and_lives_on_its_own(void **state)
{
    (void)state;
    ranks_run(8, splits, (void *)(uintptr_t)ranks_job());
}

/* ---- death and abort ---- */

struct death {
    const char *job;
    int victim;
    int64_t *at_ns;             /* shared: when it was killed */
};

static void see_death(int rank, int n, void *user)
{
    const struct death *d = user;
    int32_t failed[4];
    dtp_ctx *ctx;
    dtp_group *g = join(d->job, rank, n, &ctx);
    char text[64];

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (rank == d->victim) {
        /* A data loader keeps the sockets open. */
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, 0);
            alarm(2);
            pause();
            _exit(0);
        }
        usleep(20000);
        d->at_ns[0] = ranks_now_ns();
        kill(getpid(), SIGKILL);
    }
    RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
    d->at_ns[1 + rank] = ranks_now_ns();
    snprintf(text, sizeof(text), "rank %d of %d (node ", d->victim, n);
    RANK_TEXT(text);
    RANK_TEXT("died");
    RANK_CHECK(check_err.rank == d->victim);
    RANK_CHECK(dtp_group_failed(g, failed, 4) == 1 && failed[0] == d->victim);
    RANK_CHECK(atomic_load(dtpi_group_verdict_word(g)) != 0);
    RANK_STATUS(DTP_ERR_PEER, dtpi_group_verdict(g, ERR));
    leave(ctx, g);
}

static void check_death(int victim)
{
    int64_t *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct death d = { ranks_job(), victim, at };
    pid_t pids[4];
    int status[4];

    ranks_start(4, see_death, &d, pids);
    ranks_wait(4, pids, status);
    int64_t worst = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(status[i], i == victim ? SIGKILL : 0);
        if (i != victim && at[1 + i] - at[0] > worst)
            worst = at[1 + i] - at[0];
    }
    print_message("rank %d killed: named to all after %.2f ms\n", victim, (double)worst / 1e6);
    /* Two busy cores: the figure itself is checked by the integration test. */
    assert_true(worst < 5000 * DTPI_NS_PER_MS);
    munmap(at, 4096);
}

static void test_death_is_named_though_a_forked_child_holds_the_socket(void **state)
{
    (void)state;
    check_death(2);
}

static void test_death_of_the_agents_host_is_named_by_the_others(void **state)
{
    (void)state;
    check_death(0);
}

static void *abort_soon(void *g)
{
    usleep(20000);
    dtp_group_abort(g, "the loss is not a number");
    return NULL;
}

static void aborts(int rank, int n, void *job)
{
    dtp_ctx *ctx;
    dtp_group *g = join(job, rank, n, &ctx);
    pthread_t thread;

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (rank == 1)
        pthread_create(&thread, NULL, abort_soon, g);
    void *value;
    RANK_STATUS(DTP_ERR_ABORTED, rank == 2 ? dtp_group_lookup(g, "never set", &value, NULL, 0, ERR)
                                           : dtp_group_barrier(g, 10000, ERR));
    RANK_TEXT("aborted by rank 1: the loss is not a number");
    if (rank == 1)
        pthread_join(thread, NULL);
    leave(ctx, g);
}

static void test_abort_from_another_thread_ends_all_calls(void **state)
{
    (void)state;
    ranks_run(3, aborts, (void *)(uintptr_t)ranks_job());
}

/* ---- joining that fails ---- */

static void someone_is_missing(int rank, int n, void *job)
{
    dtp_group_opts o = opts_of(job, rank, n + 3);
    int32_t failed[8];
    dtp_group *g;
    dtp_ctx *ctx;

    (void)failed;
    o.timeout_ms = 500;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    const int64_t start = ranks_now_ns();
    RANK_STATUS(DTP_ERR_PEER, dtp_group_join(ctx, &o, &g, ERR));
    RANK_CHECK(ranks_now_ns() - start < 5000 * DTPI_NS_PER_MS);
    RANK_TEXT("ranks 3-5 of 6 (node ");
    RANK_CHECK(check_err.rank == 3);
    dtp_ctx_close(ctx);
}

static void test_ranks_that_never_join_are_named_to_all(void **state)
{
    (void)state;
    ranks_run(3, someone_is_missing, (void *)(uintptr_t)ranks_job());
}

static void twice(int rank, int n, void *job)
{
    dtp_group_opts o = opts_of(job, rank == 2 ? 1 : rank, 4);
    dtp_group *g;
    dtp_ctx *ctx;

    (void)n;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_STATUS(DTP_ERR_EXISTS, dtp_group_join(ctx, &o, &g, ERR));
    RANK_TEXT("rank 1 of 4 joined twice");
    dtp_ctx_close(ctx);
}

static void test_a_rank_number_taken_twice_is_named_to_all(void **state)
{
    (void)state;
    ranks_run(3, twice, (void *)(uintptr_t)ranks_job());
}

static void other_size(int rank, int n, void *job)
{
    dtp_group_opts o = opts_of(job, rank * 2, rank == 1 ? 5 : 4);
    dtp_group *g;
    dtp_ctx *ctx;

    (void)n;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_STATUS(DTP_ERR_INVAL, dtp_group_join(ctx, &o, &g, ERR));
    RANK_TEXT("rank 2");
    RANK_TEXT("world size 5");
    RANK_TEXT("says 4");
    dtp_ctx_close(ctx);
}

static void test_a_world_size_that_differs_names_both_values(void **state)
{
    (void)state;
    ranks_run(2, other_size, (void *)(uintptr_t)ranks_job());
}

static void insecure_group(int rank, int n, void *job)
{
    dtp_group_opts o = opts_of(job, rank, n);
    dtp_group *g;
    dtp_ctx *ctx;

    o.secret = NULL;
    o.insecure = 1;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_group_join(ctx, &o, &g, ERR));
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    leave(ctx, g);
}

static void test_a_group_without_secret_must_be_asked_for(void **state)
{
    (void)state;
    ranks_run(3, insecure_group, (void *)(uintptr_t)ranks_job());
}

/* ---- environment and fork ---- */

static dtp_status put(void *user, const char *name, const char *value)
{
    (void)user;
    setenv(name, value, 1);
    return DTP_OK;
}

static void from_env(int rank, int n, void *job)
{
    dtp_group_opts o = opts_of(job, rank, n);
    dtp_group *g;
    dtp_ctx *ctx;

    o.attempt = 3;
    RANK_OK(dtpi_group_env_write(&o, put, NULL, ERR));
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_group_join_from_env(ctx, &g, ERR));
    RANK_CHECK(dtp_group_rank(g) == rank && dtp_group_size(g) == n && dtp_group_attempt(g) == 3);
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    const pid_t child = fork();
    if (child == 0) {
        const dtp_status st = dtp_group_barrier(g, 0, NULL);
        dtp_group_close(g);
        dtp_ctx_close(ctx);
        _exit(st == DTP_ERR_FORKED ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    RANK_CHECK(status == 0);
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    leave(ctx, g);
}

static void test_environment_round_trip_and_a_forked_child_disturbs_nothing(void **state)
{
    (void)state;
    ranks_run(3, from_env, (void *)(uintptr_t)ranks_job());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_of_one_needs_no_launcher_and_no_secret),
        cmocka_unit_test(test_wrong_options_say_what_is_wrong),
        cmocka_unit_test(test_calls_work_between_forked_ranks),
        cmocka_unit_test(test_large_messages_on_another_lane_pass_a_barrier),
        cmocka_unit_test(test_calls_that_do_not_fit_together_fail_on_all),
        cmocka_unit_test(test_deadline_names_who_is_late_to_all_and_the_lane_goes_on),
        cmocka_unit_test(test_a_rank_that_left_is_named_by_later_calls),
        cmocka_unit_test(test_node_memory_is_the_same_file_for_all_members),
        cmocka_unit_test(test_split_orders_by_key_and_lives_on_its_own),
        cmocka_unit_test(test_death_is_named_though_a_forked_child_holds_the_socket),
        cmocka_unit_test(test_death_of_the_agents_host_is_named_by_the_others),
        cmocka_unit_test(test_abort_from_another_thread_ends_all_calls),
        cmocka_unit_test(test_ranks_that_never_join_are_named_to_all),
        cmocka_unit_test(test_a_rank_number_taken_twice_is_named_to_all),
        cmocka_unit_test(test_a_world_size_that_differs_names_both_values),
        cmocka_unit_test(test_a_group_without_secret_must_be_asked_for),
        cmocka_unit_test(test_environment_round_trip_and_a_forked_child_disturbs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
