/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a group: the table by itself, and changes asked for by the ranks of a machine. */
#include "unit/group/ranks.h"

#include <pthread.h>

#include "ctx/ctx.h"
#include "failalloc.h"
#include "group/core.h"
#include "group/group_internal.h"
#include "group/keys.h"

/* ---- the table ---- */

static dtpi_change change_of(uint8_t op, const char *key, const char *expected, const char *value)
{
    dtpi_change c = { .op = op, .expected = (const uint8_t *)expected,
                      .n_expected = strlen(expected), .value = (const uint8_t *)value,
                      .n_value = strlen(value) };

    snprintf(c.key, sizeof(c.key), "%s", key);
    return c;
}

static dtp_status add(dtpi_keys *k, const char *key, int64_t delta, int64_t *sum_out)
{
    dtpi_change c = change_of(DTPI_CHANGE_ADD, key, "", "");

    c.delta = delta;
    const dtpi_changed done = dtpi_keys_change(k, &c);
    *sum_out = (int64_t)done.number;
    return done.status;
}

static dtp_status change(dtpi_keys *k, uint8_t op, const char *key, const char *expected,
                         const char *value)
{
    const dtpi_change c = change_of(op, key, expected, value);

    return dtpi_keys_change(k, &c).status;
}

static void check_value(const dtpi_keys *k, const char *key, const char *value)
{
    const dtpi_pair *p = dtpi_keys_find(k, key);

    assert_non_null(p);
    assert_int_equal(p->bytes, strlen(value));
    assert_memory_equal(p->value, value, p->bytes);
}

static void test_a_sum_is_decimal_text_and_its_limits_are_told(void **state)
{
    dtpi_keys k = { .a = &dtpi_malloc_allocator };
    int64_t sum;

    (void)state;
    assert_ok(add(&k, "n", 5, &sum));
    assert_ok(add(&k, "n", -12, &sum));
    assert_int_equal(sum, -7);
    check_value(&k, "n", "-7");
    assert_ok(dtpi_keys_set(&k, "n", "9223372036854775807", 19));
    assert_status(DTP_ERR_RANGE, add(&k, "n", 1, &sum));
    assert_ok(add(&k, "n", INT64_MIN, &sum));
    assert_int_equal(sum, -1);
    static const struct {
        const char *text;
        size_t bytes;
    } wrong[] = { { "", 0 }, { "five", 4 }, { "5 ", 2 }, { "5\0", 2 }, { "9223372036854775808", 19 },
                  { "000000000000000000000000001", 27 } };
    for (size_t i = 0; i < DTPI_ARRAY_LEN(wrong); i++) {
        assert_ok(dtpi_keys_set(&k, "n", wrong[i].text, wrong[i].bytes));
        assert_status(DTP_ERR_FORMAT, add(&k, "n", 1, &sum));
    }
    dtpi_keys_free(&k);
}

static void test_compare_sets_only_what_is_as_expected(void **state)
{
    dtpi_keys k = { .a = &dtpi_malloc_allocator };

    (void)state;
    assert_status(DTP_ERR_NOT_FOUND, change(&k, DTPI_CHANGE_COMPARE, "k", "old", "new"));
    assert_int_equal(k.n, 0);
    assert_ok(change(&k, DTPI_CHANGE_COMPARE, "k", "", "one"));
    assert_ok(change(&k, DTPI_CHANGE_COMPARE, "k", "", "two"));
    check_value(&k, "k", "one");
    assert_ok(change(&k, DTPI_CHANGE_COMPARE, "k", "one", "three"));
    check_value(&k, "k", "three");
    assert_ok(change(&k, DTPI_CHANGE_APPEND, "k", "", " four"));
    check_value(&k, "k", "three four");
    assert_ok(change(&k, DTPI_CHANGE_UNSET, "k", "", ""));
    assert_status(DTP_ERR_NOT_FOUND, change(&k, DTPI_CHANGE_UNSET, "k", "", ""));
    assert_int_equal(k.bytes, 0);
    dtpi_keys_free(&k);
}

