/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_internal.h - a rank's side: the session with its agent, shared by a group and what it was split
 * into, and the groups themselves.
 */
#ifndef DTPI_GROUP_INTERNAL_H
#define DTPI_GROUP_INTERNAL_H

#include <pthread.h>

#include "group/board.h"
#include "group/frame.h"
#include "group/group.h"
#include "group/handshake.h"
#include "group/keys.h"
#include "group/shared.h"
#include "net/link.h"

enum { GROUP_LANES = DTPI_LANE_MAX + 1, GROUP_GRACE_MS = 2000, GROUP_REFORM_GRACE_MS = 200 };

/* A collective call that has not ended. */
struct call {
    struct call *next, **prev;
    dtp_ctx *ctx;
    dtp_group *group;           /* valid while the call is listed */
    uint64_t id;
    uint8_t lane, kind;
    uint32_t seq;
    dtp_op *op;
    dtpi_timer timer;
    bool expired;
    dtpi_buf result;            /* of an allgather, then sizes */
    size_t *sizes;
    uint32_t n;
    dtpi_gathered gathered;
};

/* A result that came before this rank called. */
struct early {
    struct early *next;
    uint64_t id;
    uint8_t lane;
    uint32_t seq;
    dtp_error error;
};

/* A question to the agent: key-value and node memory. */
struct question {
    struct question *next;
    dtp_group *group;
    struct session *session;
    const char *key;            /* lent, what it is about; NULL: node memory */
    uint32_t seq;
    bool done;
    dtp_error error;            /* status 0: fine */
    dtpi_buf value;
    int fd;
};

/* A re-form that this rank waits for. */
struct renewal {
    struct session *session;
    struct session *next;
    bool done;
    dtp_error error;
};

/* One generation, as this rank sees it. */
struct session {
    dtp_ctx *ctx;
    uint32_t n_groups;          /* open groups */
    int32_t rank, world, local_rank;    /* identities; `world` of them have rows */
    int32_t *members;           /* identities of the group of all ranks, ascending; NULL: 0 .. world-1 */
    uint32_t n_members;
    uint32_t attempt, generation;
    uint32_t round;             /* re-forms of this generation that failed */
    struct renewal *renewal;
    uint64_t newcomer;          /* chosen by a rank that waits to be taken in; 0: it is none */
    int timeout_ms;
    char job[64];
    dtpi_link *link;            /* NULL: a group of one */
    struct host *host;          /* this process hosts the agent */
    int32_t agent_pid;
    int agent_pidfd;
    dtpi_source agent_source;
    dtpi_hs hs;
    enum { SESSION_PROVING, SESSION_JOINING, SESSION_MEMBER, SESSION_FAILED, SESSION_AGAIN } state;
    bool may_try_again;         /* an agent that ends may be that of the group before */
    char root[1024];            /* addresses of the root agent, "": one machine */
    struct session_net *net;    /* data.c */
    struct session_topo *topo;  /* topo.c */
    bool agent_left;            /* in order */
    bool agent_gone;            /* the connection or the process ended */
    bool is_proven;
    bool is_told;               /* the failure came from the agent: nobody needs to hear of it */
    const dtp_error *last_words;        /* said after the proof, instead of joining */
    dtp_error join_error;

    struct control_page *control;
    bool control_is_heap;
    const struct shared_table *table;
    size_t table_bytes;

    struct call *calls;
    struct early *earlies;
    struct question *questions;
    uint32_t next_seq;

    pthread_mutex_t mutex;      /* the verdict, read from any thread; `link` where that aborts */
    _Atomic bool has_verdict;
    dtpi_verdict verdict;
    dtpi_task abort_task;       /* an abort from any thread ends this rank's calls soon */
    dtpi_timer abort_timer;
    char abort_reason[120];
};

struct dtp_group {
    dtp_ctx *ctx;
    struct session *session;
    uint64_t id;
    int32_t rank, size;
    int32_t *members;           /* world ranks, NULL: all */
    uint32_t seq[GROUP_LANES];
    /* layout.c */
    uint32_t n_nodes;
    uint32_t *node, *index;     /* by rank */
    uint32_t *first;            /* by node, n_nodes + 1: where its members start in by_node */
    int32_t *by_node;
    dtpi_keys keys;             /* of a group of one */
    struct group_data *data;    /* data.c */
    dtpi_group_guest *guests[DTPI_N_GUESTS];
};

/*
 * group.c: joins; `board` (NULL: none) is where the root's addresses are put and looked for when `opts`
 * names no root.
 */
dtp_status group_join(dtp_ctx *ctx, const dtp_group_opts *opts, const dtpi_board_opts *board,
                      dtp_group **group_out, dtp_error *err);

