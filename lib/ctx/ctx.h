/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctx.h - the context from inside: sources, timers, posted tasks, pool, operations, modules.
 *
 * Everything except dtpi_post, dtp_ctx_now_ns and dtpi_ctx_alive runs on the thread that holds the
 * context. Objects are embedded in their owner (no allocation per timer or task).
 */
#ifndef DTPI_CTX_H
#define DTPI_CTX_H

#include <dtp/ctx.h>

#include "base/base.h"

/* ---- what it holds ---- */

const dtp_allocator *dtpi_ctx_alloc(const dtp_ctx *ctx);
const dtpi_log *dtpi_ctx_log(const dtp_ctx *ctx);

#define DTPI_LOG(ctx, level, topic, ...) dtpi_logf(dtpi_ctx_log(ctx), (level), (topic), __VA_ARGS__)

/*
 * What a higher floor keeps once per context. `close` is called by dtp_ctx_close, the last set first,
 * when nothing runs any more (in a forked child too: free memory, leave the rest alone).
 */
typedef enum dtpi_slot {
    DTPI_SLOT_GPU,
    DTPI_SLOT_NET,
    DTPI_SLOT_CKPT,             /* closed first, while the loop and the pool still run */
    DTPI_SLOT_END
} dtpi_slot;

/* NULL until it is set. */
void *dtpi_ctx_slot(const dtp_ctx *ctx, dtpi_slot slot);
void dtpi_ctx_set_slot(dtp_ctx *ctx, dtpi_slot slot, void *value,
                       void (*close)(dtp_ctx *ctx, void *value));

/* ---- entering (lock.c) ---- */

/*
 * Every public function of class "ctx" starts with enter and ends with leave:
 *     st = dtpi_ctx_enter(ctx, err); if (st < 0) return st;
 * The same thread may enter again (a callback calls in). Errors: BUSY, FORKED.
 */
dtp_status dtpi_ctx_enter(dtp_ctx *ctx, dtp_error *err);
void dtpi_ctx_leave(dtp_ctx *ctx);

/* False in a forked child: send and unlink nothing. Any thread; no system call. */
bool dtpi_ctx_alive(const dtp_ctx *ctx);

/* ---- sources: descriptors in the loop (loop.c) ---- */

typedef struct dtpi_source dtpi_source;
struct dtpi_source {
    int fd;                     /* not owned */
    uint32_t events;            /* EPOLLIN, EPOLLOUT; change with dtpi_source_modify */
    void (*ready)(dtpi_source *s, uint32_t revents);    /* mandatory; must not block */
    /*
     * Optional: called before the loop sleeps and before a host may poll; false: there is work now,
     * `ready` is called with 0. It must not call out, add or remove sources.
     */
    bool (*arm)(dtpi_source *s);
    /* the loop's own; zero before the source is added */
    dtpi_source *next, **prev;
    bool has_work;
};

dtp_status dtpi_source_add(dtp_ctx *ctx, dtpi_source *s, dtp_error *err);
dtp_status dtpi_source_modify(dtp_ctx *ctx, dtpi_source *s, uint32_t events, dtp_error *err);
/*
 * May be called from inside any callback; the source is not called again. Not added: nothing. Before
 * the descriptor is closed: a duplicate in another process would keep it in the loop.
 */
void dtpi_source_remove(dtp_ctx *ctx, dtpi_source *s);

/*
 * For a driver with `arm` that was given work outside a callback (a message put into a worker): it is
 * armed again when the context is left, so that a host's poll wakes. Timers do this by themselves.
 */
void dtpi_ctx_rearm(dtp_ctx *ctx);

/* ---- timers ---- */

typedef struct dtpi_timer dtpi_timer;
struct dtpi_timer {
    void (*due)(dtpi_timer *t);
    /* the loop's own; zero before the first set */
    int64_t at_ns;
    uint64_t turn;              /* of two timers due at the same time the one set first fires first */
    uint32_t slot;              /* in the heap, 1-based; 0: not set */
};

/* Sets or moves; fires once, never inside this call. INT64_MAX never. Errors: NOMEM (it is not set). */
dtp_status dtpi_timer_set(dtp_ctx *ctx, dtpi_timer *t, int64_t at_ns, dtp_error *err);
void dtpi_timer_clear(dtp_ctx *ctx, dtpi_timer *t);

/* ---- tasks posted from any thread ---- */

typedef struct dtpi_task dtpi_task;
struct dtpi_task {
    void (*run)(dtpi_task *t);
    /* the loop's own; zero before the first post */
    dtpi_task *next;
    bool is_queued;
};

/*
 * Runs `t` once at the next dispatch, on the context's thread; it must stay until then. A task that
 * waits already is not queued twice; `run` may post it again or free it. Any thread.
 */
void dtpi_post(dtp_ctx *ctx, dtpi_task *t);
/* Takes it back; false when it was not waiting (any more). */
bool dtpi_post_cancel(dtp_ctx *ctx, dtpi_task *t);

/* ---- waiting ---- */

/*
 * Dispatches until done(user) is true: OK. TIMEOUT (no text: the caller knows what was missing) when
 * deadline_ns passes (INT64_MAX: never), after at least one turn. INTERRUPTED, BUSY (from inside a
 * callback), IO. The caller has entered. A virtual clock jumps to the next timer, or the deadline, when
 * nothing is ready and the pool is idle.
 */
