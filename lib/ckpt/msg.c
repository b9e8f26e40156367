/* SPDX-License-Identifier: Apache-2.0 */
/* msg.c - the messages of a save as bytes, read with bounds: a peer may be of another build. */
#include "ckpt/msg.h"

enum { MAX_NAME = 1023 };

static dtp_status bad(dtp_error *err, int32_t rank, const char *what)
{
    return dtpi_fail_rank(err, DTP_ERR_PROTO, rank, "rank %d sent a checkpoint message with %s",
                          rank, what);
}

static dtp_status bad_version(dtp_error *err, int32_t rank, unsigned version)
{
    return dtpi_fail_rank(err, DTP_ERR_VERSION, rank,
                          "rank %d speaks version %u of the checkpoint protocol, not %d", rank, version,
                          DTPI_MSG_VERSION);
}

/* ---- notes ---- */

size_t dtpi_note_bytes(uint8_t kind)
{
    return kind == DTPI_NOTE_VERDICT ? 8 : DTPI_NOTE_BYTES;
}

static void put_number(uint8_t *to, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

void dtpi_note_write(const dtpi_note *n, uint8_t out[DTPI_NOTE_BYTES])
{
    out[0] = DTPI_MSG_VERSION;
    out[1] = n->kind;
    put_number(out + 2, n->bits, 2);
    put_number(out + 4, (uint32_t)n->status, 4);
    for (size_t i = 0; i < DTPI_NOTE_WORDS; i++)
        put_number(out + 8 + 8 * i, n->words[i], 8);
}

dtp_status dtpi_note_read(const void *data, size_t bytes, uint8_t kind, int32_t rank,
                          dtpi_note *note_out, dtp_error *err)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);
    const uint8_t version = dtpi_rd_u8(&r);
    dtpi_note n = { .kind = dtpi_rd_u8(&r) };

    if (r.failed || version != DTPI_MSG_VERSION)
        return bad_version(err, rank, version);
    if (n.kind != kind || bytes != dtpi_note_bytes(kind))
        return bad(err, rank, "the wrong kind (calls in different order?)");
    n.bits = dtpi_rd_u16(&r);
    n.status = (int32_t)dtpi_rd_u32(&r);
    for (size_t i = 0; i < DTPI_NOTE_WORDS && r.left; i++)
        n.words[i] = dtpi_rd_u64(&r);
    if (n.status > 0)
        return bad(err, rank, "a status that is none");
    *note_out = n;
    return DTP_OK;
}

void dtpi_note_put_written(dtpi_note *n, const dtpi_written *w, uint64_t plan_hash)
{
    const uint64_t words[] = { w->bytes,  w->header_bytes, w->header_sum, w->digest,
                               w->part_bytes, w->part_sum, plan_hash };

    memcpy(n->words, words, sizeof(n->words));
    n->bits = w->lineage;
}

dtp_status dtpi_note_get_written(const dtpi_note *n, int32_t rank, uint64_t plan_hash,
                                 dtpi_written *w_out, dtp_error *err)
{
    if (n->words[6] != plan_hash)
        return dtpi_fail_rank(err, DTP_ERR_PROTO, rank, "rank %d acknowledged another plan", rank);
    *w_out = (dtpi_written){ n->words[0], n->words[1], n->words[2], n->words[3],
                             n->words[4], n->words[5], n->bits };
    return DTP_OK;
}

/* ---- failures ---- */

void dtpi_msg_put_failure(dtpi_buf *b, const dtp_error *failure)
{
    dtpi_wr_u32(b, (uint32_t)failure->status);
    dtpi_wr_u32(b, (uint32_t)failure->sys_errno);
    dtpi_wr_u32(b, (uint32_t)failure->rank);
    dtpi_wr_text(b, failure->text);
}

