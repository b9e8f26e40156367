/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign_dcp.c - a folder of torch.distributed.checkpoint: `.metadata` is a pickle that says which chunk of
 * which tensor lies in which range of which file; each range is an archive of torch.save with one tensor.
 *
 * What is no tensor there is a pickle of any kind: it is handed out as bytes, and never looked into.
 * Source: torch/distributed/checkpoint/metadata.py and filesystem.py (_StorageInfo).
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/text.h"
#include "ckpt/json.h"
#include "ckpt/torch_zip.h"

#define METADATA_MAX (1ull << 30)
enum { NAME_MAX_BYTES = 1023 };

/* Where something is stored: an entry of storage_data. */
typedef struct stored {
    const dtpi_pk_node *name, *path;    /* texts */
    uint64_t at, bytes;
    uint32_t n_dims;
    int64_t offset[DTP_CKPT_MAX_DIMS];
} stored;

/* A chunk that is to be read: what it is and where. */
typedef struct wanted {
    const stored *from;
    const dtpi_pk_node *size;           /* of the tensor; NULL: bytes */
    const dtpi_pk_node *sizes;          /* of the chunk */
    uint32_t name_at;
    dtp_dtype dtype;
} wanted;

typedef struct dcp {
    dtpi_foreign *f;
    dtpi_pickle p;
    stored *stored;
    size_t n_stored;
    uint64_t n_chunks;          /* looked at: a list of them may be shared without end */
    dtpi_buf wanted;
    dtpi_buf raw;               /* JSON texts: names of what is bytes */
    dtp_error *err;
} dcp;

static const char metadata_name[] = ".metadata";

static dtp_status bad(const dcp *d, const char *what)
{
    return dtpi_fail(d->err, DTP_ERR_FORMAT, "%s/%s: %s", d->f->root, metadata_name, what);
}

/* Terminated copy of a text that can be a name. */
static bool copy_text(const dcp *d, const dtpi_pk_node *n, char *out, size_t room)
{
    if (!dtpi_pk_is(n, DTPI_PK_TEXT) || n->n == 0 || n->n >= room ||
        !dtpi_utf8_ok(dtpi_pk_text(&d->p, n), n->n))
        return false;
    memcpy(out, dtpi_pk_text(&d->p, n), n->n);
    out[n->n] = '\0';
    return true;
}

/* ---- storage_data ---- */

