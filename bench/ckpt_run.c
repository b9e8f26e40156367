/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_run.c - saves and loads by real processes, in turns with plain files and a plain copy of as many
 * bytes by the same processes. A round lasts until its slowest rank is done; every byte that comes back
 * is compared.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base.h"
#include "ckpt.h"
#include "group/group.h"

enum { OURS, PLAIN, COPY, N_TIMED };

/* Shared by all ranks and the process that forked them. */
typedef struct shared {
    double seconds[N_TIMED][CKPT_MAX_ROUNDS][CKPT_MAX_RANKS];
    uint64_t read_bytes[CKPT_MAX_RANKS], extra_bytes[CKPT_MAX_RANKS];   /* the most of all rounds */
    uint64_t wanted_bytes[CKPT_MAX_RANKS], stored_bytes;
} shared;

typedef struct phase {
    const ckpt_options *o;
    shared *sh;
    const uint8_t *tile;
    int n_ranks;
    bool load, by_columns;
} phase;

typedef struct rank_run {
    const phase *p;
    dtp_group *group;
    dtp_ctx *ctx;
    ckpt_state state;
    uint8_t *scratch;
    uint64_t scratch_bytes;
    int rank;
    dtp_error err;
} rank_run;

static volatile sig_atomic_t stopped;

static void on_interrupt(int sig)
{
    stopped = sig;
}

/* ---- one rank ---- */

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

static double save_step(rank_run *r, const char *dir)
{
    static const struct {
        const char *name;
        dtp_codec codec;
    } codecs[] = { { "none", DTP_CODEC_NONE }, { "zstd", DTP_CODEC_ZSTD }, { "planes", DTP_CODEC_PLANES } };
    const ckpt_options *o = r->p->o;
    dtp_ckpt_save_opts opts = DTP_CKPT_SAVE_OPTS_INIT;

    opts.no_sync = o->no_sync;
    opts.timeout_ms = o->timeout_ms;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(codecs); i++)
        if (strcmp(o->codec, codecs[i].name) == 0)
            opts.codec = codecs[i].codec;
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
    return barrier(r) && note(r, OURS, round, save_step(r, dir)) && barrier(r) &&
           note(r, PLAIN, round, ckpt_plain_write(o, r->rank, r->state.data, r->state.bytes)) && barrier(r) &&
           note(r, COPY, round, ckpt_plain_copy(r->scratch, r->scratch_bytes, r->state.data, r->state.bytes));
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

static double load_step(rank_run *r, const char *dir)
{
    dtp_ckpt *c = NULL;
    const int64_t begin = bench_now_ns();

    dtp_status st = dtp_ckpt_open(r->ctx, dir, 1, &c, &r->err);
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
    shared *sh = r->p->sh;

    reset_peak();
    const uint64_t read0 = bytes_read(), memory0 = proc_number("/proc/self/status", "VmRSS:");
    const double s = load_step(r, dir);
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
    if (!barrier(r) || !note(r, OURS, round, watched_load(r, dir)) || !is_right(r) || !barrier(r))
        return false;
    return note(r, PLAIN, round,
                ckpt_plain_read(o, r->rank, r->p->n_ranks, r->state.data, r->state.bytes)) &&
           barrier(r) &&
           note(r, COPY, round, ckpt_plain_copy(r->scratch, r->scratch_bytes, r->state.data, r->state.bytes));
}

