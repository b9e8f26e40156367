/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.c - the iterations of a call.
 *
 * Iteration i copies chunk i into a slot, uses chunk i - lag, and where slices are reduced by their
 * owners, fetches the results of chunk i - 2 lag. It may begin when all members have finished iteration
 * i - lag. That is also what makes slots free again: of one call, at most 2 lag chunks are being written
 * or read at any time; from one call to the next, at most lag chunks are copied before all are known to
 * have entered it, while at most lag chunks of the former may still be read. Rings hold more than both.
 * They are walked through from call to call, because writing to lines that lie in another processor's
 * cache costs twice as much as writing to those that have left it.
 */
#include "coll/shm.h"

#include <time.h>

#include "base/text.h"

enum {
    PAST_BYTES = 1 << 20,       /* calls from here on may write slots past the caches */
    PROBE_EVERY = 16,           /* such calls between two that write the usual way, to look again */
    FAR_BYTES_PER_US = 4000     /* slots read slower than that lie in a far cache */
};

static size_t control_bytes(uint32_t n)
{
    const size_t bytes = sizeof(dtpi_shm_head) + n * sizeof(dtpi_shm_member);

    return (bytes + 4095) & ~(size_t)4095;
}

size_t dtpi_shm_bytes(uint32_t n)
{
    return control_bytes(n) + n * (size_t)(DTPI_SHM_RING_BYTES + DTPI_SHM_RESULT_BYTES);
}

static uint8_t *input_slot(const dtpi_shm *e, uint32_t member, uint64_t chunk)
{
    return dtpi_shm_input_of(e, member) + dtpi_ring_offset(&e->ring, chunk);
}

static uint8_t *result_slot(const dtpi_shm *e, uint32_t member, uint64_t chunk)
{
    return dtpi_shm_result_of(e, member) + dtpi_ring_offset(&e->results, chunk);
}

/* ---- attach ---- */

dtp_status dtpi_shm_attach(dtpi_shm *e, const dtpi_shm_opts *o, dtp_error *err)
{
    *e = (dtpi_shm){ .o = *o };
    if (o->n == 0 || o->n > DTPI_SHM_MAX_MEMBERS || o->index >= o->n || o->bytes < dtpi_shm_bytes(o->n))
        return dtpi_fail(err, DTP_ERR_INVAL, "shared memory of %zu bytes does not fit %u ranks", o->bytes,
                         o->n);
    if (!e->o.kernels)
        e->o.kernels = dtpi_kernels_best();
    e->program = dtpi_alloc_array(o->allocator, 2 * (size_t)o->n, sizeof(*e->program));
    e->inputs = dtpi_alloc_array(o->allocator, o->n, sizeof(*e->inputs));
    if (!e->program || !e->inputs) {
        dtpi_shm_detach(e);
        return dtpi_fail_nomem(err, 2 * (size_t)o->n * sizeof(*e->program));
    }
    e->n_steps = dtpi_tree_program(e->program, 0, o->n);
    e->head = o->memory;
    e->members = (dtpi_shm_member *)(void *)(e->head + 1);
    e->own = &e->members[o->index];
    e->slots = (uint8_t *)o->memory + control_bytes(o->n);
    e->oversubscribed = true;
    e->ring.bytes = DTPI_SHM_RING_BYTES;
    e->results.bytes = DTPI_SHM_RESULT_BYTES;
    dtpi_shm_write_cpus(e);
    return DTP_OK;
}

void dtpi_shm_detach(dtpi_shm *e)
{
    dtpi_free(e->o.allocator, e->program, 2 * (size_t)e->o.n * sizeof(*e->program));
    dtpi_free(e->o.allocator, e->inputs, e->o.n * sizeof(*e->inputs));
    e->program = NULL;
    e->inputs = NULL;
}

void dtpi_shm_leave(dtpi_shm *e)
{
    atomic_store_explicit(&e->own->left, 1, memory_order_release);
    dtpi_shm_ring_slow(e);
}

/* ---- pieces of a chunk ---- */

static size_t chunk_count(const dtpi_shm *e, uint64_t chunk)
{
    const size_t at = (size_t)chunk * e->plan.chunk;

    return DTPI_MIN(e->call.count - at, e->plan.chunk);
}

static const uint8_t *in_at(const dtpi_shm *e, size_t element)
{
    return (const uint8_t *)e->call.in + element * e->elem_bytes;
}

