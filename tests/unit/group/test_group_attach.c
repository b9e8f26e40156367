/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks and agents that die at any moment, in simulation: those that live are told the same, come back
 * through other agents, and go on together in the next generation.
 */
#include "check.h"

#include "group/core.h"
#include "net/loop.h"

enum { MAX_AGENTS = 40, MAX_RANKS = 160, MAX_GENS = 12, NODE_0 = 100 };

/* Of the run under way; DTP_TEST_ONE repeats it alone. */
static unsigned long long present_seed;

#define WRONG(...)                                                                                  \
    do {                                                                                            \
        print_error("DTP_TEST_ONE=%llu\n", present_seed);                                           \
        fail_msg(__VA_ARGS__);                                                                      \
    } while (0)

static uint64_t own_seed(uint64_t *seed)
{
    const char *one = getenv("DTP_TEST_ONE");

    present_seed = one ? strtoull(one, NULL, 0) : check_random(seed);
    return present_seed;
}

struct rank {
    dtpi_loop_chan *chan;       /* side 1 */
    bool dead, stays_away, welcomed, refused;
    uint32_t gen, round;
    bool calls;
    struct {
        bool is_told;
        dtp_status status;
        char text[DTP_ERROR_TEXT];
        uint32_t n;
        int32_t failed[MAX_RANKS];
        int64_t at_ns;
    } verdict[MAX_GENS];
    int32_t members[MAX_RANKS];
    uint32_t n_members;
    char text[DTP_ERROR_TEXT];  /* of a re-form that failed */
};

struct agent {
    struct sim *sim;
    uint32_t index;
    dtpi_core *core;
    dtpi_loop_chan *parent;     /* side 1 */
    uint64_t n_parents;         /* counts connections, so that ends of old ones are nothing */
    dtpi_loop_chan *children[4 * MAX_AGENTS];
    uint32_t n_children;
    dtpi_loop_chan *locals[8];
    bool dead;
    int64_t tick_ns;
};

struct sim {
    dtpi_loop *loop;
    uint64_t *seed;
    uint32_t n_agents, per_agent, radix;
    bool reforms;
    struct agent *agents;
    struct rank *ranks;
};

static uint32_t n_ranks(const struct sim *s)
{
    return s->n_agents * s->per_agent;
}

static int64_t in_us(const struct sim *s, uint64_t us)
{
    return dtpi_loop_now(s->loop) + (int64_t)(check_random(s->seed) % (us + 1)) * 1000;
}

/* ---- agents ---- */

static void tick(void *user, uint64_t key);

static void after(struct agent *a)
{
    const int64_t at = dtpi_core_next_ns(a->core);

    if (a->dead || at == INT64_MAX ||
        (a->tick_ns > dtpi_loop_now(a->sim->loop) && a->tick_ns <= at))
        return;
    a->tick_ns = at;
    assert_true(dtpi_loop_at(a->sim->loop, at, tick, a, 0));
}

static void tick(void *user, uint64_t key)
{
    struct agent *a = user;

    (void)key;
    if (a->dead)
        return;
    a->tick_ns = 0;
    dtpi_core_tick(a->core, dtpi_loop_now(a->sim->loop));
    after(a);
}

static void send(dtpi_loop_chan *chan, int from, const dtpi_msg *m)
{
    if (chan)
        dtpi_loop_send(chan, from, m->buf.data, m->buf.len);
}

static void to_local(void *user, uint32_t slot, dtpi_msg *m)
{
    send(((struct agent *)user)->locals[slot], 0, m);
}

static void to_child(void *user, uint32_t slot, dtpi_msg *m)
{
    send(((struct agent *)user)->children[slot], 0, m);
}

static void to_parent(void *user, dtpi_msg *m)
{
    send(((struct agent *)user)->parent, 1, m);
}

static void on_table(void *user)
{
    struct agent *a = user;

    for (uint32_t i = 0; i < a->sim->per_agent; i++)
        a->sim->ranks[a->index * a->sim->per_agent + i].welcomed = true;
}

