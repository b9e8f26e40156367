/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest_read.c - reads a manifest in one pass, after its own checksum was found right. Members may
 * come in any order, those that are not known are passed over, none may come twice or be missing.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/sum.h"
#include "base/text.h"
#include "ckpt/base64.h"
#include "ckpt/json.h"
#include "ckpt/manifest.h"

typedef struct reader {
    dtpi_json j;
    dtpi_manifest *m;
    dtpi_buf scratch;
    bool has_v1_box, has_v2_box;
    const char *path;
    dtp_error *err;
} reader;

/* A member of an object: its name and what reads its value into `at`. */
typedef struct member {
    const char *name;
    dtp_status (*read)(reader *r, void *at);
    bool optional;
} member;

static dtp_status bad(reader *r)
{
    return dtpi_json_fail(&r->j, r->path, r->err);
}

static dtp_status refuse(reader *r, const char *problem)
{
    dtpi_json_refuse(&r->j, problem);
    return bad(r);
}

static dtp_status read_object(reader *r, const member *members, size_t n, void *at)
{
    uint32_t seen = 0;
    size_t bytes = 0;

    if (!dtpi_json_expect(&r->j, DTPI_JSON_OBJECT))
        return bad(r);
    for (;;) {
        const dtpi_json_token t = dtpi_json_next(&r->j);
        if (t == DTPI_JSON_OBJECT_END)
            break;
        if (t != DTPI_JSON_KEY)
            return bad(r);
        const char *key = dtpi_json_plain(&r->j, &r->scratch, &bytes);
        if (!key)
            return dtpi_fail_nomem(r->err, bytes);
        size_t i = 0;
        while (i < n &&
               !(strlen(members[i].name) == bytes && memcmp(members[i].name, key, bytes) == 0))
            i++;
        if (i < n && seen >> i & 1)
            return refuse(r, "a member is there twice");
        dtp_status st = DTP_OK;
        if (i < n)
            st = members[i].read(r, at);
        else if (!dtpi_json_skip(&r->j))
            st = bad(r);
        if (st < 0)
            return st;
        seen |= i < n ? 1u << i : 0;
    }
    for (size_t i = 0; i < n; i++)
        if (!(seen >> i & 1) && !members[i].optional)
            return dtpi_fail(r->err, DTP_ERR_FORMAT, "%s: byte %zu: member \"%s\" is missing",
                             r->path, (size_t)(r->j.p - r->j.base), members[i].name);
    return DTP_OK;
}

/* An array whose elements `read` takes. */
static dtp_status read_array(reader *r, dtp_status (*read)(reader *r, void *at), void *at)
{
    if (!dtpi_json_expect(&r->j, DTPI_JSON_ARRAY))
        return bad(r);
    for (;;) {
        dtpi_json ahead = r->j;
        const dtpi_json_token t = dtpi_json_next(&ahead);
        if (t == DTPI_JSON_ARRAY_END) {
            r->j = ahead;
            return DTP_OK;
        }
        const dtp_status st = read(r, at);
        if (st < 0)
            return st;
    }
}

/* ---- values ---- */

static dtp_status read_number(reader *r, uint64_t max, uint64_t *out)
{
    if (!dtpi_json_u64(&r->j, out))
        return bad(r);
    return *out > max ? refuse(r, "a number is too large") : DTP_OK;
}

static dtp_status read_text(reader *r, const char **text_out, size_t *bytes_out)
{
    if (!dtpi_json_expect(&r->j, DTPI_JSON_STRING))
        return bad(r);
    *text_out = dtpi_json_plain(&r->j, &r->scratch, bytes_out);
    return *text_out ? DTP_OK : dtpi_fail_nomem(r->err, *bytes_out);
}

