/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allreduce.c - a rank in C: joins the group that its launcher describes and adds up an array.
 *
 *   cc allreduce.c -o allreduce $(pkg-config --cflags --libs libdtp)
 *   dtp run -n 4 -- ./allreduce
 */
#include <dtp/dtp.h>
#include <stdio.h>
#include <stdlib.h>

static void check(dtp_status status, const dtp_error *err)
{
    if (status >= 0)
        return;
    fprintf(stderr, "allreduce: %s\n", err->text);
    exit(1);
}

int main(void)
{
    enum { COUNT = 1000000 };
    float *x = malloc(COUNT * sizeof(*x));
    dtp_error err = { 0 };
    dtp_group *group;
    dtp_ctx *ctx;
    dtp_op *op;

    if (!x)
        return 1;
    check(dtp_ctx_open(NULL, &ctx, &err), &err);
    check(dtp_group_join_from_env(ctx, &group, &err), &err);
    const int rank = dtp_group_rank(group), size = dtp_group_size(group);

    /* Blocking, in place. */
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)rank;
    check(dtp_allreduce(group, x, x, COUNT, DTP_F32, DTP_SUM, 0, &err), &err);
    printf("rank %d of %d: sum of ranks is %g\n", rank, size, x[COUNT - 1]);

    /* As an operation: other work goes on until it is waited for. */
    check(dtp_allreduce_start(group, x, x, COUNT, DTP_F32, DTP_AVG, &op, &err), &err);
    check(dtp_op_wait(op, 30000, &err), &err);
    dtp_op_free(op);
    printf("rank %d of %d: average of sums is %g\n", rank, size, x[0]);

    dtp_group_close(group);
    dtp_ctx_close(ctx);
    free(x);
    return 0;
}
