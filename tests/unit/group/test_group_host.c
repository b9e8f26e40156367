/* SPDX-License-Identifier: Apache-2.0 */
/* The agent in a thread of the first local rank: why it does not start, and who is left when it goes. */
#include "unit/group/ranks.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

static const uint8_t secret[DTP_SECRET_BYTES] = "a secret of thirty-two bytes...";

static dtp_group_opts opts_of(const char *job, int rank, int n)
{
    dtp_group_opts o = DTP_GROUP_OPTS_INIT;

    o.rank = rank;
    o.world_size = n;
    o.job = job;
    o.secret = secret;
    o.timeout_ms = 10000;
    return o;
}

/* Two nodes on this machine, each with its agent in its first rank; that of the second leaves first. */
struct leaving {
    const char *job;
    char root[32];
    _Atomic bool *is_gone;      /* shared */
};

static void host_leaves(int rank, int n, void *user)
{
    const struct leaving *w = user;
    dtp_group_opts o = opts_of(w->job, rank, n);
    dtp_group *g;
    dtp_ctx *ctx;

    o.local_rank = rank % 2;
    o.local_size = 2;
    o.node = rank / 2;
    o.n_nodes = 2;
    o.root = w->root;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_group_join(ctx, &o, &g, ERR));
    if (rank != 2) {
        while (!atomic_load(w->is_gone))
            usleep(1000);
        const int64_t start = ranks_now_ns();
        RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
        RANK_TEXT(rank == 3 ? "the agent of this node has left" : "rank 2 of 4 has left the group");
        RANK_CHECK(ranks_now_ns() - start < 5000000000);
    }
    dtp_group_close(g);
    dtp_ctx_close(ctx);
    if (rank == 2)
        atomic_store(w->is_gone, true);
}

static void low_limit(int rank, int n, void *user)
{
    const char *job = user;
    const struct rlimit few = { 60, 60 };
    dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = n, .job = job, .secret = secret,
                         .timeout_ms = 5000 };
    dtp_group *g;
    dtp_ctx *ctx;

    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    if (rank == 0)
        RANK_CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    RANK_STATUS(rank == 0 ? DTP_ERR_LIMIT : DTP_ERR_PEER, dtp_group_join(ctx, &o, &g, ERR));
    RANK_TEXT("the agent of 20 ranks needs 64 descriptors, limit 60");
    dtp_ctx_close(ctx);
}

static void test_a_limit_that_is_too_low_is_told_to_all(void **state)
{
    (void)state;
    ranks_run(20, low_limit, (void *)(uintptr_t)ranks_job());
}

static void wrong_net(int rank, int n, void *job)
{
    dtp_group_opts o = opts_of(job, rank, n);
    dtp_group *g;
    dtp_ctx *ctx;

    o.net = "pigeon";
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_STATUS(rank == 0 ? DTP_ERR_INVAL : DTP_ERR_PEER, dtp_group_join(ctx, &o, &g, ERR));
    RANK_TEXT("net 'pigeon' is neither");
    dtp_ctx_close(ctx);
}

static void test_what_the_agent_refuses_is_told_to_all(void **state)
{
    (void)state;
    ranks_run(2, wrong_net, (void *)(uintptr_t)ranks_job());
}

static void test_a_node_whose_agent_has_left_is_not_waited_for(void **state)
{
    struct leaving w = { .job = ranks_job() };

    (void)state;
    snprintf(w.root, sizeof(w.root), "127.0.0.1:%u", ranks_free_port());
    w.is_gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ranks_run(4, host_leaves, &w);
    munmap((void *)w.is_gone, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_limit_that_is_too_low_is_told_to_all),
        cmocka_unit_test(test_what_the_agent_refuses_is_told_to_all),
        cmocka_unit_test(test_a_node_whose_agent_has_left_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
