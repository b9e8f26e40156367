/* SPDX-License-Identifier: Apache-2.0 */
/* The network in a process: streams keep their order, time and processors are spent, ends are told. */
#include "check.h"

#include "net/loop.h"

enum { MAX_HEARD = 256 };

#define US 1000ll

/* What all sides of a test heard, in order. */
struct heard {
    dtpi_loop *loop;
    int n;
    uint64_t key[MAX_HEARD];
    uint8_t first[MAX_HEARD];
    int64_t at_ns[MAX_HEARD];
    int n_closed;
    dtpi_loop_chan *answer;     /* of a dial */
    int n_answers;
    dtpi_loop_chan *reply_on;   /* answer each message there */
    dtpi_loop_side accepts;
};

static void note(struct heard *h, uint64_t key, const uint8_t *data)
{
    assert_in_range(h->n, 0, MAX_HEARD - 1);
    h->key[h->n] = key;
    h->first[h->n] = data[0];
    h->at_ns[h->n++] = dtpi_loop_now(h->loop);
}

static void message(void *user, uint64_t key, const uint8_t *data, size_t bytes)
{
    struct heard *h = user;

    (void)bytes;
    note(h, key, data);
    if (h->reply_on)
        assert_true(dtpi_loop_send(h->reply_on, 1, data, 1));
}

static void closed(void *user, uint64_t key)
{
    struct heard *h = user;

    (void)key;
    h->n_closed++;
}

static dtpi_loop *start(struct heard *h, const dtpi_loop_opts *o)
{
    *h = (struct heard){ .loop = dtpi_loop_new(&dtpi_malloc_allocator, o) };
    assert_non_null(h->loop);
    return h->loop;
}

static dtpi_loop_side side(struct heard *h, uint64_t key, dtpi_loop_proc *p)
{
    return (dtpi_loop_side){ message, closed, h, key, p, NULL };
}

static void send_n(dtpi_loop_chan *c, int from, int n, size_t bytes)
{
    uint8_t data[4096] = { 0 };

    for (int i = 0; i < n; i++) {
        data[0] = (uint8_t)i;
        assert_true(dtpi_loop_send(c, from, data, bytes));
    }
}

static void run(struct heard *h)
{
    const int64_t until = dtpi_loop_now(h->loop) + 10 * DTPI_NS_PER_S;

    while (dtpi_loop_step(h->loop, until))
        continue;
}

