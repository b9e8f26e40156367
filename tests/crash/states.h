/* SPDX-License-Identifier: Apache-2.0 */
/*
 * states.h - goes through the states that a crash may leave: after each operation of a log all of
 * them where they are few, else the corners and a seeded sample. A state is checked once.
 */
#ifndef DTP_TESTS_CRASH_STATES_H
#define DTP_TESTS_CRASH_STATES_H

#include "crash/model.h"

/* Hashes of what was seen. */
typedef struct crash_seen {
    uint64_t *slots;
    size_t n, cap;
} crash_seen;

bool crash_seen_add(crash_seen *s, uint64_t hash);     /* false: was there */
void crash_seen_free(crash_seen *s);

typedef struct crash_walk {
    const crash_op *ops;
    size_t n;
    size_t settled;             /* operations that are durable at the beginning */
    size_t from;                /* first operation after which a crash is looked at */
    size_t every;               /* about one operation in so many is looked at; 0: all */
    size_t max_all;             /* all choices where there are at most so many */
    size_t n_random;            /* else so many, and the corners */
    uint64_t seed;
    crash_seen *seen;           /* of all walks */
    /* What is promised after `done` operations; the same state under another promise is another. */
    uint64_t (*promise)(void *user, size_t done);
    /* A state that was not seen; a status below 0 ends the walk. */
    int (*check)(void *user, size_t done, const crash_state *s, const char *how);
    void *user;
    size_t n_built, n_distinct;
} crash_walk;

int crash_walk_run(crash_walk *w);

#endif /* DTP_TESTS_CRASH_STATES_H */
