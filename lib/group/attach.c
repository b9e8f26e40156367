/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.c - agents whose parent is gone: they come back through another, and the judge waits for
 * them, so that only nodes which are really lost are named. Pure.
 *
 * The parent of a lost agent says whose agents may come back (ORPHANS); who comes says which ranks it
 * brings (ATTACH), and the routes change on its way up. Where the root itself is gone a standby judges,
 * and re-forms with more than half of the nodes: two halves of a network cannot both go on.
 */
#include "group/core_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* How long an agent may be on its way; and when a standby takes over that reaches nobody. */
#define ORPHAN_NS DTPI_NS_PER_S
#define SUCCEED_NS (30 * DTPI_NS_PER_MS)
#define NEXT_SUCCEEDS_NS (200 * DTPI_NS_PER_MS)

/* ---- lists of ranks ---- */

static int32_t *list_of(const dtpi_buf *b, uint32_t *n_out)
{
    *n_out = (uint32_t)(b->len / sizeof(int32_t));
    return (int32_t *)(void *)b->data;
}

static int compare_ranks(const void *a, const void *b)
{
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : *(const int32_t *)a > *(const int32_t *)b;
}

/* Ascending, each once. */
static void sort_ranks(dtpi_buf *b)
{
    uint32_t n, kept = 0;
    int32_t *list = list_of(b, &n);

    if (n > 1)
        qsort(list, n, sizeof(*list), compare_ranks);
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || list[i] != list[kept - 1])
            list[kept++] = list[i];
    b->len = kept * sizeof(*list);
}

static bool is_gone(const dtpi_core *c, int32_t rank)
{
    return core_is_dead(c, rank) || core_has_left(c, rank);
}

static void forward(dtpi_core *c, uint8_t type, uint64_t node, const dtpi_buf *ranks)
{
    dtpi_buf b = core_begin(c, type, DTPI_WORLD_ID, 0, 0, -1);
    uint32_t n;
    const int32_t *list = list_of(ranks, &n);

    dtpi_wr_u64(&b, node);
    dtpi_ranges_write(&b, list, n);
    b.failed |= ranks->failed;
    core_to_parent(c, &b);
}

static bool read_ranks(dtpi_core *c, const dtpi_frame *f, uint64_t *node_out, dtpi_buf *out)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);

    *node_out = dtpi_rd_u64(&r);
    return dtpi_ranges_read(&r, core_limit(c), out) && dtpi_rd_done(&r);
}

/* ---- an agent below is lost: who may come back ---- */

static void add_orphans(dtpi_core *c, const dtpi_buf *ranks)
{
    uint32_t n;
    const int32_t *list = list_of(ranks, &n);

    if (n == 0)
        return;
    for (uint32_t i = 0; i < n; i++)
        core_drop_below(c, list[i]);
    if (c->has_parent) {
        dtpi_buf_append(&c->said_orphans, ranks->data, ranks->len);
        core_reform_flush(c);
        core_reform_lost(c, list, n);
        forward(c, DTPI_F_ORPHANS, 0, ranks);
        return;
    }
    dtpi_buf_append(&c->orphans, ranks->data, ranks->len);
    if (c->orphans.failed)
        core_nomem(c);
    c->orphans_until_ns = c->now + ORPHAN_NS;
}

void core_orphans_of(dtpi_core *c, uint32_t slot)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(&c->a);

    for (int32_t i = core_next_below(c, -1); i >= 0; i = core_next_below(c, i))
        if (core_child_of(c, i) == (int32_t)slot && !is_gone(c, i))
            dtpi_buf_append(&list, &i, sizeof(i));
    add_orphans(c, &list);
}

bool core_on_orphans(dtpi_core *c, uint32_t slot, const dtpi_frame *f)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(&c->a);
    uint64_t node;
    uint32_t n, kept = 0;

    if (!read_ranks(c, f, &node, &list))
        return false;
    /* Those who have come through another already are not missing. */
    int32_t *ranks = list_of(&list, &n);
    for (uint32_t i = 0; i < n; i++)
        if (core_child_of(c, ranks[i]) == (int32_t)slot && !is_gone(c, ranks[i]))
            ranks[kept++] = ranks[i];
    list.len = kept * sizeof(*ranks);
    add_orphans(c, &list);
    return true;
}

bool core_has_orphans(const dtpi_core *c)
{
    return c->orphans.len > 0;
}

static void remove_orphans(dtpi_core *c, bool (*gone)(const dtpi_core *, int32_t))
{
    uint32_t n, kept = 0;
    int32_t *list = list_of(&c->orphans, &n);

    for (uint32_t i = 0; i < n; i++)
        if (!gone(c, list[i]))
            list[kept++] = list[i];
    c->orphans.len = kept * sizeof(*list);
}

static bool is_back_or_gone(const dtpi_core *c, int32_t rank)
{
    return is_gone(c, rank) || core_child_of(c, rank) != DTPI_VIA_ABOVE;
}

void core_orphans_changed(dtpi_core *c)
{
    if (c->orphans.len == 0)
        return;
    remove_orphans(c, is_back_or_gone);
    if (c->orphans.len == 0)
        core_reform_check(c);
}

