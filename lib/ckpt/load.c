/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - reads any box of a tensor out of the boxes that were stored.
 *
 * For each stored box that meets the wanted one, the common runs are walked in the order of the file;
 * a chunk that a run needs is read once, compared with its sum and decoded. A plain chunk that lies in
 * one piece in the caller's memory is read right there.
 */
#include "ckpt/load.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/sum.h"
#include "ckpt/box.h"
#include "ckpt/delta_load.h"
#include "ckpt/part.h"
#include "ckpt/plan.h"
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
    if (dtpi_mf_file_at(&l->m, i)->placed)
        return DTP_OK;
    const dtp_status st = dtpi_part_read(l->files, l->step_dir, &l->m, i, err);
    if (st < 0)
        return st;
    return grow_open(l, err);
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
    if (strlen(root) >= sizeof(l->step_dir))
        return dtpi_fail(err, DTP_ERR_LIMIT, "path is too long: %.40s...", root);
    memcpy(l->step_dir, root, strlen(root) + 1);
    dtp_status st = dtpi_codec_open(a, l->m.codec, &l->codec, err);
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

dtp_status dtpi_load_chunks(dtpi_load *l, dtp_error *err)
{
    if (l->chunks)
        return DTP_OK;
    l->chunks = dtpi_alloc(l->a, sizeof(*l->chunks));
    return l->chunks ? dtpi_chunks_open(l, l->chunks, err) : dtpi_fail_nomem(err, sizeof(*l->chunks));
}

void dtpi_load_close(dtpi_load *l)
{
    if (!l)
        return;
    if (l->chunks)
        dtpi_chunks_close(l->chunks);
    dtpi_free(l->a, l->chunks, sizeof(*l->chunks));
    for (size_t i = 0; i < l->open.len / sizeof(dtpi_file *); i++)
        dtpi_file_drop(*open_slot(l, i));
    dtpi_buf_free(&l->open);
    dtpi_free(l->a, l->plain, l->buffer_bytes);
    dtpi_free(l->a, l->stored, l->buffer_bytes);
    dtpi_codec_close(&l->codec);
    if (l->m.a)
        dtpi_manifest_free(&l->m);
    dtpi_free(l->a, l, sizeof(*l));
}

static dtp_status make_buffers(dtpi_load *l, dtp_error *err)
{
    if (!l->plain)
        l->plain = dtpi_alloc_aligned(l->a, l->buffer_bytes, 4096);
    if (!l->stored)
        l->stored = dtpi_alloc_aligned(l->a, l->buffer_bytes, 4096);
    return l->plain && l->stored ? DTP_OK : dtpi_fail_nomem(err, l->buffer_bytes);
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
        st = dtpi_path_join(path, own ? l->step_dir : dir, dtpi_mf_text(&l->m, f->name_at), err);
    if (st >= 0)
        st = l->files->ops->open(l->files, path, &file, &bytes, err);
    if (st < 0)
        return st;
    if (bytes != f->bytes)
        return dtpi_fail(err, bytes < f->bytes ? DTP_ERR_TRUNCATED : DTP_ERR_CORRUPT,
                         "%s has %" PRIu64 " bytes instead of %" PRIu64, path, bytes, f->bytes);
    st = make_buffers(l, err);
    if (st >= 0)
        *file_out = *open_slot(l, i) = DTPI_TAKE(file);
    return st;
}

