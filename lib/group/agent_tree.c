/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_tree.c - who is whose parent, where no source says it: the root is the registrar.
 *
 * An agent comes to the root, which counts those who come: number n is a child of number (n - 1) / radix,
 * which has come before it. So the root keeps few connections and nobody waits for anybody. Who does not
 * reach its parent comes back and is given another with a lower number, so that no circle can be.
 */
#include "group/agent_internal.h"

#include <netinet/in.h>
#include <stdio.h>

#include "base/text.h"
#include "group/tree.h"

enum { GIVE_UP_MS = 800, GIVE_UP_BUSY_MS = 5000, LOOK_MS = 100, ROOM_MAX = 2 * DTPI_TREE_MAX_RADIX, REACH_EACH = 3 };

/* Whoever is at the addresses of the option `parent`. */
#define PARENT_ANY UINT64_MAX

/* One that has come to the root. */
struct agent_place {
    uint64_t node;              /* id */
    char *addresses;            /* NULL: nobody can be sent there */
};

static_assert((int)DTPI_ADDRESSES_MAX >= (int)DTPI_OWN_TEXT, "own addresses fit");

/* ---- the child ---- */

static void expect_children(dtpi_agent *agent)
{
    if (agent->o.n_nodes && agent->radix)
        dtpi_core_set_children(agent->core,
                               dtpi_tree_n_children(agent->number, agent->o.n_nodes, agent->radix));
}

static void wait_for_parent(dtpi_agent *agent)
{
    const int64_t now = dtp_ctx_now_ns(agent->ctx);

    agent->give_up_ns = now + GIVE_UP_MS * DTPI_NS_PER_MS;
    agent->give_up_busy_ns = now + GIVE_UP_BUSY_MS * DTPI_NS_PER_MS;
}

dtp_status agent_tree_seek(dtpi_agent *agent, dtp_error *err)
{
    agent->is_sent = false;
    agent->give_up_ns = INT64_MAX;
    agent->parent_id = 0;
    if (!agent->o.parent || agent->n_gave_up > 0)
        return agent_parent_seek(agent, agent->o.root, err);
    agent->parent_id = PARENT_ANY;
    agent->is_sent = true;
    wait_for_parent(agent);
    agent->number = agent->o.node;
    agent->radix = agent->o.radix ? agent->o.radix
                                  : dtpi_tree_radix(agent->o.world_size, agent->o.n_nodes);
    expect_children(agent);
    return agent_parent_seek(agent, agent->o.parent, err);
}

/* At most `max` end points of a list: best first, and only so many are raced. */
static void add_some(dtpi_buf *list, const char *text, uint32_t max)
{
    for (uint32_t i = 0; i < max && *text; i++) {
        const size_t len = strcspn(text, ",");
        dtpi_buf_printf(list, "%s%.*s", list->len ? "," : "", (int)len, text);
        text += len + (text[len] == ',');
    }
}

bool agent_tree_reach(dtpi_agent *agent)
{
    dtpi_standby standbys[DTPI_STANDBYS];
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));
    const uint32_t n = dtpi_core_standbys(agent->core, standbys);

    if (!agent->o.root)
        return false;
    agent->n_gave_up++;
    agent->is_sent = false;
    agent->give_up_ns = INT64_MAX;
    agent->parent_id = 0;
    add_some(&list, agent->o.root, DTPI_ENDPOINT_HOSTS - DTPI_STANDBYS * REACH_EACH);
    for (uint32_t i = 0; i < n; i++)
        if (standbys[i].node != agent->node_id)
            add_some(&list, standbys[i].addresses, REACH_EACH);
    const char *text = dtpi_buf_text(&list);
    return text && agent_parent_seek(agent, text, NULL) >= 0;
}

void agent_tree_orphan(dtpi_agent *agent)
{
    if (agent->is_orphan) {
        agent->is_orphan = false;
        agent->reaches = agent_tree_reach(agent);
    }
    if (!agent->reaches || dtpi_core_seeks_parent(agent->core))
        return;
    /* There is one, or this agent judges itself, or nobody was there in time. */
    agent->reaches = false;
    if (!agent->parent)
        agent_parent_stop(agent);
}

