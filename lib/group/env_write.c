/* SPDX-License-Identifier: Apache-2.0 */
/* env_write.c - the variables that tell a rank what its options are. */
#include <sodium.h>
#include <stdio.h>

#include "base/text.h"
#include "group/env.h"

struct writer {
    dtp_status (*put)(void *user, const char *name, const char *value);
    void *user;
    dtp_status st;
};

static void put_text(struct writer *w, const char *name, const char *value)
{
    if (w->st >= 0 && value)
        w->st = w->put(w->user, name, value);
}

static void put_number(struct writer *w, const char *name, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)value);
    put_text(w, name, text);
}

dtp_status dtpi_group_env_write(const dtp_group_opts *user,
                                dtp_status (*put)(void *user, const char *name, const char *value),
                                void *put_user, dtp_error *err)
{
    struct writer w = { put, put_user, DTP_OK };
    char hex[2 * DTP_SECRET_BYTES + 1];
    dtp_group_opts o;

    const dtp_status st = DTPI_OPTS_READ(&o, user, err);
    if (st < 0)
        return st;
    put_text(&w, "DTP_JOB", o.job);
    put_number(&w, "DTP_ATTEMPT", o.attempt);
    put_number(&w, "DTP_RANK", o.rank);
    put_number(&w, "DTP_WORLD_SIZE", DTPI_MAX(o.world_size, 1));
    if (o.local_size) {
        put_number(&w, "DTP_LOCAL_RANK", o.local_rank);
        put_number(&w, "DTP_LOCAL_SIZE", o.local_size);
    }
    if (o.n_nodes) {
        put_number(&w, "DTP_NODE", o.node);
        put_number(&w, "DTP_NODES", o.n_nodes);
    }
    if (o.radix)
        put_number(&w, "DTP_RADIX", o.radix);
    put_text(&w, "DTP_ROOT", o.root);
    put_text(&w, "DTP_PARENT", o.parent);
    put_text(&w, "DTP_LISTEN", o.listen);
    put_text(&w, "DTP_AGENT", o.agent);
    put_text(&w, "DTP_NET", o.net);
    if (o.encrypt)
        put_text(&w, "DTP_ENCRYPT", "1");
    if (o.secret) {
        dtpi_format_hex(o.secret, DTP_SECRET_BYTES, hex);
        put_text(&w, "DTP_SECRET", hex);
        sodium_memzero(hex, sizeof(hex));
    }
    if (o.insecure)
        put_text(&w, "DTP_INSECURE", "1");
    if (o.munge)
        put_text(&w, "DTP_MUNGE", o.munge[0] ? o.munge : "1");
    if (o.timeout_ms)
        put_number(&w, "DTP_TIMEOUT_MS", o.timeout_ms);
    return w.st;
}
