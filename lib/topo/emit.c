/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emit.c - writes nested items into the topology: depth first, siblings in a fixed order, and an index
 * by type. The order depends on what the machine is, not on the order of the facts.
 */
#include "topo/build.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static int compare_names(const char *a, const char *b)
{
    if (!a || !b)
        return (a != NULL) - (b != NULL);
    return strverscmp(a, b);
}

static int64_t first_cpu(const dtpi_topo_item *it)
{
    int32_t first = -1;

    if (it->obj.type == DTP_TOPO_PU)
        first = (int32_t)it->obj.os_index;
    else if (it->set)
        first = dtpi_cpuset_next(it->set, 0);
    return first < 0 ? INT32_MAX : first;
}

/* Siblings: processors, memory, then devices by PCI address and name. */
static int compare_siblings(const void *pa, const void *pb, void *user)
{
    const dtpi_topo_build *b = user;
    const int32_t i = *(const int32_t *)pa, k = *(const int32_t *)pb;
    const dtpi_topo_item *x = &b->items[i], *y = &b->items[k];
    const int gx = dtpi_topo_is_device(x->obj.type) ? 2 : x->memory_only;
    const int gy = dtpi_topo_is_device(y->obj.type) ? 2 : y->memory_only;

    if (gx != gy)
        return gx - gy;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    if (gx != 2) {
        if (first_cpu(x) != first_cpu(y))
            return first_cpu(x) < first_cpu(y) ? -1 : 1;
        if (x->obj.os_index != y->obj.os_index)
            return x->obj.os_index < y->obj.os_index ? -1 : 1;
    }
    const int by_name = compare_names(x->obj.name, y->obj.name);
    return by_name ? by_name : (i < k ? -1 : 1);
}

static void link_children(dtpi_topo_build *b, const int32_t *order)
{
    for (uint32_t k = b->n; k-- > 0;) {
        dtpi_topo_item *it = &b->items[order[k]];
        if (!it->kept || it->parent < 0)
            continue;
        it->next = b->items[it->parent].child;
        b->items[it->parent].child = order[k];
    }
}

/* List of the processors near an item: its own, else of what is above it. */
static const char *near_cpus(dtpi_topo_build *b, const dtpi_topo_item *it)
{
    char text[24];

    if (it->obj.type == DTP_TOPO_PU) {
        snprintf(text, sizeof(text), "%lld", (long long)it->obj.os_index);
        return dtpi_topo_text(b->topo, text);
    }
    if (it->set && it->count)
        return dtpi_topo_list(b->topo, it->set);
    return NULL;
}

/* Processors of a device that names none: of the bridge above, else of its NUMA node; NULL unknown. */
static const char *inherited_cpus(const dtpi_topo_build *b, const dtpi_topo_item *it)
{
    const dtp_topo *topo = b->topo;
    const dtpi_topo_item *above = &b->items[it->parent];

    if (dtpi_topo_is_device(above->obj.type) && topo->objs[above->index].cpus)
        return topo->objs[above->index].cpus;
    for (uint32_t i = 0; it->obj.numa != DTP_UNKNOWN && i < b->n; i++) {
        const dtpi_topo_item *numa = &b->items[i];
        if (numa->obj.type == DTP_TOPO_NUMA && numa->obj.os_index == it->obj.numa &&
            numa->index >= 0)
            return topo->objs[numa->index].cpus;
    }
    return NULL;
}

static dtp_status emit_one(dtpi_topo_build *b, int32_t i, dtp_error *err)
{
    dtp_topo *topo = b->topo;
    dtpi_topo_item *it = &b->items[i];

    it->index = (int32_t)topo->n_objs;
    dtp_topo_obj *obj = &topo->objs[topo->n_objs++];
    *obj = it->obj;
    obj->size = sizeof(*obj);
    obj->index = it->index;
    obj->parent = it->parent < 0 ? -1 : b->items[it->parent].index;
    obj->cpus = near_cpus(b, it);
    if (!obj->cpus && ((it->set && it->count) || obj->type == DTP_TOPO_PU))
        return dtpi_fail_nomem(err, 0);
    if (!obj->cpus && it->parent >= 0)
        obj->cpus = inherited_cpus(b, it);
    return DTP_OK;
}

