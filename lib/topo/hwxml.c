/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwxml.c - the source that reads a machine recorded as hwloc XML, formats 1 to 3, without hwloc: its
 * own reader trusts the file, and crashes on sets that contradict each other.
 *
 * An object is reported when its element closes: then its infos and the devices in it are known.
 * Source: hwloc.dtd and hwloc2.dtd of hwloc.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "topo/nvlink.h"
#include "topo/parse.h"
#include "topo/pciclass.h"
#include "topo/topo.h"
#include "topo/xml.h"

/* What OSDev elements are; formats 1 and 2 number them, 3 has a bit each. */
typedef enum os_kind { OS_OTHER, OS_BLOCK, OS_GPU, OS_NET, OS_RDMA, OS_COPROC } os_kind;

typedef struct frame {
    dtpi_topo_fact fact;        /* type 0: nothing to report */
    dtpi_cpuset set;
    bool has_set;               /* processors of a normal object */
    bool is_bridge, is_pci, is_os;
    os_kind os;
    bool has_rdma;
    char key[32];               /* address of a PCI function, name of a host bridge */
    char numbers[16];           /* "10de:2330" */
    dtpi_pci_ids ids;
    int64_t gp_index;
} frame;

typedef struct reader {
    dtpi_xml xml;
    frame frames[DTPI_XML_MAX_DEPTH + 1];   /* [depth] of open elements */
    dtpi_topo_sink *sink;
    const dtpi_topo_where *where;
    dtp_error *err;
    int version;
    bool has_l3, has_numa;
    int64_t mem_bytes;          /* of the machine: format 1 without NUMA nodes */
    dtpi_cpuset pus;
    dtpi_nvlink_reader nvlink;
} reader;

static dtp_status fail_at(reader *r, const char *why)
{
    return dtpi_fail(r->err, DTP_ERR_FORMAT, "%s:%u: %s", r->where->xml_path, r->xml.line, why);
}

static bool attr_number(const reader *r, const char *name, int64_t max, int64_t *out)
{
    const char *text = dtpi_xml_attr_of(&r->xml, name);

    return text && dtpi_parse_i64(text, 0, max, out);
}

/* ---- objects ---- */

static void open_normal(reader *r, frame *f, dtp_topo_type type)
{
    const char *set = dtpi_xml_attr_of(&r->xml, "cpuset");

    f->fact = dtpi_topo_fact_of(type);
    f->has_set = set && dtpi_topo_parse_hwloc_set(set, &f->set);
    attr_number(r, "os_index", UINT32_MAX - 1, &f->fact.obj.os_index);
    if (type == DTP_TOPO_NUMA || type == DTP_TOPO_MACHINE) {
        attr_number(r, "local_memory", INT64_MAX, &f->fact.obj.mem_bytes);
        if (f->fact.obj.mem_bytes == 0)
            f->fact.obj.mem_bytes = DTP_UNKNOWN;
    }
    if (type == DTP_TOPO_MACHINE)
        r->mem_bytes = f->fact.obj.mem_bytes;
    /* Format 1 keeps nodes whose memory the cgroup forbids; hwloc has left them out since. */
    const char *nodeset = dtpi_xml_attr_of(&r->xml, "nodeset");
    if (type == DTP_TOPO_NUMA && nodeset && strcmp(nodeset, "0x0") == 0)
        f->fact.obj.type = 0;
    r->has_numa |= f->fact.obj.type == DTP_TOPO_NUMA;
}

/* Level 3, else level 2 where several PUs share it. */
static void open_cache(reader *r, frame *f, int64_t level)
{
    int64_t kind = 0;

    open_normal(r, f, DTP_TOPO_CACHE);
    f->fact.obj.os_index = DTP_UNKNOWN;
    attr_number(r, "cache_size", INT64_MAX, &f->fact.obj.cache_bytes);
    if (f->fact.obj.cache_bytes == 0)
        f->fact.obj.cache_bytes = DTP_UNKNOWN;
    attr_number(r, "cache_type", 2, &kind);
    f->fact.obj.name = level == 3 ? "L3" : "L2";
    const bool keep = level == 3 || (level == 2 && !r->has_l3 && dtpi_cpuset_count(&f->set) > 1);
    if (!keep || kind == 2)
        f->fact.obj.type = 0;
}

