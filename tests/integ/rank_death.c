/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_death.c - a rank of the test of death: rank N joins the group, forks a child that holds its
 * sockets (as data loaders do), and kills itself; the others say when they knew, and what they were
 * told. Times are nanoseconds of CLOCK_MONOTONIC, which all processes share.
 *
 *     rank_death VICTIM
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <dtp/group.h>

static long long now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (long long)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void die_with_a_child(void)
{
    const pid_t pid = fork();

    if (pid == 0) {
        for (;;)
            pause();
    }
    printf("dies %lld\n", now_ns());
    fflush(stdout);
    raise(SIGKILL);
}

int main(int argc, char **argv)
{
    const int victim = argc > 1 ? atoi(argv[1]) : 0;
    dtp_error err = { 0 };
    dtp_ctx *ctx = NULL;
    dtp_group *group = NULL;

    signal(SIGTERM, SIG_IGN);   /* the supervisor ends the gang; what was told is to be printed first */
    dtp_status st = dtp_ctx_open(NULL, &ctx, &err);
    if (st >= 0)
        st = dtp_group_join_from_env(ctx, &group, &err);
    if (st >= 0)
        st = dtp_group_barrier(group, 0, &err);
    if (st >= 0 && dtp_group_rank(group) == victim)
        die_with_a_child();
    if (st >= 0)
        st = dtp_group_barrier(group, 0, &err);
    const long long at = now_ns();
    printf("told %lld %s: %s\n", at, dtp_status_name(st), err.text);
    dtp_group_close(group);
    dtp_ctx_close(ctx);
    return st < 0 ? 1 : 0;
}
