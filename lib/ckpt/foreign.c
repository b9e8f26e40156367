/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign.c - gathers the boxes that a reader of a foreign format finds, and makes them a manifest:
 * grouped by tensor, every box inside its tensor and its file, every element covered exactly once.
 */
#include "ckpt/foreign.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/text.h"
#include "ckpt/box.h"
#include "ckpt/json.h"

/* A box as it is kept until all are there. */
typedef struct found {
    uint64_t begin, end;
    uint64_t dims_at;           /* offset, then extent */
    uint64_t shape_at;          /* NO_SHAPE: as large as the boxes say */
    uint32_t name_at, file, order;
    uint8_t n_dims, dtype;
} found;
#define NO_SHAPE UINT64_MAX

/* No way out of the folder: relative, no "..", no empty component. */
static bool stays_inside(const char *name)
{
    for (const char *p = name;; p++) {
        const size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && *p == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
        if (!*p)
            return true;
    }
}

static dtp_status keep_text(dtpi_foreign *f, const char *text, size_t bytes, uint32_t *at_out,
                            dtp_error *err)
{
    dtpi_buf *pool = &f->m.text;

    if (bytes >= UINT32_MAX - pool->len)
        return dtpi_fail(err, DTP_ERR_LIMIT, "%s: the names are more than 4 GiB", f->path);
    *at_out = (uint32_t)pool->len;
    if (!dtpi_buf_append(pool, text, bytes) || !dtpi_buf_append(pool, "", 1))
        return dtpi_fail_nomem(err, bytes);
    return DTP_OK;
}

static bool file_known(const dtpi_foreign *f, const char *name, uint32_t *i_out)
{
    const size_t n = dtpi_mf_n_files(&f->m);

    /* Readers come file by file: the newest first. */
    for (size_t i = n; i-- > 0;) {
        if (strcmp(dtpi_mf_text(&f->m, dtpi_mf_file_at(&f->m, i)->name_at), name) == 0) {
            *i_out = (uint32_t)i;
            return true;
        }
    }
    return false;
}

static dtp_status open_file(dtpi_foreign *f, const char *name, uint64_t *bytes_out, dtp_error *err)
{
    char path[DTPI_PATH_MAX];

    dtpi_file_drop(DTPI_TAKE(f->open));
    const dtp_status st = dtpi_path_join(path, f->root, name, err);
    return st < 0 ? st : f->files->ops->open(f->files, path, &f->open, bytes_out, err);
}

dtp_status dtpi_foreign_file(dtpi_foreign *f, const char *name, uint32_t *file_out,
                             uint64_t *bytes_out, dtp_error *err)
{
    dtpi_mf_file file = { .part_at = DTPI_NO_PART, .placed = true };
    uint32_t i = 0;
    dtp_status st = DTP_OK;

    if (!stays_inside(name))
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s: file %.80s is not inside the folder", f->root,
                         name);
    if (file_known(f, name, &i)) {
        *file_out = i;
        *bytes_out = dtpi_mf_file_at(&f->m, i)->bytes;
        if (!f->open || f->open_index != i)
            st = open_file(f, name, &(uint64_t){ 0 }, err);
        f->open_index = i;
        return st;
    }
    st = open_file(f, name, &file.bytes, err);
    if (st >= 0)
        st = keep_text(f, name, strlen(name), &file.name_at, err);
    if (st < 0)
        return st;
    *file_out = f->open_index = (uint32_t)dtpi_mf_n_files(&f->m);
    *bytes_out = file.bytes;
    return dtpi_buf_append(&f->m.file_buf, &file, sizeof(file)) ? DTP_OK
                                                                : dtpi_fail_nomem(err, 0);
}

dtp_status dtpi_foreign_read(dtpi_foreign *f, uint64_t at, void *data, size_t bytes, dtp_error *err)
{
    return f->files->ops->read(f->open, at, data, bytes, err);
}

dtp_status dtpi_foreign_name(dtpi_foreign *f, const char *name, size_t bytes, uint32_t *at_out,
                             dtp_error *err)
{
    if (bytes == 0 || bytes > 1023)
        return dtpi_fail(err, DTP_ERR_LIMIT, "%s: a tensor's name has %zu bytes, 1 to 1023 are read",
                         f->path, bytes);
    if (!dtpi_utf8_ok(name, bytes))
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s: a tensor's name is no UTF-8 without NUL",
                         f->path);
    return keep_text(f, name, bytes, at_out, err);
}

