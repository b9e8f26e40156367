/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c - looks at every byte of a step: each part, each file's header against its sum and against the
 * manifest, each chunk against its sum, coded chunks decoded, the digest of the whole. Of files of earlier
 * steps the chunks that this step refers to.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/sum.h"
#include "ckpt/delta_load.h"
#include "ckpt/fetch.h"
#include "ckpt/st.h"

typedef struct verifier {
    dtpi_load *l;
    void (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
    uint64_t done, told, total;
    dtpi_buf sums;              /* of the file at hand */
    dtpi_fetch_job *jobs;
    size_t n_jobs, room;
} verifier;

/* A box and its tensor, to be sorted by place. */
typedef struct placed {
    const dtpi_mf_tensor *t;
    const dtpi_mf_box *b;
} placed;

static int by_place(const void *x, const void *y)
{
    const placed *a = x, *b = y;

    if (a->b->file != b->b->file)
        return a->b->file < b->b->file ? -1 : 1;
    if (a->b->begin != b->b->begin)
        return a->b->begin < b->b->begin ? -1 : 1;
    if (a->b->end != b->b->end)
        return a->b->end < b->b->end ? -1 : 1;
    /* Of boxes that share their bytes the first has the entry. */
    return a->b < b->b ? -1 : a->b > b->b;
}

/* The same bytes as the box before. */
static bool is_shared(const placed *boxes, size_t i)
{
    const dtpi_mf_box *b = boxes[i].b;

    return i > 0 && b->begin < b->end && boxes[i - 1].b->file == b->file &&
           boxes[i - 1].b->begin == b->begin && boxes[i - 1].b->end == b->end;
}

/* Of the run at hand; never the same number twice. */
static void tell(void *user, uint64_t done)
{
    verifier *v = user;

    if (!v->progress || v->done + done <= v->told)
        return;
    v->told = v->done + done;
    v->progress(v->user, v->told, v->total);
}

static void advance(verifier *v, uint64_t bytes)
{
    v->done += bytes;
    tell(v, 0);
}

/* The header names the box as the manifest does. */
static dtp_status check_entry(verifier *v, const dtpi_st *st, const placed *p, const char *path,
                              dtp_error *err)
{
    const dtpi_manifest *m = &v->l->m;
    const char *key = dtpi_mf_text(m, p->b->key_at);
    const dtpi_st_entry *e = dtpi_st_find(st, key, strlen(key));
    const bool coded = p->b->sizes_at != DTPI_NO_SIZES;
    const uint64_t bytes = p->b->end - p->b->begin;

    if (!e || e->begin != p->b->begin || e->end != p->b->end)
        return dtpi_fail(err, DTP_ERR_CORRUPT, "%s: tensor %.100s is not where the manifest says",
                         path, key);
    const bool as_blob = dtpi_st_entry_type(e)->dtype == DTP_U8 && e->n_dims == 1 &&
                         dtpi_st_dims(st, e)[0] == bytes;
    const bool as_box = dtpi_st_entry_type(e)->dtype == (dtp_dtype)p->t->dtype &&
                        e->n_dims == p->t->n_dims &&
                        memcmp(dtpi_st_dims(st, e), dtpi_mf_dims(m, p->b->dims_at) + p->t->n_dims,
                               e->n_dims * sizeof(int64_t)) == 0;
    if (coded ? !as_blob : !as_box)
        return dtpi_fail(err, DTP_ERR_CORRUPT,
                         "%s: tensor %.100s has another dtype or shape than the manifest", path,
                         key);
    return DTP_OK;
}

static dtp_status check_header(verifier *v, uint32_t i, const placed *boxes, size_t n,
                               dtp_error *err)
{
    dtpi_load *l = v->l;
    const dtpi_mf_file *f = dtpi_mf_file_at(&l->m, i);
    const char *path = dtpi_mf_file_name(&l->m, f);
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(l->a);
    dtpi_file *file = NULL;
    uint64_t bytes = 0;
    size_t n_entries = 0;
    dtpi_st st;

    dtp_status s = dtpi_load_file(l, i, &file, err);
    if (s < 0)
        return s;
    uint8_t *p = dtpi_buf_reserve(&text, f->header_bytes);
    if (!p)
        return dtpi_fail_nomem(err, f->header_bytes);
    s = l->files->ops->read(file, 0, p, f->header_bytes, err);
    if (s < 0)
        return s;
    const uint64_t sum = dtpi_sum64(p, f->header_bytes);
    if (sum != f->header_sum)
        return dtpi_fail(err, DTP_ERR_CORRUPT,
                         "%s: header: checksum mismatch (stored %016" PRIx64
                         ", computed %016" PRIx64 ")",
                         path, f->header_sum, sum);
    s = dtpi_st_header_bytes(p, f->bytes, path, &bytes, err);
    if (s >= 0 && bytes + 8 != f->header_bytes)
        s = dtpi_fail(err, DTP_ERR_CORRUPT,
                      "%s: its header has another length than the manifest says", path);
    if (s >= 0)
        s = dtpi_st_read(l->a, (const char *)p + 8, bytes, f->bytes - f->header_bytes, path, &st,
                         err);
    if (s < 0)
        return s;
    for (size_t k = 0; k < n && s >= 0; k++) {
        if (is_shared(boxes, k))
            continue;
        n_entries++;
        s = check_entry(v, &st, &boxes[k], path, err);
    }
    if (s >= 0 && st.n != n_entries)
        s = dtpi_fail(err, DTP_ERR_CORRUPT, "%s holds %zu tensors, the manifest lists %zu", path,
                      st.n, n_entries);
    dtpi_st_free(&st);
    if (!dtpi_buf_append(&v->sums, &sum, sizeof(sum)))
        return dtpi_fail_nomem(err, sizeof(sum));
    advance(v, f->header_bytes);
    return s;
}

/* ---- chunks ---- */

static dtp_status flush(verifier *v, dtp_error *err)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < v->n_jobs; i++)
        bytes += v->jobs[i].stored;
    const dtp_status st = dtpi_fetch_run(v->l->fetch, v->jobs, v->n_jobs, tell, v, err);
    v->n_jobs = 0;
    if (st >= 0)
        advance(v, bytes);
    return st;
}

