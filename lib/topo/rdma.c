/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma.c - RDMA devices from sysfs: state, rate and link layer of a port, its GIDs, its NUMA node.
 *
 * The first port that is active stands for the device, else the first there is.
 * Source: Documentation/ABI/stable/sysfs-class-infiniband of Linux.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "topo/fs.h"
#include "topo/parse.h"
#include "topo/topo.h"

#define RDMA_DIR "sys/class/infiniband"

enum { MAX_PORTS = 255, MAX_GIDS = 1024, MAX_NAME = 64, ACTIVE = 4 };

typedef struct port {
    int number;
    int32_t state;
    int64_t mbps;
    char link_layer[32];
} port;

static port read_port(dtpi_topo_fs *fs, const char *dev, int number)
{
    port p = { .number = number, .mbps = DTP_UNKNOWN };
    char text[64], dir[160];

    snprintf(dir, sizeof(dir), RDMA_DIR "/%s/ports/%d", dev, number);
    if (dtpi_topo_fs_text(fs, text, sizeof(text), "%s/state", dir))
        p.state = dtpi_topo_parse_port_state(text);
    if (dtpi_topo_fs_text(fs, text, sizeof(text), "%s/rate", dir))
        dtpi_topo_parse_port_rate(text, &p.mbps);
    if (!dtpi_topo_fs_text(fs, p.link_layer, sizeof(p.link_layer), "%s/link_layer", dir))
        p.link_layer[0] = '\0';
    return p;
}

/* The port to show; its number is 0 where the device has none. */
static port best_port(dtpi_topo_fs *fs, const char *dev)
{
    DTPI_AUTO_DIR DIR *dir = dtpi_topo_fs_dir(fs, RDMA_DIR "/%s/ports", dev);
    port best = { .mbps = DTP_UNKNOWN };
    const char *name;

    while (dir && (name = dtpi_topo_fs_next(dir))) {
        int64_t number;
        if (!dtpi_parse_i64(name, 1, MAX_PORTS, &number))
            continue;
        const port p = read_port(fs, dev, (int)number);
        const bool better = (p.state == ACTIVE) != (best.state == ACTIVE) ? p.state == ACTIVE
                                                                          : p.number < best.number;
        if (!best.number || better)
            best = p;
    }
    return best;
}

/*
 * How well a GID serves; 0: not at all. InfiniBand: any that is set, Ethernet: routed before
 * link-local, RoCE v2 before v1. An entry that is not set has no readable type.
 */
static int score_gid(dtpi_topo_fs *fs, const char *dev, const port *p, int index,
                     const char *gid)
{
    const dtpi_gid_kind kind = dtpi_topo_parse_gid(gid);
    char type[32];

    if (kind == DTPI_GID_NONE)
        return 0;
    if (strcmp(p->link_layer, "Ethernet") != 0)
        return 1;
    if (!dtpi_topo_fs_text(fs, type, sizeof(type), RDMA_DIR "/%s/ports/%d/gid_attrs/types/%d", dev,
                           p->number, index))
        type[0] = '\0';
    return (kind == DTPI_GID_ROUTED ? 4 : 1) + (strcmp(type, "RoCE v2") == 0 ? 2 : 0);
}

/* The best GID of a port, the lowest index of equals; "" where there is none. Tables may have holes. */
static void best_gid(dtpi_topo_fs *fs, const char *dev, const port *p, char *gid_out,
                     size_t room)
{
    DTPI_AUTO_DIR DIR *dir = dtpi_topo_fs_dir(fs, RDMA_DIR "/%s/ports/%d/gids", dev, p->number);
    int best = 0, best_index = 0;
    const char *name;
    char gid[64];

    gid_out[0] = '\0';
    while (dir && (name = dtpi_topo_fs_next(dir))) {
        int64_t index;
        if (!dtpi_parse_i64(name, 0, MAX_GIDS, &index) ||
            !dtpi_topo_fs_text(fs, gid, sizeof(gid), RDMA_DIR "/%s/ports/%d/gids/%s", dev,
                               p->number, name))
            continue;
        const int score = score_gid(fs, dev, p, (int)index, gid);
        if (score > best || (score && score == best && index < best_index)) {
            best = score;
            best_index = (int)index;
            snprintf(gid_out, room, "%s", gid);
        }
    }
}

