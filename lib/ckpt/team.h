/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.h - a few threads at one row of units: the caller, and workers of the context's pool as far as they
 * are free. What comes out depends on the units alone, not on how many took part.
 */
#ifndef DTPI_CKPT_TEAM_H
#define DTPI_CKPT_TEAM_H

#include <pthread.h>

#include "ctx/ctx.h"

enum { DTPI_TEAM_MAX = 4 };

/* Members that a team of this context may have, 1 to DTPI_TEAM_MAX; NULL: the caller alone. */
uint32_t dtpi_team_width(const dtp_ctx *ctx);

/*
 * Calls work(user, member) for member 0 on this thread, and for 1 .. n - 1 on workers that are free before
 * it ends; returns when nobody works any more. Any thread. Errors: NOMEM (nothing was called).
 */
dtp_status dtpi_team_run(dtp_ctx *ctx, uint32_t n, void (*work)(void *user, uint32_t member),
                         void *user, dtp_error *err);

/*
 * Units 0 .. n - 1, taken in order. The failure that counts is that of the lowest unit: all below it were
 * taken before it was, and whoever takes a unit brings it to its end.
 */
typedef struct dtpi_line {
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    uint64_t next, n;
    uint64_t turn;              /* the unit whose turn it is */
    uint64_t failed;            /* the lowest that failed; UINT64_MAX: none */
    dtp_status status;
    dtp_error why;
} dtpi_line;

void dtpi_line_init(dtpi_line *l, uint64_t n);
void dtpi_line_free(dtpi_line *l);
/* The next unit; false: there is none, or one failed. */
bool dtpi_line_take(dtpi_line *l, uint64_t *unit_out);
void dtpi_line_fail(dtpi_line *l, uint64_t unit, dtp_status st, const dtp_error *why);
/* Waits until the units below had their turns; false: one of them failed. Each unit passes it on, once. */
bool dtpi_line_enter(dtpi_line *l, uint64_t unit);
void dtpi_line_leave(dtpi_line *l);
/* After the team has run. */
dtp_status dtpi_line_result(const dtpi_line *l, dtp_error *err);

#endif /* DTPI_CKPT_TEAM_H */
