/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.h - collectives among the ranks of one node through a piece of shared memory.
 *
 * The engine knows memory, a number of members and its own index, and nothing of groups. A call is a
 * row of iterations, the same on every member: copy a chunk of the input into a slot of one's own,
 * reduce or fetch an earlier chunk from the slots of the others, say so. It never blocks by itself:
 * dtpi_shm_step() goes as far as the others allow, dtpi_shm_idle() passes the time between steps.
 *
 * User buffers are never mapped into another process; each word of shared memory has one writer.
 */
#ifndef DTPI_COLL_SHM_H
#define DTPI_COLL_SHM_H

#include <stdatomic.h>

#include "coll/kernel.h"
#include "ctx/ctx.h"

typedef enum dtpi_coll_kind {
    DTPI_ALLREDUCE = 1,
    DTPI_REDUCE_SCATTER,
    DTPI_ALLGATHER,
    DTPI_BROADCAST,
    DTPI_COLL_KIND_END
} dtpi_coll_kind;

/* One call of a collective. `count` is per rank where the public function says so. */
typedef struct dtpi_coll_call {
    dtpi_coll_kind kind;
    dtp_dtype dtype;
    dtp_redop redop;            /* 0 where nothing is reduced */
    int32_t root;               /* of a broadcast, an index; else 0 */
    size_t count;
    const void *in;
    void *out;
} dtpi_coll_call;

enum {
    DTPI_SHM_MAX_MEMBERS = 1024,
    DTPI_SHM_INLINE = 168,      /* bytes that travel with the announcement */
    DTPI_SHM_CPU_WORDS = 16     /* 1024 processors */
};

/* Announcement of a call: some lines of the cache, written by one member, `seq` last. */
typedef struct dtpi_shm_line {
    _Alignas(64) _Atomic uint64_t seq;
    uint64_t header[2];
    uint8_t data[DTPI_SHM_INLINE];
} dtpi_shm_line;

static_assert(sizeof(dtpi_shm_line) == 192, "an announcement is three lines");

/* What one member writes; words that change at different times are kept apart for prefetchers' sake. */
typedef struct dtpi_shm_member {
    struct {
        _Alignas(256) dtpi_shm_line line;
    } call[2];                  /* used in turns */
    _Alignas(128) _Atomic uint64_t tick;    /* iterations finished after a call's first */
    _Alignas(128) _Atomic uint32_t cpu;     /* where it was seen last, plus 1 */
    _Atomic uint32_t left;                  /* 1: it makes no further call */
    uint64_t cpus[DTPI_SHM_CPU_WORDS];      /* where it may run */
} dtpi_shm_member;

/* What all write. */
typedef struct dtpi_shm_head {
    _Alignas(256) _Atomic uint64_t gone;        /* 0, or who gave up and why */
    _Alignas(128) _Atomic uint32_t n_sleepers;
    _Alignas(128) _Atomic uint32_t bell;        /* sleepers wait for it to change */
} dtpi_shm_head;

/* How a call is cut: a function of the call and the number of members alone (shm_plan.c). */
typedef struct dtpi_shm_plan {
    enum { DTPI_PLAN_INLINE, DTPI_PLAN_DIRECT, DTPI_PLAN_SLICES } way;
    uint32_t lag;               /* iterations between a chunk's copy and its use */
    size_t chunk;               /* elements of a chunk (reduce-scatter: of each block) */
    uint64_t n_chunks;
    uint64_t n_iterations;
    bool stream;                /* results go past the caches */
} dtpi_shm_plan;

/* Where the chunks of a call lie in a piece of memory: one after the other, around and around. */
typedef struct dtpi_ring {
    size_t bytes;               /* of the piece */
    size_t at;                  /* end of the last call's chunks */
    size_t stride, first, n;    /* of the present call: bytes of a slot, its first slot, slots */
} dtpi_ring;

