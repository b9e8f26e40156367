/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.h - how a launcher tells a rank where its group is: the DTP_* variables.
 *
 *   DTP_JOB DTP_ATTEMPT DTP_RANK DTP_WORLD_SIZE DTP_LOCAL_RANK DTP_LOCAL_SIZE
 *   DTP_NODE DTP_NODES DTP_RADIX DTP_PARENT DTP_LISTEN
 *   DTP_ROOT (host:port) or DTP_BOARD; DTP_AGENT (Unix socket; '@' first: abstract)
 *   DTP_SECRET (64 hex digits), DTP_SECRET_FILE, DTP_SECRET_FD or DTP_MUNGE; DTP_INSECURE=1; DTP_NET; DTP_TIMEOUT_MS
 */
#ifndef DTPI_GROUP_ENV_H
#define DTPI_GROUP_ENV_H

#include <dtp/group.h>

#include "base/base.h"

/* Calls `put` for every variable that describes `opts`. A status below 0 ends it. */
dtp_status dtpi_group_env_write(const dtp_group_opts *opts,
                                dtp_status (*put)(void *user, const char *name, const char *value),
                                void *user, dtp_error *err);

#endif /* DTPI_GROUP_ENV_H */
