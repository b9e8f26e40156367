/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_env.c - a rank for tests with real launchers: joins what the environment says, meets all others
 * and prints "rank 1 of 4, node 0 of 2, local 1 of 2: met 4", and "rank 1 ends" when it ends.
 *
 *   rank_env [MODULE_DIR [sleep MS]]      sleeps rank * MS before it ends, so that all end apart
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dtp/group.h>

static dtp_error err;

static int failed(const char *what)
{
    fprintf(stderr, "rank_env: %s: %s\n", what, err.text);
    return 1;
}

static void note(void *user, dtp_log_level level, const char *topic, const char *text)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s: %s\n", topic, text);
}

static int n_nodes(const dtp_group *g)
{
    int n = 0;

    for (int i = 0; i < dtp_group_size(g); i++) {
        dtp_group_member m = { .size = sizeof(m) };
        if (dtp_group_get(g, i, &m, &err) == DTP_OK && m.node >= n)
            n = m.node + 1;
    }
    return n;
}

int main(int argc, char **argv)
{
    const dtp_ctx_opts co = { .size = sizeof(co), .log = note, .log_level = DTP_LOG_INFO,
                              .module_dir = argc > 1 ? argv[1] : NULL };
    dtp_group_member self = { .size = sizeof(self) };
    dtp_group *g;
    dtp_ctx *ctx;
    size_t bytes;
    void *all;

    if (dtp_ctx_open(&co, &ctx, &err) < 0 || dtp_group_join_from_env(ctx, &g, &err) < 0)
        return failed("join");
    const int me = dtp_group_rank(g);
    if (dtp_group_allgather(g, &me, sizeof(me), &all, NULL, &bytes, 0, &err) < 0 ||
        dtp_group_get(g, me, &self, &err) < 0)
        return failed("allgather");
    dtp_group_free(all);
    printf("rank %d of %d, node %d of %d, local %d of %d: met %zu\n", me, dtp_group_size(g), self.node,
           n_nodes(g), dtp_group_local_rank(g), dtp_group_local_size(g), bytes / sizeof(me));
    fflush(stdout);
    if (dtp_group_barrier(g, 0, &err) < 0)
        return failed("barrier");
    dtp_group_close(g);
    dtp_ctx_close(ctx);
    if (argc > 3 && strcmp(argv[2], "sleep") == 0)
        usleep((useconds_t)(me * atoi(argv[3]) * 1000));
    printf("rank %d ends\n", me);
    return 0;
}
