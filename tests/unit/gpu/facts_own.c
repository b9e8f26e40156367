/* SPDX-License-Identifier: Apache-2.0 */
/* facts_own.c - the facts as our own declarations have them. */
#include <stddef.h>

#include "facts.h"

#undef DTPI_HAVE_CUDA_H
#define DTPI_HAVE_CUDA_H 0
#include "gpu/nccl_own.h"
#include "gpu/nvml_own.h"

const fact facts_own[] = { CUDA_FACTS(FACT) NVML_FACTS(FACT) NCCL_FACTS(FACT){ NULL, 0 } };
