/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - what an agent knows of the ranks and nodes of the world; the others ask here alone.
 */
#include "group/core_internal.h"

#include <stdio.h>

bool core_is_rank(const dtpi_core *c, int32_t rank)
{
    return rank >= 0 && rank < (int32_t)c->o.world_size;
}

bool core_is_known(const dtpi_core *c, int32_t rank)
{
    return c->rows[rank].known;
}

uint32_t core_node_of(const dtpi_core *c, int32_t rank)
{
    return c->rows[rank].known ? c->rows[rank].node : CORE_NO_NODE;
}

uint32_t core_local_rank_of(const dtpi_core *c, int32_t rank)
{
    return c->rows[rank].local_rank;
}

int32_t core_pid_of(const dtpi_core *c, int32_t rank)
{
    return c->rows[rank].pid;
}

int32_t core_child_of(const dtpi_core *c, int32_t rank)
{
    return c->rows[rank].via;
}

uint32_t core_slot_of(const dtpi_core *c, int32_t rank)
{
    return c->rows[rank].slot;
}

int32_t core_next_below(const dtpi_core *c, int32_t after)
{
    for (int32_t i = after + 1; i < (int32_t)c->o.world_size; i++)
        if (c->rows[i].via != DTPI_VIA_ABOVE)
            return i;
    return -1;
}

bool core_is_dead(const dtpi_core *c, int32_t rank)
{
    return c->rows[rank].dead;
}

void core_set_dead(dtpi_core *c, int32_t rank)
{
    c->rows[rank].dead = true;
}

bool core_has_left(const dtpi_core *c, int32_t rank)
{
    return c->rows[rank].left;
}

void core_set_left(dtpi_core *c, int32_t rank)
{
    c->rows[rank].left = true;
}

const char *core_node_host(const dtpi_core *c, uint32_t node)
{
    return node < c->n_nodes ? c->nodes[node].host : "?";
}

uint64_t core_node_id(const dtpi_core *c, uint32_t node)
{
    return node < c->n_nodes ? c->nodes[node].id : 0;
}

int32_t core_node_host_rank(const dtpi_core *c, uint32_t node)
{
    return node < c->n_nodes ? c->nodes[node].host_rank : -1;
}

/* ---- what can be asked from outside ---- */

uint32_t dtpi_core_n_nodes(const dtpi_core *c)
{
    return c->n_nodes;
}

bool dtpi_core_row(const dtpi_core *c, int32_t rank, dtpi_row *out)
{
    if (!core_is_rank(c, rank) || core_node_of(c, rank) == CORE_NO_NODE)
        return false;
    *out = (dtpi_row){ .node = core_node_of(c, rank), .local_rank = core_local_rank_of(c, rank),
                       .pid = core_pid_of(c, rank) };
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
