/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - whole messages over a connected stream socket, Unix or TCP, that never block.
 *
 * On the wire a message is a u32 length, the bytes and, once the link is sealed, a 16-byte tag (seal.h);
 * they may then be encrypted. Descriptors travel beside messages on Unix sockets.
 */
#ifndef DTPI_NET_LINK_H
#define DTPI_NET_LINK_H

#include "base/buf.h"
#include "ctx/ctx.h"
#include "net/seal.h"

enum {
    DTPI_LINK_MAX_FDS = 4,
    DTPI_LINK_MAX_FRAME = 16 << 20,     /* of members */
    DTPI_LINK_MAX_QUEUED = 256 << 20    /* a peer that reads nothing is cut off */
};

/* A message that several links may send; counted. A rank may send from any thread. */
typedef struct dtpi_msg {
    _Atomic uint32_t n_refs;
    dtpi_buf buf;
} dtpi_msg;

/* Takes the bytes of `buf_take`; NULL (and the buffer freed) where it failed or memory is out. */
dtpi_msg *dtpi_msg_new(dtpi_buf *buf_take);
dtpi_msg *dtpi_msg_ref(dtpi_msg *msg);
void dtpi_msg_unref(dtpi_msg *msg);
DTPI_DEFINE_AUTO(msg, dtpi_msg, dtpi_msg_unref);

typedef struct dtpi_link dtpi_link;

/* Both are called inside dispatch and may close the link. */
typedef struct dtpi_link_ops {
    /* Mandatory: a whole message, lent. */
    void (*frame)(dtpi_link *link, void *user, const uint8_t *data, size_t bytes);
    /* Mandatory, once: end of file (DTP_END) or a failure; the owner closes the link. */
    void (*closed)(dtpi_link *link, void *user, dtp_status why);
} dtpi_link_ops;

/*
 * Takes the connected descriptor on success. `max_frame` bounds what the peer may send.
 * Errors: NOMEM, IO.
 */
dtp_status dtpi_link_open(dtp_ctx *ctx, int fd_take, size_t max_frame, const dtpi_link_ops *ops,
                          void *user, dtpi_link **link_out, dtp_error *err);
void dtpi_link_close(dtpi_link *link);
/* Later messages go to another owner; may be called inside `frame`. */
void dtpi_link_set_user(dtpi_link *link, void *user);
/* Frees and closes without touching what a parent process shares. */
void dtpi_link_forget(dtpi_link *link);

/*
 * Queues a message (the link takes a reference of its own) with descriptors that are duplicated; sends
 * as much as the socket takes. False when the link is broken (`closed` follows), or when memory or
 * descriptors are out: then nothing was queued, and the link goes on.
 * Any thread, where the owner keeps the link open.
 */
bool dtpi_link_send(dtpi_link *link, dtpi_msg *msg, const int *fds, uint32_t n_fds);

/* Cuts the connection; `closed` follows in the loop. */
void dtpi_link_break(dtpi_link *link);
bool dtpi_link_is_broken(dtpi_link *link);

/* From now on both directions are protected. */
void dtpi_link_seal(dtpi_link *link, const dtpi_seal *out, const dtpi_seal *in);
void dtpi_link_set_max(dtpi_link *link, size_t max_frame);
/* Reads all that is there now; `closed` may follow. For a peer whose process has ended. */
void dtpi_link_drain(dtpi_link *link);
/* The oldest descriptor that came and was not taken yet, -1 when there is none. */
int dtpi_link_take_fd(dtpi_link *link);
bool dtpi_link_is_idle(dtpi_link *link);    /* nothing queued */
int dtpi_link_fd(const dtpi_link *link);

#endif /* DTPI_NET_LINK_H */
