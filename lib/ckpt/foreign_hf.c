/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign_hf.c - safetensors of others: one file, several with an index that says which tensor is where
 * (Hugging Face), or shards that say where their parts begin (torch.distributed.checkpoint).
 *
 * The index: {"metadata":{"total_size":N},"weight_map":{"NAME":"FILE",...}}. A shard:
 * __metadata__.DCP_SHARDING_INFO is the text of {"NAME":{"saved_offsets":[...]},...}.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/foreign.h"
#include "ckpt/json.h"
#include "ckpt/st.h"

enum { INDEX_MAX = 256 << 20 };
static const char sharding_key[] = "DCP_SHARDING_INFO";

/* What the index says; empty without one. */
typedef struct entry {
    uint32_t name_at, file_at;  /* in `text`, terminated */
    bool seen;
} entry;

typedef struct hf {
    dtpi_foreign *f;
    dtpi_buf entries, text;     /* of the index, by name */
    dtpi_buf scratch;
    dtpi_buf offsets;           /* int64_t: of the file at hand, a slot of 8 per tensor */
} hf;

static entry *entry_at(const hf *h, size_t i)
{
    return (entry *)(void *)h->entries.data + i;
}

static const char *text_at(const hf *h, uint32_t at)
{
    return (const char *)h->text.data + at;
}

/* ---- the parts of one file ---- */

static dtp_status read_header(hf *h, const char *name, uint32_t *file_out, uint64_t *data_at_out,
                              dtpi_st *st_out, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(h->f->files->a);
    uint64_t bytes = 0, n = 0;
    uint8_t prefix[8] = { 0 };

    dtp_status st = dtpi_foreign_file(h->f, name, file_out, &bytes, err);
    if (st >= 0 && bytes >= sizeof(prefix))
        st = dtpi_foreign_read(h->f, 0, prefix, sizeof(prefix), err);
    if (st >= 0)
        st = dtpi_st_header_bytes(prefix, bytes, name, &n, err);
    if (st < 0)
        return st;
    uint8_t *p = dtpi_buf_reserve(&text, n + 1);
    if (!p)
        return dtpi_fail_nomem(err, n);
    st = dtpi_foreign_read(h->f, 8, p, n, err);
    if (st >= 0)
        st = dtpi_st_read(h->f->files->a, (const char *)p, n, bytes - 8 - n, name, st_out, err);
    *data_at_out = 8 + n;
    return st;
}

/* One tensor's "saved_offsets"; `slot` is NULL where the file has no such tensor. */
static bool read_offsets(dtpi_json *j, uint32_t n_dims, int64_t *slot)
{
    uint64_t v = 0;
    uint32_t n = 0;

    if (!dtpi_json_expect(j, DTPI_JSON_ARRAY))
        return false;
    for (;;) {
        dtpi_json ahead = *j;
        if (dtpi_json_next(&ahead) == DTPI_JSON_ARRAY_END) {
            *j = ahead;
            return !slot || n == n_dims || dtpi_json_refuse(j, "offsets of other dimensions");
        }
        if (!dtpi_json_u64(j, &v) || v > INT64_MAX || n >= DTP_CKPT_MAX_DIMS)
            return dtpi_json_refuse(j, "an offset is impossible");
        if (slot)
            slot[n] = (int64_t)v;
        n++;
    }
}

static bool read_sharding(hf *h, dtpi_json *j, const dtpi_st *st)
{
    if (!dtpi_json_expect(j, DTPI_JSON_OBJECT))
        return false;
    for (;;) {
        size_t bytes = 0;
        dtpi_json_token t = dtpi_json_next(j);
        if (t == DTPI_JSON_OBJECT_END)
            return dtpi_json_expect(j, DTPI_JSON_END);
        if (t != DTPI_JSON_KEY)
            return false;
        const char *name = dtpi_json_plain(j, &h->scratch, &bytes);
        const dtpi_st_entry *e = name ? dtpi_st_find(st, name, bytes) : NULL;
        int64_t *slot = (int64_t *)(void *)h->offsets.data;
        slot = e ? slot + DTP_CKPT_MAX_DIMS * (size_t)(e - dtpi_st_get(st, 0)) : NULL;
        if (!dtpi_json_expect(j, DTPI_JSON_OBJECT))
            return false;
        while ((t = dtpi_json_next(j)) == DTPI_JSON_KEY) {
            const char *key = dtpi_json_plain(j, &h->scratch, &bytes);
            const bool known = key && bytes == 13 && memcmp(key, "saved_offsets", 13) == 0;
            if (known ? !read_offsets(j, e ? e->n_dims : 0, slot) : !dtpi_json_skip(j))
                return false;
        }
        if (t != DTPI_JSON_OBJECT_END)
            return false;
    }
}

