/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - how the rows of all ranks come to the root: a subtree's go up together.
 *
 * They go up as one message once the subtree is complete, or what there is after a short while, so that
 * the root can always say exactly who is missing.
 */
#include "group/core_internal.h"

#include <stdio.h>

#include "base/text.h"

/* How long rows wait for others: on a node whose ranks are not all there, and on the way up. */
#define FLUSH_AFTER_NS (20 * DTPI_NS_PER_MS)
#define PASS_AFTER_NS (1 * DTPI_NS_PER_MS)

/* ---- nodes and rows, at the root ---- */

static uint32_t hash_slot(const dtpi_core *c, uint64_t id)
{
    uint32_t at = (uint32_t)((id * 0x9e3779b97f4a7c15ull) >> 32) & (2 * c->cap_nodes - 1);

    while (c->node_slots[at] && c->nodes[c->node_slots[at] - 1].id != id)
        at = (at + 1) & (2 * c->cap_nodes - 1);
    return at;
}

/* Twice as many places as nodes; both are powers of two. */
static bool grow_nodes(dtpi_core *c)
{
    const uint32_t cap = c->cap_nodes ? c->cap_nodes * 2 : 4;
    dtpi_node *nodes = dtpi_alloc_array(&c->a, cap, sizeof(*nodes));
    uint32_t *slots = dtpi_alloc_array(&c->a, 2 * (size_t)cap, sizeof(*slots));

    if (!nodes || !slots) {
        dtpi_free(&c->a, nodes, cap * sizeof(*nodes));
        dtpi_free(&c->a, slots, 2 * (size_t)cap * sizeof(*slots));
        core_nomem(c);
        return false;
    }
    if (c->n_nodes)
        memcpy(nodes, c->nodes, c->n_nodes * sizeof(*nodes));
    dtpi_free(&c->a, c->nodes, c->cap_nodes * sizeof(*nodes));
    dtpi_free(&c->a, c->node_slots, 2 * (size_t)c->cap_nodes * sizeof(*slots));
    c->nodes = nodes;
    c->node_slots = slots;
    c->cap_nodes = cap;
    for (uint32_t i = 0; i < c->n_nodes; i++)
        slots[hash_slot(c, nodes[i].id)] = i + 1;
    return true;
}

bool core_has_rows_of(const dtpi_core *c, uint64_t node)
{
    return c->cap_nodes && c->node_slots[hash_slot(c, node)] != 0;
}

static bool add_node(dtpi_core *c, uint64_t id, const char *host, int32_t host_rank, uint32_t n_local,
                     uint32_t *index_out)
{
    if (c->n_nodes == c->cap_nodes && !grow_nodes(c))
        return false;
    uint32_t *slot = &c->node_slots[hash_slot(c, id)];
    if (*slot == 0)
        *slot = ++c->n_nodes;
    *index_out = *slot - 1;
    dtpi_node *n = &c->nodes[*index_out];
    n->id = id;
    n->host_rank = host_rank;
    n->n_local = n_local;
    snprintf(n->host, sizeof(n->host), "%s", host);
    return true;
}

/* False: the rank is taken, and the group failed with words about it. */
static bool add_row(dtpi_core *c, int32_t rank, uint32_t node, uint32_t local_rank, int32_t pid)
{
    struct core_row *row = &c->rows[rank];

    /* An agent that came again says its rows again. */
    if (row->is_there && row->node == node && row->pid == pid && row->local_rank == local_rank)
        return true;
    if (row->is_there) {
        core_decide(c, DTP_ERR_EXISTS, &rank, 1,
                    "rank %d of %u joined twice: pid %d (node %s) and pid %d (node %s)", rank,
                    c->o.world_size, row->pid, c->nodes[row->node].host, pid, c->nodes[node].host);
        return false;
    }
    *row = (struct core_row){ .node = node, .local_rank = local_rank, .pid = pid, .is_there = true };
    c->n_rows++;
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
    char text[DTP_ERROR_TEXT], pid[24] = "a process elsewhere";

    if (world != c->o.world_size) {
        snprintf(text, sizeof(text), "rank %d (node %s, pid %d) says world size %u, its agent says %u",
                 rank, c->host, l->pid, world, c->o.world_size);
        join_refused(c, slot, DTP_ERR_INVAL, text);
        return false;
    }
    if (rank != l->rank || !core_is_rank(c, rank)) {
        core_refuse(c, slot, DTP_ERR_RANGE, "rank %d is outside a group of %u", rank,
                    c->o.world_size);
        return false;
    }
    if (core_is_known(c, rank)) {
        if (core_pid_of(c, rank))
            snprintf(pid, sizeof(pid), "pid %d", core_pid_of(c, rank));
        snprintf(text, sizeof(text), "rank %d of %u joined twice: %s and pid %d (node %s)", rank,
                 c->o.world_size, pid, l->pid, c->host);
        join_refused(c, slot, DTP_ERR_EXISTS, text);
        return false;
    }
    return true;
}