dtp_status dtpi_ctx_wait(dtp_ctx *ctx, bool (*done)(void *user), void *user, int64_t deadline_ns,
                         dtp_error *err);

/*
 * The same; meanwhile other threads that wait for the context (DTP_BUSY_WAIT) have it, so `done` must
 * become true whichever thread runs the loop, and the caller looks at nothing that they may have closed.
 */
dtp_status dtpi_ctx_wait_lending(dtp_ctx *ctx, bool (*done)(void *user), void *user,
                                 int64_t deadline_ns, dtp_error *err);

/*
 * For a thread of the library's own, outside the context: returns when done(user), which looks at atomics
 * alone; meanwhile it runs the loop wherever nobody else does, without calling functions of the user.
 * Whoever makes done(user) true says so with dtpi_ctx_help_news, from any thread.
 */
void dtpi_ctx_help(dtp_ctx *ctx, bool (*done)(void *user), void *user);
void dtpi_ctx_help_news(dtp_ctx *ctx);
/* For as long as events of the loop call functions of the user: only callers run it. Counted. */
void dtpi_ctx_forbid_help(dtp_ctx *ctx, bool forbids);
/* For waits inside the context that do not dispatch (spins): one such turn where a helper waits for it. */
void dtpi_ctx_help_turn(dtp_ctx *ctx);

/* Asks the caller's `interrupted`, for loops that do not dispatch (spins). */
bool dtpi_ctx_interrupted(dtp_ctx *ctx);

/* now + timeout_ms; negative: INT64_MAX; 0: default_ms is taken. */
int64_t dtpi_ctx_deadline(const dtp_ctx *ctx, int timeout_ms, int default_ms);

/* ---- pool of workers (pool.c) ---- */

typedef struct dtpi_work dtpi_work;
struct dtpi_work {
    void (*work)(dtpi_work *w);     /* on a pool thread, signals blocked */
    /* Inside dispatch, on the context's thread, while it closes too. NULL: `work` may free it. */
    void (*done)(dtpi_work *w);
    dtpi_work *next;
    dtpi_task task;
    dtp_ctx *ctx;
};

/*
 * Queues; starts threads on first use. Closing the context waits for what is queued. Errors: LIMIT (no
 * thread could be started), CANCELED (the context closes).
 */
dtp_status dtpi_pool_submit(dtp_ctx *ctx, dtpi_work *w, dtp_error *err);
/* Threads the pool has or would start. */
uint32_t dtpi_pool_width(const dtp_ctx *ctx);

/* ---- operations (op.c) ---- */

typedef struct dtpi_op_ops {
    const char *name;
    /* Optional: on the context's thread, while it runs; should end the op soon, may end it now. */
    void (*cancel)(dtp_op *op);
    /* Optional: dtp_op_status, or a wait, told a failure. Any thread. */
    void (*told)(const dtp_op *op);
    bool outlives_handle;       /* it is not cancelled when its handle is given back */
    /* Optional: the last reference is gone, free dtpi_op_owner. Any thread that frees the handle. */
    void (*destroy)(dtp_op *op);
} dtpi_op_ops;

/* Who makes operations ends them all before it is closed. */
dtp_status dtpi_op_new(dtp_ctx *ctx, const dtpi_op_ops *ops, void *owner, dtp_op **op_out,
                       dtp_error *err);
void *dtpi_op_owner(const dtp_op *op);
/*
 * Called when it ends, on the context's thread, before anybody waits on; set before it can end. It may free
 * the handle.
 */
void dtpi_op_on_end(dtp_op *op, void (*fn)(void *user, dtp_op *op), void *user);
/* Ends it, once; `detail` (NULL: a text is made) is copied. The owner's reference is given up. */
void dtpi_op_end(dtp_op *op, dtp_status status, const dtp_error *detail);

/* ---- modules (module.c) ---- */

enum { DTPI_MODULE_ABI = 1 };

typedef struct dtpi_module {
    uint32_t abi;
    const char *name;           /* "topo-hwloc" */
    const void *ops;            /* struct of the family */
} dtpi_module;

/* At the end of a driver that may be a module: DTPI_MODULE(topo_hwloc, "topo-hwloc", &ops); */
#ifdef DTPI_BUILTIN
#define DTPI_MODULE(ident, text, ops_ptr)                                                           \
    extern const dtpi_module dtpi_module_##ident;                                                   \
    const dtpi_module dtpi_module_##ident = { DTPI_MODULE_ABI, text, ops_ptr }
#else
#define DTPI_MODULE(ident, text, ops_ptr)                                                           \
    extern DTP_API const dtpi_module dtpi_module_this;                                              \
    DTP_API const dtpi_module dtpi_module_this = { DTPI_MODULE_ABI, text, ops_ptr }
#endif

/*
 * Finds and loads a module once (it stays loaded for the life of the process). Errors: UNSUPPORTED
 * (not there, or its libraries are not: the text says which), VERSION.
 */
dtp_status dtpi_module_load(dtp_ctx *ctx, const char *name, const void **ops_out, dtp_error *err);

/*
 * The file `name` beside the library (dtp/NAME, NAME, ../lib/dtp/NAME, ../libexec/dtp/NAME, ../tools/NAME)
 * into `path_out`; false when it is nowhere. Used for modules and for the shim.
 */
bool dtpi_find_beside(const dtp_ctx *ctx, const char *name, char *path_out, size_t room);

#endif /* DTPI_CTX_H */
