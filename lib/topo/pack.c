/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.c - a topology as bytes for other processes of the same library version, and back.
 *
 * Two parts: the shape, equal for machines that are built alike, and what only this machine has (the GIDs
 * of its ports). Unknown numbers and texts take no room: a mask of 16 bits says what follows.
 */
#include "topo/pack.h"

#include "base/sum.h"
#include "base/text.h"

enum { PACK_MAGIC = 0x31707464, PACK_MAX_LIST = 64 << 10 };

/* What may be unknown, in the order of the mask's bits. */
static const size_t numbers[] = {
    offsetof(dtp_topo_obj, os_index),      offsetof(dtp_topo_obj, numa),
    offsetof(dtp_topo_obj, mem_bytes),     offsetof(dtp_topo_obj, cache_bytes),
    offsetof(dtp_topo_obj, link_mbps),     offsetof(dtp_topo_obj, link_max_mbps),
    offsetof(dtp_topo_obj, port_mbps),
};
static const size_t words[] = { offsetof(dtp_topo_obj, port_state), offsetof(dtp_topo_obj, usable) };
static const size_t texts[] = {
    offsetof(dtp_topo_obj, name),       offsetof(dtp_topo_obj, pci),  offsetof(dtp_topo_obj, model),
    offsetof(dtp_topo_obj, link_layer), offsetof(dtp_topo_obj, cpus), offsetof(dtp_topo_obj, netdev),
};
enum { N_NUMBERS = DTPI_ARRAY_LEN(numbers), N_WORDS = DTPI_ARRAY_LEN(words), N_TEXTS = DTPI_ARRAY_LEN(texts) };
static_assert(N_NUMBERS + N_WORDS + N_TEXTS <= 16, "the mask has 16 bits");

#define NUMBER(o, i) (*(int64_t *)(void *)((char *)(o) + numbers[i]))
#define WORD(o, i) (*(int32_t *)(void *)((char *)(o) + words[i]))
#define TEXT(o, i) (*(const char **)(void *)((char *)(o) + texts[i]))

uint64_t dtpi_topo_id(const void *shape, size_t bytes)
{
    return dtpi_sum64(shape, bytes);
}

/* ---- out ---- */

static void put_text(dtpi_buf *b, const char *text)
{
    dtpi_wr_u8(b, text != NULL);
    if (text)
        dtpi_wr_text(b, text);
}

static void put_obj(dtpi_buf *b, const dtp_topo_obj *obj)
{
    dtp_topo_obj o = *obj;
    uint32_t mask = 0, bit = 0;

    for (size_t i = 0; i < N_NUMBERS; i++)
        mask |= (uint32_t)(NUMBER(&o, i) != DTP_UNKNOWN) << bit++;
    for (size_t i = 0; i < N_WORDS; i++)
        mask |= (uint32_t)(WORD(&o, i) != 0) << bit++;
    for (size_t i = 0; i < N_TEXTS; i++)
        mask |= (uint32_t)(TEXT(&o, i) != NULL) << bit++;
    dtpi_wr_u16(b, (uint16_t)mask);
    dtpi_wr_u8(b, (uint8_t)o.type);
    dtpi_wr_u16(b, (uint16_t)(o.parent + 1));
    bit = 0;
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (mask & 1u << bit++)
            dtpi_wr_u64(b, (uint64_t)NUMBER(&o, i));
    for (size_t i = 0; i < N_WORDS; i++)
        if (mask & 1u << bit++)
            dtpi_wr_u32(b, (uint32_t)WORD(&o, i));
    for (size_t i = 0; i < N_TEXTS; i++)
        if (mask & 1u << bit++)
            dtpi_wr_text(b, TEXT(&o, i));
}

