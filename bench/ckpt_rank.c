/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_rank.c - what a rank of `dtp-bench ckpt` does in a round: a save, a load, or a save in the background
 * while collectives go on; then the same with plain files, and a plain copy.
 */
#include <dtp/coll.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "ckpt.h"
#include "group/group.h"

typedef struct rank_run {
    const ckpt_phase *p;
    dtp_group *group;
    dtp_ctx *ctx;
    ckpt_state state;
    uint8_t *scratch;
    uint64_t scratch_bytes;
    int rank;
    dtp_error err;
} rank_run;

static void steps_dir(char *out, size_t room, const ckpt_options *o)
{
    snprintf(out, room, "%s/steps", o->work);
}

static bool barrier(rank_run *r)
{
    if (dtp_group_barrier(r->group, 0, &r->err) >= 0)
        return true;
    bench_fail(&bench_ckpt, &r->err);
    return false;
}

static bool note(rank_run *r, int what, int round, double s)
{
    if (s >= 0 && round >= 0)
        r->p->sh->seconds[what][round][r->rank] = s;
    return s >= 0;
}

static dtp_ckpt_save_opts save_opts(const ckpt_options *o)
{
    static const struct {
        const char *name;
        dtp_codec codec;
    } codecs[] = { { "none", DTP_CODEC_NONE }, { "zstd", DTP_CODEC_ZSTD }, { "planes", DTP_CODEC_PLANES } };
    dtp_ckpt_save_opts opts = DTP_CKPT_SAVE_OPTS_INIT;

    opts.no_sync = o->no_sync;
    opts.files = o->files;
    opts.timeout_ms = o->timeout_ms;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(codecs); i++)
        if (strcmp(o->codec, codecs[i].name) == 0)
            opts.codec = codecs[i].codec;
    return opts;
}

static double save_step(rank_run *r, const char *dir)
{
    const dtp_ckpt_save_opts opts = save_opts(r->p->o);
    const int64_t begin = bench_now_ns();
    if (dtp_ckpt_save(r->ctx, r->group, dir, 1, r->state.tensors, r->state.n_tensors, &opts, &r->err) < 0) {
        bench_fail(&bench_ckpt, &r->err);
        return -1;
    }
    return (double)(bench_now_ns() - begin) * 1e-9;
}

static bool save_round(rank_run *r, int round)
{
    const ckpt_options *o = r->p->o;
    char dir[4096];

    steps_dir(dir, sizeof(dir), o);
    if (r->rank == 0)
        ckpt_remove_tree(dir);
    return barrier(r) && note(r, CKPT_OURS, round, save_step(r, dir)) && barrier(r) &&
           note(r, CKPT_PLAIN, round, ckpt_plain_write(o, r->rank, r->state.data, r->state.bytes)) && barrier(r) &&
           note(r, CKPT_COPY, round, ckpt_plain_copy(r->scratch, r->scratch_bytes, r->state.data, r->state.bytes));
}

/* A number behind a word in a file of /proc/self; 0 where there is none. */
static uint64_t proc_number(const char *path, const char *word)
{
    char line[256];
    unsigned long long v = 0;
    FILE *f = fopen(path, "re");

    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, word, strlen(word)) == 0)
            v = strtoull(line + strlen(word), NULL, 10);
    if (f)
        fclose(f);
    return v;
}

/* Read by calls, or from the disk where calls are not counted. */
static uint64_t bytes_read(void)
{
    return DTPI_MAX(proc_number("/proc/self/io", "rchar: "), proc_number("/proc/self/io", "read_bytes: "));
}

static void reset_peak(void)
{
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (write(fd, "5", 1) < 0)
        perror("dtp-bench ckpt: cannot reset the peak of memory");
    close(fd);
}

static double load_step(rank_run *r, const char *dir, uint64_t step)
{
    dtp_ckpt *c = NULL;
    const int64_t begin = bench_now_ns();

    dtp_status st = dtp_ckpt_open(r->ctx, dir, step, &c, &r->err);
    if (st >= 0 && r->p->o->check_whole)
        st = dtp_ckpt_set_checks(c, DTP_CKPT_CHECK_WHOLE, &r->err);
    else if (st >= 0 && !r->p->o->alone)
        st = dtp_ckpt_share(c, r->group, &r->err);
    if (st >= 0)
        st = dtp_ckpt_read(c, r->state.tensors, r->state.n_tensors, &r->err);
    if (st >= 0 && r->rank == 0) {
        dtp_ckpt_info info = { .size = sizeof(info) };
        st = dtp_ckpt_get_info(c, &info, &r->err);
        r->p->sh->stored_bytes = info.stored_bytes;
    }
    dtp_ckpt_close(c);
    if (st < 0) {
        bench_fail(&bench_ckpt, &r->err);
        return -1;
    }
    return (double)(bench_now_ns() - begin) * 1e-9;
}

/* With what it costs beside time. */
static double watched_load(rank_run *r, const char *dir)
{
    ckpt_shared *sh = r->p->sh;

    reset_peak();
    const uint64_t read0 = bytes_read(), memory0 = proc_number("/proc/self/status", "VmRSS:");
    const double s = load_step(r, dir, 1);
    const uint64_t read = bytes_read() - read0, peak = proc_number("/proc/self/status", "VmHWM:");
    sh->read_bytes[r->rank] = DTPI_MAX(sh->read_bytes[r->rank], read);
    if (peak > memory0)
        sh->extra_bytes[r->rank] = DTPI_MAX(sh->extra_bytes[r->rank], (peak - memory0) << 10);
    return s;
}

