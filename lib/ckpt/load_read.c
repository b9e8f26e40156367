/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_read.c - plans a read: which chunks of which files the wanted boxes need.
 *
 * For each stored box that meets a wanted one, the chunks that the common runs touch become jobs; a chunk
 * that lies in one piece in the wanted box goes right there. A chunk is read whole, because only so it can
 * be compared with its sum; where there is none (files of others), or none is asked for, only the runs are
 * read.
 */
#include <inttypes.h>

#include "ckpt/delta_load.h"
#include "ckpt/fetch.h"
#include "ckpt/share.h"

static dtp_status check_wanted(const dtpi_load *l, const dtp_ckpt_tensor *want,
                               const dtpi_mf_tensor *t, dtp_error *err)
{
    const int64_t *shape = dtpi_mf_dims(&l->m, t->dims_at);
    char a[80], b[80];

    if (want->dtype != (dtp_dtype)t->dtype)
        return dtpi_fail(err, DTP_ERR_INVAL, "tensor %.80s is stored as %s, wanted as %s",
                         want->name, dtp_dtype_name(t->dtype), dtp_dtype_name(want->dtype));
    if (want->n_dims > DTP_CKPT_MAX_DIMS)
        return dtpi_fail(err, DTP_ERR_INVAL, "tensor %.80s: %u dimensions, at most %d", want->name,
                         want->n_dims, DTP_CKPT_MAX_DIMS);
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

static dtp_status find_wanted(const dtpi_load *l, const dtp_ckpt_tensor *want,
                              const dtpi_mf_tensor **t_out, dtp_error *err)
{
    static const int64_t zero[DTP_CKPT_MAX_DIMS];
    uint32_t i;

    if (!want->name || !dtpi_mf_find(&l->m, want->name, &i))
        return dtpi_fail(err, DTP_ERR_NOT_FOUND, "tensor %.80s is not in step %" PRIu64,
                         want->name ? want->name : "(null)", l->m.step);
    const dtpi_mf_tensor *t = dtpi_mf_tensor_at(&l->m, i);
    const int64_t *shape = dtpi_mf_dims(&l->m, t->dims_at);
    const dtp_status st = check_wanted(l, want, t, err);
    *t_out = t;
    return st < 0 ? st
                  : check_wanted_box(t, want->name, shape, want->offset ? want->offset : zero,
                                     want->extent ? want->extent : shape, want->data, err);
}

/* ---- the jobs ---- */

typedef struct planner {
    dtpi_load *l;
    dtpi_fetch_job *jobs;
    size_t n, room;
} planner;

/* Puts the jobs that are worth sharing first; how many there are. */
static size_t shared_first(const dtpi_share *share, dtpi_fetch_job *jobs, size_t n)
{
    size_t n_shared = 0;

    for (size_t i = 0; i < n; i++)
        if (dtpi_share_wants(share, &jobs[i])) {
            const dtpi_fetch_job job = jobs[i];
            jobs[i] = jobs[n_shared];
            jobs[n_shared++] = job;
        }
    return n_shared;
}

static dtp_status flush(planner *p, dtp_error *err)
{
    dtpi_load *l = p->l;
    const size_t n = p->n, n_shared = l->share ? shared_first(l->share, p->jobs, n) : 0;
    dtp_status st = DTP_OK;

    p->n = 0;
    if (n_shared > 0)
        st = dtpi_share_run(l->share, l->fetch, p->jobs, n_shared, err);
    if (st < 0 || n_shared == n)
        return st;
    return dtpi_fetch_run(l->fetch, p->jobs + n_shared, n - n_shared, NULL, NULL, err);
}

static dtp_status add(planner *p, const dtpi_fetch_job *job, dtp_error *err)
{
    dtp_status st = DTP_OK;

    if (p->n == DTPI_FETCH_JOBS)
        st = flush(p, err);
    if (p->n == p->room) {
        const size_t more = DTPI_MIN(DTPI_MAX(p->room * 2, (size_t)64), (size_t)DTPI_FETCH_JOBS);
        dtpi_fetch_job *jobs = dtpi_alloc_array(p->l->a, more, sizeof(*jobs));
        if (!jobs)
            return dtpi_fail_nomem(err, more * sizeof(*jobs));
        if (p->n)
            memcpy(jobs, p->jobs, p->n * sizeof(*jobs));
        dtpi_free(p->l->a, p->jobs, p->room * sizeof(*jobs));
        p->jobs = jobs;
        p->room = more;
    }
    p->jobs[p->n++] = *job;
    return st;
}

/* The runs of a plain chunk one by one. */
static dtp_status add_runs(planner *p, const dtpi_fetch_job *chunk, dtpi_walk w, dtp_error *err)
{
    const uint64_t bits = dtp_dtype_bits(chunk->tensor->dtype);
    const uint64_t begin = chunk->chunk * p->l->m.chunk_bytes, end = begin + chunk->plain;
    dtp_status st = DTP_OK;

    for (; !w.done && st >= 0; dtpi_walk_next(&w)) {
        const uint64_t from = dtpi_bits_bytes(w.from, bits);
        const uint64_t lo = DTPI_MAX(from, begin);
        const uint64_t hi = DTPI_MIN(from + dtpi_bits_bytes(w.run, bits), end);
        dtpi_fetch_job job = *chunk;
        if (lo >= hi)
            break;
        job.at += lo - begin;
        job.stored = job.plain = (uint32_t)(hi - lo);
        job.direct = (uint8_t *)chunk->want->data + dtpi_bits_bytes(w.to, bits) + (lo - from);
        job.is_part = true;
        st = add(p, &job, err);
    }
    return st;
}

/* The next chunk of a box, from `job->chunk` on, that the walk needs. */
static dtp_status add_chunk(planner *p, dtpi_fetch_job *job, const dtpi_walk *begun, bool *done_out,
                            dtp_error *err)
{
    const uint64_t bits = dtp_dtype_bits(job->tensor->dtype);
    const uint64_t begin = job->chunk * p->l->m.chunk_bytes, end = begin + job->plain;
    dtpi_walk w = *begun;

    dtpi_walk_seek(&w, begin * 8 / bits);
    const uint64_t from = dtpi_bits_bytes(w.from, bits);
    *done_out = w.done;
    if (w.done || from >= end)
        return DTP_OK;
    const bool whole = from <= begin && from + dtpi_bits_bytes(w.run, bits) >= end;
    job->direct =
        whole ? (uint8_t *)job->want->data + dtpi_bits_bytes(w.to, bits) + (begin - from) : NULL;
    const bool unchecked =
        job->box->sums_at == DTPI_NO_SUMS || p->l->checks == DTP_CKPT_CHECK_WHOLE;
    const bool in_runs = !whole && unchecked && job->box->base == DTPI_NO_BASE &&
                         job->stored == job->plain;
    return in_runs ? add_runs(p, job, w, err) : add(p, job, err);
}

/* Runs of numbers narrower than a byte begin and end with one. */
static bool cuts_bytes(const dtpi_walk *w, uint64_t bits)
{
    uint64_t all = (w->from | w->to | w->run) * bits;

    for (uint32_t i = 0; i < w->n_outer; i++)
        if (w->counts[i] > 1)
            all |= (w->from_step[i] | w->to_step[i]) * bits;
    return all % 8 != 0;
}

static dtp_status add_box(planner *p, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                          const dtp_ckpt_tensor *want, dtp_error *err)
{
    dtpi_load *l = p->l;
    const uint64_t bytes = dtpi_mf_box_bytes(&l->m, t, b);
    dtpi_fetch_job job = { .tensor = t, .box = b, .want = want };
    dtpi_walk w;
    bool done = false;

    if (!dtpi_fetch_walk(&l->m, t, b, want, &w))
        return DTP_OK;
    if (cuts_bytes(&w, dtp_dtype_bits(t->dtype)))
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "tensor %.80s: the wanted box cuts a byte of %s",
                         dtpi_mf_text(&l->m, t->name_at), dtp_dtype_name(t->dtype));
    dtp_status st = dtpi_load_place(l, b->home, err);
    if (st >= 0 && dtpi_load_is_full(l)) {
        st = flush(p, err);
        dtpi_load_close_files(l);
    }
    if (st >= 0)
        st = dtpi_chunks_files(l, b, err);
    if (st >= 0)
        st = dtpi_load_file(l, b->file, &job.file, err);
    if (st < 0)
        return st;
    job.at = dtpi_mf_file_at(&l->m, b->file)->header_bytes + b->begin;
    for (; job.chunk < b->n_chunks && !done && st >= 0; job.chunk++) {
        job.plain = dtpi_mf_chunk_bytes(&l->m, bytes, job.chunk);
        job.stored = dtpi_mf_stored_bytes(&l->m, b, bytes, job.chunk);
        st = add_chunk(p, &job, &w, &done, err);
        job.at += job.stored;
    }
    return st;
}

dtp_status dtpi_load_read_all(dtpi_load *l, const dtp_ckpt_tensor *tensors, size_t n,
                              dtp_error *err)
{
    planner p = { .l = l };

    dtp_status st = l->fetch ? DTP_OK : dtpi_fetch_new(l, &l->fetch, err);
    for (size_t i = 0; i < n && st >= 0; i++) {
        const dtpi_mf_tensor *t = NULL;
        st = find_wanted(l, &tensors[i], &t, err);
        for (uint32_t k = 0; st >= 0 && k < t->n_boxes; k++)
            st = add_box(&p, t, dtpi_mf_box_at(&l->m, t->first_box + k), &tensors[i], err);
    }
    if (st >= 0)
        st = flush(&p, err);
    if (l->share)
        dtpi_share_rest(l->share);
    dtpi_free(l->a, p.jobs, p.room * sizeof(*p.jobs));
    return st;
}

dtp_status dtpi_load_read(dtpi_load *l, const dtp_ckpt_tensor *want, dtp_error *err)
{
    return dtpi_load_read_all(l, want, 1, err);
}
