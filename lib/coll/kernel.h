/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - the arithmetic of reductions: kernels per number type, and the order of additions.
 *
 * The order is a binary tree over rank numbers: a tree over n ranks splits at the largest power of two
 * below n, and nothing but the world size decides it. f16 and bf16 are added as f32 and rounded once;
 * AVG adds i32 and u8 without overflow. Every NaN of a result is the canonical quiet NaN, MIN and MAX
 * give NaN where any input is NaN, so that variants for different processors agree bit for bit.
 */
#ifndef DTPI_COLL_KERNEL_H
#define DTPI_COLL_KERNEL_H

#include <dtp/coll.h>

#include "base/base.h"

/* What is added: the type of partial results. */
typedef enum dtpi_acc {
    DTPI_ACC_F64,
    DTPI_ACC_F32,
    DTPI_ACC_I64,
    DTPI_ACC_I32,
    DTPI_ACC_U8,
    DTPI_N_ACC
} dtpi_acc;

enum {
    DTPI_N_COMBINE = 4,         /* sum, min, max, prod; AVG adds and divides */
    DTPI_TREE_DEPTH = 24,       /* of a tree over any number of ranks we can have */
    DTPI_BLOCK = 256            /* elements worked on at a time: stays in the first cache */
};

typedef void dtpi_combine2_fn(void *out, const void *a, const void *b, size_t n);
/* (a + b) + (c + d) */
typedef void dtpi_combine4_fn(void *out, const void *a, const void *b, const void *c, const void *d,
                              size_t n);
typedef void dtpi_convert_fn(void *out, const void *in, size_t n);
typedef void dtpi_divide_fn(void *acc, size_t n, int64_t divisor);
typedef void dtpi_copy_fn(void *out, const void *in, size_t bytes);

/* One variant, for one kind of processor. Any pointer may be aligned to its elements only. */
typedef struct dtpi_kernels {
    const char *name;
    dtpi_combine2_fn *combine2[DTPI_N_ACC][DTPI_N_COMBINE];
    dtpi_combine4_fn *combine4[DTPI_N_ACC][DTPI_N_COMBINE];
    dtpi_convert_fn *widen_f16, *narrow_f16;    /* to and from f32 */
    dtpi_convert_fn *widen_bf16, *narrow_bf16;
    dtpi_convert_fn *widen_i32, *narrow_i32;    /* to and from i64 */
    dtpi_convert_fn *widen_u8, *narrow_u8;      /* to and from i32 */
    dtpi_divide_fn *divide[DTPI_N_ACC];
    dtpi_copy_fn *stream;       /* a copy that goes past the caches */
    void (*stream_end)(void);   /* after the last one: other threads see them in order */
} dtpi_kernels;

extern const dtpi_kernels dtpi_kernels_base;
#ifdef __x86_64__
extern const dtpi_kernels dtpi_kernels_avx2;
extern const dtpi_kernels dtpi_kernels_avx512;
#endif

/* The best variant for this processor. */
const dtpi_kernels *dtpi_kernels_best(void);
/* By name ("base", "avx2", "avx512"); NULL when it is not there or would not run here. */
const dtpi_kernels *dtpi_kernels_find(const char *name);

/* A type with an operation. */
typedef struct dtpi_reduction {
    const dtpi_kernels *k;
    size_t elem_bytes;          /* of the user's type */
    size_t acc_bytes;           /* of a partial result */
    dtpi_convert_fn *widen, *narrow;    /* NULL: partial results have the user's type */
    dtpi_combine2_fn *combine2;
    dtpi_combine4_fn *combine4;
    dtpi_divide_fn *divide;     /* NULL: nothing to divide */
    int64_t divisor;
    const void *ahead;          /* memory that will be read next, for streamed reductions; or NULL */
} dtpi_reduction;

/* Errors: UNSUPPORTED (type), INVAL (operation). */
dtp_status dtpi_reduction_init(dtpi_reduction *r, const dtpi_kernels *k, dtp_dtype dtype,
                               dtp_redop redop, int32_t world_size, dtp_error *err);

/*
 * An order of additions as a postfix program: numbers >= 0 push that input, DTPI_COMBINE takes the two
 * on top and pushes their combination.
 */
enum { DTPI_COMBINE = -1 };

/* Largest power of two below n (n > 1): where a tree splits. */
uint32_t dtpi_tree_split(uint32_t n);

/* Program of the whole tree over inputs first .. first+n-1; room for 2n-1 numbers. Returns 2n-1. */
uint32_t dtpi_tree_program(int32_t *program, uint32_t first, uint32_t n);

/* One input of a program: values of the user's type, or a partial result. */
typedef struct dtpi_input {
    const void *data;
    bool is_partial;
} dtpi_input;

typedef enum dtpi_finish {
    DTPI_FINISH_PARTIAL,        /* out gets partial results */
    DTPI_FINISH_FINAL,          /* divided, rounded, in the user's type */
    DTPI_FINISH_STREAM          /* the same, past the caches */
} dtpi_finish;

/* Runs a program over `count` elements; `out` may be one of the inputs. */
void dtpi_reduce(const dtpi_reduction *r, const int32_t *program, uint32_t n_steps,
                 const dtpi_input *inputs, void *out, size_t count, dtpi_finish finish);

#endif /* DTPI_COLL_KERNEL_H */
