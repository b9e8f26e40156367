/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coll.h - what a group keeps for its collectives: an engine, and the operations that wait for it.
 *
 * Calls of one group run one at a time, in the order in which they were started.
 */
#ifndef DTPI_COLL_COLL_H
#define DTPI_COLL_COLL_H

#include "coll/nodes.h"
#include "coll/shm.h"
#include "group/group.h"

typedef struct dtpi_coll_op dtpi_coll_op;

typedef struct dtpi_coll {
    dtpi_group_guest guest;
    dtp_group *group;
    dtp_ctx *ctx;
    int32_t *ranks;             /* of the members on this node */
    uint32_t n_local;
    void *map;                  /* NULL: a group of one */
    size_t map_bytes;
    dtpi_shm shm;
    dtpi_nodes *nodes;          /* NULL: all ranks are on one node */

    /* ops.c */
    dtpi_coll_op *head, **tail;
    dtpi_task task;
    bool is_posted;
    bool is_closed;             /* the posted task frees it */
    dtpi_timer timer;
    uint32_t n_polls;           /* since something moved */
} dtpi_coll;

/* The group's collectives, opened at the first call (collective). Errors: as dtpi_group_node_memory. */
dtp_status dtpi_coll_get(dtp_group *group, int64_t deadline_ns, dtpi_coll **coll_out, dtp_error *err);

/* begin, step and look of whichever engine the group has; give_up ends the call in progress. */
dtp_status dtpi_coll_begin(dtpi_coll *c, const dtpi_coll_call *call, dtp_error *err);
dtp_status dtpi_coll_step(dtpi_coll *c, dtp_error *err);
dtp_status dtpi_coll_look(dtpi_coll *c, dtpi_shm_wait *w, dtp_error *err);
/* A number that changes when the call in progress moves. */
uint64_t dtpi_coll_progress(const dtpi_coll *c);
void dtpi_coll_give_up(dtpi_coll *c, dtp_status status);
/* Puts the group's verdict in place of a failure that comes from it. */
dtp_status dtpi_coll_explain(dtpi_coll *c, dtp_status st, dtp_error *err);
/* A call in a group of one. */
void dtpi_coll_alone(const dtpi_coll_call *call);
/* Whether a call makes sense; before anything is begun. */
dtp_status dtpi_coll_check(const dtp_group *group, const dtpi_coll_call *call, dtp_error *err);

/* ---- ops.c ---- */

dtp_status dtpi_coll_start(dtpi_coll *c, const dtpi_coll_call *call, int timeout_ms, dtp_op **op_out,
                           dtp_error *err);
/* Ends all operations with CANCELED. */
void dtpi_coll_cancel_all(dtpi_coll *c);

#endif /* DTPI_COLL_COLL_H */
