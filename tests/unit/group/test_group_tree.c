/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of the tree of agents, and what a start costs in it, in simulation.
 *
 * Counted is what makes the table: JOIN and WELCOME of a rank, two a rank; NODE, ROWS and the parts of
 * TABLE between agents, three and a few more a node. Not handshakes and what follows the table. With
 * nodes of one rank N ranks are N nodes too, so that a rank has its own two beside the three of its node.
 */
#include "check.h"

#include "group/core_internal.h"
#include "group/tree.h"
#include "sim/sim.h"

/* ---- shape ---- */

static void test_parents_and_children_agree(void **state)
{
    (void)state;
    for (uint32_t radix = 2; radix <= DTPI_TREE_MAX_RADIX; radix += 5)
        for (uint32_t n = 1; n < 300; n++) {
            uint32_t n_seen = 0;
            for (uint32_t i = 0; i < n; i++)
                n_seen += dtpi_tree_n_children(i, n, radix);
            assert_int_equal(n_seen, n - 1);
            for (uint32_t i = 1; i < n; i++) {
                const uint32_t p = dtpi_tree_parent(i, radix);
                assert_true(i - (p * radix + 1) < dtpi_tree_n_children(p, n, radix));
            }
        }
    assert_int_equal(dtpi_tree_depth(1, 4), 0);
    assert_int_equal(dtpi_tree_depth(5, 4), 1);
    assert_int_equal(dtpi_tree_depth(6, 4), 2);
    assert_int_equal(dtpi_tree_n_children(UINT32_MAX / 2, UINT32_MAX, 32), 0);
}

static void test_the_radix_fits_the_payload(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= DTPI_WORLD_MAX; n *= 2) {
        const uint32_t radix = dtpi_tree_radix(n, n);
        assert_in_range(radix, DTPI_TREE_MIN_RADIX, DTPI_TREE_MAX_RADIX);
    }
    /* Few nodes need no levels; a large table is not sent often by one. */
    assert_int_equal(dtpi_tree_depth(5, dtpi_tree_radix(40, 5)), 1);
    assert_true(dtpi_tree_radix(1 << 20, 1 << 17) <= 8);
}

/* ---- what an agent keeps of ranks ---- */

static void test_ranks_below_are_kept_sparsely_in_order(void **state)
{
    enum { N = 3000, WORLD = 1 << 24 };
    static int32_t ranks[N];
    uint64_t seed = check_seed();
    struct core_below b = { .a = &dtpi_malloc_allocator };

    (void)state;
    for (int i = 0; i < N; i++) {
        /* Blocks, and scattered ones. */
        ranks[i] = i < N / 2 ? 777777 + i : (int32_t)(check_random(&seed) % WORLD);
        uint32_t *cell = core_cell_for(&b, ranks[i]);
        assert_non_null(cell);
        *cell |= CORE_KNOWN | (i % 2 ? CORE_DEAD : 0u);
    }
    for (int i = 0; i < N; i++)
        assert_true(core_cell(&b, ranks[i]) & CORE_KNOWN);
    assert_int_equal(core_cell(&b, 777776 - CORE_PAGE_RANKS), 0);
    int32_t last = -1;
    uint32_t n = 0;
    for (int32_t at = core_next_cell(&b, -1, CORE_KNOWN); at >= 0;
         at = core_next_cell(&b, at, CORE_KNOWN)) {
        assert_true(at > last);
        last = at;
        n++;
    }
    assert_in_range(n, N - 10, N);
    core_below_free(&b);
}

/* ---- what a start costs ---- */

static sim_result run(uint32_t n_ranks, uint32_t ppn, uint32_t radix)
{
    const sim_opts o = { .n_ranks = n_ranks, .n_nodes = (n_ranks + ppn - 1) / ppn, .radix = radix,
                         .net = { .seed = 1, .latency_ns = 25000, .near_ns = 5000,
                                  .bytes_per_s = 3125000000, .send_cpu_ns = 15000,
                                  .recv_cpu_ns = 15000 },
                         .n_cores = 8, .timeout_ns = 60 * DTPI_NS_PER_S };
    sim_result r;

    assert_ok(sim_run(&o, &r, ERR));
    for (uint32_t i = 0; i < n_ranks; i++)
        assert_int_equal(r.ranks[i].status, DTP_OK);
    return r;
}

