/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.h - several nodes on one host: an agent process each, the root's listener on 127.0.0.1. */
#ifndef DTP_TESTS_NODES_H
#define DTP_TESTS_NODES_H

#include "unit/group/ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "ctx/ctx.h"
#include "group/agent.h"
#include "group/group.h"
#include "group/tree.h"

static const uint8_t secret[DTP_SECRET_BYTES] = "a secret of thirty-two bytes...";
static const uint8_t other_secret[DTP_SECRET_BYTES] = "another one";

/* What the processes of one group know. */
struct nodes {
    const char *job;
    char root[64];
    int n_nodes, n_ranks;
    int first[18];               /* of each node, and the end */
    int victim;                 /* -1: nobody */
    int timeout_ms;
    const char *net;
    uint32_t radix;
    const char *parent;         /* of all but the root */
    bool keeps_at;              /* at_ns stays mapped */
    bool insecure, encrypt;
    bool odd_encrypts;          /* node 1 says that it does */
    int odd_world;              /* what node 1 adds to the world size */
    int odd_node;               /* has another secret; 0: none */
    int64_t *at_ns;             /* shared */
    void (*fn)(const struct nodes *w, int rank, dtp_group *g);
    dtp_status want;            /* of the join */
    const char *text;
};

static struct nodes nodes_of(const char *layout, void (*fn)(const struct nodes *, int, dtp_group *))
{
    struct nodes w = { .job = ranks_job(), .victim = -1, .timeout_ms = 10000, .fn = fn };

    snprintf(w.root, sizeof(w.root), "127.0.0.1:%u", ranks_free_port());
    for (const char *p = layout; *p; p++) {
        w.first[w.n_nodes++] = w.n_ranks;
        w.n_ranks += *p - '0';
    }
    w.first[w.n_nodes] = w.n_ranks;
    w.at_ns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return w;
}

static void socket_of(const struct nodes *w, int node, char *name_out, size_t room)
{
    snprintf(name_out, room, "@dtp-%s-%d", w->job, node);
}

/* Control that went over to UCX is counted. */
static void agent_log(void *user, dtp_log_level level, const char *topic, const char *text)
{
    const struct nodes *w = user;

    (void)level;
    (void)topic;
    if (strncmp(text, "control goes over UCX", 21) == 0 && strstr(text, "tcp/lo"))
        __atomic_fetch_add(&w->at_ns[100], 1, __ATOMIC_RELAXED);
}

static const uint8_t *secret_of(const struct nodes *w, int node)
{
    if (w->insecure)
        return NULL;
    return node > 0 && node == w->odd_node ? other_secret : secret;
}

/* Descriptors: two a local rank, one a child, and a few; strangers and UCX come and go. */
static void check_stats(const dtpi_agent *agent, const dtpi_agent_opts *o, const struct nodes *w)
{
    const uint32_t radix = w->radix ? w->radix : DTPI_TREE_MAX_RADIX;
    dtpi_agent_stats stats;

    dtpi_agent_get_stats(agent, &stats);
    RANK_CHECK(stats.n_children <= radix);
    RANK_CHECK(stats.n_fds <= 2 * o->n_local + radix + 8 + stats.n_strangers);
    if (stats.n_children > 0 && !o->is_root)
        __atomic_store_n(&w->at_ns[101], 1, __ATOMIC_RELAXED);
}

