/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - the tree for people. Equal cores are one line ("cores 0-7, 2 PUs each"), a bridge between a
 * device and the next branching is not shown, and nothing that is unknown is printed.
 */
#include <stdio.h>

#include "base/buf.h"
#include "topo/topo.h"

typedef struct writer {
    const dtp_topo *topo;
    dtpi_buf out;
} writer;

static void put_bytes(writer *w, const char *word, int64_t bytes)
{
    if (bytes == DTP_UNKNOWN)
        return;
    if (bytes >= 10LL << 30)
        dtpi_buf_printf(&w->out, ", %s%lld GiB", word, (long long)((bytes + (1 << 29)) >> 30));
    else if (bytes >= 10LL << 20)
        dtpi_buf_printf(&w->out, ", %s%lld MiB", word, (long long)((bytes + (1 << 19)) >> 20));
    else
        dtpi_buf_printf(&w->out, ", %s%lld KiB", word, (long long)(bytes >> 10));
}

static void put_rate(writer *w, const char *word, int64_t mbps)
{
    if (mbps == DTP_UNKNOWN)
        return;
    if (mbps >= 1000)
        dtpi_buf_printf(&w->out, ", %s%.4g Gb/s", word, (double)mbps / 1000);
    else
        dtpi_buf_printf(&w->out, ", %s%lld Mb/s", word, (long long)mbps);
}

static void put_nic(writer *w, const dtp_topo_obj *obj)
{
    static const char *const states[] = { NULL, "down", "init", "armed", "active" };

    if (obj->netdev && (!obj->name || strcmp(obj->netdev, obj->name) != 0))
        dtpi_buf_printf(&w->out, ", %s", obj->netdev);
    if (obj->link_layer)
        dtpi_buf_printf(&w->out, ", %s", obj->link_layer);
    put_rate(w, "", obj->port_mbps);
    if (obj->port_state > 0 && obj->port_state < (int)DTPI_ARRAY_LEN(states))
        dtpi_buf_printf(&w->out, ", %s", states[obj->port_state]);
    if (obj->usable == 2)
        dtpi_buf_printf(&w->out, ", cannot be opened");
    if (obj->gid)
        dtpi_buf_printf(&w->out, ", GID %s", obj->gid);
}

/* A link below its best says so: "PCIe 126 of 252.1 Gb/s". */
static void put_link(writer *w, const dtp_topo_obj *obj)
{
    if (obj->link_mbps != DTP_UNKNOWN && obj->link_max_mbps > obj->link_mbps)
        dtpi_buf_printf(&w->out, ", PCIe %.4g of %.4g Gb/s", (double)obj->link_mbps / 1000,
                        (double)obj->link_max_mbps / 1000);
    else
        put_rate(w, "PCIe ", obj->link_mbps);
}

static void put_device(writer *w, const dtp_topo_obj *obj)
{
    char label[300];

    dtpi_topo_label(obj, label, sizeof(label));
    if (obj->type == DTP_TOPO_NIC || obj->type == DTP_TOPO_NVME)
        dtpi_buf_printf(&w->out, "%s %s", obj->type == DTP_TOPO_NIC ? "NIC" : "NVMe", label);
    else
        dtpi_buf_printf(&w->out, "%s", label);
    if (obj->pci && obj->name)
        dtpi_buf_printf(&w->out, " (%s)", obj->pci);
    if (obj->model)
        dtpi_buf_printf(&w->out, ", %s", obj->model);
    put_bytes(w, "", obj->mem_bytes);
    if (obj->type == DTP_TOPO_NIC)
        put_nic(w, obj);
    put_link(w, obj);
}

static void put_object(writer *w, const dtp_topo_obj *obj)
{
    char label[300];

    if (dtpi_topo_is_device(obj->type)) {
        put_device(w, obj);
        return;
    }
    dtpi_topo_label(obj, label, sizeof(label));
    dtpi_buf_printf(&w->out, "%s", label);
    if (obj->type == DTP_TOPO_NUMA)
        put_bytes(w, "", obj->mem_bytes);
    if (obj->type == DTP_TOPO_CACHE)
        put_bytes(w, "", obj->cache_bytes);
    if (obj->model)
        dtpi_buf_printf(&w->out, ", %s", obj->model);
    if (obj->type == DTP_TOPO_NUMA && obj->numa != obj->os_index)
        dtpi_buf_printf(&w->out, ", memory only");
    else if (obj->cpus && obj->type != DTP_TOPO_PU)
        dtpi_buf_printf(&w->out, ", PUs %s", obj->cpus);
}

