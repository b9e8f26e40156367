/* SPDX-License-Identifier: Apache-2.0 */
/* parse.h - values of sysfs and procfs files, as text from outside: pure, bounded, fuzzed. */
#ifndef DTPI_TOPO_PARSE_H
#define DTPI_TOPO_PARSE_H

#include "base/base.h"
#include "base/cpuset.h"

/*
 * "0000:3b:00.0" or the host bridge "pci0000:3a" as a number that orders them. False for anything else.
 * Source: Documentation/PCI/sysfs-pci.rst of Linux.
 */
bool dtpi_topo_parse_pci(const char *text, uint64_t *place_out);

/* "ff,00000003": hexadecimal words of 32 bits, highest first. */
bool dtpi_topo_parse_cpumask(const char *text, dtpi_cpuset *set_out);

/*
 * A set as hwloc writes it, "0x00000001,,0xff": words of 32 bits, highest first, empty ones zero.
 * False for anything else and for sets without an end ("0xf...f").
 */
bool dtpi_topo_parse_hwloc_set(const char *text, dtpi_cpuset *set_out);

/*
 * Megabits per second of a PCI link: "16.0 GT/s PCIe" and a number of lanes; what is left after the
 * line code. False where either is unknown (0 lanes, "Unknown").
 */
bool dtpi_topo_parse_pci_link(const char *speed, const char *width, int64_t *mbps_out);

/* "15.753846" gigabytes per second, as hwloc writes the speed of a link; below 10000. */
bool dtpi_topo_parse_gb_per_s(const char *text, int64_t *mbps_out);

/* Bytes: "48 kB", "32768K", "1M". */
bool dtpi_topo_parse_kib(const char *text, int64_t *bytes_out);

/*
 * "Node 0 MemTotal:  131072 kB" and "MemTotal: 131072 kB": the bytes behind `key` in a document.
 */
bool dtpi_topo_find_kib(const char *doc, const char *key, int64_t *bytes_out);

/* "4: ACTIVE" gives 4; 0 for anything that is no port state. */
int32_t dtpi_topo_parse_port_state(const char *text);

/* "400 Gb/sec (4X NDR)", "2.5 Gb/sec" in megabits per second. */
bool dtpi_topo_parse_port_rate(const char *text, int64_t *mbps_out);

typedef enum dtpi_gid_kind {
    DTPI_GID_NONE = 0,  /* no GID, or all zeros */
    DTPI_GID_LOCAL = 1, /* link-local: serves on one InfiniBand subnet, not in a routed network */
    DTPI_GID_ROUTED = 2,
} dtpi_gid_kind;

/* What the text of a GID, "fe80:0000:...:1994" or "::ffff:10.0.0.1", says. */
dtpi_gid_kind dtpi_topo_parse_gid(const char *text);

#endif /* DTPI_TOPO_PARSE_H */
