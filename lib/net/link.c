/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - whole messages over a stream socket: reads what is there, queues what does not fit.
 *
 * The buffer for reading grows with what has come, never with what a peer announces. A callback may
 * close the link; its memory then goes when the callback returns.
 */
#include "net/link.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/wire.h"

enum { READ_BYTES = 64 << 10, READS_PER_TURN = 16, READS_TO_DRAIN = 4096, OUT_BATCH = 16, FEW_BYTES = 4096, NO_MEMORY = -2 };

/* One queued message. */
struct out {
    struct out *next;
    dtpi_msg *msg;
    uint8_t head[4];
    uint8_t mac[DTPI_SEAL_TAG_BYTES];
    size_t n_mac;
    uint8_t *secret;            /* the encrypted bytes; NULL: those of the message */
    int fds[DTPI_LINK_MAX_FDS];
    uint32_t n_fds;
};

struct dtpi_link {
    dtp_ctx *ctx;
    const dtpi_link_ops *ops;
    void *user;
    int fd;
    size_t max_frame;
    size_t read_bytes;          /* at once: little of who may say little */
    dtpi_source source;
    dtpi_buf in;
    int in_fds[2 * DTPI_LINK_MAX_FDS];
    uint32_t n_in_fds;
    bool in_call, closing, told;

    pthread_mutex_t mutex;      /* what follows: senders on other threads */
    struct out *head, **tail;
    size_t head_at;             /* bytes of the first message that are gone */
    size_t n_queued;
    bool broken;
    bool sealed;
    dtpi_seal seal_out, seal_in;
    uint64_t count_out, count_in;
    dtpi_task flush_task;
    bool flush_posted;
};

/* ---- messages ---- */

dtpi_msg *dtpi_msg_new(dtpi_buf *buf_take)
{
    dtpi_msg *msg = buf_take->failed ? NULL : dtpi_alloc(buf_take->a, sizeof(*msg));

    if (!msg) {
        dtpi_buf_free(buf_take);
        return NULL;
    }
    atomic_init(&msg->n_refs, 1);
    msg->buf = *buf_take;
    *buf_take = dtpi_buf_init(buf_take->a);
    return msg;
}

dtpi_msg *dtpi_msg_ref(dtpi_msg *msg)
{
    atomic_fetch_add_explicit(&msg->n_refs, 1, memory_order_relaxed);
    return msg;
}

