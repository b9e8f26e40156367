/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_api.h - the functions of NCCL that are used, typed by the real header where it was found. */
#ifndef DTPI_NCCL_API_H
#define DTPI_NCCL_API_H

#if DTPI_HAVE_NCCL_H
#include <nccl.h>
#else
#include "gpu/nccl_own.h"
#endif

#include "gpu/load.h"

#define DTPI_NCCL_LIST(X)                                                                           \
    X(ncclGetVersion, DTPI_GPU_MUST)                                                                \
    X(ncclGetUniqueId, DTPI_GPU_MUST)                                                               \
    X(ncclCommInitRank, DTPI_GPU_MUST)                                                              \
    X(ncclCommInitRankScalable, DTPI_GPU_MAY) /* since 2.23 */                                      \
    X(ncclCommInitRankConfig, DTPI_GPU_MAY) /* since 2.14 */                                        \
    X(ncclCommGetAsyncError, DTPI_GPU_MAY)                                                          \
    X(ncclAllReduce, DTPI_GPU_MUST)                                                                 \
    X(ncclCommDestroy, DTPI_GPU_MUST)                                                               \
    X(ncclCommAbort, DTPI_GPU_MUST)                                                                 \
    X(ncclGetErrorString, DTPI_GPU_MUST)

struct dtpi_nccl {
    DTPI_NCCL_LIST(DTPI_GPU_FIELD)
};

/* Travels as opaque bytes between ranks. */
static_assert(sizeof(ncclUniqueId) == 128, "NCCL's unique id has 128 bytes");

#endif /* DTPI_NCCL_API_H */
