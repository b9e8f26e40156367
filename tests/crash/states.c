/* SPDX-License-Identifier: Apache-2.0 */
/* states.c - choices of what reached the disk: every one, the corners, or drawn. */
#include "crash/states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what was seen ---- */

static void seen_insert(uint64_t *slots, size_t cap, uint64_t hash)
{
    size_t i = hash & (cap - 1);

    while (slots[i])
        i = (i + 1) & (cap - 1);
    slots[i] = hash;
}

static void seen_grow(crash_seen *s)
{
    const size_t cap = s->cap ? 2 * s->cap : 1 << 12;
    uint64_t *slots = calloc(cap, sizeof(*slots));

    if (!slots)
        abort();
    for (size_t i = 0; i < s->cap; i++)
        if (s->slots[i])
            seen_insert(slots, cap, s->slots[i]);
    free(s->slots);
    s->slots = slots;
    s->cap = cap;
}

bool crash_seen_add(crash_seen *s, uint64_t hash)
{
    hash += hash == 0;
    if (2 * s->n >= s->cap)
        seen_grow(s);
    for (size_t i = hash & (s->cap - 1); s->slots[i]; i = (i + 1) & (s->cap - 1))
        if (s->slots[i] == hash)
            return false;
    seen_insert(s->slots, s->cap, hash);
    s->n++;
    return true;
}

void crash_seen_free(crash_seen *s)
{
    free(s->slots);
    *s = (crash_seen){ 0 };
}

/* ---- the walk ---- */

typedef struct walker {
    crash_walk *w;
    crash_model *m;
    size_t done;
    size_t n_names, n_units;
    crash_choice choice;
    size_t cap;
} walker;

static uint64_t draw(walker *k)
{
    uint64_t z = (k->w->seed += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static void use_piece(walker *k, uint32_t piece)
{
    k->choice.piece = piece;
    k->n_names = crash_n_names(k->m);
    k->n_units = k->n_names + crash_n_pieces(k->m, piece);
    if (k->n_units <= k->cap && k->choice.keep)
        return;
    k->cap = 2 * k->n_units + 64;
    free(k->choice.keep);
    k->choice.keep = malloc(k->cap);
    if (!k->choice.keep)
        abort();
}

static int look(walker *k, const char *how)
{
    crash_walk *w = k->w;
    const crash_state *s = crash_build(k->m, &k->choice);
    const uint64_t promise = w->promise(w->user, k->done);

    w->n_built++;
    if (!crash_seen_add(w->seen, s->hash ^ (promise + 1) * 0x9e3779b97f4a7c15ull))
        return 0;
    w->n_distinct++;
    return w->check(w->user, k->done, s, how);
}

static int look_sizes(walker *k, const char *how)
{
    int rc = 0;

    for (int i = 0; i < CRASH_SIZE_END && rc >= 0; i++) {
        k->choice.size = (crash_size)i;
        rc = look(k, how);
    }
    return rc;
}

static int look_at_all(walker *k)
{
    int rc = 0;

    for (uint64_t bits = 0; bits < 1ull << k->n_units && rc >= 0; bits++) {
        for (size_t i = 0; i < k->n_units; i++)
            k->choice.keep[i] = bits >> i & 1;
        rc = look_sizes(k, "one of all");
    }
    return rc;
}

static void fill(walker *k, int names, int data)
{
    memset(k->choice.keep, names, k->n_names);
    memset(k->choice.keep + k->n_names, data, k->n_units - k->n_names);
}

static int look_at_corners(walker *k)
{
    static const char *const texts[] = { "nothing kept", "data kept", "names kept", "everything kept" };
    int rc = 0;

    for (int i = 0; i < 4 && rc >= 0; i++) {
        fill(k, i >> 1, i & 1);
        rc = look_sizes(k, texts[i]);
    }
    return rc;
}

/* One unit is missing, or one alone is there. */
static int look_at_single(walker *k)
{
    const int all = (int)(draw(k) & 1);
    const size_t i = draw(k) % k->n_units;

    fill(k, all, all);
    k->choice.keep[i] = !all;
    k->choice.size = (crash_size)(draw(k) % CRASH_SIZE_END);
    return look(k, all ? "one change lost" : "one change kept");
}

static int look_at_drawn(walker *k)
{
    const uint64_t names = draw(k) % 9, data = draw(k) % 9;

    use_piece(k, draw(k) % 4 ? CRASH_PAGE : CRASH_SECTOR);
    for (size_t i = 0; i < k->n_units; i++)
        k->choice.keep[i] = draw(k) % 8 < (i < k->n_names ? names : data);
    k->choice.size = (crash_size)(draw(k) % CRASH_SIZE_END);
    return look(k, "drawn");
}

/* The last write stopped in the middle. */
static int look_at_tear(walker *k, const crash_op *last)
{
    int rc = 0;

    if (last->kind != CRASH_WRITE || last->bytes == 0)
        return 0;
    use_piece(k, CRASH_SECTOR);
    const size_t n = (size_t)((last->at + last->bytes - 1) / CRASH_SECTOR - last->at / CRASH_SECTOR + 1);
    for (int i = 0; i < 8 && rc >= 0; i++) {
        fill(k, 1, 1);
        const size_t lost = 1 + draw(k) % n;
        memset(k->choice.keep + k->n_units - lost, 0, lost);
        k->choice.size = (crash_size)(draw(k) % 2);
        rc = look(k, "last write torn");
    }
    return rc;
}

static int look_here(walker *k)
{
    const crash_walk *w = k->w;
    int rc = 0;

    use_piece(k, CRASH_PAGE);
    if (k->n_units < 20 && (size_t)CRASH_SIZE_END << k->n_units <= w->max_all) {
        rc = look_at_all(k);
    } else {
        rc = look_at_corners(k);
        for (size_t i = 0; i < w->n_random && k->n_units > 0 && rc >= 0; i++) {
            use_piece(k, CRASH_PAGE);
            rc = i % 3 ? look_at_drawn(k) : look_at_single(k);
        }
    }
    if (rc >= 0 && k->done > w->settled)
        rc = look_at_tear(k, &w->ops[k->done - 1]);
    return rc;
}

int crash_walk_run(crash_walk *w)
{
    walker k = { .w = w, .m = crash_model_new() };
    int rc = 0;

    for (k.done = 0; k.done <= w->n && rc >= 0; k.done++) {
        if (k.done > 0)
            crash_step(k.m, &w->ops[k.done - 1]);
        if (k.done == w->settled)
            crash_settle(k.m);
        if (k.done >= w->from && k.done >= w->settled &&
            (k.done == w->n || w->every < 2 || draw(&k) % w->every == 0))
            rc = look_here(&k);
    }
    free(k.choice.keep);
    crash_model_free(k.m);
    return rc;
}
