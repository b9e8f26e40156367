/* SPDX-License-Identifier: Apache-2.0 */
/* addr.h - internet addresses: text, routes, interfaces, and those under which others reach this machine. */
#ifndef DTPI_NET_ADDR_H
#define DTPI_NET_ADDR_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/base.h"

enum { DTPI_ADDR_TEXT = 72, DTPI_OWN_MAX = 8, DTPI_OWN_TEXT = DTPI_OWN_MAX * DTPI_ADDR_TEXT };

/* An IPv4 or IPv6 address with a port. */
typedef union dtpi_sa {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
} dtpi_sa;

socklen_t dtpi_sa_len(const dtpi_sa *sa);
uint16_t dtpi_sa_port(const dtpi_sa *sa);
void dtpi_sa_set_port(dtpi_sa *sa, uint16_t port);
bool dtpi_sa_is_loopback(const dtpi_sa *sa);
bool dtpi_sa_is_link_local(const dtpi_sa *sa);      /* IPv6; it needs a scope to be used */
/* The same host, whatever the ports; an unknown scope fits any. */
bool dtpi_sa_same_host(const dtpi_sa *a, const dtpi_sa *b);
/* "1.2.3.4:5", "[fe80::1%eth0]:5"; port 0: the address alone. */
void dtpi_sa_text(const dtpi_sa *sa, char *text_out, size_t room);
/* Own and other end of a connected socket; IPv4 as such, also behind a socket of both families. */
bool dtpi_sa_own(int fd, dtpi_sa *out);
bool dtpi_sa_peer(int fd, dtpi_sa *out);
/* A literal, "1.2.3.4", "fe80::1%eth0"; never asks a name service. */
bool dtpi_sa_parse(const char *host, dtpi_sa *out);

/* Own address that a packet to `to` would carry: asked from the kernel's routes, sends nothing. 0 or an errno. */
int dtpi_route_source(const dtpi_sa *to, dtpi_sa *own_out);
/* Name of the interface with this address; false where it is not this machine's. */
bool dtpi_interface_of(const dtpi_sa *own, char *name_out, size_t room);
/* Scopes of interfaces that are up and speak IPv6, best first. */
uint32_t dtpi_link_scopes(uint32_t *scopes_out, uint32_t capacity);

/*
 * Addresses with which an agent that listens on `port` can be reached, best first, as a list of end points:
 * the one that faces `towards` (addresses of the root, may be none), then global, private and link-local
 * ones, those of bridges for containers last. Loopback only where `towards` is this machine's loopback,
 * or nothing else is there. Returns how many.
 */
uint32_t dtpi_own_candidates(uint16_t port, const dtpi_sa *towards, uint32_t n_towards, char *text_out,
                             size_t room);
/* The same for a listening socket: one that is bound to an address has that alone. */
uint32_t dtpi_listener_candidates(int fd, const dtpi_sa *towards, uint32_t n_towards, char *text_out,
                                  size_t room);

#endif /* DTPI_NET_ADDR_H */
