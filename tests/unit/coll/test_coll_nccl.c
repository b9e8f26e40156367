/* SPDX-License-Identifier: Apache-2.0 */
/* Ids and communicators through a stand-in for NCCL that writes down what every rank gives it. */
#include "unit/group/ranks.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>

#include <dtp/nccl.h>

#include "gpu/gpu.h"
#include "unit/coll/nccl/notes.h"

static notes *shared;
static char lib_dir[PATH_MAX];

struct job {
    const char *name;
    const char *sub;            /* of lib_dir; rank `without` looks where there is no NCCL */
    int without;
    int32_t ranks_per_id;
    dtp_nccl_opts opts;
    dtp_status want;
    const char *text;
    int dies;                   /* before it makes a communicator; plus one */
    int odd;                    /* has a config that is none; plus one */
    int starves;                /* has no memory for a number of every rank, once; plus one */
};

/* Fails one allocation of a size, in the thread that says so. */
static _Thread_local size_t fail_bytes;

static void *starving_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    if (bytes != fail_bytes)
        return dtpi_malloc_allocator.alloc(NULL, bytes, align);
    fail_bytes = 0;
    return NULL;
}

static void starving_free(void *user, void *p, size_t bytes)
{
    (void)user;
    dtpi_malloc_allocator.free(NULL, p, bytes);
}

static const dtp_allocator starving = { starving_alloc, starving_free, NULL };

/* ---- set-up ---- */

static void open_notes(void)
{
    char path[] = "/tmp/dtp-nccl-XXXXXX";
    const int fd = mkstemp(path);

    assert_true(fd >= 0 && ftruncate(fd, sizeof(*shared)) == 0);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(shared != MAP_FAILED);
    /* The ranks open the descriptor that they inherit. */
    char name[64];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    setenv("FAKE_NCCL", name, 1);
    unlink(path);
}

static dtp_group *join(const struct job *job, int rank, int n, dtp_ctx **ctx_out)
{
    const dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = n, .job = job->name,
                               .insecure = 1, .timeout_ms = 10000 };
    char dir[PATH_MAX + 16];
    dtp_group *g;

    snprintf(dir, sizeof(dir), "%s%s", lib_dir,
             job->without == rank + 1 ? "/none" : job->sub ? job->sub : "");
    const dtp_ctx_opts co = { .size = sizeof(co), .allocator = &starving };
    RANK_OK(dtp_ctx_open(&co, ctx_out, ERR));
    RANK_OK(dtpi_gpu_set_dir(*ctx_out, dir, ERR));
    RANK_OK(dtp_group_join(*ctx_out, n > 1 ? &o : NULL, &g, ERR));
    fail_bytes = job->starves == rank + 1 ? (size_t)n * sizeof(size_t) : 0;
    return g;
}

