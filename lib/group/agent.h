/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.h - the agent of a node: relays, beats and judges for its ranks; it is no rank itself.
 *
 * It runs in the loop of the context that opens it: the shim's, or that of a thread which the first
 * local rank starts where no shim plays it.
 */
#ifndef DTPI_GROUP_AGENT_H
#define DTPI_GROUP_AGENT_H

#include <dtp/group.h>

#include "ctx/ctx.h"

typedef struct dtpi_agent dtpi_agent;

typedef struct dtpi_agent_opts {
    const char *job;
    uint32_t attempt;
    uint32_t world_size;
    uint32_t n_local;           /* ranks expected on this node */
    const char *socket;         /* Unix socket to listen on; '@' first: abstract */
    const char *root;           /* "host:port" of the root agent; NULL: one node */
    bool is_root;               /* this agent is the root: it listens at `root`, or as `listen` says */
    bool listens;               /* it listens at `listen` (NULL: any address and free port) */
    const char *listen;         /* as in dtp_group_opts */
    const uint8_t *secret;      /* DTP_SECRET_BYTES or NULL (insecure, or by MUNGE) */
    const char *munge;          /* as in dtp_group_opts */
    const char *net;            /* "tcp", "ucx", NULL or "auto" */
    bool encrypt;               /* control between agents; all agree */
    int timeout_ms;             /* of the join */
    /* As in dtp_group_opts. */
    uint32_t node, n_nodes, radix;
    const char *parent;
    /* Whoever started process `pid` sees its end and calls dtpi_agent_rank_ended(): the agent needs no
     * descriptor to watch it. NULL: nobody does. */
    bool (*is_watched)(void *user, int32_t rank, int32_t pid);
    void *user;
    /* Optional: a generation with so many ranks began. Inside dispatch. */
    void (*formed)(void *user, uint32_t generation, uint32_t n_ranks);
    int32_t host_rank_plus_1;   /* a rank's process hosts this agent: its rank + 1; 0: the shim */
} dtpi_agent_opts;

/* Listens and returns; everything else happens in dispatch. Errors: INVAL, IO, EXISTS, PERM, NOMEM. */
dtp_status dtpi_agent_open(dtp_ctx *ctx, const dtpi_agent_opts *opts, dtpi_agent **agent_out,
                           dtp_error *err);
void dtpi_agent_close(dtpi_agent *agent);

/*
 * The shim knows first: rank's process `pid` ended (wait status `wstatus`). A rank that had left is
 * no failure.
 */
void dtpi_agent_rank_ended(dtpi_agent *agent, int32_t rank, int32_t pid, int wstatus);

/* The rank cannot go on, for a reason of its own, and will end. */
void dtpi_agent_rank_failed(dtpi_agent *agent, int32_t rank, int32_t pid, const char *why);

/* Addresses under which others reach an agent that `listens`, best first; "" for others. Any thread. */
const char *dtpi_agent_candidates(const dtpi_agent *agent);
/* The root is elsewhere than was said: addresses as in `root`. */
dtp_status dtpi_agent_seek(dtpi_agent *agent, const char *root, dtp_error *err);

typedef struct dtpi_agent_stats {
    uint32_t number;            /* in the tree, 0: the root */
    uint32_t n_children, n_locals;
    uint32_t n_strangers;       /* connections that have not proven themselves or have no place yet */
    uint32_t n_fds;             /* descriptors, without UCX's and node memory under way */
} dtpi_agent_stats;
void dtpi_agent_get_stats(const dtpi_agent *agent, dtpi_agent_stats *out);

/* Every local rank that joined has left or ended. */
bool dtpi_agent_is_done(const dtpi_agent *agent);
/* Agents below may still ask something. */
bool dtpi_agent_serves_below(const dtpi_agent *agent);
/* The group failed before all local ranks, or all other nodes, had come. */
bool dtpi_agent_failed_early(const dtpi_agent *agent);
/* Somebody is at the door who has not proven himself yet. */
bool dtpi_agent_has_strangers(const dtpi_agent *agent);
/* Nothing waits to be sent. */
bool dtpi_agent_is_idle(const dtpi_agent *agent);

#endif /* DTPI_GROUP_AGENT_H */
