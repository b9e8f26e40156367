/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - what the floors above use of a group: lanes, the verdict word, node memory, bulk data.
 *
 * Lanes are ordered streams of control messages inside a group: every rank issues the same calls in
 * the same order on one lane, and lanes do not wait for each other.
 */
#ifndef DTPI_GROUP_H
#define DTPI_GROUP_H

#include <stdatomic.h>

#include <dtp/group.h>

#include "ctx/ctx.h"
#include "net/net.h"

enum {
    DTPI_LANE_USER = 0,         /* the public calls */
    DTPI_LANE_COLL = 1,         /* set-up of collectives */
    DTPI_LANE_CKPT = 2,         /* checkpoint saves */
    DTPI_LANE_DATA = 3,         /* addresses of the data path */
    DTPI_LANE_MAX = 15
};

dtp_ctx *dtpi_group_ctx(const dtp_group *group);
int dtpi_group_timeout_ms(const dtp_group *group);

/* FORKED, or PEER/ABORTED with the verdict's text when the group has failed; else OK. Cheap. */
dtp_status dtpi_group_check(dtp_group *group, dtp_error *err);

/*
 * 0 while the group is healthy; the agent sets it (in the node's memory file) as soon as a verdict is
 * known, and wakes futex waiters on it. Spin loops read it; then call dtpi_group_verdict(). Valid
 * until the group is closed.
 */
const _Atomic uint32_t *dtpi_group_verdict_word(const dtp_group *group);

/*
 * Looks whether the node's agent still lives, and sets the word if not; a system call or two. While
 * this rank dispatches that is seen anyway: spin loops call it every few milliseconds.
 */
void dtpi_group_poll(dtp_group *group);

/*
 * The verdict as a failure: waits (at most a second) for its text on this rank's socket.
 * Returns PEER or ABORTED.
 */
dtp_status dtpi_group_verdict(dtp_group *group, dtp_error *err);

/*
 * What a floor above keeps with a group; `destroy` is called once, when the group is closed, in a forked
 * child too. The slots are NULL at first.
 */
enum { DTPI_GUEST_COLL = 0, DTPI_GUEST_CKPT = 1, DTPI_N_GUESTS };
typedef struct dtpi_group_guest {
    void (*destroy)(struct dtpi_group_guest *guest);
} dtpi_group_guest;

dtpi_group_guest **dtpi_group_guest_slot(dtp_group *group, uint32_t guest);

/* Name of the job; lent. */
const char *dtpi_group_job(const dtp_group *group);

/* ---- where ranks are; nodes are numbered 0.. in order of their lowest rank ---- */

uint32_t dtpi_group_n_nodes(const dtp_group *group);
uint32_t dtpi_group_node(const dtp_group *group, int32_t rank);
/* Index of `rank` among the members of this group on its node, in rank order. */
uint32_t dtpi_group_index_on_node(const dtp_group *group, int32_t rank);
uint32_t dtpi_group_n_on_node(const dtp_group *group, uint32_t node);
/* Rank of member `index` on `node`. */
int32_t dtpi_group_rank_on_node(const dtp_group *group, uint32_t node, uint32_t index);

/* ---- control, as operations on a lane ---- */

/*
 * Result of an allgather, owned by the operation until dtp_op_free: pieces in rank order.
 */
typedef struct dtpi_gathered {
    const uint8_t *data;
    const size_t *sizes;        /* world size numbers */
    size_t bytes;
} dtpi_gathered;

/* The payload is copied before it returns. Errors at start: LIMIT, NOMEM, FORKED, PEER, ABORTED. */
dtp_status dtpi_group_allgather_start(dtp_group *group, uint32_t lane, const void *data,
                                      size_t bytes, int64_t deadline_ns, dtp_op **op_out,
                                      dtp_error *err);
/* Valid after the operation ended with OK. */
const dtpi_gathered *dtpi_group_gathered(const dtp_op *op);

/* Blocking form on a lane; `*op_out` holds the result and is freed with dtp_op_free. */
dtp_status dtpi_group_allgather_on(dtp_group *group, uint32_t lane, const void *data, size_t bytes,
                                   int64_t deadline_ns, dtp_op **op_out, dtp_error *err);
dtp_status dtpi_group_barrier_on(dtp_group *group, uint32_t lane, int64_t deadline_ns,
                                 dtp_error *err);

/* ---- memory shared by the members on one node ---- */

/*
 * A memory file of `bytes` zero bytes, the same one for all members of this group on this node that
 * ask with the same `tag` (collective among them; sizes must agree). The agent makes it (memfd, no
 * /dev/shm) and passes it. Caller maps and closes `*fd_out`. Errors: LIMIT, INVAL, NOMEM, as barrier.
 */
dtp_status dtpi_group_node_memory(dtp_group *group, uint32_t tag, size_t bytes,
                                  int64_t deadline_ns, int *fd_out, dtp_error *err);

/* ---- bulk data between ranks (data.c), over UCX ---- */

/* A transfer (net/net.h) is embedded in its owner and must stay until it is done. */

/*
 * Makes sure that this rank can send and receive: opens the network on first use and publishes its
 * address; collective over the group. Errors: UNSUPPORTED (no UCX module), as allgather.
 */
dtp_status dtpi_group_data_open(dtp_group *group, int64_t deadline_ns, dtp_error *err);

/*
 * Non-blocking, matched by (sender, tag) within the group, in order per tag; `tag` has 32 bits.
 * A receive must have exactly the size that is sent, else PROTO. End points are made on first use.
 */
dtp_status dtpi_group_send(dtp_group *group, int32_t to, uint32_t tag, const void *data, size_t bytes,
                           dtpi_xfer *x, dtp_error *err);
dtp_status dtpi_group_recv(dtp_group *group, int32_t from, uint32_t tag, void *data, size_t bytes,
                           dtpi_xfer *x, dtp_error *err);
/* Moves transfers without sleeping; true when something happened. */
bool dtpi_group_data_progress(dtp_group *group);
/*
 * Ends all transfers of the group now; when it returns, no buffer is in use any more. For calls that
 * give up (a verdict, a deadline); nothing can be sent in this group afterwards.
 */
void dtpi_group_data_cancel(dtp_group *group);
/* Text such as "tcp/veth0" of the lane to `rank`, for reports and tests; "" before the first use. */
void dtpi_group_data_lane(dtp_group *group, int32_t rank, char *text_out, size_t room);

#endif /* DTPI_GROUP_H */
