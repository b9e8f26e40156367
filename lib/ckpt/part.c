/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part.c - the bytes of a part file: written in one piece, and opened where they lie, every number looked
 * at before it is used.
 */
#include "ckpt/part.h"

#include <inttypes.h>

#include "base/sum.h"
#include "base/text.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "numbers are stored as they lie in memory");
static_assert(sizeof(dtpi_part_head) == 80 && sizeof(dtpi_part_range) == 48 &&
                  sizeof(dtpi_part_file) == 32,
              "as docs/formats/ckpt.md says");

static const char magic[8] = { 'd', 't', 'p', '-', 'p', 'a', 'r', 't' };

void dtpi_part_init(dtpi_part *p, const dtp_allocator *a)
{
    *p = (dtpi_part){ 0 };
    p->ranges = dtpi_buf_init(a);
    p->files = dtpi_buf_init(a);
    p->sums = dtpi_buf_init(a);
    p->sizes = dtpi_buf_init(a);
    p->text = dtpi_buf_init(a);
}

void dtpi_part_free(dtpi_part *p)
{
    dtpi_buf_free(&p->ranges);
    dtpi_buf_free(&p->files);
    dtpi_buf_free(&p->sums);
    dtpi_buf_free(&p->sizes);
    dtpi_buf_free(&p->text);
}

dtp_status dtpi_part_write(dtpi_part *p, dtpi_buf *out, dtp_error *err)
{
    dtpi_buf *const blocks[] = { &p->ranges, &p->files, &p->sums, &p->sizes, &p->text };
    dtpi_part_head *h = &p->head;
    size_t bytes = sizeof(*h) + DTPI_PART_TAIL;

    memcpy(h->magic, magic, sizeof(magic));
    h->version = DTPI_PART_VERSION;
    h->n_ranges = p->ranges.len / sizeof(dtpi_part_range);
    h->n_files = (uint32_t)(p->files.len / sizeof(dtpi_part_file));
    h->n_sums = p->sums.len / sizeof(uint64_t);
    h->n_sizes = p->sizes.len / sizeof(uint32_t);
    h->text_bytes = (uint32_t)p->text.len;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(blocks); i++) {
        if (blocks[i]->failed)
            return dtpi_fail_nomem(err, blocks[i]->len);
        bytes += blocks[i]->len;
    }
    if (bytes > DTPI_PART_MAX)
        return dtpi_fail(err, DTP_ERR_LIMIT,
                         "a part of %zu bytes could not be read: larger chunks have fewer sums", bytes);
    if (!dtpi_buf_reserve(out, bytes))
        return dtpi_fail_nomem(err, bytes);
    dtpi_buf_append(out, h, sizeof(*h));
    for (size_t i = 0; i < DTPI_ARRAY_LEN(blocks); i++)
        dtpi_buf_append(out, blocks[i]->data, blocks[i]->len);
    const uint64_t sum = dtpi_sum64(out->data, out->len);
    dtpi_buf_append(out, &sum, sizeof(sum));
    return DTP_OK;
}

/* ---- opening ---- */

static dtp_status bad(dtp_error *err, const char *path, const char *what)
{
    return dtpi_fail(err, DTP_ERR_FORMAT, "%s: %s", path, what);
}

/* The blocks fill the file; no product overflows, for each count is bounded by the file first. */
static bool blocks_fit(const dtpi_part_head *h, size_t bytes)
{
    if (h->n_ranges > bytes / sizeof(dtpi_part_range) || h->n_sums > bytes / sizeof(uint64_t) ||
        h->n_sizes > bytes / sizeof(uint32_t))
        return false;
    return sizeof(*h) + h->n_ranges * sizeof(dtpi_part_range) +
               h->n_files * sizeof(dtpi_part_file) + h->n_sums * sizeof(uint64_t) +
               h->n_sizes * sizeof(uint32_t) + h->text_bytes + DTPI_PART_TAIL ==
           bytes;
}

