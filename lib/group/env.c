/* SPDX-License-Identifier: Apache-2.0 */
/* env.c - joins the group that the environment describes. */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>

#include "base/text.h"
#include "ctx/ctx.h"
#include "group/env_internal.h"
#include "group/group_internal.h"
#include "group/tree.h"

const char *env_text_from_env(const char *name)
{
    const char *text = name ? getenv(name) : NULL;

    return text && *text ? text : NULL;
}

dtp_status env_number_from_env(const char *name, int64_t min, int64_t max, int64_t *out, dtp_error *err)
{
    const char *text = env_text_from_env(name);

    if (!text || dtpi_parse_i64(text, min, max, out))
        return DTP_OK;
    return dtpi_fail(err, DTP_ERR_FORMAT, "%s is '%.40s', not a number from %lld to %lld", name, text,
                     (long long)min, (long long)max);
}

static dtp_status rest_from_env(const struct launcher *l, struct found *f, dtp_error *err)
{
    int64_t attempt = 0, timeout_ms = 0, encrypt = 0, radix = 0;

    f->o.agent = env_text_from_env("DTP_AGENT");
    f->o.net = env_text_from_env("DTP_NET");
    f->o.parent = env_text_from_env("DTP_PARENT");
    f->o.listen = env_text_from_env("DTP_LISTEN");
    dtp_status st = env_number_from_env(l->attempt, 0, UINT32_MAX, &attempt, err);
    if (st >= 0)
        st = env_number_from_env("DTP_ATTEMPT", 0, UINT32_MAX, &attempt, err);
    if (st >= 0)
        st = env_number_from_env("DTP_TIMEOUT_MS", 1, INT32_MAX, &timeout_ms, err);
    if (st >= 0)
        st = env_number_from_env("DTP_ENCRYPT", 0, 1, &encrypt, err);
    if (st >= 0)
        st = env_number_from_env("DTP_RADIX", 1, DTPI_TREE_MAX_RADIX, &radix, err);
    f->o.radix = (int32_t)radix;
    if (st >= 0)
        st = env_place_from_env(l, f, err);
    if (st >= 0)
        st = env_secret_from_env(l, f, err);
    f->o.attempt = (uint32_t)attempt;
    f->o.timeout_ms = (int32_t)timeout_ms;
    f->o.encrypt = (uint32_t)encrypt;
    return st;
}

/* Its number once it is known: in a log of many ranks the text alone would not say whose it is. */
static dtp_status name_rank(const struct found *f, dtp_status st, dtp_error *err)
{
    if (st >= 0 || !err || f->o.world_size == 0)
        return st;
    errno = err->sys_errno;
    return dtpi_fail_rank(err, st, f->o.rank, "rank %d of %d: %s", f->o.rank, f->o.world_size, err->text);
}

dtp_status dtp_group_join_from_env(dtp_ctx *ctx, dtp_group **group_out, dtp_error *err)
{
    struct found f = { .o = DTP_GROUP_OPTS_INIT };
    const struct launcher *l = NULL;

    dtp_status st = env_launcher_from_env(&f, &l, err);
    if (st >= 0 && l)
        st = rest_from_env(l, &f, err);
    st = name_rank(&f, st, err);
    if (st >= 0) {
        if (l)
            DTPI_LOG(ctx, DTP_LOG_INFO, "group", "rank %d of %d, as %s says; root: %s%s%s%s%s%s", f.o.rank,
                     f.o.world_size, l->name, f.board.kind ? "on board " : "",
                     f.board.kind ? f.board.kind : f.o.root ? f.o.root : "here",
                     f.board.place ? " " : "", f.board.place ? f.board.place : "",
                     f.o.parent ? "; parent: " : "", f.o.parent ? f.o.parent : "");
        st = group_join(ctx, &f.o, f.board.kind ? &f.board : NULL, group_out, err);
    }
    sodium_memzero(f.secret, sizeof(f.secret));
    return dtpi_noun(err, "group", st);
}
