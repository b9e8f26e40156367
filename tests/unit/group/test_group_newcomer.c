/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that come to a group that stands: they wait, and a re-form takes them in. */
#include "unit/group/gang.h"

#include "group/group.h"

static void newcomer(const struct world *w)
{
    dtp_group_opts o = { .size = sizeof(o), .rank = DTP_RANK_NEW, .world_size = w->n_ranks, .job = w->job,
                         .timeout_ms = 10000, .secret = secret, .local_rank = PER_NODE };
    char name[80];
    dtp_group *g, *next;
    dtp_ctx *ctx;

    snprintf(name, sizeof(name), "@dtp-%s-%d", w->job, 1);
    o.agent = name;
    rank_me = 2000;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_group_join(ctx, &o, &g, ERR));
    RANK_CHECK(dtp_group_rank(g) == w->n_ranks && dtp_group_size(g) == w->n_ranks + 1);
    RANK_CHECK(dtp_group_generation(g) == 2);
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    /* It takes part in what follows like everybody. */
    RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
    RANK_OK(dtp_group_reform(g, NULL, &next, ERR));
    RANK_CHECK(dtp_group_rank(next) == w->n_ranks - 1);
    RANK_OK(dtp_group_barrier(next, 0, ERR));
    dtp_group_close(g);
    dtp_group_close(next);
    dtp_ctx_close(ctx);
    _exit(0);
}

static void grows_and_shrinks(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    const dtp_reform_opts o = { .size = sizeof(o), .min_size = w->n_ranks + 1 };
    dtp_group_member m = { .size = sizeof(m) };
    dtp_group *next, *last;
    pid_t pid = -1;
    int status;

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (rank == PER_NODE && (pid = fork()) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        newcomer(w);
    }
    RANK_OK(dtp_group_reform(g, &o, &next, ERR));
    RANK_CHECK(dtp_group_size(next) == w->n_ranks + 1 && dtp_group_rank(next) == rank);
    RANK_OK(dtp_group_get(next, w->n_ranks, &m, ERR));
    RANK_CHECK(m.node == 1 && m.identity == w->n_ranks && (pid < 0 || m.pid == pid));
    RANK_CHECK(dtpi_group_n_on_node(next, 1) == PER_NODE + 1);
    RANK_CHECK(dtp_group_n_waiting(next) == 0);
    RANK_OK(dtp_group_barrier(next, 0, ERR));
    if (is_victim(w, rank))
        raise(SIGKILL);
    RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(next, 0, ERR));
    RANK_OK(dtp_group_reform(next, NULL, &last, ERR));
    RANK_CHECK(dtp_group_size(last) == w->n_ranks);
    RANK_OK(dtp_group_barrier(last, 0, ERR));
    if (pid > 0)
        RANK_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    dtp_group_close(g);
    dtp_group_close(next);
    dtp_group_close(last);
    (void)ctx;
}

static void test_a_newcomer_is_taken_in(void **state)
{
    (void)state;
    struct world w = world_of(2, grows_and_shrinks);

    w.victims = 1u << 2;
    run_world(&w);
}

static void two_and_one_more(int rank, int n, void *user)
{
    const bool is_new = rank == 2;
    const dtp_reform_opts ro = { .size = sizeof(ro), .min_size = 3 };
    const dtp_group_opts o = { .size = sizeof(o), .rank = is_new ? DTP_RANK_NEW : rank, .world_size = 2,
                               .job = user, .timeout_ms = 10000, .secret = secret };
    dtp_group *g, *next = NULL;
    dtp_ctx *ctx;

    (void)n;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_group_join(ctx, &o, &g, ERR));
    if (!is_new)
        RANK_OK(dtp_group_reform(g, &ro, &next, ERR));
    dtp_group *all = is_new ? g : next;
    RANK_CHECK(dtp_group_size(all) == 3 && dtp_group_rank(all) == rank && dtp_group_local_rank(all) == rank);
    RANK_OK(dtp_group_barrier(all, 0, ERR));
    dtp_group_close(g);
    dtp_group_close(next);
    dtp_ctx_close(ctx);
}

