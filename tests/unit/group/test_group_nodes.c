/* SPDX-License-Identifier: Apache-2.0 */
/* Several nodes on one host: an agent process each, the root's listener on 127.0.0.1. */
#include "unit/group/nodes.h"

static void test_calls_work_across_nodes(void **state)
{
    static const char *const layouts[] = { "22", "31", "13", "1222" };

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct nodes w = nodes_of(layouts[i], all_calls);
        run_nodes(&w, -1);
    }
}

static void test_insecure_groups_work_across_nodes_when_all_agree(void **state)
{
    struct nodes w = nodes_of("22", all_calls);

    (void)state;
    w.insecure = true;
    run_nodes(&w, -1);
}

static void test_calls_work_encrypted(void **state)
{
    struct nodes w = nodes_of("122", all_calls);

    (void)state;
    w.encrypt = true;
    run_nodes(&w, -1);
}

static void big_pieces(const struct nodes *w, int rank, dtp_group *g)
{
    const size_t piece = DTP_GROUP_MAX_MSG / (size_t)w->n_ranks;
    uint8_t *mine = malloc(piece);
    dtp_op *ops[8];

    memset(mine, rank + 1, piece);
    for (int i = 0; i < 8; i++)
        RANK_OK(dtpi_group_allgather_start(g, DTPI_LANE_CKPT, mine, piece, INT64_MAX, &ops[i], ERR));
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    for (int i = 0; i < 8; i++) {
        RANK_OK(dtp_op_wait(ops[i], 10000, ERR));
        const dtpi_gathered *all = dtpi_group_gathered(ops[i]);
        for (int r = 0; r < w->n_ranks; r++)
            RANK_CHECK(all->data[piece * (size_t)r] == r + 1);
        dtp_op_free(ops[i]);
    }
    free(mine);
}

static void test_large_messages_cross_nodes(void **state)
{
    struct nodes w = nodes_of("31", big_pieces);

    (void)state;
    run_nodes(&w, -1);
}

/* ---- bulk data ---- */

static void finish(dtp_group *g, dtpi_xfer *x, int n)
{
    for (int i = 0; i < n; i++)
        while (!x[i].done)
            if (!dtpi_group_data_progress(g))
                RANK_CHECK(dtp_ctx_dispatch(dtpi_group_ctx(g), 0, ERR) >= 0);
}

static void exchange(const struct nodes *w, dtp_group *g, size_t bytes)
{
    const int rank = dtp_group_rank(g), n = dtp_group_size(g);
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    uint8_t *out = malloc(bytes + 1), *in = malloc(bytes + 1);
    dtpi_xfer x[2] = { 0 };

    memset(out, rank + 1, bytes);
    memset(in, 0, bytes);
    RANK_OK(dtpi_group_recv(g, before, 7, in, bytes, &x[0], ERR));
    RANK_OK(dtpi_group_send(g, next, 7, out, bytes, &x[1], ERR));
    finish(g, x, 2);
    RANK_CHECK(x[0].status == DTP_OK && x[1].status == DTP_OK);
    for (size_t i = 0; i < bytes; i++)
        RANK_CHECK(in[i] == before + 1);
    free(out);
    free(in);
    (void)w;
}

