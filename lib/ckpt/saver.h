/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saver.h - saves in the background: one at a time for each group of a context, and one without a group.
 *
 * A saver lives with its group and is kept by the context: it owns the copy of the tensors, the thread,
 * and what went wrong until somebody was told. All calls are made inside the context.
 */
#ifndef DTPI_CKPT_SAVER_H
#define DTPI_CKPT_SAVER_H

#include <stdbool.h>

#include <dtp/ckpt.h>

#include "ckpt/save.h"

typedef struct dtpi_saver dtpi_saver;

/* The saver of `group` (NULL: of none), or NULL where it was never used. */
dtpi_saver *dtpi_saver_find(dtp_ctx *ctx, dtp_group *group);

/* Made on first use. Errors: NOMEM. */
dtp_status dtpi_saver_get(dtp_ctx *ctx, dtp_group *group, dtpi_saver **saver_out, dtp_error *err);

/* The plan it remembers; NULL for NULL. Not while a save is under way. */
dtpi_known_plan *dtpi_saver_known(dtpi_saver *s);

/* A save is under way. */
bool dtpi_saver_is_busy(const dtpi_saver *s);

/*
 * Waits for the save that is under way (`s` NULL: there is none). Its failure is returned, once, unless
 * its operation has told it. Errors: INTERRUPTED, BUSY (in a callback; the save is still under way).
 */
dtp_status dtpi_saver_settle(dtpi_saver *s, dtp_error *err);

/* Copies and starts; the saver is settled. Errors: as dtp_ckpt_save_start. */
dtp_status dtpi_saver_start(dtpi_saver *s, const char *dir, uint64_t step, uint64_t id,
                            const dtp_ckpt_tensor *tensors, size_t n,
                            const dtp_ckpt_save_opts *opts, dtp_op **op_out, dtp_error *err);

#endif /* DTPI_CKPT_SAVER_H */
