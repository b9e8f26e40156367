/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - what an agent knows of the ranks and nodes of the world; the others ask here alone.
 *
 * Before the table is there: its own subtree, and at the root every row. Then the rows are read where
 * they lie, in the messages that brought the table (spread.c), which all agents of a process share.
 */
#include "group/core_internal.h"

#include <stdio.h>

/* ---- the parts of the table ---- */

static uint32_t number_at(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

bool core_part_read(const dtpi_msg *m, struct core_part *out)
{
    dtpi_rd r = dtpi_rd_init(m->buf.data, m->buf.len);

    dtpi_rd_bytes(&r, DTPI_FRAME_BYTES);
    out->world = dtpi_rd_u32(&r);
    out->n_all_nodes = dtpi_rd_u32(&r);
    out->n_parts = dtpi_rd_u32(&r);
    out->first_node = dtpi_rd_u32(&r);
    out->n_nodes = dtpi_rd_u32(&r);
    out->first_rank = dtpi_rd_u32(&r);
    out->n_rows = dtpi_rd_u32(&r);
    out->rows_at = dtpi_rd_u32(&r);
    out->offsets = r.p;
    out->bytes = m->buf.len;
    return !r.failed && out->n_nodes <= r.left / sizeof(uint32_t) && out->rows_at <= out->bytes &&
           out->n_rows <= (out->bytes - out->rows_at) / CORE_ROW_BYTES;
}

uint32_t core_nodes_per_part(const dtpi_core *c)
{
    return c->n_node_parts ? (c->n_nodes + c->n_node_parts - 1) / c->n_node_parts : c->n_nodes;
}

uint32_t core_rows_per_part(const dtpi_core *c)
{
    const uint32_t n_parts = c->n_parts - c->n_node_parts;

    return (c->o.world_size + n_parts - 1) / n_parts;
}

uint32_t core_first_row_part(const dtpi_core *c)
{
    return c->n_node_parts;
}

/* The sixteen bytes of a rank's row; NULL before the table is there. */
static const uint8_t *row_of(const dtpi_core *c, int32_t rank)
{
    struct core_part p;

    if (!c->has_table || rank >= (int32_t)c->o.world_size)
        return NULL;
    const dtpi_msg *m = c->parts[core_first_row_part(c) + (uint32_t)rank / core_rows_per_part(c)];
    if (!core_part_read(m, &p))
        return NULL;
    return m->buf.data + p.rows_at + (size_t)((uint32_t)rank - p.first_rank) * CORE_ROW_BYTES;
}

/* A node's record, bounded. False where it is malformed. */
static bool node_of(const dtpi_core *c, uint32_t node, struct core_node *out)
{
    struct core_part p;
    size_t n;

    if (!c->has_table || node >= c->n_nodes)
        return false;
    const dtpi_msg *m = c->parts[node / core_nodes_per_part(c)];
    if (!core_part_read(m, &p) || node - p.first_node >= p.n_nodes)
        return false;
    const uint32_t at = number_at(p.offsets + (size_t)(node - p.first_node) * sizeof(uint32_t));
    if (at > m->buf.len)
        return false;
    dtpi_rd r = dtpi_rd_init(m->buf.data + at, m->buf.len - at);
    out->id = dtpi_rd_u64(&r);
    out->host_rank = (int32_t)dtpi_rd_u32(&r);
    out->first_rank = dtpi_rd_u32(&r);
    out->n_ranks = dtpi_rd_u32(&r);
    const uint8_t *host = dtpi_rd_block(&r, DTPI_HOST_MAX, &n);
    if (dtpi_rd_u8(&r) != 0 || r.failed || memchr(host, 0, n) || out->host_rank < -1 ||
        out->host_rank >= (int32_t)c->o.world_size)
        return false;
    out->host = (const char *)host;
    return true;
}

/* ---- ranks ---- */

bool core_is_rank(const dtpi_core *c, int32_t rank)
{
    return rank >= 0 && rank < (int32_t)core_limit(c);
}

bool core_is_known(const dtpi_core *c, int32_t rank)
{
    return c->has_table || (core_cell(&c->below, rank) & CORE_KNOWN);
}

uint32_t core_node_of(const dtpi_core *c, int32_t rank)
{
    const uint8_t *row = row_of(c, rank);

    if (row) {
        const uint32_t node = number_at(row);
        return node < c->n_nodes ? node : CORE_NO_NODE;
    }
    const struct core_row *extra = core_extra(c, rank);
    if (extra)
        return extra->node;
    return c->rows && c->rows[rank].is_there ? c->rows[rank].node : CORE_NO_NODE;
}

int32_t core_pid_of(const dtpi_core *c, int32_t rank)
{
    const uint8_t *row = row_of(c, rank);
    const uint32_t cell = core_cell(&c->below, rank);

    if (cell & CORE_LOCAL)
        return c->locals[cell & CORE_SLOT].pid;
    if (row)
        return (int32_t)number_at(row + 8);
    const struct core_row *extra = core_extra(c, rank);
    return extra ? extra->pid : c->rows ? c->rows[rank].pid : 0;
}

int32_t core_child_of(const dtpi_core *c, int32_t rank)
{
    const uint32_t cell = core_cell(&c->below, rank);

    if (!(cell & CORE_KNOWN))
        return DTPI_VIA_ABOVE;
    return cell & CORE_LOCAL ? DTPI_VIA_LOCAL : (int32_t)(cell & CORE_SLOT);
}

uint32_t core_slot_of(const dtpi_core *c, int32_t rank)
{
    return core_cell(&c->below, rank) & CORE_SLOT;
}

int32_t core_next_below(const dtpi_core *c, int32_t after)
{
    return core_next_cell(&c->below, after, CORE_KNOWN);
}

bool core_add_below(dtpi_core *c, int32_t rank, int32_t via, uint32_t slot)
{
    uint32_t *cell = core_cell_for(&c->below, rank);

    if (!cell) {
        core_nomem(c);
        return false;
    }
    c->n_below += !(*cell & CORE_KNOWN);
    *cell &= ~(uint32_t)(CORE_SLOT | CORE_LOCAL);
    *cell |= CORE_KNOWN | (via == DTPI_VIA_LOCAL ? CORE_LOCAL | slot : (uint32_t)via);
    return true;
}

void core_drop_below(dtpi_core *c, int32_t rank)
{
    uint32_t *cell = core_cell(&c->below, rank) ? core_cell_for(&c->below, rank) : NULL;

    if (!cell || !(*cell & CORE_KNOWN))
        return;
    *cell &= ~(uint32_t)(CORE_KNOWN | CORE_LOCAL | CORE_SLOT);
    c->n_below--;
}

static void set_flag(dtpi_core *c, int32_t rank, uint32_t flag)
{
    uint32_t *cell = core_cell_for(&c->below, rank);

    if (cell)
        *cell |= flag;
    else
        core_nomem(c);
}

bool core_is_dead(const dtpi_core *c, int32_t rank)
{
    return core_cell(&c->below, rank) & CORE_DEAD;
}

void core_set_dead(dtpi_core *c, int32_t rank)
{
    set_flag(c, rank, CORE_DEAD);
}

bool core_has_left(const dtpi_core *c, int32_t rank)
{
    return core_cell(&c->below, rank) & CORE_LEFT;
}

void core_set_left(dtpi_core *c, int32_t rank)
{
    set_flag(c, rank, CORE_LEFT);
}

/* ---- nodes ---- */

const char *core_node_host(const dtpi_core *c, uint32_t node)
{
    struct core_node n;

    if (node_of(c, node, &n))
        return n.host;
    return c->nodes && node < c->n_nodes ? c->nodes[node].host : "?";
}

uint64_t core_node_id(const dtpi_core *c, uint32_t node)
{
    struct core_node n;

    if (node_of(c, node, &n))
        return n.id;
    return c->nodes && node < c->n_nodes ? c->nodes[node].id : 0;
}

int32_t core_node_host_rank(const dtpi_core *c, uint32_t node)
{
    struct core_node n;

    if (node_of(c, node, &n))
        return n.host_rank;
    return c->nodes && node < c->n_nodes ? c->nodes[node].host_rank : -1;
}

uint32_t core_node_find(const dtpi_core *c, uint64_t id)
{
    for (uint32_t i = 0; i < c->n_nodes; i++)
        if (core_node_id(c, i) == id)
            return i;
    return CORE_NO_NODE;
}

bool core_ranks_of_node(const dtpi_core *c, uint32_t node, dtpi_buf *out)
{
    struct core_node n = { .n_ranks = c->o.world_size };
    uint32_t n_found = 0;

    if (c->has_table && !node_of(c, node, &n))
        return true;
    for (uint32_t i = n.first_rank; i < c->o.world_size && n_found < n.n_ranks; i++) {
        const int32_t rank = (int32_t)i;
        if (core_node_of(c, rank) != node)
            continue;
        n_found++;
        dtpi_buf_append(out, &rank, sizeof(rank));
    }
    for (int32_t rank = (int32_t)c->o.world_size; rank < (int32_t)core_limit(c); rank++)
        if (core_node_of(c, rank) == node)
            dtpi_buf_append(out, &rank, sizeof(rank));
    return !out->failed;
}

/* ---- what can be asked from outside ---- */

uint32_t dtpi_core_n_nodes(const dtpi_core *c)
{
    return c->n_nodes;
}

const uint8_t *dtpi_core_rows(const dtpi_core *c, uint32_t first, uint32_t *n_out)
{
    const uint8_t *row = core_is_rank(c, (int32_t)first) ? row_of(c, (int32_t)first) : NULL;

    *n_out = row ? DTPI_MIN(c->o.world_size - first, core_rows_per_part(c) - first % core_rows_per_part(c)) : 0;
    return row;
}

bool dtpi_core_row(const dtpi_core *c, int32_t rank, dtpi_row *out)
{
    const uint8_t *row = core_is_rank(c, rank) ? row_of(c, rank) : NULL;
    const struct core_row *extra = core_is_rank(c, rank) ? core_extra(c, rank) : NULL;

    if (extra)
        *out = (dtpi_row){ .node = extra->node, .local_rank = extra->local_rank, .pid = extra->pid };
    if (!row)
        return extra;
    *out = (dtpi_row){ .node = core_node_of(c, rank), .local_rank = number_at(row + 4),
                       .pid = (int32_t)number_at(row + 8) };
    return true;
}

bool dtpi_core_node(const dtpi_core *c, uint32_t node, dtpi_node *out)
{
    if (node >= c->n_nodes)
        return false;
    *out = (dtpi_node){ .id = core_node_id(c, node), .host_rank = core_node_host_rank(c, node) };
    snprintf(out->host, sizeof(out->host), "%s", core_node_host(c, node));
    return true;
}

bool dtpi_core_has_left(const dtpi_core *c, int32_t rank)
{
    return core_is_rank(c, rank) && core_has_left(c, rank);
}
