/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "ranks.h"
#include "reference.h"

#include <time.h>

/* ---- every operation, type, number of members ---- */

typedef struct sweep {
    const size_t *counts;
    size_t n_counts;
    uint64_t seed;
    bool all_ops;
} sweep;

#define FAIL(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), 1)

static int run(dtpi_shm *e, const dtpi_coll_call *c)
{
    dtp_error err = { 0 };

    if (dtpi_shm_run(e, c, 30000, &err) == DTP_OK)
        return 0;
    return FAIL("member %u: %s", e->o.index, err.text);
}

static int check_reduced(dtpi_shm *e, const dtpi_coll_call *c, uint64_t seed, size_t first)
{
    const size_t bytes = dtp_dtype_bytes(c->dtype);

    for (size_t i = 0; i < c->count; i++) {
        uint64_t want = 0;
        ref_expect(c->dtype, c->redop, seed, e->o.n, first + i, &want);
        if (memcmp(&want, (char *)c->out + i * bytes, bytes) != 0)
            return FAIL("kind %d, %u members, member %u: element %zu of %zu %s, op %d differs", c->kind,
                        e->o.n, e->o.index, i, c->count, dtp_dtype_name(c->dtype), c->redop);
    }
    return 0;
}

static void fill(const dtpi_shm *e, dtp_dtype t, uint64_t seed, void *in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ref_input(t, seed, e->o.index, i, (char *)in + i * dtp_dtype_bytes(t));
}

static int check_allreduce(dtpi_shm *e, dtp_dtype t, dtp_redop op, size_t count, uint64_t seed,
                           bool in_place)
{
    const size_t room = count * dtp_dtype_bytes(t) + 64;
    char *in = malloc(room), *out = in_place ? in : malloc(room);
    const dtpi_coll_call c = { DTPI_ALLREDUCE, t, op, 0, count, in, out };

    fill(e, t, seed, in, count);
    const int failed = run(e, &c) || check_reduced(e, &c, seed, 0);
    free(in);
    if (!in_place)
        free(out);
    return failed;
}

static int check_reduce_scatter(dtpi_shm *e, dtp_dtype t, dtp_redop op, size_t count, uint64_t seed,
                                bool in_place)
{
    const size_t bytes = dtp_dtype_bytes(t);
    char *in = malloc(count * bytes * e->o.n + 64), *own = in + e->o.index * count * bytes;
    char *out = in_place ? own : malloc(count * bytes + 64);
    const dtpi_coll_call c = { DTPI_REDUCE_SCATTER, t, op, 0, count, in, out };

    fill(e, t, seed, in, count * e->o.n);
    const int failed = run(e, &c) || check_reduced(e, &c, seed, e->o.index * count);
    free(in);
    if (!in_place)
        free(out);
    return failed;
}

static int check_allgather(dtpi_shm *e, dtp_dtype t, size_t count, uint64_t seed, bool in_place)
{
    const size_t bytes = dtp_dtype_bytes(t) * count;
    char *out = malloc(bytes * e->o.n + 64), *want = malloc(bytes + 64);
    char *in = in_place ? out + e->o.index * bytes : malloc(bytes + 64);
    const dtpi_coll_call c = { DTPI_ALLGATHER, t, DTP_SUM, 0, count, in, out };

    fill(e, t, seed, in, count);
    int failed = run(e, &c);
    for (uint32_t m = 0; m < e->o.n && !failed; m++) {
        for (size_t i = 0; i < count; i++)
            ref_input(t, seed, m, i, want + i * dtp_dtype_bytes(t));
        if (memcmp(want, out + m * bytes, bytes) != 0)
            failed = FAIL("allgather of %zu: block %u differs", count, m);
    }
    if (!in_place)
        free(in);
    free(out);
    free(want);
    return failed;
}

