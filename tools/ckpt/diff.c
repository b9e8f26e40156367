/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.c - `dtp ckpt diff`: what two checkpoints do not share. Tensors are read side by side, slab by slab,
 * and compared in pieces of 1 MiB: how many pieces differ says whether a bit flipped or training went on.
 */
#include "bar.h"
#include "ckpt/ckpt.h"
#include "ckpt/slab.h"

enum { SLAB = 16 << 20, PIECE = 1 << 20, DIFFER = 1 };

typedef struct differ {
    const ckpt_args *args;
    dtp_ckpt *a, *b;
    uint8_t *slab_a, *slab_b;
    size_t slab_bytes;
    uint64_t done, total;
    bar bar;
    uint32_t n_equal, n_differ, n_only_a, n_only_b;
    dtp_error *err;
} differ;

/* What a comparison of contents found. */
typedef struct found {
    uint64_t pieces, differ, last;
    uint64_t first;             /* byte; UINT64_MAX: none */
} found;

static void print_one(differ *d, char mark, const char *state, const dtp_ckpt_tensor *t)
{
    if (d->bar.drawn_ns)
        bar_end(&d->bar);       /* the line is ours now; the bar comes again */
    if (d->args->json) {
        printf("{\"tensor\":");
        ckpt_print_json(t->name);
        printf(",\"state\":\"%s\",\"dtype\":\"%s\",\"shape\":", state, dtp_dtype_name(t->dtype));
        ckpt_print_shape(t);
        return;
    }
    printf("%c ", mark);
    ckpt_print_line(t->name);
    printf("  %s ", dtp_dtype_name(t->dtype));
    ckpt_print_shape(t);
}

static void print_only(differ *d, char mark, const char *state, const dtp_ckpt_tensor *t)
{
    print_one(d, mark, state, t);
    puts(d->args->json ? "}" : "");
}

static bool same_kind(const dtp_ckpt_tensor *a, const dtp_ckpt_tensor *b)
{
    return a->dtype == b->dtype && a->n_dims == b->n_dims &&
           (a->n_dims == 0 || memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)) == 0);
}

static void print_kinds(differ *d, const dtp_ckpt_tensor *a, const dtp_ckpt_tensor *b)
{
    print_one(d, '~', "kind", a);
    printf(d->args->json ? ",\"other_dtype\":\"%s\",\"other_shape\":" : " -> %s ",
           dtp_dtype_name(b->dtype));
    ckpt_print_shape(b);
    puts(d->args->json ? "}" : "");
}

/* The element that holds byte `at`, as [row, column]. */
static void print_element(const dtp_ckpt_tensor *t, uint64_t at)
{
    uint64_t i = at * 8 / dtp_dtype_bits(t->dtype);
    int64_t where[DTP_CKPT_MAX_DIMS];

    for (uint32_t d = t->n_dims; d-- > 0;) {
        where[d] = (int64_t)(i % (uint64_t)t->shape[d]);
        i /= (uint64_t)t->shape[d];
    }
    putchar('[');
    for (uint32_t d = 0; d < t->n_dims; d++)
        printf("%s%" PRId64, d ? ", " : "", where[d]);
    putchar(']');
}

static void print_content(differ *d, const dtp_ckpt_tensor *t, const found *f)
{
    print_one(d, '~', "content", t);
    if (d->args->json)
        printf(",\"chunks\":%" PRIu64 ",\"differ\":%" PRIu64 ",\"first\":", f->pieces, f->differ);
    else
        printf(": %" PRIu64 " of %" PRIu64 " chunks differ, first at ", f->differ, f->pieces);
    print_element(t, f->first);
    puts(d->args->json ? "}" : "");
}

/* `n` bytes of both sides that begin at byte `at` of the tensor. */
static void compare_slab(const differ *d, uint64_t at, uint64_t n, found *f)
{
    for (uint64_t i = 0; i < n;) {
        const uint64_t piece = (at + i) / PIECE;
        const uint64_t bytes = DTPI_MIN(n - i, (piece + 1) * PIECE - (at + i));
        if (memcmp(d->slab_a + i, d->slab_b + i, bytes) != 0) {
            uint64_t k = i;
            while (d->slab_a[k] == d->slab_b[k])
                k++;
            f->first = DTPI_MIN(f->first, at + k);
            f->differ += f->last != piece;
            f->last = piece;
        }
        i += bytes;
    }
}

