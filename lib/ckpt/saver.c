/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saver.c - the thread behind a save in the background.
 *
 * The thread runs the same protocol as a synchronous save, on the copy. It touches the context only
 * through tasks, so that whoever is inside moves it. Its last task ends the operation; the thread is joined
 * by the next save, or when the context closes.
 */
#include "ckpt/saver.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "ckpt/save.h"
#include "ckpt/snapshot.h"
#include "group/group.h"

/* What an operation's handle may still need when the saver is gone. */
typedef struct ticket {
    const dtp_allocator *a;
    _Atomic uint32_t n_refs;
    _Atomic bool told;          /* of the failure */
    _Atomic bool canceled;
} ticket;

struct dtpi_saver {
    dtpi_group_guest guest;
    dtpi_saver *next;
    dtp_ctx *ctx;
    dtp_group *group;           /* NULL: none, or closed */
    bool is_orphan;             /* its group was closed */
    dtpi_loop_link link;
    dtpi_link alone;
    dtpi_snapshot snapshot;
    dtpi_known_plan known;
    uint64_t step, id;
    ticket *ticket;             /* of the last save */
    dtp_op *op;                 /* until it ends */
    pthread_t thread;
    bool has_thread;
    _Atomic bool is_over;
    dtpi_task end;
    dtp_status status;
    dtp_error failure;
};

/* What the context keeps. */
typedef struct savers {
    dtpi_saver *first;
} savers;

/* ---- the operation ---- */

static void ticket_unref(ticket *t)
{
    if (t && atomic_fetch_sub(&t->n_refs, 1) == 1)
        dtpi_free(t->a, t, sizeof(*t));
}

static void op_cancel(dtp_op *op)
{
    ticket *t = dtpi_op_owner(op);

    atomic_store(&t->canceled, true);
}

static void op_told(const dtp_op *op)
{
    ticket *t = dtpi_op_owner(op);

    atomic_store(&t->told, true);
}

static void op_destroy(dtp_op *op)
{
    ticket_unref(dtpi_op_owner(op));
}

static const dtpi_op_ops save_ops = { .name = "checkpoint save", .cancel = op_cancel, .told = op_told,
                                      .destroy = op_destroy, .outlives_handle = true };

/* ---- the thread ---- */

static bool is_over(void *user)
{
    return atomic_load(&((dtpi_saver *)user)->is_over);
}

/* Inside the context: the thread has nothing more to do. */
static void end(dtpi_task *task)
{
    dtpi_saver *s = DTPI_CONTAINER(task, dtpi_saver, end);
    dtp_ctx *ctx = s->ctx;
    dtp_op *op = DTPI_TAKE(s->op);

    if (s->status < 0)
        DTPI_LOG(ctx, DTP_LOG_WARN, "ckpt", "the save of step %" PRIu64 " failed: %s", s->step,
                 s->failure.text);
    dtpi_op_end(op, s->status, s->status < 0 ? &s->failure : NULL);
    atomic_store(&s->is_over, true);
    dtpi_ctx_help_news(ctx);
}

static dtp_status save(dtpi_saver *s, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(s->ctx);
    DTPI_AUTO(files) dtpi_files *files = NULL;
    dtp_error failure = { 0 };

    const dtp_status st =
        dtpi_files_open(a, dtpi_save_files_name(&s->snapshot.opts), &files, &failure);
    const dtpi_save_in in = {
        .a = a,
        .ctx = s->ctx,
        .log = dtpi_ctx_log(s->ctx),
        .files = files,
        .link = s->guest.destroy ? &s->link.base : &s->alone,
        .dir = s->snapshot.dir,
        .step = s->step,
        .tensors = s->snapshot.tensors,
        .n_tensors = s->snapshot.n,
        .opts = &s->snapshot.opts,
        .id = s->id,
        .failure = st < 0 ? &failure : NULL,
        .canceled = &s->ticket->canceled,
        .known = &s->known,
    };
    return dtpi_save(&in, err);
}

static void *run(void *arg)
{
    dtpi_saver *s = arg;

    s->status = save(s, &s->failure);
    dtpi_noun(&s->failure, "ckpt", s->status);
    dtpi_post(s->ctx, &s->end);
    dtpi_ctx_help(s->ctx, is_over, s);
    return NULL;
}

/* With all signals blocked, like every thread of the library. */
static dtp_status start_thread(dtpi_saver *s, dtp_error *err)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int e = pthread_create(&s->thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = e;
    if (e)
        return dtpi_fail(err, DTP_ERR_LIMIT, "cannot start a thread: %m");
    s->has_thread = true;
    return DTP_OK;
}

/* ---- savers of a context ---- */

/* In a forked child there is no thread; what it may have been changing when it vanished stays. */
static void saver_free(dtpi_saver *s)
{
    const dtp_allocator *a = dtpi_ctx_alloc(s->ctx);
    const bool vanished = s->has_thread && !dtpi_ctx_alive(s->ctx);

    if (s->has_thread && !vanished)
        pthread_join(s->thread, NULL);
    dtpi_snapshot_free(&s->snapshot);
    if (!vanished)
        dtpi_known_plan_forget(&s->known);
    ticket_unref(s->ticket);
    dtpi_free(a, s, sizeof(*s));
}

static void close_savers(dtp_ctx *ctx, void *value)
{
    savers *all = value;

    while (all->first) {
        dtpi_saver *s = all->first;
        all->first = s->next;
        /* The thread is joined below: no signal ends this wait, which asks every 50 ms. */
        while (s->op && dtpi_ctx_alive(ctx) &&
               dtpi_ctx_wait(ctx, is_over, s, INT64_MAX, NULL) == DTP_ERR_INTERRUPTED)
            continue;
        saver_free(s);
    }
    dtpi_free(dtpi_ctx_alloc(ctx), all, sizeof(*all));
}

