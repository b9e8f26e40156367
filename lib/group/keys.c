/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - a group's keys and values: a hash table that doubles, bounded by the bytes it holds. */
#include "group/keys.h"

#include <stdio.h>

#include "base/sum.h"
#include "base/text.h"

enum { FIRST_BUCKETS = 16 };

uint64_t dtpi_key_hash(const char *key)
{
    return dtpi_sum64(key, strlen(key));
}

static void pair_free(const dtpi_keys *k, dtpi_pair *p)
{
    dtpi_free(k->a, p->value, p->bytes);
    dtpi_free(k->a, p, sizeof(*p) + p->key_bytes);
}

void dtpi_keys_free(dtpi_keys *k)
{
    for (uint32_t i = 0; i < k->n_buckets; i++)
        while (k->buckets[i]) {
            dtpi_pair *p = k->buckets[i];
            k->buckets[i] = p->next;
            pair_free(k, p);
        }
    dtpi_free(k->a, k->buckets, k->n_buckets * sizeof(*k->buckets));
    *k = (dtpi_keys){ .a = k->a };
}

/* Where the pointer to the pair is, or would be put; NULL while there is no table. */
static dtpi_pair **place_of(const dtpi_keys *k, const char *key, uint64_t hash)
{
    if (!k->n_buckets)
        return NULL;
    dtpi_pair **at = &k->buckets[hash & (k->n_buckets - 1)];
    while (*at && ((*at)->hash != hash || strcmp((*at)->key, key) != 0))
        at = &(*at)->next;
    return at;
}

static dtpi_pair *find(const dtpi_keys *k, const char *key)
{
    dtpi_pair **at = place_of(k, key, dtpi_key_hash(key));

    return at ? *at : NULL;
}

const dtpi_pair *dtpi_keys_find(const dtpi_keys *k, const char *key)
{
    return find(k, key);
}

/* Doubles the table when it is full; a table that could not grow is only slower. */
static bool make_room(dtpi_keys *k)
{
    if (k->n < k->n_buckets)
        return true;
    const uint32_t n = k->n_buckets ? 2 * k->n_buckets : FIRST_BUCKETS;
    dtpi_pair **buckets = dtpi_alloc_array(k->a, n, sizeof(*buckets));
    if (!buckets)
        return k->n_buckets > 0;
    for (uint32_t i = 0; i < k->n_buckets; i++)
        for (dtpi_pair *p = k->buckets[i], *next; p; p = next) {
            next = p->next;
            p->next = buckets[p->hash & (n - 1)];
            buckets[p->hash & (n - 1)] = p;
        }
    dtpi_free(k->a, k->buckets, k->n_buckets * sizeof(*k->buckets));
    k->buckets = buckets;
    k->n_buckets = n;
    return true;
}

static bool is_hidden(const char *key)
{
    return key[0] == DTPI_KEY_HIDDEN[0];
}

static dtpi_pair *pair_new(dtpi_keys *k, const char *key)
{
    const size_t bytes = strlen(key) + 1;
    dtpi_pair *p = make_room(k) ? dtpi_alloc(k->a, sizeof(*p) + bytes) : NULL;

    if (!p)
        return NULL;
    p->hash = dtpi_key_hash(key);
    p->key_bytes = bytes;
    memcpy(p->key, key, bytes);
    dtpi_pair **at = place_of(k, key, p->hash);
    *at = p;
    k->n++;
    k->n_hidden += is_hidden(key);
    k->bytes += sizeof(*p) + bytes;
    return p;
}

/* Puts two pieces one behind the other into a key. */
static dtp_status put(dtpi_keys *k, const char *key, const void *a, size_t n_a, const void *b,
                      size_t n_b)
{
    dtpi_pair *p = find(k, key);
    const size_t bytes = n_a + n_b, old = p ? p->bytes : 0;
    const size_t added = bytes + (p ? 0 : sizeof(*p) + strlen(key) + 1);

    if (bytes > DTP_GROUP_MAX_MSG || k->bytes - old + added > DTPI_KEYS_MAX_BYTES)
        return DTP_ERR_LIMIT;
    uint8_t *copy = bytes ? dtpi_alloc(k->a, bytes) : NULL;
    if (bytes && !copy)
        return DTP_ERR_NOMEM;
    if (n_a)
        memcpy(copy, a, n_a);
    if (n_b)
        memcpy(copy + n_a, b, n_b);
    if (!p)
        p = pair_new(k, key);
    if (!p) {
        dtpi_free(k->a, copy, bytes);
        return DTP_ERR_NOMEM;
    }
    dtpi_free(k->a, p->value, p->bytes);
    p->value = copy;
    p->bytes = bytes;
    k->bytes += bytes - old;
    return DTP_OK;
}

dtp_status dtpi_keys_set(dtpi_keys *k, const char *key, const void *value, size_t bytes)
{
    return put(k, key, value, bytes, NULL, 0);
}