static bool add_local(dtpi_core *c, uint32_t slot, int32_t rank, uint32_t local_rank, int32_t pid)
{
    struct core_local *l = &c->locals[slot];
    uint32_t node;

    l->pid = l->pid ? l->pid : pid;
    l->local_rank = local_rank;
    if (c->o.is_root && (!add_node(c, c->o.node_id, c->host, c->o.host_rank, c->o.n_local, &node) ||
                         !add_row(c, rank, node, local_rank, l->pid)))
        return false;
    return core_add_below(c, rank, DTPI_VIA_LOCAL, slot);
}

void core_on_join(dtpi_core *c, uint32_t slot, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    const uint32_t world = dtpi_rd_u32(&r);
    const uint32_t local_rank = dtpi_rd_u32(&r);
    const int32_t own_pid = (int32_t)dtpi_rd_u32(&r);
    const bool is_new = f->rank == DTP_RANK_NEW && c->locals[slot].rank == DTP_RANK_NEW;
    const uint64_t id = is_new ? dtpi_rd_u64(&r) : 0;

    c->n_came += !is_new;
    if (!dtpi_rd_done(&r) || local_rank >= DTPI_WORLD_MAX) {
        core_refuse(c, slot, DTP_ERR_PROTO, "malformed join of rank %d", c->locals[slot].rank);
        return;
    }
    if (is_new && world == c->o.world_size && !c->locals[slot].is_new) {
        core_newcomer_joins(c, slot, local_rank, own_pid, id);
        return;
    }
    if (!check_join(c, slot, f->rank, world))
        return;
    if (c->has_verdict) {
        core_refuse(c, slot, c->verdict.status, "%s", c->verdict.text);
        return;
    }
    if (!add_local(c, slot, f->rank, local_rank, own_pid))
        return;
    c->locals[slot].joined = true;
    c->n_joined_local++;
    core_join_tick(c);
}

/* ---- rows up ---- */

static bool is_complete(const dtpi_core *c)
{
    uint32_t n = 0;

    if (c->n_joined_local < c->o.n_local)
        return false;
    for (uint32_t i = 0; i < c->n_children; i++)
        n += c->children[i].used && c->children[i].has_all;
    return n + 1 >= c->o.n_children_plus_1;
}

/* The ranks of this node that have not gone up, as a record. */
static void own_record(dtpi_core *c, dtpi_buf *b)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n_locals; i++)
        n += c->locals[i].joined && !c->locals[i].sent;
    if (n == 0)
        return;
    c->n_up++;
    dtpi_wr_u64(b, c->o.node_id);
    dtpi_wr_text(b, c->host);
    dtpi_wr_u32(b, (uint32_t)c->o.host_rank);
    dtpi_wr_u32(b, c->o.n_local);
    dtpi_wr_u32(b, n);
    for (uint32_t i = 0; i < c->n_locals; i++) {
        struct core_local *l = &c->locals[i];
        if (!l->joined || l->sent)
            continue;
        l->sent = true;
        dtpi_wr_u32(b, (uint32_t)l->rank);
        dtpi_wr_u32(b, l->local_rank);
        dtpi_wr_u32(b, (uint32_t)l->pid);
    }
    c->n_rows_sent += n;
}

