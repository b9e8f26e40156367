/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign_torch.c - a file of torch.save that holds a plain state dict: dicts and lists in any nesting, with
 * tensors, numbers and texts at their ends. Names are keys and indexes joined with dots; what is no tensor
 * goes to the metadata.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "ckpt/json.h"
#include "ckpt/torch_zip.h"

enum { MAX_DEPTH = 64 };

typedef struct walker {
    dtpi_torch_zip *z;
    dtpi_buf name;              /* of the value at hand, joined */
    dtpi_buf values;            /* JSON members: numbers and texts */
    dtpi_buf left_out;          /* JSON texts: names of what is neither tensor nor number nor text */
    uint64_t cost, most;        /* a graph may share nodes without end */
    dtp_error *err;
} walker;

static dtp_status walk(walker *w, const dtpi_pk_node *n, uint32_t depth);

static dtp_status no_memory(const walker *w)
{
    return dtpi_fail_nomem(w->err, 0);
}

/* The value under `key` (n bytes) of the value at hand. */
static dtp_status walk_kid(walker *w, const char *key, size_t bytes, const dtpi_pk_node *kid,
                           uint32_t depth)
{
    const size_t before = w->name.len;

    if (!dtpi_utf8_ok(key, bytes))
        return dtpi_fail(w->err, DTP_ERR_FORMAT, "%s: a key of %.80s is no UTF-8 without NUL",
                         w->z->path, before ? dtpi_buf_text(&w->name) : "the dict");
    if (before)
        dtpi_buf_append(&w->name, ".", 1);
    dtpi_buf_append(&w->name, key, bytes);
    if (w->name.failed)
        return no_memory(w);
    if (w->name.len > 1023)
        return dtpi_fail(w->err, DTP_ERR_LIMIT, "%s: a name is longer than 1023 bytes", w->z->path);
    w->cost += w->name.len;
    const dtp_status st = walk(w, kid, depth + 1);
    w->name.len = before;
    return st;
}

static dtp_status walk_dict(walker *w, const dtpi_pk_node *n, uint32_t depth)
{
    const dtpi_pickle *p = &w->z->pickle;
    dtp_status st = DTP_OK;
    char number[32];

    for (uint32_t i = 0; i + 1 < n->n && st >= 0; i += 2) {
        const dtpi_pk_node *key = dtpi_pk_kid(p, n, i), *value = dtpi_pk_kid(p, n, i + 1);
        const int digits = snprintf(number, sizeof(number), "%" PRId64, key->i);
        if (key->kind == DTPI_PK_INT)
            st = walk_kid(w, number, (size_t)digits, value, depth);
        else if (key->kind == DTPI_PK_TEXT)
            st = walk_kid(w, dtpi_pk_text(p, key), key->n, value, depth);
        else
            st = dtpi_fail(w->err, DTP_ERR_UNSUPPORTED, "%s: a key of %.80s is neither text nor number",
                           w->z->path, w->name.len ? dtpi_buf_text(&w->name) : "the dict");
    }
    return st;
}

static dtp_status walk_list(walker *w, const dtpi_pk_node *n, uint32_t depth)
{
    dtp_status st = DTP_OK;
    char number[16];

    for (uint32_t i = 0; i < n->n && st >= 0; i++) {
        const int digits = snprintf(number, sizeof(number), "%u", i);
        st = walk_kid(w, number, (size_t)digits, dtpi_pk_kid(&w->z->pickle, n, i), depth);
    }
    return st;
}

/* The name at hand; a value that is the whole file has none. */
static const char *name_of(walker *w, size_t *bytes_out)
{
    const char *name = w->name.len ? dtpi_buf_text(&w->name) : "tensor";

    *bytes_out = name ? strlen(name) : 0;
    return name;
}

static dtp_status add_tensor(walker *w, const dtpi_pk_node *n)
{
    dtpi_torch_place place = { 0 };
    size_t bytes = 0;
    const char *name = name_of(w, &bytes);

    if (!name)
        return no_memory(w);
    const dtp_status st = dtpi_foreign_name(w->z->f, name, bytes, &place.name_at, w->err);
    return st < 0 ? st : dtpi_torch_add(w->z, n, &place, w->err);
}

/* As JSON has it: the point that printf writes is that of the program's locale. */
static void put_float(dtpi_buf *out, double v)
{
    char text[48];
    bool pointed = false;

    snprintf(text, sizeof(text), "%.17g", v);
    for (const char *p = text; *p; p++) {
        const bool plain = strchr("0123456789+-e", *p) != NULL;
        if (plain || !pointed)
            dtpi_buf_append(out, plain ? p : ".", 1);
        pointed |= !plain;
    }
}