/* The least d with radix^d >= n. */
static uint32_t log_ceil(uint32_t n, uint32_t radix)
{
    uint32_t d = 0;

    for (uint64_t power = 1; power < n; power *= radix)
        d++;
    return d;
}

static void check_start(uint32_t n, uint32_t ppn, uint32_t radix)
{
    sim_result r = run(n, ppn, radix);
    const uint32_t n_nodes = (n + ppn - 1) / ppn;
    const uint64_t limit = 2ull * n + 3ull * n_nodes + 2ull * (n_nodes / radix + 1);

    if (r.n_join_messages > limit)
        fail_msg("%u ranks, %u a node, radix %u: %llu messages", n, ppn, radix,
                 (unsigned long long)r.n_join_messages);
    /* Up and down the tree, and of a rank to its agent and back. */
    if (r.join_rounds > 2 * log_ceil(n, radix) + 2)
        fail_msg("%u ranks, %u a node, radix %u: %u rounds", n, ppn, radix, r.join_rounds);
    if (r.max_conns > 2 * ppn + radix + 8)
        fail_msg("%u ranks, %u a node, radix %u: %u connections", n, ppn, radix, r.max_conns);
    sim_result_free(&r);
}

static void test_messages_rounds_and_connections_stay_few(void **state)
{
    static const uint32_t quick[] = { 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 61, 63, 64, 65, 127,
                                      255, 256, 257, 509, 1023, 1024, 1025, 2039, 4093, 4095, 4096 };
    static const uint32_t ppns[] = { 1, 2, 8 }, radices[] = { 2, 4, 32 };

    (void)state;
    for (size_t p = 0; p < 3; p++)
        for (size_t i = 0; i < 3; i++)
            for (size_t k = 0; k < DTPI_ARRAY_LEN(quick); k++)
                if (quick[k] <= 130 || (p == 2 && i == 1) || check_is_long())
                    check_start(quick[k], ppns[p], radices[i]);
    for (uint32_t n = 1; check_is_long() && n <= 4096; n++)
        check_start(n, 8, 32);
}

static void test_a_table_of_several_parts_costs_little_more(void **state)
{
    sim_result r = run(40000, 8, 8);

    (void)state;
    assert_true(r.n_join_messages <= 3 * 40000);
    sim_result_free(&r);
}

/* ---- the table of two agents with many ranks ---- */

enum { PAIR_LOCAL = 20000, PAIR_MAX = 64 };

struct pair {
    dtpi_core *cores[2];        /* root, child */
    dtpi_msg *queue[PAIR_MAX];
    int to[PAIR_MAX];
    int n, n_done;
    bool has_table[2];
};

struct pair_agent {
    struct pair *pair;
    int index;
};

static void pair_push(struct pair *p, int to, dtpi_msg *m)
{
    assert_true(p->n < PAIR_MAX);
    p->to[p->n] = to;
    p->queue[p->n++] = dtpi_msg_ref(m);
}

static void pair_to_local(void *user, uint32_t slot, dtpi_msg *m)
{
    (void)user;
    (void)slot;
    (void)m;
}

static void pair_to_child(void *user, uint32_t slot, dtpi_msg *m)
{
    (void)slot;
    pair_push(((struct pair_agent *)user)->pair, 1, m);
}

static void pair_to_parent(void *user, dtpi_msg *m)
{
    pair_push(((struct pair_agent *)user)->pair, 0, m);
}

static void pair_table(void *user)
{
    struct pair_agent *a = user;

    a->pair->has_table[a->index] = true;
}

static void pair_verdict(void *user, const dtpi_verdict *v)
{
    (void)user;
    fail_msg("%s", v->text);
}

static void pair_drop(void *user, uint32_t slot)
{
    (void)user;
    fail_msg("slot %u is dropped", slot);
}

static const dtpi_core_ops pair_ops = { .to_local = pair_to_local, .to_child = pair_to_child,
                                        .to_parent = pair_to_parent, .table = pair_table,
                                        .verdict = pair_verdict, .drop_local = pair_drop,
                                        .drop_child = pair_drop };