static void test_keys_hold_no_more_than_the_limit_and_give_all_back(void **state)
{
    static uint8_t big[DTP_GROUP_MAX_MSG];
    dtpi_keys k = { .a = &dtpi_malloc_allocator };
    char key[32];
    uint64_t n = 0;

    (void)state;
    for (dtp_status st = DTP_OK; st == DTP_OK; n += st == DTP_OK) {
        snprintf(key, sizeof(key), "key %d", (int)n);
        st = dtpi_keys_set(&k, key, big, sizeof(big));
    }
    assert_int_equal(n, DTPI_KEYS_MAX_BYTES / sizeof(big) - 1);
    assert_int_equal(k.n, n);
    assert_status(DTP_ERR_LIMIT, change(&k, DTPI_CHANGE_APPEND, "key 0", "", "more"));
    for (uint64_t i = 0; i < n; i++) {
        snprintf(key, sizeof(key), "key %d", (int)i);
        assert_ok(change(&k, DTPI_CHANGE_UNSET, key, "", ""));
    }
    assert_int_equal(k.bytes, 0);
    dtpi_keys_free(&k);
}

static void test_ten_thousand_keys_are_found_again(void **state)
{
    dtpi_keys k = { .a = &dtpi_malloc_allocator };
    char key[32];

    (void)state;
    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof(key), "store/%d", i);
        assert_ok(dtpi_keys_set(&k, key, key, strlen(key)));
    }
    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof(key), "store/%d", i);
        check_value(&k, key, key);
    }
    assert_null(dtpi_keys_find(&k, "store/10000"));
    assert_int_equal(k.n, 10000);
    dtpi_keys_free(&k);
}

static void test_malformed_changes_are_refused(void **state)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_change c = change_of(DTPI_CHANGE_COMPARE, "key", "old", "new");
    dtpi_change got;

    (void)state;
    dtpi_change_write(&b, &c);
    for (size_t n = 0; n <= b.len; n++) {
        dtpi_rd r = dtpi_rd_init(b.data, n);
        assert_int_equal(dtpi_change_read(&r, &got), n == b.len);
    }
    assert_int_equal(got.op, c.op);
    assert_string_equal(got.key, "key");
    b.data[0] = DTPI_CHANGE_COUNT;      /* counts, but of a key */
    dtpi_rd r = dtpi_rd_init(b.data, b.len);
    assert_false(dtpi_change_read(&r, &got));
    dtpi_buf_free(&b);
}

static void test_keys_without_memory_change_nothing_and_leak_nothing(void **state)
{
    (void)state;
    FOR_EACH_FAILURE(f) {
        dtpi_keys k = { .a = failalloc_of(&f) };
        char key[16];
        for (int i = 0; i < 40 && !f.has_failed; i++) {
            snprintf(key, sizeof(key), "%d", i);
            const uint64_t n = k.n;
            const dtp_status st = change(&k, DTPI_CHANGE_APPEND, key, "", "value");
            assert_true(st == DTP_OK || (st == DTP_ERR_NOMEM && k.n == n && !dtpi_keys_find(&k, key)));
        }
        dtpi_keys_free(&k);
    }
}

/* ---- the agent that keeps it ---- */

struct answers {
    int n;
    dtp_status status;
    uint64_t number;
};

static void to_local(void *user, uint32_t slot, dtpi_msg *msg)
{
    struct answers *a = user;
    dtpi_frame f;
    size_t bytes;

    (void)slot;
    if (!dtpi_frame_read(msg->buf.data, msg->buf.len, &f) || f.type != DTPI_F_VALUE)
        return;
    dtpi_rd r = dtpi_rd_init(f.body, f.bytes);
    a->n++;
    a->status = (dtp_status)dtpi_rd_u32(&r);
    const uint8_t *value = dtpi_rd_block(&r, DTP_GROUP_MAX_MSG, &bytes);
    r = dtpi_rd_init(value, bytes);
    a->number = dtpi_rd_u64(&r);
}

static void to_child(void *user, uint32_t slot, dtpi_msg *msg)
{
    (void)user, (void)slot, (void)msg;
}

static void to_parent(void *user, dtpi_msg *msg)
{
    (void)user, (void)msg;
}

static void on_table(void *user)
{
    (void)user;
}

static void on_verdict(void *user, const dtpi_verdict *v)
{
    (void)user, (void)v;
}

static void drop(void *user, uint32_t slot)
{
    (void)user, (void)slot;
}

static void send_frame(dtpi_core *core, uint8_t type, uint32_t seq, const dtpi_change *change)
{
    const dtpi_frame f = { .type = type, .generation = type == DTPI_F_JOIN ? 0 : 1, .seq = seq,
                           .group = DTPI_WORLD_ID };
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    dtpi_frame_begin(&b, &f);
    if (change) {
        dtpi_change_write(&b, change);
    } else {
        dtpi_wr_u32(&b, 1);
        dtpi_wr_u32(&b, 0);
        dtpi_wr_u32(&b, 77);
    }
    const dtpi_in in = { .data = b.data, .bytes = b.len };
    dtpi_core_local_msg(core, 0, &in, 0);
    dtpi_buf_free(&b);
}

