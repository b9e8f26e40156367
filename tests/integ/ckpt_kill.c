/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_kill.c - saves by 4 ranks, killed with SIGKILL at random moments: the previous checkpoint or the
 * new one is there afterwards, complete, bit for bit; one that was acknowledged is the new one.
 *
 * 20 times at 64 MiB; with DTP_TEST_LONG 200 times at 1 GiB. Where only one rank dies, no other one waits
 * for it: each is told. The seed is printed (DTP_TEST_SEED).
 */
#include "check.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <dtp/ckpt.h>

#include "tree.h"

enum { RANKS = 4, COLUMNS = 1024 };

static char dir[128];
static int64_t rows;            /* of w and v together; a row is 4 KiB */

static int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void sleep_ns(int64_t ns)
{
    const struct timespec ts = { ns / 1000000000, ns % 1000000000 };

    nanosleep(&ts, NULL);
}

/* Element `i` of a tensor at a step. */
static uint32_t known(uint64_t step, uint64_t tensor, uint64_t i)
{
    return (uint32_t)((i + 1) * 0x9e3779b97f4a7c15ull >> 20 ^ step * 2654435761u ^ tensor << 30);
}

/* w is cut by rows, v by columns, b is on every rank. */
static const int64_t *shape_wv(void)
{
    static int64_t shape[2];

    shape[0] = rows / 2;
    shape[1] = COLUMNS;
    return shape;
}

static void fill(uint32_t *out, uint64_t step, uint64_t tensor, int64_t row, int64_t n_rows, int64_t column,
                 int64_t n_columns)
{
    for (int64_t y = row; y < row + n_rows; y++)
        for (int64_t x = column; x < column + n_columns; x++)
            *out++ = known(step, tensor, (uint64_t)(y * COLUMNS + x));
}

static void describe(dtp_ckpt_tensor t[3], int64_t box[2][2][2], int rank)
{
    const int64_t half = rows / 2;
    static const int64_t b_shape[] = { COLUMNS };

    box[0][0][0] = half * rank / RANKS;
    box[0][0][1] = 0;
    box[0][1][0] = half * (rank + 1) / RANKS - box[0][0][0];
    box[0][1][1] = COLUMNS;
    box[1][0][0] = 0;
    box[1][0][1] = COLUMNS / RANKS * rank;
    box[1][1][0] = half;
    box[1][1][1] = COLUMNS / RANKS;
    t[0] = (dtp_ckpt_tensor){ sizeof(*t), "w", DTP_F32, 2, shape_wv(), box[0][0], box[0][1], NULL };
    t[1] = (dtp_ckpt_tensor){ sizeof(*t), "v", DTP_U32, 2, shape_wv(), box[1][0], box[1][1], NULL };
    t[2] = (dtp_ckpt_tensor){ sizeof(*t), "b", DTP_I32, 1, b_shape, NULL, NULL, NULL };
}

/* Bits of how the next gang saves: in the background, packed, with references to the step before. */
enum { BACKGROUND = 1, PACKED = 2, DELTA = 4, WAYS = 8 };
static uint64_t way;

/* In the background the tensors change at once, as training goes on. */
static dtp_status save_either(dtp_ctx *ctx, dtp_group *group, uint64_t step, dtp_ckpt_tensor t[3],
                              size_t bytes_of_last, dtp_error *err)
{
    const dtp_ckpt_save_opts save = { .size = sizeof(save), .keep_last = 2, .delta = (way & DELTA) != 0,
                                      .codec = way & PACKED ? DTP_CODEC_PLANES : DTP_CODEC_NONE };
    dtp_op *op = NULL;

    if (!(way & BACKGROUND))
        return dtp_ckpt_save(ctx, group, dir, step, t, 3, &save, err);
    dtp_status st = dtp_ckpt_save_start(ctx, group, dir, step, t, 3, &save, &op, err);
    if (st < 0)
        return st;
    memset(t[2].data, 0xee, bytes_of_last);
    memset(t[0].data, 0xee, 4096);
    if (group)
        st = dtp_group_barrier(group, 0, err);
    if (st >= 0)
        st = dtp_op_wait(op, -1, err);
    dtp_op_free(op);
    return st;
}

