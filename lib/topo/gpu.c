/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c - GPUs of the live machine as NVML knows them: model, memory, NUMA node, NVLinks. */
#include "gpu/gpu.h"
#include "topo/topo.h"

static dtp_status report_gpu(dtpi_topo_sink *sink, const dtpi_gpu_info *info, dtp_error *err)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_GPU);

    if (!info->pci[0])
        return DTP_OK;
    fact.obj.pci = info->pci;
    fact.obj.model = info->name[0] ? info->name : NULL;
    fact.obj.mem_bytes = info->mem_bytes;
    fact.obj.numa = info->numa;
    if (info->has_cpus && dtpi_cpuset_count(&info->cpus))
        fact.cpus = &info->cpus;
    return sink->add(sink, &fact, err);
}

static dtp_status report_links(dtpi_topo_sink *sink, const dtpi_gpu_list *list, dtp_error *err)
{
    for (uint32_t a = 0; a < list->n; a++)
        for (uint32_t b = a + 1; b < list->n; b++) {
            const uint32_t n = dtpi_gpu_links(list, a, b);
            const dtp_status st = n ? sink->link(sink, list->gpus[a].pci, list->gpus[b].pci, n, err)
                                    : DTP_OK;
            if (st < 0)
                return st;
        }
    return DTP_OK;
}

static dtp_status gpu_read(dtpi_topo_sink *sink, const dtpi_topo_where *where, dtp_error *err)
{
    dtpi_gpu_list *list = NULL;
    dtp_status st = dtpi_gpu_list_new(where->ctx, &list, err);

    if (st < 0)
        return st;
    for (uint32_t i = 0; i < list->n && st >= 0; i++)
        st = report_gpu(sink, &list->gpus[i], err);
    if (st >= 0)
        st = report_links(sink, list, err);
    dtpi_gpu_list_free(where->ctx, list);
    return st;
}

const dtpi_topo_source_ops dtpi_topo_gpu_ops = { .name = "gpu", .read = gpu_read };
