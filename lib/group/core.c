/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.c - the agent's core: life, what goes in, and where each message is handled.
 *
 * Where memory runs out the group fails with a verdict that says so: nobody is left waiting.
 */
#include "group/core_internal.h"

#include <stdio.h>

enum { FIRST_ROOM = 32, BEATS_TO_DEATH = 3 };

dtp_status dtpi_core_new(const dtpi_core_opts *opts, const dtpi_core_ops *ops, void *user,
                         dtpi_core **core_out, dtp_error *err)
{
    if (opts->world_size == 0 || opts->world_size > DTPI_WORLD_MAX)
        return dtpi_fail(err, DTP_ERR_RANGE, "a group of %u ranks: 1 to %d are possible",
                         opts->world_size, DTPI_WORLD_MAX);
    if (opts->n_local == 0 || opts->n_local > opts->world_size)
        return dtpi_fail(err, DTP_ERR_RANGE, "%u local ranks in a group of %u", opts->n_local,
                         opts->world_size);
    dtpi_core *c = dtpi_alloc(opts->a, sizeof(*c));
    if (!c)
        return dtpi_fail_nomem(err, sizeof(*c));
    c->a = *opts->a;
    c->o = *opts;
    c->o.beat_ns = opts->beat_ns ? opts->beat_ns : DTPI_NS_PER_S;
    snprintf(c->host, sizeof(c->host), "%s", opts->host);
    c->ops = ops;
    c->user = user;
    c->now = opts->now_ns;
    c->generation = 1;
    c->is_judge = opts->is_root;
    c->orphans = dtpi_buf_init(&c->a);
    c->said_orphans = dtpi_buf_init(&c->a);
    c->newcomers = dtpi_buf_init(&c->a);
    c->extras = dtpi_buf_init(&c->a);
    c->orphan_until_ns = c->succeed_at_ns = c->orphans_until_ns = INT64_MAX;
    core_reform_init(c);
    c->flush_at_ns = c->probe_at_ns = INT64_MAX;
    c->beat_at_ns = opts->now_ns + c->o.beat_ns;
    c->silence_at_ns = INT64_MAX;
    c->join_at_ns = opts->join_timeout_ns ? opts->now_ns + opts->join_timeout_ns : INT64_MAX;
    c->dead = dtpi_buf_init(&c->a);
    c->below.a = opts->a;
    c->up = dtpi_buf_init(opts->a);
    c->seen = dtpi_buf_init(opts->a);
    if (opts->is_root)
        c->rows = dtpi_alloc_array(&c->a, opts->world_size, sizeof(*c->rows));
    /* Room for the first to come: one that could not be kept would not hear why. */
    c->locals = dtpi_alloc_array(&c->a, FIRST_ROOM, sizeof(*c->locals));
    c->n_locals = c->locals ? FIRST_ROOM : 0;
    c->children = dtpi_alloc_array(&c->a, FIRST_ROOM, sizeof(*c->children));
    c->n_children = c->children ? FIRST_ROOM : 0;
    if ((opts->is_root && !c->rows) || !c->locals || !c->children) {
        dtpi_core_free(c);
        return dtpi_fail_nomem(err, opts->world_size * sizeof(*c->rows));
    }
    *core_out = c;
    return DTP_OK;
}

void dtpi_core_free(dtpi_core *c)
{
    if (!c)
        return;
    const dtp_allocator a = c->a;
    dtpi_buf_free(&c->up);
    dtpi_buf_free(&c->seen);
    dtpi_buf_free(&c->dead);
    while (c->groups) {
        struct core_group *g = c->groups;
        c->groups = g->next;
        core_group_free(c, g);
    }
    dtpi_text_free(&a, c->addresses);
    core_table_free(c);
    core_below_free(&c->below);
    dtpi_free(&a, c->verdict.failed, c->verdict.n_failed * sizeof(*c->verdict.failed));
    core_reform_free(c);
    dtpi_buf_free(&c->orphans);
    dtpi_buf_free(&c->said_orphans);
    dtpi_buf_free(&c->newcomers);
    dtpi_buf_free(&c->extras);
    dtpi_msg_unref(c->formed);
    dtpi_free(&a, c->members, c->n_members * sizeof(*c->members));
    dtpi_free(&a, c->locals, c->n_locals * sizeof(*c->locals));
    dtpi_free(&a, c->children, c->n_children * sizeof(*c->children));
    dtpi_free(&a, c, sizeof(*c));
}

