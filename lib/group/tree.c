/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c - the shape of the tree of agents, and how many children are best. */
#include "group/tree.h"

/*
 * What a step costs, in ns, on the slow side of what is met: a hop through a network and a sleeping
 * process, a message's handling, and a byte at 25 Gb/s. Only their proportions matter.
 */
enum { HOP_NS = 60000, MESSAGE_NS = 15000, PART_BYTES = 256 << 10 };
enum { ROW_BYTES = 16, NODE_BYTES = 48 };

/*
 * A gather and a broadcast cross `depth` levels, each a hop and a message for every child; the table
 * leaves the root once for every child, and the levels below pass its parts on meanwhile. So a large
 * table wants few children and a small one few levels.
 */
static uint64_t cost_ns(uint64_t world, uint32_t n_nodes, uint32_t radix)
{
    const uint64_t bytes = world * ROW_BYTES + (uint64_t)n_nodes * NODE_BYTES;
    const uint64_t n_parts = bytes / PART_BYTES + 1;
    const uint64_t depth = dtpi_tree_depth(n_nodes, radix);
    const uint64_t n_children = DTPI_MIN(radix, n_nodes - 1);
    const uint64_t part_ns = DTPI_MIN(bytes, (uint64_t)PART_BYTES) * 8 / 25 + MESSAGE_NS;

    return 2 * depth * (HOP_NS + n_children * MESSAGE_NS) +
           (n_parts + depth) * n_children * part_ns;
}

uint32_t dtpi_tree_radix(uint32_t world, uint32_t n_nodes)
{
    uint32_t best = DTPI_TREE_MIN_RADIX;

    if (n_nodes < 2)
        return DTPI_TREE_MAX_RADIX;
    for (uint32_t radix = DTPI_TREE_MIN_RADIX + 1; radix <= DTPI_TREE_MAX_RADIX; radix++)
        if (cost_ns(world, n_nodes, radix) < cost_ns(world, n_nodes, best))
            best = radix;
    return best;
}

uint32_t dtpi_tree_parent(uint32_t node, uint32_t radix)
{
    return (node - 1) / radix;
}

uint32_t dtpi_tree_n_children(uint32_t node, uint32_t n_nodes, uint32_t radix)
{
    const uint64_t first = (uint64_t)node * radix + 1;

    return first >= n_nodes ? 0 : (uint32_t)DTPI_MIN((uint64_t)radix, n_nodes - first);
}

uint32_t dtpi_tree_depth(uint32_t n_nodes, uint32_t radix)
{
    uint32_t depth = 0;

    for (uint32_t node = n_nodes ? n_nodes - 1 : 0; node > 0; node = dtpi_tree_parent(node, radix))
        depth++;
    return depth;
}
