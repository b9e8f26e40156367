/* SPDX-License-Identifier: Apache-2.0 */
/* local.h - ranks of one machine that join a group without a launcher. */
#ifndef DTP_TESTS_GROUP_LOCAL_H
#define DTP_TESTS_GROUP_LOCAL_H

#include "unit/group/ranks.h"

static const uint8_t secret[DTP_SECRET_BYTES] = "a secret of thirty-two bytes...";

static inline dtp_group_opts opts_of(const char *job, int rank, int n)
{
    dtp_group_opts o = { .size = sizeof(o) };

    o.rank = rank;
    o.world_size = n;
    o.job = job;
    o.secret = secret;
    o.timeout_ms = 25000;
    return o;
}

static inline dtp_group *join(const char *job, int rank, int n, dtp_ctx **ctx_out)
{
    const dtp_group_opts o = opts_of(job, rank, n);
    dtp_group *g;

    RANK_OK(dtp_ctx_open(NULL, ctx_out, ERR));
    RANK_OK(dtp_group_join(*ctx_out, &o, &g, ERR));
    return g;
}

static inline void leave(dtp_ctx *ctx, dtp_group *g)
{
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

#endif /* DTP_TESTS_GROUP_LOCAL_H */