static void moves_data(const struct nodes *w, int rank, dtp_group *g)
{
    static const size_t sizes[] = { 0, 1, 1000, 65536, 3 << 20 };
    const int n = w->n_ranks;
    dtpi_xfer x = { 0 };
    uint64_t n_keys = 1;
    dtp_group *sub;
    char lane[64], word[8] = "";

    RANK_OK(dtpi_group_data_open(g, INT64_MAX, ERR));
    RANK_OK(dtpi_group_data_open(g, INT64_MAX, ERR));
    for (size_t i = 0; i < 5; i++)
        exchange(w, g, sizes[i]);
    dtpi_group_data_lane(g, (rank + 1) % n, lane, sizeof(lane));
    RANK_CHECK(strcmp(lane, "tcp/lo") == 0);
    dtpi_group_data_lane(g, rank, lane, sizeof(lane));
    RANK_CHECK(lane[0] == '\0');
    /* The addresses that were asked for are no keys of the user's. */
    RANK_OK(dtp_group_n_keys(g, &n_keys, 0, ERR));
    RANK_CHECK(n_keys == 0);
    /* Another group, the same tags. */
    RANK_OK(dtp_group_split(g, 0, n - rank, 0, &sub, ERR));
    RANK_OK(dtpi_group_data_open(sub, INT64_MAX, ERR));
    exchange(w, sub, 100);
    exchange(w, g, 100);
    dtp_group_close(sub);
    /* Sizes that differ. */
    if (rank == 0)
        RANK_OK(dtpi_group_send(g, n - 1, 9, word, 5, &x, ERR));
    if (rank == n - 1)
        RANK_OK(dtpi_group_recv(g, 0, 9, word, 8, &x, ERR));
    if (rank == 0 || rank == n - 1)
        finish(g, &x, 1);
    RANK_CHECK(rank != n - 1 || x.status == DTP_ERR_PROTO);
    RANK_OK(dtp_group_barrier(g, 0, ERR));
}

static void skip_without_ucx(void)
{
    char path[1100];

    snprintf(path, sizeof(path), "%s/net-ucx.so", check_module_dir());
    if (access(path, R_OK) < 0) {
        print_message("skipped: UCX is not built in\n");
        skip();
    }
}

static void test_bulk_data_moves_over_ucx(void **state)
{
    struct nodes w = nodes_of("22", moves_data);

    (void)state;
    skip_without_ucx();
    run_nodes(&w, -1);
}

static void test_control_over_ucx_does_the_same(void **state)
{
    static const char *const layouts[] = { "22", "1222" };

    (void)state;
    skip_without_ucx();
    for (size_t i = 0; i < 2; i++) {
        struct nodes w = nodes_of(layouts[i], all_calls);
        w.net = "ucx";
        w.encrypt = i > 0;
        run_nodes(&w, -1);
    }
    struct nodes w = nodes_of("31", big_pieces);
    w.net = "ucx";
    run_nodes(&w, -1);
}

static void dies_in_a_transfer(const struct nodes *w, int rank, dtp_group *g)
{
    static uint8_t data[1 << 20];
    dtpi_xfer x[2] = { 0 };

    RANK_OK(dtpi_group_data_open(g, INT64_MAX, ERR));
    exchange(w, g, 1000);
    if (rank != w->victim)
        RANK_OK(dtpi_group_recv(g, w->victim, 1, data, sizeof(data), &x[0], ERR));
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (rank == w->victim)
        kill(getpid(), SIGKILL);
    if (dtpi_group_send(g, w->victim, 1, data, sizeof(data), &x[1], NULL) < 0)
        x[1].done = true;
    finish(g, x, 2);
    RANK_CHECK(x[0].status < 0);
    RANK_STATUS(DTP_ERR_PEER, dtpi_group_verdict(g, ERR));
    RANK_CHECK(check_err.rank == w->victim);
}

static void test_a_death_ends_transfers(void **state)
{
    struct nodes w = nodes_of("22", dies_in_a_transfer);

    (void)state;
    skip_without_ucx();
    w.victim = 1;
    run_nodes(&w, w.n_nodes + 1);
}

/* ---- failures ---- */

static void late_on_another_node(const struct nodes *w, int rank, dtp_group *g)
{
    size_t bytes;
    void *data;

    if (rank == 3) {
        RANK_OK(dtp_group_lookup(g, "given up", &data, &bytes, 0, ERR));
        dtp_group_free(data);
        RANK_STATUS(DTP_ERR_TIMEOUT, dtp_group_barrier(g, 0, ERR));
        RANK_TEXT("barrier 1: rank 3 of 4 did not come in time");
    } else {
        RANK_STATUS(DTP_ERR_TIMEOUT, dtp_group_barrier(g, 100, ERR));
        RANK_TEXT("barrier 1: rank 3 of 4 did not come in time");
        if (rank == 0)
            RANK_OK(dtp_group_set(g, "given up", "", 0, 0, ERR));
    }
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    (void)w;
}