static void on_verdict(void *user, const dtpi_verdict *v)
{
    (void)user;
    (void)v;
}

static void drop_local(void *user, uint32_t slot)
{
    dtpi_loop_kill(((struct agent *)user)->locals[slot], 0);
}

static void drop_child(void *user, uint32_t slot)
{
    dtpi_loop_kill(((struct agent *)user)->children[slot], 0);
}

static void seek(void *user, uint64_t key);

static void on_orphan(void *user)
{
    struct agent *a = user;

    a->parent = NULL;
    assert_true(dtpi_loop_at(a->sim->loop, in_us(a->sim, 100), seek, a, 0));
}

static const dtpi_core_ops ops = {
    .to_local = to_local, .to_child = to_child, .to_parent = to_parent, .table = on_table,
    .verdict = on_verdict, .drop_local = drop_local, .drop_child = drop_child, .orphan = on_orphan,
};

static void local_message(void *user, uint64_t key, const uint8_t *data, size_t bytes)
{
    struct agent *a = user;

    if (a->dead)
        return;
    dtpi_core_local_msg(a->core, (uint32_t)key, &(dtpi_in){ .data = data, .bytes = bytes },
                        dtpi_loop_now(a->sim->loop));
    after(a);
}

static void local_closed(void *user, uint64_t key)
{
    struct agent *a = user;

    if (a->dead)
        return;
    dtpi_core_local_end(a->core, (uint32_t)key, NULL, dtpi_loop_now(a->sim->loop));
    after(a);
}

static void child_message(void *user, uint64_t key, const uint8_t *data, size_t bytes)
{
    struct agent *a = user;

    if (a->dead)
        return;
    dtpi_core_child_msg(a->core, (uint32_t)key, &(dtpi_in){ .data = data, .bytes = bytes },
                        dtpi_loop_now(a->sim->loop));
    after(a);
}

static void child_closed(void *user, uint64_t key)
{
    struct agent *a = user;

    if (a->dead)
        return;
    dtpi_core_child_end(a->core, (uint32_t)key, dtpi_loop_now(a->sim->loop));
    after(a);
}

static void parent_message(void *user, uint64_t key, const uint8_t *data, size_t bytes)
{
    struct agent *a = user;

    if (a->dead || key != a->n_parents)
        return;
    dtpi_core_parent_msg(a->core, &(dtpi_in){ .data = data, .bytes = bytes },
                         dtpi_loop_now(a->sim->loop));
    after(a);
}

static void parent_closed(void *user, uint64_t key)
{
    struct agent *a = user;

    if (a->dead || key != a->n_parents)
        return;
    a->n_parents++;
    dtpi_core_parent_end(a->core, DTP_OK, NULL, dtpi_loop_now(a->sim->loop));
    after(a);
}

static void meet(struct agent *a, struct agent *p)
{
    const uint32_t slot = p->n_children++;
    const dtpi_loop_side sides[2] = {
        { .message = child_message, .closed = child_closed, .user = p, .key = slot },
        { .message = parent_message, .closed = parent_closed, .user = a, .key = ++a->n_parents },
    };

    assert_true(slot < 4 * MAX_AGENTS);
    a->parent = p->children[slot] = dtpi_loop_connect(a->sim->loop, sides);
    dtpi_core_child_open(p->core, slot, dtpi_loop_now(a->sim->loop));
    after(p);
    dtpi_core_parent_open(a->core, dtpi_loop_now(a->sim->loop));
    after(a);
}

/* What the driver does: the root, then those that stand by; only one that judges takes who comes back. */
static struct agent *who_takes(struct agent *a)
{
    dtpi_standby by[DTPI_STANDBYS];
    const uint32_t n = dtpi_core_standbys(a->core, by);

    for (int32_t i = -1; i < (int32_t)n; i++) {
        struct agent *p = &a->sim->agents[i < 0 ? 0 : by[i].node - NODE_0];
        if (p != a && !p->dead && dtpi_core_is_judge(p->core))
            return p;
    }
    return NULL;
}

