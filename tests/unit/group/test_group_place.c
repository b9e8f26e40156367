/* SPDX-License-Identifier: Apache-2.0 */
/* Where an agent belongs in the tree: given by the root, by the options, or none. */
#include "unit/group/nodes.h"

static void test_nodes_form_a_tree_of_small_radix(void **state)
{
    static const char *const layouts[] = { "2222", "1111111", "112112112", "1111111111111111" };

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct nodes w = nodes_of(layouts[i], all_calls);
        int64_t *at_ns = w.at_ns;
        w.radix = 2;
        w.keeps_at = true;
        run_nodes(&w, -1);
        assert_int_equal(at_ns[101], 1);        /* somebody below the root has children */
        munmap(at_ns, 4096);
    }
}

static void test_who_does_not_reach_its_parent_is_given_another(void **state)
{
    struct nodes w = nodes_of("212", all_calls);

    (void)state;
    w.radix = 4;
    w.parent = "127.0.0.1:1";           /* nobody listens there */
    run_nodes(&w, -1);
}

static void test_a_place_that_is_none_is_refused(void **state)
{
    static const struct {
        uint32_t node, n_nodes, radix;
        const char *text;
    } bad[] = { { 0, 0, 33, "radix 33: 1 to 32" }, { 0, 0, (uint32_t)-4, "radix -4" },
                { 2, 2, 0, "node 2 of 2" }, { 0, 9, 0, "node 0 of 9 in a group of 8" } };
    dtpi_agent *agent;
    dtp_ctx *ctx;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    for (size_t i = 0; i < DTPI_ARRAY_LEN(bad); i++) {
        const dtpi_agent_opts o = { .world_size = 8, .n_local = 4, .socket = "@dtp-test-place",
                                    .node = bad[i].node, .n_nodes = bad[i].n_nodes,
                                    .radix = bad[i].radix };
        assert_status(DTP_ERR_RANGE, dtpi_agent_open(ctx, &o, &agent, ERR));
        assert_non_null(strstr(check_err.text, bad[i].text));
    }
    dtp_ctx_close(ctx);
}

static void test_an_agent_is_reached_where_it_was_told_to_listen(void **state)
{
    char where[40];
    dtpi_agent *agent;
    dtp_ctx *ctx;

    (void)state;
    snprintf(where, sizeof(where), "127.0.0.1:%u", ranks_free_port());
    const dtpi_agent_opts o = { .world_size = 8, .n_local = 4, .socket = "@dtp-test-where", .is_root = true,
                                .listens = true, .listen = where };
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtpi_agent_open(ctx, &o, &agent, ERR));
    assert_string_equal(dtpi_agent_candidates(agent), where);
    dtpi_agent_close(agent);
    dtp_ctx_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_form_a_tree_of_small_radix),
        cmocka_unit_test(test_who_does_not_reach_its_parent_is_given_another),
        cmocka_unit_test(test_a_place_that_is_none_is_refused),
        cmocka_unit_test(test_an_agent_is_reached_where_it_was_told_to_listen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
