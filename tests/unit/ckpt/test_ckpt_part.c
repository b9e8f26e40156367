/* SPDX-License-Identifier: Apache-2.0 */
/* Parts: one good part changed in one number, its checksum made right again, is refused. */
#include "check.h"

#include "base/sum.h"
#include "ckpt/part.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

static const char body[] =
    "{\"format\":\"dtp-ckpt\",\"version\":2,\"step\":3,\"world_size\":2,\"attempt\":0,\"generation\":0,"
    "\"id\":\"00000000000000ff\",\"codec\":\"none\",\"chunk_bytes\":4096,\"lineage\":[2],\"meta\":{},"
    "\"files\":[{\"name\":\"a\",\"rank\":1,\"bytes\":12288,\"header_bytes\":4096,\"header_sum\":"
    "\"000000000000000a\",\"digest\":\"0000000000000000\",\"part\":\"p\",\"part_bytes\":1,\"part_sum\":"
    "\"0000000000000000\"}],\"tensors\":[{\"name\":\"v\",\"dtype\":\"u8\",\"shape\":[4096],\"boxes\":"
    "[[0,0,4096]]},{\"name\":\"w\",\"dtype\":\"u8\",\"shape\":[4097],\"boxes\":[[0,0,4000],[0,4000,97]]}]";

static void read_manifest(dtpi_manifest *m)
{
    char text[sizeof(body) + DTPI_MANIFEST_TAIL];

    snprintf(text, sizeof(text), "%s,\"checksum\":\"%016llx\"}\n", body,
             (unsigned long long)dtpi_sum64(body, sizeof(body) - 1));
    assert_ok(dtpi_manifest_read(A, text, sizeof(text) - 1, "m", m, ERR));
}

/* Box 0 is XORed with a base in step 2, box 2 is coded and at the end of the shard. */
static void fill(dtpi_part *p)
{
    static const dtpi_part_range ranges[] = {
        { 0, 3, 0, 4096, 1, DTPI_NO_SIZES },
        { 0, DTPI_NO_BASE, 4096, 8096, 2, DTPI_NO_SIZES },
        { 0, DTPI_NO_BASE, 8096, 8192, 3, 0 },
        { 1, 4, 0, 4000, 4, 1 },
        { 1, DTPI_NO_BASE, 4000, 8096, 5, DTPI_NO_SIZES },
    };
    static const dtpi_part_file file = { 2, 9000, 900, 0, 1 };
    static const uint64_t sums[] = { 10, 11, 12, 13, 14, 15 };
    static const uint32_t sizes[] = { 96, 4000 };

    dtpi_part_init(p, A);
    p->head = (dtpi_part_head){ .chunk_bytes = 4096, .step = 3, .id = 255, .rank = 1, .world_size = 2,
                                .n_boxes = 3 };
    dtpi_buf_append(&p->ranges, ranges, sizeof(ranges));
    dtpi_buf_append(&p->files, &file, sizeof(file));
    dtpi_buf_append(&p->sums, sums, sizeof(sums));
    dtpi_buf_append(&p->sizes, sizes, sizeof(sizes));
    dtpi_buf_append(&p->text, "s", 1);
}

static void make_part(dtpi_buf *out)
{
    dtpi_part p;

    fill(&p);
    assert_ok(dtpi_part_write(&p, out, ERR));
    dtpi_part_free(&p);
}

static dtp_status place(dtpi_manifest *m, const dtpi_buf *text)
{
    dtpi_part_view view;
    const dtp_status st = dtpi_part_open(text->data, text->len, "p", &view, ERR);

    return st < 0 ? st : dtpi_part_place(m, 0, &view, "p", ERR);
}

