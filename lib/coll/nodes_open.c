/* SPDX-License-Identifier: Apache-2.0 */
/* nodes_open.c - the plan of a group across nodes, made once; waiting and giving up. */
#include "coll/nodes_internal.h"

#include "base/text.h"

#include <stdio.h>

/* ---- the plan ---- */

static bool within_one_node(const dtpi_nodes *n, uint32_t first, uint32_t count)
{
    const uint32_t node = dtpi_group_node(n->group, (int32_t)first);

    for (uint32_t r = first + 1; r < first + count; r++)
        if (dtpi_group_node(n->group, (int32_t)r) != node)
            return false;
    return true;
}

/* Walks the tree, collects items and writes the program that puts them together. */
static void plan(dtpi_nodes *n, uint32_t first, uint32_t count)
{
    if (!within_one_node(n, first, count)) {
        const uint32_t left = dtpi_tree_split(count);
        plan(n, first, left);
        plan(n, first + left, count - left);
        n->program[n->n_steps++] = DTPI_COMBINE;
        return;
    }
    const uint32_t node = dtpi_group_node(n->group, (int32_t)first);
    n->items[n->n_items] = (dtpi_item){ first, count, node };
    if (node == n->node)
        n->n_steps += dtpi_tree_program(n->program + n->n_steps, first, count);
    else
        n->program[n->n_steps++] = n->world + (int32_t)n->n_items;
    n->n_items++;
}

static bool allocate(dtpi_nodes *n)
{
    const size_t world = (size_t)n->world, n_xfers = 2 * world + 2 * n->n_nodes;

    n->items = dtpi_alloc_array(n->allocator, world, sizeof(*n->items));
    n->program = dtpi_alloc_array(n->allocator, 2 * world, sizeof(*n->program));
    n->inputs = dtpi_alloc_array(n->allocator, 2 * world, sizeof(*n->inputs));
    n->reports = dtpi_alloc_array(n->allocator, n->n_nodes, sizeof(*n->reports));
    n->xfers = dtpi_alloc_array(n->allocator, n_xfers, sizeof(*n->xfers));
    n->peers = dtpi_alloc_array(n->allocator, n_xfers, sizeof(*n->peers));
    return n->items && n->program && n->inputs && n->reports && n->xfers && n->peers;
}

void dtpi_nodes_free(dtpi_nodes *n)
{
    if (!n)
        return;
    /* Of a call that was given up: they use our buffers and the memory of the node. */
    if (dtpi_nodes_in_flight(n))
        dtpi_group_data_cancel(n->group);
    const dtp_allocator *a = n->allocator;
    const size_t world = (size_t)n->world, n_xfers = 2 * world + 2 * n->n_nodes;
    dtpi_free(a, n->items, world * sizeof(*n->items));
    dtpi_free(a, n->program, 2 * world * sizeof(*n->program));
    dtpi_free(a, n->inputs, 2 * world * sizeof(*n->inputs));
    dtpi_free(a, n->reports, n->n_nodes * sizeof(*n->reports));
    dtpi_free(a, n->xfers, n_xfers * sizeof(*n->xfers));
    dtpi_free(a, n->peers, n_xfers * sizeof(*n->peers));
    dtpi_free(a, n->send, n->send_room);
    dtpi_free(a, n->recv, n->recv_room);
    dtpi_free(a, n, sizeof(*n));
}

dtp_status dtpi_nodes_open(dtp_group *group, dtpi_shm *shm, int64_t deadline_ns, dtpi_nodes **out,
                           dtp_error *err)
{
    if (dtp_group_size(group) > DTPI_NODES_MAX_RANKS)
        return dtpi_fail(err, DTP_ERR_LIMIT, "a group of %d ranks on several nodes: collectives reach %d",
                         dtp_group_size(group), DTPI_NODES_MAX_RANKS);
    const dtp_status st = dtpi_group_data_open(group, deadline_ns, err);
    if (st < 0)
        return st;
    const dtp_allocator *a = dtpi_ctx_alloc(dtpi_group_ctx(group));
    dtpi_nodes *n = dtpi_alloc(a, sizeof(*n));
    if (!n)
        return dtpi_fail_nomem(err, sizeof(*n));
    n->group = group;
    n->shm = shm;
    n->allocator = a;
    n->world = dtp_group_size(group);
    n->rank = dtp_group_rank(group);
    n->n_nodes = dtpi_group_n_nodes(group);
    n->node = dtpi_group_node(group, n->rank);
    if (!allocate(n)) {
        dtpi_nodes_free(n);
        return dtpi_fail_nomem(err, (size_t)n->world * sizeof(*n->xfers));
    }
    plan(n, 0, (uint32_t)n->world);
    *out = n;
    return DTP_OK;
}

/* ---- waiting ---- */

bool dtpi_nodes_in_flight(const dtpi_nodes *n)
{
    for (uint32_t i = n->n_settled; i < n->n_xfers; i++)
        if (!n->xfers[i].done)
            return true;
    return false;
}

uint64_t dtpi_nodes_progress(const dtpi_nodes *n)
{
    return n->moved;
}

void dtpi_nodes_give_up(dtpi_nodes *n, dtp_status status)
{
    n->state = NODES_IDLE;
    dtpi_shm_give_up(n->shm, status);
}

/* All of this node are where we are: it is the others that are waited for. */
static dtp_status fail_timeout(dtpi_nodes *n, const dtpi_shm_wait *w, dtp_error *err)
{
    char text[128], what[80];
    int32_t ranks[64] = { 0 };
    uint32_t n_ranks = 0;

    for (uint32_t i = n->n_settled; i < n->n_xfers && n_ranks < DTPI_ARRAY_LEN(ranks); i++)
        if (!n->xfers[i].done && (!n_ranks || ranks[n_ranks - 1] < n->peers[i]))
            ranks[n_ranks++] = n->peers[i];
    dtpi_format_ranks(ranks, n_ranks, text, sizeof(text));
    dtpi_coll_describe(n->shm->header, what, sizeof(what));
    return dtpi_fail_rank(err, DTP_ERR_TIMEOUT, n_ranks ? ranks[0] : -1,
                          "rank%s %s on other nodes not in %s after %d ms", n_ranks == 1 ? "" : "s", text,
                          what, w->timeout_ms);
}

dtp_status dtpi_nodes_look(dtpi_nodes *n, dtpi_shm_wait *w, int64_t now_ns, dtp_error *err)
{
    const bool is_late = w->started_ns && now_ns >= w->deadline_ns;

    if (is_late && n->n_settled < n->n_xfers) {
        const dtp_status st = fail_timeout(n, w, err);
        dtpi_nodes_give_up(n, st);
        return st;
    }
    const dtp_status st = dtpi_shm_look(n->shm, w, now_ns, err);
    if (st < 0)
        n->state = NODES_IDLE;
    return st;
}
