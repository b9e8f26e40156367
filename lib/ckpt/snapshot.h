/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot.h - a copy of what a save was given, in memory that the next copy uses again: the caller may
 * change its tensors while the save goes on.
 */
#ifndef DTPI_CKPT_SNAPSHOT_H
#define DTPI_CKPT_SNAPSHOT_H

#include <dtp/ckpt.h>

#include "base/base.h"

typedef struct dtpi_snapshot {
    dtp_ctx *ctx;
    uint8_t *block;
    size_t capacity;
    dtp_ckpt_tensor *tensors;   /* these four lie in the block */
    size_t n;
    const char *dir;
    dtp_ckpt_save_opts opts;
} dtpi_snapshot;

/*
 * Copies everything, large tensors with the help of the context's pool. What was taken before is gone.
 * Errors: what dtpi_plan_check finds, INVAL (no data), NOMEM.
 */
dtp_status dtpi_snapshot_take(dtpi_snapshot *s, const dtp_ckpt_tensor *tensors, size_t n,
                              const char *dir, const dtp_ckpt_save_opts *opts, dtp_error *err);
void dtpi_snapshot_free(dtpi_snapshot *s);

#endif /* DTPI_CKPT_SNAPSHOT_H */
