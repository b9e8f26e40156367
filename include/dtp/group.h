/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtp/group.h - a process group: join, barrier, allgather, broadcast, key-value, split.
 *
 * Control messages only (kilobytes); bulk data belongs to dtp/coll.h. Every call has a deadline, and
 * a failure names the ranks that are missing or died, the same set on every survivor.
 */
#ifndef DTP_GROUP_H
#define DTP_GROUP_H

#include <dtp/ctx.h>
#include <dtp/topo.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtp_group dtp_group;

enum { DTP_SECRET_BYTES = 32, DTP_GROUP_MAX_MSG = 1 << 20, DTP_RANK_NEW = -1 };

typedef struct dtp_group_opts {
    size_t size;
    int32_t rank;               /* 0 .. world_size-1; DTP_RANK_NEW: comes to a group that stands */
    int32_t world_size;         /* 0: a group of one, no network */
    int32_t local_rank;         /* among the ranks of this machine */
    int32_t local_size;         /* 0: world_size (all on this machine) */
    const char *job;            /* name of the job, at most 63 bytes; NULL: "default" */
    uint32_t attempt;           /* start of the gang, counted by the job */
    const char *root;           /* "host:port[-last],..." of the root agent; NULL: all on this machine */
    const char *agent;          /* Unix socket of a running agent; NULL: local rank 0 starts one */
    const uint8_t *secret;      /* DTP_SECRET_BYTES; NULL: only with insecure = 1 */
    uint32_t insecure;          /* 1: no secret; every rank must agree */
    int32_t timeout_ms;         /* of joining, and default of every call; 0: 300000 */
    const char *net;            /* control between machines: "tcp", "ucx"; NULL or "auto": ucx where safe */
    int32_t node;               /* this node's place in the tree of agents, 0 is the root's; with n_nodes */
    int32_t n_nodes;            /* 0: unknown, the root agent gives every agent its parent */
    int32_t radix;              /* children of an agent; 0: chosen by payload, at most 32 */
    const char *parent;         /* candidates of the parent agent, as `root`; NULL: asked of the root */
    const char *listen;         /* "host:first-last" where this node's agent listens; NULL: any, free port */
    uint32_t encrypt;           /* 1: control between nodes is encrypted; every node must agree */
    /* Where `secret` is NULL: the root makes one, and MUNGE hands it to the other nodes of the same user. The
     * socket of munged, "": the usual one; NULL: no. Every rank must agree. */
    const char *munge;
} dtp_group_opts;

#define DTP_GROUP_OPTS_INIT { .size = sizeof(dtp_group_opts) }

/*
 * Joins the group that `opts` describes and returns when all ranks are there. A rank that has left a
 * group of the same job and attempt waits until that one is over.
 * Errors: INVAL, RANGE (rank), EXISTS (rank twice), AUTH, PERM, VERSION, PEER (ranks never joined),
 * TIMEOUT, IO, LIMIT, NOMEM, BUSY (left a group that a launcher's agent still serves), FORKED,
 * INTERRUPTED. Caller closes. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_group_join(dtp_ctx *ctx, const dtp_group_opts *opts, dtp_group **group_out,
                                  dtp_error *err);

/*
 * Joins the group that the environment describes: dtp run, torchrun, Slurm, MPI launchers; a group of
 * one when no launcher is recognised. Reads DTP_*, and the launchers' variables (docs/group.md).
 * Errors: as dtp_group_join, and FORMAT naming the variable. Caller closes. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_group_join_from_env(dtp_ctx *ctx, dtp_group **group_out, dtp_error *err);

/*
 * Leaves: tells the others that this rank is done, so that its end is no failure. Does not wait for
 * them. NULL is fine; in a forked child nothing is sent. Threads: ctx. Since 0.1.
 */
DTP_API void dtp_group_close(dtp_group *group);

