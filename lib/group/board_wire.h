/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_wire.h - questions and answers over a stream socket that somebody else may own: whole or not
 * at all, until a deadline, without changing the descriptor's flags.
 */
#ifndef DTPI_GROUP_BOARD_WIRE_H
#define DTPI_GROUP_BOARD_WIRE_H

#include "group/board.h"

typedef struct board_wire {
    int fd;
    const char *who;            /* for errors: "PMI-1", "the store at 10.0.0.1:29500" */
    bool (*interrupted)(void *user);
    void *user;
} board_wire;

/* INVAL where the descriptor is no connected stream socket: the variable that names it lies. */
dtp_status board_wire_check(const board_wire *w, dtp_error *err);
dtp_status board_wire_send(const board_wire *w, const void *data, size_t bytes, int64_t until_ns,
                           dtp_error *err);
/* Exactly `bytes`. */
dtp_status board_wire_receive(const board_wire *w, void *data_out, size_t bytes, int64_t until_ns,
                              dtp_error *err);
/* Up to and including '\n', which becomes '\0'; LIMIT where the line does not fit. */
dtp_status board_wire_line(const board_wire *w, char *line_out, size_t room, int64_t until_ns,
                           dtp_error *err);
/* Waits for `events`. TIMEOUT, INTERRUPTED. */
dtp_status board_wire_wait(const board_wire *w, short events, int64_t until_ns, dtp_error *err);

#endif /* DTPI_GROUP_BOARD_WIRE_H */
