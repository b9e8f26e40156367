/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coll.c - the public collectives: checks, the fast way through shared memory, the way behind operations.
 */
#include "coll/coll.h"

#include <sched.h>
#include <sys/mman.h>

enum { NODE_MEMORY_TAG = 0x434f4c4c };

/* ---- opening ---- */

static void destroy(dtpi_group_guest *guest)
{
    dtpi_coll *c = DTPI_CONTAINER(guest, dtpi_coll, guest);
    const dtp_allocator *a = dtpi_ctx_alloc(c->ctx);

    if (dtpi_ctx_alive(c->ctx))
        dtpi_coll_cancel_all(c);
    dtpi_nodes_free(c->nodes);
    if (c->map) {
        if (c->shm.own && dtpi_ctx_alive(c->ctx))
            dtpi_shm_leave(&c->shm);
        dtpi_shm_detach(&c->shm);
        munmap(c->map, c->map_bytes);
    }
    dtpi_free(a, c->ranks, c->n_local * sizeof(*c->ranks));
    c->is_closed = true;
    if (!c->is_posted || !dtpi_ctx_alive(c->ctx))
        dtpi_free(a, c, sizeof(*c));
}

static void poll_group(void *user)
{
    dtpi_group_poll(user);
}

static dtp_status open_memory(dtpi_coll *c, int64_t deadline_ns, dtp_error *err)
{
    DTPI_AUTO_FD int fd = -1;

    const dtp_status st = dtpi_group_node_memory(c->group, NODE_MEMORY_TAG, dtpi_shm_bytes(c->n_local),
                                                 deadline_ns, &fd, err);
    if (st < 0)
        return st;
    void *map = mmap(NULL, dtpi_shm_bytes(c->n_local), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return dtpi_fail(err, DTP_ERR_NOMEM, "cannot map %zu bytes for collectives: %m",
                         dtpi_shm_bytes(c->n_local));
    c->map = map;
    c->map_bytes = dtpi_shm_bytes(c->n_local);
    return DTP_OK;
}

static dtp_status open_engine(dtpi_coll *c, int64_t deadline_ns, dtp_error *err)
{
    const int32_t rank = dtp_group_rank(c->group);
    const uint32_t node = dtpi_group_node(c->group, rank);
    dtpi_shm_opts o = { .n = c->n_local, .ctx = c->ctx, .allocator = dtpi_ctx_alloc(c->ctx) };

    if (c->n_local > DTPI_SHM_MAX_MEMBERS)
        return dtpi_fail(err, DTP_ERR_LIMIT, "%u ranks on one node: collectives reach %d", c->n_local,
                         DTPI_SHM_MAX_MEMBERS);
    for (uint32_t i = 0; i < c->n_local; i++)
        c->ranks[i] = dtpi_group_rank_on_node(c->group, node, i);
    dtp_status st = open_memory(c, deadline_ns, err);
    if (st < 0)
        return st;
    o.memory = c->map;
    o.bytes = c->map_bytes;
    o.index = dtpi_group_index_on_node(c->group, rank);
    o.ranks = c->ranks;
    o.verdict = dtpi_group_verdict_word(c->group);
    o.poll = poll_group;
    o.poll_user = c->group;
    st = dtpi_shm_attach(&c->shm, &o, err);
    if (st >= 0 && dtpi_group_n_nodes(c->group) > 1)
        st = dtpi_nodes_open(c->group, &c->shm, deadline_ns, &c->nodes, err);
    return st;
}

static dtp_status coll_open(dtp_group *group, int64_t deadline_ns, dtp_error *err)
{
    dtp_ctx *ctx = dtpi_group_ctx(group);
    dtpi_coll *c = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*c));
    dtp_status st = DTP_OK;

    if (!c)
        return dtpi_fail_nomem(err, sizeof(*c));
    c->guest.destroy = destroy;
    c->group = group;
    c->ctx = ctx;
    c->tail = &c->head;
    c->n_local = dtpi_group_n_on_node(group, dtpi_group_node(group, dtp_group_rank(group)));
    c->ranks = dtpi_alloc_array(dtpi_ctx_alloc(ctx), c->n_local, sizeof(*c->ranks));
    if (!c->ranks)
        st = dtpi_fail_nomem(err, c->n_local * sizeof(*c->ranks));
    else if (dtp_group_size(group) > 1)
        st = open_engine(c, deadline_ns, err);
    if (st < 0) {
        destroy(&c->guest);
        return st;
    }
    *dtpi_group_guest_slot(group, DTPI_GUEST_COLL) = &c->guest;
    return DTP_OK;
}

