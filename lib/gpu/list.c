/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c - the GPUs of this machine and the NVLinks between them, through NVML.
 *
 * What NVML does not say stays unknown; a GPU that it will not open (hidden by a cgroup, fallen off the
 * bus) is left out with a line in the log.
 */
#include "gpu/gpu.h"

#include <stdio.h>

#include "gpu/nvml_api.h"

enum { LINKS_MAX = 64, LONG_BITS = 8 * sizeof(unsigned long) };

typedef struct lister {
    dtp_ctx *ctx;
    const dtpi_nvml *nvml;
    dtpi_gpu_list *list;
    nvmlDevice_t devices[DTPI_GPU_MAX];
    uint8_t n_switch_links[DTPI_GPU_MAX];
} lister;

static void format_pci(const nvmlPciInfo_t *pci, char *text_out, size_t room)
{
    snprintf(text_out, room, "%04x:%02x:%02x.0", pci->domain, pci->bus, pci->device);
}

static void read_cpus(const dtpi_nvml *nvml, nvmlDevice_t device, dtpi_gpu_info *gpu)
{
    unsigned long set[DTPI_CPUSET_MAX / LONG_BITS] = { 0 };

    if (!nvml->nvmlDeviceGetCpuAffinity ||
        nvml->nvmlDeviceGetCpuAffinity(device, DTPI_ARRAY_LEN(set), set) != NVML_SUCCESS)
        return;
    for (uint32_t cpu = 0; cpu < DTPI_CPUSET_MAX; cpu++)
        if (set[cpu / LONG_BITS] >> (cpu % LONG_BITS) & 1)
            dtpi_cpuset_set(&gpu->cpus, cpu);
    gpu->has_cpus = dtpi_cpuset_count(&gpu->cpus) > 0;
}

/* The NUMA node, where there is exactly one that is nearest. */
static int64_t read_numa(const dtpi_nvml *nvml, nvmlDevice_t device)
{
    unsigned long set[1024 / LONG_BITS] = { 0 };
    int64_t numa = DTP_UNKNOWN;

    if (!nvml->nvmlDeviceGetMemoryAffinity ||
        nvml->nvmlDeviceGetMemoryAffinity(device, DTPI_ARRAY_LEN(set), set,
                                          NVML_AFFINITY_SCOPE_NODE) != NVML_SUCCESS)
        return DTP_UNKNOWN;
    for (uint32_t node = 0; node < DTPI_ARRAY_LEN(set) * LONG_BITS; node++) {
        if (!(set[node / LONG_BITS] >> (node % LONG_BITS) & 1))
            continue;
        if (numa != DTP_UNKNOWN)
            return DTP_UNKNOWN;
        numa = node;
    }
    return numa;
}

static void read_gpu(const dtpi_nvml *nvml, nvmlDevice_t device, dtpi_gpu_info *gpu)
{
    unsigned int mig, pending;
    nvmlPciInfo_t pci;
    nvmlMemory_t memory;

    gpu->mem_bytes = gpu->mig = DTP_UNKNOWN;
    if (nvml->nvmlDeviceGetUUID(device, gpu->uuid, sizeof(gpu->uuid)) != NVML_SUCCESS)
        gpu->uuid[0] = '\0';
    if (nvml->nvmlDeviceGetName(device, gpu->name, sizeof(gpu->name)) != NVML_SUCCESS)
        gpu->name[0] = '\0';
    if (nvml->nvmlDeviceGetPciInfo_v3(device, &pci) == NVML_SUCCESS)
        format_pci(&pci, gpu->pci, sizeof(gpu->pci));
    if (nvml->nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS &&
        memory.total <= INT64_MAX)
        gpu->mem_bytes = (int64_t)memory.total;
    if (nvml->nvmlDeviceGetMigMode &&
        nvml->nvmlDeviceGetMigMode(device, &mig, &pending) == NVML_SUCCESS)
        gpu->mig = mig ? 1 : 0;
    gpu->numa = read_numa(nvml, device);
    read_cpus(nvml, device, gpu);
}

/* The GPU with this PCI address, -1 where there is none. */
static int32_t find_by_pci(const dtpi_gpu_list *list, const char *pci)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->gpus[i].pci, pci) == 0)
            return (int32_t)i;
    return -1;
}

static void count_link(lister *l, uint32_t gpu, unsigned int link)
{
    nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    const dtpi_nvml *nvml = l->nvml;
    nvmlPciInfo_t pci;
    char text[20];

    if (nvml->nvmlDeviceGetNvLinkRemoteDeviceType &&
        nvml->nvmlDeviceGetNvLinkRemoteDeviceType(l->devices[gpu], link, &type) == NVML_SUCCESS &&
        type == NVML_NVLINK_DEVICE_TYPE_SWITCH) {
        l->n_switch_links[gpu]++;
        return;
    }
    if (!nvml->nvmlDeviceGetNvLinkRemotePciInfo_v2 ||
        nvml->nvmlDeviceGetNvLinkRemotePciInfo_v2(l->devices[gpu], link, &pci) != NVML_SUCCESS)
        return;
    format_pci(&pci, text, sizeof(text));
    const int32_t peer = find_by_pci(l->list, text);
    if (peer >= 0 && (uint32_t)peer != gpu)
        l->list->links[gpu * l->list->n + (uint32_t)peer]++;
}