static void test_deadline_names_a_late_rank_of_another_node(void **state)
{
    struct nodes w = nodes_of("22", late_on_another_node);

    (void)state;
    run_nodes(&w, -1);
}

static void roots_node_leaves(const struct nodes *w, int rank, dtp_group *g)
{
    void *data;

    /* Enough for control to go over to UCX, where it does. */
    for (int i = 0; i < 5; i++)
        RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (rank < w->first[1])
        return;
    RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
    RANK_TEXT("of 4 has left the group");
    /* Until the root's agent is gone, too, and after that. */
    RANK_CHECK(dtp_group_lookup(g, "never set", &data, NULL, 100, ERR) < 0);
    RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
    RANK_TEXT("of 4 has left the group");
    RANK_CHECK(dtp_group_failed(g, NULL, 0) == 0);
}

static void test_calls_name_who_left_when_the_roots_node_is_gone(void **state)
{
    struct nodes w = nodes_of("22", roots_node_leaves);

    (void)state;
    run_nodes(&w, -1);
}

static void test_the_same_where_control_goes_over_ucx(void **state)
{
    (void)state;
    skip_without_ucx();
    for (int i = 0; i < 2; i++) {
        struct nodes w = nodes_of("22", roots_node_leaves);
        w.net = "ucx";
        run_nodes(&w, -1);
    }
}

static void see_death(const struct nodes *w, int rank, dtp_group *g)
{
    char text[64];

    RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (rank == w->victim) {
        usleep(20000);
        w->at_ns[0] = ranks_now_ns();
        kill(getpid(), SIGKILL);
    }
    RANK_STATUS(DTP_ERR_PEER, dtp_group_barrier(g, 0, ERR));
    w->at_ns[1 + rank] = ranks_now_ns();
    snprintf(text, sizeof(text), "rank %d of %d (node ", w->victim, w->n_ranks);
    RANK_TEXT(text);
    RANK_CHECK(check_err.rank == w->victim);
}

static void test_death_is_named_on_all_nodes(void **state)
{
    (void)state;
    for (int victim = 0; victim < 4; victim += 3) {
        struct nodes w = nodes_of("22", see_death);
        w.victim = victim;
        run_nodes(&w, w.n_nodes + victim);
    }
}

static void wait_for_agent_death(const struct nodes *w, int rank, dtp_group *g)
{
    int32_t failed[8];
    size_t bytes;
    void *data;

    __atomic_fetch_add(&w->at_ns[0], 1, __ATOMIC_RELEASE);
    RANK_STATUS(DTP_ERR_PEER, dtp_group_lookup(g, "never set", &data, &bytes, 0, ERR));
    RANK_TEXT("agent of node");
    const size_t n = dtp_group_failed(g, failed, 8);
    const int lost = w->victim;
    RANK_CHECK((int)n == w->first[lost + 1] - w->first[lost]);
    RANK_CHECK(failed[0] == w->first[lost]);
    (void)rank;
}

static void test_an_agent_that_dies_takes_its_node_with_it(void **state)
{
    (void)state;
    for (int node = 0; node < 2; node++) {
        struct nodes w = nodes_of("22", wait_for_agent_death);
        w.victim = node;
        run_nodes(&w, node);
    }
}

static void nothing(const struct nodes *w, int rank, dtp_group *g)
{
    (void)w;
    (void)rank;
    (void)g;
}

static void child_but_missing(int i, int n, void *user)
{
    const struct nodes *w = user;

    (void)n;
    /* The last rank of each node never comes. */
    for (int node = 0; node < w->n_nodes; node++)
        if (i - w->n_nodes == w->first[node + 1] - 1)
            return;
    child(i, n, user);
}

