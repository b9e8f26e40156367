/* SPDX-License-Identifier: Apache-2.0 */
/* Survivors go on without those that were lost. */
#include "unit/group/gang.h"

#include <limits.h>
#include <pthread.h>

#include "group/group.h"

/* ---- survivors go on ---- */

/* All calls work, and everybody knows who is where. */
static void use(dtp_group *g, const struct world *w, uint32_t generation)
{
    const int n = w->n_ranks - __builtin_popcount(w->victims);
    size_t sizes[RANKS_MAX], bytes;
    dtp_group *sub;
    void *data;
    int identity = -1;

    RANK_CHECK(dtp_group_size(g) == n);
    RANK_CHECK(dtp_group_generation(g) == generation);
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    for (int i = 0; i < n; i++) {
        dtp_group_member m = { .size = sizeof(m) };
        RANK_OK(dtp_group_get(g, i, &m, ERR));
        identity++;
        while (is_victim(w, identity))
            identity++;
        RANK_CHECK(m.identity == identity && m.node == identity / PER_NODE);
        if (i == dtp_group_rank(g))
            RANK_CHECK(m.pid == getpid() && identity == rank_me - w->n_nodes);
    }
    const uint8_t mine = (uint8_t)dtp_group_rank(g);
    RANK_OK(dtp_group_allgather(g, &mine, 1, &data, sizes, &bytes, 0, ERR));
    for (int i = 0; i < n; i++)
        RANK_CHECK(((uint8_t *)data)[i] == i);
    dtp_group_free(data);
    RANK_OK(dtp_group_split(g, mine % 2, 0, 0, &sub, ERR));
    RANK_OK(dtp_group_barrier(sub, 0, ERR));
    dtp_group_close(sub);
}

static void die_and_reform(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    dtp_group *next, *again, *sub;
    int32_t failed[RANKS_MAX];

    RANK_OK(dtp_group_split(g, 0, 0, 0, &sub, ERR));
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (is_victim(w, rank))
        raise(SIGKILL);
    RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
    RANK_OK(dtp_group_reform(g, NULL, &next, ERR));
    use(next, w, 2);
    /* The old ones say what they lost. */
    RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(sub, 0, ERR));
    RANK_CHECK(dtp_group_failed(g, failed, RANKS_MAX) >= 1 && is_victim(w, failed[0]));
    RANK_STATUS(DTP_ERR_INVAL, dtp_group_reform(sub, NULL, &again, ERR));
    RANK_STATUS(DTP_ERR_PEER, dtp_group_reform(g, NULL, &again, ERR));
    dtp_group_close(sub);
    dtp_group_close(g);
    /* And once more, without a loss. */
    RANK_OK(dtp_group_reform(next, NULL, &again, ERR));
    RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(next, 0, ERR));
    RANK_TEXT("re-formed as generation 3");
    RANK_CHECK(dtp_group_failed(next, NULL, 0) == 0);
    use(again, w, 3);
    dtp_group_close(again);
    dtp_group_close(next);
    (void)ctx;
}

static void test_survivors_form_the_next_generation(void **state)
{
    (void)state;
    for (int n_nodes = 1; n_nodes <= 3; n_nodes++) {
        struct world w = world_of(n_nodes, die_and_reform);
        w.victims = n_nodes == 1 ? 1u << 0 : n_nodes == 2 ? 1u << 2 | 1u << 5 : 1u << 7;
        run_world(&w);
    }
}

static void some_call(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    const dtp_reform_opts o = { .size = sizeof(o), .timeout_ms = 600 };
    dtp_group *next;

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (rank == 5) {
        /* Busy elsewhere; the others do not wait for ever. */
        size_t bytes;
        void *data;
        RANK_STATUS(DTP_ERR_PEER, dtp_group_lookup(g, "never", &data, &bytes, 5000, ERR));
        RANK_TEXT("rank 5 of 8 was left out of generation 2");
        RANK_STATUS(DTP_ERR_PEER, dtp_group_reform(g, NULL, &next, ERR));
    } else {
        const int64_t at = ranks_now_ns();
        RANK_OK(dtp_group_reform(g, &o, &next, ERR));
        RANK_CHECK(ranks_now_ns() - at < 3000 * DTPI_NS_PER_MS);
        RANK_CHECK(dtp_group_size(next) == 7);
        RANK_OK(dtp_group_barrier(next, 0, ERR));
        RANK_CHECK(dtp_group_failed(g, NULL, 0) == 1);
        dtp_group_close(next);
    }
    dtp_group_close(g);
    (void)w;
    (void)ctx;
}

