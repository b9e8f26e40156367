/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h - the steps under a folder: their names, which are complete, which go. */
#ifndef DTPI_CKPT_STEPS_H
#define DTPI_CKPT_STEPS_H

#include "ckpt/manifest.h"
#include "files/files.h"

#define DTPI_MANIFEST_NAME "manifest.json"

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

/*
 * Removes the files of saves from a step folder: the manifest first, durably, then the rest. Other
 * files stay, and with them the folder.
 */
dtp_status dtpi_step_clean(dtpi_files *files, const char *step_dir, bool no_sync, dtp_error *err);

typedef struct dtpi_retain {
    uint32_t keep_last;         /* newest complete steps that stay; 0: all */
    uint64_t keep_every;        /* complete multiples stay, too; 0: none */
    uint64_t saved;             /* this step and newer ones stay */
    bool no_sync;
} dtpi_retain;

/* Removes what `r` spares no longer, and incomplete steps older than the oldest that keep_last spares. */
dtp_status dtpi_steps_retain(dtpi_files *files, const dtpi_log *log, const char *dir,
                             const dtpi_retain *r, dtp_error *err);

#endif /* DTPI_CKPT_STEPS_H */
