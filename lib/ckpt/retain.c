/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retain.c - old steps go, pinned ones stay. Removing and pinning exclude each other by a lock of their
 * own, which is held for moments only: a step can be pinned while a long save goes on.
 */
#include "ckpt/retain.h"

#include <inttypes.h>
#include <stdlib.h>

#include "ckpt/claim.h"
#include "ckpt/steps.h"

/* ---- what stays ---- */

void dtpi_retain_decide(const dtpi_retain *r, dtpi_step_facts *steps, size_t n)
{
    uint32_t n_complete = 0;

    for (size_t i = n; i-- > 0;) {
        dtpi_step_facts *f = &steps[i];
        const bool is_multiple = r->keep_every && f->step % r->keep_every == 0;

        f->stays = f->step >= r->saved || r->keep_last == 0 || n_complete < r->keep_last ||
                   f->is_pinned || (is_multiple && f->may_be_complete);
        n_complete += f->is_complete;
    }
}

static int by_step(const void *key, const void *element)
{
    const uint64_t a = *(const uint64_t *)key, b = ((const dtpi_step_facts *)element)->step;

    return a < b ? -1 : a > b;
}

void dtpi_retain_need(dtpi_step_facts *steps, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; steps[i].stays && k < steps[i].n_lineage; k++) {
            dtpi_step_facts *f = bsearch(&steps[i].lineage[k], steps, n, sizeof(*steps), by_step);
            if (f)
                f->is_needed = true;
        }
}

/* ---- looking ---- */

static bool is_there(dtpi_files *files, const char *dir, uint64_t step, const char *name)
{
    char step_dir[DTPI_PATH_MAX], path[DTPI_PATH_MAX];
    uint64_t bytes;

    if (dtpi_step_path(step_dir, dir, step, NULL) < 0 ||
        dtpi_path_join(path, step_dir, name, NULL) < 0)
        return true;
    /* What cannot be looked at now may be there later. */
    return files->ops->size(files, path, &bytes, NULL) != DTP_ERR_NOT_FOUND;
}

/* Steps are looked into only as far as the decision asks: old multiples by their manifest's name alone. */
static dtp_status look(dtpi_files *files, const char *dir, const dtpi_retain *r, dtpi_step_facts *steps,
                       size_t n, dtp_error *err)
{
    uint32_t n_complete = 0;

    for (size_t i = n; i-- > 0;) {
        dtpi_step_facts *f = &steps[i];
        f->is_pinned = is_there(files, dir, f->step, DTPI_PIN_NAME);
        f->may_be_complete = is_there(files, dir, f->step, DTPI_MANIFEST_NAME);
        if (n_complete >= r->keep_last && f->step < r->saved)
            continue;
        const dtp_status st = f->may_be_complete ? dtpi_step_check(files, dir, f->step, err)
                                                 : DTP_ERR_NOT_FOUND;
        if (st == DTP_ERR_NOMEM)
            return st;
        f->is_complete = st >= 0;
        n_complete += f->is_complete;
    }
    return DTP_OK;
}

/* What is damaged needs nothing; what cannot be read may need everything. */
static dtp_status read_lineage(dtpi_files *files, const char *dir, dtpi_step_facts *f, dtp_error *err)
{
    dtpi_manifest m;

    const dtp_status st = dtpi_step_read(files, dir, f->step, &m, err);
    if (st < 0)
        return dtpi_step_is_damaged(st) ? DTP_OK : st;
    f->n_lineage = m.n_lineage;
    memcpy(f->lineage, m.lineage, sizeof(f->lineage));
    dtpi_manifest_free(&m);
    return DTP_OK;
}

dtp_status dtpi_step_needed(dtpi_files *files, const char *dir, uint64_t step, bool *needed_out,
                            dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(files->a);

    *needed_out = false;
    dtp_status st = dtpi_steps_list(files, dir, &list, err);
    const uint64_t *steps = (const uint64_t *)(const void *)list.data;
    for (size_t i = list.len / sizeof(*steps); st >= 0 && i-- > 0 && steps[i] > step;) {
        dtpi_step_facts f[] = { { .step = step }, { .step = steps[i], .stays = true } };
        st = read_lineage(files, dir, &f[1], err);
        dtpi_retain_need(f, 2);
        *needed_out |= f[0].is_needed;
    }
    return st;
}

