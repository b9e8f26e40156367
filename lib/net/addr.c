/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addr.c - internet addresses: text, routes, interfaces, and those under which others reach this machine.
 *
 * What is best is asked from the kernel's routes, not guessed from names; names of interfaces only push
 * the bridges of containers, which look alike on every machine, to the end of the list.
 */
#include "net/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <unistd.h>

#include "base/text.h"

/* ---- one address ---- */

socklen_t dtpi_sa_len(const dtpi_sa *sa)
{
    return sa->any.sa_family == AF_INET6 ? sizeof(sa->in6) : sizeof(sa->in);
}

uint16_t dtpi_sa_port(const dtpi_sa *sa)
{
    return ntohs(sa->any.sa_family == AF_INET6 ? sa->in6.sin6_port : sa->in.sin_port);
}

void dtpi_sa_set_port(dtpi_sa *sa, uint16_t port)
{
    if (sa->any.sa_family == AF_INET6)
        sa->in6.sin6_port = htons(port);
    else
        sa->in.sin_port = htons(port);
}

bool dtpi_sa_is_loopback(const dtpi_sa *sa)
{
    if (sa->any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&sa->in6.sin6_addr);
    return ntohl(sa->in.sin_addr.s_addr) >> 24 == 127;
}

bool dtpi_sa_is_link_local(const dtpi_sa *sa)
{
    return sa->any.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&sa->in6.sin6_addr);
}

bool dtpi_sa_same_host(const dtpi_sa *a, const dtpi_sa *b)
{
    if (a->any.sa_family != b->any.sa_family)
        return false;
    if (a->any.sa_family != AF_INET6)
        return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
    return memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(struct in6_addr)) == 0 &&
           (!a->in6.sin6_scope_id || !b->in6.sin6_scope_id ||
            a->in6.sin6_scope_id == b->in6.sin6_scope_id);
}

void dtpi_sa_text(const dtpi_sa *sa, char *text_out, size_t room)
{
    char host[INET6_ADDRSTRLEN] = "?", scope[IF_NAMESIZE + 1] = "", port[8] = "";
    const bool is_v6 = sa->any.sa_family == AF_INET6;

    inet_ntop(sa->any.sa_family, is_v6 ? (const void *)&sa->in6.sin6_addr : &sa->in.sin_addr, host,
              sizeof(host));
    if (is_v6 && sa->in6.sin6_scope_id) {
        scope[0] = '%';
        if (!if_indextoname(sa->in6.sin6_scope_id, scope + 1))
            snprintf(scope + 1, sizeof(scope) - 1, "%u", sa->in6.sin6_scope_id);
    }
    if (dtpi_sa_port(sa))
        snprintf(port, sizeof(port), ":%u", dtpi_sa_port(sa));
    snprintf(text_out, room, is_v6 && port[0] ? "[%s%s]%s" : "%s%s%s", host, scope, port);
}

/* "fe80::1%eth0" or "%2"; false where there is no such interface. */
static bool parse_v6(const char *host, struct sockaddr_in6 *out)
{
    const char *percent = strchr(host, '%');
    const size_t n = percent ? (size_t)(percent - host) : strlen(host);
    char text[INET6_ADDRSTRLEN];
    int64_t scope = 0;

    if (n >= sizeof(text))
        return false;
    memcpy(text, host, n);
    text[n] = '\0';
    if (inet_pton(AF_INET6, text, &out->sin6_addr) != 1)
        return false;
    if (percent && !dtpi_parse_i64(percent + 1, 1, UINT32_MAX, &scope))
        scope = if_nametoindex(percent + 1);
    out->sin6_family = AF_INET6;
    out->sin6_scope_id = (uint32_t)scope;
    return !percent || scope > 0;
}

/* Without getaddrinfo, which takes memory also for a literal and without it asks a name service. */
bool dtpi_sa_parse(const char *host, dtpi_sa *out)
{
    dtpi_sa sa = { 0 };

    if (strspn(host, "0123456789.") == strlen(host) && inet_aton(host, &sa.in.sin_addr))
        sa.in.sin_family = AF_INET;
    else if (!parse_v6(host, &sa.in6))
        return false;
    *out = sa;
    return true;
}

