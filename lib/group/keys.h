/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h - the keys and values of a group: a bounded hash table, and changes to it that are one step for
 * all. Pure. Kept by the agent at the group's top, and by a group of one itself.
 */
#ifndef DTPI_GROUP_KEYS_H
#define DTPI_GROUP_KEYS_H

#include <dtp/group.h>

#include "base/wire.h"

enum { DTPI_KEY_ROOM = 256, DTPI_KEYS_MAX_BYTES = 64 << 20 };

/* Begins the keys of the library itself, which are not counted. */
#define DTPI_KEY_HIDDEN "\001"

typedef struct dtpi_pair {
    struct dtpi_pair *next;     /* in its bucket */
    uint64_t hash;
    uint8_t *value;
    size_t bytes;
    size_t key_bytes;           /* with the terminator */
    char key[];
} dtpi_pair;

/* Zero it, set `a`. */
typedef struct dtpi_keys {
    const dtp_allocator *a;
    dtpi_pair **buckets;
    uint32_t n_buckets;         /* a power of two, or 0 */
    uint64_t n, n_hidden;
    size_t bytes;               /* of keys and values */
} dtpi_keys;

void dtpi_keys_free(dtpi_keys *k);
uint64_t dtpi_key_hash(const char *key);
const dtpi_pair *dtpi_keys_find(const dtpi_keys *k, const char *key);
/* Errors (without a text): LIMIT, NOMEM. */
dtp_status dtpi_keys_set(dtpi_keys *k, const char *key, const void *value, size_t bytes);

/* ---- changes ---- */

typedef enum dtpi_change_op {
    DTPI_CHANGE_ADD = 1,        /* a number in decimal text */
    DTPI_CHANGE_COMPARE = 2,    /* set where it is as expected */
    DTPI_CHANGE_APPEND = 3,
    DTPI_CHANGE_UNSET = 4,
    DTPI_CHANGE_COUNT = 5       /* changes nothing: how many keys there are */
} dtpi_change_op;

typedef struct dtpi_change {
    uint8_t op;
    char key[DTPI_KEY_ROOM];    /* "" for COUNT */
    int64_t delta;
    const uint8_t *expected, *value;    /* lent */
    size_t n_expected, n_value;
} dtpi_change;

/* How it went; enough to answer the same question again. */
typedef struct dtpi_changed {
    dtp_status status;
    uint64_t number;            /* the sum, the count; COMPARE: 1 where it was set */
} dtpi_changed;

void dtpi_change_write(dtpi_buf *b, const dtpi_change *c);
bool dtpi_change_read(dtpi_rd *r, dtpi_change *out);
/*
 * Statuses (without a text): LIMIT, NOMEM, NOT_FOUND (UNSET, COMPARE with something expected), FORMAT (ADD
 * to what is no number), RANGE (the sum has no 64 bits).
 */
dtpi_changed dtpi_keys_change(dtpi_keys *k, const dtpi_change *c);
/* What the asker is told of a change that went well: a number of 8 bytes, the value after COMPARE. */
void dtpi_keys_answer(const dtpi_keys *k, const dtpi_change *c, const dtpi_changed *done,
                      dtpi_buf *b);

#endif /* DTPI_GROUP_KEYS_H */
