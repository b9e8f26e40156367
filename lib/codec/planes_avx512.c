/* SPDX-License-Identifier: Apache-2.0 */
/* planes_avx512.c - byte planes on x86 processors with AVX512. */
#ifdef __clang__
#define WIDTH ""
#else
#pragma GCC optimize("O3")
#define WIDTH ",prefer-vector-width=512"
#endif
#define KERNEL __attribute__((target("avx2,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi" WIDTH)))
#include "codec/planes_body.h"

DEFINE_PLANES(dtpi_planes_avx512, "avx512");
