/* SPDX-License-Identifier: Apache-2.0 */
/* save.h - the protocol of a save, over any files and any link. */
#ifndef DTPI_CKPT_SAVE_H
#define DTPI_CKPT_SAVE_H

#include <dtp/ckpt.h>

#include "ckpt/link.h"
#include "ckpt/plan.h"
#include "files/files.h"

/* The plan of the save before, for ranks that declare the same again. */
typedef struct dtpi_known_plan {
    dtpi_plan plan;
    bool is_made;               /* plan has memory */
    uint64_t hash;              /* of what all ranks declared; 0: there is no plan */
} dtpi_known_plan;

/* It can be used again; zero bytes are an empty one. */
void dtpi_known_plan_forget(dtpi_known_plan *k);

typedef struct dtpi_save_in {
    const dtp_allocator *a;
    dtp_ctx *ctx;               /* whose pool helps; NULL: nobody's */
    const dtpi_log *log;
    dtpi_files *files;
    dtpi_link *link;
    const char *dir;
    uint64_t step;
    const dtp_ckpt_tensor *tensors;     /* of the library's own size */
    size_t n_tensors;
    const dtp_ckpt_save_opts *opts;
    uint64_t id;                /* of this save, unlike any other; rank 0's counts */
    const dtp_error *failure;   /* this rank failed before it began, and takes part to say so; NULL: not */
    const _Atomic bool *canceled;       /* looked at between the parts; NULL: never */
    dtpi_known_plan *known;     /* in and out; NULL: none is remembered */
} dtpi_save_in;

/* The files driver that the options ask for. */
const char *dtpi_save_files_name(const dtp_ckpt_save_opts *opts);

/* Collective over the link. Every rank gets the same status, naming the rank that failed. */
dtp_status dtpi_save(const dtpi_save_in *in, dtp_error *err);

#endif /* DTPI_CKPT_SAVE_H */
