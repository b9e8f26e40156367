/* SPDX-License-Identifier: Apache-2.0 */
/* build.h - what build.c (collecting facts), nest.c and emit.c (making the tree) share. */
#ifndef DTPI_TOPO_BUILD_H
#define DTPI_TOPO_BUILD_H

#include "topo/topo.h"

enum { BUILD_BUCKETS = 1024 };

typedef struct dtpi_topo_item {
    dtp_topo_obj obj;           /* texts lie in the topology */
    dtpi_cpuset *set;           /* NULL unknown; a PU's is its os_index */
    const char *above;
    uint32_t count;             /* members of the set */
    int32_t chain;              /* next item of the bucket */
    int32_t parent, child, next;
    int32_t index;              /* in the topology */
    uint64_t place;             /* PCI address as a number, for order; UINT64_MAX where none */
    bool memory_only;           /* NUMA node whose processors belong to other nodes */
    bool kept;
} dtpi_topo_item;

struct dtpi_topo_build {
    dtpi_topo_sink sink;
    dtp_topo *topo;
    dtpi_topo_item *items;
    uint32_t n, cap;
    dtpi_cpuset views[3];
    bool has_view[3];
    int32_t buckets[BUILD_BUCKETS];
    int64_t numa_of[DTPI_CPUSET_MAX];   /* nearest NUMA node of a processor */
    int32_t owner[DTPI_CPUSET_MAX];     /* deepest item that holds a processor, -1 none */
    int32_t machine;                    /* its item */
};

/* Item with this PCI address or name, -1 when there is none. */
int32_t dtpi_topo_build_find(const dtpi_topo_build *b, const char *key);

/* Parents of all items: processors by sets (and their NUMA nodes), devices by bridges. */
dtp_status dtpi_topo_nest(dtpi_topo_build *b, dtp_error *err);

/* Writes the nested items into the topology, parents first. */
dtp_status dtpi_topo_emit(dtpi_topo_build *b, dtp_error *err);

#endif /* DTPI_TOPO_BUILD_H */
