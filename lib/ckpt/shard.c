/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.c - writes one rank's file: data first, at the place the header leaves free, then the header,
 * whose length is known before because stored sizes never exceed plain ones.
 *
 * pour.c brings the data to the file; here is what is known before and after.
 */
#include "ckpt/shard.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/sum.h"
#include "ckpt/json.h"
#include "ckpt/st.h"
#include "ckpt/pour.h"

/* ---- the header ---- */

static bool is_coded(const dtpi_shard_in *in)
{
    return strcmp(in->codec, "none") != 0;
}

/* The entry is the whole tensor, under its name and with its type. */
static bool is_told(const dtpi_shard_in *in, const dtpi_piece *p)
{
    const dtpi_plan_box *box = &in->plan->boxes[p->box];

    return !is_coded(in) && p->key_bytes == in->plan->tensors[box->tensor].name_bytes &&
           strcmp(dtpi_layout_key(in->layout, p), dtpi_plan_name(in->plan, box)) == 0 &&
           memcmp(dtpi_plan_extent(in->plan, box), dtpi_plan_shape(in->plan, box),
                  box->n_dims * sizeof(int64_t)) == 0;
}

/* Of which part of which tensor an entry is, where it does not tell: enough to rebuild without a manifest. */
static void put_boxes(const dtpi_shard_in *in, dtpi_buf *b)
{
    bool first = true;

    dtpi_buf_append(b, "{", 1);
    for (size_t i = 0; i < in->layout->n; i++) {
        const dtpi_piece *p = dtpi_layout_get(in->layout, i);
        const dtpi_plan_box *box = &in->plan->boxes[p->box];
        if (is_told(in, p))
            continue;
        dtpi_buf_append(b, ",", first ? 0 : 1);
        first = false;
        dtpi_json_put(b, dtpi_layout_key(in->layout, p), p->key_bytes);
        dtpi_buf_printf(b, ":{\"tensor\":");
        const dtpi_plan_tensor *t = &in->plan->tensors[box->tensor];
        dtpi_json_put(b, (const char *)in->plan->text.data + t->name_at, t->name_bytes);
        dtpi_buf_printf(b, ",\"dtype\":\"%s\",", dtpi_st_type_of(box->dtype)->name);
        dtpi_json_put_dims(b, "shape", box->n_dims, dtpi_plan_shape(in->plan, box));
        dtpi_buf_append(b, ",", 1);
        dtpi_json_put_dims(b, "offset", box->n_dims, dtpi_plan_offset(in->plan, box));
        dtpi_buf_append(b, ",", 1);
        dtpi_json_put_dims(b, "extent", box->n_dims, dtpi_plan_extent(in->plan, box));
        dtpi_buf_append(b, "}", 1);
    }
    dtpi_buf_append(b, "}", 1);
}

static dtp_status put_meta(const dtpi_shard_in *in, bool with_boxes, dtpi_buf *out, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf boxes = dtpi_buf_init(out->a);
    char text[96];

    snprintf(text, sizeof(text), "%" PRIu64, in->step);
    dtpi_st_write_meta(out, "dtp.version", "1", 1);
    dtpi_st_write_meta(out, "dtp.step", text, strlen(text));
    snprintf(text, sizeof(text), "%d/%d", in->rank, in->world_size);
    dtpi_st_write_meta(out, "dtp.rank", text, strlen(text));
    snprintf(text, sizeof(text), "%016" PRIx64, in->id);
    dtpi_st_write_meta(out, "dtp.save", text, strlen(text));
    dtpi_st_write_meta(out, "dtp.codec", in->codec, strlen(in->codec));
    if (!with_boxes)
        return DTP_OK;
    put_boxes(in, &boxes);
    if (boxes.failed)
        return dtpi_fail_nomem(err, boxes.len);
    dtpi_st_write_meta(out, "dtp.boxes", (const char *)boxes.data, boxes.len);
    return DTP_OK;
}

/* Ranges as if all were stored plain, for the header's length; later where they really are. */
static dtpi_part_range *range_of(dtpi_part *part, const dtpi_piece *p)
{
    return (dtpi_part_range *)(void *)part->ranges.data + p->nth;
}

