/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msg.h - what ranks tell each other during a save. Pure.
 *
 * Each exchange is a note of fixed size from every rank, which begins with how the sender fares. Only where
 * a rank fails do texts follow, and only where a plan is new the lists of boxes: a save like the one before
 * costs three notes.
 */
#ifndef DTPI_CKPT_MSG_H
#define DTPI_CKPT_MSG_H

#include "base/wire.h"
#include "ckpt/manifest.h"
#include "ckpt/plan.h"

enum {
    DTPI_MSG_VERSION = 3,
    DTPI_NOTE_DECLARE = 1,
    DTPI_NOTE_ACK = 2,
    DTPI_NOTE_VERDICT = 3,
    DTPI_NOTE_WORDS = 7,
    DTPI_NOTE_BYTES = 64        /* of a verdict 8 */
};

typedef struct dtpi_note {
    uint8_t kind;
    uint16_t bits;              /* of an acknowledgement: steps after the parent's that the part refers to */
    int32_t status;             /* of the sender; below 0: the words say nothing */
    uint64_t words[DTPI_NOTE_WORDS];
} dtpi_note;

/* Words of a declaration; the last three are rank 0's to say. */
enum { DTPI_SAYS_STEP, DTPI_SAYS_CODING, DTPI_SAYS_BOXES, DTPI_SAYS_PLAN, DTPI_SAYS_ID,
       DTPI_SAYS_PARENT, DTPI_SAYS_PARENT_ID };

size_t dtpi_note_bytes(uint8_t kind);
void dtpi_note_write(const dtpi_note *n, uint8_t out[DTPI_NOTE_BYTES]);
/* Errors: VERSION, PROTO. */
dtp_status dtpi_note_read(const void *data, size_t bytes, uint8_t kind, int32_t rank,
                          dtpi_note *note_out, dtp_error *err);

/* What a rank wrote: a shard and its part; 0 bytes: none. */
typedef struct dtpi_written {
    uint64_t bytes, header_bytes, header_sum, digest;
    uint64_t part_bytes, part_sum;
    uint16_t lineage;           /* bits of the steps after the parent's that the part refers to */
} dtpi_written;

/* An acknowledgement carries the plan's hash, too. */
void dtpi_note_put_written(dtpi_note *n, const dtpi_written *w, uint64_t plan_hash);
/* Errors: PROTO (another plan). */
dtp_status dtpi_note_get_written(const dtpi_note *n, int32_t rank, uint64_t plan_hash,
                                 dtpi_written *w_out, dtp_error *err);

/* The text of a failure, for all. Errors: PROTO. */
void dtpi_msg_put_failure(dtpi_buf *b, const dtp_error *failure);
dtp_status dtpi_msg_get_failure(dtpi_rd *r, int32_t rank, dtp_error *failure_out, dtp_error *err);

/* The boxes that a rank has. */
void dtpi_msg_put_boxes(dtpi_buf *b, const dtp_ckpt_tensor *tensors, size_t n);
/* How many boxes and numbers dtpi_msg_get_boxes would add to a plan; nothing where it would fail. */
void dtpi_msg_measure(dtpi_rd r, size_t *n_boxes_out, size_t *n_numbers_out);
/* Reads them into the plan. Errors: VERSION, PROTO, NOMEM, and what dtpi_plan_check finds. */
dtp_status dtpi_msg_get_boxes(dtpi_rd *r, int32_t rank, dtpi_plan *plan, dtp_error *err);

#endif /* DTPI_CKPT_MSG_H */
