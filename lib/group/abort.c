/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abort.c - an abort, from any thread: the root is told, and this rank's own calls end soon even
 * where the root does not answer.
 */
#include "group/group_internal.h"

#include <stdio.h>

/* What the root says comes first, so that all ranks say the same. */
#define ROOT_FIRST_NS (2 * DTPI_NS_PER_MS)

static bool is_aborted(const struct session *s)
{
    return atomic_load(&s->has_verdict) && s->verdict.status == DTP_ERR_ABORTED;
}

static void abort_due(dtpi_timer *t)
{
    struct session *s = DTPI_CONTAINER(t, struct session, abort_timer);
    dtpi_verdict v = { .status = DTP_ERR_ABORTED };

    if (is_aborted(s))
        return;
    pthread_mutex_lock(&s->mutex);
    snprintf(v.text, sizeof(v.text), "aborted by rank %d: %s", session_rank_of(s, s->rank),
             s->abort_reason);
    pthread_mutex_unlock(&s->mutex);
    session_fail(s, &v);
}

static void abort_posted(dtpi_task *task)
{
    struct session *s = DTPI_CONTAINER(task, struct session, abort_task);

    if (!is_aborted(s) &&
        dtpi_timer_set(s->ctx, &s->abort_timer, dtp_ctx_now_ns(s->ctx) + ROOT_FIRST_NS, NULL) < 0)
        abort_due(&s->abort_timer);
}

void session_init_abort(struct session *s)
{
    s->abort_task.run = abort_posted;
    s->abort_timer.due = abort_due;
}

void session_close_abort(struct session *s)
{
    if (!dtpi_ctx_alive(s->ctx))
        return;
    dtpi_post_cancel(s->ctx, &s->abort_task);
    dtpi_timer_clear(s->ctx, &s->abort_timer);
}

static void abort_alone(struct session *s)
{
    dtpi_verdict v = { .status = DTP_ERR_ABORTED };

    snprintf(v.text, sizeof(v.text), "aborted: %s", s->abort_reason);
    if (!atomic_load(&s->has_verdict)) {
        s->verdict = v;
        atomic_store(&s->has_verdict, true);
    }
}

void dtp_group_abort(dtp_group *g, const char *reason)
{
    struct session *s = g->session;

    if (!dtpi_ctx_alive(g->ctx))
        return;
    pthread_mutex_lock(&s->mutex);
    snprintf(s->abort_reason, sizeof(s->abort_reason), "%s", reason ? reason : "no reason given");
    if (s->link) {
        dtpi_buf b = session_begin(s, DTPI_F_ABORT, DTPI_WORLD_ID, 0, 0);
        dtpi_wr_text(&b, s->abort_reason);
        session_send(s, &b);
    }
    dtpi_control_set(s->control, DTP_ERR_ABORTED);
    if (!s->table)
        abort_alone(s);
    pthread_mutex_unlock(&s->mutex);
    if (s->table)
        dtpi_post(g->ctx, &s->abort_task);
    else
        dtp_ctx_wake(g->ctx);
}
