/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - finds the GPU libraries, once per context and library, and fills their tables.
 *
 * They are opened privately (RTLD_LOCAL) and stay: none of them survives being unloaded.
 */
#include "gpu/gpu.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>

#include "gpu/cuda_api.h"
#include "gpu/nccl_api.h"
#include "gpu/nvml_api.h"

typedef enum { UNTRIED = 0, HERE, ABSENT } presence;

enum { NVML, CUDA, CUDART, NCCL, N_LIBRARIES };

typedef struct gpu_state {
    char *dir;
    presence is[N_LIBRARIES];
    dtpi_nvml nvml;
    dtpi_cuda cuda;
    dtpi_cudart cudart;
    dtpi_nccl nccl;
} gpu_state;

typedef struct symbol {
    const char *name;
    size_t offset;              /* of the field in gpu_state */
    int must;
} symbol;

#define NVML_ROW(function, must) { #function, offsetof(gpu_state, nvml.function), must },
#define CUDA_ROW(function, must) { #function, offsetof(gpu_state, cuda.function), must },
#define CUDART_ROW(function, must) { #function, offsetof(gpu_state, cudart.function), must },
#define NCCL_ROW(function, must) { #function, offsetof(gpu_state, nccl.function), must },

static const symbol nvml_symbols[] = { DTPI_NVML_LIST(NVML_ROW) { NULL, 0, 0 } };
static const symbol cuda_symbols[] = { DTPI_CUDA_LIST(CUDA_ROW) { NULL, 0, 0 } };
static const symbol cudart_symbols[] = { DTPI_CUDART_LIST(CUDART_ROW) { NULL, 0, 0 } };
static const symbol nccl_symbols[] = { DTPI_NCCL_LIST(NCCL_ROW) { NULL, 0, 0 } };

/* The runtime's plain name exists only with the toolkit; wheels carry the numbered ones. */
static const struct {
    const char *files[4];
    const symbol *symbols;
} libraries[N_LIBRARIES] = {
    [NVML] = { { "libnvidia-ml.so.1" }, nvml_symbols },
    [CUDA] = { { "libcuda.so.1" }, cuda_symbols },
    [CUDART] = { { "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so" },
                 cudart_symbols },
    [NCCL] = { { "libnccl.so.2" }, nccl_symbols },
};

static void close_state(dtp_ctx *ctx, void *value)
{
    gpu_state *s = value;

    dtpi_text_free(dtpi_ctx_alloc(ctx), s->dir);
    dtpi_free(dtpi_ctx_alloc(ctx), s, sizeof(*s));
}

static gpu_state *state_of(dtp_ctx *ctx, dtp_error *err)
{
    gpu_state *s = dtpi_ctx_slot(ctx, DTPI_SLOT_GPU);

    if (s)
        return s;
    s = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*s));
    if (!s) {
        dtpi_fail_nomem(err, sizeof(*s));
        return NULL;
    }
    dtpi_ctx_set_slot(ctx, DTPI_SLOT_GPU, s, close_state);
    return s;
}

/* The first of a library's files that opens; NULL when none does, with the loader's words. */
static void *open_library(const gpu_state *s, int lib, char *why_out, size_t room)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < DTPI_ARRAY_LEN(libraries[lib].files) && libraries[lib].files[i]; i++) {
        const char *file = libraries[lib].files[i];

        snprintf(path, sizeof(path), "%s%s%s", s->dir ? s->dir : "", s->dir ? "/" : "", file);
        void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (handle)
            return handle;
        if (i == 0)
            snprintf(why_out, room, "%s", dlerror());
    }
    return NULL;
}

/* Name of the first function that must be there and is not; NULL when all are. */
static const char *fill_table(gpu_state *s, int lib, void *handle)
{
    for (const symbol *sym = libraries[lib].symbols; sym->name; sym++) {
        void *address = dlsym(handle, sym->name);

        if (!address && sym->must)
            return sym->name;
        memcpy((char *)s + sym->offset, &address, sizeof(address));
    }
    return NULL;
}

static presence try_library(dtp_ctx *ctx, gpu_state *s, int lib)
{
    const char *file = libraries[lib].files[0];
    char why[256] = "";
    void *handle = open_library(s, lib, why, sizeof(why));

    if (!handle) {
        DTPI_LOG(ctx, DTP_LOG_INFO, "gpu", "%s is not used: %s", file, why);
        return ABSENT;
    }
    const char *missing = fill_table(s, lib, handle);
    dlclose(handle);
    if (missing) {
        DTPI_LOG(ctx, DTP_LOG_INFO, "gpu", "%s is not used: it has no %s", file, missing);
        return ABSENT;
    }
    return HERE;
}

