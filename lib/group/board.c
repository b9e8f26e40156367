/* SPDX-License-Identifier: Apache-2.0 */
/* board.c - a board whatever it is: names of keys, looking again until something is there, bounds. */
#include "group/board.h"

#include <stdio.h>

#include "base/sum.h"

enum { LOOK_FIRST_MS = 1, LOOK_MAX_MS = 100 };

struct dtpi_board {
    dtp_ctx *ctx;
    const dtpi_board_ops *ops;
    void *state;
    char job[64];
    uint32_t attempt;
    int32_t rank, world_size;
};

bool dtpi_board_value_ok(const char *value, size_t bytes)
{
    static const char others[] = ".,:[]%_-/";

    for (size_t i = 0; i < bytes; i++) {
        const char c = value[i];
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && !(c >= '0' && c <= '9') && (!c || !strchr(others, c)))
            return false;
    }
    return bytes > 0 && bytes < DTPI_BOARD_VALUE;
}

void dtpi_board_key(const char *job, uint32_t attempt, const char *what, char *key_out)
{
    snprintf(key_out, DTPI_BOARD_KEY, "dtp-%016llx-%u-%.20s",
             (unsigned long long)dtpi_sum64(job, strlen(job)), attempt, what);
}

static dtp_status find_ops(dtp_ctx *ctx, const char *kind, const dtpi_board_ops **ops_out,
                           dtp_error *err)
{
    const void *ops;
    char module[40];

    for (size_t i = 0; dtpi_boards[i]; i++)
        if (strcmp(dtpi_boards[i]->name, kind) == 0) {
            *ops_out = dtpi_boards[i];
            return DTP_OK;
        }
    snprintf(module, sizeof(module), "group-%.30s", kind);
    const dtp_status st = dtpi_module_load(ctx, module, &ops, err);
    if (st >= 0)
        *ops_out = ops;
    return st;
}

static bool is_interrupted(void *user)
{
    return dtpi_ctx_interrupted(user);
}

/* The drivers' clock. */
static int64_t until(const dtpi_board *board, int64_t deadline_ns)
{
    const int64_t left = deadline_ns == INT64_MAX ? INT64_MAX / 4
                                                  : deadline_ns - dtp_ctx_now_ns(board->ctx);

    return dtpi_board_now_ns() + DTPI_MAX(left, 0);
}

dtp_status dtpi_board_open(dtp_ctx *ctx, const dtpi_board_opts *o, int64_t deadline_ns,
                           dtpi_board **board_out, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(ctx);
    const dtpi_board_ops *ops = NULL;

    dtp_status st = find_ops(ctx, o->kind, &ops, err);
    if (st < 0)
        return st;
    dtpi_board *board = dtpi_alloc(a, sizeof(*board));
    if (!board)
        return dtpi_fail_nomem(err, sizeof(*board));
    board->ctx = ctx;
    board->ops = ops;
    board->attempt = o->attempt;
    board->rank = o->rank;
    board->world_size = o->world_size;
    snprintf(board->job, sizeof(board->job), "%s", o->job);
    dtpi_board_opts own = *o;
    own.interrupted = is_interrupted;
    own.user = ctx;
    st = ops->open(a, &own, until(board, deadline_ns), &board->state, err);
    if (st < 0) {
        dtpi_free(a, board, sizeof(*board));
        return st;
    }
    *board_out = board;
    return DTP_OK;
}

void dtpi_board_close(dtpi_board *board)
{
    if (!board)
        return;
    board->ops->close(board->state);
    dtpi_free(dtpi_ctx_alloc(board->ctx), board, sizeof(*board));
}

dtp_status dtpi_board_put(dtpi_board *board, const char *what, const char *value, int64_t deadline_ns,
                          dtp_error *err)
{
    char key[DTPI_BOARD_KEY];

    if (!dtpi_board_value_ok(value, strlen(value)))
        return dtpi_fail(err, DTP_ERR_INVAL, "'%.60s' cannot be put on a board", value);
    dtpi_board_key(board->job, board->attempt, what, key);
    return board->ops->put(board->state, key, value, until(board, deadline_ns), err);
}

dtp_status dtpi_board_sync(dtpi_board *board, int64_t deadline_ns, dtp_error *err)
{
    return board->ops->sync ? board->ops->sync(board->state, until(board, deadline_ns), err) : DTP_OK;
}

static bool never(void *user)
{
    (void)user;
    return false;
}

static dtp_status look(dtpi_board *board, const char *key, char *value_out, int64_t until_ns,
                       dtp_error *err)
{
    const dtp_status st = board->ops->get(board->state, key, value_out, until_ns, err);

    if (st != DTP_OK || dtpi_board_value_ok(value_out, strnlen(value_out, DTPI_BOARD_VALUE)))
        return st;
    return dtpi_fail(err, DTP_ERR_PROTO, "board %s: %s is not what an address looks like",
                     board->ops->name, key);
}

dtp_status dtpi_board_look(dtpi_board *board, const char *what, char *value_out, int ms)
{
    char key[DTPI_BOARD_KEY];

    dtpi_board_key(board->job, board->attempt, what, key);
    return look(board, key, value_out, dtpi_board_now_ns() + ms * DTPI_NS_PER_MS, NULL);
}

bool dtpi_board_is_lasting(const dtpi_board *board)
{
    return board->ops->is_lasting;
}

bool dtpi_board_keeps_first(const dtpi_board *board)
{
    return board->ops->sync != NULL;
}

bool dtpi_board_wants_all(const char *kind)
{
    if (strcmp(kind, "pmix") == 0)
        return true;
    for (size_t i = 0; dtpi_boards[i]; i++)
        if (strcmp(dtpi_boards[i]->name, kind) == 0)
            return dtpi_boards[i]->sync != NULL;
    return false;
}

dtp_status dtpi_board_get(dtpi_board *board, const char *what, char *value_out, int64_t deadline_ns,
                          dtp_error *err)
{
    char key[DTPI_BOARD_KEY];
    int64_t ms = LOOK_FIRST_MS;

    dtpi_board_key(board->job, board->attempt, what, key);
    for (;;) {
        dtp_status st = look(board, key, value_out, until(board, deadline_ns), err);
        const int64_t now = dtp_ctx_now_ns(board->ctx);
        if (st != DTP_END)
            return st;
        if (now >= deadline_ns)
            return dtpi_fail_rank(err, DTP_ERR_TIMEOUT, board->rank,
                                  "rank %d of %d: %s was not put on board %s in time", board->rank,
                                  board->world_size, key, board->ops->name);
        st = dtpi_ctx_wait(board->ctx, never, NULL,
                           DTPI_MIN(now + ms * DTPI_NS_PER_MS, deadline_ns), err);
        if (st < 0 && st != DTP_ERR_TIMEOUT)
            return st;
        ms = DTPI_MIN(ms * 2, (int64_t)LOOK_MAX_MS);
    }
}