static int compare_text(const dcp *d, const dtpi_pk_node *a, const dtpi_pk_node *b)
{
    const int c = memcmp(dtpi_pk_text(&d->p, a), dtpi_pk_text(&d->p, b), DTPI_MIN(a->n, b->n));

    return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

static int by_key(const void *x, const void *y, void *user)
{
    const stored *a = x, *b = y;
    const int c = compare_text(user, a->name, b->name);

    if (c || a->n_dims != b->n_dims)
        return c ? c : a->n_dims < b->n_dims ? -1 : 1;
    for (uint32_t i = 0; i < a->n_dims; i++)
        if (a->offset[i] != b->offset[i])
            return a->offset[i] < b->offset[i] ? -1 : 1;
    return 0;
}

static dtp_status read_stored(const dcp *d, const dtpi_pk_node *key, const dtpi_pk_node *value,
                              stored *out)
{
    const dtpi_pickle *p = &d->p;
    const dtpi_pk_node *at = dtpi_pk_field(p, value, "offset");
    const dtpi_pk_node *bytes = dtpi_pk_field(p, value, "length");
    const dtpi_pk_node *changes = dtpi_pk_field(p, value, "transform_descriptors");
    const dtpi_pk_node *offset = dtpi_pk_field(p, key, "offset");

    *out = (stored){ .name = dtpi_pk_field(p, key, "fqn"),
                     .path = dtpi_pk_field(p, value, "relative_path") };
    if (!dtpi_pk_is_object(key, DTPI_PK_INDEX) || !dtpi_pk_is(out->name, DTPI_PK_TEXT) ||
        out->name->n > NAME_MAX_BYTES)
        return bad(d, "a key of storage_data is not understood");
    if (!dtpi_pk_is_object(value, DTPI_PK_STORAGE_INFO) || !dtpi_pk_is(out->path, DTPI_PK_TEXT) ||
        out->path->n > NAME_MAX_BYTES || !dtpi_pk_is(at, DTPI_PK_INT) ||
        !dtpi_pk_is(bytes, DTPI_PK_INT) || at->i < 0 || bytes->i < 0)
        return bad(d, "an entry of storage_data is not understood");
    if (offset && offset->kind != DTPI_PK_NONE &&
        !dtpi_pk_ints(p, offset, DTP_CKPT_MAX_DIMS, out->offset, &out->n_dims))
        return bad(d, "an offset in storage_data is not understood");
    if (changes && changes->kind != DTPI_PK_NONE && changes->n > 0)
        return dtpi_fail(d->err, DTP_ERR_UNSUPPORTED,
                         "%s: %.*s is stored through a transformation (compressed), which is not read",
                         d->f->root, (int)DTPI_MIN(out->name->n, 80u), dtpi_pk_text(p, out->name));
    out->at = (uint64_t)at->i;
    out->bytes = (uint64_t)bytes->i;
    return DTP_OK;
}

static dtp_status read_storage(dcp *d, const dtpi_pk_node *data)
{
    if (!dtpi_pk_is(data, DTPI_PK_DICT))
        return bad(d, "it has no storage_data");
    d->n_stored = data->n / 2;
    d->stored = dtpi_alloc_array(d->f->files->a, d->n_stored + 1, sizeof(*d->stored));
    if (!d->stored)
        return dtpi_fail_nomem(d->err, d->n_stored * sizeof(*d->stored));
    for (size_t i = 0; i < d->n_stored; i++) {
        const dtp_status st =
            read_stored(d, dtpi_pk_kid(&d->p, data, (uint32_t)(2 * i)),
                        dtpi_pk_kid(&d->p, data, (uint32_t)(2 * i + 1)), &d->stored[i]);
        if (st < 0)
            return st;
    }
    if (d->n_stored > 1)
        qsort_r(d->stored, d->n_stored, sizeof(*d->stored), by_key, d);
    return DTP_OK;
}

/* NULL: it is stored nowhere. */
static const stored *find_stored(const dcp *d, const stored *key)
{
    size_t low = 0, high = d->n_stored;

    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const int c = by_key(&d->stored[mid], key, (void *)(uintptr_t)d);
        if (c == 0)
            return &d->stored[mid];
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* ---- state_dict_metadata ---- */

static dtp_status want(dcp *d, const wanted *w)
{
    return dtpi_buf_append(&d->wanted, w, sizeof(*w)) ? DTP_OK
                                                      : dtpi_fail_nomem(d->err, sizeof(*w));
}

/* Properties are pickled as a tuple whose first is the type. */
static dtp_dtype type_of(const dcp *d, const dtpi_pk_node *meta)
{
    const dtpi_pk_node *properties = dtpi_pk_field(&d->p, meta, "properties");
    const dtpi_pk_node *state = dtpi_pk_is_object(properties, DTPI_PK_PROPERTIES)
                                    ? dtpi_pk_kid(&d->p, properties, 1)
                                    : NULL;
    const dtpi_pk_node *type = dtpi_pk_is(state, DTPI_PK_TUPLE) ? dtpi_pk_kid(&d->p, state, 0)
                                                                : NULL;

    return dtpi_pk_is(type, DTPI_PK_GLOBAL) && type->name == DTPI_PK_DTYPE ? (dtp_dtype)type->i
                                                                           : DTP_DTYPE_NONE;
}

static dtp_status want_chunk(dcp *d, const dtpi_pk_node *name, const dtpi_pk_node *chunk,
                             wanted *w)
{
    stored key = { .name = name };
    int64_t sizes[DTP_CKPT_MAX_DIMS];
    uint32_t n = 0;

    /* A chunk that is an object of its own takes more than a byte. */
    if (++d->n_chunks > d->p.bytes)
        return dtpi_fail(d->err, DTP_ERR_LIMIT, "%s/%s: chunks are shared without end", d->f->root,
                         metadata_name);
    w->sizes = dtpi_pk_field(&d->p, chunk, "sizes");
    if (!dtpi_pk_is_object(chunk, DTPI_PK_CHUNK) ||
        !dtpi_pk_ints(&d->p, w->sizes, DTP_CKPT_MAX_DIMS, sizes, &n) ||
        !dtpi_pk_ints(&d->p, dtpi_pk_field(&d->p, chunk, "offsets"), DTP_CKPT_MAX_DIMS, key.offset,
                      &key.n_dims) ||
        key.n_dims != n)
        return bad(d, "a chunk is not understood");
    w->from = find_stored(d, &key);
    for (uint32_t i = 0; !w->from && i < n; i++)
        if (sizes[i] == 0)
            return DTP_OK;      /* an empty chunk need not be stored */
    if (!w->from)
        return dtpi_fail(d->err, DTP_ERR_NOT_FOUND, "%s/%s: a chunk of tensor %.*s is stored nowhere",
                         d->f->root, metadata_name, (int)DTPI_MIN(name->n, 80u),
                         dtpi_pk_text(&d->p, name));
    return want(d, w);
}

/* A tensor without elements may have no chunk that is stored. */
static dtp_status add_empty(dcp *d, const wanted *w)
{
    int64_t shape[DTP_CKPT_MAX_DIMS];
    uint64_t bytes = 0;
    dtpi_foreign_box box = {
        .name_at = w->name_at, .shape = shape, .extent = shape, .dtype = w->dtype
    };

    dtpi_pk_ints(&d->p, w->size, DTP_CKPT_MAX_DIMS, shape, &box.n_dims);
    const dtp_status st = dtpi_foreign_file(d->f, metadata_name, &box.file, &bytes, d->err);
    return st < 0 ? st : dtpi_foreign_add(d->f, &box, d->err);
}

static dtp_status want_tensor(dcp *d, const dtpi_pk_node *name, const dtpi_pk_node *meta, wanted *w)
{
    const dtpi_pk_node *chunks = dtpi_pk_field(&d->p, meta, "chunks");
    const size_t before = d->wanted.len;
    int64_t shape[DTP_CKPT_MAX_DIMS];
    dtp_status st = DTP_OK;
    uint32_t n = 0;
    bool empty = false;

    w->size = dtpi_pk_field(&d->p, meta, "size");
    w->dtype = type_of(d, meta);
    if (!dtpi_pk_is(chunks, DTPI_PK_LIST) ||
        !dtpi_pk_ints(&d->p, w->size, DTP_CKPT_MAX_DIMS, shape, &n))
        return bad(d, "a tensor's metadata is not understood");
    if (w->dtype == DTP_DTYPE_NONE)
        return dtpi_fail(d->err, DTP_ERR_UNSUPPORTED, "%s: tensor %.*s has a type that is not read",
                         d->f->root, (int)DTPI_MIN(name->n, 80u), dtpi_pk_text(&d->p, name));
    for (uint32_t i = 0; i < chunks->n && st >= 0; i++)
        st = want_chunk(d, name, dtpi_pk_kid(&d->p, chunks, i), w);
    for (uint32_t i = 0; i < n; i++)
        empty |= shape[i] == 0;
    if (st < 0 || d->wanted.len > before)
        return st;
    return empty ? add_empty(d, w)
                 : dtpi_fail(d->err, DTP_ERR_CORRUPT, "%s: tensor %.*s has no chunk that is stored",
                             d->f->root, (int)DTPI_MIN(name->n, 80u), dtpi_pk_text(&d->p, name));
}

static dtp_status want_bytes(dcp *d, const dtpi_pk_node *name, wanted *w)
{
    const stored key = { .name = name };

    w->from = find_stored(d, &key);
    if (!w->from)
        return dtpi_fail(d->err, DTP_ERR_NOT_FOUND, "%s/%s: %.*s is stored nowhere", d->f->root,
                         metadata_name, (int)DTPI_MIN(name->n, 80u), dtpi_pk_text(&d->p, name));
    dtpi_buf_append(&d->raw, ",", d->raw.len ? 1 : 0);
    dtpi_json_put(&d->raw, dtpi_pk_text(&d->p, name), name->n);
    return d->raw.failed ? dtpi_fail_nomem(d->err, 0) : want(d, w);
}

static dtp_status want_all(dcp *d, const dtpi_pk_node *all)
{
    if (!dtpi_pk_is(all, DTPI_PK_DICT))
        return bad(d, "it has no state_dict_metadata");
    for (uint32_t i = 0; i + 1 < all->n; i += 2) {
        const dtpi_pk_node *name = dtpi_pk_kid(&d->p, all, i);
        const dtpi_pk_node *meta = dtpi_pk_kid(&d->p, all, i + 1);
        wanted w = { 0 };
        if (!dtpi_pk_is(name, DTPI_PK_TEXT))
            return bad(d, "a name is no text");
        dtp_status st = dtpi_foreign_name(d->f, dtpi_pk_text(&d->p, name), name->n, &w.name_at,
                                          d->err);
        if (st >= 0 && dtpi_pk_is_object(meta, DTPI_PK_TENSOR_META))
            st = want_tensor(d, name, meta, &w);
        else if (st >= 0 && dtpi_pk_is_object(meta, DTPI_PK_BYTES_META))
            st = want_bytes(d, name, &w);
        else if (st >= 0)
            st = bad(d, "an entry of state_dict_metadata is not understood");
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

/* ---- the files ---- */

static int by_place(const void *x, const void *y, void *user)
{
    const wanted *a = x, *b = y;
    const int c = compare_text(user, a->from->path, b->from->path);

    if (c || a->from->at == b->from->at)
        return c;
    return a->from->at < b->from->at ? -1 : 1;
}

static dtp_status add_bytes(dcp *d, const wanted *w, uint32_t file)
{
    const int64_t n = (int64_t)w->from->bytes;
    const dtpi_foreign_box box = {
        .name_at = w->name_at,
        .file = file,
        .begin = w->from->at,
        .extent = &n,
        .n_dims = 1,
        .dtype = DTP_U8,
    };

    return dtpi_foreign_add(d->f, &box, d->err);
}

static dtp_status add_tensor(dcp *d, const wanted *w, uint32_t file, const char *path)
{
    int64_t shape[DTP_CKPT_MAX_DIMS], extent[DTP_CKPT_MAX_DIMS];
    dtpi_torch_place place = {
        .name_at = w->name_at, .shape = shape, .offset = w->from->offset, .extent = extent
    };
    dtpi_torch_zip z;
    uint32_t n = 0;

    if (!dtpi_pk_ints(&d->p, w->size, DTP_CKPT_MAX_DIMS, shape, &place.n_dims) ||
        !dtpi_pk_ints(&d->p, w->sizes, DTP_CKPT_MAX_DIMS, extent, &n) || n != place.n_dims)
        return bad(d, "a chunk has other dimensions than its tensor");
    dtp_status st =
        dtpi_torch_zip_open(&z, d->f, file, w->from->at, w->from->bytes, path, d->err);
    if (st >= 0) {
        const dtpi_pk_node *root = dtpi_pk_at(&z.pickle, z.pickle.root);
        st = dtpi_torch_is_tensor(root)
                 ? dtpi_torch_add(&z, root, &place, d->err)
                 : dtpi_fail(d->err, DTP_ERR_FORMAT, "%s: byte %" PRIu64 ": not a tensor", path,
                             w->from->at);
    }
    dtpi_torch_zip_free(&z);
    return st;
}

static dtp_status add_wanted(dcp *d, const wanted *w)
{
    char path[NAME_MAX_BYTES + 1];
    uint64_t bytes = 0;
    uint32_t file = 0;

    if (!copy_text(d, w->from->path, path, sizeof(path)))
        return bad(d, "a file's name is not understood");
    const dtp_status st = dtpi_foreign_file(d->f, path, &file, &bytes, d->err);
    if (st < 0)
        return st;
    if (w->from->at > bytes || w->from->bytes > bytes - w->from->at)
        return dtpi_fail(d->err, DTP_ERR_TRUNCATED,
                         "%s has %" PRIu64 " bytes, but bytes up to %" PRIu64 " are needed", path,
                         bytes, w->from->at + w->from->bytes);
    return w->size ? add_tensor(d, w, file, path) : add_bytes(d, w, file);
}

/* In order of place: no byte belongs to two, so that all archives together take no more than their files. */
static dtp_status check_places(const dcp *d, const wanted *w, size_t n)
{
    uint64_t end = 0;

    for (size_t i = 0; i < n; i++) {
        const stored *s = w[i].from;
        if (i == 0 || compare_text(d, w[i - 1].from->path, s->path) != 0)
            end = 0;
        if (s->bytes > 0 && s->at < end)
            return dtpi_fail(d->err, DTP_ERR_FORMAT, "%s/%s: two entries share bytes of file %.*s",
                             d->f->root, metadata_name, (int)DTPI_MIN(s->path->n, 80u),
                             dtpi_pk_text(&d->p, s->path));
        end = DTPI_MAX(end, s->at + s->bytes);
    }
    return DTP_OK;
}

static dtp_status add_all(dcp *d)
{
    const size_t n = d->wanted.len / sizeof(wanted);

    /* File by file, so that each is opened once. */
    if (n > 1)
        qsort_r(d->wanted.data, n, sizeof(wanted), by_place, d);
    dtp_status st = check_places(d, (const wanted *)(const void *)d->wanted.data, n);
    for (size_t i = 0; i < n && st >= 0; i++)
        st = add_wanted(d, (const wanted *)(const void *)d->wanted.data + i);
    if (st >= 0 && d->raw.len) {
        dtpi_foreign_meta(d->f, "raw");
        dtpi_buf_append(&d->f->meta, "[", 1);
        dtpi_buf_append(&d->f->meta, d->raw.data, d->raw.len);
        dtpi_buf_append(&d->f->meta, "]", 1);
    }
    return st;
}

static dtp_status read_all(dcp *d)
{
    const dtpi_pk_node *root = dtpi_pk_at(&d->p, d->p.root);

    if (!dtpi_pk_is_object(root, DTPI_PK_METADATA))
        return bad(d, "it is no Metadata of torch.distributed.checkpoint");
    dtp_status st = read_storage(d, dtpi_pk_field(&d->p, root, "storage_data"));
    if (st >= 0)
        st = want_all(d, dtpi_pk_field(&d->p, root, "state_dict_metadata"));
    return st < 0 ? st : add_all(d);
}

dtp_status dtpi_foreign_dcp(dtpi_foreign *f, dtp_error *err)
{
    const dtp_allocator *a = f->files->a;
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(a);
    dcp d = { .f = f, .wanted = dtpi_buf_init(a), .raw = dtpi_buf_init(a), .err = err };
    char path[DTPI_PATH_MAX];

    dtp_status st = dtpi_path_join(path, f->root, metadata_name, err);
    if (st >= 0)
        st = dtpi_files_read_all(f->files, path, METADATA_MAX, &text, err);
    if (st >= 0)
        st = dtpi_pickle_read(a, text.data, text.len, path, &d.p, err);
    if (st < 0)
        return st;
    st = read_all(&d);
    dtpi_free(a, d.stored, (d.n_stored + 1) * sizeof(*d.stored));
    dtpi_buf_free(&d.wanted);
    dtpi_buf_free(&d.raw);
    dtpi_pickle_free(&d.p);
    return st;
}
