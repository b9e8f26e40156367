/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.c - finds a parent for every fact: processors by their sets, devices by the bridges above them.
 *
 * Larger sets come first; an item's parent is the deepest earlier item that holds all of its
 * processors. Sets that overlap without nesting (broken firmware tables) end beside each other, so no
 * object is ever dropped. Hostile bridges (loops, missing ones) end at the machine.
 */
#include "topo/build.h"

#include <stdlib.h>

enum { MAX_BRIDGES = 64 };      /* bridges above a device */

static int32_t first_cpu(const dtpi_topo_item *it)
{
    if (it->obj.type == DTP_TOPO_PU)
        return (int32_t)it->obj.os_index;
    return it->set ? dtpi_cpuset_next(it->set, 0) : -1;
}

/* Large sets first; of equal ones the outer type, then the first processor and the OS index. */
static int compare_sets(const void *pa, const void *pb, void *user)
{
    const dtpi_topo_build *b = user;
    const dtpi_topo_item *x = &b->items[*(const int32_t *)pa], *y = &b->items[*(const int32_t *)pb];

    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    if (x->obj.type != y->obj.type)
        return x->obj.type < y->obj.type ? -1 : 1;
    const int32_t fx = first_cpu(x), fy = first_cpu(y);
    if (fx != fy)
        return fx < fy ? -1 : 1;
    if (x->obj.os_index != y->obj.os_index)
        return x->obj.os_index < y->obj.os_index ? -1 : 1;
    return *(const int32_t *)pa < *(const int32_t *)pb ? -1 : 1;
}

static bool holds(const dtpi_topo_item *outer, const dtpi_topo_item *inner)
{
    if (!outer->set)
        return false;
    if (inner->obj.type == DTP_TOPO_PU)
        return dtpi_cpuset_has(outer->set, (uint32_t)inner->obj.os_index);
    return inner->set && dtpi_cpuset_within(inner->set, outer->set);
}

/* The machine's item and set: all PUs, once each. */
static dtp_status add_machine(dtpi_topo_build *b, dtp_error *err)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_MACHINE);
    dtpi_cpuset all = { 0 };

    b->machine = -1;
    for (uint32_t i = 0; i < b->n; i++) {
        dtpi_topo_item *it = &b->items[i];
        if (it->obj.type == DTP_TOPO_MACHINE)
            b->machine = (int32_t)i;
        if (it->obj.type != DTP_TOPO_PU)
            continue;
        if (dtpi_cpuset_has(&all, (uint32_t)it->obj.os_index))
            return dtpi_fail(err, DTP_ERR_FORMAT, "processor %lld is listed twice",
                             (long long)it->obj.os_index);
        dtpi_cpuset_set(&all, (uint32_t)it->obj.os_index);
        it->count = 1;
    }
    if (!dtpi_cpuset_count(&all))
        return dtpi_fail(err, DTP_ERR_FORMAT, "no processors");
    b->views[DTP_CPUS_MACHINE] = all;
    b->has_view[DTP_CPUS_MACHINE] = true;
    fact.cpus = &all;
    if (b->machine < 0) {
        const dtp_status st = b->sink.add(&b->sink, &fact, err);
        if (st < 0)
            return st;
        b->machine = (int32_t)b->n - 1;
    }
    dtpi_topo_item *machine = &b->items[b->machine];
    if (!machine->set)
        machine->set = dtpi_alloc(&b->topo->a, sizeof(*machine->set));
    if (!machine->set)
        return dtpi_fail_nomem(err, sizeof(*machine->set));
    *machine->set = all;
    machine->count = dtpi_cpuset_count(&all);
    return DTP_OK;
}

/* Sets hold nothing but processors of the machine. */
static void clip_sets(dtpi_topo_build *b)
{
    const dtpi_cpuset *all = &b->views[DTP_CPUS_MACHINE];

    for (uint32_t i = 0; i < b->n; i++) {
        dtpi_topo_item *it = &b->items[i];
        it->parent = it->child = it->next = it->index = -1;
        if (!it->set)
            continue;
        dtpi_cpuset_and(it->set, all);
        it->count = dtpi_cpuset_count(it->set);
    }
    for (int v = DTP_CPUS_ALLOWED; v <= DTP_CPUS_BOUND; v++)
        dtpi_cpuset_and(&b->views[v], all);
}

/*
 * Small NUMA nodes first: one whose processors all belong to nodes seen before has only memory to
 * give (HBM, GPU memory, CXL).
 */
