/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim.h - who writes a step: a file in its folder that names the attempt and generation. Where a file
 * system has no locks, a writer that was taken for dead learns from it that it is late.
 */
#ifndef DTPI_CKPT_CLAIM_H
#define DTPI_CKPT_CLAIM_H

#include "files/files.h"

#define DTPI_CLAIM_PREFIX "claim-"

typedef struct dtpi_claim {
    uint64_t job;               /* sum of its name */
    uint32_t attempt, generation;
    uint64_t id;                /* of the save */
} dtpi_claim;

enum { DTPI_CLAIM_NAME = 64 };
void dtpi_claim_name(const dtpi_claim *c, char name_out[DTPI_CLAIM_NAME]);
/* False where it is no claim's name. */
bool dtpi_claim_parse(const char *name, dtpi_claim *claim_out);

/* Whether `other` is of the same job, and newer. */
bool dtpi_claim_is_newer(const dtpi_claim *other, const dtpi_claim *c);

/* Errors: BUSY (a newer attempt or generation of the job claims the step), IO. */
dtp_status dtpi_claim_check(dtpi_files *files, const char *step_dir, const dtpi_claim *c,
                            dtp_error *err);
/* The same; BUSY also where the own claim was taken away. */
dtp_status dtpi_claim_holds(dtpi_files *files, const char *step_dir, const dtpi_claim *c,
                            dtp_error *err);
dtp_status dtpi_claim_put(dtpi_files *files, const char *step_dir, const dtpi_claim *c,
                          dtp_error *err);
void dtpi_claim_drop(dtpi_files *files, const char *step_dir, const dtpi_claim *c);

#endif /* DTPI_CKPT_CLAIM_H */