static void seek(void *user, uint64_t key)
{
    struct agent *a = user;
    struct agent *p = a->dead ? NULL : who_takes(a);

    (void)key;
    if (a->dead || a->parent || (a->n_parents > 0 && !dtpi_core_seeks_parent(a->core)) ||
        dtpi_loop_now(a->sim->loop) > 20 * DTPI_NS_PER_S)
        return;
    if (p)
        meet(a, p);
    else
        dtpi_loop_at(a->sim->loop, dtpi_loop_now(a->sim->loop) + 10 * DTPI_NS_PER_MS, seek, a, 0);
}

static void agents_meet(void *user, uint64_t key)
{
    struct sim *s = user;
    struct agent *a = &s->agents[key], *p = &s->agents[(key - 1) / s->radix];

    if (!a->dead && !p->dead)
        meet(a, p);
    else if (!a->dead)
        seek(a, 0);
}

/* ---- ranks ---- */

static void rank_send(struct sim *s, uint32_t rank, uint8_t type, uint32_t gen, uint32_t seq)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_frame f = { .type = type, .generation = gen, .seq = seq, .group = DTPI_WORLD_ID,
                           .rank = (int32_t)rank };

    dtpi_frame_begin(&b, &f);
    if (type == DTPI_F_JOIN) {
        dtpi_wr_u32(&b, n_ranks(s));
        dtpi_wr_u32(&b, rank % s->per_agent);
        dtpi_wr_u32(&b, 1000 + rank);
    } else if (type == DTPI_F_UP) {
        dtpi_up_write(&b, DTPI_KIND_BARRIER, rank, 0, NULL, 0);
    } else if (type == DTPI_F_REFORM) {
        dtpi_wr_u32(&b, 2500);
        dtpi_wr_u32(&b, 1);
    }
    dtpi_loop_send(s->ranks[rank].chan, 1, b.data, b.len);
    dtpi_buf_free(&b);
}

static void rank_calls(void *user, uint64_t key)
{
    struct sim *s = user;
    struct rank *r = &s->ranks[key];

    if (r->dead || r->refused)
        return;
    r->calls = true;
    rank_send(s, (uint32_t)key, DTPI_F_REFORM, r->gen, r->round);
}

static void take_verdict(struct sim *s, uint64_t key, const dtpi_frame *f)
{
    struct rank *r = &s->ranks[key];
    dtpi_verdict v;

    if (r->gen >= MAX_GENS)
        WRONG("rank %d: still no peace: %s", (int)key, r->verdict[MAX_GENS - 1].text);
    r->verdict[r->gen].is_told = true;
    assert_true(dtpi_verdict_read(f, n_ranks(s), &v, r->verdict[r->gen].failed));
    r->verdict[r->gen].n = v.n_failed;
    r->verdict[r->gen].status = v.status;
    memcpy(r->verdict[r->gen].text, v.text, sizeof(v.text));
    r->verdict[r->gen].at_ns = dtpi_loop_now(s->loop);
    if (s->reforms && r->welcomed)
        dtpi_loop_at(s->loop, in_us(s, 3000), rank_calls, s, key);
}

static void take_formed(struct sim *s, uint64_t key, const dtpi_frame *f)
{
    struct rank *r = &s->ranks[key];
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(&dtpi_malloc_allocator);
    dtp_status status;
    dtpi_rd new;

    assert_true(dtpi_formed_read(f, n_ranks(s), &status, r->text, sizeof(r->text), &list, &new));
    assert_int_equal(f->seq, r->round);
    if (status < 0) {
        r->round++;
        return;
    }
    assert_true(r->calls);
    r->calls = false;
    r->round = 0;
    r->gen++;
    r->n_members = (uint32_t)(list.len / sizeof(int32_t));
    memcpy(r->members, list.data, list.len);
}

