/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.c - the table itself: look-ups, the writer, and what the numbers must satisfy together. */
#include "ckpt/manifest.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/sum.h"
#include "base/text.h"
#include "ckpt/box.h"
#include "ckpt/json.h"
#include "ckpt/st.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "numbers are stored as they lie in memory");

dtp_status dtpi_manifest_init(dtpi_manifest *m, const dtp_allocator *a, dtp_error *err)
{
    static const uint64_t nothing = 0;

    *m = (dtpi_manifest){ .a = a, .version = DTPI_MANIFEST_VERSION };
    m->meta = dtpi_buf_init(a);
    m->file_buf = dtpi_buf_init(a);
    m->tensor_buf = dtpi_buf_init(a);
    m->box_buf = dtpi_buf_init(a);
    m->base_buf = dtpi_buf_init(a);
    m->order = dtpi_buf_init(a);
    m->dims = dtpi_buf_init(a);
    m->sums = dtpi_buf_init(a);
    m->sizes = dtpi_buf_init(a);
    m->text = dtpi_buf_init(a);
    m->far = dtpi_buf_init(a);
    /* So that index 0 of an empty array can be pointed at. */
    dtpi_buf_append(&m->dims, &nothing, sizeof(int64_t));
    dtpi_buf_append(&m->sums, &nothing, sizeof(uint64_t));
    dtpi_buf_append(&m->sizes, &nothing, sizeof(uint32_t));
    return m->dims.failed || m->sums.failed || m->sizes.failed ? dtpi_fail_nomem(err, 0) : DTP_OK;
}

void dtpi_manifest_free(dtpi_manifest *m)
{
    dtpi_buf_free(&m->meta);
    dtpi_buf_free(&m->file_buf);
    dtpi_buf_free(&m->tensor_buf);
    dtpi_buf_free(&m->box_buf);
    dtpi_buf_free(&m->base_buf);
    dtpi_buf_free(&m->order);
    dtpi_buf_free(&m->dims);
    dtpi_buf_free(&m->sums);
    dtpi_buf_free(&m->sizes);
    dtpi_buf_free(&m->text);
    dtpi_buf_free(&m->far);
}

uint64_t dtpi_mf_box_bytes(const dtpi_manifest *m, const dtpi_mf_tensor *t, const dtpi_mf_box *b)
{
    uint64_t bytes = 0;

    dtpi_box_bytes(t->n_dims, dtpi_mf_dims(m, b->dims_at) + t->n_dims, t->dtype, &bytes);
    return bytes;
}

uint32_t dtpi_mf_chunk_bytes(const dtpi_manifest *m, uint64_t bytes, uint64_t i)
{
    return (uint32_t)DTPI_MIN(bytes - i * m->chunk_bytes, (uint64_t)m->chunk_bytes);
}

uint32_t dtpi_mf_stored_bytes(const dtpi_manifest *m, const dtpi_mf_box *b, uint64_t bytes,
                              uint64_t i)
{
    if (b->sizes_at == DTPI_NO_SIZES)
        return dtpi_mf_chunk_bytes(m, bytes, i);
    const uint32_t n = *DTPI_MF_GET(uint32_t, m->sizes, b->sizes_at + i);
    return b->base == DTPI_NO_BASE ? n : n & ~DTPI_CHUNK_ALONE;
}

const dtpi_mf_tensor *dtpi_mf_tensor_of(const dtpi_manifest *m, uint32_t i)
{
    size_t low = 0, high = dtpi_mf_n_tensors(m);

    while (high - low > 1) {
        const size_t mid = low + (high - low) / 2;
        if (dtpi_mf_tensor_at(m, mid)->first_box <= i)
            low = mid;
        else
            high = mid;
    }
    return dtpi_mf_tensor_at(m, low);
}

