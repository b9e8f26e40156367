/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - a few workers for slow work. Threads start at the first submit, block all signals and call
 * only the library's own functions.
 */
#include "ctx/internal.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

enum { DEFAULT_WIDTH = 4 };

static uint32_t allowed_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return 1;
    return (uint32_t)CPU_COUNT(&set);
}

dtp_status dtpi_pool_open(dtp_ctx *ctx, uint32_t n_threads, dtp_error *err)
{
    dtpi_pool *p = &ctx->pool;

    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->more, NULL);
    p->tail = &p->head;
    p->width = n_threads ? n_threads : DTPI_MAX(1u, DTPI_MIN(allowed_cores(), DEFAULT_WIDTH));
    p->threads = dtpi_alloc_array(&ctx->a, p->width, sizeof(*p->threads));
    if (!p->threads)
        return dtpi_fail_nomem(err, p->width * sizeof(*p->threads));
    return DTP_OK;
}

static void finish(dtpi_task *t)
{
    dtpi_work *w = DTPI_CONTAINER(t, dtpi_work, task);
    dtpi_pool *p = &w->ctx->pool;

    pthread_mutex_lock(&p->mutex);
    p->n_open--;
    pthread_mutex_unlock(&p->mutex);
    w->done(w);
}

static void *worker(void *arg)
{
    dtp_ctx *ctx = arg;
    dtpi_pool *p = &ctx->pool;

    pthread_mutex_lock(&p->mutex);
    for (;;) {
        while (!p->head && !p->stop)
            pthread_cond_wait(&p->more, &p->mutex);
        if (!p->head)
            break;
        dtpi_work *w = p->head;
        p->head = w->next;
        if (!p->head)
            p->tail = &p->head;
        pthread_mutex_unlock(&p->mutex);
        /* Without `done`, w belongs to `work` from here on. */
        const bool tells = w->done != NULL;
        w->work(w);
        if (tells)
            dtpi_post(ctx, &w->task);
        pthread_mutex_lock(&p->mutex);
        if (!tells && --p->n_open == 0)
            dtpi_loop_signal(ctx);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* Starts one more thread with all signals blocked; with the mutex held. */
static int start_thread(dtp_ctx *ctx)
{
    dtpi_pool *p = &ctx->pool;
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int e = pthread_create(&p->threads[p->n_threads], NULL, worker, ctx);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e == 0)
        p->n_threads++;
    return e;
}

dtp_status dtpi_pool_submit(dtp_ctx *ctx, dtpi_work *w, dtp_error *err)
{
    dtpi_pool *p = &ctx->pool;
    int e = 0;

    w->ctx = ctx;
    w->next = NULL;
    w->task = (dtpi_task){ .run = finish };
    pthread_mutex_lock(&p->mutex);
    if (p->stop) {
        pthread_mutex_unlock(&p->mutex);
        return dtpi_fail(err, DTP_ERR_CANCELED, "the context is closing");
    }
    if (p->n_threads < p->width && p->n_open >= p->n_threads)
        e = start_thread(ctx);
    if (p->n_threads == 0) {
        pthread_mutex_unlock(&p->mutex);
        errno = e;
        return dtpi_fail(err, DTP_ERR_LIMIT, "cannot start a worker thread: %m");
    }
    *p->tail = w;
    p->tail = &w->next;
    p->n_open++;
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->mutex);
    return DTP_OK;
}

uint32_t dtpi_pool_width(const dtp_ctx *ctx)
{
    return ctx->pool.width;
}

bool dtpi_pool_is_idle(dtp_ctx *ctx)
{
    pthread_mutex_lock(&ctx->pool.mutex);
    const bool is_idle = ctx->pool.n_open == 0;
    pthread_mutex_unlock(&ctx->pool.mutex);
    return is_idle;
}

void dtpi_pool_stop(dtp_ctx *ctx)
{
    dtpi_pool *p = &ctx->pool;

    pthread_mutex_lock(&p->mutex);
    p->stop = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->mutex);
    for (uint32_t i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    p->n_threads = 0;
}

void dtpi_pool_free(dtp_ctx *ctx)
{
    dtpi_pool *p = &ctx->pool;

    dtpi_free(&ctx->a, p->threads, p->width * sizeof(*p->threads));
    if (!dtpi_ctx_alive(ctx))
        return;
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->mutex);
}
