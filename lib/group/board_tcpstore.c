/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_tcpstore.c - the TCPStore of torch.distributed as a board: torchrun has one running where
 * TORCHELASTIC_USE_AGENT_STORE is True, at MASTER_ADDR and MASTER_PORT.
 *
 * Numbers are in the host's byte order, as torch sends them. A key is asked for only after the store
 * said that it is there: an older store does not survive a question for what it lacks.
 * Source: QueryType and CheckResponseType in torch/csrc/distributed/c10d/TCPStoreBackend.hpp (2.1 and
 * later); both of its servers (libuv or not) speak it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "group/board_wire.h"
#include "net/sock.h"

enum { STORE_VALIDATE = 0, STORE_SET = 1, STORE_GET = 3, STORE_CHECK = 5 };
enum { STORE_MAGIC = 0x3C85F7CE, STORE_READY = 0, STORE_NOT_READY = 1 };
enum { LOOK_UP_MS = 5000, CONNECT_MS = 3000, RETRY_MS = 50 };

struct tcpstore {
    const dtp_allocator *a;
    board_wire w;
    char who[300];
};

/* ---- writing ---- */

static void put_block(dtpi_buf *b, const char *text)
{
    const uint64_t bytes = strlen(text);

    dtpi_buf_append(b, &bytes, sizeof(bytes));
    dtpi_buf_append(b, text, bytes);
}

static void put_u8(dtpi_buf *b, uint8_t v)
{
    dtpi_buf_append(b, &v, 1);
}

static dtp_status send_buf(struct tcpstore *t, dtpi_buf *b, int64_t until_ns, dtp_error *err)
{
    if (b->failed)
        return dtpi_fail_nomem(err, 0);
    return board_wire_send(&t->w, b->data, b->len, until_ns, err);
}

/* ---- connecting ---- */

/* One address; the descriptor is connected when it returns. */
static dtp_status connect_one(struct tcpstore *t, const dtpi_endpoint *e, uint32_t attempt,
                              int64_t until_ns, dtp_error *err)
{
    DTPI_AUTO_FD int fd = -1;
    int e2 = 0;
    socklen_t len = sizeof(e2);
    dtpi_sa to;

    dtpi_endpoint_get(e, attempt, &to);
    dtp_status st = dtpi_tcp_connect(&to, 0, &fd, err);
    if (st < 0)
        return st;
    board_wire w = t->w;
    w.fd = fd;
    st = board_wire_wait(&w, POLLOUT, until_ns, err);
    if (st < 0)
        return st;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &e2, &len);
    errno = e2;
    if (e2)
        return dtpi_fail(err, DTP_ERR_IO, "cannot connect to %s: %m", t->who);
    t->w.fd = dtpi_take_fd(&fd);
    return DTP_OK;
}

/* All addresses, again and again: the store may be just starting. */
static dtp_status connect_any(struct tcpstore *t, const char *place, int64_t until_ns, dtp_error *err)
{
    dtpi_endpoint e;

    dtp_status st = dtpi_endpoint_parse(place, &e, err);
    if (st >= 0)
        st = dtpi_endpoint_resolve(&e, LOOK_UP_MS, err);
    if (st < 0)
        return st;
    for (uint32_t i = 0;; i++) {
        const int64_t now = dtpi_board_now_ns();
        st = connect_one(t, &e, i, DTPI_MIN(until_ns, now + CONNECT_MS * DTPI_NS_PER_MS), err);
        if (st >= 0 || st == DTP_ERR_INTERRUPTED || dtpi_board_now_ns() >= until_ns)
            return st;
        if ((i + 1) % DTPI_MAX(1u, dtpi_endpoint_n_attempts(&e)) == 0) {
            poll(NULL, 0, RETRY_MS);
            if (t->w.interrupted && t->w.interrupted(t->w.user))
                return dtpi_fail(err, DTP_ERR_INTERRUPTED, "%s: interrupted", t->who);
        }
    }
}

