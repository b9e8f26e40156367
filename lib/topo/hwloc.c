/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwloc.c - the source that asks hwloc about the live machine.
 *
 * hwloc's tree is not copied but reported as facts; hwxml.c reads its XML. Components that would start
 * CUDA, OpenCL, X11 and the like are left out, and it must not move the calling thread between
 * processors.
 */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "ctx/ctx.h"
#include "topo/pciclass.h"
#include "topo/topo.h"

typedef struct reader {
    hwloc_topology_t hw;
    dtpi_topo_sink *sink;
    const dtpi_topo_where *where;
    dtp_error *err;
} reader;

/* False where the bitmap has no end or reaches beyond what a set holds. */
static bool set_of(hwloc_const_bitmap_t bitmap, dtpi_cpuset *out)
{
    *out = (dtpi_cpuset){ 0 };
    if (!bitmap || hwloc_bitmap_weight(bitmap) < 0 || hwloc_bitmap_last(bitmap) >= DTPI_CPUSET_MAX)
        return false;
    for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0; cpu = hwloc_bitmap_next(bitmap, cpu))
        dtpi_cpuset_set(out, (uint32_t)cpu);
    return true;
}

static dtp_status report(reader *r, dtpi_topo_fact *fact, hwloc_obj_t place)
{
    dtpi_cpuset set;

    if (place && set_of(place->cpuset, &set) && dtpi_cpuset_count(&set))
        fact->cpus = &set;
    return r->sink->add(r->sink, fact, r->err);
}

/* ---- processors and memory ---- */

static dtp_status report_all(reader *r, hwloc_obj_type_t type, dtp_topo_type as)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(r->hw, type, o));) {
        dtpi_topo_fact fact = dtpi_topo_fact_of(as);
        if (o->os_index != HWLOC_UNKNOWN_INDEX)
            fact.obj.os_index = o->os_index;
        if (as == DTP_TOPO_PACKAGE)
            fact.obj.model = hwloc_obj_get_info_by_name(o, "CPUModel");
        if (as == DTP_TOPO_NUMA && o->attr && o->attr->numanode.local_memory)
            fact.obj.mem_bytes = (int64_t)o->attr->numanode.local_memory;
        const dtp_status st = report(r, &fact, o);
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

/* Level 3, else level 2 where several PUs share it. */
static dtp_status report_caches(reader *r)
{
    const int n_l3 = hwloc_get_nbobjs_by_type(r->hw, HWLOC_OBJ_L3CACHE);
    const hwloc_obj_type_t type = n_l3 > 0 ? HWLOC_OBJ_L3CACHE : HWLOC_OBJ_L2CACHE;

    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(r->hw, type, o));) {
        dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_CACHE);
        if (type == HWLOC_OBJ_L2CACHE && hwloc_bitmap_weight(o->cpuset) < 2)
            continue;
        fact.obj.name = n_l3 > 0 ? "L3" : "L2";
        if (o->attr->cache.size)
            fact.obj.cache_bytes = (int64_t)o->attr->cache.size;
        const dtp_status st = report(r, &fact, o);
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

static dtp_status report_processors(reader *r)
{
    dtpi_cpuset allowed;
    dtp_status st = report_all(r, HWLOC_OBJ_PU, DTP_TOPO_PU);

    if (st >= 0)
        st = report_all(r, HWLOC_OBJ_CORE, DTP_TOPO_CORE);
    if (st >= 0)
        st = report_caches(r);
    if (st >= 0)
        st = report_all(r, HWLOC_OBJ_NUMANODE, DTP_TOPO_NUMA);
    if (st >= 0)
        st = report_all(r, HWLOC_OBJ_PACKAGE, DTP_TOPO_PACKAGE);
    if (st >= 0 && set_of(hwloc_topology_get_allowed_cpuset(r->hw), &allowed))
        st = r->sink->view(r->sink, DTP_CPUS_ALLOWED, &allowed, r->err);
    return st;
}

/* ---- PCI ---- */

static void address_of(const struct hwloc_pcidev_attr_s *pci, char *text_out, size_t room)
{
    snprintf(text_out, room, "%04x:%02x:%02x.%01x", pci->domain, pci->bus, pci->dev, pci->func);
}

static void host_name(hwloc_obj_t bridge, char *text_out, size_t room)
{
    snprintf(text_out, room, "pci%04x:%02x", bridge->attr->bridge.downstream.pci.domain,
             bridge->attr->bridge.downstream.pci.secondary_bus);
}

