/* SPDX-License-Identifier: Apache-2.0 */
/* msg.c - the messages of a save as bytes, read with bounds: a peer may be of another build. */
#include "ckpt/msg.h"

enum { MAX_NAME = 1023 };

static dtp_status bad(dtp_error *err, int32_t rank, const char *what)
{
    return dtpi_fail_rank(err, DTP_ERR_PROTO, rank, "rank %d sent a checkpoint message with %s",
                          rank, what);
}

void dtpi_msg_begin(dtpi_buf *b, uint8_t kind, const dtp_error *failure)
{
    dtpi_wr_u8(b, DTPI_MSG_VERSION);
    dtpi_wr_u8(b, kind);
    dtpi_wr_u32(b, (uint32_t)failure->status);
    if (failure->status < 0) {
        dtpi_wr_u32(b, (uint32_t)failure->sys_errno);
        dtpi_wr_u32(b, (uint32_t)failure->rank);
        dtpi_wr_text(b, failure->text);
    }
}

dtp_status dtpi_msg_open(dtpi_rd *r, uint8_t kind, int32_t rank, dtp_error *failure_out,
                         dtp_error *err)
{
    const uint8_t version = dtpi_rd_u8(r);
    const uint8_t got = dtpi_rd_u8(r);

    if (r->failed || version != DTPI_MSG_VERSION)
        return dtpi_fail_rank(err, DTP_ERR_VERSION, rank,
                              "rank %d speaks version %u of the checkpoint protocol, not %d", rank,
                              version, DTPI_MSG_VERSION);
    if (got != kind)
        return bad(err, rank, "the wrong kind (calls in different order?)");
    *failure_out = (dtp_error){ .status = (int32_t)dtpi_rd_u32(r), .rank = -1 };
    if (failure_out->status < 0) {
        failure_out->sys_errno = (int32_t)dtpi_rd_u32(r);
        failure_out->rank = (int32_t)dtpi_rd_u32(r);
        dtpi_rd_text(r, failure_out->text, sizeof(failure_out->text));
    }
    return r->failed ? bad(err, rank, "a broken head") : DTP_OK;
}

/* ---- declaration ---- */

static void put_dims(dtpi_buf *b, const int64_t *dims, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        dtpi_wr_u64(b, dims ? (uint64_t)dims[i] : 0);
}

void dtpi_msg_put_declare(dtpi_buf *b, const dtpi_declare *d, const dtp_ckpt_tensor *tensors,
                          size_t n)
{
    dtpi_wr_u64(b, d->step);
    dtpi_wr_u32(b, d->chunk_bytes);
    dtpi_wr_u8(b, d->codec);
    dtpi_wr_u64(b, d->id);
    dtpi_wr_u64(b, d->parent);
    dtpi_wr_u64(b, d->parent_id);
    dtpi_wr_block(b, d->meta, d->meta_bytes);
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

/* What comes before the tensors. */
static uint32_t get_head(dtpi_rd *r, dtpi_declare *d)
{
    d->step = dtpi_rd_u64(r);
    d->chunk_bytes = dtpi_rd_u32(r);
    d->codec = dtpi_rd_u8(r);
    d->id = dtpi_rd_u64(r);
    d->parent = dtpi_rd_u64(r);
    d->parent_id = dtpi_rd_u64(r);
    d->meta_bytes = 0;
    d->meta = dtpi_rd_block(r, UINT32_MAX, &d->meta_bytes);
    return dtpi_rd_u32(r);
}

void dtpi_msg_measure(dtpi_rd r, size_t *n_boxes_out, size_t *n_numbers_out)
{
    dtpi_declare d;
    const uint32_t n = get_head(&r, &d);
    size_t bytes, numbers = 0;

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

dtp_status dtpi_msg_get_declare(dtpi_rd *r, int32_t rank, dtpi_declare *d_out, dtpi_plan *plan,
                                dtp_error *err)
{
    dtp_status st = DTP_OK;

    const uint32_t n = get_head(r, d_out);
    if (r->failed)
        return bad(err, rank, "a broken declaration");
    for (uint32_t i = 0; i < n && st >= 0; i++)
        st = get_tensor(r, rank, i, plan, err);
    if (st >= 0 && !dtpi_rd_done(r))
        st = bad(err, rank, "bytes left over");
    return st;
}

/* ---- acknowledgement ---- */

void dtpi_msg_put_written(dtpi_buf *b, const dtpi_written *w)
{
    dtpi_wr_u64(b, w->bytes);
    dtpi_wr_u64(b, w->header_bytes);
    dtpi_wr_u64(b, w->header_sum);
    dtpi_wr_u64(b, w->digest);
    dtpi_wr_u64(b, w->part_bytes);
    dtpi_wr_u64(b, w->part_sum);
    dtpi_wr_u16(b, w->lineage);
}

dtp_status dtpi_msg_get_written(dtpi_rd *r, int32_t rank, dtpi_written *w, dtp_error *err)
{
    w->bytes = dtpi_rd_u64(r);
    w->header_bytes = dtpi_rd_u64(r);
    w->header_sum = dtpi_rd_u64(r);
    w->digest = dtpi_rd_u64(r);
    w->part_bytes = dtpi_rd_u64(r);
    w->part_sum = dtpi_rd_u64(r);
    w->lineage = dtpi_rd_u16(r);
    return dtpi_rd_done(r) ? DTP_OK : bad(err, rank, "a broken acknowledgement");
}
