/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_chaos.c - seeded runs with real processes, on 1 to 8 artificial nodes, of which some never start,
 * exit, are killed or stopped at a random moment of joining, calling and leaving: nobody hangs, and all
 * survivors return the same words and the same set in time.
 *
 * The agent of a node is a process of its own, as the shim is, or a thread of the node's first rank.
 * DTP_TEST_SEED repeats a series, DTP_CHAOS="seed" one run; DTP_TEST_LONG=1 makes 200.
 */
#include "unit/group/ranks.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/time.h>

#include <dtp/dtp.h>

#include "ctx/ctx.h"
#include "group/agent.h"

enum { MAX_RANKS = 32, MAX_NODES = 8, MAX_VICTIMS = 3, ROUNDS = 12, TIMEOUT_MS = 1200, EVENT_MS = 60 };
/* Heartbeats tell that an agent is silent; without an answer from it a call waits a little longer. */
enum { SILENT_MS = 3000, LATE_MS = 250, LATE_LOADED_MS = 1500, N_SHORT = 16, N_LONG = 200 };

enum kind { NEVER, EXIT, KILL, STOP, N_KINDS };
static const char *const kinds[] = { "never starts", "exits", "is killed", "is stopped" };

enum stage { STARTED, MEMBER, LEAVING, ENDED };

struct seen {
    enum stage stage;
    int round;
    dtp_status status;
    bool was_member;
    char text[DTP_ERROR_TEXT];
    int32_t failed[MAX_RANKS];
    size_t n_failed;
    int64_t end_ns;
};

struct run {
    uint64_t seed;
    char job[64], root[64];
    int n_ranks, n_nodes;
    int first[MAX_NODES + 1];   /* of each node, and the end */
    bool is_hosted;
    enum kind kind;
    int n_victims, victim[MAX_VICTIMS];         /* ranks; one from n_ranks on: the agent of a node */
    int64_t event_us;
    int64_t start_ns, event_ns;
    struct seen *seen;          /* shared */
};

static struct seen *shared;
static int64_t worst_late_ms;

/* ---- who does what ---- */

static int node_of(const struct run *r, int rank)
{
    int node = 0;

    if (rank >= r->n_ranks)
        return rank - r->n_ranks;
    while (rank >= r->first[node + 1])
        node++;
    return node;
}

static bool is_victim(const struct run *r, int process)
{
    for (int i = 0; i < r->n_victims; i++)
        if (r->victim[i] == process)
            return true;
    return false;
}

/* The process whose end takes the agent of the node away. */
static int agent_of(const struct run *r, int node)
{
    return r->is_hosted ? r->first[node] : r->n_ranks + node;
}

static void draw(struct run *r, uint64_t seed)
{
    uint64_t s = seed;

    memset(r, 0, sizeof(*r));
    r->seed = seed;
    r->n_ranks = 4 + (int)(check_random(&s) % (MAX_RANKS - 3));
    r->n_nodes = 1 + (int)(check_random(&s) % (uint64_t)(r->n_ranks < MAX_NODES ? r->n_ranks : MAX_NODES));
    for (int i = 1; i < r->n_nodes; i++)
        r->first[i] = r->n_ranks * i / r->n_nodes;
    r->first[r->n_nodes] = r->n_ranks;
    r->is_hosted = check_random(&s) % 2;
    r->kind = (enum kind)(check_random(&s) % N_KINDS);
    const bool with_agents = !r->is_hosted && r->kind != NEVER && check_random(&s) % 3 == 0;
    const int n_processes = r->n_ranks + (with_agents ? r->n_nodes : 0);
    const int n = r->kind == STOP ? 1 : 1 + (int)(check_random(&s) % MAX_VICTIMS);
    while (r->n_victims < n) {
        const int v = (int)(check_random(&s) % (uint64_t)n_processes);
        if (!is_victim(r, v))
            r->victim[r->n_victims++] = v;
    }
    r->event_us = r->kind == NEVER ? 0 : (int64_t)(check_random(&s) % (EVENT_MS * 1000));
    snprintf(r->job, sizeof(r->job), "%s", ranks_job());
    snprintf(r->root, sizeof(r->root), "127.0.0.1:%d",
             10000 + (int)(((unsigned)getpid() * 17 + check_random(&s) % 1000) % 20000));
    r->seen = shared;
}