static uint8_t *out_at(const dtpi_shm *e, size_t element)
{
    return (uint8_t *)e->call.out + element * e->elem_bytes;
}

static void copy_out(const dtpi_shm *e, void *out, const void *from, size_t bytes)
{
    if (e->plan.stream)
        e->o.kernels->stream(out, from, bytes);
    else
        memcpy(out, from, bytes);
}

/*
 * Into a slot. Between processors that share no cache, fetching lines from the writer's cache is two to
 * three times slower than writing them to memory and reading them there; between those that share one it
 * is the other way round. So the reading is timed, and how to write is a member's own choice.
 */
static void put_in(const dtpi_shm *e, void *slot, const void *from, size_t bytes)
{
    if (e->write_past)
        e->o.kernels->stream(slot, from, bytes);
    else
        memcpy(slot, from, bytes);
}

static dtpi_finish finish_of(const dtpi_shm *e)
{
    return e->plan.stream ? DTPI_FINISH_STREAM : DTPI_FINISH_FINAL;
}

/* A member's slice of a chunk of `count` elements. */
static size_t slice_of(const dtpi_shm *e, size_t count, uint32_t member, size_t *at_out)
{
    const size_t per = dtpi_shm_slice(count, e->elem_bytes, e->o.n);
    const size_t at = DTPI_MIN(per * member, count);

    *at_out = at;
    return DTPI_MIN(per, count - at);
}

/* ---- what iterations do: copy in ---- */

static void copy_chunk_except_own(dtpi_shm *e, uint64_t chunk)
{
    const size_t at = (size_t)chunk * e->plan.chunk, count = chunk_count(e, chunk);
    uint8_t *slot = input_slot(e, e->o.index, chunk);
    size_t own_at;
    const size_t own = slice_of(e, count, e->o.index, &own_at), after = own_at + own;

    put_in(e, slot, in_at(e, at), own_at * e->elem_bytes);
    put_in(e, slot + after * e->elem_bytes, in_at(e, at + after), (count - after) * e->elem_bytes);
}

/* Reduce-scatter: the chunk's part of every other member's block, one after the other. */
static void copy_blocks_except_own(dtpi_shm *e, uint64_t chunk)
{
    const size_t at = (size_t)chunk * e->plan.chunk, bytes = chunk_count(e, chunk) * e->elem_bytes;
    uint8_t *slot = input_slot(e, e->o.index, chunk);

    for (uint32_t m = 0; m < e->o.n; m++)
        if (m != e->o.index)
            put_in(e, slot + m * e->plan.chunk * e->elem_bytes, in_at(e, m * e->call.count + at), bytes);
}

static void copy_in(dtpi_shm *e, uint64_t chunk)
{
    if (e->plan.way == DTPI_PLAN_SLICES)
        copy_chunk_except_own(e, chunk);
    else if (e->call.kind == DTPI_REDUCE_SCATTER)
        copy_blocks_except_own(e, chunk);
    else if (e->call.kind != DTPI_BROADCAST || (uint32_t)e->call.root == e->o.index)
        put_in(e, input_slot(e, e->o.index, chunk), in_at(e, (size_t)chunk * e->plan.chunk),
               chunk_count(e, chunk) * e->elem_bytes);
    if (e->write_past)
        e->o.kernels->stream_end();
}

/* ---- what iterations do: use ---- */

/* All add the same in the same order, so all get the same bits. */
static void reduce_all(dtpi_shm *e, uint64_t chunk)
{
    for (uint32_t m = 0; m < e->o.n; m++)
        e->inputs[m].data = input_slot(e, m, chunk);
    /* Not the own slot: reading lines that another processor has just fetched is slow. */
    e->inputs[e->o.index].data = in_at(e, (size_t)chunk * e->plan.chunk);
    e->reduction.ahead =
        chunk + e->plan.lag + 1 < e->plan.n_chunks
            ? in_at(e, (size_t)(chunk + e->plan.lag) * e->plan.chunk)
            : NULL;
    dtpi_reduce(&e->reduction, e->program, e->n_steps, e->inputs,
                out_at(e, (size_t)chunk * e->plan.chunk), chunk_count(e, chunk), finish_of(e));
}

