/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - a job under the run directory: RUN_DIR/jobs/NAME with
 *
 *     spec        what was asked for (dtpi_spec_encode)
 *     secret      64 hex digits that its ranks prove to each other
 *     alive       locked by the shim while there is one, by a supervisor while it makes one
 *     held        processors and GPUs of the job, two lines
 *     journal     what happened (launch/journal.h)
 *     sock        where the shim listens
 *     logs/       attempt-A/rank-R.out and .err
 */
#ifndef DTPI_JOB_RECORD_H
#define DTPI_JOB_RECORD_H

#include <limits.h>

#include "base/cpuset.h"
#include "job/spec.h"
#include "launch/journal.h"

typedef struct dtpi_record {
    char run_dir[PATH_MAX];
    char dir[PATH_MAX];         /* RUN_DIR/jobs/NAME */
    int alive_fd;               /* locked by us, or -1 */
} dtpi_record;

/*
 * Makes the folder of a new job, named spec->name or (NULL) by time and process, which is then put
 * into the spec; writes spec and secret; holds `alive`. The record of a job that has ended is
 * replaced. Errors: EXISTS (it runs), IO, NOSPC, NOMEM.
 */
dtp_status dtpi_record_create(dtpi_record *r, const char *run_dir, dtpi_spec *spec, dtp_error *err);

/* Finds the folder of a job and reads its spec. Errors: NOT_FOUND, FORMAT, VERSION, IO, NOMEM. */
dtp_status dtpi_record_open(dtpi_record *r, const char *run_dir, const char *name, dtpi_spec *spec,
                            dtp_error *err);

/* Takes `alive`; false when another process has it. */
bool dtpi_record_lock(dtpi_record *r);
/* True as well where it cannot be found out (no descriptor is left): nothing is replaced then. */
bool dtpi_record_is_alive(const dtpi_record *r);
void dtpi_record_unlock(dtpi_record *r);

/* Adds a line to the journal. Errors: NOMEM, NOT_FOUND (no journal), IO, NOSPC. */
dtp_status dtpi_record_write(const dtpi_record *r, const dtpi_journal_entry *e, dtp_error *err);

/*
 * Calls `each` for every entry in the first `bytes` bytes of the journal (UINT64_MAX: all). A line
 * that cannot be read is passed over. Errors: IO, LIMIT.
 */
dtp_status dtpi_record_read(const dtpi_record *r, const dtp_allocator *a, uint64_t bytes,
                            void (*each)(void *user, const dtpi_journal_entry *e), void *user,
                            dtp_error *err);

/* What the job holds, for later attempts. */
dtp_status dtpi_record_put_held(const dtpi_record *r, const char *cpus, const char *gpus,
                                dtp_error *err);
dtp_status dtpi_record_get_held(const dtpi_record *r, const dtp_allocator *a, dtpi_cpuset *cpus_out,
                                dtpi_cpuset *gpus_out, dtp_error *err);

/* Names of the jobs in RUN_DIR/jobs, sorted, one a line, for dtp_text_free. Errors: IO, NOMEM. */
dtp_status dtpi_record_list(const char *run_dir, const dtp_allocator *a, char **text_out,
                            dtp_error *err);

#endif /* DTPI_JOB_RECORD_H */
