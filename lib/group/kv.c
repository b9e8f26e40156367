/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv.c - a group's keys and values, kept by the agent at its top (keys.c); readers wait there.
 *
 * Bodies: SET {key, value}, GET {wait, key}, CHANGE (keys.h), VALUE {status, value}. `rank` in the header is who asks,
 * `seq` the number of the question; answers find their way down by the table.
 */
#include "group/core_internal.h"

#include <stdio.h>

enum { READERS_PER_MEMBER = 4, READERS_MORE = 1024, FIRST_ASKED = 16 };

void core_kv_free(dtpi_core *c, struct core_group *g)
{
    g->keys.a = &c->a;
    dtpi_keys_free(&g->keys);
    while (g->readers) {
        struct core_reader *w = g->readers;
        g->readers = w->next;
        dtpi_free(&c->a, w, sizeof(*w));
    }
    dtpi_free(&c->a, g->asked, g->cap_asked * sizeof(*g->asked));
    g->asked = NULL;
    g->n_asked = g->cap_asked = 0;
}

/* Sends an answer towards `rank`. */
static void send_down(dtpi_core *c, int32_t rank, dtpi_msg *m)
{
    const int32_t via = core_child_of(c, rank);

    if (via == DTPI_VIA_LOCAL)
        core_send_local(c, core_slot_of(c, rank), m);
    else if (via >= 0)
        core_send_child(c, (uint32_t)via, m);
}

static void answer(dtpi_core *c, const struct core_group *g, int32_t rank, uint32_t seq,
                   dtp_status status, const void *value, size_t bytes)
{
    if (status == DTP_ERR_NOMEM) {
        core_nomem(c);      /* nobody goes on alone */
        return;
    }
    dtpi_buf b = core_begin(c, DTPI_F_VALUE, g->id, 0, seq, rank);

    dtpi_wr_u32(&b, (uint32_t)status);
    dtpi_wr_block(&b, value, bytes);
    DTPI_AUTO(msg) dtpi_msg *m = core_msg(c, &b);
    if (m)
        send_down(c, rank, m);
}

static void reader_free(dtpi_core *c, struct core_group *g, struct core_reader **at)
{
    struct core_reader *w = *at;

    *at = w->next;
    g->n_readers--;
    dtpi_free(&c->a, w, sizeof(*w));
}

static void tell_readers(dtpi_core *c, struct core_group *g, const char *key)
{
    const dtpi_pair *p = g->readers ? dtpi_keys_find(&g->keys, key) : NULL;

    for (struct core_reader **at = &g->readers; p && *at;) {
        struct core_reader *w = *at;
        if (w->hash != p->hash || strcmp(w->key, key) != 0) {
            at = &w->next;
            continue;
        }
        answer(c, g, w->rank, w->seq, DTP_OK, p->value, p->bytes);
        reader_free(c, g, at);
    }
}

static bool on_set(dtpi_core *c, struct core_group *g, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    char key[DTPI_KEY_ROOM];
    size_t bytes = 0;

    dtpi_rd_text(&r, key, sizeof(key));
    const uint8_t *value = dtpi_rd_block(&r, DTP_GROUP_MAX_MSG, &bytes);
    if (!dtpi_rd_done(&r) || key[0] == '\0')
        return false;
    const dtp_status st = dtpi_keys_set(&g->keys, key, value, bytes);
    answer(c, g, f->rank, f->seq, st, NULL, 0);
    if (st == DTP_OK)
        tell_readers(c, g, key);
    return true;
}

static bool on_get(dtpi_core *c, struct core_group *g, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    char key[DTPI_KEY_ROOM];

    const bool waits = dtpi_rd_u8(&r);
    dtpi_rd_text(&r, key, sizeof(key));
    if (!dtpi_rd_done(&r) || key[0] == '\0')
        return false;
    const dtpi_pair *p = dtpi_keys_find(&g->keys, key);
    if (p || !waits) {
        answer(c, g, f->rank, f->seq, p ? DTP_OK : DTP_ERR_NOT_FOUND, p ? p->value : NULL,
               p ? p->bytes : 0);
        return true;
    }
    const bool fits = g->n_readers < READERS_MORE + (uint64_t)READERS_PER_MEMBER * g->n;
    struct core_reader *w = fits ? dtpi_alloc(&c->a, sizeof(*w)) : NULL;
    if (!w) {
        answer(c, g, f->rank, f->seq, fits ? DTP_ERR_NOMEM : DTP_ERR_LIMIT, NULL, 0);
        return true;
    }
    w->rank = f->rank;
    w->seq = f->seq;
    w->hash = dtpi_key_hash(key);
    snprintf(w->key, sizeof(w->key), "%s", key);
    w->next = g->readers;
    g->readers = w;
    g->n_readers++;
    return true;
}