static void test_a_change_that_is_asked_for_again_is_answered_again_and_done_once(void **state)
{
    const dtpi_core_ops ops = { to_local, to_child, to_parent, on_table, on_verdict, drop, drop };
    const dtpi_core_opts o = { .a = &dtpi_malloc_allocator, .world_size = 1, .n_local = 1,
                               .is_root = true, .host = "h", .host_rank = -1 };
    dtpi_change c = change_of(DTPI_CHANGE_ADD, "n", "", "");
    struct answers a = { 0 };
    dtpi_core *core;

    (void)state;
    c.delta = 3;
    assert_ok(dtpi_core_new(&o, &ops, &a, &core, ERR));
    dtpi_core_local_open(core, 0, 0, 77, 0);
    send_frame(core, DTPI_F_JOIN, 0, NULL);
    for (int i = 1; i <= 3; i++) {
        send_frame(core, DTPI_F_CHANGE, 5, &c);
        assert_int_equal(a.n, i);
        assert_int_equal(a.status, DTP_OK);
        assert_int_equal(a.number, 3);
    }
    send_frame(core, DTPI_F_CHANGE, 4, &c);
    assert_int_equal(a.n, 3);       /* nobody waits for that any more */
    send_frame(core, DTPI_F_CHANGE, 6, &c);
    assert_int_equal(a.number, 6);
    dtpi_core_free(core);
}

/* ---- asked for by ranks ---- */

static void use_keys(dtp_group *g, int n)
{
    size_t bytes = 0;
    void *value = NULL;
    uint64_t n_keys = 0;
    int64_t sum = 0;
    char mine[16];

    for (int i = 0; i < 50; i++)
        RANK_OK(dtp_group_add(g, "sum", 1, &sum, 0, ERR));
    RANK_CHECK(sum >= 50 && sum <= 50 * n);
    RANK_OK(dtp_group_append(g, "all", "x", 1, 0, ERR));
    snprintf(mine, sizeof(mine), "rank %d", dtp_group_rank(g));
    RANK_OK(dtp_group_compare_set(g, "first", NULL, 0, mine, strlen(mine), &value, &bytes, 0, ERR));
    RANK_CHECK(bytes == strlen(mine) && memcmp(value, "rank ", 5) == 0);
    dtp_group_free(value);
    RANK_STATUS(DTP_ERR_NOT_FOUND,
                dtp_group_compare_set(g, "none", "a", 1, "b", 1, NULL, NULL, 0, ERR));
    RANK_TEXT("key 'none' is not set");
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    RANK_OK(dtp_group_lookup(g, "sum", &value, &bytes, 0, ERR));
    RANK_CHECK(atoi(value) == 50 * n);
    dtp_group_free(value);
    RANK_OK(dtp_group_lookup(g, "all", &value, &bytes, 0, ERR));
    RANK_CHECK(bytes == (size_t)n);
    dtp_group_free(value);
    RANK_OK(dtp_group_n_keys(g, &n_keys, 0, ERR));
    RANK_CHECK(n_keys == 3);
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    const dtp_status st = dtp_group_unset(g, "sum", 0, ERR);
    RANK_CHECK(st == DTP_OK || st == DTP_ERR_NOT_FOUND);
    RANK_STATUS(DTP_ERR_FORMAT, dtp_group_add(g, "all", 1, NULL, 0, ERR));
    RANK_TEXT("key 'all' is not a number");
    RANK_STATUS(DTP_ERR_INVAL, dtp_group_unset(g, "", 0, ERR));
    RANK_STATUS(DTP_ERR_INVAL, dtp_group_add(g, NULL, 1, NULL, 0, ERR));
    RANK_OK(dtp_group_barrier(g, 0, ERR));
}

static void rank_keys(int rank, int n, void *user)
{
    dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = n, .job = user,
                         .insecure = 1, .timeout_ms = 10000 };
    dtp_group *g;
    dtp_ctx *ctx;

    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_group_join(ctx, &o, &g, ERR));
    use_keys(g, n);
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void test_changes_are_one_step_for_all_ranks(void **state)
{
    (void)state;
    ranks_run(6, rank_keys, (void *)(uintptr_t)ranks_job());
}

