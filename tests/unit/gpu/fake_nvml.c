/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nvml.c - stands in for libnvidia-ml.so.1: a machine with two GPUs.
 *
 * FAKE_NVML in the environment says what is odd about it: "switch" (links go to switches), "lost"
 * (the second GPU cannot be opened), "broken" (nothing starts), "plain" or nothing (four direct
 * links).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/nvml_api.h"

#define EXPORT __attribute__((visibility("default")))

/* Balance of init and shutdown, read by the test. */
extern EXPORT int fake_nvml_open;
EXPORT int fake_nvml_open;

static int mode_is(const char *mode)
{
    const char *now = getenv("FAKE_NVML");

    return now && strcmp(now, mode) == 0;
}

/* Handles are 1 and 2. */
static unsigned int index_of(nvmlDevice_t device)
{
    return (unsigned int)(uintptr_t)device - 1;
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    if (mode_is("broken"))
        return NVML_ERROR_UNKNOWN;
    fake_nvml_open++;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    fake_nvml_open--;
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    return "a fake error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    snprintf(version, length, "580.65.06");
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    snprintf(version, length, "13.580.65.06");
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = 2;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    if (index > 1 || (index == 1 && mode_is("lost")))
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)(uintptr_t)(index + 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    snprintf(name, length, "NVIDIA Fake %u", index_of(device));
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    snprintf(uuid, length, "GPU-0000000%u", index_of(device));
    return NVML_SUCCESS;
}

static void fill_pci(unsigned int index, nvmlPciInfo_t *pci)
{
    memset(pci, 0, sizeof(*pci));
    pci->domain = index;
    pci->bus = 0x3b + index;
    pci->device = index;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    fill_pci(index_of(device), pci);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    if (index_of(device) == 1)
        return NVML_ERROR_NOT_SUPPORTED;
    memory->total = 80ull << 30;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                         unsigned int *pending)
{
    *current = *pending = 1;
    return index_of(device) == 1 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int n,
                                             unsigned long *set)
{
    memset(set, 0, n * sizeof(*set));
    if (index_of(device) == 1)
        return NVML_ERROR_NOT_SUPPORTED;
    set[0] = 0xf0;
    set[1] = 1;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int n,
                                                unsigned long *set, nvmlAffinityScope_t scope)
{
    memset(set, 0, n * sizeof(*set));
    /* One node is near the first; the second says two, which is no answer. */
    set[0] = index_of(device) == 0 ? 2 : 3;
    return NVML_SUCCESS;
}

/* The first has links 0 to 3, the second 0 to 4, of which the last is off. */
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                             nvmlEnableState_t *state)
{
    if (link > 3 + index_of(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    *state = link > 3 ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                        nvmlIntNvLinkDeviceType_t *type)
{
    *type = NVML_NVLINK_DEVICE_TYPE_GPU;
    /* One link fewer reaches the switches on the second. */
    if (mode_is("switch") && !(index_of(device) == 1 && link == 0))
        *type = NVML_NVLINK_DEVICE_TYPE_SWITCH;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                        nvmlPciInfo_t *pci)
{
    if (mode_is("switch"))
        return NVML_ERROR_NOT_SUPPORTED;
    fill_pci(1 - index_of(device), pci);
    return NVML_SUCCESS;
}
