/* SPDX-License-Identifier: Apache-2.0 */
/* link_group.c - the ranks of a save talk over their group, on the lane of checkpoints. */
#include "ckpt/link.h"

#include "base/sum.h"
#include "group/group.h"

static int64_t deadline_of(dtp_group *group, int32_t timeout_ms)
{
    return dtpi_ctx_deadline(dtpi_group_ctx(group), timeout_ms, dtpi_group_timeout_ms(group));
}

static void give_gathered(const dtp_op *op, int32_t size, dtpi_link_each each, void *user)
{
    const dtpi_gathered *all = dtpi_group_gathered(op);
    const uint8_t *at = all->data;

    for (int32_t i = 0; i < size; i++) {
        each(user, i, at, all->sizes[i]);
        at += all->sizes[i];
    }
}

static dtp_status gather_group(dtpi_link *link, const void *data, size_t bytes, dtpi_link_each each,
                               void *user, dtp_error *err)
{
    const dtpi_group_link *l = DTPI_CONTAINER(link, dtpi_group_link, base);
    dtp_op *op = NULL;

    const dtp_status st = dtpi_group_allgather_on(l->group, DTPI_LANE_CKPT, data, bytes,
                                                  deadline_of(l->group, l->timeout_ms), &op, err);
    if (st < 0)
        return st;
    give_gathered(op, link->size, each, user);
    dtp_op_free(op);
    return st;
}

static dtpi_link base_of(dtp_group *group)
{
    const char *job = dtpi_group_job(group);

    return (dtpi_link){
        .rank = dtp_group_rank(group),
        .size = dtp_group_size(group),
        .job = dtpi_sum64(job, strlen(job)),
        .attempt = dtp_group_attempt(group),
        .generation = dtp_group_generation(group),
        .max_bytes = DTP_GROUP_MAX_MSG / 4 * 3,
    };
}

void dtpi_link_group(dtpi_group_link *link, dtp_group *group, int32_t timeout_ms)
{
    *link = (dtpi_group_link){ .base = base_of(group), .group = group, .timeout_ms = timeout_ms };
    link->base.gather = gather_group;
}

/* ---- from a thread outside the context ---- */

static void finish(dtpi_loop_link *l, dtp_status status)
{
    dtp_ctx *ctx = l->ctx;

    l->status = status;
    atomic_store(&l->is_done, true);
    dtpi_ctx_help_news(ctx);
}

/* Inside the context. */
static void ended(void *user, dtp_op *op)
{
    dtpi_loop_link *l = user;

    const dtp_status st = dtp_op_status(op, &l->why);
    if (st >= 0)
        give_gathered(op, l->base.size, l->each, l->user);
    dtp_op_free(op);
    finish(l, st);
}

/* An operation may have ended at once. */
static void start(dtpi_task *task)
{
    dtpi_loop_link *l = DTPI_CONTAINER(task, dtpi_loop_link, task);
    dtp_op *op = NULL;

    if (!l->group) {
        finish(l, dtpi_fail(&l->why, DTP_ERR_CANCELED, "the group was closed"));
        return;
    }
    const dtp_status st = dtpi_group_allgather_start(l->group, DTPI_LANE_CKPT, l->data, l->bytes,
                                                     deadline_of(l->group, l->timeout_ms), &op,
                                                     &l->why);
    if (st < 0)
        finish(l, st);
    else if (dtp_op_status(op, NULL) != DTP_PENDING)
        ended(l, op);
    else
        dtpi_op_on_end(op, ended, l);
}

static bool is_done(void *user)
{
    return atomic_load(&((dtpi_loop_link *)user)->is_done);
}

static dtp_status gather_loop(dtpi_link *link, const void *data, size_t bytes, dtpi_link_each each,
                              void *user, dtp_error *err)
{
    dtpi_loop_link *l = DTPI_CONTAINER(link, dtpi_loop_link, base);

    l->data = data;
    l->bytes = bytes;
    l->each = each;
    l->user = user;
    atomic_store(&l->is_done, false);
    dtpi_post(l->ctx, &l->task);
    dtpi_ctx_help(l->ctx, is_done, l);
    if (l->status < 0 && err)
        *err = l->why;
    return l->status;
}

void dtpi_link_loop(dtpi_loop_link *link, dtp_group *group, int32_t timeout_ms)
{
    *link = (dtpi_loop_link){ .base = base_of(group), .ctx = dtpi_group_ctx(group), .group = group,
                              .timeout_ms = timeout_ms, .task = { .run = start } };
    link->base.gather = gather_loop;
}
