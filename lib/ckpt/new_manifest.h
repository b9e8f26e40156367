/* SPDX-License-Identifier: Apache-2.0 */
/* new_manifest.h - the manifest of a save, from its plan and what the ranks acknowledged. Pure. */
#ifndef DTPI_CKPT_NEW_MANIFEST_H
#define DTPI_CKPT_NEW_MANIFEST_H

#include "ckpt/delta.h"
#include "ckpt/msg.h"

typedef struct dtpi_new_manifest {
    const dtp_allocator *a;
    const dtpi_plan *plan;
    const dtpi_written *acks;   /* by rank */
    int32_t n_ranks;
    uint64_t step, id;
    uint32_t attempt, generation, chunk_bytes;
    const char *codec, *meta;
    bool has_parent;
    const dtpi_lineage *lineage;        /* the parent, then what it refers to */
} dtpi_new_manifest;

/* Names of a rank's files in the folder of the step. */
enum { DTPI_FILE_NAME_MAX = 96 };
void dtpi_shard_name(int32_t rank, int32_t n_ranks, uint64_t id, char name_out[DTPI_FILE_NAME_MAX]);
void dtpi_part_name(int32_t rank, int32_t n_ranks, uint64_t id, char name_out[DTPI_FILE_NAME_MAX]);

/* Its text. Errors: PROTO (a rank acknowledged another plan), NOMEM, what dtpi_manifest_check finds. */
dtp_status dtpi_new_manifest_write(const dtpi_new_manifest *what, dtpi_buf *text_out, dtp_error *err);

#endif /* DTPI_CKPT_NEW_MANIFEST_H */
