/* SPDX-License-Identifier: Apache-2.0 */
/* planes_avx2.c - byte planes on x86 processors with AVX2. */
#ifdef __clang__
#define WIDTH ""
#else
#pragma GCC optimize("O3")
#define WIDTH ""
#endif
#define KERNEL __attribute__((target("avx2,bmi2" WIDTH)))
#include "codec/planes_body.h"

DEFINE_PLANES(dtpi_planes_avx2, "avx2");
