/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo.h - a topology from inside: what sources report, how it is nested, what renderers read.
 *
 * A source reports flat facts ("a core with PUs 0 and 4", "a NIC at 0000:3b:00.0 below 0000:3a:00.0")
 * to a sink, in any order; the builder merges facts about one device and nests everything by sets of
 * processors and by PCI bridges. So every source stays short, and all of them give the same tree.
 */
#ifndef DTPI_TOPO_H
#define DTPI_TOPO_H

#include <dtp/topo.h>

#include "base/base.h"
#include "base/cpuset.h"

enum {
    DTPI_TOPO_MAX_OBJS = 1 << 15,       /* objects of one machine */
    DTPI_TOPO_MAX_TEXT = 255,           /* bytes of a name */
    DTPI_TOPO_MAX_XML = 64 << 20,       /* bytes of a recorded topology file */
};

/* ---- facts ---- */

typedef struct dtpi_topo_fact {
    dtp_topo_obj obj;           /* index, parent and cpus are not read; texts are borrowed */
    const dtpi_cpuset *cpus;    /* NULL unknown */
    const char *above;          /* PCI: address or name of the bridge above; NULL: none known */
} dtpi_topo_fact;

/* A fact in which everything is unknown but the type. */
static inline dtpi_topo_fact dtpi_topo_fact_of(dtp_topo_type type)
{
    return (dtpi_topo_fact){ .obj = { .size = sizeof(dtp_topo_obj),
                                      .index = -1,
                                      .parent = -1,
                                      .type = type,
                                      .os_index = DTP_UNKNOWN,
                                      .numa = DTP_UNKNOWN,
                                      .mem_bytes = DTP_UNKNOWN,
                                      .cache_bytes = DTP_UNKNOWN,
                                      .link_mbps = DTP_UNKNOWN,
                                      .link_max_mbps = DTP_UNKNOWN,
                                      .port_mbps = DTP_UNKNOWN } };
}

/*
 * Takes what a source reports. A table of functions, because a source may be a module that does not
 * link the builder. All may fail with NOMEM and LIMIT (too many objects).
 */
typedef struct dtpi_topo_sink dtpi_topo_sink;
struct dtpi_topo_sink {
    /* Devices with a PCI address (or, without one, RDMA devices of a name) that are known already are
     * merged: what is known in the new fact wins. */
    dtp_status (*add)(dtpi_topo_sink *sink, const dtpi_topo_fact *fact, dtp_error *err);
    dtp_status (*view)(dtpi_topo_sink *sink, dtp_cpus_view view, const dtpi_cpuset *set,
                       dtp_error *err);
    /* NVLinks between two GPUs. */
    dtp_status (*link)(dtpi_topo_sink *sink, const char *pci_a, const char *pci_b, uint32_t n_links,
                       dtp_error *err);
};

/* ---- sources ---- */

/* What is to be read; lent for the call. */
typedef struct dtpi_topo_where {
    const dtp_allocator *a;
    const char *fsroot;         /* recorded machine: folder that holds sys/ and proc/; NULL: live */
    char *xml;                  /* recorded machine: terminated text of a hwloc XML file, which the
                                   source may change; NULL: none */
    size_t xml_bytes;           /* without the terminator */
    const char *xml_path;       /* for messages */
    bool devices;
    dtp_ctx *ctx;               /* for sources in the library; a module leaves it alone */
} dtpi_topo_where;

typedef struct dtpi_topo_source_ops {
    const char *name;
    /*
     * Mandatory. Reports what it sees to the sink; may block on files; called on the thread that
     * holds the context; keeps nothing. UNSUPPORTED: this machine cannot be seen this way.
     */
    dtp_status (*read)(dtpi_topo_sink *sink, const dtpi_topo_where *where, dtp_error *err);
} dtpi_topo_source_ops;

/* Where a source serves. */
enum {
    DTPI_TOPO_CPUS = 1u << 0,       /* reports processors: the first one that works is enough */
    DTPI_TOPO_DEVICES = 1u << 1,    /* adds to devices; its failure is logged, not returned */
    DTPI_TOPO_LIVE = 1u << 2,
    DTPI_TOPO_FSROOT = 1u << 3,
    DTPI_TOPO_XML = 1u << 4,
};

