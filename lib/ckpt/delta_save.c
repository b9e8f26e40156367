/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delta_save.c - decides what a rank need not write. Equal content inside the rank first, by bytes; then
 * against the parent by the sums of plain chunks, which ends at the first that differs; the rest may be
 * stored as XOR if a few chunks, coded both ways, say that it pays.
 */
#include "ckpt/delta_save.h"

#include <inttypes.h>

#include "base/sum.h"
#include "ckpt/dedup.h"

enum {
    MAX_SAMPLES = 3,            /* chunks that are coded both ways to decide about a box */
    GAIN_PERCENT = 10,          /* of the stored bytes; less is not worth reading bases */
    SURELY_SMALL = 4            /* where samples were for XOR, a chunk so many times smaller is not coded twice */
};

static void xorer_free(dtpi_xorer *x)
{
    const dtp_allocator *a = x->base.l->a;
    const size_t bytes = x->base.bytes;

    dtpi_chunks_close(&x->base);
    dtpi_free(a, x->mixed, bytes);
    dtpi_free(a, x->room, bytes);
    dtpi_free(a, x, sizeof(*x));
}

/* One that nobody has; NULL without memory. */
static dtpi_xorer *xorer_take(dtpi_delta *d)
{
    pthread_mutex_lock(&d->mutex);
    dtpi_xorer *x = d->idle;
    if (x)
        d->idle = x->next;
    pthread_mutex_unlock(&d->mutex);
    if (x)
        return x;
    x = dtpi_alloc(d->a, sizeof(*x));
    if (!x)
        return NULL;
    *x = (dtpi_xorer){ .base.l = d->parent };
    const dtp_status st = dtpi_chunks_open(d->parent, &x->base, NULL);
    x->mixed = dtpi_alloc_aligned(d->a, x->base.bytes, 64);
    x->room = dtpi_alloc_aligned(d->a, x->base.bytes, 64);
    if (st >= 0 && x->mixed && x->room)
        return x;
    xorer_free(x);
    return NULL;
}

static void xorer_give(dtpi_delta *d, dtpi_xorer *x)
{
    pthread_mutex_lock(&d->mutex);
    x->next = d->idle;
    d->idle = x;
    pthread_mutex_unlock(&d->mutex);
}

void dtpi_delta_free(dtpi_delta *d)
{
    if (!d->a)
        return;
    for (dtpi_xorer *x = d->idle, *next; x; x = next) {
        next = x->next;
        xorer_free(x);
    }
    dtpi_free(d->a, d->fates, (d->layout->n + 1) * sizeof(*d->fates));
    dtpi_buf_free(&d->stored.piece_buf);
    dtpi_buf_free(&d->is_xor);
    dtpi_load_close(d->parent);
    pthread_mutex_destroy(&d->mutex);
    *d = (dtpi_delta){ 0 };
}

static dtpi_fate *fate_of(const dtpi_delta *d, size_t piece)
{
    return &d->fates[dtpi_layout_get(d->layout, piece)->nth];
}

static const void *data_of(const dtpi_delta_in *in, const dtpi_piece *p)
{
    return in->tensors[in->plan->boxes[p->box].index].data;
}

/* ---- inside the rank ---- */

static dtp_status find_same(dtpi_delta *d, const dtpi_delta_in *in, dtp_error *err)
{
    const size_t n = in->layout->n;     /* their places in the part are 0 to n - 1 */
    dtpi_content *contents = dtpi_alloc_array(d->a, n + 1, sizeof(*contents));
    uint32_t *same = dtpi_alloc_array(d->a, n + 1, sizeof(*same));
    dtp_status st = DTP_OK;

    if (!contents || !same)
        st = dtpi_fail_nomem(err, n * sizeof(*contents));
    for (size_t i = 0; st >= 0 && i < n; i++) {
        const dtpi_piece *p = dtpi_layout_get(in->layout, i);
        contents[p->nth] = (dtpi_content){ data_of(in, p), p->bytes, in->plan->boxes[p->box].dtype };
    }
    if (st >= 0)
        st = dtpi_dedup_find(d->a, contents, n, same, err);
    for (uint32_t i = 0; st >= 0 && i < n; i++)
        if (same[i] != i)
            d->fates[i] = (dtpi_fate){ .kind = DTPI_FATE_SAME, .of = same[i] };
    dtpi_free(d->a, contents, (n + 1) * sizeof(*contents));
    dtpi_free(d->a, same, (n + 1) * sizeof(*same));
    return st;
}

