/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.c - a rank in C: loads its rows of the newest step, trains, saves in the background.
 *
 *   cc checkpoint.c -o checkpoint $(pkg-config --cflags --libs libdtp)
 *   dtp run -n 4 -- ./checkpoint DIR
 */
#include <dtp/dtp.h>
#include <stdio.h>
#include <stdlib.h>

static void check(dtp_status status, const dtp_error *err)
{
    if (status >= 0)
        return;
    fprintf(stderr, "checkpoint: %s\n", err->text);
    exit(1);
}

int main(int argc, char **argv)
{
    enum { ROWS = 64, COLUMNS = 1024 };
    static float rows[ROWS * COLUMNS];
    const char *dir = argc > 1 ? argv[1] : "ckpts";
    dtp_ckpt_save_opts opts = { .size = sizeof(opts), .keep_last = 3 };
    dtp_error err = { 0 };
    uint64_t step = 0;
    dtp_group *group;
    dtp_ckpt *ckpt;
    dtp_ctx *ctx;
    dtp_op *save;

    check(dtp_ctx_open(NULL, &ctx, &err), &err);
    check(dtp_group_join_from_env(ctx, &group, &err), &err);
    const int64_t rank = dtp_group_rank(group), size = dtp_group_size(group);
    const int64_t first = ROWS * rank / size, end = ROWS * (rank + 1) / size;
    const int64_t shape[] = { ROWS, COLUMNS }, offset[] = { first, 0 };
    const int64_t extent[] = { end - first, COLUMNS };
    const dtp_ckpt_tensor mine = { sizeof(mine), "w", DTP_F32, 2, shape, offset, extent, rows };
    /* Only NOT_FOUND says that there is none: what cannot be read is no reason to begin anew. */
    const dtp_status found = dtp_ckpt_latest(ctx, dir, &step, &err);
    if (found != DTP_ERR_NOT_FOUND) {
        check(found, &err);
        check(dtp_ckpt_open(ctx, dir, step, &ckpt, &err), &err);
        check(dtp_ckpt_read(ckpt, &mine, 1, &err), &err);
        dtp_ckpt_close(ckpt);
    }
    for (int64_t i = 0; i < (end - first) * COLUMNS; i++)
        rows[i] += 1;
    check(dtp_group_barrier(group, 0, &err), &err);     /* all have looked for the newest step */
    check(dtp_ckpt_save_start(ctx, group, dir, step + 1, &mine, 1, &opts, &save, &err), &err);
    rows[0] = 0;                                        /* the next step of training may begin */
    check(dtp_op_wait(save, -1, &err), &err);
    dtp_op_free(save);
    printf("rank %d of %d: step %d, weight %g\n", (int)rank, (int)size, (int)step + 1, rows[1]);
    dtp_group_close(group);
    dtp_ctx_close(ctx);
    return 0;
}
