/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fault.c - every allocation and every system call of a bootstrap fails, one at a time, in one of
 * four processes on one node or two: nobody crashes or hangs, the others agree on what happened within
 * a second, the one says what failed, and no descriptor or block is left over. Nobody asks a name
 * service, which does not answer.
 *
 * Runs with failmalloc.c and failcall.c preloaded. The short form tries a sample that DTP_TEST_SEED
 * repeats, DTP_TEST_LONG=1 tries all. DTP_FAULT="layout victim kind nth variant" repeats one run.
 */
#include "unit/group/ranks.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

#include <dtp/dtp.h>

#include "failcall.h"
#include "failmalloc.h"

enum { N_RANKS = 4, TIMEOUT_MS = 3000, LIMIT_MS = 1000, MAX_FINDINGS = 60, N_ERRORS = 4 };
enum kind { MALLOC, CALL };
enum stage { JOIN, FIRST, GATHER, PAIR, LAST, N_STAGES };

static const char *const kinds[] = { "allocation", "call" };
static const char *const stages[] = { "join", "barrier", "allgather", "pairs", "last barrier", "none" };
static const int layouts[] = { 4, 2 };      /* ranks on a node */

/* What a rank saw. */
struct seen {
    bool ended;
    enum stage stage;           /* N_STAGES: all went well */
    dtp_status status;
    char text[DTP_ERROR_TEXT];
    int32_t failed[N_RANKS];
    size_t n_failed;
    int64_t end_ns;
    int fds;                    /* more than before */
    long blocks;
    bool fired;
    int names;                  /* asked of a name service */
    char call[24];
    int call_errno;
};

struct run {
    int per_node, victim;       /* victim -1: nobody */
    enum kind kind;
    long nth;
    unsigned variant;
    char job[64], root[64];
    struct seen *seen;          /* shared, by rank */
};

static uint64_t seed;
static struct seen *shared;
static long usual_blocks[2][N_RANKS];   /* left over without a failure: caches of libraries */
static char findings[MAX_FINDINGS][400];
static int n_findings;

static int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = -1;     /* its own */

    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

/* ---- a rank ---- */

static dtp_status calls(dtp_group *g, int rank, enum stage *stage, dtp_error *err)
{
    void *data = NULL;
    dtp_status st;
    char key[16];

    *stage = FIRST;
    if ((st = dtp_group_barrier(g, 0, err)) < 0)
        return st;
    *stage = GATHER;
    if ((st = dtp_group_allgather(g, &rank, sizeof(rank), &data, NULL, NULL, 0, err)) < 0)
        return st;
    dtp_group_free(data);
    *stage = PAIR;
    snprintf(key, sizeof(key), "key %d", rank);
    if ((st = dtp_group_set(g, key, "value", 5, 0, err)) < 0)
        return st;
    if ((st = dtp_group_lookup(g, key, &data, NULL, 0, err)) < 0)
        return st;
    dtp_group_free(data);
    *stage = LAST;
    if ((st = dtp_group_barrier(g, 0, err)) < 0)
        return st;
    *stage = N_STAGES;
    return DTP_OK;
}

