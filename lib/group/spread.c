/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread.c - how the table of ranks goes from the root to everybody: in parts, passed on as they come.
 *
 * An agent keeps the messages themselves and reads rows where they lie (table.c). Nodes are numbered by
 * the root in order of their lowest rank.
 */
#include "group/core_internal.h"

/* ---- at the root ---- */

/* Of a node's place and record, without the name. */
enum { NODE_BYTES = 4 + 8 + 4 * 4 + 1 };

struct node_extent {
    uint32_t number;            /* new, plus 1 */
    uint32_t first_rank, n_ranks;
};

/* Numbers the nodes; `extent` and `order` have a place for each: by old number, and old by new. */
static uint32_t sort_nodes(dtpi_core *c, struct node_extent *extent, uint32_t *order)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->o.world_size; i++) {
        struct node_extent *e = &extent[c->rows[i].node];
        if (e->number == 0) {
            e->first_rank = i;
            order[n] = c->rows[i].node;
            e->number = ++n;
        }
        e->n_ranks++;
        c->rows[i].node = e->number - 1;
    }
    return n;
}

static void write_nodes(const dtpi_core *c, const struct node_extent *extent, const uint32_t *order,
                        uint32_t first, uint32_t n, dtpi_buf *b)
{
    uint32_t at = (uint32_t)b->len + n * (uint32_t)sizeof(uint32_t);

    for (uint32_t i = first; i < first + n; i++) {
        dtpi_wr_u32(b, at);
        at += NODE_BYTES - 4 + (uint32_t)strlen(c->nodes[order[i]].host);
    }
    for (uint32_t i = first; i < first + n; i++) {
        const dtpi_node *node = &c->nodes[order[i]];
        dtpi_wr_u64(b, node->id);
        dtpi_wr_u32(b, (uint32_t)node->host_rank);
        dtpi_wr_u32(b, extent[order[i]].first_rank);
        dtpi_wr_u32(b, extent[order[i]].n_ranks);
        dtpi_wr_text(b, node->host);
        dtpi_wr_u8(b, 0);
    }
}

static void write_rows(const dtpi_core *c, uint32_t first, uint32_t n, dtpi_buf *b)
{
    for (uint32_t i = first; i < first + n; i++) {
        dtpi_wr_u32(b, c->rows[i].node);
        dtpi_wr_u32(b, c->rows[i].local_rank);
        dtpi_wr_u32(b, (uint32_t)c->rows[i].pid);
        dtpi_wr_u32(b, 0);
    }
}

static void write_standbys(const dtpi_core *c, dtpi_buf *b)
{
    dtpi_wr_u32(b, c->n_standbys);
    for (uint32_t i = 0; i < c->n_standbys; i++) {
        dtpi_wr_u64(b, c->standbys[i].node);
        dtpi_wr_text(b, c->standbys[i].addresses);
    }
}

/* What is in a part. */
static void extent_of(const dtpi_core *c, uint32_t part, uint32_t *first_node, uint32_t *n_nodes,
                      uint32_t *first_rank, uint32_t *n_rows)
{
    const uint32_t row_part = core_first_row_part(c);

    *first_node = *n_nodes = *first_rank = *n_rows = 0;
    if (part < row_part || row_part == 0) {
        *first_node = DTPI_MIN(part * core_nodes_per_part(c), c->n_nodes);
        *n_nodes = DTPI_MIN(c->n_nodes - *first_node, core_nodes_per_part(c));
    }
    if (part >= row_part) {
        *first_rank = DTPI_MIN((part - row_part) * core_rows_per_part(c), c->o.world_size);
        *n_rows = DTPI_MIN(c->o.world_size - *first_rank, core_rows_per_part(c));
    }
}

static dtpi_msg *make_part(dtpi_core *c, const struct node_extent *extent, const uint32_t *order,
                           uint32_t part)
{
    const uint32_t n_all_nodes = c->n_nodes, world = c->o.world_size;
    uint32_t first_node, n_nodes, first_rank, n_rows;
    uint32_t rows_at = DTPI_FRAME_BYTES + CORE_PART_HEAD;

    extent_of(c, part, &first_node, &n_nodes, &first_rank, &n_rows);
    for (uint32_t i = first_node; i < first_node + n_nodes; i++)
        rows_at += NODE_BYTES + (uint32_t)strlen(c->nodes[order[i]].host);
    dtpi_buf b = core_begin(c, DTPI_F_TABLE, DTPI_WORLD_ID, 0, part, -1);
    dtpi_wr_u32(&b, world);
    dtpi_wr_u32(&b, n_all_nodes);
    dtpi_wr_u32(&b, c->n_parts);
    dtpi_wr_u32(&b, first_node);
    dtpi_wr_u32(&b, n_nodes);
    dtpi_wr_u32(&b, first_rank);
    dtpi_wr_u32(&b, n_rows);
    dtpi_wr_u32(&b, rows_at);
    write_nodes(c, extent, order, first_node, n_nodes, &b);
    write_rows(c, first_rank, n_rows, &b);
    if (part == 0)
        write_standbys(c, &b);
    return core_msg(c, &b);
}