/* Those who did not come back in time are lost, each with its node. */
static void give_up_orphans(dtpi_core *c)
{
    DTPI_AUTO_BUF dtpi_buf list = c->orphans;
    char text[DTP_ERROR_TEXT];
    uint32_t n;

    c->orphans = dtpi_buf_init(&c->a);
    sort_ranks(&list);
    const int32_t *ranks = list_of(&list, &n);
    for (uint32_t i = 0; i < n; i++)
        core_set_dead(c, ranks[i]);
    core_text_of_deaths(c, ranks, n, text, sizeof(text));
    core_deaths(c, ranks, n, text);
    core_reform_check(c);
}

/* ---- an agent comes back ---- */

static void say_who_is_here(dtpi_core *c);

/* What the new parent is to know: who is here, who died meanwhile, who wants to re-form. */
void core_attach_say(dtpi_core *c)
{
    /* Who missed how this generation began hears it first; others drop it. */
    core_send_parent(c, c->formed);
    say_who_is_here(c);
    c->came_back = true;
}

static void say_who_is_here(dtpi_core *c)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(&c->a);
    DTPI_AUTO_BUF dtpi_buf dead = dtpi_buf_init(&c->a);
    dtpi_verdict v = { .status = DTP_ERR_PEER };

    for (int32_t i = core_next_below(c, -1); i >= 0; i = core_next_below(c, i)) {
        dtpi_buf_append(&list, &i, sizeof(i));
        if (core_is_dead(c, i) && core_index_of(c, i) >= 0)
            dtpi_buf_append(&dead, &i, sizeof(i));
    }
    /* Before the routes: the judge gives its own verdict when all are back. */
    if (c->has_verdict) {
        dtpi_buf b = core_begin(c, DTPI_F_VERDICT, DTPI_WORLD_ID, 0, 0, -1);
        dtpi_verdict_write(&b, &c->verdict);
        core_to_parent(c, &b);
    }
    forward(c, DTPI_F_ATTACH, c->o.node_id, &list);
    v.failed = list_of(&dead, &v.n_failed);
    if (v.n_failed) {
        core_text_of_deaths(c, v.failed, v.n_failed, v.text, sizeof(v.text));
        core_death_up(c, &v);
    }
    core_reform_again(c);
}

void core_say_again(dtpi_core *c)
{
    DTPI_AUTO_BUF dtpi_buf dead = dtpi_buf_init(&c->a);
    DTPI_AUTO_BUF dtpi_buf orphans = c->said_orphans;
    char text[DTP_ERROR_TEXT];
    uint32_t n, kept = 0;

    c->said_orphans = dtpi_buf_init(&c->a);
    if (c->came_back && c->has_parent)
        say_who_is_here(c);
    c->came_back = false;
    core_newcomers_again(c);
    for (uint32_t i = 0; i < c->n_members; i++)
        if (core_is_dead(c, c->members[i]))
            dtpi_buf_append(&dead, &c->members[i], sizeof(c->members[i]));
    const int32_t *list = list_of(&dead, &n);
    if (n > 0) {
        core_text_of_deaths(c, list, n, text, sizeof(text));
        core_deaths(c, list, n, text);
    }
    int32_t *ranks = list_of(&orphans, &n);
    for (uint32_t i = 0; i < n; i++)
        if (core_child_of(c, ranks[i]) == DTPI_VIA_ABOVE && !is_gone(c, ranks[i]) &&
            core_index_of(c, ranks[i]) >= 0)
            ranks[kept++] = ranks[i];
    orphans.len = kept * sizeof(*ranks);
    sort_ranks(&orphans);
    add_orphans(c, &orphans);
}

/* The end of a connection that a child has left for this one is no death. */
static void forget_former(dtpi_core *c, uint32_t slot)
{
    for (uint32_t i = 0; i < c->n_children; i++)
        if (i != slot && c->children[i].used && c->children[i].node == c->children[slot].node)
            c->children[i].bye = true;
}

void core_child_is_stale(dtpi_core *c, uint32_t slot, const dtpi_frame *f)
{
    c->n_stale++;
    if (f->type == DTPI_F_ATTACH && f->generation + 1 == c->generation)
        core_send_child(c, slot, c->formed);
}

bool core_on_attach(dtpi_core *c, uint32_t slot, const dtpi_frame *f)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(&c->a);
    uint64_t node;
    uint32_t n;

    if (!read_ranks(c, f, &node, &list))
        return false;
    const int32_t *ranks = list_of(&list, &n);
    for (uint32_t i = 0; i < n; i++)
        if (core_child_of(c, ranks[i]) == DTPI_VIA_LOCAL)
            return false;
    for (uint32_t i = 0; i < n; i++)
        if (!core_add_below(c, ranks[i], (int32_t)slot, 0))
            return true;
    if (c->children[slot].node == 0)
        c->children[slot].node = node;
    forget_former(c, slot);
    c->children[slot].complete = false;
    c->children[slot].came_back = true;
    c->reform.said = false;
    if (c->has_parent)
        forward(c, DTPI_F_ATTACH, node, &list);
    core_orphans_changed(c);
    core_join_tick(c);
    return true;
}

