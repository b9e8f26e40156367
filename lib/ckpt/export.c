/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.c - tensor by tensor, slab by slab through one buffer: memory does not grow with the model.
 *
 * Tensors are dealt to files in order of their names, a file is written under another name, synced and
 * renamed, and the index comes last: who finds it finds everything. Names are those that transformers
 * looks for (model.safetensors; model-00001-of-00003.safetensors with model.safetensors.index.json).
 */
#include "ckpt/export.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/box.h"
#include "ckpt/json.h"
#include "ckpt/slab.h"
#include "ckpt/st.h"

#define SHARD_DEFAULT 5000000000ull     /* as huggingface_hub has it */
enum { SLAB_BYTES = 16 << 20, NAME_ROOM = 64 };
static const char index_name[] = "model.safetensors.index.json";
static const char temp_name[] = ".model.safetensors.tmp";

typedef struct exporter {
    dtpi_load *l;
    const dtp_ckpt_export_opts *opts;
    const char *dir;
    uint32_t *order;            /* tensors in the order of files, then of their places there */
    uint32_t *shard;            /* of each tensor */
    uint32_t n, n_shards;
    uint8_t *slab;
    uint64_t slab_bytes;        /* of the largest */
    uint64_t done, total;
    dtp_error *err;
} exporter;

static const dtpi_mf_tensor *tensor_at(const exporter *x, uint32_t i)
{
    return dtpi_mf_tensor_at(&x->l->m, i);
}

static const int64_t *shape_of(const exporter *x, const dtpi_mf_tensor *t)
{
    return dtpi_mf_dims(&x->l->m, t->dims_at);
}

static uint64_t bytes_of(const exporter *x, uint32_t i)
{
    const dtpi_mf_tensor *t = tensor_at(x, i);
    uint64_t bytes = 0;

    dtpi_box_bytes(t->n_dims, shape_of(x, t), t->dtype, &bytes);
    return bytes;
}

static void shard_name(const exporter *x, uint32_t shard, char out[NAME_ROOM])
{
    if (x->n_shards == 1)
        snprintf(out, NAME_ROOM, "model.safetensors");
    else
        snprintf(out, NAME_ROOM, "model-%05u-of-%05u.safetensors", shard + 1, x->n_shards);
}

/* ---- what goes where ---- */

static int by_place(const void *a, const void *b, void *user)
{
    const exporter *x = user;
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const uint32_t bits_i = dtp_dtype_bits(tensor_at(x, i)->dtype);
    const uint32_t bits_k = dtp_dtype_bits(tensor_at(x, k)->dtype);

    if (x->shard[i] != x->shard[k])
        return x->shard[i] < x->shard[k] ? -1 : 1;
    /* Wide types first keep every tensor aligned to its element. */
    if (bits_i != bits_k)
        return bits_i > bits_k ? -1 : 1;
    return i < k ? -1 : i > k;
}

static uint64_t largest_slab(const exporter *x, uint32_t i)
{
    const dtpi_mf_tensor *t = tensor_at(x, i);
    const dtp_ckpt_tensor whole = {
        .size = sizeof(whole), .dtype = t->dtype, .n_dims = t->n_dims, .shape = shape_of(x, t)
    };
    dtpi_slab s;

    dtpi_slab_begin(&s, &whole, SLAB_BYTES);
    return s.bytes;
}

/* Tensors are in order of their names already. */
static dtp_status deal(exporter *x)
{
    const uint64_t most = x->opts->max_shard_bytes ? x->opts->max_shard_bytes : SHARD_DEFAULT;
    uint64_t in_shard = 0;

    x->order = dtpi_alloc_array(x->l->a, (size_t)x->n + 1, sizeof(*x->order));
    x->shard = dtpi_alloc_array(x->l->a, (size_t)x->n + 1, sizeof(*x->shard));
    if (!x->order || !x->shard)
        return dtpi_fail_nomem(x->err, x->n * sizeof(*x->order));
    x->n_shards = 1;
    for (uint32_t i = 0; i < x->n; i++) {
        const uint64_t bytes = bytes_of(x, i);
        if (in_shard > 0 && (bytes > most || in_shard > most - bytes)) {
            x->n_shards++;
            in_shard = 0;
        }
        in_shard += bytes;
        x->total += bytes;
        x->shard[i] = x->n_shards - 1;
        x->order[i] = i;
        x->slab_bytes = DTPI_MAX(x->slab_bytes, largest_slab(x, i));
    }
    if (x->n > 1)
        qsort_r(x->order, x->n, sizeof(*x->order), by_place, x);
    x->slab = dtpi_alloc_aligned(x->l->a, x->slab_bytes + 1, 4096);
    return x->slab ? DTP_OK : dtpi_fail_nomem(x->err, x->slab_bytes);
}