static dtp_status put_header(const dtpi_shard_in *in, dtpi_part *part, size_t total, bool with_boxes,
                             dtpi_buf *out, dtp_error *err)
{
    const bool coded = is_coded(in);

    dtpi_st_write_begin(out);
    const dtp_status st = put_meta(in, with_boxes, out, err);
    if (st < 0)
        return st;
    for (size_t i = 0; i < in->layout->n; i++) {
        const dtpi_piece *p = dtpi_layout_get(in->layout, i);
        const dtpi_plan_box *box = &in->plan->boxes[p->box];
        const dtpi_part_range *r = range_of(part, p);
        const int64_t stored = (int64_t)(r->end - r->begin);
        dtpi_st_write_tensor(out, dtpi_layout_key(in->layout, p), p->key_bytes,
                             coded ? "U8" : dtpi_st_type_of(box->dtype)->name,
                             coded ? 1 : box->n_dims,
                             coded ? &stored : dtpi_plan_extent(in->plan, box), r->begin, r->end);
    }
    return dtpi_st_write_end(out, total, err);
}

/* A header that would be too long goes without the boxes; so does it the second time, for `total` is less. */
static dtp_status make_header(const dtpi_shard_in *in, dtpi_part *part, size_t total, dtpi_buf *out,
                              dtp_error *err)
{
    const dtp_status st = put_header(in, part, total, true, out, err);

    if (st != DTP_ERR_LIMIT)
        return st;
    dtpi_buf_reset(out);
    return put_header(in, part, total, false, out, err);
}

/* ---- the data ---- */

typedef struct writer {
    const dtp_allocator *a;
    const dtpi_shard_in *in;
    dtpi_part *part;
    dtpi_written *out;
    dtpi_file *file;
    uint64_t header_bytes, end, n_chunks;
    bool is_coded;
    dtpi_pour_item *items;      /* a piece each */
} writer;

/*
 * Where each piece lies, now that the sizes of its chunks are known. Sums of the plain chunks of coded
 * ones go behind those of the shard, in the same order.
 */
static void place_pieces(writer *w, const uint32_t *sizes, uint64_t n_chunks)
{
    uint64_t at = 0, chunk = 0;

    for (size_t i = 0; i < w->in->layout->n; i++) {
        const dtpi_piece *p = dtpi_layout_get(w->in->layout, i);
        dtpi_part_range *r = range_of(w->part, p);
        const uint64_t n =
            p->bytes / w->in->chunk_bytes + (p->bytes % w->in->chunk_bytes != 0);
        r->begin = at;
        r->sums_at = 1 + chunk;
        r->plain_at = r->sums_at + (w->is_coded ? n_chunks : 0);
        r->sizes_at = w->is_coded ? chunk : DTPI_NO_SIZES;
        for (uint64_t k = 0; k < n; k++)
            at += sizes[chunk + k];
        r->end = at;
        chunk += n;
    }
}

/* Room for `n` more of `width` bytes, counted as there. */
static void *extend(dtpi_buf *b, uint64_t n, size_t width)
{
    size_t bytes;
    void *p = dtpi_mul((size_t)n, width, &bytes) ? dtpi_buf_reserve(b, bytes) : NULL;

    if (p)
        b->len += bytes;
    return p;
}

static dtp_status store_xor(const dtpi_pour_item *item, uint64_t i, dtpi_codec *codec,
                            const uint8_t *data, size_t bytes, uint8_t *scratch,
                            const void **stored_out, size_t *n_out, dtp_error *err)
{
    const writer *w = item->user;
    const dtpi_piece *p = dtpi_layout_get(w->in->layout, (size_t)(item - w->items));

    return dtpi_delta_store(w->in->delta, p, i, codec, data, bytes, scratch, stored_out, n_out, err);
}

static dtp_status put_data(writer *w, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf plain_sizes = dtpi_buf_init(w->a);
    dtpi_pour in = { .a = w->a,
                     .ctx = w->in->ctx,
                     .files = w->in->files,
                     .file = w->file,
                     .at = w->header_bytes,
                     .codec = w->in->codec,
                     .chunk_bytes = w->in->chunk_bytes,
                     .items = w->items,
                     .n_items = w->in->layout->n };

    for (size_t i = 0; i < in.n_items; i++) {
        const dtpi_piece *p = dtpi_layout_get(w->in->layout, i);
        const dtpi_plan_box *box = &w->in->plan->boxes[p->box];
        w->items[i] = (dtpi_pour_item){ .data = w->in->tensors[box->index].data,
                                        .bytes = p->bytes,
                                        .dtype = box->dtype,
                                        .user = w };
        if (w->in->delta->fates[p->nth].kind == DTPI_FATE_XOR)
            w->items[i].store = store_xor;
    }
    const uint64_t n = dtpi_pour_chunks(&in);
    uint64_t *sums = extend(&w->part->sums, 1 + (w->is_coded ? 2 * n : n), sizeof(*sums));
    in.sizes = extend(w->is_coded ? &w->part->sizes : &plain_sizes, n, sizeof(*in.sizes));
    if (!sums || !in.sizes)
        return dtpi_fail_nomem(err, n * sizeof(*sums));
    in.sums = sums + 1;
    in.plains = w->is_coded ? in.sums + n : NULL;
    w->n_chunks = n;
    const dtp_status st = dtpi_pour_run(&in, &w->end, err);
    if (st >= 0)
        place_pieces(w, in.sizes, n);
    return st;
}

