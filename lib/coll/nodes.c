/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes.c - collectives across nodes: each rank owns a segment, and a node speaks for its ranks.
 *
 * The order of additions is the tree over all ranks. A node reduces each largest subtree that lies within
 * it (an item) and sends that to the owner of a segment, who puts the items of all nodes together in the
 * tree's order: the same additions as on one machine, hence the same bits. What concerns the segment of
 * rank r is done on another node by its delegate there, the member number index(r) modulo members.
 * Data goes in rounds through the shared memory of the node: inputs in, segments reduced, results out.
 */
#include "coll/nodes_internal.h"

enum {
    CHUNK_BYTES = 512 << 10,
    TAG_REPORT = 0x434f0001,
    TAG_ITEMS,
    TAG_RESULT
};

static size_t align64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* ---- who does what ---- */

static int32_t delegate(const dtpi_nodes *n, uint32_t node, int32_t owner)
{
    return dtpi_group_rank_on_node(n->group, node, dtpi_group_index_on_node(n->group, owner) %
                                                       dtpi_group_n_on_node(n->group, node));
}

static bool is_remote(const dtpi_nodes *n, int32_t rank)
{
    return dtpi_group_node(n->group, rank) != n->node;
}

/* Another node's rank whose delegate here is `member`. */
static bool speaks_for(const dtpi_nodes *n, uint32_t member, int32_t rank)
{
    return is_remote(n, rank) && dtpi_group_index_on_node(n->group, rank) % n->shm->o.n == member;
}

/* ---- segments of a round ---- */

/* Elements of `rank`'s segment, and where they begin in a member's input area, in bytes. */
static size_t segment(const dtpi_nodes *n, int32_t rank, size_t *at_out)
{
    if (n->call.kind == DTPI_REDUCE_SCATTER) {
        *at_out = (size_t)rank * align64(n->chunk * n->elem_bytes);
        return n->count;
    }
    const size_t per = dtpi_shm_slice(n->count, n->elem_bytes, (uint32_t)n->world);
    const size_t at = DTPI_MIN(per * (size_t)rank, n->count);
    *at_out = at * n->elem_bytes;
    return DTPI_MIN(per, n->count - at);
}

static size_t result_stride(const dtpi_nodes *n)
{
    if (n->call.kind == DTPI_ALLREDUCE)
        return dtpi_shm_slice(n->count, n->elem_bytes, (uint32_t)n->world) * n->elem_bytes;
    return align64(n->chunk * n->elem_bytes);
}

/* Where the node keeps the result of `rank`: its own area, or a place in its delegate's. */
static uint8_t *result_of(const dtpi_nodes *n, int32_t rank)
{
    size_t place = 1;

    if (!is_remote(n, rank))
        return dtpi_shm_result_of(n->shm, dtpi_group_index_on_node(n->group, rank));
    const uint32_t member = dtpi_group_index_on_node(n->group, rank) % n->shm->o.n;
    for (int32_t r = 0; r < rank && n->call.kind != DTPI_BROADCAST; r++)
        place += speaks_for(n, member, r);
    assert((place + 1) * result_stride(n) <= DTPI_SHM_RESULT_BYTES);
    return dtpi_shm_result_of(n->shm, member) + place * result_stride(n);
}

static size_t item_bytes(const dtpi_nodes *n, const dtpi_item *item, size_t count)
{
    return align64(count * (item->n > 1 ? n->reduction.acc_bytes : n->elem_bytes));
}

static size_t items_bytes(const dtpi_nodes *n, uint32_t node, size_t count)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < n->n_items; i++)
        if (n->items[i].node == node)
            bytes += item_bytes(n, &n->items[i], count);
    return bytes;
}

/* ---- transfers ---- */

static dtp_status post(dtpi_nodes *n, bool is_send, int32_t peer, uint32_t tag, void *data, size_t bytes,
                       dtp_error *err)
{
    dtpi_xfer *x = &n->xfers[n->n_xfers];

    if (!bytes)
        return DTP_OK;
    *x = (dtpi_xfer){ 0 };
    n->peers[n->n_xfers++] = peer;
    return is_send ? dtpi_group_send(n->group, peer, tag, data, bytes, x, err)
                   : dtpi_group_recv(n->group, peer, tag, data, bytes, x, err);
}

