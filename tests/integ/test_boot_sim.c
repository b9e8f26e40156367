/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gangs in simulation, from processes to a barrier: few messages, few rounds, and the same words on all ranks
 * when some are missing. With DTP_TEST_LONG=1 more and larger ones.
 */
#include "check.h"

#include "sim/sim.h"

#define US 1000ll

static sim_opts opts_of(uint32_t n_ranks, uint32_t n_nodes, uint32_t radix)
{
    return (sim_opts){ .n_ranks = n_ranks, .n_nodes = n_nodes, .radix = radix, .n_cores = 8,
                       .timeout_ns = 2 * DTPI_NS_PER_S,
                       .net = { .latency_ns = 25 * US, .near_ns = 5 * US, .bytes_per_s = 3125000000,
                                .send_cpu_ns = 15 * US, .recv_cpu_ns = 15 * US } };
}

static uint32_t depth(uint32_t n, uint32_t radix)
{
    uint32_t levels = 0;

    for (uint64_t reach = 1, width = 1; reach < n; reach += width, levels++)
        width *= radix;
    return levels;
}

static bool is_long(void)
{
    const char *text = getenv("DTP_TEST_LONG");

    return text && text[0] == '1';
}

static void test_all_come_with_few_messages_in_few_rounds(void **state)
{
    static const uint32_t ranks[] = { 2, 3, 7, 31, 33, 64, 127, 251, 1023, 1025 };
    static const uint32_t per_node[] = { 1, 2, 8 }, radixes[] = { 2, 4, 32 };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(ranks); i++)
        for (size_t k = 0; k < DTPI_ARRAY_LEN(per_node); k++)
            for (size_t j = 0; j < DTPI_ARRAY_LEN(radixes); j++) {
                const uint32_t n = ranks[i], n_nodes = (n + per_node[k] - 1) / per_node[k];
                const sim_opts o = opts_of(n, n_nodes, radixes[j]);
                sim_result r;
                assert_ok(sim_run(&o, &r, ERR));
                for (uint32_t rank = 0; rank < n; rank++)
                    assert_int_equal(r.ranks[rank].status, DTP_OK);
                /* Up to the last level and back, and the ranks' own. */
                assert_in_range(r.join_rounds, 2, 2 * depth(n_nodes, radixes[j]) + 2);
                /* JOIN and WELCOME of each rank; NODE, rows and table of each agent. */
                assert_in_range(r.n_join_messages, 2 * n, 2 * n + 4 * (n_nodes - 1));
                assert_in_range(r.max_conns, 1, per_node[k] + radixes[j] + 1);
                sim_result_free(&r);
            }
}

/* Whatever the number of ranks: connections of an agent, messages and rounds stay within their bounds. */
static void test_every_number_of_ranks_keeps_the_bounds(void **state)
{
    static const uint32_t radixes[] = { 2, 4, 32 };
    const uint32_t step = is_long() ? 1 : 97;
    uint32_t turn = 0;

    (void)state;
    for (uint32_t n = 2; n <= 4096; n += n < 40 ? 1 : step, turn++) {
        const uint32_t n_nodes = (n + 7) / 8, radix = radixes[turn % 3];
        const sim_opts o = opts_of(n, n_nodes, radix);
        sim_result r;
        assert_ok(sim_run(&o, &r, ERR));
        assert_in_range(r.join_rounds, 2, 2 * depth(n_nodes, radix) + 2);
        assert_in_range(r.n_join_messages, 2 * n, 3 * n);
        assert_in_range(r.max_conns, 1, 8 + radix + 1);
        for (uint32_t rank = 0; rank < n; rank++)
            assert_int_equal(r.ranks[rank].status, DTP_OK);
        sim_result_free(&r);
    }
}

static void test_a_seed_gives_the_same_run_again(void **state)
{
    sim_opts o = opts_of(200, 25, 4);
    sim_result r[2];

    (void)state;
    o.net.seed = 77;
    o.net.jitter_ns = 40 * US;
    o.net.loss_ppm = 50000;
    o.net.resend_ns = 5000 * US;
    for (int i = 0; i < 2; i++)
        assert_ok(sim_run(&o, &r[i], ERR));
    assert_int_equal(r[0].total_ns, r[1].total_ns);
    assert_int_equal(r[0].n_events, r[1].n_events);
    for (int i = 0; i < 2; i++)
        sim_result_free(&r[i]);
}

static void test_all_name_the_same_missing_ranks(void **state)
{
    const uint64_t seed = check_seed();
    uint64_t random = seed;

    (void)state;
    for (int run = 0; run < (is_long() ? 300 : 20); run++) {
        const uint32_t n_nodes = 1 + (uint32_t)(check_random(&random) % 12);
        const uint32_t n = n_nodes * (1 + (uint32_t)(check_random(&random) % 6)) + 1;
        sim_opts o = opts_of(n, n_nodes, 2 + (uint32_t)(check_random(&random) % 4));
        sim_fault faults[4];
        sim_result r;
        uint64_t sum = 0;
        uint32_t n_failed = 0, n_heard = 0;
        o.faults = faults;
        o.n_faults = 1 + (uint32_t)(check_random(&random) % DTPI_MIN(4u, n - 1));
        o.net.seed = check_random(&random);
        o.net.jitter_ns = 20 * US;
        for (uint32_t i = 0; i < o.n_faults; i++)
            faults[i] = (sim_fault){ .what = SIM_STAYS_AWAY, .index = (uint32_t)(check_random(&random) % n) };
        assert_ok(sim_run(&o, &r, ERR));
        for (uint32_t i = 0; i < n; i++) {
            if (r.ranks[i].status == DTP_PENDING || r.ranks[i].status == DTP_ERR_CANCELED)
                continue;
            if (n_heard++ == 0) {
                sum = r.ranks[i].failed_sum;
                n_failed = r.ranks[i].n_failed;
            }
            if (r.ranks[i].status != DTP_ERR_PEER || r.ranks[i].failed_sum != sum ||
                r.ranks[i].end_ns > o.timeout_ns + 250000 * US)
                fail_msg("seed %llu, run %d: rank %u of %u: %s at %lld us", (unsigned long long)seed, run, i,
                         n, dtp_status_name(r.ranks[i].status), (long long)(r.ranks[i].end_ns / US));
        }
        assert_int_equal(n_failed, n - n_heard);
        sim_result_free(&r);
    }
}

