/* SPDX-License-Identifier: Apache-2.0 */
/*
 * newcomer.c - ranks that come to a group that stands: they wait at their agent, the judge knows of
 * all, and the next generation takes them in with identities behind all that were given before. Pure.
 */
#include "group/core_internal.h"

/* One that waits; `via` is where it is seen from here. */
struct newcomer {
    uint64_t id;                /* chosen by itself */
    uint64_t node;              /* id */
    int32_t via;
    uint32_t slot, local_rank;
    int32_t pid;
};

enum { MAX_NEWCOMERS = 1 << 16 };

bool core_is_local_member(const dtpi_core *c, uint32_t slot)
{
    return c->locals[slot].used && !c->locals[slot].left && !c->locals[slot].is_new;
}

static struct newcomer *list_of(const dtpi_core *c)
{
    return (struct newcomer *)(void *)c->newcomers.data;
}

bool dtpi_core_is_newcomer(const dtpi_core *c, uint32_t slot)
{
    return slot < c->n_locals && c->locals[slot].is_new;
}

uint32_t dtpi_core_n_newcomers(const dtpi_core *c)
{
    return (uint32_t)(c->newcomers.len / sizeof(struct newcomer));
}

static struct newcomer *find(const dtpi_core *c, uint64_t id)
{
    struct newcomer *list = list_of(c);

    for (uint32_t i = 0; i < dtpi_core_n_newcomers(c); i++)
        if (list[i].id == id)
            return &list[i];
    return NULL;
}

static void say_up(dtpi_core *c, const struct newcomer *n, bool gone)
{
    dtpi_buf b = core_begin(c, DTPI_F_NEW, DTPI_WORLD_ID, 0, 0, -1);

    dtpi_wr_u64(&b, n->id);
    dtpi_wr_u64(&b, n->node);
    dtpi_wr_u32(&b, n->local_rank);
    dtpi_wr_u32(&b, (uint32_t)n->pid);
    dtpi_wr_u8(&b, gone);
    core_to_parent(c, &b);
}

/* False where there is no room; the next one may find some. */
static bool add(dtpi_core *c, const struct newcomer *n)
{
    struct newcomer *old = find(c, n->id);

    if (old) {
        *old = *n;
    } else if (dtpi_core_n_newcomers(c) == MAX_NEWCOMERS ||
               !dtpi_buf_append(&c->newcomers, n, sizeof(*n))) {
        c->newcomers.failed = false;
        return false;
    }
    say_up(c, n, false);
    core_reform_check(c);
    return true;
}

static void drop(dtpi_core *c, struct newcomer *n)
{
    *n = list_of(c)[dtpi_core_n_newcomers(c) - 1];
    c->newcomers.len -= sizeof(*n);
}

void core_newcomers_again(dtpi_core *c)
{
    for (uint32_t i = 0; i < dtpi_core_n_newcomers(c); i++)
        say_up(c, &list_of(c)[i], false);
}

/* ---- they come and go ---- */

void core_newcomer_joins(dtpi_core *c, uint32_t slot, uint32_t local_rank, int32_t pid, uint64_t id)
{
    struct core_local *l = &c->locals[slot];
    const struct newcomer n = { .id = id, .node = c->o.node_id, .via = DTPI_VIA_LOCAL, .slot = slot,
                                .local_rank = local_rank, .pid = l->pid ? l->pid : pid };

    l->pid = n.pid;
    l->local_rank = local_rank;
    l->is_new = true;
    if (add(c, &n))
        return;
    l->is_new = false;
    core_refuse(c, slot, DTP_ERR_NOMEM, "the agent of node %s has no room for a newcomer", c->host);
}

static void gone(dtpi_core *c, struct newcomer *n)
{
    say_up(c, n, true);
    drop(c, n);
}

void core_newcomer_ends(dtpi_core *c, int32_t via, uint32_t slot)
{
    for (uint32_t i = dtpi_core_n_newcomers(c); i > 0; i--) {
        struct newcomer *n = &list_of(c)[i - 1];
        if (n->via == via && (via != DTPI_VIA_LOCAL || n->slot == slot))
            gone(c, n);
    }
}

