/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.c - who talks to the shim: the supervisor that started it, one that attaches later, and
 * others that only want the job cancelled. One supervisor at a time.
 */
#include "shim/shim.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "launch/shim.h"

void serve_tell(shim *s, const dtpi_shim_msg *msg)
{
    if (serve_has_supervisor(s) && dtpi_conn_send(s->supervisor, msg, NULL) < 0)
        serve_lose(s);
}

void serve_lose(shim *s)
{
    if (serve_has_supervisor(s))
        s->supervisor->lost = true;
}

static void reply(dtpi_conn *c, const dtpi_shim_msg *msg)
{
    if (dtpi_conn_send(c, msg, NULL) < 0)
        c->lost = true;         /* no memory: whoever asked sees the end */
}

static void refuse(dtpi_conn *c, dtp_status status, const char *text)
{
    reply(c, &(dtpi_shim_msg){ .type = DTPI_SHIM_REFUSED, .status = status, .text = text });
}

/* ---- ports ---- */

/*
 * Bound and never listening, with SO_REUSEADDR: the kernel gives the port to nobody else, but a
 * rank that names it and sets SO_REUSEADDR too (torch, gRPC) can listen on it.
 */
static int reserve_port(uint16_t *port_out)
{
    struct sockaddr_in6 addr = { .sin6_family = AF_INET6 };
    struct sockaddr_in addr4 = { .sin_family = AF_INET };
    socklen_t bytes = sizeof(addr);
    const int on = 1, off = 0;

    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
            getsockname(fd, (struct sockaddr *)&addr, &bytes) == 0) {
            *port_out = ntohs(addr.sin6_port);
            return fd;
        }
        close(fd);
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    bytes = sizeof(addr4);
    if (bind(fd, (struct sockaddr *)&addr4, sizeof(addr4)) < 0 ||
        getsockname(fd, (struct sockaddr *)&addr4, &bytes) < 0) {
        close(fd);
        return -1;
    }
    *port_out = ntohs(addr4.sin_port);
    return fd;
}

static void give_ports(shim *s, dtpi_conn *c, uint32_t n)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(s->a);

    if (s->ports || n > DTPI_SHIM_MAX_PORTS) {
        refuse(c, DTP_ERR_PROTO, "ports asked for out of order");
        return;
    }
    s->ports = dtpi_alloc_array(s->a, n, sizeof(*s->ports));
    for (uint32_t i = 0; s->ports && i < n; i++) {
        uint16_t port = 0;
        s->ports[i] = reserve_port(&port);
        s->n_ports = i + 1;
        if (s->ports[i] < 0) {
            char text[128];
            snprintf(text, sizeof(text), "cannot reserve port %u of %u: %m", i + 1, n);
            refuse(c, dtpi_status_of_errno(errno), text);
            gang_drop(s);
            return;
        }
        const uint8_t raw[2] = { (uint8_t)port, (uint8_t)(port >> 8) };
        dtpi_buf_append(&list, raw, sizeof(raw));
    }
    reply(c,
          &(dtpi_shim_msg){ .type = DTPI_SHIM_PORTS, .data = list.data, .data_bytes = list.len });
}

/* ---- messages ---- */

static void on_hello(shim *s, dtpi_conn *c, const dtpi_shim_msg *m)
{
    struct stat sb = { 0 };

    if (m->magic != DTPI_SHIM_MAGIC || m->version != DTPI_SHIM_VERSION) {
        refuse(c, DTP_ERR_VERSION, "the shim of this job speaks another version");
        return;
    }
    if (m->role == DTPI_SHIM_SUPERVISOR) {
        if (serve_has_supervisor(s) || s->released) {
            if (s->released)
                refuse(c, DTP_ERR_NOT_FOUND, "it has just ended");
            else
                refuse(c, DTP_ERR_BUSY, "another supervisor is attached");
            return;
        }
        s->supervisor = c;
        output_rewind(s, m->output == DTPI_SHIM_OUTPUT_ALL);
    }
    /* Supervisors write to the journal too: what counts is its length now. */
    fstat(s->journal_fd, &sb);
    reply(c, &(dtpi_shim_msg){ .type = DTPI_SHIM_WELCOME, .version = DTPI_SHIM_VERSION,
                               .pid = (uint32_t)getpid(), .bytes = (uint64_t)sb.st_size });
    if (s->supervisor != c)
        return;
    output_pump(s);
    gang_forget_if_done(s);
}

/* From anyone: a supervisor decides itself; without one, the shim does what it would have done. */
static void on_cancel(shim *s, dtpi_conn *c)
{
    const dtpi_shim_msg canceled = { .type = DTPI_SHIM_CANCELED };

    if (serve_has_supervisor(s)) {
        serve_tell(s, &canceled);
    } else {
        shim_journal(s, (dtpi_journal_entry){ .type = DTPI_JOURNAL_CANCEL });
        gang_end(s, s->gang.msg.grace_ms);
    }
    reply(c, &canceled);
}