static bool open_pci(reader *r, frame *f)
{
    const char *id = dtpi_xml_attr_of(&r->xml, "pci_busid");
    const char *type = dtpi_xml_attr_of(&r->xml, "pci_type");
    const char *speed = dtpi_xml_attr_of(&r->xml, "pci_link_speed");
    unsigned domain, bus, dev, fn, class_id = 0, vendor = 0, device = 0;

    if (!id || sscanf(id, "%x:%x:%x.%x", &domain, &bus, &dev, &fn) != 4)
        return false;
    snprintf(f->key, sizeof(f->key), "%04x:%02x:%02x.%01x", domain, bus & 0xff, dev & 0x1f, fn & 7);
    if (type && sscanf(type, "%x [%x:%x]", &class_id, &vendor, &device) >= 1) {
        f->ids.class_id = class_id & 0xffff;
        f->ids.vendor = vendor & 0xffff;
        snprintf(f->numbers, sizeof(f->numbers), "%04x:%04x", vendor & 0xffff, device & 0xffff);
    }
    f->fact.obj.pci = f->key;
    f->ids.has_link = speed && dtpi_topo_parse_gb_per_s(speed, &f->fact.obj.link_mbps);
    return true;
}

static dtp_status open_bridge(reader *r, frame *f)
{
    const char *type = dtpi_xml_attr_of(&r->xml, "bridge_type");
    const char *pci = dtpi_xml_attr_of(&r->xml, "bridge_pci");
    unsigned domain, bus;

    f->fact = dtpi_topo_fact_of(DTP_TOPO_BRIDGE);
    f->is_bridge = true;
    if (!type || (type[0] != '0' && type[0] != '1') || type[1] != '-')
        return fail_at(r, "a bridge without a type");
    if (type[0] == '1')
        return open_pci(r, f) ? DTP_OK : fail_at(r, "a bridge without a PCI address");
    if (!pci || sscanf(pci, "%x:[%x-", &domain, &bus) != 2)
        return fail_at(r, "a host bridge without a PCI bus");
    snprintf(f->key, sizeof(f->key), "pci%04x:%02x", domain, bus & 0xff);
    f->fact.obj.name = f->key;
    return DTP_OK;
}

static os_kind os_kind_of(const reader *r)
{
    static const os_kind numbered[] = { OS_BLOCK, OS_GPU, OS_NET, OS_RDMA, OS_OTHER, OS_COPROC };
    int64_t v = 0;

    if (!attr_number(r, "osdev_type", UINT32_MAX, &v))
        return OS_OTHER;
    if (r->version < 3)
        return v < (int64_t)DTPI_ARRAY_LEN(numbered) ? numbered[v] : OS_OTHER;
    return v & 1u << 5 ? OS_RDMA : v & 1u << 4 ? OS_NET : v & 1u << 3 ? OS_COPROC
         : v & 1u << 2 ? OS_GPU : v & 1u << 0 ? OS_BLOCK : OS_OTHER;
}