dtp_status dtpi_load_bad_chunk(const dtpi_load *l, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                               uint64_t chunk, const char *what, dtp_error *err)
{
    const dtpi_mf_file *f = dtpi_mf_file_at(&l->m, b->file);
    char step[40] = "";

    if (b->file >= l->m.n_own_files)
        snprintf(step, sizeof(step), "step %" PRIu64 ": ", f->step);
    return dtpi_fail(err, DTP_ERR_CORRUPT, "%s%s: tensor %.60s: chunk %" PRIu64 " of %" PRIu64 ": %s",
                     step, dtpi_mf_text(&l->m, f->name_at), dtpi_mf_text(&l->m, t->name_at), chunk,
                     b->n_chunks, what);
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

/* ---- one stored box ---- */

/* Where the reading of one stored box stands. */
typedef struct part {
    dtpi_load *l;
    const dtpi_mf_tensor *t;
    const dtpi_mf_box *b;
    uint64_t bytes;             /* plain, of the stored box */
    uint64_t loaded;            /* chunk in l->plain; UINT64_MAX: none */
    uint64_t stored_chunk, stored_at;   /* the chunk at `stored_at` in the stored bytes */
} part;

/* Where a chunk begins in the stored bytes; asked in ascending order. */
static uint64_t seek_chunk(part *p, uint64_t chunk)
{
    if (p->b->sizes_at == DTPI_NO_SIZES)
        return chunk * p->l->m.chunk_bytes;
    while (p->stored_chunk < chunk)
        p->stored_at += dtpi_mf_stored_bytes(&p->l->m, p->b, p->bytes, p->stored_chunk++);
    return p->stored_at;
}

/* A whole chunk, plain, to `out`. */
static dtp_status read_chunk(part *p, uint64_t chunk, uint8_t *out, dtp_error *err)
{
    dtpi_load *l = p->l;
    const size_t plain = dtpi_mf_chunk_bytes(&l->m, p->bytes, chunk);
    const size_t stored = dtpi_mf_stored_bytes(&l->m, p->b, p->bytes, chunk);
    const bool as_is = stored == plain;

    if (p->b->base != DTPI_NO_BASE)
        return dtpi_chunks_read(l->chunks, p->t, p->b, chunk, out, err);
    dtp_status st = dtpi_load_stored(l, p->t, p->b, chunk, seek_chunk(p, chunk), stored,
                                     as_is ? out : l->stored, err);
    if (st < 0 || as_is)
        return st;
    dtp_error why = { 0 };
    st = dtpi_codec_restore(&l->codec, l->stored, stored, out, plain, &why);
    if (st < 0)
        return dtpi_load_bad_chunk(l, p->t, p->b, chunk, why.text, err);
    return DTP_OK;
}

/* Bytes [from, from + bytes) of the stored box to `out`. */
static dtp_status copy_run(part *p, uint64_t from, uint64_t bytes, uint8_t *out, dtp_error *err)
{
    const uint64_t chunk_bytes = p->l->m.chunk_bytes;
    dtp_status st = DTP_OK;

    while (bytes > 0) {
        const uint64_t chunk = from / chunk_bytes, skip = from % chunk_bytes;
        const uint64_t whole = dtpi_mf_chunk_bytes(&p->l->m, p->bytes, chunk);
        const uint64_t n = DTPI_MIN(bytes, whole - skip);
        if (n == whole) {
            st = read_chunk(p, chunk, out, err);
        } else {
            if (p->loaded != chunk)
                st = read_chunk(p, chunk, p->l->plain, err);
            if (st >= 0) {
                p->loaded = chunk;
                memcpy(out, p->l->plain + skip, n);
            }
        }
        if (st < 0) {
            p->loaded = UINT64_MAX;
            return st;
        }
        from += n;
        out += n;
        bytes -= n;
    }
    return DTP_OK;
}

static dtp_status read_box(dtpi_load *l, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                           const int64_t *offset, const int64_t *extent, uint8_t *data,
                           dtp_error *err)
{
    const int64_t *dims = dtpi_mf_dims(&l->m, b->dims_at);
    int64_t common_offset[DTP_CKPT_MAX_DIMS], common_extent[DTP_CKPT_MAX_DIMS];
    dtpi_file *file = NULL;
    const uint64_t bits = dtp_dtype_bits(t->dtype);
    part p = {
        .l = l, .t = t, .b = b, .bytes = dtpi_mf_box_bytes(&l->m, t, b), .loaded = UINT64_MAX
    };
    dtpi_walk w;

    if (!dtpi_box_meet(t->n_dims, dims, dims + t->n_dims, offset, extent, common_offset,
                       common_extent))
        return DTP_OK;
    dtp_status st = dtpi_load_place(l, b->home, err);
    if (st >= 0)
        st = dtpi_load_file(l, b->file, &file, err);
    if (st >= 0 && b->base != DTPI_NO_BASE)
        st = dtpi_load_chunks(l, err);
    if (st < 0)
        return st;
    dtpi_walk_begin(&w, t->n_dims, dims, dims + t->n_dims, offset, extent, common_offset,
                    common_extent);
    for (; !w.done; dtpi_walk_next(&w)) {
        if (w.from * bits % 8 || w.run * bits % 8 || w.to * bits % 8)
            return dtpi_fail(err, DTP_ERR_UNSUPPORTED,
                             "tensor %.80s: the wanted box cuts a byte of %s",
                             dtpi_mf_text(&l->m, t->name_at), dtp_dtype_name(t->dtype));
        st = copy_run(&p, dtpi_bits_bytes(w.from, bits), dtpi_bits_bytes(w.run, bits),
                      data + dtpi_bits_bytes(w.to, bits), err);
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

/* ---- one wanted box ---- */

static dtp_status check_wanted(const dtpi_load *l, const dtp_ckpt_tensor *want,
                               const dtpi_mf_tensor *t, dtp_error *err)
{
    const int64_t *shape = dtpi_mf_dims(&l->m, t->dims_at);
    char a[80], b[80];

    if (want->dtype != (dtp_dtype)t->dtype)
        return dtpi_fail(err, DTP_ERR_INVAL, "tensor %.80s is stored as %s, wanted as %s",
                         want->name, dtp_dtype_name(t->dtype), dtp_dtype_name(want->dtype));
    if (want->n_dims == t->n_dims && (!want->shape || want->n_dims == 0 ||
                                      memcmp(want->shape, shape, t->n_dims * sizeof(*shape)) == 0))
        return DTP_OK;
    dtpi_dims_text(t->n_dims, shape, a, sizeof(a));
    if (want->shape)
        dtpi_dims_text(want->n_dims, want->shape, b, sizeof(b));
    return dtpi_fail(err, DTP_ERR_INVAL, "tensor %.80s has shape %s, wanted %s%s", want->name, a,
                     want->shape ? b : "other dimensions", "");
}

static dtp_status check_wanted_box(const dtpi_mf_tensor *t, const char *name, const int64_t *shape,
                                   const int64_t *offset, const int64_t *extent, const void *data,
                                   dtp_error *err)
{
    char box[120], whole[80];
    uint64_t count = 0;

    if (!dtpi_box_inside(t->n_dims, offset, extent, shape)) {
        dtpi_box_text(t->n_dims, offset, extent, box, sizeof(box));
        dtpi_dims_text(t->n_dims, shape, whole, sizeof(whole));
        return dtpi_fail(err, DTP_ERR_RANGE, "tensor %.80s: box %s lies outside its shape %s", name,
                         box, whole);
    }
    if (!data && dtpi_box_count(t->n_dims, extent, &count) && count > 0)
        return dtpi_fail(err, DTP_ERR_INVAL, "tensor %.80s: no memory to read into", name);
    return DTP_OK;
}

dtp_status dtpi_load_read(dtpi_load *l, const dtp_ckpt_tensor *want, dtp_error *err)
{
    static const int64_t zero[DTP_CKPT_MAX_DIMS];
    uint32_t i;

    if (!want->name || !dtpi_mf_find(&l->m, want->name, &i))
        return dtpi_fail(err, DTP_ERR_NOT_FOUND, "tensor %.80s is not in step %" PRIu64,
                         want->name ? want->name : "(null)", l->m.step);
    const dtpi_mf_tensor *t = dtpi_mf_tensor_at(&l->m, i);
    const int64_t *shape = dtpi_mf_dims(&l->m, t->dims_at);
    const int64_t *offset = want->offset ? want->offset : zero;
    const int64_t *extent = want->extent ? want->extent : shape;
    dtp_status st = check_wanted(l, want, t, err);
    if (st >= 0)
        st = check_wanted_box(t, want->name, shape, offset, extent, want->data, err);
    for (uint32_t k = 0; st >= 0 && k < t->n_boxes; k++)
        st = read_box(l, t, dtpi_mf_box_at(&l->m, t->first_box + k), offset, extent, want->data,
                      err);
    return st;
}
