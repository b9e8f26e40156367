/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - a topology as JSON; docs/formats/topo-json.md is the schema. Unknown is null. */
#include <jansson.h>
#include <stdlib.h>

#include "topo/topo.h"

/* Pairs of devices are listed up to this many devices. */
enum { MAX_PAIRED = 256 };

static const char *const type_names[] = {
    [DTP_TOPO_MACHINE] = "machine", [DTP_TOPO_PACKAGE] = "package", [DTP_TOPO_NUMA] = "numa",
    [DTP_TOPO_CACHE] = "cache",     [DTP_TOPO_CORE] = "core",       [DTP_TOPO_PU] = "pu",
    [DTP_TOPO_BRIDGE] = "bridge",   [DTP_TOPO_PCI] = "pci",         [DTP_TOPO_GPU] = "gpu",
    [DTP_TOPO_NIC] = "nic",         [DTP_TOPO_NVME] = "nvme",
};

static json_t *text(const char *value)
{
    return value ? json_string(value) : json_null();
}

static json_t *number(int64_t value)
{
    return value == DTP_UNKNOWN ? json_null() : json_integer(value);
}

/* Members that only this type has. json_object_set_new() refuses NULL, so failures add up. */
static int set_by_type(json_t *out, const dtp_topo_obj *obj)
{
    int failed = 0;

    if (obj->type == DTP_TOPO_NUMA || obj->type == DTP_TOPO_GPU)
        failed |= json_object_set_new(out, "mem_bytes", number(obj->mem_bytes));
    if (obj->type == DTP_TOPO_CACHE)
        failed |= json_object_set_new(out, "cache_bytes", number(obj->cache_bytes));
    if (dtpi_topo_is_device(obj->type)) {
        failed |= json_object_set_new(out, "pci", text(obj->pci));
        failed |= json_object_set_new(out, "link_mbps", number(obj->link_mbps));
        failed |= json_object_set_new(out, "link_max_mbps", number(obj->link_max_mbps));
    }
    if (obj->type == DTP_TOPO_NIC) {
        failed |= json_object_set_new(out, "netdev", text(obj->netdev));
        failed |= json_object_set_new(out, "port_mbps", number(obj->port_mbps));
        failed |= json_object_set_new(out, "port_state",
                                      number(obj->port_state ? obj->port_state : DTP_UNKNOWN));
        failed |= json_object_set_new(out, "link_layer", text(obj->link_layer));
        failed |= json_object_set_new(out, "gid", text(obj->gid));
        failed |= json_object_set_new(out, "usable",
                                      obj->usable ? json_boolean(obj->usable == 1) : json_null());
    }
    return failed;
}

static json_t *object_of(const dtp_topo_obj *obj)
{
    json_t *out = json_object();
    int failed = 0;

    failed |= json_object_set_new(out, "index", json_integer(obj->index));
    failed |= json_object_set_new(out, "parent", obj->parent < 0 ? json_null()
                                                                 : json_integer(obj->parent));
    failed |= json_object_set_new(out, "type", json_string(type_names[obj->type]));
    failed |= json_object_set_new(out, "os_index", number(obj->os_index));
    failed |= json_object_set_new(out, "name", text(obj->name));
    failed |= json_object_set_new(out, "model", text(obj->model));
    failed |= json_object_set_new(out, "numa", number(obj->numa));
    failed |= json_object_set_new(out, "cpus", text(obj->cpus));
    failed |= set_by_type(out, obj);
    if (failed) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static json_t *objects_of(const dtp_topo *topo)
{
    json_t *out = json_array();

    for (uint32_t i = 0; i < topo->n_objs; i++)
        if (json_array_append_new(out, object_of(&topo->objs[i]))) {
            json_decref(out);
            return NULL;
        }
    return out;
}

static json_t *path_entry(const dtp_topo *topo, uint32_t a, uint32_t b)
{
    static const char *const names[] = { NULL, "X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS" };
    dtp_topo_path path = DTP_PATH_UNKNOWN;
    uint32_t n_links = 0;

    dtp_topo_path_between(topo, a, b, &path, &n_links, NULL);
    return json_pack("{s:i, s:i, s:o, s:i}", "a", (int)a, "b", (int)b, "path", text(names[path]),
                     "n_links", (int)n_links);
}

/* Every pair of GPUs and NICs. */
static json_t *paths_of(const dtp_topo *topo)
{
    const uint32_t from = topo->first[DTP_TOPO_GPU], to = topo->first[DTP_TOPO_NIC + 1];
    json_t *out = json_array();

    if (to - from > MAX_PAIRED)
        return out;
    for (uint32_t i = from; i < to; i++)
        for (uint32_t k = i + 1; k < to; k++)
            if (json_array_append_new(out, path_entry(topo, topo->sorted[i], topo->sorted[k]))) {
                json_decref(out);
                return NULL;
            }
    return out;
}

static json_t *document_of(const dtp_topo *topo)
{
    json_t *out = json_object(), *cpus = json_object();
    int failed = 0;

    failed |= json_object_set_new(cpus, "machine", text(topo->cpus[DTP_CPUS_MACHINE]));
    failed |= json_object_set_new(cpus, "allowed", text(topo->cpus[DTP_CPUS_ALLOWED]));
    failed |= json_object_set_new(cpus, "bound", text(topo->cpus[DTP_CPUS_BOUND]));
    failed |= json_object_set_new(out, "format", json_string("dtp-topo"));
    failed |= json_object_set_new(out, "version", json_integer(1));
    failed |= json_object_set_new(out, "source", text(topo->source));
    failed |= json_object_set_new(out, "recorded", json_boolean(topo->recorded));
    failed |= json_object_set_new(out, "cpus", cpus);
    failed |= json_object_set_new(out, "objects", objects_of(topo));
    failed |= json_object_set_new(out, "paths", paths_of(topo));
    if (failed) {
        json_decref(out);
        return NULL;
    }
    return out;
}

dtp_status dtpi_topo_render_json(const dtp_topo *topo, char **text_out, dtp_error *err)
{
    json_t *doc = document_of(topo);
    char *dumped = doc ? json_dumps(doc, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;

    json_decref(doc);
    if (!dumped)
        return dtpi_fail_nomem(err, 0);
    char *out = dtpi_text_ndup(&dtpi_malloc_allocator, dumped, strlen(dumped));
    free(dumped);
    if (!out)
        return dtpi_fail_nomem(err, 0);
    *text_out = out;
    return DTP_OK;
}
