/* SPDX-License-Identifier: Apache-2.0 */
/* nvlink.h - the matrix "NVLinkBandwidth" of a recorded machine, as numbers of links between GPUs. */
#ifndef DTPI_TOPO_NVLINK_H
#define DTPI_TOPO_NVLINK_H

#include "topo/topo.h"

enum { DTPI_NVLINK_MAX_ENDS = 128, DTPI_NVLINK_MAX_DEVICES = 8192 };

typedef struct dtpi_nvlink_device {
    int64_t gp_index;           /* hwloc's number of an object */
    char pci[20];
    bool is_gpu;
} dtpi_nvlink_device;

typedef struct dtpi_nvlink_reader {
    const dtp_allocator *a;
    bool failed;                /* out of memory: for the caller to tell */
    dtpi_nvlink_device *devices;
    uint32_t n_devices, cap_devices;
    uint64_t *values;           /* n_ends squared, megabytes per second; NULL: another matrix */
    uint32_t n_values, n_ends, n_indexes;
    int32_t ends[DTPI_NVLINK_MAX_ENDS];     /* in devices, which may move; -1: not on PCI */
} dtpi_nvlink_reader;

/* A device that a matrix may name. */
void dtpi_nvlink_end(dtpi_nvlink_reader *n, int64_t gp_index, const char *pci, bool is_gpu);
void dtpi_nvlink_begin(dtpi_nvlink_reader *n, const char *name, const char *n_ends);
void dtpi_nvlink_indexes(dtpi_nvlink_reader *n, const char *text);
void dtpi_nvlink_values(dtpi_nvlink_reader *n, const char *text);
/* Reports what a complete matrix says; an incomplete one says nothing. Errors: the sink's. */
dtp_status dtpi_nvlink_report(dtpi_nvlink_reader *n, dtpi_topo_sink *sink, dtp_error *err);
void dtpi_nvlink_free(dtpi_nvlink_reader *n);

#endif /* DTPI_TOPO_NVLINK_H */
