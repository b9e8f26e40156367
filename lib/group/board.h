/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board.h - where a launcher lets ranks leave a few words before a group exists: the store of torchrun,
 * PMI-1, PMI-2, PMIx, a shared folder.
 *
 * A board is not trusted: only addresses are put there, and what it says is checked before use. The
 * proof of the job secret decides who is spoken to.
 */
#ifndef DTPI_GROUP_BOARD_H
#define DTPI_GROUP_BOARD_H

#include <time.h>

#include "base/buf.h"
#include "ctx/ctx.h"

/* With their terminators; PMI-1 of Hydra takes no more. */
enum { DTPI_BOARD_KEY = 64, DTPI_BOARD_VALUE = 1024 };

typedef struct dtpi_board dtpi_board;

typedef struct dtpi_board_opts {
    const char *kind;           /* name of a driver */
    const char *place;          /* "host:port", a folder; NULL where the driver needs none */
    int fd;                     /* a connected socket, which stays the caller's: PMI_FD */
    const char *job;
    uint32_t attempt;
    int32_t rank, world_size;
    /* Set by dtpi_board_open: what a driver that waits asks every now and then. */
    bool (*interrupted)(void *user);
    void *user;
} dtpi_board_opts;

/*
 * Drivers know neither context nor loop (one is a module). Every op waits until `until_ns` at the most
 * (dtpi_board_now_ns); TIMEOUT names what was waited for.
 */
typedef struct dtpi_board_ops {
    const char *name;
    bool is_lasting;            /* values outlive the processes that put them */
    /* Mandatory. Errors: TIMEOUT, IO, PROTO, FORMAT, PERM, NOT_FOUND, NOMEM. */
    dtp_status (*open)(const dtp_allocator *a, const dtpi_board_opts *opts, int64_t until_ns,
                       void **state_out, dtp_error *err);
    /* Mandatory. */
    dtp_status (*put)(void *state, const char *key, const char *value, int64_t until_ns, dtp_error *err);
    /*
     * Optional: every rank of the world calls it once, after its puts and before its gets. NULL: what
     * was put is seen at once.
     */
    dtp_status (*sync)(void *state, int64_t until_ns, dtp_error *err);
    /* Mandatory. END: it is not there yet, look again later (the driver may have waited). */
    dtp_status (*get)(void *state, const char *key, char *value_out, int64_t until_ns, dtp_error *err);
    /* Mandatory. MPI in the same process must be able to go on with its launcher. */
    void (*close)(void *state);
} dtpi_board_ops;

/* The drivers that are built in; NULL at the end. PMIx is the module "group-pmix". */
extern const dtpi_board_ops *const dtpi_boards[];
extern const dtpi_board_ops dtpi_board_file, dtpi_board_tcpstore, dtpi_board_pmi1, dtpi_board_pmi2;

/* Errors: UNSUPPORTED (no such board, or its module is missing), and those of the driver. */
dtp_status dtpi_board_open(dtp_ctx *ctx, const dtpi_board_opts *opts, int64_t deadline_ns,
                           dtpi_board **board_out, dtp_error *err);
void dtpi_board_close(dtpi_board *board);
DTPI_DEFINE_AUTO(board, dtpi_board, dtpi_board_close);

/* `what` is a name of this job and attempt: letters, digits. */
dtp_status dtpi_board_put(dtpi_board *board, const char *what, const char *value, int64_t deadline_ns,
                          dtp_error *err);
/* Collective where the board needs it, else nothing. */
dtp_status dtpi_board_sync(dtpi_board *board, int64_t deadline_ns, dtp_error *err);
/*
 * Waits for the value; `value_out` has room for DTPI_BOARD_VALUE. Errors: TIMEOUT, PROTO (not what
 * addresses look like), INTERRUPTED, the driver's.
 */
dtp_status dtpi_board_get(dtpi_board *board, const char *what, char *value_out, int64_t deadline_ns,
                          dtp_error *err);

/* Looks once: OK, END (not there), or the failure; waits `ms` at the most for the board itself. */
dtp_status dtpi_board_look(dtpi_board *board, const char *what, char *value_out, int ms);
/* What an earlier run put may still be there. */
bool dtpi_board_is_lasting(const dtpi_board *board);
/* What was put stays as it is: a second group of the same job and attempt needs another name. */
bool dtpi_board_keeps_first(const dtpi_board *board);
/*
 * Every rank has to open a board of this kind: its sync is collective, or the launcher takes it for an
 * error when some processes say hello and others do not (Open MPI).
 */
bool dtpi_board_wants_all(const char *kind);

/* ---- for drivers ---- */

static inline int64_t dtpi_board_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * DTPI_NS_PER_S + now.tv_nsec;
}

/* 1 to DTPI_BOARD_VALUE - 1 of what addresses and ports are made of. */
bool dtpi_board_value_ok(const char *value, size_t bytes);
/* "dtp-<job>-<attempt>-<what>", where the job is a number that follows from its name. */
void dtpi_board_key(const char *job, uint32_t attempt, const char *what, char *key_out);

#endif /* DTPI_GROUP_BOARD_H */
