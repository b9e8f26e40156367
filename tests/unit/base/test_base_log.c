/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <errno.h>

#include "base/base.h"

typedef struct seen {
    int n;
    dtp_log_level level;
    char topic[32];
    char text[2048];
} seen;

static void keep(void *user, dtp_log_level level, const char *topic, const char *text)
{
    seen *s = user;

    s->n++;
    s->level = level;
    snprintf(s->topic, sizeof(s->topic), "%s", topic);
    snprintf(s->text, sizeof(s->text), "%s", text);
    errno = EPIPE;
}

static void test_lines_are_filtered_by_level(void **state)
{
    seen s = { 0 };
    const dtpi_log log = { keep, &s, DTP_LOG_INFO };

    dtpi_logf(&log, DTP_LOG_DEBUG, "t", "no");
    assert_int_equal(s.n, 0);
    dtpi_logf(&log, DTP_LOG_INFO, "topo", "%d GPUs", 8);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.level, DTP_LOG_INFO);
    assert_string_equal(s.topic, "topo");
    assert_string_equal(s.text, "8 GPUs");
}

static void test_lines_are_single_and_errno_is_kept(void **state)
{
    seen s = { 0 };
    const dtpi_log log = { keep, &s, DTP_LOG_DEBUG };

    errno = ENOENT;
    dtpi_logf(&log, DTP_LOG_WARN, "t", "a\nb: %m");
    assert_string_equal(s.text, "a b: No such file or directory");
    assert_int_equal(errno, ENOENT);
    dtpi_logf(&log, DTP_LOG_WARN, "t", "%02000d", 1);
    assert_int_equal(strlen(s.text), 1023);
}

static void test_silent_without_a_function(void **state)
{
    const dtpi_log log = { NULL, NULL, DTP_LOG_DEBUG };

    dtpi_logf(&log, DTP_LOG_ERROR, "t", "nobody hears");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_filtered_by_level),
        cmocka_unit_test(test_lines_are_single_and_errno_is_kept),
        cmocka_unit_test(test_silent_without_a_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
