/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_own.h - the few declarations of the CUDA driver and runtime that are used, where their headers
 * are not installed.
 *
 * Source: CUDA driver and runtime API references, https://docs.nvidia.com/cuda/ (11 to 13).
 */
#ifndef DTPI_CUDA_OWN_H
#define DTPI_CUDA_OWN_H

typedef enum { CUDA_SUCCESS = 0 } CUresult;
typedef enum { cudaSuccess = 0 } cudaError_t;
typedef struct CUstream_st *cudaStream_t;

CUresult cuDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
const char *cudaGetErrorString(cudaError_t error);

#endif /* DTPI_CUDA_OWN_H */