/* session.c */
dtp_status session_open(dtp_ctx *ctx, const dtp_group_opts *opts, const dtpi_board_opts *board,
                        struct session **out, dtp_error *err);
void session_close(struct session *s);
bool session_send(struct session *s, dtpi_buf *b_take);
/* Sends a message without a body that must not be lost to a lack of memory. */
void session_tell(struct session *s, uint8_t type, uint64_t group);
/* This rank cannot go on: the others hear why, where the agent can be reached. */
void session_announce(struct session *s, const dtp_error *why);
/* The same for one that never came to be: no session, no group. */
void session_last_words(dtp_ctx *ctx, const dtp_group_opts *opts, const dtp_error *why);
dtpi_buf session_begin(const struct session *s, uint8_t type, uint64_t group, uint8_t lane,
                       uint32_t seq);
const struct shared_row *session_row(const struct session *s, int32_t world_rank);
const struct shared_node *session_node(const struct session *s, uint32_t node);
/* The group failed, as this rank sees it: everything that waits ends. */
void session_fail(struct session *s, const dtpi_verdict *v);
dtp_status session_verdict(struct session *s, dtp_error *err);
/* Looks whether the agent still lives, without running callbacks. */
void session_poll(struct session *s);

extern const dtpi_link_ops session_link_ops;
void session_watch_agent(struct session *s);
void session_watch_none(struct session *s);
void session_watch_pidfd(struct session *s);
dtp_status session_map_files(struct session *s, int control_fd, int table_fd, dtp_error *err);
dtp_status session_open_alone(struct session *s, dtp_error *err);

/* renew.c: the next generation */
void session_formed(struct session *s, const dtpi_frame *f);
/* The group of all ranks of a session; closes it where that fails. */
dtp_status session_group(dtp_ctx *ctx, struct session *s, dtp_group **out, dtp_error *err);
void session_other_generation(struct session *s, const dtpi_frame *f);
/* Rank in the group of all ranks of this generation; -1: none. */
int32_t session_rank_of(const struct session *s, int32_t identity);
int32_t session_size(const struct session *s);

/* abort.c: an abort from any thread */
void session_init_abort(struct session *s);
void session_close_abort(struct session *s);

/* connect.c */
dtp_status session_connect(struct session *s, const dtp_group_opts *o, const dtpi_board_opts *board,
                           int64_t deadline_ns, dtp_error *err);

/* meet.c: the root's addresses over a launcher's board. `*out` may be NULL; end it when all have met. */
struct meet;
dtp_status meet_start(struct session *s, const dtp_group_opts *o, const dtpi_board_opts *board,
                      const char *socket, int64_t deadline_ns, struct meet **out, dtp_error *err);
void meet_end(struct meet *m);
DTPI_DEFINE_AUTO(meet, struct meet, meet_end);

/* The others hear why this rank does not come, over a new connection where there is no proven one. */
void session_say_why(struct session *s, const dtp_group_opts *o, const dtp_error *why);

/* True where the message was the secret, which had been asked for. */
bool session_take_secret(struct session *s, const uint8_t *data, size_t bytes);

/* calls.c */
void calls_down(struct session *s, const dtpi_frame *f);
void calls_fail(struct session *s, const dtp_error *why);
void calls_cancel(dtp_group *group);
void calls_free(struct session *s);
dtp_status call_start(dtp_group *group, uint8_t lane, uint8_t kind, int32_t root, const void *data,
                      size_t bytes, int64_t deadline_ns, dtp_op **op_out, dtp_error *err);

/* ask.c */
void asks_answer(struct session *s, const dtpi_frame *f, int fd);
/* Ends the questions of a group that closes. */
void asks_cancel(dtp_group *group);
void asks_fail(struct session *s, const dtp_error *why);
void pairs_free(dtp_group *group);

/* layout.c */
dtp_status layout_make(dtp_group *group, dtp_error *err);
void layout_free(dtp_group *group);
int32_t group_world_rank(const dtp_group *group, int32_t rank);

/* topo.c */
void session_topo_close(struct session *s);

/* host.c: the agent of this node in a thread of this process */
dtp_status host_start(dtp_ctx *ctx, const dtp_group_opts *opts, bool listens, const char *socket,
                      struct host **out, dtp_error *err);
/* Addresses of an agent that listens. */
const char *host_candidates(const struct host *host);
/* The root is elsewhere. */
void host_seek(struct host *host, const char *root);
void host_stop(struct host *host);
/* An agent that lives for a moment tells the ranks that wait for one, here and on other nodes. */
void host_say_why(dtp_ctx *ctx, const dtp_group_opts *opts, const char *socket, const dtp_error *why);

/* data.c */
void group_data_close(dtp_group *group);

#endif /* DTPI_GROUP_INTERNAL_H */