/* A string kept in the pool of texts. */
static dtp_status read_kept(reader *r, uint32_t *at_out, uint32_t *bytes_out)
{
    const char *text;
    size_t bytes = 0;

    const dtp_status st = read_text(r, &text, &bytes);
    if (st < 0)
        return st;
    if (r->m->text.len + bytes >= UINT32_MAX)
        return refuse(r, "too many names");
    *at_out = (uint32_t)r->m->text.len;
    *bytes_out = (uint32_t)bytes;
    if (!dtpi_buf_append(&r->m->text, text, bytes) || !dtpi_buf_append(&r->m->text, "", 1))
        return dtpi_fail_nomem(r->err, bytes);
    return DTP_OK;
}

static dtp_status read_hex(reader *r, uint64_t *out)
{
    const char *text;
    size_t bytes = 0;
    uint8_t raw[8];
    char copy[17] = "";

    const dtp_status st = read_text(r, &text, &bytes);
    if (st < 0)
        return st;
    if (bytes != 16)
        return refuse(r, "expected 16 hex digits");
    memcpy(copy, text, 16);
    if (!dtpi_parse_hex(copy, raw, 8))
        return refuse(r, "expected 16 hex digits");
    *out = 0;
    for (int i = 0; i < 8; i++)
        *out = *out << 8 | raw[i];
    return DTP_OK;
}

static dtp_status read_dim(reader *r, void *at)
{
    uint64_t v = 0;
    uint32_t *n = at;

    const dtp_status st = read_number(r, INT64_MAX, &v);
    if (st < 0)
        return st;
    if (*n == DTP_CKPT_MAX_DIMS)
        return refuse(r, "too many dimensions");
    ++*n;
    return dtpi_buf_append(&r->m->dims, &v, sizeof(v)) ? DTP_OK
                                                       : dtpi_fail_nomem(r->err, sizeof(v));
}

/* Where the numbers begin in the pool, and how many they are. */
static dtp_status read_dims(reader *r, uint64_t *at_out, uint32_t *n_out)
{
    *at_out = r->m->dims.len / sizeof(int64_t);
    *n_out = 0;
    return read_array(r, read_dim, n_out);
}

/* Base64 of little-endian numbers of `width` bytes. */
static dtp_status read_packed(reader *r, dtpi_buf *pool, size_t width, uint64_t *at_out,
                              uint64_t *n_out)
{
    const char *text;
    size_t chars = 0, bytes = 0;

    const dtp_status st = read_text(r, &text, &chars);
    if (st < 0)
        return st;
    *at_out = pool->len / width;
    if (!dtpi_base64_get(pool, text, chars, &bytes))
        return pool->failed ? dtpi_fail_nomem(r->err, chars) : refuse(r, "not base64");
    if (bytes % width)
        return refuse(r, "base64 of a broken number");
    *n_out = bytes / width;
    return DTP_OK;
}

/* ---- files ---- */

static dtp_status file_name(reader *r, void *at)
{
    dtpi_mf_file *f = at;
    uint32_t bytes;

    return read_kept(r, &f->name_at, &bytes);
}

static dtp_status file_rank(reader *r, void *at)
{
    uint64_t v = 0;

    const dtp_status st = read_number(r, INT32_MAX, &v);
    ((dtpi_mf_file *)at)->rank = (int32_t)v;
    return st;
}

static dtp_status file_bytes(reader *r, void *at)
{
    return read_number(r, INT64_MAX, &((dtpi_mf_file *)at)->bytes);
}

static dtp_status file_header_bytes(reader *r, void *at)
{
    return read_number(r, INT64_MAX, &((dtpi_mf_file *)at)->header_bytes);
}

static dtp_status file_header_sum(reader *r, void *at)
{
    return read_hex(r, &((dtpi_mf_file *)at)->header_sum);
}

static dtp_status file_digest(reader *r, void *at)
{
    return read_hex(r, &((dtpi_mf_file *)at)->digest);
}

static dtp_status file_part(reader *r, void *at)
{
    uint32_t bytes;

    return read_kept(r, &((dtpi_mf_file *)at)->part_at, &bytes);
}

