/* SPDX-License-Identifier: Apache-2.0 */
/* The agent in a thread of the first local rank: why it does not start, and who is left when it goes. */
#include "unit/group/ranks.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "group/handshake.h"
#include "net/sock.h"

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

/* Ranks of which all are there, before the first of them fails. */
struct limited {
    const char *job;
    _Atomic int n_there;
};

static void low_limit(int rank, int n, void *user)
{
    struct limited *w = user;
    const struct rlimit few = { 60, 60 };
    dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = n, .job = w->job, .secret = secret,
                         .timeout_ms = 5000 };
    dtp_group *g;
    dtp_ctx *ctx;

    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    atomic_fetch_add(&w->n_there, 1);
    while (rank == 0 && atomic_load(&w->n_there) < n)
        usleep(1000);
    if (rank == 0)
        RANK_CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    RANK_STATUS(rank == 0 ? DTP_ERR_LIMIT : DTP_ERR_PEER, dtp_group_join(ctx, &o, &g, ERR));
    RANK_TEXT("the agent of 20 ranks needs 64 descriptors, limit 60");
    dtp_ctx_close(ctx);
}

static void test_a_limit_that_is_too_low_is_told_to_all(void **state)
{
    struct limited *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    w->job = ranks_job();
    ranks_run(20, low_limit, w);
    munmap(w, 4096);
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

/* The socket at which ranks of this node meet; no agent is there yet. */
static void find_socket(dtp_group_opts o, char name[64])
{
    dtp_group *g;
    dtp_ctx *ctx;

    o.timeout_ms = 1;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_STATUS(DTP_ERR_TIMEOUT, dtp_group_join(ctx, &o, &g, ERR));
    RANK_CHECK(sscanf(check_err.text, "rank 1 of 2: no agent at %63s", name) == 1);
    dtp_ctx_close(ctx);
}

/* Rank 1 knocks, and does not speak for longer than the agent stays for those who have not come. */
static void slow_to_speak(struct limited *w, dtp_group_opts o)
{
    dtpi_buf hello = dtpi_buf_init(&dtpi_malloc_allocator), b = dtpi_buf_init(&dtpi_malloc_allocator);
    char name[64];
    uint8_t raw[600];
    dtpi_hs hs;
    int fd = -1;

    find_socket(o, name);
    atomic_store(&w->n_there, 1);
    while (dtpi_unix_connect(name, &fd, NULL) == DTP_PENDING)
        usleep(1000);
    usleep(700000);
    dtpi_hs_init(&hs, &(dtpi_hs_opts){ .role = DTPI_HS_RANK, .job = w->job, .world = 2, .who = 1,
                                       .secret = secret });
    dtpi_hs_hello(&hs, &hello);
    dtpi_wr_block(&b, hello.data, hello.len);
    struct pollfd p = { .fd = fd, .events = POLLIN };
    RANK_CHECK(send(fd, b.data, b.len, MSG_NOSIGNAL) == (ssize_t)b.len && poll(&p, 1, 5000) == 1);
    const ssize_t n = recv(fd, raw, sizeof(raw), 0);
    b.len = 0;
    RANK_CHECK(n > 4);
    RANK_OK(dtpi_hs_answer(&hs, raw + 4, (size_t)n - 4, &b, ERR));
    dtpi_buf_free(&hello);
    dtpi_buf_free(&b);
    close(fd);
}

static void slow_or_wrong(int rank, int n, void *user)
{
    struct limited *w = user;
    dtp_group_opts o = opts_of(w->job, rank, n);
    dtp_group *g;
    dtp_ctx *ctx;

    if (rank == 1) {
        slow_to_speak(w, o);
        return;
    }
    while (!atomic_load(&w->n_there))
        usleep(1000);
    o.net = "pigeon";
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_STATUS(DTP_ERR_INVAL, dtp_group_join(ctx, &o, &g, ERR));
    dtp_ctx_close(ctx);
}

static void test_who_has_knocked_is_heard_out_before_an_agent_that_fails_ends(void **state)
{
    struct limited *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    w->job = ranks_job();
    ranks_run(2, slow_or_wrong, w);
    munmap(w, 4096);
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
        cmocka_unit_test(test_who_has_knocked_is_heard_out_before_an_agent_that_fails_ends),
        cmocka_unit_test(test_a_node_whose_agent_has_left_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