typedef struct dtpi_shm_opts {
    void *memory;               /* zeroed, shared by all, lent */
    size_t bytes;               /* at least dtpi_shm_bytes(n) */
    uint32_t n, index;
    const int32_t *ranks;       /* numbers for messages, n of them, lent; NULL: the indices */
    const _Atomic uint32_t *verdict;    /* not 0: give up; lent; NULL: none */
    dtp_ctx *ctx;               /* clock and `interrupted`; lent; NULL: none */
    void (*poll)(void *user);   /* called about every 50 ms of waiting; NULL: none */
    void *poll_user;
    const dtp_allocator *allocator;
    const dtpi_kernels *kernels;        /* NULL: the best */
    uint32_t oversubscribed;    /* 1: yes, 2: no, 0: found out */
} dtpi_shm_opts;

typedef struct dtpi_shm {
    dtpi_shm_opts o;
    dtpi_shm_head *head;
    dtpi_shm_member *members;
    dtpi_shm_member *own;
    uint8_t *slots;             /* of all members */
    int32_t *program;           /* the order of additions */
    uint32_t n_steps;
    dtpi_input *inputs;
    bool oversubscribed;
    uint32_t cpu;               /* as written last */
    bool busy;                  /* inside a call */
    dtp_status broken;          /* after a failure: every later call returns it */

    uint64_t seq;               /* calls announced */
    dtpi_ring ring, results;    /* of every member, at the same place */
    uint64_t tick;              /* iterations counted in earlier calls */

    /* the call in progress */
    dtpi_coll_call call;
    uint64_t header[2];
    dtpi_reduction reduction;
    size_t elem_bytes;
    dtpi_shm_plan plan;
    uint64_t iteration;
    uint32_t n_seen;            /* members known to have done what the iteration needs */

    /* how slots are written */
    bool far;                   /* reading those of others was slow when last timed */
    bool write_past;            /* this call: past the caches */
    bool timed;                 /* this call: written the usual way, its reading is timed */
    uint32_t n_past;
    uint64_t timed_bytes, timed_ns;
} dtpi_shm;

/* Shared memory that n members need. */
size_t dtpi_shm_bytes(uint32_t n);

/* Errors: INVAL, NOMEM. Detach with dtpi_shm_detach, which leaves the memory alone. */
dtp_status dtpi_shm_attach(dtpi_shm *e, const dtpi_shm_opts *o, dtp_error *err);
void dtpi_shm_detach(dtpi_shm *e);
/* Tells the others that this member makes no further call; those that wait for one fail with PEER. */
void dtpi_shm_leave(dtpi_shm *e);

/* Begins a call; the engine must be idle. Errors: UNSUPPORTED, INVAL, or what broke it earlier. */
dtp_status dtpi_shm_begin(dtpi_shm *e, const dtpi_coll_call *call, dtp_error *err);

/*
 * Goes on as far as possible: PENDING when others must act first, else how the call ended.
 * Errors: INVAL (members call different things; all get it).
 */
dtp_status dtpi_shm_step(dtpi_shm *e, dtp_error *err);

/* Time spent between steps of one call. */
typedef struct dtpi_shm_wait {
    int timeout_ms;
    uint32_t n;
    int64_t started_ns;         /* when it was first looked at the clock */
    int64_t deadline_ns;
    int64_t asked_ns;
    int64_t idle_since_ns;      /* of yielding, 0: still spinning */
    bool slept;
} dtpi_shm_wait;

/*
 * Spins, gives the processor away, or sleeps, depending on how long it has been. Errors: TIMEOUT (names
 * who is missing), INTERRUPTED, PEER (a member left or gave up; without text: the verdict). Any of them ends the
 * call and breaks the engine.
 */
dtp_status dtpi_shm_idle(dtpi_shm *e, dtpi_shm_wait *w, dtp_error *err);
/* The same without passing any time. */
dtp_status dtpi_shm_look(dtpi_shm *e, dtpi_shm_wait *w, int64_t now_ns, dtp_error *err);

/* begin, step and idle until the call ends. */
dtp_status dtpi_shm_run(dtpi_shm *e, const dtpi_coll_call *call, int timeout_ms, dtp_error *err);

/* Ends the call in progress with `status`, breaks the engine and tells the others. */
void dtpi_shm_give_up(dtpi_shm *e, dtp_status status);