/* PENDING while any transfer runs. */
static dtp_status settle(dtpi_nodes *n, dtp_error *err)
{
    if (dtpi_group_data_progress(n->group))
        n->moved++;
    for (; n->n_settled < n->n_xfers; n->n_settled++) {
        const dtpi_xfer *x = &n->xfers[n->n_settled];
        if (!x->done)
            return DTP_PENDING;
        n->moved++;
        if (x->status < 0)
            return dtpi_fail_rank(err, x->status, n->peers[n->n_settled],
                                  "a transfer with rank %d failed: %s", n->peers[n->n_settled],
                                  dtp_status_text(x->status));
    }
    n->n_xfers = n->n_settled = 0;
    return DTP_OK;
}

static bool reserve(dtpi_nodes *n, uint8_t **p, size_t *room, size_t bytes)
{
    if (bytes <= *room)
        return true;
    uint8_t *bigger = dtpi_alloc_aligned(n->allocator, bytes, 64);
    if (!bigger)
        return false;
    dtpi_free(n->allocator, *p, *room);
    *p = bigger;
    *room = bytes;
    return true;
}

/* ---- reports: do all ranks call the same ---- */

static void write_report(dtpi_nodes *n, dtpi_report *report)
{
    const uint64_t *first = dtpi_shm_header(n->shm, 0);

    *report = (dtpi_report){ .rank = { dtpi_shm_rank(n->shm, 0), -1 } };
    memcpy(report->header[0], first, sizeof(report->header[0]));
    for (uint32_t m = 1; m < n->shm->o.n && report->rank[1] < 0; m++) {
        const uint64_t *header = dtpi_shm_header(n->shm, m);
        if (header[0] == first[0] && header[1] == first[1])
            continue;
        report->rank[1] = dtpi_shm_rank(n->shm, m);
        memcpy(report->header[1], header, sizeof(report->header[1]));
    }
}

static dtp_status post_reports(dtpi_nodes *n, dtp_error *err)
{
    dtp_status st = DTP_OK;

    write_report(n, &n->reports[n->node]);
    for (uint32_t node = 0; node < n->n_nodes && st >= 0; node++) {
        const int32_t leader = dtpi_group_rank_on_node(n->group, node, 0);
        if (node == n->node)
            continue;
        st = post(n, false, leader, TAG_REPORT, &n->reports[node], sizeof(dtpi_report), err);
        if (st >= 0)
            st = post(n, true, leader, TAG_REPORT, &n->reports[n->node], sizeof(dtpi_report), err);
    }
    return st;
}

/* The first disagreement in order of nodes, in `out`; rank[1] stays -1 where all agree. */
static void judge_reports(const dtpi_nodes *n, dtpi_report *out)
{
    *out = n->reports[0];
    for (uint32_t node = 0; node < n->n_nodes; node++) {
        const dtpi_report *r = &n->reports[node];
        const bool inside = r->rank[1] >= 0;
        if (!inside && memcmp(r->header[0], out->header[0], sizeof(r->header[0])) == 0)
            continue;
        out->rank[1] = inside ? r->rank[1] : r->rank[0];
        memcpy(out->header[1], r->header[inside], sizeof(out->header[1]));
        return;
    }
}

static dtp_status read_verdict(const dtpi_nodes *n, dtp_error *err)
{
    dtpi_report r;
    char one[80], other[80];

    memcpy(&r, dtpi_shm_result_of(n->shm, 0), sizeof(r));
    if (r.rank[1] < 0)
        return DTP_OK;
    dtpi_coll_describe(r.header[0], one, sizeof(one));
    dtpi_coll_describe(r.header[1], other, sizeof(other));
    return dtpi_fail_rank(err, DTP_ERR_INVAL, r.rank[1],
                          "ranks call different collectives: rank %d %s, rank %d %s", r.rank[0], one,
                          r.rank[1], other);
}

/* ---- a round: copy in ---- */

