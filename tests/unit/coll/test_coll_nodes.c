/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives across nodes over a group that this file plays itself: ranks are threads, nodes are sets of
 * them with shared memory of their own, messages are copies.
 */
#include "check.h"

#include <pthread.h>
#include <sched.h>

#include "coll/nodes.h"
#include "reference.h"

enum { MAX_RANKS = 16 };

/* ---- the group ---- */

struct message {
    bool is_set, is_sent;
    uint32_t tag;
    void *data;
    size_t bytes;
    dtpi_xfer *x;
    struct message *next;
};

struct dtp_group {
    int32_t rank, size;
    uint32_t n_nodes;
    const uint32_t *node_of;
};

static pthread_mutex_t wire_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct message *wires[MAX_RANKS][MAX_RANKS];    /* from, to: what waits for its counterpart */
static struct message *ended[MAX_RANKS];               /* by owner: what its thread is to hear of */

int32_t dtp_group_rank(const dtp_group *g)
{
    return g->rank;
}

int32_t dtp_group_size(const dtp_group *g)
{
    return g->size;
}

uint32_t dtpi_group_n_nodes(const dtp_group *g)
{
    return g->n_nodes;
}

uint32_t dtpi_group_node(const dtp_group *g, int32_t rank)
{
    return g->node_of[rank];
}

uint32_t dtpi_group_index_on_node(const dtp_group *g, int32_t rank)
{
    uint32_t index = 0;

    for (int32_t r = 0; r < rank; r++)
        index += g->node_of[r] == g->node_of[rank];
    return index;
}

uint32_t dtpi_group_n_on_node(const dtp_group *g, uint32_t node)
{
    uint32_t n = 0;

    for (int32_t r = 0; r < g->size; r++)
        n += g->node_of[r] == node;
    return n;
}

int32_t dtpi_group_rank_on_node(const dtp_group *g, uint32_t node, uint32_t index)
{
    for (int32_t r = 0; r < g->size; r++)
        if (g->node_of[r] == node && index-- == 0)
            return r;
    return -1;
}

dtp_ctx *dtpi_group_ctx(const dtp_group *g)
{
    static dtp_ctx *ctx;
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

    (void)g;
    pthread_mutex_lock(&mutex);
    if (!ctx && dtp_ctx_open(NULL, &ctx, NULL) < 0)
        abort();
    pthread_mutex_unlock(&mutex);
    return ctx;
}

dtp_status dtpi_group_data_open(dtp_group *g, int64_t deadline_ns, dtp_error *err)
{
    (void)g;
    (void)deadline_ns;
    (void)err;
    return DTP_OK;
}

/* Meets the other half of a transfer, or waits for it in the list. */
static dtp_status meet(int32_t from, int32_t to, bool is_send, uint32_t tag, void *data, size_t bytes,
                       dtpi_xfer *x)
{
    pthread_mutex_lock(&wire_mutex);
    struct message **p = &wires[from][to];
    while (*p && ((*p)->tag != tag || (*p)->is_sent == is_send))
        p = &(*p)->next;
    struct message *m = *p;
    if (m) {
        void *dst = is_send ? m->data : data, *src = is_send ? data : m->data;
        const dtp_status st = m->bytes == bytes ? DTP_OK : DTP_ERR_PROTO;
        if (st == DTP_OK)
            memcpy(dst, src, bytes);
        *p = m->next;
        x->status = m->x->status = st;
        x->done = true;
        const int32_t owner = is_send ? to : from;
        m->next = ended[owner];
        ended[owner] = m;
    } else {
        m = calloc(1, sizeof(*m));
        *m = (struct message){ .is_sent = is_send, .tag = tag, .data = data, .bytes = bytes, .x = x };
        while (*p)
            p = &(*p)->next;
        *p = m;
    }
    pthread_mutex_unlock(&wire_mutex);
    return DTP_OK;
}

dtp_status dtpi_group_send(dtp_group *g, int32_t to, uint32_t tag, const void *data, size_t bytes,
                           dtpi_xfer *x, dtp_error *err)
{
    (void)err;
    return meet(g->rank, to, true, tag, (void *)(uintptr_t)data, bytes, x);
}

