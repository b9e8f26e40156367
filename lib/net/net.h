/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net.h - the family of networks that carry data between processes: one member, `ucx`, in a module.
 *
 * A network is one worker of one process: an address that others connect to, end points, transfers
 * matched by a 64-bit tag, and small messages. A driver calls nothing of the library above base/: its
 * owner puts the descriptor into a loop. All ops run on the owner's thread; none blocks but close.
 */
#ifndef DTPI_NET_NET_H
#define DTPI_NET_NET_H

#include "base/base.h"

typedef struct dtpi_net dtpi_net;
typedef struct dtpi_net_ep dtpi_net_ep;

/* One transfer; embedded in its owner, must stay until `done`. Zeroed before use. */
typedef struct dtpi_xfer dtpi_xfer;
struct dtpi_xfer {
    bool done;
    dtp_status status;          /* valid when done */
    void *request;              /* the driver's */
    void *user;
    size_t bytes;               /* what a receive expects */
    dtpi_xfer *next, **prev;    /* of the group that started it */
};

/* Drivers end a transfer with it: the owner may free it as soon as it is done. */
static inline void dtpi_xfer_end(dtpi_xfer *x, dtp_status status)
{
    if (x->prev) {
        *x->prev = x->next;
        if (x->next)
            x->next->prev = x->prev;
    }
    x->next = NULL;
    x->prev = NULL;
    x->request = NULL;
    x->status = status;
    x->done = true;
}

typedef struct dtpi_net_opts {
    const dtp_allocator *allocator;
    const dtpi_log *log;
    const char *transports;     /* "tcp" */
    const char *devices;        /* "eth0,mlx5_0:1"; NULL: all */
    /* A small message came; data is lent. NULL: none are expected. */
    void (*message)(void *user, const uint8_t *data, size_t bytes);
    void *user;
} dtpi_net_opts;

struct dtpi_net_ops {
    const char *name;
    /* Mandatory. Version of the library behind it, "1.13": both ends must have the same. */
    void (*version)(char *text_out, size_t room);
    /* Mandatory. Errors: UNSUPPORTED (no such device or transport), NOMEM, LIMIT. */
    dtp_status (*open)(const dtpi_net_opts *opts, dtpi_net **net_out, dtp_error *err);
    /* Mandatory. All end points are closed before; may take a while where peers are gone. */
    void (*close)(dtpi_net *net);
    /* Mandatory. Lent until close. */
    const void *(*address)(const dtpi_net *net, size_t *bytes_out);
    /* Mandatory. A descriptor to poll for reading after arm() said true. */
    int (*fd)(const dtpi_net *net);
    bool (*arm)(dtpi_net *net);         /* false: there is work now */
    bool (*progress)(dtpi_net *net);    /* true: something happened */
    /* Mandatory. Errors: NOMEM, PEER. */
    dtp_status (*connect)(dtpi_net *net, const void *address, size_t bytes, dtpi_net_ep **ep_out,
                          dtp_error *err);
    /* Mandatory. Pending sends end, with PEER where they were not done; waits a little where `flush`. */
    void (*disconnect)(dtpi_net_ep *ep, bool flush);
    bool (*is_broken)(const dtpi_net_ep *ep);
    /* Mandatory. May be done on return. A receive of another size than what was sent ends in PROTO. */
    void (*send)(dtpi_net_ep *ep, uint64_t tag, const void *data, size_t bytes, dtpi_xfer *x);
    void (*recv)(dtpi_net *net, uint64_t tag, void *data, size_t bytes, dtpi_xfer *x);
    /* Mandatory. A pending receive ends in CANCELED, soon. */
    void (*cancel)(dtpi_net *net, dtpi_xfer *x);
    /* Mandatory. A small message, copied. Errors: NOMEM, PEER. */
    dtp_status (*post)(dtpi_net_ep *ep, const void *data, size_t bytes, dtp_error *err);
    /* Mandatory. "tcp/eth0" of the first lane. */
    void (*lane)(dtpi_net_ep *ep, char *text_out, size_t room);
};

typedef struct dtpi_net_choice {
    char transports[64];        /* "rc,ud,tcp" */
    char devices[256];          /* "mlx5_0:1,eth0"; "": all */
    bool has_rdma;
} dtpi_net_choice;

/*
 * Devices for traffic towards `root` ("host:port,...", NULL: this machine only): RDMA ports that are up and
 * the interface that faces the root, and the transports they need.
 */
void dtpi_net_choose(const char *root, dtpi_net_choice *out);
/* An RDMA port is up. */
bool dtpi_net_has_rdma(void);
/* A lane, as the driver's `lane` tells it, goes over RDMA: "rc_mlx5/mlx5_0:1", not "tcp/eth0". */
bool dtpi_net_lane_is_rdma(const char *lane);
/* The device of a lane is one of the choice. */
bool dtpi_net_lane_was_chosen(const dtpi_net_choice *choice, const char *lane);
/* UCX of this version ("1.22") goes on when a stranger's bytes begin like its own. */
bool dtpi_net_survives_strangers(const char *version);
/* Something else in this process has loaded UCX already. */
bool dtpi_net_is_loaded(void);

#endif /* DTPI_NET_NET_H */