static dtp_status check_free(const exporter *x)
{
    char path[DTPI_PATH_MAX], name[NAME_ROOM];
    uint64_t bytes = 0;

    for (uint32_t s = 0; s <= x->n_shards; s++) {
        shard_name(x, s, name);
        const dtp_status st =
            dtpi_path_join(path, x->dir, s == x->n_shards ? index_name : name, x->err);
        if (st < 0)
            return st;
        if (x->l->files->ops->size(x->l->files, path, &bytes, NULL) >= 0)
            return dtpi_fail(x->err, DTP_ERR_EXISTS, "%s is there already", path);
    }
    return DTP_OK;
}

/* ---- one tensor ---- */

static void advance(exporter *x, uint64_t bytes)
{
    x->done += bytes;
    if (x->opts->progress)
        x->opts->progress(x->opts->user, x->done, x->total);
}

static dtp_status copy_tensor(exporter *x, const dtpi_mf_tensor *t, dtpi_file *file, uint64_t *at)
{
    dtpi_slab s;
    dtp_ckpt_tensor want = {
        .size = sizeof(want),
        .name = dtpi_mf_text(&x->l->m, t->name_at),
        .dtype = t->dtype,
        .n_dims = t->n_dims,
        .shape = shape_of(x, t),
        .offset = s.offset,
        .extent = s.extent,
        .data = x->slab,
    };

    for (dtpi_slab_begin(&s, &want, SLAB_BYTES); !s.done; dtpi_slab_next(&s)) {
        dtp_status st = dtpi_load_read(x->l, &want, x->err);
        if (st >= 0)
            st = x->l->files->ops->write(file, *at, x->slab, s.bytes, x->err);
        if (st < 0)
            return st;
        *at += s.bytes;
        advance(x, s.bytes);
    }
    return DTP_OK;
}

/* ---- one file ---- */

static dtp_status write_header(exporter *x, uint32_t first, uint32_t end, dtpi_buf *out)
{
    uint64_t at = 0;

    dtpi_st_write_begin(out);
    dtpi_st_write_meta(out, "format", "pt", 2);
    for (uint32_t i = first; i < end; i++) {
        const dtpi_mf_tensor *t = tensor_at(x, x->order[i]);
        const uint64_t bytes = bytes_of(x, x->order[i]);
        dtpi_st_write_tensor(out, dtpi_mf_text(&x->l->m, t->name_at), t->name_bytes,
                             dtpi_st_type_of(t->dtype)->name, t->n_dims, shape_of(x, t), at,
                             at + bytes);
        at += bytes;
    }
    return dtpi_st_write_end(out, 0, x->err);
}

static dtp_status fill_file(exporter *x, uint32_t first, uint32_t end, const dtpi_buf *header,
                            dtpi_file *file)
{
    uint64_t at = header->len;

    dtp_status st = x->l->files->ops->write(file, 0, header->data, header->len, x->err);
    for (uint32_t i = first; i < end && st >= 0; i++)
        st = copy_tensor(x, tensor_at(x, x->order[i]), file, &at);
    if (st >= 0 && !x->opts->no_sync)
        st = x->l->files->ops->sync(file, x->err);
    return st;
}

/* Tensors order[first, end) into the file `path`, by way of `temp`. */
static dtp_status write_file(exporter *x, uint32_t first, uint32_t end, const char *temp,
                             const char *path)
{
    DTPI_AUTO_BUF dtpi_buf header = dtpi_buf_init(x->l->a);
    const struct dtpi_files_ops *ops = x->l->files->ops;
    DTPI_AUTO(file) dtpi_file *file = NULL;
    uint64_t bytes = 0;

    dtp_status st = write_header(x, first, end, &header);
    if (st < 0)
        return st;
    for (uint32_t i = first; i < end; i++)
        bytes += bytes_of(x, x->order[i]);
    /* Not ours to remove: every rank may have been told to export. */
    st = ops->create(x->l->files, temp, header.len + bytes, &file, x->err);
    if (st == DTP_ERR_EXISTS)
        return dtpi_fail(x->err, st, "%s is there: of another export, or of one that was killed", temp);
    if (st < 0)
        return st;
    st = fill_file(x, first, end, &header, file);
    if (st >= 0)
        st = ops->close_file(DTPI_TAKE(file), x->err);
    if (st >= 0)
        st = ops->publish(x->l->files, temp, path, false, x->err);
    if (st < 0)
        ops->remove(x->l->files, temp, NULL);
    return st;
}