static dtp_status open_object(reader *r, frame *f)
{
    static const struct {
        const char *name;
        dtp_topo_type type;
    } normal[] = { { "Machine", DTP_TOPO_MACHINE },  { "Package", DTP_TOPO_PACKAGE },
                   { "Socket", DTP_TOPO_PACKAGE },   { "NUMANode", DTP_TOPO_NUMA },
                   { "Node", DTP_TOPO_NUMA },        { "Core", DTP_TOPO_CORE },
                   { "PU", DTP_TOPO_PU } };
    const char *type = dtpi_xml_attr_of(&r->xml, "type");
    int64_t level = 0;

    if (!type)
        return fail_at(r, "an object without a type");
    f->gp_index = -1;
    attr_number(r, "gp_index", INT64_MAX, &f->gp_index);
    for (size_t i = 0; i < DTPI_ARRAY_LEN(normal); i++)
        if (strcmp(type, normal[i].name) == 0) {
            open_normal(r, f, normal[i].type);
            return DTP_OK;
        }
    if (strcmp(type, "Bridge") == 0)
        return open_bridge(r, f);
    if (strcmp(type, "PCIDev") == 0) {
        f->fact = dtpi_topo_fact_of(DTP_TOPO_PCI);
        f->is_pci = true;
        return open_pci(r, f) ? DTP_OK : fail_at(r, "a PCI device without an address");
    }
    if (strcmp(type, "OSDev") == 0) {
        f->fact = dtpi_topo_fact_of(DTP_TOPO_NIC);
        f->is_os = true;
        f->os = os_kind_of(r);
        f->fact.obj.name = dtpi_xml_attr_of(&r->xml, "name");
        return DTP_OK;
    }
    if (strcmp(type, "Cache") == 0)
        attr_number(r, "depth", 9, &level);
    else if (type[0] == 'L' && type[1] >= '1' && type[1] <= '5' && strcmp(type + 2, "Cache") == 0)
        level = type[1] - '0';
    if (level)
        open_cache(r, f, level);
    return DTP_OK;
}

/* An info of the object around it. */
static void take_info(reader *r, frame *f)
{
    const char *name = dtpi_xml_attr_of(&r->xml, "name");
    const char *value = dtpi_xml_attr_of(&r->xml, "value");
    int64_t n;

    if (!name || !value || !*value)
        return;
    if (f->fact.obj.type == DTP_TOPO_PACKAGE && strcmp(name, "CPUModel") == 0)
        f->fact.obj.model = value;
    else if (f->is_pci && strcmp(name, "PCIDevice") == 0 && !f->fact.obj.model)
        f->fact.obj.model = value;
    else if (f->is_os && strcmp(name, "GPUModel") == 0)
        f->fact.obj.model = value;
    else if (f->is_os && strcmp(name, "CUDAGlobalMemorySize") == 0 &&
             dtpi_parse_i64(value, 1, INT64_MAX >> 10, &n))
        f->fact.obj.mem_bytes = n << 10;
    else if (f->is_os && strcmp(name, "Port1State") == 0 && dtpi_parse_i64(value, 1, 4, &n))
        f->fact.obj.port_state = (int32_t)n;
    else if (f->is_os && strcmp(name, "Port1GID0") == 0 && dtpi_topo_parse_gid(value))
        f->fact.obj.gid = value;
}

/* ---- closing ---- */

static frame *parent_of(reader *r, const frame *f)
{
    return (frame *)f - 1 >= r->frames ? (frame *)f - 1 : NULL;
}

/* Bridge above, and processors of the nearest normal object. */
static void find_place(reader *r, const frame *f, dtpi_topo_fact *fact)
{
    for (frame *p = parent_of(r, f); p; p = parent_of(r, p)) {
        if (p->is_bridge && !fact->above)
            fact->above = p->key;
        if (p->has_set) {
            fact->cpus = &p->set;
            return;
        }
    }
}

/* An OS device tells of the PCI function around it. */
static void tell_function(const frame *os, frame *pci)
{
    dtp_topo_obj *obj = &pci->fact.obj;
    const dtp_topo_obj *own = &os->fact.obj;

    if (!own->name)
        return;
    if (os->os == OS_RDMA && !pci->has_rdma) {
        obj->name = own->name;
        obj->port_state = own->port_state;
        obj->gid = own->gid;
        pci->has_rdma = pci->ids.has_nic = true;
    } else if (os->os == OS_NET && !obj->netdev) {
        obj->netdev = own->name;
        if (!pci->has_rdma)
            obj->name = own->name;
        pci->ids.has_nic = true;
    } else if (os->os == OS_BLOCK && !obj->name && strncmp(own->name, "nvme", 4) == 0) {
        obj->name = own->name;
    } else if (os->os == OS_GPU || os->os == OS_COPROC) {
        pci->ids.has_gpu |= os->os == OS_COPROC;
        if (own->model)
            obj->model = own->model;
        if (own->mem_bytes != DTP_UNKNOWN)
            obj->mem_bytes = own->mem_bytes;
    }
}

