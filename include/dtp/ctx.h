/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtp/ctx.h - the context: one descriptor for the host's event loop, operations, clock, logging.
 *
 * Everything hangs off a context. Contexts share nothing. A host with a loop of its own polls
 * dtp_ctx_fd() for reading and calls dtp_ctx_dispatch(ctx, 0, ..) when it is readable; others call
 * blocking functions and never notice.
 */
#ifndef DTP_CTX_H
#define DTP_CTX_H

#include <dtp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtp_ctx dtp_ctx;
typedef struct dtp_op dtp_op;

typedef enum dtp_clock {
    DTP_CLOCK_REAL = 0,         /* CLOCK_MONOTONIC */
    /* Starts at 0; moves by dtp_ctx_advance(), and in a blocking call that would else wait for time: it
     * jumps to the next timer. dtp_ctx_dispatch() does not wait for time. */
    DTP_CLOCK_VIRTUAL = 1
} dtp_clock;

typedef enum dtp_busy {
    DTP_BUSY_FAIL = 0,          /* a second thread gets DTP_ERR_BUSY */
    /* A second thread waits for the first, and need not where that waits for a key or its change. */
    DTP_BUSY_WAIT = 1
} dtp_busy;

typedef struct dtp_ctx_opts {
    size_t size;
    const dtp_allocator *allocator;     /* copied; NULL: malloc */
    dtp_log_fn log;                     /* NULL: silent */
    void *log_user;
    dtp_log_level log_level;            /* 0: DTP_LOG_WARN */
    dtp_clock clock;
    dtp_busy busy;
    /* Asked about every 50 ms by blocking calls on their own thread; non-zero ends the call with
     * DTP_ERR_INTERRUPTED. NULL: never. */
    int (*interrupted)(void *user);
    void *interrupted_user;
    uint32_t n_pool_threads;            /* workers for slow work; 0: one per allowed core, at most 4 */
    const char *module_dir;             /* where driver modules lie; NULL: dtp/ beside the library */
} dtp_ctx_opts;

#define DTP_CTX_OPTS_INIT { .size = sizeof(dtp_ctx_opts) }

/*
 * Opens a context. Starts no thread, installs no signal handler; costs three descriptors.
 * Errors: INVAL, NOMEM, IO, LIMIT. Caller closes. Threads: any. Since 0.1.
 */
DTP_API dtp_status dtp_ctx_open(const dtp_ctx_opts *opts, dtp_ctx **ctx_out, dtp_error *err);

/*
 * Closes a context; everything opened on it must be closed before. NULL is fine. In a forked child
 * it frees memory and closes descriptors, and touches nothing that the parent uses.
 * Threads: ctx. Since 0.1.
 */
DTP_API void dtp_ctx_close(dtp_ctx *ctx);

/*
 * Changes what a second thread gets. With DTP_BUSY_WAIT two threads may ask `interrupted` at a time.
 * Errors: INVAL. Threads: any. Since 0.1.
 */
DTP_API dtp_status dtp_ctx_set_busy(dtp_ctx *ctx, dtp_busy busy, dtp_error *err);

/*
 * The one descriptor to poll for reading; it stays the same for the life of the context and is lent.
 * Threads: any. Since 0.1.
 */
DTP_API int dtp_ctx_fd(const dtp_ctx *ctx);

/*
 * Runs what is ready, waiting at most `timeout_ms` for something (0: not at all, negative: for ever).
 * Callbacks run inside, on this thread. Returns OK when something ran, PENDING when nothing did.
 * Errors: BUSY, FORKED, IO, INTERRUPTED. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ctx_dispatch(dtp_ctx *ctx, int timeout_ms, dtp_error *err);

/*
 * Makes a dispatch on another thread return soon (with PENDING where nothing ran), or the next one. A
 * blocking call goes on, but asks its `interrupted` at once. Threads: any. Since 0.1.
 */
DTP_API void dtp_ctx_wake(dtp_ctx *ctx);

/*
 * Time of the context's clock in nanoseconds. Threads: any. Since 0.1.
 */
DTP_API int64_t dtp_ctx_now_ns(const dtp_ctx *ctx);

/*
 * Moves a virtual clock forward by `ns` and lets due timers run at the next dispatch.
 * Errors: INVAL on a real clock. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ctx_advance(dtp_ctx *ctx, int64_t ns, dtp_error *err);

/* Called once, inside dispatch or a wait, when an operation has ended. */
typedef void (*dtp_op_fn)(void *user, dtp_op *op, dtp_status status);

/*
 * Waits until the operation ends or `timeout_ms` passes (negative: for ever; 0: one look) and returns
 * its status; TIMEOUT leaves it running. Detail of a failed operation is copied to `err`.
 * Errors: TIMEOUT, BUSY, FORKED, INTERRUPTED, and the operation's own. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_op_wait(dtp_op *op, int timeout_ms, dtp_error *err);

/*
 * PENDING while it runs, else how it ended. Never blocks. Threads: any. Since 0.1.
 */
DTP_API dtp_status dtp_op_status(const dtp_op *op, dtp_error *err);

/*
 * Asks an operation to end early; it then ends with CANCELED, or as it would have if it was quicker.
 * Threads: any. Since 0.1.
 */
DTP_API void dtp_op_cancel(dtp_op *op);

/*
 * Sets the function to call at the end; called at the next dispatch where it has ended already.
 * Threads: ctx. Since 0.1.
 */
DTP_API void dtp_op_on_done(dtp_op *op, dtp_op_fn fn, void *user);

/*
 * Gives the handle back; its function is not called any more. A running operation is cancelled (a
 * checkpoint save goes on) and finishes by itself; buffers lent to it must stay until then, so wait first. NULL is fine.
 * Threads: ctx. Since 0.1.
 */
DTP_API void dtp_op_free(dtp_op *op);

#ifdef __cplusplus
}
#endif

#endif /* DTP_CTX_H */
