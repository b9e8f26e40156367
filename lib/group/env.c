/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.c - where a rank's group is, as launchers say it: DTP_* first, then what torchrun, Open MPI,
 * Hydra and Slurm set. docs/group.md has the table.
 */
#include "group/env.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "ctx/ctx.h"

/* Ports behind MASTER_PORT (where torchrun's own store listens) that the root may take. */
enum { ROOT_PORTS = 8 };

struct launcher {
    const char *name;
    const char *rank, *size, *local_rank, *local_size;
    const char *job, *attempt;      /* optional */
};

/* Innermost first: mpirun may run under Slurm, torchrun under both. */
static const struct launcher launchers[] = {
    { "dtp", "DTP_RANK", "DTP_WORLD_SIZE", "DTP_LOCAL_RANK", "DTP_LOCAL_SIZE", "DTP_JOB",
      "DTP_ATTEMPT" },
    { "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
      "TORCHELASTIC_RESTART_COUNT" },
    { "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_MCA_ess_base_jobid", NULL },
    { "Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL },
    { "Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_JOB_ID",
      "SLURM_RESTART_COUNT" },
};
enum { SLURM = 4 };

/* What was read; the options point into it. */
struct found {
    dtp_group_opts o;
    uint8_t secret[DTP_SECRET_BYTES];
    char job[64];
    char root[300];
};

static const char *text_from_env(const char *name)
{
    const char *text = name ? getenv(name) : NULL;

    return text && *text ? text : NULL;
}

/* Sets `*out` where the variable is set. */
static dtp_status number_from_env(const char *name, int64_t min, int64_t max, int64_t *out,
                                  dtp_error *err)
{
    const char *text = text_from_env(name);

    if (!text || dtpi_parse_i64(text, min, max, out))
        return DTP_OK;
    return dtpi_fail(err, DTP_ERR_FORMAT, "%s is '%.40s', not a number from %lld to %lld", name, text,
                     (long long)min, (long long)max);
}

/* ---- numbers ---- */

/* "2(x3),1": tasks of node `node`; 0 where the text does not say. */
static int64_t tasks_on_node(const char *text, int64_t node)
{
    int64_t at = 0;

    while (text && *text) {
        char *end;
        const long n = strtol(text, &end, 10);
        long times = 1;
        if (end == text || n < 0)
            return 0;
        if (strncmp(end, "(x", 2) == 0) {
            times = strtol(end + 2, &end, 10);
            if (*end++ != ')' || times < 1)
                return 0;
        }
        at += times;
        if (node < at)
            return n;
        text = *end == ',' ? end + 1 : NULL;
    }
    return 0;
}

static dtp_status local_from_env(const struct launcher *l, struct found *f, dtp_error *err)
{
    int64_t local_rank = -1, local_size = 0, node = 0;

    dtp_status st = number_from_env(l->local_rank, 0, INT32_MAX, &local_rank, err);
    if (st >= 0)
        st = number_from_env(l->local_size, 1, INT32_MAX, &local_size, err);
    if (st >= 0 && l == &launchers[SLURM])
        st = number_from_env("SLURM_NODEID", 0, INT32_MAX, &node, err);
    if (st < 0)
        return st;
    if (l == &launchers[SLURM])
        local_size = tasks_on_node(text_from_env("SLURM_STEP_TASKS_PER_NODE"), node);
    if (local_rank < 0 && local_size == 0)
        return DTP_OK;      /* all on this machine, unless a root says otherwise */
    if (local_rank < 0 || local_size == 0)
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s is set, but %s is not",
                         local_rank < 0 ? l->local_size : l->local_rank,
                         local_rank < 0 ? l->local_rank
                         : l->local_size ? l->local_size : "SLURM_STEP_TASKS_PER_NODE");
    if (local_rank >= local_size || local_size > f->o.world_size)
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s=%lld contradicts %s=%lld (world size %d)",
                         l->local_rank, (long long)local_rank,
                         l->local_size ? l->local_size : "SLURM_STEP_TASKS_PER_NODE",
                         (long long)local_size, f->o.world_size);
    f->o.local_rank = (int32_t)local_rank;
    f->o.local_size = (int32_t)local_size;
    return DTP_OK;
}