/* ---- changes ---- */

void dtpi_change_write(dtpi_buf *b, const dtpi_change *c)
{
    dtpi_wr_u8(b, c->op);
    dtpi_wr_text(b, c->key);
    dtpi_wr_u64(b, (uint64_t)c->delta);
    dtpi_wr_block(b, c->expected, c->n_expected);
    dtpi_wr_block(b, c->value, c->n_value);
}

bool dtpi_change_read(dtpi_rd *r, dtpi_change *out)
{
    *out = (dtpi_change){ .op = dtpi_rd_u8(r) };
    dtpi_rd_text(r, out->key, sizeof(out->key));
    out->delta = (int64_t)dtpi_rd_u64(r);
    out->expected = dtpi_rd_block(r, DTP_GROUP_MAX_MSG, &out->n_expected);
    out->value = dtpi_rd_block(r, DTP_GROUP_MAX_MSG, &out->n_value);
    return dtpi_rd_done(r) && out->op >= DTPI_CHANGE_ADD && out->op <= DTPI_CHANGE_COUNT &&
           (out->key[0] == '\0') == (out->op == DTPI_CHANGE_COUNT);
}

static dtp_status add(dtpi_keys *k, const dtpi_change *c, uint64_t *sum_out)
{
    const dtpi_pair *p = find(k, c->key);
    char text[24] = "0";
    int64_t now, sum;

    if (p && p->bytes >= sizeof(text))
        return DTP_ERR_FORMAT;
    if (p) {
        if (p->bytes)
            memcpy(text, p->value, p->bytes);
        text[p->bytes] = '\0';
    }
    if ((p && strlen(text) != p->bytes) || !dtpi_parse_i64(text, INT64_MIN, INT64_MAX, &now))
        return DTP_ERR_FORMAT;
    if (__builtin_add_overflow(now, c->delta, &sum))
        return DTP_ERR_RANGE;
    const int n = snprintf(text, sizeof(text), "%lld", (long long)sum);
    *sum_out = (uint64_t)sum;
    return put(k, c->key, text, (size_t)n, NULL, 0);
}

/* Nothing expected: the key is not set, or empty. */
static dtp_status compare(dtpi_keys *k, const dtpi_change *c, uint64_t *set_out)
{
    const dtpi_pair *p = find(k, c->key);

    if (!p && c->n_expected)
        return DTP_ERR_NOT_FOUND;
    if (p && (p->bytes != c->n_expected ||
              (p->bytes && memcmp(p->value, c->expected, p->bytes) != 0)))
        return DTP_OK;
    *set_out = 1;
    return put(k, c->key, c->value, c->n_value, NULL, 0);
}

static dtp_status append(dtpi_keys *k, const dtpi_change *c)
{
    const dtpi_pair *p = find(k, c->key);

    return put(k, c->key, p ? p->value : NULL, p ? p->bytes : 0, c->value, c->n_value);
}

static dtp_status unset(dtpi_keys *k, const char *key)
{
    dtpi_pair **at = place_of(k, key, dtpi_key_hash(key));
    dtpi_pair *p = at ? *at : NULL;

    if (!p)
        return DTP_ERR_NOT_FOUND;
    *at = p->next;
    k->n--;
    k->n_hidden -= is_hidden(key);
    k->bytes -= sizeof(*p) + p->key_bytes + p->bytes;
    pair_free(k, p);
    return DTP_OK;
}

dtpi_changed dtpi_keys_change(dtpi_keys *k, const dtpi_change *c)
{
    dtpi_changed done = { 0 };

    switch ((dtpi_change_op)c->op) {
    case DTPI_CHANGE_ADD:
        done.status = add(k, c, &done.number);
        break;
    case DTPI_CHANGE_COMPARE:
        done.status = compare(k, c, &done.number);
        break;
    case DTPI_CHANGE_APPEND:
        done.status = append(k, c);
        break;
    case DTPI_CHANGE_UNSET:
        done.status = unset(k, c->key);
        break;
    case DTPI_CHANGE_COUNT:
        done.number = k->n - k->n_hidden;
        break;
    }
    return done;
}

void dtpi_keys_answer(const dtpi_keys *k, const dtpi_change *c, const dtpi_changed *done, dtpi_buf *b)
{
    const dtpi_pair *p;

    if (c->op == DTPI_CHANGE_ADD || c->op == DTPI_CHANGE_COUNT) {
        dtpi_wr_u64(b, done->number);
    } else if (c->op == DTPI_CHANGE_COMPARE && done->number) {
        dtpi_buf_append(b, c->value, c->n_value);
    } else if (c->op == DTPI_CHANGE_COMPARE) {
        p = find(k, c->key);
        if (p)
            dtpi_buf_append(b, p->value, p->bytes);
    }
}