static void rank_message(void *user, uint64_t key, const uint8_t *data, size_t bytes)
{
    struct sim *s = user;
    struct rank *r = &s->ranks[key];
    dtpi_frame f;

    assert_true(dtpi_frame_read(data, bytes, &f));
    if (r->dead || f.generation != r->gen)
        return;
    if (f.type == DTPI_F_VERDICT)
        take_verdict(s, key, &f);
    else if (f.type == DTPI_F_FORMED)
        take_formed(s, key, &f);
    else if (f.type == DTPI_F_REFUSE)
        r->refused = true;
}

static void rank_closed(void *user, uint64_t key)
{
    (void)user;
    (void)key;
}

static void rank_joins(void *user, uint64_t key)
{
    struct sim *s = user;
    struct rank *r = &s->ranks[key];
    struct agent *a = &s->agents[key / s->per_agent];
    const uint32_t slot = (uint32_t)(key % s->per_agent);
    const dtpi_loop_side sides[2] = {
        { .message = local_message, .closed = local_closed, .user = a, .key = slot },
        { .message = rank_message, .closed = rank_closed, .user = s, .key = key },
    };

    if (a->dead || r->stays_away || r->dead)
        return;
    r->chan = dtpi_loop_connect(s->loop, sides);
    a->locals[slot] = r->chan;
    dtpi_core_local_open(a->core, slot, (int32_t)key, 1000 + (int32_t)key, dtpi_loop_now(s->loop));
    rank_send(s, (uint32_t)key, DTPI_F_JOIN, 1, 0);
}

static void rank_dies(void *user, uint64_t key)
{
    struct sim *s = user;
    struct rank *r = &s->ranks[key];

    r->dead = true;
    if (r->chan)
        dtpi_loop_kill(r->chan, 1);
}

/* A machine stops: its agent and ranks are gone; connections end at the other sides. */
static void node_dies(void *user, uint64_t key)
{
    struct sim *s = user;
    struct agent *a = &s->agents[key];

    a->dead = true;
    for (uint32_t i = 0; i < s->per_agent; i++) {
        s->ranks[key * s->per_agent + i].dead = true;
        if (a->locals[i]) {
            dtpi_loop_kill(a->locals[i], 0);
            dtpi_loop_kill(a->locals[i], 1);
        }
    }
    if (a->parent)
        dtpi_loop_kill(a->parent, 1);
    for (uint32_t i = 0; i < a->n_children; i++)
        dtpi_loop_kill(a->children[i], 0);
}

/* Silent: connections stay open. */
static void node_stops(void *user, uint64_t key)
{
    struct sim *s = user;

    s->agents[key].dead = true;
    for (uint32_t i = 0; i < s->per_agent; i++)
        s->ranks[key * s->per_agent + i].dead = true;
}

/* ---- the whole ---- */

