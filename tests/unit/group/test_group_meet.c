/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes on one host that find their root over a board. */
#include "unit/group/ranks.h"

#include <dirent.h>

#include "group/group_internal.h"

struct world {
    char path[40];
    const char *job;
    int per_node;
    int timeout_ms;
    int again;                  /* joins more than once */
    int radix;                  /* 0: as the library likes */
    int missing;                /* never comes; 0: all come */
};

static void setup(struct world *w, int per_node)
{
    *w = (struct world){ .path = "/tmp/dtp-meet-XXXXXX", .job = ranks_job(), .per_node = per_node,
                         .timeout_ms = 10000, .again = 1 };
    assert_non_null(mkdtemp(w->path));
}

static void teardown(const struct world *w)
{
    char name[400];
    DIR *d = opendir(w->path);

    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        snprintf(name, sizeof(name), "%s/%s", w->path, e->d_name);
        if (e->d_name[0] != '.')
            unlink(name);
    }
    closedir(d);
    assert_int_equal(rmdir(w->path), 0);
}

static dtp_status join(const struct world *w, dtp_ctx *ctx, int rank, int n, dtp_group **g)
{
    const dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = n,
                               .local_rank = rank % w->per_node, .local_size = w->per_node,
                               .node = rank / w->per_node, .n_nodes = n / w->per_node, .job = w->job,
                               .insecure = 1, .timeout_ms = w->timeout_ms,
                               .radix = w->radix };
    const dtpi_board_opts bo = { .kind = "file", .place = w->path };

    return group_join(ctx, &o, &bo, g, ERR);
}

static void barrier(int rank, int n, void *user)
{
    const struct world *w = user;
    dtp_ctx *ctx;
    dtp_group *g;

    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    for (int i = 0; i < w->again; i++) {
        RANK_OK(join(w, ctx, rank, n, &g));
        RANK_OK(dtp_group_barrier(g, 0, ERR));
        dtp_group_close(g);
    }
    dtp_ctx_close(ctx);
}

static void test_nodes_find_the_root_over_a_folder(void **state)
{
    struct world w;

    (void)state;
    setup(&w, 2);
    ranks_run(6, barrier, &w);
    teardown(&w);
}

static void test_addresses_of_an_earlier_run_are_followed_by_the_new_ones(void **state)
{
    struct world w;
    dtp_ctx *ctx;
    dtpi_board *board;

    (void)state;
    setup(&w, 1);
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    const dtpi_board_opts o = { .kind = "file", .place = w.path, .job = w.job };
    assert_ok(dtpi_board_open(ctx, &o, INT64_MAX, &board, ERR));
    assert_ok(dtpi_board_put(board, "root", "127.0.0.1:1", INT64_MAX, ERR));
    dtpi_board_close(board);
    dtp_ctx_close(ctx);
    ranks_run(3, barrier, &w);
    w.again = 3;
    ranks_run(3, barrier, &w);
    teardown(&w);
}

static void test_nodes_form_a_chain_over_a_folder(void **state)
{
    struct world w;

    (void)state;
    setup(&w, 1);
    w.radix = 1;
    ranks_run(5, barrier, &w);
    w.again = 2;
    ranks_run(5, barrier, &w);
    teardown(&w);
}

static void with_one_missing(int rank, int n, void *user)
{
    const struct world *w = user;
    char text[80];
    dtp_ctx *ctx;
    dtp_group *g;

    if (rank == w->missing)
        return;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_STATUS(DTP_ERR_PEER, join(w, ctx, rank, n, &g));
    snprintf(text, sizeof(text), "rank %d of %d never joined", w->missing, n);
    RANK_TEXT(text);
    dtp_ctx_close(ctx);
}

static void test_parent_that_never_comes_is_named_alone(void **state)
{
    struct world w;

    (void)state;
    setup(&w, 1);
    w.radix = 1;
    w.missing = 1;
    w.timeout_ms = 1700;
    ranks_run(4, with_one_missing, &w);
    teardown(&w);
}

static void without_root(int rank, int n, void *user)
{
    const struct world *w = user;
    dtp_ctx *ctx;
    dtp_group *g;

    if (rank == 0)
        return;
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_STATUS(DTP_ERR_TIMEOUT, join(w, ctx, rank, n, &g));
    RANK_TEXT("was not put on board file in time");
    dtp_ctx_close(ctx);
}

static void test_root_that_never_comes_is_said(void **state)
{
    struct world w;

    (void)state;
    setup(&w, 1);
    w.timeout_ms = 60;
    ranks_run(2, without_root, &w);
    teardown(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_find_the_root_over_a_folder),
        cmocka_unit_test(test_addresses_of_an_earlier_run_are_followed_by_the_new_ones),
        cmocka_unit_test(test_nodes_form_a_chain_over_a_folder),
        cmocka_unit_test(test_parent_that_never_comes_is_named_alone),
        cmocka_unit_test(test_root_that_never_comes_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