/* The PCI address of a device, from its link; else unknown. */
static void find_pci(dtpi_topo_fs *fs, const char *dev, char *pci_out, size_t room)
{
    uint64_t place;

    if (!dtpi_topo_fs_link(fs, pci_out, room, RDMA_DIR "/%s/device", dev) ||
        strncmp(pci_out, "pci", 3) == 0 || !dtpi_topo_parse_pci(pci_out, &place))
        pci_out[0] = '\0';
}

static void find_netdev(dtpi_topo_fs *fs, const char *dev, const port *p, char *name_out,
                        size_t room)
{
    DTPI_AUTO_DIR DIR *dir = dtpi_topo_fs_dir(fs, RDMA_DIR "/%s/device/net", dev);
    const char *name = dir ? dtpi_topo_fs_next(dir) : NULL;

    if (!dtpi_topo_fs_text(fs, name_out, room, RDMA_DIR "/%s/ports/%d/gid_attrs/ndevs/0", dev,
                           p->number))
        snprintf(name_out, room, "%.63s", name ? name : "");
}

static dtp_status read_device(dtpi_topo_fs *fs, dtpi_topo_sink *sink, const char *dev,
                              dtp_error *err)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_NIC);
    const port p = best_port(fs, dev);
    char pci[32], gid[64] = "", netdev[64] = "", board[64], dir[128];
    dtpi_cpuset set;

    find_pci(fs, dev, pci, sizeof(pci));
    if (p.number) {
        best_gid(fs, dev, &p, gid, sizeof(gid));
        find_netdev(fs, dev, &p, netdev, sizeof(netdev));
    }
    fact.obj.name = dev;
    fact.obj.pci = pci[0] ? pci : NULL;
    fact.obj.gid = gid[0] ? gid : NULL;
    fact.obj.netdev = netdev[0] ? netdev : NULL;
    fact.obj.port_state = p.state;
    fact.obj.port_mbps = p.mbps;
    fact.obj.link_layer = p.link_layer[0] && strcmp(p.link_layer, "Unknown") ? p.link_layer : NULL;
    if (dtpi_topo_fs_text(fs, board, sizeof(board), RDMA_DIR "/%s/hca_type", dev) && board[0])
        fact.obj.model = board;
    snprintf(dir, sizeof(dir), RDMA_DIR "/%s/device", dev);
    if (dtpi_topo_fs_number(fs, &fact.obj.numa, "%s/numa_node", dir) && fact.obj.numa < 0)
        fact.obj.numa = DTP_UNKNOWN;
    if (dtpi_topo_fs_cpus(fs, &set, dir, "local_cpulist", "local_cpus") && dtpi_cpuset_count(&set))
        fact.cpus = &set;
    return sink->add(sink, &fact, err);
}

static dtp_status rdma_read(dtpi_topo_sink *sink, const dtpi_topo_where *where, dtp_error *err)
{
    dtpi_topo_fs fs;
    dtp_status st = dtpi_topo_fs_open(&fs, where->fsroot, err);

    if (st < 0)
        return st;
    DTPI_AUTO_DIR DIR *dir = dtpi_topo_fs_dir(&fs, RDMA_DIR);
    const char *name;
    while (dir && st >= 0 && (name = dtpi_topo_fs_next(dir)))
        if (dtpi_name_ok(name, MAX_NAME) && dtpi_topo_fs_exists(&fs, RDMA_DIR "/%s/ports", name))
            st = read_device(&fs, sink, name, err);
    return dtpi_topo_fs_finish(&fs, st, err);
}

const dtpi_topo_source_ops dtpi_topo_rdma_ops = { .name = "rdma", .read = rdma_read };