/* ---- sending ---- */

dtpi_buf core_begin(const dtpi_core *c, uint8_t type, uint64_t group, uint8_t lane, uint32_t seq,
                    int32_t rank)
{
    dtpi_buf b = dtpi_buf_init(c->o.a);  /* messages may outlive the core */
    const dtpi_frame f = { .type = type, .lane = lane, .attempt = c->o.attempt,
                           .generation = c->generation, .seq = seq, .group = group, .rank = rank };

    dtpi_frame_begin(&b, &f);
    return b;
}

void core_nomem(dtpi_core *c)
{
    dtpi_verdict v = { .status = DTP_ERR_NOMEM };

    if (c->has_verdict)
        return;
    snprintf(v.text, sizeof(v.text), "the agent of node %s is out of memory", c->host);
    /* The root judges; where there is no memory to tell it either, it sees this agent's end. */
    if (c->has_parent && !c->is_out_of_memory) {
        c->is_out_of_memory = true;
        core_death_up(c, &v);
    } else {
        core_apply(c, &v);
    }
}

dtpi_msg *core_msg(dtpi_core *c, dtpi_buf *b)
{
    dtpi_msg *m = dtpi_msg_new(b);

    if (!m)
        core_nomem(c);
    return m;
}

dtpi_msg *core_keep(dtpi_core *c, const dtpi_in *in)
{
    dtpi_buf b = dtpi_buf_init(c->o.a);

    if (in->msg)
        return dtpi_msg_ref(in->msg);
    dtpi_buf_append(&b, in->data, in->bytes);
    return core_msg(c, &b);
}

static void count_sent(dtpi_core *c, const dtpi_msg *m)
{
    c->stats.n_sent[m->buf.data[1] % DTPI_F_END]++;
    c->stats.bytes_sent += m->buf.len;
}

static void count_received(dtpi_core *c, const dtpi_in *in)
{
    c->stats.n_received[in->bytes > 1 ? in->data[1] % DTPI_F_END : 0]++;
    c->stats.bytes_received += in->bytes;
}

void core_send_local(dtpi_core *c, uint32_t slot, dtpi_msg *m)
{
    if (m && !c->ended) {
        count_sent(c, m);
        c->ops->to_local(c->user, slot, m);
    }
}

void core_send_child(dtpi_core *c, uint32_t slot, dtpi_msg *m)
{
    if (m && !c->ended) {
        count_sent(c, m);
        c->ops->to_child(c->user, slot, m);
    }
}

void core_to_local(dtpi_core *c, uint32_t slot, dtpi_buf *b)
{
    DTPI_AUTO(msg) dtpi_msg *m = core_msg(c, b);

    core_send_local(c, slot, m);
}

void core_to_child(dtpi_core *c, uint32_t slot, dtpi_buf *b)
{
    DTPI_AUTO(msg) dtpi_msg *m = core_msg(c, b);

    core_send_child(c, slot, m);
}

void core_to_parent(dtpi_core *c, dtpi_buf *b)
{
    DTPI_AUTO(msg) dtpi_msg *m = core_msg(c, b);

    core_send_parent(c, m);
}

void core_send_parent(dtpi_core *c, dtpi_msg *m)
{
    if (m && c->has_parent && !c->ended) {
        count_sent(c, m);
        c->ops->to_parent(c->user, m);
    }
}

