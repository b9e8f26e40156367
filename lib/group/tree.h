/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h - the shape of the tree of agents where every agent knows its number: node 0 is the root, the
 * parent of node i is (i - 1) / radix. Pure.
 */
#ifndef DTPI_GROUP_TREE_H
#define DTPI_GROUP_TREE_H

#include "base/base.h"

enum { DTPI_TREE_MIN_RADIX = 4, DTPI_TREE_MAX_RADIX = 32 };

/* Children of an agent for a table of `world` ranks on `n_nodes` nodes: DTPI_TREE_MIN_RADIX .. DTPI_TREE_MAX_RADIX. */
uint32_t dtpi_tree_radix(uint32_t world, uint32_t n_nodes);
/* Of a node above 0. */
uint32_t dtpi_tree_parent(uint32_t node, uint32_t radix);
/* How many children `node` has; the first is node * radix + 1. */
uint32_t dtpi_tree_n_children(uint32_t node, uint32_t n_nodes, uint32_t radix);
/* Steps from the last node to the root: 0 for one node. */
uint32_t dtpi_tree_depth(uint32_t n_nodes, uint32_t radix);

#endif /* DTPI_GROUP_TREE_H */