static int check_broadcast(dtpi_shm *e, dtp_dtype t, size_t count, uint64_t seed)
{
    const size_t bytes = dtp_dtype_bytes(t);
    char *data = malloc(count * bytes + 64);
    const uint32_t root = (uint32_t)(seed % e->o.n);
    const dtpi_coll_call c = { DTPI_BROADCAST, t, DTP_SUM, (int32_t)root, count, data, data };
    int failed = 0;

    fill(e, t, seed, data, count);
    failed = run(e, &c);
    for (size_t i = 0; i < count && !failed; i++) {
        uint64_t want = 0;
        ref_input(t, seed, root, i, &want);
        if (memcmp(&want, data + i * bytes, bytes) != 0)
            failed = FAIL("broadcast of %zu: element %zu differs", count, i);
    }
    free(data);
    return failed;
}

static int sweep_rank(dtpi_shm *e, void *user)
{
    const sweep *s = user;
    uint64_t seed = s->seed;
    int failed = 0;

    for (size_t c = 0; c < s->n_counts && !failed; c++)
        for (int t = 0; t < REF_N_TYPES && !failed; t++) {
            for (int o = 0; o < REF_N_OPS && !failed; o++) {
                if (!s->all_ops && (o + t + (int)c) % REF_N_OPS != 0)
                    continue;
                failed = check_allreduce(e, ref_types[t], ref_ops[o], s->counts[c], seed++, o & 1) ||
                         check_reduce_scatter(e, ref_types[t], ref_ops[o], s->counts[c], seed++, o & 1);
            }
            failed = failed || check_allgather(e, ref_types[t], s->counts[c], seed++, c & 1) ||
                     check_broadcast(e, ref_types[t], s->counts[c], seed++);
        }
    return failed;
}

static void run_sweep(uint32_t n, const size_t *counts, size_t n_counts, uint32_t oversubscribed,
                      bool all_ops)
{
    const dtpi_shm_opts o = { .oversubscribed = oversubscribed };
    sweep s = { counts, n_counts, n * 1000, all_ops };

    assert_int_equal(run_ranks(n, &o, sweep_rank, &s), 0);
}

static void test_all_types_and_operations_are_bit_exact(void **state)
{
    static const size_t counts[] = { 0, 1, 9, 331, 1031 };

    for (uint32_t n = 1; n <= 8; n++)
        run_sweep(n, counts, n <= 4 || check_is_long() ? DTPI_ARRAY_LEN(counts) : 3, 0, true);
}

static void test_chunks_and_pipelines_are_bit_exact(void **state)
{
    static const size_t counts[] = { 33333, 100003 };
    const uint32_t top = check_is_long() ? 8 : 3;

    for (uint32_t n = 2; n <= top; n++)
        run_sweep(n, counts, check_is_long() ? 2 : 1, 1 + n % 2, check_is_long());
}

static int large_rank(dtpi_shm *e, void *user)
{
    const size_t count = *(const size_t *)user;

    return check_allreduce(e, DTP_F32, DTP_SUM, count, 5, false) ||
           check_allreduce(e, DTP_BF16, DTP_AVG, count, 6, true) ||
           check_broadcast(e, DTP_U8, count, 4) || check_allgather(e, DTP_F32, count / 2, 8, false);
}

static void test_large_results_that_bypass_the_caches_are_bit_exact(void **state)
{
    size_t count = 1600001;
    const dtpi_shm_opts spread = { .oversubscribed = 2 }, crowded = { .oversubscribed = 1 };

    assert_int_equal(run_ranks(2, &spread, large_rank, &count), 0);
    count = 1573003;
    assert_int_equal(run_ranks(3, &crowded, large_rank, &count), 0);
}

/* How slots are written is each member's own choice, whatever the others chose. */
static int far_rank(dtpi_shm *e, void *user)
{
    const unsigned far = *(const unsigned *)user;
    int failed = 0;

    for (unsigned i = 0; i < 4 && !failed; i++) {
        e->far = far >> e->o.index & 1;
        failed = check_allreduce(e, DTP_F32, DTP_SUM, 300001 + i, i, i & 1) ||
                 check_reduce_scatter(e, DTP_F32, DTP_MAX, 280001 + i, i, false) ||
                 check_broadcast(e, DTP_U8, 1 << 21, i);
    }
    return failed;
}

