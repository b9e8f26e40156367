/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_wait.c - passing the time until others act: spin, give the processor away, sleep.
 *
 * With a processor for each member a short spin is best; where members share processors, the one that
 * is waited for needs ours. A sleeper lies on the bell. Whoever publishes looks for sleepers without a
 * fence, so the look may miss one that is just lying down: the first sleep lasts a millisecond at most,
 * and by its end the sleeper is visible to all.
 */
#include "coll/shm.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SPINS = 4000,               /* looks before yielding, where processors are enough: some 100 us */
    SPINS_EAGER = 400,          /* of them without a pause */
    SPINS_CROWDED = 20,
    LOOK_EVERY = 64,            /* spins between looks at the verdict */
    YIELD_NS = 300 * 1000,      /* yields before sleeping */
    SLEEP_FIRST_NS = 1000 * 1000,
    SLEEP_NS = 4000 * 1000,     /* a verdict is seen that soon */
    ASK_NS = 50 * 1000 * 1000   /* `interrupted` */
};

/* ---- processors ---- */

void dtpi_shm_write_cpus(dtpi_shm *e)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return;
    for (unsigned cpu = 0; cpu < DTPI_SHM_CPU_WORDS * 64 && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            e->own->cpus[cpu / 64] |= 1ull << (cpu % 64);
}

void dtpi_shm_write_cpu(dtpi_shm *e)
{
    const uint32_t cpu = (uint32_t)sched_getcpu() + 1;

    if (DTPI_LIKELY(cpu == e->cpu))
        return;
    e->cpu = cpu;
    atomic_store_explicit(&e->own->cpu, cpu, memory_order_relaxed);
}

bool dtpi_shm_is_crowded(const dtpi_shm *e)
{
    uint32_t n = 0;

    if (e->o.oversubscribed)
        return e->o.oversubscribed == 1;
    for (unsigned word = 0; word < DTPI_SHM_CPU_WORDS; word++) {
        uint64_t all = 0;
        for (uint32_t m = 0; m < e->o.n; m++)
            all |= e->members[m].cpus[word];
        n += (uint32_t)__builtin_popcountll(all);
    }
    return n < e->o.n;
}

/* ---- the bell ---- */

