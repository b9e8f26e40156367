/* SPDX-License-Identifier: Apache-2.0 */
/* env_internal.h - what the files that read a launcher's environment share. */
#ifndef DTPI_GROUP_ENV_INTERNAL_H
#define DTPI_GROUP_ENV_INTERNAL_H

#include "group/board.h"
#include "group/env.h"

enum launcher_kind { LAUNCHER_DTP, LAUNCHER_TORCHRUN, LAUNCHER_OPEN_MPI, LAUNCHER_HYDRA, LAUNCHER_SLURM };

/* Names of the variables in which a launcher says who a rank is. */
struct launcher {
    enum launcher_kind kind;
    const char *name;
    const char *rank, *size, *local_rank, *local_size;
    const char *node, *n_nodes;     /* optional, like those that follow */
    const char *job, *attempt;
    const char *mark;               /* without it the numbers are an outer level's, or nobody's */
};

/* What was read; the options point into it. */
struct found {
    dtp_group_opts o;
    uint8_t secret[DTP_SECRET_BYTES];
    char job[64];
    char root[300], parent[300], listen[24];
    dtpi_board_opts board;          /* kind NULL: none */
    char place[300];
};

/* env.c: NULL where the variable is unset or empty. */
const char *env_text_from_env(const char *name);
/* Sets `*out` where the variable is set. */
dtp_status env_number_from_env(const char *name, int64_t min, int64_t max, int64_t *out, dtp_error *err);

/* env_launch.c: who this rank is, as the innermost launcher says; NULL: there is none. */
dtp_status env_launcher_from_env(struct found *f, const struct launcher **out, dtp_error *err);
/* The rest of what that launcher says: its node, where the root is, the job. */
dtp_status env_place_from_env(const struct launcher *l, struct found *f, dtp_error *err);

/* Tasks were laid out by hand: rank 0 may be on any node, and the nodes' numbers are no places in a tree. */
bool env_slurm_is_arbitrary_from_env(const struct launcher *l);

/* env_root.c: the root's address, or the board to look for it. */
dtp_status env_root_from_env(const struct launcher *l, struct found *f, dtp_error *err);

/* env_secret.c */
dtp_status env_secret_from_env(const struct launcher *l, struct found *f, dtp_error *err);

#endif /* DTPI_GROUP_ENV_INTERNAL_H */