/* ::ffff:1.2.3.4 is 1.2.3.4. */
static bool is_internet(dtpi_sa *sa)
{
    if (sa->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&sa->in6.sin6_addr)) {
        dtpi_sa v4 = { .in = { .sin_family = AF_INET, .sin_port = sa->in6.sin6_port } };
        memcpy(&v4.in.sin_addr, &sa->in6.sin6_addr.s6_addr[12], 4);
        *sa = v4;
    }
    return sa->any.sa_family == AF_INET || sa->any.sa_family == AF_INET6;
}

bool dtpi_sa_own(int fd, dtpi_sa *out)
{
    socklen_t len = sizeof(*out);

    memset(out, 0, sizeof(*out));
    return getsockname(fd, &out->any, &len) == 0 && is_internet(out);
}

bool dtpi_sa_peer(int fd, dtpi_sa *out)
{
    socklen_t len = sizeof(*out);

    memset(out, 0, sizeof(*out));
    return getpeername(fd, &out->any, &len) == 0 && is_internet(out);
}

/* ---- routes and interfaces ---- */

int dtpi_route_source(const dtpi_sa *to, dtpi_sa *own_out)
{
    enum { DISCARD_PORT = 9 };
    dtpi_sa target = *to, own = { 0 };
    socklen_t len = sizeof(own);
    DTPI_AUTO_FD int fd = socket(to->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    dtpi_sa_set_port(&target, DISCARD_PORT);
    if (fd < 0 || connect(fd, &target.any, dtpi_sa_len(&target)) < 0 ||
        getsockname(fd, &own.any, &len) < 0)
        return errno;
    dtpi_sa_set_port(&own, 0);
    *own_out = own;
    return 0;
}

static bool sa_of(const struct ifaddrs *i, dtpi_sa *out)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
        return false;
    if (i->ifa_addr->sa_family == AF_INET)
        memcpy(&out->in, i->ifa_addr, sizeof(out->in));
    else if (i->ifa_addr->sa_family == AF_INET6)
        memcpy(&out->in6, i->ifa_addr, sizeof(out->in6));
    else
        return false;
    return true;
}

bool dtpi_interface_of(const dtpi_sa *own, char *name_out, size_t room)
{
    struct ifaddrs *list = NULL;
    bool found = false;

    if (getifaddrs(&list) < 0)
        return false;
    for (struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        dtpi_sa sa;
        found = sa_of(i, &sa) && dtpi_sa_same_host(&sa, own);
        if (found)
            snprintf(name_out, room, "%s", i->ifa_name);
    }
    freeifaddrs(list);
    return found;
}

/* ---- what others can reach ---- */

enum quality { FACING, GLOBAL, PRIVATE, LINK_LOCAL, CONTAINER, LOOPBACK };

struct own {
    dtpi_sa sa;
    uint32_t quality;
};

