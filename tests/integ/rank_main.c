/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_main.c - a rank for tests that set the environment up: joins what it describes, makes the calls
 * and moves data, joins again, and says what it saw, one line per fact.
 *
 *   rank_main MODULE_DIR [calls|wait|late]
 *
 * "wait" ends with the verdict of the group, whose text it prints; with "late" rank 0 closes at once, and
 * those of other nodes look a little later for the key that it has set.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dtp/group.h>

#include "group/group.h"

static dtp_error err;
static int me = -1;

static void check(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", me, what, err.text);
    exit(1);
}

static void note(void *user, dtp_log_level level, const char *topic, const char *text)
{
    (void)user;
    (void)level;
    printf("%s: %s\n", topic, text);
    fflush(stdout);
}

static void calls(dtp_group *g)
{
    const int n = dtp_group_size(g);
    size_t bytes;
    void *data;

    for (int i = 0; i < 10; i++)
        check(dtp_group_barrier(g, 0, &err) == DTP_OK, "barrier");
    check(dtp_group_allgather(g, &me, sizeof(me), &data, NULL, &bytes, 0, &err) == DTP_OK,
          "allgather");
    for (int i = 0; i < n; i++)
        check(((int *)data)[i] == i, "allgather's result");
    dtp_group_free(data);
    if (me == n - 1)
        check(dtp_group_set(g, "who", "last", 5, 0, &err) == DTP_OK, "set");
    check(dtp_group_lookup(g, "who", &data, &bytes, 0, &err) == DTP_OK, "lookup");
    check(strcmp(data, "last") == 0, "lookup's result");
    dtp_group_free(data);
}

static void transfers(dtp_group *g)
{
    enum { BYTES = 1 << 20 };
    const int n = dtp_group_size(g), next = (me + 1) % n, before = (me + n - 1) % n;
    unsigned char *out = malloc(BYTES), *in = calloc(1, BYTES);
    dtpi_xfer x[2] = { 0 };
    char lane[64];

    check(out && in, "memory");
    check(dtpi_group_data_open(g, INT64_MAX, &err) == DTP_OK, "data_open");
    memset(out, me + 1, BYTES);
    check(dtpi_group_recv(g, before, 1, in, BYTES, &x[0], &err) == DTP_OK, "recv");
    check(dtpi_group_send(g, next, 1, out, BYTES, &x[1], &err) == DTP_OK, "send");
    while (!x[0].done || !x[1].done)
        dtpi_group_data_progress(g);
    check(x[0].status == DTP_OK && x[1].status == DTP_OK, "transfers");
    check(in[0] == before + 1 && in[BYTES - 1] == before + 1, "what was received");
    dtpi_group_data_lane(g, next, lane, sizeof(lane));
    printf("lane from %d (node %u) to %d (node %u) is %s\n", me, dtpi_group_node(g, me), next,
           dtpi_group_node(g, next), lane);
    check(dtp_group_barrier(g, 0, &err) == DTP_OK, "last barrier");
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    const dtp_ctx_opts co = { .size = sizeof(co), .module_dir = argc > 1 ? argv[1] : NULL,
                              .log = note, .log_level = DTP_LOG_INFO };
    dtp_group *g;
    dtp_ctx *ctx;

    alarm(60);
    check(dtp_ctx_open(&co, &ctx, &err) == DTP_OK, "ctx");
    check(dtp_group_join_from_env(ctx, &g, &err) == DTP_OK, "join");
    me = dtp_group_rank(g);
    printf("rank %d of %d, local %d of %d, node %u of %u\n", me, dtp_group_size(g),
           dtp_group_local_rank(g), dtp_group_local_size(g), dtpi_group_node(g, me),
           dtpi_group_n_nodes(g));
    fflush(stdout);
    if (argc > 2 && strcmp(argv[2], "wait") == 0) {
        void *data;
        check(dtp_group_lookup(g, "never", &data, NULL, 0, &err) == DTP_ERR_PEER, "the verdict");
        printf("verdict: %s\n", err.text);
    } else if (argc > 2 && strcmp(argv[2], "late") == 0) {
        void *data;
        check(me != 0 || dtp_group_set(g, "last words", "", 0, 0, &err) == DTP_OK, "set");
        if (dtpi_group_node(g, me) != 0)
            usleep(50000);
        check(dtp_group_lookup(g, "last words", &data, NULL, 0, &err) == DTP_OK, "lookup of last words");
        dtp_group_free(data);
        printf("rank %d: ok\n", me);
    } else {
        calls(g);
        transfers(g);
        /* A group of the same job and attempt, while the one before ends. */
        dtp_group_close(g);
        check(dtp_group_join_from_env(ctx, &g, &err) == DTP_OK, "join again");
        check(dtp_group_barrier(g, 0, &err) == DTP_OK, "barrier of the second group");
        printf("rank %d: ok\n", me);
    }
    dtp_group_close(g);
    dtp_ctx_close(ctx);
    return 0;
}
