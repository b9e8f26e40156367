/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choose.c - which devices a network uses: RDMA ports that are up, and the interface that faces the
 * root, asked from the kernel's routes.
 */
#include "net/net.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "net/sock.h"

enum { LOOKUP_MS = 1000 };

static void append(char *list, size_t room, const char *item)
{
    const size_t at = strlen(list);

    if (at + strlen(item) + 2 <= room)
        snprintf(list + at, room - at, "%s%s", at ? "," : "", item);
}

static bool port_is_up(const char *device, const char *port)
{
    char path[600], state[16] = "";

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

static bool facing(const dtpi_endpoint *root, char *name_out, size_t room)
{
    for (uint32_t i = 0; i < root->n_addrs; i++) {
        dtpi_sa own;
        if (dtpi_route_source(&root->addrs[i].sa, &own) == 0 && dtpi_interface_of(&own, name_out, room))
            return true;
    }
    return false;
}

/* On the root's own machine the route leads through "lo", but the others come from outside: use the
 * interface that carries the root's address. */
static bool carrying(const dtpi_endpoint *root, char *name_out, size_t room)
{
    for (uint32_t i = 0; i < root->n_addrs; i++)
        if (dtpi_interface_of(&root->addrs[i].sa, name_out, room))
            return true;
    return false;
}

void dtpi_net_choose(const char *root, char *transports_out, size_t t_room, char *devices_out,
                     size_t d_room)
{
    char name[64] = "lo";
    dtpi_endpoint e = { 0 };

    transports_out[0] = devices_out[0] = '\0';
    const bool has_rdma = root && add_rdma(devices_out, d_room);
    snprintf(transports_out, t_room, "%s", has_rdma ? "rc,ud,tcp" : "tcp");
    if (root && dtpi_endpoint_parse(root, &e, NULL) >= 0)
        dtpi_endpoint_resolve(&e, LOOKUP_MS, NULL);
    if (!root || carrying(&e, name, sizeof(name)) || facing(&e, name, sizeof(name)))
        append(devices_out, d_room, name);
}
