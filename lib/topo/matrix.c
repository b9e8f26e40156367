/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matrix.c - the table of `nvidia-smi topo -m`: GPUs and NICs, how they reach each other, and what is
 * near. A machine without GPUs lists NICs and NVMe disks. Cells end in tabs, and no colours are used.
 */
#include <stdio.h>

#include "base/buf.h"
#include "topo/topo.h"

enum { MAX_ROWS = 512, CELL = 7 };

typedef struct table {
    const dtp_topo *topo;
    dtpi_buf out;
    uint32_t rows[MAX_ROWS];    /* object indices */
    char names[MAX_ROWS][16];   /* "GPU0", "NIC3" */
    uint32_t n;
    int cpus_width;
    bool unknown_path;
} table;

static dtp_status add_rows(table *t, dtp_topo_type type, const char *word, dtp_error *err)
{
    const uint32_t n = dtp_topo_count(t->topo, type);

    if (n > MAX_ROWS - t->n)
        return dtpi_fail(err, DTP_ERR_LIMIT, "more than %d devices make no matrix", (int)MAX_ROWS);
    for (uint32_t i = 0; i < n; i++) {
        t->rows[t->n] = t->topo->sorted[t->topo->first[type] + i];
        snprintf(t->names[t->n++], sizeof(t->names[0]), "%s%u", word, i);
    }
    return DTP_OK;
}

static void cell_text(table *t, uint32_t a, uint32_t b, char *text_out, size_t room)
{
    static const char *const words[] = { "?", " X ", "NV", "PIX", "PXB", "PHB", "NODE", "SYS" };
    dtp_topo_path path = DTP_PATH_UNKNOWN;
    uint32_t n_links = 0;

    dtp_topo_path_between(t->topo, a, b, &path, &n_links, NULL);
    t->unknown_path |= path == DTP_PATH_UNKNOWN;
    if (path == DTP_PATH_NVLINK)
        snprintf(text_out, room, "NV%u", n_links);
    else
        snprintf(text_out, room, "%s", words[path]);
}

static const char *cpus_of(const dtp_topo_obj *obj)
{
    return obj->cpus ? obj->cpus : "N/A";
}

static void put_row(table *t, uint32_t row)
{
    const dtp_topo_obj *obj = &t->topo->objs[t->rows[row]];
    char numa[24] = "N/A";

    dtpi_buf_printf(&t->out, "%-*s\t", CELL, t->names[row]);
    for (uint32_t k = 0; k < t->n; k++) {
        char cell[16];
        cell_text(t, t->rows[row], t->rows[k], cell, sizeof(cell));
        dtpi_buf_printf(&t->out, "%-*s\t", CELL, cell);
    }
    if (obj->numa != DTP_UNKNOWN)
        snprintf(numa, sizeof(numa), "%lld", (long long)obj->numa);
    dtpi_buf_printf(&t->out, "%-*s\t%s\n", t->cpus_width, cpus_of(obj), numa);
}

static void put_table(table *t)
{
    t->cpus_width = (int)strlen("CPU Affinity");
    for (uint32_t i = 0; i < t->n; i++)
        t->cpus_width = DTPI_MAX(t->cpus_width, (int)strlen(cpus_of(&t->topo->objs[t->rows[i]])));
    dtpi_buf_printf(&t->out, "%-*s\t", CELL, "");
    for (uint32_t i = 0; i < t->n; i++)
        dtpi_buf_printf(&t->out, "%-*s\t", CELL, t->names[i]);
    dtpi_buf_printf(&t->out, "%-*s\tNUMA Affinity\n", t->cpus_width, "CPU Affinity");
    for (uint32_t i = 0; i < t->n; i++)
        put_row(t, i);
}

static void put_legend(table *t)
{
    dtpi_buf_printf(&t->out,
                    "\nLegend:\n\n"
                    "  X    = Self\n"
                    "  SYS  = between NUMA nodes\n"
                    "  NODE = between host bridges of one NUMA node\n"
                    "  PHB  = through one host bridge\n"
                    "  PXB  = through several PCIe switches\n"
                    "  PIX  = through at most one PCIe switch\n"
                    "  NV#  = through # NVLinks\n");
    if (t->unknown_path)
        dtpi_buf_printf(&t->out, "  ?    = not known\n");
    for (uint32_t i = 0; i < t->n; i++) {
        const dtp_topo_obj *obj = &t->topo->objs[t->rows[i]];
        char label[300];
        if (obj->type == DTP_TOPO_GPU)
            continue;
        if (i == 0 || t->topo->objs[t->rows[i - 1]].type != obj->type)
            dtpi_buf_printf(&t->out, "\n%s Legend:\n\n",
                            obj->type == DTP_TOPO_NIC ? "NIC" : "NVMe");
        dtpi_topo_label(obj, label, sizeof(label));
        dtpi_buf_printf(&t->out, "  %s: %s\n", t->names[i], label);
    }
}

dtp_status dtpi_topo_render_matrix(const dtp_topo *topo, char **text_out, dtp_error *err)
{
    table t = { .topo = topo, .out = dtpi_buf_init(&dtpi_malloc_allocator) };
    dtp_status st = add_rows(&t, DTP_TOPO_GPU, "GPU", err);

    if (st >= 0)
        st = add_rows(&t, DTP_TOPO_NIC, "NIC", err);
    if (st >= 0 && !dtp_topo_count(topo, DTP_TOPO_GPU))
        st = add_rows(&t, DTP_TOPO_NVME, "NVME", err);
    if (st < 0)
        return st;
    if (t.n) {
        put_table(&t);
        put_legend(&t);
    } else {
        dtpi_buf_printf(&t.out, "no GPUs, NICs or NVMe disks\n");
    }
    char *text =
        t.out.failed ? NULL : dtpi_text_ndup(&dtpi_malloc_allocator, (char *)t.out.data, t.out.len);
    dtpi_buf_free(&t.out);
    if (!text)
        return dtpi_fail_nomem(err, 0);
    *text_out = text;
    return DTP_OK;
}