static void test_a_stream_keeps_its_order_through_loss_and_jitter(void **state)
{
    const dtpi_loop_opts o = { .seed = 7, .latency_ns = 10 * US, .jitter_ns = 50 * US, .loss_ppm = 200000,
                               .resend_ns = 300 * US };
    struct heard h;

    (void)state;
    dtpi_loop *l = start(&h, &o);
    const dtpi_loop_side sides[2] = { side(&h, 0, NULL), side(&h, 1, NULL) };
    dtpi_loop_chan *c = dtpi_loop_connect(l, sides);
    send_n(c, 0, 100, 1);
    run(&h);
    assert_int_equal(h.n, 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(h.first[i], i);
    assert_in_range(dtpi_loop_get_stats(l)->n_late, 5, 50);
    dtpi_loop_free(l);
}

static void test_streams_overtake_each_other_and_a_seed_repeats_it(void **state)
{
    const dtpi_loop_opts o = { .seed = 3, .latency_ns = 10 * US, .jitter_ns = 100 * US };
    struct heard h[2];
    bool overtook = false;

    (void)state;
    for (int k = 0; k < 2; k++) {
        dtpi_loop *l = start(&h[k], &o);
        for (uint64_t i = 0; i < 20; i++) {
            const dtpi_loop_side sides[2] = { side(&h[k], i, NULL), side(&h[k], i, NULL) };
            send_n(dtpi_loop_connect(l, sides), 0, 1, 1);
        }
        run(&h[k]);
        dtpi_loop_free(l);
    }
    for (int i = 1; i < 20; i++)
        overtook |= h[0].key[i] < h[0].key[i - 1];
    assert_true(overtook);
    assert_memory_equal(h[0].key, h[1].key, sizeof(h[0].key));
    assert_memory_equal(h[0].at_ns, h[1].at_ns, sizeof(h[0].at_ns));
}

static void test_bytes_share_the_ports_of_both_hosts(void **state)
{
    const dtpi_loop_opts o = { .latency_ns = 10 * US, .bytes_per_s = 1000000000 };
    struct heard h;
    dtpi_loop_proc *p[3];

    (void)state;
    dtpi_loop *l = start(&h, &o);
    for (int i = 0; i < 3; i++)
        p[i] = dtpi_loop_proc_new(l, dtpi_loop_host_new(l, 1));
    for (uint64_t i = 1; i < 3; i++) {      /* two senders, one receiver */
        const dtpi_loop_side sides[2] = { side(&h, i, p[i]), side(&h, i, p[0]) };
        send_n(dtpi_loop_connect(l, sides), 0, 2, 1000);
    }
    run(&h);
    assert_int_equal(h.n, 4);
    for (int i = 0; i < 4; i++)             /* a microsecond each through the receiver's port */
        assert_int_equal(h.at_ns[i], 10 * US + (i + 1) * US);
    dtpi_loop_free(l);
}

static void test_a_process_handles_one_message_after_the_other(void **state)
{
    const dtpi_loop_opts o = { .latency_ns = 10 * US, .near_ns = US, .send_cpu_ns = 2 * US,
                               .recv_cpu_ns = 3 * US };
    struct heard h;

    (void)state;
    dtpi_loop *l = start(&h, &o);
    dtpi_loop_host *host = dtpi_loop_host_new(l, 4);
    dtpi_loop_proc *a = dtpi_loop_proc_new(l, host), *b = dtpi_loop_proc_new(l, host);
    const dtpi_loop_side sides[2] = { side(&h, 0, a), side(&h, 1, b) };
    dtpi_loop_chan *c = dtpi_loop_connect(l, sides);
    send_n(c, 0, 3, 1);                     /* from outside: at once */
    run(&h);
    for (int i = 0; i < 3; i++)
        assert_int_equal(h.at_ns[i], US + i * 3 * US);
    assert_int_equal(dtpi_loop_proc_cpu_ns(b), 9 * US);
    const int64_t at = dtpi_loop_now(l);    /* an answer leaves when both costs are spent */
    send_n(c, 0, 1, 1);
    h.reply_on = c;
    assert_true(dtpi_loop_step(l, at + US));
    h.reply_on = NULL;
    run(&h);
    assert_int_equal(h.key[4], 0);
    assert_int_equal(h.at_ns[4], at + US + 5 * US + US);
    dtpi_loop_free(l);
}

static void test_processes_share_the_cores(void **state)
{
    struct heard h;

    (void)state;
    for (uint32_t shared = 0; shared < 2; shared++) {
        const dtpi_loop_opts o = { .recv_cpu_ns = 10 * US, .n_cores = shared ? 2 : 0 };
        dtpi_loop *l = start(&h, &o);
        for (uint64_t i = 0; i < 6; i++) {  /* a host each, with a core each */
            const dtpi_loop_side sides[2] = { side(&h, i, NULL),
                                              side(&h, i, dtpi_loop_proc_new(l, dtpi_loop_host_new(l, 1))) };
            send_n(dtpi_loop_connect(l, sides), 0, 1, 1);
        }
        run(&h);
        for (int i = 0; i < 6; i++)
            assert_int_equal(h.at_ns[i], shared ? i / 2 * 10 * US : 0);
        dtpi_loop_free(l);
    }
}

static void test_an_end_is_told_and_a_cut_is_not(void **state)
{
    const dtpi_loop_opts o = { .latency_ns = 10 * US };
    struct heard h;
    dtpi_loop_proc *p[4];
    dtpi_loop_host *hosts[4];
    dtpi_loop_chan *c[4];

    (void)state;
    dtpi_loop *l = start(&h, &o);
    for (int i = 0; i < 4; i++) {
        hosts[i] = dtpi_loop_host_new(l, 1);
        p[i] = dtpi_loop_proc_new(l, hosts[i]);
        const dtpi_loop_side sides[2] = { side(&h, (uint64_t)i, p[i]), side(&h, 0, p[0]) };
        c[i] = dtpi_loop_connect(l, sides);
    }
    dtpi_loop_proc_kill(p[1]);
    dtpi_loop_host_cut(hosts[2]);
    dtpi_loop_proc_kill(p[2]);
    send_n(c[1], 1, 1, 1);
    send_n(c[2], 1, 1, 1);
    send_n(c[3], 1, 1, 1);
    run(&h);
    assert_int_equal(h.n_closed, 1);
    assert_int_equal(h.n, 1);
    assert_int_equal(h.key[0], 3);
    assert_false(dtpi_loop_proc_is_alive(p[1]));
    dtpi_loop_free(l);
}

static void test_a_stopped_process_hears_later_and_all(void **state)
{
    const dtpi_loop_opts o = { .latency_ns = 10 * US, .recv_cpu_ns = US };
    struct heard h;

    (void)state;
    dtpi_loop *l = start(&h, &o);
    dtpi_loop_proc *p = dtpi_loop_proc_new(l, dtpi_loop_host_new(l, 1));
    const dtpi_loop_side sides[2] = { side(&h, 0, NULL), side(&h, 1, p) };
    dtpi_loop_chan *c = dtpi_loop_connect(l, sides);
    dtpi_loop_proc_stop(p, true);
    send_n(c, 0, 3, 1);
    while (dtpi_loop_step(l, DTPI_NS_PER_S))
        continue;
    assert_int_equal(h.n, 0);
    dtpi_loop_proc_stop(p, false);
    run(&h);
    assert_int_equal(h.n, 3);
    assert_int_equal(h.at_ns[2], DTPI_NS_PER_S + 2 * US);
    dtpi_loop_free(l);
}

static bool accept_it(void *user, dtpi_loop_chan *chan, dtpi_loop_side *side_out)
{
    struct heard *h = user;

    (void)chan;
    *side_out = h->accepts;
    return true;
}

static void answered(void *user, uint64_t key, dtpi_loop_chan *chan)
{
    struct heard *h = user;

    (void)key;
    h->answer = chan;
    h->n_answers++;
}

static void test_a_door_opens_after_a_round_trip_or_refuses(void **state)
{
    const dtpi_loop_opts o = { .latency_ns = 10 * US };
    struct heard h;

    (void)state;
    dtpi_loop *l = start(&h, &o);
    dtpi_loop_proc *a = dtpi_loop_proc_new(l, dtpi_loop_host_new(l, 1));
    dtpi_loop_proc *b = dtpi_loop_proc_new(l, dtpi_loop_host_new(l, 1));
    dtpi_loop_door door = { .proc = b, .user = &h, .accept = accept_it };
    const dtpi_loop_side mine = side(&h, 5, a);
    h.accepts = side(&h, 6, b);
    assert_true(dtpi_loop_dial(l, &door, &mine, answered));
    run(&h);
    assert_non_null(h.answer);
    assert_true(dtpi_loop_send(h.answer, 0, "x", 1));
    run(&h);
    assert_int_equal(h.key[0], 6);
    door.refuses = true;
    assert_true(dtpi_loop_dial(l, &door, &mine, answered));
    run(&h);
    assert_null(h.answer);
    door.refuses = false;
    dtpi_loop_proc_kill(b);
    assert_int_equal(h.n_closed, 0);
    assert_true(dtpi_loop_dial(l, &door, &mine, answered));
    run(&h);
    assert_null(h.answer);
    assert_int_equal(h.n_answers, 3);
    assert_int_equal(h.n_closed, 1);        /* the first channel */
    dtpi_loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stream_keeps_its_order_through_loss_and_jitter),
        cmocka_unit_test(test_streams_overtake_each_other_and_a_seed_repeats_it),
        cmocka_unit_test(test_bytes_share_the_ports_of_both_hosts),
        cmocka_unit_test(test_a_process_handles_one_message_after_the_other),
        cmocka_unit_test(test_processes_share_the_cores),
        cmocka_unit_test(test_an_end_is_told_and_a_cut_is_not),
        cmocka_unit_test(test_a_stopped_process_hears_later_and_all),
        cmocka_unit_test(test_a_door_opens_after_a_round_trip_or_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