static dtp_status file_part_bytes(reader *r, void *at)
{
    return read_number(r, INT64_MAX, &((dtpi_mf_file *)at)->part_bytes);
}

static dtp_status file_part_sum(reader *r, void *at)
{
    return read_hex(r, &((dtpi_mf_file *)at)->part_sum);
}

static dtp_status read_file(reader *r, void *at)
{
    static const member members[] = {
        { "name", file_name, false },           { "rank", file_rank, false },
        { "bytes", file_bytes, false },         { "header_bytes", file_header_bytes, false },
        { "header_sum", file_header_sum, false }, { "digest", file_digest, false },
        { "part", file_part, true },            { "part_bytes", file_part_bytes, true },
        { "part_sum", file_part_sum, true },
    };
    dtpi_mf_file f = { .part_at = DTPI_NO_PART };

    (void)at;
    const dtp_status st = read_object(r, members, DTPI_ARRAY_LEN(members), &f);
    if (st < 0)
        return st;
    return dtpi_buf_append(&r->m->file_buf, &f, sizeof(f)) ? DTP_OK
                                                           : dtpi_fail_nomem(r->err, sizeof(f));
}

/* ---- boxes ---- */

typedef struct box_parts {
    dtpi_mf_box box;
    uint64_t offset_at, extent_at, n_sizes;
    uint32_t n_offset, n_extent;
} box_parts;

static dtp_status box_file(reader *r, void *at)
{
    uint64_t v = 0;

    const dtp_status st = read_number(r, UINT32_MAX, &v);
    ((box_parts *)at)->box.file = ((box_parts *)at)->box.home = (uint32_t)v;
    return st;
}

static dtp_status box_key(reader *r, void *at)
{
    uint32_t bytes;

    return read_kept(r, &((box_parts *)at)->box.key_at, &bytes);
}

static dtp_status box_offset(reader *r, void *at)
{
    box_parts *p = at;

    return read_dims(r, &p->offset_at, &p->n_offset);
}

static dtp_status box_extent(reader *r, void *at)
{
    box_parts *p = at;

    return read_dims(r, &p->extent_at, &p->n_extent);
}

static dtp_status box_bytes(reader *r, void *at)
{
    box_parts *p = at;

    if (!dtpi_json_expect(&r->j, DTPI_JSON_ARRAY) || !dtpi_json_u64(&r->j, &p->box.begin) ||
        !dtpi_json_u64(&r->j, &p->box.end) || !dtpi_json_expect(&r->j, DTPI_JSON_ARRAY_END))
        return bad(r);
    return DTP_OK;
}

static dtp_status box_sums(reader *r, void *at)
{
    box_parts *p = at;

    return read_packed(r, &r->m->sums, sizeof(uint64_t), &p->box.sums_at, &p->box.n_chunks);
}

static dtp_status box_sizes(reader *r, void *at)
{
    box_parts *p = at;

    return read_packed(r, &r->m->sizes, sizeof(uint32_t), &p->box.sizes_at, &p->n_sizes);
}

/* Offset and extent side by side, in whatever order they came. */
static dtp_status join_dims(reader *r, box_parts *p)
{
    dtpi_buf *dims = &r->m->dims;
    const uint32_t n = p->n_offset;

    if (p->n_extent != n)
        return refuse(r, "offset and extent differ in their dimensions");
    p->box.dims_at = p->offset_at;
    if (p->extent_at == p->offset_at + n)
        return DTP_OK;
    p->box.dims_at = dims->len / sizeof(int64_t);
    if (!dtpi_buf_reserve(dims, 2 * n * sizeof(int64_t)))
        return dtpi_fail_nomem(r->err, 0);
    dtpi_buf_append(dims, dtpi_mf_dims(r->m, p->offset_at), n * sizeof(int64_t));
    dtpi_buf_append(dims, dtpi_mf_dims(r->m, p->extent_at), n * sizeof(int64_t));
    return DTP_OK;
}