static dtp_status get(dtp_ctx *ctx, int lib, gpu_state **state_out, dtp_error *err)
{
    gpu_state *s = state_of(ctx, err);

    if (!s)
        return DTP_ERR_NOMEM;
    if (s->is[lib] == UNTRIED)
        s->is[lib] = try_library(ctx, s, lib);
    if (s->is[lib] == ABSENT)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "%s is not on this machine, or too old",
                         libraries[lib].files[0]);
    *state_out = s;
    return DTP_OK;
}

#define ACCESSOR(name, lib)                                                                         \
    dtp_status dtpi_gpu_##name(dtp_ctx *ctx, const dtpi_##name **out, dtp_error *err)               \
    {                                                                                               \
        gpu_state *s = NULL;                                                                        \
        const dtp_status st = get(ctx, lib, &s, err);                                               \
                                                                                                    \
        if (st < 0)                                                                                 \
            return st;                                                                              \
        *out = &s->name;                                                                            \
        return DTP_OK;                                                                              \
    }

ACCESSOR(nvml, NVML)
ACCESSOR(cuda, CUDA)
ACCESSOR(cudart, CUDART)
ACCESSOR(nccl, NCCL)

dtp_status dtpi_gpu_set_dir(dtp_ctx *ctx, const char *dir, dtp_error *err)
{
    gpu_state *s = state_of(ctx, err);

    if (!s)
        return DTP_ERR_NOMEM;
    for (int i = 0; i < N_LIBRARIES; i++)
        if (s->is[i] != UNTRIED)
            return dtpi_fail(err, DTP_ERR_INVAL, "%s was looked for already",
                             libraries[i].files[0]);
    char *copy = dtpi_text_dup(dtpi_ctx_alloc(ctx), dir);
    if (!copy)
        return dtpi_fail_nomem(err, strlen(dir));
    dtpi_text_free(dtpi_ctx_alloc(ctx), s->dir);
    s->dir = copy;
    return DTP_OK;
}

/* CUDA writes 13.0 as 13000. */
static void format_cuda_version(int v, char *text_out, size_t room)
{
    snprintf(text_out, room, "%d.%d", v / 1000, v % 1000 / 10);
}

/* NCCL writes 2.32.3 as 23203, and before 2.9 as 2803. Source: NCCL_VERSION in nccl.h. */
static void format_nccl_version(int v, char *text_out, size_t room)
{
    const int unit = v < 10000 ? 1000 : 10000;

    snprintf(text_out, room, "%d.%d.%d", v / unit, v % unit / 100, v % 100);
}

static void probe_nvml(const dtpi_nvml *nvml, dtpi_gpu_versions *out)
{
    if (nvml->nvmlInit_v2() != NVML_SUCCESS)
        return;
    if (nvml->nvmlSystemGetDriverVersion(out->driver, sizeof(out->driver)) != NVML_SUCCESS)
        out->driver[0] = '\0';
    if (nvml->nvmlSystemGetNVMLVersion(out->nvml, sizeof(out->nvml)) != NVML_SUCCESS)
        out->nvml[0] = '\0';
    nvml->nvmlShutdown();
}

dtp_status dtpi_gpu_probe(dtp_ctx *ctx, dtpi_gpu_versions *out, dtp_error *err)
{
    dtpi_gpu_versions v;
    gpu_state *s = state_of(ctx, err);
    int number;

    if (!s)
        return DTP_ERR_NOMEM;
    memset(&v, 0, sizeof(v));
    for (int i = 0; i < N_LIBRARIES; i++)
        if (s->is[i] == UNTRIED)
            s->is[i] = try_library(ctx, s, i);
    if (s->is[NVML] == HERE)
        probe_nvml(&s->nvml, &v);
    if (s->is[CUDA] == HERE && s->cuda.cuDriverGetVersion(&number) == CUDA_SUCCESS)
        format_cuda_version(number, v.cuda, sizeof(v.cuda));
    if (s->is[CUDART] == HERE && s->cudart.cudaRuntimeGetVersion(&number) == cudaSuccess)
        format_cuda_version(number, v.cudart, sizeof(v.cudart));
    if (s->is[NCCL] == HERE && s->nccl.ncclGetVersion(&number) == ncclSuccess)
        format_nccl_version(number, v.nccl, sizeof(v.nccl));
    *out = v;
    return DTP_OK;
}