/* Numbers of this rank in this group. Threads: any. Since 0.1. */
DTP_API int32_t dtp_group_rank(const dtp_group *group);
DTP_API int32_t dtp_group_size(const dtp_group *group);
DTP_API int32_t dtp_group_local_rank(const dtp_group *group);
DTP_API int32_t dtp_group_local_size(const dtp_group *group);
DTP_API uint32_t dtp_group_attempt(const dtp_group *group);
DTP_API uint32_t dtp_group_generation(const dtp_group *group);

/* One row of the table of ranks. */
typedef struct dtp_group_member {
    size_t size;
    int32_t rank;
    int32_t local_rank;
    int32_t node;               /* 0 .. n_nodes-1, in order of the lowest rank */
    int32_t pid;
    const char *host;           /* name the node gave itself; lent */
    int32_t identity;           /* number in the first generation; newcomers: from its size on */
} dtp_group_member;

/* Row of `rank`. Errors: RANGE, INVAL (`size`). Threads: any. Since 0.1. */
DTP_API dtp_status dtp_group_get(const dtp_group *group, int32_t rank, dtp_group_member *member_out,
                                 dtp_error *err);

/*
 * All ranks have called it when it returns. `timeout_ms` 0: the group's default; negative: no deadline.
 * Errors: TIMEOUT (names who is missing), PEER, ABORTED, INVAL (calls that differ), NOMEM, BUSY, FORKED,
 * INTERRUPTED. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_group_barrier(dtp_group *group, int timeout_ms, dtp_error *err);

/*
 * Gathers `bytes` bytes of each rank (lengths may differ, at most DTP_GROUP_MAX_MSG together) on all
 * ranks. `*data_out` gets the concatenation in rank order, `sizes_out` (room for `size` numbers,
 * may be NULL) the lengths; free `*data_out` with dtp_group_free().
 * Errors: as barrier, LIMIT, NOMEM. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_group_allgather(dtp_group *group, const void *data, size_t bytes,
                                       void **data_out, size_t *sizes_out, size_t *bytes_out,
                                       int timeout_ms, dtp_error *err);

/*
 * Gives `bytes` bytes of `root` to all; every rank passes the same `bytes`. Errors: as barrier, LIMIT,
 * INVAL (sizes or roots differ), RANGE (`root`). Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_group_broadcast(dtp_group *group, int32_t root, void *data, size_t bytes,
                                       int timeout_ms, dtp_error *err);

/*
 * Sets a key for the whole group; a second set replaces. Keys are 1 to 255 bytes of text.
 * Errors: as barrier, INVAL (the key), LIMIT, NOMEM. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_group_set(dtp_group *group, const char *key, const void *value, size_t bytes,
                                 int timeout_ms, dtp_error *err);

/*
 * Reads a key, waiting until it is set (`timeout_ms` negative: do not wait). Free `*value_out` with
 * dtp_group_free(). Errors: NOT_FOUND, INVAL (the key), TIMEOUT (names the key),
 * NOMEM, as barrier. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_group_lookup(dtp_group *group, const char *key, void **value_out,
                                    size_t *bytes_out, int timeout_ms, dtp_error *err);

/*
 * Changes of a key, each one step for all ranks. After TIMEOUT or INTERRUPTED it may or may not have
 * happened. Errors of all: as dtp_group_set. Threads: ctx. Since 0.1.
 *
 * dtp_group_add: adds to a number in decimal text; a key that is not set counts as 0. `*sum_out` (may be
 * NULL) gets the sum. FORMAT (the value is no number), RANGE (the sum has more than 64 bits).
 * dtp_group_compare_set: sets `desired` where the value equals `expected`; 0 bytes expected: where the
 * key is not set, or empty. `*value_out` (may be NULL) gets the value afterwards, freed with
 * dtp_group_free(). NOT_FOUND (not set, and something was expected).
 * dtp_group_append: appends to the value; a key that is not set counts as empty.
 * dtp_group_unset: removes the key. NOT_FOUND.
 */
DTP_API dtp_status dtp_group_add(dtp_group *group, const char *key, int64_t delta, int64_t *sum_out,
                                 int timeout_ms, dtp_error *err);
