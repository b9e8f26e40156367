/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt.h - what the commands of `dtp ckpt` share: their arguments, how a checkpoint is named, how it prints. */
#ifndef DTP_TOOLS_CKPT_CKPT_H
#define DTP_TOOLS_CKPT_CKPT_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dtp/ckpt.h>

#include "base/base.h"
#include "cmd.h"

typedef struct ckpt_args {
    const char *verb, *path, *other;    /* `other`: the second path */
    bool has_step, json, all, yes;
    uint64_t step, keep_every, max_shard_bytes;
    uint32_t keep;
    const char *to;                     /* "hf", "step" or NULL */
    dtp_codec codec;
} ckpt_args;

/* What `diff` exits with where it could not compare: 1 says that contents differ. */
enum { CKPT_DIFF_TROUBLE = 2 };

/* The commands; each returns the exit code. */
int ckpt_ls(dtp_ctx *ctx, const ckpt_args *a);
int ckpt_show(dtp_ctx *ctx, const ckpt_args *a);
int ckpt_verify(dtp_ctx *ctx, const ckpt_args *a);
int ckpt_diff(dtp_ctx *ctx, const ckpt_args *a);
int ckpt_convert(dtp_ctx *ctx, const ckpt_args *a);
int ckpt_gc(dtp_ctx *ctx, const ckpt_args *a);
int ckpt_pin(dtp_ctx *ctx, const ckpt_args *a);
int ckpt_unpin(dtp_ctx *ctx, const ckpt_args *a);

/* "12.3 MiB" */
void ckpt_human(uint64_t bytes, char *text_out, size_t room);
/* A JSON string with its quotes. */
void ckpt_print_json(const char *text);
/* What a file says, on one line: blanks of a JSON text may be newlines, and a name may hold escapes. */
void ckpt_print_line(const char *text);
void ckpt_print_shape(const dtp_ckpt_tensor *t);

/* All step numbers under `dir`; free the array. Errors: as dtp_ckpt_list. */
dtp_status ckpt_list_steps(dtp_ctx *ctx, const char *dir, uint64_t **steps_out, size_t *n_out,
                           dtp_error *err);
/* DIR/step-.../NAME is there, or could not be looked for. */
bool ckpt_step_has(const char *dir, uint64_t step, const char *name);

/*
 * Opens what `path` names: a folder of steps (its newest complete one), DIR:STEP, or whatever
 * dtp_ckpt_open_path knows. `step` NULL: not given.
 */
dtp_status ckpt_open(dtp_ctx *ctx, const char *path, const uint64_t *step, dtp_ckpt **ckpt_out,
                     dtp_ckpt_info *info_out, dtp_error *err);

/* "step 42" or the path itself, for messages. */
void ckpt_label(const char *path, const dtp_ckpt_info *info, char *text_out, size_t room);

#endif /* DTP_TOOLS_CKPT_CKPT_H */