/* Zeros, and what the file says of where its parts begin. */
static dtp_status fill_offsets(hf *h, const dtpi_st *st, const char *name, dtp_error *err)
{
    const size_t bytes = (st->n + 1) * DTP_CKPT_MAX_DIMS * sizeof(int64_t);
    const char *text = dtpi_st_meta(st, sharding_key);
    char what[300];

    dtpi_buf_reset(&h->offsets);
    uint8_t *p = dtpi_buf_reserve(&h->offsets, bytes);
    if (!p)
        return dtpi_fail_nomem(err, bytes);
    memset(p, 0, bytes);
    if (!text)
        return DTP_OK;
    dtpi_json j = dtpi_json_init(text, strlen(text));
    const bool good = read_sharding(h, &j, st);
    if (h->scratch.failed)
        return dtpi_fail_nomem(err, strlen(text));
    if (good)
        return DTP_OK;
    snprintf(what, sizeof(what), "%.200s: %s", name, sharding_key);
    return dtpi_json_fail(&j, what, err);
}

/* Whether the index wants this tensor from this file. */
static bool wanted(hf *h, const char *tensor, const char *file)
{
    size_t low = 0, high = h->entries.len / sizeof(entry);

    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        entry *e = entry_at(h, mid);
        const int c = strcmp(text_at(h, e->name_at), tensor);
        if (c == 0) {
            const bool here = strcmp(text_at(h, e->file_at), file) == 0;
            e->seen |= here;
            return here;
        }
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return true;
}

static dtp_status add_entry(hf *h, const dtpi_st *st, size_t i, uint32_t file, uint64_t data_at,
                            dtp_error *err)
{
    const dtpi_st_entry *e = dtpi_st_get(st, i);
    dtpi_foreign_box box = {
        .file = file,
        .begin = data_at + e->begin,
        .offset = (const int64_t *)(const void *)h->offsets.data + i * DTP_CKPT_MAX_DIMS,
        .extent = (const int64_t *)(const void *)dtpi_st_dims(st, e),
        .n_dims = e->n_dims,
        .dtype = dtpi_st_entry_type(e)->dtype,
    };

    const dtp_status s =
        dtpi_foreign_name(h->f, dtpi_st_name(st, e), e->name_bytes, &box.name_at, err);
    return s < 0 ? s : dtpi_foreign_add(h->f, &box, err);
}

static dtp_status add_file(hf *h, const char *name, dtp_error *err)
{
    uint64_t data_at = 0;
    uint32_t file = 0;
    dtpi_st st;

    dtp_status s = read_header(h, name, &file, &data_at, &st, err);
    if (s < 0)
        return s;
    s = fill_offsets(h, &st, name, err);
    for (size_t i = 0; i < st.n && s >= 0; i++)
        if (wanted(h, dtpi_st_name(&st, dtpi_st_get(&st, i)), name))
            s = add_entry(h, &st, i, file, data_at, err);
    const char *format = dtpi_st_meta(&st, "format");
    if (s >= 0 && format && file == 0) {
        dtpi_foreign_meta(h->f, "format");
        dtpi_json_put(&h->f->meta, format, strlen(format));
    }
    dtpi_st_free(&st);
    return s;
}

static void hf_init(hf *h, dtpi_foreign *f)
{
    const dtp_allocator *a = f->files->a;

    *h = (hf){ .f = f,
               .entries = dtpi_buf_init(a),
               .text = dtpi_buf_init(a),
               .scratch = dtpi_buf_init(a),
               .offsets = dtpi_buf_init(a) };
}

static void hf_free(hf *h)
{
    dtpi_buf_free(&h->entries);
    dtpi_buf_free(&h->text);
    dtpi_buf_free(&h->scratch);
    dtpi_buf_free(&h->offsets);
}

/* ---- several files without an index ---- */

/* A name "STEM-00002-of-00004.safetensors"; the rank in front of a shard's name is no part of the stem. */
typedef struct counted {
    const char *stem;
    size_t stem_bytes;
    uint32_t k, of;
} counted;

