/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of a rank and of the agent it hosts fails once: no crash, no leak, nobody waits. */
#include "failalloc.h"

#include <time.h>
#include <unistd.h>

#include "ctx/ctx.h"
#include "group/core.h"
#include "group/group.h"

enum { PEER_TIMEOUT_MS = 100, STRIDE = 12 };

struct run {
    char job[64];
    const dtp_allocator *a;     /* NULL: malloc */
    int timeout_ms;             /* to join */
    dtp_status st[4];
};

/* Joins, calls and leaves as far as it gets. */
static void use_group(struct run *r, int rank)
{
    const dtp_ctx_opts co = { .size = sizeof(co), .allocator = r->a };
    const dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = 2, .job = r->job,
                               .insecure = 1, .timeout_ms = r->timeout_ms };
    dtp_error err;
    dtp_group *g = NULL, *sub = NULL;
    dtp_ctx *ctx = NULL;
    void *data = NULL;

    r->st[0] = dtp_ctx_open(&co, &ctx, &err);
    if (r->st[0] < 0)
        return;
    r->st[1] = dtp_group_join(ctx, &o, &g, &err);
    if (r->st[1] >= 0) {
        r->st[2] = dtp_group_allgather(g, "abc", (size_t)rank * 3, &data, NULL, NULL, PEER_TIMEOUT_MS, &err);
        dtp_group_free(data);
        data = NULL;
        if (dtp_group_set(g, rank ? "b" : "a", "", (size_t)rank, PEER_TIMEOUT_MS, &err) >= 0)
            dtp_group_lookup(g, "b", &data, NULL, PEER_TIMEOUT_MS, &err);
        dtp_group_free(data);
        r->st[3] = dtp_group_split(g, 0, 0, PEER_TIMEOUT_MS, &sub, &err);
        if (r->st[3] >= 0)
            dtp_group_barrier(sub, PEER_TIMEOUT_MS, &err);
        dtp_group_close(sub);
        dtp_group_close(g);
    }
    dtp_ctx_close(ctx);
}

static void *peer(void *user)
{
    use_group(user, 1);
    return NULL;
}

static void test_every_allocation_may_fail_on_the_agents_host(void **state)
{
    unsigned long n_runs = 0;

    (void)state;
    FOR_EACH_FAILURE(f) {
        struct run own = { .a = failalloc_of(&f), .timeout_ms = PEER_TIMEOUT_MS };
        struct run other = { .timeout_ms = PEER_TIMEOUT_MS };
        struct timespec t0, t1;
        pthread_t thread;
        snprintf(own.job, sizeof(own.job), "failing-%d-%lu", (int)getpid(), n_runs++);
        strcpy(other.job, own.job);
        clock_gettime(CLOCK_MONOTONIC, &t0);
        assert_int_equal(pthread_create(&thread, NULL, peer, &other), 0);
        use_group(&own, 0);
        pthread_join(thread, NULL);
        clock_gettime(CLOCK_MONOTONIC, &t1);
        assert_true(t1.tv_sec - t0.tv_sec < 20);
        /* All of them only in long runs. */
        if (!check_is_long())
            f.fail_at += STRIDE;
    }
    print_message("%lu runs\n", n_runs);
}

static void *host(void *user)
{
    use_group(user, 0);
    return NULL;
}

/* Rank 1 joins, then its `n`th allocation fails; false where a call needs fewer. */
static bool call_without_memory(unsigned long n, bool is_barrier)
{
    failalloc f = { .mutex = PTHREAD_MUTEX_INITIALIZER };
    struct run other = { .timeout_ms = 10000 };
    const dtp_ctx_opts co = { .size = sizeof(co), .allocator = failalloc_of(&f) };
    const dtp_group_opts o = { .size = sizeof(o), .rank = 1, .world_size = 2, .job = other.job,
                               .insecure = 1, .timeout_ms = 10000 };
    pthread_t thread;
    dtp_group *g;
    dtp_ctx *ctx;

    snprintf(other.job, sizeof(other.job), "without-%d-%lu-%d", (int)getpid(), n, is_barrier);
    assert_int_equal(pthread_create(&thread, NULL, host, &other), 0);
    assert_ok(dtp_ctx_open(&co, &ctx, ERR));
    assert_ok(dtp_group_join(ctx, &o, &g, ERR));
    f.n_allocs = 0;
    f.fail_at = n;
    const dtp_status st = is_barrier ? dtp_group_barrier(g, 5000, ERR)
                                     : dtp_group_set(g, "key", "value", 5, 5000, ERR);
    f.fail_at = 0;
    /* The link is given up where it cannot queue what is due. */
    if (f.has_failed && st != DTP_ERR_NOMEM && st != DTP_ERR_PEER)
        fail_msg("allocation %lu: %s: %s", n, dtp_status_name(st), check_err.text);
    dtp_group_close(g);
    dtp_ctx_close(ctx);
    pthread_join(thread, NULL);
    return f.has_failed;
}

