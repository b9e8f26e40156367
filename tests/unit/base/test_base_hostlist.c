/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "base/hostlist.h"

typedef struct names {
    char text[1024];
    uint32_t n;
    uint32_t stop_at;
} names;

static dtp_status add(void *user, const char *name)
{
    names *s = user;

    if (strlen(s->text) + strlen(name) + 2 < sizeof(s->text)) {
        if (s->n)
            strcat(s->text, " ");
        strcat(s->text, name);
    }
    return ++s->n == s->stop_at ? DTP_ERR_EXISTS : DTP_OK;
}

static void check_expands(const char *list, const char *want)
{
    names s = { .n = 0 };

    assert_ok(dtpi_hostlist_expand(list, add, &s, ERR));
    assert_string_equal(s.text, want);
}

static void test_slurm_lists_expand_in_order(void **state)
{
    check_expands("login", "login");
    check_expands("a,b,c", "a b c");
    check_expands("n[1-4,07]x[1-2]", "n1x1 n1x2 n2x1 n2x2 n3x1 n3x2 n4x1 n4x2 n07x1 n07x2");
    check_expands("n[08-11]", "n08 n09 n10 n11");
    check_expands("n[1-2].cluster,m[3]", "n1.cluster n2.cluster m3");
    check_expands("[1-2]a", "1a 2a");
    check_expands("n[099-101]", "n099 n100 n101");
    check_expands("n[5-5]", "n5");
}

static void test_malformed_lists_are_named(void **state)
{
    static const char *const bad[] = { "",         ",",
                                       "a,",       ",a",
                                       "a,,b",     "n[",
                                       "n[]",      "n[1",
                                       "n]",       "n[1-]",
                                       "n[-1]",    "n[3-1]",
                                       "n[1,]",    "n[,1]",
                                       "n[a]",     "n[1 ]",
                                       "a b",      "n[1[2]]",
                                       "n[1-2-3]", "n[1]]",
                                       "n[1,,2]",  "n[1234567890]",
                                       "a\nb" };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        names s = { .n = 0 };
        assert_status(DTP_ERR_FORMAT, dtpi_hostlist_expand(bad[i], add, &s, ERR));
        assert_text("malformed");
    }
}

static void test_long_names_are_refused(void **state)
{
    char list[300];
    names s = { .n = 0 };

    memset(list, 'h', sizeof(list));
    list[255] = '\0';
    assert_ok(dtpi_hostlist_expand(list, add, &s, ERR));
    list[255] = 'h';
    list[256] = '\0';
    assert_status(DTP_ERR_FORMAT, dtpi_hostlist_expand(list, add, &s, ERR));
    strcpy(list + 250, "[100000-100001]");
    assert_status(DTP_ERR_FORMAT, dtpi_hostlist_expand(list, add, &s, ERR));
}

static dtp_status count(void *user, const char *name)
{
    ++*(uint32_t *)user;
    return DTP_OK;
}

static void test_too_many_names_are_a_limit(void **state)
{
    uint32_t n = 0;

    assert_status(DTP_ERR_LIMIT, dtpi_hostlist_expand("n[1-999999999]", count, &n, ERR));
    assert_int_equal(n, DTPI_HOSTLIST_MAX);
    n = 0;
    assert_status(DTP_ERR_LIMIT, dtpi_hostlist_expand("n[0-9999]x[0-9999]", count, &n, ERR));
    assert_int_equal(n, DTPI_HOSTLIST_MAX);
}

static void test_callback_ends_the_walk(void **state)
{
    names s = { .stop_at = 3 };

    assert_int_equal(dtpi_hostlist_expand("n[1-100],m", add, &s, NULL), DTP_ERR_EXISTS);
    assert_int_equal(s.n, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slurm_lists_expand_in_order),
        cmocka_unit_test(test_malformed_lists_are_named),
        cmocka_unit_test(test_long_names_are_refused),
        cmocka_unit_test(test_too_many_names_are_a_limit),
        cmocka_unit_test(test_callback_ends_the_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