void dtpi_topo_pack(const dtp_topo *t, dtpi_buf *shape, dtpi_buf *own)
{
    uint32_t n_gids = 0;

    dtpi_wr_u32(shape, PACK_MAGIC);
    put_text(shape, t->source);
    dtpi_wr_u8(shape, t->recorded);
    put_text(shape, t->cpus[DTP_CPUS_MACHINE]);
    put_text(shape, t->cpus[DTP_CPUS_ALLOWED]);
    dtpi_wr_u32(shape, t->n_objs);
    for (uint32_t i = 0; i < t->n_objs; i++) {
        put_obj(shape, &t->objs[i]);
        n_gids += t->objs[i].gid != NULL;
    }
    for (uint32_t i = 0; i < t->n_objs; i++)
        dtpi_wr_u16(shape, (uint16_t)t->sorted[i]);
    dtpi_wr_u32(shape, t->n_nvlinks);
    for (uint32_t i = 0; i < t->n_nvlinks; i++) {
        dtpi_wr_text(shape, t->nvlinks[i].a);
        dtpi_wr_text(shape, t->nvlinks[i].b);
        dtpi_wr_u32(shape, t->nvlinks[i].n_links);
    }
    dtpi_wr_u32(own, n_gids);
    for (uint32_t i = 0; i < t->n_objs; i++)
        if (t->objs[i].gid) {
            dtpi_wr_u32(own, i);
            dtpi_wr_text(own, t->objs[i].gid);
        }
}

/* ---- back: all give false where the bytes are malformed or, said apart, there is no memory ---- */

typedef struct unpacking {
    dtp_topo *t;
    dtpi_rd r;
    bool no_memory;
} unpacking;

static bool has_memory(unpacking *u, const void *p)
{
    u->no_memory = u->no_memory || !p;
    return p != NULL;
}

/* A text of the topology's own. */
static bool take_text(unpacking *u, size_t max, const char **out)
{
    size_t bytes;
    const uint8_t *p = dtpi_rd_block(&u->r, max, &bytes);

    if (u->r.failed || memchr(p, 0, bytes) || !dtpi_utf8_ok((const char *)p, bytes))
        return false;
    *out = dtpi_topo_copy(u->t, (const char *)p, bytes);
    return has_memory(u, *out);
}

static bool take_maybe(unpacking *u, const char **out)
{
    const uint8_t has = dtpi_rd_u8(&u->r);

    return has == 0 ? !u->r.failed : has == 1 && take_text(u, PACK_MAX_LIST, out);
}

static bool take_obj(unpacking *u, uint32_t index)
{
    dtp_topo_obj *o = &u->t->objs[index];
    dtpi_rd *r = &u->r;
    const uint32_t mask = dtpi_rd_u16(r);
    uint32_t bit = 0;

    *o = (dtp_topo_obj){ .size = sizeof(*o), .index = (int32_t)index };
    o->type = (dtp_topo_type)dtpi_rd_u8(r);
    o->parent = (int32_t)dtpi_rd_u16(r) - 1;
    for (size_t i = 0; i < N_NUMBERS; i++)
        NUMBER(o, i) = mask & 1u << bit++ ? (int64_t)dtpi_rd_u64(r) : DTP_UNKNOWN;
    for (size_t i = 0; i < N_WORDS; i++)
        WORD(o, i) = mask & 1u << bit++ ? (int32_t)dtpi_rd_u32(r) : 0;
    for (size_t i = 0; i < N_TEXTS; i++)
        if (mask & 1u << bit++ && !take_text(u, PACK_MAX_LIST, &TEXT(o, i)))
            return false;
    return !r->failed && mask >> bit == 0 && o->type >= DTP_TOPO_MACHINE && o->type <= DTP_TOPO_NVME &&
           o->parent < (int32_t)index && (o->parent < 0) == (index == 0) &&
           (o->type == DTP_TOPO_MACHINE) == (index == 0);
}

