/* SPDX-License-Identifier: Apache-2.0 */
/*
 * talk.h - the exchanges of a save, and what they agree on: a failure of one rank is everybody's.
 *
 * A rank that failed says so in its next note; then all tell their texts, and the lowest rank that failed
 * speaks for all. Nobody waits for a rank that gave up, and nobody needs memory to hear that one did.
 */
#ifndef DTPI_CKPT_TALK_H
#define DTPI_CKPT_TALK_H

#include "ckpt/link.h"
#include "ckpt/msg.h"

typedef struct dtpi_talk {
    const dtp_allocator *a;
    dtpi_link *link;
    dtp_error failure;          /* of this rank; status 0: none */
    dtp_error agreed;           /* of all; status 0: none */
    bool root_failed;           /* rank 0 said so */
} dtpi_talk;

static inline bool dtpi_talk_is_well(const dtpi_talk *t)
{
    return t->failure.status >= 0 && t->agreed.status >= 0;
}

/* This rank failed; the first failure counts. */
void dtpi_talk_fail(dtpi_talk *t, dtp_status st, const dtp_error *err);

/*
 * Everybody's note; `hear` is told those of ranks that are well, in order. Afterwards `agreed` is the same
 * everywhere. Errors: the ranks cannot talk any more.
 */
dtp_status dtpi_talk_note(dtpi_talk *t, dtpi_note *mine,
                          void (*hear)(void *user, int32_t rank, const dtpi_note *n), void *user,
                          dtp_error *err);

/* Everybody's bytes, of any number; no memory is this rank's failure. Errors: as above. */
dtp_status dtpi_talk_all(dtpi_talk *t, const dtpi_buf *mine, dtpi_pieces *out, dtp_error *err);

#endif /* DTPI_CKPT_TALK_H */