static void copy_in(dtpi_nodes *n)
{
    const uint8_t *in = n->call.in;
    uint8_t *to = dtpi_shm_input_of(n->shm, n->shm->o.index);
    const size_t bytes = n->count * n->elem_bytes;

    if (n->call.kind == DTPI_REDUCE_SCATTER) {
        for (int32_t r = 0; r < n->world; r++)
            memcpy(to + (size_t)r * align64(n->chunk * n->elem_bytes),
                   in + ((size_t)r * n->call.count + n->at) * n->elem_bytes, bytes);
        return;
    }
    if (n->call.kind != DTPI_BROADCAST || n->call.root == n->rank)
        memcpy(to, in + n->at * n->elem_bytes, bytes);
}

/* ---- a round: items to their owners ---- */

/* This node's items of `owner`'s segment, one after the other into `to`. */
static uint8_t *reduce_items(dtpi_nodes *n, int32_t owner, uint8_t *to)
{
    int32_t program[2 * DTPI_SHM_MAX_MEMBERS];
    size_t at;
    const size_t count = segment(n, owner, &at);

    for (uint32_t i = 0; i < n->n_items; i++) {
        const dtpi_item *item = &n->items[i];
        if (item->node != n->node)
            continue;
        for (uint32_t r = item->first; r < item->first + item->n; r++)
            n->inputs[r].data =
                dtpi_shm_input_of(n->shm, dtpi_group_index_on_node(n->group, (int32_t)r)) + at;
        if (item->n > 1)
            dtpi_reduce(&n->reduction, program, dtpi_tree_program(program, item->first, item->n),
                        n->inputs, to, count, DTPI_FINISH_PARTIAL);
        else
            memcpy(to, n->inputs[item->first].data, count * n->elem_bytes);
        to += item_bytes(n, item, count);
    }
    return to;
}

static dtp_status exchange_items(dtpi_nodes *n, dtp_error *err)
{
    size_t at, bytes = 0, want = 0;
    const size_t own = segment(n, n->rank, &at);
    dtp_status st = DTP_OK;

    for (int32_t r = 0; r < n->world; r++)
        if (speaks_for(n, n->shm->o.index, r))
            bytes += items_bytes(n, n->node, segment(n, r, &at));
    for (uint32_t node = 0; node < n->n_nodes; node++)
        want += node == n->node ? 0 : items_bytes(n, node, own);
    if (!reserve(n, &n->send, &n->send_room, bytes + 64) ||
        !reserve(n, &n->recv, &n->recv_room, want + 64))
        return dtpi_fail_nomem(err, bytes + want);

    uint8_t *to = n->recv;
    for (uint32_t node = 0; node < n->n_nodes && st >= 0; node++) {
        if (node == n->node)
            continue;
        const size_t piece = items_bytes(n, node, own);
        st = post(n, false, delegate(n, node, n->rank), TAG_ITEMS, to, piece, err);
        to += piece;
    }
    to = n->send;
    for (int32_t r = 0; r < n->world && st >= 0; r++) {
        if (!speaks_for(n, n->shm->o.index, r))
            continue;
        uint8_t *end = reduce_items(n, r, to);
        st = post(n, true, r, TAG_ITEMS, to, (size_t)(end - to), err);
        to = end;
    }
    return st;
}

/* Puts the items of all nodes together. */
static void reduce_segment(dtpi_nodes *n)
{
    const uint8_t *piece = n->recv;
    size_t at;
    const size_t count = segment(n, n->rank, &at);
    const bool scatter = n->call.kind == DTPI_REDUCE_SCATTER;
    void *out = scatter ? (uint8_t *)n->call.out + n->at * n->elem_bytes
                        : dtpi_shm_result_of(n->shm, n->shm->o.index);

    for (uint32_t node = 0; node < n->n_nodes; node++)
        for (uint32_t i = 0; i < n->n_items; i++) {
            const dtpi_item *item = &n->items[i];
            if (item->node != node || node == n->node)
                continue;
            n->inputs[n->world + (int32_t)i] = (dtpi_input){ piece, item->n > 1 };
            piece += item_bytes(n, item, count);
        }
    for (uint32_t m = 0; m < n->shm->o.n; m++)
        n->inputs[dtpi_shm_rank(n->shm, m)].data = dtpi_shm_input_of(n->shm, m) + at;
    dtpi_reduce(&n->reduction, n->program, n->n_steps, n->inputs, out, count, DTPI_FINISH_FINAL);
}

/* ---- a round: results to all nodes ---- */