void dtpi_msg_unref(dtpi_msg *msg)
{
    if (!msg || atomic_fetch_sub_explicit(&msg->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    const dtp_allocator *a = msg->buf.a;
    dtpi_buf_free(&msg->buf);
    dtpi_free(a, msg, sizeof(*msg));
}

/* ---- sending ---- */

static void out_free(dtpi_link *l, struct out *o)
{
    for (uint32_t i = 0; i < o->n_fds; i++)
        dtpi_close_fd(&o->fds[i]);
    dtpi_free(dtpi_ctx_alloc(l->ctx), o->secret, o->msg->buf.len);
    dtpi_msg_unref(o->msg);
    dtpi_free(dtpi_ctx_alloc(l->ctx), o, sizeof(*o));
}

static void drop_queue(dtpi_link *l)
{
    while (l->head) {
        struct out *o = l->head;
        l->head = o->next;
        out_free(l, o);
    }
    l->tail = &l->head;
    l->head_at = l->n_queued = 0;
}

/* The peer sees the end, and so does our loop, which then tells the owner. */
static void break_link(dtpi_link *l)
{
    l->broken = true;
    drop_queue(l);
    shutdown(l->fd, SHUT_RDWR);
}

static size_t out_bytes(const struct out *o)
{
    return sizeof(o->head) + o->msg->buf.len + o->n_mac;
}

/* Adds the pieces of `o` behind its first `skip` bytes. */
static int add_pieces(struct iovec *iov, const struct out *o, size_t skip)
{
    const struct iovec parts[3] = {
        { (void *)(uintptr_t)o->head, sizeof(o->head) },
        { o->secret ? o->secret : o->msg->buf.data, o->msg->buf.len },
        { (void *)(uintptr_t)o->mac, o->n_mac },
    };
    int n = 0;

    for (size_t i = 0; i < 3; i++) {
        if (skip >= parts[i].iov_len) {
            skip -= parts[i].iov_len;
            continue;
        }
        iov[n].iov_base = (char *)parts[i].iov_base + skip;
        iov[n++].iov_len = parts[i].iov_len - skip;
        skip = 0;
    }
    return n;
}

static void attach_fds(struct msghdr *mh, char *control, struct out *o)
{
    mh->msg_control = control;
    mh->msg_controllen = CMSG_SPACE(o->n_fds * sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(mh);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(o->n_fds * sizeof(int));
    memcpy(CMSG_DATA(c), o->fds, o->n_fds * sizeof(int));
}

static void sent(dtpi_link *l, size_t n)
{
    l->n_queued -= n;
    n += l->head_at;
    while (l->head && n >= out_bytes(l->head)) {
        struct out *o = l->head;
        n -= out_bytes(o);
        l->head = o->next;
        if (!l->head)
            l->tail = &l->head;
        out_free(l, o);
    }
    l->head_at = n;
}

/* The kernel has no room at the moment; the socket's descriptor says when to try again. */
static bool is_passing(int e)
{
    return e == EAGAIN || e == ENOBUFS || e == ENOMEM;
}

/* One system call; with the mutex held. False when the socket takes no more now. */
static bool flush_some(dtpi_link *l)
{
    char control[CMSG_SPACE(DTPI_LINK_MAX_FDS * sizeof(int))] = { 0 };
    struct iovec iov[3 * OUT_BATCH];
    struct msghdr mh = { .msg_iov = iov };
    struct out *first = l->head;

    for (struct out *o = first; o && mh.msg_iovlen < 3 * (OUT_BATCH - 1); o = o->next) {
        /* Descriptors ride on the first byte of their own message. */
        if (o->n_fds > 0 && o != first)
            break;
        mh.msg_iovlen += (size_t)add_pieces(iov + mh.msg_iovlen, o, o == first ? l->head_at : 0);
    }
    if (first->n_fds > 0 && l->head_at == 0)
        attach_fds(&mh, control, first);
    const ssize_t n = sendmsg(l->fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
        if (errno != EINTR && !is_passing(errno))
            break_link(l);
        return errno == EINTR;
    }
    sent(l, (size_t)n);
    return true;
}

static void flush(dtpi_link *l)
{
    while (l->head && !l->broken && flush_some(l))
        continue;
}

static void watch_output(dtpi_link *l)
{
    const uint32_t events = EPOLLIN | (l->head ? EPOLLOUT : 0);

    /* What is queued would wait for ever. */
    if (dtpi_source_modify(l->ctx, &l->source, events, NULL) < 0)
        break_link(l);
}

static void run_flush(dtpi_task *t)
{
    dtpi_link *l = DTPI_CONTAINER(t, dtpi_link, flush_task);

    pthread_mutex_lock(&l->mutex);
    l->flush_posted = false;
    const bool closing = l->closing;
    if (!closing) {
        flush(l);
        watch_output(l);
    }
    pthread_mutex_unlock(&l->mutex);
    if (closing)
        dtpi_link_close(l);
}

static struct out *out_new(dtpi_link *l, dtpi_msg *msg, const int *fds, uint32_t n_fds)
{
    struct out *o = dtpi_alloc(dtpi_ctx_alloc(l->ctx), sizeof(*o));

    if (!o) {
        errno = ENOMEM;
        return NULL;
    }
    o->msg = dtpi_msg_ref(msg);
    for (size_t i = 0; i < 4; i++)
        o->head[i] = (uint8_t)(msg->buf.len >> (8 * i));
    for (; o->n_fds < n_fds; o->n_fds++) {
        o->fds[o->n_fds] = fcntl(fds[o->n_fds], F_DUPFD_CLOEXEC, 0);
        if (o->fds[o->n_fds] < 0) {
            out_free(l, o);
            return NULL;
        }
    }
    return o;
}

/* One message for several links is encrypted for each. False without memory. */
static bool seal_out(dtpi_link *l, struct out *o)
{
    const dtpi_buf *b = &o->msg->buf;

    if (l->seal_out.encrypts) {
        o->secret = dtpi_alloc_aligned(dtpi_ctx_alloc(l->ctx), b->len, 16);
        if (!o->secret)
            return false;
    }
    o->n_mac = sizeof(o->mac);
    dtpi_seal_close(&l->seal_out, l->count_out++, o->head, sizeof(o->head), b->data, b->len, o->secret,
                    o->mac);
    return true;
}

static bool enqueue(dtpi_link *l, dtpi_msg *msg, const int *fds, uint32_t n_fds)
{
    if (l->n_queued > DTPI_LINK_MAX_QUEUED) {
        break_link(l);
        return false;
    }
    struct out *o = out_new(l, msg, fds, n_fds);
    if (!o)
        return false;
    if (l->sealed && !seal_out(l, o)) {
        out_free(l, o);
        errno = ENOMEM;
        return false;
    }
    *l->tail = o;
    l->tail = &o->next;
    l->n_queued += out_bytes(o);
    return true;
}

bool dtpi_link_send(dtpi_link *l, dtpi_msg *msg, const int *fds, uint32_t n_fds)
{
    assert(n_fds <= DTPI_LINK_MAX_FDS && msg->buf.len <= UINT32_MAX);
    pthread_mutex_lock(&l->mutex);
    const bool was_empty = !l->head;
    const bool ok = !l->broken && enqueue(l, msg, fds, n_fds);
    if (ok && was_empty)
        flush(l);
    if (l->head && was_empty && !l->flush_posted) {
        l->flush_posted = true;
        l->flush_task.run = run_flush;
        dtpi_post(l->ctx, &l->flush_task);
    }
    pthread_mutex_unlock(&l->mutex);
    return ok;
}

void dtpi_link_break(dtpi_link *l)
{
    pthread_mutex_lock(&l->mutex);
    break_link(l);
    pthread_mutex_unlock(&l->mutex);
}

bool dtpi_link_is_broken(dtpi_link *l)
{
    pthread_mutex_lock(&l->mutex);
    const bool broken = l->broken;
    pthread_mutex_unlock(&l->mutex);
    return broken;
}

/* ---- receiving ---- */

static void keep_fds(dtpi_link *l, struct msghdr *mh)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (l->n_in_fds < DTPI_ARRAY_LEN(l->in_fds))
                l->in_fds[l->n_in_fds++] = fd;
            else
                close(fd);
        }
    }
}

