/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_api.h - the functions of the CUDA driver and runtime that are used. */
#ifndef DTPI_CUDA_API_H
#define DTPI_CUDA_API_H

#if DTPI_HAVE_CUDA_H
#include <cuda.h>
#include <cuda_runtime_api.h>
#else
#include "gpu/cuda_own.h"
#endif

#include "gpu/load.h"

#define DTPI_CUDA_LIST(X) X(cuDriverGetVersion, DTPI_GPU_MUST)

#define DTPI_CUDART_LIST(X)                                                                         \
    X(cudaRuntimeGetVersion, DTPI_GPU_MUST)                                                         \
    X(cudaGetDeviceCount, DTPI_GPU_MUST)                                                            \
    X(cudaGetErrorString, DTPI_GPU_MUST)

struct dtpi_cuda {
    DTPI_CUDA_LIST(DTPI_GPU_FIELD)
};

struct dtpi_cudart {
    DTPI_CUDART_LIST(DTPI_GPU_FIELD)
};

#endif /* DTPI_CUDA_API_H */
