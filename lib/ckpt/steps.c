/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps.c - what lies under a checkpoint folder. Truth is what the manifests say; names are compared as
 * numbers, and nothing else (no pointer file, no symbolic link) counts.
 */
#include "ckpt/steps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "ckpt/part.h"

static const char prefix[] = "step-";
enum { PREFIX = sizeof(prefix) - 1, DIGITS = 20 };

dtp_status dtpi_step_path(char path_out[DTPI_PATH_MAX], const char *dir, uint64_t step,
                          dtp_error *err)
{
    char name[PREFIX + DIGITS + 1];

    snprintf(name, sizeof(name), "%s%020" PRIu64, prefix, step);
    return dtpi_path_join(path_out, dir, name, err);
}

bool dtpi_step_parse(const char *name, uint64_t *step_out)
{
    uint64_t v = 0;

    if (strlen(name) != PREFIX + DIGITS || memcmp(name, prefix, PREFIX) != 0)
        return false;
    for (const char *p = name + PREFIX; *p; p++)
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return false;
    *step_out = v;
    return true;
}

static dtp_status add_step(void *user, const char *name, dtp_error *err)
{
    uint64_t step;

    if (dtpi_step_parse(name, &step) && !dtpi_buf_append(user, &step, sizeof(step)))
        return dtpi_fail_nomem(err, sizeof(step));
    return DTP_OK;
}

static int by_number(const void *x, const void *y)
{
    const uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;

    return a < b ? -1 : a > b;
}

dtp_status dtpi_steps_list(dtpi_files *files, const char *dir, dtpi_buf *out, dtp_error *err)
{
    const dtp_status st = files->ops->list(files, dir, add_step, out, err);

    if (st >= 0 && out->len)
        qsort(out->data, out->len / sizeof(uint64_t), sizeof(uint64_t), by_number);
    return st;
}

dtp_status dtpi_step_read(dtpi_files *files, const char *dir, uint64_t step, dtpi_manifest *m_out,
                          dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(files->a);
    char step_dir[DTPI_PATH_MAX], path[DTPI_PATH_MAX];

    dtp_status st = dtpi_step_path(step_dir, dir, step, err);
    if (st >= 0)
        st = dtpi_path_join(path, step_dir, DTPI_MANIFEST_NAME, err);
    if (st >= 0)
        st = dtpi_files_read_all(files, path, DTPI_MANIFEST_MAX, &text, err);
    if (st >= 0)
        st = dtpi_manifest_read(files->a, (const char *)text.data, text.len, path, m_out, err);
    if (st >= 0 && m_out->step != step) {
        st = dtpi_fail(err, DTP_ERR_FORMAT, "%s is the manifest of step %" PRIu64, path,
                       m_out->step);
        dtpi_manifest_free(m_out);
    }
    return st;
}

static dtp_status check_size(dtpi_files *files, const char *step_dir, const char *name,
                             uint64_t want, dtp_error *err)
{
    char path[DTPI_PATH_MAX];
    uint64_t bytes = 0;

    dtp_status st = dtpi_path_join(path, step_dir, name, err);
    if (st >= 0)
        st = files->ops->size(files, path, &bytes, err);
    if (st < 0 || bytes == want)
        return st;
    return dtpi_fail(err, bytes < want ? DTP_ERR_TRUNCATED : DTP_ERR_CORRUPT,
                     "%s has %" PRIu64 " bytes instead of %" PRIu64, path, bytes, want);
}

static dtp_status check_sizes(dtpi_files *files, const char *step_dir, const dtpi_manifest *m,
                              dtp_error *err)
{
    dtp_status st = DTP_OK;

    for (size_t i = 0; i < m->n_own_files && st >= 0; i++) {
        const dtpi_mf_file *f = dtpi_mf_file_at(m, i);
        st = check_size(files, step_dir, dtpi_mf_file_name(m, f), f->bytes, err);
        if (st >= 0 && f->part_at != DTPI_NO_PART)
            st = check_size(files, step_dir, dtpi_mf_text(m, f->part_at), f->part_bytes, err);
    }
    return st;
}

/* Files of earlier steps that this one refers to: only its parts know which. */
static dtp_status check_others(dtpi_files *files, const char *dir, const char *step_dir,
                               dtpi_manifest *m, dtp_error *err)
{
    char other[DTPI_PATH_MAX];
    dtp_status st = DTP_OK;

    for (uint32_t i = 0; m->n_lineage > 0 && i < m->n_own_files && st >= 0; i++)
        st = dtpi_part_read(files, step_dir, m, i, err);
    for (size_t i = m->n_own_files; i < dtpi_mf_n_files(m) && st >= 0; i++) {
        const dtpi_mf_file *f = dtpi_mf_file_at(m, i);
        st = dtpi_step_path(other, dir, f->step, err);
        if (st >= 0)
            st = check_size(files, other, dtpi_mf_file_name(m, f), f->bytes, err);
    }
    return st;
}

