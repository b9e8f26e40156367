/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env_launch.c - who a rank is and where its group meets, as launchers say it: DTP_* first, then what
 * torchrun, Open MPI, Hydra and Slurm set. docs/group.md has the table.
 */
#include <stdio.h>
#include <stdlib.h>

#include "group/env_internal.h"

/* Innermost first: mpirun may run under Slurm, torchrun under both. */
static const struct launcher launchers[] = {
    { .kind = LAUNCHER_DTP, .name = "dtp", .rank = "DTP_RANK", .size = "DTP_WORLD_SIZE",
      .local_rank = "DTP_LOCAL_RANK", .local_size = "DTP_LOCAL_SIZE", .node = "DTP_NODE",
      .n_nodes = "DTP_NODES", .job = "DTP_JOB", .attempt = "DTP_ATTEMPT" },
    { .kind = LAUNCHER_TORCHRUN, .name = "torchrun", .rank = "RANK", .size = "WORLD_SIZE",
      .local_rank = "LOCAL_RANK", .local_size = "LOCAL_WORLD_SIZE", .node = "GROUP_RANK",
      .n_nodes = "GROUP_WORLD_SIZE", .job = "TORCHELASTIC_RUN_ID",
      .attempt = "TORCHELASTIC_RESTART_COUNT" },
    { .kind = LAUNCHER_OPEN_MPI, .name = "Open MPI", .rank = "OMPI_COMM_WORLD_RANK",
      .size = "OMPI_COMM_WORLD_SIZE", .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
      .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE", .job = "PMIX_NAMESPACE" },
    { .kind = LAUNCHER_HYDRA, .name = "Hydra", .rank = "PMI_RANK", .size = "PMI_SIZE",
      .local_rank = "MPI_LOCALRANKID", .local_size = "MPI_LOCALNRANKS", .mark = "MPI_LOCALRANKID" },
    /* A batch script has rank and size too, but is no task of a step. */
    { .kind = LAUNCHER_SLURM, .name = "Slurm", .rank = "SLURM_PROCID", .size = "SLURM_NTASKS",
      .local_rank = "SLURM_LOCALID", .node = "SLURM_NODEID", .n_nodes = "SLURM_STEP_NUM_NODES",
      .job = "SLURM_JOB_ID", .attempt = "SLURM_RESTART_COUNT", .mark = "SLURM_STEP_ID" },
};

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
        if (times > INT32_MAX || n > INT32_MAX)
            return 0;
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
    if (st >= 0 && l->kind == LAUNCHER_SLURM)
        st = env_number_from_env("SLURM_NODEID", 0, INT32_MAX, &node, err);
    if (st < 0)
        return st;
    if (l->kind == LAUNCHER_SLURM)
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

    *is_there = has_rank && has_size && (!l->mark || env_text_from_env(l->mark));
    if (l->kind == LAUNCHER_DTP && has_rank != has_size)
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

/*
 * Two launchers that say different things: no guess. Slurm's numbers may be of an outer level, and so may
 * all be where torchrun certainly started this process.
 */
static dtp_status check_others_from_env(const struct launcher *l, const struct found *f,
                                        dtp_error *err)
{
    if (l->kind == LAUNCHER_TORCHRUN && env_text_from_env("TORCHELASTIC_RUN_ID"))
        return DTP_OK;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(launchers); i++) {
        const struct launcher *other = &launchers[i];
        int64_t rank = 0, size = 0;
        bool is_there = false;
        if (other == l || other->kind == LAUNCHER_SLURM)
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

bool env_slurm_is_arbitrary_from_env(const struct launcher *l)
{
    const char *how = env_text_from_env("SLURM_DISTRIBUTION");

    return l->kind == LAUNCHER_SLURM && how && strncmp(how, "arbitrary", 9) == 0;
}

/* This node's place among the nodes, where the launcher numbers them. */
static dtp_status node_from_env(const struct launcher *l, struct found *f, dtp_error *err)
{
    int64_t node = -1, n_nodes = 0;

    dtp_status st = env_number_from_env(l->node, 0, INT32_MAX, &node, err);
    if (st >= 0)
        st = env_number_from_env(l->n_nodes, 1, INT32_MAX, &n_nodes, err);
    if (st >= 0 && l->kind == LAUNCHER_DTP && (node >= 0) != (n_nodes > 0))
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s is set, but %s is not", node >= 0 ? l->node : l->n_nodes,
                         node >= 0 ? l->n_nodes : l->node);
    if (st < 0 || node < 0 || n_nodes == 0)
        return st;
    if (node >= n_nodes || n_nodes > f->o.world_size)
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s=%lld contradicts %s=%lld (world size %d)", l->node,
                         (long long)node, l->n_nodes, (long long)n_nodes, f->o.world_size);
    f->o.node = (int32_t)node;
    f->o.n_nodes = env_slurm_is_arbitrary_from_env(l) ? 0 : (int32_t)n_nodes;
    return DTP_OK;
}

/* A job's name, or what of a launcher's id fits into one. */
static void job_from_env(const struct launcher *l, struct found *f)
{
    const char *text = env_text_from_env(l->job), *step = env_text_from_env("SLURM_STEP_ID");

    f->o.job = env_text_from_env("DTP_JOB");
    if (f->o.job || !text)
        return;
    if (l->kind == LAUNCHER_SLURM)
        snprintf(f->job, sizeof(f->job), "%s.%s", text, step ? step : "0");
    else
        snprintf(f->job, sizeof(f->job), "%s", text);
    f->o.job = f->job;
}

dtp_status env_place_from_env(const struct launcher *l, struct found *f, dtp_error *err)
{
    job_from_env(l, f);
    dtp_status st = local_from_env(l, f, err);
    if (st >= 0)
        st = node_from_env(l, f, err);
    if (st >= 0)
        st = env_root_from_env(l, f, err);
    return st;
}
