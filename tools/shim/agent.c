/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.c - the group's agent for the ranks of a gang: it listens before the first rank is started,
 * and hears of deaths from the one who knows first.
 */
#include "shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <dtp/group.h>

#include "base/text.h"
#include "group/agent.h"

static const char *find(const dtpi_texts *env, const char *name)
{
    const size_t len = strlen(name);

    for (const char *t = dtpi_texts_next(env, NULL); t; t = dtpi_texts_next(env, t))
        if (strncmp(t, name, len) == 0 && t[len] == '=')
            return t + len + 1;
    return NULL;
}

/* 64 hex digits in a file that only the job's user can read. */
static dtp_status read_secret(const char *path, uint8_t secret[DTP_SECRET_BYTES], dtp_error *err)
{
    char text[2 * DTP_SECRET_BYTES + 1] = "";

    DTPI_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open %s: %m", path);
    const bool ok = read(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1 &&
                    dtpi_parse_hex(text, secret, DTP_SECRET_BYTES);
    explicit_bzero(text, sizeof(text));
    return ok ? DTP_OK : dtpi_fail(err, DTP_ERR_FORMAT, "%s does not hold a secret", path);
}

/* Not of a process that a rank has started in its place. */
static bool is_watched(void *user, int32_t index, int32_t pid)
{
    const shim *s = user;

    return index >= 0 && (uint32_t)index < s->gang.n && s->gang.ranks[index].pid == pid;
}

static void on_formed(void *user, uint32_t generation, uint32_t n_ranks)
{
    shim *s = user;

    (void)generation;
    shim_journal(s, (dtpi_journal_entry){ .type = DTPI_JOURNAL_REFORMED, .attempt = s->gang.attempt,
                                          .n = n_ranks });
    serve_tell(s, &(dtpi_shim_msg){ .type = DTPI_SHIM_REFORMED, .attempt = s->gang.attempt,
                                    .n = n_ranks });
}

dtp_status agent_open(shim *s, dtp_error *err)
{
    const dtpi_shim_msg *m = &s->gang.msg;
    uint8_t secret[DTP_SECRET_BYTES];
    const char *timeout = find(&m->env, "DTP_TIMEOUT_MS");
    int64_t timeout_ms = 0, encrypt = 0;

    if (timeout && !dtpi_parse_i64(timeout, 1, INT32_MAX, &timeout_ms))
        return dtpi_fail(err, DTP_ERR_FORMAT,
                         "DTP_TIMEOUT_MS is '%.40s', not a number of milliseconds", timeout);
    const char *text = find(&m->env, "DTP_ENCRYPT");
    if (text && !dtpi_parse_i64(text, 0, 1, &encrypt))
        return dtpi_fail(err, DTP_ERR_FORMAT, "DTP_ENCRYPT is '%.40s', not 0 or 1", text);
    dtp_status st = read_secret(m->secret, secret, err);
    if (st < 0)
        return st;
    const dtpi_agent_opts opts = {
        .job = s->name, .attempt = m->attempt, .world_size = m->n, .n_local = m->n,
        .socket = m->name, .secret = secret, .net = find(&m->env, "DTP_NET"),
        .timeout_ms = (int)timeout_ms, .is_watched = is_watched, .formed = on_formed,
        .user = s,
    };
    st = dtpi_agent_open(s->ctx, &opts, &s->gang.agent, err);
    explicit_bzero(secret, sizeof(secret));
    return st;
}

void agent_rank_ended(shim *s, const rank *r)
{
    if (s->gang.agent)
        dtpi_agent_rank_ended(s->gang.agent, r->index, r->pid, r->wstatus);
}

void agent_close(shim *s)
{
    dtpi_agent_close(s->gang.agent);
    s->gang.agent = NULL;
}