static void rank_ids(int rank, int n, void *user)
{
    const struct job *job = user;
    dtp_ctx *ctx;
    dtp_group *g = join(job, rank, n, &ctx);
    uint32_t n_ids = 0;
    void *ids = NULL;

    RANK_STATUS(job->want, dtp_nccl_unique_ids(g, job->ranks_per_id, &ids, &n_ids, 0, ERR));
    if (job->text)
        RANK_TEXT(job->text);
    if (job->want == DTP_OK) {
        note *mine = &shared->ranks[rank];
        mine->pid = (int32_t)getpid();
        mine->n_ids = (int32_t)n_ids;
        memcpy(mine->ids, ids, (size_t)n_ids * DTP_NCCL_ID_BYTES);
    }
    dtp_group_free(ids);
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

/* One rank lacks memory, and the others need not wait for it until the deadline. */
static void rank_lacks_memory(int rank, int n, void *user)
{
    const struct job *job = user;
    const int64_t start = ranks_now_ns();
    dtp_nccl_opts o = { .size = sizeof(o), .ranks_per_id = job->ranks_per_id };
    dtp_ctx *ctx;
    dtp_group *g = join(job, rank, n, &ctx);
    void *out = NULL;
    uint32_t n_ids;

    RANK_STATUS(job->want, dtp_nccl_unique_ids(g, job->ranks_per_id, &out, &n_ids, 0, ERR));
    RANK_TEXT(job->starves == rank + 1 ? "memory" : "NCCL: rank 2 of 7: out of memory");
    fail_bytes = job->starves == rank + 1 ? (size_t)n * sizeof(size_t) : 0;
    RANK_STATUS(job->want, dtp_nccl_comm_init(g, &o, &out, ERR));
    RANK_TEXT(job->starves == rank + 1 ? "memory" : "NCCL: rank 2 of 7: out of memory");
    RANK_CHECK(!out && ranks_now_ns() - start < 9 * DTPI_NS_PER_S);
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void rank_comm(int rank, int n, void *user)
{
    const struct job *job = user;
    dtp_ctx *ctx;
    dtp_group *g = join(job, rank, n, &ctx);
    void *comm = NULL;

    if (job->dies == rank + 1)
        _exit(0);
    static const unsigned int no_config[8];
    dtp_nccl_opts o = job->opts;
    if (job->odd == rank + 1)
        o.config = no_config;
    RANK_STATUS(job->want, dtp_nccl_comm_init(g, &o, &comm, ERR));
    RANK_CHECK((comm != NULL) == (job->want == DTP_OK));
    if (job->text)
        RANK_TEXT(job->text);
    dtp_nccl_comm_close(ctx, comm, 0);
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void run(void (*fn)(int rank, int n, void *user), int n, struct job job)
{
    job.name = ranks_job();
    job.opts.size = sizeof(job.opts);
    ranks_run(n, fn, &job);
}

/* All ranks have the same ids, all different, each made by the first of its ranks. */
static void check_ids(int n, int n_ids)
{
    int32_t maker;
    uint32_t number;

    assert_int_equal(shared->n_made, n_ids);
    for (int i = 0; i < n; i++) {
        assert_int_equal(shared->ranks[i].n_ids, n_ids);
        assert_memory_equal(shared->ranks[i].ids, shared->ranks[0].ids, (size_t)n_ids * 128);
    }
    uint64_t seen = 0;
    for (int id = 0, first = 0; id < n_ids; first += n / n_ids + (id < n % n_ids), id++) {
        memcpy(&maker, shared->ranks[0].ids[id], sizeof(maker));
        assert_int_equal(maker, shared->ranks[first].pid);
        memcpy(&number, shared->ranks[0].ids[id] + 60, sizeof(number));
        seen |= 1ull << number;
    }
    assert_int_equal(seen, (1ull << n_ids) - 1);
}

static int start_afresh(void **state)
{
    (void)state;
    memset(shared, 0, sizeof(*shared));
    return 0;
}

/* ---- ids ---- */

static void test_one_id_is_made_by_rank_0(void **state)
{
    (void)state;
    run(rank_ids, 5, (struct job){ 0 });
    check_ids(5, 1);
}

static void test_ids_are_made_by_the_first_of_their_ranks(void **state)
{
    static const struct {
        int n, per_id, n_ids;
    } cases[] = { { 7, 3, 3 }, { 10, 3, 4 }, { 8, 4, 2 }, { 5, 1, 5 }, { 9, 8, 2 } };

    for (size_t i = 0; i < DTPI_ARRAY_LEN(cases); i++) {
        start_afresh(state);
        run(rank_ids, cases[i].n, (struct job){ .ranks_per_id = cases[i].per_id });
        check_ids(cases[i].n, cases[i].n_ids);
    }
}

static void test_only_ranks_that_make_ids_need_nccl_for_ids(void **state)
{
    (void)state;
    run(rank_ids, 3, (struct job){ .without = 2 });
    check_ids(3, 1);
}

static void test_an_id_that_fails_is_told_to_all(void **state)
{
    (void)state;
    shared->fail_id = 1;
    run(rank_ids, 3, (struct job){ .want = DTP_ERR_IO,
                                   .text = "NCCL: rank 0 of 3: ncclGetUniqueId: unhandled system error" });
    run(rank_ids, 4, (struct job){ .ranks_per_id = 2, .want = DTP_ERR_IO,
                                   .text = "NCCL: ranks 0, 2 of 4: ncclGetUniqueId: unhandled" });
    shared->fail_id = 0;
    run(rank_ids, 3, (struct job){ .without = 1, .want = DTP_ERR_UNSUPPORTED,
                                   .text = "NCCL: rank 0 of 3: libnccl.so.2 is not on this machine" });
}

static void test_a_rank_without_memory_for_ids_is_told_to_all(void **state)
{
    (void)state;
    run(rank_lacks_memory, 7, (struct job){ .ranks_per_id = 2, .want = DTP_ERR_NOMEM, .starves = 3 });
}

static void test_a_group_of_one_makes_its_id(void **state)
{
    (void)state;
    run(rank_ids, 1, (struct job){ 0 });
    check_ids(1, 1);
}

static void test_wrong_numbers_of_ids_are_refused(void **state)
{
    uint32_t n;
    void *ids = NULL;
    dtp_group *g;
    dtp_ctx *ctx;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtp_group_join(ctx, NULL, &g, ERR));
    assert_status(DTP_ERR_INVAL, dtp_nccl_unique_ids(g, -1, &ids, &n, 0, ERR));
    assert_text("-1 ranks per NCCL id");
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

/* ---- communicators ---- */

static void check_comms(int n, int n_ids, int function, int config_blocking)
{
    check_ids(n, n_ids);
    assert_int_equal(shared->n_begun, n);
    assert_int_equal(shared->n_destroyed, n);
    assert_int_equal(shared->n_aborted, 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(shared->ranks[i].n_ranks, n);
        assert_int_equal(shared->ranks[i].function, function);
        assert_int_equal(shared->ranks[i].config_blocking, config_blocking);
    }
}

static void test_a_communicator_is_made_without_blocking(void **state)
{
    (void)state;
    run(rank_comm, 4, (struct job){ 0 });
    check_comms(4, 1, NOTE_CONFIG, 0);
}

static void test_many_ids_go_to_the_scalable_call(void **state)
{
    (void)state;
    run(rank_comm, 7, (struct job){ .opts = { .ranks_per_id = 3 } });
    check_comms(7, 3, NOTE_SCALABLE, 0);
}

static void test_a_blocking_communicator_is_made_as_asked_or_where_nccl_is_old(void **state)
{
    run(rank_comm, 3, (struct job){ .opts = { .blocking = 1 } });
    check_comms(3, 1, NOTE_RANK, -1);
    start_afresh(state);
    run(rank_comm, 3, (struct job){ .sub = "/old" });
    check_comms(3, 1, NOTE_RANK, -1);
}

static void test_a_config_of_the_caller_is_passed_on(void **state)
{
    const struct {
        size_t size;
        unsigned int magic, version;
        int blocking, cga;
    } config = { 24, 0xcafebeef, 21700, 1, 2 }, wrong = { 24, 1, 21700, 1, 2 };

    (void)state;
    run(rank_comm, 3, (struct job){ .opts = { .config = &config } });
    check_comms(3, 1, NOTE_CONFIG, 1);
    run(rank_comm, 2, (struct job){ .opts = { .config = &wrong }, .want = DTP_ERR_INVAL,
                                    .text = "ranks 0-1 of 2: config is not an ncclConfig_t" });
    /* Nobody waits for one that is wrong alone. */
    run(rank_comm, 3, (struct job){ .odd = 2, .want = DTP_ERR_INVAL,
                                    .text = "NCCL: rank 1 of 3: config is not an ncclConfig_t" });
}

static void test_what_nccl_lacks_is_told_to_all(void **state)
{
    (void)state;
    run(rank_comm, 4, (struct job){ .without = 3, .want = DTP_ERR_UNSUPPORTED,
                                    .text = "NCCL: rank 2 of 4: libnccl.so.2 is not on this machine" });
    run(rank_comm, 4, (struct job){ .sub = "/old", .opts = { .ranks_per_id = 2 },
                                    .want = DTP_ERR_UNSUPPORTED,
                                    .text = "ranks 0-3 of 4: this NCCL has no ncclCommInitRankScalable" });
    assert_int_equal(shared->n_begun, 0);
}

static void test_a_rank_that_nccl_waits_for_ends_the_call_at_the_deadline(void **state)
{
    (void)state;
    shared->n_late = 1;
    run(rank_comm, 3, (struct job){ .opts = { .timeout_ms = 200 }, .want = DTP_ERR_TIMEOUT,
                                    .text = "NCCL did not come up in time" });
    assert_int_equal(shared->n_aborted, 3);
}

static void test_a_failure_inside_nccl_is_told_in_its_words(void **state)
{
    (void)state;
    shared->fail_rank = 1;
    run(rank_comm, 1, (struct job){ .want = DTP_ERR_IO,
                                    .text = "NCCL: rank 0 of 1: remote process exited" });
    assert_int_equal(shared->n_aborted, 1);
}

static void test_a_rank_that_dies_ends_the_call_on_the_others(void **state)
{
    (void)state;
    run(rank_comm, 3, (struct job){ .dies = 2, .want = DTP_ERR_PEER, .text = "rank 1 of 3" });
    assert_int_equal(shared->n_begun, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_one_id_is_made_by_rank_0, start_afresh),
        cmocka_unit_test_setup(test_ids_are_made_by_the_first_of_their_ranks, start_afresh),
        cmocka_unit_test_setup(test_only_ranks_that_make_ids_need_nccl_for_ids, start_afresh),
        cmocka_unit_test_setup(test_an_id_that_fails_is_told_to_all, start_afresh),
        cmocka_unit_test_setup(test_a_rank_without_memory_for_ids_is_told_to_all, start_afresh),
        cmocka_unit_test_setup(test_a_group_of_one_makes_its_id, start_afresh),
        cmocka_unit_test_setup(test_wrong_numbers_of_ids_are_refused, start_afresh),
        cmocka_unit_test_setup(test_a_communicator_is_made_without_blocking, start_afresh),
        cmocka_unit_test_setup(test_many_ids_go_to_the_scalable_call, start_afresh),
        cmocka_unit_test_setup(test_a_blocking_communicator_is_made_as_asked_or_where_nccl_is_old,
                               start_afresh),
        cmocka_unit_test_setup(test_a_config_of_the_caller_is_passed_on, start_afresh),
        cmocka_unit_test_setup(test_what_nccl_lacks_is_told_to_all, start_afresh),
        cmocka_unit_test_setup(test_a_rank_that_nccl_waits_for_ends_the_call_at_the_deadline,
                               start_afresh),
        cmocka_unit_test_setup(test_a_failure_inside_nccl_is_told_in_its_words, start_afresh),
        cmocka_unit_test_setup(test_a_rank_that_dies_ends_the_call_on_the_others, start_afresh),
    };
    const char *build = getenv("DTP_TEST_BUILD");

    snprintf(lib_dir, sizeof(lib_dir), "%s/tests/unit/coll/nccl", build ? build : ".");
    open_notes();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
