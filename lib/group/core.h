/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h - what an agent decides: membership, collective calls, key-value, verdicts. Pure.
 *
 * Messages and time go in, messages and decisions come out through dtpi_core_ops, which must not call
 * back into the core. Agents form a tree of any shape: the core knows its parent (unless it is the
 * root), its children and its local ranks, each by a slot number that the driver gives. The same code
 * runs behind sockets and in simulation.
 *
 * One pattern carries everything: gather up, broadcast down. The agent whose subtree holds all members
 * of a group is the top of that group and turns a full gather into its result.
 */
#ifndef DTPI_GROUP_CORE_H
#define DTPI_GROUP_CORE_H

#include "group/frame.h"
#include "net/link.h"

typedef struct dtpi_core dtpi_core;

enum { DTPI_STANDBYS = 3, DTPI_ADDRESSES_MAX = 576 };

typedef struct dtpi_core_opts {
    const dtp_allocator *a;
    uint32_t world_size;
    uint32_t n_local;           /* ranks expected here */
    uint32_t attempt;
    bool is_root;
    const char *host;
    uint64_t node_id;           /* random, names the node until it has a number */
    int32_t host_rank;          /* rank whose process hosts this agent, -1: none */
    int64_t now_ns;
    int64_t join_timeout_ns;    /* 0: no limit */
    int64_t beat_ns;            /* between agents; 0: 1 s */
    uint32_t n_children_plus_1; /* how many children will come; 0: not known */
} dtpi_core_opts;

/* What comes out. Messages are lent (take a reference to keep). Mandatory where not said otherwise. */
typedef struct dtpi_core_ops {
    void (*to_local)(void *user, uint32_t slot, dtpi_msg *msg);
    void (*to_child)(void *user, uint32_t slot, dtpi_msg *msg);
    void (*to_parent)(void *user, dtpi_msg *msg);
    /* Everybody is here: publish the table and welcome the local ranks. */
    void (*table)(void *user);
    /* The group failed: before the messages about it go out. */
    void (*verdict)(void *user, const dtpi_verdict *v);
    /* Close the connection, after what was sent to it. */
    void (*drop_local)(void *user, uint32_t slot);
    void (*drop_child)(void *user, uint32_t slot);
    /*
     * Optional: a generation begins. New memory files for the local members (dtpi_core_is_local_member of
     * the world), sent with this message; NULL: it goes out by to_local.
     */
    void (*formed)(void *user, dtpi_msg *msg);
    /*
     * Optional: the parent is gone. Try the root, the standbys and whoever they name, until one is opened or
     * dtpi_core_seeks_parent() is false; NULL: nobody can be reached.
     */
    void (*orphan)(void *user);
} dtpi_core_ops;

dtp_status dtpi_core_new(const dtpi_core_opts *opts, const dtpi_core_ops *ops, void *user,
                         dtpi_core **core_out, dtp_error *err);
void dtpi_core_free(dtpi_core *core);

/* ---- what goes in ---- */

/* Connections that have proven the secret. `pid` 0: unknown. `rank` is what the proof was bound to. */
void dtpi_core_local_open(dtpi_core *core, uint32_t slot, int32_t rank, int32_t pid, int64_t now_ns);
void dtpi_core_child_open(dtpi_core *core, uint32_t slot, int64_t now_ns);
void dtpi_core_parent_open(dtpi_core *core, int64_t now_ns);
/* A message as it came: lent bytes, all of `msg` where that is set: what is kept is then shared. */
typedef struct dtpi_in {
    const uint8_t *data;
    size_t bytes;
    dtpi_msg *msg;
} dtpi_in;
void dtpi_core_local_msg(dtpi_core *core, uint32_t slot, const dtpi_in *in, int64_t now_ns);
void dtpi_core_child_msg(dtpi_core *core, uint32_t slot, const dtpi_in *in, int64_t now_ns);
void dtpi_core_parent_msg(dtpi_core *core, const dtpi_in *in, int64_t now_ns);
/* The process or the connection ended; `cause` such as "signal 9", or NULL. The slot is free again. */
void dtpi_core_local_end(dtpi_core *core, uint32_t slot, const char *cause, int64_t now_ns);
void dtpi_core_child_end(dtpi_core *core, uint32_t slot, int64_t now_ns);
/* It ended; or, with a status below 0 and the reason, it will never be reached. */
void dtpi_core_parent_end(dtpi_core *core, dtp_status status, const char *why, int64_t now_ns);
/* Where this agent can be reached, as `root` of dtp_group_opts; before the parent is there. */
void dtpi_core_set_addresses(dtpi_core *core, const char *addresses);
/* How many children will come, once that is known; before the parent is there. */
void dtpi_core_set_children(dtpi_core *core, uint32_t n);
/* At the root: a node's agent came, which expects so many ranks; its rows may come by another way. */
void dtpi_core_node_came(dtpi_core *core, uint64_t node, const char *host, uint32_t n_local);
/* Why the parent is not reached yet, for the text of a deadline. */
void dtpi_core_parent_trouble(dtpi_core *core, const char *why);
/* The driver failed at something that all need (no memory for the table): ends the group. */
void dtpi_core_fail(dtpi_core *core, dtp_status status, const char *why, int64_t now_ns);
/* A rank's process ended that may never have come: known by its launcher. */
void dtpi_core_rank_ended(dtpi_core *core, int32_t rank, int32_t pid, const char *cause,
                          int64_t now_ns);