static void test_a_group_of_one_changes_its_own_keys(void **state)
{
    dtp_group *g;
    dtp_ctx *ctx;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtp_group_join(ctx, NULL, &g, ERR));
    use_keys(g, 1);
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

/* ---- several threads of a rank ---- */

struct reader {
    dtp_group *g;
    char key[16];
    char value[16];
    dtp_status status;
    dtp_error err;
};

static void *read_key(void *arg)
{
    struct reader *r = arg;
    void *value = NULL;
    size_t bytes = 0;

    r->status = dtp_group_lookup(r->g, r->key, &value, &bytes, 0, &r->err);
    snprintf(r->value, sizeof(r->value), "%.*s", (int)bytes, value ? (char *)value : "");
    dtp_group_free(value);
    return NULL;
}

static void share(dtp_group *g, int rank)
{
    struct reader r[4] = { { 0 } };
    char key[16];
    pthread_t t[4];

    for (int i = 0; i < 4; i++) {
        r[i].g = g;
        snprintf(r[i].key, sizeof(r[i].key), "%d.%d", rank, i);
        RANK_CHECK(pthread_create(&t[i], NULL, read_key, &r[i]) == 0);
    }
    /* Each key is set by the rank whose own threads wait for it. */
    for (int i = 3; i >= 0; i--) {
        snprintf(key, sizeof(key), "%d.%d", rank, i);
        RANK_OK(dtp_group_set(g, key, key, strlen(key), 0, ERR));
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        RANK_CHECK(r[i].status == DTP_OK);
        RANK_CHECK(strcmp(r[i].value, r[i].key) == 0);
    }
}

static void rank_threads(int rank, int n, void *user)
{
    dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = n, .job = user,
                         .insecure = 1, .timeout_ms = 10000 };
    dtp_group *g;
    dtp_ctx *ctx;

    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_ctx_set_busy(ctx, DTP_BUSY_WAIT, ERR));
    RANK_OK(dtp_group_join(ctx, n > 1 ? &o : NULL, &g, ERR));
    share(g, rank);
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void test_a_thread_sets_the_key_that_another_waits_for(void **state)
{
    (void)state;
    ranks_run(3, rank_threads, (void *)(uintptr_t)ranks_job());
    ranks_run(1, rank_threads, NULL);
}

/* ---- a group that fails while a key is asked for ---- */

struct failure {
    dtp_group *g;
    dtpi_timer timer;
};

static void fail_group(dtpi_timer *t)
{
    struct failure *f = DTPI_CONTAINER(t, struct failure, timer);
    const dtpi_verdict v = { .status = DTP_ERR_LIMIT, .text = "node n0: no descriptors are left" };

    session_fail(f->g->session, &v);
}

static void asks_a_group_that_fails(int rank, int n, void *user)
{
    dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = n, .job = user,
                         .insecure = 1, .timeout_ms = 10000 };
    struct failure f = { .timer = { .due = fail_group } };
    void *value;
    dtp_ctx *ctx;

    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_group_join(ctx, &o, &f.g, ERR));
    RANK_OK(dtpi_timer_set(ctx, &f.timer, dtp_ctx_now_ns(ctx) + DTPI_NS_PER_MS, ERR));
    RANK_STATUS(DTP_ERR_LIMIT, dtp_group_lookup(f.g, "never", &value, NULL, 0, ERR));
    RANK_TEXT("node n0: no descriptors are left");
    dtp_group_close(f.g);
    dtp_ctx_close(ctx);
}

static void test_a_groups_failure_is_not_told_as_a_keys(void **state)
{
    (void)state;
    ranks_run(2, asks_a_group_that_fails, (void *)(uintptr_t)ranks_job());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sum_is_decimal_text_and_its_limits_are_told),
        cmocka_unit_test(test_compare_sets_only_what_is_as_expected),
        cmocka_unit_test(test_keys_hold_no_more_than_the_limit_and_give_all_back),
        cmocka_unit_test(test_ten_thousand_keys_are_found_again),
        cmocka_unit_test(test_malformed_changes_are_refused),
        cmocka_unit_test(test_keys_without_memory_change_nothing_and_leak_nothing),
        cmocka_unit_test(test_a_change_that_is_asked_for_again_is_answered_again_and_done_once),
        cmocka_unit_test(test_changes_are_one_step_for_all_ranks),
        cmocka_unit_test(test_a_group_of_one_changes_its_own_keys),
        cmocka_unit_test(test_a_thread_sets_the_key_that_another_waits_for),
        cmocka_unit_test(test_a_groups_failure_is_not_told_as_a_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
