/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single bits of a checkpoint of 1 MiB turn: each is found, and the message names file, tensor and chunk.
 * Some thousands of bits, with DTP_TEST_LONG all 8.4 million. A bit of a chunk is looked for by a load of
 * one element of it, one of a header, part or manifest by opening and verifying anew.
 */
#include "ranks.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;
static const char step_dir[] = "ck/step-00000000000000000001";

/* Which bits are turned: every `stride`-th. */
typedef struct sampler {
    uint64_t stride, next, n;
} sampler;

static sampler sampler_of(uint64_t stride, uint64_t *seed)
{
    const bool all = check_is_long();

    return (sampler){ all ? 1 : stride, all ? 0 : check_random(seed) % stride, 0 };
}

static bool take(sampler *s)
{
    if (s->next > 0) {
        s->next--;
        return false;
    }
    s->next = s->stride - 1;
    s->n++;
    return true;
}

typedef struct bench {
    dtpi_files *files;
    dtpi_load *l;               /* stays open while bits of chunks turn */
    sampler data, rest;
} bench;

static void flip(const bench *b, const char *path, uint64_t bit)
{
    assert_ok(dtpi_files_mem_flip(b->files, path, bit / 8, (uint8_t)(1 << bit % 8), ERR));
}

/* One bit of a chunk that holds element `at` of the tensor. */
static void try_data_bit(bench *b, const char *path, uint64_t bit, const dtpi_mf_tensor *t, int64_t at,
                         const char *want)
{
    static const int64_t one = 1;
    uint8_t got[8];
    const dtp_ckpt_tensor wanted = {
        sizeof(wanted), dtpi_mf_text(&b->l->m, t->name_at), t->dtype, 1,
        dtpi_mf_dims(&b->l->m, t->dims_at), &at, &one, got,
    };

    flip(b, path, bit);
    assert_status(DTP_ERR_CORRUPT, dtpi_load_read(b->l, &wanted, ERR));
    if (strncmp(check_err.text, want, strlen(want)) != 0)
        fail_msg("bit %llu of %s: \"%s\" does not begin with \"%s\"", (unsigned long long)bit, path,
                 check_err.text, want);
    flip(b, path, bit);
}

/* The chunks of a box of one dimension. */
static void try_box(bench *b, const dtpi_mf_tensor *t, const dtpi_mf_box *box)
{
    const dtpi_manifest *m = &b->l->m;
    const dtpi_mf_file *f = dtpi_mf_file_at(m, box->file);
    const uint64_t bytes = dtpi_mf_box_bytes(m, t, box), width = dtp_dtype_bytes(t->dtype);
    uint64_t stored_at = 8 * (f->header_bytes + box->begin);
    char path[DTPI_PATH_MAX], want[200];

    snprintf(path, sizeof(path), "%s/%s", step_dir, dtpi_mf_file_name(m, f));
    for (uint64_t c = 0; c < box->n_chunks; c++) {
        const uint64_t bits = 8ull * dtpi_mf_stored_bytes(m, box, bytes, c);
        const int64_t at = dtpi_mf_dims(m, box->dims_at)[0] + (int64_t)(c * m->chunk_bytes / width);
        snprintf(want, sizeof(want), "%s: tensor %s: chunk %llu of %llu: checksum mismatch",
                 dtpi_mf_file_name(m, f), dtpi_mf_text(m, t->name_at), (unsigned long long)c,
                 (unsigned long long)box->n_chunks);
        for (uint64_t bit = 0; bit < bits; bit++)
            if (take(&b->data))
                try_data_bit(b, path, stored_at + bit, t, at, want);
        stored_at += bits;
    }
}

