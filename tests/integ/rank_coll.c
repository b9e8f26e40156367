/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_coll.c - a rank that makes collectives of every kind and type and prints a checksum of each result,
 * so that a test can compare layouts bit for bit.
 *
 *   rank_coll MODULE_DIR
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/sum.h"
#include "unit/coll/reference.h"

static dtp_error err;
static int me = -1;

static void check(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", me, what, err.text);
    exit(1);
}

static void fill(dtp_dtype t, void *in, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        ref_input(t, seed, (uint32_t)me, i, (char *)in + i * dtp_dtype_bytes(t));
}

static void say(const char *kind, dtp_dtype t, dtp_redop op, size_t count, const void *out, size_t n)
{
    printf("bits %s %s %d %zu %016llx\n", kind, dtp_dtype_name(t), (int)op, count,
           (unsigned long long)dtpi_sum64(out, n * dtp_dtype_bytes(t)));
}

static void all_kinds(dtp_group *g, dtp_dtype t, dtp_redop op, size_t count, bool as_op)
{
    const size_t n = (size_t)dtp_group_size(g), room = (count * n + 1) * dtp_dtype_bytes(t);
    void *in = malloc(room), *out = malloc(room);
    dtp_op *run;

    check(in && out, "memory");
    fill(t, in, count * n, count + (size_t)op);
    if (as_op) {
        check(dtp_allreduce_start(g, in, out, count, t, op, &run, &err) == DTP_OK, "allreduce_start");
        check(dtp_op_wait(run, 20000, &err) == DTP_OK, "op_wait");
        dtp_op_free(run);
    } else {
        check(dtp_allreduce(g, in, out, count, t, op, 0, &err) == DTP_OK, "allreduce");
    }
    say("allreduce", t, op, count, out, count);
    check(dtp_reduce_scatter(g, in, out, count, t, op, 0, &err) == DTP_OK, "reduce_scatter");
    say("reduce_scatter", t, op, count, out, count);
    check(dtp_allgather(g, in, out, count, t, 0, &err) == DTP_OK, "allgather");
    say("allgather", t, op, count, out, count * n);
    check(dtp_broadcast(g, in, count, t, (int32_t)(count % n), 0, &err) == DTP_OK, "broadcast");
    say("broadcast", t, op, count, in, count);
    free(in);
    free(out);
}

static void mismatch(dtp_group *g)
{
    float x[8] = { 0 };

    check(dtp_allreduce(g, x, x, me == 3 ? 5 : 4, DTP_F32, DTP_SUM, 0, &err) == DTP_ERR_INVAL &&
              err.rank == 3, "a different count is refused");
    printf("mismatch: %s\n", err.text);
}

int main(int argc, char **argv)
{
    static const size_t counts[] = { 1, 1021, 70001 };
    const dtp_ctx_opts co = { .size = sizeof(co), .module_dir = argc > 1 ? argv[1] : NULL };
    dtp_group *g;
    dtp_ctx *ctx;

    alarm(60);
    check(dtp_ctx_open(&co, &ctx, &err) == DTP_OK, "ctx");
    check(dtp_group_join_from_env(ctx, &g, &err) == DTP_OK, "join");
    me = dtp_group_rank(g);
    for (int c = 0; c < 3; c++)
        for (int t = 0; t < REF_N_TYPES; t++)
            for (int o = 0; o < REF_N_OPS; o++)
                if (c == 1 || (t + o) % REF_N_OPS == 0)
                    all_kinds(g, ref_types[t], ref_ops[o], counts[c], o & 1);
    mismatch(g);
    all_kinds(g, DTP_F32, DTP_SUM, 1000003, false);
    check(dtp_group_barrier(g, 0, &err) == DTP_OK, "last barrier");
    printf("rank %d: ok\n", me);
    dtp_group_close(g);
    dtp_ctx_close(ctx);
    return 0;
}