/* Everything between making the file and closing it. */
static dtp_status put_all(writer *w, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf header = dtpi_buf_init(w->a);
    const struct dtpi_files_ops *ops = w->in->files->ops;

    dtp_status st = put_data(w, err);
    if (st >= 0)
        st = make_header(w->in, w->part, w->header_bytes, &header, err);
    if (st >= 0)
        st = ops->write(w->file, 0, header.data, header.len, err);
    if (st >= 0 && w->is_coded && ops->set_size)
        st = ops->set_size(w->file, w->end, err);
    if (st >= 0 && !w->in->no_sync)
        st = ops->sync(w->file, err);
    if (st < 0)
        return st;
    uint64_t *sums = (uint64_t *)(void *)w->part->sums.data;
    sums[0] = dtpi_sum64(header.data, header.len);
    w->out->header_sum = sums[0];
    w->out->header_bytes = w->header_bytes;
    w->out->bytes = w->end;
    w->out->digest = dtpi_sum64(sums, (1 + w->n_chunks) * sizeof(*sums));
    return dtpi_delta_finish(w->in->delta, w->part, err);
}

/* Room for all of it; a coded one may fit where its plain bytes would not. */
static dtp_status make_file(writer *w, dtp_error *err)
{
    dtpi_files *files = w->in->files;
    const uint64_t most = w->header_bytes + w->in->layout->bytes;

    const dtp_status st = files->ops->create(files, w->in->path, most, &w->file, err);
    if (st != DTP_ERR_NOSPC || !w->is_coded)
        return st;
    return files->ops->create(files, w->in->path, 0, &w->file, err);
}

static dtp_status put_file(writer *w, dtp_error *err)
{
    dtpi_files *files = w->in->files;

    dtp_status st = make_file(w, err);
    if (st < 0)
        return st;
    st = put_all(w, err);
    if (st >= 0)
        st = files->ops->close_file(w->file, err);
    else
        dtpi_file_drop(w->file);
    if (st < 0)
        files->ops->remove(files, w->in->path, NULL);
    return st;
}

static dtp_status begin_part(const dtpi_shard_in *in, dtpi_part *part, dtp_error *err)
{
    const dtpi_layout *l = in->layout;
    const size_t bytes = in->delta->layout->n * sizeof(dtpi_part_range);
    uint64_t at = 0;

    if (!dtpi_buf_reserve(&part->ranges, bytes))
        return dtpi_fail_nomem(err, bytes);
    part->ranges.len = bytes;
    for (size_t i = 0; i < l->n; i++) {
        const dtpi_piece *p = dtpi_layout_get(l, i);
        *range_of(part, p) = (dtpi_part_range){ .base = DTPI_NO_BASE, .begin = at,
                                                .end = at + p->bytes };
        at += p->bytes;
    }
    part->head = (dtpi_part_head){ .chunk_bytes = in->chunk_bytes, .step = in->step, .id = in->id,
                                   .rank = (uint32_t)in->rank,
                                   .world_size = (uint32_t)in->world_size, .n_boxes = in->delta->layout->n };
    return DTP_OK;
}

dtp_status dtpi_shard_write(const dtp_allocator *a, const dtpi_shard_in *in, dtpi_part *part,
                            dtpi_written *out, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf header = dtpi_buf_init(a);
    writer w = { .a = a,
                 .in = in,
                 .part = part,
                 .out = out,
                 .is_coded = strcmp(in->codec, "none") != 0 };

    dtp_status st = begin_part(in, part, err);
    if (st >= 0)
        st = make_header(in, part, 0, &header, err);
    if (st < 0)
        return st;
    w.header_bytes = header.len;
    dtpi_buf_free(&header);
    w.items = dtpi_alloc_array(a, in->layout->n + 1, sizeof(*w.items));
    if (!w.items)
        return dtpi_fail_nomem(err, in->layout->n * sizeof(*w.items));
    st = put_file(&w, err);
    dtpi_free(a, w.items, (in->layout->n + 1) * sizeof(*w.items));
    return st;
}