static dtp_status check_box(verifier *v, const placed *p, dtp_error *err)
{
    dtpi_load *l = v->l;
    const uint64_t bytes = dtpi_mf_box_bytes(&l->m, p->t, p->b);
    dtpi_fetch_job job = { .tensor = p->t, .box = p->b };

    dtp_status st = DTP_OK;
    if (dtpi_load_is_full(l)) {
        st = flush(v, err);
        dtpi_load_close_files(l);
    }
    if (st >= 0)
        st = dtpi_chunks_files(l, p->b, err);
    if (st >= 0)
        st = dtpi_load_file(l, p->b->file, &job.file, err);
    job.at = dtpi_mf_file_at(&l->m, p->b->file)->header_bytes + p->b->begin;
    for (; job.chunk < p->b->n_chunks && st >= 0; job.chunk++) {
        job.plain = dtpi_mf_chunk_bytes(&l->m, bytes, job.chunk);
        job.stored = dtpi_mf_stored_bytes(&l->m, p->b, bytes, job.chunk);
        v->jobs[v->n_jobs++] = job;
        job.at += job.stored;
        if (v->n_jobs == v->room)
            st = flush(v, err);
    }
    if (st < 0 || p->b->sums_at == DTPI_NO_SUMS)
        return st;
    dtpi_buf_append(&v->sums, DTPI_MF_GET(uint64_t, l->m.sums, p->b->sums_at), p->b->n_chunks * 8);
    return v->sums.failed ? dtpi_fail_nomem(err, 0) : DTP_OK;
}

static dtp_status check_file(verifier *v, uint32_t i, const placed *boxes, size_t n, dtp_error *err)
{
    const dtpi_mf_file *f = dtpi_mf_file_at(&v->l->m, i);
    const bool own = i < v->l->m.n_own_files;
    dtpi_file *file = NULL;

    dtpi_buf_reset(&v->sums);
    dtp_status st = own ? check_header(v, i, boxes, n, err)
                        : dtpi_load_file(v->l, i, &file, err);
    for (size_t k = 0; k < n && st >= 0; k++)
        if (!is_shared(boxes, k))
            st = check_box(v, &boxes[k], err);
    if (st >= 0)
        st = flush(v, err);
    if (st < 0 || !own)
        return st;
    const uint64_t digest = dtpi_sum64(v->sums.data, v->sums.len);
    if (digest != f->digest)
        return dtpi_fail(err, DTP_ERR_CORRUPT,
                         "%s: digest mismatch (stored %016" PRIx64 ", computed %016" PRIx64 ")",
                         dtpi_mf_file_name(&v->l->m, f), f->digest, digest);
    return DTP_OK;
}