static dtp_status write_index(exporter *x)
{
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(x->l->a);
    char temp[DTPI_PATH_MAX], path[DTPI_PATH_MAX], name[NAME_ROOM];

    dtpi_buf_printf(&text, "{\"metadata\":{\"total_size\":%" PRIu64 "},\"weight_map\":{\n", x->total);
    for (uint32_t i = 0; i < x->n; i++) {
        const dtpi_mf_tensor *t = tensor_at(x, i);
        shard_name(x, x->shard[i], name);
        dtpi_json_put(&text, dtpi_mf_text(&x->l->m, t->name_at), t->name_bytes);
        dtpi_buf_printf(&text, ":\"%s\"%s\n", name, i + 1 < x->n ? "," : "");
    }
    dtpi_buf_printf(&text, "}}\n");
    if (text.failed)
        return dtpi_fail_nomem(x->err, text.len);
    dtp_status st = dtpi_path_join(temp, x->dir, temp_name, x->err);
    if (st >= 0)
        st = dtpi_path_join(path, x->dir, index_name, x->err);
    return st < 0 ? st : dtpi_files_publish_all(x->l->files, x->dir, temp, path, text.data,
                                                text.len, x->opts->no_sync, x->err);
}

/* Takes back the first `n` files, and first of all what would make a model of them, if that is ours. */
static void remove_files(const exporter *x, uint32_t n, bool has_index)
{
    char path[DTPI_PATH_MAX], name[NAME_ROOM];

    if (has_index && dtpi_path_join(path, x->dir, index_name, NULL) >= 0)
        x->l->files->ops->remove(x->l->files, path, NULL);
    for (uint32_t s = 0; s < n; s++) {
        shard_name(x, s, name);
        if (dtpi_path_join(path, x->dir, name, NULL) >= 0)
            x->l->files->ops->remove(x->l->files, path, NULL);
    }
}

static dtp_status write_files(exporter *x)
{
    char temp[DTPI_PATH_MAX], path[DTPI_PATH_MAX], name[NAME_ROOM];
    uint32_t first = 0, n_written = 0;

    dtp_status st = dtpi_path_join(temp, x->dir, temp_name, x->err);
    for (uint32_t s = 0; s < x->n_shards && st >= 0; s++) {
        uint32_t end = first;
        while (end < x->n && x->shard[x->order[end]] == s)
            end++;
        shard_name(x, s, name);
        st = dtpi_path_join(path, x->dir, name, x->err);
        if (st >= 0)
            st = write_file(x, first, end, temp, path);
        n_written += st >= 0;
        first = end;
    }
    /* The files are durable before the index that names them is. */
    if (st >= 0 && !x->opts->no_sync)
        st = x->l->files->ops->sync_dir(x->l->files, x->dir, x->err);
    const bool has_index = st >= 0 && x->n_shards > 1;
    if (has_index)
        st = write_index(x);
    /* What somebody else put there meanwhile is not ours to remove. */
    if (st < 0)
        remove_files(x, n_written, has_index && st != DTP_ERR_EXISTS);
    return st;
}

dtp_status dtpi_export(dtpi_load *l, const char *dir, const dtp_ckpt_export_opts *opts,
                       dtp_error *err)
{
    exporter x = {
        .l = l, .opts = opts, .dir = dir, .n = (uint32_t)dtpi_mf_n_tensors(&l->m), .err = err
    };
    const dtp_ckpt_checks checks = l->checks;

    /* Slabs cut chunks, and every byte is read here. */
    l->checks = DTP_CKPT_CHECK_ALL;
    dtp_status st = deal(&x);
    if (st >= 0)
        st = dtpi_files_make_dirs(l->files, dir, opts->no_sync, err);
    if (st >= 0)
        st = check_free(&x);
    if (st >= 0)
        st = write_files(&x);
    l->checks = checks;
    dtpi_free(l->a, x.order, ((size_t)x.n + 1) * sizeof(*x.order));
    dtpi_free(l->a, x.shard, ((size_t)x.n + 1) * sizeof(*x.shard));
    dtpi_free(l->a, x.slab, x.slab_bytes + 1);
    return st;
}
