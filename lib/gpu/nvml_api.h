/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_api.h - the functions of NVML that are used, typed by the real header where it was found. */
#ifndef DTPI_NVML_API_H
#define DTPI_NVML_API_H

#if DTPI_HAVE_NVML_H
#include <nvml.h>
#else
#include "gpu/nvml_own.h"
#endif

#include "gpu/load.h"

#define DTPI_NVML_LIST(X)                                                                           \
    X(nvmlInit_v2, DTPI_GPU_MUST)                                                                   \
    X(nvmlShutdown, DTPI_GPU_MUST)                                                                  \
    X(nvmlErrorString, DTPI_GPU_MUST)                                                               \
    X(nvmlSystemGetDriverVersion, DTPI_GPU_MUST)                                                    \
    X(nvmlSystemGetNVMLVersion, DTPI_GPU_MUST)                                                      \
    X(nvmlDeviceGetCount_v2, DTPI_GPU_MUST)                                                         \
    X(nvmlDeviceGetHandleByIndex_v2, DTPI_GPU_MUST)                                                 \
    X(nvmlDeviceGetName, DTPI_GPU_MUST)                                                             \
    X(nvmlDeviceGetUUID, DTPI_GPU_MUST)                                                             \
    X(nvmlDeviceGetPciInfo_v3, DTPI_GPU_MUST)                                                       \
    X(nvmlDeviceGetMemoryInfo, DTPI_GPU_MUST)                                                       \
    X(nvmlDeviceGetMigMode, DTPI_GPU_MAY)                                                           \
    X(nvmlDeviceGetCpuAffinity, DTPI_GPU_MAY)                                                       \
    X(nvmlDeviceGetMemoryAffinity, DTPI_GPU_MAY)                                                    \
    X(nvmlDeviceGetNvLinkState, DTPI_GPU_MAY)                                                       \
    X(nvmlDeviceGetNvLinkRemoteDeviceType, DTPI_GPU_MAY)                                            \
    X(nvmlDeviceGetNvLinkRemotePciInfo_v2, DTPI_GPU_MAY)

struct dtpi_nvml {
    DTPI_NVML_LIST(DTPI_GPU_FIELD)
};

#endif /* DTPI_NVML_API_H */
