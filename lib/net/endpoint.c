/* SPDX-License-Identifier: Apache-2.0 */
/*
 * endpoint.c - lists of end points as text, listening at them and connecting over TCP.
 *
 * Literal addresses need no name service, and whoever listens never asks one: a name that stands for this
 * machine is listened for on all addresses.
 */
#include "net/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>

#include "base/text.h"
#include "net/lookup.h"

enum { BACKLOG = 4096, SCOPES_MAX = 8 };

/* ---- text ---- */

static dtp_status bad_endpoint(const char *text, dtp_error *err)
{
    return dtpi_fail(err, DTP_ERR_FORMAT, "address '%.100s' is not host:port, host:first-last (at most %d "
                     "ports) or a list of these", text, DTPI_ENDPOINT_PORTS);
}

/* "5" or "5-9", `n` characters. */
static bool parse_ports(const char *text, size_t n, uint16_t *first_out, uint16_t *last_out)
{
    char ports[16];
    int64_t first, last;

    if (n == 0 || n >= sizeof(ports))
        return false;
    memcpy(ports, text, n);
    ports[n] = '\0';
    char *dash = strchr(ports, '-');
    if (dash)
        *dash = '\0';
    if (!dtpi_parse_i64(ports, 1, 65535, &first))
        return false;
    last = first;
    if (dash && (!dtpi_parse_i64(dash + 1, first, 65535, &last) || last - first >= DTPI_ENDPOINT_PORTS))
        return false;
    *first_out = (uint16_t)first;
    *last_out = (uint16_t)last;
    return true;
}

static void add_address(dtpi_endpoint *e, int host, const dtpi_sa *sa)
{
    if (e->n_addrs == DTPI_ENDPOINT_ADDRS)
        return;
    e->addrs[e->n_addrs].sa = *sa;
    e->addrs[e->n_addrs].first_port = e->hosts[host].first_port;
    e->addrs[e->n_addrs++].last_port = e->hosts[host].last_port;
}

static bool has_address(const dtpi_endpoint *e, int host, const dtpi_sa *sa)
{
    for (uint32_t i = 0; i < e->n_addrs; i++)
        if (dtpi_sa_same_host(&e->addrs[i].sa, sa) && e->addrs[i].first_port == e->hosts[host].first_port)
            return true;
    return false;
}

static void add_links(dtpi_endpoint *e, int host, dtpi_sa sa)
{
    uint32_t scopes[SCOPES_MAX];

    const uint32_t n = dtpi_link_scopes(scopes, SCOPES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        sa.in6.sin6_scope_id = scopes[i];
        if (!has_address(e, host, &sa))
            add_address(e, host, &sa);
    }
}

static void take_literal(dtpi_endpoint *e, int host)
{
    dtpi_sa sa;

    e->hosts[host].is_resolved = dtpi_sa_parse(e->hosts[host].name, &sa);
    if (!e->hosts[host].is_resolved)
        return;
    if (dtpi_sa_is_link_local(&sa) && !sa.in6.sin6_scope_id)
        add_links(e, host, sa);
    else
        add_address(e, host, &sa);
}

bool dtpi_endpoint_relink(dtpi_endpoint *e)
{
    bool found = false;

    for (uint32_t i = 0; i < e->n_hosts; i++) {
        dtpi_sa sa;
        if (!dtpi_sa_parse(e->hosts[i].name, &sa) || !dtpi_sa_is_link_local(&sa) || sa.in6.sin6_scope_id)
            continue;
        add_links(e, (int)i, sa);
        found = true;
    }
    return found;
}

/* One "host:port" of `n` characters. */
static bool parse_one(const char *text, size_t n, dtpi_endpoint *out)
{
    const char *colon = memrchr(text, ':', n);

    if (!colon || colon == text || out->n_hosts == DTPI_ENDPOINT_HOSTS)
        return false;
    const bool bracketed = text[0] == '[' && colon[-1] == ']';
    const char *host = text + bracketed;
    const int i = (int)out->n_hosts;
    if (colon <= host + bracketed)
        return false;
    const size_t n_host = (size_t)(colon - host) - bracketed;
    if (n_host > DTPI_HOST_NAME_MAX || (!bracketed && memchr(host, ':', n_host)) ||
        memchr(host, '[', n_host) || memchr(host, ']', n_host) ||
        !parse_ports(colon + 1, n - (size_t)(colon + 1 - text), &out->hosts[i].first_port,
                     &out->hosts[i].last_port))
        return false;
    memcpy(out->hosts[i].name, host, n_host);
    out->n_hosts++;
    take_literal(out, i);
    return !bracketed || out->hosts[i].is_resolved;
}