/* ---- the root is gone ---- */

/* Place in the order in which agents stand by for the root, -1: none. */
static int32_t standby_of(const dtpi_core *c)
{
    dtpi_standby s[DTPI_STANDBYS];
    const uint32_t n = dtpi_core_standbys(c, s);

    for (uint32_t i = 0; i < n; i++)
        if (s[i].node == c->o.node_id)
            return (int32_t)i;
    return -1;
}

/* The root's node is the one that is gone, or nobody of it is a member any more. */
static bool root_is_gone(dtpi_core *c)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(&c->a);
    const uint32_t node = core_node_of(c, 0);
    uint32_t n;

    if (core_node_id(c, node) == c->parent_node)
        return true;
    if (!core_ranks_of_node(c, node, &list))
        return false;
    const int32_t *ranks = list_of(&list, &n);
    for (uint32_t i = 0; i < n; i++)
        if (core_index_of(c, ranks[i]) >= 0 && !is_gone(c, ranks[i]))
            return false;
    return true;
}

enum { NODE_IS_THERE = 1, NODE_IS_HERE = 2 };

static bool is_here(const dtpi_core *c, int32_t rank)
{
    return core_child_of(c, rank) != DTPI_VIA_ABOVE;
}

/* Nodes whose members have not all left, and those of them that are in touch. */
static void count_nodes(dtpi_core *c, uint32_t *here_out, uint32_t *all_out)
{
    uint8_t *nodes = dtpi_alloc(&c->a, c->n_nodes);

    *here_out = *all_out = 0;
    for (int32_t i = 0; nodes && i < (int32_t)core_world_n(c); i++) {
        const int32_t rank = c->members ? c->members[i] : i;
        const uint32_t node = core_node_of(c, rank);
        if (node >= c->n_nodes || core_has_left(c, rank))
            continue;
        nodes[node] |= NODE_IS_THERE | (is_here(c, rank) ? NODE_IS_HERE : 0);
    }
    for (uint32_t i = 0; nodes && i < c->n_nodes; i++) {
        *all_out += nodes[i] & NODE_IS_THERE;
        *here_out += (nodes[i] & NODE_IS_HERE) != 0;
    }
    dtpi_free(&c->a, nodes, c->n_nodes);
}

/* The root goes on with half of the nodes, who stands in for it with more: never both. */
bool core_has_quorum(dtpi_core *c, uint32_t *here_out, uint32_t *all_out)
{
    count_nodes(c, here_out, all_out);
    return c->o.is_root ? 2 * *here_out >= *all_out : 2 * *here_out > *all_out;
}

/* This agent judges from now on: the root's node is lost, and all that are not here may come. */
static void succeed(dtpi_core *c)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(&c->a);

    c->is_judge = true;
    c->is_orphan = false;
    c->succeed_at_ns = INT64_MAX;
    core_node_lost(c, c->parent_node);
    for (int32_t i = 0; i < (int32_t)core_world_n(c); i++) {
        const int32_t rank = c->members ? c->members[i] : i;
        if (core_child_of(c, rank) == DTPI_VIA_ABOVE && !is_gone(c, rank))
            dtpi_buf_append(&list, &rank, sizeof(rank));
    }
    add_orphans(c, &list);
}

/* ---- this agent's parent is gone ---- */

bool core_become_orphan(dtpi_core *c)
{
    const int32_t standby = standby_of(c);

    if (!c->ops->orphan || c->o.is_root || c->ended)
        return false;
    c->is_orphan = true;
    c->orphan_until_ns = c->now + ORPHAN_NS;
    c->succeed_at_ns = INT64_MAX;
    if (c->has_table && standby >= 0 && root_is_gone(c))
        c->succeed_at_ns = c->now + SUCCEED_NS + standby * NEXT_SUCCEEDS_NS;
    c->ops->orphan(c->user);
    return true;
}

void core_attach_tick(dtpi_core *c)
{
    if (c->orphans.len > 0 && c->now >= c->orphans_until_ns)
        give_up_orphans(c);
    if (!c->is_orphan)
        return;
    if (c->now >= c->succeed_at_ns) {
        succeed(c);
    } else if (c->now >= c->orphan_until_ns) {
        c->is_orphan = false;
        core_parent_died(c, DTP_OK, NULL);
        core_reform_check(c);
    }
}

int64_t core_attach_next_ns(const dtpi_core *c)
{
    int64_t at = c->orphans.len > 0 ? c->orphans_until_ns : INT64_MAX;

    if (c->is_orphan)
        at = DTPI_MIN(at, DTPI_MIN(c->orphan_until_ns, c->succeed_at_ns));
    return at;
}

bool dtpi_core_is_judge(const dtpi_core *c)
{
    return c->is_judge && !c->ended;
}

bool dtpi_core_seeks_parent(const dtpi_core *c)
{
    return c->is_orphan;
}
