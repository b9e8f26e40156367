/* SPDX-License-Identifier: Apache-2.0 */
/* shared.h - what lies in the two memory files of a node: the control page and the table of ranks. */
#ifndef DTPI_GROUP_SHARED_H
#define DTPI_GROUP_SHARED_H

#include <stdatomic.h>

#include "group/frame.h"

enum { SHARED_MAGIC = 0x31707464, SHARED_PAGE_BYTES = 4096 };

/* Ranks may write it too: whoever sees the agent's end first tells the others on the node. */
struct control_page {
    _Atomic uint32_t word;      /* 0: healthy, else minus the verdict's status */
    uint32_t magic;
    _Atomic uint32_t n_waiting; /* newcomers, as the agent knows */
    char root[1024];            /* what carries or faces it is the network: root's addresses, or one met; "": one node */
};

struct shared_row {
    uint32_t node;
    uint32_t local_rank;
    int32_t pid;
    uint32_t reserved;
};

struct shared_node {
    int32_t host_rank;
    char host[DTPI_HOST_MAX + 4];
};

/* Followed by n_ranks rows and n_nodes nodes; sealed, read-only. */
struct shared_table {
    uint32_t magic;
    uint32_t version;
    uint32_t n_ranks;
    uint32_t n_nodes;
};

static_assert(sizeof(struct shared_row) <= 64, "at most 64 bytes a rank");

/* Sets the word if it is 0 and wakes all waiters on it. */
void dtpi_control_set(struct control_page *page, dtp_status status);

#endif /* DTPI_GROUP_SHARED_H */