static void reduce_own_slice(dtpi_shm *e, uint64_t chunk)
{
    const size_t at = (size_t)chunk * e->plan.chunk;
    size_t own_at;
    const size_t own = slice_of(e, chunk_count(e, chunk), e->o.index, &own_at);
    uint8_t *result = result_slot(e, e->o.index, chunk);

    for (uint32_t m = 0; m < e->o.n; m++)
        e->inputs[m].data = input_slot(e, m, chunk) + own_at * e->elem_bytes;
    e->inputs[e->o.index].data = in_at(e, at + own_at);
    dtpi_reduce(&e->reduction, e->program, e->n_steps, e->inputs, result, own, DTPI_FINISH_FINAL);
    copy_out(e, out_at(e, at + own_at), result, own * e->elem_bytes);
}

static void reduce_own_block(dtpi_shm *e, uint64_t chunk)
{
    const size_t at = (size_t)chunk * e->plan.chunk;

    for (uint32_t m = 0; m < e->o.n; m++)
        e->inputs[m].data = input_slot(e, m, chunk) + e->o.index * e->plan.chunk * e->elem_bytes;
    e->inputs[e->o.index].data = in_at(e, e->o.index * e->call.count + at);
    dtpi_reduce(&e->reduction, e->program, e->n_steps, e->inputs, out_at(e, at), chunk_count(e, chunk),
                finish_of(e));
}

static void fetch_blocks(dtpi_shm *e, uint64_t chunk)
{
    const size_t at = (size_t)chunk * e->plan.chunk, bytes = chunk_count(e, chunk) * e->elem_bytes;

    for (uint32_t k = 0; k < e->o.n; k++) {
        const uint32_t m = (e->o.index + k) % e->o.n;
        uint8_t *to = out_at(e, m * e->call.count + at);
        const uint8_t *own = in_at(e, at);
        if (m != e->o.index)
            copy_out(e, to, input_slot(e, m, chunk), bytes);
        else if (to != own)
            copy_out(e, to, own, bytes);
    }
}

static void use(dtpi_shm *e, uint64_t chunk)
{
    if (e->plan.way == DTPI_PLAN_SLICES)
        reduce_own_slice(e, chunk);
    else if (e->call.kind == DTPI_ALLREDUCE)
        reduce_all(e, chunk);
    else if (e->call.kind == DTPI_REDUCE_SCATTER)
        reduce_own_block(e, chunk);
    else if (e->call.kind == DTPI_ALLGATHER)
        fetch_blocks(e, chunk);
    else if ((uint32_t)e->call.root != e->o.index)
        copy_out(e, out_at(e, (size_t)chunk * e->plan.chunk),
                 input_slot(e, (uint32_t)e->call.root, chunk), chunk_count(e, chunk) * e->elem_bytes);
}

/* The same, timed where it tells how far the others' caches are. */
static void use_timed(dtpi_shm *e, uint64_t chunk)
{
    const size_t bytes = chunk_count(e, chunk) * e->elem_bytes;
    struct timespec from, to;

    if (!e->timed || chunk_count(e, chunk) < e->plan.chunk) {
        use(e, chunk);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &from);
    use(e, chunk);
    clock_gettime(CLOCK_MONOTONIC, &to);
    const int64_t ns = (to.tv_sec - from.tv_sec) * DTPI_NS_PER_S + to.tv_nsec - from.tv_nsec;
    e->timed_bytes += bytes;
    e->timed_ns += (uint64_t)ns;
}

/* The slices that the others reduced. */
static void fetch_slices(dtpi_shm *e, uint64_t chunk)
{
    const size_t at = (size_t)chunk * e->plan.chunk, count = chunk_count(e, chunk);

    for (uint32_t k = 1; k < e->o.n; k++) {
        const uint32_t m = (e->o.index + k) % e->o.n;
        size_t slice_at;
        const size_t n = slice_of(e, count, m, &slice_at);
        copy_out(e, out_at(e, at + slice_at), result_slot(e, m, chunk), n * e->elem_bytes);
    }
}

/* ---- small calls travel inside the announcement ---- */

static void use_inline(dtpi_shm *e)
{
    const size_t bytes = e->call.count * e->elem_bytes;

    switch (e->call.kind) {
    case DTPI_ALLREDUCE:
        for (uint32_t m = 0; m < e->o.n; m++)
            e->inputs[m].data = dtpi_shm_announcement(e, m)->data;
        dtpi_reduce(&e->reduction, e->program, e->n_steps, e->inputs, e->call.out, e->call.count,
                    DTPI_FINISH_FINAL);
        break;
    case DTPI_ALLGATHER:
        for (uint32_t m = 0; m < e->o.n; m++)
            memcpy((uint8_t *)e->call.out + m * bytes, dtpi_shm_announcement(e, m)->data, bytes);
        break;
    default:
        if ((uint32_t)e->call.root != e->o.index)
            memcpy(e->call.out, dtpi_shm_announcement(e, (uint32_t)e->call.root)->data, bytes);
        break;
    }
}

