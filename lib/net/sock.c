/* SPDX-License-Identifier: Apache-2.0 */
/* sock.c - listening and connecting, Unix and TCP. */
#include "net/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"

enum { BACKLOG = 4096 };

/* ---- Unix ---- */

static dtp_status unix_address(const char *name, struct sockaddr_un *sa, socklen_t *len_out,
                               dtp_error *err)
{
    const size_t n = strlen(name);

    memset(sa, 0, sizeof(*sa));
    sa->sun_family = AF_UNIX;
    if (n == 0 || n >= sizeof(sa->sun_path))
        return dtpi_fail(err, DTP_ERR_INVAL, "socket name '%.64s' has %zu characters, 1 to %zu fit",
                         name, n, sizeof(sa->sun_path) - 1);
    memcpy(sa->sun_path, name, n);
    if (name[0] == '@')
        sa->sun_path[0] = '\0';
    *len_out = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (name[0] == '@' ? 0 : 1));
    return DTP_OK;
}

/* A path whose owner is gone stays in the file system; a full queue is a sign of life. */
static void remove_stale(const char *name)
{
    DTPI_AUTO_FD int fd = -1;
    struct stat st;

    if (lstat(name, &st) == 0 && S_ISSOCK(st.st_mode) &&
        dtpi_unix_connect(name, &fd, NULL) == DTP_PENDING && errno == ECONNREFUSED)
        unlink(name);
}

dtp_status dtpi_unix_listen(const char *name, int *fd_out, dtp_error *err)
{
    struct sockaddr_un sa;
    socklen_t len;

    dtp_status st = unix_address(name, &sa, &len, err);
    if (st < 0)
        return st;
    DTPI_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open a Unix socket: %m");
    if (name[0] != '@') {
        remove_stale(name);
        fchmod(fd, 0600);
    }
    if (bind(fd, (struct sockaddr *)&sa, len) < 0)
        return dtpi_fail(err, errno == EADDRINUSE ? DTP_ERR_EXISTS : dtpi_status_of_errno(errno),
                         "cannot bind socket %s: %m", name);
    if (name[0] != '@' && chmod(name, 0600) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot protect socket %s: %m", name);
    if (listen(fd, BACKLOG) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot listen on socket %s: %m", name);
    *fd_out = dtpi_take_fd(&fd);
    return DTP_OK;
}

dtp_status dtpi_unix_connect(const char *name, int *fd_out, dtp_error *err)
{
    struct sockaddr_un sa;
    socklen_t len;

    dtp_status st = unix_address(name, &sa, &len, err);
    if (st < 0)
        return st;
    DTPI_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open a Unix socket: %m");
    if (connect(fd, (struct sockaddr *)&sa, len) < 0) {
        if (errno == ECONNREFUSED || errno == ENOENT || errno == EAGAIN || errno == EINTR)
            return DTP_PENDING;
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot connect to socket %s: %m", name);
    }
    *fd_out = dtpi_take_fd(&fd);
    return DTP_OK;
}

dtp_status dtpi_unix_peer(int fd, uid_t *uid_out, pid_t *pid_out, dtp_error *err)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot read a peer's credentials: %m");
    *uid_out = cred.uid;
    *pid_out = cred.pid;
    return DTP_OK;
}

/* ---- TCP ---- */

static dtp_status bad_endpoint(const char *text, dtp_error *err)
{
    return dtpi_fail(err, DTP_ERR_FORMAT, "root '%.100s' is not host:port", text);
}

dtp_status dtpi_endpoint_parse(const char *text, dtpi_endpoint *out, dtp_error *err)
{
    const char *colon = strrchr(text, ':');
    char ports[16];
    int64_t first, last;

    memset(out, 0, sizeof(*out));
    if (!colon || colon == text || strlen(colon + 1) >= sizeof(ports))
        return bad_endpoint(text, err);
    const bool bracketed = text[0] == '[' && colon[-1] == ']';
    const char *host = text + bracketed;
    const size_t n = (size_t)(colon - host) - bracketed;
    if (n == 0 || n >= sizeof(out->host) || (!bracketed && memchr(host, ':', n)))
        return bad_endpoint(text, err);
    memcpy(out->host, host, n);
    strcpy(ports, colon + 1);
    char *dash = strchr(ports, '-');
    if (dash)
        *dash = '\0';
    if (!dtpi_parse_i64(ports, 1, 65535, &first))
        return bad_endpoint(text, err);
    last = first;
    if (dash && (!dtpi_parse_i64(dash + 1, first, 65535, &last) ||
                 last - first >= DTPI_ENDPOINT_PORTS))
        return bad_endpoint(text, err);
    out->first_port = (uint16_t)first;
    out->last_port = (uint16_t)last;
    return DTP_OK;
}

dtp_status dtpi_endpoint_resolve(dtpi_endpoint *e, dtp_error *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };
    struct addrinfo *list = NULL;

    int rc = getaddrinfo(e->host, NULL, &hints, &list);
    if (rc != 0) {
        hints.ai_flags = 0;
        rc = getaddrinfo(e->host, NULL, &hints, &list);
    }
    if (rc != 0)
        return dtpi_fail(err, DTP_ERR_NOT_FOUND, "cannot resolve host %s: %s", e->host,
                         gai_strerror(rc));
    e->n_addrs = 0;
    for (struct addrinfo *ai = list; ai && e->n_addrs < DTPI_ENDPOINT_ADDRS; ai = ai->ai_next) {
        if (ai->ai_addrlen > sizeof(e->addrs[0]))
            continue;
        memcpy(&e->addrs[e->n_addrs], ai->ai_addr, ai->ai_addrlen);
        e->lens[e->n_addrs++] = ai->ai_addrlen;
    }
    freeaddrinfo(list);
    if (e->n_addrs == 0)
        return dtpi_fail(err, DTP_ERR_NOT_FOUND, "host %s has no address", e->host);
    return DTP_OK;
}