bool core_on_new(dtpi_core *c, uint32_t slot, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    struct newcomer n = { .via = (int32_t)slot };

    n.id = dtpi_rd_u64(&r);
    n.node = dtpi_rd_u64(&r);
    n.local_rank = dtpi_rd_u32(&r);
    n.pid = (int32_t)dtpi_rd_u32(&r);
    const bool is_gone = dtpi_rd_u8(&r);
    if (!dtpi_rd_done(&r))
        return false;
    struct newcomer *old = find(c, n.id);
    if (!is_gone)
        add(c, &n);
    else if (old && old->via == n.via)
        gone(c, old);
    return true;
}

/* ---- taken in ---- */

/* Those whose node has a row: others wait for their agent. */
void core_newcomers_write(const dtpi_core *c, dtpi_buf *b, dtpi_buf *members)
{
    const size_t at = b->len;
    int32_t identity = (int32_t)core_limit(c);
    uint32_t n = 0;

    dtpi_wr_u32(b, 0);
    for (uint32_t i = 0; i < dtpi_core_n_newcomers(c) && identity < DTPI_WORLD_MAX; i++) {
        const struct newcomer *new = &list_of(c)[i];
        const uint32_t node = core_node_find(c, new->node);
        if (node == CORE_NO_NODE)
            continue;
        dtpi_wr_u64(b, new->id);
        dtpi_wr_u32(b, node);
        dtpi_wr_u32(b, new->local_rank);
        dtpi_wr_u32(b, (uint32_t)new->pid);
        dtpi_buf_append(members, &identity, sizeof(identity));
        identity++;
        n++;
    }
    for (size_t i = 0; !b->failed && i < 4; i++)
        b->data[at + i] = (uint8_t)(n >> (8 * i));
}

bool dtpi_newcomer_read(dtpi_rd *r, dtpi_newcomer *out)
{
    out->id = dtpi_rd_u64(r);
    out->node = dtpi_rd_u32(r);
    out->local_rank = dtpi_rd_u32(r);
    out->pid = (int32_t)dtpi_rd_u32(r);
    return !r->failed;
}

static void take_local(dtpi_core *c, const struct newcomer *n, int32_t identity)
{
    struct core_local *l = &c->locals[n->slot];

    l->rank = identity;
    l->joined = true;
    l->is_new = l->left = false;
}

bool core_newcomers_take(dtpi_core *c, dtpi_rd r)
{
    const uint32_t n = dtpi_rd_u32(&r);

    for (uint32_t i = 0; i < n; i++) {
        const int32_t identity = (int32_t)core_limit(c);
        dtpi_newcomer new;
        if (!dtpi_newcomer_read(&r, &new) || new.node >= c->n_nodes)
            return false;
        const struct core_row row = { .node = new.node, .local_rank = new.local_rank, .pid = new.pid,
                                      .is_there = true };
        if (!dtpi_buf_append(&c->extras, &row, sizeof(row)))
            return false;
        struct newcomer *mine = find(c, new.id);
        if (!mine)
            continue;
        if (!core_add_below(c, identity, mine->via, mine->slot))
            return false;
        if (mine->via == DTPI_VIA_LOCAL)
            take_local(c, mine, identity);
        drop(c, mine);
    }
    return true;
}

const struct core_row *core_extra(const dtpi_core *c, int32_t rank)
{
    const uint32_t at = (uint32_t)rank - c->o.world_size;
    const struct core_row *extras = (const struct core_row *)(const void *)c->extras.data;

    return at < c->extras.len / sizeof(*extras) ? &extras[at] : NULL;
}

uint32_t core_limit(const dtpi_core *c)
{
    return c->o.world_size + (uint32_t)(c->extras.len / sizeof(struct core_row));
}

uint32_t dtpi_core_n_rows(const dtpi_core *c)
{
    return core_limit(c);
}