/* Bridges and pairs that container and machine hosts make, with the same addresses everywhere. */
static bool is_container_name(const char *name)
{
    static const char *const prefixes[] = { "docker", "br-", "virbr", "veth", "cni", "flannel", "cali",
                                            "lxc", "lxdbr", "podman", "kube", "nerdctl" };

    for (size_t i = 0; i < DTPI_ARRAY_LEN(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* Source: RFC 1918, RFC 6598 (shared), RFC 3927 (169.254/16), RFC 4193 (fc00::/7). */
static enum quality quality_of(const dtpi_sa *sa, const char *name)
{
    if (dtpi_sa_is_loopback(sa))
        return LOOPBACK;
    if (is_container_name(name))
        return CONTAINER;
    if (sa->any.sa_family == AF_INET6)
        return dtpi_sa_is_link_local(sa) ? LINK_LOCAL
               : (sa->in6.sin6_addr.s6_addr[0] & 0xfe) == 0xfc ? PRIVATE : GLOBAL;
    const uint32_t a = ntohl(sa->in.sin_addr.s_addr);
    if (a >> 16 == 0xa9fe)
        return LINK_LOCAL;
    return a >> 24 == 10 || a >> 20 == 0xac1 || a >> 16 == 0xc0a8 || a >> 22 == 0x191 ? PRIVATE : GLOBAL;
}

/* Keeps the list sorted and without doubles; equals stay in the order in which they came. */
static void add_own(struct own *list, uint32_t *n, const dtpi_sa *sa, uint32_t quality)
{
    for (uint32_t i = 0; i < *n; i++)
        if (dtpi_sa_same_host(&list[i].sa, sa))
            return;
    if (*n == DTPI_OWN_MAX && list[*n - 1].quality <= quality)
        return;
    uint32_t at = *n < DTPI_OWN_MAX ? (*n)++ : *n - 1;
    for (; at > 0 && list[at - 1].quality > quality; at--)
        list[at] = list[at - 1];
    list[at] = (struct own){ *sa, quality };
}

/* The own addresses that face `towards`. */
static uint32_t sources_towards(const dtpi_sa *towards, uint32_t n_towards, dtpi_sa *out)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_towards && n < DTPI_OWN_MAX; i++)
        if (dtpi_route_source(&towards[i], &out[n]) == 0)
            n++;
    return n;
}

static bool is_among(const dtpi_sa *sa, const dtpi_sa *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (dtpi_sa_same_host(&list[i], sa))
            return true;
    return false;
}

static uint32_t list_own(const dtpi_sa *towards, uint32_t n_towards, struct own *out)
{
    dtpi_sa facing[DTPI_OWN_MAX];
    const uint32_t n_facing = sources_towards(towards, n_towards, facing);
    struct ifaddrs *list = NULL;
    uint32_t n = 0;

    if (getifaddrs(&list) < 0)
        return 0;
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        dtpi_sa sa;
        if (sa_of(i, &sa))
            add_own(out, &n, &sa, is_among(&sa, facing, n_facing) ? FACING
                                                                  : quality_of(&sa, i->ifa_name));
    }
    freeifaddrs(list);
    /* Loopback is in the way where anything else is there. */
    while (n > 1 && out[n - 1].quality == LOOPBACK)
        n--;
    return n;
}

uint32_t dtpi_own_candidates(uint16_t port, const dtpi_sa *towards, uint32_t n_towards, char *text_out,
                             size_t room)
{
    struct own own[DTPI_OWN_MAX];
    const uint32_t n = list_own(towards, n_towards, own);
    uint32_t n_written = 0;
    size_t at = 0;

    text_out[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        char text[DTPI_ADDR_TEXT];
        dtpi_sa_set_port(&own[i].sa, port);
        /* A scope means something on this machine alone. */
        if (own[i].sa.any.sa_family == AF_INET6)
            own[i].sa.in6.sin6_scope_id = 0;
        dtpi_sa_text(&own[i].sa, text, sizeof(text));
        if (at + strlen(text) + 2 > room)
            break;
        at += (size_t)snprintf(text_out + at, room - at, "%s%s", at ? "," : "", text);
        n_written++;
    }
    return n_written;
}

static bool is_any(const dtpi_sa *sa)
{
    return sa->any.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&sa->in6.sin6_addr)
                                         : sa->in.sin_addr.s_addr == htonl(INADDR_ANY);
}

uint32_t dtpi_listener_candidates(int fd, const dtpi_sa *towards, uint32_t n_towards, char *text_out,
                                  size_t room)
{
    char text[DTPI_ADDR_TEXT];
    dtpi_sa bound;

    text_out[0] = '\0';
    if (!dtpi_sa_own(fd, &bound))
        return 0;
    if (is_any(&bound))
        return dtpi_own_candidates(dtpi_sa_port(&bound), towards, n_towards, text_out, room);
    if (bound.any.sa_family == AF_INET6)
        bound.in6.sin6_scope_id = 0;
    dtpi_sa_text(&bound, text, sizeof(text));
    return (size_t)snprintf(text_out, room, "%s", text) < room;
}

uint32_t dtpi_link_scopes(uint32_t *scopes_out, uint32_t capacity)
{
    struct ifaddrs *list = NULL;
    uint32_t n = 0;

    if (getifaddrs(&list) < 0)
        return 0;
    for (int pass = 0; pass < 2; pass++)
        for (struct ifaddrs *i = list; i && n < capacity; i = i->ifa_next) {
            dtpi_sa sa;
            if (sa_of(i, &sa) && dtpi_sa_is_link_local(&sa) &&
                is_container_name(i->ifa_name) == (pass == 1))
                scopes_out[n++] = sa.in6.sin6_scope_id;
        }
    freeifaddrs(list);
    return n;
}