/*
 * False with a line where one that is not lost saw something else than the others. Who was through before
 * would hear in its next call.
 */
static bool saw_the_same(const sim_result *r, const uint8_t *is_out, int64_t limit_ns)
{
    const sim_rank_result *first = NULL;

    for (uint32_t i = 0; i < r->n_ranks; i++) {
        const sim_rank_result *x = &r->ranks[i];
        if (is_out[i] || r->is_lost[i] || x->status == DTP_OK)
            continue;
        first = first ? first : x;
        if (x->status != first->status || x->failed_sum != first->failed_sum || x->end_ns > limit_ns) {
            print_message("rank %u of %u: %s (%u lost) at %lld us, others %s (%u lost): %s\n", i, r->n_ranks,
                          dtp_status_name(x->status), x->n_failed, (long long)(x->end_ns / US),
                          dtp_status_name(first->status), first->n_failed, r->text);
            return false;
        }
    }
    return true;
}

static void test_all_see_the_same_end_whoever_dies_or_stops(void **state)
{
    static const sim_what kinds[] = { SIM_RANK_DIES, SIM_RANK_STOPS, SIM_STAYS_AWAY, SIM_AGENT_DIES,
                                      SIM_NODE_IS_CUT };
    const uint64_t seed = check_seed();
    uint64_t random = seed;

    (void)state;
    for (int run = 0; run < (is_long() ? 10000 : 300); run++) {
        const uint32_t n_nodes = 2 + (uint32_t)(check_random(&random) % 12);
        const uint32_t per_node = 1 + (uint32_t)(check_random(&random) % 6), n = n_nodes * per_node;
        sim_opts o = opts_of(n, n_nodes, 2 + (uint32_t)(check_random(&random) % 4));
        uint8_t is_out[96] = { 0 };
        sim_fault faults[4];
        sim_result r;
        o.faults = faults;
        o.n_faults = 1 + (uint32_t)(check_random(&random) % 4);
        o.timeout_ns = 10 * DTPI_NS_PER_S;      /* longer than three heartbeats */
        o.net.seed = check_random(&random);
        o.net.jitter_ns = 40 * US;
        for (uint32_t i = 0; i < o.n_faults; i++) {
            sim_fault *f = &faults[i];
            f->what = kinds[check_random(&random) % 5];
            f->at_ns = (int64_t)(check_random(&random) % 2500) * US;
            f->index = (uint32_t)(check_random(&random) % n);
            /* The root's node is another story. */
            if (f->what == SIM_AGENT_DIES || f->what == SIM_NODE_IS_CUT) {
                f->index = 1 + (uint32_t)(check_random(&random) % (n_nodes - 1));
                memset(is_out + f->index * per_node, 1, per_node);
            } else {
                is_out[f->index] = 1;
            }
        }
        assert_ok(sim_run(&o, &r, ERR));
        if (!saw_the_same(&r, is_out, o.timeout_ns + 250000 * US)) {
            for (uint32_t i = 0; i < o.n_faults; i++)
                print_message("fault %d of %u at %lld us\n", faults[i].what, faults[i].index, (long long)(faults[i].at_ns / US));
            fail_msg("seed %llu, run %d: %u nodes of %u, radix %u", (unsigned long long)seed, run, n_nodes,
                     per_node, o.radix);
        }
        sim_result_free(&r);
    }
}

static void test_launchers_share_the_processors(void **state)
{
    sim_opts o = opts_of(64, 4, 4);
    sim_result r;

    (void)state;
    o.net.n_cores = 2;
    o.spawn_ns = 100 * US;
    o.exec_ns = 200 * US;
    o.link_ns = 300 * US;
    o.main_ns = 100 * US;
    assert_ok(sim_run(&o, &r, ERR));
    /* 700 us of 64 processes on two processors, and what their messages take. */
    assert_in_range(r.total_ns, 64 * 350 * US, 64 * 700 * US);
    assert_in_range(r.spawned_ns, 64 * 250 * US, r.joined_ns);
    sim_result_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_come_with_few_messages_in_few_rounds),
        cmocka_unit_test(test_every_number_of_ranks_keeps_the_bounds),
        cmocka_unit_test(test_a_seed_gives_the_same_run_again),
        cmocka_unit_test(test_all_name_the_same_missing_ranks),
        cmocka_unit_test(test_all_see_the_same_end_whoever_dies_or_stops),
        cmocka_unit_test(test_launchers_share_the_processors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
