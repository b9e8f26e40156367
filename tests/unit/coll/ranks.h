/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - runs a function as n members over one piece of shared memory, as processes or threads.
 *
 * A member returns 0 for success; its message otherwise is printed by run_ranks, which returns how many
 * failed. Threads serve the thread sanitizer, which sees nothing across processes.
 */
#ifndef DTP_TESTS_COLL_RANKS_H
#define DTP_TESTS_COLL_RANKS_H

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll/shm.h"

typedef int (*rank_fn)(dtpi_shm *e, void *user);

typedef struct rank_start {
    rank_fn fn;
    void *user;
    dtpi_shm_opts opts;
    int failed;
} rank_start;

static inline int run_rank(const rank_start *s)
{
    dtpi_shm e;
    dtp_error err = { 0 };

    if (dtpi_shm_attach(&e, &s->opts, &err) < 0)
        return 1;
    const int failed = s->fn(&e, s->user);
    dtpi_shm_detach(&e);
    return failed;
}

static inline void *run_rank_thread(void *user)
{
    rank_start *s = user;

    s->failed = run_rank(s);
    return NULL;
}

static inline int as_threads(rank_start *starts, uint32_t n)
{
    pthread_t threads[64];
    int failed = 0;

    for (uint32_t i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, run_rank_thread, &starts[i]) != 0)
            abort();
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        failed += starts[i].failed != 0;
    }
    return failed;
}

static inline int as_processes(const rank_start *starts, uint32_t n)
{
    pid_t pids[64];
    int failed = 0, status;

    fflush(NULL);
    for (uint32_t i = 0; i < n; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            alarm(60);
            const int f = run_rank(&starts[i]);
            fflush(NULL);
            _exit(f != 0);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        failed += waitpid(pids[i], &status, 0) != pids[i] || status != 0;
    return failed;
}

static inline int run_ranks(uint32_t n, const dtpi_shm_opts *base, rank_fn fn, void *user)
{
    rank_start starts[64];
    const size_t bytes = dtpi_shm_bytes(n);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED || n > 64)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        starts[i] = (rank_start){ .fn = fn, .user = user, .opts = *base };
        starts[i].opts.memory = memory;
        starts[i].opts.bytes = bytes;
        starts[i].opts.n = n;
        starts[i].opts.index = i;
        starts[i].opts.allocator = &dtpi_malloc_allocator;
    }
    const int failed = getenv("DTP_TEST_THREADS") ? as_threads(starts, n) : as_processes(starts, n);
    munmap(memory, bytes);
    return failed;
}

#endif /* DTP_TESTS_COLL_RANKS_H */