DTP_API dtp_status dtp_group_compare_set(dtp_group *group, const char *key, const void *expected,
                                         size_t expected_bytes, const void *desired,
                                         size_t desired_bytes, void **value_out, size_t *bytes_out,
                                         int timeout_ms, dtp_error *err);
DTP_API dtp_status dtp_group_append(dtp_group *group, const char *key, const void *value,
                                    size_t bytes, int timeout_ms, dtp_error *err);
DTP_API dtp_status dtp_group_unset(dtp_group *group, const char *key, int timeout_ms, dtp_error *err);

/* Number of keys that are set. Errors: as dtp_group_set. Threads: ctx. Since 0.1. */
DTP_API dtp_status dtp_group_n_keys(dtp_group *group, uint64_t *n_out, int timeout_ms,
                                    dtp_error *err);

/*
 * The topology of the node of `rank`, discovered once per node: the first rank of a node that asks
 * discovers, the others read what it found. That of another node is there once a rank of that node has
 * asked for its own; waits for that (`timeout_ms` negative: does not). `*id_out` (may be NULL) gets a
 * number that nodes built alike share; with `topo_out` NULL that is all, and costs least. The bound view
 * is the calling thread's, none for other nodes; devices are those that the discovering rank may see.
 * Errors: RANGE, TIMEOUT and NOT_FOUND (nobody has asked there), as dtp_topo_load, as dtp_group_lookup.
 * Caller closes with dtp_topo_close(). Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_group_topo(dtp_group *group, int32_t rank, dtp_topo **topo_out,
                                  uint64_t *id_out, int timeout_ms, dtp_error *err);

/* Frees what allgather, lookup and compare_set returned; NULL is fine. Threads: any. Since 0.1. */
DTP_API void dtp_group_free(void *p);

/*
 * Splits: ranks with the same `color` form a group of their own, ordered by `key`, then rank; a
 * negative color joins none (`*group_out` = NULL). Collective. Errors: as barrier. Caller closes.
 * Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_group_split(dtp_group *group, int32_t color, int32_t key, int timeout_ms,
                                   dtp_group **group_out, dtp_error *err);

typedef struct dtp_reform_opts {
    size_t size;
    int32_t timeout_ms;         /* 0: the group's default; negative: no deadline */
    int32_t min_size;           /* with fewer ranks there is no new group; 0: 1 */
} dtp_reform_opts;

#define DTP_REFORM_OPTS_INIT { .size = sizeof(dtp_reform_opts) }

/*
 * The survivors go on without those that were lost, and with the newcomers that wait: a new group, one
 * generation later, in which the ranks keep their order and are numbered anew. Collective over the live
 * ranks of the group of all ranks; who does not call in time is left out and told so. The old group and
 * what was split from it are over and only to be closed; split and open collectives on the new one.
 * Errors: PEER (left out; fewer than `min_size`; the agent or the root is gone), ABORTED, INVAL (a group
 * that was split off), TIMEOUT, NOMEM, LIMIT, BUSY, FORKED, INTERRUPTED. Caller closes both. Threads: ctx.
 * Since 0.1.
 */
DTP_API dtp_status dtp_group_reform(dtp_group *group, const dtp_reform_opts *opts,
                                    dtp_group **group_out, dtp_error *err);

/* Newcomers (DTP_RANK_NEW) that wait for a re-form, as far as this node knows. Threads: any. Since 0.1. */
DTP_API int32_t dtp_group_n_waiting(const dtp_group *group);

/*
 * Ends the group for all ranks: every blocked or later call returns ABORTED with `reason`.
 * Threads: any. Since 0.1.
 */
DTP_API void dtp_group_abort(dtp_group *group, const char *reason);

/*
 * The ranks that failed, ascending; writes at most `capacity` and returns how many there are.
 * Threads: any. Since 0.1.
 */
DTP_API size_t dtp_group_failed(const dtp_group *group, int32_t *ranks_out, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif /* DTP_GROUP_H */