static dtp_status put_dims(dtpi_foreign *f, uint32_t n, const int64_t *dims)
{
    static const int64_t zero[DTP_CKPT_MAX_DIMS];

    return n == 0 || dtpi_buf_append(&f->m.dims, dims ? dims : zero, n * sizeof(*dims));
}

static dtp_status fail_box(const dtpi_foreign *f, const found *b, const char *what, dtp_error *err)
{
    return dtpi_fail(err, DTP_ERR_FORMAT, "%s: tensor %.80s: %s",
                     dtpi_mf_text(&f->m, dtpi_mf_file_at(&f->m, b->file)->name_at),
                     dtpi_mf_text(&f->m, b->name_at), what);
}

dtp_status dtpi_foreign_add(dtpi_foreign *f, const dtpi_foreign_box *box, dtp_error *err)
{
    found b = {
        .begin = box->begin,
        .dims_at = f->m.dims.len / sizeof(int64_t),
        .shape_at = NO_SHAPE,
        .name_at = box->name_at,
        .file = box->file,
        .order = (uint32_t)(f->boxes.len / sizeof(found)),
        .n_dims = (uint8_t)box->n_dims,
        .dtype = (uint8_t)box->dtype,
    };
    uint64_t bytes = 0;

    if (box->n_dims > DTP_CKPT_MAX_DIMS)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "%s: tensor %.80s has %u dimensions, at most %d",
                         f->path, dtpi_mf_text(&f->m, b.name_at), box->n_dims, DTP_CKPT_MAX_DIMS);
    if (!dtpi_box_bytes(box->n_dims, box->extent, box->dtype, &bytes) ||
        __builtin_add_overflow(b.begin, bytes, &b.end) ||
        b.end > dtpi_mf_file_at(&f->m, b.file)->bytes)
        return fail_box(f, &b, "its bytes lie beyond the end of the file", err);
    bool kept = put_dims(f, box->n_dims, box->offset) && put_dims(f, box->n_dims, box->extent);
    if (box->shape) {
        b.shape_at = f->m.dims.len / sizeof(int64_t);
        kept = kept && put_dims(f, box->n_dims, box->shape);
    }
    return kept && b.order < UINT32_MAX && dtpi_buf_append(&f->boxes, &b, sizeof(b))
               ? DTP_OK
               : dtpi_fail_nomem(err, sizeof(b));
}

void dtpi_foreign_meta(dtpi_foreign *f, const char *key)
{
    if (f->meta.len)
        dtpi_buf_append(&f->meta, ",", 1);
    dtpi_json_put(&f->meta, key, strlen(key));
    dtpi_buf_append(&f->meta, ":", 1);
}

/* ---- from boxes to a manifest ---- */

static int by_name(const void *x, const void *y, void *user)
{
    const found *a = x, *b = y;
    const int c = a->name_at == b->name_at
                      ? 0
                      : strcmp(dtpi_mf_text(user, a->name_at), dtpi_mf_text(user, b->name_at));

    return c ? c : a->order < b->order ? -1 : a->order > b->order;
}

/* The shape of a tensor of `n` boxes: what was said of it, or as far as its boxes reach. */
static dtp_status find_shape(dtpi_foreign *f, const found *b, size_t n, int64_t *shape,
                             dtp_error *err)
{
    memset(shape, 0, sizeof(*shape) * DTP_CKPT_MAX_DIMS);
    for (size_t i = 0; i < n; i++) {
        const int64_t *dims = dtpi_mf_dims(&f->m, b[i].dims_at);
        if (b[i].dtype != b->dtype || b[i].n_dims != b->n_dims)
            return fail_box(f, &b[i], "its parts differ in type or dimensions", err);
        for (uint32_t d = 0; d < b->n_dims; d++) {
            int64_t end = 0;
            if (dims[d] < 0 || dims[b->n_dims + d] < 0 ||
                __builtin_add_overflow(dims[d], dims[b->n_dims + d], &end))
                return fail_box(f, &b[i], "a part lies outside every shape", err);
            shape[d] = DTPI_MAX(shape[d], end);
        }
    }
    if (b->shape_at == NO_SHAPE)
        return DTP_OK;
    memcpy(shape, dtpi_mf_dims(&f->m, b->shape_at), b->n_dims * sizeof(*shape));
    for (size_t i = 0; i < n; i++) {
        const int64_t *dims = dtpi_mf_dims(&f->m, b[i].dims_at);
        if (b[i].shape_at == NO_SHAPE ||
            memcmp(shape, dtpi_mf_dims(&f->m, b[i].shape_at), b->n_dims * sizeof(*shape)) != 0 ||
            !dtpi_box_inside(b->n_dims, dims, dims + b->n_dims, shape))
            return fail_box(f, &b[i], "a part lies outside the tensor's shape", err);
    }
    return DTP_OK;
}

