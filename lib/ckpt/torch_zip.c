/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_zip.c - PREFIX/data.pkl is the pickle, PREFIX/data/KEY the bytes of storage KEY, little-endian.
 *
 * A tensor is a view of a storage: offset, shape and strides in elements. A dense one is one range; of
 * others each run becomes a box of its own, within a limit. Source: torch/serialization.py (_save),
 * torch/_utils.py (_rebuild_tensor_v2).
 */
#include "ckpt/torch_zip.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PICKLE_MAX = 256 << 20, MAX_RUNS = 1 << 20 };

/* A tensor as the pickle describes it. */
typedef struct view {
    dtp_dtype dtype;
    uint32_t n_dims;
    int64_t shape[DTP_CKPT_MAX_DIMS], stride[DTP_CKPT_MAX_DIMS];
    int64_t offset;
    const dtpi_pk_node *key;
    bool is_lazy;               /* its numbers are conjugates or negatives of the stored ones */
} view;

void dtpi_torch_zip_free(dtpi_torch_zip *z)
{
    dtpi_buf_free(&z->dir_bytes);
    dtpi_buf_free(&z->members);
    dtpi_buf_free(&z->pickle_bytes);
    dtpi_pickle_free(&z->pickle);
}

/* ---- members ---- */

static dtpi_zip_member *member_at(const dtpi_torch_zip *z, size_t i)
{
    return (dtpi_zip_member *)(void *)z->members.data + i;
}