/* How many parts the table is to have. */
static void choose_parts(const dtpi_core *c, uint32_t *n_node_parts_out, uint32_t *n_parts_out)
{
    const size_t row_bytes = (size_t)c->o.world_size * CORE_ROW_BYTES;
    size_t node_bytes = 0;

    for (uint32_t i = 0; i < c->n_nodes; i++)
        node_bytes += NODE_BYTES + strlen(c->nodes[i].host);
    *n_node_parts_out = 0;
    *n_parts_out = 1;
    if (row_bytes + node_bytes <= CORE_PART_BYTES)
        return;
    const size_t part = DTPI_MIN(DTPI_MAX((row_bytes + node_bytes) / CORE_PARTS, (size_t)CORE_PART_BYTES),
                                 (size_t)CORE_PART_MAX);
    *n_node_parts_out = (uint32_t)((node_bytes + part - 1) / part);
    *n_parts_out = *n_node_parts_out + (uint32_t)((row_bytes + part - 1) / part);
}

static bool make_room(dtpi_core *c, uint32_t n_node_parts, uint32_t n_parts)
{
    c->n_node_parts = n_node_parts;
    c->n_parts = n_parts;
    c->parts = dtpi_alloc_array(&c->a, c->n_parts, sizeof(dtpi_msg *));
    return c->parts;
}

static void free_gathered(dtpi_core *c, uint32_t n_rows)
{
    dtpi_free(&c->a, c->rows, n_rows * sizeof(*c->rows));
    dtpi_free(&c->a, c->nodes, c->cap_nodes * sizeof(*c->nodes));
    dtpi_free(&c->a, c->node_slots, 2 * (size_t)c->cap_nodes * sizeof(*c->node_slots));
    dtpi_free(&c->a, c->standbys, DTPI_STANDBYS * sizeof(*c->standbys));
    c->standbys = NULL;
    c->rows = NULL;
    c->nodes = NULL;
    c->node_slots = NULL;
    c->cap_nodes = 0;
}

/* ---- everywhere ---- */

static void to_children(dtpi_core *c, dtpi_msg *m)
{
    for (uint32_t i = 0; i < c->n_children; i++)
        if (c->children[i].used)
            core_send_child(c, i, m);
}

void core_send_table(dtpi_core *c, uint32_t slot)
{
    for (uint32_t i = 0; i < c->n_have; i++)
        core_send_child(c, slot, c->parts[i]);
}

/* The whole table is here. */
static void stand(dtpi_core *c)
{
    c->has_table = true;
    if (!core_group_add(c, DTPI_WORLD_ID, NULL, c->o.world_size)) {
        core_nomem(c);
        return;
    }
    c->ops->table(c->user);
    /* Those who left or died in the meantime are told to the group that now exists. */
    for (uint32_t i = 0; i < c->n_locals && !c->has_verdict; i++)
        if (c->locals[i].joined && c->locals[i].left) {
            struct core_group *g = core_group_find(c, DTPI_WORLD_ID);
            struct core_source *s = g ? core_source_of_local(g, i) : NULL;
            const dtpi_frame f = { .type = DTPI_F_LEAVE, .group = DTPI_WORLD_ID,
                                   .rank = c->locals[i].rank };
            if (s)
                core_on_leave(c, s, g, &f);
        }
}

void core_make_table(dtpi_core *c)
{
    const uint32_t n_old = c->n_nodes;
    struct node_extent *extent = dtpi_alloc_array(&c->a, n_old, sizeof(*extent));
    uint32_t *order = dtpi_alloc_array(&c->a, n_old, sizeof(*order));
    bool ok = extent && order;

    if (ok) {
        c->n_nodes = sort_nodes(c, extent, order);
        uint32_t n_node_parts, n_parts;
        choose_parts(c, &n_node_parts, &n_parts);
        ok = make_room(c, n_node_parts, n_parts);
    }
    for (uint32_t i = 0; ok && i < c->n_parts; i++) {
        c->parts[i] = make_part(c, extent, order, i);
        ok = c->parts[i];
        c->n_have += ok;
        if (ok)
            to_children(c, c->parts[i]);
    }
    dtpi_free(&c->a, extent, n_old * sizeof(*extent));
    dtpi_free(&c->a, order, n_old * sizeof(*order));
    if (!ok) {
        core_nomem(c);
        return;
    }
    free_gathered(c, c->o.world_size);
    stand(c);
}