/* ---- publishing and looking ---- */

static void announce(dtpi_shm *e)
{
    dtpi_shm_line *line = dtpi_shm_announcement(e, e->o.index);

    line->header[0] = e->header[0];
    line->header[1] = e->header[1];
    if (e->plan.way == DTPI_PLAN_INLINE && e->call.count)
        memcpy(line->data, e->call.in, e->call.count * e->elem_bytes);
    atomic_store_explicit(&line->seq, e->seq, memory_order_release);
    dtpi_shm_ring(e);
}

static void publish(dtpi_shm *e, uint64_t iteration)
{
    if (iteration == 0) {
        announce(e);
    } else if (iteration + e->plan.lag < e->plan.n_iterations) {
        atomic_store_explicit(&e->own->tick, e->tick + iteration, memory_order_release);
        dtpi_shm_ring(e);
    }
}

static bool member_finished(const dtpi_shm *e, uint32_t m, uint64_t iteration)
{
    if (iteration == 0)
        return atomic_load_explicit(&dtpi_shm_announcement(e, m)->seq, memory_order_acquire) == e->seq;
    return atomic_load_explicit(&e->members[m].tick, memory_order_acquire) >= e->tick + iteration;
}

/* Remembers how far it got, so that a crowd is not counted again at every look. */
static bool all_finished(dtpi_shm *e, uint64_t iteration)
{
    while (e->n_seen < e->o.n) {
        if (e->n_seen != e->o.index && !member_finished(e, e->n_seen, iteration))
            return false;
        e->n_seen++;
    }
    return true;
}

bool dtpi_shm_ready(dtpi_shm *e)
{
    return e->iteration < e->plan.lag || all_finished(e, e->iteration - e->plan.lag);
}

/* The iteration that all must have finished before the present one. */
static uint64_t needed_now(const dtpi_shm *e)
{
    return e->iteration < e->plan.lag ? 0 : e->iteration - e->plan.lag;
}

void dtpi_shm_missing(const dtpi_shm *e, char *text_out, size_t room, int32_t *first_out)
{
    const uint64_t needed = needed_now(e);
    int32_t ranks[DTPI_SHM_MAX_MEMBERS];
    size_t n = 0;

    for (uint32_t m = 0; m < e->o.n; m++)
        if (m != e->o.index && !member_finished(e, m, needed))
            ranks[n++] = dtpi_shm_rank(e, m);
    *first_out = n ? ranks[0] : -1;
    dtpi_format_ranks(ranks, n, text_out, room);
}

/* In this order: what a member has done is final when it is seen to have left. */
int32_t dtpi_shm_missing_left(const dtpi_shm *e)
{
    for (uint32_t m = 0; m < e->o.n; m++)
        if (m != e->o.index && atomic_load_explicit(&e->members[m].left, memory_order_acquire) &&
            !member_finished(e, m, needed_now(e)))
            return (int32_t)m;
    return -1;
}

/* All announcements are there: the first one that differs is named against the first member's. */
static dtp_status check_headers(dtpi_shm *e, dtp_error *err)
{
    const dtpi_shm_line *first = dtpi_shm_announcement(e, 0);
    char one[80], other[80];

    for (uint32_t m = 0; m < e->o.n; m++) {
        const dtpi_shm_line *line = dtpi_shm_announcement(e, m);
        if (line->header[0] == first->header[0] && line->header[1] == first->header[1])
            continue;
        dtpi_coll_describe(first->header, one, sizeof(one));
        dtpi_coll_describe(line->header, other, sizeof(other));
        return dtpi_fail_rank(err, DTP_ERR_INVAL, dtpi_shm_rank(e, m),
                              "ranks call different collectives: rank %d %s, rank %d %s",
                              dtpi_shm_rank(e, 0), one, dtpi_shm_rank(e, m), other);
    }
    return DTP_OK;
}

/* ---- a call ---- */