/* ---- removing ---- */

typedef struct cleaner {
    dtpi_files *files;
    const char *dir;
    bool keep_shards;
    const char *spared;
} cleaner;

static bool is_ours(const cleaner *c, const char *name)
{
    return (strncmp(name, "shard-", 6) == 0 && !c->keep_shards) || strncmp(name, "part-", 5) == 0 ||
           strncmp(name, "manifest.", 9) == 0 ||
           strncmp(name, DTPI_CLAIM_PREFIX, strlen(DTPI_CLAIM_PREFIX)) == 0;
}

static dtp_status remove_ours(void *user, const char *name, dtp_error *err)
{
    const cleaner *c = user;
    char path[DTPI_PATH_MAX];

    if (!is_ours(c, name) || (c->spared && strcmp(name, c->spared) == 0))
        return DTP_OK;
    dtp_status st = dtpi_path_join(path, c->dir, name, err);
    if (st >= 0)
        st = c->files->ops->remove(c->files, path, err);
    return st == DTP_ERR_NOT_FOUND ? DTP_OK : st;
}

static dtp_status add_name(void *user, const char *name, dtp_error *err)
{
    return dtpi_buf_append(user, name, strlen(name) + 1) ? DTP_OK : dtpi_fail_nomem(err, strlen(name));
}

dtp_status dtpi_step_names(dtpi_files *files, const char *step_dir, dtpi_buf *names_out, dtp_error *err)
{
    return files->ops->list(files, step_dir, add_name, names_out, err);
}

static bool has_name(const dtpi_buf *names, const char *name)
{
    for (size_t at = 0; at < names->len; at += strlen((const char *)names->data + at) + 1)
        if (strcmp((const char *)names->data + at, name) == 0)
            return true;
    return false;
}

dtp_status dtpi_step_clean(dtpi_files *files, const char *step_dir, const dtpi_buf *names,
                           const char *spared, bool keep_shards, bool no_sync, dtp_error *err)
{
    char path[DTPI_PATH_MAX];
    cleaner c = { files, step_dir, keep_shards, spared };

    dtp_status st = dtpi_path_join(path, step_dir, DTPI_MANIFEST_NAME, err);
    if (st >= 0)
        st = has_name(names, DTPI_MANIFEST_NAME) ? files->ops->remove(files, path, err)
                                                 : DTP_ERR_NOT_FOUND;
    /* Durable before the first shard goes: no crash leaves a manifest that lacks its files. */
    if (st >= 0 && !no_sync)
        st = files->ops->sync_dir(files, step_dir, err);
    if (st < 0 && st != DTP_ERR_NOT_FOUND)
        return st;
    st = DTP_OK;
    for (size_t at = 0; at < names->len && st >= 0; at += strlen((const char *)names->data + at) + 1)
        st = remove_ours(&c, (const char *)names->data + at, err);
    return st;
}

static dtp_status remove_step(dtpi_files *files, const char *dir, const dtpi_step_facts *f,
                              bool no_sync, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf names = dtpi_buf_init(files->a);
    char step_dir[DTPI_PATH_MAX];

    dtp_status st = dtpi_step_path(step_dir, dir, f->step, err);
    if (st >= 0)
        st = dtpi_step_names(files, step_dir, &names, err);
    if (st >= 0)
        st = dtpi_step_clean(files, step_dir, &names, NULL, f->is_needed, no_sync, err);
    if (st >= 0 && !f->is_needed)
        files->ops->remove_dir(files, step_dir, NULL);  /* files of others may keep it */
    return st;
}

