/* SPDX-License-Identifier: Apache-2.0 */
/* The agents' core in simulation: a tree of agents with their ranks, virtual time, a seed. */
#include "check.h"

#include "group/core.h"
#include "net/loop.h"

enum { MAX_AGENTS = 300, MAX_RANKS = 1200 };

struct sim;

struct sim_rank {
    dtpi_loop_chan *chan;       /* side 1 */
    bool dead, welcomed, stays_away;
    int n_calls;                /* results seen */
    dtp_status last;            /* of the last call */
    char text[DTP_ERROR_TEXT];
    size_t bytes;
    uint8_t first_byte;
    bool has_verdict;
    dtpi_verdict verdict;
    int32_t failed[MAX_RANKS];
    int64_t verdict_ns;
    dtp_status answer;          /* to a question */
};

struct sim_agent {
    struct sim *sim;
    uint32_t index;
    dtpi_core *core;
    dtpi_loop_chan *parent;             /* side 1 */
    dtpi_loop_chan *children[MAX_AGENTS];
    dtpi_loop_chan *locals[64];         /* side 0 */
    bool dead;
    bool told_word;
    int64_t tick_ns;
};

struct sim {
    dtpi_loop *loop;
    uint32_t n_agents, per_agent, radix;
    struct sim_agent *agents;
    struct sim_rank *ranks;
};

static uint32_t n_ranks(const struct sim *s)
{
    return s->n_agents * s->per_agent;
}

/* ---- agents ---- */

static void tick(void *user, uint64_t key);

static void after(struct sim_agent *a)
{
    const int64_t at = dtpi_core_next_ns(a->core);

    if (at == INT64_MAX || (a->tick_ns > dtpi_loop_now(a->sim->loop) && a->tick_ns <= at))
        return;
    a->tick_ns = at;
    assert_true(dtpi_loop_at(a->sim->loop, at, tick, a, 0));
}

static void tick(void *user, uint64_t key)
{
    struct sim_agent *a = user;

    (void)key;
    if (a->dead)
        return;
    a->tick_ns = 0;
    dtpi_core_tick(a->core, dtpi_loop_now(a->sim->loop));
    after(a);
}

static void to_local(void *user, uint32_t slot, dtpi_msg *m)
{
    struct sim_agent *a = user;

    dtpi_loop_send(a->locals[slot], 0, m->buf.data, m->buf.len);
}

static void to_child(void *user, uint32_t slot, dtpi_msg *m)
{
    struct sim_agent *a = user;

    dtpi_loop_send(a->children[slot], 0, m->buf.data, m->buf.len);
}

static void to_parent(void *user, dtpi_msg *m)
{
    struct sim_agent *a = user;

    dtpi_loop_send(a->parent, 1, m->buf.data, m->buf.len);
}

static void on_table(void *user)
{
    struct sim_agent *a = user;

    for (uint32_t i = 0; i < a->sim->per_agent; i++)
        a->sim->ranks[a->index * a->sim->per_agent + i].welcomed = true;
}

static void on_verdict(void *user, const dtpi_verdict *v)
{
    struct sim_agent *a = user;

    (void)v;
    assert_false(a->told_word);
    a->told_word = true;
}

static void drop_local(void *user, uint32_t slot)
{
    struct sim_agent *a = user;

    dtpi_loop_kill(a->locals[slot], 0);
}

static void drop_child(void *user, uint32_t slot)
{
    struct sim_agent *a = user;

    dtpi_loop_kill(a->children[slot], 0);
}

static const dtpi_core_ops ops = { to_local, to_child, to_parent, on_table,
                                   on_verdict, drop_local, drop_child };

static void local_message(void *user, uint64_t key, const uint8_t *data, size_t bytes)
{
    struct sim_agent *a = user;

    dtpi_core_local_msg(a->core, (uint32_t)key, &(dtpi_in){ .data = data, .bytes = bytes },
                        dtpi_loop_now(a->sim->loop));
    after(a);
}

static void local_closed(void *user, uint64_t key)
{
    struct sim_agent *a = user;

    dtpi_core_local_end(a->core, (uint32_t)key, NULL, dtpi_loop_now(a->sim->loop));
    after(a);
}