/* The manifest of a step that is whole. */
static dtp_status read_whole(dtpi_files *files, const char *dir, uint64_t step, dtpi_manifest *m_out,
                             dtp_error *err)
{
    char step_dir[DTPI_PATH_MAX];

    dtp_status st = dtpi_step_path(step_dir, dir, step, err);
    if (st >= 0)
        st = dtpi_step_read(files, dir, step, m_out, err);
    if (st < 0)
        return st;
    st = check_sizes(files, step_dir, m_out, err);
    if (st >= 0)
        st = check_others(files, dir, step_dir, m_out, err);
    if (st < 0)
        dtpi_manifest_free(m_out);
    return st;
}

dtp_status dtpi_step_check(dtpi_files *files, const char *dir, uint64_t step, dtp_error *err)
{
    dtpi_manifest m;

    const dtp_status st = read_whole(files, dir, step, &m, err);
    if (st >= 0)
        dtpi_manifest_free(&m);
    return st;
}

dtp_status dtpi_steps_before(dtpi_files *files, const dtpi_log *log, const char *dir, uint64_t step,
                             dtpi_manifest *m_out, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(files->a);

    dtp_status st = dtpi_steps_list(files, dir, &list, err);
    const uint64_t *steps = (const uint64_t *)(const void *)list.data;
    for (size_t i = list.len / sizeof(*steps); st >= 0 && i-- > 0;) {
        dtp_error why = { 0 };
        if (steps[i] >= step)
            continue;
        st = read_whole(files, dir, steps[i], m_out, &why);
        if (st >= 0)
            return st;
        dtpi_logf(log, DTP_LOG_WARN, "ckpt", "step %" PRIu64 " is no parent: %s", steps[i], why.text);
        st = st == DTP_ERR_NOMEM ? dtpi_fail_nomem(err, 0) : DTP_OK;
    }
    return st < 0 ? st : dtpi_fail(err, DTP_ERR_NOT_FOUND, "no complete step before %" PRIu64, step);
}

bool dtpi_step_is_damaged(dtp_status st)
{
    return st == DTP_ERR_NOT_FOUND || st == DTP_ERR_TRUNCATED || st == DTP_ERR_CORRUPT ||
           st == DTP_ERR_FORMAT;
}

static dtp_status look(dtpi_files *files, const dtpi_looking *l, const char *dir, uint64_t step,
                       dtp_error *err)
{
    const dtp_status st = dtpi_step_check(files, dir, step, err);

    return st < 0 || !l->check ? st : l->check(files, dir, step, err);
}

static void pass_over(const dtpi_looking *l, uint64_t step, const dtp_error *why)
{
    if (l->log)
        dtpi_logf(l->log, DTP_LOG_WARN, "ckpt", "step %" PRIu64 " is passed over: %s", step,
                  why->text);
    if (l->report)
        l->report(l->user, step, why->status, why->text);
}

/* A path that leads through a file is wrong: nothing was ever saved there, and nothing will be. */
static dtp_status list_folder(dtpi_files *files, const char *dir, dtpi_buf *out, dtp_error *err)
{
    dtp_error why = { 0 };

    errno = 0;
    dtp_status st = dtpi_steps_list(files, dir, out, &why);
    if (st == DTP_ERR_NOT_FOUND && why.sys_errno == ENOTDIR)
        st = why.status = DTP_ERR_INVAL;
    if (st < 0 && err)
        *err = why;
    return st;
}

dtp_status dtpi_steps_look(dtpi_files *files, const dtpi_looking *l, const char *dir,
                           uint64_t *step_out, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(files->a);
    dtp_error unseen = { 0 };

    const dtp_status st = list_folder(files, dir, &list, err);
    if (st < 0)
        return st;
    const uint64_t *steps = (const uint64_t *)(const void *)list.data;
    for (size_t i = list.len / sizeof(*steps); i-- > 0;) {
        dtp_error why = { 0 };
        const dtp_status one = look(files, l, dir, steps[i], &why);
        if (one >= 0) {
            *step_out = steps[i];
            return DTP_OK;
        }
        if (one == DTP_ERR_NOMEM) {
            if (err)
                *err = why;
            return one;
        }
        if (!dtpi_step_is_damaged(one) && !unseen.status)
            unseen = why;
        pass_over(l, steps[i], &why);
    }
    /* A run that begins anew because its steps could not be looked at would lose them all. */
    if (unseen.status) {
        if (err)
            *err = unseen;
        return unseen.status;
    }
    return dtpi_fail(err, DTP_ERR_NOT_FOUND,
                     "no complete checkpoint under %s (%zu steps looked at)", dir,
                     list.len / sizeof(*steps));
}

dtp_status dtpi_steps_latest(dtpi_files *files, const dtpi_log *log, const char *dir,
                             uint64_t *step_out, dtp_error *err)
{
    const dtpi_looking l = { .log = log };

    return dtpi_steps_look(files, &l, dir, step_out, err);
}
