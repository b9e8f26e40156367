/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_plan.c - how a call is cut into chunks, and calls as numbers and text.
 *
 * Every member must come to the same plan, so it depends on nothing but the call and the node.
 */
#include "coll/shm.h"

#include <stdio.h>

enum {
    DIRECT_BYTES = 4 << 10,         /* three and more members: up to here each adds everything itself */
    CHUNK_BYTES = 128 << 10,
    STREAM_CHUNK_BYTES = 64 << 10,  /* leaves room in the second cache for what is fetched ahead */
    CROWDED_CHUNK_BYTES = 256 << 10,
    STREAM_BYTES = 6 << 20          /* where results no longer stay in the caches */
};

static_assert((int)CROWDED_CHUNK_BYTES <= (int)DTPI_SHM_CHUNK_BYTES, "chunks fit the ring");

size_t dtpi_shm_slice(size_t count, size_t elem_bytes, uint32_t n)
{
    const size_t line = 64 / elem_bytes;
    const size_t lines = (count + line - 1) / line;

    return (lines + n - 1) / n * line;
}

void dtpi_ring_begin(dtpi_ring *r, size_t bytes)
{
    r->stride = (DTPI_MAX(bytes, (size_t)1) + 127) & ~(size_t)127;
    r->n = r->bytes / r->stride;
    r->first = (r->at + r->stride - 1) / r->stride;
}

void dtpi_ring_end(dtpi_ring *r, uint64_t n_chunks)
{
    r->at = (size_t)((r->first + n_chunks) % r->n) * r->stride;
}

static size_t align_down(size_t count, size_t elem_bytes)
{
    const size_t line = 64 / elem_bytes;

    return count > line ? count / line * line : line;
}

/* Bytes of the whole result, for deciding whether it stays in the caches. */
static size_t out_bytes(const dtpi_coll_call *call, size_t elem_bytes, uint32_t n)
{
    return call->count * elem_bytes * (call->kind == DTPI_ALLGATHER ? n : 1);
}

void dtpi_shm_plan_make(dtpi_shm_plan *plan, const dtpi_coll_call *call, size_t elem_bytes, uint32_t n,
                        bool crowded)
{
    const size_t bytes = call->count * elem_bytes;
    const bool stream = out_bytes(call, elem_bytes, n) >= STREAM_BYTES;
    size_t chunk_bytes = crowded ? CROWDED_CHUNK_BYTES : stream ? STREAM_CHUNK_BYTES : CHUNK_BYTES;

    *plan = (dtpi_shm_plan){ .way = DTPI_PLAN_DIRECT, .lag = 1, .n_chunks = 1, .n_iterations = 2 };
    plan->stream = stream;
    plan->chunk = call->count;
    if (bytes <= DTPI_SHM_INLINE && call->kind != DTPI_REDUCE_SCATTER) {
        plan->way = DTPI_PLAN_INLINE;
        return;
    }
    if (call->kind == DTPI_REDUCE_SCATTER)
        chunk_bytes = DTPI_MIN((size_t)DTPI_SHM_CHUNK_BYTES, chunk_bytes * n) / n;
    if (call->kind == DTPI_ALLREDUCE && n > 2 && bytes > DIRECT_BYTES)
        plan->way = DTPI_PLAN_SLICES;
    plan->chunk = DTPI_MIN(align_down(chunk_bytes / elem_bytes, elem_bytes),
                           DTPI_MAX(call->count, (size_t)1));
    plan->n_chunks = (call->count + plan->chunk - 1) / plan->chunk;
    plan->n_chunks = DTPI_MAX(plan->n_chunks, (uint64_t)1);
    plan->lag = crowded && plan->n_chunks > 2 ? 2 : 1;
    plan->n_iterations = plan->n_chunks + plan->lag * (plan->way == DTPI_PLAN_SLICES ? 2 : 1);
}

/* ---- calls as numbers and text ---- */

void dtpi_coll_header(const dtpi_coll_call *call, uint64_t header_out[2])
{
    header_out[0] = (uint64_t)call->kind | (uint64_t)call->dtype << 8 | (uint64_t)call->redop << 16 |
                    (uint64_t)(uint32_t)call->root << 32;
    header_out[1] = call->count;
}

static const char *const kind_names[] = { "nothing", "allreduce", "reduce_scatter", "allgather",
                                          "broadcast" };
static const char *const redop_names[] = { "sum", "min", "max", "prod", "avg" };

void dtpi_coll_describe(const uint64_t header[2], char *text_out, size_t room)
{
    const unsigned kind = header[0] & 0xff, dtype = header[0] >> 8 & 0xff, redop = header[0] >> 16 & 0xff;
    const char *name = kind < DTPI_COLL_KIND_END ? kind_names[kind] : kind_names[0];
    const int n = snprintf(text_out, room, "%s of %llu %s", name, (unsigned long long)header[1],
                           dtp_dtype_name((dtp_dtype)dtype));

    if (n < 0 || (size_t)n >= room)
        return;
    if (kind == DTPI_BROADCAST)
        snprintf(text_out + n, room - (size_t)n, " from rank %u", (unsigned)(header[0] >> 32));
    else if (kind != DTPI_ALLGATHER && redop <= DTP_AVG)
        snprintf(text_out + n, room - (size_t)n, " %s", redop_names[redop]);
}