void dtpi_shm_ring_slow(dtpi_shm *e)
{
    atomic_fetch_add_explicit(&e->head->bell, 1, memory_order_seq_cst);
    syscall(SYS_futex, &e->head->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Sleeps unless a step got possible meanwhile; the caller steps again either way. */
static void lie_down(dtpi_shm *e, int64_t ns)
{
    const struct timespec ts = { .tv_nsec = (long)ns };

    atomic_fetch_add_explicit(&e->head->n_sleepers, 1, memory_order_seq_cst);
    const uint32_t bell = atomic_load_explicit(&e->head->bell, memory_order_seq_cst);
    if (!dtpi_shm_ready(e))
        syscall(SYS_futex, &e->head->bell, FUTEX_WAIT, bell, &ts, NULL, 0);
    atomic_fetch_sub_explicit(&e->head->n_sleepers, 1, memory_order_seq_cst);
}

/* ---- giving up ---- */

void dtpi_shm_give_up(dtpi_shm *e, dtp_status status)
{
    uint64_t none = 0;

    e->busy = false;
    e->broken = status;
    atomic_compare_exchange_strong(&e->head->gone, &none,
                                   (uint64_t)(uint32_t)-status << 32 | (e->o.index + 1));
    dtpi_shm_ring_slow(e);
}

/* OK: nobody who is waited for has left. */
static dtp_status fail_left(const dtpi_shm *e, dtp_error *err)
{
    const int32_t member = dtpi_shm_missing_left(e);
    char what[80];

    if (member < 0)
        return DTP_OK;
    dtpi_coll_describe(e->header, what, sizeof(what));
    return dtpi_fail_rank(err, DTP_ERR_PEER, dtpi_shm_rank(e, (uint32_t)member),
                          "%s: rank %d has left the group", what, dtpi_shm_rank(e, (uint32_t)member));
}

static dtp_status fail_gone(const dtpi_shm *e, dtp_error *err)
{
    const uint64_t gone = atomic_load(&e->head->gone);
    const uint32_t member = (uint32_t)gone - 1;
    const dtp_status why = -(dtp_status)(gone >> 32);
    char text[128];
    int32_t first;

    if (member >= e->o.n)
        return dtpi_fail(err, DTP_ERR_PROTO, "shared memory of the group is damaged");
    if (fail_left(e, err) < 0)
        return DTP_ERR_PEER;
    dtpi_shm_missing(e, text, sizeof(text), &first);
    return dtpi_fail_rank(err, DTP_ERR_PEER, dtpi_shm_rank(e, member),
                          "rank %d gave up (%s) while rank%s %s had not arrived",
                          dtpi_shm_rank(e, member), dtp_status_text(why),
                          strchr(text, ',') || strchr(text, '-') ? "s" : "", text);
}

static dtp_status fail_timeout(dtpi_shm *e, const dtpi_shm_wait *w, dtp_error *err)
{
    char text[128], what[80];
    int32_t first;

    dtpi_shm_missing(e, text, sizeof(text), &first);
    dtpi_coll_describe(e->header, what, sizeof(what));
    return dtpi_fail_rank(err, DTP_ERR_TIMEOUT, first, "rank%s %s not in %s after %d ms",
                          strchr(text, ',') || strchr(text, '-') ? "s" : "", text, what, w->timeout_ms);
}

/* ---- waiting ---- */

static int64_t now_ns(const dtpi_shm *e)
{
    struct timespec ts;

    if (e->o.ctx)
        return dtp_ctx_now_ns(e->o.ctx);
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * DTPI_NS_PER_S + ts.tv_nsec;
}

static bool has_verdict(const dtpi_shm *e)
{
    return e->o.verdict && atomic_load_explicit(e->o.verdict, memory_order_acquire) != 0;
}

static dtp_status look(dtpi_shm *e, dtp_error *err)
{
    dtp_status st = DTP_OK;

    if (DTPI_UNLIKELY(has_verdict(e)))
        st = DTP_ERR_PEER;
    else if (DTPI_UNLIKELY(atomic_load_explicit(&e->head->gone, memory_order_acquire) != 0))
        st = fail_gone(e, err);
    if (st < 0)
        dtpi_shm_give_up(e, st);
    return st;
}

/* Every 50 ms: the user's wish to stop, who has left, and whoever else wants to look around. */
static dtp_status ask(dtpi_shm *e, dtpi_shm_wait *w, int64_t now, dtp_error *err)
{
    if (now - w->asked_ns < ASK_NS)
        return DTP_OK;
    w->asked_ns = now;
    if (e->o.poll)
        e->o.poll(e->o.poll_user);
    if (e->o.ctx && dtpi_ctx_interrupted(e->o.ctx))
        return dtpi_fail(err, DTP_ERR_INTERRUPTED, "interrupted");
    return fail_left(e, err);
}

dtp_status dtpi_shm_look(dtpi_shm *e, dtpi_shm_wait *w, int64_t now, dtp_error *err)
{
    dtp_status st = look(e, err);

    if (st < 0)
        return st;
    if (!w->started_ns) {
        w->started_ns = w->asked_ns = now;
        w->deadline_ns = w->timeout_ms < 0 ? INT64_MAX : now + w->timeout_ms * DTPI_NS_PER_MS;
    }
    st = now >= w->deadline_ns ? fail_timeout(e, w, err) : ask(e, w, now, err);
    if (st < 0)
        dtpi_shm_give_up(e, st);
    return st;
}

/* Past the spinning: yields, then sleeps. */
static dtp_status idle_slow(dtpi_shm *e, dtpi_shm_wait *w, dtp_error *err)
{
    const int64_t now = now_ns(e);

    const dtp_status st = dtpi_shm_look(e, w, now, err);
    if (st < 0)
        return st;
    if (!w->idle_since_ns)
        w->idle_since_ns = now;
    if (now - w->idle_since_ns < YIELD_NS) {
        sched_yield();
        return DTP_OK;
    }
    /* A member that is waited for may itself wait for a save in the background, which needs our loop. */
    if (e->o.ctx)
        dtpi_ctx_help_turn(e->o.ctx);
    lie_down(e, DTPI_MIN((int64_t)(w->slept ? SLEEP_NS : SLEEP_FIRST_NS), w->deadline_ns - now));
    w->slept = true;
    return DTP_OK;
}

/* The member that is waited for was last seen on the processor that we are spinning on. */
static bool shares_cpu(dtpi_shm *e)
{
    const dtpi_shm_member *m = &e->members[DTPI_MIN(e->n_seen, e->o.n - 1)];

    dtpi_shm_write_cpu(e);
    return atomic_load_explicit(&m->cpu, memory_order_relaxed) == e->cpu;
}

static void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

dtp_status dtpi_shm_idle(dtpi_shm *e, dtpi_shm_wait *w, dtp_error *err)
{
    const uint32_t n = w->n++;

    if (n < SPINS_CROWDED)
        return DTP_OK;
    if (n == SPINS_CROWDED && (e->oversubscribed || shares_cpu(e)))
        w->n = SPINS;
    if (w->n < SPINS) {
        if (n > SPINS_EAGER)
            spin_pause();
        return n % LOOK_EVERY == LOOK_EVERY - 1 ? look(e, err) : DTP_OK;
    }
    return idle_slow(e, w, err);
}

dtp_status dtpi_shm_run(dtpi_shm *e, const dtpi_coll_call *call, int timeout_ms, dtp_error *err)
{
    dtpi_shm_wait w = { .timeout_ms = timeout_ms };
    uint64_t at = 0;

    dtp_status st = dtpi_shm_begin(e, call, err);
    if (st < 0)
        return st;
    while ((st = dtpi_shm_step(e, err)) == DTP_PENDING) {
        /* Spinning starts anew after progress; the deadline does not. */
        if (e->iteration != at) {
            at = e->iteration;
            w.n = 0;
            w.idle_since_ns = 0;
            w.slept = false;
        }
        st = dtpi_shm_idle(e, &w, err);
        if (DTPI_UNLIKELY(st < 0))
            return st;
    }
    return st;
}
