/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part_place.c - lays the ranges of a part over the boxes of a manifest, after each was found possible,
 * and reads the part of a file when its boxes are wanted for the first time.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/sum.h"
#include "ckpt/part.h"

typedef struct placing {
    dtpi_manifest *m;
    const dtpi_part_view *v;
    uint32_t home;              /* the file whose part it is */
    uint32_t first_file;        /* of the part's files, in the manifest */
    size_t first_base;
    uint64_t sums_at, sizes_at; /* where the part's numbers begin in the manifest's pools */
    const char *path;
    dtp_error *err;
} placing;

static dtp_status bad(const placing *p, const char *name, const char *what)
{
    return dtpi_fail(p->err, DTP_ERR_FORMAT, "%s: %s%.100s%s%s", p->path, *name ? "tensor " : "",
                     name, *name ? ": " : "", what);
}

static dtp_status check_owner(const placing *p)
{
    const dtpi_part_head *h = p->v->head;
    const dtpi_manifest *m = p->m;
    const dtpi_mf_file *f = dtpi_mf_file_at(m, p->home);

    if (h->step != m->step || h->id != m->id || (int32_t)h->rank != f->rank ||
        h->world_size != m->world_size || h->chunk_bytes != m->chunk_bytes ||
        p->v->sums[0] != f->header_sum)
        return bad(p, "", "the part of another shard");
    return h->n_boxes == f->n_boxes
               ? DTP_OK
               : dtpi_fail(p->err, DTP_ERR_FORMAT,
                           "%s places %" PRIu64 " boxes, the manifest lists %u", p->path,
                           h->n_boxes, f->n_boxes);
}

static bool in_lineage(const dtpi_manifest *m, uint64_t step)
{
    for (uint32_t i = 0; i < m->n_lineage; i++)
        if (m->lineage[i] == step)
            return true;
    return false;
}

static dtp_status add_files(placing *p)
{
    dtpi_manifest *m = p->m;

    p->first_file = (uint32_t)dtpi_mf_n_files(m);
    for (uint32_t i = 0; i < p->v->head->n_files; i++) {
        const dtpi_part_file *from = &p->v->files[i];
        const dtpi_mf_file f = { .name_at = (uint32_t)m->far.len, .is_far = true,
                                 .part_at = DTPI_NO_PART, .rank = -1, .step = from->step,
                                 .bytes = from->bytes, .header_bytes = from->header_bytes,
                                 .placed = true };
        if (!in_lineage(m, from->step))
            return bad(p, "", "it refers to a step that is not in the manifest's lineage");
        if (m->far.len + from->name_bytes >= UINT32_MAX)
            return bad(p, "", "too many names");
        if (!dtpi_buf_append(&m->far, p->v->text + from->name_at, from->name_bytes) ||
            !dtpi_buf_append(&m->far, "", 1) || !dtpi_buf_append(&m->file_buf, &f, sizeof(f)))
            return dtpi_fail_nomem(p->err, sizeof(f));
    }
    return DTP_OK;
}

static dtp_status add_numbers(placing *p)
{
    dtpi_manifest *m = p->m;
    const dtpi_part_head *h = p->v->head;
    const dtpi_mf_box unused = { .home = UINT32_MAX };

    p->sums_at = m->sums.len / sizeof(uint64_t);
    p->sizes_at = m->sizes.len / sizeof(uint32_t);
    p->first_base = m->base_buf.len / sizeof(dtpi_mf_box);
    if (!dtpi_buf_append(&m->sums, p->v->sums, h->n_sums * sizeof(uint64_t)) ||
        !dtpi_buf_append(&m->sizes, p->v->sizes, h->n_sizes * sizeof(uint32_t)))
        return dtpi_fail_nomem(p->err, h->n_sums * sizeof(uint64_t));
    for (uint64_t i = h->n_boxes; i < h->n_ranges; i++)
        if (!dtpi_buf_append(&m->base_buf, &unused, sizeof(unused)))
            return dtpi_fail_nomem(p->err, sizeof(unused));
    return DTP_OK;
}

