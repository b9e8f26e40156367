/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - how the table of ranks comes together: rows up, table down.
 *
 * A node's rows go up together, or what there is after a short while, so that the root can always say
 * exactly who is missing. Nodes are numbered by the root in order of their lowest rank.
 */
#include "group/core_internal.h"

#include <stdio.h>

#include "base/text.h"

#define FLUSH_AFTER_NS (20 * DTPI_NS_PER_MS)

/* ---- rows ---- */

static dtpi_node *node_of(dtpi_core *c, uint64_t id, uint32_t *index_out)
{
    for (uint32_t i = 0; i < c->n_nodes; i++)
        if (c->nodes[i].id == id) {
            *index_out = i;
            return &c->nodes[i];
        }
    if (c->n_nodes == c->cap_nodes) {
        const uint32_t cap = c->cap_nodes ? c->cap_nodes * 2 : 4;
        dtpi_node *p = dtpi_alloc_array(&c->a, cap, sizeof(*p));
        if (!p) {
            core_nomem(c);
            return NULL;
        }
        if (c->nodes)
            memcpy(p, c->nodes, c->n_nodes * sizeof(*p));
        dtpi_free(&c->a, c->nodes, c->cap_nodes * sizeof(*p));
        c->nodes = p;
        c->cap_nodes = cap;
    }
    *index_out = c->n_nodes;
    dtpi_node *n = &c->nodes[c->n_nodes++];
    memset(n, 0, sizeof(*n));
    n->id = id;
    return n;
}

static bool add_node(dtpi_core *c, uint64_t id, const char *host, int32_t host_rank,
                     uint32_t *index_out)
{
    dtpi_node *n = node_of(c, id, index_out);

    if (!n)
        return false;
    n->host_rank = host_rank;
    snprintf(n->host, sizeof(n->host), "%s", host);
    return true;
}

/* False: the rank is taken, and the group failed with words about it. */
static bool add_row(dtpi_core *c, int32_t rank, uint32_t node, uint32_t local_rank, int32_t pid,
                    int32_t via, uint32_t slot)
{
    struct core_row *row = &c->rows[rank];

    if (row->known) {
        core_decide(c, DTP_ERR_EXISTS, &rank, 1,
                    "rank %d of %u joined twice: pid %d (node %s) and pid %d (node %s)", rank,
                    c->o.world_size, row->pid, c->nodes[row->node].host, pid, c->nodes[node].host);
        return false;
    }
    *row = (struct core_row){ .node = node, .local_rank = local_rank, .pid = pid, .via = via, .slot = slot,
                       .known = true, .left = row->left };
    c->n_known++;
    return true;
}

/* ---- a rank joins ---- */

static void join_refused(dtpi_core *c, uint32_t slot, dtp_status status, const char *text)
{
    core_refuse(c, slot, status, "%s", text);
    /* Before the group stands, a contradiction means that somebody else will be missing: say it now. */
    if (!c->has_table && !c->has_verdict)
        core_decide(c, status, NULL, 0, "%s", text);
}

static bool check_join(dtpi_core *c, uint32_t slot, int32_t rank, uint32_t world)
{
    struct core_local *l = &c->locals[slot];
    char text[DTP_ERROR_TEXT];

    if (world != c->o.world_size) {
        snprintf(text, sizeof(text), "rank %d (node %s, pid %d) says world size %u, its agent says %u",
                 rank, c->host, l->pid, world, c->o.world_size);
        join_refused(c, slot, DTP_ERR_INVAL, text);
        return false;
    }
    if (rank != l->rank || rank < 0 || rank >= (int32_t)c->o.world_size) {
        core_refuse(c, slot, DTP_ERR_RANGE, "rank %d is outside a group of %u", rank,
                    c->o.world_size);
        return false;
    }
    if (c->rows[rank].known) {
        snprintf(text, sizeof(text), "rank %d of %u joined twice: pid %d and pid %d (node %s)", rank,
                 c->o.world_size, c->rows[rank].pid, l->pid, c->host);
        join_refused(c, slot, DTP_ERR_EXISTS, text);
        return false;
    }
    return true;
}

