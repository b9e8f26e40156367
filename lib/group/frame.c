/* SPDX-License-Identifier: Apache-2.0 */
/* frame.c - reads and writes the messages of a group; everything read is bounded here. */
#include "group/frame.h"

#include <stdlib.h>

#include "base/sum.h"
#include "base/text.h"

const char *dtpi_kind_name(uint8_t kind)
{
    static const char *const names[] = { "barrier", "allgather", "broadcast", "split" };

    return kind < DTPI_ARRAY_LEN(names) ? names[kind] : "call";
}

bool dtpi_frame_read(const void *data, size_t bytes, dtpi_frame *out)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);
    const uint8_t version = dtpi_rd_u8(&r);

    out->type = dtpi_rd_u8(&r);
    out->lane = dtpi_rd_u8(&r);
    const uint8_t flags = dtpi_rd_u8(&r);
    out->attempt = dtpi_rd_u32(&r);
    out->generation = dtpi_rd_u32(&r);
    out->seq = dtpi_rd_u32(&r);
    out->group = dtpi_rd_u64(&r);
    out->rank = (int32_t)dtpi_rd_u32(&r);
    const uint32_t reserved = dtpi_rd_u32(&r);
    out->body = r.p;
    out->bytes = r.left;
    return !r.failed && version == DTPI_WIRE_VERSION && flags == 0 && reserved == 0 &&
           out->type > 0 && out->type < DTPI_F_END && out->lane <= 15;
}

void dtpi_frame_begin(dtpi_buf *b, const dtpi_frame *f)
{
    dtpi_wr_u8(b, DTPI_WIRE_VERSION);
    dtpi_wr_u8(b, f->type);
    dtpi_wr_u8(b, f->lane);
    dtpi_wr_u8(b, 0);
    dtpi_wr_u32(b, f->attempt);
    dtpi_wr_u32(b, f->generation);
    dtpi_wr_u32(b, f->seq);
    dtpi_wr_u64(b, f->group);
    dtpi_wr_u32(b, (uint32_t)f->rank);
    dtpi_wr_u32(b, 0);
}

void dtpi_up_write(dtpi_buf *b, uint8_t kind, uint32_t index, int32_t root, const void *data,
                   size_t bytes)
{
    dtpi_wr_u8(b, kind);
    dtpi_wr_u32(b, DTP_OK);
    dtpi_wr_u32(b, (uint32_t)-1);
    dtpi_wr_text(b, "");
    dtpi_wr_u32(b, 0);              /* nobody missing */
    if (kind == DTPI_KIND_BROADCAST) {
        dtpi_wr_u32(b, (uint32_t)root);
        dtpi_wr_u64(b, bytes);      /* smallest and largest size, and whose */
        dtpi_wr_u64(b, bytes);
        dtpi_wr_u32(b, index);
        dtpi_wr_u32(b, index);
        dtpi_wr_u8(b, (int32_t)index == root);
        dtpi_wr_block(b, data, (int32_t)index == root ? bytes : 0);
    } else if (kind != DTPI_KIND_BARRIER) {
        dtpi_wr_u32(b, 1);
        dtpi_wr_u32(b, index);
        dtpi_wr_block(b, data, bytes);
    }
}

bool dtpi_down_read(const dtpi_frame *f, dtpi_down *out)
{
    out->rest = dtpi_rd_init(f->body, f->bytes);
    out->kind = dtpi_rd_u8(&out->rest);
    out->status = (dtp_status)dtpi_rd_u32(&out->rest);
    out->rank = (int32_t)dtpi_rd_u32(&out->rest);
    dtpi_rd_text(&out->rest, out->text, sizeof(out->text));
    return !out->rest.failed && out->kind < DTPI_KIND_END && out->status <= 0;
}

uint64_t dtpi_split_id(uint64_t parent, uint8_t lane, uint32_t seq, int32_t color)
{
    const uint64_t raw[4] = { parent, lane, seq, (uint32_t)color };
    const uint64_t id = dtpi_sum64(raw, sizeof(raw));

    return id <= DTPI_WORLD_ID ? id + 2 : id;
}

static int compare_items(const void *pa, const void *pb)
{
    const dtpi_split_item *a = pa, *b = pb;

    if (a->color != b->color)
        return a->color < b->color ? -1 : 1;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

bool dtpi_split_read(dtpi_rd *r, uint32_t n, dtpi_split_item *items_out)
{
    for (uint32_t i = 0; i < n; i++)
        if (dtpi_rd_u32(r) != DTPI_SPLIT_BYTES)
            return false;
    for (uint32_t i = 0; i < n; i++) {
        items_out[i].color = (int32_t)dtpi_rd_u32(r);
        items_out[i].key = (int32_t)dtpi_rd_u32(r);
        items_out[i].index = i;
    }
    if (!dtpi_rd_done(r))
        return false;
    qsort(items_out, n, sizeof(*items_out), compare_items);
    return true;
}

bool dtpi_split_find(const dtpi_split_item *items, uint32_t n, int32_t color, uint32_t index,
                     uint32_t *first_out, uint32_t *n_out)
{
    uint32_t first = 0, end;
    bool found = false;

    while (first < n && items[first].color != color)
        first++;
    for (end = first; end < n && items[end].color == color; end++)
        found |= items[end].index == index;
    *first_out = first;
    *n_out = end - first;
    return found;
}

void dtpi_verdict_write(dtpi_buf *b, const dtpi_verdict *v)
{
    dtpi_wr_u32(b, (uint32_t)v->status);
    dtpi_wr_text(b, v->text);
    dtpi_wr_u32(b, v->n_failed);
    for (uint32_t i = 0; i < v->n_failed; i++)
        dtpi_wr_u32(b, (uint32_t)v->failed[i]);
}

bool dtpi_verdict_read(const dtpi_frame *f, uint32_t world, dtpi_verdict *out, int32_t *failed_out)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);

    out->status = (dtp_status)dtpi_rd_u32(&r);
    dtpi_rd_text(&r, out->text, sizeof(out->text));
    out->n_failed = dtpi_rd_u32(&r);
    out->failed = failed_out;
    if (out->n_failed > world || out->status >= 0)
        return false;
    for (uint32_t i = 0; i < out->n_failed; i++) {
        failed_out[i] = (int32_t)dtpi_rd_u32(&r);
        if (failed_out[i] < 0 || failed_out[i] >= (int32_t)world ||
            (i > 0 && failed_out[i] <= failed_out[i - 1]))
            return false;
    }
    return dtpi_rd_done(&r);
}
