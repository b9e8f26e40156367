/* SPDX-License-Identifier: Apache-2.0 */
/* agent_internal.h - fields of the agent behind sockets, for agent*.c. */
#ifndef DTPI_GROUP_AGENT_INTERNAL_H
#define DTPI_GROUP_AGENT_INTERNAL_H

#include <sys/wait.h>

#include "group/agent.h"
#include "group/core.h"
#include "group/handshake.h"
#include "group/munge.h"
#include "net/link.h"
#include "net/race.h"

enum conn_role { CONN_STRANGER, CONN_LOCAL, CONN_CHILD, CONN_CONNECTING, CONN_PARENT };

struct agent_conn {
    dtpi_agent *agent;
    struct agent_conn *next, **prev;
    enum conn_role role;
    uint32_t slot;              /* connecting: number of the try */
    dtpi_link *link;
    dtpi_hs hs;
    bool is_ready, has_come;    /* connecting: may ask where it belongs, and has asked */
    uint64_t node;              /* id, of a child */
    bool is_proven;             /* stranger or connecting: a large message is under way */
    dtpi_timer probe_timer;
    int64_t since_ns;
    struct agent_conn *older, *younger;         /* of a stranger */
    uint8_t share;
    bool asks;                  /* waits for the secret, out of the strangers' room */
    int32_t rank, pid;          /* of a local rank */
    int pidfd;
    dtpi_source pid_source;
    struct agent_carrier *carrier;      /* control over UCX, NULL: over the link */
};

/*
 * Strangers, oldest first. They share the room by where they come from (a network address, a process),
 * so that who floods the door pushes out his own.
 */
enum { DOOR_SHARES = 256 };
struct agent_door {
    struct agent_conn *oldest, *youngest;
    uint32_t n, in_share[DOOR_SHARES];
    uint64_t seed;              /* nobody can choose his share */
    int64_t window_ns;          /* since when strangers are counted */
    uint32_t n_in_window;
    int64_t rest_until_ns;      /* nobody is let in before; 0: no rest */
    int64_t said_ns;            /* refusals are logged, but not all of a flood */
    uint32_t n_said, n_unsaid;
};

/* A memory file that not all members have fetched yet. */
struct agent_memory {
    struct agent_memory *next;
    uint64_t group;
    uint32_t tag;
    uint64_t bytes;
    int fd;
    dtpi_buf given;             /* slots, uint32_t */
};

struct dtpi_agent {
    dtp_ctx *ctx;
    dtpi_agent_opts o;
    uint32_t generation;
    uint16_t port;              /* of the TCP listener, 0: none */
    char job[64], host[DTPI_HOST_MAX + 1];
    uint8_t secret[DTP_SECRET_BYTES];
    bool insecure;
    bool lacks_secret;          /* until the parent gives it */
    dtp_error secret_trouble;
    char munge[128];            /* socket of munged */
    char credential[DTPI_MUNGE_TEXT];
    int64_t credential_ns;
    dtpi_core *core;
    int unix_fd, tcp_fd, spare_fd;
    char *socket_path;
    char own[DTPI_OWN_TEXT];    /* addresses under which it listens, where it was told to */
    dtpi_source unix_source, tcp_source;
    struct agent_door door;
    struct agent_conn *conns;
    struct agent_conn **by_local, **by_child;
    uint32_t n_by_local, n_by_child;
    dtpi_timer timer;
    dtp_error trouble;          /* to tell the core after its call */

    /* agent_parent.c */
    dtpi_race *race;            /* NULL: no parent is sought */
    struct agent_conn *parent;  /* proven */

    /* agent_tree.c */
    bool is_orphan, reaches;    /* the parent is gone; and another is looked for */
    char *root_text, *parent_text;
    uint64_t node_id, parent_id;        /* who is sought: 0 the root, PARENT_ANY whoever is there */
    bool is_sent;               /* to a parent that is not the root, until */
    int64_t give_up_ns, give_up_busy_ns;
    uint32_t n_gave_up;
    uint32_t number, radix;     /* in the tree, as the root or the source gave it */
    char sent_to[DTPI_ADDRESSES_MAX];
    struct agent_place *places; /* at the root: who has come, by number - 1 */
    uint32_t n_places, cap_places;

    /* agent_files.c */
    int control_fd, table_fd;
    uint32_t n_table_rows;
    struct control_page *control;
    struct agent_memory *memory;

    /* agent_ucx.c */
    struct agent_ucx *ucx;
};

/* agent.c */
struct agent_conn *agent_conn_of(dtpi_agent *agent, enum conn_role role, uint32_t slot);
struct agent_conn *agent_conn_new(dtpi_agent *agent, int fd_take, enum conn_role role,
                                  dtpi_hs_role hs_role);
void agent_conn_close(struct agent_conn *conn);
void agent_hs_init(const dtpi_agent *agent, dtpi_hs *hs, enum conn_role role, dtpi_hs_role hs_role);
/* After every input: timers, and what could not be said from inside the core's callbacks. */
void agent_after_input(dtpi_agent *agent);
void agent_member_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes);
/* A member waits for what could not be sent: the group fails, or the connection where it has failed. */
void agent_unsent(struct agent_conn *conn);
/* A stranger has proven the secret: it becomes a member. False without memory. */
bool agent_promote(struct agent_conn *conn);