dtp_status dtpi_coll_get(dtp_group *group, int64_t deadline_ns, dtpi_coll **coll_out, dtp_error *err)
{
    dtpi_group_guest **slot = dtpi_group_guest_slot(group, DTPI_GUEST_COLL);

    if (DTPI_UNLIKELY(!*slot)) {
        const dtp_status st = coll_open(group, deadline_ns, err);
        if (st < 0)
            return st;
    }
    *coll_out = DTPI_CONTAINER(*slot, dtpi_coll, guest);
    return DTP_OK;
}

/* ---- one of two engines ---- */

dtp_status dtpi_coll_begin(dtpi_coll *c, const dtpi_coll_call *call, dtp_error *err)
{
    return c->nodes ? dtpi_nodes_begin(c->nodes, call, err) : dtpi_shm_begin(&c->shm, call, err);
}

dtp_status dtpi_coll_step(dtpi_coll *c, dtp_error *err)
{
    return c->nodes ? dtpi_nodes_step(c->nodes, err) : dtpi_shm_step(&c->shm, err);
}

dtp_status dtpi_coll_look(dtpi_coll *c, dtpi_shm_wait *w, dtp_error *err)
{
    const int64_t now = dtp_ctx_now_ns(c->ctx);

    return c->nodes ? dtpi_nodes_look(c->nodes, w, now, err) : dtpi_shm_look(&c->shm, w, now, err);
}

uint64_t dtpi_coll_progress(const dtpi_coll *c)
{
    return c->nodes ? dtpi_nodes_progress(c->nodes) : c->shm.iteration;
}

void dtpi_coll_give_up(dtpi_coll *c, dtp_status status)
{
    if (c->nodes)
        dtpi_nodes_give_up(c->nodes, status);
    else if (c->map)
        dtpi_shm_give_up(&c->shm, status);
}

dtp_status dtpi_coll_explain(dtpi_coll *c, dtp_status st, dtp_error *err)
{
    const _Atomic uint32_t *word = dtpi_group_verdict_word(c->group);

    if (st == DTP_ERR_PEER && word && atomic_load_explicit(word, memory_order_acquire))
        return dtpi_group_verdict(c->group, err);
    return st;
}

/* ---- calls ---- */

static size_t in_bytes(const dtpi_coll_call *call, int32_t size)
{
    const size_t own = call->count * dtp_dtype_bytes(call->dtype);

    return call->kind == DTPI_REDUCE_SCATTER ? own * (size_t)size : own;
}

static size_t out_bytes(const dtpi_coll_call *call, int32_t size)
{
    const size_t own = call->count * dtp_dtype_bytes(call->dtype);

    return call->kind == DTPI_ALLGATHER ? own * (size_t)size : own;
}

/* In place is where input and output are the same elements; any other overlap is an error. */
static bool overlaps(const dtp_group *group, const dtpi_coll_call *call)
{
    const int32_t size = dtp_group_size(group);
    const size_t own = call->count * dtp_dtype_bytes(call->dtype);
    const uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;
    const uintptr_t shift = own * (size_t)dtp_group_rank(group);

    if (in >= out + out_bytes(call, size) || out >= in + in_bytes(call, size))
        return false;
    if (call->kind == DTPI_REDUCE_SCATTER)
        return out != in + shift;
    return call->kind == DTPI_ALLGATHER ? in != out + shift : in != out;
}

dtp_status dtpi_coll_check(const dtp_group *group, const dtpi_coll_call *call, dtp_error *err)
{
    const size_t elem = dtp_dtype_bytes(call->dtype), size = (size_t)dtp_group_size(group);
    size_t all;

    if (DTPI_UNLIKELY(!elem))
        return dtp_dtype_bits(call->dtype)
                   ? dtpi_fail(err, DTP_ERR_INVAL, "elements of %s are no whole bytes",
                               dtp_dtype_name(call->dtype))
                   : dtpi_fail(err, DTP_ERR_INVAL, "no type has number %d", (int)call->dtype);
    if (DTPI_UNLIKELY(!dtpi_mul(call->count, elem, &all) || !dtpi_mul(all, size, &all) ||
                      all > PTRDIFF_MAX))
        return dtpi_fail(err, DTP_ERR_RANGE, "%zu elements of %s are too many", call->count,
                         dtp_dtype_name(call->dtype));
    if (DTPI_UNLIKELY((unsigned)call->redop > DTP_AVG))
        return dtpi_fail(err, DTP_ERR_INVAL, "no reduction has number %d", (int)call->redop);
    if (DTPI_UNLIKELY(call->root < 0 || (size_t)call->root >= size))
        return dtpi_fail_rank(err, DTP_ERR_RANGE, call->root, "root %d is outside a group of %zu",
                              call->root, size);
    if (call->count == 0)
        return DTP_OK;
    if (DTPI_UNLIKELY(!call->in || !call->out))
        return dtpi_fail(err, DTP_ERR_INVAL, "a buffer is NULL");
    if (DTPI_UNLIKELY(((uintptr_t)call->in | (uintptr_t)call->out) % DTPI_MIN(elem, (size_t)8)))
        return dtpi_fail(err, DTP_ERR_INVAL, "a buffer is not aligned to %s",
                         dtp_dtype_name(call->dtype));
    if (DTPI_UNLIKELY(overlaps(group, call)))
        return dtpi_fail(err, DTP_ERR_INVAL, "input and output overlap without being the same");
    return DTP_OK;
}