/* Without checksums: every byte of every box can be read, which is all that can be known. */
static dtp_status read_boxes(verifier *v, const placed *boxes, size_t n, dtp_error *err)
{
    dtp_status st = DTP_OK;

    v->total = 0;
    for (size_t i = 0; i < n; i++)
        v->total += boxes[i].b->end - boxes[i].b->begin;
    for (size_t k = 0; k < n && st >= 0; k++)
        st = check_box(v, &boxes[k], err);
    return st < 0 ? st : flush(v, err);
}

static void place_boxes(const dtpi_manifest *m, placed *out)
{
    for (size_t t = 0; t < dtpi_mf_n_tensors(m); t++) {
        const dtpi_mf_tensor *tensor = dtpi_mf_tensor_at(m, t);
        for (uint32_t i = 0; i < tensor->n_boxes; i++)
            *out++ = (placed){ tensor, dtpi_mf_box_at(m, tensor->first_box + i) };
    }
}

/* All of the step's own files, and of others what is looked at. */
static uint64_t count_bytes(const dtpi_manifest *m, const placed *boxes, size_t n)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < m->n_own_files; i++)
        bytes += dtpi_mf_file_at(m, i)->bytes;
    for (size_t i = 0; i < n; i++)
        if (boxes[i].b->file >= m->n_own_files && !is_shared(boxes, i))
            bytes += boxes[i].b->end - boxes[i].b->begin;
    return bytes;
}

static dtp_status check_all(verifier *v, const placed *boxes, size_t n, dtp_error *err)
{
    const dtpi_manifest *m = &v->l->m;
    dtp_status st = DTP_OK;
    size_t at = 0;

    if (m->format)
        return read_boxes(v, boxes, n, err);
    for (uint32_t i = 0; i < dtpi_mf_n_files(m) && st >= 0; i++) {
        size_t k = 0;
        while (at + k < n && boxes[at + k].b->file == i)
            k++;
        st = check_file(v, i, boxes + at, k, err);
        at += k;
    }
    return st;
}

/* What a run takes together: chunks, but no more than there can be. */
static size_t most_jobs(const dtpi_load *l)
{
    const uint64_t chunk = DTPI_MAX(l->m.chunk_bytes, 1u);
    uint64_t n = dtpi_mf_n_boxes(&l->m) + 1;

    for (size_t i = 0; i < dtpi_mf_n_files(&l->m); i++)
        n += dtpi_mf_file_at(&l->m, i)->bytes / chunk;
    return (size_t)DTPI_MIN(n, (uint64_t)DTPI_FETCH_JOBS);
}

static dtp_status make_room(verifier *v, dtp_error *err)
{
    dtpi_load *l = v->l;

    v->room = most_jobs(l);
    v->jobs = dtpi_alloc_array(l->a, v->room, sizeof(*v->jobs));
    if (!v->jobs)
        return dtpi_fail_nomem(err, v->room * sizeof(*v->jobs));
    return l->fetch ? DTP_OK : dtpi_fetch_new(l, &l->fetch, err);
}

dtp_status dtpi_load_verify(dtpi_load *l,
                            void (*progress)(void *user, uint64_t done, uint64_t total), void *user,
                            dtp_error *err)
{
    const size_t n = dtpi_mf_n_boxes(&l->m);
    verifier v = { .l = l, .progress = progress, .user = user, .sums = dtpi_buf_init(l->a) };
    placed *boxes = dtpi_alloc_array(l->a, n + 1, sizeof(*boxes));

    if (!boxes)
        return dtpi_fail_nomem(err, n * sizeof(*boxes));
    dtp_status st = make_room(&v, err);
    for (uint32_t i = 0; i < l->m.n_own_files && st >= 0; i++)
        st = dtpi_load_place(l, i, err);
    place_boxes(&l->m, boxes);
    if (n > 1)
        qsort(boxes, n, sizeof(*boxes), by_place);
    v.total = count_bytes(&l->m, boxes, n);
    if (st >= 0)
        st = check_all(&v, boxes, n, err);
    dtpi_buf_free(&v.sums);
    dtpi_free(l->a, v.jobs, v.room * sizeof(*v.jobs));
    dtpi_free(l->a, boxes, (n + 1) * sizeof(*boxes));
    return st;
}
