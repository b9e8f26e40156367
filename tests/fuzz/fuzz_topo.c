/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_topo.c - what a recorded machine may hold: a hwloc XML document, else the value of a sysfs file.
 * A document that is accepted must render in every format, and ranks can be placed on it or not.
 */
#include "fuzz.h"

#include <dtp/placement.h>

#include "topo/parse.h"
#include "topo/topo.h"

static void try_values(const char *text)
{
    dtpi_cpuset set;
    uint64_t place;
    int64_t n;

    dtpi_topo_parse_pci(text, &place);
    dtpi_topo_parse_cpumask(text, &set);
    dtpi_topo_parse_hwloc_set(text, &set);
    dtpi_topo_parse_pci_link(text, text, &n);
    dtpi_topo_parse_gb_per_s(text, &n);
    dtpi_topo_parse_kib(text, &n);
    dtpi_topo_find_kib(text, "MemTotal", &n);
    dtpi_topo_parse_port_state(text);
    dtpi_topo_parse_port_rate(text, &n);
    dtpi_topo_parse_gid(text);
}

static void try_render(const dtp_topo *topo)
{
    for (int format = DTP_TOPO_TEXT; format <= DTP_TOPO_MATRIX; format++) {
        dtp_error err;
        char *text = NULL;
        const dtp_status st = dtp_topo_render(topo, (dtp_topo_format)format, &text, &err);
        FUZZ_CHECK(st == DTP_OK || st == DTP_ERR_LIMIT);
        dtp_text_free(text);
    }
}

static void try_place(const dtp_topo *topo)
{
    const dtp_placement_req req = { .size = sizeof(req), .n_ranks = 2, .oversubscribe = 1,
                                    .gpus_per_rank = dtp_topo_count(topo, DTP_TOPO_GPU) / 2 };
    dtp_placement *placement = NULL;
    dtp_error err;
    const dtp_status st = dtp_placement_solve(topo, &req, &placement, &err);

    FUZZ_CHECK(st == DTP_OK || st == DTP_ERR_LIMIT);
    dtp_placement_free(placement);
}

static void try_xml(char *text, size_t bytes)
{
    const dtpi_topo_where where = { .a = &dtpi_malloc_allocator, .xml = text, .xml_bytes = bytes, .xml_path = "fuzz",
                                    .devices = true };
    dtp_error err = { 0 };
    dtp_topo *topo = dtpi_topo_new(&dtpi_malloc_allocator);
    dtpi_topo_build *build = topo ? dtpi_topo_build_new(topo) : NULL;

    FUZZ_CHECK(build);
    if (dtpi_topo_hwxml_ops.read(dtpi_topo_build_sink(build), &where, &err) >= 0 &&
        dtpi_topo_build_end(build, &err) >= 0) {
        try_render(topo);
        try_place(topo);
    } else {
        FUZZ_CHECK(err.status < 0 && err.text[0]);
    }
    dtpi_topo_build_free(build);
    dtp_topo_close(topo);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);

    try_values(text);
    try_xml(text, bytes);
    free(text);
    return 0;
}
