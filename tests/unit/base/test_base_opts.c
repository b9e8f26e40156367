/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "base/base.h"

/* The struct of an older, this and a newer version. */
typedef struct opts_old {
    size_t size;
    uint32_t a;
} opts_old;

typedef struct opts_now {
    size_t size;
    uint32_t a;
    uint32_t b;
} opts_now;

typedef struct opts_new {
    size_t size;
    uint32_t a;
    uint32_t b;
    uint64_t c;
} opts_new;

static void test_null_is_all_defaults(void **state)
{
    opts_now o;

    memset(&o, 0xff, sizeof(o));
    assert_ok(DTPI_OPTS_READ(&o, NULL, ERR));
    assert_int_equal(o.size, sizeof(o));
    assert_int_equal(o.a, 0);
    assert_int_equal(o.b, 0);
}

static void test_shorter_struct_is_extended_with_zeros(void **state)
{
    const opts_old user = { offsetof(opts_old, a) + sizeof(uint32_t), 7 };
    opts_now o;

    memset(&o, 0xff, sizeof(o));
    assert_ok(DTPI_OPTS_READ(&o, &user, ERR));
    assert_int_equal(o.size, sizeof(o));
    assert_int_equal(o.a, 7);
    assert_int_equal(o.b, 0);
}

static void test_longer_struct_passes_when_its_tail_is_zero(void **state)
{
    opts_new user = { sizeof(opts_new), 1, 2, 0 };
    opts_now o;

    assert_ok(DTPI_OPTS_READ(&o, &user, ERR));
    assert_int_equal(o.b, 2);
    user.c = 1ull << 63;
    assert_status(DTP_ERR_VERSION, DTPI_OPTS_READ(&o, &user, ERR));
    assert_text("byte 23");
}

static void test_size_that_was_never_set_is_invalid(void **state)
{
    opts_now user = { 0, 1, 2 }, o;

    assert_status(DTP_ERR_INVAL, DTPI_OPTS_READ(&o, &user, ERR));
    user.size = sizeof(size_t) - 1;
    assert_status(DTP_ERR_INVAL, DTPI_OPTS_READ(&o, &user, ERR));
    user.size = 65537;
    assert_status(DTP_ERR_INVAL, DTPI_OPTS_READ(&o, &user, ERR));
    user.size = SIZE_MAX;
    assert_status(DTP_ERR_INVAL, DTPI_OPTS_READ(&o, &user, ERR));
    user.size = sizeof(size_t);
    assert_ok(DTPI_OPTS_READ(&o, &user, ERR));
    assert_int_equal(o.a, 0);
}

static void test_results_fit_old_and_new_callers(void **state)
{
    const opts_now own = { sizeof(own), 5, 6 };
    struct {
        opts_old r;
        uint32_t guard;
    } old = { { offsetof(opts_old, a) + sizeof(uint32_t), 0 }, 0 };
    opts_new new_one = { sizeof(opts_new), 0, 0, 99 };

    old.guard = 77;
    assert_ok(DTPI_RESULT_WRITE(&old.r, &own, ERR));
    assert_int_equal(old.r.a, 5);
    assert_int_equal(old.r.size, offsetof(opts_old, a) + sizeof(uint32_t));
    assert_int_equal(old.guard, 77);
    assert_ok(DTPI_RESULT_WRITE(&new_one, &own, ERR));
    assert_int_equal(new_one.size, sizeof(opts_new));
    assert_int_equal(new_one.b, 6);
    assert_int_equal(new_one.c, 0);
    new_one.size = 3;
    assert_status(DTP_ERR_INVAL, DTPI_RESULT_WRITE(&new_one, &own, ERR));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null_is_all_defaults),
        cmocka_unit_test(test_shorter_struct_is_extended_with_zeros),
        cmocka_unit_test(test_longer_struct_passes_when_its_tail_is_zero),
        cmocka_unit_test(test_size_that_was_never_set_is_invalid),
        cmocka_unit_test(test_results_fit_old_and_new_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
