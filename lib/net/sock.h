/* SPDX-License-Identifier: Apache-2.0 */
/* sock.h - listening and connecting, Unix and TCP; nothing blocks but dtpi_endpoint_resolve. */
#ifndef DTPI_NET_SOCK_H
#define DTPI_NET_SOCK_H

#include <sys/types.h>

#include "net/addr.h"

/* '@' first: an abstract name, else a path (removed first when nobody listens on it). 0600. */
dtp_status dtpi_unix_listen(const char *name, int *fd_out, dtp_error *err);
/* PENDING: nobody listens there yet, or the queue is full: try again. */
dtp_status dtpi_unix_connect(const char *name, int *fd_out, dtp_error *err);
/* Credentials of the other end at connect time. */
dtp_status dtpi_unix_peer(int fd, uid_t *uid_out, pid_t *pid_out, dtp_error *err);

/*
 * Where an agent may be: "host:port", "host:first-last" or "[v6]:port", several with commas between. A
 * literal IPv6 address that is link-local and without a scope is tried on every link.
 */
enum { DTPI_ENDPOINT_HOSTS = 16, DTPI_ENDPOINT_ADDRS = 32, DTPI_ENDPOINT_PORTS = 64, DTPI_HOST_NAME_MAX = 255 };

typedef struct dtpi_endpoint {
    uint32_t n_hosts, n_addrs;
    struct {
        char name[DTPI_HOST_NAME_MAX + 1];
        uint16_t first_port, last_port;
        bool is_resolved;
    } hosts[DTPI_ENDPOINT_HOSTS];
    struct {
        dtpi_sa sa;             /* port not filled in */
        uint16_t first_port, last_port;
    } addrs[DTPI_ENDPOINT_ADDRS];
} dtpi_endpoint;

/* Splits, and takes literal addresses; asks nobody. FORMAT names the text. */
dtp_status dtpi_endpoint_parse(const char *text, dtpi_endpoint *out, dtp_error *err);
/* The first host that needs a look-up, -1: none; and what a look-up found (list may be NULL). */
int dtpi_endpoint_next_name(const dtpi_endpoint *e);
/* Adds links that came up since for a link-local address without a scope; false where there is none such. */
bool dtpi_endpoint_relink(dtpi_endpoint *e);
struct addrinfo;
void dtpi_endpoint_add(dtpi_endpoint *e, int host, const struct addrinfo *list);
/* Looks every name up, waiting for each. NOT_FOUND, TIMEOUT name the first host without an address. */
dtp_status dtpi_endpoint_resolve(dtpi_endpoint *e, int timeout_ms, dtp_error *err);
/* Combinations of address and port; the first port of every address comes first. */
uint32_t dtpi_endpoint_n_attempts(const dtpi_endpoint *e);
void dtpi_endpoint_get(const dtpi_endpoint *e, uint32_t attempt, dtpi_sa *out);

/*
 * Listens on the first free port of the list: on the address where it is a single literal one of this
 * machine, else on all addresses, IPv6 and IPv4. No name is looked up. EXISTS where every port is taken;
 * `text_out` gets what was bound.
 */
dtp_status dtpi_tcp_listen(const dtpi_endpoint *e, int *fd_out, char *text_out, size_t room,
                           dtp_error *err);
/*
 * As an option says it: NULL, any free port on all addresses; "host:first-last"; ":first-last", on all
 * addresses; "fd:5", a listening TCP socket that is handed over. Errors: FORMAT, EXISTS, IO, PERM.
 */
dtp_status dtpi_tcp_listen_at(const char *where, int *fd_out, uint16_t *port_out, dtp_error *err);
/* Starts to connect; the descriptor is writable when done. `mss` 0: the kernel's. IO, with errno. */
dtp_status dtpi_tcp_connect(const dtpi_sa *to, int mss, int *fd_out, dtp_error *err);
/* Options of a connected socket: no delay, no signals. */
void dtpi_tcp_tune(int fd);
/* "1.2.3.4:5" of the other end. */
void dtpi_tcp_peer_text(int fd, char *text_out, size_t room);

#endif /* DTPI_NET_SOCK_H */
