/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.h - what a rank is told through its environment: by libdtp, PyTorch, TensorFlow, JAX, OpenMP,
 * BLAS, CUDA and UCX each in its own words. Pure: the environment comes in as a list.
 */
#ifndef DTPI_JOB_ENV_H
#define DTPI_JOB_ENV_H

#include "job/spec.h"

/* Gangs up to this size get TF_CONFIG, which names a port of every rank. */
enum { DTPI_ENV_TF_RANKS = 512, DTPI_ENV_PORTS = 2 };

/* An attempt as the environment needs to know it. */
typedef struct dtpi_env_attempt {
    const dtpi_spec *spec;
    const char *name;           /* of the job */
    uint32_t attempt, n;
    const char *agent;          /* Unix socket of the node's agent; NULL: none */
    const char *secret_file;
    const uint16_t *ports;      /* master, JAX, then one per rank where n <= DTPI_ENV_TF_RANKS */
    uint32_t n_ports;
    bool hide_gpus;             /* there are GPUs and the job asked for none */
} dtpi_env_attempt;

typedef struct dtpi_env_rank {
    uint32_t rank;
    uint32_t n_cores;           /* for OpenMP and BLAS; 0: unknown */
    const char *gpus;           /* ordinals, "0,1"; "" none */
} dtpi_env_rank;

/* Ports that an attempt with `n` ranks wants. */
uint32_t dtpi_env_n_ports(uint32_t n);

/* The variables of rank `r` alone. Errors: NOMEM. */
dtp_status dtpi_env_of_rank(const dtpi_env_attempt *at, const dtpi_env_rank *r, dtpi_list *out,
                            dtp_error *err);

/* env_base and env merged, without the names that `rank_env` sets. Errors: NOMEM. */
dtp_status dtpi_env_common(const dtpi_spec *spec, const dtpi_list *rank_env, dtpi_list *out,
                           dtp_error *err);

/* Value of a variable in env, else in env_base; NULL: not set. */
const char *dtpi_env_lookup(const dtpi_spec *spec, const char *name);

#endif /* DTPI_JOB_ENV_H */
