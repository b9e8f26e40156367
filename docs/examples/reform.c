/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reform.c - a rank that goes on when others die: rank 1 is killed in the middle, the survivors form the
 * next generation and finish the work.
 *
 *   cc reform.c -o reform $(pkg-config --cflags --libs libdtp)
 *   dtp run -n 4 --min-ranks 2 --reform 5 -- ./reform
 */
#include <dtp/dtp.h>
#include <signal.h>
#include <stdio.h>

enum { STEPS = 20, DIES_AT = 7 };

static dtp_status next_generation(dtp_group **group, dtp_error *err)
{
    dtp_group *next;

    fprintf(stderr, "rank %d: %s\n", dtp_group_rank(*group), err->text);
    const dtp_status st = dtp_group_reform(*group, NULL, &next, err);
    if (st < 0)
        return st;
    dtp_group_close(*group);
    *group = next;
    return DTP_OK;
}

int main(void)
{
    dtp_group *group = NULL;
    dtp_error err = { 0 };
    dtp_ctx *ctx = NULL;
    float sum = 0;

    dtp_status st = dtp_ctx_open(NULL, &ctx, &err);
    if (st >= 0)
        st = dtp_group_join_from_env(ctx, &group, &err);
    for (int step = 0; step < STEPS && st >= 0; step++) {
        const float one = 1;
        if (step == DIES_AT && dtp_group_rank(group) == 1 && dtp_group_generation(group) == 1)
            raise(SIGKILL);
        st = dtp_allreduce(group, &one, &sum, 1, DTP_F32, DTP_SUM, 0, &err);
        if (st == DTP_ERR_PEER) {
            st = next_generation(&group, &err);
            step--;             /* a step whose result not all have is done again */
        }
    }
    if (st < 0)
        fprintf(stderr, "%s\n", err.text);
    else
        printf("generation %u: rank %d of %d, sum %g\n", dtp_group_generation(group),
               dtp_group_rank(group), dtp_group_size(group), sum);
    dtp_group_close(group);
    dtp_ctx_close(ctx);
    return st < 0;
}
