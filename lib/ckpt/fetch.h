/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.h - stored chunks on their way to memory: read -> verify -> decode -> where they are wanted, many
 * at once. Neighbours in a file are read together.
 */
#ifndef DTPI_CKPT_FETCH_H
#define DTPI_CKPT_FETCH_H

#include <dtp/ckpt.h>

#include "ckpt/box.h"
#include "ckpt/load.h"

/* One chunk of a stored box. All it points to stays until the run is over. */
typedef struct dtpi_fetch_job {
    const dtpi_mf_tensor *tensor;
    const dtpi_mf_box *box;
    dtpi_file *file;
    const dtp_ckpt_tensor *want;        /* who gets it; NULL: it is only looked at */
    uint64_t chunk;
    uint64_t at;                /* of its stored bytes, in the file */
    uint32_t stored, plain;     /* bytes */
    uint8_t *direct;            /* where the whole of it goes; NULL: runs of it go to several places */
    bool is_part;               /* a piece of a plain chunk: goes to `direct` and is not compared */
} dtpi_fetch_job;

enum { DTPI_FETCH_JOBS = 1 << 16 };     /* in one run, that memory stays bounded */

/* Nothing but the struct is made before the first run. Errors: NOMEM. */
dtp_status dtpi_fetch_new(dtpi_load *l, dtpi_fetch **fetch_out, dtp_error *err);
void dtpi_fetch_free(dtpi_fetch *f);

/* Begins the walk over what a wanted tensor takes from a box; false: nothing. */
bool dtpi_fetch_walk(const dtpi_manifest *m, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                     const dtp_ckpt_tensor *want, dtpi_walk *w_out);

/*
 * Does all jobs, in whatever order; sorts them. `progress` (may be NULL) is told on this thread how many
 * stored bytes are done so far. Errors: CORRUPT (names file, tensor and chunk), those of `read`,
 * UNSUPPORTED (codec), NOMEM; of several the first in the order of the files.
 */
dtp_status dtpi_fetch_run(dtpi_fetch *f, dtpi_fetch_job *jobs, size_t n,
                          void (*progress)(void *user, uint64_t done), void *user, dtp_error *err);

/* Reads the whole chunk of one job to `out`, verified and decoded, on this thread. Errors: as dtpi_fetch_run. */
dtp_status dtpi_fetch_plain(dtpi_fetch *f, const dtpi_fetch_job *job, uint8_t *out, dtp_error *err);

/* The runs of a plain chunk to where the job wants them. */
void dtpi_fetch_scatter(const dtpi_fetch *f, const dtpi_fetch_job *job, const uint8_t *plain);

#endif /* DTPI_CKPT_FETCH_H */