/* Bytes read, 0 at the end, -1 with errno, NO_MEMORY. */
static ssize_t read_some(dtpi_link *l)
{
    char control[CMSG_SPACE(2 * DTPI_LINK_MAX_FDS * sizeof(int))];
    size_t room = l->read_bytes;
    uint8_t *p = dtpi_buf_reserve(&l->in, room);
    if (!p) {
        l->in.failed = false;
        p = dtpi_buf_reserve(&l->in, room = FEW_BYTES);
    }
    struct iovec iov = { p, room };
    struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                         .msg_controllen = sizeof(control) };

    if (!p)
        return NO_MEMORY;
    const ssize_t n = recvmsg(l->fd, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n > 0) {
        l->in.len += (size_t)n;
        keep_fds(l, &mh);
    }
    return n;
}

/* Hands over the whole messages in the buffer. PROTO where the peer breaks the rules. */
static dtp_status hand_over(dtpi_link *l)
{
    size_t at = 0;
    dtp_status st = DTP_OK;

    while (!l->closing) {
        dtpi_rd r = dtpi_rd_init(l->in.data + at, l->in.len - at);
        const size_t bytes = dtpi_rd_u32(&r);
        const size_t n_mac = l->sealed ? DTPI_SEAL_TAG_BYTES : 0;
        if (r.failed)
            break;
        if (bytes == 0 || bytes > l->max_frame) {
            st = DTP_ERR_PROTO;
            break;
        }
        if (!dtpi_rd_bytes(&r, bytes + n_mac))
            break;
        uint8_t *const head = l->in.data + at, *const data = head + 4;
        if (n_mac && !dtpi_seal_open(&l->seal_in, l->count_in++, head, 4, data, bytes, data + bytes)) {
            st = DTP_ERR_AUTH;
            break;
        }
        at += 4 + bytes + n_mac;
        l->ops->frame(l, l->user, data, bytes);
    }
    dtpi_buf_consume(&l->in, at);
    return st;
}

static dtp_status receive(dtpi_link *l, int n_reads)
{
    for (int i = 0; i < n_reads && !l->closing; i++) {
        const size_t room = l->read_bytes;
        const ssize_t n = read_some(l);
        /* A peer that ends with something of ours unread resets the connection. */
        if (n == 0 || (n == -1 && errno == ECONNRESET))
            return DTP_END;
        if (n == -1 && errno == EINTR)
            continue;
        if (n == NO_MEMORY)
            return DTP_ERR_NOMEM;
        if (n < 0)
            return is_passing(errno) ? DTP_OK : DTP_ERR_IO;
        const dtp_status st = hand_over(l);
        if (st < 0)
            return st;
        if ((size_t)n < room && n_reads <= READS_PER_TURN)
            break;      /* that was all, or the loop comes back: a call less for each message */
    }
    return DTP_OK;
}

