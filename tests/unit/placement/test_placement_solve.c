/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/topo/facts.h"

#include <dtp/placement.h>

static dtp_placement_rank rank_of(const dtp_placement *p, uint32_t i)
{
    dtp_placement_rank rank = { .size = sizeof(rank) };

    assert_ok(dtp_placement_get(p, i, &rank, ERR));
    return rank;
}

static dtp_placement *solve(const dtp_topo *topo, dtp_placement_req req)
{
    dtp_placement *p = NULL;

    req.size = sizeof(req);
    assert_ok(dtp_placement_solve(topo, &req, &p, ERR));
    return p;
}

static dtp_status refuse(const dtp_topo *topo, dtp_placement_req req)
{
    dtp_placement *p = NULL;

    req.size = sizeof(req);
    const dtp_status st = dtp_placement_solve(topo, &req, &p, ERR);
    assert_null(p);
    return st;
}

static dtp_topo *cpus_only(uint32_t n_numa, uint32_t n_cores, uint32_t n_pus)
{
    facts f = facts_begin();

    facts_processors(&f, n_numa, n_cores, n_pus);
    return facts_end(&f);
}

static void test_cores_are_dealt_whole_and_inside_a_node(void **state)
{
    dtp_topo *topo = cpus_only(2, 4, 2);
    dtp_placement *p = solve(topo, (dtp_placement_req){ .n_ranks = 4 });

    (void)state;
    assert_string_equal(rank_of(p, 0).cpus, "0-1,8-9");
    assert_string_equal(rank_of(p, 1).cpus, "2-3,10-11");
    assert_string_equal(rank_of(p, 2).cpus, "4-5,12-13");
    assert_int_equal(rank_of(p, 2).numa, 1);
    assert_string_equal(rank_of(p, 2).gpus, "");
    assert_string_equal(rank_of(p, 2).nics, "");
    assert_int_equal(rank_of(p, 2).shares_cores, 0);
    dtp_placement_free(p);
    dtp_topo_close(topo);
}

static void test_a_rank_that_must_span_is_last_and_says_so(void **state)
{
    dtp_topo *topo = cpus_only(2, 5, 1);
    dtp_placement *p = solve(topo, (dtp_placement_req){ .n_ranks = 3, .cores_per_rank = 3 });

    (void)state;
    assert_string_equal(rank_of(p, 0).cpus, "0-2");
    assert_string_equal(rank_of(p, 1).cpus, "5-7");
    assert_string_equal(rank_of(p, 2).cpus, "3-4,8");
    assert_int_equal(rank_of(p, 2).numa, DTP_UNKNOWN);
    dtp_placement_free(p);
    dtp_topo_close(topo);
}

static void test_gpus_bring_their_node_and_nics(void **state)
{
    dtp_topo *topo = facts_gpu_machine();
    dtp_placement *p = solve(topo, (dtp_placement_req){ .n_ranks = 3, .gpus_per_rank = 1,
                                                        .cores_per_rank = 2 });

    (void)state;
    assert_string_equal(rank_of(p, 0).gpus, "0");
    assert_string_equal(rank_of(p, 0).cpus, "0-1");
    assert_string_equal(rank_of(p, 0).nics, "mlx5_0");
    assert_string_equal(rank_of(p, 1).gpus, "1");
    assert_string_equal(rank_of(p, 1).cpus, "2-3");
    assert_string_equal(rank_of(p, 1).nics, "mlx5_0");
    assert_string_equal(rank_of(p, 2).gpus, "2");
    assert_string_equal(rank_of(p, 2).cpus, "4-5");
    assert_string_equal(rank_of(p, 2).nics, "mlx5_1");
    dtp_placement_free(p);
    dtp_topo_close(topo);
}

static void test_busy_cores_and_gpus_are_left_alone(void **state)
{
    dtp_topo *topo = facts_gpu_machine();
    dtp_placement *p = solve(topo, (dtp_placement_req){ .n_ranks = 2, .gpus_per_rank = 1,
                                                        .busy_gpus = "0", .busy_cpus = "0-1,4" });

    (void)state;
    assert_string_equal(rank_of(p, 0).gpus, "1");
    assert_string_equal(rank_of(p, 0).cpus, "2-3");
    assert_string_equal(rank_of(p, 1).gpus, "2");
    assert_string_equal(rank_of(p, 1).cpus, "5-6");
    dtp_placement_free(p);
    dtp_topo_close(topo);
}

