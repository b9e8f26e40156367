/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pciclass.h - what a PCI function is, from its ids; shared by the sources, one of which is a module.
 *
 * Source: PCI Code and ID Assignment Specification (classes), https://pci-ids.ucw.cz (vendors).
 */
#ifndef DTPI_TOPO_PCICLASS_H
#define DTPI_TOPO_PCICLASS_H

#include <dtp/topo.h>

#include "base/base.h"

typedef struct dtpi_pci_ids {
    uint32_t class_id;          /* base class and sub-class, 0x0302 */
    uint32_t vendor;
    bool has_link;              /* a PCI Express link was seen */
    bool has_nic;               /* it has a network interface or RDMA device */
    bool has_gpu;               /* a driver presents it as an accelerator */
} dtpi_pci_ids;

/*
 * GPU: what computes. The display controller of a management board (Matrox, ASPEED, old ATI without a
 * PCI Express link) is not one.
 */
static inline bool dtpi_pci_is_gpu(const dtpi_pci_ids *ids)
{
    enum { NVIDIA = 0x10de, AMD = 0x1002, INTEL = 0x8086 };

    switch (ids->class_id) {
    case 0x0300:
        return ids->vendor == NVIDIA || (ids->vendor == AMD && ids->has_link) || ids->has_gpu;
    case 0x0302:
        return true;
    case 0x0380:
        return ids->vendor == NVIDIA || ids->vendor == AMD || ids->vendor == INTEL;
    case 0x1200:
        return ids->vendor == AMD || ids->has_gpu;
    default:
        return false;
    }
}

/* Its type; 0 for what is of no interest here. */
static inline uint32_t dtpi_pci_type(const dtpi_pci_ids *ids)
{
    if (dtpi_pci_is_gpu(ids))
        return DTP_TOPO_GPU;
    if (ids->has_nic)
        return DTP_TOPO_NIC;
    if (ids->class_id == 0x0108)
        return DTP_TOPO_NVME;
    switch (ids->class_id >> 8) {
    case 0x01:                  /* storage */
    case 0x02:                  /* network without an interface */
    case 0x03:                  /* display */
    case 0x12:                  /* accelerators */
        return DTP_TOPO_PCI;
    default:
        /* InfiniBand and Fibre Channel of old. */
        return ids->class_id == 0x0c06 || ids->class_id == 0x0c04 ? DTP_TOPO_PCI : 0;
    }
}

#endif /* DTPI_TOPO_PCICLASS_H */
