/* SPDX-License-Identifier: Apache-2.0 */
/* load.h - one list of functions makes a library's table, its fields' types and its symbol names. */
#ifndef DTPI_GPU_LOAD_H
#define DTPI_GPU_LOAD_H

#include "base/base.h"

enum { DTPI_GPU_MAY = 0, DTPI_GPU_MUST = 1 };

/* A field of the type that the header declares; optional functions may be NULL. */
#define DTPI_GPU_FIELD(function, must) __typeof__(&function) function;

#endif /* DTPI_GPU_LOAD_H */
