/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtp/topo.h - one machine: packages, NUMA nodes, caches, cores, PCI, GPUs, NICs, NVMe.
 *
 * Unknown is a value of its own: DTP_UNKNOWN for numbers, NULL for text; it never becomes 0 or "all".
 */
#ifndef DTP_TOPO_H
#define DTP_TOPO_H

#include <dtp/ctx.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DTP_UNKNOWN INT64_MIN

typedef struct dtp_topo dtp_topo;

typedef enum dtp_topo_type {
    DTP_TOPO_MACHINE = 1,
    DTP_TOPO_PACKAGE = 2,
    DTP_TOPO_NUMA = 3,
    DTP_TOPO_CACHE = 4,         /* L3 or the last level shared */
    DTP_TOPO_CORE = 5,
    DTP_TOPO_PU = 6,            /* hardware thread; os_index is the number in CPU sets */
    DTP_TOPO_BRIDGE = 7,
    DTP_TOPO_PCI = 8,
    DTP_TOPO_GPU = 9,
    DTP_TOPO_NIC = 10,          /* network or RDMA device */
    DTP_TOPO_NVME = 11
} dtp_topo_type;

/* How two devices reach each other; the letters of `nvidia-smi topo -m`. Larger is farther. */
typedef enum dtp_topo_path {
    DTP_PATH_UNKNOWN = 0,
    DTP_PATH_SELF = 1,          /* X */
    DTP_PATH_NVLINK = 2,        /* NV# */
    DTP_PATH_PIX = 3,           /* at most one PCIe bridge */
    DTP_PATH_PXB = 4,           /* several PCIe bridges, not the host bridge */
    DTP_PATH_PHB = 5,           /* through the host bridge */
    DTP_PATH_NODE = 6,          /* between host bridges of one NUMA node */
    DTP_PATH_SYS = 7            /* between NUMA nodes */
} dtp_topo_path;

typedef enum dtp_cpus_view {
    DTP_CPUS_MACHINE = 0,       /* all there are */
    DTP_CPUS_ALLOWED = 1,       /* by the cgroup */
    DTP_CPUS_BOUND = 2          /* by the affinity of the calling thread at load */
} dtp_cpus_view;

typedef struct dtp_topo_opts {
    size_t size;
    const char *hwloc_xml;      /* a recorded machine instead of the live one: hwloc XML file */
    const char *fsroot;         /* a recorded machine: directory that holds sys/ and proc/ */
    uint32_t no_devices;        /* 1: processors and memory only */
} dtp_topo_opts;

#define DTP_TOPO_OPTS_INIT { .size = sizeof(dtp_topo_opts) }

/*
 * Discovers this machine, or reads a recorded one.
 * Errors: INVAL (both of a kind), NOT_FOUND, PERM, IO and TRUNCATED (the file), FORMAT (not a topology),
 * LIMIT (too large, too many objects, out of descriptors), UNSUPPORTED (no source), NOMEM.
 * Caller closes. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_topo_load(dtp_ctx *ctx, const dtp_topo_opts *opts, dtp_topo **topo_out,
                                 dtp_error *err);

/* Frees a topology; NULL is fine. Threads: any. Since 0.1. */
DTP_API void dtp_topo_close(dtp_topo *topo);

/* One object; pointers are lent until the topology is closed. */
typedef struct dtp_topo_obj {
    size_t size;
    int32_t index;              /* of the object in the topology: 0 .. n-1, parents first */
    int32_t parent;             /* index, -1 for the machine */
    dtp_topo_type type;
    int64_t os_index;           /* PU, core, NUMA, package number of the system */
    const char *name;           /* "mlx5_0", "nvme0n1", "GPU0"; NULL unknown */
    const char *pci;            /* "0000:3b:00.0"; NULL where it is not on PCI */
    const char *model;          /* NULL unknown */
    int64_t numa;               /* OS index of the nearest NUMA node with processors; of a memory
                                   node without processors of its own, that of another node */
    int64_t mem_bytes;          /* of a NUMA node or GPU */
    int64_t cache_bytes;
    int64_t link_mbps;          /* PCI link now, megabits per second */
    int64_t link_max_mbps;      /* PCI link at its best */
    int64_t port_mbps;          /* NIC: rate of the port */
    int32_t port_state;         /* NIC: 1 down, 2 init, 3 armed, 4 active (IBA); 0 unknown */
    const char *link_layer;     /* NIC: "InfiniBand", "Ethernet"; NULL unknown */
    const char *gid;            /* NIC: first usable GID; NULL where there is none */
    const char *cpus;           /* nearest processors as a list, "0-15,32-47"; NULL unknown */
    const char *netdev;         /* NIC: network interface of an RDMA device, "ib0"; NULL unknown */
    int32_t usable;             /* RDMA device: 1 can be opened, 2 is listed only; 0 unknown */
    int32_t reserved;
} dtp_topo_obj;

/* Objects in the topology. Threads: any. Since 0.1. */
DTP_API uint32_t dtp_topo_n_objs(const dtp_topo *topo);

/*
 * Fills `obj_out` (whose `size` the caller has set) with object `index`.
 * Errors: RANGE. Threads: any. Since 0.1.
 */
DTP_API dtp_status dtp_topo_get(const dtp_topo *topo, uint32_t index, dtp_topo_obj *obj_out,
                                dtp_error *err);

/* Objects of a type. Threads: any. Since 0.1. */
DTP_API uint32_t dtp_topo_count(const dtp_topo *topo, dtp_topo_type type);

/*
 * The nth object of a type, in order of its PCI address or OS index. Errors: RANGE. Threads: any.
 * Since 0.1.
 */
DTP_API dtp_status dtp_topo_nth(const dtp_topo *topo, dtp_topo_type type, uint32_t n,
                                dtp_topo_obj *obj_out, dtp_error *err);

/*
 * How two devices (object indices) reach each other. `n_links_out` (may be NULL) gets the number of
 * NVLinks. Errors: RANGE. Threads: any. Since 0.1.
 */
DTP_API dtp_status dtp_topo_path_between(const dtp_topo *topo, uint32_t a, uint32_t b,
                                         dtp_topo_path *path_out, uint32_t *n_links_out,
                                         dtp_error *err);

/*
 * Processors as a list, "0-3,8"; NULL unknown (a recorded machine has no bound view). Lent.
 * Threads: any. Since 0.1.
 */
DTP_API const char *dtp_topo_cpus(const dtp_topo *topo, dtp_cpus_view view);

typedef enum dtp_topo_format {
    DTP_TOPO_TEXT = 0,          /* a tree for people */
    DTP_TOPO_JSON = 1,
    DTP_TOPO_MATRIX = 2         /* as `nvidia-smi topo -m` */
} dtp_topo_format;

/*
 * Renders a topology; `*text_out` is terminated and freed with dtp_text_free().
 * Errors: NOMEM, INVAL. Threads: any. Since 0.1.
 */
DTP_API dtp_status dtp_topo_render(const dtp_topo *topo, dtp_topo_format format, char **text_out,
                                   dtp_error *err);

/* Frees text that libdtp returned as *_out; NULL is fine. Threads: any. Since 0.1. */
DTP_API void dtp_text_free(char *text);

#ifdef __cplusplus
}
#endif

#endif /* DTP_TOPO_H */