static void send_up(dtpi_core *c, bool complete)
{
    dtpi_buf b = core_begin(c, DTPI_F_ROWS, DTPI_WORLD_ID, 0, 0, -1);

    dtpi_wr_u32(&b, c->o.world_size);
    dtpi_wr_u8(&b, complete);
    dtpi_wr_u64(&b, c->o.node_id);
    dtpi_wr_text(&b, c->host);
    dtpi_wr_text(&b, c->addresses ? c->addresses : "");
    dtpi_wr_u32(&b, c->n_up);
    dtpi_buf_append(&b, c->up.data, c->up.len);
    b.failed |= c->up.failed;
    dtpi_buf_reset(&c->up);
    c->n_up = 0;
    core_to_parent(c, &b);
}

static void flush_rows(dtpi_core *c)
{
    const bool complete = is_complete(c);

    c->flush_at_ns = INT64_MAX;
    own_record(c, &c->up);
    if (c->n_up > 0 || (complete && !c->sent_complete))
        send_up(c, complete);
    c->sent_complete |= complete;
    if (complete)
        dtpi_buf_free(&c->up);
}

/* A node's record: the ranks behind `slot`. False: malformed, or the group has failed. */
static bool read_record(dtpi_core *c, uint32_t slot, dtpi_rd *r, bool *ok_out)
{
    char host[DTPI_HOST_MAX + 1];
    uint32_t node = 0;

    *ok_out = false;
    const uint64_t id = dtpi_rd_u64(r);
    dtpi_rd_text(r, host, sizeof(host));
    const int32_t host_rank = (int32_t)dtpi_rd_u32(r);
    const uint32_t n_local = dtpi_rd_u32(r);
    const uint32_t n = dtpi_rd_u32(r);
    if (r->failed || n == 0 || n > r->left / 12 || host_rank < -1 ||
        host_rank >= (int32_t)c->o.world_size || !dtpi_utf8_ok(host, strlen(host)))
        return false;
    if (c->o.is_root && !add_node(c, id, host, host_rank, n_local, &node))
        return *ok_out = true, false;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t rank = dtpi_rd_u32(r);
        const uint32_t local_rank = dtpi_rd_u32(r);
        const int32_t pid = (int32_t)dtpi_rd_u32(r);
        if (rank >= c->o.world_size)
            return false;
        if ((c->o.is_root && !add_row(c, (int32_t)rank, node, local_rank, pid)) ||
            !core_add_below(c, (int32_t)rank, (int32_t)slot, 0))
            return *ok_out = true, false;
    }
    return *ok_out = true;
}

/* False: malformed. The records begin where `*records_out` says. */
static bool read_head(dtpi_core *c, uint32_t slot, dtpi_rd *r, uint32_t *world_out, uint32_t *n_out,
                      char *addresses)
{
    struct core_child *child = &c->children[slot];

    *world_out = dtpi_rd_u32(r);
    child->has_all = dtpi_rd_u8(r) == 1;
    child->node = dtpi_rd_u64(r);
    dtpi_rd_text(r, child->host, sizeof(child->host));
    dtpi_rd_text(r, addresses, DTPI_ADDRESSES_MAX);
    *n_out = dtpi_rd_u32(r);
    return !r->failed && dtpi_utf8_ok(child->host, strlen(child->host)) &&
           dtpi_utf8_ok(addresses, strlen(addresses));
}

/* The first of the root's children that can be reached stand by. */
static void note_standby(dtpi_core *c, uint64_t node, const char *addresses)
{
    if (!c->o.is_root || !addresses[0] || c->n_standbys == DTPI_STANDBYS)
        return;
    for (uint32_t i = 0; i < c->n_standbys; i++)
        if (c->standbys[i].node == node)
            return;
    if (!c->standbys)
        c->standbys = dtpi_alloc_array(&c->a, DTPI_STANDBYS, sizeof(*c->standbys));
    if (!c->standbys)
        return;
    dtpi_standby *s = &c->standbys[c->n_standbys++];
    s->node = node;
    memcpy(s->addresses, addresses, sizeof(s->addresses));
}