/* NVML answers INVALID_ARGUMENT behind the last link, whose number no call tells. */
static void count_links(lister *l, uint32_t gpu)
{
    for (unsigned int link = 0; link < LINKS_MAX; link++) {
        nvmlEnableState_t state = NVML_FEATURE_DISABLED;
        const nvmlReturn_t r = l->nvml->nvmlDeviceGetNvLinkState(l->devices[gpu], link, &state);

        if (r == NVML_ERROR_INVALID_ARGUMENT)
            return;
        if (r == NVML_SUCCESS && state == NVML_FEATURE_ENABLED)
            count_link(l, gpu, link);
    }
}

/* Two GPUs on the switches reach each other with as many links as the one with fewer has. */
static void join_switches(lister *l)
{
    const uint32_t n = l->list->n;

    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n; b++)
            if (a != b && l->list->links[a * n + b] == 0)
                l->list->links[a * n + b] =
                    DTPI_MIN(l->n_switch_links[a], l->n_switch_links[b]);
}

static dtp_status read_links(lister *l, dtp_error *err)
{
    dtpi_gpu_list *list = l->list;

    list->links = dtpi_alloc_array(dtpi_ctx_alloc(l->ctx), (size_t)list->n * list->n, 1);
    if (!list->links)
        return dtpi_fail_nomem(err, (size_t)list->n * list->n);
    if (!l->nvml->nvmlDeviceGetNvLinkState)
        return DTP_OK;
    for (uint32_t i = 0; i < list->n; i++)
        count_links(l, i);
    join_switches(l);
    return DTP_OK;
}

static dtp_status read_all(lister *l, dtp_error *err)
{
    const dtpi_nvml *nvml = l->nvml;
    dtpi_gpu_list *list = l->list;
    unsigned int count = 0;

    nvmlReturn_t r = nvml->nvmlDeviceGetCount_v2(&count);
    if (r != NVML_SUCCESS) {
        DTPI_LOG(l->ctx, DTP_LOG_INFO, "gpu", "NVML cannot count GPUs: %s",
                 nvml->nvmlErrorString(r));
        count = 0;
    }
    if (count > DTPI_GPU_MAX) {
        DTPI_LOG(l->ctx, DTP_LOG_WARN, "gpu", "only the first %d of %u GPUs are listed",
                 DTPI_GPU_MAX, count);
        count = DTPI_GPU_MAX;
    }
    list->cap = count;
    list->gpus = dtpi_alloc_array(dtpi_ctx_alloc(l->ctx), count, sizeof(*list->gpus));
    if (!list->gpus)
        return dtpi_fail_nomem(err, count * sizeof(*list->gpus));
    for (uint32_t i = 0; i < count; i++) {
        r = nvml->nvmlDeviceGetHandleByIndex_v2(i, &l->devices[list->n]);
        if (r != NVML_SUCCESS) {
            DTPI_LOG(l->ctx, DTP_LOG_INFO, "gpu", "GPU %u is left out: %s", i,
                     nvml->nvmlErrorString(r));
            continue;
        }
        dtpi_gpu_info *gpu = &list->gpus[list->n++];
        gpu->index = i;
        read_gpu(nvml, l->devices[list->n - 1], gpu);
    }
    return read_links(l, err);
}

/* NVML holds descriptors between init and shutdown, so it is asked in one go. */
static dtp_status list_with_nvml(dtp_ctx *ctx, const dtpi_nvml *nvml, dtpi_gpu_list *list,
                                 dtp_error *err)
{
    lister l = { .ctx = ctx, .nvml = nvml, .list = list };

    const nvmlReturn_t r = nvml->nvmlInit_v2();
    if (r != NVML_SUCCESS) {
        DTPI_LOG(ctx, DTP_LOG_INFO, "gpu", "NVML does not start: %s", nvml->nvmlErrorString(r));
        return DTP_OK;
    }
    const dtp_status st = read_all(&l, err);
    nvml->nvmlShutdown();
    return st;
}

dtp_status dtpi_gpu_list_new(dtp_ctx *ctx, dtpi_gpu_list **list_out, dtp_error *err)
{
    const dtpi_nvml *nvml;

    dtpi_gpu_list *list = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*list));
    if (!list)
        return dtpi_fail_nomem(err, sizeof(*list));
    dtp_status st = dtpi_gpu_nvml(ctx, &nvml, err);
    if (st == DTP_ERR_UNSUPPORTED)
        st = DTP_OK;
    else if (st == DTP_OK)
        st = list_with_nvml(ctx, nvml, list, err);
    if (st < 0) {
        dtpi_gpu_list_free(ctx, list);
        return st;
    }
    *list_out = list;
    return DTP_OK;
}

void dtpi_gpu_list_free(dtp_ctx *ctx, dtpi_gpu_list *list)
{
    const dtp_allocator *a = dtpi_ctx_alloc(ctx);

    if (!list)
        return;
    dtpi_free(a, list->links, (size_t)list->n * list->n);
    dtpi_free(a, list->gpus, list->cap * sizeof(*list->gpus));
    dtpi_free(a, list, sizeof(*list));
}