/* What follows the rows of the first part. */
static bool read_standbys(dtpi_rd r, dtpi_standby out[DTPI_STANDBYS], uint32_t *n_out)
{
    *n_out = dtpi_rd_u32(&r);
    if (*n_out > DTPI_STANDBYS)
        return false;
    for (uint32_t i = 0; i < *n_out; i++) {
        out[i].node = dtpi_rd_u64(&r);
        dtpi_rd_text(&r, out[i].addresses, sizeof(out[i].addresses));
    }
    return dtpi_rd_done(&r);
}

/* The part that is due, of a table that fits; its nodes and rows are looked at when they are asked for. */
static bool part_fits(dtpi_core *c, const struct core_part *p, const dtpi_frame *f)
{
    const size_t rows_end = p->rows_at + (size_t)p->n_rows * CORE_ROW_BYTES;
    uint32_t first_node, n_nodes, first_rank, n_rows, n_standbys;
    dtpi_standby standbys[DTPI_STANDBYS];

    extent_of(c, f->seq, &first_node, &n_nodes, &first_rank, &n_rows);
    if (p->n_all_nodes != c->n_nodes || p->n_parts != c->n_parts || p->n_nodes != n_nodes ||
        p->n_rows != n_rows || p->first_node != first_node || p->first_rank != first_rank)
        return false;
    if (f->seq == 0)
        return read_standbys(dtpi_rd_init(f->body - DTPI_FRAME_BYTES + rows_end,
                                          p->bytes - rows_end), standbys, &n_standbys);
    return rows_end == p->bytes;
}

/* The first part says how many there are, and how many of them are of nodes. */
static bool begin_table(dtpi_core *c, const struct core_part *p)
{
    if (p->n_all_nodes == 0 || p->n_all_nodes > c->o.world_size || p->n_parts == 0 ||
        p->n_parts > c->o.world_size + 1 || p->n_nodes == 0 || p->n_nodes > p->n_all_nodes)
        return false;
    const uint32_t n_node_parts = (p->n_all_nodes + p->n_nodes - 1) / p->n_nodes;
    if (p->n_parts > 1 && n_node_parts >= p->n_parts)
        return false;
    c->n_nodes = p->n_all_nodes;
    if (!make_room(c, p->n_parts > 1 ? n_node_parts : 0, p->n_parts)) {
        c->n_nodes = 0;
        core_nomem(c);
    }
    return true;
}

bool core_on_table(dtpi_core *c, const dtpi_frame *f, const dtpi_in *in)
{
    struct core_part p;

    if (c->has_table || c->has_verdict)
        return true;
    if (c->o.is_root || f->seq != c->n_have)
        return false;
    dtpi_msg *m = core_keep(c, in);
    if (!m)
        return true;
    bool ok = core_part_read(m, &p) && p.world == c->o.world_size;
    if (ok && !c->parts)
        ok = begin_table(c, &p);
    ok = ok && (c->has_verdict || part_fits(c, &p, f));
    if (!ok || c->has_verdict) {
        dtpi_msg_unref(m);
        return ok;
    }
    c->parts[c->n_have++] = m;
    to_children(c, m);
    if (c->n_have == c->n_parts)
        stand(c);
    return true;
}

void core_table_free(dtpi_core *c)
{
    for (uint32_t i = 0; i < c->n_have; i++)
        dtpi_msg_unref(c->parts[i]);
    dtpi_free(&c->a, c->parts, c->n_parts * sizeof(dtpi_msg *));
    free_gathered(c, c->o.world_size);
}

uint32_t dtpi_core_standbys(const dtpi_core *c, dtpi_standby out[DTPI_STANDBYS])
{
    struct core_part p;
    uint32_t n;

    if (!c->has_table || !core_part_read(c->parts[0], &p))
        return 0;
    const size_t rows_end = p.rows_at + (size_t)p.n_rows * CORE_ROW_BYTES;
    return read_standbys(dtpi_rd_init(c->parts[0]->buf.data + rows_end, p.bytes - rows_end), out, &n)
               ? n : 0;
}
