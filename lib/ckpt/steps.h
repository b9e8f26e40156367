/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h - the steps under a folder: their names, and which are complete. */
#ifndef DTPI_CKPT_STEPS_H
#define DTPI_CKPT_STEPS_H

#include "ckpt/manifest.h"
#include "files/files.h"

#define DTPI_MANIFEST_NAME "manifest.json"

/* The caller named a folder. Errors: INVAL. */
dtp_status dtpi_ckpt_check_dir(const char *dir, dtp_error *err);

/* DIR/step-00000000000000000042 */
dtp_status dtpi_step_path(char path_out[DTPI_PATH_MAX], const char *dir, uint64_t step,
                          dtp_error *err);

/* The number of a step folder's name; exactly 20 digits. */
bool dtpi_step_parse(const char *name, uint64_t *step_out);

/* Numbers of all step folders under `dir`, ascending, as uint64_t in `out`. Errors: NOT_FOUND, IO. */
dtp_status dtpi_steps_list(dtpi_files *files, const char *dir, dtpi_buf *out, dtp_error *err);

/*
 * Reads the manifest of a step and looks at the size of its files. Errors: NOT_FOUND (no manifest),
 * TRUNCATED or NOT_FOUND (a shard), and dtpi_manifest_read's.
 */
dtp_status dtpi_step_read(dtpi_files *files, const char *dir, uint64_t step, dtpi_manifest *m_out,
                          dtp_error *err);
dtp_status dtpi_step_check(dtpi_files *files, const char *dir, uint64_t step, dtp_error *err);

/* The status says that the step itself is not whole, not that it could not be looked at. */
bool dtpi_step_is_damaged(dtp_status st);

/*
 * Newest step that dtpi_step_check likes; what it passes over is logged. Errors: NOT_FOUND; where there
 * is none, but a step could not be looked at, what stood in the way (IO, PERM, LIMIT, VERSION).
 */
dtp_status dtpi_steps_latest(dtpi_files *files, const dtpi_log *log, const char *dir,
                             uint64_t *step_out, dtp_error *err);

/* How steps are looked at, newest first, until one is liked. */
typedef struct dtpi_looking {
    const dtpi_log *log;        /* hears of what is passed over; NULL: nobody */
    /* After dtpi_step_check liked it; NULL: that is enough. */
    dtp_status (*check)(dtpi_files *files, const char *dir, uint64_t step, dtp_error *err);
    /* Told of each step passed over, and why; NULL: nobody. */
    void (*report)(void *user, uint64_t step, dtp_status status, const char *text);
    void *user;
} dtpi_looking;

/* Errors: as dtpi_steps_latest. */
dtp_status dtpi_steps_look(dtpi_files *files, const dtpi_looking *l, const char *dir,
                           uint64_t *step_out, dtp_error *err);

/*
 * The newest step below `step` that dtpi_step_check likes; what it passes over is logged. Errors: NOT_FOUND,
 * LIMIT, IO, NOMEM.
 */
dtp_status dtpi_steps_before(dtpi_files *files, const dtpi_log *log, const char *dir, uint64_t step,
                             dtpi_manifest *m_out, dtp_error *err);

#endif /* DTPI_CKPT_STEPS_H */