static void test_missing_ranks_of_several_nodes_are_named_to_all(void **state)
{
    struct nodes w = nodes_of("323", nothing);
    pid_t pids[RANKS_MAX];
    int status[RANKS_MAX];
    const int n = w.n_nodes + w.n_ranks;

    (void)state;
    w.timeout_ms = 800;
    w.want = DTP_ERR_PEER;
    w.text = "ranks 2, 4, 7 of 8 (node ";
    ranks_start(n, child_but_missing, &w, pids);
    ranks_wait(n, pids, status);
    for (int i = 0; i < n; i++)
        if (status[i])
            fail_msg("child %d: 0x%x", i, status[i]);
    munmap(w.at_ns, 4096);
}

static void test_a_node_with_another_secret_is_told_and_stays_out(void **state)
{
    struct nodes w = nodes_of("22", nothing);

    (void)state;
    w.odd_node = 1;
    w.timeout_ms = 800;
    w.want = DTP_ERR_PEER;
    w.text = "ranks 2-3 of 4 never joined";
    run_nodes(&w, -1);
}

static void test_nodes_that_contradict_each_other_are_told_to_all(void **state)
{
    struct nodes w = nodes_of("22", nothing);

    (void)state;
    w.odd_encrypts = true;
    w.want = DTP_ERR_INVAL;
    w.text = "says encrypt 1, the agent of node ";
    run_nodes(&w, -1);
    w = nodes_of("22", nothing);
    w.odd_world = 1;
    w.want = DTP_ERR_INVAL;
    w.text = "says world size 5, that of node ";
    run_nodes(&w, -1);
}

/* ---- strangers ---- */

static void stranger(const struct nodes *w, const void *bytes, size_t n, bool waits)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons((uint16_t)atoi(strchr(w->root, ':') + 1)) };
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    char answer[64];

    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0) {
        if (send(fd, bytes, n, MSG_NOSIGNAL) > 0 && waits) {
            const struct timeval tv = { .tv_sec = 2 };
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
            /* No word for strangers: the connection just ends. */
            const ssize_t got = recv(fd, answer, sizeof(answer), 0);
            RANK_CHECK(got == 0 || (got < 0 && errno == ECONNRESET));
        }
    }
    close(fd);
}

static void with_strangers(const struct nodes *w, int rank, dtp_group *g)
{
    static const uint8_t zeros[64];
    /* UCX's public connection magic, little-endian. */
    static const uint8_t ucx[16] = { 0x78, 0x56, 0x34, 0x12, 0xbe, 0xba, 0xfe, 0xca };
    uint8_t junk[300];
    uint64_t seed = 42;

    /* Many that say nothing: more than an agent keeps. */
    for (int i = 0; rank == 2 && i < 400; i++) {
        struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)atoi(strchr(w->root, ':') + 1)) };
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        RANK_CHECK(fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
    }
    for (int i = 0; rank == 1 && i < 100; i++) {
        for (size_t k = 0; k < sizeof(junk); k++)
            junk[k] = (uint8_t)check_random(&seed);
        if (i % 2)
            memcpy(junk, "\x40\0\0\0\x64\x74\x70\x07\1\0\1", 11);   /* begins as a hello does */
        stranger(w, junk, 1 + i * 2, false);
        stranger(w, zeros, sizeof(zeros), i < 3);
        stranger(w, ucx, sizeof(ucx), i < 3);
        stranger(w, "GET / HTTP/1.0\r\n\r\n", 18, i < 3);
        stranger(w, zeros, 3, false);       /* half a length */
    }
    for (int i = 0; i < 20; i++)
        RANK_OK(dtp_group_barrier(g, 0, ERR));
    RANK_CHECK(dtp_group_failed(g, NULL, 0) == 0);
}

static void test_strangers_at_the_root_disturb_nobody(void **state)
{
    struct nodes w = nodes_of("22", with_strangers);

    (void)state;
    run_nodes(&w, -1);
}