static dtp_status put_box(dtpi_foreign *f, const found *b, dtp_error *err)
{
    const uint64_t bytes = b->end - b->begin;
    const dtpi_mf_box box = {
        .home = b->file,
        .file = b->file,
        .base = DTPI_NO_BASE,
        .key_at = b->name_at,
        .dims_at = b->dims_at,
        .begin = b->begin,
        .end = b->end,
        .sums_at = DTPI_NO_SUMS,
        .sizes_at = DTPI_NO_SIZES,
        .n_chunks = bytes / f->m.chunk_bytes + (bytes % f->m.chunk_bytes != 0),
    };

    return dtpi_buf_append(&f->m.box_buf, &box, sizeof(box)) ? DTP_OK : dtpi_fail_nomem(err, 0);
}

typedef struct tensor_boxes {
    const dtpi_manifest *m;
    uint64_t first;
} tensor_boxes;

static const int64_t *get_box(void *user, size_t i)
{
    const tensor_boxes *u = user;

    return dtpi_mf_dims(u->m, dtpi_mf_box_at(u->m, u->first + i)->dims_at);
}

static dtp_status check_coverage(dtpi_foreign *f, const dtpi_mf_tensor *t, dtp_error *err)
{
    const char *name = dtpi_mf_text(&f->m, t->name_at);
    const int64_t *shape = dtpi_mf_dims(&f->m, t->dims_at);
    tensor_boxes u = { &f->m, t->first_box };
    int64_t point[DTP_CKPT_MAX_DIMS];
    uint32_t count = 1;
    char text[100];

    const dtp_status st = dtpi_box_tiling(f->m.a, t->n_dims, shape, t->n_boxes, get_box, &u, point,
                                          &count, err);
    if (st < 0 || count == 1)
        return st;
    dtpi_dims_text(t->n_dims, point, text, sizeof(text));
    if (count == 0)
        return dtpi_fail(err, DTP_ERR_CORRUPT,
                         "%s: tensor %.80s: element %s is in no file: a part is missing", f->path,
                         name, text);
    return dtpi_fail(err, DTP_ERR_CORRUPT, "%s: tensor %.80s: element %s is there %u times",
                     f->path, name, text, count);
}

static dtp_status put_tensor(dtpi_foreign *f, const found *b, size_t n, dtp_error *err)
{
    int64_t shape[DTP_CKPT_MAX_DIMS];
    dtpi_mf_tensor t = {
        .name_at = b->name_at,
        .name_bytes = (uint32_t)strlen(dtpi_mf_text(&f->m, b->name_at)),
        .dtype = b->dtype,
        .n_dims = b->n_dims,
        .first_box = dtpi_mf_n_boxes(&f->m),
    };
    uint64_t count = 0, bytes;

    dtp_status st = find_shape(f, b, n, shape, err);
    if (st < 0)
        return st;
    if (!dtpi_box_count(t.n_dims, shape, &count) ||
        !dtpi_box_bytes(t.n_dims, shape, t.dtype, &bytes))
        return fail_box(f, b, "its shape is too large, or no whole bytes", err);
    t.dims_at = f->m.dims.len / sizeof(int64_t);
    if (!put_dims(f, t.n_dims, shape))
        return dtpi_fail_nomem(err, sizeof(shape));
    /* Empty parts of a tensor say nothing; an empty tensor has one. */
    for (size_t i = 0; i < n && st >= 0; i++) {
        if (b[i].begin == b[i].end && (count > 0 || t.n_boxes > 0))
            continue;
        st = put_box(f, &b[i], err);
        t.n_boxes++;
    }
    if (st >= 0 && !dtpi_buf_append(&f->m.tensor_buf, &t, sizeof(t)))
        st = dtpi_fail_nomem(err, sizeof(t));
    return st < 0 || count == 0 ? st : check_coverage(f, &t, err);
}