static void child_message(void *user, uint64_t key, const uint8_t *data, size_t bytes)
{
    struct sim_agent *a = user;

    dtpi_core_child_msg(a->core, (uint32_t)key, &(dtpi_in){ .data = data, .bytes = bytes },
                        dtpi_loop_now(a->sim->loop));
    after(a);
}

static void child_closed(void *user, uint64_t key)
{
    struct sim_agent *a = user;

    dtpi_core_child_end(a->core, (uint32_t)key, dtpi_loop_now(a->sim->loop));
    after(a);
}

static void parent_message(void *user, uint64_t key, const uint8_t *data, size_t bytes)
{
    struct sim_agent *a = user;

    (void)key;
    dtpi_core_parent_msg(a->core, &(dtpi_in){ .data = data, .bytes = bytes },
                        dtpi_loop_now(a->sim->loop));
    after(a);
}

static void parent_closed(void *user, uint64_t key)
{
    struct sim_agent *a = user;

    (void)key;
    dtpi_core_parent_end(a->core, DTP_OK, NULL, dtpi_loop_now(a->sim->loop));
    after(a);
}

/* ---- ranks ---- */

static void rank_message(void *user, uint64_t key, const uint8_t *data, size_t bytes)
{
    struct sim *s = user;
    struct sim_rank *r = &s->ranks[key];
    dtpi_frame f;
    dtpi_down down;

    assert_true(dtpi_frame_read(data, bytes, &f));
    if (f.type == DTPI_F_DOWN) {
        assert_true(dtpi_down_read(&f, &down));
        r->n_calls++;
        r->last = down.status;
        memcpy(r->text, down.text, sizeof(r->text));
        r->bytes = down.rest.left;
    } else if (f.type == DTPI_F_VERDICT) {
        assert_false(r->has_verdict);
        r->has_verdict = true;
        r->verdict_ns = dtpi_loop_now(s->loop);
        assert_true(dtpi_verdict_read(&f, n_ranks(s), &r->verdict, r->failed));
    } else if (f.type == DTPI_F_VALUE) {
        dtpi_rd rd = dtpi_rd_init(f.body, f.bytes);
        r->answer = (dtp_status)dtpi_rd_u32(&rd);
    }
}

static void rank_closed(void *user, uint64_t key)
{
    (void)user;
    (void)key;
}

static void rank_send(struct sim *s, uint32_t rank, uint8_t type, uint32_t seq, int kind,
                      const void *data, size_t bytes)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_frame f = { .type = type, .generation = 1, .seq = seq, .group = DTPI_WORLD_ID,
                           .rank = (int32_t)rank };

    dtpi_frame_begin(&b, &f);
    if (type == DTPI_F_JOIN) {
        dtpi_wr_u32(&b, n_ranks(s));
        dtpi_wr_u32(&b, rank % s->per_agent);
        dtpi_wr_u32(&b, 1000 + rank);
    } else if (type == DTPI_F_UP) {
        dtpi_up_write(&b, (uint8_t)kind, rank, 0, data, bytes);
    }
    dtpi_loop_send(s->ranks[rank].chan, 1, b.data, b.len);
    dtpi_buf_free(&b);
}

static void rank_joins(void *user, uint64_t key)
{
    struct sim *s = user;
    struct sim_rank *r = &s->ranks[key];
    struct sim_agent *a = &s->agents[key / s->per_agent];
    const uint32_t slot = (uint32_t)(key % s->per_agent);
    const dtpi_loop_side sides[2] = { { local_message, local_closed, a, slot },
                                      { rank_message, rank_closed, s, key } };

    if (a->dead || r->stays_away)
        return;
    r->chan = dtpi_loop_connect(s->loop, sides);
    a->locals[slot] = r->chan;
    dtpi_core_local_open(a->core, slot, (int32_t)key, 1000 + (int32_t)key, dtpi_loop_now(s->loop));
    rank_send(s, (uint32_t)key, DTPI_F_JOIN, 0, 0, NULL, 0);
}

