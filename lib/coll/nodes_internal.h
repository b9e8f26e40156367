/* SPDX-License-Identifier: Apache-2.0 */
/* nodes_internal.h - the state of collectives across nodes. */
#ifndef DTPI_COLL_NODES_INTERNAL_H
#define DTPI_COLL_NODES_INTERNAL_H

#include "coll/nodes.h"

/* A largest subtree of the order of additions that lies within one node. */
typedef struct dtpi_item {
    uint32_t first, n;          /* ranks */
    uint32_t node;
} dtpi_item;

/* What a node says of its ranks' calls: the first rank's, and the first other one (rank -1: none). */
typedef struct dtpi_report {
    int32_t rank[2];
    uint64_t header[2][2];
} dtpi_report;

struct dtpi_nodes {
    dtp_group *group;
    dtpi_shm *shm;
    const dtp_allocator *allocator;
    int32_t world, rank;
    uint32_t n_nodes, node;

    dtpi_item *items;
    uint32_t n_items;
    int32_t *program;           /* inputs: ranks of this node, then world + item of the others */
    uint32_t n_steps;
    dtpi_input *inputs;
    dtpi_report *reports;       /* by node */
    dtpi_xfer *xfers;
    int32_t *peers;             /* by transfer */
    uint32_t n_xfers, n_settled;
    uint8_t *send, *recv;
    size_t send_room, recv_room;

    /* the call in progress */
    enum {
        NODES_IDLE, NODES_OPENED, NODES_REPORTS, NODES_COPIED, NODES_READ, NODES_ITEMS, NODES_RESULTS,
        NODES_OUT, NODES_NEXT, NODES_DONE
    } state;
    dtpi_coll_call call;
    dtpi_reduction reduction;
    size_t elem_bytes;
    size_t chunk;               /* elements of a round */
    size_t at, count;           /* of this round */
    uint64_t phase;
    uint64_t moved;
};

#endif /* DTPI_COLL_NODES_INTERNAL_H */
