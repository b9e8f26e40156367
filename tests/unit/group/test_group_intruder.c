/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_group_intruder.c - who has the secret, or nearly, and does not belong: while a group stands he is
 * refused with words, and its members notice nothing.
 */
#include "unit/group/ranks.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "ctx/ctx.h"
#include "group/agent.h"

static const uint8_t secret[DTP_SECRET_BYTES] = "a secret of thirty-two bytes...";
static const uint8_t other[DTP_SECRET_BYTES] = "another one";

static dtp_group_opts opts_of(const char *job, int rank, int n)
{
    return (dtp_group_opts){ .size = sizeof(dtp_group_opts), .rank = rank, .world_size = n, .local_rank = rank,
                             .job = job, .secret = secret, .timeout_ms = 10000 };
}

static void expect(const dtp_group_opts *o, dtp_status want, const char *text)
{
    const int64_t start = ranks_now_ns();
    dtp_group *g;
    dtp_ctx *ctx;

    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_STATUS(want, dtp_group_join(ctx, o, &g, ERR));
    RANK_TEXT(text);
    RANK_CHECK(ranks_now_ns() - start < 5000000000);
    dtp_ctx_close(ctx);
}

static void intrude(const char *job, int n)
{
    dtp_group_opts o = opts_of(job, 1, n);

    expect(&o, DTP_ERR_EXISTS, "rank 1 of 3 joined twice");
    o.local_rank = 0;
    expect(&o, DTP_ERR_EXISTS, "twice");
    o = opts_of(job, 1, 5);
    expect(&o, DTP_ERR_INVAL, "says world size 5, its agent says 3");
    o = opts_of(job, 4, 5);
    expect(&o, DTP_ERR_INVAL, "says world size 5");
    o = opts_of(job, 2, n);
    o.secret = other;
    expect(&o, DTP_ERR_AUTH, "another secret");
    o = opts_of(job, 2, n);
    o.secret = NULL;
    o.insecure = 1;
    expect(&o, DTP_ERR_AUTH, "DTP_INSECURE");
    o = opts_of(job, 2, n);
    o.encrypt = 1;
    expect(&o, DTP_ERR_INVAL, "says encrypt 1");
    o = opts_of(job, 2, n);
    o.secret = NULL;
    o.munge = "";
    expect(&o, DTP_ERR_AUTH, "not handed over by MUNGE");
}

static void member(int rank, int n, void *job)
{
    const dtp_group_opts o = opts_of(job, rank, n);
    dtp_group *g;
    dtp_ctx *ctx;

    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_group_join(ctx, &o, &g, ERR));
    for (int i = 0; i < 20; i++) {
        RANK_OK(dtp_group_barrier(g, 0, ERR));
        if (rank == 2 && i == 10)
            intrude(job, n);
    }
    RANK_CHECK(dtp_group_failed(g, NULL, 0) == 0);
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void test_members_do_not_notice_who_does_not_belong(void **state)
{
    (void)state;
    ranks_run(3, member, (void *)(uintptr_t)ranks_job());
}

/* Rank 1 has another secret, rank 2 none: both hear it at once, and nobody believes them. */
static void odd_secret(int rank, int n, void *job)
{
    dtp_group_opts o = opts_of(job, rank, n);
    const int64_t start = ranks_now_ns();
    dtp_group *g;
    dtp_ctx *ctx;

    o.timeout_ms = rank ? 10000 : 1000;
    if (rank == 1)
        o.secret = other;
    if (rank == 2)
        o.secret = NULL, o.insecure = 1;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_STATUS(rank ? DTP_ERR_AUTH : DTP_ERR_PEER, dtp_group_join(ctx, &o, &g, ERR));
    RANK_TEXT(rank == 1 ? "another secret" : rank == 2 ? "DTP_INSECURE" : "-2 of 3 (node ");
    RANK_CHECK(rank == 0 || ranks_now_ns() - start < 5000000000);
    dtp_ctx_close(ctx);
}

static void test_ranks_with_another_secret_are_told_at_once(void **state)
{
    (void)state;
    ranks_run(3, odd_secret, (void *)(uintptr_t)ranks_job());
}

/* ---- another user ---- */

static int knock(const char *path)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct timeval tv = { .tv_sec = 2 };
    char c;

    memcpy(sa.sun_path, path, strlen(path));
    if (path[0] == '@')
        sa.sun_path[0] = '\0';
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    RANK_CHECK(connect(fd, (struct sockaddr *)&sa,
                       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path))) == 0);
    const ssize_t n = recv(fd, &c, 1, 0);
    close(fd);
    return (int)n;
}

static void stranger_of_another_user(int rank, int n, void *user)
{
    (void)n;
    (void)rank;
    RANK_CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    /* The door closes at once, whatever he knows. */
    RANK_CHECK(knock(user) <= 0);
}

static void test_another_user_is_sent_away_by_the_kernels_word(void **state)
{
    char name[64];
    dtpi_agent *agent;
    dtp_ctx *ctx;
    pid_t pid;
    int status = 0;

    (void)state;
    if (geteuid() != 0)
        skip();
    snprintf(name, sizeof(name), "@dtp-other-user-%d", getpid());
    const dtpi_agent_opts o = { .job = "job", .world_size = 2, .n_local = 2, .socket = name,
                                .secret = secret };
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtpi_agent_open(ctx, &o, &agent, ERR));
    ranks_start(1, stranger_of_another_user, name, &pid);
    while (waitpid(pid, &status, WNOHANG) == 0)
        assert_true(dtp_ctx_dispatch(ctx, 5, ERR) >= 0);
    assert_int_equal(status, 0);
    dtpi_agent_close(agent);
    dtp_ctx_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_do_not_notice_who_does_not_belong),
        cmocka_unit_test(test_ranks_with_another_secret_are_told_at_once),
        cmocka_unit_test(test_another_user_is_sent_away_by_the_kernels_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
