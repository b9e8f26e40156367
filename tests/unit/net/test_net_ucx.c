/* SPDX-License-Identifier: Apache-2.0 */
/* UCX has one log of the process: who hears it. */
#include "check.h"

#include "ctx/ctx.h"
#include "net/net.h"

static const struct dtpi_net_ops *ucx;

static void count_lines(void *user, dtp_log_level level, const char *topic, const char *text)
{
    (void)level;
    (void)text;
    *(int *)user += strcmp(topic, "ucx") == 0;
}

static dtpi_net *open_net(int *n_lines)
{
    const dtpi_log log = { count_lines, n_lines, DTP_LOG_INFO };
    const dtpi_net_opts o = { .allocator = &dtpi_malloc_allocator, .log = &log, .transports = "tcp",
                              .devices = "lo" };
    dtpi_net *net;

    assert_ok(ucx->open(&o, &net, ERR));
    return net;
}

/* UCX tells how it reaches a new peer. */
static void make_it_speak(dtpi_net *net)
{
    dtpi_net_ep *ep;
    size_t bytes;
    const void *address = ucx->address(net, &bytes);

    assert_ok(ucx->connect(net, address, bytes, &ep, ERR));
    ucx->disconnect(ep, false);
}

static void test_lines_go_to_a_network_that_is_open(void **state)
{
    int a_lines = 0, b_lines = 0;

    (void)state;
    dtpi_net *a = open_net(&a_lines), *b = open_net(&b_lines);
    make_it_speak(b);
    const int a_before = a_lines, b_before = b_lines;
    ucx->close(b);
    make_it_speak(a);
    ucx->close(a);
    if (b_before == 0) {
        print_message("skipped: this UCX says nothing at its level info\n");
        skip();
    }
    assert_true(a_lines > a_before);
    assert_int_equal(b_lines, b_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_go_to_a_network_that_is_open),
    };
    const dtp_ctx_opts co = { .size = sizeof(co), .module_dir = check_module_dir() };
    dtp_ctx *ctx;

    setenv("UCX_LOG_LEVEL", "info", 1);
    assert_ok(dtp_ctx_open(&co, &ctx, ERR));
    if (dtpi_module_load(ctx, "net-ucx", (const void **)&ucx, ERR) < 0) {
        printf("skipped: %s\n", check_err.text);
        dtp_ctx_close(ctx);
        return 77;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dtp_ctx_close(ctx);
    return failed;
}