struct call_event {
    struct sim *s;
    uint32_t seq;
    int kind;
};

static void rank_calls(void *user, uint64_t key)
{
    const struct call_event *c = user;
    const uint8_t data[8] = { (uint8_t)key, 1, 2, 3, 4, 5, 6, 7 };

    if (!c->s->ranks[key].dead && c->s->ranks[key].chan)
        rank_send(c->s, (uint32_t)key, DTPI_F_UP, c->seq, c->kind, data, key % 9);
}

static struct call_event events[64];
static size_t n_events;

static void call_all(struct sim *s, uint32_t seq, int kind, int64_t spread_ns, uint64_t *seed,
                     int32_t except)
{
    struct call_event *c = &events[n_events++ % 64];

    *c = (struct call_event){ s, seq, kind };
    for (uint32_t i = 0; i < n_ranks(s); i++)
        if ((int32_t)i != except)
            dtpi_loop_at(s->loop, dtpi_loop_now(s->loop) + (int64_t)(check_random(seed) %
                         (uint64_t)(spread_ns + 1)), rank_calls, c, i);
}

static void kill_rank(struct sim *s, uint32_t rank)
{
    s->ranks[rank].dead = true;
    dtpi_loop_kill(s->ranks[rank].chan, 1);
}

/* A machine stops: its agent and ranks fall silent; others see its connections end. */
static void kill_node(struct sim *s, uint32_t agent)
{
    struct sim_agent *a = &s->agents[agent];

    a->dead = true;
    for (uint32_t i = 0; i < s->per_agent; i++) {
        s->ranks[agent * s->per_agent + i].dead = true;
        if (a->locals[i]) {
            dtpi_loop_kill(a->locals[i], 0);
            dtpi_loop_kill(a->locals[i], 1);
        }
    }
    if (a->parent)
        dtpi_loop_kill(a->parent, 1);
    for (uint32_t i = 0; i < s->n_agents; i++)
        if (a->children[i])
            dtpi_loop_kill(a->children[i], 0);
}

/* ---- the whole ---- */

static void agents_meet(void *user, uint64_t key)
{
    struct sim *s = user;
    struct sim_agent *a = &s->agents[key], *p = &s->agents[(key - 1) / s->radix];
    const dtpi_loop_side sides[2] = { { child_message, child_closed, p, key },
                                      { parent_message, parent_closed, a, 0 } };

    if (a->dead || p->dead)
        return;
    a->parent = dtpi_loop_connect(s->loop, sides);
    p->children[key] = a->parent;
    dtpi_core_child_open(p->core, (uint32_t)key, dtpi_loop_now(s->loop));
    after(p);
    dtpi_core_parent_open(a->core, dtpi_loop_now(s->loop));
    after(a);
}

static void sim_open(struct sim *s, uint32_t n_agents, uint32_t per_agent, uint32_t radix,
                     uint64_t *seed, int64_t join_ms)
{
    const dtpi_loop_opts lo = { .seed = check_random(seed), .latency_ns = 25000, .jitter_ns = 20000 };

    assert_true(n_agents <= MAX_AGENTS && n_agents * per_agent <= MAX_RANKS && per_agent <= 64);
    *s = (struct sim){ .n_agents = n_agents, .per_agent = per_agent, .radix = radix };
    s->loop = dtpi_loop_new(&dtpi_malloc_allocator, &lo);
    s->agents = calloc(n_agents, sizeof(*s->agents));
    s->ranks = calloc(n_agents * per_agent, sizeof(*s->ranks));
    for (uint32_t i = 0; i < n_agents; i++) {
        char host[16];
        snprintf(host, sizeof(host), "n%u", i);
        const dtpi_core_opts o = { .a = &dtpi_malloc_allocator, .world_size = n_agents * per_agent,
                                   .n_local = per_agent, .is_root = i == 0, .host = host,
                                   .node_id = 100 + i, .host_rank = -1,
                                   .join_timeout_ns = join_ms * DTPI_NS_PER_MS };
        s->agents[i].sim = s;
        s->agents[i].index = i;
        assert_ok(dtpi_core_new(&o, &ops, &s->agents[i], &s->agents[i].core, ERR));
        after(&s->agents[i]);
        if (i > 0)
            dtpi_loop_at(s->loop, (int64_t)(check_random(seed) % 3000000), agents_meet, s, i);
    }
}

