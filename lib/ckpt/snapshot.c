/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot.c - one block for everything: tensors' descriptions and texts first, then their data. It only
 * grows, so that steady saves allocate nothing and touch no new page.
 */
#include "ckpt/snapshot.h"

#include <sys/mman.h>

#include "ckpt/copy.h"
#include "ckpt/plan.h"
#include "ctx/ctx.h"

enum { PAGE = 4096, HUGE = 2 << 20, ALIGN_SMALL = 64 };

static size_t align_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Where things go; first counted with no block, then filled in the same order. */
typedef struct cursor {
    uint8_t *block;             /* NULL: count */
    size_t at;
} cursor;

static void *put(cursor *c, const void *data, size_t bytes, size_t align)
{
    c->at = align_up(c->at, align);
    uint8_t *to = c->block ? c->block + c->at : NULL;
    if (to && data && bytes)
        memcpy(to, data, bytes);
    c->at += bytes;
    return to;
}

static const int64_t *put_dims(cursor *c, const int64_t *dims, uint32_t n)
{
    return dims ? put(c, dims, n * sizeof(*dims), sizeof(*dims)) : NULL;
}

static const char *put_text(cursor *c, const char *text)
{
    return text ? put(c, text, strlen(text) + 1, 1) : NULL;
}

/* Everything but the data of tensors. */
static void put_head(cursor *c, dtpi_snapshot *s, const dtp_ckpt_tensor *tensors, size_t n,
                     const char *dir, const dtp_ckpt_save_opts *opts)
{
    dtp_ckpt_tensor *to = put(c, tensors, n * sizeof(*tensors), ALIGN_SMALL);

    for (size_t i = 0; i < n; i++) {
        const dtp_ckpt_tensor *t = &tensors[i];
        const char *name = put_text(c, t->name);
        const int64_t *shape, *offset, *extent;
        shape = put_dims(c, t->shape, t->n_dims);
        offset = put_dims(c, t->offset, t->n_dims);
        extent = put_dims(c, t->extent, t->n_dims);
        if (!to)
            continue;
        to[i].name = name;
        to[i].shape = shape;
        to[i].offset = offset;
        to[i].extent = extent;
    }
    s->tensors = to;
    s->n = n;
    s->dir = put_text(c, dir);
    s->opts = *opts;
    s->opts.meta_json = put_text(c, opts->meta_json);
    s->opts.files = put_text(c, opts->files);
}

static dtp_status data_bytes(const dtp_ckpt_tensor *t, size_t *bytes_out, dtp_error *err)
{
    const dtp_status st = dtpi_plan_check(t, err);

    if (st < 0)
        return st;
    const uint64_t bytes = dtpi_plan_bytes(t);
    if (!t->data && bytes)
        return dtpi_fail(err, DTP_ERR_INVAL, "tensor %.80s has no data", t->name);
    *bytes_out = (size_t)bytes;
    return DTP_OK;
}

/* Data of large tensors begins at a page, so that it can be written from where it lies. */
static dtp_status put_data(cursor *c, const dtp_ckpt_tensor *tensors, dtpi_snapshot *s, dtp_error *err)
{
    for (size_t i = 0; i < s->n; i++) {
        size_t bytes = 0;
        const dtp_status st = data_bytes(&tensors[i], &bytes, err);
        if (st < 0)
            return st;
        if (bytes > SIZE_MAX / 2 - c->at)
            return dtpi_fail_nomem(err, SIZE_MAX);
        void *to = put(c, NULL, bytes, bytes >= PAGE ? PAGE : ALIGN_SMALL);
        if (to)
            s->tensors[i].data = to;
    }
    return DTP_OK;
}

static dtp_status reserve(dtpi_snapshot *s, size_t bytes, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(s->ctx);

    if (s->block && bytes <= s->capacity)
        return DTP_OK;
    dtpi_snapshot_free(s);
    const size_t capacity = align_up(bytes, bytes >= HUGE ? HUGE : PAGE);
    s->block = dtpi_alloc_aligned(a, capacity, bytes >= HUGE ? HUGE : PAGE);
    if (!s->block)
        return dtpi_fail_nomem(err, capacity);
    s->capacity = capacity;
    if (bytes >= HUGE)
        madvise(s->block, capacity, MADV_HUGEPAGE);
    return DTP_OK;
}

dtp_status dtpi_snapshot_take(dtpi_snapshot *s, const dtp_ckpt_tensor *tensors, size_t n,
                              const char *dir, const dtp_ckpt_save_opts *opts, dtp_error *err)
{
    cursor c = { 0 };

    s->n = n;
    dtp_status st = put_data(&c, tensors, s, err);
    if (st < 0)
        return st;
    const size_t data = align_up(c.at, PAGE);
    c.at = 0;
    put_head(&c, s, tensors, n, dir, opts);
    const size_t head = align_up(c.at, PAGE);
    st = reserve(s, head + data, err);
    if (st < 0)
        return st;
    c = (cursor){ .block = s->block };
    put_head(&c, s, tensors, n, dir, opts);
    c.at = head;
    st = put_data(&c, tensors, s, err);
    return st < 0 ? st : dtpi_copy_tensors(s->ctx, s->tensors, tensors, n, err);
}

void dtpi_snapshot_free(dtpi_snapshot *s)
{
    dtpi_free(dtpi_ctx_alloc(s->ctx), s->block, s->capacity);
    s->block = NULL;
    s->capacity = 0;
}