int64_t agent_tree_next_ns(const dtpi_agent *agent)
{
    return agent->race ? agent->give_up_ns : INT64_MAX;
}

void agent_tree_tick(dtpi_agent *agent, int64_t now_ns)
{
    if (!agent->race || !agent->is_sent || now_ns < agent->give_up_ns)
        return;
    /* One that was connected to and does not answer may only be busy. */
    if (agent_parent_is_near(agent) && now_ns < agent->give_up_busy_ns) {
        agent->give_up_ns = now_ns + LOOK_MS * DTPI_NS_PER_MS;
        return;
    }
    DTPI_LOG(agent->ctx, DTP_LOG_INFO, "group", "cannot reach the parent at %s", agent->sent_to);
    agent->n_gave_up++;
    agent_tree_seek(agent, &agent->trouble);
}

/* Own addresses as they look from where the connection goes. */
static void own_addresses(const dtpi_agent *agent, int fd, char *out, size_t room)
{
    dtpi_sa peer = { 0 };
    socklen_t len = sizeof(peer);

    out[0] = '\0';
    if (agent->tcp_fd >= 0 && getpeername(fd, &peer.any, &len) == 0)
        dtpi_listener_candidates(agent->tcp_fd, &peer, 1, out, room);
}

static bool send_frame(struct agent_conn *conn, dtpi_buf *b_take)
{
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(b_take);

    return m && dtpi_link_send(conn->link, m, NULL, 0);
}

static dtpi_buf begin(const dtpi_agent *agent, uint8_t type)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));
    const dtpi_frame f = { .type = type, .attempt = agent->o.attempt,
                           .generation = dtpi_core_generation(agent->core), .group = DTPI_WORLD_ID, .rank = -1 };

    dtpi_frame_begin(&b, &f);
    return b;
}

bool agent_tree_come(struct agent_conn *conn)
{
    dtpi_agent *agent = conn->agent;
    char own[DTPI_OWN_TEXT];
    dtpi_buf b = begin(agent, DTPI_F_COME);

    own_addresses(agent, dtpi_link_fd(conn->link), own, sizeof(own));
    dtpi_core_set_addresses(agent->core, own);
    dtpi_wr_u64(&b, agent->node_id);
    dtpi_wr_u64(&b, agent->parent_id);
    dtpi_wr_u32(&b, agent->n_gave_up);
    dtpi_wr_u8(&b, dtpi_core_has_table(agent->core));
    dtpi_wr_u32(&b, agent->o.n_local);
    dtpi_wr_text(&b, agent->host);
    dtpi_wr_text(&b, own);
    conn->has_come = true;
    return send_frame(conn, &b);
}

/* The root has said where this agent belongs. */
static void go_on_to(dtpi_agent *agent, uint64_t parent_id, const char *addresses)
{
    agent->parent_id = parent_id;
    agent->is_sent = true;
    wait_for_parent(agent);
    snprintf(agent->sent_to, sizeof(agent->sent_to), "%s", addresses);
    agent_parent_seek(agent, agent->sent_to, &agent->trouble);
}

void agent_tree_placed(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    dtpi_agent *agent = conn->agent;
    char addresses[DTPI_ADDRESSES_MAX];
    dtpi_frame f;

    if (!dtpi_frame_read(data, bytes, &f) || f.type != DTPI_F_PLACE) {
        agent_parent_lost(conn, "it does not speak as an agent does");
        return;
    }
    dtpi_rd r = dtpi_rd_init(f.body, f.bytes);
    const uint32_t number = dtpi_rd_u32(&r), radix = dtpi_rd_u32(&r);
    const uint64_t parent_id = dtpi_rd_u64(&r);
    dtpi_rd_text(&r, addresses, sizeof(addresses));
    if (dtpi_rd_done(&r) && radix == 0) {
        agent_parent_lost(conn, dtpi_core_has_table(agent->core) ? "its group does not stand yet"
                                                                 : "a group of this job and attempt "
                                                                   "stands already");
        return;
    }
    if (!dtpi_rd_done(&r) || radix > ROOM_MAX) {
        agent_parent_lost(conn, "it answers, but not as an agent does");
        return;
    }
    if (!agent->is_sent && !agent->o.parent) {      /* else it knows its place, and who comes to it */
        agent->number = number;
        agent->radix = radix;
        expect_children(agent);
    }
    if (addresses[0] && !agent->is_sent)
        go_on_to(agent, parent_id, addresses);
    else if (addresses[0])
        agent_parent_lost(conn, "it has no room");
    else
        agent_parent_is(conn);
}

