/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.c - writes one rank's file: data first, at the place the header leaves free, then the header,
 * whose length is known before because stored sizes never exceed plain ones.
 *
 * Large plain chunks go from the caller's memory straight to the file, small ones are collected.
 */
#include "ckpt/shard.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/sum.h"
#include "ckpt/json.h"
#include "ckpt/st.h"
#include "codec/codec.h"

enum { STAGE_BYTES = 1 << 20, DIRECT_BYTES = 64 << 10 };

/* A stream into the file. */
typedef struct sink {
    const dtp_allocator *a;
    dtpi_files *files;
    dtpi_file *file;
    uint64_t at;                /* in the file, of the first staged byte */
    uint8_t *stage;
    size_t staged;
} sink;

static dtp_status sink_flush(sink *s, dtp_error *err)
{
    if (s->staged == 0)
        return DTP_OK;
    const dtp_status st = s->files->ops->write(s->file, s->at, s->stage, s->staged, err);
    s->at += s->staged;
    s->staged = 0;
    return st;
}

static dtp_status sink_put(sink *s, const void *data, size_t bytes, dtp_error *err)
{
    dtp_status st = DTP_OK;

    if (s->staged + bytes > STAGE_BYTES || bytes >= DIRECT_BYTES)
        st = sink_flush(s, err);
    if (st < 0 || bytes == 0)
        return st;
    if (bytes >= DIRECT_BYTES) {
        st = s->files->ops->write(s->file, s->at, data, bytes, err);
        s->at += bytes;
        return st;
    }
    memcpy(s->stage + s->staged, data, bytes);
    s->staged += bytes;
    return DTP_OK;
}

/* ---- the header ---- */

