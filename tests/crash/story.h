/* SPDX-License-Identifier: Apache-2.0 */
/* story.h - saves of known contents, what they promised and when, and a look at what a crash left. */
#ifndef DTP_TESTS_CRASH_STORY_H
#define DTP_TESTS_CRASH_STORY_H

#include "crash/states.h"
#include "unit/ckpt/ranks.h"

enum { STORY_TENSORS = 6, STORY_MAX_ACKS = 64 };

static const char story_dir[] = "ck";

/* The boxes of a rank: new at every step, always the same, the same twice, or new at some places. */
typedef struct story_boxes {
    int n, rank;
    dtp_ckpt_tensor tensors[STORY_TENSORS];
    int64_t shapes[STORY_TENSORS][2], offsets[STORY_TENSORS][2], extents[STORY_TENSORS][2];
} story_boxes;

void story_boxes_init(story_boxes *b, int n, int rank);
void story_boxes_fill(story_boxes *b, uint64_t step);
void story_boxes_free(story_boxes *b);

/* A step that says it is complete is so, bit for bit. */
dtp_status story_check_step(dtpi_files *files, int n, uint64_t step, dtp_error *err);

typedef struct story {
    const char *title;
    int n;                      /* ranks */
    const crash_op *ops;
    uint64_t newest;            /* step that was begun at all */
    struct {
        uint64_t step;
        size_t done;            /* operations before it was acknowledged */
    } acked[STORY_MAX_ACKS];
    size_t n_acked;
    bool may_lose;              /* losses are counted */
    size_t n_lost;
} story;

void story_acked(story *s, uint64_t step, size_t done);

/* The newest step acknowledged when `done` operations were done; 0: none. */
uint64_t story_promise(void *user, size_t done);
/* Looks at a state; a loss fails the test, with the operations before it, or is counted. */
int story_check(void *user, size_t done, const crash_state *left, const char *how);
void story_fail(story *s, size_t done, const crash_state *left, const char *how, const char *why);

/* How hard a story is looked at, and how often that was done. */
typedef struct story_walk {
    crash_seen seen;
    uint64_t seed;
    size_t every;               /* as crash_walk's */
    size_t n_built, n_distinct;
} story_walk;

void story_look(story_walk *w, story *s, const crash_op *ops, size_t n, size_t settled, size_t from,
                size_t max_all, size_t n_random);

#endif /* DTP_TESTS_CRASH_STORY_H */
