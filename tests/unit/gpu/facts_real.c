/* SPDX-License-Identifier: Apache-2.0 */
/* facts_real.c - the facts as the vendors' headers have them, where they are found. */
#include <stddef.h>

#include "facts.h"

#include "gpu/cuda_api.h"
#include "gpu/nccl_api.h"
#include "gpu/nvml_api.h"

const fact facts_real[] = { CUDA_FACTS(FACT) NVML_FACTS(FACT) NCCL_FACTS(FACT){ NULL, 0 } };