static void on_supervisor(shim *s, dtpi_conn *c, const dtpi_shim_msg *m)
{
    dtp_error err;
    dtp_status st = DTP_OK;

    switch (m->type) {
    case DTPI_SHIM_ASK_PORTS:
        give_ports(s, c, m->n);
        break;
    case DTPI_SHIM_ATTEMPT:
        st = gang_prepare(s, m, &err);
        break;
    case DTPI_SHIM_RANK:
        st = gang_add_rank(s, m, &err);
        break;
    case DTPI_SHIM_GO:
        gang_go(s);
        break;
    case DTPI_SHIM_END:
        gang_end(s, m->grace_ms);
        break;
    default:
        st = dtpi_fail(&err, DTP_ERR_PROTO, "unexpected %s", dtpi_shim_type_name(m->type));
        break;
    }
    if (st >= 0)
        return;
    /* A gang of which a part is missing is not started: GO finds none. */
    if (s->gang.phase == PHASE_COLLECTING)
        gang_drop(s);
    refuse(c, st, err.text);
}

static void on_msg(dtpi_conn *c, const dtpi_shim_msg *m)
{
    shim *s = c->user;

    if (m->type == DTPI_SHIM_HELLO)
        on_hello(s, c, m);
    else if (m->type == DTPI_SHIM_CANCEL)
        on_cancel(s, c);
    else if (s->supervisor == c)
        on_supervisor(s, c, m);
    else
        refuse(c, DTP_ERR_PROTO, "only the supervisor may do this");
}

static void on_lost(dtpi_conn *c, const dtp_error *why)
{
    shim *s = c->user;

    (void)why;
    if (s->supervisor == c && s->gang.phase == PHASE_COLLECTING)
        gang_drop(s);
}

static void on_room(dtpi_conn *c)
{
    shim *s = c->user;

    if (s->supervisor != c)
        return;
    output_pump(s);
    gang_forget_if_done(s);
}

/* ---- connections ---- */

static dtp_status add_conn(shim *s, int fd_take, dtp_error *err)
{
    for (int i = 0; i < MAX_CONNS; i++) {
        dtpi_conn *c = &s->conns[i];
        if (dtpi_conn_is_open(c))
            continue;
        *c = (dtpi_conn){ .on_msg = on_msg, .on_lost = on_lost, .on_room = on_room, .user = s };
        return dtpi_conn_open(c, s->ctx, fd_take, err);
    }
    return dtpi_fail(err, DTP_ERR_LIMIT, "too many connections");
}

static void on_connection(dtpi_source *source, uint32_t revents)
{
    shim *s = DTPI_CONTAINER(source, shim, listener);

    (void)revents;
    DTPI_AUTO_FD int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 || !dtpi_conn_peer_ok(fd))
        return;
    if (add_conn(s, fd, NULL) >= 0)
        dtpi_take_fd(&fd);
}

dtp_status serve_open(shim *s, int conn_fd, dtp_error *err)
{
    /* Relative to the job's folder, which the shim is in. */
    const struct sockaddr_un addr = { .sun_family = AF_UNIX, .sun_path = "sock" };

    s->listener = (dtpi_source){ .events = EPOLLIN, .ready = on_connection };
    s->listener.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->listener.fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make a socket: %m");
    unlink(addr.sun_path);
    const mode_t old = umask(0177);
    const int bound = bind(s->listener.fd, (const struct sockaddr *)&addr, sizeof(addr));
    umask(old);
    if (bound < 0 || listen(s->listener.fd, MAX_CONNS) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot listen on the job's socket: %m");
    dtp_status st = dtpi_source_add(s->ctx, &s->listener, err);
    if (st >= 0)
        st = add_conn(s, conn_fd, err);
    return st;
}

/*
 * The supervisor has closed its end and waits for us to close ours: then the cores must be free for
 * the next job, and the name too.
 */
static void release_if_over(shim *s)
{
    if (s->gang.phase != PHASE_NONE)
        return;
    s->released = true;
    dtpi_close_fd(&s->locks_fd);
    close(DTPI_SHIM_FD_ALIVE);
}

void serve_tidy(shim *s)
{
    for (int i = 0; i < MAX_CONNS; i++) {
        dtpi_conn *c = &s->conns[i];
        if (!dtpi_conn_is_open(c) || !c->lost)
            continue;
        if (s->supervisor == c) {
            s->supervisor = NULL;
            gang_forget_if_done(s);
            release_if_over(s);
        }
        dtpi_conn_close(c);
    }
}

void serve_close(shim *s)
{
    unlink("sock");
    for (int i = 0; i < MAX_CONNS; i++)
        dtpi_conn_close(&s->conns[i]);
    s->supervisor = NULL;
    dtpi_source_remove(s->ctx, &s->listener);
    dtpi_close_fd(&s->listener.fd);
}
