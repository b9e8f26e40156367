/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choose.c - which devices a network uses: RDMA ports that are up, and the interface that faces the
 * root, asked from the kernel's routes.
 */
#include "net/net.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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

void dtpi_net_choose(const char *root, dtpi_net_choice *out)
{
    char name[64] = "lo";
    dtpi_endpoint e = { 0 };

    memset(out, 0, sizeof(*out));
    out->has_rdma = root && add_rdma(out->devices, sizeof(out->devices));
    snprintf(out->transports, sizeof(out->transports), "%s", out->has_rdma ? "rc,ud,tcp" : "tcp");
    if (root && dtpi_endpoint_parse(root, &e, NULL) >= 0)
        dtpi_endpoint_resolve(&e, LOOKUP_MS, NULL);
    if (!root || carrying(&e, name, sizeof(name)) || facing(&e, name, sizeof(name)))
        append(out->devices, sizeof(out->devices), name);
}

bool dtpi_net_has_rdma(void)
{
    char devices[256] = "";

    return add_rdma(devices, sizeof(devices));
}

bool dtpi_net_lane_is_rdma(const char *lane)
{
    static const char *const transports[] = { "rc", "dc", "ud" };

    for (size_t i = 0; i < DTPI_ARRAY_LEN(transports); i++)
        if (strncmp(lane, transports[i], 2) == 0 && (lane[2] == '_' || lane[2] == '/'))
            return true;
    return false;
}

bool dtpi_net_lane_was_chosen(const dtpi_net_choice *choice, const char *lane)
{
    const char *device = strchr(lane, '/');
    const size_t n = device ? strlen(++device) : 0;

    for (const char *p = choice->devices; n && *p;) {
        const size_t k = strcspn(p, ",");
        if (k == n && memcmp(p, device, n) == 0)
            return true;
        p += k + (p[k] == ',');
    }
    return !choice->devices[0];
}

/* Source: garbage sent to the TCP port of 1.13, 1.18 (both abort) and 1.22 (goes on). */
bool dtpi_net_survives_strangers(const char *version)
{
    enum { MAJOR = 1, MINOR = 22 };
    char *end;
    const long major = strtol(version, &end, 10);
    const long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;

    return major > MAJOR || (major == MAJOR && minor >= MINOR);
}

bool dtpi_net_is_loaded(void)
{
    void *handle = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);

    if (handle)
        dlclose(handle);
    return handle != NULL;
}
