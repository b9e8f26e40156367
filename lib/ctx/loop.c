/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c - the event loop behind one epoll descriptor, which holds an event, a timer and the sources.
 *
 * A host may poll the descriptor itself, so a turn always ends by arming: timers into the timer
 * descriptor, drivers through `arm`, and what is already known to be due into the event.
 */
#include "ctx/internal.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { INTERRUPT_EVERY_MS = 50 };

/* Marks in epoll_event.data.ptr for the loop's own descriptors. */
static char event_mark, timer_mark;

static dtp_status watch(dtp_ctx *ctx, int fd, void *ptr, dtp_error *err)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.ptr = ptr };

    if (epoll_ctl(ctx->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot watch descriptor %d: %m", fd);
    return DTP_OK;
}

dtp_status dtpi_loop_open(dtp_ctx *ctx, dtp_error *err)
{
    ctx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    ctx->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ctx->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    ctx->timer_fd_at_ns = INT64_MAX;
    if (ctx->epoll_fd < 0 || ctx->event_fd < 0 || ctx->timer_fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open a context's descriptors: %m");
    dtp_status st = watch(ctx, ctx->event_fd, &event_mark, err);
    if (st < 0)
        return st;
    return watch(ctx, ctx->timer_fd, &timer_mark, err);
}

static bool run_posted(dtp_ctx *ctx);

void dtpi_loop_close(dtp_ctx *ctx)
{
    /* Cancels and ends still on their way hold references. */
    while (dtpi_ctx_alive(ctx) && run_posted(ctx))
        continue;
    dtpi_timers_free(ctx);
    dtpi_close_fd(&ctx->timer_fd);
    dtpi_close_fd(&ctx->event_fd);
    dtpi_close_fd(&ctx->epoll_fd);
}

void dtpi_loop_signal(dtp_ctx *ctx)
{
    const uint64_t one = 1;

    /* EAGAIN means that it is signalled already. */
    if (write(ctx->event_fd, &one, sizeof(one)) < 0)
        return;
}

void dtp_ctx_wake(dtp_ctx *ctx)
{
    if (dtpi_ctx_alive(ctx))
        dtpi_loop_signal(ctx);
}

/* ---- sources ---- */

dtp_status dtpi_source_add(dtp_ctx *ctx, dtpi_source *s, dtp_error *err)
{
    struct epoll_event ev = { .events = s->events, .data.ptr = s };

    assert(s->ready && !s->prev);
    if (epoll_ctl(ctx->epoll_fd, EPOLL_CTL_ADD, s->fd, &ev) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot watch descriptor %d: %m", s->fd);
    s->next = ctx->sources;
    s->prev = &ctx->sources;
    if (s->next)
        s->next->prev = &s->next;
    ctx->sources = s;
    return DTP_OK;
}

dtp_status dtpi_source_modify(dtp_ctx *ctx, dtpi_source *s, uint32_t events, dtp_error *err)
{
    struct epoll_event ev = { .events = events, .data.ptr = s };

    if (s->events == events)
        return DTP_OK;
    if (epoll_ctl(ctx->epoll_fd, EPOLL_CTL_MOD, s->fd, &ev) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot change the watch on descriptor %d: %m", s->fd);
    s->events = events;
    return DTP_OK;
}

void dtpi_source_remove(dtp_ctx *ctx, dtpi_source *s)
{
    if (!s->prev)
        return;
    /* In a forked child the epoll set is the parent's: leave it alone. */
    if (dtpi_ctx_alive(ctx))
        epoll_ctl(ctx->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
    *s->prev = s->next;
    if (s->next)
        s->next->prev = s->prev;
    if (ctx->arm_next == s)
        ctx->arm_next = s->next;
    s->next = NULL;
    s->prev = NULL;
    for (int i = ctx->batch_at; i < ctx->n_batch; i++)
        if (ctx->batch[i].data.ptr == s)
            ctx->batch[i].data.ptr = NULL;
}

/* ---- posted tasks ---- */

void dtpi_post(dtp_ctx *ctx, dtpi_task *t)
{
    pthread_mutex_lock(&ctx->post_mutex);
    const bool was_empty = !ctx->post_head;
    t->next = NULL;
    *ctx->post_tail = t;
    ctx->post_tail = &t->next;
    pthread_mutex_unlock(&ctx->post_mutex);
    if (was_empty)
        dtpi_loop_signal(ctx);
}

static bool run_posted(dtp_ctx *ctx)
{
    pthread_mutex_lock(&ctx->post_mutex);
    dtpi_task *t = ctx->post_head;
    ctx->post_head = NULL;
    ctx->post_tail = &ctx->post_head;
    pthread_mutex_unlock(&ctx->post_mutex);
    const bool ran = t != NULL;
    while (t) {
        dtpi_task *next = t->next;
        t->run(t);
        t = next;
    }
    return ran;
}

/* ---- a turn ---- */

static void drain(int fd)
{
    uint64_t n;

    while (read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
        continue;
}

static bool run_batch(dtp_ctx *ctx)
{
    bool ran = false;

    for (ctx->batch_at = 0; ctx->batch_at < ctx->n_batch;) {
        struct epoll_event *ev = &ctx->batch[ctx->batch_at++];
        if (ev->data.ptr == &event_mark) {
            drain(ctx->event_fd);
        } else if (ev->data.ptr == &timer_mark) {
            drain(ctx->timer_fd);
            ctx->timer_fd_at_ns = INT64_MAX;
        } else if (ev->data.ptr) {
            dtpi_source *s = ev->data.ptr;
            s->ready(s, ev->events);
            ran = true;
        }
    }
    ctx->n_batch = ctx->batch_at = 0;
    return ran;
}

/* Puts the next timer into the timer descriptor (real clock only). */
static void arm_timer(dtp_ctx *ctx)
{
    const int64_t at = dtpi_timers_next(ctx);
    struct itimerspec ts = { { 0, 0 }, { 0, 0 } };

    if (ctx->clock == DTP_CLOCK_VIRTUAL) {
        if (at <= dtp_ctx_now_ns(ctx))
            dtpi_loop_signal(ctx);
        return;
    }
    if (at == ctx->timer_fd_at_ns)
        return;
    if (at != INT64_MAX) {
        ts.it_value.tv_sec = (time_t)(at / DTPI_NS_PER_S);
        ts.it_value.tv_nsec = (long)(at % DTPI_NS_PER_S);
        if (at <= 0)
            ts.it_value = (struct timespec){ 0, 1 };
    }
    timerfd_settime(ctx->timer_fd, TFD_TIMER_ABSTIME, &ts, NULL);
    ctx->timer_fd_at_ns = at;
}

/* Calls `ready` with 0 for drivers that have work without their descriptor saying so. */
static bool arm_sources(dtp_ctx *ctx)
{
    bool has_work = false;

    for (dtpi_source *s = ctx->sources, *next; s; s = next) {
        next = s->next;
        if (s->arm && !s->arm(s))
            has_work = true;
    }
    if (has_work)
        ctx->has_arm_work = true;
    return has_work;
}

/* Drivers with an `arm`; any callback may remove sources, so the next one is kept in the context. */
static bool run_arm_work(dtp_ctx *ctx)
{
    bool ran = false;

    if (!ctx->has_arm_work)
        return false;
    ctx->has_arm_work = false;
    for (dtpi_source *s = ctx->sources; s; s = ctx->arm_next) {
        ctx->arm_next = s->next;
        if (s->arm) {
            s->ready(s, 0);
            ran = true;
        }
    }
    return ran;
}

static int wait_ms(const dtp_ctx *ctx, int64_t deadline_ns)
{
    int64_t until = DTPI_MIN(deadline_ns, dtpi_timers_next(ctx));
    const int64_t now = dtp_ctx_now_ns(ctx);
    const int cap = ctx->interrupted ? INTERRUPT_EVERY_MS : INT32_MAX;

    if (ctx->clock == DTP_CLOCK_VIRTUAL)
        return 0;
    if (until == INT64_MAX)
        return ctx->interrupted ? INTERRUPT_EVERY_MS : -1;
    if (until <= now)
        return 0;
    return (int)DTPI_MIN((until - now + DTPI_NS_PER_MS - 1) / DTPI_NS_PER_MS, (int64_t)cap);
}

dtp_status dtpi_loop_turn(dtp_ctx *ctx, int64_t deadline_ns, bool *ran_out, dtp_error *err)
{
    const bool has_work = ctx->has_arm_work || arm_sources(ctx);
    const int n = epoll_wait(ctx->epoll_fd, ctx->batch, DTPI_LOOP_BATCH,
                             has_work ? 0 : wait_ms(ctx, deadline_ns));

    if (n < 0 && errno != EINTR)
        return dtpi_fail(err, DTP_ERR_IO, "cannot wait for events: %m");
    ctx->dispatching = true;
    ctx->n_batch = n > 0 ? n : 0;
    bool ran = run_batch(ctx);
    ran |= run_arm_work(ctx);
    ran |= dtpi_timers_run(ctx);
    ran |= run_posted(ctx);
    ctx->dispatching = false;
    arm_timer(ctx);
    if (arm_sources(ctx))
        dtpi_loop_signal(ctx);
    *ran_out = ran;
    return DTP_OK;
}

static dtp_status refuse_nested(dtp_error *err)
{
    return dtpi_fail(err, DTP_ERR_BUSY, "a blocking call from inside a callback");
}

dtp_status dtp_ctx_dispatch(dtp_ctx *ctx, int timeout_ms, dtp_error *err)
{
    bool ran = false;

    dtp_status st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return st;
    if (ctx->dispatching) {
        dtpi_ctx_leave(ctx);
        return refuse_nested(err);
    }
    const int64_t now = dtp_ctx_now_ns(ctx);
    const int64_t deadline = timeout_ms < 0 ? INT64_MAX : now + timeout_ms * DTPI_NS_PER_MS;
    st = dtpi_loop_turn(ctx, deadline, &ran, err);
    if (st >= 0 && !ran && timeout_ms != 0 && dtpi_ctx_interrupted(ctx))
        st = dtpi_fail(err, DTP_ERR_INTERRUPTED, "interrupted");
    dtpi_ctx_leave(ctx);
    return st < 0 ? st : ran ? DTP_OK : DTP_PENDING;
}

/* A virtual clock jumps to the next thing that can happen when nothing else will. */
static void jump(dtp_ctx *ctx, int64_t deadline_ns)
{
    const int64_t at = DTPI_MIN(deadline_ns, dtpi_timers_next(ctx));

    if (at != INT64_MAX && at > dtp_ctx_now_ns(ctx))
        atomic_store(&ctx->virtual_ns, at);
}

static bool pool_is_idle(dtp_ctx *ctx)
{
    pthread_mutex_lock(&ctx->pool.mutex);
    const bool idle = ctx->pool.n_open == 0;
    pthread_mutex_unlock(&ctx->pool.mutex);
    return idle;
}

static bool ask_interrupted(dtp_ctx *ctx)
{
    const int64_t now = dtp_ctx_now_ns(ctx);

    if (!ctx->interrupted || now - ctx->interrupt_asked_ns < INTERRUPT_EVERY_MS * DTPI_NS_PER_MS)
        return false;
    ctx->interrupt_asked_ns = now;
    return dtpi_ctx_interrupted(ctx);
}

dtp_status dtpi_ctx_wait(dtp_ctx *ctx, bool (*done)(void *user), void *user, int64_t deadline_ns,
                         dtp_error *err)
{
    if (!done(user) && ctx->dispatching)
        return refuse_nested(err);
    while (!done(user)) {
        bool ran = false;

        if (dtp_ctx_now_ns(ctx) >= deadline_ns)
            return DTP_ERR_TIMEOUT;
        if (ask_interrupted(ctx))
            return dtpi_fail(err, DTP_ERR_INTERRUPTED, "interrupted");
        const dtp_status st = dtpi_loop_turn(ctx, deadline_ns, &ran, err);
        if (st < 0)
            return st;
        if (!ran && ctx->clock == DTP_CLOCK_VIRTUAL && pool_is_idle(ctx))
            jump(ctx, deadline_ns);
    }
    return DTP_OK;
}