/* A rank: joins, tells that it begins, saves. Exit 0 only after the save was acknowledged. */
static void run_rank(int rank, const char *job, uint64_t step, int ready)
{
    dtp_group_opts opts = { .size = sizeof(opts), .rank = rank, .world_size = RANKS, .local_rank = rank,
                            .local_size = RANKS, .job = job, .insecure = 1, .timeout_ms = 60000 };
    dtp_group *group = NULL;
    dtp_ckpt_tensor t[3];
    int64_t box[2][2][2];
    dtp_ctx *ctx = NULL;
    dtp_error err = { 0 };

    describe(t, box, rank);
    t[0].data = malloc((size_t)(box[0][1][0] * COLUMNS) * 4);
    t[1].data = malloc((size_t)(box[1][1][0] * box[1][1][1]) * 4);
    t[2].data = malloc(COLUMNS * 4);
    fill(t[0].data, step, 0, box[0][0][0], box[0][1][0], 0, COLUMNS);
    fill(t[1].data, step, 1, 0, box[1][1][0], box[1][0][1], box[1][1][1]);
    fill(t[2].data, step, 2, 0, 1, 0, COLUMNS);
    if (dtp_ctx_open(NULL, &ctx, &err) < 0 || dtp_group_join(ctx, &opts, &group, &err) < 0 ||
        dtp_group_barrier(group, 0, &err) < 0) {
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
        _exit(3);
    }
    if (write(ready, "", 1) != 1)
        _exit(3);
    if (save_either(ctx, group, step, t, COLUMNS * 4, &err) < 0) {
        if (err.status == DTP_ERR_PEER)
            _exit(2);
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
        _exit(4);
    }
    dtp_group_close(group);
    dtp_ctx_close(ctx);
    _exit(0);
}

typedef struct gang {
    pid_t pids[RANKS];
    int status[RANKS];
    int64_t begun_ns;
} gang;

static void start(gang *g, uint64_t step)
{
    static int n;
    char job[64], byte;
    int pipes[2];

    snprintf(job, sizeof(job), "ckpt-kill-%d-%d", (int)getpid(), n++);
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    for (int i = 0; i < RANKS; i++) {
        g->pids[i] = fork();
        if (g->pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(pipes[0]);
            run_rank(i, job, step, pipes[1]);
        }
    }
    close(pipes[1]);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(read(pipes[0], &byte, 1), 1);
    close(pipes[0]);
    g->begun_ns = now_ns();
}

static void finish(gang *g)
{
    for (int i = 0; i < RANKS; i++)
        waitpid(g->pids[i], &g->status[i], 0);
}

/* All ranks after a random time, in a random order, some apart. */
static void kill_all(gang *g, uint64_t *seed, int64_t longest_ns)
{
    const int first = (int)(check_random(seed) % RANKS);
    const bool apart = check_random(seed) % 2;

    sleep_ns((int64_t)(check_random(seed) % (uint64_t)longest_ns));
    for (int i = 0; i < RANKS; i++) {
        kill(g->pids[(first + i) % RANKS], SIGKILL);
        if (apart)
            sleep_ns((int64_t)(check_random(seed) % 5000000));
    }
}

