/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_avx2.c - kernels for x86 processors with AVX2 and F16C. */
#ifndef __clang__
#pragma GCC optimize("O3")
#endif
#define KERNEL __attribute__((target("avx2,f16c")))
#define VARIANT "avx2"
#include "coll/kernel_body.h"
#include "coll/kernel_x86.h"

DEFINE_KERNELS(dtpi_kernels_avx2);
