/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delta_load.c - reads a chunk that is the XOR of several: XOR knows no order, so each is decoded by itself
 * and laid over the result, from the newest to the first that stands alone.
 */
#include "ckpt/delta_load.h"

#include <inttypes.h>

#include "base/sum.h"
#include "ckpt/delta.h"

dtp_status dtpi_chunks_open(dtpi_load *l, dtpi_chunks *out, dtp_error *err)
{
    *out = (dtpi_chunks){ .l = l, .bytes = l->buffer_bytes };
    out->stored = dtpi_alloc_aligned(l->a, out->bytes, 64);
    out->below = dtpi_alloc_aligned(l->a, out->bytes, 64);
    if (!out->stored || !out->below)
        return dtpi_fail_nomem(err, out->bytes);
    return dtpi_codec_open(l->a, l->m.codec, &out->codec, err);
}

void dtpi_chunks_close(dtpi_chunks *c)
{
    if (!c->l)
        return;
    dtpi_codec_close(&c->codec);
    dtpi_free(c->l->a, c->stored, c->bytes);
    dtpi_free(c->l->a, c->below, c->bytes);
    c->l = NULL;
}

dtp_status dtpi_chunks_files(dtpi_load *l, const dtpi_mf_box *b, dtp_error *err)
{
    dtpi_file *file;

    for (;;) {
        const dtp_status st = dtpi_load_file(l, b->file, &file, err);
        if (st < 0 || b->base == DTPI_NO_BASE)
            return st;
        b = dtpi_mf_base_at(&l->m, b->base);
    }
}

/* Where a chunk begins in the stored bytes of a box; cheap when asked in ascending order. */
static uint64_t seek(dtpi_chunks *c, int level, const dtpi_mf_box *b, uint64_t bytes, uint64_t chunk)
{
    const dtpi_manifest *m = &c->l->m;

    if (b->sizes_at == DTPI_NO_SIZES)
        return chunk * m->chunk_bytes;
    if (c->seen[level].sizes_at != b->sizes_at || c->seen[level].chunk > chunk) {
        c->seen[level].sizes_at = b->sizes_at;
        c->seen[level].chunk = c->seen[level].at = 0;
    }
    while (c->seen[level].chunk < chunk)
        c->seen[level].at += dtpi_mf_stored_bytes(m, b, bytes, c->seen[level].chunk++);
    return c->seen[level].at;
}

/*
 * What the stored chunk itself decodes to. A base may be that of several tensors and have the dimensions of
 * another: how many `bytes` there are is known from the box above it.
 */
static dtp_status read_stored(dtpi_chunks *c, int level, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                              uint64_t bytes, uint64_t chunk, uint8_t *out, dtp_error *err)
{
    const dtpi_manifest *m = &c->l->m;
    const size_t plain = dtpi_mf_chunk_bytes(m, bytes, chunk);
    const size_t stored = dtpi_mf_stored_bytes(m, b, bytes, chunk);
    const bool as_is = stored == plain;
    dtp_error why = { 0 };

    dtp_status st = dtpi_load_stored(c->l, t, b, chunk, seek(c, level, b, bytes, chunk), stored,
                                     as_is ? out : c->stored, err);
    if (st < 0 || as_is)
        return st;
    st = dtpi_codec_restore(&c->codec, c->stored, stored, out, plain, &why);
    if (st < 0)
        return dtpi_load_not_decoded(c->l, t, b, chunk, &why, err);
    return DTP_OK;
}

dtp_status dtpi_chunks_below(dtpi_chunks *c, const dtpi_mf_tensor *t, const dtpi_mf_box *box,
                             uint64_t chunk, uint8_t *out, dtp_error *err)
{
    const dtpi_manifest *m = &c->l->m;
    const uint64_t bytes = dtpi_mf_box_bytes(m, t, box);
    const size_t plain = dtpi_mf_chunk_bytes(m, bytes, chunk);
    const dtpi_mf_box *b = box;

    for (int level = 1; dtpi_chunk_is_xor(m, b, chunk); level++) {
        b = dtpi_mf_base_at(m, b->base);
        const dtp_status st = read_stored(c, level, t, b, bytes, chunk, c->below, err);
        if (st < 0)
            return st;
        dtpi_xor(out, c->below, plain);
    }
    if (b == box || box->plain_at == DTPI_NO_PLAIN)
        return DTP_OK;
    if (*DTPI_MF_GET(uint64_t, m->sums, box->plain_at + chunk) != dtpi_sum64(out, plain))
        return dtpi_load_bad_chunk(c->l, t, box, chunk,
                                   "its XOR with earlier steps has another checksum", err);
    return DTP_OK;
}

dtp_status dtpi_chunks_read(dtpi_chunks *c, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                            uint64_t chunk, uint8_t *out, dtp_error *err)
{
    const uint64_t bytes = dtpi_mf_box_bytes(&c->l->m, t, b);
    const dtp_status st = read_stored(c, 0, t, b, bytes, chunk, out, err);

    return st < 0 ? st : dtpi_chunks_below(c, t, b, chunk, out, err);
}
