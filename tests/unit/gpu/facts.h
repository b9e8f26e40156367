/* SPDX-License-Identifier: Apache-2.0 */
/* facts.h - sizes and values that our own declarations and the vendors' headers must agree on. */
#ifndef DTP_TESTS_GPU_FACTS_H
#define DTP_TESTS_GPU_FACTS_H

typedef struct fact {
    const char *name;
    long value;
} fact;

/* End with a NULL name. */
extern const fact facts_own[], facts_real[];

#define NVML_FACTS(X)                                                                               \
    X(sizeof(nvmlPciInfo_t))                                                                        \
    X(offsetof(nvmlPciInfo_t, domain))                                                              \
    X(offsetof(nvmlPciInfo_t, busId))                                                               \
    X(sizeof(nvmlMemory_t))                                                                         \
    X(offsetof(nvmlMemory_t, total))                                                                \
    X(sizeof(nvmlReturn_t))                                                                         \
    X(sizeof(nvmlAffinityScope_t))                                                                  \
    X(NVML_SUCCESS)                                                                                 \
    X(NVML_ERROR_INVALID_ARGUMENT)                                                                  \
    X(NVML_ERROR_NOT_SUPPORTED)                                                                     \
    X(NVML_FEATURE_ENABLED)                                                                         \
    X(NVML_NVLINK_DEVICE_TYPE_GPU)                                                                  \
    X(NVML_NVLINK_DEVICE_TYPE_SWITCH)                                                               \
    X(NVML_AFFINITY_SCOPE_NODE)

#define NCCL_FACTS(X)                                                                               \
    X(sizeof(ncclUniqueId))                                                                         \
    X(sizeof(ncclComm_t))                                                                           \
    X(sizeof(ncclResult_t))                                                                         \
    X(sizeof(ncclDataType_t))                                                                       \
    X(sizeof(ncclRedOp_t))                                                                          \
    X(ncclSuccess)                                                                                  \
    X(ncclInvalidArgument)                                                                          \
    X(ncclInProgress)                                                                               \
    X(ncclSum)                                                                                      \
    X(ncclProd)                                                                                     \
    X(ncclMax)                                                                                      \
    X(ncclMin)                                                                                      \
    X(ncclAvg)                                                                                      \
    X(ncclInt8)                                                                                     \
    X(ncclUint8)                                                                                    \
    X(ncclInt32)                                                                                    \
    X(ncclUint32)                                                                                   \
    X(ncclInt64)                                                                                    \
    X(ncclUint64)                                                                                   \
    X(ncclFloat16)                                                                                  \
    X(ncclFloat32)                                                                                  \
    X(ncclFloat64)                                                                                  \
    X(ncclBfloat16)

#define CUDA_FACTS(X)                                                                               \
    X(sizeof(cudaStream_t))                                                                         \
    X(sizeof(cudaError_t))                                                                          \
    X(sizeof(CUresult))                                                                             \
    X(cudaSuccess)                                                                                  \
    X(CUDA_SUCCESS)

#define FACT(what) { #what, (long)(what) },

#if !DTPI_HAVE_NVML_H
#undef NVML_FACTS
#define NVML_FACTS(X)
#endif
#if !DTPI_HAVE_NCCL_H
#undef NCCL_FACTS
#define NCCL_FACTS(X)
#endif
#if !DTPI_HAVE_CUDA_H
#undef CUDA_FACTS
#define CUDA_FACTS(X)
#endif

#endif /* DTP_TESTS_GPU_FACTS_H */