static void test_a_call_without_memory_fails_at_once(void **state)
{
    (void)state;
    for (unsigned long n = 1; call_without_memory(n, true); n++)
        continue;
    for (unsigned long n = 1; call_without_memory(n, false); n++)
        continue;
}

/* ---- the core alone ---- */

struct result {
    bool is_down, is_verdict;
    dtp_status status;
};

static void keep_result(void *user, uint32_t slot, dtpi_msg *m)
{
    struct result *r = user;
    dtpi_down down;
    dtpi_frame f;

    if (slot != 0 || !dtpi_frame_read(m->buf.data, m->buf.len, &f))
        return;
    r->is_down |= f.type == DTPI_F_DOWN && dtpi_down_read(&f, &down);
    if (f.type == DTPI_F_DOWN)
        r->status = down.status;
}

static void keep_verdict(void *user, const dtpi_verdict *v)
{
    struct result *r = user;

    r->is_verdict = true;
    r->status = v->status;
}

static void no_table(void *user)
{
    (void)user;
}

static void no_drop(void *user, uint32_t slot)
{
    (void)user;
    (void)slot;
}

static void tell_core(dtpi_core *c, uint32_t rank, uint8_t type)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_frame f = { .type = type, .generation = 1, .seq = type == DTPI_F_UP, .group = DTPI_WORLD_ID,
                           .rank = (int32_t)rank };

    dtpi_frame_begin(&b, &f);
    if (type == DTPI_F_JOIN) {
        dtpi_wr_u32(&b, 2);
        dtpi_wr_u32(&b, rank);
        dtpi_wr_u32(&b, 100 + rank);
    } else {
        dtpi_up_write(&b, DTPI_KIND_GATHER, rank, 0, "abc", 3);
    }
    dtpi_core_local_msg(c, rank, &(dtpi_in){ .data = b.data, .bytes = b.len }, 0);
    dtpi_buf_free(&b);
}

/* The root's core, both of whose ranks have joined. */
static dtpi_core *joined_pair(failalloc *f, struct result *r)
{
    static const dtpi_core_ops ops = { .to_local = keep_result, .to_child = keep_result, .table = no_table,
                                       .verdict = keep_verdict, .drop_local = no_drop,
                                       .drop_child = no_drop };
    const dtpi_core_opts o = { .a = failalloc_of(f), .world_size = 2, .n_local = 2, .is_root = true,
                               .host = "n0", .node_id = 1, .host_rank = -1 };
    dtpi_core *c;

    assert_ok(dtpi_core_new(&o, &ops, r, &c, ERR));
    for (uint32_t i = 0; i < 2; i++) {
        dtpi_core_local_open(c, i, (int32_t)i, 100 + (int32_t)i, 0);
        tell_core(c, i, DTPI_F_JOIN);
    }
    return c;
}

static void test_a_result_without_memory_is_no_broken_protocol(void **state)
{
    bool has_failed = true;

    (void)state;
    for (unsigned long n = 1; has_failed; n++) {
        failalloc f = { .mutex = PTHREAD_MUTEX_INITIALIZER };
        struct result r = { 0 };
        dtpi_core *c = joined_pair(&f, &r);

        f.n_allocs = 0;
        f.fail_at = n;
        tell_core(c, 0, DTPI_F_UP);
        tell_core(c, 1, DTPI_F_UP);
        f.fail_at = 0;
        has_failed = f.has_failed;
        assert_true(has_failed ? r.is_verdict : r.is_down);
        assert_int_equal(r.status, has_failed ? DTP_ERR_NOMEM : DTP_OK);
        dtpi_core_free(c);
        assert_int_equal(f.bytes_open, 0);
    }
}

