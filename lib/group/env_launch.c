/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env_launch.c - who a rank is and where its group meets, as launchers say it: DTP_* first, then what
 * torchrun, Open MPI, Hydra and Slurm set. docs/group.md has the table.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "group/env_internal.h"

/* Ports behind MASTER_PORT (where torchrun's own store listens) that the root may take. */
enum { ROOT_PORTS = 8 };

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

    dtp_status st = env_number_from_env(l->local_rank, 0, INT32_MAX, &local_rank, err);
    if (st >= 0)
        st = env_number_from_env(l->local_size, 1, INT32_MAX, &local_size, err);
    if (st >= 0 && l == &launchers[SLURM])
        st = env_number_from_env("SLURM_NODEID", 0, INT32_MAX, &node, err);
    if (st < 0)
        return st;
    if (l == &launchers[SLURM])
        local_size = tasks_on_node(env_text_from_env("SLURM_STEP_TASKS_PER_NODE"), node);
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
    const bool has_rank = env_text_from_env(l->rank) != NULL, has_size = env_text_from_env(l->size) != NULL;

    *is_there = has_rank && has_size;
    if (l == &launchers[0] && has_rank != has_size)
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s is set, but %s is not", has_rank ? l->rank : l->size,
                         has_rank ? l->size : l->rank);
    if (!*is_there)
        return DTP_OK;
    dtp_status st = env_number_from_env(l->size, 1, INT32_MAX, size, err);
    if (st >= 0)
        st = env_number_from_env(l->rank, 0, INT32_MAX, rank, err);
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

dtp_status env_launcher_from_env(struct found *f, const struct launcher **out, dtp_error *err)
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

/* ---- where it is ---- */

/* A job's name, or what of a launcher's id fits into one. */
static void job_from_env(const struct launcher *l, struct found *f)
{
    const char *text = env_text_from_env(l->job);

    f->o.job = env_text_from_env("DTP_JOB");
    if (f->o.job || !text)
        return;
    snprintf(f->job, sizeof(f->job), "%s", text);
    f->o.job = f->job;
}

static dtp_status root_from_env(const struct launcher *l, struct found *f, dtp_error *err)
{
    const char *root = env_text_from_env("DTP_ROOT"), *addr = env_text_from_env("MASTER_ADDR");
    int64_t port = 0;

    if (root) {
        f->o.root = root;
        return DTP_OK;
    }
    if (l == &launchers[0] || !addr || f->o.local_size == 0 || f->o.local_size == f->o.world_size)
        return DTP_OK;
    const dtp_status st = env_number_from_env("MASTER_PORT", 1, 65535 - ROOT_PORTS, &port, err);
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

dtp_status env_place_from_env(const struct launcher *l, struct found *f, dtp_error *err)
{
    job_from_env(l, f);
    dtp_status st = local_from_env(l, f, err);
    if (st >= 0)
        st = root_from_env(l, f, err);
    return st;
}