static void find_memory_only(dtpi_topo_build *b, const int32_t *order, uint32_t n)
{
    dtpi_cpuset seen = { 0 };

    for (uint32_t c = 0; c < DTPI_CPUSET_MAX; c++)
        b->numa_of[c] = DTP_UNKNOWN;
    for (uint32_t i = n; i-- > 0;) {
        /* Of equal sets the one with the lowest OS index gives the processors. */
        uint32_t from = i;
        while (from > 0 && b->items[order[from - 1]].obj.type == DTP_TOPO_NUMA &&
               b->items[order[i]].obj.type == DTP_TOPO_NUMA &&
               b->items[order[from - 1]].count == b->items[order[i]].count &&
               first_cpu(&b->items[order[from - 1]]) == first_cpu(&b->items[order[i]]))
            from--;
        for (uint32_t k = from; k <= i; k++) {
            dtpi_topo_item *it = &b->items[order[k]];
            if (it->obj.type != DTP_TOPO_NUMA)
                continue;
            it->memory_only = !it->set || dtpi_cpuset_within(it->set, &seen);
            for (int32_t c = -1; it->set && (c = dtpi_cpuset_next(it->set, (uint32_t)c + 1)) >= 0;)
                if (!dtpi_cpuset_has(&seen, (uint32_t)c))
                    b->numa_of[c] = it->obj.os_index;
            if (it->set)
                dtpi_cpuset_or(&seen, it->set);
        }
        i = from;
    }
}

/* The one NUMA node of a set; unknown when there are several or none. */
static int64_t numa_of_set(const dtpi_topo_build *b, const dtpi_topo_item *it)
{
    int64_t numa = DTP_UNKNOWN;

    if (it->obj.type == DTP_TOPO_PU)
        return b->numa_of[it->obj.os_index];
    for (int32_t c = -1; it->set && (c = dtpi_cpuset_next(it->set, (uint32_t)c + 1)) >= 0;) {
        if (b->numa_of[c] == DTP_UNKNOWN || (numa != DTP_UNKNOWN && b->numa_of[c] != numa))
            return DTP_UNKNOWN;
        numa = b->numa_of[c];
    }
    return numa;
}

static int32_t numa_item(const dtpi_topo_build *b, int64_t os_index)
{
    for (uint32_t i = 0; i < b->n; i++)
        if (b->items[i].obj.type == DTP_TOPO_NUMA && b->items[i].obj.os_index == os_index)
            return (int32_t)i;
    return -1;
}

/* Parent of one processor item: up from the deepest item at its first processor. */
static void nest_one(dtpi_topo_build *b, int32_t i)
{
    dtpi_topo_item *it = &b->items[i];
    const int32_t first = first_cpu(it);
    int32_t p = i != b->machine && first >= 0 ? b->owner[first] : b->machine;

    while (p != b->machine &&
           (!holds(&b->items[p], it) ||
            (it->memory_only && b->items[p].obj.type >= DTP_TOPO_NUMA)))
        p = b->items[p].parent;
    it->parent = i == b->machine ? -1 : p;
    if (it->memory_only)
        return;
    if (it->obj.type == DTP_TOPO_PU)
        b->owner[first] = i;
    for (int32_t c = -1; it->set && (c = dtpi_cpuset_next(it->set, (uint32_t)c + 1)) >= 0;)
        b->owner[c] = i;
}

static dtp_status nest_processors(dtpi_topo_build *b, dtp_error *err)
{
    const dtp_allocator *a = &b->topo->a;
    int32_t *order = dtpi_alloc_array(a, b->n, sizeof(*order));
    uint32_t n = 0;

    if (!order)
        return dtpi_fail_nomem(err, b->n * sizeof(*order));
    order[n++] = b->machine;
    for (uint32_t i = 0; i < b->n; i++)
        if (!dtpi_topo_is_device(b->items[i].obj.type) && (int32_t)i != b->machine)
            order[n++] = (int32_t)i;
    qsort_r(order + 1, n - 1, sizeof(*order), compare_sets, b);
    find_memory_only(b, order, n);
    memset(b->owner, 0xff, sizeof(b->owner));
    for (uint32_t k = 0; k < n; k++) {
        dtpi_topo_item *it = &b->items[order[k]];
        nest_one(b, order[k]);
        it->kept = true;
        const int64_t numa = it->obj.type == DTP_TOPO_NUMA && !it->memory_only
                                 ? it->obj.os_index
                                 : numa_of_set(b, it);
        if (numa != DTP_UNKNOWN)
            it->obj.numa = numa;
    }
    dtpi_free(a, order, b->n * sizeof(*order));
    return DTP_OK;
}

