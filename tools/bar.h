/* SPDX-License-Identifier: Apache-2.0 */
/* bar.h - a progress bar on stderr where that is a terminal, and nothing elsewhere. */
#ifndef DTP_TOOLS_BAR_H
#define DTP_TOOLS_BAR_H

#include <stdbool.h>

#include <dtp/ctx.h>

typedef struct bar {
    dtp_ctx *ctx;
    char what[48];
    int64_t begun_ns, drawn_ns;
    bool on;
} bar;

/* `what` stands in front of the bar, cut to its room. */
bar bar_begin(dtp_ctx *ctx, const char *what);
/* A progress callback whose user is the bar: share, rate and the time that is left. */
void bar_draw(void *user, uint64_t done, uint64_t total);
/* Takes the bar away; seconds since it began. */
double bar_end(bar *b);

#endif /* DTP_TOOLS_BAR_H */