static void test_a_newcomer_finds_the_agent_of_its_machine(void **state)
{
    (void)state;
    ranks_run(3, two_and_one_more, (void *)(uintptr_t)ranks_job());
}

static void nobody_takes(int rank, int n, void *user)
{
    const dtp_group_opts o = { .size = sizeof(o), .rank = rank == 2 ? DTP_RANK_NEW : rank, .world_size = 2,
                               .job = user, .timeout_ms = rank == 2 ? 150 : 10000, .secret = secret };
    dtp_group *g = NULL;
    dtp_ctx *ctx;
    size_t bytes;
    void *data;

    (void)n;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_STATUS(rank == 2 ? DTP_ERR_TIMEOUT : DTP_OK, dtp_group_join(ctx, &o, &g, ERR));
    if (rank == 2)
        RANK_TEXT("no re-form took this newcomer in");
    else
        RANK_STATUS(DTP_ERR_TIMEOUT, dtp_group_lookup(g, "never", &data, &bytes, 400, ERR));
    if (rank != 2)
        RANK_OK(dtp_group_barrier(g, 0, ERR));
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void test_a_newcomer_that_gives_up_disturbs_nobody(void **state)
{
    (void)state;
    ranks_run(3, nobody_takes, (void *)(uintptr_t)ranks_job());
}

/* Each re-form takes in one more; the one before calls for it, too. */
static void late(const struct world *w, int number)
{
    dtp_group_opts o = { .size = sizeof(o), .rank = DTP_RANK_NEW, .world_size = w->n_ranks, .job = w->job,
                         .timeout_ms = 10000, .secret = secret, .local_rank = PER_NODE + number };
    dtp_group *g, *next;
    char name[80];
    dtp_ctx *ctx;

    snprintf(name, sizeof(name), "@dtp-%s-%d", w->job, 0);
    o.agent = name;
    rank_me = 2000 + number;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_group_join(ctx, &o, &g, ERR));
    for (int i = number; i < 3; i++) {
        const dtp_reform_opts ro = { .size = sizeof(ro), .min_size = w->n_ranks + i + 1 };
        RANK_CHECK(dtp_group_rank(g) == w->n_ranks + number - 1 && dtp_group_size(g) == w->n_ranks + i);
        RANK_OK(dtp_group_barrier(g, 0, ERR));
        RANK_OK(dtp_group_reform(g, &ro, &next, ERR));
        dtp_group_close(g);
        g = next;
    }
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    dtp_group_close(g);
    dtp_ctx_close(ctx);
    _exit(0);
}

static void grows_by_and_by(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    pid_t pids[3];
    int status;

    for (int i = 0; i < 3; i++) {
        const dtp_reform_opts o = { .size = sizeof(o), .min_size = w->n_ranks + i + 1 };
        dtp_group *next;
        if (rank == 0 && (pids[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            late(w, i + 1);
        }
        RANK_OK(dtp_group_reform(g, &o, &next, ERR));
        RANK_CHECK(dtp_group_size(next) == w->n_ranks + i + 1);
        RANK_OK(dtp_group_barrier(next, 0, ERR));
        dtp_group_close(g);
        g = next;
    }
    for (int i = 0; rank == 0 && i < 3; i++)
        RANK_CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
    dtp_group_close(g);
    (void)ctx;
}

static void test_newcomers_may_come_one_after_the_other(void **state)
{
    (void)state;
    struct world w = world_of(1, grows_by_and_by);

    run_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_newcomer_is_taken_in),
        cmocka_unit_test(test_newcomers_may_come_one_after_the_other),
        cmocka_unit_test(test_a_newcomer_finds_the_agent_of_its_machine),
        cmocka_unit_test(test_a_newcomer_that_gives_up_disturbs_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
