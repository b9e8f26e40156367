/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_avx512.c - kernels for x86 processors with AVX-512 (F, BW, DQ, VL). */
#ifndef __clang__
#pragma GCC optimize("O3")
#endif
#define KERNEL                                                                                      \
    __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#define VARIANT "avx512"
#include "coll/kernel_body.h"
#include "coll/kernel_x86.h"

DEFINE_KERNELS(dtpi_kernels_avx512);
