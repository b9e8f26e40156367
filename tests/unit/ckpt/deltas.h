/* SPDX-License-Identifier: Apache-2.0 */
/* deltas.h - a training run of two ranks in memory: tensors that change as they do, and what they were. */
#ifndef DTP_TESTS_CKPT_DELTAS_H
#define DTP_TESTS_CKPT_DELTAS_H

#include "ranks.h"

#include "ckpt/delta.h"
#include "ckpt/delta_load.h"
#include "ckpt/part.h"
#include "ckpt/retain.h"
#include "ckpt/steps.h"

enum { MAX_STEPS = 64, CHUNK = 4096 };

/* How a box changes from one step to the next. */
typedef enum change {
    FROZEN,                     /* not at all */
    SLOW,                       /* the lowest bit of one number in 16 */
    ROWS,                       /* all of the last hundredth */
    NOISE,                      /* everything */
    CHANGES
} change;

typedef struct training {
    dtpi_files *files;
    rank_run r[2];
    change how[2][MAX_BOXES];
    uint64_t seed;
    uint8_t *was[MAX_STEPS][2][MAX_BOXES];
} training;

static const char training_dir[] = "ck";

static inline training *training_new(uint64_t seed, dtp_codec codec, uint32_t delta)
{
    training *t = calloc(1, sizeof(*t));

    t->files = mem_files();
    t->seed = seed;
    ranks_init(t->r, 2, t->files, training_dir);
    for (int i = 0; i < 2; i++) {
        t->r[i].opts.codec = codec;
        t->r[i].opts.delta = delta;
        t->r[i].opts.chunk_bytes = CHUNK;
        t->r[i].opts.no_sync = 1;
    }
    return t;
}

static inline void training_free(training *t)
{
    ranks_free(t->r, 2);
    for (int s = 0; s < MAX_STEPS; s++)
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < MAX_BOXES; k++)
                free(t->was[s][i][k]);
    dtpi_files_close(t->files);
    free(t);
}

DTPI_DEFINE_AUTO(training, training, training_free);

/* Weights as they are: exponents repeat, mantissas do not. */
static inline void fill_weights(training *t, uint16_t *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t r = check_random(&t->seed);
        w[i] = (uint16_t)((r & 0x807f) | (0x3c00 + ((r >> 16 & r >> 20 & 7) << 7)));
    }
}

/* A box of bf16 numbers. Dimensions and name stay the caller's. */
static inline void training_add(training *t, int rank, const char *name, uint32_t n_dims,
                                const int64_t *shape, const int64_t *offset, const int64_t *extent,
                                change how)
{
    t->how[rank][t->r[rank].n] = how;
    dtp_ckpt_tensor *b = give(&t->r[rank], name, DTP_BF16, n_dims, shape, offset, extent, 1);
    fill_weights(t, b->data, box_bytes(b) / 2);
}

static inline void change_box(training *t, const dtp_ckpt_tensor *b, change how)
{
    const size_t n = box_bytes(b) / 2;
    uint16_t *w = b->data;

    if (how == SLOW)
        for (size_t i = check_random(&t->seed) % 16; i < n; i += 1 + check_random(&t->seed) % 31)
            w[i] ^= 1;
    else if (how == ROWS)
        fill_weights(t, w + n - n / 100, n / 100);
    else if (how == NOISE)
        for (size_t i = 0; i < n; i++)
            w[i] = (uint16_t)check_random(&t->seed);
}

static inline void training_step(training *t)
{
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < t->r[i].n; k++)
            change_box(t, &t->r[i].tensors[k], t->how[i][k]);
}

static inline void training_save(training *t, uint64_t step)
{
    assert_ok(ranks_save(t->r, 2, step));
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < t->r[i].n; k++) {
            const uint64_t bytes = box_bytes(&t->r[i].tensors[k]);
            free(t->was[step][i][k]);
            t->was[step][i][k] = malloc(bytes + 1);
            memcpy(t->was[step][i][k], t->r[i].tensors[k].data, bytes);
        }
}

static inline dtpi_load *training_load(training *t, uint64_t step)
{
    dtpi_load *l = NULL;

    assert_ok(dtpi_load_open(&dtpi_malloc_allocator, t->files, training_dir, step, &l, ERR));
    return l;
}

/* Reads every box of a step as it was saved; any failure is returned. */
static inline dtp_status training_read(training *t, uint64_t step)
{
    DTPI_AUTO(load) dtpi_load *l = training_load(t, step);
    dtp_status st = DTP_OK;

    for (int i = 0; i < 2 && st >= 0; i++)
        for (size_t k = 0; k < t->r[i].n && st >= 0; k++) {
            dtp_ckpt_tensor b = t->r[i].tensors[k];
            const uint64_t bytes = box_bytes(&b);
            b.data = malloc(bytes + 1);
            st = dtpi_load_read(l, &b, ERR);
            if (st >= 0)
                assert_memory_equal(b.data, t->was[step][i][k], bytes);
            free(b.data);
        }
    return st;
}

/* Every byte of a step is what it was, and its checksums say so. */
static inline void training_check(training *t, uint64_t step)
{
    DTPI_AUTO(load) dtpi_load *l = training_load(t, step);

    assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
    assert_ok(dtpi_step_check(t->files, training_dir, step, ERR));
    assert_ok(training_read(t, step));
}

/* Bytes of the step's shards behind their headers, and of its parts. */
static inline void training_bytes(training *t, uint64_t step, uint64_t *data_out, uint64_t *parts_out)
{
    DTPI_AUTO(load) dtpi_load *l = training_load(t, step);

    *data_out = *parts_out = 0;
    for (uint32_t i = 0; i < l->m.n_own_files; i++) {
        const dtpi_mf_file *f = dtpi_mf_file_at(&l->m, i);
        *data_out += f->bytes - f->header_bytes;
        *parts_out += f->part_bytes;
    }
}

static inline uint64_t training_data(training *t, uint64_t step)
{
    uint64_t data, parts;

    training_bytes(t, step, &data, &parts);
    return data;
}

#endif /* DTP_TESTS_CKPT_DELTAS_H */