dtp_status dtpi_group_recv(dtp_group *g, int32_t from, uint32_t tag, void *data, size_t bytes,
                           dtpi_xfer *x, dtp_error *err)
{
    (void)err;
    return meet(from, g->rank, false, tag, data, bytes, x);
}

/* A transfer ends on the thread of its owner, as with a worker. */
bool dtpi_group_data_progress(dtp_group *g)
{
    pthread_mutex_lock(&wire_mutex);
    struct message *m = ended[g->rank];
    ended[g->rank] = NULL;
    pthread_mutex_unlock(&wire_mutex);
    const bool any = m != NULL;
    while (m) {
        struct message *next = m->next;
        m->x->done = true;
        free(m);
        m = next;
    }
    return any;
}

/* Forgets what this rank has on its wires. */
void dtpi_group_data_cancel(dtp_group *g)
{
    pthread_mutex_lock(&wire_mutex);
    for (int32_t other = 0; other < g->size; other++)
        for (int i = 0; i < 2; i++) {
            struct message **p = i ? &wires[g->rank][other] : &wires[other][g->rank];
            while (*p) {
                struct message *m = *p;
                if (m->is_sent != (i == 1)) {
                    p = &m->next;
                    continue;
                }
                *p = m->next;
                free(m);
            }
        }
    pthread_mutex_unlock(&wire_mutex);
}

/* ---- ranks as threads ---- */

typedef struct rank_of_test {
    dtp_group group;
    void *memory;               /* of its node */
    int (*fn)(struct rank_of_test *t);
    dtpi_shm shm;
    dtpi_nodes *nodes;
    int32_t ranks[MAX_RANKS];
    int failed;
} rank_of_test;

static dtp_status run(rank_of_test *t, const dtpi_coll_call *call, int timeout_ms, dtp_error *err)
{
    dtpi_shm_wait w = { .timeout_ms = timeout_ms };
    struct timespec ts;

    dtp_status st = dtpi_nodes_begin(t->nodes, call, err);
    while (st >= 0 && (st = dtpi_nodes_step(t->nodes, err)) == DTP_PENDING) {
        clock_gettime(CLOCK_MONOTONIC, &ts);
        st = dtpi_nodes_look(t->nodes, &w, ts.tv_sec * DTPI_NS_PER_S + ts.tv_nsec, err);
        sched_yield();
    }
    return st;
}

static void *run_rank(void *user)
{
    rank_of_test *t = user;
    const uint32_t node = t->group.node_of[t->group.rank];
    const uint32_t n = dtpi_group_n_on_node(&t->group, node);
    dtp_error err;

    for (uint32_t i = 0; i < n; i++)
        t->ranks[i] = dtpi_group_rank_on_node(&t->group, node, i);
    const dtpi_shm_opts o = { .memory = t->memory, .bytes = dtpi_shm_bytes(n), .n = n,
                              .index = dtpi_group_index_on_node(&t->group, t->group.rank),
                              .ranks = t->ranks, .allocator = &dtpi_malloc_allocator };
    t->failed = 1;
    if (dtpi_shm_attach(&t->shm, &o, &err) < 0 ||
        dtpi_nodes_open(&t->group, &t->shm, INT64_MAX, &t->nodes, &err) < 0)
        return NULL;
    t->failed = t->fn(t);
    dtpi_nodes_free(t->nodes);
    dtpi_shm_detach(&t->shm);
    return NULL;
}

/* Exactly what a node needs, so that a sanitizer sees a step outside. */
static void *node_memory(const char *layout, uint32_t node)
{
    uint32_t n = 0;

    for (const char *p = layout; *p; p++)
        n += (uint32_t)(*p - 'a') == node;
    void *p = aligned_alloc(4096, dtpi_shm_bytes(n));
    if (!p)
        abort();
    return memset(p, 0, dtpi_shm_bytes(n));
}