static void run_agent(int node, const struct nodes *w)
{
    char name[80];
    dtpi_agent *agent;
    dtp_ctx *ctx;

    socket_of(w, node, name, sizeof(name));
    const dtpi_agent_opts o = { .job = w->job, .world_size = (uint32_t)(w->n_ranks + (node == 1 ? w->odd_world : 0)),
                                .n_local = (uint32_t)(w->first[node + 1] - w->first[node]),
                                .socket = name, .root = w->root, .is_root = node == 0,
                                .secret = secret_of(w, node), .net = w->net,
                                .encrypt = w->encrypt || (w->odd_encrypts && node == 1),
                                .timeout_ms = w->timeout_ms, .radix = w->radix,
                                .node = (uint32_t)node, .n_nodes = w->parent ? (uint32_t)w->n_nodes : 0,
                                .parent = node ? w->parent : NULL };
    const dtp_ctx_opts co = { .size = sizeof(co), .module_dir = check_module_dir(), .log = agent_log,
                              .log_user = (void *)(uintptr_t)w, .log_level = DTP_LOG_INFO };
    rank_me = 1000 + node;
    RANK_OK(dtp_ctx_open(&co, &ctx, ERR));
    RANK_OK(dtpi_agent_open(ctx, &o, &agent, ERR));
    while (!dtpi_agent_is_done(agent) || !dtpi_agent_is_idle(agent)) {
        RANK_CHECK(dtp_ctx_dispatch(ctx, -1, ERR) >= 0);
        check_stats(agent, &o, w);
    }
    /* Those who come late to a group that failed are told why. */
    const int64_t end = ranks_now_ns() + 500 * DTPI_NS_PER_MS;
    while (dtpi_agent_failed_early(agent) && ranks_now_ns() < end)
        RANK_CHECK(dtp_ctx_dispatch(ctx, 20, ERR) >= 0);
    dtpi_agent_close(agent);
    dtp_ctx_close(ctx);
}

static void run_rank(int rank, const struct nodes *w)
{
    dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = w->n_ranks, .job = w->job,
                         .insecure = w->insecure, .encrypt = w->encrypt,
                         .timeout_ms = w->timeout_ms, .root = w->root, .net = w->net };
    const dtp_ctx_opts co = { .size = sizeof(co), .module_dir = check_module_dir() };
    char name[80];
    int node = 0;
    dtp_group *g;
    dtp_ctx *ctx;

    while (rank >= w->first[node + 1])
        node++;
    socket_of(w, node, name, sizeof(name));
    o.agent = name;
    o.encrypt |= w->odd_encrypts && node == 1;
    o.world_size += node == 1 ? w->odd_world : 0;
    o.secret = secret_of(w, node);
    o.local_rank = rank - w->first[node];
    o.local_size = w->first[node + 1] - w->first[node];
    RANK_OK(dtp_ctx_open(&co, &ctx, ERR));
    if (w->odd_node && node == w->odd_node) {
        RANK_STATUS(DTP_ERR_AUTH, dtp_group_join(ctx, &o, &g, ERR));
        RANK_TEXT("another secret");
        dtp_ctx_close(ctx);
        return;
    }
    RANK_STATUS(w->want, dtp_group_join(ctx, &o, &g, ERR));
    if (w->want < 0) {
        RANK_TEXT(w->text);
    } else {
        w->fn(w, rank, g);
        dtp_group_close(g);
    }
    dtp_ctx_close(ctx);
}

/* Agents first, then ranks. */
static void child(int i, int n, void *user)
{
    const struct nodes *w = user;

    (void)n;
    if (i < w->n_nodes)
        run_agent(i, w);
    else
        run_rank(i - w->n_nodes, w);
}

/* `killed` is the index of a child that ends by SIGKILL, -1: none. */
static void run_nodes(struct nodes *w, int killed)
{
    const int n = w->n_nodes + w->n_ranks;
    pid_t pids[RANKS_MAX];
    int status[RANKS_MAX];

    ranks_start(n, child, w, pids);
    for (int i = 0; killed >= 0 && killed < w->n_nodes && i < 1; i++) {
        /* An agent dies when all ranks say that they are there. */
        while (__atomic_load_n(&w->at_ns[0], __ATOMIC_ACQUIRE) < w->n_ranks)
            usleep(1000);
        kill(pids[killed], SIGKILL);
    }
    ranks_wait(n, pids, status);
    for (int i = 0; i < n; i++)
        if (status[i] != (i == killed ? SIGKILL : 0))
            fail_msg("child %d (of %d agents) ended with status 0x%x", i, w->n_nodes, status[i]);
    /* Both ends of every pair of agents. */
    assert_int_equal(w->at_ns[100], w->net && strcmp(w->net, "ucx") == 0 ? 2 * (w->n_nodes - 1) : 0);
    if (!w->keeps_at)
        munmap(w->at_ns, 4096);
}