void core_on_join(dtpi_core *c, uint32_t slot, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    const uint32_t world = dtpi_rd_u32(&r);
    const uint32_t local_rank = dtpi_rd_u32(&r);
    const int32_t own_pid = (int32_t)dtpi_rd_u32(&r);
    uint32_t node;

    c->n_came++;
    if (!dtpi_rd_done(&r) || local_rank >= DTPI_WORLD_MAX) {
        core_refuse(c, slot, DTP_ERR_PROTO, "malformed join of rank %d", c->locals[slot].rank);
        return;
    }
    if (!check_join(c, slot, f->rank, world))
        return;
    if (c->has_verdict) {
        core_refuse(c, slot, c->verdict.status, "%s", c->verdict.text);
        return;
    }
    struct core_local *l = &c->locals[slot];
    if (!add_node(c, c->o.node_id, c->host, c->o.host_rank, &node) ||
        !add_row(c, f->rank, node, local_rank, l->pid ? l->pid : own_pid, DTPI_VIA_LOCAL, slot))
        return;
    l->joined = true;
    c->n_joined_local++;
    core_join_tick(c);
}

/* ---- rows up ---- */

/* Rows of one node that have not gone up yet. */
static void send_rows_of(dtpi_core *c, uint32_t node)
{
    const dtpi_node *n = &c->nodes[node];
    dtpi_buf rows = dtpi_buf_init(&c->a);
    uint32_t n_rows = 0;

    for (uint32_t i = 0; i < c->o.world_size; i++) {
        struct core_row *row = &c->rows[i];
        if (!row->known || row->sent || row->node != node)
            continue;
        row->sent = true;
        n_rows++;
        dtpi_wr_u32(&rows, i);
        dtpi_wr_u32(&rows, row->local_rank);
        dtpi_wr_u32(&rows, (uint32_t)row->pid);
    }
    if (n_rows > 0) {
        dtpi_buf b = core_begin(c, DTPI_F_ROWS, DTPI_WORLD_ID, 0, 0, -1);
        dtpi_wr_u64(&b, n->id);
        dtpi_wr_text(&b, n->host);
        dtpi_wr_u32(&b, (uint32_t)n->host_rank);
        dtpi_wr_u32(&b, c->o.world_size);
        dtpi_wr_u32(&b, n_rows);
        dtpi_buf_append(&b, rows.data, rows.len);
        b.failed |= rows.failed;
        core_to_parent(c, &b);
    }
    dtpi_buf_free(&rows);
}

static void send_own_rows(dtpi_core *c)
{
    for (uint32_t i = 0; c->has_parent && i < c->n_nodes; i++)
        if (c->nodes[i].id == c->o.node_id)
            send_rows_of(c, i);
    if (c->has_parent)
        c->n_rows_sent = c->n_joined_local;
}

void core_join_parent(dtpi_core *c)
{
    /* What children said while there was no parent. */
    for (uint32_t i = 0; !c->has_table && i < c->n_nodes; i++)
        if (c->nodes[i].id != c->o.node_id)
            send_rows_of(c, i);
    core_join_tick(c);
}

static bool read_rows(dtpi_core *c, uint32_t slot, dtpi_rd *r)
{
    char host[DTPI_HOST_MAX + 1];
    uint32_t node = 0;

    const uint64_t id = dtpi_rd_u64(r);
    dtpi_rd_text(r, host, sizeof(host));
    const int32_t host_rank = (int32_t)dtpi_rd_u32(r);
    const uint32_t world = dtpi_rd_u32(r);
    const uint32_t n = dtpi_rd_u32(r);
    if (r->failed || r->left / 12 != n || host_rank < -1 ||
        host_rank >= (int32_t)c->o.world_size || !dtpi_utf8_ok(host, strlen(host)))
        return false;
    if (world != c->o.world_size) {
        core_decide(c, DTP_ERR_INVAL, NULL, 0,
                    "node %s says world size %u, node %s says %u", host, world, c->host,
                    c->o.world_size);
        return true;
    }
    if (!add_node(c, id, host, host_rank, &node))
        return true;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t rank = dtpi_rd_u32(r);
        const uint32_t local_rank = dtpi_rd_u32(r);
        const int32_t pid = (int32_t)dtpi_rd_u32(r);
        if (rank >= c->o.world_size)
            return false;
        if (!add_row(c, (int32_t)rank, node, local_rank, pid, (int32_t)slot, 0))
            return true;
        c->rows[rank].sent = c->has_parent;
    }
    return dtpi_rd_done(r);
}