static void set_port(struct sockaddr_storage *sa, uint16_t port)
{
    if (sa->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)sa)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)sa)->sin_port = htons(port);
}

static void address_text(const struct sockaddr_storage *sa, char *text_out, size_t room)
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (sa->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        snprintf(text_out, room, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        snprintf(text_out, room, "%s:%u", host, ntohs(in->sin_port));
    }
}

/* Binds and listens; -1 with errno. */
static int listen_at(const struct sockaddr_storage *sa, socklen_t len)
{
    const int one = 1, zero = 0;
    DTPI_AUTO_FD int fd =
        socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (sa->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, (const struct sockaddr *)sa, len) < 0 || listen(fd, BACKLOG) < 0)
        return -1;
    return dtpi_take_fd(&fd);
}

/* The name stands for this machine though no interface has its address (NAT, a container's host). */
static int listen_anywhere(const struct sockaddr_storage *like, uint16_t port)
{
    struct sockaddr_storage any = { .ss_family = like->ss_family };

    set_port(&any, port);
    return listen_at(&any, like->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                       : sizeof(struct sockaddr_in));
}

dtp_status dtpi_tcp_listen(const dtpi_endpoint *e, int *fd_out, char *text_out, size_t room,
                           dtp_error *err)
{
    for (uint32_t port = e->first_port; port <= e->last_port; port++) {
        for (uint32_t i = 0; i < e->n_addrs; i++) {
            struct sockaddr_storage sa = e->addrs[i];
            set_port(&sa, (uint16_t)port);
            int fd = listen_at(&sa, e->lens[i]);
            if (fd < 0 && errno == EADDRNOTAVAIL)
                fd = listen_anywhere(&sa, (uint16_t)port);
            if (fd < 0)
                continue;
            address_text(&sa, text_out, room);
            *fd_out = fd;
            return DTP_OK;
        }
    }
    return dtpi_fail(err, errno == EADDRINUSE ? DTP_ERR_EXISTS : dtpi_status_of_errno(errno),
                     "cannot listen on %s port %u: %m", e->host, e->first_port);
}

uint32_t dtpi_endpoint_n_attempts(const dtpi_endpoint *e)
{
    return e->n_addrs * (e->last_port - e->first_port + 1u);
}

dtp_status dtpi_tcp_connect(const dtpi_endpoint *e, uint32_t attempt, int *fd_out, dtp_error *err)
{
    const uint32_t n = attempt % dtpi_endpoint_n_attempts(e);
    struct sockaddr_storage sa = e->addrs[n % e->n_addrs];
    char text[80];

    set_port(&sa, (uint16_t)(e->first_port + n / e->n_addrs));
    DTPI_AUTO_FD int fd =
        socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open a TCP socket: %m");
    if (connect(fd, (struct sockaddr *)&sa, e->lens[n % e->n_addrs]) < 0 && errno != EINPROGRESS) {
        const int e2 = errno;
        address_text(&sa, text, sizeof(text));
        errno = e2;
        return dtpi_fail(err, DTP_ERR_IO, "cannot connect to %s: %m", text);
    }
    dtpi_tcp_tune(fd);
    *fd_out = dtpi_take_fd(&fd);
    return DTP_OK;
}

void dtpi_tcp_tune(int fd)
{
    const int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void dtpi_tcp_peer_text(int fd, char *text_out, size_t room)
{
    struct sockaddr_storage sa = { 0 };
    socklen_t len = sizeof(sa);

    if (getpeername(fd, (struct sockaddr *)&sa, &len) < 0)
        snprintf(text_out, room, "unknown");
    else
        address_text(&sa, text_out, room);
}