void core_refuse(dtpi_core *c, uint32_t slot, dtp_status status, const char *fmt, ...)
{
    char text[DTP_ERROR_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    dtpi_buf b = core_begin(c, DTPI_F_REFUSE, DTPI_WORLD_ID, 0, 0, c->locals[slot].rank);
    dtpi_wr_u32(&b, (uint32_t)status);
    dtpi_wr_text(&b, text);
    core_to_local(c, slot, &b);
    c->locals[slot].used = false;
    c->ops->drop_local(c->user, slot);
}

/* ---- connections ---- */

/* Room for index `n`, zeroed. */
static bool grow(dtpi_core *c, void **array, uint32_t *cap, uint32_t n, size_t item)
{
    uint32_t want = *cap ? *cap : 8;

    if (n < *cap)
        return true;
    while (want <= n)
        want *= 2;
    void *p = dtpi_alloc_array(&c->a, want, item);
    if (!p) {
        core_nomem(c);
        return false;
    }
    if (*array) {
        memcpy(p, *array, *cap * item);
        dtpi_free(&c->a, *array, *cap * item);
    }
    *array = p;
    *cap = want;
    return true;
}

void dtpi_core_local_open(dtpi_core *c, uint32_t slot, int32_t rank, int32_t pid, int64_t now_ns)
{
    c->now = now_ns;
    if (!grow(c, (void **)&c->locals, &c->n_locals, slot, sizeof(*c->locals)))
        return;
    c->locals[slot] = (struct core_local){ .used = true, .rank = rank, .pid = pid };
}

void dtpi_core_child_open(dtpi_core *c, uint32_t slot, int64_t now_ns)
{
    c->now = now_ns;
    if (!grow(c, (void **)&c->children, &c->n_children, slot, sizeof(*c->children)))
        return;
    c->children[slot] = (struct core_child){ .used = true, .heard_ns = now_ns };
    dtpi_buf b = core_begin(c, DTPI_F_NODE, DTPI_WORLD_ID, 0, 0, c->o.host_rank);
    dtpi_wr_u64(&b, c->o.node_id);
    core_to_child(c, slot, &b);
    core_send_table(c, slot);
    if (c->has_verdict) {
        b = core_begin(c, DTPI_F_VERDICT, DTPI_WORLD_ID, 0, 0, -1);
        dtpi_verdict_write(&b, &c->verdict);
        core_to_child(c, slot, &b);
    }
}

void dtpi_core_parent_open(dtpi_core *c, int64_t now_ns)
{
    c->now = now_ns;
    const bool came_back = c->had_parent;
    c->has_parent = true;
    c->is_orphan = c->parent_bye = false;
    c->parent_heard_ns = now_ns;
    c->had_parent = true;
    if (came_back) {
        core_join_again(c);
        core_attach_say(c);
    }
    core_deaths_up(c);
    core_newcomers_again(c);
    /* What happened here while nobody above could be told. */
    if (c->has_verdict && !came_back)
        core_death_up(c, &c->verdict);
    core_join_tick(c);
}

static bool is_local(const dtpi_core *c, uint32_t slot)
{
    return slot < c->n_locals && c->locals[slot].used;
}

static bool is_child(const dtpi_core *c, uint32_t slot)
{
    return slot < c->n_children && c->children[slot].used;
}

/* ---- messages ---- */

/* A call of a rank in one of its groups; false: it broke the protocol. */
static bool local_call(dtpi_core *c, uint32_t slot, const dtpi_frame *f, const dtpi_in *in)
{
    struct core_group *g = core_group_find(c, f->group);
    struct core_source *s = g ? core_source_of_local(g, slot) : NULL;

    if (!s)
        return c->has_verdict;
    if (f->rank != c->locals[slot].rank)
        return false;
    switch (f->type) {
    case DTPI_F_UP:
        return core_on_up(c, g, s, f);
    case DTPI_F_EXPIRE:
        core_on_expire(c, g, f);
        return true;
    case DTPI_F_SET:
    case DTPI_F_GET:
    case DTPI_F_FORGET:
    case DTPI_F_CHANGE:
        return core_on_kv(c, g, f, in);
    case DTPI_F_LEAVE:
        core_on_leave(c, s, g, f);
        return true;
    default:
        return false;
    }
}

/* Leaving before everybody was there: nobody's death. */
static void leave_early(dtpi_core *c, uint32_t slot)
{
    struct core_local *l = &c->locals[slot];

    if (l->joined && !l->left)
        core_set_left(c, l->rank);
    l->left = true;
}

void dtpi_core_local_msg(dtpi_core *c, uint32_t slot, const dtpi_in *in,
                         int64_t now_ns)
{
    dtpi_frame f;
    bool ok = false;

    c->now = now_ns;
    if (!is_local(c, slot))
        return;
    count_received(c, in);
    if (!dtpi_frame_read(in->data, in->bytes, &f) || f.attempt != c->o.attempt) {
        core_refuse(c, slot, DTP_ERR_PROTO, "malformed message from rank %d", c->locals[slot].rank);
        dtpi_core_local_end(c, slot, "broke the protocol", now_ns);
        return;
    }
    if (f.type == DTPI_F_JOIN && !c->locals[slot].joined) {
        core_on_join(c, slot, &f);
        return;
    }
    /* The fence: nothing of another generation is acted on. */
    if (c->locals[slot].joined && f.generation != c->generation) {
        c->n_stale++;
        return;
    }
    if (f.type == DTPI_F_FAILED)
        core_on_failed(c, slot, &f), ok = true;
    else if (!c->locals[slot].joined)
        ok = false;
    else if (f.type == DTPI_F_ABORT)
        core_on_abort(c, &f), ok = true;
    else if (f.type == DTPI_F_EXPIRE && !c->has_table)
        core_join_expired(c), ok = true;
    else if (f.type == DTPI_F_LEAVE && !c->has_table)
        leave_early(c, slot), ok = true;
    else if (f.type == DTPI_F_REFORM)
        core_on_reform_local(c, slot, &f), ok = true;
    else
        ok = local_call(c, slot, &f, in);
    if (!ok) {
        struct core_local *l = &c->locals[slot];
        const int32_t rank = l->rank, pid = l->pid;
        const bool counts = l->joined && !l->left;
        core_refuse(c, slot, DTP_ERR_PROTO, "rank %d broke the protocol (message %u)", rank, f.type);
        if (counts)
            core_death_of_local(c, rank, pid, "broke the protocol");
    }
}

static bool child_call(dtpi_core *c, uint32_t slot, const dtpi_frame *f, const dtpi_in *in)
{
    struct core_group *g = core_group_find(c, f->group);
    struct core_source *s = g ? core_source_of_child(g, slot) : NULL;

    if (!s)
        return true;    /* all its members have left, or the group has failed */
    switch (f->type) {
    case DTPI_F_UP:
        return core_on_up(c, g, s, f);
    case DTPI_F_EXPIRE:
        core_on_expire(c, g, f);
        return true;
    case DTPI_F_SET:
    case DTPI_F_GET:
    case DTPI_F_FORGET:
    case DTPI_F_CHANGE:
        return core_is_rank(c, f->rank) && core_child_of(c, f->rank) == (int32_t)slot &&
               core_on_kv(c, g, f, in);
    case DTPI_F_LEAVE:
        if (!core_is_rank(c, f->rank) || core_child_of(c, f->rank) != (int32_t)slot)
            return false;
        core_on_leave(c, s, g, f);
        return true;
    default:
        return false;
    }
}

void dtpi_core_child_msg(dtpi_core *c, uint32_t slot, const dtpi_in *in,
                         int64_t now_ns)
{
    dtpi_frame f;
    bool ok = true;

    c->now = now_ns;
    if (!is_child(c, slot))
        return;
    c->children[slot].heard_ns = now_ns;
    count_received(c, in);
    if (!dtpi_frame_read(in->data, in->bytes, &f) || f.attempt != c->o.attempt)
        ok = false;
    else if (f.generation != c->generation)
        core_child_is_stale(c, slot, &f);
    else if (f.type == DTPI_F_FORMED)
        core_on_formed(c, &f, in);
    else if (f.type == DTPI_F_REFORM)
        ok = core_on_reform_child(c, slot, &f);
    else if (f.type == DTPI_F_VERDICT)
        core_on_verdict_below(c, &f, in);
    else if (f.type == DTPI_F_NEW)
        ok = core_on_new(c, slot, &f);
    else if (f.type == DTPI_F_ATTACH)
        ok = core_on_attach(c, slot, &f);
    else if (f.type == DTPI_F_ORPHANS)
        ok = core_on_orphans(c, slot, &f);
    else if (f.type == DTPI_F_ROWS)
        ok = core_on_rows(c, slot, &f);
    else if (f.type == DTPI_F_DEATH)
        core_on_death(c, &f);
    else if (f.type == DTPI_F_LOST)
        core_on_lost(c, &f);
    else if (f.type == DTPI_F_ABORT)
        core_on_abort(c, &f);
    else if (f.type == DTPI_F_BYE)
        c->children[slot].bye = true;
    else if (f.type == DTPI_F_EXPIRE && !c->has_table)
        core_join_expired(c);
    else if (f.type != DTPI_F_BEAT)
        ok = child_call(c, slot, &f, in);
    if (!ok) {
        c->ops->drop_child(c->user, slot);
        dtpi_core_child_end(c, slot, now_ns);
    }
}

void dtpi_core_parent_msg(dtpi_core *c, const dtpi_in *in, int64_t now_ns)
{
    struct core_group *g;
    dtpi_frame f;

    c->now = now_ns;
    c->parent_heard_ns = now_ns;
    count_received(c, in);
    if (!dtpi_frame_read(in->data, in->bytes, &f) || f.attempt != c->o.attempt)
        return;
    if (f.generation != c->generation) {
        c->n_stale++;
        return;
    }
    switch (f.type) {
    case DTPI_F_NODE: {
        dtpi_rd r = dtpi_rd_init(f.body, f.bytes);
        c->parent_node = dtpi_rd_u64(&r);
        break;
    }
    case DTPI_F_TABLE:
        if (!core_on_table(c, &f, in))
            core_decide(c, DTP_ERR_PROTO, NULL, 0, "malformed table of ranks");
        break;
    case DTPI_F_VERDICT:
        core_on_verdict(c, &f);
        break;
    case DTPI_F_BYE:
        c->parent_bye = true;
        break;
    case DTPI_F_VALUE:
        core_on_value(c, &f, in);
        break;
    case DTPI_F_FORMED:
        core_on_formed(c, &f, in);
        break;
    case DTPI_F_DOWN:
    case DTPI_F_PROBE:
        g = core_group_find(c, f.group);
        if (g && f.type == DTPI_F_DOWN)
            core_on_down(c, g, &f, in);
        else if (g)
            core_on_probe(c, g, &f);
        break;
    default:
        break;
    }
}

void dtpi_core_local_end(dtpi_core *c, uint32_t slot, const char *cause, int64_t now_ns)
{
    c->now = now_ns;
    if (slot >= c->n_locals || (!c->locals[slot].used && !c->locals[slot].joined))
        return;
    const struct core_local l = c->locals[slot];
    c->locals[slot].used = c->locals[slot].is_new = false;
    if (l.is_new)
        core_newcomer_ends(c, DTPI_VIA_LOCAL, slot);
    if (l.joined && !l.left)
        core_death_of_local(c, l.rank, l.pid, cause);
    core_reform_check(c);
}

void dtpi_core_child_end(dtpi_core *c, uint32_t slot, int64_t now_ns)
{
    c->now = now_ns;
    if (!is_child(c, slot))
        return;
    c->children[slot].used = false;
    core_newcomer_ends(c, (int32_t)slot, 0);
    if (c->children[slot].bye)
        core_child_left(c, slot);
    else
        core_child_died(c, slot);
    core_reform_check(c);
}

void dtpi_core_parent_end(dtpi_core *c, dtp_status status, const char *why, int64_t now_ns)
{
    c->now = now_ns;
    c->has_parent = false;
    if (!c->parent_bye || !c->has_table) {
        if (status < 0 || !core_become_orphan(c))
            core_parent_died(c, status, why);
    } else if (!c->has_verdict && !c->parent_left) {
        c->parent_left = true;
        core_parent_left(c);
    }
}

void dtpi_core_set_addresses(dtpi_core *c, const char *addresses)
{
    dtpi_text_free(&c->a, c->addresses);
    c->addresses = dtpi_text_ndup(&c->a, addresses, strnlen(addresses, DTPI_ADDRESSES_MAX - 1));
}

void dtpi_core_set_children(dtpi_core *c, uint32_t n)
{
    c->o.n_children_plus_1 = n + 1;
}

void dtpi_core_parent_trouble(dtpi_core *c, const char *why)
{
    snprintf(c->parent_text, sizeof(c->parent_text), "%s", why);
}

void dtpi_core_fail(dtpi_core *c, dtp_status status, const char *why, int64_t now_ns)
{
    c->now = now_ns;
    core_decide(c, status, NULL, 0, "node %s: %s", c->host, why);
}

void dtpi_core_rank_ended(dtpi_core *c, int32_t rank, int32_t pid, const char *cause,
                          int64_t now_ns)
{
    c->now = now_ns;
    if (!core_is_rank(c, rank) || core_has_left(c, rank))
        return;
    const int32_t known_pid = core_child_of(c, rank) == DTPI_VIA_LOCAL ? core_pid_of(c, rank) : 0;
    if (known_pid && known_pid != pid)
        return;
    core_death_of_local(c, rank, pid, cause);
}

void dtpi_core_rank_failed(dtpi_core *c, int32_t rank, int32_t pid, const char *why, int64_t now_ns)
{
    c->now = now_ns;
    if (core_is_rank(c, rank))
        core_failure_of_local(c, rank, pid, why);
}

/* ---- time ---- */

/*
 * Drops whom nothing was heard of for three beats, and says when the next could fall silent: parent and
 * children of a node notice together.
 */
static void watch_silence(dtpi_core *c)
{
    const int64_t limit = BEATS_TO_DEATH * c->o.beat_ns;

    c->silence_at_ns = INT64_MAX;
    if (c->has_parent && c->now - c->parent_heard_ns >= limit)
        dtpi_core_parent_end(c, DTP_OK, NULL, c->now);
    else if (c->has_parent)
        c->silence_at_ns = c->parent_heard_ns + limit;
    for (uint32_t i = 0; i < c->n_children; i++) {
        if (!c->children[i].used)
            continue;
        if (c->now - c->children[i].heard_ns >= limit) {
            c->ops->drop_child(c->user, i);
            dtpi_core_child_end(c, i, c->now);
        } else {
            c->silence_at_ns = DTPI_MIN(c->silence_at_ns, c->children[i].heard_ns + limit);
        }
    }
}

static void beat(dtpi_core *c)
{
    c->beat_at_ns = c->now + c->o.beat_ns;
    if (c->has_parent) {
        dtpi_buf b = core_begin(c, DTPI_F_BEAT, DTPI_WORLD_ID, 0, 0, -1);
        core_to_parent(c, &b);
    }
    for (uint32_t i = 0; i < c->n_children; i++) {
        if (!c->children[i].used)
            continue;
        dtpi_buf b = core_begin(c, DTPI_F_BEAT, DTPI_WORLD_ID, 0, 0, -1);
        core_to_child(c, i, &b);
    }
}

static bool has_peers(const dtpi_core *c)
{
    if (c->has_parent)
        return true;
    for (uint32_t i = 0; i < c->n_children; i++)
        if (c->children[i].used)
            return true;
    return false;
}

void dtpi_core_tick(dtpi_core *c, int64_t now_ns)
{
    c->now = now_ns;
    if (now_ns >= c->beat_at_ns)
        beat(c);
    if (now_ns >= c->silence_at_ns || c->silence_at_ns == INT64_MAX)
        watch_silence(c);
    core_join_tick(c);
    core_verdict_tick(c);
    core_gather_tick(c);
    core_attach_tick(c);
    core_reform_tick(c);
}

int64_t dtpi_core_next_ns(const dtpi_core *c)
{
    int64_t at = INT64_MAX;

    if (c->ended)
        return at;
    if (has_peers(c))
        at = DTPI_MIN(c->beat_at_ns, c->silence_at_ns);
    if (!c->has_table && !c->has_verdict)
        at = DTPI_MIN(at, DTPI_MIN(c->join_at_ns, c->flush_at_ns));
    at = DTPI_MIN(at, DTPI_MIN(core_attach_next_ns(c), core_reform_next_ns(c)));
    if (!c->has_verdict)
        at = DTPI_MIN(at, c->probe_at_ns);
    if (c->verdict_due && !core_has_orphans(c))
        at = DTPI_MIN(at, c->verdict_at_ns);
    return at;
}

void dtpi_core_bye(dtpi_core *c)
{
    dtpi_buf b = core_begin(c, DTPI_F_BYE, DTPI_WORLD_ID, 0, 0, c->o.host_rank);
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);

    for (uint32_t i = 0; i < c->n_locals; i++)
        if (core_is_local_member(c, i))
            core_send_local(c, i, m);
    for (uint32_t i = 0; i < c->n_children; i++)
        if (c->children[i].used)
            core_send_child(c, i, m);
    if (m && c->has_parent && !c->ended)
        c->ops->to_parent(c->user, m);
    c->ended = true;
}

