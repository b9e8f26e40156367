/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn.h - one connection of the shim protocol in a context's loop, the same at both ends.
 *
 * Messages are queued and leave as the socket takes them; nothing blocks. Callbacks may send, but
 * must not close the connection from inside: they set a mark and close later.
 */
#ifndef DTPI_LAUNCH_CONN_H
#define DTPI_LAUNCH_CONN_H

#include "ctx/ctx.h"
#include "launch/wire.h"

/* Output is not queued above this; other messages always are. */
enum { DTPI_CONN_HIGH_WATER = 256 << 10 };

typedef struct dtpi_conn dtpi_conn;
struct dtpi_conn {
    dtp_ctx *ctx;
    int fd;                     /* owned; -1: closed */
    dtpi_source source;
    dtpi_buf in, out;
    bool lost;                  /* the peer is gone: sends are dropped */
    void (*on_msg)(dtpi_conn *c, const dtpi_shim_msg *msg);     /* the message is lent */
    void (*on_lost)(dtpi_conn *c, const dtp_error *why);        /* once; why->status OK: it left */
    void (*on_room)(dtpi_conn *c);      /* optional: the queue is empty again */
    void *user;
};

/* Takes `fd` on success. The callbacks are set by the caller before. */
dtp_status dtpi_conn_open(dtpi_conn *c, dtp_ctx *ctx, int fd_take, dtp_error *err);
void dtpi_conn_close(dtpi_conn *c);
static inline bool dtpi_conn_is_open(const dtpi_conn *c)
{
    return c->ctx && c->fd >= 0;
}

/* Queues a message and tries to write. A lost peer is no error here. Errors: NOMEM, LIMIT. */
dtp_status dtpi_conn_send(dtpi_conn *c, const dtpi_shim_msg *msg, dtp_error *err);

/* Bytes of output that may be queued now. */
static inline size_t dtpi_conn_room(const dtpi_conn *c)
{
    return c->out.len < DTPI_CONN_HIGH_WATER ? DTPI_CONN_HIGH_WATER - c->out.len : 0;
}

/* True when the peer of a Unix socket has this process's user (or is root). */
bool dtpi_conn_peer_ok(int fd);

#endif /* DTPI_LAUNCH_CONN_H */
