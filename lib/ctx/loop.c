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
    /* The loop's own are told from sources by their address. */
    dtp_status st = watch(ctx, ctx->event_fd, &ctx->event_fd, err);
    if (st < 0)
        return st;
    return watch(ctx, ctx->timer_fd, &ctx->timer_fd, err);
}

void dtpi_loop_close(dtp_ctx *ctx)
{
    dtpi_timers_free(ctx);
    if (dtpi_ctx_alive(ctx))
        pthread_mutex_destroy(&ctx->post_mutex);
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
    if (!dtpi_ctx_alive(ctx))
        return;
    atomic_store(&ctx->woken, true);
    dtpi_loop_signal(ctx);
}

void dtpi_ctx_rearm(dtp_ctx *ctx)
{
    ctx->needs_arm = true;
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
    s->has_work = false;
    if (s->arm)
        dtpi_ctx_rearm(ctx);
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
    if (!t->is_queued) {
        t->is_queued = true;
        t->next = NULL;
        *ctx->post_tail = t;
        ctx->post_tail = &t->next;
        ctx->n_posted++;
    }
    pthread_mutex_unlock(&ctx->post_mutex);
    if (was_empty)
        dtpi_loop_signal(ctx);
}

/* Takes the task at *at out of the queue; with the mutex held. */
static dtpi_task *take_posted(dtp_ctx *ctx, dtpi_task **at)
{
    dtpi_task *t = *at;

    *at = t->next;
    if (!t->next)
        ctx->post_tail = at;
    t->is_queued = false;
    ctx->n_posted--;
    return t;
}

bool dtpi_post_cancel(dtp_ctx *ctx, dtpi_task *t)
{
    bool found = false;

    pthread_mutex_lock(&ctx->post_mutex);
    for (dtpi_task **at = &ctx->post_head; *at && !found; at = &(*at)->next) {
        found = *at == t;
        if (found) {
            take_posted(ctx, at);
            break;
        }
    }
    pthread_mutex_unlock(&ctx->post_mutex);
    return found;
}

bool dtpi_loop_run_posted(dtp_ctx *ctx)
{
    pthread_mutex_lock(&ctx->post_mutex);
    const uint32_t n = ctx->n_posted;
    for (uint32_t i = 0; i < n && ctx->post_head; i++) {
        dtpi_task *t = take_posted(ctx, &ctx->post_head);

        pthread_mutex_unlock(&ctx->post_mutex);
        t->run(t);
        pthread_mutex_lock(&ctx->post_mutex);
    }
    /* Posted meanwhile behind others, hence without a signal. */
    const bool has_more = ctx->post_head != NULL;
    pthread_mutex_unlock(&ctx->post_mutex);
    if (has_more)
        dtpi_loop_signal(ctx);
    return n > 0;
}

/* ---- a turn ---- */

/* One read takes all there is of an event or timer descriptor. */
static void drain(int fd)
{
    uint64_t n;

    if (read(fd, &n, sizeof(n)) < 0)
        return;
}