static void describe(const struct run *r, char *out, size_t room)
{
    int at = snprintf(out, room, "DTP_CHAOS=0x%llx: %d ranks, %d nodes, agents %s; after %lld us",
                      (unsigned long long)r->seed, r->n_ranks, r->n_nodes,
                      r->is_hosted ? "in first ranks" : "apart", (long long)r->event_us);

    for (int i = 0; i < r->n_victims; i++)
        at += snprintf(out + at, room - (size_t)at, r->victim[i] < r->n_ranks ? " rank %d" : " agent %d",
                       r->victim[i] < r->n_ranks ? r->victim[i] : r->victim[i] - r->n_ranks);
    snprintf(out + at, room - (size_t)at, " %s", kinds[r->kind]);
}

/* ---- processes ---- */

static void now_exit(int sig)
{
    (void)sig;
    _exit(3);
}

static void exit_soon(const struct run *r, int process)
{
    const struct itimerval when = { .it_value = { 0, r->event_us ? r->event_us : 1 } };

    if (r->kind != EXIT || !is_victim(r, process))
        return;
    signal(SIGVTALRM, now_exit);
    signal(SIGALRM, now_exit);
    setitimer(ITIMER_REAL, &when, NULL);
}

static void socket_of(const struct run *r, int node, char *name_out, size_t room)
{
    snprintf(name_out, room, "@dtp-%s-%d", r->job, node);
}

static void agent_main(const struct run *r, int node)
{
    char name[80];
    dtpi_agent *agent;
    dtp_ctx *ctx;

    socket_of(r, node, name, sizeof(name));
    const dtpi_agent_opts o = {
        .job = r->job, .world_size = (uint32_t)r->n_ranks,
        .n_local = (uint32_t)(r->first[node + 1] - r->first[node]), .socket = name,
        .root = r->n_nodes > 1 ? r->root : NULL, .is_root = node == 0,
        .secret = (const uint8_t *)"a secret of thirty-two bytes...", .timeout_ms = TIMEOUT_MS,
    };
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtpi_agent_open(ctx, &o, &agent, ERR));
    while (!dtpi_agent_is_done(agent) || !dtpi_agent_is_idle(agent))
        RANK_CHECK(dtp_ctx_dispatch(ctx, 20, ERR) >= 0);
    /* Ranks that come late are told. */
    const int64_t until = ranks_now_ns() + 500000000;
    while (dtpi_agent_failed_early(agent) && ranks_now_ns() < until)
        dtp_ctx_dispatch(ctx, 20, NULL);
    dtpi_agent_close(agent);
    dtp_ctx_close(ctx);
}

static void rank_main(const struct run *r, int rank)
{
    struct seen *s = &r->seen[rank];
    const int node = node_of(r, rank);
    dtp_group_opts o = DTP_GROUP_OPTS_INIT;
    dtp_error err = { 0 };
    dtp_group *g = NULL;
    char socket[80];
    dtp_ctx *ctx;

    socket_of(r, node, socket, sizeof(socket));
    o.rank = rank;
    o.world_size = r->n_ranks;
    o.local_rank = rank - r->first[node];
    o.local_size = r->first[node + 1] - r->first[node];
    o.node = node;
    o.n_nodes = r->n_nodes;
    o.job = r->job;
    o.root = r->n_nodes > 1 ? r->root : NULL;
    o.agent = r->is_hosted ? NULL : socket;
    o.secret = (const uint8_t *)"a secret of thirty-two bytes...";
    o.timeout_ms = TIMEOUT_MS;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    s->status = dtp_group_join(ctx, &o, &g, &err);
    if (s->status >= 0)
        s->stage = MEMBER;
    for (s->round = 0; s->status >= 0 && s->round < ROUNDS; s->round++) {
        usleep((useconds_t)((rank * 7 + s->round * 3) % 5) * 800);
        s->status = dtp_group_barrier(g, 0, &err);
    }
    s->end_ns = ranks_now_ns();
    snprintf(s->text, sizeof(s->text), "%s", s->status < 0 ? err.text : "");
    s->was_member = g != NULL;
    if (g)
        s->n_failed = dtp_group_failed(g, s->failed, MAX_RANKS);
    s->stage = LEAVING;
    dtp_group_close(g);
    dtp_ctx_close(ctx);
    s->stage = ENDED;
}