static dtp_status check_head(const uint8_t *p, size_t bytes, const char *path, dtp_error *err)
{
    const dtpi_part_head *h = (const dtpi_part_head *)(const void *)p;
    uint64_t sum;

    if (bytes < sizeof(*h) + DTPI_PART_TAIL)
        return dtpi_fail(err, DTP_ERR_TRUNCATED, "%s has %zu bytes, too few for a part", path,
                         bytes);
    if (memcmp(h->magic, magic, sizeof(magic)) != 0)
        return bad(err, path, "not a part of a checkpoint");
    memcpy(&sum, p + bytes - DTPI_PART_TAIL, sizeof(sum));
    const uint64_t got = dtpi_sum64(p, bytes - DTPI_PART_TAIL);
    if (sum != got)
        return dtpi_fail(err, DTP_ERR_CORRUPT,
                         "%s: checksum mismatch (stored %016" PRIx64 ", computed %016" PRIx64 ")",
                         path, sum, got);
    if (h->version != DTPI_PART_VERSION)
        return dtpi_fail(err, DTP_ERR_VERSION, "%s has version %u, this library reads %d", path,
                         h->version, DTPI_PART_VERSION);
    if (!blocks_fit(h, bytes) || h->n_boxes > h->n_ranges || h->n_ranges >= DTPI_NO_BASE ||
        h->n_sums == 0)
        return bad(err, path, "its counts are impossible");
    return DTP_OK;
}

static bool range_fits(const dtpi_part_view *v, uint64_t i)
{
    const dtpi_part_head *h = v->head;
    const dtpi_part_range *r = &v->ranges[i];

    return r->file <= h->n_files && r->begin <= r->end && r->sums_at <= h->n_sums &&
           (r->sizes_at == DTPI_NO_SIZES || r->sizes_at <= h->n_sizes) &&
           r->plain_at <= h->n_sums &&
           (r->base == DTPI_NO_BASE ||
            (r->base > i && r->base >= h->n_boxes && r->base < h->n_ranges));
}

static bool file_fits(const dtpi_part_view *v, uint32_t i)
{
    const dtpi_part_file *f = &v->files[i];
    char name[256] = "";

    if (f->name_bytes >= sizeof(name) || f->name_at > v->head->text_bytes ||
        f->name_bytes > v->head->text_bytes - f->name_at)
        return false;
    memcpy(name, v->text + f->name_at, f->name_bytes);
    return strlen(name) == f->name_bytes && dtpi_name_ok(name, sizeof(name) - 1) &&
           f->header_bytes >= 8 && f->header_bytes <= f->bytes && f->bytes <= INT64_MAX;
}

dtp_status dtpi_part_open(const void *data, size_t bytes, const char *path,
                          dtpi_part_view *view_out, dtp_error *err)
{
    const uint8_t *p = data;

    const dtp_status st = check_head(p, bytes, path, err);
    if (st < 0)
        return st;
    dtpi_part_view v = { .head = (const dtpi_part_head *)(const void *)p };
    p += sizeof(*v.head);
    v.ranges = (const dtpi_part_range *)(const void *)p;
    p += v.head->n_ranges * sizeof(*v.ranges);
    v.files = (const dtpi_part_file *)(const void *)p;
    p += v.head->n_files * sizeof(*v.files);
    v.sums = (const uint64_t *)(const void *)p;
    p += v.head->n_sums * sizeof(*v.sums);
    v.sizes = (const uint32_t *)(const void *)p;
    v.text = (const char *)(p + v.head->n_sizes * sizeof(*v.sizes));
    for (uint64_t i = 0; i < v.head->n_ranges; i++)
        if (!range_fits(&v, i))
            return bad(err, path, "a range is impossible");
    for (uint32_t i = 0; i < v.head->n_files; i++)
        if (!file_fits(&v, i))
            return bad(err, path, "a file is impossible");
    *view_out = v;
    return DTP_OK;
}