static bool run_batch(dtp_ctx *ctx)
{
    bool ran = false;

    for (ctx->batch_at = 0; ctx->batch_at < ctx->n_batch;) {
        struct epoll_event *ev = &ctx->batch[ctx->batch_at++];
        if (ev->data.ptr == &ctx->event_fd) {
            drain(ctx->event_fd);
        } else if (ev->data.ptr == &ctx->timer_fd) {
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

/* Asks the drivers; those that have work without their descriptor saying so are marked. */
static void arm_sources(dtp_ctx *ctx)
{
    for (dtpi_source *s = ctx->sources; s; s = s->next) {
        s->has_work = s->arm && !s->arm(s);
        ctx->has_arm_work |= s->has_work;
    }
}

void dtpi_loop_arm(dtp_ctx *ctx)
{
    ctx->needs_arm = false;
    arm_timer(ctx);
    arm_sources(ctx);
    if (ctx->has_arm_work)
        dtpi_loop_signal(ctx);
}

/* The marked drivers; any callback may remove sources, so the next one is kept in the context. */
static bool run_arm_work(dtp_ctx *ctx)
{
    bool ran = false;

    if (!ctx->has_arm_work)
        return false;
    ctx->has_arm_work = false;
    for (dtpi_source *s = ctx->sources; s; s = ctx->arm_next) {
        ctx->arm_next = s->next;
        if (s->has_work) {
            s->has_work = false;
            s->ready(s, 0);
            ran = true;
        }
    }
    ctx->arm_next = NULL;
    return ran;
}

/*
 * How long to sleep at most; -1 for ever. While a virtual clock stands still only workers,
 * descriptors and other threads can end a sleep, so it sleeps when nothing is to be had from time.
 */
static int sleep_ms(dtp_ctx *ctx, int64_t deadline_ns)
{
    const int64_t until = DTPI_MIN(deadline_ns, dtpi_timers_next(ctx));
    const int64_t now = dtp_ctx_now_ns(ctx);
    const int longest = ctx->interrupted ? INTERRUPT_EVERY_MS : -1;

    if (until <= now)
        return 0;
    if (until == INT64_MAX)
        return longest;
    if (ctx->clock == DTP_CLOCK_VIRTUAL)
        return dtpi_pool_is_idle(ctx) ? 0 : longest;
    const int64_t ms = (until - now) / DTPI_NS_PER_MS + 1;
    return (int)DTPI_MIN(ms, longest < 0 ? INT32_MAX : (int64_t)longest);
}

dtp_status dtpi_loop_turn(dtp_ctx *ctx, int64_t deadline_ns, bool *ran_out, dtp_error *err)
{
    if (!ctx->is_helped)
        dtpi_loop_post_deferred(ctx);
    if (!ctx->has_arm_work)
        arm_sources(ctx);
    const int n = epoll_wait(ctx->epoll_fd, ctx->batch, DTPI_LOOP_BATCH,
                             ctx->has_arm_work ? 0 : sleep_ms(ctx, deadline_ns));

    if (n < 0 && errno != EINTR)
        return dtpi_fail(err, DTP_ERR_IO, "cannot wait for events: %m");
    ctx->dispatching = true;
    ctx->n_batch = n > 0 ? n : 0;
    bool ran = run_batch(ctx);
    ran |= run_arm_work(ctx);
    ran |= dtpi_timers_run(ctx);
    ran |= dtpi_loop_run_posted(ctx);
    ctx->dispatching = false;
    dtpi_loop_arm(ctx);
    *ran_out = ran;
    return DTP_OK;
}

static dtp_status refuse_nested(dtp_error *err)
{
    return dtpi_fail(err, DTP_ERR_BUSY, "a blocking call from inside a callback");
}

/* Nothing more can come before the deadline. */
static bool is_over(dtp_ctx *ctx, int64_t deadline_ns)
{
    if (ctx->clock == DTP_CLOCK_VIRTUAL)
        return sleep_ms(ctx, deadline_ns) == 0;
    return dtp_ctx_now_ns(ctx) >= deadline_ns;
}

static dtp_status dispatch_until(dtp_ctx *ctx, int64_t deadline_ns, bool may_wait, dtp_error *err)
{
    for (;;) {
        bool ran = false;

        const dtp_status st = dtpi_loop_turn(ctx, deadline_ns, &ran, err);
        const bool was_woken = atomic_exchange(&ctx->woken, false);
        if (st < 0)
            return st;
        if (ran)
            return DTP_OK;
        if (was_woken || !may_wait)
            return DTP_PENDING;
        if (dtpi_ctx_interrupted(ctx))
            return dtpi_fail(err, DTP_ERR_INTERRUPTED, "interrupted");
        if (is_over(ctx, deadline_ns))
            return DTP_PENDING;
    }
}

dtp_status dtp_ctx_dispatch(dtp_ctx *ctx, int timeout_ms, dtp_error *err)
{
    dtp_status st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return st;
    if (ctx->dispatching) {
        st = refuse_nested(err);
    } else {
        const int64_t deadline = timeout_ms == 0 ? dtp_ctx_now_ns(ctx)
                                                 : dtpi_ctx_deadline(ctx, timeout_ms, 0);
        st = dispatch_until(ctx, deadline, timeout_ms != 0, err);
    }
    dtpi_ctx_leave(ctx);
    return st;
}

/* A virtual clock jumps to the next thing that can happen when nothing else will. */
static void jump(dtp_ctx *ctx, int64_t deadline_ns)
{
    const int64_t at = DTPI_MIN(deadline_ns, dtpi_timers_next(ctx));

    if (at != INT64_MAX && at > dtp_ctx_now_ns(ctx))
        atomic_store_explicit(&ctx->virtual_ns, at, memory_order_relaxed);
}

/* At most every 50 ms, and at once after dtp_ctx_wake. */
static bool ask_interrupted(dtp_ctx *ctx)
{
    const bool was_woken = atomic_exchange(&ctx->woken, false);

    if (!ctx->interrupted)
        return false;
    const int64_t now = dtpi_monotonic_ns();
    if (!was_woken && now - ctx->interrupt_asked_ns < INTERRUPT_EVERY_MS * DTPI_NS_PER_MS)
        return false;
    ctx->interrupt_asked_ns = now;
    return dtpi_ctx_interrupted(ctx);
}

/* One turn of a wait; where it `lends`, others may have had the context since. */
static dtp_status wait_turn(dtp_ctx *ctx, int64_t deadline_ns, bool lends, bool *ran_out,
                            dtp_error *err)
{
    dtp_status st = DTP_OK;

    if (lends)
        dtpi_lock_set_lending(ctx, true);
    /* A thread that comes now sees that it is lent, and ends the turn. */
    if (!lends || !dtpi_lock_is_wanted(ctx))
        st = dtpi_loop_turn(ctx, deadline_ns, ran_out, err);
    if (lends)
        dtpi_lock_set_lending(ctx, false);
    if (*ran_out)
        dtpi_lock_news(ctx);
    if (lends && dtpi_lock_is_wanted(ctx))
        dtpi_lock_lend(ctx, deadline_ns);
    return st;
}

static dtp_status wait_until(dtp_ctx *ctx, bool (*done)(void *user), void *user, int64_t deadline_ns,
                             bool lends, dtp_error *err)
{
    while (!done(user)) {
        const bool is_last = dtp_ctx_now_ns(ctx) >= deadline_ns;
        bool ran = false;

        if (ctx->dispatching)
            return refuse_nested(err);
        if (ask_interrupted(ctx))
            return dtpi_fail(err, DTP_ERR_INTERRUPTED, "interrupted");
        const dtp_status st = wait_turn(ctx, deadline_ns, lends && !is_last, &ran, err);
        if (st < 0)
            return st;
        if (is_last && !done(user))
            return DTP_ERR_TIMEOUT;
        if (!ran && ctx->clock == DTP_CLOCK_VIRTUAL && dtpi_pool_is_idle(ctx))
            jump(ctx, deadline_ns);
    }
    return DTP_OK;
}

dtp_status dtpi_ctx_wait(dtp_ctx *ctx, bool (*done)(void *user), void *user, int64_t deadline_ns,
                         dtp_error *err)
{
    return wait_until(ctx, done, user, deadline_ns, false, err);
}

dtp_status dtpi_ctx_wait_lending(dtp_ctx *ctx, bool (*done)(void *user), void *user,
                                 int64_t deadline_ns, dtp_error *err)
{
    return wait_until(ctx, done, user, deadline_ns,
                      ctx->busy == DTP_BUSY_WAIT && ctx->depth == 1 && ctx->clock == DTP_CLOCK_REAL,
                      err);
}
