/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nics.c - the NICs nearest to a rank: by path to its GPUs, else by NUMA node. All that are equally
 * near are named; one whose port is down or that cannot be opened is not; unknown is farther than known.
 */
#include "base/buf.h"
#include "placement/placement.h"

enum { DISTANCE_UNKNOWN = DTP_PATH_SYS + 1 };

static int path_distance(const dtp_topo *topo, int32_t gpu, int32_t nic)
{
    dtp_topo_path path = DTP_PATH_UNKNOWN;

    dtp_topo_path_between(topo, (uint32_t)gpu, (uint32_t)nic, &path, NULL, NULL);
    return path == DTP_PATH_UNKNOWN ? DISTANCE_UNKNOWN : (int)path;
}

static int numa_distance(const dtp_topo_obj *nic, int64_t numa)
{
    if (nic->numa == DTP_UNKNOWN || numa == DTP_UNKNOWN)
        return DISTANCE_UNKNOWN;
    return nic->numa == numa ? DTP_PATH_NODE : DTP_PATH_SYS;
}

/* Object index of the ith GPU of a share, -1 for the rank itself (it has none). */
static int32_t gpu_of(const dtp_topo *topo, const dtpi_place_pool *pool,
                      const dtpi_place_share *share, uint32_t n_gpus, uint32_t i)
{
    if (!n_gpus)
        return -1;
    const uint32_t ordinal = pool->gpus[share->gpus[i]].ordinal;
    return (int32_t)topo->sorted[topo->first[DTP_TOPO_GPU] + ordinal];
}

static bool usable(const dtp_topo_obj *nic)
{
    return nic->name && nic->port_state != 1 && nic->usable != 2;
}

/* Whether NIC `nic` is among the nearest to one of the rank's GPUs (or to the rank). */
static bool is_nearest(const dtp_topo *topo, int32_t gpu, int64_t numa, const dtp_topo_obj *nic)
{
    const uint32_t from = topo->first[DTP_TOPO_NIC], to = topo->first[DTP_TOPO_NIC + 1];
    const int own = gpu < 0 ? numa_distance(nic, numa) : path_distance(topo, gpu, nic->index);

    for (uint32_t i = from; i < to; i++) {
        const dtp_topo_obj *other = &topo->objs[topo->sorted[i]];
        if (!usable(other))
            continue;
        if ((gpu < 0 ? numa_distance(other, numa) : path_distance(topo, gpu, other->index)) < own)
            return false;
    }
    return true;
}

dtp_status dtpi_place_nics(const dtp_topo *topo, const dtpi_place_pool *pool,
                           const dtpi_place_share *share, uint32_t n_gpus, int64_t numa,
                           char **text_out, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf names = dtpi_buf_init(pool->a);
    const uint32_t from = topo->first[DTP_TOPO_NIC], to = topo->first[DTP_TOPO_NIC + 1];

    for (uint32_t i = from; i < to; i++) {
        const dtp_topo_obj *nic = &topo->objs[topo->sorted[i]];
        bool near = false;
        if (!usable(nic))
            continue;
        for (uint32_t k = 0; k < DTPI_MAX(n_gpus, 1u) && !near; k++)
            near = is_nearest(topo, gpu_of(topo, pool, share, n_gpus, k), numa, nic);
        if (near)
            dtpi_buf_printf(&names, "%s%s", names.len ? "," : "", nic->name);
    }
    char *text = names.failed ? NULL
                              : dtpi_text_ndup(pool->a, (const char *)names.data, names.len);
    if (!text)
        return dtpi_fail_nomem(err, 0);
    *text_out = text;
    return DTP_OK;
}
