/* SPDX-License-Identifier: Apache-2.0 */
/* gang.h - a gang whose agents are processes of their own, as under a launcher; ranks are forked processes. */
#ifndef DTP_TESTS_GANG_H
#define DTP_TESTS_GANG_H

#include "unit/group/ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "ctx/ctx.h"
#include "group/agent.h"

enum { PER_NODE = 4 };

static const uint8_t secret[DTP_SECRET_BYTES] = "a secret of thirty-two bytes...";

struct world {
    const char *job;
    char root[40];
    int n_nodes, n_ranks;
    void (*fn)(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g);
    uint32_t victims;           /* bits */
    int lost_node;              /* whose agent is killed, -1: none */
    _Atomic int *n_ready;       /* ranks that wait for that, shared */
    bool starves;               /* the agent is left with one descriptor when all are ready */
    int took_us;                /* of an abort, told through n_ready */
};

static struct world world_of(int n_nodes, void (*fn)(const struct world *, int, dtp_ctx *, dtp_group *))
{
    struct world w = { .job = ranks_job(), .n_nodes = n_nodes, .n_ranks = n_nodes * PER_NODE, .fn = fn,
                       .lost_node = -1 };

    snprintf(w.root, sizeof(w.root), "127.0.0.1:%u", ranks_free_port());
    return w;
}

static bool is_victim(const struct world *w, int rank)
{
    return w->victims >> rank & 1;
}

static void starve(void)
{
    const int fd = open("/dev/null", O_RDONLY);
    const struct rlimit one = { .rlim_cur = (rlim_t)fd + 1, .rlim_max = (rlim_t)fd + 1 };

    RANK_CHECK(fd >= 0 && close(fd) == 0 && setrlimit(RLIMIT_NOFILE, &one) == 0);
}

static void run_agent(const struct world *w, int node)
{
    bool is_starved = !w->starves;
    char name[80];
    dtpi_agent *agent;
    dtp_ctx *ctx;

    snprintf(name, sizeof(name), "@dtp-%s-%d", w->job, node);
    const dtpi_agent_opts o = { .job = w->job, .world_size = (uint32_t)w->n_ranks, .n_local = PER_NODE,
                                .socket = name, .root = w->n_nodes > 1 ? w->root : NULL,
                                .is_root = node == 0, .secret = secret, .timeout_ms = 10000,
                                .radix = 2 };
    rank_me = 1000 + node;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtpi_agent_open(ctx, &o, &agent, ERR));
    while (!dtpi_agent_is_done(agent) || !dtpi_agent_is_idle(agent)) {
        RANK_CHECK(dtp_ctx_dispatch(ctx, -1, ERR) >= 0);
        if (!is_starved && atomic_load(w->n_ready) == w->n_ranks) {
            starve();
            is_starved = true;
        }
    }
    dtpi_agent_close(agent);
    dtp_ctx_close(ctx);
}

static void run_rank(const struct world *w, int rank)
{
    dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = w->n_ranks, .job = w->job,
                         .timeout_ms = 10000, .root = w->n_nodes > 1 ? w->root : NULL,
                         .secret = secret, .local_rank = rank % PER_NODE, .local_size = PER_NODE };
    char name[80];
    dtp_group *g;
    dtp_ctx *ctx;

    snprintf(name, sizeof(name), "@dtp-%s-%d", w->job, rank / PER_NODE);
    o.agent = name;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_group_join(ctx, &o, &g, ERR));
    w->fn(w, rank, ctx, g);
    dtp_ctx_close(ctx);
}

static void child(int i, int n, void *user)
{
    const struct world *w = user;

    (void)n;
    if (i < w->n_nodes)
        run_agent(w, i);
    else
        run_rank(w, i - w->n_nodes);
}

static void run_world(struct world *w)
{
    const int n = w->n_nodes + w->n_ranks;
    pid_t pids[RANKS_MAX];
    int status[RANKS_MAX];

    w->n_ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ranks_start(n, child, w, pids);
    while (w->lost_node >= 0 && atomic_load(w->n_ready) < w->n_ranks)
        usleep(1000);
    if (w->lost_node >= 0)
        kill(pids[w->lost_node], SIGKILL);
    ranks_wait(n, pids, status);
    w->took_us = atomic_load(w->n_ready);
    munmap(w->n_ready, 4096);
    for (int i = 0; i < n; i++) {
        const bool dies = i < w->n_nodes ? i == w->lost_node : is_victim(w, i - w->n_nodes);
        if (status[i] != (dies ? SIGKILL : 0))
            fail_msg("child %d (of %d agents) ended with status 0x%x", i, w->n_nodes, status[i]);
    }
}

#endif /* DTP_TESTS_GANG_H */
