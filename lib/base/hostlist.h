/* SPDX-License-Identifier: Apache-2.0 */
/* hostlist.h - expands host lists as Slurm writes them: "n[1-4,07],login". */
#ifndef DTPI_HOSTLIST_H
#define DTPI_HOSTLIST_H

#include "base/base.h"

/* Most names one list may expand to. */
enum { DTPI_HOSTLIST_MAX = 1 << 20 };

/*
 * Calls `each` for every name in order; a status below 0 from it ends the walk and is returned. A list
 * is read as it is expanded: names may have been given before a fault further back is found.
 * Errors: FORMAT (names the list), LIMIT (too many names).
 * Source: https://slurm.schedmd.com/hostlist.html (ranges with leading zeros, several brackets).
 */
dtp_status dtpi_hostlist_expand(const char *list, dtp_status (*each)(void *user, const char *name),
                                void *user, dtp_error *err);

#endif /* DTPI_HOSTLIST_H */
