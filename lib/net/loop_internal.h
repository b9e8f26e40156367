/* SPDX-License-Identifier: Apache-2.0 */
/* loop_internal.h - fields of the network in a process, for loop*.c. */
#ifndef DTPI_NET_LOOP_INTERNAL_H
#define DTPI_NET_LOOP_INTERNAL_H

#include "net/loop.h"

enum loop_what {
    LOOP_CALL,                  /* fn(user, key) */
    LOOP_MESSAGE,               /* to side `to` of the channel */
    LOOP_END,
    LOOP_KNOCK,                 /* a request to connect arrives at a door */
    LOOP_ANSWER,                /* and its answer at who asked */
    LOOP_READY,                 /* a process may go on */
    LOOP_CORE                   /* a core is free */
};

/* Not all fields are used by all. */
struct loop_event {
    struct loop_event *next;    /* free, or waiting for its process */
    uint8_t what, to;
    dtpi_loop_proc *proc;       /* who spends time on it; NULL: nobody */
    dtpi_loop_chan *chan;
    union {
        dtpi_msg *msg;
        void (*fn)(void *user, uint64_t key);
        struct loop_cores *cores;
    };
    void *user;
    uint64_t key;               /* of a message: its place in the chain, 0: not counted */
};

/* In the heap: the order is that of time, then of numbers. */
struct loop_entry {
    int64_t at_ns;
    uint64_t number;
    struct loop_event *event;
};

/* Cores that some processes share. */
struct loop_cores {
    uint32_t n;
    bool waits;                 /* for a core to be free */
    int64_t *free_ns;           /* by core */
    dtpi_loop_proc *ready, **ready_tail;
};

struct dtpi_loop_host {
    dtpi_loop_host *next;
    dtpi_loop *loop;
    struct loop_cores own, *cores;
    int64_t out_free_ns, in_free_ns;
    bool is_cut;
};

struct dtpi_loop_proc {
    dtpi_loop_proc *next;       /* of the loop */
    dtpi_loop_proc *next_ready;
    dtpi_loop *loop;
    dtpi_loop_host *host;
    struct loop_event *inbox, **inbox_tail;
    dtpi_loop_chan *chans;
    int64_t free_ns, cpu_ns;
    uint32_t chain;
    bool dead, stopped, wakes, is_ready;
};

struct dtpi_loop_chan {
    dtpi_loop_chan *next;       /* of the loop */
    dtpi_loop_chan *next_of[2]; /* of the process at a side */
    dtpi_loop *loop;
    dtpi_loop_side sides[2];
    dtpi_loop_done done;        /* until the answer */
    const dtpi_loop_door *door;
    bool dead[2], is_far, is_refused, counts;
    int64_t last_ns[2];         /* order within a direction */
};

struct loop_slab;

struct dtpi_loop {
    dtp_allocator a;
    dtpi_loop_opts o;
    int64_t now_ns;
    uint64_t n_numbers;
    struct loop_entry *heap;    /* four children each */
    size_t n_heap, cap_heap;
    struct loop_event *free;
    struct loop_slab *slabs;
    dtpi_loop_chan *chans;
    dtpi_loop_host *hosts;
    dtpi_loop_proc *procs;
    struct loop_cores cores;    /* of all, where o.n_cores */
    dtpi_loop_proc *running;
    int64_t spent_ns;           /* by what is running */
    dtpi_loop_stats stats;
};

/* loop.c */
struct loop_event *loop_event_new(dtpi_loop *l, enum loop_what what);
void loop_event_free(dtpi_loop *l, struct loop_event *e);
/* Frees the event on failure. */
bool loop_push(dtpi_loop *l, struct loop_event *e, int64_t at_ns);
uint64_t loop_random(dtpi_loop *l);

/* loop_proc.c: puts an event before its process, or handles it at once */
void loop_give(dtpi_loop *l, struct loop_event *e);
void loop_proc_ready(dtpi_loop_proc *p);
void loop_cores_run(dtpi_loop *l, struct loop_cores *c);
bool loop_cores_init(dtpi_loop *l, struct loop_cores *c, uint32_t n);

/* loop_chan.c */
void loop_handle(dtpi_loop *l, struct loop_event *e);
void loop_knock(dtpi_loop *l, struct loop_event *e);
/* Processor time that an event takes where it arrives. */
int64_t loop_cost(const dtpi_loop *l, const struct loop_event *e);

#endif /* DTPI_NET_LOOP_INTERNAL_H */
