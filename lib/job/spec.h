/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec.h - a job as it was asked for: the caller's struct, checked, with defaults, as an own copy;
 * from a YAML file; to and from the job's record.
 */
#ifndef DTPI_JOB_SPEC_H
#define DTPI_JOB_SPEC_H

#include <dtp/job.h>

#include "base/buf.h"
#include "launch/wire.h"

enum { DTPI_SPEC_MAX_FILE = 1 << 20, DTPI_SPEC_MAX_RECORD = 8 << 20 };

/* A list of texts that grows. */
typedef struct dtpi_list {
    dtpi_buf buf;
    uint32_t n;
} dtpi_list;

static inline dtpi_texts dtpi_list_texts(const dtpi_list *l)
{
    return (dtpi_texts){ .n = l->n, .data = (const char *)l->buf.data, .bytes = l->buf.len };
}

typedef struct dtpi_spec {
    const dtp_allocator *a;
    char *name;                 /* NULL: to be made */
    char *cwd;                  /* NULL: the caller's */
    char *ckpt_dir;             /* NULL: none */
    dtpi_list argv, env, env_base;
    uint32_t n_ranks, min_ranks, max_restarts, gpus_per_rank, cores_per_rank, no_bind;
    int32_t grace_ms, reform_ms;
} dtpi_spec;

void dtpi_spec_init(dtpi_spec *s, const dtp_allocator *a);
void dtpi_spec_free(dtpi_spec *s);
#define DTPI_AUTO_SPEC __attribute__((cleanup(dtpi_spec_free)))

/* Copies and checks. Errors: INVAL (names the field), NOMEM. */
dtp_status dtpi_spec_copy(dtpi_spec *s, const dtp_job_spec *user, dtp_error *err);

/*
 * Fills from YAML text (docs/formats/job-spec.md); what it does not name stays as it is.
 * dtpi_spec_check is the caller's. Errors: FORMAT (line and field), LIMIT, NOMEM.
 */
dtp_status dtpi_spec_parse(dtpi_spec *s, const char *text, size_t bytes, dtp_error *err);

/* Limits and defaults. Errors: INVAL (names the field). */
dtp_status dtpi_spec_check(dtpi_spec *s, dtp_error *err);

/* For the record: a supervisor that attaches must be able to start the next attempt. */
void dtpi_spec_encode(const dtpi_spec *s, dtpi_buf *out);
dtp_status dtpi_spec_decode(dtpi_spec *s, const void *data, size_t bytes, dtp_error *err);

/* True when `var` is NAME=VALUE with a proper name; its length goes to *len_out. */
bool dtpi_var_ok(const char *var, size_t *len_out);
/* Variables that say where a rank's group is: only the job writes them. */
bool dtpi_var_is_own(const char *var, size_t len);

#endif /* DTPI_JOB_SPEC_H */