/* ---- calls ---- */

static void all_calls(const struct nodes *w, int rank, dtp_group *g)
{
    const int n = w->n_ranks;
    size_t sizes[RANKS_MAX], bytes;
    char word[16] = "";
    dtp_group *sub;
    void *data;

    RANK_CHECK((int)dtpi_group_n_nodes(g) == w->n_nodes);
    for (int node = 0; node < w->n_nodes; node++) {
        RANK_CHECK((int)dtpi_group_n_on_node(g, (uint32_t)node) ==
                   w->first[node + 1] - w->first[node]);
        for (int i = w->first[node]; i < w->first[node + 1]; i++) {
            RANK_CHECK((int)dtpi_group_node(g, i) == node);
            RANK_CHECK(dtpi_group_rank_on_node(g, (uint32_t)node, (uint32_t)(i - w->first[node])) == i);
        }
    }
    for (int i = 0; i < 5; i++)
        RANK_OK(dtp_group_barrier(g, 0, ERR));
    const int mine = rank * 7;
    RANK_OK(dtp_group_allgather(g, &mine, sizeof(mine), &data, sizes, &bytes, 0, ERR));
    for (int i = 0; i < n; i++)
        RANK_CHECK(((int *)data)[i] == i * 7 && sizes[i] == sizeof(int));
    dtp_group_free(data);
    for (int root = 0; root < n; root++) {
        if (rank == root)
            snprintf(word, sizeof(word), "from %d", root);
        RANK_OK(dtp_group_broadcast(g, root, word, sizeof(word), 0, ERR));
        RANK_CHECK(atoi(word + 5) == root);
    }
    if (rank == n - 1)
        RANK_OK(dtp_group_set(g, "key", "value", 6, 0, ERR));
    RANK_OK(dtp_group_lookup(g, "key", &data, &bytes, 0, ERR));
    RANK_CHECK(bytes == 6 && strcmp(data, "value") == 0);
    dtp_group_free(data);
    /* Across the nodes, and a group that lies on the nodes in another order. */
    RANK_OK(dtp_group_split(g, rank % 2, n - rank, 0, &sub, ERR));
    RANK_OK(dtp_group_allgather(sub, &rank, sizeof(rank), &data, NULL, &bytes, 0, ERR));
    for (size_t i = 0; i + 1 < bytes / sizeof(int); i++)
        RANK_CHECK(((int *)data)[i] == ((int *)data)[i + 1] + 2);
    dtp_group_free(data);
    RANK_OK(dtp_group_set(sub, "own", rank % 2 ? "left" : "even", 5, 0, ERR));
    RANK_OK(dtp_group_barrier(sub, 0, ERR));
    RANK_OK(dtp_group_lookup(sub, "own", &data, &bytes, -1, ERR));
    RANK_CHECK(strcmp(data, rank % 2 ? "left" : "even") == 0);
    dtp_group_free(data);
    dtp_group_close(sub);
    /* A group within each node. */
    RANK_OK(dtp_group_split(g, (int)dtpi_group_node(g, rank), rank, 0, &sub, ERR));
    RANK_CHECK(dtpi_group_n_nodes(sub) == 1);
    RANK_OK(dtp_group_barrier(sub, 0, ERR));
    dtp_group_close(sub);
    RANK_OK(dtp_group_barrier(g, 0, ERR));
}

#endif /* DTP_TESTS_NODES_H */