/* What this rank gives to the other nodes; 0 bytes where it gives nothing. */
static void *own_result(const dtpi_nodes *n, size_t *bytes_out)
{
    size_t at;

    *bytes_out = n->count * n->elem_bytes;
    if (n->call.kind == DTPI_ALLREDUCE) {
        *bytes_out = segment(n, n->rank, &at) * n->elem_bytes;
        return dtpi_shm_result_of(n->shm, n->shm->o.index);
    }
    if (n->call.kind == DTPI_REDUCE_SCATTER || (n->call.kind == DTPI_BROADCAST && n->call.root != n->rank))
        *bytes_out = 0;
    return dtpi_shm_input_of(n->shm, n->shm->o.index);
}

static size_t result_bytes(const dtpi_nodes *n, int32_t rank)
{
    size_t at;

    if (n->call.kind == DTPI_REDUCE_SCATTER || (n->call.kind == DTPI_BROADCAST && n->call.root != rank))
        return 0;
    return (n->call.kind == DTPI_ALLREDUCE ? segment(n, rank, &at) : n->count) * n->elem_bytes;
}

static dtp_status exchange_results(dtpi_nodes *n, dtp_error *err)
{
    size_t bytes;
    void *own = own_result(n, &bytes);
    dtp_status st = DTP_OK;

    for (int32_t r = 0; r < n->world && st >= 0; r++)
        if (speaks_for(n, n->shm->o.index, r))
            st = post(n, false, r, TAG_RESULT, result_of(n, r), result_bytes(n, r), err);
    for (uint32_t node = 0; node < n->n_nodes && st >= 0; node++)
        if (node != n->node)
            st = post(n, true, delegate(n, node, n->rank), TAG_RESULT, own, bytes, err);
    return st;
}

/* ---- a round: copy out ---- */

static void copy_out(dtpi_nodes *n)
{
    uint8_t *out = n->call.out;
    size_t at;

    for (int32_t r = 0; r < n->world; r++) {
        const size_t bytes = result_bytes(n, r);
        const uint8_t *from = result_of(n, r);
        uint8_t *to = out + n->at * n->elem_bytes;
        if (n->call.kind == DTPI_ALLREDUCE) {
            segment(n, r, &at);
            to += at;
        } else if (!is_remote(n, r)) {
            from = dtpi_shm_input_of(n->shm, dtpi_group_index_on_node(n->group, r));
        }
        if (n->call.kind == DTPI_ALLGATHER)
            to += (size_t)r * n->call.count * n->elem_bytes;
        if (bytes)
            memcpy(to, from, bytes);
    }
}

/* ---- the steps of a call ---- */

static size_t chunk_of(const dtpi_nodes *n)
{
    size_t bytes = CHUNK_BYTES;

    if (n->call.kind == DTPI_REDUCE_SCATTER || n->call.kind == DTPI_ALLGATHER)
        bytes = CHUNK_BYTES / (size_t)n->world;
    bytes = DTPI_MAX(bytes & ~(size_t)63, (size_t)64);
    return DTPI_MIN(bytes / n->elem_bytes, DTPI_MAX(n->call.count, (size_t)1));
}

dtp_status dtpi_nodes_begin(dtpi_nodes *n, const dtpi_coll_call *call, dtp_error *err)
{
    if (n->shm->broken)
        return dtpi_fail(err, n->shm->broken, "an earlier collective of this group failed (%s)",
                         dtp_status_text(n->shm->broken));
    n->elem_bytes = dtp_dtype_bytes(call->dtype);
    if (call->kind <= DTPI_REDUCE_SCATTER) {
        const dtp_status st = dtpi_reduction_init(&n->reduction, n->shm->o.kernels, call->dtype,
                                                  call->redop, n->world, err);
        if (st < 0)
            return st;
    }
    n->call = *call;
    if (!call->count)
        n->call.in = n->call.out = n->shm->slots;
    n->chunk = chunk_of(n);
    n->at = 0;
    n->count = DTPI_MIN(n->chunk, call->count);
    n->phase = 0;
    n->n_xfers = n->n_settled = 0;
    n->state = NODES_OPENED;
    dtpi_shm_open_call(n->shm, call);
    return DTP_OK;
}

static dtp_status end(dtpi_nodes *n, dtp_status st)
{
    dtpi_shm_close_call(n->shm, n->phase);
    n->state = NODES_IDLE;
    return st;
}

