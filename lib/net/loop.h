/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - a network inside one process, with virtual time: channels that delay, and end when a side
 * dies. The first member to copy, and the double in tests: the same seed gives the same run.
 *
 * A side may belong to a process on a host. Then messages cost processor time at both ends, the processes of a
 * host share its cores, and bytes between hosts share the sender's and the receiver's port. Messages travel by
 * reference, events come from a pool: a million processes fit into one.
 */
#ifndef DTPI_NET_LOOP_H
#define DTPI_NET_LOOP_H

#include "net/link.h"

typedef struct dtpi_loop dtpi_loop;
typedef struct dtpi_loop_chan dtpi_loop_chan;
typedef struct dtpi_loop_host dtpi_loop_host;
typedef struct dtpi_loop_proc dtpi_loop_proc;

typedef struct dtpi_loop_opts {
    uint64_t seed;
    int64_t latency_ns;         /* between hosts, and where sides have no process */
    int64_t jitter_ns;          /* added at random; order within a channel stays, that of channels does not */
    int64_t near_ns;            /* latency on one host */
    uint64_t bytes_per_s;       /* of a host's port, each way; 0: no limit */
    uint32_t head_bytes;        /* more for each message between hosts */
    int64_t send_cpu_ns;        /* of a message at its sender, and at its receiver */
    int64_t recv_cpu_ns;
    int64_t cpu_ns_per_kib;     /* more at each end, for its bytes */
    uint32_t n_cores;           /* all hosts share so many; 0: every host has its own */
    uint32_t loss_ppm;          /* of a million messages between hosts so many come later, as do those behind */
    int64_t resend_ns;
} dtpi_loop_opts;

dtpi_loop *dtpi_loop_new(const dtp_allocator *a, const dtpi_loop_opts *opts);
void dtpi_loop_free(dtpi_loop *loop);
int64_t dtpi_loop_now(const dtpi_loop *loop);

/* ---- hosts and processes; the loop owns them, NULL without memory ---- */

dtpi_loop_host *dtpi_loop_host_new(dtpi_loop *loop, uint32_t n_cores);
/* From now on nothing of it gets out and nothing gets in: nobody hears of an end. */
void dtpi_loop_host_cut(dtpi_loop_host *host);

/* One thread: handles one message or timer at a time. */
dtpi_loop_proc *dtpi_loop_proc_new(dtpi_loop *loop, dtpi_loop_host *host);
/* Ends it: the other sides of its channels hear that they closed. */
void dtpi_loop_proc_kill(dtpi_loop_proc *proc);
/* As SIGSTOP and SIGCONT: what comes in the meantime waits. */
void dtpi_loop_proc_stop(dtpi_loop_proc *proc, bool stopped);
bool dtpi_loop_proc_is_alive(const dtpi_loop_proc *proc);
/* Processor time used so far. */
int64_t dtpi_loop_proc_cpu_ns(const dtpi_loop_proc *proc);
/* The longest chain of messages, each sent after the one before was heard, that led to what it has heard. */
uint32_t dtpi_loop_proc_chain(const dtpi_loop_proc *proc);
/* What is running now takes so much more. */
void dtpi_loop_work(dtpi_loop *loop, int64_t ns);

/* ---- channels ---- */

/* What a side of a channel hears. */
typedef struct dtpi_loop_side {
    void (*message)(void *user, uint64_t key, const uint8_t *data, size_t bytes);
    void (*closed)(void *user, uint64_t key);
    void *user;
    uint64_t key;
    dtpi_loop_proc *proc;       /* NULL: costs nothing */
    /* Instead of `message`: the reference is lent. */
    void (*shared)(void *user, uint64_t key, dtpi_msg *msg);
} dtpi_loop_side;

/* Sides 0 and 1; NULL without memory. The loop owns it. */
dtpi_loop_chan *dtpi_loop_connect(dtpi_loop *loop, const dtpi_loop_side sides[2]);
/* Gives a side another owner or other handlers. */
void dtpi_loop_adopt(dtpi_loop_chan *chan, int who, const dtpi_loop_side *side);
/* Whether its messages are counted in chains; at first they are not. */
void dtpi_loop_count(dtpi_loop_chan *chan, bool counts);
/* Copied; false without memory. To a dead side or channel: nothing. */
bool dtpi_loop_send(dtpi_loop_chan *chan, int from, const void *data, size_t bytes);
/* Takes a reference of its own. */
bool dtpi_loop_send_msg(dtpi_loop_chan *chan, int from, dtpi_msg *msg);
/* Side `who` is gone: hears nothing more, and the other side hears that it closed. */
void dtpi_loop_kill(dtpi_loop_chan *chan, int who);

/* Where others may connect. */
typedef struct dtpi_loop_door {
    dtpi_loop_proc *proc;
    bool refuses;
    void *user;
    /* False: refused. Called when the request arrives; side 1 of the channel is ours. */
    bool (*accept)(void *user, dtpi_loop_chan *chan, dtpi_loop_side *side_out);
} dtpi_loop_door;

/* Who asks hears `done` after a round trip, with NULL where it was refused or the door's process is dead. */
typedef void (*dtpi_loop_done)(void *user, uint64_t key, dtpi_loop_chan *chan);
bool dtpi_loop_dial(dtpi_loop *loop, const dtpi_loop_door *door, const dtpi_loop_side *side,
                    dtpi_loop_done done);

/* ---- time ---- */

/* Calls `fn` at a time; false without memory. */
bool dtpi_loop_at(dtpi_loop *loop, int64_t at_ns, void (*fn)(void *user, uint64_t key), void *user,
                  uint64_t key);
/* As soon as the process is free then; not when it has ended. */
bool dtpi_loop_proc_at(dtpi_loop_proc *proc, int64_t at_ns, void (*fn)(void *user, uint64_t key), void *user,
                       uint64_t key);
/* Runs the next event; false when there is none at or before `until_ns`, which is then the time. */
bool dtpi_loop_step(dtpi_loop *loop, int64_t until_ns);

/* ---- counts ---- */

typedef struct dtpi_loop_stats {
    uint64_t n_events;
    uint64_t n_delivered;       /* messages */
    uint64_t n_bytes;           /* of these */
    uint64_t n_far;             /* messages between hosts */
    uint64_t n_far_bytes;
    uint64_t n_late;            /* that were lost and sent again */
} dtpi_loop_stats;
const dtpi_loop_stats *dtpi_loop_get_stats(const dtpi_loop *loop);
uint64_t dtpi_loop_n_delivered(const dtpi_loop *loop);

#endif /* DTPI_NET_LOOP_H */
