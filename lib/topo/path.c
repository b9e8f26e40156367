/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.c - how two devices reach each other, from the tree alone.
 *
 * Source: the legend of `nvidia-smi topo -m`. A PCIe switch shows as an upstream bridge with a
 * downstream bridge per device, so "at most a single switch" is one bridge on either side below the
 * common one.
 */
#include "topo/topo.h"

#include "topo/parse.h"

/* Steps from `index` up to `top`. */
static int steps_up(const dtp_topo *topo, uint32_t index, uint32_t top)
{
    int n = 0;

    for (; index != top; index = (uint32_t)topo->objs[index].parent)
        n++;
    return n;
}

/* Parents have lower indices, so the larger of two is never above the smaller. */
static uint32_t common_ancestor(const dtp_topo *topo, uint32_t a, uint32_t b)
{
    while (a != b) {
        if (a > b)
            a = (uint32_t)topo->objs[a].parent;
        else
            b = (uint32_t)topo->objs[b].parent;
    }
    return a;
}

static uint32_t nvlinks(const dtp_topo *topo, const char *a, const char *b)
{
    for (uint32_t i = 0; a && b && i < topo->n_nvlinks; i++) {
        const dtpi_topo_nvlink *l = &topo->nvlinks[i];
        if ((strcmp(l->a, a) == 0 && strcmp(l->b, b) == 0) ||
            (strcmp(l->a, b) == 0 && strcmp(l->b, a) == 0))
            return l->n_links;
    }
    return 0;
}

/* Between host bridges: known only when both NUMA nodes are. */
static dtp_topo_path path_of_nodes(const dtp_topo *topo, const dtp_topo_obj *x,
                                   const dtp_topo_obj *y)
{
    if (x->numa == DTP_UNKNOWN || y->numa == DTP_UNKNOWN)
        return DTP_PATH_UNKNOWN;
    return x->numa == y->numa ? DTP_PATH_NODE : DTP_PATH_SYS;
}

static dtp_topo_path path_of(const dtp_topo *topo, uint32_t a, uint32_t b)
{
    const uint32_t top = common_ancestor(topo, a, b);
    const dtp_topo_obj *obj = &topo->objs[top];

    if (a == b)
        return DTP_PATH_SELF;
    if (!dtpi_topo_is_device(obj->type))
        return path_of_nodes(topo, &topo->objs[a], &topo->objs[b]);
    if (obj->type == DTP_TOPO_BRIDGE && !obj->pci)
        return DTP_PATH_PHB;
    /* A device is one step below its last bridge. */
    return steps_up(topo, a, top) <= 2 && steps_up(topo, b, top) <= 2 ? DTP_PATH_PIX : DTP_PATH_PXB;
}

dtp_status dtp_topo_path_between(const dtp_topo *topo, uint32_t a, uint32_t b,
                                 dtp_topo_path *path_out, uint32_t *n_links_out, dtp_error *err)
{
    if (a >= topo->n_objs || b >= topo->n_objs)
        return dtpi_noun(err, "topo", dtpi_fail(err, DTP_ERR_RANGE, "object %u of %u",
                                                DTPI_MAX(a, b), topo->n_objs));
    const uint32_t links = a == b ? 0 : nvlinks(topo, topo->objs[a].pci, topo->objs[b].pci);
    *path_out = links ? DTP_PATH_NVLINK : path_of(topo, a, b);
    if (n_links_out)
        *n_links_out = links;
    return DTP_OK;
}