static void phase_done(dtpi_nodes *n)
{
    dtpi_shm_phase_done(n->shm, ++n->phase);
}

/* All on this node have opened the call: its first member compares with the other nodes. */
static dtp_status on_opened(dtpi_nodes *n, dtp_error *err)
{
    if (!dtpi_shm_all_opened(n->shm))
        return DTP_PENDING;
    n->state = NODES_REPORTS;
    return n->shm->o.index == 0 ? post_reports(n, err) : DTP_OK;
}

static dtp_status on_reports(dtpi_nodes *n, dtp_error *err)
{
    dtpi_report verdict;
    const dtp_status st = settle(n, err);

    if (st != DTP_OK)
        return st;
    if (n->shm->o.index == 0) {
        judge_reports(n, &verdict);
        memcpy(dtpi_shm_result_of(n->shm, 0), &verdict, sizeof(verdict));
    }
    copy_in(n);
    phase_done(n);
    n->state = NODES_COPIED;
    return DTP_OK;
}

static dtp_status on_copied(dtpi_nodes *n, dtp_error *err)
{
    if (!dtpi_shm_phase_all(n->shm, n->phase))
        return DTP_PENDING;
    const dtp_status st = n->phase == 1 ? read_verdict(n, err) : DTP_OK;
    if (st < 0)
        return end(n, st);
    n->state = NODES_READ;
    phase_done(n);
    return DTP_OK;
}

/* The verdict lies where results go: they may be written once all have read it. */
static dtp_status on_read(dtpi_nodes *n, dtp_error *err)
{
    if (!dtpi_shm_phase_all(n->shm, n->phase))
        return DTP_PENDING;
    n->state = NODES_ITEMS;
    return n->call.kind <= DTPI_REDUCE_SCATTER ? exchange_items(n, err) : DTP_OK;
}

static dtp_status on_items(dtpi_nodes *n, dtp_error *err)
{
    const dtp_status st = settle(n, err);

    if (st != DTP_OK)
        return st;
    if (n->call.kind <= DTPI_REDUCE_SCATTER)
        reduce_segment(n);
    n->state = NODES_RESULTS;
    return exchange_results(n, err);
}

static dtp_status on_results(dtpi_nodes *n, dtp_error *err)
{
    const dtp_status st = settle(n, err);

    if (st != DTP_OK)
        return st;
    phase_done(n);
    n->state = NODES_OUT;
    return DTP_OK;
}

static dtp_status on_out(dtpi_nodes *n, dtp_error *err)
{
    (void)err;
    if (!dtpi_shm_phase_all(n->shm, n->phase))
        return DTP_PENDING;
    copy_out(n);
    n->at += n->count;
    if (n->at >= n->call.count) {
        n->state = NODES_DONE;
        phase_done(n);
        return DTP_OK;
    }
    n->count = DTPI_MIN(n->chunk, n->call.count - n->at);
    n->state = NODES_NEXT;
    phase_done(n);
    return DTP_OK;
}

/* Areas of others may be written again once all have copied out. */
static dtp_status on_next(dtpi_nodes *n, dtp_error *err)
{
    (void)err;
    if (!dtpi_shm_phase_all(n->shm, n->phase))
        return DTP_PENDING;
    copy_in(n);
    phase_done(n);
    n->state = NODES_COPIED;
    return DTP_OK;
}

dtp_status dtpi_nodes_step(dtpi_nodes *n, dtp_error *err)
{
    static dtp_status (*const on[])(dtpi_nodes *n, dtp_error *err) = {
        [NODES_OPENED] = on_opened, [NODES_REPORTS] = on_reports, [NODES_COPIED] = on_copied,
        [NODES_READ] = on_read, [NODES_ITEMS] = on_items, [NODES_RESULTS] = on_results,
        [NODES_OUT] = on_out, [NODES_NEXT] = on_next,
    };

    while (n->state != NODES_DONE) {
        const dtp_status st = on[n->state](n, err);
        if (st < 0 && n->state != NODES_IDLE)
            dtpi_nodes_give_up(n, st);
        if (st != DTP_OK)
            return st;
        n->moved++;
    }
    return dtpi_shm_phase_all(n->shm, n->phase) ? end(n, DTP_OK) : DTP_PENDING;
}
