/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - what an open checkpoint keeps: its manifest, the files of its shards, opened when the first
 * byte of them is wanted, and the places of its boxes.
 */
#include "ckpt/load.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/sum.h"
#include "ckpt/fetch.h"
#include "ckpt/part.h"
#include "ckpt/steps.h"

/* The largest chunk there is: what a manifest claims for its chunks may be more than it has. */
static size_t largest_chunk(const dtpi_manifest *m)
{
    uint64_t most = 1;

    for (size_t i = 0; i < dtpi_mf_n_tensors(m); i++) {
        const dtpi_mf_tensor *t = dtpi_mf_tensor_at(m, i);
        for (uint32_t k = 0; k < t->n_boxes; k++)
            most = DTPI_MAX(most, dtpi_mf_box_bytes(m, t, dtpi_mf_box_at(m, t->first_box + k)));
    }
    return (size_t)DTPI_MIN(most, (uint64_t)m->chunk_bytes);
}

static dtpi_file **open_slot(const dtpi_load *l, size_t i)
{
    return (dtpi_file **)(void *)l->open.data + i;
}

/* A slot per file; parts bring more files. */
static dtp_status grow_open(dtpi_load *l, dtp_error *err)
{
    const size_t want = (dtpi_mf_n_files(&l->m) + 1) * sizeof(dtpi_file *);

    if (want <= l->open.len)
        return DTP_OK;
    if (!dtpi_buf_reserve(&l->open, want - l->open.len))
        return dtpi_fail_nomem(err, want);
    memset(l->open.data + l->open.len, 0, want - l->open.len);
    l->open.len = want;
    return DTP_OK;
}

dtp_status dtpi_load_place(dtpi_load *l, uint32_t i, dtp_error *err)
{
    const dtp_status st = dtpi_part_read(l->files, l->step_dir, &l->m, i, err);

    /* Also where it was placed before: the slots may have lacked memory then. */
    return st < 0 ? st : grow_open(l, err);
}

static dtp_status check_codec(const dtpi_load *l, dtp_error *err)
{
    dtp_error why = { 0 };
    dtpi_codec codec;

    const dtp_status st = dtpi_codec_open(l->a, l->m.codec, &codec, &why);
    if (st < 0)
        return dtpi_fail(err, st, "%s: %s", l->step_dir, why.text);
    dtpi_codec_close(&codec);
    return DTP_OK;
}

dtp_status dtpi_load_adopt(const dtp_allocator *a, dtpi_files *files, const char *root,
                           dtpi_manifest *m_take, dtpi_load **load_out, dtp_error *err)
{
    DTPI_AUTO(load) dtpi_load *l = dtpi_alloc(a, sizeof(*l));

    if (!l) {
        dtpi_manifest_free(m_take);
        return dtpi_fail_nomem(err, sizeof(*l));
    }
    l->a = a;
    l->files = files;
    l->open = dtpi_buf_init(a);
    l->m = *m_take;
    l->buffer_bytes = largest_chunk(&l->m);
    for (uint32_t i = 0; i < l->m.n_own_files; i++)
        l->own_bytes += dtpi_mf_file_at(&l->m, i)->bytes;
    if (strlen(root) >= sizeof(l->step_dir))
        return dtpi_fail(err, DTP_ERR_LIMIT, "path is too long: %.40s...", root);
    memcpy(l->step_dir, root, strlen(root) + 1);
    dtp_status st = check_codec(l, err);
    if (st >= 0)
        st = grow_open(l, err);
    if (st < 0)
        return st;
    *load_out = DTPI_TAKE(l);
    return DTP_OK;
}

dtp_status dtpi_load_open(const dtp_allocator *a, dtpi_files *files, const char *dir, uint64_t step,
                          dtpi_load **load_out, dtp_error *err)
{
    char step_dir[DTPI_PATH_MAX];
    dtpi_manifest m;

    dtp_status st = dtpi_step_path(step_dir, dir, step, err);
    if (st >= 0)
        st = dtpi_step_read(files, dir, step, &m, err);
    if (st >= 0)
        st = dtpi_load_adopt(a, files, step_dir, &m, load_out, err);
    if (st >= 0)
        memcpy((*load_out)->dir, dir, strlen(dir) + 1);
    return st;
}

