/* SPDX-License-Identifier: Apache-2.0 */
/* bar.c - drawn at most ten times a second, on one line that is taken away at the end. */
#include "bar.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bar bar_begin(dtp_ctx *ctx, const char *what)
{
    bar b = { .ctx = ctx, .begun_ns = dtp_ctx_now_ns(ctx), .on = isatty(STDERR_FILENO) };

    snprintf(b.what, sizeof(b.what), "%s", what);
    return b;
}

void bar_draw(void *user, uint64_t done, uint64_t total)
{
    enum { WIDTH = 30 };
    bar *b = user;
    const int64_t now = dtp_ctx_now_ns(b->ctx);
    char marks[WIDTH + 1];

    if (!b->on || (done < total && now - b->drawn_ns < 100000000))
        return;
    b->drawn_ns = now;
    const double share = total ? (double)done / (double)total : 1;
    const double seconds = (double)(now - b->begun_ns) / 1e9 + 1e-9;
    memset(marks, ' ', WIDTH);
    memset(marks, '#', (size_t)((share < 1 ? share : 1) * WIDTH));
    marks[WIDTH] = '\0';
    fprintf(stderr, "\r%s [%s] %3.0f %%  %.2f GB/s  %.0f s left \x1b[K", b->what, marks, 100 * share,
            (double)done / seconds / 1e9, share > 0 ? seconds / share - seconds : 0.0);
    fflush(stderr);
}

double bar_end(bar *b)
{
    if (b->drawn_ns) {
        fprintf(stderr, "\r\x1b[K");
        fflush(stderr);
    }
    b->drawn_ns = 0;
    return (double)(dtp_ctx_now_ns(b->ctx) - b->begun_ns) / 1e9 + 1e-9;
}
