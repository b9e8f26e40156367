/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_run.c - starts a gang of real processes and times it. Each artificial node is a small launcher as
 * dtp-shim is one: it opens the node's agent, then executes its ranks, then serves them. Agents of several
 * nodes meet over loopback TCP.
 */
#include <dirent.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "boot.h"
#include "ctx/ctx.h"
#include "group/agent_internal.h"
#include "group/env.h"
#include "group/tree.h"
#include "launch/spawn.h"

/* Descriptors of a launcher: pidfd, two pipes and the agent's socket for each rank, and some. */
enum { FILES_PER_RANK = 4, FILES_BASE = 64, MAX_ENV = 400 };

typedef struct gang {
    const boot_opts *o;
    boot_page *page;
    int page_fd;
    uint8_t secret[DTP_SECRET_BYTES];
    char job[32], root[32], program[PATH_MAX];
    int port;                   /* of the root's agent; that of node i is i higher */
    uint32_t radix;
} gang;

/* One artificial node, in a process of its own. */
typedef struct node {
    const gang *gang;
    int index, first, n;        /* its ranks */
    dtp_ctx *ctx;
    dtpi_agent *agent;
    struct child *children;
    int n_alive;
} node;

typedef struct child {
    node *node;
    int rank;
    dtpi_child process;
    dtpi_source death;
} child;

static const bench_cmd *const cmd = &bench_boot;

static int first_rank(const boot_opts *o, int index)
{
    return (int)((int64_t)o->n_ranks * index / o->n_nodes);
}

/* ---- a node ---- */

static int count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n - 3;
}

static int64_t cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return ts.tv_sec * (int64_t)1000000000 + ts.tv_nsec;
}

/* What a rank said on its way down. */
static void pass_stderr(const child *c)
{
    char text[1024];
    const ssize_t n = read(c->process.err_fd, text, sizeof(text));

    if (n > 0)
        fwrite(text, 1, (size_t)n, stderr);
}

/* Each message counts where it is heard; those for ranks are counted here. */
static void count_messages(const node *n, boot_node *mine)
{
    dtpi_core_stats s;

    dtpi_core_get_stats(n->agent->core, &s);
    mine->n_messages = (uint64_t)n->n;      /* WELCOME */
    for (int type = 1; type < DTPI_F_END; type++)
        if (type != DTPI_F_UP && type != DTPI_F_DOWN && type != DTPI_F_BEAT && type != DTPI_F_LEAVE &&
            type != DTPI_F_BYE)
            mine->n_messages += s.n_received[type];
    const uint64_t n_proofs = 3 * ((uint64_t)n->n + s.n_children);
    mine->n_all = mine->n_messages + n_proofs + s.n_received[DTPI_F_UP] + s.n_sent[DTPI_F_DOWN];
    mine->bytes = s.bytes_received;
}

static void on_death(dtpi_source *source, uint32_t revents)
{
    child *c = DTPI_CONTAINER(source, child, death);
    node *n = c->node;
    boot_page *page = n->gang->page;
    boot_node *mine = &page->nodes[n->index];
    int status = 0;

    (void)revents;
    if (mine->n_fds == 0) {     /* all are through the barrier, none has gone yet */
        mine->n_fds = count_fds();
        count_messages(n, mine);
        mine->cpu_ns += cpu_ns();
    }
    if (waitpid(c->process.pid, &status, WNOHANG) != c->process.pid)
        return;
    dtpi_agent_rank_ended(n->agent, c->rank, c->process.pid, status);
    dtpi_source_remove(n->ctx, &c->death);
    dtpi_close_fd(&c->death.fd);
    pass_stderr(c);
    n->n_alive--;
    if (status != 0 && !boot_is_lost((uint32_t)c->rank, page->lose_percent))
        atomic_fetch_add(&page->n_failed, 1);
}

typedef struct env {
    const char *list[MAX_ENV];
    int n;
} env;

static dtp_status put_env(void *user, const char *name, const char *value)
{
    env *e = user;
    char *text;

    if (e->n >= MAX_ENV - 1 || asprintf(&text, "%s=%s", name, value) < 0)
        return DTP_ERR_LIMIT;
    e->list[e->n++] = text;
    return DTP_OK;
}

static void drop_env(env *e, int keep)
{
    while (e->n > keep)
        free((void *)(uintptr_t)e->list[--e->n]);
    e->list[keep] = NULL;
}