static dtpi_mf_box *base_at(const placing *p, uint32_t range)
{
    dtpi_mf_box *bases = (dtpi_mf_box *)(void *)p->m->base_buf.data;

    return bases + p->first_base + (range - p->v->head->n_boxes);
}

/* One range over one box of `bytes` plain bytes. */
static dtp_status place_range(const placing *p, uint64_t i, uint64_t bytes, const char *name,
                              dtpi_mf_box *b)
{
    const dtpi_part_head *h = p->v->head;
    const dtpi_part_range *r = &p->v->ranges[i];
    const uint64_t n = bytes / p->m->chunk_bytes + (bytes % p->m->chunk_bytes != 0);

    if (n > h->n_sums - r->sums_at || n > h->n_sums - r->plain_at ||
        (r->sizes_at != DTPI_NO_SIZES && n > h->n_sizes - r->sizes_at))
        return bad(p, name, "a range has not a sum per chunk");
    b->file = r->file ? p->first_file + r->file - 1 : p->home;
    b->begin = r->begin;
    b->end = r->end;
    b->n_chunks = n;
    b->sums_at = p->sums_at + r->sums_at;
    b->sizes_at = r->sizes_at == DTPI_NO_SIZES ? DTPI_NO_SIZES : p->sizes_at + r->sizes_at;
    b->plain_at = r->plain_at == DTPI_NO_PLAIN ? DTPI_NO_PLAIN : p->sums_at + r->plain_at;
    b->base = r->base == DTPI_NO_BASE
                  ? DTPI_NO_BASE
                  : (uint32_t)(p->first_base + (r->base - h->n_boxes));
    return dtpi_mf_check_chunks(p->m, b, bytes, p->path, name, p->err);
}