/* Ranks alternate between the two, so that nothing is a range. */
static void pair_join(dtpi_core *core, int index)
{
    for (uint32_t slot = 0; slot < PAIR_LOCAL; slot++) {
        const int32_t rank = (int32_t)(2 * slot) + index;
        dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
        const dtpi_frame f = { .type = DTPI_F_JOIN, .generation = 1, .group = DTPI_WORLD_ID,
                               .rank = rank };
        dtpi_frame_begin(&b, &f);
        dtpi_wr_u32(&b, 2 * PAIR_LOCAL);
        dtpi_wr_u32(&b, slot);
        dtpi_wr_u32(&b, 7);
        dtpi_core_local_open(core, slot, rank, 100000 + rank, 0);
        dtpi_core_local_msg(core, slot, &(dtpi_in){ .data = b.data, .bytes = b.len }, 0);
        dtpi_buf_free(&b);
    }
}

static void pair_run(struct pair *p)
{
    for (; p->n_done < p->n; p->n_done++) {
        dtpi_msg *m = p->queue[p->n_done];
        const dtpi_in in = { .data = m->buf.data, .bytes = m->buf.len, .msg = m };
        assert_true(m->buf.len <= DTPI_LINK_MAX_FRAME);
        if (p->to[p->n_done] == 0)
            dtpi_core_child_msg(p->cores[0], 0, &in, 0);
        else
            dtpi_core_parent_msg(p->cores[1], &in, 0);
        dtpi_msg_unref(m);
    }
}

static void test_a_table_of_several_parts_is_the_same_everywhere(void **state)
{
    struct pair p = { .n = 0 };
    struct pair_agent agents[2] = { { &p, 0 }, { &p, 1 } };
    uint32_t n;

    (void)state;
    for (int i = 0; i < 2; i++) {
        const dtpi_core_opts o = { .a = &dtpi_malloc_allocator, .world_size = 2 * PAIR_LOCAL,
                                   .n_local = PAIR_LOCAL, .is_root = i == 0,
                                   .host = i ? "second" : "first", .node_id = 10 + (uint64_t)i,
                                   .host_rank = -1, .n_children_plus_1 = 2 - (uint32_t)i };
        assert_ok(dtpi_core_new(&o, &pair_ops, &agents[i], &p.cores[i], ERR));
    }
    dtpi_core_child_open(p.cores[0], 0, 0);
    dtpi_core_set_addresses(p.cores[1], "10.0.0.2:1");
    dtpi_core_parent_open(p.cores[1], 0);
    pair_join(p.cores[1], 1);
    pair_join(p.cores[0], 0);
    pair_run(&p);
    assert_true(p.has_table[0] && p.has_table[1]);
    assert_true(p.cores[1]->n_parts > 2);
    for (int i = 0; i < 2; i++)
        for (int32_t rank = 0; rank < 2 * PAIR_LOCAL; rank++) {
            dtpi_row row;
            dtpi_node node;
            assert_true(dtpi_core_row(p.cores[i], rank, &row));
            assert_true(row.node == (uint32_t)rank % 2 && row.local_rank == (uint32_t)rank / 2 &&
                        row.pid == 100000 + rank);
            assert_true(dtpi_core_node(p.cores[i], row.node, &node));
            assert_string_equal(node.host, rank % 2 ? "second" : "first");
            const uint8_t *raw = dtpi_core_rows(p.cores[i], (uint32_t)rank, &n);
            assert_true(raw && raw[0] == rank % 2 && n > 0 && n <= 2 * PAIR_LOCAL - (uint32_t)rank);
        }
    dtpi_standby standbys[DTPI_STANDBYS];
    assert_int_equal(dtpi_core_standbys(p.cores[1], standbys), 1);
    assert_string_equal(standbys[0].addresses, "10.0.0.2:1");
    assert_false(dtpi_core_row(p.cores[0], 2 * PAIR_LOCAL, &(dtpi_row){ 0 }));
    for (int i = 0; i < 2; i++)
        dtpi_core_free(p.cores[1 - i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parents_and_children_agree),
        cmocka_unit_test(test_the_radix_fits_the_payload),
        cmocka_unit_test(test_ranks_below_are_kept_sparsely_in_order),
        cmocka_unit_test(test_messages_rounds_and_connections_stay_few),
        cmocka_unit_test(test_a_table_of_several_parts_is_the_same_everywhere),
        cmocka_unit_test(test_a_table_of_several_parts_costs_little_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
