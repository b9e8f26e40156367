/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - ranks of one node that read the same chunks: each chunk is read, verified and decoded by one of
 * them, into a few slots of memory that all of them map.
 *
 * Nobody depends on the others. A rank that waits in vain, finds a slot taken, or is the only one that wants
 * a chunk reads it by itself.
 */
#ifndef DTPI_CKPT_SHARE_H
#define DTPI_CKPT_SHARE_H

#include "ckpt/fetch.h"

typedef struct dtpi_share dtpi_share;

enum { DTPI_SHARE_MAX_MEMBERS = 1024 };

/* Of the memory that `n` ranks map; it begins as zeros. 0: the chunks of `m` are too large for sharing. */
size_t dtpi_share_bytes(const dtpi_manifest *m, uint32_t n);

/*
 * `memory` stays the caller's and must outlive the share. A member that reads another step than the first
 * one shares nothing. Errors: NOMEM.
 */
dtp_status dtpi_share_new(const dtp_allocator *a, const dtpi_manifest *m, void *memory, uint32_t n,
                          uint32_t index, dtpi_share **share_out, dtp_error *err);
/* The others go on without. */
void dtpi_share_free(dtpi_share *s);

/* The job is worth sharing. */
bool dtpi_share_wants(const dtpi_share *s, const dtpi_fetch_job *job);

/* Does the jobs, all of which it wants, on this thread; sorts them. Errors: as dtpi_fetch_run. */
dtp_status dtpi_share_run(dtpi_share *s, dtpi_fetch *f, dtpi_fetch_job *jobs, size_t n, dtp_error *err);
/* This rank wants nothing for now. */
void dtpi_share_rest(dtpi_share *s);

#endif /* DTPI_CKPT_SHARE_H */
