/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c - the caller and the pool's workers take pieces from one list until it is empty. A worker that
 * comes late finds nothing and goes; nobody waits for it.
 */
#include "ckpt/copy.h"

#include <pthread.h>

#include "ckpt/plan.h"
#include "ctx/ctx.h"

enum { PIECE = 4 << 20, SHARED_FROM = 16 << 20, MAX_HELPERS = 15 };

typedef struct copier copier;

typedef struct helper {
    dtpi_work work;
    copier *c;
} helper;

struct copier {
    const dtp_allocator *a;
    const dtp_ckpt_tensor *to, *from;
    size_t n;
    pthread_mutex_t mutex;
    pthread_cond_t quiet;
    size_t tensor, at;          /* of the next piece */
    uint32_t n_busy;            /* pieces on their way */
    uint32_t n_refs;
    helper helpers[MAX_HELPERS];
};

typedef struct piece {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
} piece;

/* With the mutex held. */
static bool next_piece(copier *c, piece *p)
{
    while (c->tensor < c->n) {
        const size_t bytes = (size_t)dtpi_plan_bytes(&c->from[c->tensor]);
        if (c->at < bytes) {
            *p = (piece){ (uint8_t *)c->to[c->tensor].data + c->at,
                          (const uint8_t *)c->from[c->tensor].data + c->at,
                          DTPI_MIN(bytes - c->at, (size_t)PIECE) };
            c->at += p->bytes;
            return true;
        }
        c->tensor++;
        c->at = 0;
    }
    return false;
}

static void copy_pieces(copier *c)
{
    piece p;

    pthread_mutex_lock(&c->mutex);
    while (next_piece(c, &p)) {
        c->n_busy++;
        pthread_mutex_unlock(&c->mutex);
        memcpy(p.to, p.from, p.bytes);
        pthread_mutex_lock(&c->mutex);
        c->n_busy--;
    }
    if (c->n_busy == 0)
        pthread_cond_broadcast(&c->quiet);
    pthread_mutex_unlock(&c->mutex);
}

static void unref(copier *c)
{
    pthread_mutex_lock(&c->mutex);
    const bool is_last = --c->n_refs == 0;
    pthread_mutex_unlock(&c->mutex);
    if (!is_last)
        return;
    pthread_cond_destroy(&c->quiet);
    pthread_mutex_destroy(&c->mutex);
    dtpi_free(c->a, c, sizeof(*c));
}

static void help(dtpi_work *w)
{
    copier *c = DTPI_CONTAINER(w, helper, work)->c;

    copy_pieces(c);
    unref(c);
}

static void copy_alone(const dtp_ckpt_tensor *to, const dtp_ckpt_tensor *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = (size_t)dtpi_plan_bytes(&from[i]);
        if (bytes)
            memcpy(to[i].data, from[i].data, bytes);
    }
}

static void copy_shared(dtp_ctx *ctx, copier *c, uint32_t n_helpers)
{
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->quiet, NULL);
    c->n_refs = 1;
    for (uint32_t i = 0; i < n_helpers; i++) {
        c->helpers[i] = (helper){ .work.work = help, .c = c };
        pthread_mutex_lock(&c->mutex);
        c->n_refs++;
        pthread_mutex_unlock(&c->mutex);
        if (dtpi_pool_submit(ctx, &c->helpers[i].work, NULL) < 0) {
            unref(c);
            break;
        }
    }
    copy_pieces(c);
    pthread_mutex_lock(&c->mutex);
    while (c->n_busy > 0)
        pthread_cond_wait(&c->quiet, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
    unref(c);
}

dtp_status dtpi_copy_tensors(dtp_ctx *ctx, const dtp_ckpt_tensor *to, const dtp_ckpt_tensor *from,
                             size_t n, dtp_error *err)
{
    const uint32_t width = dtpi_pool_width(ctx);
    const uint32_t n_helpers = DTPI_MIN(width > 0 ? width - 1 : 0, (uint32_t)MAX_HELPERS);
    uint64_t total = 0;

    for (size_t i = 0; i < n; i++)
        total += dtpi_plan_bytes(&from[i]);
    if (total < SHARED_FROM || n_helpers == 0) {
        copy_alone(to, from, n);
        return DTP_OK;
    }
    copier *c = dtpi_alloc(dtpi_ctx_alloc(ctx), sizeof(*c));
    if (!c)
        return dtpi_fail_nomem(err, sizeof(*c));
    c->a = dtpi_ctx_alloc(ctx);
    c->to = to;
    c->from = from;
    c->n = n;
    copy_shared(ctx, c, n_helpers);
    return DTP_OK;
}
