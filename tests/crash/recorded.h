/* SPDX-License-Identifier: Apache-2.0 */
/* recorded.h - a recorder's log as operations for the model, and the marks that the program made. */
#ifndef DTP_TESTS_CRASH_RECORDED_H
#define DTP_TESTS_CRASH_RECORDED_H

#include "crash/model.h"

typedef struct recorded_mark {
    uint64_t what;
    size_t done;                /* operations before it */
} recorded_mark;

typedef struct recorded {
    crash_op *ops;
    size_t n;
    recorded_mark *marks;
    size_t n_marks;
    char *bytes;                /* what the operations lend */
} recorded;

/* The folder `dir` was empty at the beginning. 0; -1: the log cannot be read or understood. */
int recorded_read(recorded *r, const char *log, const char *dir);
void recorded_free(recorded *r);

#endif /* DTP_TESTS_CRASH_RECORDED_H */
