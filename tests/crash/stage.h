/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.h - ranks as threads of which one runs at a time: before each call of the files a seeded
 * generator chooses who goes on, so that an order of operations can be had again.
 */
#ifndef DTP_TESTS_CRASH_STAGE_H
#define DTP_TESTS_CRASH_STAGE_H

#include "unit/ckpt/ranks.h"

typedef struct stage {
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    int n, turn, n_waiting;
    bool alive[MAX_RANKS], waits[MAX_RANKS];
    uint64_t seed;
    struct {
        const void *data;
        size_t bytes;
        dtpi_link_each each;
        void *user;
    } said[MAX_RANKS];
    dtpi_files *files;
    uint32_t n_ops_acked;       /* when the first rank heard that it is done; UINT32_MAX: none did */
} stage;

/* Saves as `step`; the same status on all ranks, which is returned. */
dtp_status stage_save(stage *s, rank_run *ranks, int n, uint64_t step, uint64_t id);

#endif /* DTP_TESTS_CRASH_STAGE_H */