static dtp_status close_os(reader *r, frame *f)
{
    frame *p = parent_of(r, f);

    while (p && p->is_os)
        p = parent_of(r, p);
    if (p && p->is_pci) {
        tell_function(f, p);
        dtpi_nvlink_end(&r->nvlink, f->gp_index, p->key, p->ids.class_id >> 8 == 3);
        return DTP_OK;
    }
    if (f->os != OS_RDMA)
        return DTP_OK;
    find_place(r, f, &f->fact);
    return r->sink->add(r->sink, &f->fact, r->err);
}

static dtp_status close_pci(reader *r, frame *f)
{
    const uint32_t type = dtpi_pci_type(&f->ids);

    dtpi_nvlink_end(&r->nvlink, f->gp_index, f->key, f->ids.class_id >> 8 == 3);
    if (!type)
        return DTP_OK;
    f->fact.obj.type = type;
    if (!f->fact.obj.model && f->numbers[0])
        f->fact.obj.model = f->numbers;
    find_place(r, f, &f->fact);
    return r->sink->add(r->sink, &f->fact, r->err);
}

/* A number outside its own set would make two objects of one processor. */
static dtp_status check_pu(reader *r, const frame *f)
{
    const int64_t n = f->fact.obj.os_index;

    if (n == DTP_UNKNOWN)
        return fail_at(r, "a PU without a number");
    if (n >= DTPI_CPUSET_MAX || (f->has_set && !dtpi_cpuset_has(&f->set, (uint32_t)n)))
        return fail_at(r, "a PU whose number is not in its set");
    dtpi_cpuset_set(&r->pus, (uint32_t)n);
    return DTP_OK;
}

static dtp_status close_normal(reader *r, frame *f)
{
    const dtp_topo_type type = f->fact.obj.type;
    const bool empty = f->has_set && !dtpi_cpuset_count(&f->set);

    if (type == DTP_TOPO_MACHINE || (empty && type != DTP_TOPO_NUMA))
        return DTP_OK;          /* an empty one is offline */
    if (!f->has_set && type != DTP_TOPO_NUMA)
        return fail_at(r, "an object without a set of processors");
    if (type == DTP_TOPO_PU) {
        const dtp_status st = check_pu(r, f);
        if (st < 0)
            return st;
    }
    if (f->has_set && !empty)
        f->fact.cpus = &f->set;
    return r->sink->add(r->sink, &f->fact, r->err);
}

static dtp_status close_object(reader *r, frame *f)
{
    if (f->is_os || f->is_pci || f->is_bridge) {
        if (!r->where->devices)
            return DTP_OK;
        if (f->is_os)
            return close_os(r, f);
        if (f->is_pci)
            return close_pci(r, f);
        find_place(r, f, &f->fact);
        return r->sink->add(r->sink, &f->fact, r->err);
    }
    return f->fact.obj.type ? close_normal(r, f) : DTP_OK;
}

/* ---- the document ---- */

static dtp_status open_root(reader *r)
{
    const char *version = dtpi_xml_attr_of(&r->xml, "version");

    if (strcmp(r->xml.name, "topology") != 0 && strcmp(r->xml.name, "root") != 0)
        return fail_at(r, "this is no hwloc topology");
    r->version = version ? atoi(version) : 1;
    if (r->version < 1 || r->version > 3)
        return dtpi_fail(r->err, DTP_ERR_FORMAT,
                         "%s has version %.16s of hwloc's XML, 1 to 3 can be read",
                         r->where->xml_path, version);
    return DTP_OK;
}