static int run_layout(const char *layout, int (*fn)(rank_of_test *t))
{
    static uint32_t node_of[MAX_RANKS];
    static rank_of_test tests[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    void *memory[MAX_RANKS] = { 0 };
    const int32_t n = (int32_t)strlen(layout);
    uint32_t n_nodes = 0;
    int failed = 0;

    for (int32_t r = 0; r < n; r++) {
        node_of[r] = (uint32_t)(layout[r] - 'a');
        n_nodes = DTPI_MAX(n_nodes, node_of[r] + 1);
    }
    for (uint32_t i = 0; i < n_nodes; i++)
        memory[i] = node_memory(layout, i);
    for (int32_t r = 0; r < n; r++) {
        tests[r] = (rank_of_test){ .group = { r, n, n_nodes, node_of }, .memory = memory[node_of[r]],
                                   .fn = fn };
        pthread_create(&threads[r], NULL, run_rank, &tests[r]);
    }
    for (int32_t r = 0; r < n; r++) {
        pthread_join(threads[r], NULL);
        failed += tests[r].failed;
    }
    for (uint32_t i = 0; i < n_nodes; i++)
        free(memory[i]);
    /* Whoever is freed has nothing under way any more. */
    for (int i = 0; i < MAX_RANKS * MAX_RANKS; i++)
        failed += wires[i / MAX_RANKS][i % MAX_RANKS] != NULL;
    return failed;
}

/* ---- results ---- */

#define FAIL(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), 1)

static int check_call(rank_of_test *t, dtpi_coll_kind kind, dtp_dtype type, dtp_redop op, size_t count,
                      uint64_t seed)
{
    const size_t bytes = dtp_dtype_bytes(type), world = (size_t)t->group.size;
    const size_t n_in = kind == DTPI_REDUCE_SCATTER ? count * world : count;
    const size_t n_out = kind == DTPI_ALLGATHER ? count * world : count;
    const int32_t root = kind == DTPI_BROADCAST ? (int32_t)(seed % world) : 0;
    char *in = malloc(n_in * bytes + 1), *out = kind == DTPI_BROADCAST ? in : malloc(n_out * bytes + 1);
    const dtpi_coll_call call = { kind, type, op, root, count, in, out };
    const size_t first = kind == DTPI_REDUCE_SCATTER ? (size_t)t->group.rank * count : 0;
    dtp_error err;
    int failed = 0;

    for (size_t i = 0; i < n_in; i++)
        ref_input(type, seed, (uint32_t)t->group.rank, i, in + i * bytes);
    if (run(t, &call, 30000, &err) != DTP_OK)
        failed = FAIL("rank %d: %s", t->group.rank, err.text);
    for (size_t i = 0; i < n_out && !failed; i++) {
        uint64_t want = 0;
        if (kind == DTPI_ALLGATHER)
            ref_input(type, seed, (uint32_t)(i / count), i % count, &want);
        else if (kind == DTPI_BROADCAST)
            ref_input(type, seed, (uint32_t)root, i, &want);
        else
            ref_expect(type, op, seed, (uint32_t)world, first + i, &want);
        if (memcmp(&want, out + i * bytes, bytes) != 0)
            failed = FAIL("kind %d %s op %d of %zu: rank %d, element %zu differs", kind,
                          dtp_dtype_name(type), op, count, t->group.rank, i);
    }
    free(in);
    if (out != in)
        free(out);
    return failed;
}

static int all_calls(rank_of_test *t)
{
    static const size_t counts[] = { 0, 1, 5, 257, 4099 };
    uint64_t seed = 1;
    int failed = 0;

    for (size_t c = 0; c < DTPI_ARRAY_LEN(counts) && !failed; c++)
        for (int k = 0; k < REF_N_TYPES && !failed; k++) {
            for (int o = 0; o < REF_N_OPS && !failed; o++)
                failed = check_call(t, DTPI_ALLREDUCE, ref_types[k], ref_ops[o], counts[c], seed++);
            const dtp_redop op = ref_ops[(c + (size_t)k) % REF_N_OPS];
            failed = failed || check_call(t, DTPI_REDUCE_SCATTER, ref_types[k], op, counts[c], seed++) ||
                     check_call(t, DTPI_ALLGATHER, ref_types[k], DTP_SUM, counts[c], seed++) ||
                     check_call(t, DTPI_BROADCAST, ref_types[k], DTP_SUM, counts[c], seed++);
        }
    return failed;
}

static int long_calls(rank_of_test *t)
{
    return check_call(t, DTPI_ALLREDUCE, DTP_F32, DTP_SUM, 300001, 3) ||
           check_call(t, DTPI_ALLREDUCE, DTP_BF16, DTP_AVG, 300001, 4) ||
           check_call(t, DTPI_REDUCE_SCATTER, DTP_F16, DTP_SUM, 100003, 5) ||
           check_call(t, DTPI_ALLGATHER, DTP_F64, DTP_SUM, 50001, 6) ||
           check_call(t, DTPI_BROADCAST, DTP_I64, DTP_SUM, 150001, 7) ||
           check_call(t, DTPI_BROADCAST, DTP_F64, DTP_SUM, 70001, 5) ||
           check_call(t, DTPI_BROADCAST, DTP_F64, DTP_SUM, 70001, 6);
}

static void test_every_layout_gives_the_bits_of_one_machine(void **state)
{
    static const char *const layouts[] = { "aabb", "aaab", "abbb", "abab", "ab", "abc", "aaabbcc",
                                           "abcabcab" };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(layouts); i++)
        assert_int_equal(run_layout(layouts[i], all_calls), 0);
}

