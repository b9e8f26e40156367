/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_avx512.c - kernels for x86 processors with AVX-512 (F, BW, DQ, VL). */
#ifdef __clang__
#define WIDTH ""
#else
#pragma GCC optimize("O3")
#define WIDTH ",prefer-vector-width=512"
#endif
#define KERNEL __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl" WIDTH)))
#define VARIANT "avx512"
#include "coll/kernel_body.h"
#include "coll/kernel_x86.h"

DEFINE_KERNELS(dtpi_kernels_avx512);