/* Rank and size of one launcher; false in *is_there where it is not at work. */
static dtp_status ranks_from_env(const struct launcher *l, int64_t *rank, int64_t *size,
                                 bool *is_there, dtp_error *err)
{
    const bool has_rank = text_from_env(l->rank) != NULL, has_size = text_from_env(l->size) != NULL;

    *is_there = has_rank && has_size;
    if (l == &launchers[0] && has_rank != has_size)
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s is set, but %s is not", has_rank ? l->rank : l->size,
                         has_rank ? l->size : l->rank);
    if (!*is_there)
        return DTP_OK;
    dtp_status st = number_from_env(l->size, 1, INT32_MAX, size, err);
    if (st >= 0)
        st = number_from_env(l->rank, 0, INT32_MAX, rank, err);
    if (st >= 0 && *rank >= *size)
        st = dtpi_fail(err, DTP_ERR_RANGE, "%s=%lld contradicts %s=%lld", l->rank, (long long)*rank,
                       l->size, (long long)*size);
    return st;
}

/* Two launchers that say different things: no guess. Slurm's numbers may be of an outer level. */
static dtp_status check_others_from_env(const struct launcher *l, const struct found *f,
                                        dtp_error *err)
{
    for (size_t i = 0; i < SLURM; i++) {
        const struct launcher *other = &launchers[i];
        int64_t rank = 0, size = 0;
        bool is_there = false;
        if (other == l)
            continue;
        const dtp_status st = ranks_from_env(other, &rank, &size, &is_there, err);
        if (st < 0)
            return st;
        if (is_there && size != f->o.world_size)
            return dtpi_fail(err, DTP_ERR_FORMAT, "%s=%d contradicts %s=%lld", l->size,
                             f->o.world_size, other->size, (long long)size);
        if (is_there && rank != f->o.rank)
            return dtpi_fail(err, DTP_ERR_FORMAT, "%s=%d contradicts %s=%lld", l->rank, f->o.rank,
                             other->rank, (long long)rank);
    }
    return DTP_OK;
}

static dtp_status launcher_from_env(struct found *f, const struct launcher **out, dtp_error *err)
{
    for (size_t i = 0; i < DTPI_ARRAY_LEN(launchers); i++) {
        const struct launcher *l = &launchers[i];
        int64_t rank = 0, size = 0;
        bool is_there;
        dtp_status st = ranks_from_env(l, &rank, &size, &is_there, err);
        if (st < 0)
            return st;
        if (!is_there)
            continue;
        f->o.rank = (int32_t)rank;
        f->o.world_size = (int32_t)size;
        *out = l;
        return check_others_from_env(l, f, err);
    }
    *out = NULL;
    return DTP_OK;
}

/* ---- secret ---- */

static dtp_status read_secret_file(const char *path, uint8_t *secret_out, dtp_error *err)
{
    char text[2 * DTP_SECRET_BYTES + 2] = "";
    /* A pipe must not make it wait. */
    DTPI_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;

    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open DTP_SECRET_FILE %s: %m", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return dtpi_fail(err, DTP_ERR_FORMAT, "DTP_SECRET_FILE %s is no regular file", path);
    if (st.st_mode & 077)
        return dtpi_fail(err, DTP_ERR_PERM, "DTP_SECRET_FILE %s is readable by others (mode %o): chmod 600",
                         path, st.st_mode & 0777);
    const ssize_t n = read(fd, text, sizeof(text) - 1);
    if (n > 0 && text[n - 1] == '\n')
        text[n - 1] = '\0';
    const bool ok = n > 0 && dtpi_parse_hex(text, secret_out, DTP_SECRET_BYTES);
    sodium_memzero(text, sizeof(text));
    return ok ? DTP_OK
              : dtpi_fail(err, DTP_ERR_FORMAT, "DTP_SECRET_FILE %s does not hold %d hex digits", path,
                          2 * DTP_SECRET_BYTES);
}