static void test_slots_written_past_the_caches_are_bit_exact(void **state)
{
    const dtpi_shm_opts spread = { .oversubscribed = 2 }, crowded = { .oversubscribed = 1 };

    for (unsigned far = 1; far < 4; far++)
        assert_int_equal(run_ranks(2, &spread, far_rank, &far), 0);
    unsigned two = 5;
    assert_int_equal(run_ranks(3, &crowded, far_rank, &two), 0);
}

/* Sizes change from call to call, so that chunks of different lengths meet in the rings. */
static int mixed_rank(dtpi_shm *e, void *user)
{
    uint64_t random = *(const uint64_t *)user;
    int failed = 0;

    for (int i = 0; i < 100 && !failed; i++) {
        const size_t count = check_random(&random) % (i % 10 ? 3000 : 70000);
        const uint64_t seed = check_random(&random);
        const unsigned what = (unsigned)(check_random(&random) % 4);
        failed = what == 0   ? check_allreduce(e, DTP_F32, DTP_SUM, count, seed, seed & 1)
                 : what == 1 ? check_reduce_scatter(e, DTP_I32, DTP_MAX, count, seed, seed & 1)
                 : what == 2 ? check_allgather(e, DTP_U8, count, seed, seed & 1)
                             : check_broadcast(e, DTP_F64, count, seed);
    }
    return failed;
}

static void test_calls_of_all_sizes_follow_each_other(void **state)
{
    uint64_t seed = check_seed();

    for (uint32_t n = 2; n <= 4; n++) {
        const dtpi_shm_opts o = { .oversubscribed = n % 3 };
        assert_int_equal(run_ranks(n, &o, mixed_rank, &seed), 0);
    }
}

/* ---- failures ---- */

static int mismatch_rank(dtpi_shm *e, void *user)
{
    static _Thread_local float in[70000], out[70000];
    const dtpi_coll_call good = { DTPI_ALLREDUCE, DTP_F32, DTP_SUM, 0, 100, in, out };
    dtpi_coll_call bad = good;
    dtp_error err;

    for (int round = 0; round < 20; round++) {
        bad.count = e->o.index == 2 ? (size_t)round * 3000 + 5 : 100 + (size_t)round * 2000;
        const dtp_status st = dtpi_shm_run(e, &bad, 30000, &err);
        if (st != DTP_ERR_INVAL || err.rank != 12 || !strstr(err.text, "rank 10 allreduce of") ||
            !strstr(err.text, "rank 12 allreduce of"))
            return FAIL("round %d: %s: %s", round, dtp_status_name(st), err.text);
        if (run(e, &good) || check_allreduce(e, DTP_F32, DTP_SUM, 40000, 3, false))
            return 1;
    }
    return 0;
}

static void test_different_calls_are_named_on_all_and_the_next_works(void **state)
{
    static const int32_t ranks[] = { 10, 11, 12 };
    const dtpi_shm_opts o = { .ranks = ranks };

    assert_int_equal(run_ranks(3, &o, mismatch_rank, NULL), 0);
}

static int late_rank(dtpi_shm *e, void *user)
{
    static _Thread_local float in[64], out[64];
    const dtpi_coll_call c = { DTPI_ALLREDUCE, DTP_F32, DTP_SUM, 0, 1, in, out };
    dtp_error err;

    if (run(e, &c))
        return 1;
    if (e->o.index == 1 || e->o.index == 2)
        return 0;
    /* Whoever's time is over first says so; the other learns it from shared memory. */
    const dtp_status st = dtpi_shm_run(e, &c, e->o.index == 0 ? 60 : 10000, &err);
    if (st != (e->o.index == 0 ? DTP_ERR_TIMEOUT : DTP_ERR_PEER) || !strstr(err.text, "ranks 1-2"))
        return FAIL("member %u: %s: %s", e->o.index, dtp_status_name(st), err.text);
    return dtpi_shm_run(e, &c, 1000, &err) == st ? 0 : FAIL("the engine did not stay broken");
}

