/* SPDX-License-Identifier: Apache-2.0 */
/* registry.c - the sources of topology, in the order in which they are asked. */
#include "topo/topo.h"

const dtpi_topo_source dtpi_topo_sources[] = {
    { .ops = &dtpi_topo_hwxml_ops, .serves = DTPI_TOPO_CPUS | DTPI_TOPO_XML },
    { .module = "topo-hwloc", .serves = DTPI_TOPO_CPUS | DTPI_TOPO_LIVE },
    { .ops = &dtpi_topo_sysfs_ops, .serves = DTPI_TOPO_CPUS | DTPI_TOPO_LIVE | DTPI_TOPO_FSROOT },
    { .ops = &dtpi_topo_pci_ops, .serves = DTPI_TOPO_DEVICES | DTPI_TOPO_LIVE | DTPI_TOPO_FSROOT },
    { .ops = &dtpi_topo_rdma_ops, .serves = DTPI_TOPO_DEVICES | DTPI_TOPO_LIVE | DTPI_TOPO_FSROOT },
    { .module = "topo-verbs", .serves = DTPI_TOPO_DEVICES | DTPI_TOPO_LIVE,
      .only_with = "/sys/class/infiniband" },
    { .ops = &dtpi_topo_gpu_ops, .serves = DTPI_TOPO_DEVICES | DTPI_TOPO_LIVE },
};

const size_t dtpi_topo_n_sources = DTPI_ARRAY_LEN(dtpi_topo_sources);