static void sim_join(struct sim *s, uint64_t *seed)
{
    for (uint32_t i = 0; i < n_ranks(s); i++)
        dtpi_loop_at(s->loop, (int64_t)(check_random(seed) % 5000000), rank_joins, s, i);
}

static void sim_run(struct sim *s, int64_t ms)
{
    const int64_t until = dtpi_loop_now(s->loop) + ms * DTPI_NS_PER_MS;

    while (dtpi_loop_step(s->loop, until))
        continue;
}

static void sim_close(struct sim *s)
{
    for (uint32_t i = 0; i < s->n_agents; i++)
        dtpi_core_free(s->agents[i].core);
    dtpi_loop_free(s->loop);
    free(s->agents);
    free(s->ranks);
}

static uint64_t n_sent(const struct sim *s)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < s->n_agents; i++)
        n += dtpi_core_n_sent(s->agents[i].core);
    return n;
}

static void test_a_tree_of_agents_joins_and_calls(void **state)
{
    uint64_t seed = check_seed();
    struct sim s;

    (void)state;
    sim_open(&s, 64, 4, 8, &seed, 10000);
    sim_join(&s, &seed);
    sim_run(&s, 100);
    for (uint32_t i = 0; i < 256; i++)
        assert_true(s.ranks[i].welcomed);
    dtpi_node node;
    dtpi_row row;
    assert_int_equal(dtpi_core_n_nodes(s.agents[40].core), 64);
    for (uint32_t i = 0; i < 256; i++) {
        assert_true(dtpi_core_row(s.agents[40].core, (int32_t)i, &row));
        assert_int_equal(row.node, i / 4);
        assert_int_equal(row.pid, 1000 + i);
        assert_true(dtpi_core_node(s.agents[40].core, row.node, &node));
        if (i == 4 * 17)
            assert_string_equal(node.host, "n17");
    }
    const uint64_t before = n_sent(&s);
    for (uint32_t seq = 1; seq <= 10; seq++) {
        call_all(&s, seq, seq % 2 ? DTPI_KIND_BARRIER : DTPI_KIND_GATHER, 300000, &seed, -1);
        sim_run(&s, 2);
    }
    size_t total = 4 * 256;
    for (uint32_t i = 0; i < 256; i++)
        total += i % 9;
    for (uint32_t i = 0; i < 256; i++) {
        assert_int_equal(s.ranks[i].n_calls, 10);
        assert_int_equal(s.ranks[i].last, DTP_OK);
        assert_false(s.ranks[i].has_verdict);
    }
    assert_int_equal(s.ranks[9].bytes, total);
    /* Per call: one message up from each agent, one down to each agent and rank; and few beats. */
    const uint64_t per_call = (n_sent(&s) - before) / 10;
    assert_true(per_call <= 63 + 63 + 256 + 8);
    sim_close(&s);
}

/* The set of dead ranks is the same on all that live, soon after. */
static void check_verdicts(const struct sim *s, int64_t killed_ns, int64_t limit_ms)
{
    for (uint32_t i = 0; i < n_ranks(s); i++) {
        const struct sim_rank *r = &s->ranks[i];
        uint32_t n = 0;
        if (r->dead)
            continue;
        if (!r->has_verdict)
            fail_msg("rank %u was told nothing", i);
        for (uint32_t k = 0; k < n_ranks(s); k++)
            if (s->ranks[k].dead) {
                if (n >= r->verdict.n_failed || r->failed[n] != (int32_t)k)
                    fail_msg("rank %u: %s (rank %u is dead)", i, r->verdict.text, k);
                n++;
            }
        assert_int_equal(n, r->verdict.n_failed);
        assert_true(r->verdict_ns - killed_ns <= limit_ms * DTPI_NS_PER_MS);
    }
}