static bool parse_counted(const char *name, counted *out)
{
    uint32_t rank = 0;
    int skip = 0, end = 0;

    if (sscanf(name, "shard-%9u-%n", &rank, &skip) == 1 && skip)
        name += skip;
    const char *of = NULL;
    for (const char *p = name; (p = strstr(p, "-of-")); p++)
        of = p;     /* the last: a stem may be "best-of-n" */
    const char *k = of;
    while (k && k > name && k[-1] >= '0' && k[-1] <= '9')
        k--;
    if (!of || k == of || k == name ||
        sscanf(k, "%9u-of-%9u.safetensors%n", &out->k, &out->of, &end) != 2 || !end || k[end])
        return false;
    out->stem = name;
    out->stem_bytes = (size_t)(k - name);
    return true;
}

static int by_series(const void *x, const void *y)
{
    const counted *a = x, *b = y;

    if (a->stem_bytes != b->stem_bytes)
        return a->stem_bytes < b->stem_bytes ? -1 : 1;
    const int c = memcmp(a->stem, b->stem, a->stem_bytes);
    if (c || a->of != b->of)
        return c ? c : a->of < b->of ? -1 : 1;
    return a->k < b->k ? -1 : a->k > b->k;
}

static bool same_series(const counted *a, const counted *b)
{
    return a->stem_bytes == b->stem_bytes && a->of == b->of &&
           memcmp(a->stem, b->stem, a->stem_bytes) == 0;
}

/* Of files that count themselves, from 1 or from 0, every number is there. */
static dtp_status check_series(const counted *c, size_t n, dtp_error *err)
{
    uint32_t next = 0;

    for (size_t i = 0, first = 0; i < n; i++) {
        const bool last = i + 1 == n || !same_series(&c[i], &c[i + 1]);
        const uint32_t end = c[i].of + (c[first].k != 0);
        if (i == first)
            next = DTPI_MIN(c[i].k, 1u);
        const bool gap = c[i].k > next;
        next = gap ? next : c[i].k + 1;
        if (gap || (last && next < end))
            return dtpi_fail(err, DTP_ERR_NOT_FOUND, "file %u of %u of %.*s... is missing", next,
                             c[i].of, (int)DTPI_MIN(c[i].stem_bytes, (size_t)100), c[i].stem);
        first = last ? i + 1 : first;
    }
    return DTP_OK;
}

static dtp_status check_names(const dtp_allocator *a, const char *names, size_t n, dtp_error *err)
{
    counted *c = dtpi_alloc_array(a, n + 1, sizeof(*c));
    size_t k = 0;

    if (!c)
        return dtpi_fail_nomem(err, n * sizeof(*c));
    for (size_t i = 0; i < n; i++, names += strlen(names) + 1)
        k += parse_counted(names, &c[k]);
    if (k > 1)
        qsort(c, k, sizeof(*c), by_series);
    const dtp_status st = check_series(c, k, err);
    dtpi_free(a, c, (n + 1) * sizeof(*c));
    return st;
}

dtp_status dtpi_foreign_hf_files(dtpi_foreign *f, const char *names, size_t n, bool is_folder,
                                 dtp_error *err)
{
    hf h;

    dtp_status st = is_folder ? check_names(f->files->a, names, n, err) : DTP_OK;
    hf_init(&h, f);
    for (size_t i = 0; i < n && st >= 0; i++, names += strlen(names) + 1)
        st = add_file(&h, names, err);
    hf_free(&h);
    return st;
}

/* ---- the index ---- */

static int by_name(const void *x, const void *y, void *user)
{
    const entry *a = x, *b = y;

    return strcmp(text_at(user, a->name_at), text_at(user, b->name_at));
}

static int by_file(const void *x, const void *y, void *user)
{
    const hf *h = user;

    return strcmp(text_at(h, entry_at(h, *(const uint32_t *)x)->file_at),
                  text_at(h, entry_at(h, *(const uint32_t *)y)->file_at));
}

static bool keep(hf *h, const dtpi_json *j, uint32_t *at_out)
{
    size_t bytes = 0;
    const char *text = dtpi_json_plain(j, &h->scratch, &bytes);

    if (!text || memchr(text, '\0', bytes) || h->text.len + bytes >= UINT32_MAX)
        return false;
    *at_out = (uint32_t)h->text.len;
    return dtpi_buf_append(&h->text, text, bytes) && dtpi_buf_append(&h->text, "", 1);
}