typedef struct tensor_parts {
    dtpi_mf_tensor tensor;
    uint32_t n_dims;
    uint32_t box_dims;          /* of every box; UINT32_MAX before the first */
} tensor_parts;

enum { NO_KEY = UINT32_MAX };

/* A box is complete; `n_dims` dimensions. */
static dtp_status add_box(reader *r, tensor_parts *t, const dtpi_mf_box *b, uint32_t n_dims)
{
    if (t->box_dims != UINT32_MAX && t->box_dims != n_dims)
        return refuse(r, "boxes of a tensor differ in their dimensions");
    if (t->tensor.n_boxes == UINT32_MAX)
        return refuse(r, "too many boxes");
    t->box_dims = n_dims;
    t->tensor.n_boxes++;
    return dtpi_buf_append(&r->m->box_buf, b, sizeof(*b)) ? DTP_OK
                                                          : dtpi_fail_nomem(r->err, sizeof(*b));
}

/* Of version 1: an object with all about the box. */
static dtp_status read_v1_box(reader *r, tensor_parts *t)
{
    static const member members[] = {
        { "file", box_file, false },     { "key", box_key, true },
        { "offset", box_offset, false }, { "extent", box_extent, false },
        { "bytes", box_bytes, false },   { "sums", box_sums, false },
        { "sizes", box_sizes, true },
    };
    box_parts p = { .box = { .key_at = (uint32_t)NO_KEY, .sizes_at = DTPI_NO_SIZES,
                             .base = DTPI_NO_BASE } };

    r->has_v1_box = true;
    dtp_status st = read_object(r, members, DTPI_ARRAY_LEN(members), &p);
    if (st >= 0)
        st = join_dims(r, &p);
    if (st < 0)
        return st;
    if (p.box.sizes_at != DTPI_NO_SIZES && p.n_sizes != p.box.n_chunks)
        return refuse(r, "a box has not as many sizes as sums");
    return add_box(r, t, &p.box, p.n_offset);
}

/* Of version 2: [file, offset .., extent .., "key"]. */
static dtp_status read_v2_box(reader *r, tensor_parts *t)
{
    dtpi_mf_box b = { .key_at = (uint32_t)NO_KEY, .base = DTPI_NO_BASE,
                      .dims_at = r->m->dims.len / sizeof(int64_t) };
    uint32_t n = 0, bytes;
    uint64_t v = 0;
    dtp_status st;

    r->has_v2_box = true;
    if (!dtpi_json_expect(&r->j, DTPI_JSON_ARRAY))
        return bad(r);
    st = read_number(r, UINT32_MAX, &v);
    b.home = b.file = (uint32_t)v;
    for (; st >= 0; n++) {
        const char next = dtpi_json_peek(&r->j);
        if (next == ']' || next == '"')
            break;
        if (n == 2 * DTP_CKPT_MAX_DIMS)
            return refuse(r, "too many dimensions");
        st = read_number(r, INT64_MAX, &v);
        if (st >= 0 && !dtpi_buf_append(&r->m->dims, &v, sizeof(v)))
            return dtpi_fail_nomem(r->err, sizeof(v));
    }
    if (st >= 0 && dtpi_json_peek(&r->j) == '"')
        st = read_kept(r, &b.key_at, &bytes);
    if (st < 0)
        return st;
    if (!dtpi_json_expect(&r->j, DTPI_JSON_ARRAY_END))
        return bad(r);
    return n % 2 ? refuse(r, "offset and extent differ in their dimensions")
                 : add_box(r, t, &b, n / 2);
}

static dtp_status read_box(reader *r, void *at)
{
    return dtpi_json_peek(&r->j) == '[' ? read_v2_box(r, at) : read_v1_box(r, at);
}

/* ---- tensors ---- */

