/* SPDX-License-Identifier: Apache-2.0 */
/* sock.h - listening and connecting, Unix and TCP; nothing blocks but a host name that needs a look-up. */
#ifndef DTPI_NET_SOCK_H
#define DTPI_NET_SOCK_H

#include <sys/socket.h>
#include <sys/types.h>

#include "base/base.h"

/* '@' first: an abstract name, else a path (removed first when nobody listens on it). 0600. */
dtp_status dtpi_unix_listen(const char *name, int *fd_out, dtp_error *err);
/* PENDING: nobody listens there yet, or the queue is full: try again. */
dtp_status dtpi_unix_connect(const char *name, int *fd_out, dtp_error *err);
/* Credentials of the other end at connect time. */
dtp_status dtpi_unix_peer(int fd, uid_t *uid_out, pid_t *pid_out, dtp_error *err);

/* "host:port", "host:first-last" or "[v6]:port", resolved. */
enum { DTPI_ENDPOINT_ADDRS = 8, DTPI_ENDPOINT_PORTS = 64 };

typedef struct dtpi_endpoint {
    char host[256];
    uint16_t first_port, last_port;
    uint32_t n_addrs;
    struct sockaddr_storage addrs[DTPI_ENDPOINT_ADDRS];     /* port not filled in */
    socklen_t lens[DTPI_ENDPOINT_ADDRS];
} dtpi_endpoint;

/* Splits without resolving. FORMAT names the text. */
dtp_status dtpi_endpoint_parse(const char *text, dtpi_endpoint *out, dtp_error *err);
/* Fills the addresses; a literal address needs no name service. NOT_FOUND names the host. */
dtp_status dtpi_endpoint_resolve(dtpi_endpoint *e, dtp_error *err);

/*
 * Listens on the endpoint's first free port, on its own address where that is this machine's, else on
 * all. EXISTS where every port is taken; `text_out` gets what was bound.
 */
dtp_status dtpi_tcp_listen(const dtpi_endpoint *e, int *fd_out, char *text_out, size_t room,
                           dtp_error *err);
/* Starts to connect to combination `attempt` of address and port; the descriptor is writable when done. */
dtp_status dtpi_tcp_connect(const dtpi_endpoint *e, uint32_t attempt, int *fd_out, dtp_error *err);
uint32_t dtpi_endpoint_n_attempts(const dtpi_endpoint *e);
/* Options of a connected socket: no delay, no signals. */
void dtpi_tcp_tune(int fd);
/* "1.2.3.4:5" of the other end. */
void dtpi_tcp_peer_text(int fd, char *text_out, size_t room);

#endif /* DTPI_NET_SOCK_H */