/* A NUMA node with processors: of a memory-only node its nearest one. */
static int64_t numa_with_cpus(const dtpi_topo_build *b, int64_t os_index)
{
    const int32_t i = os_index == DTP_UNKNOWN ? -1 : numa_item(b, os_index);

    if (i < 0)
        return DTP_UNKNOWN;
    return b->items[i].memory_only ? b->items[i].obj.numa : os_index;
}

/* Parent, processors and NUMA node of a device that stands at no bridge. */
static void nest_at_processors(dtpi_topo_build *b, dtpi_topo_item *it)
{
    const int32_t first = first_cpu(it);
    const int32_t numa = numa_item(b, it->obj.numa);
    int32_t p = b->machine;

    if (first >= 0)
        p = b->owner[first];
    else if (numa >= 0 && b->items[numa].set)
        p = numa;
    while (p != b->machine &&
           ((first >= 0 && !holds(&b->items[p], it)) || b->items[p].obj.type > DTP_TOPO_NUMA))
        p = b->items[p].parent;
    it->parent = p;
}

static void nest_device(dtpi_topo_build *b, int32_t i)
{
    dtpi_topo_item *it = &b->items[i];
    const int32_t above = dtpi_topo_build_find(b, it->above);
    const dtpi_topo_item *machine = &b->items[b->machine];

    /* "Near all processors" is what firmware says when it does not know. */
    if (it->set && it->count == machine->count && machine->obj.numa == DTP_UNKNOWN) {
        *it->set = (dtpi_cpuset){ 0 };
        it->count = 0;
    }
    it->obj.numa = numa_with_cpus(b, it->obj.numa);
    if (it->obj.numa == DTP_UNKNOWN)
        it->obj.numa = numa_of_set(b, it);
    /* Where there is one node it is the nearest. */
    if (it->obj.numa == DTP_UNKNOWN)
        it->obj.numa = machine->obj.numa;
    if (above >= 0 && above != i && b->items[above].obj.type == DTP_TOPO_BRIDGE)
        it->parent = above;
    else
        nest_at_processors(b, it);
}

/* Steps up to a processor item, -1 when there are too many (a loop). */
static int bridges_above(const dtpi_topo_build *b, int32_t i)
{
    for (int n = 0; n < MAX_BRIDGES; n++, i = b->items[i].parent)
        if (!dtpi_topo_is_device(b->items[i].obj.type))
            return n;
    return -1;
}

/* What a device does not say of itself it takes from the bridges above. */
static void inherit_place(dtpi_topo_build *b, dtpi_topo_item *it)
{
    int32_t p = it->parent;

    while (!it->set && dtpi_topo_is_device(b->items[p].obj.type) && !b->items[p].set)
        p = b->items[p].parent;
    const bool at_bridge = dtpi_topo_is_device(b->items[p].obj.type);
    if (!it->set && at_bridge && it->obj.numa == DTP_UNKNOWN)
        it->obj.numa = b->items[p].obj.numa == DTP_UNKNOWN ? numa_of_set(b, &b->items[p])
                                                           : b->items[p].obj.numa;
}

dtp_status dtpi_topo_nest(dtpi_topo_build *b, dtp_error *err)
{
    dtp_status st = add_machine(b, err);

    if (st < 0)
        return st;
    clip_sets(b);
    st = nest_processors(b, err);
    if (st < 0)
        return st;
    for (uint32_t i = 0; i < b->n; i++)
        if (dtpi_topo_is_device(b->items[i].obj.type))
            nest_device(b, (int32_t)i);
    for (uint32_t i = 0; i < b->n; i++) {
        dtpi_topo_item *it = &b->items[i];
        if (!dtpi_topo_is_device(it->obj.type))
            continue;
        if (bridges_above(b, (int32_t)i) < 0)
            it->parent = b->machine;
    }
    for (uint32_t i = 0; i < b->n; i++) {
        dtpi_topo_item *it = &b->items[i];
        if (!dtpi_topo_is_device(it->obj.type))
            continue;
        inherit_place(b, it);
        /* Bridges stay only where they lead to a device. */
        if (it->obj.type != DTP_TOPO_BRIDGE)
            for (int32_t p = (int32_t)i; p >= 0 && !b->items[p].kept; p = b->items[p].parent)
                b->items[p].kept = true;
    }
    return DTP_OK;
}