static bool is_host(hwloc_obj_t bridge)
{
    return bridge->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
}

/* Address or name of the bridge above; false where there is none. */
static bool bridge_above(hwloc_obj_t o, char *text_out, size_t room)
{
    hwloc_obj_t p = o->parent;

    if (!p || p->type != HWLOC_OBJ_BRIDGE)
        return false;
    if (is_host(p))
        host_name(p, text_out, room);
    else
        address_of(&p->attr->bridge.upstream.pci, text_out, room);
    return true;
}

/* hwloc gives gigabytes per second, 0 for unknown. */
static void take_link(float gb_per_s, dtp_topo_obj *obj)
{
    if (gb_per_s > 0 && gb_per_s < 10000)
        obj->link_mbps = (int64_t)(gb_per_s * 8000 + 0.5f);
}

/* A decimal info of an object within [min, max]. */
static bool info_number(hwloc_obj_t o, const char *name, int64_t min, int64_t max, int64_t *out)
{
    const char *text = hwloc_obj_get_info_by_name(o, name);

    return text && dtpi_parse_i64(text, min, max, out);
}

/* A bridge or device with its place: below a bridge, else at its processors. */
static dtp_status report_at(reader *r, hwloc_obj_t o, dtpi_topo_fact *fact)
{
    char above[32];

    if (bridge_above(o, above, sizeof(above)))
        fact->above = above;
    return report(r, fact, hwloc_get_non_io_ancestor_obj(r->hw, o));
}

static dtp_status report_bridges(reader *r)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_bridge(r->hw, o));) {
        dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_BRIDGE);
        char key[32];
        if (o->attr->bridge.downstream_type != HWLOC_OBJ_BRIDGE_PCI)
            continue;
        if (is_host(o)) {
            host_name(o, key, sizeof(key));
            fact.obj.name = key;
        } else {
            address_of(&o->attr->bridge.upstream.pci, key, sizeof(key));
            fact.obj.pci = key;
            take_link(o->attr->bridge.upstream.pci.linkspeed, &fact.obj);
        }
        const dtp_status st = report_at(r, o, &fact);
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

/* The port that the OpenFabrics object tells of. */
static void take_rdma(hwloc_obj_t os, dtp_topo_obj *obj)
{
    int64_t state;
    const char *gid = hwloc_obj_get_info_by_name(os, "Port1GID0");

    obj->name = os->name;
    if (info_number(os, "Port1State", 1, 4, &state))
        obj->port_state = (int32_t)state;
    if (gid && strcmp(gid, "0000:0000:0000:0000:0000:0000:0000:0000") != 0 &&
        strncmp(gid + strcspn(gid, ":"), ":0000:0000:0000:0000:0000:0000:0000", 35) != 0)
        obj->gid = gid;
}

static void take_gpu(hwloc_obj_t os, dtp_topo_obj *obj)
{
    const char *model = hwloc_obj_get_info_by_name(os, "GPUModel");
    int64_t kib;

    if (model)
        obj->model = model;
    if (info_number(os, "CUDAGlobalMemorySize", 1, INT64_MAX >> 10, &kib))
        obj->mem_bytes = kib << 10;
}

/* What the operating system's devices of a function say of it. */
static void take_os_devices(hwloc_obj_t pci, dtp_topo_obj *obj, dtpi_pci_ids *ids)
{
    bool rdma = false;

    for (hwloc_obj_t os = pci->io_first_child; os; os = os->next_sibling) {
        if (os->type != HWLOC_OBJ_OS_DEVICE || !os->name)
            continue;
        switch (os->attr->osdev.type) {
        case HWLOC_OBJ_OSDEV_OPENFABRICS:
            if (!rdma)
                take_rdma(os, obj);
            rdma = true;
            break;
        case HWLOC_OBJ_OSDEV_NETWORK:
            if (!obj->netdev)
                obj->netdev = os->name;
            break;
        case HWLOC_OBJ_OSDEV_BLOCK:
            if (!obj->name && strncmp(os->name, "nvme", 4) == 0)
                obj->name = os->name;
            break;
        case HWLOC_OBJ_OSDEV_COPROC:
            ids->has_gpu = true;
            take_gpu(os, obj);
            break;
        case HWLOC_OBJ_OSDEV_GPU:
            take_gpu(os, obj);
            break;
        default:
            break;
        }
    }
    ids->has_nic = rdma || obj->netdev;
    if (!rdma && obj->netdev)
        obj->name = obj->netdev;
}