bool core_on_rows(dtpi_core *c, uint32_t slot, const dtpi_frame *f, const dtpi_in *in)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);

    if (c->has_table)
        return false;
    if (c->has_verdict)
        return true;
    if (!read_rows(c, slot, &r))
        return false;
    if (c->has_parent && !c->has_verdict) {
        DTPI_AUTO(msg) dtpi_msg *m = core_keep(c, in);
        if (m) {
            c->n_sent++;
            c->ops->to_parent(c->user, m);
        }
    }
    core_join_tick(c);
    return true;
}

/* ---- table down ---- */

/* Numbers the nodes in order of their lowest rank. */
static bool sort_nodes(dtpi_core *c)
{
    dtpi_node *sorted = dtpi_alloc_array(&c->a, c->n_nodes, sizeof(*sorted));
    uint32_t *number = dtpi_alloc_array(&c->a, c->n_nodes, sizeof(*number));
    uint32_t n = 0;
    const bool ok = sorted && number;

    for (uint32_t i = 0; ok && i < c->o.world_size; i++) {
        const uint32_t old = c->rows[i].node;
        if (number[old] == 0) {
            sorted[n] = c->nodes[old];
            number[old] = ++n;
        }
        c->rows[i].node = number[old] - 1;
    }
    if (ok)
        memcpy(c->nodes, sorted, n * sizeof(*sorted));
    dtpi_free(&c->a, sorted, c->n_nodes * sizeof(*sorted));
    dtpi_free(&c->a, number, c->n_nodes * sizeof(*number));
    c->n_nodes = ok ? n : c->n_nodes;
    return ok;
}

static void pass_table(dtpi_core *c, dtpi_msg *m)
{
    c->has_table = true;
    for (uint32_t i = 0; i < c->n_children; i++)
        if (c->children[i].used)
            core_send_child(c, i, m);
    if (!core_group_add(c, DTPI_WORLD_ID, NULL, c->o.world_size)) {
        core_nomem(c);
        return;
    }
    c->ops->table(c->user);
    /* Those who left or died in the meantime are told to the group that now exists. */
    for (uint32_t i = 0; i < c->n_locals && !c->has_verdict; i++)
        if (c->locals[i].joined && c->locals[i].left) {
            struct core_group *g = core_group_find(c, DTPI_WORLD_ID);
            const dtpi_frame f = { .type = DTPI_F_LEAVE, .group = DTPI_WORLD_ID,
                                   .rank = c->locals[i].rank };
            core_on_leave(c, core_source_of_local(g, i), g, &f);
        }
}

static void make_table(dtpi_core *c)
{
    if (!sort_nodes(c)) {
        core_nomem(c);
        return;
    }
    dtpi_buf b = core_begin(c, DTPI_F_TABLE, DTPI_WORLD_ID, 0, 0, -1);
    dtpi_wr_u32(&b, c->o.world_size);
    dtpi_wr_u32(&b, c->n_nodes);
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        dtpi_wr_u64(&b, c->nodes[i].id);
        dtpi_wr_u32(&b, (uint32_t)c->nodes[i].host_rank);
        dtpi_wr_text(&b, c->nodes[i].host);
    }
    for (uint32_t i = 0; i < c->o.world_size; i++) {
        dtpi_wr_u32(&b, c->rows[i].node);
        dtpi_wr_u32(&b, c->rows[i].local_rank);
        dtpi_wr_u32(&b, (uint32_t)c->rows[i].pid);
    }
    DTPI_AUTO(msg) dtpi_msg *m = core_msg(c, &b);
    if (m)
        pass_table(c, m);
}