static dtp_status start_rank(node *n, int local, const char *socket, env *e, const struct rlimit *files,
                             dtp_error *err)
{
    const gang *g = n->gang;
    child *c = &n->children[local];
    char fd_text[16], rank_text[16];
    const int keep = e->n;
    const dtp_group_opts o = { .size = sizeof(o), .rank = n->first + local, .world_size = g->o->n_ranks,
                               .local_rank = local, .local_size = n->n, .job = g->job, .agent = socket,
                               .root = g->o->n_nodes > 1 ? g->root : NULL, .secret = g->secret,
                               .timeout_ms = g->o->timeout_ms };

    *c = (child){ .node = n, .rank = n->first + local };
    snprintf(fd_text, sizeof(fd_text), "%d", g->page_fd);
    snprintf(rank_text, sizeof(rank_text), "%d", c->rank);
    const char *const argv[] = { g->program, fd_text, rank_text, NULL };
    const dtpi_spawn_req req = { .path = g->program, .argv = argv, .envp = e->list,
                                 .keep_fd = g->page_fd, .files = files };
    dtp_status st = dtpi_group_env_write(&o, put_env, e, err);
    e->list[e->n] = NULL;
    if (st >= 0)
        st = dtpi_spawn(&req, &c->process, err);
    drop_env(e, keep);
    if (st < 0)
        return st;
    n->n_alive++;
    c->death = (dtpi_source){ .fd = c->process.pidfd, .events = EPOLLIN, .ready = on_death };
    return dtpi_source_add(n->ctx, &c->death, err);
}

static dtp_status start_ranks(node *n, const char *socket, const struct rlimit *files, dtp_error *err)
{
    env e = { 0 };
    dtp_status st = DTP_OK;

    for (char **p = environ; *p && e.n < MAX_ENV - 32; p++)
        if (strncmp(*p, "DTP_", 4) != 0)
            e.list[e.n++] = *p;
    for (int i = 0; i < n->n && st >= 0; i++)
        st = start_rank(n, i, socket, &e, files, err);
    return st;
}

static bool is_watched(void *user, int32_t rank, int32_t pid)
{
    const node *n = user;

    return rank >= n->first && rank < n->first + n->n && n->children[rank - n->first].process.pid == pid;
}

static dtp_status open_node(node *n, char *socket, size_t room, dtp_error *err)
{
    const gang *g = n->gang;
    const boot_opts *o = g->o;

    snprintf(socket, room, "@dtp-%s-%d", g->job, n->index);
    const uint32_t index = (uint32_t)n->index, n_nodes = (uint32_t)o->n_nodes;
    const uint32_t radix = g->radix, up = index ? dtpi_tree_parent(index, radix) : 0;
    char listen[32], parent[32];
    snprintf(listen, sizeof(listen), "127.0.0.1:%d", g->port + n->index);
    snprintf(parent, sizeof(parent), "127.0.0.1:%d", g->port + (int)up);
    const dtpi_agent_opts ao = { .job = g->job, .world_size = (uint32_t)o->n_ranks,
                                 .n_local = (uint32_t)n->n, .socket = socket,
                                 .root = n_nodes > 1 ? g->root : NULL, .is_root = index == 0,
                                 .listens = dtpi_tree_n_children(index, n_nodes, radix) > 0,
                                 .listen = listen, .node = index, .n_nodes = n_nodes, .radix = radix,
                                 .parent = index ? parent : NULL,
                                 .secret = g->secret, .timeout_ms = o->timeout_ms,
                                 .is_watched = is_watched, .user = n };
    n->children = calloc((size_t)n->n, sizeof(*n->children));
    if (!n->children)
        return dtpi_fail_nomem(err, (size_t)n->n * sizeof(*n->children));
    const dtp_status st = dtp_ctx_open(NULL, &n->ctx, err);
    return st < 0 ? st : dtpi_agent_open(n->ctx, &ao, &n->agent, err);
}

static dtp_status serve(node *n, dtp_error *err)
{
    dtp_status st = DTP_OK;

    while (st >= 0 && (n->n_alive > 0 || !dtpi_agent_is_done(n->agent) || !dtpi_agent_is_idle(n->agent)))
        st = dtp_ctx_dispatch(n->ctx, -1, err);
    return st;
}