void dtpi_coll_alone(const dtpi_coll_call *call)
{
    if (call->in != call->out && call->count)
        memcpy(call->out, call->in, call->count * dtp_dtype_bytes(call->dtype));
}

static bool op_ended(void *user)
{
    return dtp_op_status(user, NULL) != DTP_PENDING;
}

/* The last transfer that is waited for has ended. */
static bool moves(void *user)
{
    return !dtpi_nodes_in_flight(user);
}

static bool never(void *user)
{
    (void)user;
    return false;
}

enum { YIELDS = 50, NAP_NS = 1000 * 1000 };

/* Messages are waited for in the loop, which their descriptor wakes; the ranks of this node as usual. */
static dtp_status idle_nodes(dtpi_coll *c, dtpi_shm_wait *w, dtp_error *err)
{
    if (!dtpi_nodes_in_flight(c->nodes))
        return dtpi_shm_idle(&c->shm, w, err);
    dtp_status st = dtpi_coll_look(c, w, err);
    if (st < 0)
        return st;
    if (w->n++ < YIELDS) {
        sched_yield();
        return DTP_OK;
    }
    st = dtpi_ctx_wait(c->ctx, moves, c->nodes, dtp_ctx_now_ns(c->ctx) + NAP_NS, err);
    if (st == DTP_ERR_TIMEOUT || st == DTP_ERR_BUSY)
        return DTP_OK;
    if (st < 0)
        dtpi_coll_give_up(c, st);
    return st;
}

static dtp_status run_nodes(dtpi_coll *c, const dtpi_coll_call *call, int timeout_ms, dtp_error *err)
{
    dtpi_shm_wait w = { .timeout_ms = timeout_ms };
    uint64_t at = 0;

    dtp_status st = dtpi_nodes_begin(c->nodes, call, err);
    while (st >= 0 && (st = dtpi_nodes_step(c->nodes, err)) == DTP_PENDING) {
        if (dtpi_nodes_progress(c->nodes) != at) {
            at = dtpi_nodes_progress(c->nodes);
            w.n = 0;
            w.idle_since_ns = 0;
            w.slept = false;
        }
        st = idle_nodes(c, &w, err);
    }
    return st;
}

/* Behind operations that have not ended: as an operation that is waited for. */
static dtp_status run_as_op(dtpi_coll *c, const dtpi_coll_call *call, int timeout_ms, dtp_error *err)
{
    dtp_op *op;

    /* Inside a callback nothing may wait, and then nothing may be started either. */
    dtp_status st = dtpi_ctx_wait(c->ctx, never, NULL, 0, err);
    if (st == DTP_ERR_BUSY && c->map)
        return st;
    st = dtpi_coll_start(c, call, timeout_ms, &op, err);
    if (st < 0)
        return st;
    st = dtpi_ctx_wait(c->ctx, op_ended, op, INT64_MAX, err);
    if (st == DTP_OK)
        st = dtp_op_status(op, err);
    else
        dtpi_coll_cancel_all(c);
    dtp_op_free(op);
    return st;
}

/* A group of one with nothing to stay behind; the types that it refuses are those of all groups. */
static dtp_status run_alone(const dtpi_coll_call *call, dtp_error *err)
{
    dtpi_reduction unused;
    dtp_status st = DTP_OK;

    if (call->kind <= DTPI_REDUCE_SCATTER)
        st = dtpi_reduction_init(&unused, &dtpi_kernels_base, call->dtype, call->redop, 1, err);
    if (st >= 0)
        dtpi_coll_alone(call);
    return st;
}

static dtp_status call_entered(dtp_group *group, const dtpi_coll_call *call, int timeout_ms,
                               dtp_error *err)
{
    const int ms = timeout_ms ? timeout_ms : dtpi_group_timeout_ms(group);
    dtpi_coll *c;

    dtp_status st = dtpi_group_check(group, err);
    if (st >= 0)
        st = dtpi_coll_check(group, call, err);
    if (st >= 0)
        st = dtpi_coll_get(group, dtpi_ctx_deadline(dtpi_group_ctx(group), ms, ms), &c, err);
    if (DTPI_UNLIKELY(st < 0))
        return st;
    if (!c->map && !c->head)
        return run_alone(call, err);
    if (DTPI_UNLIKELY(c->head))
        return run_as_op(c, call, ms, err);
    st = c->nodes ? run_nodes(c, call, ms, err) : dtpi_shm_run(&c->shm, call, ms, err);
    return DTPI_LIKELY(st >= 0) ? st : dtpi_coll_explain(c, st, err);
}