static void begin_rings(dtpi_shm *e)
{
    const size_t bytes = e->plan.chunk * e->elem_bytes;
    const size_t slice = dtpi_shm_slice(e->plan.chunk, e->elem_bytes, e->o.n) * e->elem_bytes;

    if (e->plan.way == DTPI_PLAN_INLINE)
        return;
    dtpi_ring_begin(&e->ring, e->call.kind == DTPI_REDUCE_SCATTER ? bytes * e->o.n : bytes);
    if (e->plan.way == DTPI_PLAN_SLICES)
        dtpi_ring_begin(&e->results, slice);
}

/* Where members share processors, time says nothing about caches. */
static void choose_writing(dtpi_shm *e)
{
    const bool is_large = e->call.count * e->elem_bytes >= PAST_BYTES;

    e->write_past = is_large && e->far && ++e->n_past % PROBE_EVERY != 0;
    e->timed = is_large && !e->write_past && !e->oversubscribed && e->call.kind == DTPI_ALLREDUCE;
    e->timed_bytes = e->timed_ns = 0;
}

dtp_status dtpi_shm_begin(dtpi_shm *e, const dtpi_coll_call *call, dtp_error *err)
{
    assert(!e->busy);
    if (DTPI_UNLIKELY(e->broken))
        return dtpi_fail(err, e->broken, "an earlier collective of this group failed (%s)",
                         dtp_status_text(e->broken));
    e->elem_bytes = dtp_dtype_bytes(call->dtype);
    if (call->kind <= DTPI_REDUCE_SCATTER) {
        const dtp_status st = dtpi_reduction_init(&e->reduction, e->o.kernels, call->dtype, call->redop,
                                                  (int32_t)e->o.n, err);
        if (st < 0)
            return st;
    }
    /* After the first call the processor sets of all are there to be looked at. */
    if (e->seq == 1)
        e->oversubscribed = dtpi_shm_is_crowded(e);
    e->call = *call;
    if (DTPI_UNLIKELY(!call->count))
        e->call.in = e->call.out = e->slots;    /* NULL is legal then, and no place to count from */
    dtpi_coll_header(call, e->header);
    dtpi_shm_plan_make(&e->plan, call, e->elem_bytes, e->o.n, e->oversubscribed);
    begin_rings(e);
    choose_writing(e);
    dtpi_shm_write_cpu(e);
    e->seq++;
    e->iteration = 0;
    e->n_seen = 0;
    e->busy = true;
    return DTP_OK;
}

static dtp_status end_call(dtpi_shm *e)
{
    if (e->plan.way != DTPI_PLAN_INLINE)
        dtpi_ring_end(&e->ring, e->plan.n_chunks);
    if (e->plan.stream)
        e->o.kernels->stream_end();
    if (e->plan.way == DTPI_PLAN_SLICES)
        dtpi_ring_end(&e->results, e->plan.n_chunks);
    if (e->timed_ns)
        e->far = e->timed_bytes * 1000 / e->timed_ns < FAR_BYTES_PER_US;
    e->tick += e->plan.n_iterations - 1 - e->plan.lag;
    e->busy = false;
    return DTP_OK;
}

/* Nobody has used anything; members with a lag of two may have counted one iteration. */
static dtp_status end_mismatch(dtpi_shm *e, dtp_status st)
{
    e->tick += 2;
    e->busy = false;
    return st;
}

static void iterate(dtpi_shm *e, uint64_t i)
{
    const dtpi_shm_plan *p = &e->plan;

    if (p->way == DTPI_PLAN_SLICES && i >= 2 * p->lag)
        fetch_slices(e, i - 2 * p->lag);
    if (i >= p->lag && i - p->lag < p->n_chunks)
        use_timed(e, i - p->lag);
    if (i < p->n_chunks)
        copy_in(e, i);
    publish(e, i);
}

dtp_status dtpi_shm_step(dtpi_shm *e, dtp_error *err)
{
    const dtpi_shm_plan *p = &e->plan;

    for (; e->iteration < p->n_iterations; e->iteration++, e->n_seen = 0) {
        const uint64_t i = e->iteration;
        if (i >= p->lag && !all_finished(e, i - p->lag))
            return DTP_PENDING;
        if (i == p->lag) {
            const dtp_status st = check_headers(e, err);
            if (DTPI_UNLIKELY(st < 0))
                return end_mismatch(e, st);
        }
        if (p->way != DTPI_PLAN_INLINE)
            iterate(e, i);
        else if (i == 0)
            announce(e);
        else
            use_inline(e);
    }
    return end_call(e);
}