static int run_node(node *n)
{
    boot_node *mine = &n->gang->page->nodes[n->index];
    struct rlimit files;
    char socket[80];
    dtp_error err = { 0 };

    dtp_status st = dtpi_raise_files(FILES_BASE + (uint64_t)n->n * FILES_PER_RANK, &files, &err);
    if (st >= 0)
        st = open_node(n, socket, sizeof(socket), &err);
    const int64_t cpu_before = cpu_ns(), before = bench_now_ns();
    if (st >= 0)
        st = start_ranks(n, socket, &files, &err);
    mine->spawn_cpu_ns = cpu_ns() - cpu_before;
    mine->spawn_wall_ns = bench_now_ns() - before;
    mine->cpu_ns = -mine->spawn_cpu_ns;
    if (st >= 0)
        st = serve(n, &err);
    if (st < 0) {
        atomic_fetch_add(&n->gang->page->n_failed, 1);
        return bench_fail(cmd, &err);
    }
    dtpi_agent_close(n->agent);
    dtp_ctx_close(n->ctx);
    free(n->children);
    return BENCH_OK;
}

/* ---- the whole ---- */

static bool is_free(int port)
{
    const struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool ok = bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) == 0;

    close(fd);
    return ok;
}

/* So many ports in a row, below the range from which the kernel takes those of who connects; 0: none. */
static int find_ports(int n)
{
    for (int i = 0, run = 0; i < 20000; i++) {
        const int port = 10000 + (int)(((unsigned)getpid() * 617 + (unsigned)i) % 20000);
        run = port == 10000 || !is_free(port) ? 0 : run + 1;
        if (run == n)
            return port - n + 1;
    }
    return 0;
}

static dtp_status open_gang(gang *g, dtp_error *err)
{
    const size_t bytes = sizeof(*g->page) + (size_t)g->o->n_ranks * sizeof(boot_slot);
    dtp_ctx *ctx;

    snprintf(g->job, sizeof(g->job), "boot-%d", (int)getpid());
    g->radix = g->o->radix ? (uint32_t)g->o->radix
                           : dtpi_tree_radix((uint32_t)g->o->n_ranks, (uint32_t)g->o->n_nodes);
    g->port = find_ports(g->o->n_nodes);
    if (!g->port)
        return dtpi_fail(err, DTP_ERR_LIMIT, "no %d free ports in a row", g->o->n_nodes);
    snprintf(g->root, sizeof(g->root), "127.0.0.1:%d", g->port);
    if (getrandom(g->secret, sizeof(g->secret), 0) != (ssize_t)sizeof(g->secret))
        return dtpi_fail(err, DTP_ERR_IO, "cannot read random bytes: %m");
    g->page_fd = memfd_create("dtp-boot", MFD_CLOEXEC);
    if (g->page_fd < 0 || ftruncate(g->page_fd, (off_t)bytes) < 0)
        return dtpi_fail(err, DTP_ERR_LIMIT, "cannot make a memory file: %m");
    g->page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->page_fd, 0);
    if (g->page == MAP_FAILED)
        return dtpi_fail(err, DTP_ERR_NOMEM, "cannot map a memory file: %m");
    g->page->magic = BOOT_MAGIC;
    g->page->n_ranks = (uint32_t)g->o->n_ranks;
    g->page->lose_percent = (uint32_t)g->o->lose_percent;
    dtp_status st = dtp_ctx_open(NULL, &ctx, err);
    if (st < 0)
        return st;
    if (!dtpi_find_beside(ctx, "dtp-boot-rank", g->program, sizeof(g->program)))
        st = dtpi_fail(err, DTP_ERR_NOT_FOUND, "dtp-boot-rank is not where it was installed");
    dtp_ctx_close(ctx);
    return st;
}

static void close_gang(gang *g)
{
    const size_t bytes = sizeof(*g->page) + (size_t)g->o->n_ranks * sizeof(boot_slot);

    if (g->page && g->page != MAP_FAILED)
        munmap(g->page, bytes);
    if (g->page_fd >= 0)
        close(g->page_fd);
}