static bool is_right(const rank_run *r)
{
    const uint64_t wrong = ckpt_state_wrong(&r->state);

    if (wrong)
        fprintf(stderr, "dtp-bench ckpt: rank %d: %llu rows came back wrong\n", r->rank,
                (unsigned long long)wrong);
    return wrong == 0;
}

static bool load_round(rank_run *r, int round)
{
    const ckpt_options *o = r->p->o;
    char dir[4096];

    steps_dir(dir, sizeof(dir), o);
    memset(r->state.data, 0xa5, r->state.bytes);
    if (r->rank == 0 && !o->warm)
        ckpt_drop_cache(o->work);
    if (!barrier(r) || !note(r, CKPT_OURS, round, watched_load(r, dir)) || !is_right(r) || !barrier(r))
        return false;
    return note(r, CKPT_PLAIN, round,
                ckpt_plain_read(o, r->rank, r->p->n_ranks, r->state.data, r->state.bytes)) &&
           barrier(r) &&
           note(r, CKPT_COPY, round, ckpt_plain_copy(r->scratch, r->scratch_bytes, r->state.data, r->state.bytes));
}

/* ---- in the background ---- */

/*
 * What training does meanwhile: a collective of the same group each time the device has computed for a
 * millisecond, until the step is durable everywhere.
 */
static double train_until_done(rank_run *r, dtp_op *op, int64_t begin)
{
    const struct timespec compute = { .tv_nsec = 1000000 };
    double ended = -1;
    int32_t n_done = 0;

    while (n_done < r->p->n_ranks) {
        if (ended < 0 && dtp_op_status(op, NULL) != DTP_PENDING)
            ended = (double)(bench_now_ns() - begin) * 1e-9;
        const int32_t mine = ended >= 0;
        nanosleep(&compute, NULL);
        if (dtp_allreduce(r->group, &mine, &n_done, 1, DTP_I32, DTP_SUM, 0, &r->err) < 0)
            return -1;
        r->p->sh->n_steps += r->rank == 0;
    }
    return dtp_op_wait(op, -1, &r->err) < 0 ? -1 : ended;
}

static bool stall_round(rank_run *r, int round)
{
    dtp_ckpt_save_opts opts = save_opts(r->p->o);
    char dir[4096];
    dtp_op *op = NULL;
    const uint64_t step = (uint64_t)(round + 2);
    const bool last = round == r->p->n_rounds - 1;

    opts.keep_last = 1;
    steps_dir(dir, sizeof(dir), r->p->o);
    if (!barrier(r) ||
        !note(r, CKPT_COPY, round, ckpt_plain_copy(r->scratch, r->scratch_bytes, r->state.data, r->state.bytes)) ||
        !barrier(r))
        return false;
    const int64_t begin = bench_now_ns();
    const dtp_status st = dtp_ckpt_save_start(r->ctx, r->group, dir, step, r->state.tensors,
                                              r->state.n_tensors, &opts, &op, &r->err);
    note(r, CKPT_OURS, round, (double)(bench_now_ns() - begin) * 1e-9);
    if (last)       /* the copy is what counts */
        memset(r->state.data, 0xa5, r->state.bytes);
    const double s = st < 0 ? -1 : train_until_done(r, op, begin);
    dtp_op_free(op);
    if (s < 0)
        bench_fail(&bench_ckpt, &r->err);
    return note(r, CKPT_DURABLE, round, s) && (!last || (load_step(r, dir, step) >= 0 && is_right(r)));
}

static bool run_rounds(rank_run *r)
{
    static bool (*const rounds[])(rank_run *, int) = { [CKPT_SAVES] = save_round, [CKPT_LOADS] = load_round,
                                                       [CKPT_STALLS] = stall_round };
    uint64_t first = 0;
    bool ok = true;

    for (int i = -1; ok && i < r->p->n_rounds; i++) {
        ok = rounds[r->p->kind](r, i);
        if (i == 0)
            first = proc_number("/proc/self/status", "VmRSS:");
    }
    const uint64_t last = proc_number("/proc/self/status", "VmRSS:");
    r->p->sh->grown_bytes[r->rank] = last > first ? (last - first) << 10 : 0;
    return ok;
}

int ckpt_run_rank(dtp_group *group, void *user)
{
    const ckpt_phase *p = user;
    rank_run r = { .p = p, .group = group, .ctx = dtpi_group_ctx(group), .rank = dtp_group_rank(group) };

    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    bool ok = ckpt_state_make(&r.state, p->o, p->tile, r.rank, p->n_ranks, p->by_columns);
    r.scratch_bytes = p->kind == CKPT_STALLS ? r.state.bytes : DTPI_MIN(r.state.bytes, 128ull << 20);
    r.scratch = ok ? aligned_alloc(4096, r.scratch_bytes + 4096) : NULL;
    ok = ok && r.scratch;
    if (ok) {
        p->sh->wanted_bytes[r.rank] = r.state.bytes;
        ckpt_state_fill(&r.state);
        memset(r.scratch, 0, r.scratch_bytes);
        ok = run_rounds(&r);
    }
    free(r.scratch);
    ckpt_state_free(&r.state);
    return ok ? BENCH_OK : BENCH_FAILED;
}
