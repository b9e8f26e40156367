/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_placement_exact.c - random small machines: the number of ranks that span NUMA nodes is compared
 * with that of a search over every way of dealing, and no core or GPU is dealt twice.
 */
#include "unit/topo/facts.h"

#include <dtp/placement.h>

enum { MAX_NODES = 3 };

typedef struct machine {
    uint32_t n_nodes;
    uint32_t cores[MAX_NODES], gpus[MAX_NODES];
} machine;

static uint32_t best_of(machine *m, uint32_t ranks, uint32_t c, uint32_t g);

/* All ways of taking c cores and g GPUs for one rank, from `node` on; the fewest spanning ranks. */
static uint32_t try_shares(machine *m, uint32_t node, uint32_t c, uint32_t g, uint32_t touched,
                           uint32_t ranks, uint32_t all_c, uint32_t all_g)
{
    uint32_t best = UINT32_MAX;

    if (node == m->n_nodes) {
        if (c || g)
            return UINT32_MAX;
        const uint32_t rest = best_of(m, ranks - 1, all_c, all_g);
        return rest == UINT32_MAX ? rest : rest + (touched > 1);
    }
    for (uint32_t x = 0; x <= c && x <= m->cores[node]; x++)
        for (uint32_t y = 0; y <= g && y <= m->gpus[node]; y++) {
            m->cores[node] -= x;
            m->gpus[node] -= y;
            const uint32_t got = try_shares(m, node + 1, c - x, g - y, touched + (x || y), ranks,
                                            all_c, all_g);
            best = DTPI_MIN(best, got);
            m->cores[node] += x;
            m->gpus[node] += y;
        }
    return best;
}

static uint32_t best_of(machine *m, uint32_t ranks, uint32_t c, uint32_t g)
{
    return ranks ? try_shares(m, 0, c, g, 0, ranks, c, g) : 0;
}

static dtp_topo *build(const machine *m)
{
    facts f = facts_begin();
    uint32_t cpu = 0, gpu = 0;

    for (uint32_t k = 0; k < m->n_nodes; k++) {
        char node[32], one[16];
        snprintf(node, sizeof(node), "%u-%u", cpu, cpu + m->cores[k] - 1);
        for (uint32_t i = 0; i < m->cores[k]; i++, cpu++) {
            snprintf(one, sizeof(one), "%u", cpu);
            facts_cpu(&f, DTP_TOPO_PU, cpu, NULL);
            facts_cpu(&f, DTP_TOPO_CORE, i, one);
        }
        facts_cpu(&f, DTP_TOPO_NUMA, k, node);
        for (uint32_t i = 0; i < m->gpus[k]; i++) {
            dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_GPU);
            char pci[32];
            snprintf(pci, sizeof(pci), "0000:%02x:00.0", ++gpu);
            fact.obj.pci = pci;
            fact.obj.numa = k;
            facts_add(&f, &fact, NULL);
        }
    }
    return facts_end(&f);
}

static void take(dtpi_cpuset *taken, const char *list, uint32_t n)
{
    dtpi_cpuset set;

    assert_ok(dtpi_cpuset_parse(list, &set, ERR));
    assert_int_equal(dtpi_cpuset_count(&set), n);
    assert_false(dtpi_cpuset_intersects(taken, &set));
    dtpi_cpuset_or(taken, &set);
}

static void compare(machine *m, uint32_t ranks, uint32_t c, uint32_t g)
{
    const uint32_t best = best_of(m, ranks, c, g);
    dtp_topo *topo = build(m);
    dtp_placement *p = NULL;
    const dtp_placement_req req = { .size = sizeof(req), .n_ranks = ranks, .cores_per_rank = c,
                                    .gpus_per_rank = g };
    const dtp_status st = dtp_placement_solve(topo, &req, &p, ERR);

    assert_int_equal(st, best == UINT32_MAX ? DTP_ERR_LIMIT : DTP_OK);
    if (st == DTP_OK) {
        dtpi_cpuset cpus = { 0 }, gpus = { 0 };
        uint32_t spanning = 0;
        for (uint32_t i = 0; i < ranks; i++) {
            dtp_placement_rank rank = { .size = sizeof(rank) };
            assert_ok(dtp_placement_get(p, i, &rank, ERR));
            take(&cpus, rank.cpus, c);
            take(&gpus, rank.gpus, g);
            spanning += rank.numa == DTP_UNKNOWN;
        }
        assert_int_equal(spanning, best);
    }
    dtp_placement_free(p);
    dtp_topo_close(topo);
}

static void test_as_few_ranks_span_as_any_way_allows(void **state)
{
    uint64_t seed = check_seed();

    (void)state;
    for (int round = 0; round < 300; round++) {
        machine m = { .n_nodes = 1 + (uint32_t)(check_random(&seed) % MAX_NODES) };
        for (uint32_t k = 0; k < m.n_nodes; k++) {
            m.cores[k] = 1 + (uint32_t)(check_random(&seed) % 4);
            m.gpus[k] = (uint32_t)(check_random(&seed) % 3);
        }
        compare(&m, 1 + (uint32_t)(check_random(&seed) % 3), 1 + (uint32_t)(check_random(&seed) % 3),
                (uint32_t)(check_random(&seed) % 3));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_few_ranks_span_as_any_way_allows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