static void summarise(const gang *g, int64_t start_ns, boot_report *r)
{
    const boot_opts *o = g->o;
    int64_t main_ns = 0, joined_ns = 0, done_ns = 0, exec_cpu = 0, cpu = 0, agent_cpu = 0;
    int64_t spawn_cpu = 0, spawn_wall = 0, died_ns = INT64_MAX, reformed_ns = 0;

    for (int i = 0; i < o->n_ranks; i++) {
        const boot_slot *s = &g->page->ranks[i];
        main_ns = DTPI_MAX(main_ns, s->main_ns);
        joined_ns = DTPI_MAX(joined_ns, s->joined_ns);
        exec_cpu += s->cpu_main_ns;
        cpu += s->cpu_done_ns - s->cpu_main_ns;
        r->max_fds = DTPI_MAX(r->max_fds, s->n_fds);
        r->n_lost += s->died_ns > 0;
        died_ns = s->died_ns ? DTPI_MIN(died_ns, s->died_ns) : died_ns;
        reformed_ns = DTPI_MAX(reformed_ns, s->reformed_ns);
        if (s->done_ns > done_ns) {
            done_ns = s->done_ns;
            r->slowest_rank = i;
        }
    }
    for (int i = 0; i < o->n_nodes; i++) {
        agent_cpu += g->page->nodes[i].cpu_ns;
        spawn_cpu += g->page->nodes[i].spawn_cpu_ns;
        spawn_wall += g->page->nodes[i].spawn_wall_ns;
        r->messages += g->page->nodes[i].n_messages;
        r->all_messages += g->page->nodes[i].n_all;
        r->bytes += g->page->nodes[i].bytes;
        r->agent_fds = DTPI_MAX(r->agent_fds, g->page->nodes[i].n_fds);
    }
    r->spawn_cpu_us = (double)spawn_cpu / 1e3 / o->n_ranks;
    r->spawn_wall_us = (double)spawn_wall / 1e3 / o->n_ranks;
    r->rounds = 2 * dtpi_tree_depth((uint32_t)o->n_nodes, g->radix) + 2;
    r->reform_ms = r->n_lost ? (double)(reformed_ns - died_ns) / 1e6 : 0;
    r->spawned_ms = (double)(main_ns - start_ns) / 1e6;
    r->joined_ms = (double)(joined_ns - start_ns) / 1e6;
    r->total_ms = (double)(done_ns - start_ns) / 1e6;
    r->exec_us_per_rank = (double)exec_cpu / 1e3 / o->n_ranks;
    r->agent_us_per_rank = (double)agent_cpu / 1e3 / o->n_ranks;
    r->cpu_us_per_rank = (double)cpu / 1e3 / o->n_ranks + r->agent_us_per_rank;
}

/* The first that says why, else how many did not come. */
static int tell_failure(const gang *g)
{
    dtp_error err = { .status = DTP_ERR_PEER };

    for (int i = 0; i < g->o->n_ranks; i++)
        if (g->page->ranks[i].status < 0) {
            memcpy(err.text, g->page->ranks[i].text, sizeof(err.text));
            return bench_fail(cmd, &err);
        }
    fprintf(stderr, "dtp-bench boot: %u of %d ranks did not come through\n",
            (unsigned)atomic_load(&g->page->n_failed), g->o->n_ranks);
    return BENCH_FAILED;
}

static int start_nodes(const gang *g, pid_t *pids)
{
    const boot_opts *o = g->o;
    int i;

    for (i = 0; i < o->n_nodes; i++) {
        node n = { .gang = g, .index = i, .first = first_rank(o, i),
                   .n = first_rank(o, i + 1) - first_rank(o, i) };
        pids[i] = fork();
        if (pids[i] < 0) {
            perror("dtp-bench boot: cannot fork");
            break;
        }
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(run_node(&n));
        }
    }
    return i;
}

int boot_run(const boot_opts *o, boot_report *r)
{
    gang g = { .o = o, .page_fd = -1 };
    pid_t pids[BOOT_MAX_NODES];
    struct rusage usage;
    dtp_error err = { 0 };
    int rc = BENCH_OK;

    *r = (boot_report){ .n_ranks = o->n_ranks, .n_nodes = o->n_nodes, .radix = o->radix };
    if (open_gang(&g, &err) < 0) {
        close_gang(&g);
        return bench_fail(cmd, &err);
    }
    fflush(NULL);
    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);   /* ranks inherit nothing that would be counted */
    const int64_t start_ns = bench_now_ns();
    const int n_started = start_nodes(&g, pids);
    for (int i = 0; i < n_started; i++) {
        int status = 0;
        if (n_started < o->n_nodes)
            kill(pids[i], SIGKILL);
        if (wait4(pids[i], &status, 0, &usage) != pids[i] || status != 0)
            rc = BENCH_FAILED;
        r->max_rss_mib = DTPI_MAX(r->max_rss_mib, (double)usage.ru_maxrss / 1024);
    }
    if (rc == BENCH_OK && atomic_load(&g.page->n_failed))
        rc = tell_failure(&g);
    r->wall_s = (double)(bench_now_ns() - start_ns) / 1e9;
    r->radix = (int)g.radix;
    summarise(&g, start_ns, r);
    close_gang(&g);
    return rc;
}
