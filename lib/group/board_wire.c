/* SPDX-License-Identifier: Apache-2.0 */
/* board_wire.c - sending and receiving until a deadline; the descriptor's flags stay as they are. */
#include "group/board_wire.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

enum { SLICE_MS = 50 };

dtp_status board_wire_check(const board_wire *w, dtp_error *err)
{
    int type = 0;
    socklen_t len = sizeof(type);

    if (w->fd < 0 || getsockopt(w->fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_STREAM)
        return dtpi_fail(err, DTP_ERR_INVAL, "%s: descriptor %d is no stream socket", w->who, w->fd);
    return DTP_OK;
}

dtp_status board_wire_wait(const board_wire *w, short events, int64_t until_ns, dtp_error *err)
{
    struct pollfd p = { .fd = w->fd, .events = events };

    for (;;) {
        const int64_t left_ms = (until_ns - dtpi_board_now_ns() + DTPI_NS_PER_MS - 1) / DTPI_NS_PER_MS;
        const int n = poll(&p, 1, (int)DTPI_MIN(DTPI_MAX(left_ms, 0), (int64_t)SLICE_MS));
        if (n > 0)
            return DTP_OK;
        if (n < 0 && errno != EINTR)
            return dtpi_fail(err, DTP_ERR_IO, "%s: cannot wait: %m", w->who);
        if (w->interrupted && w->interrupted(w->user))
            return dtpi_fail(err, DTP_ERR_INTERRUPTED, "%s: interrupted", w->who);
        if (left_ms <= 0)
            return dtpi_fail(err, DTP_ERR_TIMEOUT, "%s did not answer in time", w->who);
    }
}

static dtp_status broken(const board_wire *w, const char *doing, dtp_error *err)
{
    return dtpi_fail(err, DTP_ERR_IO, "%s: cannot %s: %m", w->who, doing);
}

dtp_status board_wire_send(const board_wire *w, const void *data, size_t bytes, int64_t until_ns,
                           dtp_error *err)
{
    const uint8_t *p = data;

    while (bytes > 0) {
        const ssize_t n = send(w->fd, p, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            p += n;
            bytes -= (size_t)n;
            continue;
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return broken(w, "send", err);
        const dtp_status st = board_wire_wait(w, POLLOUT, until_ns, err);
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

/* One read; 0 bytes never. */
static dtp_status read_some(const board_wire *w, void *data, size_t bytes, int flags, size_t *n_out,
                            int64_t until_ns, dtp_error *err)
{
    for (;;) {
        const ssize_t n = recv(w->fd, data, bytes, MSG_DONTWAIT | flags);
        if (n > 0) {
            *n_out = (size_t)n;
            return DTP_OK;
        }
        if (n == 0)
            return dtpi_fail(err, DTP_ERR_IO, "%s closed the connection", w->who);
        if (errno != EAGAIN && errno != EINTR)
            return broken(w, "receive", err);
        const dtp_status st = board_wire_wait(w, POLLIN, until_ns, err);
        if (st < 0)
            return st;
    }
}

dtp_status board_wire_receive(const board_wire *w, void *data_out, size_t bytes, int64_t until_ns,
                              dtp_error *err)
{
    uint8_t *p = data_out;

    while (bytes > 0) {
        size_t n = 0;
        const dtp_status st = read_some(w, p, bytes, 0, &n, until_ns, err);
        if (st < 0)
            return st;
        p += n;
        bytes -= n;
    }
    return DTP_OK;
}

/* Looks first: what follows the line is somebody else's. */
dtp_status board_wire_line(const board_wire *w, char *line_out, size_t room, int64_t until_ns,
                           dtp_error *err)
{
    size_t at = 0;

    while (at < room) {
        size_t n = 0;
        dtp_status st = read_some(w, line_out + at, room - at, MSG_PEEK, &n, until_ns, err);
        if (st < 0)
            return st;
        const char *end = memchr(line_out + at, '\n', n);
        const size_t take = end ? (size_t)(end - (line_out + at)) + 1 : n;
        st = board_wire_receive(w, line_out + at, take, until_ns, err);
        if (st < 0)
            return st;
        at += take;
        if (end) {
            line_out[at - 1] = '\0';
            return memchr(line_out, '\0', at - 1) ? dtpi_fail(err, DTP_ERR_PROTO, "%s: a line holds NUL",
                                                              w->who)
                                                  : DTP_OK;
        }
    }
    return dtpi_fail(err, DTP_ERR_PROTO, "%s: a line is longer than %zu bytes", w->who, room - 1);
}