static void test_deaths_are_the_same_set_on_all_survivors(void **state)
{
    uint64_t seed = check_seed();

    (void)state;
    for (int run = 0; run < (check_is_long() ? 10000 : 60); run++) {
        const uint32_t n_agents = 2 + (uint32_t)(check_random(&seed) % 12);
        const uint32_t per_agent = 1 + (uint32_t)(check_random(&seed) % 5);
        struct sim s;
        sim_open(&s, n_agents, per_agent, 2 + (uint32_t)(check_random(&seed) % 8), &seed, 10000);
        sim_join(&s, &seed);
        sim_run(&s, 100);
        call_all(&s, 1, DTPI_KIND_GATHER, 400000, &seed, -1);
        const int64_t at = dtpi_loop_now(s.loop);
        if (run % 3 == 0) {
            /* A leaf of the tree goes as a whole. */
            kill_node(&s, n_agents - 1);
        } else {
            const uint32_t n_dead = 1 + (uint32_t)(check_random(&seed) % 4);
            for (uint32_t i = 0; i < n_dead; i++)
                kill_rank(&s, (uint32_t)(check_random(&seed) % n_ranks(&s)));
        }
        sim_run(&s, 50);
        check_verdicts(&s, at, 10);
        sim_close(&s);
    }
}

static void test_a_silent_node_is_dead_after_three_beats(void **state)
{
    uint64_t seed = check_seed();
    struct sim s;

    (void)state;
    sim_open(&s, 5, 2, 8, &seed, 10000);
    sim_join(&s, &seed);
    sim_run(&s, 2500);
    assert_false(s.ranks[0].has_verdict);
    /* Stopped, not ended: its connections stay open. */
    const int64_t at = dtpi_loop_now(s.loop);
    s.agents[3].dead = true;
    s.ranks[6].dead = s.ranks[7].dead = true;
    sim_run(&s, 6000);
    check_verdicts(&s, at, 4100);
    sim_close(&s);
}

static void test_ranks_that_never_join_are_named_exactly(void **state)
{
    uint64_t seed = check_seed();

    (void)state;
    for (int run = 0; run < (check_is_long() ? 5000 : 40); run++) {
        struct sim s;
        uint32_t n_away = 0;
        sim_open(&s, 2 + (uint32_t)(check_random(&seed) % 10), 1 + (uint32_t)(check_random(&seed) % 6),
                 2 + (uint32_t)(check_random(&seed) % 4), &seed, 500);
        /* Never a whole node, whose agent would be missing too. */
        for (uint32_t i = 0; i < n_ranks(&s); i++)
            if (check_random(&seed) % 4 == 0) {
                s.ranks[i].stays_away = s.ranks[i].dead = true;
                n_away++;
            }
        sim_join(&s, &seed);
        sim_run(&s, 800);
        if (n_away)
            check_verdicts(&s, 0, 510);
        else
            assert_true(s.ranks[0].welcomed);
        sim_close(&s);
    }
}

static void test_a_node_that_does_not_reach_its_parent_is_named(void **state)
{
    uint64_t seed = check_seed();
    struct sim s;

    (void)state;
    sim_open(&s, 4, 3, 8, &seed, 300);
    for (uint32_t i = 6; i < 9; i++)
        s.ranks[i].stays_away = s.ranks[i].dead = true;
    dtpi_core_node_came(s.agents[0].core, 102, "n2", 3);
    sim_join(&s, &seed);
    sim_run(&s, 500);
    check_verdicts(&s, 0, 310);
    assert_string_equal(s.ranks[0].verdict.text,
                        "ranks 6-8 of 12 (node n2) never joined; last seen: connecting to parent");
    sim_close(&s);
}