/* ---- topology ---- */

static bool has_library(const char *name)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[1024];
    bool found = false;

    while (f && fgets(line, sizeof(line), f))
        found = found || strstr(line, name);
    if (f)
        fclose(f);
    return found;
}

static void ask_topo(const struct nodes *w, int rank, dtp_group *g)
{
    dtp_topo *mine = NULL, *other = NULL;
    uint64_t id = 0, other_id = 0;
    uint64_t n_keys = 1;
    dtp_group *sub;

    const int there = w->n_ranks - 1 - rank;
    RANK_STATUS(DTP_ERR_RANGE, dtp_group_topo(g, w->n_ranks, &mine, NULL, 0, ERR));
    if (dtpi_group_n_nodes(g) > 1) {
        RANK_STATUS(DTP_ERR_NOT_FOUND, dtp_group_topo(g, there, &other, NULL, -1, ERR));
        RANK_TEXT("has asked for its topology");
    }
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    RANK_OK(dtp_group_topo(g, rank, &mine, &id, 0, ERR));
    __atomic_fetch_add(&w->at_ns[102], has_library("topo-hwloc") || !dtp_topo_cpus(mine, 0), __ATOMIC_RELAXED);
    RANK_CHECK(dtp_topo_cpus(mine, DTP_CPUS_BOUND) != NULL);
    /* From a group of its own too; those nodes are built alike, being one. */
    RANK_OK(dtp_group_split(g, 0, 0, 0, &sub, ERR));
    for (int i = 0; i < 2; i++) {
        RANK_OK(dtp_group_topo(sub, there, &other, &other_id, 0, ERR));
        RANK_CHECK(id == other_id);
        RANK_CHECK(dtp_topo_n_objs(mine) == dtp_topo_n_objs(other));
        dtp_topo_close(other);
    }
    other_id = 0;
    RANK_OK(dtp_group_topo(sub, there, NULL, &other_id, 0, ERR));
    RANK_CHECK(id == other_id);
    RANK_OK(dtp_group_n_keys(g, &n_keys, 0, ERR));
    RANK_CHECK(n_keys == 0);    /* none of the caller's */
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    dtp_topo_close(mine);
    dtp_group_close(sub);
}

static void test_each_node_is_discovered_once(void **state)
{
    static const char *const layouts[] = { "33", "6" };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(layouts); i++) {
        struct nodes w = nodes_of(layouts[i], ask_topo);
        int64_t *at_ns = w.at_ns;
        w.keeps_at = true;
        run_nodes(&w, -1);
        assert_true(at_ns[102] <= w.n_nodes);   /* 0 without hwloc */
        munmap(at_ns, 4096);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_work_across_nodes),
        cmocka_unit_test(test_insecure_groups_work_across_nodes_when_all_agree),
        cmocka_unit_test(test_calls_work_encrypted),
        cmocka_unit_test(test_large_messages_cross_nodes),
        cmocka_unit_test(test_bulk_data_moves_over_ucx),
        cmocka_unit_test(test_control_over_ucx_does_the_same),
        cmocka_unit_test(test_a_death_ends_transfers),
        cmocka_unit_test(test_deadline_names_a_late_rank_of_another_node),
        cmocka_unit_test(test_calls_name_who_left_when_the_roots_node_is_gone),
        cmocka_unit_test(test_the_same_where_control_goes_over_ucx),
        cmocka_unit_test(test_death_is_named_on_all_nodes),
        cmocka_unit_test(test_an_agent_that_dies_takes_its_node_with_it),
        cmocka_unit_test(test_missing_ranks_of_several_nodes_are_named_to_all),
        cmocka_unit_test(test_a_node_with_another_secret_is_told_and_stays_out),
        cmocka_unit_test(test_nodes_that_contradict_each_other_are_told_to_all),
        cmocka_unit_test(test_strangers_at_the_root_disturb_nobody),
        cmocka_unit_test(test_each_node_is_discovered_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