static int run_rank(dtp_group *group, void *user)
{
    const phase *p = user;
    rank_run r = { .p = p, .group = group, .ctx = dtpi_group_ctx(group), .rank = dtp_group_rank(group) };

    signal(SIGINT, SIG_DFL);
    bool ok = ckpt_state_make(&r.state, p->o, p->tile, r.rank, p->n_ranks, p->by_columns);
    r.scratch_bytes = DTPI_MIN(r.state.bytes, 128ull << 20);
    r.scratch = ok ? aligned_alloc(4096, r.scratch_bytes + 4096) : NULL;
    ok = ok && r.scratch;
    if (ok) {
        p->sh->wanted_bytes[r.rank] = r.state.bytes;
        ckpt_state_fill(&r.state);
        memset(r.scratch, 0, r.scratch_bytes);
    }
    /* The first round warms up; a save for a load needs no other. */
    const int n = p->load || strcmp(p->o->op, "save") == 0 ? p->o->rounds : 0;
    for (int i = -1; ok && i < n; i++)
        ok = p->load ? load_round(&r, i) : save_round(&r, i);
    free(r.scratch);
    ckpt_state_free(&r.state);
    return ok ? BENCH_OK : BENCH_FAILED;
}

/* ---- results ---- */

static bench_stats rates(const phase *p, int what)
{
    double v[CKPT_MAX_ROUNDS];

    for (int i = 0; i < p->o->rounds; i++) {
        double slowest = 1e-9;
        for (int rank = 0; rank < p->n_ranks; rank++)
            slowest = DTPI_MAX(slowest, p->sh->seconds[what][i][rank]);
        v[i] = (double)p->o->bytes * 1e-9 / slowest;
    }
    return bench_summarise(v, p->o->rounds);
}

static const char *file_system(const char *path)
{
    enum { TMPFS = 0x01021994, EXT = 0xef53, XFS = 0x58465342, BTRFS = 0x9123683e, NFS = 0x6969,
           OVERLAY = 0x794c7630 };
    struct statfs fs;

    if (statfs(path, &fs) < 0)
        return "unknown";
    switch ((unsigned)fs.f_type) {
    case TMPFS:
        return "tmpfs";
    case EXT:
        return "ext4";
    case XFS:
        return "xfs";
    case BTRFS:
        return "btrfs";
    case NFS:
        return "nfs";
    case OVERLAY:
        return "overlay";
    default:
        return "other";
    }
}

static void print_result(const phase *p, double fio)
{
    const ckpt_options *o = p->o;
    const bench_stats ours = rates(p, OURS), plain = rates(p, PLAIN), copy = rates(p, COPY);
    const char *cache = !p->load ? "none" : o->warm ? "warm" : "cold";
    uint64_t read = 0, wanted = 0, extra = 0;

    for (int i = 0; i < p->n_ranks; i++) {
        read += p->sh->read_bytes[i];
        wanted += p->sh->wanted_bytes[i];
        extra = DTPI_MAX(extra, p->sh->extra_bytes[i]);
    }
    const double ratio = p->sh->stored_bytes ? (double)o->bytes / (double)p->sh->stored_bytes : 0;
    const double read_ratio = wanted ? (double)read / (double)wanted : 0;
    if (!o->json) {
        printf("%8s %6d %12llu %7s %7s %9.3f %9.3f %7.2f %9.3f %9.3f %8.3f %8.3f %8.1f\n", o->op, p->n_ranks,
               (unsigned long long)o->bytes, o->type->name, o->codec, ours.median, plain.median,
               ours.median / plain.median, copy.median, fio * 1e-9, ratio, read_ratio,
               (double)extra / (1 << 20));
        return;
    }
    printf("{\"bench\":\"ckpt\",\"op\":\"%s\",\"ranks\":%d,\"saved_by\":%d,\"bytes\":%llu,\"type\":\"%s\",\"codec\":\"%s\","
           "\"rounds\":%d,\"gb_per_s\":%.4f,\"min_gb_per_s\":%.4f,\"max_gb_per_s\":%.4f,\"plain_gb_per_s\":%.4f,"
           "\"of_plain\":%.4f,\"memcpy_gb_per_s\":%.4f,",
           o->op, p->n_ranks, o->ranks, (unsigned long long)o->bytes, o->type->name, o->codec, o->rounds,
           ours.median, ours.min, ours.max, plain.median, ours.median / plain.median, copy.median);
    if (fio > 0)
        printf("\"fio_gb_per_s\":%.4f,\"of_fio\":%.4f,", fio * 1e-9, ours.median / (fio * 1e-9));
    if (p->load)
        printf("\"ratio\":%.5f,\"read_ratio\":%.4f,\"extra_bytes\":%llu,", ratio, read_ratio,
               (unsigned long long)extra);
    printf("\"cache\":\"%s\",\"sync\":%s,\"fs\":\"%s\",\"cpus\":%d,\"version\":\"%s\"}\n", cache,
           o->no_sync ? "false" : "true", file_system(o->work), bench_n_cpus(), dtp_version());
}