static dtp_status remove_all(dtpi_files *files, const dtpi_log *log, const char *dir,
                             const dtpi_retain *r, const dtpi_step_facts *steps, size_t n,
                             dtp_error *err)
{
    dtp_status st = DTP_OK;

    for (size_t i = n; i-- > 0 && st >= 0;) {
        /* Of what is needed and has no manifest the shards alone are left. */
        if (steps[i].stays || (steps[i].is_needed && !steps[i].may_be_complete))
            continue;
        if (!r->dry_run)
            st = remove_step(files, dir, &steps[i], r->no_sync, err);
        if (st < 0)
            break;
        if (r->report)
            r->report(r->user, steps[i].step);
        if (!r->dry_run)
            dtpi_logf(log, DTP_LOG_INFO, "ckpt", "step %" PRIu64 " is removed%s", steps[i].step,
                      steps[i].is_needed ? ", its shards stay for newer steps" : "");
    }
    return st;
}

static dtp_status lock_pins(dtpi_files *files, const char *dir, dtpi_file **lock_out, dtp_error *err)
{
    char path[DTPI_PATH_MAX];

    const dtp_status st = dtpi_path_join(path, dir, ".pins", err);
    if (st < 0 || !files->ops->lock)
        return st;
    return files->ops->lock(files, path, lock_out, err);
}

dtp_status dtpi_steps_retain(dtpi_files *files, const dtpi_log *log, const char *dir,
                             const dtpi_retain *r, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(files->a);
    DTPI_AUTO(file) dtpi_file *lock = NULL;

    dtp_status st = r->dry_run ? DTP_OK : lock_pins(files, dir, &lock, err);
    if (st >= 0)
        st = dtpi_steps_list(files, dir, &list, err);
    const size_t n = list.len / sizeof(uint64_t);
    if (st < 0 || n == 0)
        return st;
    dtpi_step_facts *steps = dtpi_alloc_array(files->a, n, sizeof(*steps));
    if (!steps)
        return dtpi_fail_nomem(err, n * sizeof(*steps));
    for (size_t i = 0; i < n; i++)
        steps[i].step = ((const uint64_t *)(const void *)list.data)[i];
    st = look(files, dir, r, steps, n, err);
    if (st >= 0) {
        dtpi_retain_decide(r, steps, n);
        for (size_t i = 0; i < n && st >= 0; i++)
            if (steps[i].stays && steps[i].may_be_complete)
                st = read_lineage(files, dir, &steps[i], err);
        dtpi_retain_need(steps, n);
    }
    if (st >= 0)
        st = remove_all(files, log, dir, r, steps, n, err);
    dtpi_free(files->a, steps, n * sizeof(*steps));
    return st;
}

/* ---- pins ---- */

static dtp_status make_pin(dtpi_files *files, const char *path, dtp_error *err)
{
    dtpi_file *f = NULL;

    dtp_status st = files->ops->create(files, path, 0, &f, err);
    if (st == DTP_ERR_EXISTS)
        return DTP_OK;
    if (st < 0)
        return st;
    st = files->ops->sync(f, err);
    const dtp_status closed = files->ops->close_file(f, st < 0 ? NULL : err);
    return st < 0 ? st : closed;
}

/* Of a step that is gone it may be the last file. */
static dtp_status drop_pin(dtpi_files *files, const char *dir, const char *step_dir, const char *path,
                           dtp_error *err)
{
    const dtp_status st = files->ops->remove(files, path, err);

    if (st < 0)
        return st == DTP_ERR_NOT_FOUND ? DTP_OK : st;
    const bool was_last = files->ops->remove_dir(files, step_dir, NULL) >= 0;
    return files->ops->sync_dir(files, was_last ? dir : step_dir, err);
}

dtp_status dtpi_step_pin(dtpi_files *files, const char *dir, uint64_t step, bool pinned,
                         dtp_error *err)
{
    char step_dir[DTPI_PATH_MAX], path[DTPI_PATH_MAX];
    DTPI_AUTO(file) dtpi_file *lock = NULL;

    dtp_status st = dtpi_step_path(step_dir, dir, step, err);
    if (st >= 0)
        st = dtpi_path_join(path, step_dir, DTPI_PIN_NAME, err);
    if (st >= 0)
        st = lock_pins(files, dir, &lock, err);
    if (st >= 0 && pinned)
        st = dtpi_step_check(files, dir, step, err);
    if (st < 0)
        return st;
    if (!pinned)
        return drop_pin(files, dir, step_dir, path, err);
    st = make_pin(files, path, err);
    return st < 0 ? st : files->ops->sync_dir(files, step_dir, err);
}