/* A leave, or a re-form; in lane 1 a call that waits for the other. */
static void tell_word(dtpi_core *c, int32_t rank, uint8_t type)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_frame f = { .type = type, .generation = 1, .lane = type == DTPI_F_UP, .seq = type == DTPI_F_UP,
                           .group = DTPI_WORLD_ID, .rank = rank };

    dtpi_frame_begin(&b, &f);
    if (type == DTPI_F_UP)
        dtpi_up_write(&b, DTPI_KIND_GATHER, (uint32_t)rank, 0, "abc", 3);
    if (type == DTPI_F_REFORM) {
        dtpi_wr_u32(&b, UINT32_MAX);
        dtpi_wr_u32(&b, 1);
    }
    dtpi_core_local_msg(c, (uint32_t)rank, &(dtpi_in){ .data = b.data, .bytes = b.len }, 0);
    dtpi_buf_free(&b);
}

/* Calls are open on two lanes when the last rank that has not called for a re-form leaves. */
static void test_calls_that_end_without_memory_wait_for_the_next_generation(void **state)
{
    bool has_failed = true;

    (void)state;
    for (unsigned long n = 1; has_failed; n++) {
        failalloc f = { .mutex = PTHREAD_MUTEX_INITIALIZER };
        struct result r = { 0 };
        dtpi_core *c = joined_pair(&f, &r);

        tell_core(c, 0, DTPI_F_UP);
        tell_word(c, 0, DTPI_F_UP);
        tell_word(c, 0, DTPI_F_REFORM);
        assert_int_equal(dtpi_core_generation(c), 1);
        f.n_allocs = 0;
        f.fail_at = n;
        tell_word(c, 1, DTPI_F_LEAVE);
        dtpi_core_tick(c, 1);
        f.fail_at = 0;
        has_failed = f.has_failed;
        assert_true(has_failed || dtpi_core_generation(c) == 2);
        dtpi_core_free(c);
        assert_int_equal(f.bytes_open, 0);
    }
}

static void count_drop(void *user, uint32_t slot)
{
    (void)slot;
    ++*(uint32_t *)user;
}

static void no_word(void *user, uint32_t slot, dtpi_msg *m)
{
    (void)user;
    (void)slot;
    (void)m;
}

static void no_verdict(void *user, const dtpi_verdict *v)
{
    (void)user;
    (void)v;
}

static void newcomer_comes(dtpi_core *c, uint32_t slot)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_frame f = { .type = DTPI_F_JOIN, .generation = 1, .group = DTPI_WORLD_ID,
                           .rank = DTP_RANK_NEW };

    dtpi_frame_begin(&b, &f);
    dtpi_wr_u32(&b, 2);
    dtpi_wr_u32(&b, slot);
    dtpi_wr_u32(&b, 100 + slot);
    dtpi_wr_u64(&b, 1 + slot);
    dtpi_core_local_open(c, slot, DTP_RANK_NEW, 100 + (int32_t)slot, 0);
    dtpi_core_local_msg(c, slot, &(dtpi_in){ .data = b.data, .bytes = b.len }, 0);
    dtpi_buf_free(&b);
}

static void test_a_newcomer_without_room_is_told_and_the_next_may_wait(void **state)
{
    static const dtpi_core_ops ops = { .to_local = no_word, .to_child = no_word, .table = no_table,
                                       .verdict = no_verdict, .drop_local = count_drop,
                                       .drop_child = no_drop };
    bool has_failed = true;

    (void)state;
    for (unsigned long n = 1; has_failed; n++) {
        failalloc f = { .mutex = PTHREAD_MUTEX_INITIALIZER };
        const dtpi_core_opts o = { .a = failalloc_of(&f), .world_size = 2, .n_local = 2, .is_root = true,
                                   .host = "n0", .node_id = 1, .host_rank = -1 };
        uint32_t n_dropped = 0;
        dtpi_core *c;

        assert_ok(dtpi_core_new(&o, &ops, &n_dropped, &c, ERR));
        f.n_allocs = 0;
        f.fail_at = n;
        newcomer_comes(c, 0);
        f.fail_at = 0;
        has_failed = f.has_failed;
        newcomer_comes(c, 1);
        assert_int_equal(dtpi_core_n_newcomers(c), 2 - n_dropped);
        dtpi_core_free(c);
        assert_int_equal(f.bytes_open, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_may_fail_on_the_agents_host),
        cmocka_unit_test(test_a_call_without_memory_fails_at_once),
        cmocka_unit_test(test_a_result_without_memory_is_no_broken_protocol),
        cmocka_unit_test(test_calls_that_end_without_memory_wait_for_the_next_generation),
        cmocka_unit_test(test_a_newcomer_without_room_is_told_and_the_next_may_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