static dtp_status take_allowed(reader *r)
{
    const char *text = dtpi_xml_attr_of(&r->xml, "allowed_cpuset");
    dtpi_cpuset set;

    if (!text || !dtpi_topo_parse_hwloc_set(text, &set))
        return DTP_OK;
    return r->sink->view(r->sink, DTP_CPUS_ALLOWED, &set, r->err);
}

static dtp_status on_open(reader *r)
{
    const uint32_t depth = r->xml.depth;    /* of this element, from 1 */
    frame *f = &r->frames[depth];

    *f = (frame){ .gp_index = -1 };
    if (depth == 1)
        return open_root(r);
    if (strcmp(r->xml.name, "info") == 0) {
        take_info(r, &r->frames[depth - 1]);
        return DTP_OK;
    }
    if (strcmp(r->xml.name, "object") == 0) {
        const dtp_status st = depth == 2 ? take_allowed(r) : DTP_OK;
        return st < 0 ? st : open_object(r, f);
    }
    if (strncmp(r->xml.name, "distances2", 10) == 0)
        dtpi_nvlink_begin(&r->nvlink, dtpi_xml_attr_of(&r->xml, "name"),
                          dtpi_xml_attr_of(&r->xml, "nbobjs"));
    return DTP_OK;
}

static dtp_status on_close(reader *r)
{
    frame *f = &r->frames[r->xml.depth + 1];

    if (strcmp(r->xml.name, "object") == 0)
        return close_object(r, f);
    if (strcmp(r->xml.name, "indexes") == 0)
        dtpi_nvlink_indexes(&r->nvlink, r->xml.body);
    else if (strcmp(r->xml.name, "u64values") == 0)
        dtpi_nvlink_values(&r->nvlink, r->xml.body);
    else if (strncmp(r->xml.name, "distances2", 10) == 0 && r->where->devices)
        return dtpi_nvlink_report(&r->nvlink, r->sink, r->err);
    return DTP_OK;
}

/* A machine that does not know of NUMA nodes has one. */
static dtp_status end_document(reader *r)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_NUMA);

    if (r->nvlink.failed)
        return dtpi_fail_nomem(r->err, 0);
    if (r->has_numa)
        return DTP_OK;
    fact.obj.os_index = 0;
    fact.obj.mem_bytes = r->mem_bytes;
    fact.cpus = &r->pus;
    return r->sink->add(r->sink, &fact, r->err);
}

static dtp_status read_document(reader *r)
{
    for (;;) {
        dtp_status st = DTP_OK;
        switch (dtpi_xml_next(&r->xml)) {
        case DTPI_XML_OPEN:
            st = on_open(r);
            break;
        case DTPI_XML_CLOSE:
            st = on_close(r);
            break;
        case DTPI_XML_END:
            return end_document(r);
        case DTPI_XML_BAD:
            return fail_at(r, r->xml.why);
        }
        if (st < 0)
            return st;
    }
}

static dtp_status hwxml_read(dtpi_topo_sink *sink, const dtpi_topo_where *where, dtp_error *err)
{
    reader *r = dtpi_alloc(where->a, sizeof(*r));

    if (!r)
        return dtpi_fail_nomem(err, sizeof(*r));
    r->sink = sink;
    r->where = where;
    r->err = err;
    r->mem_bytes = DTP_UNKNOWN;
    r->nvlink.a = where->a;
    r->has_l3 = strstr(where->xml, "\"L3Cache\"") || strstr(where->xml, "type=\"Cache\"");
    dtpi_xml_start(&r->xml, where->xml, where->xml_bytes);
    const dtp_status st = read_document(r);
    dtpi_nvlink_free(&r->nvlink);
    dtpi_free(where->a, r, sizeof(*r));
    return st;
}

const dtpi_topo_source_ops dtpi_topo_hwxml_ops = { .name = "hwloc-xml", .read = hwxml_read };