static savers *get_savers(dtp_ctx *ctx)
{
    savers *all = dtpi_ctx_slot(ctx, DTPI_SLOT_CKPT);

    if (all)
        return all;
    all = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*all));
    if (!all)
        return NULL;
    dtpi_ctx_set_slot(ctx, DTPI_SLOT_CKPT, all, close_savers);
    return all;
}

/* Those whose group is closed and whose thread has ended. */
static void drop_orphans(savers *all)
{
    for (dtpi_saver **at = &all->first; *at;) {
        dtpi_saver *s = *at;
        if (!s->is_orphan || s->op) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        saver_free(s);
    }
}

/* The group closes: what is under way fails, and the thread ends by itself. */
static void group_closes(dtpi_group_guest *guest)
{
    dtpi_saver *s = DTPI_CONTAINER(guest, dtpi_saver, guest);

    s->group = s->link.group = NULL;
    s->is_orphan = true;
    if (s->ticket)
        atomic_store(&s->ticket->canceled, true);
}

dtpi_saver *dtpi_saver_find(dtp_ctx *ctx, dtp_group *group)
{
    const savers *all = dtpi_ctx_slot(ctx, DTPI_SLOT_CKPT);

    for (dtpi_saver *s = all ? all->first : NULL; s; s = s->next)
        if (!s->is_orphan && s->group == group)
            return s;
    return NULL;
}

dtp_status dtpi_saver_get(dtp_ctx *ctx, dtp_group *group, dtpi_saver **saver_out, dtp_error *err)
{
    savers *all = get_savers(ctx);
    dtpi_saver *s = dtpi_saver_find(ctx, group);

    if (!all)
        return dtpi_fail_nomem(err, sizeof(*all));
    drop_orphans(all);
    if (!s) {
        s = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*s));
        if (!s)
            return dtpi_fail_nomem(err, sizeof(*s));
        s->ctx = s->snapshot.ctx = ctx;
        s->group = group;
        s->next = all->first;
        all->first = s;
        if (group) {
            s->guest.destroy = group_closes;
            *dtpi_group_guest_slot(group, DTPI_GUEST_CKPT) = &s->guest;
        }
    }
    *saver_out = s;
    return DTP_OK;
}

/* ---- a save ---- */

dtpi_known_plan *dtpi_saver_known(dtpi_saver *s)
{
    return s ? &s->known : NULL;
}

bool dtpi_saver_is_busy(const dtpi_saver *s)
{
    return s && s->op;
}

dtp_status dtpi_saver_settle(dtpi_saver *s, dtp_error *err)
{
    if (!s || !s->has_thread)
        return DTP_OK;
    const dtp_status st = dtpi_ctx_wait(s->ctx, is_over, s, INT64_MAX, err);
    if (st < 0)
        return st;
    pthread_join(s->thread, NULL);
    s->has_thread = false;
    if (s->status >= 0 || atomic_exchange(&s->ticket->told, true))
        return DTP_OK;
    return dtpi_fail(err, s->status, "the save of step %" PRIu64 " before failed: %s", s->step,
                     s->failure.text);
}

static dtp_status new_ticket(dtpi_saver *s, dtp_error *err)
{
    ticket_unref(DTPI_TAKE(s->ticket));
    s->ticket = dtpi_alloc(dtpi_ctx_alloc(s->ctx), sizeof(*s->ticket));
    if (!s->ticket)
        return dtpi_fail_nomem(err, sizeof(*s->ticket));
    s->ticket->a = dtpi_ctx_alloc(s->ctx);
    atomic_init(&s->ticket->n_refs, 2);
    return DTP_OK;
}

/* The saver's and the operation's share of the ticket; the operation is pending until `end`. */
static dtp_status begin(dtpi_saver *s, dtp_op **op_out, dtp_error *err)
{
    dtp_status st = new_ticket(s, err);

    if (st >= 0)
        st = dtpi_op_new(s->ctx, &save_ops, s->ticket, &s->op, err);
    if (st < 0) {
        dtpi_free(dtpi_ctx_alloc(s->ctx), s->ticket, sizeof(*s->ticket));
        s->ticket = NULL;
        return st;
    }
    atomic_store(&s->is_over, false);
    s->status = DTP_PENDING;
    s->failure = (dtp_error){ 0 };
    s->end = (dtpi_task){ .run = end };
    *op_out = s->op;
    st = start_thread(s, err);
    if (st < 0) {
        dtpi_op_end(DTPI_TAKE(s->op), st, NULL);
        dtp_op_free(*op_out);
        *op_out = NULL;
    }
    return st;
}

dtp_status dtpi_saver_start(dtpi_saver *s, const char *dir, uint64_t step, uint64_t id,
                            const dtp_ckpt_tensor *tensors, size_t n,
                            const dtp_ckpt_save_opts *opts, dtp_op **op_out, dtp_error *err)
{
    dtp_op *op = NULL;

    dtp_status st = dtpi_snapshot_take(&s->snapshot, tensors, n, dir, opts, err);
    if (st < 0)
        return st;
    if (s->group)
        dtpi_link_loop(&s->link, s->group, opts->timeout_ms);
    else
        dtpi_link_alone(&s->alone);
    s->step = step;
    s->id = id;
    st = begin(s, &op, err);
    if (st >= 0)
        *op_out = op;
    return st;
}
