/* SPDX-License-Identifier: Apache-2.0 */
/*
 * members.c - the groups an agent knows: all ranks, and what splits made of them.
 *
 * An agent keeps a group only while members in its subtree have not left it.
 */
#include "group/core_internal.h"

struct core_group *core_group_find(const dtpi_core *c, uint64_t id)
{
    struct core_group *g = c->groups;

    while (g && g->id != id)
        g = g->next;
    return g;
}

int32_t core_member(const struct core_group *g, uint32_t index)
{
    return g->members ? g->members[index] : (int32_t)index;
}

int32_t core_index_of(const dtpi_core *c, int32_t rank)
{
    uint32_t low = 0, high = c->n_members;

    if (!c->members)
        return rank;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        if (c->members[mid] == rank)
            return (int32_t)mid;
        if (c->members[mid] < rank)
            low = mid + 1;
        else
            high = mid;
    }
    return -1;
}

uint32_t core_world_n(const dtpi_core *c)
{
    return c->members ? c->n_members : c->o.world_size;
}

uint32_t core_first_above(const dtpi_core *c, const struct core_group *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        if (core_child_of(c, core_member(g, i)) == DTPI_VIA_ABOVE)
            return i;
    return 0;
}

void core_group_free(dtpi_core *c, struct core_group *g)
{
    while (g->gathers) {
        struct core_gather *x = g->gathers;
        g->gathers = x->next;
        core_gather_free(c, x);
    }
    core_kv_free(c, g);
    dtpi_free(&c->a, g->members, g->n * sizeof(*g->members));
    dtpi_free(&c->a, g->sources, g->cap_sources * sizeof(*g->sources));
    dtpi_free(&c->a, g->source_of_local, g->n_of_local * sizeof(uint32_t));
    dtpi_free(&c->a, g->source_of_child, g->n_of_child * sizeof(uint32_t));
    dtpi_free(&c->a, g, sizeof(*g));
}

static struct core_source *lookup(struct core_group *g, const uint32_t *map, uint32_t n,
                                  uint32_t slot)
{
    if (slot >= n || map[slot] == 0)
        return NULL;
    return &g->sources[map[slot] - 1];
}

struct core_source *core_source_of_local(struct core_group *g, uint32_t slot)
{
    return lookup(g, g->source_of_local, g->n_of_local, slot);
}

struct core_source *core_source_of_child(struct core_group *g, uint32_t slot)
{
    return lookup(g, g->source_of_child, g->n_of_child, slot);
}

int32_t core_next_member(const dtpi_core *c, const struct core_group *g, int32_t after)
{
    if (!g->members)
        return core_next_below(c, after);
    for (uint32_t i = (uint32_t)(after + 1); i < g->n; i++)
        if (core_child_of(c, g->members[i]) != DTPI_VIA_ABOVE)
            return (int32_t)i;
    return -1;
}

static void add_member(dtpi_core *c, struct core_group *g, uint32_t index)
{
    const int32_t rank = core_member(g, index), via = core_child_of(c, rank);
    const bool is_child = via != DTPI_VIA_LOCAL;
    const uint32_t slot = is_child ? (uint32_t)via : core_slot_of(c, rank);
    uint32_t *map = is_child ? &g->source_of_child[slot] : &g->source_of_local[slot];

    if (*map == 0) {
        g->sources[g->n_sources] =
            (struct core_source){ .is_child = is_child, .slot = slot, .index = index };
        *map = ++g->n_sources;
    }
    g->sources[*map - 1].n++;
    g->n_subtree++;
}

/* Sources in order of their first member; the arrays have room for every slot. */
static void fill_sources(dtpi_core *c, struct core_group *g)
{
    for (int32_t i = core_next_member(c, g, -1); i >= 0; i = core_next_member(c, g, i))
        add_member(c, g, (uint32_t)i);
}

static bool has_members_below(const dtpi_core *c, const int32_t *members, uint32_t n)
{
    if (!members)
        return c->n_below > 0;
    for (uint32_t i = 0; i < n; i++)
        if (core_child_of(c, members[i]) != DTPI_VIA_ABOVE)
            return true;
    return false;
}

