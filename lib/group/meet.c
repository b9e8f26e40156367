/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.c - where nobody said where the root agent is, but a launcher's board is there: the root listens
 * first and then puts its addresses, the other nodes' agents look for them.
 *
 * What an earlier group left on a board that keeps things (torchrun's store, a folder) looks the same.
 * So a rank that hosts an agent looks again while it waits, and its agent follows the root. PMI keeps the
 * first value of a name: there every group of a process takes the next name.
 */
#include "group/group_internal.h"

#include <stdio.h>

#include "group/tree.h"

enum { LOOK_AGAIN_MS = 100, LOOK_MS = 5000, PARENT_MS = 1000 };

struct meet {
    struct session *s;
    dtpi_board *board;
    int64_t deadline_ns;
    dtpi_timer timer;
    char name[24];              /* of the root's addresses on the board */
    char root[DTPI_BOARD_VALUE], parent[DTPI_BOARD_VALUE];
};

static void name_it(char *name_out, unsigned n)
{
    char number[12] = "";

    if (n)
        snprintf(number, sizeof(number), "%u", n);
    snprintf(name_out, sizeof(((struct meet *)NULL)->name), "root%s", number);
}

/* How many names are taken. */
static unsigned n_names(struct meet *m)
{
    char value[DTPI_BOARD_VALUE], name[sizeof(m->name)];
    unsigned n = 0;

    if (!dtpi_board_keeps_first(m->board))
        return 0;
    do
        name_it(name, n);
    while (dtpi_board_look(m->board, name, value, LOOK_MS) == DTP_OK && ++n);
    return n;
}

static void look_again(struct meet *m)
{
    dtpi_timer_set(m->s->ctx, &m->timer, dtp_ctx_now_ns(m->s->ctx) + LOOK_AGAIN_MS * DTPI_NS_PER_MS, NULL);
}

static void look_due(dtpi_timer *t)
{
    struct meet *m = DTPI_CONTAINER(t, struct meet, timer);
    char root[DTPI_BOARD_VALUE];

    /* What is there now or nothing: the loop must go on. */
    const dtp_status st = dtpi_board_look(m->board, m->name, root, LOOK_AGAIN_MS);
    if (st == DTP_OK && strcmp(root, m->root) != 0) {
        memcpy(m->root, root, sizeof(root));
        host_seek(m->s->host, root);
    }
    if (st >= 0)
        look_again(m);
}

static dtp_status play_root(struct meet *m, const dtp_group_opts *o, const char *socket, dtp_error *err)
{
    dtp_status st = host_start(m->s->ctx, o, true, socket, &m->s->host, err);

    if (st < 0)
        return st;
    name_it(m->name, n_names(m));
    st = dtpi_board_put(m->board, m->name, host_candidates(m->s->host), m->deadline_ns, err);
    return st < 0 ? st : dtpi_board_sync(m->board, m->deadline_ns, err);
}

static void node_name(char *name_out, uint32_t node)
{
    snprintf(name_out, sizeof(((struct meet *)NULL)->name), "node%u", node);
}

/*
 * The address of the parent, where nodes are numbered and what is put is seen at once. One that is late
 * is not waited for: the root gives another parent, and names only who is really missing.
 */
static dtp_status find_parent(struct meet *m, dtp_group_opts *o, uint32_t radix, dtp_error *err)
{
    const int64_t soon = dtp_ctx_now_ns(m->s->ctx) + PARENT_MS * DTPI_NS_PER_MS;
    const uint32_t parent = dtpi_tree_parent((uint32_t)o->node, radix);
    char name[sizeof(m->name)];

    o->parent = m->root;
    if (parent == 0)
        return DTP_OK;
    node_name(name, parent);
    const dtp_status st = dtpi_board_get(m->board, name, m->parent, DTPI_MIN(soon, m->deadline_ns), err);
    o->parent = st >= 0 ? m->parent : NULL;
    return st == DTP_ERR_TIMEOUT ? DTP_OK : st;
}

static dtp_status start_in_tree(struct meet *m, dtp_group_opts *o, const char *socket, dtp_error *err)
{
    const uint32_t n_nodes = (uint32_t)o->n_nodes;
    const uint32_t radix = o->radix ? (uint32_t)o->radix
                                    : dtpi_tree_radix((uint32_t)o->world_size, n_nodes);
    char name[sizeof(m->name)];

    dtp_status st = find_parent(m, o, radix, err);
    if (st >= 0)
        st = host_start(m->s->ctx, o, true, socket, &m->s->host, err);
    if (st < 0 || dtpi_tree_n_children((uint32_t)o->node, n_nodes, radix) == 0)
        return st;
    node_name(name, (uint32_t)o->node);
    return dtpi_board_put(m->board, name, host_candidates(m->s->host), m->deadline_ns, err);
}

static dtp_status follow_root(struct meet *m, const dtp_group_opts *o, const char *socket,
                              dtp_error *err)
{
    dtp_group_opts own = *o;

    dtp_status st = dtpi_board_sync(m->board, m->deadline_ns, err);
    if (st < 0 || o->local_rank != 0)
        return st;
    name_it(m->name, DTPI_MAX(n_names(m), 1u) - 1);
    st = dtpi_board_get(m->board, m->name, m->root, m->deadline_ns, err);
    if (st < 0)
        return st;
    own.root = m->root;
    if (!own.parent && own.node > 0 && dtpi_board_is_lasting(m->board))
        st = start_in_tree(m, &own, socket, err);
    else
        st = host_start(m->s->ctx, &own, false, socket, &m->s->host, err);
    if (st >= 0 && dtpi_board_is_lasting(m->board)) {
        m->timer.due = look_due;
        look_again(m);
    }
    return st;
}

dtp_status meet_start(struct session *s, const dtp_group_opts *o, const dtpi_board_opts *bo,
                      const char *socket, int64_t deadline_ns, struct meet **out, dtp_error *err)
{
    dtpi_board_opts own = *bo;

    *out = NULL;
    if (o->local_rank != 0 && !dtpi_board_wants_all(bo->kind))
        return DTP_OK;
    struct meet *m = dtpi_alloc(dtpi_ctx_alloc(s->ctx), sizeof(*m));
    if (!m)
        return dtpi_fail_nomem(err, sizeof(*m));
    m->s = s;
    m->deadline_ns = deadline_ns;
    own.job = o->job;
    own.attempt = o->attempt;
    own.rank = o->rank;
    own.world_size = o->world_size;
    dtp_status st = dtpi_board_open(s->ctx, &own, deadline_ns, &m->board, err);
    if (st >= 0)
        st = o->rank == 0 ? play_root(m, o, socket, err) : follow_root(m, o, socket, err);
    if (st < 0)
        meet_end(m);
    else
        *out = m;
    return st;
}

void meet_end(struct meet *m)
{
    if (!m)
        return;
    dtpi_timer_clear(m->s->ctx, &m->timer);
    dtpi_board_close(m->board);
    dtpi_free(dtpi_ctx_alloc(m->s->ctx), m, sizeof(*m));
}