/* Of which part of which tensor each entry is: enough to rebuild without a manifest. */
static void put_boxes(const dtpi_shard_in *in, dtpi_buf *b)
{
    dtpi_buf_append(b, "{", 1);
    for (size_t i = 0; i < in->layout->n; i++) {
        const dtpi_piece *p = dtpi_layout_get(in->layout, i);
        const dtpi_plan_box *box = &in->plan->boxes[p->box];
        dtpi_buf_append(b, ",", i ? 1 : 0);
        dtpi_json_put(b, dtpi_layout_key(in->layout, p), p->key_bytes);
        dtpi_buf_printf(b, ":{\"tensor\":");
        dtpi_json_put(b, box->name, strlen(box->name));
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

static dtp_status put_meta(const dtpi_shard_in *in, dtpi_buf *out, dtp_error *err)
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

static dtp_status make_header(const dtpi_shard_in *in, dtpi_part *part, size_t total, dtpi_buf *out,
                              dtp_error *err)
{
    const bool coded = strcmp(in->codec, "none") != 0;

    dtpi_st_write_begin(out);
    const dtp_status st = put_meta(in, out, err);
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

/* ---- the data ---- */

typedef struct writer {
    const dtpi_shard_in *in;
    dtpi_part *part;
    dtpi_written *out;
    sink sink;
    dtpi_codec codec;
    uint8_t *scratch;           /* an encoded chunk */
    dtpi_buf plains;            /* uint64_t: sums of plain chunks, where chunks are coded */
} writer;

static dtp_status put_chunk(writer *w, const uint8_t *data, size_t bytes, dtp_dtype dtype,
                            dtp_error *err)
{
    const void *stored;
    size_t n = 0;

    dtp_status st = dtpi_codec_store(&w->codec, data, bytes, dtype, w->scratch, &stored, &n, err);
    if (st < 0)
        return st;
    const uint64_t sum = dtpi_sum64(stored, n);
    const uint32_t size = (uint32_t)n;
    dtpi_buf_append(&w->part->sums, &sum, sizeof(sum));
    if (w->codec.ops->encode) {
        const uint64_t plain = stored == data ? sum : dtpi_sum64(data, bytes);
        dtpi_buf_append(&w->part->sizes, &size, sizeof(size));
        dtpi_buf_append(&w->plains, &plain, sizeof(plain));
    }
    return sink_put(&w->sink, stored, n, err);
}

static dtp_status put_piece(writer *w, const dtpi_piece *p, uint64_t data_at, dtp_error *err)
{
    const dtpi_plan_box *box = &w->in->plan->boxes[p->box];
    const uint8_t *data = w->in->tensors[box->index].data;
    dtpi_part_range *r = range_of(w->part, p);

    r->begin = w->sink.at + w->sink.staged - data_at;
    r->sums_at = w->part->sums.len / sizeof(uint64_t);
    r->sizes_at = w->codec.ops->encode ? w->part->sizes.len / sizeof(uint32_t) : DTPI_NO_SIZES;
    for (uint64_t at = 0; at < p->bytes; at += w->in->chunk_bytes) {
        const size_t n = (size_t)DTPI_MIN(p->bytes - at, (uint64_t)w->in->chunk_bytes);
        const dtp_status st = put_chunk(w, data + at, n, box->dtype, err);
        if (st < 0)
            return st;
    }
    r->end = w->sink.at + w->sink.staged - data_at;
    return w->part->sums.failed || w->part->sizes.failed ? dtpi_fail_nomem(err, 0) : DTP_OK;
}

/* Sums of plain chunks go behind those of the shard, in the same order; uncoded they are the same. */
static dtp_status put_plains(writer *w, dtp_error *err)
{
    const uint64_t behind = w->part->sums.len / sizeof(uint64_t) - 1;
    const bool coded = w->codec.ops->encode != NULL;

    for (size_t i = 0; i < w->in->layout->n; i++) {
        dtpi_part_range *r = range_of(w->part, dtpi_layout_get(w->in->layout, i));
        r->plain_at = r->sums_at + (coded ? behind : 0);
    }
    if (w->plains.failed || !dtpi_buf_append(&w->part->sums, w->plains.data, w->plains.len))
        return dtpi_fail_nomem(err, w->plains.len);
    return DTP_OK;
}

/* Everything between making the file and closing it. */
static dtp_status put_all(writer *w, size_t header_bytes, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf header = dtpi_buf_init(w->sink.a);
    const uint64_t none = 0;
    dtp_status st = DTP_OK;

    w->sink.at = header_bytes;
    dtpi_buf_append(&w->part->sums, &none, sizeof(none));
    for (size_t i = 0; i < w->in->layout->n && st >= 0; i++)
        st = put_piece(w, dtpi_layout_get(w->in->layout, i), header_bytes, err);
    if (st >= 0)
        st = sink_flush(&w->sink, err);
    if (st >= 0)
        st = make_header(w->in, w->part, header_bytes, &header, err);
    if (st >= 0)
        st = w->sink.files->ops->write(w->sink.file, 0, header.data, header.len, err);
    if (st >= 0 && !w->in->no_sync)
        st = w->sink.files->ops->sync(w->sink.file, err);
    if (st < 0)
        return st;
    uint64_t *sums = (uint64_t *)(void *)w->part->sums.data;
    sums[0] = dtpi_sum64(header.data, header.len);
    w->out->header_sum = sums[0];
    w->out->header_bytes = header_bytes;
    w->out->bytes = w->sink.at;
    w->out->digest = dtpi_sum64(sums, w->part->sums.len);
    return put_plains(w, err);
}

static dtp_status put_file(writer *w, size_t header_bytes, dtp_error *err)
{
    const bool coded = w->codec.ops->encode != NULL;
    dtpi_files *files = w->in->files;

    /* A coded file is smaller by an unknown amount: nothing is reserved for it. */
    dtp_status st = files->ops->create(
        files, w->in->path, coded ? 0 : header_bytes + w->in->layout->bytes, &w->sink.file, err);
    if (st < 0)
        return st;
    st = put_all(w, header_bytes, err);
    if (st >= 0)
        st = files->ops->close_file(w->sink.file, err);
    else
        dtpi_file_drop(w->sink.file);
    if (st < 0)
        files->ops->remove(files, w->in->path, NULL);
    return st;
}

static dtp_status begin_part(const dtpi_shard_in *in, dtpi_part *part, dtp_error *err)
{
    const dtpi_layout *l = in->layout;
    const size_t bytes = l->n * sizeof(dtpi_part_range);
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
                                   .world_size = (uint32_t)in->world_size, .n_boxes = l->n };
    return DTP_OK;
}

dtp_status dtpi_shard_write(const dtp_allocator *a, const dtpi_shard_in *in, dtpi_part *part,
                            dtpi_written *out, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf header = dtpi_buf_init(a);
    writer w = { .in = in, .part = part, .out = out, .sink = { .a = a, .files = in->files },
                 .plains = dtpi_buf_init(a) };

    dtp_status st = begin_part(in, part, err);
    if (st >= 0)
        st = make_header(in, part, 0, &header, err);
    if (st >= 0)
        st = dtpi_codec_open(a, in->codec, &w.codec, err);
    if (st < 0)
        return st;
    w.sink.stage = dtpi_alloc_aligned(a, STAGE_BYTES, DTPI_ST_ALIGN);
    w.scratch = w.codec.ops->encode ? dtpi_alloc_aligned(a, in->chunk_bytes, 64) : NULL;
    if (!w.sink.stage || (w.codec.ops->encode && !w.scratch))
        st = dtpi_fail_nomem(err, STAGE_BYTES);
    else
        st = put_file(&w, header.len, err);
    dtpi_free(a, w.sink.stage, STAGE_BYTES);
    dtpi_free(a, w.scratch, in->chunk_bytes);
    dtpi_codec_close(&w.codec);
    dtpi_buf_free(&w.plains);
    return st;
}