/* Next item depth first, -1 at the end. */
static int32_t next_item(const dtpi_topo_build *b, int32_t i)
{
    if (b->items[i].child >= 0)
        return b->items[i].child;
    while (i >= 0 && b->items[i].next < 0)
        i = b->items[i].parent;
    return i < 0 ? -1 : b->items[i].next;
}

static int compare_sorted(const void *pa, const void *pb, void *user)
{
    const dtpi_topo_build *b = user;
    const dtp_topo_obj *x = &b->topo->objs[*(const uint32_t *)pa];
    const dtp_topo_obj *y = &b->topo->objs[*(const uint32_t *)pb];

    if (x->type != y->type)
        return x->type < y->type ? -1 : 1;
    if (dtpi_topo_is_device(x->type)) {
        const int32_t i = dtpi_topo_build_find(b, x->pci ? x->pci : x->name);
        const int32_t k = dtpi_topo_build_find(b, y->pci ? y->pci : y->name);
        const uint64_t px = i < 0 ? UINT64_MAX : b->items[i].place;
        const uint64_t py = k < 0 ? UINT64_MAX : b->items[k].place;
        if (px != py)
            return px < py ? -1 : 1;
        const int by_name = compare_names(x->name, y->name);
        if (by_name)
            return by_name;
    } else if (x->os_index != y->os_index) {
        return x->os_index < y->os_index ? -1 : 1;
    }
    return x->index < y->index ? -1 : 1;
}

static dtp_status sort_by_type(dtpi_topo_build *b, dtp_error *err)
{
    dtp_topo *topo = b->topo;
    uint32_t k = 0;

    for (uint32_t i = 0; i < topo->n_objs; i++)
        topo->sorted[i] = i;
    qsort_r(topo->sorted, topo->n_objs, sizeof(*topo->sorted), compare_sorted, b);
    for (uint32_t type = 0; type < DTPI_ARRAY_LEN(topo->first); type++) {
        while (k < topo->n_objs && topo->objs[topo->sorted[k]].type < type)
            k++;
        topo->first[type] = k;
    }
    for (uint32_t i = topo->first[DTP_TOPO_GPU]; i < topo->first[DTP_TOPO_GPU + 1]; i++) {
        char name[16];
        dtp_topo_obj *gpu = &topo->objs[topo->sorted[i]];
        snprintf(name, sizeof(name), "GPU%u", i - topo->first[DTP_TOPO_GPU]);
        gpu->name = dtpi_topo_text(topo, name);
        if (!gpu->name)
            return dtpi_fail_nomem(err, 0);
    }
    return DTP_OK;
}

static dtp_status emit_views(dtpi_topo_build *b, dtp_error *err)
{
    for (int v = 0; v < 3; v++) {
        if (!b->has_view[v])
            continue;
        b->topo->cpus[v] = dtpi_topo_list(b->topo, &b->views[v]);
        if (!b->topo->cpus[v])
            return dtpi_fail_nomem(err, 0);
    }
    return DTP_OK;
}

dtp_status dtpi_topo_emit(dtpi_topo_build *b, dtp_error *err)
{
    dtp_topo *topo = b->topo;
    int32_t *order = dtpi_alloc_array(&topo->a, b->n, sizeof(*order));
    dtp_status st = DTP_OK;

    topo->cap_objs = b->n;
    topo->objs = dtpi_alloc_array(&topo->a, b->n, sizeof(*topo->objs));
    topo->sorted = dtpi_alloc_array(&topo->a, b->n, sizeof(*topo->sorted));
    if (!order || !topo->objs || !topo->sorted) {
        dtpi_free(&topo->a, order, b->n * sizeof(*order));
        return dtpi_fail_nomem(err, b->n * sizeof(*topo->objs));
    }
    for (uint32_t i = 0; i < b->n; i++)
        order[i] = (int32_t)i;
    qsort_r(order, b->n, sizeof(*order), compare_siblings, b);
    link_children(b, order);
    dtpi_free(&topo->a, order, b->n * sizeof(*order));
    for (int32_t i = b->machine; i >= 0 && st >= 0; i = next_item(b, i))
        st = emit_one(b, i, err);
    if (st >= 0)
        st = sort_by_type(b, err);
    return st < 0 ? st : emit_views(b, err);
}