static void test_a_deadline_names_who_is_late_through_the_tree(void **state)
{
    uint64_t seed = check_seed();
    struct sim s;

    (void)state;
    sim_open(&s, 20, 3, 3, &seed, 10000);
    sim_join(&s, &seed);
    sim_run(&s, 100);
    call_all(&s, 1, DTPI_KIND_BARRIER, 100000, &seed, 37);
    sim_run(&s, 20);
    assert_int_equal(s.ranks[0].n_calls, 0);
    rank_send(&s, 4, DTPI_F_EXPIRE, 1, 0, NULL, 0);
    rank_send(&s, 59, DTPI_F_EXPIRE, 1, 0, NULL, 0);
    sim_run(&s, 20);
    for (uint32_t i = 0; i < 60; i++) {
        assert_int_equal(s.ranks[i].n_calls, 1);
        assert_int_equal(s.ranks[i].last, DTP_ERR_TIMEOUT);
        assert_string_equal(s.ranks[i].text, "barrier 1: rank 37 of 60 did not come in time");
    }
    /* Its late contribution changes nothing, and the lane goes on. */
    rank_send(&s, 37, DTPI_F_UP, 1, DTPI_KIND_BARRIER, NULL, 0);
    call_all(&s, 2, DTPI_KIND_BARRIER, 100000, &seed, -1);
    sim_run(&s, 20);
    for (uint32_t i = 0; i < 60; i++) {
        assert_int_equal(s.ranks[i].n_calls, 2);
        assert_int_equal(s.ranks[i].last, DTP_OK);
    }
    sim_close(&s);
}

static void rank_asks(struct sim *s, uint32_t rank, const char *key)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_frame f = { .type = DTPI_F_GET, .generation = 1, .seq = 1, .group = DTPI_WORLD_ID,
                           .rank = (int32_t)rank };

    dtpi_frame_begin(&b, &f);
    dtpi_wr_u8(&b, 1);
    dtpi_wr_text(&b, key);
    dtpi_loop_send(s->ranks[rank].chan, 1, b.data, b.len);
    dtpi_buf_free(&b);
}

static void test_a_root_that_leaves_in_order_ends_calls_but_not_the_group(void **state)
{
    uint64_t seed = check_seed();
    struct sim s;

    (void)state;
    sim_open(&s, 3, 2, 8, &seed, 10000);
    sim_join(&s, &seed);
    sim_run(&s, 100);
    /* A call is under way when the ranks of the root's node, and then their agent, are done. */
    rank_send(&s, 2, DTPI_F_UP, 1, DTPI_KIND_BARRIER, NULL, 0);
    sim_run(&s, 1);
    for (uint32_t i = 0; i < 2; i++)
        rank_send(&s, i, DTPI_F_LEAVE, 0, 0, NULL, 0);
    sim_run(&s, 1);
    dtpi_core_bye(s.agents[0].core);
    s.agents[0].dead = true;
    for (uint32_t i = 1; i < 3; i++)
        dtpi_loop_kill(s.agents[0].children[i], 0);
    sim_run(&s, 10);
    for (uint32_t i = 3; i < 6; i++)
        rank_send(&s, i, DTPI_F_UP, 1, DTPI_KIND_BARRIER, NULL, 0);
    sim_run(&s, 10);
    for (uint32_t i = 2; i < 6; i++) {
        assert_int_equal(s.ranks[i].n_calls, 1);
        assert_int_equal(s.ranks[i].last, DTP_ERR_PEER);
        assert_string_equal(s.ranks[i].text, "barrier 1: rank 0 of 6 has left the group");
        assert_false(s.ranks[i].has_verdict);
    }
    rank_asks(&s, 5, "key");
    sim_run(&s, 10);
    assert_int_equal(s.ranks[5].answer, DTP_ERR_PEER);
    sim_close(&s);
}