static void print_head(const ckpt_options *o)
{
    if (!o->json)
        printf("#     op  ranks         size    type   codec      rate     plain   ratio    memcpy       fio   shrunk     read    extra\n"
               "#                    (bytes)                    (GB/s)    (GB/s)            (GB/s)    (GB/s)  (times)  (times)    (MiB)\n");
}

/* ---- the run ---- */

static int run_phase(phase *p)
{
    const int rc = bench_run_ranks(&bench_ckpt, p->n_ranks, p->o->timeout_ms, run_rank, p);

    return stopped ? BENCH_FAILED : rc;
}

/* The plain files lie there too. */
static int check_room(const ckpt_options *o)
{
    struct statvfs fs;
    const uint64_t want = o->bytes * (o->fio ? 3 : 2) + (64 << 20);

    if (statvfs(o->work, &fs) < 0 || fs.f_bavail * fs.f_frsize >= want)
        return BENCH_OK;
    fprintf(stderr, "dtp-bench ckpt: %s has %llu bytes free, %llu are needed\n", o->dir,
            (unsigned long long)(fs.f_bavail * fs.f_frsize), (unsigned long long)want);
    return BENCH_FAILED;
}

static int run_all(const ckpt_options *o, shared *sh, const uint8_t *tile)
{
    const bool reshard = strcmp(o->op, "reshard") == 0, save = strcmp(o->op, "save") == 0;
    phase first = { .o = o, .sh = sh, .tile = tile, .n_ranks = o->ranks };
    phase second = { .o = o, .sh = sh, .tile = tile, .n_ranks = reshard ? o->to : o->ranks, .load = true,
                     .by_columns = reshard };

    int rc = check_room(o);
    if (rc == BENCH_OK)
        rc = run_phase(&first);
    if (rc == BENCH_OK && !save)
        rc = run_phase(&second);
    if (rc != BENCH_OK)
        return rc;
    const phase *last = save ? &first : &second;
    double fio = 0;
    if (o->fio)
        fio = ckpt_fio(o, true, last->n_ranks);
    if (o->fio && !save)
        fio = ckpt_fio(o, false, last->n_ranks);
    print_head(o);
    print_result(last, fio);
    return BENCH_OK;
}

int ckpt_run_files(ckpt_options *o)
{
    shared *sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sigaction stop = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART }, before;
    int rc = BENCH_FAILED;

    if (snprintf(o->work, sizeof(o->work), "%s/dtp-bench.%d", o->dir, (int)getpid()) >= (int)sizeof(o->work))
        return bench_usage(&bench_ckpt, "--dir: '%.40s...' is too long", o->dir);
    if (mkdir(o->work, 0700) < 0) {
        fprintf(stderr, "dtp-bench ckpt: %s: %s\n", o->work, strerror(errno));
        return BENCH_FAILED;
    }
    sigaction(SIGINT, &stop, &before);
    uint8_t *tile = ckpt_make_tile(o->type, o->seed);
    if (sh != MAP_FAILED && tile)
        rc = run_all(o, sh, tile);
    else
        fprintf(stderr, "dtp-bench ckpt: no memory\n");
    free(tile);
    ckpt_remove_tree(o->work);
    sigaction(SIGINT, &before, NULL);
    return rc;
}