dtp_status dtpi_msg_get_failure(dtpi_rd *r, int32_t rank, dtp_error *failure_out, dtp_error *err)
{
    dtp_error f = { .status = (int32_t)dtpi_rd_u32(r) };

    f.sys_errno = (int32_t)dtpi_rd_u32(r);
    f.rank = (int32_t)dtpi_rd_u32(r);
    dtpi_rd_text(r, f.text, sizeof(f.text));
    if (!dtpi_rd_done(r) || f.status >= 0)
        return bad(err, rank, "a broken failure");
    *failure_out = f;
    return DTP_OK;
}

/* ---- boxes ---- */

static void put_dims(dtpi_buf *b, const int64_t *dims, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        dtpi_wr_u64(b, dims ? (uint64_t)dims[i] : 0);
}

void dtpi_msg_put_boxes(dtpi_buf *b, const dtp_ckpt_tensor *tensors, size_t n)
{
    dtpi_wr_u8(b, DTPI_MSG_VERSION);
    dtpi_wr_u32(b, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        const dtp_ckpt_tensor *t = &tensors[i];
        dtpi_wr_text(b, t->name);
        dtpi_wr_u8(b, (uint8_t)t->dtype);
        dtpi_wr_u8(b, (uint8_t)t->n_dims);
        put_dims(b, t->shape, t->n_dims);
        put_dims(b, t->offset, t->n_dims);
        put_dims(b, t->extent ? t->extent : t->shape, t->n_dims);
    }
}

static dtp_status get_tensor(dtpi_rd *r, int32_t rank, uint32_t index, dtpi_plan *plan,
                             dtp_error *err)
{
    char name[MAX_NAME + 1];
    int64_t dims[3 * DTP_CKPT_MAX_DIMS];

    dtpi_rd_text(r, name, sizeof(name));
    const uint8_t dtype = dtpi_rd_u8(r), n = dtpi_rd_u8(r);
    if (r->failed || n > DTP_CKPT_MAX_DIMS)
        return bad(err, rank, "a broken tensor");
    for (uint32_t i = 0; i < 3u * n; i++)
        dims[i] = (int64_t)dtpi_rd_u64(r);
    if (r->failed)
        return bad(err, rank, "a broken tensor");
    const dtp_ckpt_tensor t = { .size = sizeof(t), .name = name, .dtype = dtype, .n_dims = n,
                                .shape = dims, .offset = dims + n, .extent = dims + 2 * n };
    const dtp_status st = dtpi_plan_check(&t, err);
    if (st < 0)
        return st;
    return dtpi_plan_add(plan, rank, index, name, dtype, n, dims, dims + n, dims + 2 * n, err);
}

void dtpi_msg_measure(dtpi_rd r, size_t *n_boxes_out, size_t *n_numbers_out)
{
    size_t bytes, numbers = 0;

    dtpi_rd_u8(&r);
    const uint32_t n = dtpi_rd_u32(&r);
    for (uint32_t i = 0; i < n && !r.failed; i++) {
        dtpi_rd_block(&r, MAX_NAME, &bytes);
        dtpi_rd_u8(&r);
        const size_t n_dims = dtpi_rd_u8(&r);
        dtpi_rd_bytes(&r, 3 * n_dims * sizeof(int64_t));
        numbers += 2 * n_dims;
    }
    *n_boxes_out = r.failed ? 0 : n;
    *n_numbers_out = r.failed ? 0 : numbers;
}

dtp_status dtpi_msg_get_boxes(dtpi_rd *r, int32_t rank, dtpi_plan *plan, dtp_error *err)
{
    const uint8_t version = dtpi_rd_u8(r);
    const uint32_t n = dtpi_rd_u32(r);
    dtp_status st = DTP_OK;

    if (r->failed)
        return bad(err, rank, "a broken list of boxes");
    if (version != DTPI_MSG_VERSION)
        return bad_version(err, rank, version);
    for (uint32_t i = 0; i < n && st >= 0; i++)
        st = get_tensor(r, rank, i, plan, err);
    if (st >= 0 && !dtpi_rd_done(r))
        st = bad(err, rank, "bytes left over");
    return st;
}
