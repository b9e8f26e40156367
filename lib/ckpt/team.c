/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.c - the caller never waits for a worker that has not begun: one that comes too late finds the team
 * closed and goes. So a pool that is busy with something else costs speed, not progress.
 */
#include "ckpt/team.h"

typedef struct team team;

typedef struct helper {
    dtpi_work work;
    team *team;
} helper;

struct team {
    const dtp_allocator *a;
    pthread_mutex_t mutex;
    pthread_cond_t idle;
    uint32_t n_refs, n_working, next_member;
    bool is_closed;
    void (*work)(void *user, uint32_t member);
    void *user;
    helper helpers[DTPI_TEAM_MAX];
};

uint32_t dtpi_team_width(const dtp_ctx *ctx)
{
    return ctx ? DTPI_MIN(dtpi_pool_width(ctx), (uint32_t)DTPI_TEAM_MAX) : 1;
}

static void drop_locked(team *t)
{
    const bool last = --t->n_refs == 0;

    pthread_mutex_unlock(&t->mutex);
    if (!last)
        return;
    pthread_cond_destroy(&t->idle);
    pthread_mutex_destroy(&t->mutex);
    dtpi_free(t->a, t, sizeof(*t));
}

static void help(dtpi_work *w)
{
    team *t = DTPI_CONTAINER(w, helper, work)->team;

    pthread_mutex_lock(&t->mutex);
    if (!t->is_closed) {
        const uint32_t member = t->next_member++;
        t->n_working++;
        pthread_mutex_unlock(&t->mutex);
        t->work(t->user, member);
        pthread_mutex_lock(&t->mutex);
        t->n_working--;
        pthread_cond_signal(&t->idle);
    }
    drop_locked(t);
}

/* Asks for helpers; those that cannot be had are done without. */
static team *gather(dtp_ctx *ctx, uint32_t n, void (*work)(void *user, uint32_t member), void *user)
{
    const dtp_allocator *a = dtpi_ctx_alloc(ctx);
    team *t = dtpi_alloc(a, sizeof(*t));

    if (!t)
        return NULL;
    *t = (team){ .a = a, .n_refs = 1, .next_member = 1, .work = work, .user = user };
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->idle, NULL);
    for (uint32_t i = 1; i < n; i++) {
        helper *h = &t->helpers[i];
        *h = (helper){ .work = { .work = help }, .team = t };
        pthread_mutex_lock(&t->mutex);
        t->n_refs++;
        pthread_mutex_unlock(&t->mutex);
        if (dtpi_pool_submit(ctx, &h->work, NULL) < 0) {
            pthread_mutex_lock(&t->mutex);
            drop_locked(t);
            break;
        }
    }
    return t;
}

dtp_status dtpi_team_run(dtp_ctx *ctx, uint32_t n, void (*work)(void *user, uint32_t member),
                         void *user, dtp_error *err)
{
    team *t = NULL;

    if (ctx && n > 1) {
        t = gather(ctx, DTPI_MIN(n, (uint32_t)DTPI_TEAM_MAX), work, user);
        if (!t)
            return dtpi_fail_nomem(err, sizeof(*t));
    }
    work(user, 0);
    if (!t)
        return DTP_OK;
    pthread_mutex_lock(&t->mutex);
    t->is_closed = true;
    while (t->n_working > 0)
        pthread_cond_wait(&t->idle, &t->mutex);
    drop_locked(t);
    return DTP_OK;
}

/* ---- the line ---- */

void dtpi_line_init(dtpi_line *l, uint64_t n)
{
    *l = (dtpi_line){ .n = n, .failed = UINT64_MAX };
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->moved, NULL);
}

void dtpi_line_free(dtpi_line *l)
{
    pthread_cond_destroy(&l->moved);
    pthread_mutex_destroy(&l->mutex);
}

bool dtpi_line_take(dtpi_line *l, uint64_t *unit_out)
{
    pthread_mutex_lock(&l->mutex);
    const bool ok = l->next < l->n && l->failed == UINT64_MAX;
    if (ok)
        *unit_out = l->next++;
    pthread_mutex_unlock(&l->mutex);
    return ok;
}

void dtpi_line_fail(dtpi_line *l, uint64_t unit, dtp_status st, const dtp_error *why)
{
    pthread_mutex_lock(&l->mutex);
    if (unit < l->failed) {
        l->failed = unit;
        l->status = st;
        l->why = *why;
    }
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->mutex);
}

bool dtpi_line_enter(dtpi_line *l, uint64_t unit)
{
    pthread_mutex_lock(&l->mutex);
    while (l->turn < unit && l->failed > unit)
        pthread_cond_wait(&l->moved, &l->mutex);
    const bool ok = l->failed > unit;
    pthread_mutex_unlock(&l->mutex);
    return ok;
}

void dtpi_line_leave(dtpi_line *l)
{
    pthread_mutex_lock(&l->mutex);
    l->turn++;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->mutex);
}

dtp_status dtpi_line_result(const dtpi_line *l, dtp_error *err)
{
    if (l->failed == UINT64_MAX)
        return DTP_OK;
    if (err)
        *err = l->why;
    return l->status;
}
