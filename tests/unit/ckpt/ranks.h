/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - several ranks as threads of one test: a link over a barrier, and tensors with known bytes. */
#ifndef DTP_TESTS_CKPT_RANKS_H
#define DTP_TESTS_CKPT_RANKS_H

#include "check.h"

#include <pthread.h>

#include "ckpt/link.h"
#include "ckpt/load.h"
#include "ckpt/save.h"
#include "files/mem.h"

enum { MAX_RANKS = 8, MAX_BOXES = 64 };

typedef struct meeting {
    pthread_barrier_t barrier;
    const void *data[MAX_RANKS];
    size_t bytes[MAX_RANKS];
} meeting;

typedef struct rank_link {
    dtpi_link base;
    meeting *meeting;
    size_t n_bytes;             /* that this rank sent */
    void *user;                 /* of another gather */
} rank_link;

/* Everything one rank gives to a save, and what it gets back. */
typedef struct rank_run {
    rank_link link;
    dtpi_save_in in;
    dtp_ckpt_save_opts opts;
    dtp_ckpt_tensor tensors[MAX_BOXES];
    size_t n;
    dtp_error err;
    dtp_status status;
    pthread_t thread;
} rank_run;

static const dtpi_log silent = { 0 };

static inline dtp_status meet(dtpi_link *link, const void *data, size_t bytes, dtpi_link_each each,
                              void *user, dtp_error *err)
{
    meeting *m = ((rank_link *)(void *)link)->meeting;

    (void)err;
    m->data[link->rank] = data;
    m->bytes[link->rank] = bytes;
    ((rank_link *)(void *)link)->n_bytes += bytes;
    pthread_barrier_wait(&m->barrier);
    for (int32_t i = 0; i < link->size; i++)
        each(user, i, m->data[i], m->bytes[i]);
    pthread_barrier_wait(&m->barrier);
    return DTP_OK;
}

static inline void *run_rank(void *arg)
{
    rank_run *r = arg;

    r->status = dtpi_save(&r->in, &r->err);
    return NULL;
}

/* A small bound, so that exchanges take several rounds. */
static inline void ranks_init(rank_run *ranks, int32_t n, dtpi_files *files, const char *dir)
{
    memset(ranks, 0, (size_t)n * sizeof(*ranks));
    for (int32_t i = 0; i < n; i++) {
        rank_run *r = &ranks[i];
        r->link.base = (dtpi_link){ .rank = i, .size = n, .max_bytes = 256, .gather = meet };
        r->opts.size = sizeof(r->opts);
        r->in = (dtpi_save_in){ .a = &dtpi_malloc_allocator, .log = &silent, .files = files,
                                .link = &r->link.base, .dir = dir, .tensors = r->tensors,
                                .opts = &r->opts };
    }
}

/* Saves as `step`; every rank must end with the same status, which is returned (text in ERR). */
static inline dtp_status ranks_save(rank_run *ranks, int32_t n, uint64_t step)
{
    meeting m;

    pthread_barrier_init(&m.barrier, NULL, (unsigned)n);
    for (int32_t i = 0; i < n; i++) {
        rank_run *r = &ranks[i];
        r->link.meeting = &m;
        r->in.step = step;
        r->in.n_tensors = r->n;
        r->in.id = 0x1000 * step + 7;
        memset(&r->err, 0, sizeof(r->err));
        pthread_create(&r->thread, NULL, run_rank, r);
    }
    for (int32_t i = 0; i < n; i++)
        pthread_join(ranks[i].thread, NULL);
    pthread_barrier_destroy(&m.barrier);
    for (int32_t i = 1; i < n; i++) {
        assert_int_equal(ranks[i].status, ranks[0].status);
        assert_string_equal(ranks[i].err.text, ranks[0].err.text);
    }
    check_err = ranks[0].err;
    return ranks[0].status;
}

/* The byte at `i` of a whole tensor: different for each tensor, step and place. */
static inline uint8_t known_byte(uint64_t seed, uint64_t i)
{
    uint64_t s = seed * 1000003 + i / 8;

    return (uint8_t)(check_random(&s) >> (i % 8 * 8));
}

/* Fills the box of a tensor in `t->data` with the bytes the whole tensor has there. */
static inline void fill_box(const dtp_ckpt_tensor *t, uint64_t seed, uint8_t *out)
{
    const uint64_t width = dtp_dtype_bytes(t->dtype);
    int64_t at[DTP_CKPT_MAX_DIMS] = { 0 };
    uint64_t n = 1;

    for (uint32_t d = 0; d < t->n_dims; d++)
        n *= (uint64_t)t->extent[d];
    for (uint64_t i = 0; i < n; i++) {
        uint64_t place = 0;
        for (uint32_t d = 0; d < t->n_dims; d++)
            place = place * (uint64_t)t->shape[d] + (uint64_t)(t->offset[d] + at[d]);
        for (uint64_t k = 0; k < width; k++)
            *out++ = known_byte(seed, place * width + k);
        for (uint32_t d = t->n_dims; d-- > 0 && ++at[d] == t->extent[d];)
            at[d] = 0;
    }
}

static inline uint64_t box_bytes(const dtp_ckpt_tensor *t)
{
    uint64_t n = dtp_dtype_bytes(t->dtype);

    for (uint32_t d = 0; d < t->n_dims; d++)
        n *= (uint64_t)t->extent[d];
    return n;
}

/* Gives a rank a box with its known bytes. Dimensions stay the caller's. */
static inline dtp_ckpt_tensor *give(rank_run *r, const char *name, dtp_dtype dtype, uint32_t n_dims,
                                    const int64_t *shape, const int64_t *offset, const int64_t *extent,
                                    uint64_t seed)
{
    static const int64_t zero[DTP_CKPT_MAX_DIMS];
    dtp_ckpt_tensor *t = &r->tensors[r->n++];

    *t = (dtp_ckpt_tensor){ sizeof(*t), name, dtype, n_dims, shape, offset ? offset : zero,
                            extent ? extent : shape, NULL };
    t->data = malloc(box_bytes(t) + 1);
    fill_box(t, seed, t->data);
    return t;
}

static inline void ranks_free(rank_run *ranks, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        for (size_t k = 0; k < ranks[i].n; k++)
            free(ranks[i].tensors[k].data);
}

/* Reads a box and compares it with the known bytes; any failure is returned. */
static inline dtp_status read_known(dtpi_load *l, const char *name, dtp_dtype dtype, uint32_t n_dims,
                                    const int64_t *shape, const int64_t *offset, const int64_t *extent,
                                    uint64_t seed)
{
    static const int64_t zero[DTP_CKPT_MAX_DIMS];
    dtp_ckpt_tensor t = { sizeof(t), name, dtype, n_dims, shape, offset ? offset : zero,
                          extent ? extent : shape, NULL };
    const uint64_t bytes = box_bytes(&t);
    uint8_t *want = malloc(bytes + 1), *got = malloc(bytes + 1);

    t.data = got;
    memset(got, 0xee, bytes + 1);
    fill_box(&t, seed, want);
    const dtp_status st = dtpi_load_read(l, &t, ERR);
    if (st == DTP_OK) {
        assert_memory_equal(got, want, bytes);
        assert_int_equal(got[bytes], 0xee);
    }
    free(want);
    free(got);
    return st;
}

static inline dtpi_files *mem_files(void)
{
    dtpi_files *files = NULL;

    assert_ok(dtpi_files_mem_open(&dtpi_malloc_allocator, &files, ERR));
    return files;
}

#endif /* DTP_TESTS_CKPT_RANKS_H */