/* ---- against the parent ---- */

typedef struct decider {
    dtpi_delta *d;
    const dtpi_delta_in *in;
    dtpi_codec codec;
    uint8_t *scratch;
    bool no_memory;
} decider;

/* Every chunk has the sum that the parent's has. */
static bool is_unchanged(const dtpi_manifest *m, const dtpi_mf_box *b, const uint8_t *data,
                         uint64_t bytes)
{
    if (b->plain_at == DTPI_NO_PLAIN)
        return false;
    for (uint64_t i = 0; i < b->n_chunks; i++) {
        const size_t n = dtpi_mf_chunk_bytes(m, bytes, i);
        if (dtpi_sum64(data + i * m->chunk_bytes, n) !=
            *DTPI_MF_GET(uint64_t, m->sums, b->plain_at + i))
            return false;
    }
    return true;
}

/* A few chunks coded both ways. */
static bool does_xor_pay(decider *c, const dtpi_piece *p, const dtpi_mf_box *b, dtp_dtype dtype,
                         const uint8_t *data)
{
    const dtpi_manifest *m = &c->d->parent->m;
    const uint64_t n_samples = DTPI_MIN(b->n_chunks / 2, (uint64_t)MAX_SAMPLES);
    uint64_t alone = 0, mixed = 0;
    const void *stored;

    for (uint64_t i = 1; i <= n_samples; i++) {
        const uint64_t chunk = i * b->n_chunks / (n_samples + 1);
        const uint8_t *at = data + chunk * m->chunk_bytes;
        const size_t n = dtpi_mf_chunk_bytes(m, p->bytes, chunk);
        size_t got = 0;
        dtp_status st = dtpi_codec_store(&c->codec, at, n, dtype, c->scratch, &stored, &got, NULL);
        alone += got;
        if (st >= 0)
            st = dtpi_delta_store(c->d, p, chunk, &c->codec, at, n, c->scratch, &stored, &got, NULL);
        if (st < 0) {
            c->no_memory = true;
            return false;
        }
        mixed += got;
    }
    return n_samples == 0 || mixed * 100 <= alone * (100 - GAIN_PERCENT);
}

/* The parent's box with the same place in the same tensor, its bytes known. */
static const dtpi_mf_box *parent_box(decider *c, const dtpi_plan_box *box)
{
    dtpi_load *l = c->d->parent;
    uint32_t i;

    if (!dtpi_mf_find(&l->m, dtpi_plan_name(c->in->plan, box), &i))
        return NULL;
    const dtpi_mf_tensor *t = dtpi_mf_tensor_at(&l->m, i);
    if (t->dtype != box->dtype || t->n_dims != box->n_dims)
        return NULL;
    const dtpi_mf_box *b = dtpi_mf_find_box(&l->m, t, dtpi_plan_offset(c->in->plan, box),
                                            dtpi_plan_extent(c->in->plan, box));
    dtp_error why = { 0 };
    dtp_status st = b ? dtpi_load_place(l, b->home, &why) : DTP_OK;
    if (b && st >= 0)
        st = dtpi_chunks_files(l, b, &why);
    if (st < 0)
        dtpi_logf(c->in->log, DTP_LOG_WARN, "ckpt", "tensor %.80s is stored anew: %s",
                  dtpi_plan_name(c->in->plan, box), why.text);
    c->no_memory |= st == DTP_ERR_NOMEM;
    return st < 0 ? NULL : b;
}

static void decide_piece(decider *c, const dtpi_piece *p)
{
    const dtpi_manifest *m = &c->d->parent->m;
    const uint8_t *data = data_of(c->in, p);
    const dtpi_plan_box *box = &c->in->plan->boxes[p->box];
    dtpi_fate *f = &c->d->fates[p->nth];

    if (f->kind != DTPI_FATE_NEW || p->bytes < DTPI_DEDUP_MIN)
        return;
    const dtpi_mf_box *b = parent_box(c, box);
    if (!b || !dtpi_lineage_mask(&c->d->lineage, m, b))
        return;
    f->of = (uint32_t)(b - dtpi_mf_box_at(m, 0));
    if (is_unchanged(m, b, data, p->bytes)) {
        f->kind = DTPI_FATE_KEPT;
    } else if (c->codec.ops->encode && dtpi_chain_length(m, b) < DTPI_PART_MAX_CHAIN) {
        uint8_t *room = dtpi_buf_reserve(&c->d->is_xor, b->n_chunks);
        f->first_chunk = c->d->is_xor.len;
        c->no_memory |= !room;
        if (room && does_xor_pay(c, p, b, box->dtype, data)) {
            f->kind = DTPI_FATE_XOR;
            memset(room, 0, b->n_chunks);
            c->d->is_xor.len += b->n_chunks;
        }
    }
}