/* Everything in range, nothing left over; the cursor is a copy. */
static bool table_fits(const dtpi_core *c, dtpi_rd r, uint32_t n_nodes)
{
    char host[DTPI_HOST_MAX + 1];

    for (uint32_t i = 0; i < n_nodes && !r.failed; i++) {
        dtpi_rd_u64(&r);
        const int32_t host_rank = (int32_t)dtpi_rd_u32(&r);
        dtpi_rd_text(&r, host, sizeof(host));
        if (host_rank < -1 || host_rank >= (int32_t)c->o.world_size)
            return false;
    }
    for (uint32_t i = 0; i < c->o.world_size && !r.failed; i++) {
        if (dtpi_rd_u32(&r) >= n_nodes)
            return false;
        dtpi_rd_u64(&r);
    }
    return dtpi_rd_done(&r);
}

static void apply_table(dtpi_core *c, dtpi_rd r, dtpi_node *nodes_take, uint32_t n_nodes)
{
    dtpi_free(&c->a, c->nodes, c->cap_nodes * sizeof(*c->nodes));
    c->nodes = nodes_take;
    c->n_nodes = c->cap_nodes = n_nodes;
    for (uint32_t i = 0; i < n_nodes; i++) {
        c->nodes[i].id = dtpi_rd_u64(&r);
        c->nodes[i].host_rank = (int32_t)dtpi_rd_u32(&r);
        dtpi_rd_text(&r, c->nodes[i].host, sizeof(c->nodes[i].host));
    }
    for (uint32_t i = 0; i < c->o.world_size; i++) {
        c->rows[i].node = dtpi_rd_u32(&r);
        c->rows[i].local_rank = dtpi_rd_u32(&r);
        c->rows[i].pid = (int32_t)dtpi_rd_u32(&r);
        c->rows[i].known = true;
    }
    c->n_known = c->o.world_size;
}

bool core_on_table(dtpi_core *c, const dtpi_frame *f, const dtpi_in *in)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    const uint32_t world = dtpi_rd_u32(&r);
    const uint32_t n_nodes = dtpi_rd_u32(&r);

    if (c->has_table || c->has_verdict)
        return true;
    if (world != c->o.world_size || n_nodes == 0 || n_nodes > world || !table_fits(c, r, n_nodes))
        return false;
    dtpi_node *nodes = dtpi_alloc_array(&c->a, n_nodes, sizeof(*nodes));
    if (!nodes) {
        core_nomem(c);
        return true;
    }
    apply_table(c, r, nodes, n_nodes);
    DTPI_AUTO(msg) dtpi_msg *m = core_keep(c, in);
    if (m)
        pass_table(c, m);
    return true;
}

/* ---- time ---- */

void core_join_expired(dtpi_core *c)
{
    if (c->has_table || c->has_verdict)
        return;
    if (c->o.is_root) {
        core_decide_missing(c);
        return;
    }
    if (c->has_parent) {
        send_own_rows(c);
        dtpi_buf b = core_begin(c, DTPI_F_EXPIRE, DTPI_WORLD_ID, 0, 0, -1);
        core_to_parent(c, &b);
    } else {
        core_decide(c, DTP_ERR_TIMEOUT, NULL, 0, "node %s did not reach the root agent%s%s", c->host,
                    c->parent_text[0] ? ": " : "", c->parent_text);
    }
}

void core_join_tick(dtpi_core *c)
{
    if (c->has_table || c->has_verdict)
        return;
    if (c->o.is_root && c->n_known == c->o.world_size) {
        make_table(c);
        return;
    }
    if (c->n_joined_local > c->n_rows_sent && !c->o.is_root) {
        if (c->flush_at_ns == INT64_MAX)
            c->flush_at_ns = c->now + FLUSH_AFTER_NS;
        if (c->has_parent && (c->n_joined_local >= c->o.n_local || c->now >= c->flush_at_ns)) {
            send_own_rows(c);
            c->flush_at_ns = INT64_MAX;
        } else if (c->now >= c->flush_at_ns) {
            c->flush_at_ns = c->now + FLUSH_AFTER_NS;
        }
    }
    if (c->now >= c->join_at_ns) {
        c->join_at_ns = INT64_MAX;
        core_join_expired(c);
    }
}
