/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_base.c - kernels for any processor: what the compiler makes of the loops by itself. */
#ifndef __clang__
#pragma GCC optimize("O3")
#endif
#define KERNEL
#define VARIANT "base"
#include "coll/kernel_body.h"

#include "coll/kernel_f16.h"

static void widen_f16(void *out_, const void *in_, size_t n)
{
    float *out = out_;
    const uint16_t *in = in_;

    for (size_t i = 0; i < n; i++)
        out[i] = dtpi_float_of_f16(in[i]);
}

static void narrow_f16(void *out_, const void *in_, size_t n)
{
    uint16_t *out = out_;
    const float *in = in_;

    for (size_t i = 0; i < n; i++)
        out[i] = dtpi_f16_of_float(in[i]);
}

static void stream(void *out, const void *in, size_t bytes)
{
    memcpy(out, in, bytes);
}

static void stream_end(void)
{
}

DEFINE_KERNELS(dtpi_kernels_base);