/* ---- the parent ---- */

static uint32_t n_children(const dtpi_agent *agent)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < agent->n_by_child; i++)
        n += agent->by_child[i] != NULL;
    return n;
}

static bool answer(struct agent_conn *conn, uint32_t number, const struct agent_place *parent)
{
    dtpi_buf b = begin(conn->agent, DTPI_F_PLACE);

    dtpi_wr_u32(&b, number);
    dtpi_wr_u32(&b, conn->agent->radix);
    dtpi_wr_u64(&b, parent ? parent->node : conn->agent->node_id);
    dtpi_wr_text(&b, parent ? parent->addresses : "");
    return send_frame(conn, &b);
}

/* A child that comes again has let the connection before go. */
static void drop_former(dtpi_agent *agent, uint64_t node)
{
    for (uint32_t i = 0; i < agent->n_by_child; i++)
        if (agent->by_child[i] && agent->by_child[i]->node == node) {
            agent_conn_close(agent->by_child[i]);
            dtpi_core_child_end(agent->core, i, dtp_ctx_now_ns(agent->ctx));
        }
}

/* Not now: the child comes again. */
static bool answer_busy(struct agent_conn *conn)
{
    dtpi_buf b = begin(conn->agent, DTPI_F_PLACE);

    dtpi_wr_u32(&b, 0);
    dtpi_wr_u32(&b, 0);
    dtpi_wr_u64(&b, conn->agent->node_id);
    dtpi_wr_text(&b, "");
    return send_frame(conn, &b);
}

static bool adopt(struct agent_conn *conn, uint32_t number)
{
    return answer(conn, number, NULL) && agent_promote(conn);
}

/* The number of one that has come before, 0: none. */
static uint32_t find_place(const dtpi_agent *agent, uint64_t node)
{
    for (uint32_t i = 0; i < agent->n_places; i++)
        if (agent->places[i].node == node)
            return i + 1;
    return 0;
}

/* Gives a number; 0 without memory. */
static uint32_t add_place(dtpi_agent *agent, uint64_t node, const char *addresses)
{
    const dtp_allocator *a = dtpi_ctx_alloc(agent->ctx);

    if (agent->n_places == agent->cap_places) {
        const uint32_t cap = agent->cap_places ? agent->cap_places * 2 : 16;
        struct agent_place *p = dtpi_alloc_array(a, cap, sizeof(*p));
        if (!p)
            return 0;
        if (agent->n_places)
            memcpy(p, agent->places, agent->n_places * sizeof(*p));
        dtpi_free(a, agent->places, agent->cap_places * sizeof(*p));
        agent->places = p;
        agent->cap_places = cap;
    }
    struct agent_place *p = &agent->places[agent->n_places];
    *p = (struct agent_place){ .node = node };
    if (addresses[0] && !(p->addresses = dtpi_text_dup(a, addresses)))
        return 0;
    return ++agent->n_places;
}

/*
 * Who is to be the parent of `number`; 0: the root. One that came back for the `n`th time is taken by the
 * root while there is room, else sent to another of those before it.
 */
static uint32_t parent_of(const dtpi_agent *agent, uint32_t number, uint32_t n_gave_up)
{
    uint32_t parent = dtpi_tree_parent(number, agent->radix);

    if (n_gave_up > 0 && n_children(agent) < ROOM_MAX)
        return 0;
    if (n_gave_up > 0 && number > 1)
        parent = 1 + (parent + n_gave_up) % (number - 1);
    while (parent > 0 && !agent->places[parent - 1].addresses)
        parent = dtpi_tree_parent(parent, agent->radix);
    return parent;
}

