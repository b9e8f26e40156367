/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes.h - collectives of a group that spans nodes: shared memory on each, messages between them.
 */
#ifndef DTPI_COLL_NODES_H
#define DTPI_COLL_NODES_H

#include "coll/shm.h"
#include "group/group.h"

/* A line of the cache for each rank's result fits into what a member has for results. */
enum { DTPI_NODES_MAX_RANKS = DTPI_SHM_RESULT_BYTES / 64 };

typedef struct dtpi_nodes dtpi_nodes;

/* Opens the network; collective. `shm` is lent. Errors: as dtpi_group_data_open, LIMIT, NOMEM. */
dtp_status dtpi_nodes_open(dtp_group *group, dtpi_shm *shm, int64_t deadline_ns, dtpi_nodes **out,
                           dtp_error *err);
void dtpi_nodes_free(dtpi_nodes *n);

/* As the functions of shm.h. */
dtp_status dtpi_nodes_begin(dtpi_nodes *n, const dtpi_coll_call *call, dtp_error *err);
dtp_status dtpi_nodes_step(dtpi_nodes *n, dtp_error *err);
dtp_status dtpi_nodes_look(dtpi_nodes *n, dtpi_shm_wait *w, int64_t now_ns, dtp_error *err);
/* Whether transfers are waited for; else it is the ranks of this node. */
bool dtpi_nodes_in_flight(const dtpi_nodes *n);
uint64_t dtpi_nodes_progress(const dtpi_nodes *n);
void dtpi_nodes_give_up(dtpi_nodes *n, dtp_status status);

#endif /* DTPI_COLL_NODES_H */
