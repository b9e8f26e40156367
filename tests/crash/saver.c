/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saver.c - a job of N ranks, each a process, that saves steps of known contents below FOLDER and says to
 * the recorder when each was acknowledged: one at once, the others in the background.
 *
 *   crash_saver FOLDER RANKS CODEC KEEP DELTA STEPS [NTH HOW]
 *
 * With NTH, the NTH call of rank NTH % RANKS about the folder fails during the last save, HOW is an error or
 * CRASH_SHORT. That save may fail then, and is done again; exit 10: there is no NTH call.
 */
#include "crash/record.h"
#include "crash/story.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dtp/ckpt.h>

static int exit_code;

static void must(dtp_status st, const dtp_error *err)
{
    if (st >= 0)
        return;
    fprintf(stderr, "crash_saver: %s\n", err->text);
    _exit(1);
}

static dtp_status save_one(dtp_ctx *ctx, dtp_group *group, const char *dir, uint64_t step, story_boxes *b,
                           const dtp_ckpt_save_opts *opts, dtp_error *err)
{
    dtp_op *op = NULL;

    story_boxes_fill(b, step);
    if (step == 1)
        return dtp_ckpt_save(ctx, group, dir, step, b->tensors, STORY_TENSORS, opts, err);
    dtp_status st = dtp_ckpt_save_start(ctx, group, dir, step, b->tensors, STORY_TENSORS, opts, &op, err);
    if (st < 0)
        return st;
    story_boxes_fill(b, 1000 + step);       /* training goes on */
    st = dtp_op_wait(op, -1, err);
    dtp_op_free(op);
    return st;
}

/* With a failing call; what may not fail is told by the exit status. */
static dtp_status save_failing(dtp_ctx *ctx, dtp_group *group, const char *dir, uint64_t step,
                               story_boxes *b, const dtp_ckpt_save_opts *opts, char **argv, dtp_error *err)
{
    const long nth = atol(argv[7]);
    const int how = atoi(argv[8]);

    if (nth % b->n == b->rank)
        crash_fail(nth / b->n + 1, how);
    const dtp_status st = save_one(ctx, group, dir, step, b, opts, err);
    if (nth % b->n == b->rank && !crash_fail_is_over())
        exit_code = 10;
    if (nth % b->n == b->rank)
        crash_fail(0, 0);
    if (st >= 0)
        return st;
    if (how == CRASH_SHORT || how == EINTR)
        return st;
    const dtp_status again = save_one(ctx, group, dir, step, b, opts, err);
    return again == DTP_ERR_EXISTS ? DTP_PENDING : again;
}

static void be_rank(char **argv, int n, int rank)
{
    dtp_group_opts join = { .size = sizeof(join), .rank = rank, .world_size = n, .local_rank = rank,
                            .local_size = n, .insecure = 1, .timeout_ms = 120000 };
    const dtp_ckpt_save_opts opts = {
        .size = sizeof(opts), .codec = (dtp_codec)atoi(argv[3]), .keep_last = (uint32_t)atoi(argv[4]),
        .delta = (uint32_t)atoi(argv[5]), .chunk_bytes = 4096, .files = "posix",
    };
    const uint64_t steps = strtoull(argv[6], NULL, 10);
    char dir[4096], job[64];
    dtp_group *group = NULL;
    dtp_ctx *ctx = NULL;
    dtp_error err = { 0 };
    story_boxes b;

    snprintf(dir, sizeof(dir), "%s/%s", argv[1], story_dir);
    snprintf(job, sizeof(job), "crash-%d", (int)getppid());
    join.job = job;
    story_boxes_init(&b, n, rank);
    must(dtp_ctx_open(NULL, &ctx, &err), &err);
    if (n > 1)
        must(dtp_group_join(ctx, &join, &group, &err), &err);
    for (uint64_t step = 1; step <= steps; step++) {
        const bool failing = argv[7] && step == steps;
        const dtp_status st = failing ? save_failing(ctx, group, dir, step, &b, &opts, argv, &err)
                                      : save_one(ctx, group, dir, step, &b, &opts, &err);
        must(st, &err);
        if (st == DTP_OK && crash_mark)
            crash_mark(step);
    }
    dtp_group_close(group);
    dtp_ctx_close(ctx);
    story_boxes_free(&b);
    _exit(exit_code);
}

int main(int argc, char **argv)
{
    const int n = argc == 7 || (argc == 9 && crash_fail) ? atoi(argv[2]) : 0;
    int status, rc = 0;

    if (n < 1 || n > MAX_RANKS) {
        fprintf(stderr, "usage: crash_saver FOLDER RANKS CODEC KEEP DELTA STEPS [NTH HOW]\n");
        return 2;
    }
    for (int i = 0; i < n; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            be_rank(argv, n, i);
        }
    while (wait(&status) > 0)
        rc = !WIFEXITED(status) ? 1 : WEXITSTATUS(status) && rc != 1 ? WEXITSTATUS(status) : rc;
    return rc;
}
