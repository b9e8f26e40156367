/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - asks the processor once; the answer is the same for all, so whoever asks first may keep it. */
#include "base/cpu.h"

#include <stdatomic.h>

#ifdef __x86_64__
#include <cpuid.h>

#define IS_KNOWN (1u << 31)
enum { SAVES_AVX = 0x6, SAVES_AVX512 = 0xe6 };

static uint32_t registers_saved(void)
{
    uint32_t low, high;

    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has_all(unsigned int word, unsigned int bits)
{
    return (word & bits) == bits;
}

static uint32_t ask(void)
{
    unsigned int a, b = 0, c = 0, d, c1 = 0;
    uint32_t found = IS_KNOWN;

    if (!__get_cpuid(1, &a, &b, &c1, &d) || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return found;
    if (b & bit_BMI2)
        found |= DTPI_CPU_BMI2;
    if (!(c1 & bit_OSXSAVE) || !has_all(registers_saved(), SAVES_AVX))
        return found;
    if (b & bit_AVX2)
        found |= DTPI_CPU_AVX2;
    if (c1 & bit_F16C)
        found |= DTPI_CPU_F16C;
    if (!has_all(registers_saved(), SAVES_AVX512) ||
        !has_all(b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL))
        return found;
    return found | DTPI_CPU_AVX512 | (c & bit_AVX512VBMI ? DTPI_CPU_AVX512_VBMI : 0);
}

bool dtpi_cpu_has(uint32_t features)
{
    static _Atomic uint32_t known;
    uint32_t found = atomic_load_explicit(&known, memory_order_relaxed);

    if (!found) {
        found = ask();
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return (found & features) == features;
}
#else
bool dtpi_cpu_has(uint32_t features)
{
    return features == 0;
}
#endif
