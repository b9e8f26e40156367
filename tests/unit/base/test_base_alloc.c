/* SPDX-License-Identifier: Apache-2.0 */
#include "failalloc.h"

#include "base/base.h"

static void test_blocks_are_zeroed_and_aligned(void **state)
{
    failalloc f = { .mutex = PTHREAD_MUTEX_INITIALIZER };
    const dtp_allocator *a = failalloc_of(&f);
    unsigned char *p = dtpi_alloc(a, 100), *large = dtpi_alloc(a, 5000);

    for (int i = 0; i < 100; i++)
        assert_int_equal(p[i], 0);
    assert_int_equal((uintptr_t)p % 16, 0);
    assert_int_equal((uintptr_t)large % 64, 0);
    dtpi_free(a, p, 100);
    dtpi_free(a, large, 5000);
    assert_int_equal(f.bytes_open, 0);
}

static void test_nothing_is_asked_as_one_byte(void **state)
{
    failalloc f = { .mutex = PTHREAD_MUTEX_INITIALIZER };
    const dtp_allocator *a = failalloc_of(&f);
    void *p = dtpi_alloc_array(a, 0, 8);

    assert_non_null(p);
    assert_int_equal(f.bytes_open, 1);
    dtpi_free(a, p, 0);
    assert_int_equal(f.bytes_open, 0);
    dtpi_free(a, NULL, 10);
}

static void test_array_refuses_overflow(void **state)
{
    assert_null(dtpi_alloc_array(&dtpi_malloc_allocator, SIZE_MAX / 2, 3));
    assert_null(dtpi_text_ndup(&dtpi_malloc_allocator, "x", SIZE_MAX - 4));
}

static void test_malloc_allocator_aligns(void **state)
{
    for (size_t align = 1; align <= 4096; align *= 2) {
        void *p = dtpi_alloc_aligned(&dtpi_malloc_allocator, 10, align);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % align, 0);
        dtpi_free(&dtpi_malloc_allocator, p, 10);
    }
}

static void test_text_knows_its_size(void **state)
{
    FOR_EACH_FAILURE(f)
    {
        const dtp_allocator *a = failalloc_of(&f);
        char *text = dtpi_text_dup(a, "hello"), *part = dtpi_text_ndup(a, "hello", 2);

        if (text)
            assert_string_equal(text, "hello");
        if (part)
            assert_string_equal(part, "he");
        assert_int_equal(f.has_failed, !text || !part);
        dtpi_text_free(a, text);
        dtpi_text_free(a, part);
    }
    assert_null(dtpi_text_dup(&dtpi_malloc_allocator, NULL));
    dtpi_text_free(&dtpi_malloc_allocator, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_zeroed_and_aligned),
        cmocka_unit_test(test_nothing_is_asked_as_one_byte),
        cmocka_unit_test(test_array_refuses_overflow),
        cmocka_unit_test(test_malloc_allocator_aligns),
        cmocka_unit_test(test_text_knows_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