static dtp_status tensor_name(reader *r, void *at)
{
    tensor_parts *t = at;

    return read_kept(r, &t->tensor.name_at, &t->tensor.name_bytes);
}

static dtp_status tensor_dtype(reader *r, void *at)
{
    const char *text;
    char copy[16] = "";
    size_t bytes = 0;

    const dtp_status st = read_text(r, &text, &bytes);
    if (st < 0)
        return st;
    memcpy(copy, text, DTPI_MIN(bytes, sizeof(copy) - 1));
    const dtp_dtype dtype = dtp_dtype_parse(copy);
    if (bytes >= sizeof(copy) || dtype == DTP_DTYPE_NONE ||
        strcmp(copy, dtp_dtype_name(dtype)) != 0)
        return refuse(r, "unknown dtype");
    ((tensor_parts *)at)->tensor.dtype = (uint8_t)dtype;
    return DTP_OK;
}

static dtp_status tensor_shape(reader *r, void *at)
{
    tensor_parts *t = at;

    return read_dims(r, &t->tensor.dims_at, &t->n_dims);
}

static dtp_status tensor_boxes(reader *r, void *at)
{
    return read_array(r, read_box, at);
}

static dtp_status read_tensor(reader *r, void *at)
{
    static const member members[] = {
        { "name", tensor_name, false },
        { "dtype", tensor_dtype, false },
        { "shape", tensor_shape, false },
        { "boxes", tensor_boxes, false },
    };
    tensor_parts t = { .tensor = { .first_box = dtpi_mf_n_boxes(r->m) }, .box_dims = UINT32_MAX };

    (void)at;
    const dtp_status st = read_object(r, members, DTPI_ARRAY_LEN(members), &t);
    if (st < 0)
        return st;
    if (t.box_dims != UINT32_MAX && t.box_dims != t.n_dims)
        return refuse(r, "shape and boxes differ in their dimensions");
    if (t.tensor.name_bytes == 0)
        return refuse(r, "a tensor has no name");
    t.tensor.n_dims = (uint8_t)t.n_dims;
    dtpi_mf_box *boxes = (dtpi_mf_box *)(void *)r->m->box_buf.data;
    for (uint32_t i = 0; i < t.tensor.n_boxes; i++)
        if (boxes[t.tensor.first_box + i].key_at == (uint32_t)NO_KEY)
            boxes[t.tensor.first_box + i].key_at = t.tensor.name_at;
    if (!dtpi_buf_append(&r->m->tensor_buf, &t.tensor, sizeof(t.tensor)))
        return dtpi_fail_nomem(r->err, sizeof(t));
    return DTP_OK;
}

/* ---- the whole ---- */

static dtp_status top_format(reader *r, void *at)
{
    const char *text;
    size_t bytes = 0;

    (void)at;
    const dtp_status st = read_text(r, &text, &bytes);
    if (st < 0)
        return st;
    return bytes == 8 && memcmp(text, "dtp-ckpt", 8) == 0 ? DTP_OK
                                                          : refuse(r, "not a manifest of libdtp");
}

static dtp_status top_version(reader *r, void *at)
{
    uint64_t v = 0;

    (void)at;
    const dtp_status st = read_number(r, UINT64_MAX, &v);
    if (st < 0)
        return st;
    if (v == 0 || v > DTPI_MANIFEST_VERSION)
        return dtpi_fail(r->err, DTP_ERR_VERSION,
                         "%s has version %" PRIu64 ", this library reads 1 to %d", r->path, v,
                         DTPI_MANIFEST_VERSION);
    r->m->version = (uint32_t)v;
    return DTP_OK;
}

static dtp_status top_step(reader *r, void *at)
{
    return read_number(r, UINT64_MAX, &((dtpi_manifest *)at)->step);
}

static dtp_status read_u32(reader *r, uint32_t *out)
{
    uint64_t v = 0;

    const dtp_status st = read_number(r, UINT32_MAX, &v);
    *out = (uint32_t)v;
    return st;
}