static void test_part_places_the_boxes_of_its_file(void **state)
{
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(A);
    dtpi_manifest m;

    (void)state;
    make_part(&text);
    read_manifest(&m);
    assert_ok(place(&m, &text));
    assert_true(dtpi_mf_file_at(&m, 0)->placed);
    assert_int_equal(dtpi_mf_n_files(&m), 2);
    assert_int_equal(m.n_own_files, 1);
    assert_string_equal(dtpi_mf_file_name(&m, dtpi_mf_file_at(&m, 1)), "s");
    assert_int_equal(dtpi_mf_file_at(&m, 1)->step, 2);

    const dtpi_mf_box *b = dtpi_mf_box_at(&m, 0);
    assert_int_equal(b->file, 0);
    assert_int_equal(dtpi_mf_sum(&m, b, 0), 11);
    const dtpi_mf_box *base = dtpi_mf_base_at(&m, b->base);
    assert_int_equal(base->file, 1);
    assert_int_equal(dtpi_mf_stored_bytes(&m, base, 4096, 0), 4000);
    base = dtpi_mf_base_at(&m, base->base);
    assert_int_equal(base->begin, 4000);
    assert_int_equal(base->base, DTPI_NO_BASE);
    assert_int_equal(dtpi_mf_stored_bytes(&m, dtpi_mf_box_at(&m, 2), 97, 0), 96);
    dtpi_manifest_free(&m);
}

static void test_range_of_another_size_is_refused(void **state)
{
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(A);
    dtpi_manifest m;
    dtpi_part p;

    (void)state;
    fill(&p);
    dtpi_part_range *r = (dtpi_part_range *)(void *)p.ranges.data;
    r[0].base = DTPI_NO_BASE;
    r[1].end = r[1].begin + 4096;
    r[0] = r[1];
    assert_ok(dtpi_part_write(&p, &text, ERR));
    read_manifest(&m);
    assert_status(DTP_ERR_FORMAT, place(&m, &text));
    dtpi_manifest_free(&m);
    dtpi_part_free(&p);
}

/* Offsets of numbers in the part. */
enum { HEAD = 0, RANGES = 80, FILES = RANGES + 5 * 48, SUMS = FILES + 32, TEXT = SUMS + 6 * 8 + 2 * 4 };

static const struct {
    size_t at, width;
    uint64_t value;
    dtp_status want;
} cases[] = {
    { HEAD, 1, 'D', DTP_ERR_FORMAT },
    { HEAD + 8, 4, 2, DTP_ERR_VERSION },
    { HEAD + 12, 4, 8192, DTP_ERR_FORMAT },
    { HEAD + 16, 8, 4, DTP_ERR_FORMAT },
    { HEAD + 24, 8, 254, DTP_ERR_FORMAT },
    { HEAD + 32, 4, 0, DTP_ERR_FORMAT },
    { HEAD + 36, 4, 3, DTP_ERR_FORMAT },
    { HEAD + 40, 8, 2, DTP_ERR_FORMAT },
    { HEAD + 40, 8, 6, DTP_ERR_FORMAT },
    { HEAD + 48, 8, 4, DTP_ERR_FORMAT },
    { HEAD + 48, 8, UINT64_MAX / 48 + 2, DTP_ERR_FORMAT },
    { HEAD + 56, 8, UINT64_MAX / 8 + 7, DTP_ERR_FORMAT },
    { HEAD + 64, 8, UINT64_MAX / 4 + 3, DTP_ERR_FORMAT },
    { HEAD + 72, 4, UINT32_MAX, DTP_ERR_FORMAT },
    { HEAD + 76, 4, UINT32_MAX, DTP_ERR_FORMAT },
    { RANGES, 4, 2, DTP_ERR_FORMAT },                   /* a file that is not there */
    { RANGES + 4, 4, 2, DTP_ERR_FORMAT },               /* a box as a base */
    { RANGES + 4, 4, 5, DTP_ERR_FORMAT },
    { RANGES + 8, 8, 1, DTP_ERR_FORMAT },
    { RANGES + 8, 8, 4097, DTP_ERR_FORMAT },
    { RANGES + 16, 8, 4095, DTP_ERR_FORMAT },
    { RANGES + 24, 8, 6, DTP_ERR_FORMAT },              /* no sum for its chunk */
    { RANGES + 24, 8, UINT64_MAX, DTP_ERR_FORMAT },
    { RANGES + 32, 8, 2, DTP_ERR_FORMAT },
    { RANGES + 40, 8, 6, DTP_ERR_FORMAT },              /* no plain sum */
    { RANGES + 40, 8, UINT64_MAX, DTP_ERR_FORMAT },
    { RANGES + 48 + 8, 8, 4095, DTP_ERR_FORMAT },       /* an overlap */
    { RANGES + 144 + 4, 4, 3, DTP_ERR_FORMAT },         /* a base of its own */
    { RANGES + 144 + 16, 8, 4001, DTP_ERR_FORMAT },
    { RANGES + 192 + 8, 8, 9000, DTP_ERR_FORMAT },
    { FILES, 8, 1, DTP_ERR_FORMAT },                    /* not in the lineage */
    { FILES + 8, 8, 8900, DTP_ERR_FORMAT },
    { FILES + 16, 8, 9001, DTP_ERR_FORMAT },
    { FILES + 24, 4, 1, DTP_ERR_FORMAT },
    { FILES + 28, 4, 0, DTP_ERR_FORMAT },
    { SUMS, 8, 9, DTP_ERR_FORMAT },                     /* of another header */
    { SUMS + 48, 4, 0, DTP_ERR_FORMAT },
    { SUMS + 48, 4, 98, DTP_ERR_FORMAT },
    { SUMS + 52, 4, 4097, DTP_ERR_FORMAT },
    { TEXT, 1, '/', DTP_ERR_FORMAT },
    { TEXT, 1, 0, DTP_ERR_FORMAT },
};

