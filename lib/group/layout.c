/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - where the members of a group are: nodes in order of their lowest rank. */
#include "group/group_internal.h"

int32_t group_world_rank(const dtp_group *group, int32_t rank)
{
    return group->members ? group->members[rank] : rank;
}

void layout_free(dtp_group *g)
{
    const dtp_allocator *a = dtpi_ctx_alloc(g->ctx);
    const size_t n = (size_t)g->size;

    dtpi_free(a, g->node, n * sizeof(uint32_t));
    dtpi_free(a, g->index, n * sizeof(uint32_t));
    dtpi_free(a, g->first, (n + 1) * sizeof(uint32_t));
    dtpi_free(a, g->by_node, n * sizeof(int32_t));
}

/* Numbers of the group's own nodes, and of members on them; `number` has a place for every node of the world. */
static void number_nodes(dtp_group *g, uint32_t *number)
{
    for (int32_t i = 0; i < g->size; i++) {
        const uint32_t world_node =
            g->session->table ? session_row(g->session, group_world_rank(g, i))->node : 0;
        if (number[world_node] == 0)
            number[world_node] = ++g->n_nodes;
        g->node[i] = number[world_node] - 1;
        g->index[i] = g->first[g->node[i] + 1]++;
    }
}

static void order_members(dtp_group *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        g->first[i + 1] += g->first[i];
    for (int32_t i = 0; i < g->size; i++)
        g->by_node[g->first[g->node[i]] + g->index[i]] = i;
}

dtp_status layout_make(dtp_group *g, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(g->ctx);
    const size_t n = (size_t)g->size;
    const size_t n_world_nodes = g->session->table ? g->session->table->n_nodes : 1;
    uint32_t *number = dtpi_alloc_array(a, n_world_nodes, sizeof(uint32_t));

    g->node = dtpi_alloc_array(a, n, sizeof(uint32_t));
    g->index = dtpi_alloc_array(a, n, sizeof(uint32_t));
    g->first = dtpi_alloc_array(a, n + 1, sizeof(uint32_t));
    g->by_node = dtpi_alloc_array(a, n, sizeof(int32_t));
    const bool ok = number && g->node && g->index && g->first && g->by_node;
    if (ok) {
        number_nodes(g, number);
        order_members(g);
    }
    dtpi_free(a, number, n_world_nodes * sizeof(uint32_t));
    return ok ? DTP_OK : dtpi_fail_nomem(err, n * sizeof(uint32_t));
}

uint32_t dtpi_group_n_nodes(const dtp_group *g)
{
    return g->n_nodes;
}

uint32_t dtpi_group_node(const dtp_group *g, int32_t rank)
{
    return g->node[rank];
}

uint32_t dtpi_group_index_on_node(const dtp_group *g, int32_t rank)
{
    return g->index[rank];
}

uint32_t dtpi_group_n_on_node(const dtp_group *g, uint32_t node)
{
    return g->first[node + 1] - g->first[node];
}

int32_t dtpi_group_rank_on_node(const dtp_group *g, uint32_t node, uint32_t index)
{
    return g->by_node[g->first[node] + index];
}