static void test_rounds_follow_each_other(void **state)
{
    (void)state;
    assert_int_equal(run_layout("aabb", long_calls), 0);
    assert_int_equal(run_layout("aaab", long_calls), 0);
}

static int different_calls(rank_of_test *t)
{
    static float in[64], out[MAX_RANKS][64];
    dtpi_coll_call call = { DTPI_ALLREDUCE, DTP_F32, DTP_SUM, 0, 10, in, out[t->group.rank] };
    dtp_error err;

    call.count = t->group.rank == 3 ? 11 : 10;
    if (run(t, &call, 30000, &err) != DTP_ERR_INVAL || err.rank != 3 ||
        !strstr(err.text, "rank 0 allreduce of 10 f32 sum, rank 3 allreduce of 11 f32 sum"))
        return FAIL("rank %d: %s", t->group.rank, err.text);
    return check_call(t, DTPI_ALLREDUCE, DTP_F32, DTP_SUM, 100, 9);
}

static void test_a_different_call_is_named_on_every_node(void **state)
{
    (void)state;
    assert_int_equal(run_layout("aabb", different_calls), 0);
    assert_int_equal(run_layout("abbb", different_calls), 0);
}

static int missing_node(rank_of_test *t)
{
    static float in[1], out[MAX_RANKS];
    const dtpi_coll_call call = { DTPI_ALLREDUCE, DTP_F32, DTP_SUM, 0, 1, in, &out[t->group.rank] };
    dtp_error err;

    if (t->group.rank >= 2)
        return 0;
    const dtp_status st = run(t, &call, t->group.rank == 0 ? 700 : 10000, &err);
    if (t->group.rank == 0)
        return st == DTP_ERR_TIMEOUT && strstr(err.text, "rank 2 on other nodes") ? 0 : FAIL("%s", err.text);
    return st == DTP_ERR_PEER && err.rank == 0 ? 0 : FAIL("%s", err.text);
}

static void test_a_node_that_does_not_come_is_named(void **state)
{
    (void)state;
    assert_int_equal(run_layout("aab", missing_node), 0);
}

static void test_a_world_without_room_for_its_results_is_refused(void **state)
{
    dtp_group group = { .size = DTPI_NODES_MAX_RANKS + 1 };
    dtpi_nodes *nodes;
    dtpi_shm shm;

    (void)state;
    assert_status(DTP_ERR_LIMIT, dtpi_nodes_open(&group, &shm, INT64_MAX, &nodes, ERR));
    assert_string_equal(check_err.text,
                        "a group of 16385 ranks on several nodes: collectives reach 16384");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layout_gives_the_bits_of_one_machine),
        cmocka_unit_test(test_rounds_follow_each_other),
        cmocka_unit_test(test_a_different_call_is_named_on_every_node),
        cmocka_unit_test(test_a_node_that_does_not_come_is_named),
        cmocka_unit_test(test_a_world_without_room_for_its_results_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