static dtp_status open_parent(dtpi_delta *d, const dtpi_delta_in *in)
{
    dtp_error why = { 0 };

    const dtp_status st = dtpi_load_open(d->a, in->files, in->dir, in->parent, &d->parent, &why);
    if (st < 0) {
        dtpi_logf(in->log, DTP_LOG_WARN, "ckpt", "all is stored anew: %s", why.text);
        return st == DTP_ERR_NOMEM ? st : DTP_OK;
    }
    if (strcmp(d->parent->m.codec, in->codec) != 0 || d->parent->m.chunk_bytes != in->chunk_bytes ||
        d->parent->m.version < 2 || d->parent->m.id != in->parent_id) {
        dtpi_load_close(d->parent);
        d->parent = NULL;
    }
    return DTP_OK;
}

static dtp_status compare_with_parent(dtpi_delta *d, const dtpi_delta_in *in, dtp_error *err)
{
    decider c = { .d = d, .in = in };

    dtp_status st = open_parent(d, in);
    if (st < 0)
        return dtpi_fail_nomem(err, sizeof(dtpi_load));
    if (!d->parent)
        return DTP_OK;
    dtpi_lineage_after(&d->parent->m, &d->lineage);
    st = dtpi_codec_open(d->a, in->codec, &c.codec, err);
    if (st < 0)
        return st;
    c.scratch = dtpi_alloc_aligned(d->a, in->chunk_bytes, 64);
    if (!c.scratch)
        st = dtpi_fail_nomem(err, in->chunk_bytes);
    for (size_t i = 0; st >= 0 && !c.no_memory && i < in->layout->n; i++)
        decide_piece(&c, dtpi_layout_get(in->layout, i));
    if (c.no_memory)
        st = dtpi_fail_nomem(err, in->chunk_bytes);
    dtpi_free(d->a, c.scratch, in->chunk_bytes);
    dtpi_codec_close(&c.codec);
    return st;
}

/* The pieces that have bytes in the shard of this save. */
static dtp_status list_stored(dtpi_delta *d, dtp_error *err)
{
    d->stored.keys = d->layout->keys;
    for (size_t i = 0; i < d->layout->n; i++) {
        const dtpi_piece *p = dtpi_layout_get(d->layout, i);
        const dtpi_fate_kind kind = fate_of(d, i)->kind;
        if (kind == DTPI_FATE_SAME || kind == DTPI_FATE_KEPT)
            continue;
        if (!dtpi_buf_append(&d->stored.piece_buf, p, sizeof(*p)))
            return dtpi_fail_nomem(err, sizeof(*p));
        d->stored.n++;
        d->stored.bytes += p->bytes;
    }
    return DTP_OK;
}

dtp_status dtpi_delta_decide(const dtp_allocator *a, const dtpi_delta_in *in, dtpi_delta *out,
                             dtp_error *err)
{
    const size_t bytes = (in->layout->n + 1) * sizeof(*out->fates);

    *out = (dtpi_delta){ .a = a, .layout = in->layout, .chunk_bytes = in->chunk_bytes };
    out->stored.piece_buf = dtpi_buf_init(a);
    out->is_xor = dtpi_buf_init(a);
    pthread_mutex_init(&out->mutex, NULL);
    out->fates = dtpi_alloc(a, bytes);
    if (!out->fates)
        return dtpi_fail_nomem(err, bytes);
    memset(out->fates, 0, bytes);
    dtp_status st = find_same(out, in, err);
    if (st >= 0 && in->parent_id)
        st = compare_with_parent(out, in, err);
    return st < 0 ? st : list_stored(out, err);
}

/* ---- storing as XOR ---- */