/* The bases of a box, and theirs: of as many bytes as the box. */
static dtp_status place_chain(const placing *p, const dtpi_mf_tensor *t, const dtpi_mf_box *box,
                              uint32_t range)
{
    const char *name = dtpi_mf_text(p->m, t->name_at);
    const uint64_t bytes = dtpi_mf_box_bytes(p->m, t, box);
    uint32_t length = 0;

    for (uint32_t i = p->v->ranges[range].base; i != DTPI_NO_BASE; i = p->v->ranges[i].base) {
        dtpi_mf_box *b = base_at(p, i);
        if (++length > DTPI_PART_MAX_CHAIN)
            return bad(p, name, "its chain of bases is too long");
        b->home = p->home;
        b->key_at = box->key_at;
        b->dims_at = box->dims_at;
        /* A base that is shared by boxes of different sizes fits only one of them. */
        const dtp_status st = place_range(p, i, bytes, name, b);
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

static dtp_status place_boxes(const placing *p)
{
    dtpi_mf_box *boxes = (dtpi_mf_box *)(void *)p->m->box_buf.data;
    const dtpi_mf_file *f = dtpi_mf_file_at(p->m, p->home);

    for (uint32_t i = 0; i < f->n_boxes; i++) {
        const uint32_t at = *DTPI_MF_GET(uint32_t, p->m->order, f->first_box + i);
        const dtpi_mf_tensor *t = dtpi_mf_tensor_of(p->m, at);
        dtp_status st = place_range(p, i, dtpi_mf_box_bytes(p->m, t, &boxes[at]),
                                    dtpi_mf_text(p->m, t->name_at), &boxes[at]);
        if (st >= 0 && boxes[at].base != DTPI_NO_BASE)
            st = place_chain(p, t, &boxes[at], i);
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

/* ---- the own shard is tiled ---- */

static int by_begin(const void *x, const void *y)
{
    const dtpi_part_range *a = *(const dtpi_part_range *const *)x;
    const dtpi_part_range *b = *(const dtpi_part_range *const *)y;

    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

static dtp_status check_sorted(const placing *p, const dtpi_part_range **own, size_t n)
{
    const dtpi_mf_file *f = dtpi_mf_file_at(p->m, p->home);
    uint64_t at = 0;

    for (size_t i = 0; i < n; i++) {
        if (i > 0 && memcmp(own[i], own[i - 1], sizeof(*own[i])) == 0)
            continue;
        if (own[i]->begin != at)
            return dtpi_fail(p->err, DTP_ERR_FORMAT,
                             "%s: boxes of %s leave a gap or overlap at byte %" PRIu64, p->path,
                             dtpi_mf_file_name(p->m, f), at);
        at = own[i]->end;
    }
    if (at != f->bytes - f->header_bytes)
        return dtpi_fail(p->err, DTP_ERR_FORMAT, "%s: boxes of %s end at byte %" PRIu64
                         " of %" PRIu64, p->path, dtpi_mf_file_name(p->m, f), at,
                         f->bytes - f->header_bytes);
    return DTP_OK;
}

static dtp_status check_tiling(const placing *p)
{
    const size_t n = p->v->head->n_ranges;
    size_t n_own = 0;

    const dtpi_part_range **own = dtpi_alloc_array(p->m->a, n + 1, sizeof(*own));
    if (!own)
        return dtpi_fail_nomem(p->err, n * sizeof(*own));
    for (size_t i = 0; i < n; i++)
        if (p->v->ranges[i].file == 0 && p->v->ranges[i].begin < p->v->ranges[i].end)
            own[n_own++] = &p->v->ranges[i];
    if (n_own > 1)
        qsort(own, n_own, sizeof(*own), by_begin);
    const dtp_status st = check_sorted(p, own, n_own);
    dtpi_free(p->m->a, own, (n + 1) * sizeof(*own));
    return st;
}

dtp_status dtpi_part_place(dtpi_manifest *m, uint32_t file, const dtpi_part_view *view,
                           const char *path, dtp_error *err)
{
    placing p = { .m = m, .v = view, .home = file, .path = path, .err = err };

    dtp_status st = check_owner(&p);
    if (st >= 0)
        st = add_files(&p);
    if (st >= 0)
        st = add_numbers(&p);
    if (st >= 0)
        st = place_boxes(&p);
    if (st >= 0)
        st = check_tiling(&p);
    if (st >= 0)
        ((dtpi_mf_file *)(void *)m->file_buf.data)[file].placed = true;
    return st;
}

/* ---- the file ---- */

static dtp_status read_text(dtpi_files *files, const dtpi_mf_file *f, const char *path,
                            dtpi_buf *text, dtp_error *err)
{
    dtp_status st = dtpi_files_read_all(files, path, DTPI_PART_MAX, text, err);

    if (st < 0)
        return st;
    if (text->len != f->part_bytes)
        return dtpi_fail(err, text->len < f->part_bytes ? DTP_ERR_TRUNCATED : DTP_ERR_CORRUPT,
                         "%s has %zu bytes instead of %" PRIu64, path, text->len, f->part_bytes);
    const uint64_t sum = dtpi_sum64(text->data, text->len);
    if (sum != f->part_sum)
        return dtpi_fail(err, DTP_ERR_CORRUPT,
                         "%s: checksum mismatch (stored %016" PRIx64 ", computed %016" PRIx64 ")",
                         path, f->part_sum, sum);
    return DTP_OK;
}

dtp_status dtpi_part_read(dtpi_files *files, const char *step_dir, dtpi_manifest *m, uint32_t file,
                          dtp_error *err)
{
    const dtpi_mf_file *f = dtpi_mf_file_at(m, file);
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(m->a);
    char path[DTPI_PATH_MAX];
    dtpi_part_view view;

    if (f->placed)
        return DTP_OK;
    dtp_status st = dtpi_path_join(path, step_dir, dtpi_mf_text(m, f->part_at), err);
    if (st >= 0)
        st = read_text(files, f, path, &text, err);
    if (st >= 0)
        st = dtpi_part_open(text.data, text.len, path, &view, err);
    return st < 0 ? st : dtpi_part_place(m, file, &view, path, err);
}