/* The same a generation later, where numbers are no identities any more. */
static void some_call_later(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    const dtp_reform_opts o = { .size = sizeof(o), .timeout_ms = 600 };
    dtp_group *next, *last;
    int32_t failed[2];

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (is_victim(w, rank))
        raise(SIGKILL);
    RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
    RANK_OK(dtp_group_reform(g, NULL, &next, ERR));
    dtp_group_close(g);
    if (rank == 5) {
        size_t bytes;
        void *data;
        RANK_STATUS(DTP_ERR_PEER, dtp_group_lookup(next, "never", &data, &bytes, 5000, ERR));
        RANK_TEXT("rank 4 of 7 was left out of generation 3");
    } else {
        RANK_OK(dtp_group_reform(next, &o, &last, ERR));
        RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(next, 0, ERR));
        RANK_TEXT("re-formed as generation 3 without rank 4:");
        RANK_CHECK(dtp_group_failed(next, failed, 2) == 1 && failed[0] == 4);
        dtp_group_close(last);
    }
    dtp_group_close(next);
    (void)ctx;
}

static void test_who_is_left_out_later_is_named_by_its_number_then(void **state)
{
    struct world w = world_of(2, some_call_later);

    (void)state;
    w.victims = 1u << 1;
    run_world(&w);
}

static void test_who_does_not_call_is_left_out_and_told(void **state)
{
    struct world w = world_of(2, some_call);

    (void)state;
    run_world(&w);
}

static void too_few(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    dtp_reform_opts o = { .size = sizeof(o), .timeout_ms = 500, .min_size = 8 };
    dtp_group *next;

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (is_victim(w, rank))
        raise(SIGKILL);
    RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
    RANK_STATUS(DTP_ERR_PEER, dtp_group_reform(g, &o, &next, ERR));
    RANK_TEXT("at least 8 are wanted");
    /* The demand may be given up. */
    o.min_size = 0;
    o.timeout_ms = 5000;
    RANK_OK(dtp_group_reform(g, &o, &next, ERR));
    use(next, w, 2);
    dtp_group_close(next);
    dtp_group_close(g);
    (void)ctx;
}

static void test_fewer_than_wanted_form_nothing_and_may_try_again(void **state)
{
    struct world w = world_of(2, too_few);

    (void)state;
    w.victims = 1u << 6;
    run_world(&w);
}

static void dies_in_reform(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    const dtp_reform_opts o = { .size = sizeof(o), .timeout_ms = 5000 };
    dtp_group *next;

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (rank == 1)
        raise(SIGKILL);
    RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
    if (rank == 6)
        raise(SIGKILL);
    RANK_OK(dtp_group_reform(g, &o, &next, ERR));
    use(next, w, 2);
    dtp_group_close(g);
    dtp_group_close(next);
    (void)ctx;
}

static void test_a_death_during_a_reform_is_not_waited_for(void **state)
{
    struct world w = world_of(2, dies_in_reform);

    (void)state;
    w.victims = 1u << 1 | 1u << 6;
    run_world(&w);
}

/* ---- agents die ---- */

static void loses_a_node(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    const int n = w->n_ranks - PER_NODE, first = w->lost_node * PER_NODE;
    int32_t failed[RANKS_MAX];
    dtp_group *next;
    size_t bytes;
    void *data;

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    atomic_fetch_add(w->n_ready, 1);
    const int64_t at = ranks_now_ns();
    RANK_STATUS(DTP_ERR_PEER, dtp_group_lookup(g, "never", &data, &bytes, 0, ERR));
    RANK_TEXT("agent of node");
    RANK_CHECK(ranks_now_ns() - at < 8000 * DTPI_NS_PER_MS);
    RANK_CHECK(dtp_group_failed(g, failed, RANKS_MAX) == PER_NODE && failed[0] == first);
    if (rank / PER_NODE == w->lost_node) {
        RANK_STATUS(DTP_ERR_PEER, dtp_group_reform(g, NULL, &next, ERR));
        dtp_group_close(g);
        return;
    }
    RANK_OK(dtp_group_reform(g, NULL, &next, ERR));
    RANK_CHECK(dtp_group_size(next) == n);
    RANK_CHECK(dtp_group_rank(next) == (rank < first ? rank : rank - PER_NODE));
    RANK_OK(dtp_group_barrier(next, 0, ERR));
    dtp_group_close(g);
    dtp_group_close(next);
    (void)ctx;
}

