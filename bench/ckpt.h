/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.h - what the parts of `dtp-bench ckpt` share: options, numbers, the state that ranks save, and
 * the plain copies and files beside which it is measured.
 */
#ifndef DTP_BENCH_CKPT_H
#define DTP_BENCH_CKPT_H

#include <dtp/ckpt.h>

#include "bench.h"

enum { CKPT_MAX_ROUNDS = 101, CKPT_MAX_RANKS = 512, CKPT_COLUMNS = 4096, CKPT_BLOCK = 4 << 20 };

/* ---- ckpt_data.c ---- */

typedef struct ckpt_type {
    const char *name;
    dtp_dtype dtype;
    void (*put)(void *out, size_t i, double v);
    double (*value)(uint64_t *seed);    /* NULL: every bit is random */
} ckpt_type;

/* NULL behind the last one, or where there is none of the name. */
const ckpt_type *ckpt_type_at(size_t i);
const ckpt_type *ckpt_type_of(const char *name);
void ckpt_fill(const ckpt_type *t, uint8_t *out, size_t bytes, uint64_t seed);

/* ---- ckpt.c ---- */

typedef struct ckpt_options {
    const char *op;                     /* save load reshard stall codec */
    const char *dir;
    char work[3072];                    /* a folder of this run's own in `dir` */
    uint64_t bytes;                     /* of all ranks together; codec: of one type */
    uint64_t tensor_bytes;
    int ranks, to, rounds, timeout_ms;
    const char *codec;
    const char *files;                  /* how saves write; NULL: what is best here */
    const ckpt_type *type;              /* NULL: all */
    uint64_t seed;
    bool json, warm, fio, no_sync, check_whole, alone;
} ckpt_options;

/* ---- ckpt_codec.c, ckpt_run.c: exit statuses ---- */

int ckpt_run_codec(const ckpt_options *o);
int ckpt_run_files(ckpt_options *o);

/* ---- ckpt_state.c ---- */

/*
 * Tensors of CKPT_COLUMNS columns, cut along their rows or their columns into a box for each rank. What
 * stands where follows from tensor, row and column alone: any other cut knows what must come back.
 */
typedef struct ckpt_state {
    dtp_ckpt_tensor *tensors;
    char (*names)[40];
    size_t n_tensors, width;
    int64_t shape[2], offset[2], extent[2];
    uint8_t *data;
    uint64_t bytes;                     /* of `data`, all boxes one behind the other */
    const uint8_t *tile;
} ckpt_state;

/* The numbers that all states repeat; made once, before ranks are forked. Caller frees. */
uint8_t *ckpt_make_tile(const ckpt_type *t, uint64_t seed);
bool ckpt_state_make(ckpt_state *s, const ckpt_options *o, const uint8_t *tile, int rank, int n_ranks,
                     bool by_columns);
void ckpt_state_fill(ckpt_state *s);
/* Rows of boxes that differ. */
uint64_t ckpt_state_wrong(const ckpt_state *s);
void ckpt_state_free(ckpt_state *s);

/* ---- ckpt_plain.c ---- */

/* Seconds, or below 0 with a line on stderr. */
double ckpt_plain_write(const ckpt_options *o, int rank, const uint8_t *data, uint64_t bytes);
/* Part `rank` of `n` of all that was written by plain_write. */
double ckpt_plain_read(const ckpt_options *o, int rank, int n, uint8_t *data, uint64_t room);
double ckpt_plain_copy(uint8_t *to, uint64_t room, const uint8_t *from, uint64_t bytes);
/* What fio reaches with direct I/O and as many processes, bytes/s; 0 where it cannot (a line says why). */
double ckpt_fio(const ckpt_options *o, bool write, int n);
/* Takes the files below `path` out of the page cache. */
void ckpt_drop_cache(const char *path);
void ckpt_remove_tree(const char *path);

/* ---- ckpt_rank.c ---- */

enum { CKPT_OURS, CKPT_PLAIN, CKPT_COPY, CKPT_DURABLE, CKPT_N_TIMED };

/* Shared by all ranks and the process that forked them. */
typedef struct ckpt_shared {
    double seconds[CKPT_N_TIMED][CKPT_MAX_ROUNDS][CKPT_MAX_RANKS];
    uint64_t read_bytes[CKPT_MAX_RANKS], extra_bytes[CKPT_MAX_RANKS];   /* the most of all rounds */
    uint64_t wanted_bytes[CKPT_MAX_RANKS], stored_bytes;
    uint64_t grown_bytes[CKPT_MAX_RANKS], n_steps;                      /* of a stall */
} ckpt_shared;

typedef enum ckpt_kind { CKPT_SAVES, CKPT_LOADS, CKPT_STALLS } ckpt_kind;

typedef struct ckpt_phase {
    const ckpt_options *o;
    ckpt_shared *sh;
    const uint8_t *tile;
    int n_ranks, n_rounds;              /* after one to warm up */
    ckpt_kind kind;
    bool by_columns;
} ckpt_phase;

/* `user` is a phase. */
int ckpt_run_rank(dtp_group *group, void *user);

#endif /* DTP_BENCH_CKPT_H */
