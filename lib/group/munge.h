/* SPDX-License-Identifier: Apache-2.0 */
/*
 * munge.h - hands a job's secret to other nodes where the launcher carries none (Slurm): in a MUNGE
 * credential that only processes of the same user can read. libmunge is loaded when first needed.
 *
 * Calls wait for munged, on this machine, as long as libmunge does (seconds at worst).
 */
#ifndef DTPI_GROUP_MUNGE_H
#define DTPI_GROUP_MUNGE_H

#include <dtp/group.h>

#include "base/base.h"

enum { DTPI_MUNGE_TEXT = 480 };     /* of a credential, with its end */

/* libmunge can be loaded. */
bool dtpi_munge_is_there(void);
/*
 * `socket` of munged, "": the usual one. `job` and `attempt` are bound in.
 * Errors: UNSUPPORTED (no libmunge), IO (no munged), AUTH (it refuses), LIMIT.
 */
dtp_status dtpi_munge_encode(const char *socket, const char *job, uint32_t attempt,
                             const uint8_t *secret, char text_out[DTPI_MUNGE_TEXT], dtp_error *err);
/*
 * Of this user's process, of this job. Errors: UNSUPPORTED, IO, AUTH (another user's, another job's, expired, for
 * others), BUSY (read before on this machine: ask for another).
 */
dtp_status dtpi_munge_decode(const char *socket, const char *job, uint32_t attempt, const char *text,
                             uint8_t *secret_out, dtp_error *err);

#endif /* DTPI_GROUP_MUNGE_H */
