/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_read.c - reads a safetensors header in one pass, then proves that names are unique and that the
 * tensors tile the data. What other readers let pass in silence (duplicates, gaps, bytes left over) is
 * refused. Memory grows with what was read, never with what a length claims.
 */
#include "ckpt/json.h"
#include "ckpt/st.h"

#include <inttypes.h>
#include <stdlib.h>

dtp_status dtpi_st_header_bytes(const uint8_t prefix[8], uint64_t file_bytes, const char *path,
                                uint64_t *bytes_out, dtp_error *err)
{
    uint64_t n = 0;

    if (file_bytes < 8)
        return dtpi_fail(err, DTP_ERR_TRUNCATED, "%s has %" PRIu64 " bytes, too few for a header",
                         path, file_bytes);
    for (int i = 8; i-- > 0;)
        n = n << 8 | prefix[i];
    if (n > DTPI_ST_MAX_HEADER)
        return dtpi_fail(err, DTP_ERR_LIMIT, "%s claims a header of %" PRIu64 " bytes, at most %d",
                         path, n, DTPI_ST_MAX_HEADER);
    if (n > file_bytes - 8)
        return dtpi_fail(err, DTP_ERR_TRUNCATED,
                         "%s claims a header of %" PRIu64 " bytes but has %" PRIu64, path, n,
                         file_bytes);
    *bytes_out = n;
    return DTP_OK;
}

void dtpi_st_free(dtpi_st *st)
{
    dtpi_buf_free(&st->entries);
    dtpi_buf_free(&st->dims);
    dtpi_buf_free(&st->names);
    dtpi_buf_free(&st->meta);
}

const dtpi_st_entry *dtpi_st_get(const dtpi_st *st, size_t i)
{
    return (const dtpi_st_entry *)(const void *)st->entries.data + i;
}

const char *dtpi_st_name(const dtpi_st *st, const dtpi_st_entry *e)
{
    return (const char *)st->names.data + e->name_at;
}

const uint64_t *dtpi_st_dims(const dtpi_st *st, const dtpi_st_entry *e)
{
    /* A file of scalars alone has no dimensions and no memory for them. */
    return st->dims.data ? (const uint64_t *)(const void *)st->dims.data + e->dims_at : NULL;
}