static dtp_status top_world_size(reader *r, void *at)
{
    return read_u32(r, &((dtpi_manifest *)at)->world_size);
}

static dtp_status top_attempt(reader *r, void *at)
{
    return read_u32(r, &((dtpi_manifest *)at)->attempt);
}

static dtp_status top_generation(reader *r, void *at)
{
    return read_u32(r, &((dtpi_manifest *)at)->generation);
}

static dtp_status top_chunk_bytes(reader *r, void *at)
{
    return read_u32(r, &((dtpi_manifest *)at)->chunk_bytes);
}

static dtp_status top_id(reader *r, void *at)
{
    return read_hex(r, &((dtpi_manifest *)at)->id);
}

static dtp_status top_codec(reader *r, void *at)
{
    dtpi_manifest *m = at;
    const char *text;
    size_t bytes = 0;

    const dtp_status st = read_text(r, &text, &bytes);
    if (st < 0)
        return st;
    memcpy(m->codec, text, DTPI_MIN(bytes, sizeof(m->codec) - 1));
    if (bytes >= sizeof(m->codec) || !dtpi_name_ok(m->codec, sizeof(m->codec) - 1))
        return refuse(r, "unknown codec");
    return DTP_OK;
}

/* Kept as it is written. */
static dtp_status top_meta(reader *r, void *at)
{
    dtpi_manifest *m = at;

    while (r->j.p < r->j.end && strchr(" \t\r\n", *r->j.p) && *r->j.p)
        r->j.p++;
    const char *from = r->j.p;
    if (from == r->j.end || *from != '{')
        return refuse(r, "meta is not an object");
    if (!dtpi_json_skip(&r->j))
        return bad(r);
    if (!dtpi_buf_append(&m->meta, from, (size_t)(r->j.p - from)) ||
        !dtpi_buf_append(&m->meta, "", 1))
        return dtpi_fail_nomem(r->err, 0);
    m->meta.len--;
    return DTP_OK;
}

static dtp_status top_parent(reader *r, void *at)
{
    dtpi_manifest *m = at;

    m->has_parent = true;
    return read_number(r, UINT64_MAX, &m->parent);
}

static dtp_status read_ancestor(reader *r, void *at)
{
    dtpi_manifest *m = at;

    if (m->n_lineage == DTPI_LINEAGE_MAX)
        return refuse(r, "too many steps in the lineage");
    return read_number(r, UINT64_MAX, &m->lineage[m->n_lineage++]);
}

static dtp_status top_lineage(reader *r, void *at)
{
    return read_array(r, read_ancestor, at);
}

static dtp_status top_files(reader *r, void *at)
{
    return read_array(r, read_file, at);
}

static dtp_status top_tensors(reader *r, void *at)
{
    return read_array(r, read_tensor, at);
}

static dtp_status top_checksum(reader *r, void *at)
{
    uint64_t sum;

    (void)at;
    return read_hex(r, &sum);
}

/* What the version asks of members that were read before it was known. */
static dtp_status check_version(reader *r)
{
    dtpi_manifest *m = r->m;
    dtpi_mf_file *files = (dtpi_mf_file *)(void *)m->file_buf.data;
    const bool old = m->version == 1;

    if (old ? r->has_v2_box : r->has_v1_box)
        return dtpi_fail(r->err, DTP_ERR_FORMAT, "%s: boxes are not those of version %u", r->path,
                         m->version);
    for (size_t i = 0; i < dtpi_mf_n_files(m); i++) {
        files[i].step = m->step;
        files[i].placed = old;
        if (old)
            files[i].part_at = DTPI_NO_PART;
        else if (files[i].part_at == DTPI_NO_PART || files[i].part_bytes == 0)
            return dtpi_fail(r->err, DTP_ERR_FORMAT, "%s: %.100s has no part", r->path,
                             dtpi_mf_text(m, files[i].name_at));
    }
    if (old) {
        m->has_parent = false;
        m->n_lineage = 0;
    }
    return DTP_OK;
}