/* A local rank cannot go on, for a reason of its own, and will end. */
void dtpi_core_rank_failed(dtpi_core *core, int32_t rank, int32_t pid, const char *why, int64_t now_ns);
/* Time passed. */
void dtpi_core_tick(dtpi_core *core, int64_t now_ns);
/* When to call dtpi_core_tick at the latest; INT64_MAX: no need. */
int64_t dtpi_core_next_ns(const dtpi_core *core);
/* Says goodbye to everybody; nothing more comes out. */
void dtpi_core_bye(dtpi_core *core);

/* ---- what can be asked ---- */

/* Nodes that may take over from the root, with their addresses: the number of them, at most 3. */
typedef struct dtpi_standby {
    uint64_t node;              /* id */
    char addresses[DTPI_ADDRESSES_MAX];
} dtpi_standby;
uint32_t dtpi_core_standbys(const dtpi_core *core, dtpi_standby out[DTPI_STANDBYS]);

typedef struct dtpi_row {
    uint32_t node;
    uint32_t local_rank;
    int32_t pid;
} dtpi_row;

typedef struct dtpi_node {
    uint64_t id;
    int32_t host_rank;
    uint32_t n_local;           /* ranks that its agent expects; at the root, before the table */
    char host[DTPI_HOST_MAX + 1];
} dtpi_node;

/* False for a number that is none, or of which nothing is known here. */
bool dtpi_core_row(const dtpi_core *core, int32_t rank, dtpi_row *out);
/* Rows from `first` on as they lie in the table (docs/formats/wire.md), lent; NULL before it is there. */
const uint8_t *dtpi_core_rows(const dtpi_core *core, uint32_t first, uint32_t *n_out);
uint32_t dtpi_core_n_nodes(const dtpi_core *core);
bool dtpi_core_node(const dtpi_core *core, uint32_t node, dtpi_node *out);
const dtpi_verdict *dtpi_core_verdict(const dtpi_core *core);   /* NULL: healthy */
bool dtpi_core_has_table(const dtpi_core *core);
/* As many ranks as are expected here, at the root in all, have joined or tried to. */
bool dtpi_core_all_came(const dtpi_core *core);
/* The rank joined here and left; false for a number that is none. */
bool dtpi_core_has_left(const dtpi_core *core, int32_t rank);
/* No rank joined through this slot, and none is connected: it may be given again. */
bool dtpi_core_slot_is_free(const dtpi_core *core, uint32_t slot);
/* Every local rank that joined has left or ended. */
bool dtpi_core_is_done(const dtpi_core *core);
/* Agents below have members that may still ask: none after a verdict. */
bool dtpi_core_serves_below(const dtpi_core *core);
/* Members of `group` in local slots; 0 when there is no such group. */
uint32_t dtpi_core_n_local_members(const dtpi_core *core, uint64_t group);
bool dtpi_core_is_local_member(const dtpi_core *core, uint64_t group, uint32_t slot);
bool dtpi_core_seeks_parent(const dtpi_core *core);
/* The root, or who stands in for it: takes agents that lost their parent. */
bool dtpi_core_is_judge(const dtpi_core *core);
uint32_t dtpi_core_generation(const dtpi_core *core);
bool dtpi_core_is_newcomer(const dtpi_core *core, uint32_t slot);
/* Newcomers that wait, as far as is known here. */
uint32_t dtpi_core_n_newcomers(const dtpi_core *core);
/* Identities given so far: so many have rows. */
uint32_t dtpi_core_n_rows(const dtpi_core *core);
uint32_t dtpi_core_n_members(const dtpi_core *core);            /* of the present generation */
/* Messages of another generation that were dropped. */
uint64_t dtpi_core_n_stale(const dtpi_core *core);

/* For tests and reports: messages by type (frame.h) so far, and how things stand. */
typedef struct dtpi_core_stats {
    uint32_t n_sent[DTPI_F_END], n_received[DTPI_F_END];
    uint64_t bytes_sent, bytes_received;
    uint32_t n_children, n_below;       /* ranks of this subtree */
} dtpi_core_stats;
void dtpi_core_get_stats(const dtpi_core *core, dtpi_core_stats *out);
uint64_t dtpi_core_n_sent(const dtpi_core *core);

#endif /* DTPI_GROUP_CORE_H */
