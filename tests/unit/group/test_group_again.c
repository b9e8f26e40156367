/* SPDX-License-Identifier: Apache-2.0 */
/* test_group_again.c - ranks leave and join again, while the group before ends in one way or another. */
#include "unit/group/local.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "ctx/ctx.h"

/* The agent of the group before may still be there, and its ranks leave one by one. */
static void again(int rank, int n, void *job)
{
    const dtp_group_opts o = opts_of(job, rank, n);
    dtp_group *g;
    dtp_ctx *ctx;

    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    for (int round = 0; round < 6; round++) {
        RANK_OK(dtp_group_join(ctx, &o, &g, ERR));
        RANK_OK(dtp_group_barrier(g, 0, ERR));
        if (round % 3 == rank)
            usleep(20000);
        dtp_group_close(g);
    }
    dtp_ctx_close(ctx);
}

static void test_ranks_that_left_may_join_again(void **state)
{
    (void)state;
    ranks_run(3, again, (void *)(uintptr_t)ranks_job());
}

/* A rank comes again while the group that it left goes on, until `has_tried`. */
struct early {
    const char *job;
    _Atomic bool has_tried;
};

static void again_too_early(int rank, int n, void *user)
{
    struct early *e = user;
    dtp_group_opts o = opts_of(e->job, rank, n);
    dtp_ctx *ctx;
    dtp_group *g = join(e->job, rank, n, &ctx), *next;
    void *data;

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (rank == 1) {
        dtp_group_close(g);
        o.timeout_ms = 500;
        RANK_STATUS(DTP_ERR_TIMEOUT, dtp_group_join(ctx, &o, &next, ERR));
        RANK_TEXT("rank 1 of 2: no agent at");
        RANK_TEXT("rank 1 has left the group of job");
        atomic_store(&e->has_tried, true);
        dtp_ctx_close(ctx);
        return;
    }
    while (!atomic_load(&e->has_tried))
        RANK_STATUS(DTP_ERR_TIMEOUT, dtp_group_lookup(g, "key", &data, NULL, 20, ERR));
    leave(ctx, g);
}

static void test_a_rank_that_joins_again_waits_for_the_group_before(void **state)
{
    struct early *e = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    e->job = ranks_job();
    ranks_run(2, again_too_early, e);
    munmap(e, 4096);
}

/* The process that hosted the group before ends while a rank waits for the next one. */
struct change {
    const char *job;
    _Atomic int host;           /* its pid, once the first group stands */
};

static void next_host(int rank, int n, void *user)
{
    struct change *c = user;
    const dtp_group_opts o = opts_of(c->job, rank == 1 ? 1 : 0, n - 1);
    dtp_group *g;
    dtp_ctx *ctx;

    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    for (int i = rank == 2; i < 2; i++) {
        while (rank == 2 && (!atomic_load(&c->host) || kill(c->host, 0) == 0))
            usleep(1000);
        RANK_OK(dtp_group_join(ctx, &o, &g, ERR));
        RANK_OK(dtp_group_barrier(g, 0, ERR));
        if (rank == 0) {
            atomic_store(&c->host, getpid());
            usleep(100000);     /* rank 1 has come again by then, or else shows nothing */
            return;
        }
        dtp_group_close(g);
    }
    dtp_ctx_close(ctx);
}

static void test_a_rank_waits_for_the_next_group_beyond_the_end_of_the_host_before(void **state)
{
    struct change *c = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    c->job = ranks_job();
    ranks_run(3, next_host, c);
    munmap(c, 4096);
}

/*
 * The host before is killed while it owes an answer to a rank that has come again: the end of its connection
 * and that of its process are seen at once.
 */
struct stopped {
    const char *job;
    _Atomic bool stands;        /* rank 1 is past the barrier */
    _Atomic int host;           /* its pid, once it has stopped */
    dtpi_timer timer;           /* of the rank that comes again */
};

static void await_end(pid_t pid)
{
    struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };

    RANK_CHECK(p.fd >= 0 && poll(&p, 1, -1) == 1);
    close(p.fd);
}

static void kill_host(dtpi_timer *t)
{
    struct stopped *s = DTPI_CONTAINER(t, struct stopped, timer);

    kill(s->host, SIGKILL);
    await_end(s->host);
}

static void join_next(const dtp_group_opts *o, dtp_ctx *ctx)
{
    dtp_group *g;

    RANK_OK(dtp_group_join(ctx, o, &g, ERR));
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    leave(ctx, g);
}

static void host_stops(int rank, int n, void *user)
{
    struct stopped *s = user;
    const dtp_group_opts o = opts_of(s->job, rank == 1 ? 1 : 0, n - 1);
    dtp_group *g;
    dtp_ctx *ctx;

    if (rank == 2) {
        while (!atomic_load(&s->host))
            usleep(1000);
        await_end(s->host);
        RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
        join_next(&o, ctx);
        return;
    }
    g = join(s->job, rank, n - 1, &ctx);
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    while (rank == 0 && !atomic_load(&s->stands))
        usleep(1000);
    if (rank == 0)
        raise(SIGSTOP);
    atomic_store(&s->stands, true);
    while (!atomic_load(&s->host))
        usleep(1000);
    dtp_group_close(g);
    s->timer.due = kill_host;
    RANK_OK(dtpi_timer_set(ctx, &s->timer, dtp_ctx_now_ns(ctx) + 5 * DTPI_NS_PER_MS, ERR));
    join_next(&o, ctx);
}

static void test_a_host_before_that_is_killed_over_its_answer_is_not_that_of_the_next(void **state)
{
    struct stopped *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[3];
    int status[3];

    (void)state;
    s->job = ranks_job();
    ranks_start(3, host_stops, s, pids);
    waitpid(pids[0], &status[0], WUNTRACED);
    atomic_store(&s->host, pids[0]);
    ranks_wait(2, &pids[1], &status[1]);
    kill(pids[0], SIGKILL);
    waitpid(pids[0], &status[0], 0);
    assert_int_equal(status[1] | status[2], 0);
    munmap(s, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_that_left_may_join_again),
        cmocka_unit_test(test_a_rank_that_joins_again_waits_for_the_group_before),
        cmocka_unit_test(test_a_rank_waits_for_the_next_group_beyond_the_end_of_the_host_before),
        cmocka_unit_test(test_a_host_before_that_is_killed_over_its_answer_is_not_that_of_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