dtp_status dtpi_endpoint_parse(const char *text, dtpi_endpoint *out, dtp_error *err)
{
    memset(out, 0, sizeof(*out));
    for (const char *p = text;; p++) {
        const size_t n = strcspn(p, ",");
        if (!parse_one(p, n, out))
            return bad_endpoint(text, err);
        p += n;
        if (!*p)
            return DTP_OK;
    }
}

/* ---- names ---- */

int dtpi_endpoint_next_name(const dtpi_endpoint *e)
{
    for (uint32_t i = 0; i < e->n_hosts; i++)
        if (!e->hosts[i].is_resolved)
            return (int)i;
    return -1;
}

void dtpi_endpoint_add(dtpi_endpoint *e, int host, const struct addrinfo *list)
{
    e->hosts[host].is_resolved = true;
    for (const struct addrinfo *ai = list; ai; ai = ai->ai_next) {
        dtpi_sa sa = { 0 };
        if (ai->ai_addrlen > sizeof(sa))
            continue;
        memcpy(&sa, ai->ai_addr, ai->ai_addrlen);
        add_address(e, host, &sa);
    }
}

dtp_status dtpi_endpoint_resolve(dtpi_endpoint *e, int timeout_ms, dtp_error *err)
{
    for (int host; (host = dtpi_endpoint_next_name(e)) >= 0;) {
        DTPI_AUTO(lookup) dtpi_lookup *l = dtpi_lookup_start(e->hosts[host].name);
        const struct addrinfo *list;
        if (!l)
            return dtpi_fail_nomem(err, 0);
        const dtp_status st = dtpi_lookup_poll(l, timeout_ms, &list, err);
        if (st == DTP_PENDING)
            return dtpi_fail(err, DTP_ERR_TIMEOUT, "no name service gave an address of host %s within %d ms",
                             e->hosts[host].name, timeout_ms);
        if (st < 0)
            return st;
        dtpi_endpoint_add(e, host, list);
    }
    return DTP_OK;
}

uint32_t dtpi_endpoint_n_attempts(const dtpi_endpoint *e)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->n_addrs; i++)
        n += e->addrs[i].last_port - e->addrs[i].first_port + 1u;
    return n;
}

void dtpi_endpoint_get(const dtpi_endpoint *e, uint32_t attempt, dtpi_sa *out)
{
    uint32_t n = attempt % DTPI_MAX(1u, dtpi_endpoint_n_attempts(e));

    memset(out, 0, sizeof(*out));
    for (uint32_t port = 0; port < DTPI_ENDPOINT_PORTS; port++)
        for (uint32_t i = 0; i < e->n_addrs; i++) {
            if (e->addrs[i].first_port + port > e->addrs[i].last_port || n-- > 0)
                continue;
            *out = e->addrs[i].sa;
            dtpi_sa_set_port(out, (uint16_t)(e->addrs[i].first_port + port));
            return;
        }
}

/* ---- listening ---- */

/* Binds and listens; -1 with errno. */
static int listen_on(const dtpi_sa *sa)
{
    const int one = 1, zero = 0;
    DTPI_AUTO_FD int fd =
        socket(sa->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (sa->any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, &sa->any, dtpi_sa_len(sa)) < 0 || listen(fd, BACKLOG) < 0)
        return -1;
    return dtpi_take_fd(&fd);
}

/* All addresses of this machine, where IPv6 is switched off those of IPv4. */
static int listen_everywhere(uint16_t port, dtpi_sa *bound_out)
{
    dtpi_sa any = { .any.sa_family = AF_INET6 };

    dtpi_sa_set_port(&any, port);
    int fd = listen_on(&any);
    if (fd < 0 && errno != EADDRINUSE && errno != EACCES) {
        any = (dtpi_sa){ .any.sa_family = AF_INET };
        dtpi_sa_set_port(&any, port);
        fd = listen_on(&any);
    }
    *bound_out = any;
    return fd;
}

/* On the single address, where it is one and this machine's. */
static int listen_at_port(const dtpi_endpoint *e, uint16_t port, dtpi_sa *bound_out)
{
    if (e->n_hosts == 1 && e->n_addrs == 1) {
        *bound_out = e->addrs[0].sa;
        dtpi_sa_set_port(bound_out, port);
        const int fd = listen_on(bound_out);
        /* Another's address may stand for this machine: NAT, a container's host. */
        if (fd >= 0 || (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT))
            return fd;
    }
    return listen_everywhere(port, bound_out);
}