typedef struct dtpi_topo_source {
    const char *module;                     /* NULL: built in */
    const dtpi_topo_source_ops *ops;        /* NULL: from the module */
    uint32_t serves;
    const char *only_with;                  /* path without which a live source is not asked; or NULL */
} dtpi_topo_source;

/* In the order in which they are asked (registry.c). */
extern const dtpi_topo_source dtpi_topo_sources[];
extern const size_t dtpi_topo_n_sources;

extern const dtpi_topo_source_ops dtpi_topo_sysfs_ops;  /* processors and memory */
extern const dtpi_topo_source_ops dtpi_topo_hwxml_ops;  /* hwloc XML */
extern const dtpi_topo_source_ops dtpi_topo_pci_ops;    /* PCI, NICs, NVMe */
extern const dtpi_topo_source_ops dtpi_topo_rdma_ops;
extern const dtpi_topo_source_ops dtpi_topo_gpu_ops;    /* NVML */

/* ---- the model ---- */

typedef struct dtpi_topo_chunk dtpi_topo_chunk;

typedef struct dtpi_topo_nvlink {
    const char *a, *b;          /* PCI addresses */
    uint32_t n_links;
} dtpi_topo_nvlink;

struct dtp_topo {
    dtp_allocator a;
    dtpi_topo_chunk *texts;
    dtp_topo_obj *objs;         /* parents first, depth first */
    uint32_t *sorted;           /* indices by type, then PCI address or OS index */
    uint32_t n_objs, cap_objs;
    uint32_t first[DTP_TOPO_NVME + 2];  /* of a type in `sorted` */
    const char *cpus[3];
    dtpi_topo_nvlink *nvlinks;
    uint32_t n_nvlinks, cap_nvlinks;
    const char *source;         /* "hwloc" */
    bool recorded;
};

dtp_topo *dtpi_topo_new(const dtp_allocator *a);
DTPI_DEFINE_AUTO(topo, dtp_topo, dtp_topo_close);

/* A cleaned copy (printable, valid UTF-8, bounded) that lives as long as the topology; NULL without
 * memory. */
const char *dtpi_topo_text(dtp_topo *topo, const char *text);
/* A copy as it is. */
const char *dtpi_topo_copy(dtp_topo *topo, const char *text, size_t bytes);
/* The bound view: the affinity of the calling thread. NOMEM. */
dtp_status dtpi_topo_view_bound(dtp_topo *topo, dtp_error *err);
/* List of a set, as text of the topology. */
const char *dtpi_topo_list(dtp_topo *topo, const dtpi_cpuset *set);

/* Index of the nearest ancestor (or itself) that is no bridge or device. */
uint32_t dtpi_topo_locality(const dtp_topo *topo, uint32_t index);

bool dtpi_topo_is_device(dtp_topo_type type);     /* bridge, PCI, GPU, NIC, NVMe */

/* Short name of an object for people, "package 0", "GPU0", "mlx5_0"; terminated. */
void dtpi_topo_label(const dtp_topo_obj *obj, char *text_out, size_t room);

/* ---- building (build.c) ---- */

typedef struct dtpi_topo_build dtpi_topo_build;

/* A sink that fills `topo`; free it after dtpi_topo_build_end(). NULL without memory. */
dtpi_topo_build *dtpi_topo_build_new(dtp_topo *topo);
dtpi_topo_sink *dtpi_topo_build_sink(dtpi_topo_build *b);
/* Nests the facts. FORMAT: there is no processor among them. */
dtp_status dtpi_topo_build_end(dtpi_topo_build *b, dtp_error *err);
void dtpi_topo_build_free(dtpi_topo_build *b);
/* Forgets all facts (a source failed half-way). */
void dtpi_topo_build_reset(dtpi_topo_build *b);
DTPI_DEFINE_AUTO(topo_build, dtpi_topo_build, dtpi_topo_build_free);

/* ---- rendering: texts are freed with dtp_text_free() ---- */

dtp_status dtpi_topo_render_text(const dtp_topo *topo, char **text_out, dtp_error *err);
dtp_status dtpi_topo_render_json(const dtp_topo *topo, char **text_out, dtp_error *err);
dtp_status dtpi_topo_render_matrix(const dtp_topo *topo, char **text_out, dtp_error *err);

#endif /* DTPI_TOPO_H */
