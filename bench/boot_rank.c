/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_rank.c - a rank of `dtp-bench boot`: joins, looks at the table, passes a barrier and writes down when.
 *
 * It links libdtp.so and nothing else, as a user's program does. What it costs to write things down comes
 * after all ranks are through.
 */
#include <dirent.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "boot.h"

static int64_t clock_ns(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return ts.tv_sec * (int64_t)1000000000 + ts.tv_nsec;
}

static boot_page *map_page(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return NULL;
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

static int count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n - 3;       /* ".", ".." and the folder itself */
}

/* Until all are over: nobody's clock suffers from what others do afterwards. */
static void wait_for_all(boot_page *page, _Atomic uint32_t *count)
{
    uint32_t n = atomic_fetch_add(count, 1) + 1;

    for (; n < page->n_ranks && !atomic_load(&page->n_failed); n = atomic_load(count))
        syscall(SYS_futex, count, FUTEX_WAIT, n, &(struct timespec){ .tv_sec = 1 }, NULL, 0);
    syscall(SYS_futex, count, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Every rank stands in the table, with a process. */
static dtp_status check_table(const dtp_group *g, dtp_error *err)
{
    dtp_group_member m = { .size = sizeof(m) };
    dtp_status st = DTP_OK;

    for (int i = 0; i < dtp_group_size(g) && st >= 0; i++) {
        st = dtp_group_get(g, i, &m, err);
        if (st >= 0 && (m.rank != i || m.pid <= 0 || !m.host[0])) {
            snprintf(err->text, sizeof(err->text), "rank %d has no row in the table", i);
            st = DTP_ERR_PROTO;
        }
    }
    return st;
}

/* Some die at once; the others notice in a call, re-form and pass a barrier of their own. */
static dtp_status lose_some(boot_page *page, boot_slot *slot, dtp_group **g, dtp_error *err)
{
    dtp_group *next = NULL;

    wait_for_all(page, &page->n_ready);
    if (boot_is_lost((uint32_t)(slot - page->ranks), page->lose_percent)) {
        slot->died_ns = clock_ns(CLOCK_MONOTONIC);
        raise(SIGKILL);
    }
    dtp_status st = dtp_group_barrier(*g, 0, err);
    if (st != DTP_ERR_PEER)
        return st < 0 ? st : DTP_ERR_PROTO;
    st = dtp_group_reform(*g, NULL, &next, err);
    if (st < 0)
        return st;
    st = dtp_group_barrier(next, 0, err);
    slot->reformed_ns = clock_ns(CLOCK_MONOTONIC);
    dtp_group_close(*g);
    *g = next;
    return st;
}

static dtp_status run(boot_page *page, boot_slot *slot, dtp_ctx *ctx, dtp_error *err)
{
    dtp_group *g;

    dtp_status st = dtp_group_join_from_env(ctx, &g, err);
    if (st < 0)
        return st;
    slot->joined_ns = clock_ns(CLOCK_MONOTONIC);
    st = dtp_group_barrier(g, 0, err);
    slot->done_ns = clock_ns(CLOCK_MONOTONIC);
    slot->cpu_done_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (st >= 0) {
        wait_for_all(page, &page->n_over);
        slot->n_fds = count_fds();
        st = check_table(g, err);
        if (st >= 0 && page->lose_percent)
            st = lose_some(page, slot, &g, err);
    }
    dtp_group_close(g);
    return st;
}

int main(int argc, char **argv)
{
    const int64_t main_ns = clock_ns(CLOCK_MONOTONIC), cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    boot_page *page = argc == 3 ? map_page(atoi(argv[1])) : NULL;
    dtp_error err = { 0 };
    dtp_ctx *ctx;

    if (!page || page->magic != BOOT_MAGIC || (unsigned)atoi(argv[2]) >= page->n_ranks) {
        fprintf(stderr, "dtp-boot-rank: started by dtp-bench, never by hand\n");
        return BENCH_USAGE;
    }
    boot_slot *slot = &page->ranks[atoi(argv[2])];
    slot->main_ns = main_ns;
    slot->cpu_main_ns = cpu_ns;
    slot->status = dtp_ctx_open(NULL, &ctx, &err);
    if (slot->status >= 0) {
        slot->status = run(page, slot, ctx, &err);
        dtp_ctx_close(ctx);
    }
    if (slot->status >= 0)
        return BENCH_OK;
    memcpy(slot->text, err.text, sizeof(slot->text));
    atomic_fetch_add(&page->n_failed, 1);
    wait_for_all(page, &page->n_over);
    return BENCH_FAILED;
}