/* Codes the XOR of a chunk with its base; SIZE_MAX where that could not be read. */
static dtp_status code_mixed(dtpi_xorer *x, uint32_t of, uint64_t chunk, dtpi_codec *codec,
                             const uint8_t *data, size_t bytes, const void **stored_out,
                             size_t *n_out, dtp_error *err)
{
    const dtpi_manifest *m = &x->base.l->m;
    const dtpi_mf_tensor *t = dtpi_mf_tensor_of(m, of);

    *n_out = SIZE_MAX;
    const dtp_status st =
        dtpi_chunks_read(&x->base, t, dtpi_mf_box_at(m, of), chunk, x->mixed, err);
    if (st < 0)
        return st == DTP_ERR_NOMEM ? st : DTP_OK;
    dtpi_xor(x->mixed, data, bytes);
    return dtpi_codec_store(codec, x->mixed, bytes, t->dtype, x->room, stored_out, n_out, err);
}

dtp_status dtpi_delta_store(dtpi_delta *d, const dtpi_piece *p, uint64_t chunk, dtpi_codec *codec,
                            const uint8_t *data, size_t bytes, uint8_t *scratch,
                            const void **stored_out, size_t *n_out, dtp_error *err)
{
    const dtpi_fate *f = &d->fates[p->nth];
    const void *mixed = NULL;
    size_t n_mixed = 0;

    dtpi_xorer *x = xorer_take(d);
    if (!x)
        return dtpi_fail_nomem(err, d->chunk_bytes);
    dtp_status st = code_mixed(x, f->of, chunk, codec, data, bytes, &mixed, &n_mixed, err);
    const bool was_sampled = dtpi_mf_box_at(&d->parent->m, f->of)->n_chunks > 1;
    const bool is_small = was_sampled && n_mixed <= bytes / SURELY_SMALL;
    if (st >= 0 && !is_small)
        st = dtpi_codec_store(codec, data, bytes, dtpi_mf_tensor_of(&d->parent->m, f->of)->dtype, scratch,
                              stored_out, n_out, err);
    const bool is_xor = st >= 0 && (is_small || n_mixed < *n_out);
    if (is_xor) {
        memcpy(scratch, mixed, n_mixed);
        *stored_out = scratch;
        *n_out = n_mixed;
    }
    if (is_xor && f->kind == DTPI_FATE_XOR)
        d->is_xor.data[f->first_chunk + chunk] = 1;
    xorer_give(d, x);
    return st;
}

/* ---- the part ---- */

/* Where the parent's file stands among those of the part, counted from 1; 0 without memory. */
static uint32_t put_file(const dtpi_manifest *m, uint32_t file, dtpi_part *part)
{
    const dtpi_mf_file *f = dtpi_mf_file_at(m, file);
    const char *name = dtpi_mf_file_name(m, f);
    const size_t n = part->files.len / sizeof(dtpi_part_file);

    if (part->files.failed || part->text.failed)
        return 0;
    for (size_t i = 0; i < n; i++) {
        const dtpi_part_file *p = DTPI_MF_GET(dtpi_part_file, part->files, i);
        if (p->step == f->step && p->name_bytes == strlen(name) &&
            memcmp(part->text.data + p->name_at, name, p->name_bytes) == 0)
            return (uint32_t)i + 1;
    }
    const dtpi_part_file p = { .step = f->step, .bytes = f->bytes, .header_bytes = f->header_bytes,
                               .name_at = (uint32_t)part->text.len,
                               .name_bytes = (uint32_t)strlen(name) };
    return dtpi_buf_append(&part->text, name, p.name_bytes) &&
                   dtpi_buf_append(&part->files, &p, sizeof(p))
               ? (uint32_t)n + 1
               : 0;
}