static void test_a_death_before_the_root_is_reached_is_told_when_it_is(void **state)
{
    uint64_t seed = check_seed();
    struct sim s;

    (void)state;
    sim_open(&s, 1, 2, 8, &seed, 10000);
    struct sim_agent *root = &s.agents[0];
    struct sim_agent below = { .sim = &s, .index = 0 };
    const dtpi_core_opts o = { .a = &dtpi_malloc_allocator, .world_size = 2, .n_local = 1, .host = "b",
                               .node_id = 7, .host_rank = -1, .join_timeout_ns = 10 * DTPI_NS_PER_S };
    const dtpi_loop_side sides[2] = { { child_message, child_closed, root, 1 },
                                      { parent_message, parent_closed, &below, 0 } };
    assert_ok(dtpi_core_new(&o, &ops, &below, &below.core, ERR));
    dtpi_core_rank_ended(below.core, 1, 44, "exit 3", 0);
    after(&below);
    rank_joins(&s, 0);
    sim_run(&s, 20);
    assert_null(dtpi_core_verdict(below.core));     /* the root judges */
    below.parent = root->children[1] = dtpi_loop_connect(s.loop, sides);
    dtpi_core_child_open(root->core, 1, dtpi_loop_now(s.loop));
    dtpi_core_parent_open(below.core, dtpi_loop_now(s.loop));
    after(root);
    after(&below);
    sim_run(&s, 20);
    assert_non_null(dtpi_core_verdict(below.core));
    assert_true(s.ranks[0].has_verdict);
    assert_string_equal(s.ranks[0].verdict.text,
                        "rank 1 of 2 (node b, pid 44) died before it joined (exit 3)");
    dtpi_core_free(below.core);
    sim_close(&s);
}

static void test_a_rank_that_joins_twice_on_a_connection_counts_as_dead(void **state)
{
    uint64_t seed = check_seed();
    struct sim s;

    (void)state;
    sim_open(&s, 2, 2, 8, &seed, 10000);
    sim_join(&s, &seed);
    sim_run(&s, 100);
    const int64_t at = dtpi_loop_now(s.loop);
    rank_send(&s, 3, DTPI_F_JOIN, 0, 0, NULL, 0);
    s.ranks[3].dead = true;
    sim_run(&s, 20);
    check_verdicts(&s, at, 10);
    sim_close(&s);
}

static void test_random_bytes_from_members_do_not_break_the_core(void **state)
{
    uint64_t seed = check_seed();

    (void)state;
    for (int run = 0; run < 200; run++) {
        struct sim s;
        sim_open(&s, 3, 2, 2, &seed, 10000);
        sim_join(&s, &seed);
        sim_run(&s, 100);
        for (int i = 0; i < 30; i++) {
            uint8_t junk[120];
            const size_t n = check_random(&seed) % sizeof(junk);
            for (size_t k = 0; k < sizeof(junk); k++)
                junk[k] = (uint8_t)(check_random(&seed) % (k < 40 ? 3 : 256));
            junk[0] = DTPI_WIRE_VERSION;
            junk[1] = (uint8_t)(check_random(&seed) % 30);
            memset(junk + 3, 0, 5);
            const uint64_t who = check_random(&seed) % 3;
            if (who == 0)
                dtpi_core_local_msg(s.agents[0].core, 0, &(dtpi_in){ .data = junk, .bytes = n },
                                    dtpi_loop_now(s.loop));
            else if (who == 1)
                dtpi_core_child_msg(s.agents[0].core, 1, &(dtpi_in){ .data = junk, .bytes = n },
                                    dtpi_loop_now(s.loop));
            else
                dtpi_core_parent_msg(s.agents[1].core, &(dtpi_in){ .data = junk, .bytes = n },
                                    dtpi_loop_now(s.loop));
            sim_run(&s, 1);
        }
        sim_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tree_of_agents_joins_and_calls),
        cmocka_unit_test(test_deaths_are_the_same_set_on_all_survivors),
        cmocka_unit_test(test_a_silent_node_is_dead_after_three_beats),
        cmocka_unit_test(test_ranks_that_never_join_are_named_exactly),
        cmocka_unit_test(test_a_node_that_does_not_reach_its_parent_is_named),
        cmocka_unit_test(test_a_deadline_names_who_is_late_through_the_tree),
        cmocka_unit_test(test_a_root_that_leaves_in_order_ends_calls_but_not_the_group),
        cmocka_unit_test(test_a_death_before_the_root_is_reached_is_told_when_it_is),
        cmocka_unit_test(test_a_rank_that_joins_twice_on_a_connection_counts_as_dead),
        cmocka_unit_test(test_random_bytes_from_members_do_not_break_the_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
