/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choose.c - which devices a network uses: RDMA ports that are up, and the interface that faces the
 * root, asked from the kernel's routes.
 */
#include "net/net.h"

#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/sock.h"

static void append(char *list, size_t room, const char *item)
{
    const size_t at = strlen(list);

    if (at + strlen(item) + 2 <= room)
        snprintf(list + at, room - at, "%s%s", at ? "," : "", item);
}

static bool port_is_up(const char *device, const char *port)
{
    char path[512], state[16] = "";

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%s/state", device, port);
    DTPI_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    /* Source: Documentation/ABI/stable/sysfs-class-infiniband, "4: ACTIVE". */
    return fd >= 0 && read(fd, state, sizeof(state) - 1) > 0 && state[0] == '4';
}

static bool add_ports(const char *device, char *devices_out, size_t room)
{
    char path[300], item[300];
    bool found = false;

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports", device);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (e->d_name[0] == '.' || !port_is_up(device, e->d_name))
            continue;
        snprintf(item, sizeof(item), "%.100s:%.20s", device, e->d_name);
        append(devices_out, room, item);
        found = true;
    }
    if (dir)
        closedir(dir);
    return found;
}

static bool add_rdma(char *devices_out, size_t room)
{
    DIR *dir = opendir("/sys/class/infiniband");
    bool found = false;

    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.')
            found |= add_ports(e->d_name, devices_out, room);
    if (dir)
        closedir(dir);
    return found;
}

/* The local address of a route to `to`: connecting a datagram socket sends nothing. */
static bool local_address(const struct sockaddr_storage *to, socklen_t len,
                          struct sockaddr_storage *own)
{
    struct sockaddr_storage target = *to;
    socklen_t own_len = sizeof(*own);
    DTPI_AUTO_FD int fd = socket(to->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (to->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&target)->sin6_port = htons(9);
    else
        ((struct sockaddr_in *)&target)->sin_port = htons(9);
    return fd >= 0 && connect(fd, (struct sockaddr *)&target, len) == 0 &&
           getsockname(fd, (struct sockaddr *)own, &own_len) == 0;
}

static bool same_address(const struct sockaddr *a, const struct sockaddr_storage *b)
{
    if (!a || a->sa_family != b->ss_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    if (a->sa_family != AF_INET6)
        return false;
    return memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

static bool interface_of(const struct sockaddr_storage *own, char *name_out, size_t room)
{
    struct ifaddrs *list = NULL;
    bool found = false;

    if (getifaddrs(&list) < 0)
        return false;
    for (struct ifaddrs *i = list; i && !found; i = i->ifa_next)
        if (same_address(i->ifa_addr, own)) {
            snprintf(name_out, room, "%s", i->ifa_name);
            found = true;
        }
    freeifaddrs(list);
    return found;
}

static bool facing(const char *root, char *name_out, size_t room)
{
    struct sockaddr_storage own;
    dtpi_endpoint e;

    if (dtpi_endpoint_parse(root, &e, NULL) < 0 || dtpi_endpoint_resolve(&e, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < e.n_addrs; i++)
        if (local_address(&e.addrs[i], e.lens[i], &own) && interface_of(&own, name_out, room))
            return true;
    return false;
}

/* On the root's own machine the route leads through "lo", but the others come from outside: use the
 * interface that carries the root's address. */
static bool carrying(const char *root, char *name_out, size_t room)
{
    dtpi_endpoint e;

    if (dtpi_endpoint_parse(root, &e, NULL) < 0 || dtpi_endpoint_resolve(&e, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < e.n_addrs; i++)
        if (interface_of(&e.addrs[i], name_out, room))
            return true;
    return false;
}

void dtpi_net_choose(const char *root, char *transports_out, size_t t_room, char *devices_out,
                     size_t d_room)
{
    char name[64] = "lo";

    transports_out[0] = devices_out[0] = '\0';
    const bool has_rdma = root && add_rdma(devices_out, d_room);
    snprintf(transports_out, t_room, "%s", has_rdma ? "rc,ud,tcp" : "tcp");
    if (!root || carrying(root, name, sizeof(name)) || facing(root, name, sizeof(name)))
        append(devices_out, d_room, name);
}
