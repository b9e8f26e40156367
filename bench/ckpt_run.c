/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_run.c - saves and loads by real processes, in turns with plain files and a plain copy of as many
 * bytes by the same processes. A round lasts until its slowest rank is done; every byte that comes back
 * is compared.
 */
#include <errno.h>
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

/* The files are removed all the same. */
static volatile sig_atomic_t stopped;

static void on_interrupt(int sig)
{
    stopped = sig;
}

/* ---- results ---- */

static bench_stats rates(const ckpt_phase *p, int what)
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

static void print_result(const ckpt_phase *p, double fio)
{
    const ckpt_options *o = p->o;
    const bench_stats ours = rates(p, CKPT_OURS), plain = rates(p, CKPT_PLAIN), copy = rates(p, CKPT_COPY);
    const char *cache = p->kind != CKPT_LOADS ? "none" : o->warm ? "warm" : "cold";
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
    if (p->kind == CKPT_LOADS)
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

static void print_stall(const ckpt_phase *p)
{
    const ckpt_options *o = p->o;
    const bench_stats stall = rates(p, CKPT_OURS), copy = rates(p, CKPT_COPY), durable = rates(p, CKPT_DURABLE);
    const double gb = (double)o->bytes * 1e-9;
    uint64_t grown = 0;

    for (int i = 0; i < p->n_ranks; i++)
        grown = DTPI_MAX(grown, p->sh->grown_bytes[i]);
    if (!o->json) {
        printf("#     op  ranks         size    type   codec     stall      worst    memcpy  ratio    durable   grown\n"
               "#                    (bytes)                    (ms)       (ms)      (ms)             (GB/s)   (MiB)\n"
               "%8s %6d %12llu %7s %7s %9.2f %10.2f %9.2f %6.2f %10.3f %7.1f\n",
               o->op, p->n_ranks, (unsigned long long)o->bytes, o->type->name, o->codec, gb / stall.median * 1e3,
               gb / stall.min * 1e3, gb / copy.median * 1e3, copy.median / stall.median, durable.median,
               (double)grown / (1 << 20));
        return;
    }
    printf("{\"bench\":\"ckpt\",\"op\":\"stall\",\"ranks\":%d,\"bytes\":%llu,\"type\":\"%s\",\"codec\":\"%s\",\"rounds\":%d,"
           "\"gb_per_s\":%.4f,\"stall_ms\":%.4f,\"max_stall_ms\":%.4f,\"memcpy_ms\":%.4f,\"of_memcpy\":%.4f,"
           "\"durable_gb_per_s\":%.4f,\"collectives\":%llu,\"grown_bytes\":%llu,\"sync\":%s,\"fs\":\"%s\",\"cpus\":%d,"
           "\"version\":\"%s\"}\n",
           p->n_ranks, (unsigned long long)o->bytes, o->type->name, o->codec, o->rounds, stall.median,
           gb / stall.median * 1e3, gb / stall.min * 1e3, gb / copy.median * 1e3, copy.median / stall.median,
           durable.median, (unsigned long long)p->sh->n_steps, (unsigned long long)grown,
           o->no_sync ? "false" : "true", file_system(o->work), bench_n_cpus(), dtp_version());
}

/* ---- the run ---- */

static int run_phase(ckpt_phase *p)
{
    const int rc = bench_run_ranks(&bench_ckpt, p->n_ranks, p->o->timeout_ms, ckpt_run_rank, p);

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

static double run_fio(const ckpt_options *o, bool save, int n)
{
    const double written = o->fio ? ckpt_fio(o, true, n) : 0;

    return o->fio && !save ? ckpt_fio(o, false, n) : written;
}

static int run_all(const ckpt_options *o, ckpt_shared *sh, const uint8_t *tile)
{
    const bool reshard = strcmp(o->op, "reshard") == 0, save = strcmp(o->op, "save") == 0;
    const bool stall = strcmp(o->op, "stall") == 0;
    ckpt_phase first = { .o = o, .sh = sh, .tile = tile, .n_ranks = o->ranks, .n_rounds = o->rounds };
    ckpt_phase second = { .o = o, .sh = sh, .tile = tile, .n_ranks = reshard ? o->to : o->ranks,
                          .n_rounds = o->rounds, .kind = CKPT_LOADS, .by_columns = reshard };

    first.kind = stall ? CKPT_STALLS : CKPT_SAVES;
    first.n_rounds = save || stall ? o->rounds : 0;     /* else there is only what is to be loaded */
    int rc = check_room(o);
    if (rc == BENCH_OK)
        rc = run_phase(&first);
    if (rc == BENCH_OK && !save && !stall)
        rc = run_phase(&second);
    if (rc != BENCH_OK)
        return rc;
    const ckpt_phase *last = save || stall ? &first : &second;
    if (stall) {
        print_stall(last);
        return BENCH_OK;
    }
    const double fio = run_fio(o, save, last->n_ranks);
    print_head(o);
    print_result(last, fio);
    return BENCH_OK;
}

int ckpt_run_files(ckpt_options *o)
{
    ckpt_shared *sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sigaction stop = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART }, before, before_term;
    int rc = BENCH_FAILED;

    if (snprintf(o->work, sizeof(o->work), "%s/dtp-bench.%d", o->dir, (int)getpid()) >= (int)sizeof(o->work))
        return bench_usage(&bench_ckpt, "--dir: '%.40s...' is too long", o->dir);
    if (mkdir(o->work, 0700) < 0) {
        fprintf(stderr, "dtp-bench ckpt: cannot make folder %s: %s\n", o->work, strerror(errno));
        return BENCH_FAILED;
    }
    sigaction(SIGINT, &stop, &before);
    sigaction(SIGTERM, &stop, &before_term);
    uint8_t *tile = ckpt_make_tile(o->type, o->seed);
    if (sh != MAP_FAILED && tile)
        rc = run_all(o, sh, tile);
    else
        fprintf(stderr, "dtp-bench ckpt: no memory\n");
    free(tile);
    ckpt_remove_tree(o->work);
    sigaction(SIGINT, &before, NULL);
    sigaction(SIGTERM, &before_term, NULL);
    return rc;
}