static void test_members_that_do_not_come_are_named(void **state)
{
    const dtpi_shm_opts o = { .oversubscribed = 1 };

    assert_int_equal(run_ranks(4, &o, late_rank, NULL), 0);
}

static int leaving_rank(dtpi_shm *e, void *user)
{
    static _Thread_local float in[64], out[64];
    const dtpi_coll_call c = { DTPI_ALLREDUCE, DTP_F32, DTP_SUM, 0, 1, in, out };
    dtp_error err;

    if (run(e, &c))
        return 1;
    if (e->o.index == 1) {
        dtpi_shm_leave(e);
        return 0;
    }
    const dtp_status st = dtpi_shm_run(e, &c, 30000, &err);
    if (st != DTP_ERR_PEER || err.rank != 1 ||
        strcmp(err.text, "allreduce of 1 f32 sum: rank 1 has left the group") != 0)
        return FAIL("member %u: %s: %s", e->o.index, dtp_status_name(st), err.text);
    return 0;
}

static void test_a_member_that_left_is_not_waited_for(void **state)
{
    const dtpi_shm_opts o = { 0 };

    assert_int_equal(run_ranks(4, &o, leaving_rank, NULL), 0);
}

static int verdict_rank(dtpi_shm *e, void *user)
{
    _Atomic uint32_t *verdict = user;
    static _Thread_local float in[1], out[1];
    const dtpi_coll_call c = { DTPI_ALLREDUCE, DTP_F32, DTP_SUM, 0, 1, in, out };
    dtp_error err;

    if (e->o.index == 1) {
        const struct timespec ts = { .tv_nsec = 20 * 1000 * 1000 };
        nanosleep(&ts, NULL);
        atomic_store(verdict, 1);
        return 0;
    }
    return dtpi_shm_run(e, &c, 30000, &err) == DTP_ERR_PEER ? 0 : FAIL("the verdict was not seen");
}

static void test_a_verdict_ends_the_wait(void **state)
{
    _Atomic uint32_t *verdict =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const dtpi_shm_opts o = { .verdict = verdict };

    assert_ptr_not_equal(verdict, MAP_FAILED);
    assert_int_equal(run_ranks(2, &o, verdict_rank, verdict), 0);
    munmap(verdict, 4096);
}

static int sleepy_rank(dtpi_shm *e, void *user)
{
    struct timespec ts = { .tv_nsec = 40 * 1000 * 1000 }, cpu;

    for (int i = 0; i < 3; i++) {
        if (e->o.index == 0)
            nanosleep(&ts, NULL);
        if (check_allreduce(e, DTP_F32, DTP_SUM, 17, (uint64_t)i, false))
            return 1;
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    if (cpu.tv_nsec > 60 * 1000 * 1000 || cpu.tv_sec)
        return FAIL("waiting burnt %ld us of 120 ms", cpu.tv_nsec / 1000);
    return 0;
}

static void test_long_waits_sleep(void **state)
{
    const dtpi_shm_opts o = { 0 };

    assert_int_equal(run_ranks(3, &o, sleepy_rank, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_types_and_operations_are_bit_exact),
        cmocka_unit_test(test_chunks_and_pipelines_are_bit_exact),
        cmocka_unit_test(test_large_results_that_bypass_the_caches_are_bit_exact),
        cmocka_unit_test(test_slots_written_past_the_caches_are_bit_exact),
        cmocka_unit_test(test_calls_of_all_sizes_follow_each_other),
        cmocka_unit_test(test_different_calls_are_named_on_all_and_the_next_works),
        cmocka_unit_test(test_members_that_do_not_come_are_named),
        cmocka_unit_test(test_a_member_that_left_is_not_waited_for),
        cmocka_unit_test(test_a_verdict_ends_the_wait),
        cmocka_unit_test(test_long_waits_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