static void sim_open(struct sim *s, uint32_t n_agents, uint32_t per_agent, uint32_t radix,
                     uint64_t *seed, bool reforms)
{
    const dtpi_loop_opts lo = { .seed = check_random(seed), .latency_ns = 25000, .jitter_ns = 20000 };

    assert_true(n_agents <= MAX_AGENTS && per_agent <= 8 && n_agents * per_agent <= MAX_RANKS);
    *s = (struct sim){ .n_agents = n_agents, .per_agent = per_agent, .radix = radix, .seed = seed,
                       .reforms = reforms };
    s->loop = dtpi_loop_new(&dtpi_malloc_allocator, &lo);
    s->agents = calloc(n_agents, sizeof(*s->agents));
    s->ranks = calloc(n_agents * per_agent, sizeof(*s->ranks));
    for (uint32_t i = 0; i < n_agents; i++) {
        char host[16], addresses[16];
        snprintf(host, sizeof(host), "n%u", i);
        snprintf(addresses, sizeof(addresses), "n%u:1", i);
        const dtpi_core_opts o = { .a = &dtpi_malloc_allocator, .world_size = n_agents * per_agent,
                                   .n_local = per_agent, .is_root = i == 0, .host = host,
                                   .node_id = NODE_0 + i, .host_rank = -1,
                                   .join_timeout_ns = 500 * DTPI_NS_PER_MS };
        s->agents[i].sim = s;
        s->agents[i].index = i;
        assert_ok(dtpi_core_new(&o, &ops, &s->agents[i], &s->agents[i].core, ERR));
        dtpi_core_set_addresses(s->agents[i].core, addresses);
        after(&s->agents[i]);
        if (i > 0)
            dtpi_loop_at(s->loop, in_us(s, 3000), agents_meet, s, i);
    }
    for (uint32_t i = 0; i < n_ranks(s); i++) {
        s->ranks[i].gen = 1;
        dtpi_loop_at(s->loop, in_us(s, 5000), rank_joins, s, i);
    }
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

/* Of each generation every survivor was told the same set, and only of ranks that died. */
static void check_same(const struct sim *s)
{
    for (uint32_t gen = 1; gen < MAX_GENS; gen++) {
        const struct rank *first = NULL;
        for (uint32_t i = 0; i < n_ranks(s); i++) {
            const struct rank *r = &s->ranks[i];
            if (r->dead || !r->verdict[gen].is_told)
                continue;
            if (!first)
                first = r;
            if (r->verdict[gen].n != first->verdict[gen].n ||
                memcmp(r->verdict[gen].failed, first->verdict[gen].failed,
                       first->verdict[gen].n * sizeof(int32_t)) != 0)
                WRONG("generation %u: rank %u was told '%s', rank %d '%s'", gen, i,
                         r->verdict[gen].text, (int)(first - s->ranks), first->verdict[gen].text);
            for (uint32_t k = 0; k < r->verdict[gen].n; k++)
                if (!s->ranks[r->verdict[gen].failed[k]].dead)
                    WRONG("generation %u: rank %d lives, but: %s", gen, r->verdict[gen].failed[k],
                             r->verdict[gen].text);
        }
    }
}

/* All that live are in the same generation, and nobody else is. */
static void check_together(const struct sim *s)
{
    const struct rank *first = NULL;

    for (uint32_t i = 0; i < n_ranks(s); i++) {
        const struct rank *r = &s->ranks[i];
        if (r->dead)
            continue;
        if (!first)
            first = r;
        if (r->refused || r->gen != first->gen || r->verdict[r->gen].is_told)
            WRONG("rank %u is in generation %u (rank %d in %u), %s", i, r->gen,
                     (int)(first - s->ranks), first->gen,
                     r->verdict[r->gen].is_told ? r->verdict[r->gen].text : r->text);
        uint32_t n = 0;
        for (uint32_t k = 0; k < n_ranks(s); k++)
            if (!s->ranks[k].dead) {
                if (r->gen > 1 && (n >= r->n_members || r->members[n] != (int32_t)k))
                    WRONG("rank %u does not know rank %u in generation %u: that is in %u, %s", i, k, r->gen,
                          s->ranks[k].gen, s->ranks[k].refused ? "refused" : s->ranks[k].text);
                n++;
            }
        if (r->gen > 1 && n != r->n_members)
            WRONG("rank %u: generation %u has %u members, %u live", i, r->gen, r->n_members, n);
    }
}

static uint32_t n_nodes_alive(const struct sim *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_agents; i++)
        n += !s->agents[i].dead;
    return n;
}

