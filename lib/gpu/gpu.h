/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - the only loader of CUDA, NVML and NCCL: found at run time, or absent and said once.
 *
 * Each library is looked for at its first use in a context, loaded privately and kept for the life of
 * the process (none of them can be unloaded safely). Where one is absent, one line at INFO says so and
 * nothing else changes. Everything here runs on the thread that holds the context.
 */
#ifndef DTPI_GPU_H
#define DTPI_GPU_H

#include <dtp/topo.h>       /* DTP_UNKNOWN */

#include "base/cpuset.h"
#include "ctx/ctx.h"

typedef struct dtpi_nvml dtpi_nvml;         /* gpu/nvml_api.h */
typedef struct dtpi_cuda dtpi_cuda;         /* gpu/cuda_api.h: the driver */
typedef struct dtpi_cudart dtpi_cudart;     /* gpu/cuda_api.h: the runtime */
typedef struct dtpi_nccl dtpi_nccl;         /* gpu/nccl_api.h */

/*
 * The functions of a library, lent for the life of the context.
 * Errors: UNSUPPORTED (the library is absent or too old; the text names it), NOMEM.
 */
dtp_status dtpi_gpu_nvml(dtp_ctx *ctx, const dtpi_nvml **out, dtp_error *err);
dtp_status dtpi_gpu_cuda(dtp_ctx *ctx, const dtpi_cuda **out, dtp_error *err);
dtp_status dtpi_gpu_cudart(dtp_ctx *ctx, const dtpi_cudart **out, dtp_error *err);
dtp_status dtpi_gpu_nccl(dtp_ctx *ctx, const dtpi_nccl **out, dtp_error *err);

/*
 * Looks in this folder alone instead of where the system looks; before the first use.
 * Errors: INVAL (a library is loaded already), NOMEM.
 */
dtp_status dtpi_gpu_set_dir(dtp_ctx *ctx, const char *dir, dtp_error *err);

/* Versions of what is here, "" where a library is absent. */
typedef struct dtpi_gpu_versions {
    char driver[96];            /* of the kernel driver, "580.65.06" (NVML) */
    char nvml[96];
    char cuda[16];              /* the newest CUDA the driver serves, "13.0" */
    char cudart[16];            /* "13.0" */
    char nccl[24];              /* "2.32.3" */
} dtpi_gpu_versions;

/* Loads all of them. Errors: NOMEM. */
dtp_status dtpi_gpu_probe(dtp_ctx *ctx, dtpi_gpu_versions *out, dtp_error *err);

/* ---- the GPUs of this machine, through NVML ---- */

enum { DTPI_GPU_MAX = 256 };

typedef struct dtpi_gpu_info {
    uint32_t index;             /* NVML's, in order of PCI address */
    char uuid[96];              /* "GPU-8f2a..."; "" unknown */
    char name[96];              /* "NVIDIA H200"; "" unknown */
    char pci[20];               /* as in sysfs, "0000:3b:00.0"; "" unknown */
    int64_t mem_bytes;          /* DTP_UNKNOWN */
    int64_t numa;               /* OS index of the NUMA node; DTP_UNKNOWN */
    int64_t mig;                /* 1 split by MIG, 0 not; DTP_UNKNOWN (cannot be split) */
    bool has_cpus;              /* cpus is known */
    dtpi_cpuset cpus;           /* nearest processors */
} dtpi_gpu_info;

typedef struct dtpi_gpu_list {
    uint32_t n;
    uint32_t cap;               /* room in gpus */
    dtpi_gpu_info *gpus;        /* n */
    uint8_t *links;             /* n * n: active NVLinks between two, direct or through switches */
} dtpi_gpu_list;

static inline uint32_t dtpi_gpu_links(const dtpi_gpu_list *list, uint32_t a, uint32_t b)
{
    return list->links[a * list->n + b];
}

/*
 * Lists the GPUs; none (n is 0) where NVML or the driver is absent. NVML is shut down again before it
 * returns. Errors: NOMEM. Freed with dtpi_gpu_list_free.
 */
dtp_status dtpi_gpu_list_new(dtp_ctx *ctx, dtpi_gpu_list **list_out, dtp_error *err);
void dtpi_gpu_list_free(dtp_ctx *ctx, dtpi_gpu_list *list);

#endif /* DTPI_GPU_H */