static dtp_status greet(struct tcpstore *t, int64_t until_ns, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(t->a);
    const uint32_t magic = STORE_MAGIC;

    put_u8(&b, STORE_VALIDATE);
    dtpi_buf_append(&b, &magic, sizeof(magic));
    return send_buf(t, &b, until_ns, err);
}

static void tcpstore_close(void *state)
{
    struct tcpstore *t = state;

    dtpi_close_fd(&t->w.fd);
    dtpi_free(t->a, t, sizeof(*t));
}

static dtp_status tcpstore_open(const dtp_allocator *a, const dtpi_board_opts *o, int64_t until_ns,
                                void **state_out, dtp_error *err)
{
    struct tcpstore *t = dtpi_alloc(a, sizeof(*t));

    if (!t)
        return dtpi_fail_nomem(err, sizeof(*t));
    t->a = a;
    snprintf(t->who, sizeof(t->who), "torch's store at %s", o->place ? o->place : "a descriptor");
    t->w = (board_wire){ o->place ? -1 : fcntl(o->fd, F_DUPFD_CLOEXEC, 0), t->who, o->interrupted, o->user };
    dtp_status st = o->place ? connect_any(t, o->place, until_ns, err) : board_wire_check(&t->w, err);
    if (st >= 0)
        st = greet(t, until_ns, err);
    if (st < 0) {
        tcpstore_close(t);
        return st;
    }
    *state_out = t;
    return DTP_OK;
}

/* ---- keys ---- */

static dtp_status tcpstore_put(void *state, const char *key, const char *value, int64_t until_ns,
                               dtp_error *err)
{
    struct tcpstore *t = state;
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(t->a);

    put_u8(&b, STORE_SET);
    put_block(&b, key);
    put_block(&b, value);
    return send_buf(t, &b, until_ns, err);
}

static dtp_status is_there(struct tcpstore *t, const char *key, bool *is_out, int64_t until_ns,
                           dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(t->a);
    const uint64_t n_keys = 1;
    uint8_t answer = 0;

    put_u8(&b, STORE_CHECK);
    dtpi_buf_append(&b, &n_keys, sizeof(n_keys));
    put_block(&b, key);
    dtp_status st = send_buf(t, &b, until_ns, err);
    if (st >= 0)
        st = board_wire_receive(&t->w, &answer, 1, until_ns, err);
    if (st < 0)
        return st;
    if (answer != STORE_READY && answer != STORE_NOT_READY)
        return dtpi_fail(err, DTP_ERR_PROTO, "%s answers a question for a key with %u", t->who, answer);
    *is_out = answer == STORE_READY;
    return DTP_OK;
}

static dtp_status tcpstore_get(void *state, const char *key, char *value_out, int64_t until_ns,
                               dtp_error *err)
{
    struct tcpstore *t = state;
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(t->a);
    uint64_t bytes = 0;
    bool is = false;

    dtp_status st = is_there(t, key, &is, until_ns, err);
    if (st < 0)
        return st;
    if (!is)
        return DTP_END;
    put_u8(&b, STORE_GET);
    put_block(&b, key);
    st = send_buf(t, &b, until_ns, err);
    if (st >= 0)
        st = board_wire_receive(&t->w, &bytes, sizeof(bytes), until_ns, err);
    if (st < 0)
        return st;
    if (bytes >= DTPI_BOARD_VALUE)
        return dtpi_fail(err, DTP_ERR_PROTO, "%s gives %llu bytes for %s", t->who,
                         (unsigned long long)bytes, key);
    value_out[bytes] = '\0';
    return board_wire_receive(&t->w, value_out, bytes, until_ns, err);
}

const dtpi_board_ops dtpi_board_tcpstore = {
    .name = "tcpstore", .is_lasting = true, .open = tcpstore_open, .put = tcpstore_put, .get = tcpstore_get,
    .close = tcpstore_close,
};