static dtp_status put_tensors(dtpi_foreign *f, dtp_error *err)
{
    const size_t n = f->boxes.len / sizeof(found);
    dtp_status st = DTP_OK;

    if (n == 0)
        return DTP_OK;
    qsort_r(f->boxes.data, n, sizeof(found), by_name, &f->m);
    const found *b = DTPI_MF_GET(found, f->boxes, 0);
    for (size_t i = 0, k; i < n && st >= 0; i = k) {
        for (k = i + 1; k < n; k++)
            if (strcmp(dtpi_mf_text(&f->m, b[i].name_at), dtpi_mf_text(&f->m, b[k].name_at)) != 0)
                break;
        st = put_tensor(f, b + i, k - i, err);
    }
    return st;
}

static dtp_status put_meta(dtpi_foreign *f, const char *format, dtp_error *err)
{
    dtpi_buf_printf(&f->m.meta, "{\"source\":\"%s\"%s", format, f->meta.len ? "," : "");
    dtpi_buf_append(&f->m.meta, f->meta.data, f->meta.len);
    dtpi_buf_append(&f->m.meta, "}", 1);
    if (f->meta.failed || !dtpi_buf_text(&f->m.meta))
        return dtpi_fail_nomem(err, f->meta.len);
    f->m.format = format;
    f->m.n_own_files = (uint32_t)dtpi_mf_n_files(&f->m);
    return DTP_OK;
}

/* ---- what lies at a path ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);

    return n >= k && memcmp(text + n - k, end, k) == 0;
}

/* What a folder holds of interest. */
typedef struct folder {
    dtpi_buf names;             /* of safetensors files, each with its NUL */
    size_t n;
    char index[256];
    uint32_t n_indexes;
    bool dcp, distcp, steps;
} folder;

static dtp_status look_at_name(void *user, const char *name, dtp_error *err)
{
    folder *d = user;

    if (ends_with(name, ".safetensors.index.json") && strlen(name) < sizeof(d->index)) {
        memcpy(d->index, name, strlen(name) + 1);
        d->n_indexes++;
    } else if (ends_with(name, ".safetensors") && name[0] != '.') {
        d->n++;
        if (!dtpi_buf_append(&d->names, name, strlen(name) + 1))
            return dtpi_fail_nomem(err, strlen(name));
    }
    d->dcp |= strcmp(name, ".metadata") == 0;
    d->distcp |= ends_with(name, ".distcp");
    d->steps |= strncmp(name, "step-", 5) == 0;
    return DTP_OK;
}

static int by_text(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* The names in order, so that results do not depend on the file system. */
static dtp_status sort_names(const dtp_allocator *a, folder *d, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf sorted = dtpi_buf_init(a);
    const char **at = dtpi_alloc_array(a, d->n + 1, sizeof(*at));
    const char *p = (const char *)d->names.data;

    if (!at)
        return dtpi_fail_nomem(err, d->n * sizeof(*at));
    for (size_t i = 0; i < d->n; i++, p += strlen(p) + 1)
        at[i] = p;
    if (d->n > 1)
        qsort(at, d->n, sizeof(*at), by_text);
    for (size_t i = 0; i < d->n; i++)
        dtpi_buf_append(&sorted, at[i], strlen(at[i]) + 1);
    dtpi_free(a, at, (d->n + 1) * sizeof(*at));
    if (sorted.failed)
        return dtpi_fail_nomem(err, d->names.len);
    const dtpi_buf old = d->names;
    d->names = sorted;
    sorted = old;
    return DTP_OK;
}

static dtp_status open_folder(dtpi_foreign *f, folder *d, const char **format_out, dtp_error *err)
{
    if (d->dcp) {
        *format_out = "dcp";
        return dtpi_foreign_dcp(f, err);
    }
    if (d->n_indexes > 1)
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s has %u indexes, which one is meant?", f->root,
                         d->n_indexes);
    if (d->n_indexes == 1) {
        *format_out = "huggingface";
        return dtpi_foreign_hf_index(f, d->index, err);
    }
    if (d->n == 0 && d->distcp)
        return dtpi_fail(err, DTP_ERR_FORMAT,
                         "%s has *.distcp files, but no .metadata: a save that did not end", f->root);
    if (d->n == 0)
        return dtpi_fail(err, d->steps ? DTP_ERR_INVAL : DTP_ERR_FORMAT, "%s %s", f->root,
                         d->steps ? "holds steps: one of them is to be named"
                                  : "holds no checkpoint that is known");
    *format_out = "safetensors";
    const dtp_status st = sort_names(f->files->a, d, err);
    return st < 0 ? st : dtpi_foreign_hf_files(f, (const char *)d->names.data, d->n, true, err);
}

