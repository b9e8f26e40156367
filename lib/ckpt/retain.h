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
    bool dry_run;               /* only `report`; takes no lock */
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
    bool is_needed;             /* out: a step that stays reads its files */
    uint32_t n_lineage;         /* of a step that stays */
    uint64_t lineage[DTPI_LINEAGE_MAX];
} dtpi_step_facts;

/*
 * Pure. `steps` ascend. A step stays when it is not older than `saved`, not older than the last of the
 * newest keep_last complete ones, pinned, or a multiple of keep_every that may be complete. So the newest
 * complete step always does.
 */
void dtpi_retain_decide(const dtpi_retain *r, dtpi_step_facts *steps, size_t n);

/*
 * Pure. Marks what steps that stay refer to. One that does not stay but is needed loses its manifest and
 * keeps its shards: it is no step any more, and what it referred to itself is not needed for its sake. So N
 * steps keep the shards of at most N times DTPI_LINEAGE_MAX others, of DTPI_LINEAGE_MAX where they follow
 * each other.
 */
void dtpi_retain_need(dtpi_step_facts *steps, size_t n);

/* Whether a newer complete step reads files of step `step`. Errors: those of reading newer ones. */
dtp_status dtpi_step_needed(dtpi_files *files, const char *dir, uint64_t step, bool *needed_out,
                            dtp_error *err);

/*
 * Removes what does not stay; nothing while a step that stays cannot be read, for nobody knows what it
 * needs. Errors: BUSY (steps are being pinned), IO, PERM, LIMIT, VERSION, NOMEM.
 */
dtp_status dtpi_steps_retain(dtpi_files *files, const dtpi_log *log, const char *dir,
                             const dtpi_retain *r, dtp_error *err);

/* What lies in a step's folder, each name ended by NUL. */
dtp_status dtpi_step_names(dtpi_files *files, const char *step_dir, dtpi_buf *names_out, dtp_error *err);

/*
 * Removes those of `names` that are files of saves, but not `spared` (NULL: none): the manifest first,
 * durably, then the rest, shards only where nobody needs them. Other files stay, and with them the
 * folder. What came after the names were listed is another writer's, and stays.
 */
dtp_status dtpi_step_clean(dtpi_files *files, const char *step_dir, const dtpi_buf *names,
                           const char *spared, bool keep_shards, bool no_sync, dtp_error *err);

/* Errors: NOT_FOUND (step), BUSY (steps are being removed), and those of dtpi_step_check. */
dtp_status dtpi_step_pin(dtpi_files *files, const char *dir, uint64_t step, bool pinned,
                         dtp_error *err);

#endif /* DTPI_CKPT_RETAIN_H */