static void test_survivors_of_any_deaths_go_on_together(void **state)
{
    uint64_t seed = check_seed();

    (void)state;
    for (int run = 0; run < (check_is_long() ? 10000 : 250); run++) {
        uint64_t rng = own_seed(&seed);
        const uint32_t n_agents = 1 + (uint32_t)(check_random(&rng) % 24);
        struct sim s;
        sim_open(&s, n_agents, 1 + (uint32_t)(check_random(&rng) % 4), 2 + (uint32_t)(check_random(&rng) % 4),
                 &rng, true);
        sim_run(&s, 60);
        assert_true(s.ranks[0].welcomed);
        /* Over 30 ms: in calls, while it is judged, and while the group is re-formed. */
        const uint32_t n_dead = 1 + (uint32_t)(check_random(&rng) % 4);
        for (uint32_t i = 0; i < n_dead; i++) {
            const uint64_t agent = check_random(&rng) % n_agents;
            if (agent > 0 && 2 * (i + 1) < n_agents && check_random(&rng) % 2)
                dtpi_loop_at(s.loop, in_us(&s, 30000), node_dies, &s, agent);
            else if (n_ranks(&s) > n_dead)
                dtpi_loop_at(s.loop, in_us(&s, 30000), rank_dies, &s, check_random(&rng) % n_ranks(&s));
        }
        sim_run(&s, 5000);
        check_same(&s);
        if (2 * n_nodes_alive(&s) >= n_agents)
            check_together(&s);
        sim_close(&s);
    }
}

static void test_deaths_while_joining_are_the_same_set_on_all(void **state)
{
    uint64_t seed = check_seed();

    (void)state;
    for (int run = 0; run < (check_is_long() ? 10000 : 150); run++) {
        uint64_t rng = own_seed(&seed);
        const uint32_t n_agents = 1 + (uint32_t)(check_random(&rng) % 24);
        struct sim s;
        sim_open(&s, n_agents, 1 + (uint32_t)(check_random(&rng) % 4), 2 + (uint32_t)(check_random(&rng) % 4),
                 &rng, false);
        for (uint32_t i = 0; i < 3; i++) {
            const uint64_t what = check_random(&rng) % 3;
            const uint64_t rank = check_random(&rng) % n_ranks(&s), agent = check_random(&rng) % n_agents;
            if (what == 0)
                s.ranks[rank].stays_away = s.ranks[rank].dead = true;
            else if (what == 1)
                dtpi_loop_at(s.loop, in_us(&s, 6000), rank_dies, &s, rank);
            else if (agent > 0)
                dtpi_loop_at(s.loop, in_us(&s, 6000), node_dies, &s, agent);
        }
        sim_run(&s, 750);
        check_same(&s);
        for (uint32_t i = 0; i < n_ranks(&s); i++) {
            const struct rank *r = &s.ranks[i];
            if (!r->dead && !r->verdict[1].is_told && !r->welcomed && !r->refused)
                WRONG("rank %u was told nothing", i);
        }
        sim_close(&s);
    }
}

static void test_a_standby_judges_when_the_root_dies(void **state)
{
    uint64_t seed = check_seed();

    (void)state;
    for (int run = 0; run < (check_is_long() ? 2000 : 40); run++) {
        uint64_t rng = own_seed(&seed);
        const uint32_t n_agents = 5 + (uint32_t)(check_random(&rng) % 20);
        struct sim s;
        sim_open(&s, n_agents, 1 + (uint32_t)(check_random(&rng) % 4), 2 + (uint32_t)(check_random(&rng) % 4),
                 &rng, true);
        sim_run(&s, 60);
        dtpi_loop_at(s.loop, in_us(&s, 20000), node_dies, &s, 0);
        if (run % 2)
            dtpi_loop_at(s.loop, in_us(&s, 20000), rank_dies, &s, check_random(&rng) % n_ranks(&s));
        sim_run(&s, 5000);
        check_same(&s);
        check_together(&s);
        sim_close(&s);
    }
}

static void test_a_silent_interior_node_is_lost_alone(void **state)
{
    uint64_t seed = check_seed();
    struct sim s;

    (void)state;
    sim_open(&s, 20, 2, 3, &seed, false);
    sim_run(&s, 1700);
    const int64_t at = dtpi_loop_now(s.loop);
    node_stops(&s, 2);
    sim_run(&s, 6000);
    check_same(&s);
    for (uint32_t i = 0; i < 40; i++)
        if (!s.ranks[i].dead) {
            assert_true(s.ranks[i].verdict[1].is_told);
            assert_int_equal(s.ranks[i].verdict[1].n, 2);
            assert_true(s.ranks[i].verdict[1].at_ns - at <= 4100 * DTPI_NS_PER_MS);
        }
    sim_close(&s);
}