/* Reads the whole step and compares every element. */
static void check_step(dtp_ctx *ctx, uint64_t step)
{
    const int64_t half = rows / 2;
    const size_t n = (size_t)(half * COLUMNS);
    static const int64_t b_shape[] = { COLUMNS };
    uint32_t *data[3] = { malloc(n * 4), malloc(n * 4), malloc(COLUMNS * 4) };
    const dtp_ckpt_tensor t[] = {
        { sizeof(*t), "w", DTP_F32, 2, shape_wv(), NULL, NULL, data[0] },
        { sizeof(*t), "v", DTP_U32, 2, shape_wv(), NULL, NULL, data[1] },
        { sizeof(*t), "b", DTP_I32, 1, b_shape, NULL, NULL, data[2] },
    };
    dtp_ckpt *ckpt = NULL;

    assert_ok(dtp_ckpt_open(ctx, dir, step, &ckpt, ERR));
    assert_ok(dtp_ckpt_read(ckpt, t, 3, ERR));
    assert_ok(dtp_ckpt_verify(ckpt, NULL, NULL, ERR));
    dtp_ckpt_close(ckpt);
    for (uint64_t k = 0; k < 3; k++)
        for (size_t i = 0; i < (k == 2 ? COLUMNS : n); i++)
            if (data[k][i] != known(step, k, i))
                fail_msg("step %llu: tensor %llu differs at %zu", (unsigned long long)step,
                         (unsigned long long)k, i);
    for (int k = 0; k < 3; k++)
        free(data[k]);
}

/* What a round left: the previous or the new step, the new one if it was acknowledged. */
static uint64_t check_left(dtp_ctx *ctx, const gang *g, uint64_t step)
{
    uint64_t found = 0;

    assert_ok(dtp_ckpt_latest(ctx, dir, &found, ERR));
    assert_true(found == step || found == step + 1);
    for (int i = 0; i < RANKS; i++) {
        assert_true(g->status[i] == 0 || WIFSIGNALED(g->status[i]) || WEXITSTATUS(g->status[i]) == 2);
        if (g->status[i] == 0)
            assert_int_equal(found, step + 1);
    }
    check_step(ctx, found);
    return found;
}

static void test_killed_saves_leave_the_previous_or_the_new_step(void **state)
{
    const int rounds = check_is_long() ? 200 : 20;
    uint64_t seed = check_seed(), step = 1;
    int64_t longest_ns = 0;
    int n_new = 0, n_acked = 0;
    dtp_ctx *ctx = NULL;
    gang g;

    (void)state;
    rows = (check_is_long() ? 1024 : 64) * (int64_t)(1 << 20) / (COLUMNS * 4);
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    start(&g, step);            /* undisturbed: how long a save takes */
    finish(&g);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(g.status[i], 0);
    longest_ns = (now_ns() - g.begun_ns) * 11 / 10;
    check_step(ctx, step);
    for (int round = 0; round < rounds; round++) {
        bool acked = false;
        way = check_random(&seed) % WAYS;
        start(&g, step + 1);
        kill_all(&g, &seed, longest_ns);
        finish(&g);
        for (int i = 0; i < RANKS; i++)
            acked |= g.status[i] == 0;
        const uint64_t found = check_left(ctx, &g, step);
        /* About half of the kills shall come late, however busy the machine is. */
        longest_ns = found == step + 1 ? longest_ns / 10 * 8 : longest_ns / 10 * 13;
        n_new += found == step + 1;
        n_acked += acked;
        step = found;
    }
    print_message("%d kills: %d new (%d acknowledged), %d previous\n", rounds, n_new, n_acked,
                  rounds - n_new);
    dtp_ctx_close(ctx);
}

static void test_death_of_one_rank_is_told_to_the_others(void **state)
{
    uint64_t seed = check_seed(), step = 0;
    dtp_ctx *ctx = NULL;
    int n_told = 0;
    gang g;

    (void)state;
    rows = 16 * (int64_t)(1 << 20) / (COLUMNS * 4);
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtp_ckpt_latest(ctx, dir, &step, ERR));
    step += 100;                /* another size from here on */
    start(&g, step);
    finish(&g);
    for (int round = 0; round < 8; round++) {
        way = (uint64_t)round;
        start(&g, step + 1);
        sleep_ns((int64_t)(check_random(&seed) % 15000000));
        kill(g.pids[round % RANKS], SIGKILL);
        finish(&g);
        for (int i = 0; i < RANKS; i++)
            n_told += WIFEXITED(g.status[i]) && WEXITSTATUS(g.status[i]) == 2;
        step = check_left(ctx, &g, step);
    }
    print_message("8 deaths: %d ranks were told\n", n_told);
    dtp_ctx_close(ctx);
}