/* The root is a file: its folder becomes the root. */
static dtp_status split_root(dtpi_foreign *f, char name_out[256], dtp_error *err)
{
    char *slash = strrchr(f->root, '/');
    const char *name = slash ? slash + 1 : f->root;

    if (strlen(name) > 255)
        return dtpi_fail(err, DTP_ERR_LIMIT, "the name of %.80s... is too long", name);
    memcpy(name_out, name, strlen(name) + 1);
    if (slash)
        slash[slash == f->root] = '\0';
    else
        memcpy(f->root, ".", 2);
    return DTP_OK;
}

/* The first bytes tell a zip from a safetensors file, whose length begins with a small number. */
static dtp_status open_by_magic(dtpi_foreign *f, const char *name, const char **format_out,
                                dtp_error *err)
{
    static const uint8_t legacy[] = { 0x80, 0x02, 0x8a, 0x0a };
    uint8_t magic[4] = { 0 };
    uint64_t bytes = 0;
    uint32_t file = 0;

    dtp_status st = dtpi_foreign_file(f, name, &file, &bytes, err);
    if (st >= 0 && bytes >= sizeof(magic))
        st = dtpi_foreign_read(f, 0, magic, sizeof(magic), err);
    if (st < 0)
        return st;
    if (memcmp(magic, legacy, sizeof(legacy)) == 0)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "%s is of torch.save before version 1.6", name);
    if (memcmp(magic, "PK\3\4", 4) == 0) {
        *format_out = "torch";
        return dtpi_foreign_torch(f, name, err);
    }
    *format_out = "safetensors";
    return dtpi_foreign_hf_files(f, name, 1, false, err);
}

static dtp_status open_single(dtpi_foreign *f, const char **format_out, dtp_error *err)
{
    char name[256];

    const dtp_status st = split_root(f, name, err);
    if (st < 0)
        return st;
    if (ends_with(name, ".index.json")) {
        *format_out = "huggingface";
        return dtpi_foreign_hf_index(f, name, err);
    }
    if (strcmp(name, ".metadata") == 0) {
        *format_out = "dcp";
        return dtpi_foreign_dcp(f, err);
    }
    return open_by_magic(f, name, format_out, err);
}

static dtp_status open_any(dtpi_foreign *f, const char **format_out, dtp_error *err)
{
    folder d = { .names = dtpi_buf_init(f->files->a) };
    uint64_t bytes = 0;

    dtp_status st = f->files->ops->size(f->files, f->root, &bytes, err);
    if (st < 0)
        return st;
    st = f->files->ops->list(f->files, f->root, look_at_name, &d, err);
    if (st >= 0)
        st = open_folder(f, &d, format_out, err);
    else if (st == DTP_ERR_IO || st == DTP_ERR_NOT_FOUND)   /* no folder */
        st = open_single(f, format_out, err);
    dtpi_buf_free(&d.names);
    return st;
}

dtp_status dtpi_foreign_open(dtpi_files *files, const char *path, dtpi_manifest *m_out,
                             char root_out[DTPI_PATH_MAX], dtp_error *err)
{
    const char *format = NULL;
    dtpi_foreign f = {
        .files = files,
        .path = path,
        .boxes = dtpi_buf_init(files->a),
        .meta = dtpi_buf_init(files->a),
    };
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n >= sizeof(f.root))
        return dtpi_fail(err, DTP_ERR_LIMIT, "path is too long: %.40s...", path);
    memcpy(f.root, path, n);
    dtp_status st = dtpi_manifest_init(&f.m, files->a, err);
    f.m.world_size = 1;
    f.m.chunk_bytes = DTPI_CHUNK_DEFAULT;
    memcpy(f.m.codec, "none", 5);
    if (st >= 0)
        st = open_any(&f, &format, err);
    if (st >= 0)
        st = put_tensors(&f, err);
    if (st >= 0)
        st = put_meta(&f, format, err);
    dtpi_file_drop(f.open);
    dtpi_buf_free(&f.boxes);
    dtpi_buf_free(&f.meta);
    if (st < 0) {
        dtpi_manifest_free(&f.m);
        return st;
    }
    memcpy(root_out, f.root, DTPI_PATH_MAX);
    *m_out = f.m;
    return DTP_OK;
}
