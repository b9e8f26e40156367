/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim.h - the program between a supervisor and the ranks of one job on one node.
 *
 * One thread, one loop. It is the parent and subreaper of the ranks, so that nothing they start is
 * lost; it keeps the journal and the logs, decides nothing, and lives on without its supervisor.
 *
 *   main.c    becomes a background process, runs the loop, ends when nobody needs it
 *   serve.c   connections: one supervisor, some that only cancel
 *   gang.c    an attempt: start, deaths, ending, until no process is left
 *   agent.c   the group's agent for these ranks
 *   output.c  pipes of the ranks to log files, and from there to the supervisor
 */
#ifndef DTP_SHIM_H
#define DTP_SHIM_H

#include <sys/resource.h>

#include "ctx/ctx.h"
#include "launch/conn.h"
#include "launch/journal.h"
#include "launch/spawn.h"

typedef struct shim shim;
typedef struct rank rank;

enum {
    MAX_CONNS = 9,              /* the supervisor and some that only cancel */
    MAX_LOGS = 8                /* log files that are open at a time */
};

/* One pipe of a rank. Its log file is where the supervisor's copy is read from when it lags. */
typedef struct stream {
    rank *owner;
    int number;                 /* 1 or 2 */
    dtpi_source source;         /* fd -1: not opened, or ended */
    int log_fd;                 /* -1: none, or others are open */
    uint64_t written, sent;     /* bytes in the log; of these handed to the supervisor */
    bool log_failed;
    bool end_sent;
} stream;

struct rank {
    shim *shim;
    int32_t index;
    pid_t pid;                  /* -1: not started */
    dtpi_source death;          /* the pidfd */
    bool reaped;
    int wstatus;
    stream streams[2];
    char *cpus;                 /* own text */
    char *env;                  /* n_env texts, one after the other */
    size_t env_bytes;
    uint32_t n_env;
};

typedef enum phase {
    PHASE_NONE = 0,
    PHASE_COLLECTING,           /* ATTEMPT has come, GO has not */
    PHASE_RUNNING,
    PHASE_LEFTOVERS,            /* all ranks have ended, other processes of theirs have not */
    PHASE_GONE                  /* nothing is left; output is still on its way to the supervisor */
} phase;

typedef struct gang {
    phase phase;
    uint32_t attempt, n;
    uint32_t n_alive;           /* started and not yet reported */
    rank *ranks;
    char *head;                 /* copy of the ATTEMPT frame; the fields below point into it */
    size_t head_bytes;
    dtpi_shim_msg msg;
    struct dtpi_agent *agent;
    dtpi_timer timer;
    bool ending;                /* SIGTERM was sent */
    bool killing;               /* SIGKILL until nothing is left */
    bool failed;                /* a rank could not be started: `failure` is sent when all are gone */
    dtp_error failure;
} gang;

struct shim {
    char name[64];              /* of the job */
    dtp_ctx *ctx;
    const dtp_allocator *a;
    int journal_fd;
    int locks_fd;               /* inherited by the ranks; -1: none */
    bool released;              /* the locks are given back: it ends */
    bool quit_asked;            /* SIGTERM came: end the gang, then leave */

    dtpi_source listener;
    dtpi_conn conns[MAX_CONNS];
    dtpi_conn *supervisor;      /* one of them, once it has said HELLO */

    stream *logs[MAX_LOGS];     /* whose log is open */
    uint32_t next_log;          /* that is closed for another */

    int *ports;                 /* reserved sockets: bound, never listening */
    uint32_t n_ports;
    gang gang;
};

/* ---- serve.c ---- */
dtp_status serve_open(shim *s, int conn_fd, dtp_error *err);
void serve_close(shim *s);
/* To the supervisor, if there is one. */
void serve_tell(shim *s, const dtpi_shim_msg *msg);
/* No memory for what the supervisor must hear: it attaches again and reads the journal. */
void serve_lose(shim *s);
/* Closes connections that were lost. */
void serve_tidy(shim *s);
static inline bool serve_has_supervisor(const shim *s)
{
    return s->supervisor && !s->supervisor->lost;
}

/* ---- gang.c ---- */
dtp_status gang_prepare(shim *s, const dtpi_shim_msg *attempt, dtp_error *err);
dtp_status gang_add_rank(shim *s, const dtpi_shim_msg *msg, dtp_error *err);
void gang_go(shim *s);
/* SIGTERM, and SIGKILL after `grace_ms`; 0: SIGKILL now. */
void gang_end(shim *s, int32_t grace_ms);
/* Collects dead children; called on SIGCHLD. */
void gang_reap(shim *s);
/* The supervisor has got everything: forget the gang. */
void gang_forget_if_done(shim *s);
void gang_drop(shim *s);

/* ---- agent.c ---- */
dtp_status agent_open(shim *s, dtp_error *err);
void agent_rank_ended(shim *s, const rank *r);
void agent_close(shim *s);

/* ---- output.c ---- */
/* Where the logs of the attempt go; before the first rank is started. */
dtp_status output_make_folder(shim *s, dtp_error *err);
dtp_status output_open(shim *s, rank *r, int fds[2], dtp_error *err);
/* Reads what the pipes of a rank hold now. */
void output_drain(shim *s, rank *r);
/* Sends what the supervisor lacks, as far as its queue has room; true when it lacks nothing. */
bool output_pump(shim *s);
/* A supervisor has come: it gets everything or what comes from now on. */
void output_rewind(shim *s, bool all);
void output_close(shim *s, rank *r);

/* ---- main.c ---- */
void shim_journal(shim *s, dtpi_journal_entry e);
/* A line of the shim's own for the supervisor, as output of rank -1. */
void shim_notice(shim *s, const char *fmt, ...) DTPI_PRINTF(2, 3);

#endif /* DTP_SHIM_H */
