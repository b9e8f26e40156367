/* SPDX-License-Identifier: Apache-2.0 */
/* dir.c - the public calls about a folder of steps: which are there, which is the newest, which stay. */
#include <dtp/ckpt.h>

#include "ckpt/load.h"
#include "ckpt/retain.h"
#include "ckpt/steps.h"
#include "ctx/ctx.h"

dtp_status dtpi_ckpt_check_dir(const char *dir, dtp_error *err)
{
    return dir && *dir ? DTP_OK
                       : dtpi_fail(err, DTP_ERR_INVAL, "no folder of checkpoints is given");
}

/* Enters the context with files at hand; `leave` ends what was begun, whatever it returns. */
static dtp_status enter(dtp_ctx *ctx, const char *dir, dtpi_files **files_out, dtp_error *err)
{
    dtp_status st = dtpi_ckpt_check_dir(dir, err);

    if (st >= 0)
        st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return dtpi_noun(err, "ckpt", st);
    st = dtpi_files_open(dtpi_ctx_alloc(ctx), "posix", files_out, err);
    if (st < 0)
        dtpi_ctx_leave(ctx);
    return dtpi_noun(err, "ckpt", st);
}

static dtp_status leave(dtp_ctx *ctx, dtpi_files *files, dtp_status st, dtp_error *err)
{
    dtpi_files_close(files);
    dtpi_ctx_leave(ctx);
    return dtpi_noun(err, "ckpt", st);
}

/* ---- the newest ---- */

dtp_status dtp_ckpt_latest(dtp_ctx *ctx, const char *dir, uint64_t *step_out, dtp_error *err)
{
    dtpi_files *files;

    const dtp_status st = enter(ctx, dir, &files, err);
    if (st < 0)
        return st;
    return leave(ctx, files, dtpi_steps_latest(files, dtpi_ctx_log(ctx), dir, step_out, err), err);
}

static dtp_status verify(dtpi_files *files, const char *dir, uint64_t step, dtp_error *err)
{
    DTPI_AUTO(load) dtpi_load *load = NULL;

    const dtp_status st = dtpi_load_open(files->a, files, dir, step, &load, err);
    return st < 0 ? st : dtpi_load_verify(load, NULL, NULL, err);
}

dtp_status dtp_ckpt_latest_valid(dtp_ctx *ctx, const char *dir, int level,
                                 void (*report)(void *user, uint64_t step, dtp_status status,
                                                const char *text),
                                 void *user, uint64_t *step_out, dtp_error *err)
{
    dtpi_files *files;

    if (level != 0 && level != 1)
        return dtpi_noun(err, "ckpt", dtpi_fail(err, DTP_ERR_INVAL, "unknown level %d", level));
    const dtp_status st = enter(ctx, dir, &files, err);
    if (st < 0)
        return st;
    const dtpi_looking l = { .check = level ? verify : NULL, .report = report, .user = user };
    return leave(ctx, files, dtpi_steps_look(files, &l, dir, step_out, err), err);
}

/* ---- all ---- */

static dtp_status list(dtpi_files *files, const char *dir, uint64_t *steps_out, size_t capacity,
                       size_t *n_out, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf found = dtpi_buf_init(files->a);

    const dtp_status st = dtpi_steps_list(files, dir, &found, err);
    if (st < 0)
        return st;
    *n_out = found.len / sizeof(uint64_t);
    if (found.len && capacity)
        memcpy(steps_out, found.data, DTPI_MIN(capacity, *n_out) * sizeof(uint64_t));
    return DTP_OK;
}

dtp_status dtp_ckpt_list(dtp_ctx *ctx, const char *dir, uint64_t *steps_out, size_t capacity,
                         size_t *n_out, dtp_error *err)
{
    dtpi_files *files;

    const dtp_status st = enter(ctx, dir, &files, err);
    if (st < 0)
        return st;
    return leave(ctx, files, list(files, dir, steps_out, capacity, n_out, err), err);
}

/* ---- which stay ---- */

dtp_status dtp_ckpt_pin(dtp_ctx *ctx, const char *dir, uint64_t step, int pinned, dtp_error *err)
{
    dtpi_files *files;

    const dtp_status st = enter(ctx, dir, &files, err);
    if (st < 0)
        return st;
    return leave(ctx, files, dtpi_step_pin(files, dir, step, pinned != 0, err), err);
}

static dtp_status collect(dtp_ctx *ctx, dtpi_files *files, const char *dir,
                          const dtp_ckpt_gc_opts *o, dtp_error *err)
{
    const dtpi_retain r = { .keep_last = DTPI_MAX(o->keep_last, 1u), .keep_every = o->keep_every,
                            .saved = UINT64_MAX, .dry_run = o->dry_run != 0, .report = o->report,
                            .user = o->report_user };
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(files->a);
    DTPI_AUTO(file) dtpi_file *lock = NULL;
    char path[DTPI_PATH_MAX];

    /* No lock file is made where there is no folder of steps, or nothing is removed. */
    dtp_status st = dtpi_steps_list(files, dir, &list, err);
    if (st >= 0)
        st = dtpi_path_join(path, dir, ".lock", err);
    if (st >= 0 && files->ops->lock && !o->dry_run)
        st = files->ops->lock(files, path, &lock, err);
    return st < 0 ? st : dtpi_steps_retain(files, dtpi_ctx_log(ctx), dir, &r, err);
}

dtp_status dtp_ckpt_gc(dtp_ctx *ctx, const char *dir, const dtp_ckpt_gc_opts *user, dtp_error *err)
{
    dtp_ckpt_gc_opts o;
    dtpi_files *files;

    dtp_status st = DTPI_OPTS_READ(&o, user, err);
    if (st < 0)
        return dtpi_noun(err, "ckpt", st);
    st = enter(ctx, dir, &files, err);
    if (st < 0)
        return st;
    return leave(ctx, files, collect(ctx, files, dir, &o, err), err);
}