/* ---- several writers at once ---- */

enum { WRITERS = 3, SHARED_STEPS = 40 };

/* A job of one that saves steps as it comes to them; exits with the newest that was acknowledged. */
static void write_alone(uint64_t first, uint64_t seed)
{
    const int64_t half = rows / 2;
    static const int64_t b_shape[] = { COLUMNS };
    dtp_ckpt_tensor t[] = {
        { sizeof(*t), "w", DTP_F32, 2, shape_wv(), NULL, NULL, malloc((size_t)(half * COLUMNS) * 4) },
        { sizeof(*t), "v", DTP_U32, 2, shape_wv(), NULL, NULL, malloc((size_t)(half * COLUMNS) * 4) },
        { sizeof(*t), "b", DTP_I32, 1, b_shape, NULL, NULL, malloc(COLUMNS * 4) },
    };
    int newest = 0;
    dtp_ctx *ctx = NULL;
    dtp_error err = { 0 };

    if (dtp_ctx_open(NULL, &ctx, &err) < 0)
        _exit(255);
    for (int i = 1; i <= SHARED_STEPS; i++) {
        const uint64_t step = first + (uint64_t)i;
        way = check_random(&seed) % WAYS;
        fill(t[0].data, step, 0, 0, half, 0, COLUMNS);
        fill(t[1].data, step, 1, 0, half, 0, COLUMNS);
        fill(t[2].data, step, 2, 0, 1, 0, COLUMNS);
        const dtp_status st = save_either(ctx, NULL, step, t, COLUMNS * 4, &err);
        if (st >= 0)
            newest = i;
        else if (st != DTP_ERR_BUSY && st != DTP_ERR_EXISTS) {
            fprintf(stderr, "step %llu: %s\n", (unsigned long long)step, err.text);
            _exit(254);
        }
        if (check_random(&seed) % 4 == 0)
            dtp_ckpt_gc(ctx, dir, NULL, &err);
    }
    dtp_ctx_close(ctx);
    _exit(newest);
}

static void test_writers_of_one_folder_do_not_harm_each_other(void **state)
{
    uint64_t seed = check_seed(), first = 0, step = 0;
    pid_t pids[WRITERS];
    dtp_ctx *ctx = NULL;
    int newest = 0;

    (void)state;
    rows = 1024;
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtp_ckpt_latest(ctx, dir, &first, ERR));
    first += 100;
    fflush(NULL);
    for (int i = 0; i < WRITERS; i++) {
        const uint64_t own = check_random(&seed);
        pids[i] = fork();
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            write_alone(first, own);
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= SHARED_STEPS);
        newest = newest > WEXITSTATUS(status) ? newest : WEXITSTATUS(status);
    }
    assert_ok(dtp_ckpt_latest(ctx, dir, &step, ERR));
    assert_int_equal(step, first + (uint64_t)newest);
    check_step(ctx, step);
    dtp_ctx_close(ctx);
}

static int make_dir(void **state)
{
    const char *base = getenv("TMPDIR");

    (void)state;
    snprintf(dir, sizeof(dir), "%s/dtp-ckpt-kill-XXXXXX", base ? base : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    (void)state;
    tree_remove(dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_saves_leave_the_previous_or_the_new_step),
        cmocka_unit_test(test_death_of_one_rank_is_told_to_the_others),
        cmocka_unit_test(test_writers_of_one_folder_do_not_harm_each_other),
    };

    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