static dtp_status run(dtp_group *group, const dtpi_coll_call *call, int timeout_ms, dtp_error *err)
{
    dtp_ctx *ctx = dtpi_group_ctx(group);

    dtp_status st = dtpi_ctx_enter(ctx, err);
    if (DTPI_UNLIKELY(st < 0))
        return st;
    st = call_entered(group, call, timeout_ms, err);
    dtpi_ctx_leave(ctx);
    return DTPI_LIKELY(st >= 0) ? st : dtpi_noun(err, "coll", st);
}

static dtp_status start(dtp_group *group, const dtpi_coll_call *call, dtp_op **op_out, dtp_error *err)
{
    dtp_ctx *ctx = dtpi_group_ctx(group);
    const int ms = dtpi_group_timeout_ms(group);
    dtpi_coll *c;

    dtp_status st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return st;
    st = dtpi_group_check(group, err);
    if (st >= 0)
        st = dtpi_coll_check(group, call, err);
    if (st >= 0)
        st = dtpi_coll_get(group, dtpi_ctx_deadline(ctx, ms, ms), &c, err);
    if (st >= 0)
        st = dtpi_coll_start(c, call, ms, op_out, err);
    dtpi_ctx_leave(ctx);
    return dtpi_noun(err, "coll", st);
}

/* ---- the public functions ---- */

dtp_status dtp_allreduce(dtp_group *group, const void *in, void *out, size_t count, dtp_dtype dtype,
                         dtp_redop redop, int timeout_ms, dtp_error *err)
{
    const dtpi_coll_call call = { DTPI_ALLREDUCE, dtype, redop, 0, count, in, out };

    return run(group, &call, timeout_ms, err);
}

dtp_status dtp_reduce_scatter(dtp_group *group, const void *in, void *out, size_t count_per_rank,
                              dtp_dtype dtype, dtp_redop redop, int timeout_ms, dtp_error *err)
{
    const dtpi_coll_call call = { DTPI_REDUCE_SCATTER, dtype, redop, 0, count_per_rank, in, out };

    return run(group, &call, timeout_ms, err);
}

dtp_status dtp_allgather(dtp_group *group, const void *in, void *out, size_t count_per_rank,
                         dtp_dtype dtype, int timeout_ms, dtp_error *err)
{
    const dtpi_coll_call call = { DTPI_ALLGATHER, dtype, DTP_SUM, 0, count_per_rank, in, out };

    return run(group, &call, timeout_ms, err);
}

dtp_status dtp_broadcast(dtp_group *group, void *data, size_t count, dtp_dtype dtype, int32_t root,
                         int timeout_ms, dtp_error *err)
{
    const dtpi_coll_call call = { DTPI_BROADCAST, dtype, DTP_SUM, root, count, data, data };

    return run(group, &call, timeout_ms, err);
}

dtp_status dtp_allreduce_start(dtp_group *group, const void *in, void *out, size_t count,
                               dtp_dtype dtype, dtp_redop redop, dtp_op **op_out, dtp_error *err)
{
    const dtpi_coll_call call = { DTPI_ALLREDUCE, dtype, redop, 0, count, in, out };

    return start(group, &call, op_out, err);
}

dtp_status dtp_reduce_scatter_start(dtp_group *group, const void *in, void *out,
                                    size_t count_per_rank, dtp_dtype dtype, dtp_redop redop,
                                    dtp_op **op_out, dtp_error *err)
{
    const dtpi_coll_call call = { DTPI_REDUCE_SCATTER, dtype, redop, 0, count_per_rank, in, out };

    return start(group, &call, op_out, err);
}

dtp_status dtp_allgather_start(dtp_group *group, const void *in, void *out, size_t count_per_rank,
                               dtp_dtype dtype, dtp_op **op_out, dtp_error *err)
{
    const dtpi_coll_call call = { DTPI_ALLGATHER, dtype, DTP_SUM, 0, count_per_rank, in, out };

    return start(group, &call, op_out, err);
}

dtp_status dtp_broadcast_start(dtp_group *group, void *data, size_t count, dtp_dtype dtype,
                               int32_t root, dtp_op **op_out, dtp_error *err)
{
    const dtpi_coll_call call = { DTPI_BROADCAST, dtype, DTP_SUM, root, count, data, data };

    return start(group, &call, op_out, err);
}
