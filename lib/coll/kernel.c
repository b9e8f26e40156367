/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.c - which kernels, and running an order of additions block by block.
 *
 * A program runs over DTPI_BLOCK elements at a time, so that partial results stay in the first cache;
 * two and four equal inputs, the usual cases, run as one loop over everything.
 */
#include "coll/kernel.h"

#ifdef __x86_64__
#include "base/cpu.h"

static bool has_avx2(void)
{
    return dtpi_cpu_has(DTPI_CPU_AVX2 | DTPI_CPU_F16C);
}

static bool has_avx512(void)
{
    return dtpi_cpu_has(DTPI_CPU_AVX2 | DTPI_CPU_F16C | DTPI_CPU_AVX512);
}

const dtpi_kernels *dtpi_kernels_find(const char *name)
{
    if (strcmp(name, "avx512") == 0)
        return has_avx512() ? &dtpi_kernels_avx512 : NULL;
    if (strcmp(name, "avx2") == 0)
        return has_avx2() ? &dtpi_kernels_avx2 : NULL;
    return strcmp(name, "base") == 0 ? &dtpi_kernels_base : NULL;
}

const dtpi_kernels *dtpi_kernels_best(void)
{
    return has_avx512() ? &dtpi_kernels_avx512 : has_avx2() ? &dtpi_kernels_avx2 : &dtpi_kernels_base;
}
#else
const dtpi_kernels *dtpi_kernels_find(const char *name)
{
    return strcmp(name, "base") == 0 ? &dtpi_kernels_base : NULL;
}

const dtpi_kernels *dtpi_kernels_best(void)
{
    return &dtpi_kernels_base;
}
#endif

/* ---- a type with an operation ---- */

static const size_t acc_bytes[DTPI_N_ACC] = {
    [DTPI_ACC_F64] = 8, [DTPI_ACC_F32] = 4, [DTPI_ACC_I64] = 8, [DTPI_ACC_I32] = 4, [DTPI_ACC_U8] = 1,
};

/* The type of partial results and the conversions to it. */
static bool choose_acc(dtpi_reduction *r, dtp_dtype dtype, bool is_avg, dtpi_acc *acc_out)
{
    const dtpi_kernels *k = r->k;

    switch (dtype) {
    case DTP_F64:
        *acc_out = DTPI_ACC_F64;
        return true;
    case DTP_F32:
        *acc_out = DTPI_ACC_F32;
        return true;
    case DTP_F16:
        *acc_out = DTPI_ACC_F32;
        r->widen = k->widen_f16;
        r->narrow = k->narrow_f16;
        return true;
    case DTP_BF16:
        *acc_out = DTPI_ACC_F32;
        r->widen = k->widen_bf16;
        r->narrow = k->narrow_bf16;
        return true;
    case DTP_I64:
        *acc_out = DTPI_ACC_I64;
        return true;
    case DTP_I32:
        *acc_out = is_avg ? DTPI_ACC_I64 : DTPI_ACC_I32;
        r->widen = is_avg ? k->widen_i32 : NULL;
        r->narrow = is_avg ? k->narrow_i32 : NULL;
        return true;
    case DTP_U8:
        *acc_out = is_avg ? DTPI_ACC_I32 : DTPI_ACC_U8;
        r->widen = is_avg ? k->widen_u8 : NULL;
        r->narrow = is_avg ? k->narrow_u8 : NULL;
        return true;
    default:
        return false;
    }
}

dtp_status dtpi_reduction_init(dtpi_reduction *r, const dtpi_kernels *k, dtp_dtype dtype,
                               dtp_redop redop, int32_t world_size, dtp_error *err)
{
    static const uint8_t combine_of[] = { [DTP_SUM] = 0, [DTP_MIN] = 1, [DTP_MAX] = 2,
                                          [DTP_PROD] = 3, [DTP_AVG] = 0 };
    dtpi_acc acc = DTPI_ACC_F32;

    if ((unsigned)redop > DTP_AVG)
        return dtpi_fail(err, DTP_ERR_INVAL, "no reduction has number %d", (int)redop);
    *r = (dtpi_reduction){ .k = k, .elem_bytes = dtp_dtype_bytes(dtype) };
    if (!choose_acc(r, dtype, redop == DTP_AVG, &acc))
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED,
                         "cannot reduce %s (f64 f32 f16 bf16 i64 i32 u8 are possible)",
                         dtp_dtype_name(dtype));
    r->acc_bytes = acc_bytes[acc];
    r->combine2 = k->combine2[acc][combine_of[redop]];
    r->combine4 = k->combine4[acc][combine_of[redop]];
    r->divisor = world_size;
    r->divide = redop == DTP_AVG && world_size > 1 ? k->divide[acc] : NULL;
    return DTP_OK;
}

/* ---- the order ---- */

uint32_t dtpi_tree_split(uint32_t n)
{
    uint32_t half = 1;

    while (half * 2 < n)
        half *= 2;
    return half;
}

uint32_t dtpi_tree_program(int32_t *program, uint32_t first, uint32_t n)
{
    if (n == 1) {
        *program = (int32_t)first;
        return 1;
    }
    const uint32_t left = dtpi_tree_split(n);
    uint32_t used = dtpi_tree_program(program, first, left);
    used += dtpi_tree_program(program + used, first + left, n - left);
    program[used] = DTPI_COMBINE;
    return used + 1;
}

/* ---- running a program ---- */

typedef struct machine {
    const dtpi_reduction *r;
    const dtpi_input *inputs;
    const void *stack[DTPI_TREE_DEPTH];
    uint64_t temp[DTPI_TREE_DEPTH][DTPI_BLOCK];     /* lines are touched only as deep as needed */
} machine;

