/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locks.h - which processors and GPUs of this machine are held, by locks that die with the holder.
 *
 * One file under the run directory; processor n owns bytes 64 n .. 64 n + 63, GPU n the same above
 * 1 MiB. A job holds OFD locks on its bytes through one open file that its shim and all its ranks
 * inherit, so that they are free when the last process is gone. The bytes name the holder.
 */
#ifndef DTPI_LAUNCH_LOCKS_H
#define DTPI_LAUNCH_LOCKS_H

#include "base/base.h"
#include "base/cpuset.h"

/* Opens (makes) the file DIR/locks. Errors: IO, PERM, NOSPC, LIMIT. */
dtp_status dtpi_locks_open(const char *dir, int *fd_out, dtp_error *err);

/* What others than `fd` hold. Errors: IO. */
dtp_status dtpi_locks_busy(int fd, dtpi_cpuset *cpus_out, dtpi_cpuset *gpus_out, dtp_error *err);

/*
 * Takes all of both sets for job `holder`, or nothing. Errors: BUSY (names one that is held and the
 * job that holds it), IO.
 */
dtp_status dtpi_locks_take(int fd, const char *holder, const dtpi_cpuset *cpus,
                           const dtpi_cpuset *gpus, dtp_error *err);

#endif /* DTPI_LAUNCH_LOCKS_H */