/* Reads up to `n_reads` times and tells the owner of an end. */
static void serve(dtpi_link *l, int n_reads)
{
    l->in_call = true;
    const dtp_status st = receive(l, n_reads);
    if (st != DTP_OK && !l->closing && !l->told) {
        l->told = true;
        dtpi_source_remove(l->ctx, &l->source);
        l->ops->closed(l, l->user, st);
    }
    l->in_call = false;
    if (l->closing)
        dtpi_link_close(l);
}

static void link_ready(dtpi_source *s, uint32_t revents)
{
    dtpi_link *l = DTPI_CONTAINER(s, dtpi_link, source);

    if (revents & EPOLLOUT) {
        pthread_mutex_lock(&l->mutex);
        flush(l);
        watch_output(l);
        pthread_mutex_unlock(&l->mutex);
    }
    if (revents & (EPOLLIN | EPOLLHUP | EPOLLERR))
        serve(l, READS_PER_TURN);
}

void dtpi_link_drain(dtpi_link *l)
{
    if (!l->in_call && !l->told)
        serve(l, READS_TO_DRAIN);
}

/* ---- life ---- */

dtp_status dtpi_link_open(dtp_ctx *ctx, int fd_take, size_t max_frame, const dtpi_link_ops *ops,
                          void *user, dtpi_link **link_out, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(ctx);
    dtpi_link *l = dtpi_alloc(a, sizeof(*l));

    if (!l)
        return dtpi_fail_nomem(err, sizeof(*l));
    l->ctx = ctx;
    l->ops = ops;
    l->user = user;
    l->fd = fd_take;
    dtpi_link_set_max(l, max_frame);
    l->in = dtpi_buf_init(a);
    l->tail = &l->head;
    l->source = (dtpi_source){ .fd = fd_take, .events = EPOLLIN, .ready = link_ready };
    const dtp_status st = dtpi_source_add(ctx, &l->source, err);
    if (st < 0) {
        dtpi_free(a, l, sizeof(*l));
        return st;
    }
    pthread_mutex_init(&l->mutex, NULL);
    *link_out = l;
    return DTP_OK;
}

static void link_free(dtpi_link *l)
{
    const dtp_allocator *a = dtpi_ctx_alloc(l->ctx);

    dtpi_source_remove(l->ctx, &l->source);
    drop_queue(l);
    dtpi_buf_free(&l->in);
    for (uint32_t i = 0; i < l->n_in_fds; i++)
        dtpi_close_fd(&l->in_fds[i]);
    dtpi_close_fd(&l->fd);
    pthread_mutex_destroy(&l->mutex);
    sodium_memzero(&l->seal_out, sizeof(l->seal_out));
    sodium_memzero(&l->seal_in, sizeof(l->seal_in));
    dtpi_free(a, l, sizeof(*l));
}

void dtpi_link_set_user(dtpi_link *l, void *user)
{
    l->user = user;
}

void dtpi_link_close(dtpi_link *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->mutex);
    if (!l->closing && !l->broken)
        flush(l);
    l->closing = true;
    const bool later = l->in_call || l->flush_posted;
    pthread_mutex_unlock(&l->mutex);
    dtpi_source_remove(l->ctx, &l->source);
    if (!later)
        link_free(l);
}

void dtpi_link_forget(dtpi_link *l)
{
    if (l)
        link_free(l);
}

void dtpi_link_seal(dtpi_link *l, const dtpi_seal *out, const dtpi_seal *in)
{
    pthread_mutex_lock(&l->mutex);
    l->seal_out = *out;
    l->seal_in = *in;
    l->sealed = true;
    pthread_mutex_unlock(&l->mutex);
}

void dtpi_link_set_max(dtpi_link *l, size_t max_frame)
{
    l->max_frame = max_frame;
    l->read_bytes = DTPI_MIN(max_frame + 64, (size_t)READ_BYTES);
}

int dtpi_link_take_fd(dtpi_link *l)
{
    if (l->n_in_fds == 0)
        return -1;
    const int fd = l->in_fds[0];
    l->n_in_fds--;
    memmove(l->in_fds, l->in_fds + 1, l->n_in_fds * sizeof(int));
    return fd;
}

bool dtpi_link_is_idle(dtpi_link *l)
{
    pthread_mutex_lock(&l->mutex);
    const bool idle = !l->head;
    pthread_mutex_unlock(&l->mutex);
    return idle;
}

int dtpi_link_fd(const dtpi_link *l)
{
    return l->fd;
}
