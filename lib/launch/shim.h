/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim.h - starts the shim program, or reaches one that runs. What is said then is wire.h.
 *
 * The shim detaches itself from the caller: it is no child that the caller would have to reap, it
 * has a session of its own, and it lives on when the caller dies.
 */
#ifndef DTPI_LAUNCH_SHIM_H
#define DTPI_LAUNCH_SHIM_H

#include "base/base.h"

/* Descriptors that the shim finds open when it starts. */
enum { DTPI_SHIM_FD_CONN = 3, DTPI_SHIM_FD_ALIVE = 4, DTPI_SHIM_FD_LOCKS = 5 };

typedef struct dtpi_shim_start {
    const char *program;
    const char *job_dir;            /* absolute; the shim's folder: sock, journal, logs/ */
    const char *const *env;         /* of the shim itself, NULL-terminated */
    int alive_fd;                   /* locked while the job has a shim; lent */
    int locks_fd;                   /* processors and GPUs (locks.h), or -1; lent */
} dtpi_shim_start;

/* Returns the connected socket. Errors: EXEC, LIMIT, IO. */
dtp_status dtpi_shim_spawn(const dtpi_shim_start *start, int *fd_out, dtp_error *err);

/*
 * Connects to the shim that listens in `job_dir`, without waiting. Errors: NOT_FOUND (none does), BUSY
 * (it accepts nobody at present), PERM, LIMIT, IO.
 */
dtp_status dtpi_shim_connect(const char *job_dir, int *fd_out, dtp_error *err);

#endif /* DTPI_LAUNCH_SHIM_H */
