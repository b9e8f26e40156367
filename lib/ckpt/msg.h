/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msg.h - what ranks tell each other during a save: declaration, acknowledgement, verdict. Pure.
 *
 * Every message begins with how the sender fares, so that a failure of one rank is known to all.
 */
#ifndef DTPI_CKPT_MSG_H
#define DTPI_CKPT_MSG_H

#include "base/wire.h"
#include "ckpt/manifest.h"
#include "ckpt/plan.h"

enum { DTPI_MSG_VERSION = 2, DTPI_MSG_DECLARE = 1, DTPI_MSG_ACK = 2, DTPI_MSG_VERDICT = 3 };

/* Kind and how the sender fares (`failure->status` 0: well). */
void dtpi_msg_begin(dtpi_buf *b, uint8_t kind, const dtp_error *failure);
/* Errors: PROTO. */
dtp_status dtpi_msg_open(dtpi_rd *r, uint8_t kind, int32_t rank, dtp_error *failure_out,
                         dtp_error *err);

/* What must be the same on all ranks, and what rank 0 alone says. */
typedef struct dtpi_declare {
    uint64_t step;
    uint32_t chunk_bytes;
    uint8_t codec;
    uint64_t id;                /* of this save */
    uint64_t parent, parent_id; /* the step that what did not change is taken from; id 0: none */
    const uint8_t *meta;        /* lent */
    size_t meta_bytes;
} dtpi_declare;

/* How many boxes a declaration has, and numbers of their offsets and extents; 0 where it is broken. */
void dtpi_msg_measure(dtpi_rd r, size_t *n_boxes_out, size_t *n_numbers_out);

void dtpi_msg_put_declare(dtpi_buf *b, const dtpi_declare *d, const dtp_ckpt_tensor *tensors,
                          size_t n);
/*
 * Reads a declaration and adds its tensors to the plan. Errors: PROTO, NOMEM, and what dtpi_plan_check
 * finds.
 */
dtp_status dtpi_msg_get_declare(dtpi_rd *r, int32_t rank, dtpi_declare *d_out, dtpi_plan *plan,
                                dtp_error *err);

/* What a rank wrote: a shard and its part; 0 bytes: none. */
typedef struct dtpi_written {
    uint64_t bytes, header_bytes, header_sum, digest;
    uint64_t part_bytes, part_sum;
    uint16_t lineage;           /* bits of the steps after the parent's that the part refers to */
} dtpi_written;

void dtpi_msg_put_written(dtpi_buf *b, const dtpi_written *w);
dtp_status dtpi_msg_get_written(dtpi_rd *r, int32_t rank, dtpi_written *w, dtp_error *err);

#endif /* DTPI_CKPT_MSG_H */