/* A file's first `bytes` bytes, which belong to no chunk. */
static void try_rest(bench *b, const char *name, uint64_t bytes)
{
    char path[DTPI_PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", step_dir, name);
    for (uint64_t bit = 0; bit < 8 * bytes; bit++) {
        DTPI_AUTO(load) dtpi_load *l = NULL;
        if (!take(&b->rest))
            continue;
        flip(b, path, bit);
        dtp_status st = dtpi_load_open(A, b->files, "ck", 1, &l, ERR);
        if (st >= 0)
            st = dtpi_load_verify(l, NULL, NULL, ERR);
        if (st >= 0)
            fail_msg("bit %llu of %s was not found", (unsigned long long)bit, path);
        assert_text(name);
        flip(b, path, bit);
    }
}

/* Numbers like weights: what the codecs find something in. */
static void soften(dtp_ckpt_tensor *t)
{
    uint8_t *p = t->data;

    for (uint64_t i = 1; i < box_bytes(t); i += 2)
        p[i] = (uint8_t)(0x3c + p[i] % 4);
}

static void save_some(dtpi_files *files, dtp_codec codec)
{
    static const int64_t w[] = { 131072 }, w0[] = { 65536 }, v[] = { 250000 }, v0[] = { 1000 };
    static const int64_t v1[] = { 249000 }, small[] = { 5000 };
    rank_run r[2];

    ranks_init(r, 2, files, "ck");
    for (int i = 0; i < 2; i++) {
        r[i].opts.codec = codec;
        r[i].opts.chunk_bytes = 4096;
        give(&r[i], "w", DTP_F32, 1, w, i ? w0 : NULL, w0, 1);
        give(&r[i], "v", DTP_BF16, 1, v, i ? v0 : NULL, i ? v1 : v0, 2);
    }
    give(&r[1], "small", DTP_U8, 1, small, NULL, NULL, 3);
    for (int i = 0; codec != DTP_CODEC_NONE && i < 2; i++)
        for (size_t k = 0; k < r[i].n; k++)
            soften(&r[i].tensors[k]);
    assert_ok(ranks_save(r, 2, 1));
    ranks_free(r, 2);
}

static void try_codec(dtp_codec codec, uint64_t data_stride, uint64_t rest_stride)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    uint64_t seed = check_seed(), bytes = 0;
    bench b = { .files = files };

    b.data = sampler_of(data_stride, &seed);
    b.rest = sampler_of(rest_stride, &seed);
    save_some(files, codec);
    assert_ok(dtpi_load_open(A, files, "ck", 1, &b.l, ERR));
    assert_ok(dtpi_load_verify(b.l, NULL, NULL, ERR));
    const dtpi_manifest *m = &b.l->m;
    for (size_t i = 0; i < dtpi_mf_n_tensors(m); i++)
        for (uint32_t k = 0; k < dtpi_mf_tensor_at(m, i)->n_boxes; k++)
            try_box(&b, dtpi_mf_tensor_at(m, i),
                    dtpi_mf_box_at(m, dtpi_mf_tensor_at(m, i)->first_box + k));
    for (size_t i = 0; i < m->n_own_files; i++) {
        const dtpi_mf_file *f = dtpi_mf_file_at(m, i);
        try_rest(&b, dtpi_mf_file_name(m, f), f->header_bytes);
        try_rest(&b, dtpi_mf_text(m, f->part_at), f->part_bytes);
    }
    assert_ok(files->ops->size(files, "ck/step-00000000000000000001/manifest.json", &bytes, ERR));
    try_rest(&b, "manifest.json", bytes);
    assert_ok(dtpi_load_verify(b.l, NULL, NULL, ERR));
    print_message("%llu bits of chunks, %llu of headers, parts and manifest\n",
                  (unsigned long long)b.data.n, (unsigned long long)b.rest.n);
    dtpi_load_close(b.l);
}

static void test_every_bit_of_a_mebibyte_is_found(void **state)
{
    (void)state;
    try_codec(DTP_CODEC_NONE, 2003, 101);
}

static void test_every_bit_of_coded_chunks_is_found(void **state)
{
    (void)state;
    try_codec(DTP_CODEC_PLANES, 2003, 307);
    try_codec(DTP_CODEC_ZSTD, 4001, 1009);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bit_of_a_mebibyte_is_found),
        cmocka_unit_test(test_every_bit_of_coded_chunks_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