static void test_a_failure_is_told_in_the_numbers_of_its_generation(void **state)
{
    uint64_t seed = check_seed();
    struct sim s;

    (void)state;
    sim_open(&s, 3, 2, 2, &seed, true);
    sim_run(&s, 60);
    rank_dies(&s, 3);
    sim_run(&s, 100);
    assert_int_equal(s.ranks[0].gen, 2);
    dtpi_core_rank_failed(s.agents[2].core, 5, 77, "no memory", dtpi_loop_now(s.loop));
    after(&s.agents[2]);
    rank_dies(&s, 5);
    sim_run(&s, 100);
    check_together(&s);
    assert_string_equal(s.ranks[0].verdict[2].text, "rank 4 of 5 (node n2, pid 77) failed: no memory");
    sim_close(&s);
}

static void test_ranks_whose_agents_do_not_come_back_are_named(void **state)
{
    uint64_t seed = check_seed();
    struct sim s;

    (void)state;
    sim_open(&s, 4, 2, 1, &seed, true);
    sim_run(&s, 60);
    rank_dies(&s, 4);
    rank_dies(&s, 5);
    sim_run(&s, 100);
    assert_int_equal(s.ranks[0].gen, 2);
    /* Nobody of its own node dies with node 2, which led to node 3. */
    node_stops(&s, 2);
    node_stops(&s, 3);
    sim_run(&s, 6000);
    check_same(&s);
    assert_string_equal(s.ranks[0].verdict[2].text, "ranks 4-5 of 6 died");
    sim_close(&s);
}

static void test_messages_of_an_old_generation_are_refused(void **state)
{
    uint64_t seed = check_seed();
    struct sim s;

    (void)state;
    sim_open(&s, 3, 2, 2, &seed, true);
    sim_run(&s, 60);
    rank_dies(&s, 3);
    sim_run(&s, 100);
    check_together(&s);
    assert_int_equal(s.ranks[0].gen, 2);
    for (uint8_t type = 1; type < DTPI_F_END; type++)
        for (int who = 0; who < 3; who++) {
            struct agent *a = &s.agents[who == 2];
            const uint64_t stale = dtpi_core_n_stale(a->core), sent = dtpi_core_n_sent(a->core);
            dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
            const dtpi_frame f = { .type = type, .generation = 1, .seq = 1, .group = DTPI_WORLD_ID,
                                   .rank = 0 };
            dtpi_frame_begin(&b, &f);
            dtpi_up_write(&b, DTPI_KIND_BARRIER, 0, 0, NULL, 0);
            const dtpi_in in = { .data = b.data, .bytes = b.len };
            if (who == 0)
                dtpi_core_local_msg(a->core, 0, &in, dtpi_loop_now(s.loop));
            else if (who == 1)
                dtpi_core_child_msg(a->core, 0, &in, dtpi_loop_now(s.loop));
            else
                dtpi_core_parent_msg(a->core, &in, dtpi_loop_now(s.loop));
            if (dtpi_core_n_stale(a->core) != stale + 1 ||
                (type != DTPI_F_ATTACH && dtpi_core_n_sent(a->core) != sent))
                WRONG("type %u from %d was acted on", type, who);
            dtpi_buf_free(&b);
        }
    sim_run(&s, 100);
    check_together(&s);
    sim_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_of_an_old_generation_are_refused),
        cmocka_unit_test(test_ranks_whose_agents_do_not_come_back_are_named),
        cmocka_unit_test(test_a_failure_is_told_in_the_numbers_of_its_generation),
        cmocka_unit_test(test_survivors_of_any_deaths_go_on_together),
        cmocka_unit_test(test_deaths_while_joining_are_the_same_set_on_all),
        cmocka_unit_test(test_a_standby_judges_when_the_root_dies),
        cmocka_unit_test(test_a_silent_interior_node_is_lost_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
