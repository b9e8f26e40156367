/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - how the ranks of a save talk: one operation, an allgather of bytes. A group behind it in
 * production, a barrier between threads in tests, nothing at all for one rank.
 */
#ifndef DTPI_CKPT_LINK_H
#define DTPI_CKPT_LINK_H

#include <stdatomic.h>

#include <dtp/group.h>

#include "base/buf.h"
#include "ctx/ctx.h"

typedef struct dtpi_link dtpi_link;

/* Lends what a rank sent. On a thread that runs the loop, while the one that gathers waits. */
typedef void (*dtpi_link_each)(void *user, int32_t rank, const void *data, size_t bytes);

struct dtpi_link {
    int32_t rank, size;
    uint64_t job;               /* sum of its name */
    uint32_t attempt, generation;
    size_t max_bytes;           /* of all ranks together, in one call of gather */
    /*
     * Every rank calls it in the same order, with as many bytes as it likes. `each` hears of every rank in
     * order, and needs no memory. A failure means that the ranks cannot talk any more.
     */
    dtp_status (*gather)(dtpi_link *link, const void *data, size_t bytes, dtpi_link_each each,
                         void *user, dtp_error *err);
};

/* A link of one rank. */
void dtpi_link_alone(dtpi_link *link);

/* Pieces in rank order. */
typedef struct dtpi_pieces {
    dtpi_buf data;
    size_t *at;                 /* size + 1 numbers */
    int32_t size;
} dtpi_pieces;

/*
 * Gathers any number of bytes, in as many rounds as the link's bound asks for. All ranks do the same
 * number of rounds whatever happens to one of them. Errors: the link's, NOMEM (only this rank's, which
 * heard nothing).
 */
dtp_status dtpi_link_exchange(const dtp_allocator *a, dtpi_link *link, const void *data,
                              size_t bytes, dtpi_pieces *out, dtp_error *err);

/*
 * Gathers `bytes` bytes of every rank, a number that all know. `each` may hear of a rank that sent
 * another number. Errors: the link's.
 */
dtp_status dtpi_link_notes(dtpi_link *link, const void *data, size_t bytes, dtpi_link_each each,
                           void *user, dtp_error *err);
void dtpi_pieces_free(const dtp_allocator *a, dtpi_pieces *p);

/* Over a group, on the lane of checkpoints; `timeout_ms` 0: the group's default. */
typedef struct dtpi_group_link {
    dtpi_link base;
    dtp_group *group;
    int32_t timeout_ms;
} dtpi_group_link;
void dtpi_link_group(dtpi_group_link *link, dtp_group *group, int32_t timeout_ms);

/*
 * The same for a thread that is not inside the context: whoever runs the loop makes the exchanges, this
 * thread where nobody does.
 */
typedef struct dtpi_loop_link {
    dtpi_link base;
    dtp_ctx *ctx;
    dtp_group *group;           /* NULL once it is closed; looked at inside the context */
    int32_t timeout_ms;
    dtpi_task task;
    const void *data;           /* of the exchange under way */
    size_t bytes;
    dtpi_link_each each;
    void *user;
    dtp_status status;
    dtp_error why;
    _Atomic bool is_done;
} dtpi_loop_link;
void dtpi_link_loop(dtpi_loop_link *link, dtp_group *group, int32_t timeout_ms);

#endif /* DTPI_CKPT_LINK_H */