static void test_survivors_of_a_lost_node_go_on_also_without_the_root(void **state)
{
    (void)state;
    for (int node = 0; node < 3; node++) {
        struct world w = world_of(5, loses_a_node);
        w.lost_node = node;
        run_world(&w);
    }
}

static void half_is_lost(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    dtp_group *next;
    size_t bytes;
    void *data;

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    atomic_fetch_add(w->n_ready, 1);
    RANK_STATUS(DTP_ERR_PEER, dtp_group_lookup(g, "never", &data, &bytes, 0, ERR));
    RANK_STATUS(DTP_ERR_PEER, dtp_group_reform(g, NULL, &next, ERR));
    if (rank / PER_NODE == 1)
        RANK_TEXT("of 2 nodes");
    dtp_group_close(g);
    (void)ctx;
}

static void test_half_of_the_nodes_without_the_root_do_not_go_on(void **state)
{
    struct world w = world_of(2, half_is_lost);

    (void)state;
    w.lost_node = 0;
    run_world(&w);
}

/* Some ranks and an agent die at any time, also while others re-form; the rest meets in the end. */
static void dies_some_time(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    const int n = w->n_ranks - __builtin_popcount(w->victims) - (w->lost_node >= 0 ? PER_NODE : 0);
    const struct timespec a_while = { .tv_nsec = rank * 700000 };
    const dtp_reform_opts o = { .size = sizeof(o), .timeout_ms = 8000 };
    dtp_status st = dtp_group_barrier(g, 0, ERR);

    atomic_fetch_add(w->n_ready, 1);
    if (is_victim(w, rank)) {
        nanosleep(&a_while, NULL);
        raise(SIGKILL);
    }
    for (int turn = 0; turn < 100 && (st < 0 || dtp_group_size(g) != n); turn++) {
        dtp_group *next;
        if (st >= 0)
            st = dtp_group_barrier(g, 0, ERR);
        if (st < 0 && dtp_group_reform(g, &o, &next, ERR) >= 0) {
            dtp_group_close(g);
            g = next;
            st = dtp_group_barrier(g, 0, ERR);
        } else if (st < 0 && rank / PER_NODE == w->lost_node) {
            dtp_group_close(g);
            return;
        }
    }
    if (st < 0 || dtp_group_size(g) != n)
        fprintf(stderr, "rank %d: %d of %d in generation %u: %s\n", rank, dtp_group_size(g), n,
                dtp_group_generation(g), check_err.text);
    RANK_CHECK(st == DTP_OK && dtp_group_size(g) == n);
    dtp_group_close(g);
    (void)ctx;
}

static void test_whoever_dies_the_rest_meets(void **state)
{
    uint64_t seed = check_seed();

    (void)state;
    for (int run = 0; run < (check_is_long() ? 100 : 3); run++) {
        const int n_nodes = 1 + (int)(check_random(&seed) % 6);
        struct world w = world_of(n_nodes, dies_some_time);
        if (n_nodes > 2 && check_random(&seed) % 2)
            w.lost_node = (int)(check_random(&seed) % (unsigned)n_nodes);
        for (int i = 0; i < 1 + run % 3; i++) {
            const int rank = (int)(check_random(&seed) % (unsigned)w.n_ranks);
            if (rank / PER_NODE != w.lost_node)
                w.victims |= 1u << rank;
        }
        run_world(&w);
    }
}

/* ---- abort ---- */

enum blocked { IN_BARRIER, IN_ALLGATHER, IN_LOOKUP, IN_REFORM, N_BLOCKED };

struct aborter {
    dtp_group *g;
    _Atomic int64_t at_ns;
};

static void *abort_soon(void *arg)
{
    struct aborter *a = arg;
    const struct timespec ts = { .tv_nsec = 20000000 };

    nanosleep(&ts, NULL);       /* until the other thread blocks: the call is what is tested */
    atomic_store(&a->at_ns, ranks_now_ns());
    dtp_group_abort(a->g, "enough");
    return NULL;
}

