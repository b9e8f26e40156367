/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu.h - which instructions this processor has, asked on first use.
 *
 * Not by __builtin_cpu_supports(): that asks as soon as the library is loaded, which costs every process in a
 * virtual machine 35 us (each question traps), and clang before 15 does not know "f16c" there.
 */
#ifndef DTPI_BASE_CPU_H
#define DTPI_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

enum {
    DTPI_CPU_AVX2 = 1 << 0,
    DTPI_CPU_F16C = 1 << 1,
    DTPI_CPU_BMI2 = 1 << 2,
    DTPI_CPU_AVX512 = 1 << 3,       /* F, BW, DQ and VL */
    DTPI_CPU_AVX512_VBMI = 1 << 4
};

/* All of them, and the system saves their registers. Any thread. */
bool dtpi_cpu_has(uint32_t features);

#endif /* DTPI_BASE_CPU_H */