/* A box of the parent as a range of ours; its base comes later. */
static dtpi_part_range range_of(const dtpi_manifest *m, const dtpi_mf_box *b, dtpi_part *part)
{
    dtpi_part_range r = {
        .file = put_file(m, b->file, part),
        .base = DTPI_NO_BASE,
        .begin = b->begin,
        .end = b->end,
        .sums_at = part->sums.len / sizeof(uint64_t),
        .plain_at = DTPI_NO_PLAIN,
        .sizes_at = DTPI_NO_SIZES,
    };

    dtpi_buf_append(&part->sums, DTPI_MF_GET(uint64_t, m->sums, b->sums_at), b->n_chunks * 8);
    if (b->plain_at == b->sums_at) {
        r.plain_at = r.sums_at;
    } else if (b->plain_at != DTPI_NO_PLAIN) {
        r.plain_at = part->sums.len / sizeof(uint64_t);
        dtpi_buf_append(&part->sums, DTPI_MF_GET(uint64_t, m->sums, b->plain_at), b->n_chunks * 8);
    }
    if (b->sizes_at != DTPI_NO_SIZES) {
        r.sizes_at = part->sizes.len / sizeof(uint32_t);
        dtpi_buf_append(&part->sizes, DTPI_MF_GET(uint32_t, m->sizes, b->sizes_at), b->n_chunks * 4);
    }
    return r;
}

/* Appends a box of the parent and all its bases; the index of the first. */
static uint32_t put_chain(const dtpi_manifest *m, const dtpi_mf_box *b, dtpi_part *part)
{
    const uint32_t first = (uint32_t)(part->ranges.len / sizeof(dtpi_part_range));

    for (uint32_t i = first;; i++) {
        dtpi_part_range r = range_of(m, b, part);
        if (b->base != DTPI_NO_BASE)
            r.base = i + 1;
        dtpi_buf_append(&part->ranges, &r, sizeof(r));
        if (b->base == DTPI_NO_BASE)
            return first;
        b = dtpi_mf_base_at(m, b->base);
    }
}

static dtpi_part_range *range_at(dtpi_part *part, uint32_t nth)
{
    return (dtpi_part_range *)(void *)part->ranges.data + nth;
}

/* Marks chunks that stand alone in a piece where others do not; false: none is XORed. */
static bool mark_alone(const dtpi_delta *d, const dtpi_piece *p, dtpi_part *part)
{
    const uint64_t n = p->bytes / d->chunk_bytes + (p->bytes % d->chunk_bytes != 0);
    const uint8_t *is_xor = d->is_xor.data + d->fates[p->nth].first_chunk;
    uint32_t *sizes = (uint32_t *)(void *)part->sizes.data + range_at(part, p->nth)->sizes_at;

    if (!memchr(is_xor, 1, n))
        return false;
    for (uint64_t i = 0; i < n; i++)
        sizes[i] |= is_xor[i] ? 0 : DTPI_CHUNK_ALONE;
    return true;
}

static void take_from_parent(dtpi_delta *d, const dtpi_piece *p, dtpi_part *part)
{
    const dtpi_fate *f = &d->fates[p->nth];
    const dtpi_manifest *m = &d->parent->m;
    const dtpi_mf_box *b = dtpi_mf_box_at(m, f->of);
    uint32_t base = DTPI_NO_BASE;
    dtpi_part_range kept;

    if (f->kind == DTPI_FATE_XOR && !mark_alone(d, p, part))
        return;
    d->used |= dtpi_lineage_mask(&d->lineage, m, b);
    if (f->kind == DTPI_FATE_KEPT) {
        kept = range_of(m, b, part);
        b = b->base == DTPI_NO_BASE ? NULL : dtpi_mf_base_at(m, b->base);
    }
    if (b)
        base = put_chain(m, b, part);
    if (part->ranges.failed)
        return;
    if (f->kind == DTPI_FATE_KEPT)
        *range_at(part, p->nth) = kept;
    range_at(part, p->nth)->base = base;
}

dtp_status dtpi_delta_finish(dtpi_delta *d, dtpi_part *part, dtp_error *err)
{
    for (size_t i = 0; i < d->layout->n; i++) {
        const dtpi_fate_kind kind = fate_of(d, i)->kind;
        if (kind == DTPI_FATE_KEPT || kind == DTPI_FATE_XOR)
            take_from_parent(d, dtpi_layout_get(d->layout, i), part);
    }
    if (part->ranges.failed || part->files.failed || part->text.failed || part->sums.failed ||
        part->sizes.failed)
        return dtpi_fail_nomem(err, part->ranges.len);
    for (size_t i = 0; i < d->layout->n; i++)
        if (fate_of(d, i)->kind == DTPI_FATE_SAME)
            *range_at(part, dtpi_layout_get(d->layout, i)->nth) = *range_at(part, fate_of(d, i)->of);
    return DTP_OK;
}