static dtp_status block(enum blocked where, dtp_group *g)
{
    dtp_group *next;
    size_t bytes;
    void *data;

    switch (where) {
    case IN_BARRIER:
        return dtp_group_barrier(g, 0, ERR);
    case IN_ALLGATHER:
        return dtp_group_allgather(g, "x", 1, &data, NULL, &bytes, 0, ERR);
    case IN_LOOKUP:
        return dtp_group_lookup(g, "never set", &data, &bytes, 0, ERR);
    default:
        return dtp_group_reform(g, NULL, &next, ERR);
    }
}

static int abort_in(dtp_group *g, enum blocked where)
{
    struct aborter a = { .g = g };
    pthread_t t;

    RANK_CHECK(pthread_create(&t, NULL, abort_soon, &a) == 0);
    RANK_STATUS(DTP_ERR_ABORTED, block(where, g));
    const int64_t took = ranks_now_ns() - atomic_load(&a.at_ns);
    RANK_TEXT("aborted by rank 0: enough");
    pthread_join(t, NULL);
    return (int)(took / 1000);
}

static void one_aborts(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    const enum blocked where = (enum blocked)(w->victims >> 16);
    size_t bytes;
    void *data;

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (rank == 0)
        atomic_store(w->n_ready, abort_in(g, where));
    else
        RANK_STATUS(DTP_ERR_ABORTED, dtp_group_lookup(g, "never", &data, &bytes, 0, ERR));
    RANK_STATUS(DTP_ERR_ABORTED, dtp_group_reform(g, NULL, &g, ERR));
    dtp_group_close(g);
    (void)ctx;
}

static void reform_at_a_starved_agent(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    const int64_t start = ranks_now_ns();
    dtp_group *next;

    (void)rank;
    (void)ctx;
    atomic_fetch_add(w->n_ready, 1);
    for (int i = 0; i < 3; i++)
        RANK_OK(dtp_group_barrier(g, 0, ERR));
    RANK_STATUS(DTP_ERR_LIMIT, dtp_group_reform(g, NULL, &next, ERR));
    RANK_TEXT("cannot give the memory files to rank");
    RANK_CHECK(ranks_now_ns() - start < 5000000000);
    dtp_group_close(g);
}

static void test_an_agent_without_descriptors_says_so_to_all(void **state)
{
    struct world w = world_of(1, reform_at_a_starved_agent);

    (void)state;
    w.starves = true;
    run_world(&w);
}

/* How long the call took to return; a busy machine may give a thread its turn late. */
static int abort_took_us(uint32_t where)
{
    struct world w = world_of(1, one_aborts);

    w.victims = where << 16;
    run_world(&w);
    return w.took_us;
}

static void test_an_abort_from_another_thread_ends_every_blocked_call(void **state)
{
    (void)state;
    for (uint32_t where = 0; where < N_BLOCKED; where++) {
        int least = INT_MAX;
        for (int i = 0; i < 10 && least > 5000; i++)
            least = DTPI_MIN(least, abort_took_us(where));
        if (least > 5000)
            fail_msg("call %u returned %d us after the abort, at best", where, least);
    }
}

/* ---- a join, and a host that dies ---- */

struct stopper {
    dtp_ctx *ctx;
    _Atomic bool stop;
    _Atomic int64_t at_ns;
};

static int is_stopped(void *user)
{
    struct stopper *s = user;

    return atomic_load(&s->stop);
}

static void *stop_soon(void *arg)
{
    struct stopper *s = arg;
    const struct timespec ts = { .tv_nsec = 20000000 };

    nanosleep(&ts, NULL);
    atomic_store(&s->at_ns, ranks_now_ns());
    atomic_store(&s->stop, true);
    dtp_ctx_wake(s->ctx);
    return NULL;
}

static void test_a_join_is_ended_from_another_thread(void **state)
{
    const char *job = ranks_job();

    (void)state;
    for (int rank = 0; rank < 2; rank++) {      /* one that hosts the agent, one that looks for it */
        struct stopper s = { 0 };
        const dtp_ctx_opts co = { .size = sizeof(co), .interrupted = is_stopped, .interrupted_user = &s };
        const dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = 2, .job = job,
                                   .secret = secret };
        dtp_group *g;
        pthread_t t;
        assert_ok(dtp_ctx_open(&co, &s.ctx, ERR));
        assert_int_equal(pthread_create(&t, NULL, stop_soon, &s), 0);
        assert_status(DTP_ERR_INTERRUPTED, dtp_group_join(s.ctx, &o, &g, ERR));
        const int64_t took = ranks_now_ns() - atomic_load(&s.at_ns);
        pthread_join(t, NULL);
        dtp_ctx_close(s.ctx);
        /* It has half a second to tell the others. */
        if (took > 10 * DTPI_NS_PER_S)
            fail_msg("join of rank %d returned %lld ms after it was ended", rank,
                     (long long)(took / DTPI_NS_PER_MS));
    }
}