/* The order by type: each object once. */
static bool take_order(unpacking *u)
{
    dtp_topo *t = u->t;
    dtpi_rd *r = &u->r;
    DTPI_AUTO_BUF dtpi_buf seen = dtpi_buf_init(&t->a);
    uint8_t *mark = dtpi_buf_reserve(&seen, t->n_objs);
    uint32_t type = DTP_TOPO_MACHINE;

    if (!has_memory(u, mark))
        return false;
    memset(mark, 0, t->n_objs);
    for (uint32_t i = 0; i < t->n_objs; i++) {
        const uint32_t at = dtpi_rd_u16(r);
        if (r->failed || at >= t->n_objs || mark[at]++ || t->objs[at].type < type)
            return false;
        for (; type < t->objs[at].type; type++)
            t->first[type + 1] = i;
        t->sorted[i] = at;
    }
    for (; type <= DTP_TOPO_NVME; type++)
        t->first[type + 1] = t->n_objs;
    return true;
}

static bool take_nvlinks(unpacking *u)
{
    dtp_topo *t = u->t;
    const uint32_t n = dtpi_rd_u32(&u->r);

    if (u->r.failed || n > u->r.left / 12)
        return false;
    if (n == 0)
        return true;
    t->nvlinks = dtpi_alloc_array(&t->a, n, sizeof(*t->nvlinks));
    if (!has_memory(u, t->nvlinks))
        return false;
    t->n_nvlinks = t->cap_nvlinks = n;
    for (uint32_t i = 0; i < n; i++) {
        if (!take_text(u, DTPI_TOPO_MAX_TEXT, &t->nvlinks[i].a) ||
            !take_text(u, DTPI_TOPO_MAX_TEXT, &t->nvlinks[i].b))
            return false;
        t->nvlinks[i].n_links = dtpi_rd_u32(&u->r);
    }
    return true;
}

static bool take_objs(unpacking *u)
{
    const uint32_t n = dtpi_rd_u32(&u->r);
    dtp_topo *t = u->t;

    if (u->r.failed || n < 1 || n > DTPI_TOPO_MAX_OBJS || n > u->r.left / 7)
        return false;
    t->cap_objs = n;
    t->objs = dtpi_alloc_array(&t->a, n, sizeof(*t->objs));
    t->sorted = dtpi_alloc_array(&t->a, n, sizeof(*t->sorted));
    if (!has_memory(u, t->objs) || !has_memory(u, t->sorted))
        return false;
    t->n_objs = n;
    for (uint32_t i = 0; i < n; i++)
        if (!take_obj(u, i))
            return false;
    return true;
}

static bool take_shape(unpacking *u)
{
    dtp_topo *t = u->t;

    if (dtpi_rd_u32(&u->r) != PACK_MAGIC || !take_maybe(u, &t->source))
        return false;
    t->recorded = dtpi_rd_u8(&u->r);
    return take_maybe(u, &t->cpus[DTP_CPUS_MACHINE]) && take_maybe(u, &t->cpus[DTP_CPUS_ALLOWED]) &&
           take_objs(u) && take_order(u) && take_nvlinks(u) && dtpi_rd_done(&u->r);
}

static bool take_own(unpacking *u)
{
    const uint32_t n = dtpi_rd_u32(&u->r);

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = dtpi_rd_u32(&u->r);
        if (u->r.failed || at >= u->t->n_objs || !take_text(u, DTPI_TOPO_MAX_TEXT, &u->t->objs[at].gid))
            return false;
    }
    return dtpi_rd_done(&u->r);
}

dtp_status dtpi_topo_unpack(const dtp_allocator *a, const void *shape, size_t shape_bytes,
                            const void *own, size_t own_bytes, dtp_topo **topo_out, dtp_error *err)
{
    DTPI_AUTO(topo) dtp_topo *t = dtpi_topo_new(a);
    unpacking u = { .t = t, .r = dtpi_rd_init(shape, shape_bytes) };

    if (!t)
        return dtpi_fail_nomem(err, sizeof(*t));
    bool ok = take_shape(&u);
    if (ok) {
        u.r = dtpi_rd_init(own, own_bytes);
        ok = take_own(&u);
    }
    if (u.no_memory)
        return dtpi_fail_nomem(err, shape_bytes);
    if (!ok)
        return dtpi_fail(err, DTP_ERR_FORMAT, "malformed topology of %zu bytes", shape_bytes);
    *topo_out = DTPI_TAKE(t);
    return DTP_OK;
}
