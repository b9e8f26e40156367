/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pci.c - PCI devices from sysfs: bridges, GPUs, NICs, NVMe disks, their links now and at best.
 *
 * What is behind a bridge is told by bus numbers, so that a recorded machine needs no symbolic links.
 * Source: Documentation/ABI/testing/sysfs-bus-pci of Linux; PCI-to-PCI Bridge Architecture (header).
 */
#include <stdio.h>
#include <stdlib.h>

#include "topo/fs.h"
#include "topo/parse.h"
#include "topo/pciclass.h"
#include "topo/topo.h"

#define PCI_DIR "sys/bus/pci/devices"

enum { MAX_DEVICES = 8192 };

typedef struct pci_dev {
    char addr[20];
    uint64_t place;
    uint32_t domain, bus;
    uint32_t secondary, subordinate;    /* 0 and 0 where it is no bridge */
} pci_dev;

typedef struct reader {
    dtpi_topo_fs fs;
    dtpi_topo_sink *sink;
    dtp_error *err;
    pci_dev *devs;
    uint32_t n;
} reader;

static bool read_hex(reader *r, const char *addr, const char *file, uint32_t *out)
{
    char text[32], *end;

    if (!dtpi_topo_fs_text(&r->fs, text, sizeof(text), PCI_DIR "/%s/%s", addr, file))
        return false;
    const unsigned long v = strtoul(text, &end, 16);
    if (end == text || *end || v > UINT32_MAX)
        return false;
    *out = (uint32_t)v;
    return true;
}

/* Bus numbers behind a bridge, from its configuration space, else from sysfs. */
static void read_buses(reader *r, pci_dev *dev)
{
    uint8_t config[64];
    int64_t secondary, subordinate;
    const ssize_t n = dtpi_topo_fs_bytes(&r->fs, config, sizeof(config), PCI_DIR "/%s/config",
                                         dev->addr);

    if (n == sizeof(config)) {
        if ((config[0x0e] & 0x7f) == 1) {
            dev->secondary = config[0x19];
            dev->subordinate = config[0x1a];
        }
        return;
    }
    if (dtpi_topo_fs_number(&r->fs, &secondary, PCI_DIR "/%s/secondary_bus_number", dev->addr) &&
        dtpi_topo_fs_number(&r->fs, &subordinate, PCI_DIR "/%s/subordinate_bus_number",
                            dev->addr) &&
        secondary > 0 && subordinate >= secondary && subordinate <= 255) {
        dev->secondary = (uint32_t)secondary;
        dev->subordinate = (uint32_t)subordinate;
    }
}

static int compare_devs(const void *pa, const void *pb)
{
    const pci_dev *x = pa, *y = pb;

    return x->place < y->place ? -1 : x->place > y->place;
}

static void find_devices(reader *r, DIR *dir)
{
    const char *name;

    while (r->n < MAX_DEVICES && (name = dtpi_topo_fs_next(dir))) {
        pci_dev *dev = &r->devs[r->n];
        *dev = (pci_dev){ .secondary = 0 };
        if ((size_t)snprintf(dev->addr, sizeof(dev->addr), "%s", name) >= sizeof(dev->addr) ||
            !dtpi_topo_parse_pci(name, &dev->place) ||
            sscanf(name, "%x:%x", &dev->domain, &dev->bus) != 2)
            continue;
        read_buses(r, dev);
        r->n++;
    }
    qsort(r->devs, r->n, sizeof(*r->devs), compare_devs);
}

/* The bridge nearest above a bus; NULL: the bus hangs on a host bridge. */
static const pci_dev *bridge_above(reader *r, const pci_dev *dev)
{
    const pci_dev *best = NULL;

    for (uint32_t i = 0; i < r->n; i++) {
        const pci_dev *b = &r->devs[i];
        /* What is behind a bridge has a higher bus number: no loops. */
        if (b == dev || b->secondary <= b->bus || b->domain != dev->domain ||
            b->secondary > dev->bus || b->subordinate < dev->bus)
            continue;
        if (!best || b->secondary > best->secondary)
            best = b;
    }
    return best;
}

static void host_name(const pci_dev *dev, char *name_out, size_t room)
{
    snprintf(name_out, room, "pci%04x:%02x", dev->domain, dev->bus);
}

static void read_link(reader *r, const char *addr, dtp_topo_obj *obj)
{
    char speed[32], width[16];

    if (dtpi_topo_fs_text(&r->fs, speed, sizeof(speed), PCI_DIR "/%s/current_link_speed", addr) &&
        dtpi_topo_fs_text(&r->fs, width, sizeof(width), PCI_DIR "/%s/current_link_width", addr))
        dtpi_topo_parse_pci_link(speed, width, &obj->link_mbps);
    if (dtpi_topo_fs_text(&r->fs, speed, sizeof(speed), PCI_DIR "/%s/max_link_speed", addr) &&
        dtpi_topo_fs_text(&r->fs, width, sizeof(width), PCI_DIR "/%s/max_link_width", addr))
        dtpi_topo_parse_pci_link(speed, width, &obj->link_max_mbps);
}

/* First name in a folder, in the order of names, that begins with `prefix`. */
static bool first_name(reader *r, const char *path, const char *prefix, char *name_out,
                       size_t room)
{
    DTPI_AUTO_DIR DIR *dir = dtpi_topo_fs_dir(&r->fs, "%s", path);
    const char *name;
    bool found = false;

    while (dir && (name = dtpi_topo_fs_next(dir)))
        if (strncmp(name, prefix, strlen(prefix)) == 0 && strlen(name) < room &&
            (!found || strverscmp(name, name_out) < 0)) {
            snprintf(name_out, room, "%s", name);
            found = true;
        }
    return found;
}