static void use_group(const struct run *r, int rank, struct seen *s)
{
    dtp_group_opts o = DTP_GROUP_OPTS_INIT;
    dtp_error err = { 0 };
    dtp_group *g = NULL;
    dtp_ctx *ctx = NULL;

    o.rank = rank;
    o.world_size = N_RANKS;
    o.local_rank = rank % r->per_node;
    o.local_size = r->per_node;
    o.node = rank / r->per_node;
    o.n_nodes = N_RANKS / r->per_node;
    o.job = r->job;
    o.root = r->per_node < N_RANKS ? r->root : NULL;
    o.secret = (const uint8_t *)"a secret of thirty-two bytes...";
    o.timeout_ms = TIMEOUT_MS;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    if (rank == r->victim && r->kind == MALLOC)
        failmalloc_arm(r->nth);
    if (rank == r->victim && r->kind == CALL)
        failcall_arm(r->nth, r->variant);
    s->stage = JOIN;
    s->status = dtp_group_join(ctx, &o, &g, &err);
    if (s->status >= 0)
        s->status = calls(g, rank, &s->stage, &err);
    s->end_ns = ranks_now_ns();
    if (s->status < 0)
        snprintf(s->text, sizeof(s->text), "%s", err.text);
    if (g)
        s->n_failed = dtp_group_failed(g, s->failed, N_RANKS);
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void rank_main(int rank, int n, void *user)
{
    const struct run *r = user;
    struct seen *s = &r->seen[rank];
    const int fds = count_fds();
    const long blocks = failmalloc_alive();
    const char *call;

    (void)n;
    alarm(20);
    use_group(r, rank, s);
    if (rank == r->victim && r->kind == MALLOC)
        s->fired = failmalloc_disarm();
    call = failcall_disarm(&s->call_errno);
    if (call) {
        s->fired = true;
        snprintf(s->call, sizeof(s->call), "%s", call);
    }
    s->names = failcall_n_names();
    s->blocks = failmalloc_alive() - blocks;
    s->fds = count_fds() - fds;
    s->ended = true;
}

/* ---- the judge ---- */

static bool finding(const struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static bool finding(const struct run *r, const char *fmt, ...)
{
    const struct seen *v = &r->seen[r->victim < 0 ? 0 : r->victim];
    char text[300];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n_findings < MAX_FINDINGS)
        snprintf(findings[n_findings], sizeof(findings[0]), "\"%d %d %d %ld %u\": %s %ld (%s %s) of rank %d: %s",
                 r->per_node, r->victim, r->kind, r->nth, r->variant, kinds[r->kind], r->nth, v->call,
                 v->call[0] ? strerror(v->call_errno) : "", r->victim, text);
    n_findings++;
    return false;
}

static bool check_ends(const struct run *r, const int *status)
{
    for (int i = 0; i < N_RANKS; i++) {
        const struct seen *s = &r->seen[i];
        if (status[i] != 0 || !s->ended)
            return finding(r, "rank %d ended with status 0x%x in %s", i, status[i], stages[s->stage]);
        if (s->fds != 0)
            return finding(r, "rank %d leaks %d descriptors (%s)", i, s->fds, s->text);
        if (s->blocks > usual_blocks[r->per_node < N_RANKS][i])
            return finding(r, "rank %d leaks %ld blocks (%s)", i,
                           s->blocks - usual_blocks[r->per_node < N_RANKS][i], s->text);
        if (s->names)
            return finding(r, "rank %d asks a name service", i);
        if (s->status < 0 && !s->text[0])
            return finding(r, "rank %d: no text (%s)", i, dtp_status_name(s->status));
    }
    return true;
}

static bool is_same(const struct seen *a, const struct seen *b)
{
    return a->status == b->status && strcmp(a->text, b->text) == 0 &&
           (a->stage <= JOIN || b->stage <= JOIN ||
            (a->n_failed == b->n_failed &&
             memcmp(a->failed, b->failed, a->n_failed * sizeof(a->failed[0])) == 0));
}

/* All others fail, with the same words and soon; or all is well; or they had all they came for. */
static bool check_others(const struct run *r, int64_t start_ns)
{
    const struct seen *v = &r->seen[r->victim], *first = NULL;
    int n_fine = 0, fine = -1;

    for (int i = 0; i < N_RANKS; i++) {
        const struct seen *s = &r->seen[i];
        if (i == r->victim)
            continue;
        if (s->end_ns - start_ns > LIMIT_MS * 1000000LL)
            return finding(r, "rank %d waited %d ms: %s (victim in %s: %s)", i,
                           (int)((s->end_ns - start_ns) / 1000000), s->text, stages[v->stage], v->text);
        if (s->status >= 0) {
            n_fine++;
            fine = i;
            continue;
        }
        if (first && !is_same(first, s))
            return finding(r, "others differ: %s: %s (%s, %zu failed) and %s: %s (%s, %zu failed)",
                           dtp_status_name(first->status), first->text, stages[first->stage],
                           first->n_failed, dtp_status_name(s->status), s->text, stages[s->stage],
                           s->n_failed);
        first = first ? first : s;
    }
    /* It may host the agent and have had all it came for. */
    if (first && v->status >= 0 && first->stage < LAST)
        return finding(r, "the others fail, it does not: %s", first->text);
    if (n_fine > 0 && v->status < 0 && v->stage < LAST)
        return finding(r, "fails in %s (%s), rank %d does not", stages[v->stage], v->text, fine);
    return true;
}

static uint16_t free_port(void)
{
    static unsigned n;

    return (uint16_t)(10000 + ((unsigned)getpid() * 13 + n++) % 20000);
}

/* False: the failure came to pass no more. */
static bool run_once(struct run *r)
{
    pid_t pids[N_RANKS];
    int status[N_RANKS];

    memset(shared, 0, N_RANKS * sizeof(*shared));
    r->seen = shared;
    snprintf(r->job, sizeof(r->job), "%s", ranks_job());
    snprintf(r->root, sizeof(r->root), "127.0.0.1:%u", free_port());
    const int64_t start_ns = ranks_now_ns();
    ranks_start(N_RANKS, rank_main, r, pids);
    ranks_wait(N_RANKS, pids, status);
    if (getenv("DTP_FAULT"))
        for (int i = 0; i < N_RANKS; i++)
            print_message("rank %d: %s after %lld us in %s: %s%s%s %s\n", i, dtp_status_name(shared[i].status),
                          (long long)(shared[i].end_ns - start_ns) / 1000, stages[shared[i].stage],
                          shared[i].text, shared[i].fired ? "; fired " : "", shared[i].call,
                          shared[i].call[0] ? strerror(shared[i].call_errno) : "");
    if (r->victim < 0) {
        for (int i = 0; i < N_RANKS; i++)
            usual_blocks[r->per_node < N_RANKS][i] = shared[i].blocks;
        return check_ends(r, status) && check_others(&(struct run){ .victim = 0, .seen = shared }, start_ns);
    }
    if (check_ends(r, status))
        check_others(r, start_ns);
    return shared[r->victim].fired || status[r->victim] != 0;
}

static void fail_each(int per_node, int victim, enum kind kind)
{
    /* A sample has about so many. */
    const long stride = check_is_long() ? 1 : kind == MALLOC ? 7 : 11;
    struct run r = { .per_node = per_node, .victim = victim, .kind = kind };
    bool goes_on = true;
    int n = 0;

    for (r.nth = 1 + (long)(check_random(&seed) % (uint64_t)stride); goes_on; r.nth += stride) {
        const unsigned first = (unsigned)(check_random(&seed) % N_ERRORS);
        /* All errors of a call in long runs, one in short ones. */
        const unsigned n_tries = check_is_long() && kind == CALL ? N_ERRORS : 1;
        for (unsigned i = 0; goes_on && i < n_tries; i++) {
            r.variant = (first + i) % N_ERRORS;
            goes_on = run_once(&r);
            n += goes_on;
        }
    }
    print_message("rank %d, %d on a node: %d runs, about %ld %ss\n", victim, per_node, n, r.nth, kinds[kind]);
}

static void report(void)
{
    for (int i = 0; i < n_findings && i < MAX_FINDINGS; i++)
        print_error("DTP_FAULT=%s\n", findings[i]);
    if (n_findings)
        fail_msg("%d findings", n_findings);
}

static void usual(int per_node)
{
    struct run r = { .per_node = per_node, .victim = -1 };

    run_once(&r);
    run_once(&r);
}

static void each(enum kind kind)
{
    if (!failcall_arm || !failmalloc_arm) {
        print_message("skipped: nothing is preloaded\n");
        skip();
    }
    n_findings = 0;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        usual(layouts[i]);
        for (int victim = 0; victim < N_RANKS; victim++)
            if (layouts[i] < N_RANKS || victim < 2)
                fail_each(layouts[i], victim, kind);
    }
    report();
}

static void test_others_hear_of_every_allocation_that_fails(void **state)
{
    (void)state;
    each(MALLOC);
}

static void test_others_hear_of_every_system_call_that_fails(void **state)
{
    (void)state;
    each(CALL);
}

static void repeat(const char *text)
{
    struct run r = { 0 };
    int kind;

    assert_int_equal(sscanf(text, "%d %d %d %ld %u", &r.per_node, &r.victim, &kind, &r.nth, &r.variant), 5);
    r.kind = (enum kind)kind;
    usual(r.per_node);
    run_once(&r);
    report();
}

static void test_one_run_again(void **state)
{
    (void)state;
    if (getenv("DTP_FAULT"))
        repeat(getenv("DTP_FAULT"));
}

static int set_up(void **state)
{
    (void)state;
    seed = check_seed();
    shared = mmap(NULL, N_RANKS * sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_others_hear_of_every_allocation_that_fails),
        cmocka_unit_test(test_others_hear_of_every_system_call_that_fails),
    };
    const struct CMUnitTest one[] = { cmocka_unit_test(test_one_run_again) };

    if (getenv("DTP_FAULT"))
        return cmocka_run_group_tests(one, set_up, NULL);
    return cmocka_run_group_tests(all, set_up, NULL);
}