/* At the root. */
static bool place(struct agent_conn *conn, uint64_t node, uint32_t n_gave_up, const char *addresses)
{
    dtpi_agent *agent = conn->agent;
    uint32_t number = find_place(agent, node);

    if (number == 0)
        number = add_place(agent, node, addresses);
    if (number == 0)
        return false;
    /* One that comes late to a group that has failed is told so here: others may have gone. */
    const bool failed = dtpi_core_verdict(agent->core) != NULL;
    const uint32_t parent = failed ? 0 : parent_of(agent, number, n_gave_up);
    if (parent == 0)
        return adopt(conn, number);
    /* The child closes when it has read the answer. */
    return answer(conn, number, &agent->places[parent - 1]);
}

static bool is_in_table(const dtpi_agent *agent, uint64_t node)
{
    const uint32_t n = dtpi_core_n_nodes(agent->core);
    dtpi_node at;

    for (uint32_t i = 0; i < n; i++)
        if (dtpi_core_node(agent->core, i, &at) && at.id == node)
            return true;
    return false;
}

bool agent_tree_serve(struct agent_conn *conn, const dtpi_frame *f)
{
    dtpi_agent *agent = conn->agent;
    const bool is_root = agent->o.is_root;
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    char addresses[DTPI_ADDRESSES_MAX], host[DTPI_HOST_MAX + 1];
    const uint64_t node = dtpi_rd_u64(&r), wanted = dtpi_rd_u64(&r);
    const uint32_t n_gave_up = dtpi_rd_u32(&r);
    const bool has_table = dtpi_rd_u8(&r);
    const uint32_t n_local = dtpi_rd_u32(&r);

    dtpi_rd_text(&r, host, sizeof(host));
    dtpi_rd_text(&r, addresses, sizeof(addresses));
    if (!dtpi_rd_done(&r) || node == agent->node_id || !dtpi_utf8_ok(host, strlen(host)) ||
        !dtpi_utf8_ok(addresses, strlen(addresses)))
        return false;
    /*
     * A process may join, leave and join again: its new group meets when this one is over. One that stands in
     * the table lost its parent before the table came.
     */
    const bool stands = dtpi_core_has_table(agent->core);
    if (stands != has_table && !(stands && is_in_table(agent, node)))
        return answer_busy(conn);
    /* One that comes back belongs to whoever judges, and to nobody else: so there is no circle. */
    if (stands)
        return dtpi_core_is_judge(agent->core) ? adopt(conn, 0) : answer_busy(conn);
    drop_former(agent, node);
    conn->node = node;
    if (is_root && find_place(agent, node) == 0)
        dtpi_core_node_came(agent->core, node, host, n_local);
    if (is_root && wanted == 0)
        return place(conn, node, n_gave_up, addresses);
    /* Another agent than the one that was sought may listen at its address. */
    if (wanted != PARENT_ANY && wanted != agent->node_id)
        return false;
    return n_children(agent) < ROOM_MAX && adopt(conn, 0);
}

/* ---- life ---- */

void agent_tree_open(dtpi_agent *agent)
{
    const uint32_t n_nodes = agent->o.n_nodes
                                 ? agent->o.n_nodes
                                 : (agent->o.world_size + agent->o.n_local - 1) / agent->o.n_local;

    agent->give_up_ns = INT64_MAX;
    agent->radix = agent->o.radix ? agent->o.radix
                                  : dtpi_tree_radix(agent->o.world_size, n_nodes);
    if (agent->o.is_root)
        expect_children(agent);
}

void agent_tree_close(dtpi_agent *agent)
{
    const dtp_allocator *a = dtpi_ctx_alloc(agent->ctx);

    for (uint32_t i = 0; i < agent->n_places; i++)
        dtpi_text_free(a, agent->places[i].addresses);
    dtpi_free(a, agent->places, agent->cap_places * sizeof(*agent->places));
}
