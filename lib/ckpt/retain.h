/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retain.h - which steps stay and which go, and how they go. What stays is decided from facts alone.
 */
#ifndef DTPI_CKPT_RETAIN_H
#define DTPI_CKPT_RETAIN_H

#include "ckpt/manifest.h"
#include "files/files.h"

/* A file in a step's folder that spares it from retention. */
#define DTPI_PIN_NAME "pin"

typedef struct dtpi_retain {
    uint32_t keep_last;         /* newest complete steps that stay; 0: all */
    uint64_t keep_every;        /* complete multiples stay, too; 0: none */
    uint64_t saved;             /* this step and newer ones stay */
    bool no_sync;
    bool dry_run;               /* only `report` */
    /* Told of each step that goes; NULL: nobody. */
    void (*report)(void *user, uint64_t step);
    void *user;
} dtpi_retain;

typedef struct dtpi_step_facts {
    uint64_t step;
    bool is_complete;           /* manifest and files are there and whole */
    bool may_be_complete;       /* or it could not be looked at */
    bool is_pinned;
    bool stays;                 /* out */
} dtpi_step_facts;

/*
 * Pure. `steps` ascend. A step stays when it is not older than `saved`, not older than the last of the
 * newest keep_last complete ones, pinned, or a multiple of keep_every that may be complete. So the newest
 * complete step always does.
 */
void dtpi_retain_decide(const dtpi_retain *r, dtpi_step_facts *steps, size_t n);

/* Removes what does not stay. Errors: BUSY (steps are being pinned), IO, PERM, LIMIT, NOMEM. */
dtp_status dtpi_steps_retain(dtpi_files *files, const dtpi_log *log, const char *dir,
                             const dtpi_retain *r, dtp_error *err);

/*
 * Removes the files of saves from a step folder: the manifest first, durably, then the rest. Other
 * files stay, and with them the folder.
 */
dtp_status dtpi_step_clean(dtpi_files *files, const char *step_dir, bool no_sync, dtp_error *err);

/* Errors: NOT_FOUND (step), BUSY (steps are being removed), and those of dtpi_step_check. */
dtp_status dtpi_step_pin(dtpi_files *files, const char *dir, uint64_t step, bool pinned,
                         dtp_error *err);

#endif /* DTPI_CKPT_RETAIN_H */