/* ---- for an engine above that spans nodes: the same memory, in phases of its own ---- */

/* Opens a call: its header for all to see. */
void dtpi_shm_open_call(dtpi_shm *e, const dtpi_coll_call *call);
/* All members have opened the call; then their headers can be read. */
bool dtpi_shm_all_opened(dtpi_shm *e);
const uint64_t *dtpi_shm_header(const dtpi_shm *e, uint32_t member);
/* Says that phase `k` (1, 2, ...) of the call is done here; whether all have said so. */
void dtpi_shm_phase_done(dtpi_shm *e, uint64_t k);
bool dtpi_shm_phase_all(dtpi_shm *e, uint64_t k);
/* Closes a call that had `n` phases, the same number on all members. */
void dtpi_shm_close_call(dtpi_shm *e, uint64_t n);
/* Memory that `member` writes and all read, DTPI_SHM_RING_BYTES and DTPI_SHM_RESULT_BYTES. */
uint8_t *dtpi_shm_input_of(const dtpi_shm *e, uint32_t member);
uint8_t *dtpi_shm_result_of(const dtpi_shm *e, uint32_t member);

/* ---- between the files of the engine ---- */

static inline int32_t dtpi_shm_rank(const dtpi_shm *e, uint32_t member)
{
    return e->o.ranks ? e->o.ranks[member] : (int32_t)member;
}

static inline dtpi_shm_line *dtpi_shm_announcement(const dtpi_shm *e, uint32_t member)
{
    return &e->members[member].call[e->seq & 1].line;
}

/* The present iteration can begin. */
bool dtpi_shm_ready(dtpi_shm *e);
/* Names the members that have not done what the present iteration needs; `*first_out` -1: none. */
void dtpi_shm_missing(const dtpi_shm *e, char *text_out, size_t room, int32_t *first_out);
/* The first member that has not done it and has left; -1: none. */
int32_t dtpi_shm_missing_left(const dtpi_shm *e);
/* Writes where this member may run; before its first announcement. */
void dtpi_shm_write_cpus(dtpi_shm *e);
/* Writes where it runs now; nearly free when that has not changed. */
void dtpi_shm_write_cpu(dtpi_shm *e);
/* Whether there are fewer processors than members, from what the members wrote. */
bool dtpi_shm_is_crowded(const dtpi_shm *e);
/* Wakes sleepers; after every publication. */
void dtpi_shm_ring_slow(dtpi_shm *e);
static inline void dtpi_shm_ring(dtpi_shm *e)
{
    /* May be read too early to see a sleeper that has just laid down: its first sleep is short. */
    if (DTPI_UNLIKELY(atomic_load_explicit(&e->head->n_sleepers, memory_order_relaxed) != 0))
        dtpi_shm_ring_slow(e);
}

/* ---- shm_plan.c ---- */

enum {
    DTPI_SHM_RING_BYTES = 2 << 20,
    DTPI_SHM_RESULT_BYTES = 1 << 20,
    DTPI_SHM_CHUNK_BYTES = 256 << 10    /* at most; an eighth of the ring */
};

/* Begins a call whose chunks are `bytes` long; at most an eighth of the ring. */
void dtpi_ring_begin(dtpi_ring *r, size_t bytes);
void dtpi_ring_end(dtpi_ring *r, uint64_t n_chunks);
static inline size_t dtpi_ring_offset(const dtpi_ring *r, uint64_t chunk)
{
    return (size_t)((r->first + chunk) % r->n) * r->stride;
}

void dtpi_shm_plan_make(dtpi_shm_plan *plan, const dtpi_coll_call *call, size_t elem_bytes, uint32_t n,
                        bool crowded);
/* Elements of a slice of `count` elements for each of n members: whole lines of the cache. */
size_t dtpi_shm_slice(size_t count, size_t elem_bytes, uint32_t n);
/* "allreduce of 1024 f32, sum", from a header. */
void dtpi_coll_describe(const uint64_t header[2], char *text_out, size_t room);
void dtpi_coll_header(const dtpi_coll_call *call, uint64_t header_out[2]);

#endif /* DTPI_COLL_SHM_H */