/* agent_door.c: listening, strangers, refusals */
dtp_status agent_listen_unix(dtpi_agent *agent, dtp_error *err);
dtp_status agent_listen_tcp(dtpi_agent *agent, dtpi_endpoint *at, dtp_error *err);
/* As the option `listen` says; fills agent->own. */
dtp_status agent_listen_at(dtpi_agent *agent, const char *where, dtp_error *err);
void agent_door_close(dtpi_agent *agent);
void agent_stranger_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes);
/* The secret has come, or never will. */
void agent_door_secret_is_there(dtpi_agent *agent);
/* It is no stranger any more, or no more. */
void agent_door_forget(struct agent_conn *conn);
/* It got on, and its time begins again: behind all others, who wait no longer for it. */
void agent_door_renew(struct agent_conn *conn);
/* Drops strangers that take too long. */
void agent_door_tick(dtpi_agent *agent, int64_t now_ns);
int64_t agent_door_next_ns(const dtpi_agent *agent);

/* agent_secret.c: the secret itself, where the launcher carries none */
void agent_secret_make(dtpi_agent *agent);
/* To one who asks; PENDING: not here yet. Failures: refuse. */
dtp_status agent_secret_give(struct agent_conn *conn, dtp_error *err);
/* From the parent. PENDING: the message is none about it. */
dtp_status agent_secret_take(struct agent_conn *conn, const uint8_t *data, size_t bytes,
                             dtp_error *err);
/* It will not come: those who wait for it are told. */
void agent_secret_failed(dtpi_agent *agent, dtp_status status, const char *why);

/* agent_parent.c: reaching the root */
dtp_status agent_parent_seek(dtpi_agent *agent, const char *candidates, dtp_error *err);
void agent_parent_stop(dtpi_agent *agent);
int64_t agent_parent_next_ns(const dtpi_agent *agent);
void agent_parent_tick(dtpi_agent *agent, int64_t now_ns);
void agent_parent_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes);
void agent_parent_failed(struct agent_conn *conn, dtp_status why);

/* The connection is that to the parent. */
void agent_parent_is(struct agent_conn *conn);
/* A connection stands that may become the parent's. */
bool agent_parent_is_near(const dtpi_agent *agent);
/* The connection that was to be the parent's is of no use. */
void agent_parent_lost(struct agent_conn *conn, const char *why);

/* agent_tree.c: who is whose parent */
void agent_tree_open(dtpi_agent *agent);
void agent_tree_close(dtpi_agent *agent);
/* Begins to look for the parent, or looks again. */
dtp_status agent_tree_seek(dtpi_agent *agent, dtp_error *err);
void agent_tree_tick(dtpi_agent *agent, int64_t now_ns);
int64_t agent_tree_next_ns(const dtpi_agent *agent);
/*
 * The parent is gone and the table is there: looks for another, at the root, at those who stand by for it and
 * where they send. False: nobody can be reached.
 */
bool agent_tree_reach(dtpi_agent *agent);
/* Begins or ends that, as the core wants it. */
void agent_tree_orphan(dtpi_agent *agent);
/* Child: says who it is, and hears where it belongs. */
bool agent_tree_come(struct agent_conn *conn);
void agent_tree_placed(struct agent_conn *conn, const uint8_t *data, size_t bytes);
/* The other end: takes the child or sends it on; false: it belongs nowhere, to be closed. */
bool agent_tree_serve(struct agent_conn *conn, const dtpi_frame *f);

/* agent_probe.c: do large messages pass */
void agent_probe_start(struct agent_conn *conn, bool is_client);
void agent_probe_serve(struct agent_conn *conn, const uint8_t *data, size_t bytes);
bool agent_probe_answer(struct agent_conn *conn, const uint8_t *data, size_t bytes);
bool agent_probe_is_stuck(const struct agent_conn *conn, int64_t now_ns);
bool agent_probe_may_have_failed(const struct agent_conn *conn);
int64_t agent_probe_next_ns(int64_t now_ns);

/* agent_files.c: the control page, the table, node memory */
dtp_status agent_files_open(dtpi_agent *agent, dtp_error *err);
/* Tells the ranks of this node, through the control page, what `root` is. */
void agent_files_say_root(dtpi_agent *agent);
void agent_files_say_met(dtpi_agent *agent, const struct agent_conn *conn);
void agent_files_close(dtpi_agent *agent);
void agent_set_word(dtpi_agent *agent, dtp_status status);
void agent_welcome_all(dtpi_agent *agent);
/* How many newcomers wait, for all on the node to read. */
void agent_note_newcomers(dtpi_agent *agent);
void agent_formed_all(dtpi_agent *agent, dtpi_msg *msg);
/* True where the message was about node memory. */
bool agent_memory_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes);

/* agent_ucx.c: control between agents over UCX, or over the link */
dtp_status agent_carriers_open(dtpi_agent *agent, dtp_error *err);
void agent_seal(struct agent_conn *conn, const dtpi_seal *out, const dtpi_seal *in);
void agent_carrier_offer(struct agent_conn *conn);
bool agent_carrier_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes);
/* False where memory is out and the connection goes on without the message. */
bool agent_carry(struct agent_conn *conn, dtpi_msg *msg);
void agent_carrier_close(struct agent_conn *conn);
void agent_carriers_close(dtpi_agent *agent);

#endif /* DTPI_GROUP_AGENT_INTERNAL_H */