static bool read_map(hf *h, dtpi_json *j)
{
    dtpi_json_token t;

    if (!dtpi_json_expect(j, DTPI_JSON_OBJECT))
        return false;
    while ((t = dtpi_json_next(j)) == DTPI_JSON_KEY) {
        entry e = { 0 };
        if (!keep(h, j, &e.name_at))
            return dtpi_json_refuse(j, "a name cannot be kept");
        if (!dtpi_json_expect(j, DTPI_JSON_STRING))
            return false;
        if (!keep(h, j, &e.file_at) || !dtpi_buf_append(&h->entries, &e, sizeof(e)))
            return dtpi_json_refuse(j, "a name cannot be kept");
    }
    return t == DTPI_JSON_OBJECT_END;
}

static bool read_index(hf *h, dtpi_json *j)
{
    bool found = false;
    dtpi_json_token t;

    if (!dtpi_json_expect(j, DTPI_JSON_OBJECT))
        return false;
    while ((t = dtpi_json_next(j)) == DTPI_JSON_KEY) {
        size_t bytes = 0;
        const char *key = dtpi_json_plain(j, &h->scratch, &bytes);
        const bool map = key && bytes == 10 && memcmp(key, "weight_map", 10) == 0;
        if (map && found)
            return dtpi_json_refuse(j, "weight_map is there twice");
        found |= map;
        if (map ? !read_map(h, j) : !dtpi_json_skip(j))
            return false;
    }
    if (t != DTPI_JSON_OBJECT_END || !dtpi_json_expect(j, DTPI_JSON_END))
        return false;
    return found || dtpi_json_refuse(j, "it has no weight_map");
}

/* Every file that the index names, once, in order of names. */
static dtp_status add_indexed(hf *h, dtp_error *err)
{
    const dtp_allocator *a = h->f->files->a;
    const size_t n = h->entries.len / sizeof(entry);
    uint32_t *order = dtpi_alloc_array(a, n + 1, sizeof(*order));
    dtp_status st = DTP_OK;

    if (!order)
        return dtpi_fail_nomem(err, n * sizeof(*order));
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    if (n > 1)
        qsort_r(order, n, sizeof(*order), by_file, h);
    for (size_t i = 0; i < n && st >= 0; i++)
        if (i == 0 || by_file(&order[i - 1], &order[i], h) != 0)
            st = add_file(h, text_at(h, entry_at(h, order[i])->file_at), err);
    dtpi_free(a, order, (n + 1) * sizeof(*order));
    return st;
}

static dtp_status check_index(const hf *h, const char *index, dtp_error *err)
{
    const size_t n = h->entries.len / sizeof(entry);

    for (size_t i = 0; i < n; i++) {
        const entry *e = entry_at(h, i);
        if (i > 0 && strcmp(text_at(h, e[-1].name_at), text_at(h, e->name_at)) == 0)
            return dtpi_fail(err, DTP_ERR_FORMAT, "%s lists tensor %.100s twice", index,
                             text_at(h, e->name_at));
    }
    return DTP_OK;
}

static dtp_status check_seen(const hf *h, dtp_error *err)
{
    for (size_t i = 0; i < h->entries.len / sizeof(entry); i++) {
        const entry *e = entry_at(h, i);
        if (!e->seen)
            return dtpi_fail(err, DTP_ERR_NOT_FOUND, "tensor %.80s is not in %.80s, where the index has it",
                             text_at(h, e->name_at), text_at(h, e->file_at));
    }
    return DTP_OK;
}

dtp_status dtpi_foreign_hf_index(dtpi_foreign *f, const char *index, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(f->files->a);
    char path[DTPI_PATH_MAX];
    hf h;

    hf_init(&h, f);
    dtp_status st = dtpi_path_join(path, f->root, index, err);
    if (st >= 0)
        st = dtpi_files_read_all(f->files, path, INDEX_MAX, &text, err);
    if (st >= 0) {
        dtpi_json j = dtpi_json_init((const char *)text.data, text.len);
        if (!read_index(&h, &j))
            st = h.scratch.failed || h.text.failed || h.entries.failed
                     ? dtpi_fail_nomem(err, text.len)
                     : dtpi_json_fail(&j, path, err);
    }
    if (st >= 0 && h.entries.len)
        qsort_r(h.entries.data, h.entries.len / sizeof(entry), sizeof(entry), by_name, &h);
    if (st >= 0)
        st = check_index(&h, index, err);
    if (st >= 0)
        st = add_indexed(&h, err);
    if (st >= 0)
        st = check_seen(&h, err);
    hf_free(&h);
    return st;
}