static void put_scalar(dtpi_buf *out, const dtpi_pickle *p, const dtpi_pk_node *n)
{
    if (n->kind == DTPI_PK_TEXT)
        dtpi_json_put(out, dtpi_pk_text(p, n), n->n);
    else if (n->kind == DTPI_PK_NONE)
        dtpi_buf_printf(out, "null");
    else if (n->kind == DTPI_PK_BOOL)
        dtpi_buf_printf(out, n->i ? "true" : "false");
    else if (n->kind == DTPI_PK_INT)
        dtpi_buf_printf(out, "%" PRId64, n->i);
    else if (isfinite(n->f))
        put_float(out, n->f);
    else
        dtpi_buf_printf(out, "\"%f\"", n->f);
}

static dtp_status add_value(walker *w, const dtpi_pk_node *n)
{
    const dtpi_pickle *p = &w->z->pickle;
    const bool plain = n->kind == DTPI_PK_NONE || n->kind == DTPI_PK_BOOL ||
                       n->kind == DTPI_PK_INT || n->kind == DTPI_PK_FLOAT ||
                       (n->kind == DTPI_PK_TEXT && dtpi_utf8_ok(dtpi_pk_text(p, n), n->n));
    dtpi_buf *out = plain ? &w->values : &w->left_out;
    size_t bytes = 0;
    const char *name = name_of(w, &bytes);

    if (!name)
        return no_memory(w);
    dtpi_buf_append(out, ",", out->len ? 1 : 0);
    dtpi_json_put(out, name, bytes);
    if (plain) {
        dtpi_buf_append(out, ":", 1);
        put_scalar(out, p, n);
    }
    return out->failed ? no_memory(w) : DTP_OK;
}

static dtp_status walk(walker *w, const dtpi_pk_node *n, uint32_t depth)
{
    const dtpi_pickle *p = &w->z->pickle;

    if (depth > MAX_DEPTH || ++w->cost > w->most)
        return dtpi_fail(w->err, DTP_ERR_LIMIT, "%s: its values are nested without end",
                         w->z->path);
    if (dtpi_torch_is_tensor(n))
        return add_tensor(w, n);
    if (n->kind == DTPI_PK_DICT)
        return walk_dict(w, n, depth);
    if (n->kind == DTPI_PK_LIST || n->kind == DTPI_PK_TUPLE)
        return walk_list(w, n, depth);
    if (dtpi_pk_is_object(n, DTPI_PK_SIZE))
        return walk(w, dtpi_pk_kid(p, n, 0), depth + 1);
    return add_value(w, n);
}

static void put_found(dtpi_foreign *f, const char *key, const dtpi_buf *b, const char *around)
{
    if (b->len == 0)
        return;
    dtpi_foreign_meta(f, key);
    dtpi_buf_append(&f->meta, around, 1);
    dtpi_buf_append(&f->meta, b->data, b->len);
    dtpi_buf_append(&f->meta, around + 1, 1);
}

static dtp_status walk_all(dtpi_torch_zip *z, dtp_error *err)
{
    const dtp_allocator *a = z->f->files->a;
    walker w = {
        .z = z,
        .name = dtpi_buf_init(a),
        .values = dtpi_buf_init(a),
        .left_out = dtpi_buf_init(a),
        .most = (64u << 10) + 64 * (uint64_t)z->pickle.bytes,
        .err = err,
    };

    const dtp_status st = walk(&w, dtpi_pk_at(&z->pickle, z->pickle.root), 0);
    if (st >= 0) {
        put_found(z->f, "values", &w.values, "{}");
        put_found(z->f, "left_out", &w.left_out, "[]");
    }
    dtpi_buf_free(&w.name);
    dtpi_buf_free(&w.values);
    dtpi_buf_free(&w.left_out);
    return st;
}

dtp_status dtpi_foreign_torch(dtpi_foreign *f, const char *name, dtp_error *err)
{
    dtpi_torch_zip z;
    uint64_t bytes = 0;
    uint32_t file = 0;

    dtp_status st = dtpi_foreign_file(f, name, &file, &bytes, err);
    if (st < 0)
        return st;
    st = dtpi_torch_zip_open(&z, f, file, 0, bytes, name, err);
    if (st >= 0)
        st = walk_all(&z, err);
    dtpi_torch_zip_free(&z);
    return st;
}
