/* SPDX-License-Identifier: Apache-2.0 */
/* planes_base.c - byte planes on any processor, and which variant is the best here. */
#define KERNEL
#include "base/cpu.h"
#include "codec/planes_body.h"

DEFINE_PLANES(dtpi_planes_base, "base");

static bool runs_here(const dtpi_planes *p)
{
#ifdef __x86_64__
    if (p == &dtpi_planes_avx2)
        return dtpi_cpu_has(DTPI_CPU_AVX2);
    if (p == &dtpi_planes_avx512)
        return dtpi_cpu_has(DTPI_CPU_AVX512 | DTPI_CPU_AVX512_VBMI);
#endif
    return p == &dtpi_planes_base;
}

static const dtpi_planes *const variants[] = {
#ifdef __x86_64__
    &dtpi_planes_avx512, &dtpi_planes_avx2,
#endif
    &dtpi_planes_base,
};

const dtpi_planes *dtpi_planes_best(void)
{
    for (size_t i = 0; i < DTPI_ARRAY_LEN(variants) - 1; i++)
        if (runs_here(variants[i]))
            return variants[i];
    return &dtpi_planes_base;
}

const dtpi_planes *dtpi_planes_find(const char *name)
{
    for (size_t i = 0; i < DTPI_ARRAY_LEN(variants); i++)
        if (strcmp(variants[i]->name, name) == 0 && runs_here(variants[i]))
            return variants[i];
    return NULL;
}
