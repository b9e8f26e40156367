/* SPDX-License-Identifier: Apache-2.0 */
/* Lines: the same whatever the pieces they come in, bounded, any byte. */
#include "check.h"

#include "job/lines.h"

typedef struct got {
    char text[1 << 19];
    size_t len;
    int n;
    size_t longest;
} got;

static got g;

static void on_line(void *user, const char *line, size_t bytes)
{
    (void)user;
    assert_int_equal(line[bytes], 0);
    memcpy(g.text + g.len, line, bytes);
    g.len += bytes;
    g.text[g.len++] = '\n';
    g.n++;
    g.longest = bytes > g.longest ? bytes : g.longest;
}

static void test_lines_are_the_same_in_any_pieces(void **state)
{
    static const char text[] = "one\n\ntwo\0with nul\n\xff\xfe\nlast";
    const size_t bytes = sizeof(text) - 1;

    (void)state;
    for (size_t piece = 1; piece <= bytes; piece++) {
        DTPI_AUTO_BUF dtpi_buf part = dtpi_buf_init(&dtpi_malloc_allocator);
        memset(&g, 0, sizeof(g));
        for (size_t at = 0; at < bytes; at += piece)
            dtpi_lines_feed(&part, text + at, DTPI_MIN(piece, bytes - at), on_line, NULL);
        assert_int_equal(g.n, 4);
        dtpi_lines_end(&part, on_line, NULL);
        dtpi_lines_end(&part, on_line, NULL);
        assert_int_equal(g.n, 5);
        assert_int_equal(g.len, bytes + 1);
        assert_memory_equal(g.text, text, bytes);
    }
}

static void test_a_long_line_comes_in_pieces(void **state)
{
    static char text[3 * DTPI_LINE_MAX + 10];
    DTPI_AUTO_BUF dtpi_buf part = dtpi_buf_init(&dtpi_malloc_allocator);

    (void)state;
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\n';
    memset(&g, 0, sizeof(g));
    dtpi_lines_feed(&part, text, sizeof(text), on_line, NULL);
    assert_int_equal(g.n, 4);
    assert_int_equal(g.longest, DTPI_LINE_MAX);
    assert_int_equal(part.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_the_same_in_any_pieces),
        cmocka_unit_test(test_a_long_line_comes_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
