/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c - cuts a stream of bytes into lines of bounded length. */
#include "job/lines.h"

static void give(dtpi_buf *part, dtpi_line_fn fn, void *user)
{
    const char *text = dtpi_buf_text(part);

    if (text)
        fn(user, text, part->len);
    dtpi_buf_reset(part);
}

void dtpi_lines_feed(dtpi_buf *part, const void *data, size_t bytes, dtpi_line_fn fn, void *user)
{
    const char *p = data, *end = p + bytes;

    while (p < end) {
        const size_t room = DTPI_LINE_MAX - part->len;
        const size_t look = DTPI_MIN(room, (size_t)(end - p));
        const char *nl = memchr(p, '\n', look);
        const size_t take = nl ? (size_t)(nl - p) : look;
        dtpi_buf_append(part, p, take);
        p += take;
        if (nl) {
            give(part, fn, user);
            p++;
        } else if (part->len == DTPI_LINE_MAX || part->failed) {
            /* The newline that follows at once belongs to this piece. */
            if (p < end && *p == '\n')
                p++;
            give(part, fn, user);
        }
    }
}

void dtpi_lines_end(dtpi_buf *part, dtpi_line_fn fn, void *user)
{
    if (part->len > 0)
        give(part, fn, user);
}
