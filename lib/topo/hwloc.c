/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwloc.c - the source that asks hwloc: the live machine, and recorded ones from its XML (v1 and v2).
 *
 * hwloc's tree is not copied but reported as facts. Its components that would start CUDA, OpenCL, X11
 * and the like are left out, and it must not move the calling thread between processors.
 */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctx/ctx.h"
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
    return DTP_OK;
}

/* The format's version, 1 where the root has none; 0: this is no hwloc topology. */
static int xml_version(const char *xml)
{
    const char *root = strstr(xml, "<topology");
    const char *end = root ? strchr(root, '>') : NULL;

    if (!end || (root[9] != ' ' && root[9] != '>' && root[9] != '\n'))
        return 0;
    const char *version = strstr(root, " version=\"");
    return version && version < end ? atoi(version + 10) : 1;
}

static dtp_status load_xml(reader *r)
{
    const dtpi_topo_where *w = r->where;
    const int version = strlen(w->xml) == w->xml_bytes ? xml_version(w->xml) : 0;

    if (version == 0)
        return dtpi_fail(r->err, DTP_ERR_FORMAT, "%s is not a hwloc topology", w->xml_path);
    if (version > 2)
        return dtpi_fail(r->err, DTP_ERR_FORMAT, "%s has hwloc's XML format %d, 1 and 2 can be read",
                         w->xml_path, version);
    if (hwloc_topology_set_xmlbuffer(r->hw, w->xml, (int)w->xml_bytes + 1) < 0 ||
        hwloc_topology_load(r->hw) < 0)
        return dtpi_fail(r->err, DTP_ERR_FORMAT, "%s is not a valid hwloc topology", w->xml_path);
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
        st = r->where->xml ? load_xml(r) : load_live(r);
    if (st >= 0)
        st = report_processors(r);
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