static int compare_text(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    const int c = memcmp(a, b, DTPI_MIN(a_bytes, b_bytes));

    return c ? c : a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

const dtpi_st_entry *dtpi_st_find(const dtpi_st *st, const char *name, size_t bytes)
{
    size_t low = 0, high = st->n;

    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const dtpi_st_entry *e = dtpi_st_get(st, mid);
        const int c = compare_text(dtpi_st_name(st, e), e->name_bytes, name, bytes);
        if (c == 0)
            return e;
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const char *dtpi_st_meta(const dtpi_st *st, const char *key)
{
    const char *p = (const char *)st->meta.data;
    const char *end = st->meta.len ? p + st->meta.len : p;

    while (p < end) {
        const char *value = p + strlen(p) + 1;
        if (strcmp(p, key) == 0)
            return value;
        p = value + strlen(value) + 1;
    }
    return NULL;
}

/* ---- one pass over the text ---- */

typedef struct reader {
    dtpi_json j;
    dtpi_st *st;
    dtpi_buf scratch;
    dtpi_buf keys;              /* uint32_t: where the keys of __metadata__ begin */
    bool has_meta;
    const char *path;
    dtp_error *err;
} reader;

static dtp_status bad(reader *r)
{
    return dtpi_json_fail(&r->j, r->path, r->err);
}

static dtp_status refuse(reader *r, const char *problem)
{
    dtpi_json_refuse(&r->j, problem);
    return bad(r);
}

/* Copies the last key or string with a NUL behind it. */
static dtp_status keep_text(reader *r, dtpi_buf *out, size_t *bytes_out)
{
    size_t bytes = 0;
    const char *text = dtpi_json_plain(&r->j, &r->scratch, &bytes);

    if (!text || !dtpi_buf_append(out, text, bytes) || !dtpi_buf_append(out, "", 1))
        return dtpi_fail_nomem(r->err, bytes);
    *bytes_out = bytes;
    return DTP_OK;
}

static int by_text(const void *x, const void *y, void *user)
{
    const char *base = user;

    return strcmp(base + *(const uint32_t *)x, base + *(const uint32_t *)y);
}

static dtp_status check_keys(reader *r)
{
    uint32_t *at = (uint32_t *)(void *)r->keys.data;
    const size_t n = r->keys.len / sizeof(*at);

    if (n > 1)
        qsort_r(at, n, sizeof(*at), by_text, r->st->meta.data);
    for (size_t i = 1; i < n; i++)
        if (by_text(&at[i - 1], &at[i], r->st->meta.data) == 0)
            return refuse(r, "a key of __metadata__ is there twice");
    return DTP_OK;
}

static dtp_status read_meta(reader *r)
{
    size_t bytes;

    if (r->has_meta)
        return refuse(r, "__metadata__ is there twice");
    r->has_meta = true;
    if (!dtpi_json_expect(&r->j, DTPI_JSON_OBJECT))
        return bad(r);
    for (;;) {
        const uint32_t at = (uint32_t)r->st->meta.len;
        const dtpi_json_token t = dtpi_json_next(&r->j);
        if (t == DTPI_JSON_OBJECT_END)
            return check_keys(r);
        if (t != DTPI_JSON_KEY)
            return bad(r);
        dtp_status st = keep_text(r, &r->st->meta, &bytes);
        if (st < 0)
            return st;
        if (!dtpi_buf_append(&r->keys, &at, sizeof(at)))
            return dtpi_fail_nomem(r->err, sizeof(at));
        if (!dtpi_json_expect(&r->j, DTPI_JSON_STRING))
            return bad(r);
        st = keep_text(r, &r->st->meta, &bytes);
        if (st < 0)
            return st;
    }
}

static dtp_status read_type(reader *r, dtpi_st_entry *e)
{
    size_t bytes = 0;

    if (!dtpi_json_expect(&r->j, DTPI_JSON_STRING))
        return bad(r);
    const char *text = dtpi_json_plain(&r->j, &r->scratch, &bytes);
    if (!text)
        return dtpi_fail_nomem(r->err, bytes);
    const dtpi_st_type *type = dtpi_st_type_find(text, bytes);
    if (!type)
        return refuse(r, "unknown dtype");
    e->type = (uint8_t)(type - dtpi_st_type_find("BOOL", 4));
    return DTP_OK;
}

static dtp_status read_shape(reader *r, dtpi_st_entry *e)
{
    uint64_t v = 0;

    e->dims_at = (uint32_t)(r->st->dims.len / sizeof(v));
    if (!dtpi_json_expect(&r->j, DTPI_JSON_ARRAY))
        return bad(r);
    for (;;) {
        dtpi_json ahead = r->j;
        if (dtpi_json_next(&ahead) == DTPI_JSON_ARRAY_END) {
            r->j = ahead;
            return DTP_OK;
        }
        if (!dtpi_json_u64(&r->j, &v))
            return bad(r);
        if (e->n_dims == DTPI_ST_MAX_DIMS)
            return refuse(r, "too many dimensions");
        if (!dtpi_buf_append(&r->st->dims, &v, sizeof(v)))
            return dtpi_fail_nomem(r->err, sizeof(v));
        e->n_dims++;
    }
}

static dtp_status read_offsets(reader *r, dtpi_st_entry *e)
{
    if (!dtpi_json_expect(&r->j, DTPI_JSON_ARRAY) || !dtpi_json_u64(&r->j, &e->begin) ||
        !dtpi_json_u64(&r->j, &e->end) || !dtpi_json_expect(&r->j, DTPI_JSON_ARRAY_END))
        return bad(r);
    return DTP_OK;
}

static bool is_text(const char *text, size_t bytes, const char *want)
{
    return bytes == strlen(want) && memcmp(text, want, bytes) == 0;
}

/* The fields of a tensor; what is not known is passed over, as the reference does. */
static dtp_status read_fields(reader *r, dtpi_st_entry *e)
{
    enum { TYPE = 1, SHAPE = 2, OFFSETS = 4 };
    unsigned seen = 0;
    size_t bytes;

    if (!dtpi_json_expect(&r->j, DTPI_JSON_OBJECT))
        return bad(r);
    for (;;) {
        const dtpi_json_token t = dtpi_json_next(&r->j);
        if (t == DTPI_JSON_OBJECT_END)
            return seen == (TYPE | SHAPE | OFFSETS) ? DTP_OK
                                                    : refuse(r, "a field of a tensor is missing");
        if (t != DTPI_JSON_KEY)
            return bad(r);
        const char *key = dtpi_json_plain(&r->j, &r->scratch, &bytes);
        if (!key)
            return dtpi_fail_nomem(r->err, 0);
        const unsigned field = is_text(key, bytes, "dtype")          ? TYPE
                               : is_text(key, bytes, "shape")        ? SHAPE
                               : is_text(key, bytes, "data_offsets") ? OFFSETS
                                                                     : 0;
        if (seen & field)
            return refuse(r, "a field of a tensor is there twice");
        seen |= field;
        dtp_status st = DTP_OK;
        if (field == TYPE)
            st = read_type(r, e);
        else if (field == SHAPE)
            st = read_shape(r, e);
        else if (field == OFFSETS)
            st = read_offsets(r, e);
        else if (!dtpi_json_skip(&r->j))
            st = bad(r);
        if (st < 0)
            return st;
    }
}

/* The bytes between the offsets are those of type and shape. */
static dtp_status check_size(reader *r, const dtpi_st_entry *e)
{
    const uint64_t *dims = dtpi_st_dims(r->st, e);
    uint64_t bits = 1;
    bool fits = true;

    /* In the order of the reference: elements first, so that 0 after a large number is still 0. */
    for (uint32_t i = 0; i < e->n_dims; i++)
        fits &= !__builtin_mul_overflow(bits, dims[i], &bits);
    fits &= !__builtin_mul_overflow(bits, (uint64_t)dtpi_st_entry_type(e)->bits, &bits);
    if (!fits)
        return dtpi_fail(r->err, DTP_ERR_FORMAT, "%s: tensor %.80s: its shape is too large",
                         r->path, dtpi_st_name(r->st, e));
    if (bits % 8)
        return dtpi_fail(r->err, DTP_ERR_FORMAT, "%s: tensor %.80s does not end at a byte", r->path,
                         dtpi_st_name(r->st, e));
    if (e->end < e->begin || e->end - e->begin != bits / 8)
        return dtpi_fail(r->err, DTP_ERR_FORMAT,
                         "%s: tensor %.80s: bytes %" PRIu64 "-%" PRIu64 " for a shape of %" PRIu64
                         " bytes",
                         r->path, dtpi_st_name(r->st, e), e->begin, e->end, bits / 8);
    return DTP_OK;
}

static dtp_status read_entry(reader *r)
{
    dtpi_st_entry e = { .name_at = (uint32_t)r->st->names.len };
    size_t bytes = 0;

    dtp_status st = keep_text(r, &r->st->names, &bytes);
    if (st < 0)
        return st;
    if (is_text((char *)r->st->names.data + e.name_at, bytes, "__metadata__")) {
        r->st->names.len = e.name_at;
        return read_meta(r);
    }
    e.name_bytes = (uint32_t)bytes;
    st = read_fields(r, &e);
    if (st >= 0)
        st = check_size(r, &e);
    if (st < 0)
        return st;
    if (!dtpi_buf_append(&r->st->entries, &e, sizeof(e)))
        return dtpi_fail_nomem(r->err, sizeof(e));
    r->st->n++;
    return DTP_OK;
}

static dtp_status read_entries(reader *r)
{
    if (!dtpi_json_expect(&r->j, DTPI_JSON_OBJECT))
        return bad(r);
    for (;;) {
        const dtpi_json_token t = dtpi_json_next(&r->j);
        if (t == DTPI_JSON_OBJECT_END)
            break;
        if (t != DTPI_JSON_KEY)
            return bad(r);
        const dtp_status st = read_entry(r);
        if (st < 0)
            return st;
    }
    return dtpi_json_expect(&r->j, DTPI_JSON_END) ? DTP_OK : bad(r);
}

/* ---- what the whole must satisfy ---- */

static int by_name(const void *x, const void *y, void *user)
{
    const dtpi_st_entry *a = x, *b = y;
    const dtpi_st *st = user;

    return compare_text(dtpi_st_name(st, a), a->name_bytes, dtpi_st_name(st, b), b->name_bytes);
}

static int by_place(const void *x, const void *y, void *user)
{
    const dtpi_st_entry *a = dtpi_st_get(user, *(const uint32_t *)x);
    const dtpi_st_entry *b = dtpi_st_get(user, *(const uint32_t *)y);

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

static dtp_status check_names(const dtpi_st *st, const char *path, dtp_error *err)
{
    for (size_t i = 1; i < st->n; i++)
        if (by_name(dtpi_st_get(st, i - 1), dtpi_st_get(st, i), (void *)(uintptr_t)st) == 0)
            return dtpi_fail(err, DTP_ERR_FORMAT, "%s: tensor %.80s is there twice", path,
                             dtpi_st_name(st, dtpi_st_get(st, i)));
    return DTP_OK;
}

/* Each tensor begins where the one before ends. */
static dtp_status check_tiling(dtpi_st *st, const char *path, dtp_error *err)
{
    uint64_t at = 0;

    uint32_t *order = dtpi_alloc_array(st->a, st->n + 1, sizeof(*order));
    if (!order)
        return dtpi_fail_nomem(err, st->n * sizeof(*order));
    for (size_t i = 0; i < st->n; i++)
        order[i] = (uint32_t)i;
    if (st->n > 1)
        qsort_r(order, st->n, sizeof(*order), by_place, st);
    dtp_status s = DTP_OK;
    for (size_t i = 0; i < st->n && s == DTP_OK; i++) {
        const dtpi_st_entry *e = dtpi_st_get(st, order[i]);
        if (e->begin != at)
            s = dtpi_fail(err, DTP_ERR_FORMAT,
                          "%s: tensor %.80s begins at byte %" PRIu64 " instead of %" PRIu64 " (%s)",
                          path, dtpi_st_name(st, e), e->begin, at,
                          e->begin > at ? "a gap" : "an overlap");
        at = e->end;
    }
    dtpi_free(st->a, order, (st->n + 1) * sizeof(*order));
    st->data_bytes = at;
    return s;
}

static dtp_status check_whole(dtpi_st *st, uint64_t data_bytes, const char *path, dtp_error *err)
{
    if (st->n > 1)
        qsort_r(st->entries.data, st->n, sizeof(dtpi_st_entry), by_name, st);
    dtp_status s = check_names(st, path, err);
    if (s >= 0)
        s = check_tiling(st, path, err);
    if (s < 0)
        return s;
    if (st->data_bytes > data_bytes)
        return dtpi_fail(err, DTP_ERR_TRUNCATED, "%s lacks %" PRIu64 " bytes of data", path,
                         st->data_bytes - data_bytes);
    if (st->data_bytes < data_bytes)
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s has %" PRIu64 " bytes behind its last tensor",
                         path, data_bytes - st->data_bytes);
    return DTP_OK;
}

dtp_status dtpi_st_read(const dtp_allocator *a, const char *header, size_t bytes,
                        uint64_t data_bytes, const char *path, dtpi_st *st_out, dtp_error *err)
{
    dtpi_st st = { .a = a };
    reader r = { .j = dtpi_json_init(header, bytes), .st = &st, .path = path, .err = err };

    st.entries = dtpi_buf_init(a);
    st.dims = dtpi_buf_init(a);
    st.names = dtpi_buf_init(a);
    st.meta = dtpi_buf_init(a);
    r.scratch = dtpi_buf_init(a);
    r.keys = dtpi_buf_init(a);
    /* So that the dimensions of scalars can be pointed at. */
    dtp_status s = DTP_OK;
    if (!dtpi_buf_append(&st.dims, &(uint64_t){ 0 }, sizeof(uint64_t)))
        s = dtpi_fail_nomem(err, sizeof(uint64_t));
    if (s >= 0)
        s = read_entries(&r);
    dtpi_buf_free(&r.scratch);
    dtpi_buf_free(&r.keys);
    if (s >= 0)
        s = check_whole(&st, data_bytes, path, err);
    if (s < 0) {
        dtpi_st_free(&st);
        return s;
    }
    *st_out = st;
    return DTP_OK;
}