/* ---- questions ---- */

const dtpi_verdict *dtpi_core_verdict(const dtpi_core *c)
{
    return c->has_verdict ? &c->verdict : NULL;
}

bool dtpi_core_has_table(const dtpi_core *c)
{
    return c->has_table;
}

bool dtpi_core_all_came(const dtpi_core *c)
{
    return c->n_came >= c->o.n_local && (!c->o.is_root || c->n_below >= c->o.world_size);
}

bool dtpi_core_slot_is_free(const dtpi_core *c, uint32_t slot)
{
    return slot >= c->n_locals || (!c->locals[slot].used && !c->locals[slot].joined);
}

bool dtpi_core_is_done(const dtpi_core *c)
{
    /* Others hear of these deaths through this agent. */
    if (!c->has_verdict && (c->verdict_due || (c->told_deaths && c->has_parent)))
        return false;
    if (c->n_joined_local == 0)
        return c->has_verdict;
    for (uint32_t i = 0; i < c->n_locals; i++)
        if (core_is_local_member(c, i))
            return false;
    return c->has_table || c->has_verdict || c->n_joined_local >= c->o.n_local;
}

bool dtpi_core_serves_below(const dtpi_core *c)
{
    for (uint32_t i = 0; c->has_table && !c->has_verdict && i < c->n_children; i++)
        if (c->children[i].used && !c->children[i].bye)
            return true;
    return false;
}

uint32_t dtpi_core_generation(const dtpi_core *c)
{
    return c->generation;
}

uint32_t dtpi_core_n_members(const dtpi_core *c)
{
    return core_world_n(c);
}

uint64_t dtpi_core_n_stale(const dtpi_core *c)
{
    return c->n_stale;
}

uint64_t dtpi_core_n_sent(const dtpi_core *c)
{
    uint64_t n = 0;

    for (int i = 0; i < DTPI_F_END; i++)
        n += c->stats.n_sent[i];
    return n;
}

void dtpi_core_get_stats(const dtpi_core *c, dtpi_core_stats *out)
{
    *out = c->stats;
    out->n_below = c->n_below;
    out->n_children = 0;
    for (uint32_t i = 0; i < c->n_children; i++)
        out->n_children += c->children[i].used;
}