static void hosted(int rank, int n, void *user)
{
    const dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = n, .job = user,
                               .timeout_ms = 10000, .secret = secret };
    dtp_group *g, *next;
    dtp_ctx *ctx;

    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_group_join(ctx, &o, &g, ERR));
    /* The agent may die before it has told of the first barrier. */
    const dtp_status st = dtp_group_barrier(g, 0, ERR);
    if (rank == 0)
        raise(SIGKILL);
    if (st >= 0)
        RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
    RANK_STATUS(DTP_ERR_PEER, dtp_group_reform(g, NULL, &next, ERR));
    RANK_TEXT("the agent of this node is gone: rank 0 of 3");
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void test_where_the_agent_died_with_its_rank_the_error_says_so(void **state)
{
    pid_t pids[3];
    int status[3] = { 0 };

    (void)state;
    ranks_start(3, hosted, (void *)(uintptr_t)ranks_job(), pids);
    ranks_wait(3, pids, status);
    assert_int_equal(status[0], SIGKILL);
    assert_int_equal(status[1] | status[2], 0);
}

static void aborted_after_death(const struct world *w, int rank, dtp_ctx *ctx, dtp_group *g)
{
    dtp_group *next;

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (is_victim(w, rank))
        raise(SIGKILL);
    /* One that is slow may hear of both at once. */
    const dtp_status st = dtp_group_barrier(g, 0, ERR);
    RANK_CHECK(st == DTP_ERR_PEER || (rank != 1 && st == DTP_ERR_ABORTED));
    if (rank == 1)
        dtp_group_abort(g, "no use");   /* and does not call: the others are in their re-form */
    RANK_STATUS(DTP_ERR_ABORTED, dtp_group_reform(g, NULL, &next, ERR));
    RANK_TEXT("aborted by rank 1: no use");
    dtp_group_close(g);
    (void)ctx;
}

static void test_an_abort_ends_a_reform_on_all_ranks(void **state)
{
    struct world w = world_of(2, aborted_after_death);

    (void)state;
    w.victims = 1u << 3;
    run_world(&w);
}

static void test_a_group_of_one_can_be_reformed(void **state)
{
    dtp_group *g, *next;
    dtp_ctx *ctx;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtp_group_join(ctx, NULL, &g, ERR));
    assert_ok(dtp_group_reform(g, NULL, &next, ERR));
    assert_int_equal(dtp_group_generation(next), 2);
    assert_ok(dtp_group_barrier(next, 0, ERR));
    assert_status(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
    dtp_group_close(g);
    dtp_group_close(next);
    dtp_ctx_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survivors_form_the_next_generation),
        cmocka_unit_test(test_who_does_not_call_is_left_out_and_told),
        cmocka_unit_test(test_who_is_left_out_later_is_named_by_its_number_then),
        cmocka_unit_test(test_fewer_than_wanted_form_nothing_and_may_try_again),
        cmocka_unit_test(test_a_death_during_a_reform_is_not_waited_for),
        cmocka_unit_test(test_survivors_of_a_lost_node_go_on_also_without_the_root),
        cmocka_unit_test(test_half_of_the_nodes_without_the_root_do_not_go_on),
        cmocka_unit_test(test_whoever_dies_the_rest_meets),
        cmocka_unit_test(test_an_agent_without_descriptors_says_so_to_all),
        cmocka_unit_test(test_an_abort_from_another_thread_ends_every_blocked_call),
        cmocka_unit_test(test_an_abort_ends_a_reform_on_all_ranks),
        cmocka_unit_test(test_a_join_is_ended_from_another_thread),
        cmocka_unit_test(test_where_the_agent_died_with_its_rank_the_error_says_so),
        cmocka_unit_test(test_a_group_of_one_can_be_reformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
