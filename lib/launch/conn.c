/* SPDX-License-Identifier: Apache-2.0 */
/* conn.c - reads and writes frames of the shim protocol without blocking. */
#include "launch/conn.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, READS_PER_TURN = 16 };

bool dtpi_conn_peer_ok(int fd)
{
    struct ucred cred;
    socklen_t bytes = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) < 0)
        return false;
    return cred.uid == geteuid() || cred.uid == 0;
}

static void lose(dtpi_conn *c, const dtp_error *why)
{
    if (c->lost)
        return;
    c->lost = true;
    dtpi_source_remove(c->ctx, &c->source);
    dtpi_buf_reset(&c->out);
    c->on_lost(c, why);
}

static void lose_errno(dtpi_conn *c, const char *what)
{
    dtp_error why = { 0 };

    if (errno != EPIPE && errno != ECONNRESET)
        dtpi_fail(&why, DTP_ERR_IO, "cannot %s the shim's socket: %m", what);
    lose(c, &why);
}

static void watch(dtpi_conn *c, uint32_t events)
{
    dtp_error why = { 0 };

    /* What is queued would wait for ever. */
    if (dtpi_source_modify(c->ctx, &c->source, events, &why) < 0)
        lose(c, &why);
}

/* Writes what the socket takes. */
static void flush(dtpi_conn *c)
{
    while (c->out.len > 0 && !c->lost) {
        const ssize_t n = send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            dtpi_buf_consume(&c->out, (size_t)n);
        } else if (n < 0 && errno == EAGAIN) {
            watch(c, EPOLLIN | EPOLLOUT);
            return;
        } else if (errno != EINTR) {
            lose_errno(c, "write to");
            return;
        }
    }
    if (!c->lost)
        watch(c, EPOLLIN);
}

/* Hands out the whole frames that have come. */
static void deliver(dtpi_conn *c)
{
    size_t at = 0;

    while (!c->lost) {
        dtpi_shim_msg msg;
        dtp_error why = { 0 };
        size_t used = 0;

        const dtp_status st = dtpi_shim_decode(c->in.data + at, c->in.len - at, &msg, &used, &why);
        if (st == DTP_PENDING)
            break;
        if (st < 0) {
            lose(c, &why);
            break;
        }
        at += used;
        c->on_msg(c, &msg);
    }
    dtpi_buf_consume(&c->in, at);
}

static void ready(dtpi_source *s, uint32_t revents)
{
    dtpi_conn *c = DTPI_CONTAINER(s, dtpi_conn, source);

    if (revents & EPOLLOUT)
        flush(c);
    if ((revents & EPOLLOUT) && !c->lost && c->out.len == 0 && c->on_room)
        c->on_room(c);
    for (int i = 0; i < READS_PER_TURN && !c->lost; i++) {
        uint8_t *p = dtpi_buf_reserve(&c->in, READ_BYTES);
        if (!p) {
            dtp_error why = { 0 };
            dtpi_fail_nomem(&why, READ_BYTES);
            lose(c, &why);
            return;
        }
        const ssize_t n = recv(c->fd, p, READ_BYTES, MSG_DONTWAIT);
        if (n > 0) {
            c->in.len += (size_t)n;
            deliver(c);
        } else if (n == 0) {
            lose(c, &(dtp_error){ .rank = -1 });
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            lose_errno(c, "read from");
        }
    }
}

dtp_status dtpi_conn_open(dtpi_conn *c, dtp_ctx *ctx, int fd_take, dtp_error *err)
{
    c->ctx = ctx;
    c->in = dtpi_buf_init(dtpi_ctx_alloc(ctx));
    c->out = dtpi_buf_init(dtpi_ctx_alloc(ctx));
    c->lost = false;
    c->source = (dtpi_source){ .fd = fd_take, .events = EPOLLIN, .ready = ready };
    c->fd = -1;
    const dtp_status st = dtpi_source_add(ctx, &c->source, err);
    if (st < 0)
        return st;
    c->fd = fd_take;
    return DTP_OK;
}

void dtpi_conn_close(dtpi_conn *c)
{
    if (!c->ctx)
        return;
    dtpi_source_remove(c->ctx, &c->source);
    dtpi_close_fd(&c->fd);
    dtpi_buf_free(&c->in);
    dtpi_buf_free(&c->out);
    c->ctx = NULL;
}

dtp_status dtpi_conn_send(dtpi_conn *c, const dtpi_shim_msg *msg, dtp_error *err)
{
    if (!dtpi_conn_is_open(c) || c->lost)
        return DTP_OK;
    const dtp_status st = dtpi_shim_encode(&c->out, msg, err);
    if (st < 0)
        return st;
    if (!(c->source.events & EPOLLOUT))
        flush(c);
    return DTP_OK;
}