static int compare(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    const int c = memcmp(a, b, DTPI_MIN(a_bytes, b_bytes));

    return c ? c : a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

static int by_name(const void *x, const void *y)
{
    const dtpi_zip_member *a = x, *b = y;

    return compare(a->name, a->name_bytes, b->name, b->name_bytes);
}

static const dtpi_zip_member *find(const dtpi_torch_zip *z, const char *name, size_t bytes)
{
    const dtpi_zip_member want = { .name = name, .name_bytes = (uint32_t)bytes };

    return z->n_members ? bsearch(&want, z->members.data, z->n_members, sizeof(want), by_name)
                        : NULL;
}

/* PREFIX and `part` and `key`. */
static dtp_status find_part(const dtpi_torch_zip *z, const char *part, const char *key,
                            size_t key_bytes, const dtpi_zip_member **out, dtp_error *err)
{
    char name[400];
    const size_t n = strlen(part);

    *out = NULL;
    if (z->prefix_bytes + n + key_bytes >= sizeof(name))
        return dtpi_fail(err, DTP_ERR_LIMIT, "%s: a member's name is too long", z->path);
    memcpy(name, z->prefix, z->prefix_bytes);
    memcpy(name + z->prefix_bytes, part, n);
    if (key_bytes)
        memcpy(name + z->prefix_bytes + n, key, key_bytes);
    *out = find(z, name, z->prefix_bytes + n + key_bytes);
    return DTP_OK;
}

static dtp_status data_at(const dtpi_torch_zip *z, const dtpi_zip_member *m, uint64_t *at_out,
                          dtp_error *err)
{
    uint8_t local[DTPI_ZIP_LOCAL];

    dtp_status st =
        dtpi_foreign_read(z->f, z->base + m->local_at, local, sizeof(local), err);
    if (st >= 0)
        st = dtpi_zip_data(local, &z->dir, m, z->path, at_out, err);
    if (st >= 0)
        *at_out += z->base;
    return st;
}

static dtp_status read_member(const dtpi_torch_zip *z, const dtpi_zip_member *m, dtpi_buf *out,
                              dtp_error *err)
{
    uint64_t at = 0;

    if (m->bytes > PICKLE_MAX)
        return dtpi_fail(err, DTP_ERR_LIMIT, "%s: %.*s has %" PRIu64 " bytes", z->path,
                         (int)DTPI_MIN(m->name_bytes, 80u), m->name, m->bytes);
    dtp_status st = data_at(z, m, &at, err);
    if (st < 0)
        return st;
    uint8_t *p = dtpi_buf_reserve(out, m->bytes + 1);
    if (!p)
        return dtpi_fail_nomem(err, m->bytes);
    st = dtpi_foreign_read(z->f, at, p, m->bytes, err);
    if (st >= 0)
        out->len += m->bytes;
    return st;
}

/* ---- opening ---- */

static dtp_status read_end(dtpi_torch_zip *z, dtp_error *err)
{
    uint8_t tail[DTPI_ZIP_TAIL];
    const size_t n = (size_t)DTPI_MIN(z->bytes, (uint64_t)sizeof(tail));

    dtp_status st = dtpi_foreign_read(z->f, z->base + z->bytes - n, tail, n, err);
    if (st >= 0)
        st = dtpi_zip_end(tail, n, z->bytes, z->path, &z->dir, err);
    if (st < 0 || z->dir.twin_at == UINT64_MAX)
        return st;
    st = dtpi_foreign_read(z->f, z->base + z->dir.twin_at, tail, 56, err);
    return st < 0 ? st : dtpi_zip_twin(tail, z->bytes, z->path, &z->dir, err);
}

static dtp_status read_members(dtpi_torch_zip *z, dtp_error *err)
{
    uint64_t at = 0, i = 0;

    uint8_t *p = dtpi_buf_reserve(&z->dir_bytes, z->dir.bytes + 1);
    if (!p)
        return dtpi_fail_nomem(err, z->dir.bytes);
    dtp_status st = dtpi_foreign_read(z->f, z->base + z->dir.at, p, z->dir.bytes, err);
    for (;;) {
        dtpi_zip_member m = { 0 };
        if (st >= 0)
            st = dtpi_zip_next(p, &z->dir, &at, &i, z->path, &m, err);
        if (st < 0 || st == DTP_END)
            break;
        if (!dtpi_buf_append(&z->members, &m, sizeof(m)))
            return dtpi_fail_nomem(err, sizeof(m));
    }
    if (st < 0)
        return st;
    z->n_members = z->members.len / sizeof(dtpi_zip_member);
    if (z->n_members > 1)
        qsort(z->members.data, z->n_members, sizeof(dtpi_zip_member), by_name);
    for (size_t k = 1; k < z->n_members; k++)
        if (by_name(member_at(z, k - 1), member_at(z, k)) == 0)
            return dtpi_fail(err, DTP_ERR_FORMAT, "%s: zip: member %.*s is there twice", z->path,
                             (int)DTPI_MIN(member_at(z, k)->name_bytes, 80u),
                             member_at(z, k)->name);
    return DTP_OK;
}

/* The one member PREFIX/data.pkl. */
static dtp_status find_pickle(dtpi_torch_zip *z, const dtpi_zip_member **out, dtp_error *err)
{
    static const char name[] = "/data.pkl";
    const size_t n = sizeof(name) - 1;

    *out = NULL;
    for (size_t i = 0; i < z->n_members; i++) {
        const dtpi_zip_member *m = member_at(z, i);
        const char *slash = memchr(m->name, '/', m->name_bytes);
        if (m->name_bytes < n || slash != m->name + m->name_bytes - n || memcmp(slash, name, n))
            continue;
        if (*out)
            return dtpi_fail(err, DTP_ERR_FORMAT, "%s: zip: it holds several pickles", z->path);
        *out = m;
        z->prefix = m->name;
        z->prefix_bytes = m->name_bytes - (uint32_t)n + 1;
    }
    return *out ? DTP_OK
                : dtpi_fail(err, DTP_ERR_FORMAT, "%s: zip: no data.pkl: not of torch.save", z->path);
}

static dtp_status check_order(const dtpi_torch_zip *z, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(z->f->files->a);
    const dtpi_zip_member *m = NULL;

    dtp_status st = find_part(z, "byteorder", NULL, 0, &m, err);
    if (st < 0 || !m)
        return st;
    st = read_member(z, m, &text, err);
    if (st >= 0 && (text.len != 6 || memcmp(text.data, "little", 6) != 0))
        st = dtpi_fail(err, DTP_ERR_UNSUPPORTED, "%s: its numbers are not little-endian", z->path);
    return st;
}

dtp_status dtpi_torch_zip_open(dtpi_torch_zip *z, dtpi_foreign *f, uint32_t file, uint64_t base,
                               uint64_t bytes, const char *path, dtp_error *err)
{
    const dtp_allocator *a = f->files->a;
    const dtpi_zip_member *m = NULL;

    *z = (dtpi_torch_zip){ .f = f, .file = file, .base = base, .bytes = bytes, .path = path };
    z->dir_bytes = dtpi_buf_init(a);
    z->members = dtpi_buf_init(a);
    z->pickle_bytes = dtpi_buf_init(a);
    z->pickle.nodes = dtpi_buf_init(a);
    z->pickle.kids = dtpi_buf_init(a);
    dtp_status st = read_end(z, err);
    if (st >= 0)
        st = read_members(z, err);
    if (st >= 0)
        st = find_pickle(z, &m, err);
    if (st >= 0)
        st = check_order(z, err);
    if (st >= 0)
        st = read_member(z, m, &z->pickle_bytes, err);
    if (st >= 0)
        st = dtpi_pickle_read(a, z->pickle_bytes.data, z->pickle_bytes.len, path, &z->pickle, err);
    return st;
}

/* ---- tensors ---- */

bool dtpi_torch_is_tensor(const dtpi_pk_node *n)
{
    return dtpi_pk_is_object(n, DTPI_PK_REBUILD) || dtpi_pk_is_object(n, DTPI_PK_REBUILD_TYPED) ||
           dtpi_pk_is_object(n, DTPI_PK_PARAMETER);
}

/* ('storage', class, key, device, elements) */
static bool read_storage(const dtpi_pickle *p, const dtpi_pk_node *n, view *v)
{
    const dtpi_pk_node *id = dtpi_pk_is(n, DTPI_PK_PERSISTENT) ? dtpi_pk_kid(p, n, 0) : NULL;

    if (!dtpi_pk_is(id, DTPI_PK_TUPLE) || id->n != 5 ||
        !dtpi_pk_is_text(p, dtpi_pk_kid(p, id, 0), "storage"))
        return false;
    const dtpi_pk_node *class = dtpi_pk_kid(p, id, 1);
    v->key = dtpi_pk_kid(p, id, 2);
    if (!dtpi_pk_is(class, DTPI_PK_GLOBAL) || !dtpi_pk_is(v->key, DTPI_PK_TEXT))
        return false;
    if (class->name == DTPI_PK_STORAGE)
        v->dtype = (dtp_dtype)class->i;
    return class->name == DTPI_PK_STORAGE || class->name == DTPI_PK_BARE_STORAGE;
}

static bool read_view(const dtpi_pickle *p, const dtpi_pk_node *n, view *v)
{
    uint32_t n_strides = 0;

    if (dtpi_pk_is_object(n, DTPI_PK_PARAMETER))
        n = dtpi_pk_kid(p, dtpi_pk_kid(p, n, 0), 0);
    const dtpi_pk_node *args = dtpi_pk_kid(p, n, 0);
    const bool typed = dtpi_pk_is_object(n, DTPI_PK_REBUILD_TYPED);
    if ((!typed && !dtpi_pk_is_object(n, DTPI_PK_REBUILD)) || !dtpi_pk_is(args, DTPI_PK_TUPLE) ||
        !read_storage(p, dtpi_pk_kid(p, args, 0), v))
        return false;
    const dtpi_pk_node *offset = dtpi_pk_kid(p, args, 1), *dtype = dtpi_pk_kid(p, args, 6);
    if (typed && (!dtpi_pk_is(dtype, DTPI_PK_GLOBAL) || dtype->name != DTPI_PK_DTYPE))
        return false;
    if (typed)
        v->dtype = (dtp_dtype)dtype->i;
    const dtpi_pk_node *bits = dtpi_pk_kid(p, args, typed ? 7 : 6);
    v->is_lazy = bits && bits->kind != DTPI_PK_NONE && bits->n > 0;
    if (!dtpi_pk_is(offset, DTPI_PK_INT) ||
        !dtpi_pk_ints(p, dtpi_pk_kid(p, args, 2), DTP_CKPT_MAX_DIMS, v->shape, &v->n_dims) ||
        !dtpi_pk_ints(p, dtpi_pk_kid(p, args, 3), DTP_CKPT_MAX_DIMS, v->stride, &n_strides) ||
        n_strides != v->n_dims)
        return false;
    v->offset = offset->i;
    return true;
}

/* Dimensions in front that have to be counted one by one; `*runs_out`: how many runs that makes. */
static bool count_runs(const view *v, uint32_t *outer_out, uint64_t *runs_out)
{
    uint32_t outer = v->n_dims;
    int64_t dense = 1;
    uint64_t runs = 1;

    for (; outer > 0 && (v->shape[outer - 1] == 1 || v->stride[outer - 1] == dense); outer--)
        if (__builtin_mul_overflow(dense, v->shape[outer - 1], &dense))
            return false;
    for (uint32_t i = 0; i < outer; i++)
        if (__builtin_mul_overflow(runs, (uint64_t)v->shape[i], &runs))
            return false;
    *outer_out = outer;
    *runs_out = runs;
    return true;
}

static dtp_status bad_tensor(const dtpi_torch_zip *z, const dtpi_torch_place *place,
                             dtp_status status, const char *what, dtp_error *err)
{
    return dtpi_fail(err, status, "%s: tensor %.80s %s", z->path,
                     dtpi_mf_text(&z->f->m, place->name_at), what);
}

/* Where element `at` of the outer dimensions lies, in bytes of the storage; false: outside of it. */
static bool run_begin(const view *v, uint32_t outer, const int64_t *at, uint64_t run_bytes,
                      uint64_t storage_bytes, uint64_t *out)
{
    const int64_t width = (int64_t)dtp_dtype_bytes(v->dtype);
    int64_t element = v->offset, bytes = 0, step = 0;

    for (uint32_t i = 0; i < outer; i++)
        if (__builtin_mul_overflow(at[i], v->stride[i], &step) ||
            __builtin_add_overflow(element, step, &element))
            return false;
    if (element < 0 || __builtin_mul_overflow(element, width, &bytes) ||
        (uint64_t)bytes > storage_bytes || run_bytes > storage_bytes - (uint64_t)bytes)
        return false;
    *out = (uint64_t)bytes;
    return true;
}

/* A box per run: `data` is where the storage begins in the file. */
static dtp_status add_runs(dtpi_torch_zip *z, const view *v, const dtpi_torch_place *place,
                           uint32_t outer, uint64_t runs, uint64_t data, uint64_t storage_bytes,
                           dtp_error *err)
{
    int64_t at[DTP_CKPT_MAX_DIMS] = { 0 }, offset[DTP_CKPT_MAX_DIMS] = { 0 };
    int64_t extent[DTP_CKPT_MAX_DIMS] = { 0 };
    uint64_t run_bytes = dtp_dtype_bytes(v->dtype);
    dtpi_foreign_box box = {
        .name_at = place->name_at,
        .file = z->file,
        .shape = place->shape ? place->shape : v->shape,
        .offset = offset,
        .extent = extent,
        .n_dims = v->n_dims,
        .dtype = v->dtype,
    };

    for (uint32_t i = 0; i < v->n_dims; i++) {
        extent[i] = i < outer ? 1 : v->shape[i];
        if (__builtin_mul_overflow(run_bytes, (uint64_t)extent[i], &run_bytes))
            return bad_tensor(z, place, DTP_ERR_FORMAT, "is too large", err);
    }
    for (uint64_t r = 0; r < runs; r++) {
        for (uint32_t i = 0; i < v->n_dims; i++)
            offset[i] = (place->offset ? place->offset[i] : 0) + at[i];
        if (!run_begin(v, outer, at, run_bytes, storage_bytes, &box.begin))
            return bad_tensor(z, place, DTP_ERR_FORMAT, "reaches beyond its storage", err);
        box.begin += data;
        const dtp_status st = dtpi_foreign_add(z->f, &box, err);
        if (st < 0)
            return st;
        for (uint32_t i = outer; i-- > 0 && ++at[i] == v->shape[i];)
            at[i] = 0;
    }
    return DTP_OK;
}

static dtp_status check_view(const dtpi_torch_zip *z, const view *v, const dtpi_torch_place *place,
                             dtp_error *err)
{
    if (v->dtype == DTP_DTYPE_NONE)
        return bad_tensor(z, place, DTP_ERR_UNSUPPORTED, "has a type that is not read", err);
    if (v->is_lazy)
        return bad_tensor(z, place, DTP_ERR_UNSUPPORTED,
                          "is stored conjugate or negative (save it .resolve_conj().resolve_neg())", err);
    for (uint32_t i = 0; i < v->n_dims; i++)
        if (v->shape[i] < 0 || v->stride[i] < 0)
            return bad_tensor(z, place, DTP_ERR_FORMAT, "has a negative shape or stride", err);
    if (place->extent && (place->n_dims != v->n_dims ||
                          memcmp(place->extent, v->shape, v->n_dims * sizeof(int64_t)) != 0))
        return bad_tensor(z, place, DTP_ERR_CORRUPT, "has another shape than is said of it", err);
    for (uint32_t i = 0; place->offset && i < v->n_dims; i++)
        if (place->offset[i] < 0 || v->shape[i] > INT64_MAX - place->offset[i])
            return bad_tensor(z, place, DTP_ERR_FORMAT, "has a part outside every shape", err);
    return DTP_OK;
}

dtp_status dtpi_torch_add(dtpi_torch_zip *z, const dtpi_pk_node *n, const dtpi_torch_place *place,
                          dtp_error *err)
{
    const dtpi_zip_member *m = NULL;
    view v = { .dtype = DTP_DTYPE_NONE };
    uint64_t data = 0, runs = 0;
    uint32_t outer = 0;

    if (!read_view(&z->pickle, n, &v))
        return bad_tensor(z, place, DTP_ERR_FORMAT, "is described in an unknown way", err);
    dtp_status st = check_view(z, &v, place, err);
    if (st >= 0)
        st = find_part(z, "data/", dtpi_pk_text(&z->pickle, v.key), v.key->n, &m, err);
    if (st >= 0 && !m)
        st = bad_tensor(z, place, DTP_ERR_NOT_FOUND, "lacks its bytes", err);
    if (st >= 0)
        st = data_at(z, m, &data, err);
    if (st < 0)
        return st;
    if (!count_runs(&v, &outer, &runs))
        return bad_tensor(z, place, DTP_ERR_FORMAT, "is too large", err);
    for (uint32_t i = 0; i < v.n_dims; i++)
        if (v.shape[i] == 0)
            outer = 0, runs = 1, v.offset = 0;
    /* Each run costs a box: a few for a view of rows, one per element for a transposed matrix. */
    if (runs > 1 && (runs > z->bytes + 4096 || runs > MAX_RUNS - z->f->n_runs))
        return bad_tensor(z, place, DTP_ERR_UNSUPPORTED,
                          "is stored with its elements scattered (save it .contiguous())", err);
    z->f->n_runs += runs > 1 ? runs : 0;
    return add_runs(z, &v, place, outer, runs, data, m->bytes, err);
}
