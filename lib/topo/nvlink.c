/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvlink.c - turns hwloc's NVLinkBandwidth matrix into links. Ends are GPUs and the ports of switches.
 *
 * A link gives 25 GB/s since Volta and 20 before, which a matrix does not mix.
 * Source: topology-nvml.c of hwloc (units: MB/s).
 */
#include "topo/nvlink.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

void dtpi_nvlink_end(dtpi_nvlink_reader *n, int64_t gp_index, const char *pci, bool is_gpu)
{
    if (gp_index < 0 || n->n_devices == DTPI_NVLINK_MAX_DEVICES)
        return;
    if (n->n_devices == n->cap_devices) {
        const uint32_t cap = n->cap_devices ? n->cap_devices * 2 : 64;
        dtpi_nvlink_device *devices = dtpi_alloc_array(n->a, cap, sizeof(*devices));
        if (!devices) {
            n->failed = true;
            return;
        }
        if (n->n_devices)
            memcpy(devices, n->devices, n->n_devices * sizeof(*devices));
        dtpi_free(n->a, n->devices, n->cap_devices * sizeof(*devices));
        n->devices = devices;
        n->cap_devices = cap;
    }
    dtpi_nvlink_device *d = &n->devices[n->n_devices++];
    d->gp_index = gp_index;
    d->is_gpu = is_gpu;
    snprintf(d->pci, sizeof(d->pci), "%s", pci);
}

static void free_values(dtpi_nvlink_reader *n)
{
    dtpi_free(n->a, n->values, (size_t)n->n_ends * n->n_ends * sizeof(*n->values));
    n->values = NULL;
}

void dtpi_nvlink_begin(dtpi_nvlink_reader *n, const char *name, const char *n_ends)
{
    int64_t count = 0;

    free_values(n);
    n->n_values = n->n_indexes = 0;
    if (!name || strcmp(name, "NVLinkBandwidth") != 0 || !n_ends ||
        !dtpi_parse_i64(n_ends, 2, DTPI_NVLINK_MAX_ENDS, &count))
        return;
    n->n_ends = (uint32_t)count;
    n->values = dtpi_alloc_array(n->a, (size_t)count * (size_t)count, sizeof(*n->values));
    n->failed |= !n->values;
}

static int32_t find(const dtpi_nvlink_reader *n, int64_t gp_index)
{
    for (uint32_t i = 0; i < n->n_devices; i++)
        if (n->devices[i].gp_index == gp_index)
            return (int32_t)i;
    return -1;
}

/* The device at an end of the matrix; NULL where it is not on PCI. */
static const dtpi_nvlink_device *device_at(const dtpi_nvlink_reader *n, uint32_t end)
{
    return n->ends[end] < 0 ? NULL : &n->devices[n->ends[end]];
}

/* "OSDev:802 PCIDev:449 Package:3 " */
void dtpi_nvlink_indexes(dtpi_nvlink_reader *n, const char *text)
{
    const char *p = text;

    while (n->values && n->n_indexes < n->n_ends && (p = strchr(p, ':')))
        n->ends[n->n_indexes++] = find(n, strtoll(++p, NULL, 10));
}

void dtpi_nvlink_values(dtpi_nvlink_reader *n, const char *text)
{
    const char *p = text;
    char *end;

    while (n->values && n->n_values < n->n_ends * n->n_ends) {
        const uint64_t v = strtoull(p, &end, 10);
        if (end == p)
            return;
        n->values[n->n_values++] = v;
        p = end;
    }
}

static uint64_t value_of(const dtpi_nvlink_reader *n, uint32_t a, uint32_t b)
{
    return n->values[a * n->n_ends + b];
}

static uint64_t per_link_of(const dtpi_nvlink_reader *n)
{
    for (uint32_t i = 0; i < n->n_ends * n->n_ends; i++)
        if (i % (n->n_ends + 1) && n->values[i] % 25000)
            return 20000;
    return 25000;
}

/* GPUs with links into switches reach each other over as many as the poorer of them has. */
static uint64_t through_switches(const dtpi_nvlink_reader *n, uint32_t a, uint32_t b)
{
    uint64_t from_a = 0, from_b = 0;

    for (uint32_t s = 0; s < n->n_ends; s++) {
        const dtpi_nvlink_device *d = device_at(n, s);
        if (!d || d->is_gpu)
            continue;
        from_a += DTPI_MIN(value_of(n, a, s), (uint64_t)INT32_MAX);
        from_b += DTPI_MIN(value_of(n, b, s), (uint64_t)INT32_MAX);
    }
    return DTPI_MIN(from_a, from_b);
}

dtp_status dtpi_nvlink_report(dtpi_nvlink_reader *n, dtpi_topo_sink *sink, dtp_error *err)
{
    if (!n->values || n->n_indexes < n->n_ends || n->n_values < n->n_ends * n->n_ends)
        return DTP_OK;
    const uint64_t per_link = per_link_of(n);
    for (uint32_t a = 0; a < n->n_ends; a++)
        for (uint32_t b = a + 1; b < n->n_ends; b++) {
            const dtpi_nvlink_device *x = device_at(n, a), *y = device_at(n, b);
            if (!x || !y || !x->is_gpu || !y->is_gpu)
                continue;
            uint64_t mb_per_s = value_of(n, a, b);
            if (!mb_per_s)
                mb_per_s = through_switches(n, a, b);
            const uint32_t links = (uint32_t)DTPI_MIN(mb_per_s / per_link, (uint64_t)255);
            const dtp_status st = links ? sink->link(sink, x->pci, y->pci, links, err) : DTP_OK;
            if (st < 0)
                return st;
        }
    return DTP_OK;
}

void dtpi_nvlink_free(dtpi_nvlink_reader *n)
{
    dtpi_free(n->a, n->devices, n->cap_devices * sizeof(*n->devices));
    free_values(n);
}