static void test_a_busy_pu_holds_its_core(void **state)
{
    dtp_topo *topo = cpus_only(1, 2, 2);
    dtp_placement *p = solve(topo, (dtp_placement_req){ .n_ranks = 1, .busy_cpus = "2" });

    (void)state;
    assert_string_equal(rank_of(p, 0).cpus, "1,3");
    dtp_placement_free(p);
    dtp_topo_close(topo);
}

static void test_the_cgroup_is_respected(void **state)
{
    facts f = facts_begin();

    (void)state;
    facts_processors(&f, 1, 4, 2);
    facts_view(&f, DTP_CPUS_ALLOWED, "1-2,5");
    dtp_topo *topo = facts_end(&f);
    dtp_placement *p = solve(topo, (dtp_placement_req){ .n_ranks = 2 });
    assert_string_equal(rank_of(p, 0).cpus, "1,5");
    assert_string_equal(rank_of(p, 1).cpus, "2");
    dtp_placement_free(p);
    assert_status(DTP_ERR_LIMIT, refuse(topo, (dtp_placement_req){ .n_ranks = 3 }));
    assert_text("3 ranks x 1 core need 3 cores, 2 are free (allowed 2, busy 0)");
    dtp_topo_close(topo);
}

static void test_too_few_cores_say_what_is_missing(void **state)
{
    dtp_topo *topo = cpus_only(2, 16, 1);

    (void)state;
    assert_status(DTP_ERR_LIMIT,
                  refuse(topo, (dtp_placement_req){ .n_ranks = 4, .cores_per_rank = 8,
                                                    .busy_cpus = "0-7" }));
    assert_text("4 ranks x 8 cores need 32 cores, 24 are free (allowed 32, busy 8)");
    dtp_topo_close(topo);
}

static void test_too_few_gpus_say_what_is_missing(void **state)
{
    dtp_topo *topo = facts_gpu_machine();

    (void)state;
    assert_status(DTP_ERR_LIMIT, refuse(topo, (dtp_placement_req){ .n_ranks = 1, .gpus_per_rank = 3,
                                                                   .busy_gpus = "2" }));
    assert_text("1 rank x 3 GPUs need 3 GPUs, 2 are free (present 3, busy 1)");
    dtp_topo_close(topo);
}

static void test_oversubscribed_ranks_share_evenly(void **state)
{
    dtp_topo *topo = cpus_only(2, 1, 1);
    dtp_placement *p = solve(topo, (dtp_placement_req){ .n_ranks = 4, .oversubscribe = 1 });

    (void)state;
    assert_string_equal(rank_of(p, 0).cpus, "0");
    assert_string_equal(rank_of(p, 1).cpus, "1");
    assert_string_equal(rank_of(p, 2).cpus, "0");
    assert_string_equal(rank_of(p, 3).cpus, "1");
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(rank_of(p, i).shares_cores, 1);
    dtp_placement_free(p);
    dtp_topo_close(topo);
}

static void test_more_cores_than_there_are_cannot_be_shared(void **state)
{
    dtp_topo *topo = cpus_only(1, 2, 1);

    (void)state;
    assert_status(DTP_ERR_LIMIT, refuse(topo, (dtp_placement_req){ .n_ranks = 1, .cores_per_rank = 3,
                                                                   .oversubscribe = 1 }));
    assert_status(DTP_ERR_LIMIT, refuse(topo, (dtp_placement_req){ .n_ranks = 1, .busy_cpus = "0-1",
                                                                   .oversubscribe = 1 }));
    dtp_topo_close(topo);
}