dtp_status dtpi_tcp_listen(const dtpi_endpoint *e, int *fd_out, char *text_out, size_t room,
                           dtp_error *err)
{
    for (uint32_t i = 0; i < e->n_hosts; i++)
        for (uint32_t port = e->hosts[i].first_port; port <= e->hosts[i].last_port; port++) {
            dtpi_sa bound;
            const int fd = listen_at_port(e, (uint16_t)port, &bound);
            if (fd < 0)
                continue;
            dtpi_sa_text(&bound, text_out, room);
            *fd_out = fd;
            return DTP_OK;
        }
    return dtpi_fail(err, errno == EADDRINUSE ? DTP_ERR_EXISTS : dtpi_status_of_errno(errno),
                     "cannot listen on %s port %u: %m", e->hosts[0].name, e->hosts[0].first_port);
}

static dtp_status take_listener(const char *number, int *fd_out, dtp_error *err)
{
    DTPI_AUTO_FD int own = -1;
    int64_t fd;
    int listens = 0;
    socklen_t len = sizeof(listens);

    if (!dtpi_parse_i64(number, 0, INT32_MAX, &fd))
        return dtpi_fail(err, DTP_ERR_FORMAT, "listen 'fd:%.20s' is no descriptor", number);
    if (getsockopt((int)fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) < 0 || !listens)
        return dtpi_fail(err, DTP_ERR_INVAL, "descriptor %d is no listening socket", (int)fd);
    own = fcntl((int)fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0 || fcntl(own, F_SETFL, fcntl(own, F_GETFL) | O_NONBLOCK) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot take descriptor %d: %m", (int)fd);
    *fd_out = dtpi_take_fd(&own);
    return DTP_OK;
}

static dtp_status listen_where(const char *where, int *fd_out, dtp_error *err)
{
    char text[DTPI_ADDR_TEXT];
    dtpi_endpoint e = { .n_hosts = 1 };
    dtpi_sa bound;

    if (!where) {
        *fd_out = listen_everywhere(0, &bound);
        return *fd_out >= 0 ? DTP_OK : dtpi_fail(err, dtpi_status_of_errno(errno), "cannot listen: %m");
    }
    if (strncmp(where, "fd:", 3) == 0)
        return take_listener(where + 3, fd_out, err);
    if (where[0] == ':' && parse_ports(where + 1, strlen(where + 1), &e.hosts[0].first_port,
                                       &e.hosts[0].last_port)) {
        strcpy(e.hosts[0].name, "*");
        return dtpi_tcp_listen(&e, fd_out, text, sizeof(text), err);
    }
    const dtp_status st = dtpi_endpoint_parse(where, &e, NULL);
    if (st < 0)
        return dtpi_fail(err, st, "listen '%.100s' is not host:port, :port or fd:number", where);
    return dtpi_tcp_listen(&e, fd_out, text, sizeof(text), err);
}

dtp_status dtpi_tcp_listen_at(const char *where, int *fd_out, uint16_t *port_out, dtp_error *err)
{
    DTPI_AUTO_FD int fd = -1;
    dtpi_sa bound = { 0 };
    socklen_t len = sizeof(bound);

    const dtp_status st = listen_where(where, &fd, err);
    if (st < 0)
        return st;
    if (getsockname(fd, &bound.any, &len) < 0 || dtpi_sa_port(&bound) == 0)
        return dtpi_fail(err, DTP_ERR_INVAL, "the listening socket has no TCP port");
    *port_out = dtpi_sa_port(&bound);
    *fd_out = dtpi_take_fd(&fd);
    return DTP_OK;
}

/* ---- connecting ---- */

dtp_status dtpi_tcp_connect(const dtpi_sa *to, int mss, int *fd_out, dtp_error *err)
{
    char text[DTPI_ADDR_TEXT];
    DTPI_AUTO_FD int fd =
        socket(to->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);

    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open a TCP socket: %m");
    if (mss)
        setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof(mss));
    if (connect(fd, &to->any, dtpi_sa_len(to)) < 0 && errno != EINPROGRESS) {
        const int e = errno;
        dtpi_sa_text(to, text, sizeof(text));
        errno = e;
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
    dtpi_sa sa;

    if (dtpi_sa_peer(fd, &sa))
        dtpi_sa_text(&sa, text_out, room);
    else
        snprintf(text_out, room, "unknown");
}