static dtp_status make_slabs(differ *d, uint64_t bytes)
{
    if (bytes <= d->slab_bytes)
        return DTP_OK;
    free(d->slab_a);
    free(d->slab_b);
    d->slab_bytes = bytes;
    d->slab_a = malloc(bytes);
    d->slab_b = malloc(bytes);
    return d->slab_a && d->slab_b ? DTP_OK : dtpi_fail_nomem(d->err, bytes);
}

static dtp_status compare(differ *d, const dtp_ckpt_tensor *t)
{
    found f = { .last = UINT64_MAX, .first = UINT64_MAX };
    uint64_t at = 0;
    dtpi_slab s;

    for (dtpi_slab_begin(&s, t, SLAB); !s.done; dtpi_slab_next(&s)) {
        dtp_ckpt_tensor want = *t;
        dtp_status st = make_slabs(d, s.bytes);
        want.offset = s.offset;
        want.extent = s.extent;
        want.data = d->slab_a;
        if (st >= 0)
            st = dtp_ckpt_read(d->a, &want, 1, d->err);
        want.data = d->slab_b;
        if (st >= 0)
            st = dtp_ckpt_read(d->b, &want, 1, d->err);
        if (st < 0)
            return st;
        compare_slab(d, at, s.bytes, &f);
        at += s.bytes;
        d->done += s.bytes;
        bar_draw(&d->bar, d->done, d->total);
    }
    f.pieces = at / PIECE + (at % PIECE != 0);
    if (f.differ)
        print_content(d, t, &f);
    d->n_differ += f.differ > 0;
    d->n_equal += f.differ == 0;
    return DTP_OK;
}

static dtp_status compare_pair(differ *d, const dtp_ckpt_tensor *a, const dtp_ckpt_tensor *b)
{
    if (same_kind(a, b))
        return compare(d, a);
    print_kinds(d, a, b);
    d->n_differ++;
    return DTP_OK;
}

/* Both lists are in order of names. */
static dtp_status walk(differ *d, uint32_t n_a, uint32_t n_b)
{
    uint32_t i = 0, k = 0;
    dtp_status st = DTP_OK;

    while ((i < n_a || k < n_b) && st >= 0) {
        dtp_ckpt_tensor a = { .size = sizeof(a) }, b = { .size = sizeof(b) };
        if (i < n_a)
            st = dtp_ckpt_get_tensor(d->a, i, &a, d->err);
        if (st >= 0 && k < n_b)
            st = dtp_ckpt_get_tensor(d->b, k, &b, d->err);
        if (st < 0)
            break;
        const int c = i == n_a ? 1 : k == n_b ? -1 : strcmp(a.name, b.name);
        i += c <= 0;
        k += c >= 0;
        if (c == 0)
            st = compare_pair(d, &a, &b);
        else
            print_only(d, c < 0 ? '-' : '+', c < 0 ? "only_first" : "only_second", c < 0 ? &a : &b);
        d->n_only_a += c < 0;
        d->n_only_b += c > 0;
    }
    return st;
}

static int finish(const differ *d)
{
    const bool same = d->n_differ + d->n_only_a + d->n_only_b == 0;

    if (d->args->json)
        printf("{\"equal\":%u,\"differ\":%u,\"only_first\":%u,\"only_second\":%u}\n", d->n_equal,
               d->n_differ, d->n_only_a, d->n_only_b);
    else
        printf("%u tensors equal, %u differ, %u only in the first, %u only in the second\n",
               d->n_equal, d->n_differ, d->n_only_a, d->n_only_b);
    return cmd_finish(&cmd_ckpt) != CMD_OK ? CKPT_DIFF_TROUBLE : same ? CMD_OK : DIFFER;
}

int ckpt_diff(dtp_ctx *ctx, const ckpt_args *args)
{
    dtp_ckpt_info a = { 0 }, b = { 0 };
    dtp_error err = { 0 };
    differ d = { .args = args, .err = &err };

    dtp_status st = ckpt_open(ctx, args->path, NULL, &d.a, &a, &err);
    if (st >= 0)
        st = ckpt_open(ctx, args->other, NULL, &d.b, &b, &err);
    if (st >= 0) {
        d.total = DTPI_MIN(a.bytes, b.bytes);
        d.bar = bar_begin(ctx, "compare");
        st = walk(&d, a.n_tensors, b.n_tensors);
        bar_end(&d.bar);
    }
    free(d.slab_a);
    free(d.slab_b);
    dtp_ckpt_close(d.a);
    dtp_ckpt_close(d.b);
    if (st >= 0)
        return finish(&d);
    cmd_fail(&cmd_ckpt, &err);
    return CKPT_DIFF_TROUBLE;
}