static void test_nics_that_are_down_are_not_named(void **state)
{
    facts f = facts_begin();
    dtpi_topo_fact nic = dtpi_topo_fact_of(DTP_TOPO_NIC);

    (void)state;
    facts_processors(&f, 2, 1, 1);
    nic.obj.numa = 0;
    nic.obj.name = "mlx5_0";
    nic.obj.port_state = 1;
    facts_add(&f, &nic, NULL);
    nic.obj.name = "mlx5_1";
    nic.obj.port_state = 4;
    facts_add(&f, &nic, NULL);
    nic.obj.name = "mlx5_2";
    nic.obj.usable = 2;
    facts_add(&f, &nic, NULL);
    nic.obj.name = "rxe0";
    nic.obj.numa = DTP_UNKNOWN;
    nic.obj.usable = 1;
    facts_add(&f, &nic, NULL);
    dtp_topo *topo = facts_end(&f);
    dtp_placement *p = solve(topo, (dtp_placement_req){ .n_ranks = 2 });
    assert_string_equal(rank_of(p, 0).nics, "mlx5_1");
    assert_string_equal(rank_of(p, 1).nics, "mlx5_1");
    dtp_placement_free(p);
    dtp_topo_close(topo);
}

static void test_pus_without_cores_are_dealt_alone(void **state)
{
    facts f = facts_begin();

    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        facts_cpu(&f, DTP_TOPO_PU, i, NULL);
    facts_cpu(&f, DTP_TOPO_NUMA, 0, "0-3");
    dtp_topo *topo = facts_end(&f);
    dtp_placement *p = solve(topo, (dtp_placement_req){ .n_ranks = 2 });
    assert_string_equal(rank_of(p, 1).cpus, "2-3");
    dtp_placement_free(p);
    dtp_topo_close(topo);
}

static void test_cores_without_processors_are_not_dealt(void **state)
{
    facts f = facts_begin();

    (void)state;
    facts_processors(&f, 1, 2, 1);
    facts_cpu(&f, DTP_TOPO_CORE, 7, "9");
    dtp_topo *topo = facts_end(&f);
    dtp_placement *p = solve(topo, (dtp_placement_req){ .n_ranks = 2 });
    assert_string_equal(rank_of(p, 0).cpus, "0");
    assert_string_equal(rank_of(p, 1).cpus, "1");
    dtp_placement_free(p);
    assert_status(DTP_ERR_LIMIT, refuse(topo, (dtp_placement_req){ .n_ranks = 3 }));
    dtp_topo_close(topo);
}

static void test_wrong_requests_are_refused(void **state)
{
    dtp_topo *topo = facts_gpu_machine();
    dtp_placement_rank rank = { .size = sizeof(rank) };

    (void)state;
    assert_status(DTP_ERR_INVAL, refuse(topo, (dtp_placement_req){ .n_ranks = 0 }));
    assert_status(DTP_ERR_INVAL, refuse(topo, (dtp_placement_req){ .n_ranks = UINT32_MAX }));
    assert_status(DTP_ERR_INVAL,
                  refuse(topo, (dtp_placement_req){ .n_ranks = 1, .gpus_per_rank = UINT32_MAX }));
    assert_status(DTP_ERR_FORMAT,
                  refuse(topo, (dtp_placement_req){ .n_ranks = 1, .busy_cpus = "0-" }));
    assert_text("busy_cpus '0-'");
    assert_status(DTP_ERR_INVAL,
                  refuse(topo, (dtp_placement_req){ .n_ranks = 1, .busy_gpus = "0,7" }));
    assert_text("GPU 7, there are 3");
    dtp_placement *p = solve(topo, (dtp_placement_req){ .n_ranks = 1 });
    assert_status(DTP_ERR_RANGE, dtp_placement_get(p, 1, &rank, ERR));
    dtp_placement_free(p);
    dtp_topo_close(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores_are_dealt_whole_and_inside_a_node),
        cmocka_unit_test(test_a_rank_that_must_span_is_last_and_says_so),
        cmocka_unit_test(test_gpus_bring_their_node_and_nics),
        cmocka_unit_test(test_busy_cores_and_gpus_are_left_alone),
        cmocka_unit_test(test_a_busy_pu_holds_its_core),
        cmocka_unit_test(test_the_cgroup_is_respected),
        cmocka_unit_test(test_too_few_cores_say_what_is_missing),
        cmocka_unit_test(test_too_few_gpus_say_what_is_missing),
        cmocka_unit_test(test_oversubscribed_ranks_share_evenly),
        cmocka_unit_test(test_more_cores_than_there_are_cannot_be_shared),
        cmocka_unit_test(test_nics_that_are_down_are_not_named),
        cmocka_unit_test(test_pus_without_cores_are_dealt_alone),
        cmocka_unit_test(test_cores_without_processors_are_not_dealt),
        cmocka_unit_test(test_wrong_requests_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