static pid_t start(const struct run *r, int process)
{
    const pid_t pid = fork();

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!(r->kind == EXIT && is_victim(r, process)))
        alarm(20);
    rank_me = process;
    exit_soon(r, process);
    if (process < r->n_ranks)
        rank_main(r, process);
    else
        agent_main(r, process - r->n_ranks);
    _exit(0);
}

static void sleep_until_ns(int64_t at)
{
    const struct timespec ts = { at / 1000000000, at % 1000000000 };

    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

static void go(struct run *r, pid_t *pids, int *status, int n)
{
    memset(shared, 0, MAX_RANKS * sizeof(*shared));
    fflush(NULL);
    r->start_ns = ranks_now_ns();
    for (int i = n - 1; i >= 0; i--)
        pids[i] = r->kind == NEVER && is_victim(r, i) ? -1 : start(r, i);
    sleep_until_ns(r->start_ns + r->event_us * 1000);
    r->event_ns = ranks_now_ns();
    for (int i = 0; i < r->n_victims && r->kind >= KILL; i++)
        kill(pids[r->victim[i]], r->kind == KILL ? SIGKILL : SIGSTOP);
    for (int i = 0; i < n; i++)
        if (pids[i] > 0 && !(r->kind == STOP && is_victim(r, i)))
            waitpid(pids[i], &status[i], 0);
    for (int i = 0; i < r->n_victims && r->kind == STOP; i++) {
        kill(pids[r->victim[i]], SIGKILL);
        waitpid(pids[r->victim[i]], &status[r->victim[i]], 0);
    }
}

/* ---- the judge ---- */

static bool agent_is_hit(const struct run *r, int node)
{
    return is_victim(r, agent_of(r, node));
}

/* The last thing that a victim did; LEAVING or later: its end is no news to the others. */
static bool all_victims_had_left(const struct run *r)
{
    for (int i = 0; i < r->n_victims; i++)
        if (r->victim[i] >= r->n_ranks || r->seen[r->victim[i]].round < ROUNDS)
            return false;
    return true;
}

static void check_set(const struct run *r, int rank, const char *what)
{
    const struct seen *s = &r->seen[rank];

    /* A root that ends while it gives the table away takes along those who have not got it. */
    for (size_t i = 0; i < s->n_failed; i++)
        if (!is_victim(r, s->failed[i]) && !agent_is_hit(r, node_of(r, s->failed[i])) &&
            !(agent_is_hit(r, 0) && !r->seen[s->failed[i]].was_member))
            fail_msg("%s\nrank %d names rank %d, which lives: %s", what, rank, s->failed[i], s->text);
}

static bool same_words(const struct seen *a, const struct seen *b)
{
    if (a->status != b->status || strcmp(a->text, b->text) != 0)
        return false;
    return !a->was_member || !b->was_member ||
           (a->n_failed == b->n_failed &&
            memcmp(a->failed, b->failed, a->n_failed * sizeof(a->failed[0])) == 0);
}

/* An agent is stopped. */
static bool is_silent(const struct run *r)
{
    for (int node = 0; node < r->n_nodes; node++)
        if (r->kind == STOP && agent_is_hit(r, node))
            return true;
    return false;
}

static int64_t allowed_ms(const struct run *r)
{
    return (r->event_us + 999) / 1000 + TIMEOUT_MS + (is_silent(r) ? SILENT_MS : 0);
}

static void judge(const struct run *r, const int *status, const char *what)
{
    const struct seen *first = NULL;
    const bool fine_is_fine = all_victims_had_left(r);

    for (int i = 0; i < r->n_ranks; i++) {
        const struct seen *s = &r->seen[i];
        if (is_victim(r, i))
            continue;
        if (status[i] != 0 || s->stage != ENDED)
            fail_msg("%s\nrank %d ended with status 0x%x in stage %d, round %d", what, i, status[i], s->stage,
                     s->round);
        const int64_t late = (s->end_ns - r->start_ns) / 1000000 - allowed_ms(r);
        worst_late_ms = late > worst_late_ms ? late : worst_late_ms;
        if (late > (getenv("DTP_TEST_QUIET") ? LATE_MS : LATE_LOADED_MS))
            fail_msg("%s\nrank %d is %d ms late: %s", what, i, (int)late, s->text);
        check_set(r, i, what);
        /* Before the table: who has lost its agent or the root, or is below one that is stopped, knows less. */
        if (!s->was_member && (agent_is_hit(r, node_of(r, i)) || agent_is_hit(r, 0) || is_silent(r))) {
            if (s->status >= 0)
                fail_msg("%s\nrank %d joined without an agent", what, i);
            continue;
        }
        if (s->status >= 0 && !fine_is_fine && s->round < ROUNDS)
            fail_msg("%s\nrank %d: all is well in round %d", what, i, s->round);
        if (s->status >= 0)
            continue;
        if (!s->text[0])
            fail_msg("%s\nrank %d: no text", what, i);
        /* Cut off from the judge, it cannot know of others; one that is stopped says nothing. */
        if (agent_is_hit(r, node_of(r, i)) && (r->n_victims > 1 || r->kind == STOP))
            continue;
        if (first && !same_words(first, s))
            fail_msg("%s\nrank %d: %s: %s (%zu failed)\nrank %d: %s: %s (%zu failed)", what,
                     (int)(first - r->seen), dtp_status_name(first->status), first->text, first->n_failed, i,
                     dtp_status_name(s->status), s->text, s->n_failed);
        first = first ? first : s;
    }
    print_message("%s\n    %s %s\n", what, first ? dtp_status_name(first->status) : "nobody else failed",
                  first ? first->text : "");
}

static void one(uint64_t seed)
{
    int status[MAX_RANKS + MAX_NODES] = { 0 };
    pid_t pids[MAX_RANKS + MAX_NODES];
    char what[300];
    struct run r;

    draw(&r, seed);
    describe(&r, what, sizeof(what));
    go(&r, pids, status, r.n_ranks + (r.is_hosted ? 0 : r.n_nodes));
    for (int i = 0; i < r.n_ranks && getenv("DTP_CHAOS"); i++)
        print_message("rank %d on node %d: %s in round %d after %d us: %s\n", i, node_of(&r, i),
                      dtp_status_name(shared[i].status), shared[i].round,
                      (int)((shared[i].end_ns - r.start_ns) / 1000), shared[i].text);
    judge(&r, status, what);
}

static void test_survivors_agree_on_who_is_missing(void **state)
{
    const char *again = getenv("DTP_CHAOS");
    uint64_t seed = again ? strtoull(again, NULL, 0) : check_seed();
    const int n = again ? 1 : check_is_long() ? N_LONG : N_SHORT;

    (void)state;
    for (int i = 0; i < n; i++)
        one(again ? seed : check_random(&seed));
    print_message("%d runs; the latest came %d ms after its deadline\n", n, (int)worst_late_ms);
}

static int set_up(void **state)
{
    (void)state;
    worst_late_ms = INT16_MIN;
    shared = mmap(NULL, MAX_RANKS * sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survivors_agree_on_who_is_missing),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