/* Pushes `n` elements of an input from element `at` on, as partial results. */
static const void *load(machine *m, uint32_t level, const dtpi_input *in, size_t at, size_t n)
{
    const dtpi_reduction *r = m->r;

    if (in->is_partial)
        return (const char *)in->data + at * r->acc_bytes;
    const void *raw = (const char *)in->data + at * r->elem_bytes;
    if (!r->widen)
        return raw;
    r->widen(m->temp[level], raw, n);
    return m->temp[level];
}

/* One block; returns where its partial results lie: in `out`, in the machine, or in an input. */
static const void *run_block(machine *m, const int32_t *program, uint32_t n_steps, void *out, size_t at,
                             size_t n)
{
    uint32_t depth = 0;

    for (uint32_t i = 0; i < n_steps; i++) {
        if (program[i] != DTPI_COMBINE) {
            m->stack[depth] = load(m, depth, &m->inputs[program[i]], at, n);
            depth++;
            continue;
        }
        depth--;
        void *to = i + 1 == n_steps && out ? out : m->temp[depth - 1];
        m->r->combine2(to, m->stack[depth - 1], m->stack[depth], n);
        m->stack[depth - 1] = to;
    }
    return m->stack[0];
}

/* What is left to do with a block of partial results before it is the user's. */
static void finish_block(machine *m, const void *acc, void *out, size_t n, dtpi_finish finish)
{
    const dtpi_reduction *r = m->r;
    const size_t bytes = n * (finish == DTPI_FINISH_PARTIAL ? r->acc_bytes : r->elem_bytes);

    if (finish != DTPI_FINISH_PARTIAL && r->divide) {
        if (acc != m->temp[0])
            memcpy(m->temp[0], acc, n * r->acc_bytes);
        r->divide(m->temp[0], n, r->divisor);
        acc = m->temp[0];
    }
    if (finish != DTPI_FINISH_PARTIAL && r->narrow) {
        r->narrow(finish == DTPI_FINISH_STREAM ? m->temp[1] : out, acc, n);
        acc = finish == DTPI_FINISH_STREAM ? m->temp[1] : out;
    }
    if (finish == DTPI_FINISH_STREAM)
        r->k->stream(out, acc, bytes);
    else if (acc != out)
        memmove(out, acc, bytes);
}

static void reduce_blocks(const dtpi_reduction *r, const int32_t *program, uint32_t n_steps,
                          const dtpi_input *inputs, char *out, size_t count, dtpi_finish finish)
{
    const bool direct = finish == DTPI_FINISH_PARTIAL ||
                        (finish == DTPI_FINISH_FINAL && !r->narrow && !r->divide);
    const size_t out_bytes = finish == DTPI_FINISH_PARTIAL ? r->acc_bytes : r->elem_bytes;
    machine m;

    m.r = r;
    m.inputs = inputs;
    for (size_t at = 0; at < count; at += DTPI_BLOCK) {
        const size_t n = DTPI_MIN(count - at, (size_t)DTPI_BLOCK);
        char *to = out + at * out_bytes;
        finish_block(&m, run_block(&m, program, n_steps, direct ? to : NULL, at, n), to, n, finish);
    }
}

/* Past the caches, two or four plain inputs: bigger blocks, combined into the first cache. */
static void stream_plain(const dtpi_reduction *r, const dtpi_input *in, uint32_t n_inputs, char *out,
                         size_t count)
{
    enum { STREAM_BYTES = 2048, LINE = 64 };
    _Alignas(64) char block[STREAM_BYTES];
    const size_t step = STREAM_BYTES / r->elem_bytes;

    for (size_t at = 0; at < count; at += step) {
        const size_t n = DTPI_MIN(count - at, step), off = at * r->elem_bytes;
        for (size_t i = off; r->ahead && i < off + n * r->elem_bytes; i += LINE)
            __builtin_prefetch((const char *)r->ahead + i);
        if (n_inputs == 2)
            r->combine2(block, (const char *)in[0].data + off, (const char *)in[1].data + off, n);
        else
            r->combine4(block, (const char *)in[0].data + off, (const char *)in[1].data + off,
                        (const char *)in[2].data + off, (const char *)in[3].data + off, n);
        r->k->stream(out + off, block, n * r->elem_bytes);
    }
}

void dtpi_reduce(const dtpi_reduction *r, const int32_t *program, uint32_t n_steps,
                 const dtpi_input *in, void *out, size_t count, dtpi_finish finish)
{
    const bool plain = !r->widen && (!r->divide || finish == DTPI_FINISH_PARTIAL);

    /* Programs of two and of four inputs in order: 0 1 +, and 0 1 + 2 3 + +. */
    const bool is_two = n_steps == 3;
    const bool is_four = n_steps == 7 && program[2] == DTPI_COMBINE && program[5] == DTPI_COMBINE;
    if (!plain || !(is_two || is_four)) {
        reduce_blocks(r, program, n_steps, in, out, count, finish);
        return;
    }
    const int32_t at4[4] = { program[0], program[1], is_four ? program[3] : 0,
                             is_four ? program[4] : 0 };
    const dtpi_input ordered[4] = { in[at4[0]], in[at4[1]], in[at4[2]], in[at4[3]] };
    if (finish == DTPI_FINISH_STREAM)
        stream_plain(r, ordered, is_two ? 2 : 4, out, count);
    else if (is_two)
        r->combine2(out, ordered[0].data, ordered[1].data, count);
    else
        r->combine4(out, ordered[0].data, ordered[1].data, ordered[2].data, ordered[3].data, count);
}
