/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.c - collectives as operations: the first in line moves, in dispatch and in waits.
 *
 * Shared memory has no descriptor that says "go on", so a pending operation looks again: at once for
 * some turns, then by a timer that slows down to a look per millisecond. That keeps an idle process under
 * one percent of a processor and needs no thread. A cancelled collective leaves the others waiting for
 * what will not come, so it ends the collectives of its group.
 */
#include "coll/coll.h"

enum {
    EAGER_POLLS = 32,
    FIRST_DELAY_NS = 20 * 1000,
    LAST_DELAY_NS = 1000 * 1000
};

struct dtpi_coll_op {
    dtpi_coll_op *next;
    dtpi_coll *coll;            /* valid while it is listed */
    dtp_ctx *ctx;
    dtp_op *op;
    dtpi_coll_call call;
    dtpi_shm_wait wait;
    bool begun;
    bool listed;
};

static void cancel(dtp_op *op);

static void destroy(dtp_op *op)
{
    dtpi_coll_op *o = dtpi_op_owner(op);

    dtpi_free(dtpi_ctx_alloc(o->ctx), o, sizeof(*o));
}

static const dtpi_op_ops op_ops = { .name = "collective", .cancel = cancel, .destroy = destroy };

/* Takes the first operation off the line and ends it. */
static void end_head(dtpi_coll *c, dtp_status st, const dtp_error *err)
{
    dtpi_coll_op *o = c->head;

    c->head = o->next;
    if (!c->head)
        c->tail = &c->head;
    o->listed = false;
    dtpi_op_end(o->op, st, st < 0 ? err : NULL);
}

static void cancel(dtp_op *op)
{
    dtpi_coll_op *o = dtpi_op_owner(op);
    dtp_error err = { .rank = -1 };

    if (!o->listed)
        return;
    dtpi_coll *c = o->coll;
    dtpi_fail(&err, DTP_ERR_CANCELED, "a collective of the group was cancelled");
    dtpi_coll_give_up(c, DTP_ERR_CANCELED);
    while (c->head)
        end_head(c, DTP_ERR_CANCELED, &err);
}

void dtpi_coll_cancel_all(dtpi_coll *c)
{
    if (c->head)
        cancel(c->head->op);
    dtpi_timer_clear(c->ctx, &c->timer);
}

static dtp_status step_head(dtpi_coll *c, dtp_error *err)
{
    dtpi_coll_op *o = c->head;
    dtp_status st = DTP_OK;

    if (!c->map) {
        dtpi_coll_alone(&o->call);
        return DTP_OK;
    }
    if (!o->begun)
        st = dtpi_coll_begin(c, &o->call, err);
    o->begun = true;
    if (st >= 0)
        st = dtpi_coll_step(c, err);
    if (st == DTP_PENDING) {
        const dtp_status look = dtpi_coll_look(c, &o->wait, err);
        st = look < 0 ? look : DTP_PENDING;
    }
    return st < 0 ? dtpi_coll_explain(c, st, err) : st;
}

static void look_again(dtpi_coll *c)
{
    const uint32_t eager = EAGER_POLLS, n = c->n_polls++;
    const uint32_t doublings = n < eager ? 0 : DTPI_MIN((n - eager) / 8, 6u);
    const int64_t delay =
        n < eager ? 0 : DTPI_MIN((int64_t)FIRST_DELAY_NS << doublings, (int64_t)LAST_DELAY_NS);

    if (delay && dtpi_timer_set(c->ctx, &c->timer, dtp_ctx_now_ns(c->ctx) + delay, NULL) >= 0)
        return;
    if (!c->is_posted) {
        c->is_posted = true;
        dtpi_post(c->ctx, &c->task);
    }
}

static void move(dtpi_coll *c)
{
    while (c->head) {
        dtp_error err = { .rank = -1 };
        const uint64_t before = dtpi_coll_progress(c);
        const dtp_status st = step_head(c, &err);
        if (st == DTP_PENDING) {
            if (dtpi_coll_progress(c) != before)
                c->n_polls = 0;
            look_again(c);
            return;
        }
        c->n_polls = 0;
        dtpi_noun(&err, "coll", st);
        end_head(c, st, &err);
    }
}

static void run_task(dtpi_task *t)
{
    dtpi_coll *c = DTPI_CONTAINER(t, dtpi_coll, task);

    c->is_posted = false;
    if (c->is_closed)
        dtpi_free(dtpi_ctx_alloc(c->ctx), c, sizeof(*c));
    else
        move(c);
}

static void run_timer(dtpi_timer *t)
{
    move(DTPI_CONTAINER(t, dtpi_coll, timer));
}

dtp_status dtpi_coll_start(dtpi_coll *c, const dtpi_coll_call *call, int timeout_ms, dtp_op **op_out,
                           dtp_error *err)
{
    dtpi_reduction unused;
    dtp_status st = DTP_OK;

    if (call->kind <= DTPI_REDUCE_SCATTER)
        st = dtpi_reduction_init(&unused, &dtpi_kernels_base, call->dtype, call->redop, 1, err);
    if (st < 0)
        return st;
    dtpi_coll_op *o = dtpi_alloc(dtpi_ctx_alloc(c->ctx), sizeof(*o));
    if (!o)
        return dtpi_fail_nomem(err, sizeof(*o));
    o->coll = c;
    o->ctx = c->ctx;
    o->call = *call;
    o->wait.timeout_ms = timeout_ms;
    st = dtpi_op_new(c->ctx, &op_ops, o, &o->op, err);
    if (st < 0) {
        dtpi_free(dtpi_ctx_alloc(c->ctx), o, sizeof(*o));
        return st;
    }
    *op_out = o->op;
    o->listed = true;
    *c->tail = o;
    c->tail = &o->next;
    c->task.run = run_task;
    c->timer.due = run_timer;
    if (c->head == o) {
        c->n_polls = 0;
        move(c);
    }
    return DTP_OK;
}
