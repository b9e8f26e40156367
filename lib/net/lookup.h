/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.h - asks for the addresses of a host name without waiting: libc's own helper thread asks, all
 * signals blocked there. Nothing is ever asked in the other direction.
 */
#ifndef DTPI_NET_LOOKUP_H
#define DTPI_NET_LOOKUP_H

#include "base/base.h"

typedef struct dtpi_lookup dtpi_lookup;
struct addrinfo;

/* NULL: no memory, or no thread. */
dtpi_lookup *dtpi_lookup_start(const char *name);
/* PENDING, OK with the list (lent) or NOT_FOUND with a text; waits up to `wait_ms` for it. */
dtp_status dtpi_lookup_poll(dtpi_lookup *l, int wait_ms, const struct addrinfo **list_out, dtp_error *err);
/* NULL is fine. A question that is still under way keeps its few bytes until libc has an answer, for ever. */
void dtpi_lookup_free(dtpi_lookup *l);
DTPI_DEFINE_AUTO(lookup, dtpi_lookup, dtpi_lookup_free);

#endif /* DTPI_NET_LOOKUP_H */
