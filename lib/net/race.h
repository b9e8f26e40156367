/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race.h - connects to whichever end point of a list answers.
 *
 * Tries start in short steps and run side by side; each that failed starts again later, so that it does not
 * matter who comes first. A connection proves nothing: the owner asks the peer who it is, says that a try
 * lost, or closes the race when one has won. Of each try the race keeps from where and why it failed.
 */
#ifndef DTPI_NET_RACE_H
#define DTPI_NET_RACE_H

#include "ctx/ctx.h"
#include "net/sock.h"

typedef struct dtpi_race dtpi_race;

/* Called inside dispatch; may close the race. */
typedef struct dtpi_race_ops {
    /* Mandatory: `try` stands, the descriptor is yours. The others go on until the race is closed. */
    void (*connected)(void *user, uint32_t try, int fd_take);
    /* Optional: a try failed, dtpi_race_text says more. */
    void (*failed)(void *user);
} dtpi_race_ops;

/* `own_port`: where this process listens itself (0: nowhere); it never meets itself. FORMAT, NOMEM. */
dtp_status dtpi_race_open(dtp_ctx *ctx, const char *list, uint16_t own_port, const dtpi_race_ops *ops,
                          void *user, dtpi_race **race_out, dtp_error *err);
void dtpi_race_close(dtpi_race *race);

/* The peer of a connected try is not the one wanted; it is tried again later. */
void dtpi_race_lost(dtpi_race *race, uint32_t try, const char *why);
/*
 * The same, because large messages vanish on the way: it is tried again at once with smaller segments.
 */
void dtpi_race_shrink(dtpi_race *race, uint32_t try);
/* Tries that are or may come: 1 with nothing left to look up means that there is no other. */
uint32_t dtpi_race_n_tries(const dtpi_race *race);

/*
 * What failed: "10.0.0.1:29500 from 10.0.0.2 (eth0): Connection refused; [fd00::1]:29500: Network is
 * unreachable"; what does not fit is counted.
 */
void dtpi_race_text(const dtpi_race *race, char *text_out, size_t room);

#endif /* DTPI_NET_RACE_H */
