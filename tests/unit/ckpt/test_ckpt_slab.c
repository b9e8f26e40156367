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
    return at * dtp_dtype_bytes(s->dtype);
}

static void check_tensor(uint32_t n_dims, const int64_t *shape, uint64_t most)
{
    const dtp_ckpt_tensor t = { sizeof(t), "t", DTP_F16, n_dims, shape, NULL, NULL, NULL };
    uint64_t at = 0, bytes = 0;
    dtpi_slab s;

    for (dtpi_slab_begin(&s, &t, most); !s.done; dtpi_slab_next(&s)) {
        assert_int_equal(place_of(&s), at);
        assert_true(s.bytes > 0 && s.bytes <= DTPI_MAX(most, 2u));
        assert_true(dtpi_box_inside(n_dims, s.offset, s.extent, shape));
        at += s.bytes;
    }
    assert_true(dtpi_box_bytes(n_dims, shape, DTP_F16, &bytes));
    assert_int_equal(at, bytes);
}

static void test_slabs_tile_any_tensor(void **state)
{
    uint64_t seed = check_seed();

    (void)state;
    for (int i = 0; i < 3000; i++) {
        int64_t shape[4] = { 0 };
        const uint32_t n_dims = (uint32_t)(check_random(&seed) % 5);
        for (uint32_t d = 0; d < n_dims; d++)
            shape[d] = (int64_t)(check_random(&seed) % 7) + (check_random(&seed) % 9 != 0);
        check_tensor(n_dims, shape, check_random(&seed) % 200 + 1);
    }
}

static void test_elements_that_are_no_whole_bytes_are_not_cut(void **state)
{
    static const int64_t shape[] = { 3, 4 };
    const dtp_ckpt_tensor t = { sizeof(t), "t", DTP_F4, 2, shape, NULL, NULL, NULL };
    dtpi_slab s;

    (void)state;
    dtpi_slab_begin(&s, &t, 1);
    assert_false(s.done);
    assert_int_equal(s.bytes, 6);
    dtpi_slab_next(&s);
    assert_true(s.done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slabs_tile_any_tensor),
        cmocka_unit_test(test_elements_that_are_no_whole_bytes_are_not_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