void dtpi_load_close_files(dtpi_load *l)
{
    for (size_t i = 0; i < l->open.len / sizeof(dtpi_file *); i++) {
        dtpi_file_drop(*open_slot(l, i));
        *open_slot(l, i) = NULL;
    }
    l->n_open = 0;
}

void dtpi_load_close(dtpi_load *l)
{
    if (!l)
        return;
    dtpi_fetch_free(l->fetch);
    dtpi_load_close_files(l);
    dtpi_buf_free(&l->open);
    if (l->m.a)
        dtpi_manifest_free(&l->m);
    dtpi_free(l->a, l, sizeof(*l));
}

dtp_status dtpi_load_file(dtpi_load *l, uint32_t i, dtpi_file **file_out, dtp_error *err)
{
    const dtpi_mf_file *f = dtpi_mf_file_at(&l->m, i);
    DTPI_AUTO(file) dtpi_file *file = NULL;
    char dir[DTPI_PATH_MAX], path[DTPI_PATH_MAX];
    uint64_t bytes = 0;

    if (*open_slot(l, i)) {
        *file_out = *open_slot(l, i);
        return DTP_OK;
    }
    const bool own = i < l->m.n_own_files;
    dtp_status st = own ? DTP_OK : dtpi_step_path(dir, l->dir, f->step, err);
    if (st >= 0)
        st = dtpi_path_join(path, own ? l->step_dir : dir, dtpi_mf_file_name(&l->m, f), err);
    if (st >= 0)
        st = l->files->ops->open(l->files, path, &file, &bytes, err);
    if (st < 0)
        return st;
    if (bytes != f->bytes)
        return dtpi_fail(err, bytes < f->bytes ? DTP_ERR_TRUNCATED : DTP_ERR_CORRUPT,
                         "%s has %" PRIu64 " bytes instead of %" PRIu64, path, bytes, f->bytes);
    *file_out = *open_slot(l, i) = DTPI_TAKE(file);
    l->n_open++;
    return DTP_OK;
}

dtp_status dtpi_load_bad_chunk(const dtpi_load *l, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                               uint64_t chunk, const char *what, dtp_error *err)
{
    const dtpi_mf_file *f = dtpi_mf_file_at(&l->m, b->file);
    char step[40] = "";

    if (b->file >= l->m.n_own_files)
        snprintf(step, sizeof(step), "step %" PRIu64 ": ", f->step);
    return dtpi_fail(err, DTP_ERR_CORRUPT, "%s%s: tensor %.60s: chunk %" PRIu64 " of %" PRIu64 ": %s",
                     step, dtpi_mf_file_name(&l->m, f), dtpi_mf_text(&l->m, t->name_at), chunk,
                     b->n_chunks, what);
}

dtp_status dtpi_load_not_decoded(const dtpi_load *l, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                                 uint64_t chunk, const dtp_error *why, dtp_error *err)
{
    if (why->status != DTP_ERR_NOMEM)
        return dtpi_load_bad_chunk(l, t, b, chunk, why->text, err);
    if (err)
        *err = *why;
    return DTP_ERR_NOMEM;
}

dtp_status dtpi_load_stored(dtpi_load *l, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                            uint64_t chunk, uint64_t stored_at, size_t bytes, void *stored,
                            dtp_error *err)
{
    const dtpi_mf_file *f = dtpi_mf_file_at(&l->m, b->file);
    dtpi_file *file = NULL;

    dtp_status st = dtpi_load_file(l, b->file, &file, err);
    if (st >= 0)
        st = l->files->ops->read(file, f->header_bytes + b->begin + stored_at, stored, bytes, err);
    if (st < 0 || b->sums_at == DTPI_NO_SUMS)
        return st;
    const uint64_t want = dtpi_mf_sum(&l->m, b, chunk), got = dtpi_sum64(stored, bytes);
    if (want == got)
        return DTP_OK;
    char text[100];
    snprintf(text, sizeof(text),
             "checksum mismatch (stored %016" PRIx64 ", computed %016" PRIx64 ")", want, got);
    return dtpi_load_bad_chunk(l, t, b, chunk, text, err);
}
