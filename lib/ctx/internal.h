/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - the context's fields, for the files of this folder. */
#ifndef DTPI_CTX_INTERNAL_H
#define DTPI_CTX_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/types.h>

#include "ctx/ctx.h"

enum { DTPI_LOOP_BATCH = 64 };

typedef struct dtpi_pool {
    pthread_mutex_t mutex;
    pthread_cond_t more;
    dtpi_work *head, **tail;
    pthread_t *threads;
    uint32_t n_threads, width;
    uint32_t n_open;            /* works submitted and not yet done */
    bool stop;
} dtpi_pool;

struct dtp_ctx {
    dtp_allocator a;
    dtpi_log log;
    dtp_clock clock;
    _Atomic int busy;           /* dtp_busy */
    int (*interrupted)(void *user);
    void *interrupted_user;
    int64_t interrupt_asked_ns; /* by the real clock */
    bool closing;
    char *module_dir;
    struct {
        void *value;
        void (*close)(dtp_ctx *ctx, void *value);
    } slots[DTPI_SLOT_END];
    dtpi_slot slot_order[DTPI_SLOT_END];
    uint32_t n_slots;

    /* lock.c */
    _Atomic uint32_t lock;      /* 0 free, 1 held, 2 held and wanted, 3 held by a helper */
    _Atomic uintptr_t owner;
    uint32_t depth;
    _Atomic uint32_t n_wanting; /* threads that wait for the lock to begin a call */
    _Atomic uint32_t n_resting; /* threads that lent it and wait to go on */
    uint32_t n_stale;           /* of those, how many have not looked since something happened */
    _Atomic uint32_t turns;     /* counts who got it after waiting */
    _Atomic bool is_lending;    /* who holds it would lend it */
    const _Atomic uint32_t *fork_mark;  /* 1 here, 0 in a forked child */
    pid_t pid;

    /* help.c */
    _Atomic uint32_t n_helpers; /* threads inside dtpi_ctx_help */
    _Atomic uint32_t n_forbid_help;     /* who keeps them out of the loop */
    _Atomic uint32_t help_news; /* counts what they should look at */
    bool is_helped;             /* this turn is for them: no function of the user is called */
    dtpi_task *deferred_head, **deferred_tail;

    /* loop.c */
    int epoll_fd, event_fd, timer_fd;
    dtpi_source *sources;
    bool dispatching;
    bool needs_arm;             /* something changed outside a turn */
    bool has_arm_work;          /* a source has */
    dtpi_source *arm_next;
    _Atomic bool woken;
    struct epoll_event batch[DTPI_LOOP_BATCH];
    int n_batch, batch_at;
    dtpi_timer **heap;          /* 1-based */
    uint32_t n_heap, cap_heap;
    uint64_t timer_turn;
    int64_t timer_fd_at_ns;
    _Atomic int64_t virtual_ns;

    /* posted tasks */
    pthread_mutex_t post_mutex;
    dtpi_task *post_head, **post_tail;
    uint32_t n_posted;

    dtpi_pool pool;
};

/* loop.c */
dtp_status dtpi_loop_open(dtp_ctx *ctx, dtp_error *err);
void dtpi_loop_close(dtp_ctx *ctx);
/* One turn: waits until `deadline_ns` at the latest; true in *ran_out when something ran. */
dtp_status dtpi_loop_turn(dtp_ctx *ctx, int64_t deadline_ns, bool *ran_out, dtp_error *err);
void dtpi_loop_signal(dtp_ctx *ctx);
/* Makes the descriptor readable when, and only when, there is or will be something to run. */
void dtpi_loop_arm(dtp_ctx *ctx);
/* Runs the tasks that wait now, not those that they post; false when there were none. */
bool dtpi_loop_run_posted(dtp_ctx *ctx);

/* timer.c */
void dtpi_timers_free(dtp_ctx *ctx);
bool dtpi_timers_run(dtp_ctx *ctx);
int64_t dtpi_timers_next(const dtp_ctx *ctx);

/* lock.c */
dtp_status dtpi_lock_open(dtp_ctx *ctx, dtp_error *err);
void dtpi_lock_close(dtp_ctx *ctx);
void dtpi_lock_set_lending(dtp_ctx *ctx, bool lends);
/* Something happened: those that rest should look. */
void dtpi_lock_news(dtp_ctx *ctx);
/* Somebody should be let in. */
bool dtpi_lock_is_wanted(const dtp_ctx *ctx);
/* Lets others in and comes back. */
void dtpi_lock_lend(dtp_ctx *ctx, int64_t deadline_ns);
/* Takes a free lock that nobody wants, so that a caller who comes waits for it in any mode. */
bool dtpi_lock_try_help(dtp_ctx *ctx);

/* help.c */
/* True: the turn is a helper's, and the task waits for the next that is not. */
bool dtpi_loop_defer(dtp_ctx *ctx, dtpi_task *t);
void dtpi_loop_post_deferred(dtp_ctx *ctx);

/* pool.c */
dtp_status dtpi_pool_open(dtp_ctx *ctx, uint32_t n_threads, dtp_error *err);
bool dtpi_pool_is_idle(dtp_ctx *ctx);
/* Lets the workers finish what is queued and joins them; the mutex stays until free. */
void dtpi_pool_stop(dtp_ctx *ctx);
void dtpi_pool_free(dtp_ctx *ctx);

/* ctx.c: the real clock. */
int64_t dtpi_monotonic_ns(void);

#endif /* DTPI_CTX_INTERNAL_H */