bool core_group_add(dtpi_core *c, uint64_t id, int32_t *members_take, uint32_t n)
{
    const uint32_t max_sources = c->n_locals + c->n_children;
    struct core_group *g = NULL;

    if (has_members_below(c, members_take, n) && !core_group_find(c, id))
        g = dtpi_alloc(&c->a, sizeof(*g));
    else {
        dtpi_free(&c->a, members_take, n * sizeof(*members_take));
        return true;    /* none of our business */
    }
    if (!g)
        return false;
    g->id = id;
    g->n = n;
    g->n_of_local = c->n_locals;
    g->n_of_child = c->n_children;
    if (c->n_locals)
        g->source_of_local = dtpi_alloc_array(&c->a, c->n_locals, sizeof(uint32_t));
    if (c->n_children)
        g->source_of_child = dtpi_alloc_array(&c->a, c->n_children, sizeof(uint32_t));
    g->sources = dtpi_alloc_array(&c->a, max_sources, sizeof(*g->sources));
    g->cap_sources = max_sources;
    if (!g->sources || (c->n_locals && !g->source_of_local) ||
        (c->n_children && !g->source_of_child)) {
        core_group_free(c, g);
        return false;
    }
    g->members = members_take;
    fill_sources(c, g);
    g->is_top = g->n_subtree == g->n;
    g->next = c->groups;
    c->groups = g;
    return true;
}

static void group_remove(dtpi_core *c, struct core_group *g)
{
    for (struct core_group **p = &c->groups; *p; p = &(*p)->next)
        if (*p == g) {
            *p = g->next;
            core_group_free(c, g);
            return;
        }
}

void core_on_leave(dtpi_core *c, struct core_source *s, struct core_group *g, const dtpi_frame *f)
{
    if (s->n_left == s->n)
        return;
    if (g->id == DTPI_WORLD_ID) {
        core_set_left(c, f->rank);
        if (!s->is_child)
            c->locals[s->slot].left = true;
    }
    s->n_left++;
    g->n_left++;
    if (!g->is_top) {
        dtpi_buf b = core_begin(c, DTPI_F_LEAVE, g->id, 0, 0, f->rank);
        core_to_parent(c, &b);
    }
    if (s->n_left == s->n)
        core_source_left(c, g, s);
    if (g->n_left == g->n_subtree && g->id != DTPI_WORLD_ID)
        group_remove(c, g);
    core_reform_check(c);
}

void core_child_left(dtpi_core *c, uint32_t slot)
{
    /* A node goes when all its ranks have died: the verdict says more. */
    if (c->has_verdict || c->verdict_due || c->told_deaths)
        return;
    for (struct core_group *g = c->groups, *next; g; g = next) {
        struct core_source *s = core_source_of_child(g, slot);
        next = g->next;
        if (!s || s->n_left == s->n)
            continue;
        g->n_left += s->n - s->n_left;
        s->n_left = s->n;
        core_source_left(c, g, s);
        if (g->n_left == g->n_subtree && g->id != DTPI_WORLD_ID)
            group_remove(c, g);
    }
}

/* ---- split ---- */

static bool add_color(dtpi_core *c, const struct core_group *parent, const dtpi_frame *f,
                      const dtpi_split_item *items, uint32_t n)
{
    int32_t *members = dtpi_alloc_array(&c->a, n, sizeof(*members));

    if (!members)
        return false;
    for (uint32_t i = 0; i < n; i++)
        members[i] = core_member(parent, items[i].index);
    const uint64_t id = dtpi_split_id(parent->id, f->lane, f->seq, items[0].color);
    if (core_group_add(c, id, members, n))
        return true;
    dtpi_free(&c->a, members, n * sizeof(*members));
    return false;
}

bool core_split(dtpi_core *c, struct core_group *g, const dtpi_frame *f, dtpi_rd rest)
{
    dtpi_split_item *items = dtpi_alloc_array(&c->a, g->n, sizeof(*items));
    bool ok = items && dtpi_split_read(&rest, g->n, items);

    for (uint32_t i = 0, end; ok && i < g->n; i = end) {
        end = i;
        while (end < g->n && items[end].color == items[i].color)
            end++;
        if (items[i].color >= 0)
            ok = add_color(c, g, f, items + i, end - i);
    }
    dtpi_free(&c->a, items, g->n * sizeof(*items));
    return ok;
}

uint32_t dtpi_core_n_local_members(const dtpi_core *c, uint64_t group)
{
    const struct core_group *g = core_group_find(c, group);
    uint32_t n = 0;

    for (uint32_t i = 0; g && i < g->n_sources; i++)
        n += !g->sources[i].is_child;
    return n;
}

bool dtpi_core_is_local_member(const dtpi_core *c, uint64_t group, uint32_t slot)
{
    struct core_group *g = core_group_find(c, group);

    return g && core_source_of_local(g, slot);
}