static void test_one_wrong_number_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(cases); i++) {
        DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(A);
        dtpi_manifest m;
        make_part(&text);
        memcpy(text.data + cases[i].at, &cases[i].value, cases[i].width);
        const uint64_t sum = dtpi_sum64(text.data, text.len - DTPI_PART_TAIL);
        memcpy(text.data + text.len - DTPI_PART_TAIL, &sum, sizeof(sum));
        read_manifest(&m);
        const dtp_status got = place(&m, &text);
        if (got != cases[i].want)
            fail_msg("case %zu: expected %s, got %s: %s", i, dtp_status_name(cases[i].want),
                     dtp_status_name(got), check_err.text);
        assert_false(dtpi_mf_file_at(&m, 0)->placed);
        dtpi_manifest_free(&m);
    }
}

static void test_part_cut_anywhere_is_refused(void **state)
{
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(A);
    dtpi_part_view view;

    (void)state;
    make_part(&text);
    for (size_t i = 0; i < text.len; i++) {
        const dtp_status st = dtpi_part_open(text.data, i, "p", &view, ERR);
        assert_true(st == DTP_ERR_TRUNCATED || st == DTP_ERR_CORRUPT);
    }
}

static void test_chain_of_nine_bases_is_refused(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= DTPI_PART_MAX_CHAIN + 1; n++) {
        DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(A);
        dtpi_manifest m;
        dtpi_part p;
        fill(&p);
        p.ranges.len -= 2 * sizeof(dtpi_part_range);
        for (uint32_t i = 0; i < n; i++) {
            const dtpi_part_range r = { 1, i + 1 < n ? 4 + i : DTPI_NO_BASE, 0, 4096, 4, DTPI_NO_SIZES };
            dtpi_buf_append(&p.ranges, &r, sizeof(r));
        }
        assert_ok(dtpi_part_write(&p, &text, ERR));
        read_manifest(&m);
        assert_status(n <= DTPI_PART_MAX_CHAIN ? DTP_OK : DTP_ERR_FORMAT, place(&m, &text));
        dtpi_manifest_free(&m);
        dtpi_part_free(&p);
    }
}

static void test_part_that_no_reader_takes_is_not_written(void **state)
{
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(A);
    dtpi_part p;

    (void)state;
    fill(&p);
    const size_t len = p.sums.len;
    p.sums.len = DTPI_PART_MAX;         /* nobody looks at them */
    assert_status(DTP_ERR_LIMIT, dtpi_part_write(&p, &text, ERR));
    assert_text("could not be read");
    p.sums.len = len;
    dtpi_part_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_part_places_the_boxes_of_its_file),
        cmocka_unit_test(test_range_of_another_size_is_refused),
        cmocka_unit_test(test_one_wrong_number_is_refused),
        cmocka_unit_test(test_part_cut_anywhere_is_refused),
        cmocka_unit_test(test_part_that_no_reader_takes_is_not_written),
        cmocka_unit_test(test_chain_of_nine_bases_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