/* The network interface: net/eth0, or virtio2/net/eth0 of a virtual machine. */
static bool find_netdev(reader *r, const char *addr, char *name_out, size_t room)
{
    char path[128], virtio[32];

    snprintf(path, sizeof(path), PCI_DIR "/%s/net", addr);
    if (first_name(r, path, "", name_out, room))
        return true;
    snprintf(path, sizeof(path), PCI_DIR "/%s", addr);
    if (!first_name(r, path, "virtio", virtio, sizeof(virtio)))
        return false;
    snprintf(path, sizeof(path), PCI_DIR "/%s/%s/net", addr, virtio);
    return first_name(r, path, "", name_out, room);
}

/* The disk nvme/nvme0/nvme0n1; the controller where the disk is not there. */
static bool find_nvme(reader *r, const char *addr, char *name_out, size_t room)
{
    char path[128], controller[32], disk[48];

    snprintf(path, sizeof(path), PCI_DIR "/%s/nvme", addr);
    if (!first_name(r, path, "nvme", controller, sizeof(controller)))
        return false;
    snprintf(path, sizeof(path), PCI_DIR "/%s/nvme/%s", addr, controller);
    snprintf(disk, sizeof(disk), "%sn", controller);
    if (!first_name(r, path, disk, name_out, room))
        snprintf(name_out, room, "%s", controller);
    return true;
}

/* The host bridge of a device; where it lies is known from any of its devices. */
static dtp_status report_host(reader *r, const pci_dev *dev, const dtpi_topo_fact *fact)
{
    dtpi_topo_fact host = dtpi_topo_fact_of(DTP_TOPO_BRIDGE);
    char name[32];

    for (const pci_dev *up; (up = bridge_above(r, dev));)
        dev = up;
    host_name(dev, name, sizeof(name));
    host.obj.name = name;
    host.obj.numa = fact->obj.numa;
    host.cpus = fact->cpus;
    return r->sink->add(r->sink, &host, r->err);
}

static dtp_status report(reader *r, const pci_dev *dev, dtpi_topo_fact *fact)
{
    char dir[64], host[32];
    dtpi_cpuset set;
    const pci_dev *above = bridge_above(r, dev);

    host_name(dev, host, sizeof(host));
    snprintf(dir, sizeof(dir), PCI_DIR "/%s", dev->addr);
    fact->obj.pci = dev->addr;
    fact->above = above ? above->addr : host;
    if (dtpi_topo_fs_number(&r->fs, &fact->obj.numa, "%s/numa_node", dir) && fact->obj.numa < 0)
        fact->obj.numa = DTP_UNKNOWN;
    if (dtpi_topo_fs_cpus(&r->fs, &set, dir, "local_cpulist", "local_cpus") &&
        dtpi_cpuset_count(&set))
        fact->cpus = &set;
    read_link(r, dev->addr, &fact->obj);
    const dtp_status st = report_host(r, dev, fact);
    return st < 0 ? st : r->sink->add(r->sink, fact, r->err);
}

static dtp_status read_device(reader *r, const pci_dev *dev)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_PCI);
    dtpi_pci_ids ids = { 0 };
    uint32_t class_id, device = 0;
    char netdev[64], rdma[64], nvme[64], model[16], path[128];

    if (dev->secondary) {
        fact.obj.type = DTP_TOPO_BRIDGE;
        return report(r, dev, &fact);
    }
    if (!read_hex(r, dev->addr, "class", &class_id))
        return DTP_OK;
    ids.class_id = class_id >> 8;
    if (read_hex(r, dev->addr, "vendor", &ids.vendor) &&
        read_hex(r, dev->addr, "device", &device)) {
        snprintf(model, sizeof(model), "%04x:%04x", ids.vendor & 0xffff, device & 0xffff);
        fact.obj.model = model;
    }
    snprintf(path, sizeof(path), PCI_DIR "/%s/current_link_speed", dev->addr);
    ids.has_link = dtpi_topo_fs_exists(&r->fs, "%s", path);
    if (find_netdev(r, dev->addr, netdev, sizeof(netdev)))
        fact.obj.name = fact.obj.netdev = netdev;
    snprintf(path, sizeof(path), PCI_DIR "/%s/infiniband", dev->addr);
    if (first_name(r, path, "", rdma, sizeof(rdma)))
        fact.obj.name = rdma;
    ids.has_nic = fact.obj.name != NULL;
    const uint32_t type = dtpi_pci_type(&ids);
    if (!type)
        return DTP_OK;
    fact.obj.type = type;
    if (type == DTP_TOPO_NVME && find_nvme(r, dev->addr, nvme, sizeof(nvme)))
        fact.obj.name = nvme;
    return report(r, dev, &fact);
}

static dtp_status pci_read(dtpi_topo_sink *sink, const dtpi_topo_where *where, dtp_error *err)
{
    reader r = { .sink = sink, .err = err };
    dtp_status st = dtpi_topo_fs_open(&r.fs, where->fsroot, err);

    if (st < 0)
        return st;
    DTPI_AUTO_DIR DIR *dir = dtpi_topo_fs_dir(&r.fs, PCI_DIR);
    if (dir) {
        r.devs = dtpi_alloc_array(where->a, MAX_DEVICES, sizeof(*r.devs));
        if (!r.devs)
            st = dtpi_fail_nomem(err, MAX_DEVICES * sizeof(*r.devs));
        else
            find_devices(&r, dir);
        for (uint32_t i = 0; i < r.n && st >= 0; i++)
            st = read_device(&r, &r.devs[i]);
        dtpi_free(where->a, r.devs, MAX_DEVICES * sizeof(*r.devs));
    }
    return dtpi_topo_fs_finish(&r.fs, st, err);
}

const dtpi_topo_source_ops dtpi_topo_pci_ops = { .name = "pci", .read = pci_read };
