/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_form.c - a rank for tests of networks: joins what the environment describes, moves one large control
 * message each way, and says how long that took or why it failed.
 *
 *   rank_form [MODULE_DIR]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <dtp/group.h>

enum { LARGE = 100000 };

static long now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void note(void *user, dtp_log_level level, const char *topic, const char *text)
{
    (void)user;
    (void)level;
    printf("%s: %s\n", topic, text);
}

int main(int argc, char **argv)
{
    const dtp_ctx_opts o = { .size = sizeof(o), .module_dir = argc > 1 ? argv[1] : NULL, .log = note,
                             .log_level = DTP_LOG_INFO };
    const long start = now_ms();
    void *mine = calloc(1, LARGE), *all = NULL;
    dtp_group *g = NULL;
    dtp_error err;
    dtp_ctx *ctx;

    if (!mine || dtp_ctx_open(&o, &ctx, &err) < 0)
        return 2;
    dtp_status st = dtp_group_join_from_env(ctx, &g, &err);
    if (st >= 0)
        st = dtp_group_allgather(g, mine, LARGE, &all, NULL, NULL, 0, &err);
    if (st >= 0)
        printf("formed in %ld ms\n", now_ms() - start);
    else
        printf("failed in %ld ms: %s\n", now_ms() - start, err.text);
    dtp_group_free(all);
    free(mine);
    dtp_group_close(g);
    dtp_ctx_close(ctx);
    return st < 0;
}