bool dtpi_mf_find(const dtpi_manifest *m, const char *name, uint32_t *i_out)
{
    size_t low = 0, high = dtpi_mf_n_tensors(m);

    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const int c = strcmp(dtpi_mf_text(m, dtpi_mf_tensor_at(m, mid)->name_at), name);
        if (c == 0) {
            *i_out = (uint32_t)mid;
            return true;
        }
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

/* ---- writing ---- */

static void put_file(dtpi_buf *out, const dtpi_manifest *m, const dtpi_mf_file *f)
{
    dtpi_buf_printf(out,
                    "{\"name\":\"%s\",\"rank\":%d,\"bytes\":%" PRIu64 ",\"header_bytes\":%" PRIu64
                    ",\"header_sum\":\"%016" PRIx64 "\",\"digest\":\"%016" PRIx64
                    "\",\"part\":\"%s\",\"part_bytes\":%" PRIu64 ",\"part_sum\":\"%016" PRIx64
                    "\"}",
                    dtpi_mf_file_name(m, f), f->rank, f->bytes, f->header_bytes, f->header_sum,
                    f->digest, dtpi_mf_text(m, f->part_at), f->part_bytes, f->part_sum);
}

/* [file, offsets, extents] and the key where it is not the tensor's name. */
static void put_box(dtpi_buf *out, const dtpi_manifest *m, const dtpi_mf_tensor *t,
                    const dtpi_mf_box *b)
{
    const int64_t *dims = dtpi_mf_dims(m, b->dims_at);
    const char *key = dtpi_mf_text(m, b->key_at);

    dtpi_buf_append(out, "[", 1);
    dtpi_json_put_u64(out, b->home);
    for (uint32_t i = 0; i < 2u * t->n_dims; i++) {
        dtpi_buf_append(out, ",", 1);
        dtpi_json_put_u64(out, (uint64_t)dims[i]);
    }
    if (strcmp(key, dtpi_mf_text(m, t->name_at)) != 0) {
        dtpi_buf_append(out, ",", 1);
        dtpi_json_put(out, key, strlen(key));
    }
    dtpi_buf_append(out, "]", 1);
}

static void put_tensor(dtpi_buf *out, const dtpi_manifest *m, const dtpi_mf_tensor *t)
{
    dtpi_buf_printf(out, "{\"name\":");
    dtpi_json_put(out, dtpi_mf_text(m, t->name_at), t->name_bytes);
    dtpi_buf_printf(out, ",\"dtype\":\"%s\",", dtp_dtype_name(t->dtype));
    dtpi_json_put_dims(out, "shape", t->n_dims, dtpi_mf_dims(m, t->dims_at));
    dtpi_buf_printf(out, ",\"boxes\":[");
    for (uint32_t i = 0; i < t->n_boxes; i++) {
        if (i)
            dtpi_buf_append(out, ",", 1);
        put_box(out, m, t, dtpi_mf_box_at(m, t->first_box + i));
    }
    dtpi_buf_printf(out, "]}");
}

static void put_history(dtpi_buf *out, const dtpi_manifest *m)
{
    if (m->has_parent)
        dtpi_buf_printf(out, "\"parent\":%" PRIu64 ",", m->parent);
    dtpi_buf_printf(out, "\"lineage\":[");
    for (uint32_t i = 0; i < m->n_lineage; i++)
        dtpi_buf_printf(out, "%s%" PRIu64, i ? "," : "", m->lineage[i]);
    dtpi_buf_printf(out, "],\n");
}

dtp_status dtpi_manifest_write(const dtpi_manifest *m, dtpi_buf *out, dtp_error *err)
{
    dtpi_buf_printf(out, "{\"format\":\"dtp-ckpt\",\"version\":%d,\n\"step\":%" PRIu64
                    ",\"world_size\":%u,\"attempt\":%u,\"generation\":%u,\"id\":\"%016" PRIx64
                    "\",\n\"codec\":\"%s\",\"chunk_bytes\":%u,\n",
                    DTPI_MANIFEST_VERSION, m->step, m->world_size, m->attempt, m->generation, m->id,
                    m->codec, m->chunk_bytes);
    put_history(out, m);
    dtpi_buf_printf(out, "\"meta\":");
    dtpi_buf_append(out, m->meta.data, m->meta.len);
    dtpi_buf_printf(out, ",\n\"files\":[\n");
    for (size_t i = 0; i < m->n_own_files; i++) {
        dtpi_buf_append(out, ",\n", i ? 2 : 0);
        put_file(out, m, dtpi_mf_file_at(m, i));
    }
    dtpi_buf_printf(out, "],\n\"tensors\":[\n");
    for (size_t i = 0; i < dtpi_mf_n_tensors(m); i++) {
        dtpi_buf_append(out, ",\n", i ? 2 : 0);
        put_tensor(out, m, dtpi_mf_tensor_at(m, i));
    }
    dtpi_buf_printf(out, "]");
    if (out->failed)
        return dtpi_fail_nomem(err, out->len);
    if (out->len > DTPI_MANIFEST_MAX - DTPI_MANIFEST_TAIL)
        return dtpi_fail(err, DTP_ERR_LIMIT,
                         "a manifest of %zu bytes could not be read",
                         out->len);
    dtpi_buf_printf(out, ",\"checksum\":\"%016" PRIx64 "\"}\n", dtpi_sum64(out->data, out->len));
    return out->failed ? dtpi_fail_nomem(err, out->len) : DTP_OK;
}

/* ---- checking ---- */

static dtp_status bad(dtp_error *err, dtp_status st, const char *path, const char *name,
                      const char *what)
{
    return dtpi_fail(err, st, "%s: %s%.100s: %s", path, *name ? "tensor " : "", name, what);
}

dtp_status dtpi_mf_check_chunks(const dtpi_manifest *m, const dtpi_mf_box *b, uint64_t bytes,
                                const char *path, const char *name, dtp_error *err)
{
    const dtpi_mf_file *f = dtpi_mf_file_at(m, b->file);
    uint64_t stored = bytes;

    if (b->n_chunks != bytes / m->chunk_bytes + (bytes % m->chunk_bytes != 0))
        return bad(err, DTP_ERR_FORMAT, path, name, "its sums are not one per chunk");
    if (b->sizes_at != DTPI_NO_SIZES) {
        stored = 0;
        for (uint64_t i = 0; i < b->n_chunks; i++) {
            const uint32_t n = dtpi_mf_stored_bytes(m, b, bytes, i);
            if (n == 0 || n > dtpi_mf_chunk_bytes(m, bytes, i))
                return bad(err, DTP_ERR_FORMAT, path, name, "a chunk's size is impossible");
            stored += n;
        }
    }
    if (b->end < b->begin || b->end - b->begin != stored || b->end > f->bytes - f->header_bytes)
        return bad(err, DTP_ERR_FORMAT, path, name, "a box's bytes do not fit its file");
    return DTP_OK;
}

typedef struct tensor_boxes {
    const dtpi_manifest *m;
    const dtpi_mf_tensor *t;
} tensor_boxes;

static const int64_t *get_box(void *user, size_t i)
{
    const tensor_boxes *u = user;

    return dtpi_mf_dims(u->m, dtpi_mf_box_at(u->m, u->t->first_box + i)->dims_at);
}

static dtp_status check_coverage(const dtpi_manifest *m, const dtpi_mf_tensor *t, const char *path,
                                 dtp_error *err)
{
    int64_t point[DTP_CKPT_MAX_DIMS];
    tensor_boxes u = { m, t };
    uint32_t count = 1;
    char text[100];

    const dtp_status st = dtpi_box_tiling(m->a, t->n_dims, dtpi_mf_dims(m, t->dims_at), t->n_boxes,
                                          get_box, &u, point, &count, err);
    if (st == DTP_ERR_LIMIT)
        return bad(err, st, path, dtpi_mf_text(m, t->name_at),
                   "it has too many boxes to be checked");
    if (st < 0 || count == 1)
        return st;
    dtpi_dims_text(t->n_dims, point, text, sizeof(text));
    return dtpi_fail(err, DTP_ERR_CORRUPT, "%s: tensor %.80s: element %s is in %u boxes", path,
                     dtpi_mf_text(m, t->name_at), text, count);
}

static dtp_status check_tensor(const dtpi_manifest *m, const dtpi_mf_tensor *t, const char *path,
                               dtp_error *err)
{
    const char *name = dtpi_mf_text(m, t->name_at);
    const int64_t *shape = dtpi_mf_dims(m, t->dims_at);
    uint64_t count = 0, bytes;

    if (!dtpi_box_count(t->n_dims, shape, &count) ||
        !dtpi_box_bytes(t->n_dims, shape, t->dtype, &bytes))
        return bad(err, DTP_ERR_FORMAT, path, name, "its shape is too large, or no whole bytes");
    for (uint32_t i = 0; i < t->n_boxes; i++) {
        const dtpi_mf_box *b = dtpi_mf_box_at(m, t->first_box + i);
        const int64_t *dims = dtpi_mf_dims(m, b->dims_at);
        uint64_t n = 0;
        if (!dtpi_box_inside(t->n_dims, dims, dims + t->n_dims, shape))
            return bad(err, DTP_ERR_FORMAT, path, name, "a box lies outside its shape");
        if (!dtpi_box_count(t->n_dims, dims + t->n_dims, &n) || (n == 0 && count > 0))
            return bad(err, DTP_ERR_FORMAT, path, name, "a box is empty");
        if (!dtpi_box_bytes(t->n_dims, dims + t->n_dims, t->dtype, &bytes))
            return bad(err, DTP_ERR_FORMAT, path, name, "a box does not end at a byte");
        if (b->home >= dtpi_mf_n_files(m))
            return bad(err, DTP_ERR_FORMAT, path, name, "a box lies in a file that is not listed");
        const dtp_status st =
            m->version > 1 ? DTP_OK
                           : dtpi_mf_check_chunks(m, b, dtpi_mf_box_bytes(m, t, b), path, name, err);
        if (st < 0)
            return st;
    }
    if (count == 0)
        return t->n_boxes == 1
                   ? DTP_OK
                   : bad(err, DTP_ERR_FORMAT, path, name, "an empty tensor has one box");
    return check_coverage(m, t, path, err);
}

static int by_name(const void *x, const void *y, void *user)
{
    const dtpi_mf_tensor *a = x, *b = y;

    return strcmp(dtpi_mf_text(user, a->name_at), dtpi_mf_text(user, b->name_at));
}

static int by_file(const void *x, const void *y, void *user)
{
    const dtpi_mf_box *a = dtpi_mf_box_at(user, *(const uint64_t *)x);
    const dtpi_mf_box *b = dtpi_mf_box_at(user, *(const uint64_t *)y);

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

/* Boxes follow each other in each file without gap or overlap, from its header to its end. */
static dtp_status check_tiling(dtpi_manifest *m, const uint64_t *order, const char *path,
                               dtp_error *err)
{
    const size_t n = dtpi_mf_n_boxes(m);
    size_t i = 0;

    for (size_t f = 0; f < dtpi_mf_n_files(m); f++) {
        const dtpi_mf_file *file = dtpi_mf_file_at(m, f);
        uint64_t at = 0;
        for (; i < n && dtpi_mf_box_at(m, order[i])->file == f; i++) {
            if (dtpi_mf_box_at(m, order[i])->begin != at)
                return dtpi_fail(err, DTP_ERR_FORMAT,
                                 "%s: boxes of %s leave a gap or overlap at byte %" PRIu64, path,
                                 dtpi_mf_file_name(m, file), at);
            at = dtpi_mf_box_at(m, order[i])->end;
        }
        if (at != file->bytes - file->header_bytes)
            return dtpi_fail(err, DTP_ERR_FORMAT,
                             "%s: boxes of %s end at byte %" PRIu64 " of %" PRIu64, path,
                             dtpi_mf_file_name(m, file), at, file->bytes - file->header_bytes);
    }
    return DTP_OK;
}

static dtp_status check_files(const dtpi_manifest *m, const char *path, dtp_error *err)
{
    for (size_t f = 0; f < dtpi_mf_n_files(m); f++) {
        const dtpi_mf_file *file = dtpi_mf_file_at(m, f);
        if (m->version > 1 && !dtpi_name_ok(dtpi_mf_text(m, file->part_at), 255))
            return bad(err, DTP_ERR_FORMAT, path, "", "a part's name is not a plain name");
        if (!dtpi_name_ok(dtpi_mf_file_name(m, file), 255))
            return bad(err, DTP_ERR_FORMAT, path, "", "a file's name is not a plain name");
        if (file->header_bytes < 8 || file->header_bytes > 8 + (uint64_t)DTPI_ST_MAX_HEADER ||
            file->header_bytes > file->bytes || file->bytes > INT64_MAX)
            return bad(err, DTP_ERR_FORMAT, path, "", "a file's bytes are impossible");
    }
    return DTP_OK;
}

static dtp_status check_places(dtpi_manifest *m, const char *path, dtp_error *err)
{
    const size_t n = dtpi_mf_n_boxes(m);

    uint64_t *order = dtpi_alloc_array(m->a, n + 1, sizeof(*order));
    if (!order)
        return dtpi_fail_nomem(err, n * sizeof(*order));
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    if (n > 1)
        qsort_r(order, n, sizeof(*order), by_file, m);
    const dtp_status st = check_tiling(m, order, path, err);
    dtpi_free(m->a, order, (n + 1) * sizeof(*order));
    return st;
}

/* The boxes of each file, as listed: what parts follow. */
static dtp_status order_boxes(dtpi_manifest *m, dtp_error *err)
{
    dtpi_mf_file *files = (dtpi_mf_file *)(void *)m->file_buf.data;
    const size_t n = dtpi_mf_n_boxes(m), n_files = dtpi_mf_n_files(m);
    uint64_t at = 0;

    dtpi_buf_reset(&m->order);
    uint32_t *order = (uint32_t *)(void *)dtpi_buf_reserve(&m->order, n * sizeof(*order));
    if (!order)
        return dtpi_fail_nomem(err, n * sizeof(*order));
    for (size_t f = 0; f < n_files; f++)
        files[f].n_boxes = 0;
    for (size_t i = 0; i < n; i++)
        files[dtpi_mf_box_at(m, i)->home].n_boxes++;
    for (size_t f = 0; f < n_files; f++) {
        files[f].first_box = at;
        at += files[f].n_boxes;
        files[f].n_boxes = 0;
    }
    for (size_t i = 0; i < n; i++) {
        dtpi_mf_file *f = &files[dtpi_mf_box_at(m, i)->home];
        order[f->first_box + f->n_boxes++] = (uint32_t)i;
    }
    m->order.len = n * sizeof(*order);
    return DTP_OK;
}

/* In version 1 tensors come in any order. */
static dtp_status check_names(dtpi_manifest *m, const char *path, dtp_error *err)
{
    const size_t n = dtpi_mf_n_tensors(m);

    if (m->version == 1 && n > 1)
        qsort_r(m->tensor_buf.data, n, sizeof(dtpi_mf_tensor), by_name, m);
    for (size_t i = 1; i < n; i++) {
        const int c = by_name(dtpi_mf_tensor_at(m, i - 1), dtpi_mf_tensor_at(m, i), m);
        if (c >= 0)
            return bad(err, DTP_ERR_FORMAT, path, dtpi_mf_text(m, dtpi_mf_tensor_at(m, i)->name_at),
                       c ? "it is not in the order of names" : "it is there twice");
    }
    return DTP_OK;
}

dtp_status dtpi_manifest_check(dtpi_manifest *m, const char *path, dtp_error *err)
{
    const size_t n = dtpi_mf_n_tensors(m);

    if (m->chunk_bytes < DTPI_CHUNK_MIN || m->chunk_bytes > DTPI_CHUNK_MAX ||
        m->chunk_bytes % DTPI_CHUNK_MIN)
        return bad(err, DTP_ERR_FORMAT, path, "", "chunk_bytes is impossible");
    if (dtpi_mf_n_boxes(m) >= UINT32_MAX)
        return bad(err, DTP_ERR_LIMIT, path, "", "too many boxes");
    m->n_own_files = (uint32_t)dtpi_mf_n_files(m);
    dtp_status st = check_files(m, path, err);
    if (st >= 0)
        st = check_names(m, path, err);
    for (size_t i = 0; st >= 0 && i < n; i++)
        st = check_tensor(m, dtpi_mf_tensor_at(m, i), path, err);
    if (st >= 0)
        st = m->version == 1 ? check_places(m, path, err) : DTP_OK;
    return st < 0 ? st : order_boxes(m, err);
}
