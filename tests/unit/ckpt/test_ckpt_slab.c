/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs follow each other without gap, in order, and within their bound. */
#include "check.h"

#include "ckpt/box.h"
#include "ckpt/slab.h"

/* Where a slab begins in the tensor's bytes. */
static uint64_t place_of(const dtpi_slab *s)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < s->n_dims; i++)
        at = at * (uint64_t)s->shape[i] + (uint64_t)s->offset[i];
    at *= dtp_dtype_bits(s->dtype);
    assert_int_equal(at % 8, 0);
    return at / 8;
}

static void check_tensor(dtp_dtype dtype, uint32_t n_dims, const int64_t *shape, uint64_t most)
{
    const dtp_ckpt_tensor t = { sizeof(t), "t", dtype, n_dims, shape, NULL, NULL, NULL };
    const uint64_t least = 3;   /* bytes of an element, or of four that share three */
    uint64_t at = 0, bytes = 0, first = 0;
    dtpi_slab s;

    if (!dtpi_box_bytes(n_dims, shape, dtype, &bytes))
        return;
    for (dtpi_slab_begin(&s, &t, most); !s.done; dtpi_slab_next(&s)) {
        assert_int_equal(place_of(&s), at);
        first = first ? first : s.bytes;
        assert_true(s.bytes > 0 && s.bytes <= first && (s.whole || s.bytes <= DTPI_MAX(most, least)));
        assert_true(dtpi_box_inside(n_dims, s.offset, s.extent, shape));
        at += s.bytes;
    }
    assert_int_equal(at, bytes);
}

static void test_slabs_tile_any_tensor(void **state)
{
    static const dtp_dtype types[] = { DTP_F16, DTP_F4, DTP_F6_E2M3 };
    uint64_t seed = check_seed();

    (void)state;
    for (int i = 0; i < 9000; i++) {
        int64_t shape[4] = { 0 };
        const uint32_t n_dims = (uint32_t)(check_random(&seed) % 5);
        for (uint32_t d = 0; d < n_dims; d++)
            shape[d] = (int64_t)(check_random(&seed) % 19) + (check_random(&seed) % 9 != 0);
        check_tensor(types[i % 3], n_dims, shape, check_random(&seed) % 200 + 1);
    }
}

/* Slabs of `dtype` and `shape` with at most `most` bytes. */
static int count(dtp_dtype dtype, const int64_t shape[2], uint64_t most)
{
    const dtp_ckpt_tensor t = { sizeof(t), "t", dtype, 2, shape, NULL, NULL, NULL };
    dtpi_slab s;
    int n = 0;

    for (dtpi_slab_begin(&s, &t, most); !s.done; dtpi_slab_next(&s))
        n++;
    return n;
}

static void test_elements_that_are_no_whole_bytes_are_cut_between_bytes(void **state)
{
    static const int64_t rows[] = { 8, 3 }, wide[] = { 2, 32 }, odd[] = { 8, 33 };

    (void)state;
    assert_int_equal(count(DTP_F4, rows, 12), 1);
    assert_int_equal(count(DTP_F4, rows, 8), 2);       /* pairs of rows share 3 bytes */
    assert_int_equal(count(DTP_F4, wide, 8), 4);
    assert_int_equal(count(DTP_F6_E2M3, wide, 1), 16);
    assert_int_equal(count(DTP_F4, odd, 8), 1);        /* rows begin within bytes */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slabs_tile_any_tensor),
        cmocka_unit_test(test_elements_that_are_no_whole_bytes_are_cut_between_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