static void on_forget(dtpi_core *c, struct core_group *g, const dtpi_frame *f)
{
    for (struct core_reader **at = &g->readers; *at; at = &(*at)->next) {
        if ((*at)->rank != f->rank || (*at)->seq != f->seq)
            continue;
        reader_free(c, g, at);
        return;
    }
}

/* ---- changes: each is done once, however often it is asked for ---- */

static struct core_asked *asked_slot(const struct core_asked *table, uint32_t cap, int32_t rank)
{
    uint32_t i = (uint32_t)rank * 2654435761u & (cap - 1);

    while (table[i].rank && table[i].rank != rank + 1)
        i = (i + 1) & (cap - 1);
    return (struct core_asked *)&table[i];
}

static struct core_asked *asked_of(dtpi_core *c, struct core_group *g, int32_t rank)
{
    if (2 * g->n_asked >= g->cap_asked) {
        const uint32_t cap = g->cap_asked ? 2 * g->cap_asked : FIRST_ASKED;
        struct core_asked *table = dtpi_alloc_array(&c->a, cap, sizeof(*table));
        if (!table)
            return NULL;
        for (uint32_t i = 0; i < g->cap_asked; i++)
            if (g->asked[i].rank)
                *asked_slot(table, cap, g->asked[i].rank - 1) = g->asked[i];
        dtpi_free(&c->a, g->asked, g->cap_asked * sizeof(*g->asked));
        g->asked = table;
        g->cap_asked = cap;
    }
    struct core_asked *a = asked_slot(g->asked, g->cap_asked, rank);
    if (!a->rank)
        g->n_asked++;
    a->rank = rank + 1;
    return a;
}

static void answer_change(dtpi_core *c, const struct core_group *g, const dtpi_frame *f,
                          const dtpi_change *change, const dtpi_changed *done)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&c->a);

    if (done->status == DTP_OK)
        dtpi_keys_answer(&g->keys, change, done, &b);
    answer(c, g, f->rank, f->seq, b.failed ? DTP_ERR_NOMEM : done->status, b.data, b.len);
}

static bool on_change(dtpi_core *c, struct core_group *g, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    dtpi_change change;

    if (!dtpi_change_read(&r, &change))
        return false;
    struct core_asked *a = asked_of(c, g, f->rank);
    if (!a) {
        answer(c, g, f->rank, f->seq, DTP_ERR_NOMEM, NULL, 0);
        return true;
    }
    if (a->seq && (int32_t)(f->seq - a->seq) < 0)
        return true;    /* older than what was answered */
    const bool is_again = a->seq == f->seq && f->seq;
    if (!is_again)
        *a = (struct core_asked){ a->rank, f->seq, dtpi_keys_change(&g->keys, &change) };
    answer_change(c, g, f, &change, &a->done);
    if (!is_again && a->done.status == DTP_OK && change.op != DTPI_CHANGE_UNSET)
        tell_readers(c, g, change.key);
    return true;
}

bool core_on_kv(dtpi_core *c, struct core_group *g, const dtpi_frame *f, const dtpi_in *in)
{
    if (c->has_verdict)
        return true;
    if (c->parent_left && !g->is_top) {
        char text[64];
        snprintf(text, sizeof(text), "rank %u of %u has left the group", core_first_above(c, g), g->n);
        answer(c, g, f->rank, f->seq, DTP_ERR_PEER, text, strlen(text));
        return true;
    }
    if (!g->is_top) {
        DTPI_AUTO(msg) dtpi_msg *m = core_keep(c, in);
        core_send_parent(c, m);
        return true;
    }
    g->keys.a = &c->a;
    if (f->type == DTPI_F_SET)
        return on_set(c, g, f);
    if (f->type == DTPI_F_GET)
        return on_get(c, g, f);
    if (f->type == DTPI_F_CHANGE)
        return on_change(c, g, f);
    on_forget(c, g, f);
    return true;
}

void core_on_value(dtpi_core *c, const dtpi_frame *f, const dtpi_in *in)
{
    if (f->rank < 0 || f->rank >= (int32_t)core_limit(c))
        return;
    DTPI_AUTO(msg) dtpi_msg *m = core_keep(c, in);
    if (m)
        send_down(c, f->rank, m);
}
