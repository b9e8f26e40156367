/* SPDX-License-Identifier: Apache-2.0 */
/* gc.c - `dtp ckpt gc` says which old steps would go, and removes them only when told so; `pin` and `unpin`. */
#include "ckpt/ckpt.h"

typedef struct gc {
    const ckpt_args *args;
    uint32_t n;
} gc;

static void report(void *user, uint64_t step)
{
    gc *g = user;

    g->n++;
    if (g->args->json)
        printf("{\"step\":%" PRIu64 ",\"removed\":%s}\n", step, g->args->yes ? "true" : "false");
    else
        printf("%s step %" PRIu64 "\n", g->args->yes ? "removed" : "would remove", step);
}

int ckpt_gc(dtp_ctx *ctx, const ckpt_args *a)
{
    gc g = { .args = a };
    const dtp_ckpt_gc_opts opts = {
        .size = sizeof(opts),
        .keep_last = a->keep,
        .dry_run = !a->yes,
        .keep_every = a->keep_every,
        .report = report,
        .report_user = &g,
    };
    dtp_error err = { 0 };

    if (dtp_ckpt_gc(ctx, a->path, &opts, &err) < 0)
        return cmd_fail(&cmd_ckpt, &err);
    if (!a->json && g.n == 0)
        puts("nothing to remove");
    else if (!a->json && !a->yes)
        puts("(nothing was removed: --yes does it)");
    return cmd_finish(&cmd_ckpt);
}

static int set_pin(dtp_ctx *ctx, const ckpt_args *a, bool pinned)
{
    dtp_error err = { 0 };

    if (!a->has_step)
        return cmd_usage(&cmd_ckpt, "which step is to be %s?", pinned ? "pinned" : "unpinned");
    if (dtp_ckpt_pin(ctx, a->path, a->step, pinned, &err) < 0)
        return cmd_fail(&cmd_ckpt, &err);
    return cmd_finish(&cmd_ckpt);
}

int ckpt_pin(dtp_ctx *ctx, const ckpt_args *a)
{
    return set_pin(ctx, a, true);
}

int ckpt_unpin(dtp_ctx *ctx, const ckpt_args *a)
{
    return set_pin(ctx, a, false);
}