static dtp_status secret_from_env(struct found *f, dtp_error *err)
{
    const char *hex = text_from_env("DTP_SECRET"), *path = text_from_env("DTP_SECRET_FILE");
    int64_t insecure = 0;

    dtp_status st = number_from_env("DTP_INSECURE", 0, 1, &insecure, err);
    if (st < 0)
        return st;
    if (insecure && (hex || path))
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s contradicts DTP_INSECURE=1",
                         hex ? "DTP_SECRET" : "DTP_SECRET_FILE");
    if (hex && path)
        return dtpi_fail(err, DTP_ERR_FORMAT, "DTP_SECRET contradicts DTP_SECRET_FILE: set one of them");
    f->o.insecure = (uint32_t)insecure;
    if (hex && !dtpi_parse_hex(hex, f->secret, DTP_SECRET_BYTES))
        return dtpi_fail(err, DTP_ERR_FORMAT, "DTP_SECRET does not have %d hex digits",
                         2 * DTP_SECRET_BYTES);
    if (path)
        st = read_secret_file(path, f->secret, err);
    if (hex || path)
        f->o.secret = f->secret;
    return st;
}

/* ---- the rest ---- */

/* A job's name, or what of a launcher's id fits into one. */
static void job_from_env(const struct launcher *l, struct found *f)
{
    const char *text = text_from_env(l->job);

    f->o.job = text_from_env("DTP_JOB");
    if (f->o.job || !text)
        return;
    snprintf(f->job, sizeof(f->job), "%s", text);
    f->o.job = f->job;
}

static dtp_status root_from_env(const struct launcher *l, struct found *f, dtp_error *err)
{
    const char *root = text_from_env("DTP_ROOT"), *addr = text_from_env("MASTER_ADDR");
    int64_t port = 0;

    if (root) {
        f->o.root = root;
        return DTP_OK;
    }
    if (l == &launchers[0] || !addr || f->o.local_size == 0 || f->o.local_size == f->o.world_size)
        return DTP_OK;
    const dtp_status st = number_from_env("MASTER_PORT", 1, 65535 - ROOT_PORTS, &port, err);
    if (st < 0)
        return st;
    if (port == 0)
        return dtpi_fail(err, DTP_ERR_FORMAT, "MASTER_ADDR is set, but MASTER_PORT is not");
    const bool is_v6 = strchr(addr, ':') && addr[0] != '[';
    snprintf(f->root, sizeof(f->root), "%s%.240s%s:%d-%d", is_v6 ? "[" : "", addr, is_v6 ? "]" : "",
             (int)port + 1, (int)port + ROOT_PORTS);
    f->o.root = f->root;
    return DTP_OK;
}

static dtp_status rest_from_env(const struct launcher *l, struct found *f, dtp_error *err)
{
    int64_t attempt = 0, timeout_ms = 0, encrypt = 0;

    job_from_env(l, f);
    f->o.agent = text_from_env("DTP_AGENT");
    f->o.net = text_from_env("DTP_NET");
    dtp_status st = number_from_env(l->attempt, 0, UINT32_MAX, &attempt, err);
    if (st >= 0)
        st = number_from_env("DTP_ATTEMPT", 0, UINT32_MAX, &attempt, err);
    if (st >= 0)
        st = number_from_env("DTP_TIMEOUT_MS", 1, INT32_MAX, &timeout_ms, err);
    if (st >= 0)
        st = number_from_env("DTP_ENCRYPT", 0, 1, &encrypt, err);
    if (st >= 0)
        st = local_from_env(l, f, err);
    if (st >= 0)
        st = root_from_env(l, f, err);
    if (st >= 0)
        st = secret_from_env(f, err);
    f->o.attempt = (uint32_t)attempt;
    f->o.timeout_ms = (int32_t)timeout_ms;
    f->o.encrypt = (uint32_t)encrypt;
    return st;
}

dtp_status dtp_group_join_from_env(dtp_ctx *ctx, dtp_group **group_out, dtp_error *err)
{
    struct found f = { .o = DTP_GROUP_OPTS_INIT };
    const struct launcher *l = NULL;

    dtp_status st = launcher_from_env(&f, &l, err);
    if (st >= 0 && l)
        st = rest_from_env(l, &f, err);
    if (st >= 0) {
        if (l)
            DTPI_LOG(ctx, DTP_LOG_INFO, "group", "rank %d of %d, as %s says", f.o.rank, f.o.world_size,
                     l->name);
        st = dtp_group_join(ctx, &f.o, group_out, err);
    }
    sodium_memzero(f.secret, sizeof(f.secret));
    return dtpi_noun(err, "group", st);
}

/* ---- writing ---- */

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
    put_text(&w, "DTP_ROOT", o.root);
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
    if (o.timeout_ms)
        put_number(&w, "DTP_TIMEOUT_MS", o.timeout_ms);
    return w.st;
}