bool core_on_rows(dtpi_core *c, uint32_t slot, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    char addresses[DTPI_ADDRESSES_MAX];
    uint32_t n, world;
    bool ok = true;

    if (c->has_table)
        return false;
    if (c->has_verdict)
        return true;
    if (!read_head(c, slot, &r, &world, &n, addresses))
        return false;
    if (world != c->o.world_size) {
        core_decide(c, DTP_ERR_INVAL, NULL, 0, "node %s says world size %u, node %s says %u",
                    c->children[slot].host, world, c->host, c->o.world_size);
        return true;
    }
    note_standby(c, c->children[slot].node, addresses);
    const uint8_t *records = r.p;
    const size_t bytes = r.left;
    for (uint32_t i = 0; i < n; i++)
        if (!read_record(c, slot, &r, &ok))
            return ok;
    if (!dtpi_rd_done(&r))
        return false;
    if (!c->o.is_root) {
        if (c->up.len + bytes > CORE_PART_BYTES && c->has_parent)
            send_up(c, false);
        dtpi_buf_append(&c->up, records, bytes);
        c->n_up += n;
    }
    core_join_tick(c);
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
    if (c->has_parent && !c->said_expired) {
        c->said_expired = true;         /* once is enough for the root to judge */
        flush_rows(c);
        dtpi_buf b = core_begin(c, DTPI_F_EXPIRE, DTPI_WORLD_ID, 0, 0, -1);
        core_to_parent(c, &b);
    } else if (!c->has_parent) {
        core_decide(c, DTP_ERR_TIMEOUT, NULL, 0, "node %s did not reach the root agent%s%s", c->host,
                    c->parent_text[0] ? ": " : "", c->parent_text);
    }
}

/* Those below come again by themselves, and say their rows again. */
static void drop_children(dtpi_core *c)
{
    for (uint32_t i = 0; i < c->n_children; i++) {
        if (!c->children[i].used)
            continue;
        c->children[i].used = false;
        for (int32_t r = core_next_below(c, -1); r >= 0; r = core_next_below(c, r))
            if (core_child_of(c, r) == (int32_t)i)
                core_drop_below(c, r);
        c->ops->drop_child(c->user, i);
    }
}

void core_join_again(dtpi_core *c)
{
    if (c->has_table || c->has_verdict)
        return;
    drop_children(c);
    for (uint32_t i = 0; i < c->n_locals; i++)
        c->locals[i].sent = false;
    dtpi_buf_free(&c->up);
    c->up = dtpi_buf_init(&c->a);
    c->n_up = c->n_rows_sent = 0;
    c->sent_complete = false;
    c->flush_at_ns = INT64_MAX;
}

/* Sends rows up where they are all there or have waited long enough; else says when that will be. */
static void pass_rows(dtpi_core *c)
{
    const bool has_own = c->n_joined_local > c->n_rows_sent;
    /* Where nobody knows how many children will come, own rows go at once and theirs a little later. */
    const bool ready = is_complete(c) && (c->o.n_children_plus_1 > 0 || c->n_up == 0);

    if (!has_own && c->n_up == 0 && !(is_complete(c) && !c->sent_complete))
        return;
    if (c->flush_at_ns == INT64_MAX) {
        const bool waits = c->n_joined_local < c->o.n_local || c->o.n_children_plus_1 > 1;
        c->flush_at_ns = c->now + (waits ? FLUSH_AFTER_NS : PASS_AFTER_NS);
    }
    if (c->has_parent && (ready || c->now >= c->flush_at_ns))
        flush_rows(c);
    else if (c->now >= c->flush_at_ns)
        c->flush_at_ns = c->now + FLUSH_AFTER_NS;
}

void core_join_tick(dtpi_core *c)
{
    if (c->has_table || c->has_verdict)
        return;
    if (c->o.is_root && c->n_rows == c->o.world_size &&
        c->n_below == c->o.world_size && !c->verdict_due) {
        core_make_table(c);
        return;
    }
    if (!c->o.is_root)
        pass_rows(c);
    if (c->now >= c->join_at_ns) {
        c->join_at_ns = INT64_MAX;
        core_join_expired(c);
    }
}