static dtp_status read_top(reader *r)
{
    static const member members[] = {
        { "format", top_format, false },
        { "version", top_version, false },
        { "step", top_step, false },
        { "world_size", top_world_size, false },
        { "attempt", top_attempt, false },
        { "generation", top_generation, false },
        { "id", top_id, false },
        { "codec", top_codec, false },
        { "chunk_bytes", top_chunk_bytes, false },
        { "meta", top_meta, false },
        { "parent", top_parent, true },
        { "lineage", top_lineage, true },
        { "files", top_files, false },
        { "tensors", top_tensors, false },
        { "checksum", top_checksum, false },
    };

    const dtp_status st = read_object(r, members, DTPI_ARRAY_LEN(members), r->m);
    if (st < 0)
        return st;
    return dtpi_json_expect(&r->j, DTPI_JSON_END) ? check_version(r) : bad(r);
}

/* The last bytes hold the sum of all before them. */
static dtp_status check_sum(const char *text, size_t bytes, const char *path, dtp_error *err)
{
    static const char head[] = ",\"checksum\":\"";
    const size_t n = sizeof(head) - 1;
    char want[17] = "", got[17];

    if (bytes <= DTPI_MANIFEST_TAIL || memcmp(text + bytes - 3, "\"}\n", 3) != 0 ||
        memcmp(text + bytes - DTPI_MANIFEST_TAIL, head, n) != 0)
        return dtpi_fail(err, DTP_ERR_TRUNCATED, "%s does not end in its checksum (%zu bytes)",
                         path, bytes);
    memcpy(want, text + bytes - DTPI_MANIFEST_TAIL + n, 16);
    snprintf(got, sizeof(got), "%016" PRIx64, dtpi_sum64(text, bytes - DTPI_MANIFEST_TAIL));
    if (strcmp(want, got) != 0)
        return dtpi_fail(err, DTP_ERR_CORRUPT, "%s: checksum mismatch (stored %s, computed %s)",
                         path, want, got);
    return DTP_OK;
}

static_assert(sizeof(",\"checksum\":\"0123456789abcdef\"}\n") - 1 == DTPI_MANIFEST_TAIL,
              "the tail");

dtp_status dtpi_manifest_read(const dtp_allocator *a, const char *text, size_t bytes,
                              const char *path, dtpi_manifest *m_out, dtp_error *err)
{
    dtpi_manifest m;
    reader r = { .j = dtpi_json_init(text, bytes), .m = &m, .path = path, .err = err };

    dtp_status st = check_sum(text, bytes, path, err);
    if (st < 0)
        return st;
    r.scratch = dtpi_buf_init(a);
    st = dtpi_manifest_init(&m, a, err);
    if (st >= 0)
        st = read_top(&r);
    dtpi_buf_free(&r.scratch);
    if (st >= 0)
        st = dtpi_manifest_check(&m, path, err);
    if (st < 0) {
        dtpi_manifest_free(&m);
        return st;
    }
    *m_out = m;
    return DTP_OK;
}

dtp_status dtpi_manifest_check_meta(const char *json, dtp_error *err)
{
    dtpi_json j = dtpi_json_init(json, strlen(json));

    if (!dtpi_json_expect(&j, DTPI_JSON_OBJECT))
        return dtpi_json_fail(&j, "meta_json", err);
    while (j.depth > 0 && dtpi_json_next(&j) != DTPI_JSON_ERROR)
        /* The manifest around it is a level more. */
        if (j.depth == DTPI_JSON_MAX_DEPTH)
            dtpi_json_refuse(&j, "nested too deeply");
    return dtpi_json_expect(&j, DTPI_JSON_END) ? DTP_OK : dtpi_json_fail(&j, "meta_json", err);
}
