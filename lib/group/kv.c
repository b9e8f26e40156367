/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv.c - a group's keys and values, kept by the agent at its top; readers wait there.
 *
 * Bodies: SET {key, value}, GET {wait, key}, VALUE {status, value}. `rank` in the header is who asks,
 * `seq` the number of the question; answers find their way down by the table.
 */
#include "group/core_internal.h"

#include <stdio.h>

enum { KV_MAX_BYTES = 64 << 20, KEY_ROOM = 256 };

static void pair_free(dtpi_core *c, struct core_pair *p)
{
    dtpi_text_free(&c->a, p->key);
    dtpi_free(&c->a, p->value, p->bytes);
    dtpi_free(&c->a, p, sizeof(*p));
}

void core_kv_free(dtpi_core *c, struct core_group *g)
{
    while (g->pairs) {
        struct core_pair *p = g->pairs;
        g->pairs = p->next;
        pair_free(c, p);
    }
    while (g->readers) {
        struct core_reader *w = g->readers;
        g->readers = w->next;
        dtpi_free(&c->a, w, sizeof(*w));
    }
}

static struct core_pair *find_pair(const struct core_group *g, const char *key)
{
    struct core_pair *p = g->pairs;

    while (p && strcmp(p->key, key) != 0)
        p = p->next;
    return p;
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
    dtpi_buf b = core_begin(c, DTPI_F_VALUE, g->id, 0, seq, rank);

    dtpi_wr_u32(&b, (uint32_t)status);
    dtpi_wr_block(&b, value, bytes);
    DTPI_AUTO(msg) dtpi_msg *m = core_msg(c, &b);
    if (m)
        send_down(c, rank, m);
}

static dtp_status store(dtpi_core *c, struct core_group *g, const char *key, const uint8_t *value,
                        size_t bytes)
{
    struct core_pair *p = find_pair(g, key);
    const size_t old = p ? p->bytes : 0;

    if (g->pair_bytes - old + bytes > KV_MAX_BYTES)
        return DTP_ERR_LIMIT;
    uint8_t *copy = bytes ? dtpi_alloc(&c->a, bytes) : NULL;
    if (bytes && !copy)
        return DTP_ERR_NOMEM;
    if (bytes)
        memcpy(copy, value, bytes);
    if (!p) {
        p = dtpi_alloc(&c->a, sizeof(*p));
        char *name = dtpi_text_dup(&c->a, key);
        if (!p || !name) {
            dtpi_free(&c->a, p, sizeof(*p));
            dtpi_text_free(&c->a, name);
            dtpi_free(&c->a, copy, bytes);
            return DTP_ERR_NOMEM;
        }
        p->key = name;
        p->next = g->pairs;
        g->pairs = p;
    }
    dtpi_free(&c->a, p->value, p->bytes);
    p->value = copy;
    p->bytes = bytes;
    g->pair_bytes += bytes - old;
    return DTP_OK;
}

static void tell_readers(dtpi_core *c, struct core_group *g, const char *key)
{
    const struct core_pair *p = find_pair(g, key);

    for (struct core_reader **at = &g->readers; *at;) {
        struct core_reader *w = *at;
        if (strcmp(w->key, key) != 0) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        answer(c, g, w->rank, w->seq, DTP_OK, p->value, p->bytes);
        dtpi_free(&c->a, w, sizeof(*w));
    }
}

static bool on_set(dtpi_core *c, struct core_group *g, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    char key[KEY_ROOM];
    size_t bytes = 0;

    dtpi_rd_text(&r, key, sizeof(key));
    const uint8_t *value = dtpi_rd_block(&r, DTP_GROUP_MAX_MSG, &bytes);
    if (!dtpi_rd_done(&r) || key[0] == '\0')
        return false;
    const dtp_status st = store(c, g, key, value, bytes);
    answer(c, g, f->rank, f->seq, st, NULL, 0);
    if (st == DTP_OK)
        tell_readers(c, g, key);
    return true;
}

static bool on_get(dtpi_core *c, struct core_group *g, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    char key[KEY_ROOM];

    const bool waits = dtpi_rd_u8(&r);
    dtpi_rd_text(&r, key, sizeof(key));
    if (!dtpi_rd_done(&r) || key[0] == '\0')
        return false;
    const struct core_pair *p = find_pair(g, key);
    if (p || !waits) {
        answer(c, g, f->rank, f->seq, p ? DTP_OK : DTP_ERR_NOT_FOUND, p ? p->value : NULL,
               p ? p->bytes : 0);
        return true;
    }
    struct core_reader *w = dtpi_alloc(&c->a, sizeof(*w));
    if (!w) {
        answer(c, g, f->rank, f->seq, DTP_ERR_NOMEM, NULL, 0);
        return true;
    }
    w->rank = f->rank;
    w->seq = f->seq;
    snprintf(w->key, sizeof(w->key), "%s", key);
    w->next = g->readers;
    g->readers = w;
    return true;
}

static void on_forget(dtpi_core *c, struct core_group *g, const dtpi_frame *f)
{
    for (struct core_reader **at = &g->readers; *at; at = &(*at)->next) {
        struct core_reader *w = *at;
        if (w->rank != f->rank || w->seq != f->seq)
            continue;
        *at = w->next;
        dtpi_free(&c->a, w, sizeof(*w));
        return;
    }
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
        if (m && c->has_parent) {
            c->n_sent++;
            c->ops->to_parent(c->user, m);
        }
        return true;
    }
    if (f->type == DTPI_F_SET)
        return on_set(c, g, f);
    if (f->type == DTPI_F_GET)
        return on_get(c, g, f);
    on_forget(c, g, f);
    return true;
}

void core_on_value(dtpi_core *c, const dtpi_frame *f, const dtpi_in *in)
{
    if (f->rank < 0 || f->rank >= (int32_t)c->o.world_size)
        return;
    DTPI_AUTO(msg) dtpi_msg *m = core_keep(c, in);
    if (m)
        send_down(c, f->rank, m);
}
