/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - a network inside one process, with virtual time: channels that delay, and end when a side
 * dies. The first member to copy, and the double in tests: the same seed gives the same run.
 */
#ifndef DTPI_NET_LOOP_H
#define DTPI_NET_LOOP_H

#include "base/base.h"

typedef struct dtpi_loop dtpi_loop;
typedef struct dtpi_loop_chan dtpi_loop_chan;

typedef struct dtpi_loop_opts {
    uint64_t seed;
    int64_t latency_ns;
    int64_t jitter_ns;          /* added at random; order within a channel stays */
} dtpi_loop_opts;

dtpi_loop *dtpi_loop_new(const dtp_allocator *a, const dtpi_loop_opts *opts);
void dtpi_loop_free(dtpi_loop *loop);
int64_t dtpi_loop_now(const dtpi_loop *loop);

/* What a side of a channel hears. */
typedef struct dtpi_loop_side {
    void (*message)(void *user, uint64_t key, const uint8_t *data, size_t bytes);
    void (*closed)(void *user, uint64_t key);
    void *user;
    uint64_t key;
} dtpi_loop_side;

/* Sides 0 and 1; NULL without memory. The loop owns it. */
dtpi_loop_chan *dtpi_loop_connect(dtpi_loop *loop, const dtpi_loop_side sides[2]);
/* Copied; false without memory. To a dead side or channel: nothing. */
bool dtpi_loop_send(dtpi_loop_chan *chan, int from, const void *data, size_t bytes);
/* Side `who` is gone: hears nothing more, and the other side hears that it closed. */
void dtpi_loop_kill(dtpi_loop_chan *chan, int who);

/* Calls `fn` at a time; false without memory. */
bool dtpi_loop_at(dtpi_loop *loop, int64_t at_ns, void (*fn)(void *user, uint64_t key), void *user,
                  uint64_t key);
/* Runs the next event; false when there is none at or before `until_ns`, which is then the time. */
bool dtpi_loop_step(dtpi_loop *loop, int64_t until_ns);
/* Messages delivered. */
uint64_t dtpi_loop_n_delivered(const dtpi_loop *loop);

#endif /* DTPI_NET_LOOP_H */