/* One past the last object below `i`. */
static uint32_t subtree_end(const dtp_topo *topo, uint32_t i)
{
    uint32_t end = i + 1;

    while (end < topo->n_objs && topo->objs[end].parent >= (int32_t)i)
        end++;
    return end;
}

static uint32_t n_pus(const dtp_topo *topo, uint32_t core)
{
    const uint32_t end = subtree_end(topo, core);
    uint32_t n = 0;

    for (uint32_t i = core; i < end; i++)
        n += topo->objs[i].type == DTP_TOPO_PU;
    return n;
}

/* A core, or a PU without one, stands for a run of equal ones among its siblings. */
static bool same_run(const dtp_topo *topo, uint32_t a, uint32_t b)
{
    const dtp_topo_obj *x = &topo->objs[a], *y = &topo->objs[b];

    return x->type == y->type && x->parent == y->parent && n_pus(topo, a) == n_pus(topo, b);
}

static void put_run(writer *w, uint32_t first, uint32_t n)
{
    const dtp_topo_obj *obj = &w->topo->objs[first];
    const uint32_t pus = n_pus(w->topo, first);

    if (obj->type == DTP_TOPO_PU)
        dtpi_buf_printf(&w->out, "%u %s without cores", n, n == 1 ? "PU" : "PUs");
    else
        dtpi_buf_printf(&w->out, "%u %s, %u %s%s", n, n == 1 ? "core" : "cores", pus,
                        pus == 1 ? "PU" : "PUs", n == 1 ? "" : " each");
}

/* A bridge with one child says nothing. */
static uint32_t skip_bridges(const dtp_topo *topo, uint32_t i)
{
    while (topo->objs[i].type == DTP_TOPO_BRIDGE &&
           subtree_end(topo, i) == subtree_end(topo, i + 1))
        i++;
    return i;
}

enum { MAX_DEPTH = 256 };

static void put_tree(writer *w, uint32_t i, uint32_t depth)
{
    const uint32_t end = subtree_end(w->topo, i);
    const dtp_topo_obj *obj = &w->topo->objs[i];

    dtpi_buf_printf(&w->out, "%*s", (int)(2 * depth), "");
    put_object(w, obj);
    dtpi_buf_printf(&w->out, "\n");
    for (uint32_t k = i + 1; k < end && depth < MAX_DEPTH; k = subtree_end(w->topo, k)) {
        const dtp_topo_type type = w->topo->objs[k].type;
        if (type != DTP_TOPO_CORE && type != DTP_TOPO_PU) {
            put_tree(w, skip_bridges(w->topo, k), depth + 1);
            continue;
        }
        uint32_t n = 1, last = k;
        for (uint32_t next; (next = subtree_end(w->topo, last)) < end && same_run(w->topo, k, next);
             last = next)
            n++;
        dtpi_buf_printf(&w->out, "%*s", (int)(2 * depth + 2), "");
        put_run(w, k, n);
        dtpi_buf_printf(&w->out, "\n");
        k = last;
    }
}

static void put_views(writer *w)
{
    const char *machine = dtp_topo_cpus(w->topo, DTP_CPUS_MACHINE);
    const char *allowed = dtp_topo_cpus(w->topo, DTP_CPUS_ALLOWED);
    const char *bound = dtp_topo_cpus(w->topo, DTP_CPUS_BOUND);

    if (allowed && strcmp(allowed, machine) != 0)
        dtpi_buf_printf(&w->out, "allowed PUs: %s\n", *allowed ? allowed : "none");
    if (bound && strcmp(bound, allowed ? allowed : machine) != 0)
        dtpi_buf_printf(&w->out, "bound to PUs: %s\n", *bound ? bound : "none");
}

dtp_status dtpi_topo_render_text(const dtp_topo *topo, char **text_out, dtp_error *err)
{
    writer w = { .topo = topo, .out = dtpi_buf_init(&dtpi_malloc_allocator) };

    put_tree(&w, 0, 0);
    put_views(&w);
    char *text =
        w.out.failed ? NULL : dtpi_text_ndup(&dtpi_malloc_allocator, (char *)w.out.data, w.out.len);
    dtpi_buf_free(&w.out);
    if (!text)
        return dtpi_fail_nomem(err, 0);
    *text_out = text;
    return DTP_OK;
}