static uint32_t type_of(hwloc_obj_t o, dtp_topo_obj *obj)
{
    const struct hwloc_pcidev_attr_s *pci = &o->attr->pcidev;
    dtpi_pci_ids ids = { .class_id = pci->class_id, .vendor = pci->vendor_id,
                         .has_link = pci->linkspeed > 0 };

    take_os_devices(o, obj, &ids);
    return dtpi_pci_type(&ids);
}

static dtp_status report_pci_devices(reader *r)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(r->hw, o));) {
        dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_PCI);
        const struct hwloc_pcidev_attr_s *pci = &o->attr->pcidev;
        char address[32], numbers[16];
        const uint32_t type = type_of(o, &fact.obj);
        if (!type)
            continue;
        fact.obj.type = type;
        address_of(pci, address, sizeof(address));
        fact.obj.pci = address;
        snprintf(numbers, sizeof(numbers), "%04x:%04x", pci->vendor_id, pci->device_id);
        if (!fact.obj.model)
            fact.obj.model = hwloc_obj_get_info_by_name(o, "PCIDevice");
        if (!fact.obj.model)
            fact.obj.model = numbers;
        take_link(pci->linkspeed, &fact.obj);
        const dtp_status st = report_at(r, o, &fact);
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

/* RDMA devices that are not on PCI (software ones). */
static dtp_status report_other_rdma(reader *r)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(r->hw, o));) {
        dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_NIC);
        if (o->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS || !o->name ||
            (o->parent && o->parent->type == HWLOC_OBJ_PCI_DEVICE))
            continue;
        take_rdma(o, &fact.obj);
        const dtp_status st = report(r, &fact, hwloc_get_non_io_ancestor_obj(r->hw, o));
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

static dtp_status report_devices(reader *r)
{
    dtp_status st = report_bridges(r);

    if (st >= 0)
        st = report_pci_devices(r);
    if (st >= 0)
        st = report_other_rdma(r);
    return st;
}

/* ---- loading ---- */

static dtp_status set_up(reader *r)
{
    /* Each of them would start a driver or talk to a display; unknown names are no failure. */
    static const char *const unwanted[] = { "cuda", "nvml", "rsmi", "levelzero", "opencl", "gl" };

    for (size_t i = 0; i < DTPI_ARRAY_LEN(unwanted); i++)
        (void)hwloc_topology_set_components(r->hw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            unwanted[i]);
    if (hwloc_topology_set_flags(r->hw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED |
                                            HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING) < 0)
        return dtpi_fail(r->err, DTP_ERR_UNSUPPORTED, "hwloc refused its flags: %m");
    hwloc_topology_set_io_types_filter(r->hw, r->where->devices ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT
                                                                : HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_icache_types_filter(r->hw, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(r->hw, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(r->hw, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_NONE);
    return DTP_OK;
}

static dtp_status load_live(reader *r)
{
    if (hwloc_topology_load(r->hw) < 0)
        return dtpi_fail(r->err, DTP_ERR_UNSUPPORTED, "hwloc cannot see this machine: %m");
    if (!hwloc_topology_is_thissystem(r->hw))
        return dtpi_fail(r->err, DTP_ERR_UNSUPPORTED,
                         "variables HWLOC_* of the environment replace this machine");
    return DTP_OK;
}

static dtp_status read_topology(reader *r)
{
    dtp_status st = set_up(r);

    if (st >= 0)
        st = load_live(r);
    if (st >= 0)
        st = report_processors(r);
    if (st >= 0 && r->where->devices)
        st = report_devices(r);
    return st;
}

static dtp_status hwloc_read(dtpi_topo_sink *sink, const dtpi_topo_where *where, dtp_error *err)
{
    reader r = { .sink = sink, .where = where, .err = err };

    if (hwloc_get_api_version() >> 16 != HWLOC_API_VERSION >> 16)
        return dtpi_fail(err, DTP_ERR_VERSION, "built for hwloc 0x%x, found 0x%x",
                         (unsigned)HWLOC_API_VERSION, hwloc_get_api_version());
    if (hwloc_topology_init(&r.hw) < 0)
        return dtpi_fail(err, DTP_ERR_NOMEM, "hwloc cannot start: %m");
    const dtp_status st = read_topology(&r);
    hwloc_topology_destroy(r.hw);
    return st;
}

static const dtpi_topo_source_ops ops = { .name = "hwloc", .read = hwloc_read };

DTPI_MODULE(topo_hwloc, "topo-hwloc", &ops);
