/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - the ranks of a benchmark: forked here with a secret of their own, or started by a launcher. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { MAX_RANKS = 512 };

bool bench_is_launched(void)
{
    return getenv("DTP_RANK") != NULL;
}

int bench_n_cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

/*
 * A processor of its own for each rank where there are enough, as MPI launchers do; `wide`: as many as
 * there are for each.
 */
static void bind_rank(int rank, int n, bool wide)
{
    cpu_set_t allowed, own;
    int nth = 0;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0 || CPU_COUNT(&allowed) < n)
        return;
    const int each = wide ? CPU_COUNT(&allowed) / n : 1;
    CPU_ZERO(&own);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && nth++ / each == rank)
            CPU_SET(cpu, &own);
    if (sched_setaffinity(0, sizeof(own), &own) < 0)
        perror("dtp-bench: cannot bind a rank, figures will spread");
}

/* One rank, from context to end. NULL options: what the environment says. */
static int run_rank(const bench_cmd *cmd, const dtp_group_opts *opts, bench_rank_fn fn, void *user)
{
    dtp_error err = { 0 };
    dtp_ctx *ctx;
    dtp_group *group;

    if (dtp_ctx_open(NULL, &ctx, &err) < 0)
        return bench_fail(cmd, &err);
    const dtp_status st = opts ? dtp_group_join(ctx, opts, &group, &err)
                               : dtp_group_join_from_env(ctx, &group, &err);
    if (st < 0) {
        dtp_ctx_close(ctx);
        return bench_fail(cmd, &err);
    }
    const int rc = fn(group, user);
    dtp_group_close(group);
    dtp_ctx_close(ctx);
    return rc;
}

/* Says what became of a rank that did not end well; the others have said it if it was a status. */
static int judge(const bench_cmd *cmd, int rank, int n, int status)
{
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "dtp-bench %s: rank %d of %d was killed by signal %d\n", cmd->name, rank, n,
                WTERMSIG(status));
        return BENCH_FAILED;
    }
    return WEXITSTATUS(status);
}

static int fork_ranks(const bench_cmd *cmd, dtp_group_opts *o, bench_rank_fn fn, void *user)
{
    const int n = o->world_size;
    pid_t pids[MAX_RANKS];
    int n_started = 0, rc = BENCH_OK, status;

    fflush(NULL);
    for (; n_started < n; n_started++) {
        o->rank = n_started;
        pids[n_started] = fork();
        if (pids[n_started] < 0) {
            perror("dtp-bench: cannot fork");
            rc = BENCH_FAILED;
            break;
        }
        if (pids[n_started] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            bind_rank(n_started, n, cmd->wide_ranks);
            rc = bench_finish(run_rank(cmd, o, fn, user));
            fflush(NULL);
            _exit(rc);
        }
    }
    for (int i = 0; i < n_started; i++) {
        if (n_started < n)
            kill(pids[i], SIGKILL);
        if (waitpid(pids[i], &status, 0) == pids[i]) {
            const int one = judge(cmd, i, n, status);
            rc = rc == BENCH_OK ? one : rc;
        }
    }
    return rc;
}

int bench_run_ranks(const bench_cmd *cmd, int n, int timeout_ms, bench_rank_fn fn, void *user)
{
    dtp_group_opts o = DTP_GROUP_OPTS_INIT;
    uint8_t secret[DTP_SECRET_BYTES];
    char job[32];

    if (bench_is_launched())
        return run_rank(cmd, NULL, fn, user);
    if (n < 1 || n > MAX_RANKS)
        return bench_usage(cmd, "-n is 1 to %d", MAX_RANKS);
    if (getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
        return bench_usage(cmd, "cannot read random bytes");
    snprintf(job, sizeof(job), "bench-%d", (int)getpid());
    o.world_size = n;
    o.job = job;
    o.secret = secret;
    o.timeout_ms = timeout_ms;
    return fork_ranks(cmd, &o, fn, user);
}
