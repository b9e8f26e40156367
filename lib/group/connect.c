/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connect.c - a rank finds its agent, or starts it, and joins.
 *
 * Without an agent's socket from the launcher the name follows from what all ranks of the node know. The
 * secret is not in it: ranks whose secrets differ meet, and the proof tells them so.
 */
#include "group/group_internal.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "net/sock.h"

enum { RETRY_FIRST_US = 500, RETRY_MAX_US = 20000, LAST_WORDS_MS = 200 };

static dtp_status derive_socket(const dtp_group_opts *o, char *name_out, size_t room, dtp_error *err)
{
    uint8_t raw[16];
    char hex[33];
    struct stat ns = { 0 };
    crypto_generichash_state s;
    uint64_t numbers[4] = { geteuid(), o->attempt };
    /* Several nodes on one machine are told apart where their numbers are known. */
    numbers[2] = (uint64_t)o->node;
    if (stat("/proc/self/ns/ipc", &ns) == 0)
        numbers[3] = ns.st_ino;
    else if (errno != ENOENT)
        return dtpi_fail(err, DTP_ERR_IO, "cannot tell the IPC namespace (/proc/self/ns/ipc): %m");
    crypto_generichash_init(&s, NULL, 0, sizeof(raw));
    crypto_generichash_update(&s, (const uint8_t *)numbers, sizeof(numbers));
    crypto_generichash_update(&s, (const uint8_t *)o->job, strlen(o->job));
    crypto_generichash_final(&s, raw, sizeof(raw));
    dtpi_format_hex(raw, sizeof(raw), hex);
    snprintf(name_out, room, "@dtp-%s", hex);
    return DTP_OK;
}

static bool never(void *user)
{
    (void)user;
    return false;
}

/* Lets the loop run for a while; OK, or why to stop trying. */
static dtp_status rest(dtp_ctx *ctx, int64_t ns, int64_t deadline_ns, dtp_error *err)
{
    const int64_t now = dtp_ctx_now_ns(ctx);

    if (now >= deadline_ns)
        return DTP_ERR_TIMEOUT;
    const dtp_status st = dtpi_ctx_wait(ctx, never, NULL, DTPI_MIN(now + ns, deadline_ns), err);
    return st == DTP_ERR_TIMEOUT ? DTP_OK : st;
}

static dtp_status join_failed(const struct session *s, dtp_error *err)
{
    if (err)
        *err = s->join_error;
    return s->join_error.status;
}

static dtp_status no_agent(const struct session *s, const char *socket, dtp_error *err)
{
    return dtpi_fail(err, DTP_ERR_TIMEOUT, "rank %d of %d: no agent at %s within %d ms (%s)", s->rank,
                     s->world, socket, s->timeout_ms,
                     s->join_error.status == DTP_ERR_BUSY ? s->join_error.text
                                                          : "local rank 0 starts it; its job and "
                                                            "attempt must be the same");
}

static dtp_status reach(struct session *s, const char *socket, int64_t deadline_ns, int *fd_out,
                        dtp_error *err)
{
    int64_t us = RETRY_FIRST_US;

    for (;;) {
        if (s->state == SESSION_FAILED)
            return join_failed(s, err);
        dtp_status st = dtpi_unix_connect(socket, fd_out, err);
        if (st != DTP_PENDING)
            return st;
        st = rest(s->ctx, us * 1000, deadline_ns, err);
        if (st == DTP_ERR_TIMEOUT)
            return no_agent(s, socket, err);
        if (st < 0)
            return st;
        us = DTPI_MIN(us * 3 / 2, (int64_t)RETRY_MAX_US);
    }
}

/* Only a process of the same user, or root's, may play our agent. */
static dtp_status check_agent(struct session *s, const char *socket, int fd, dtp_error *err)
{
    uid_t uid;
    pid_t pid;

    const dtp_status st = dtpi_unix_peer(fd, &uid, &pid, err);
    if (st < 0)
        return st;
    if (uid != geteuid() && uid != 0)
        return dtpi_fail(err, DTP_ERR_PERM, "the agent at %s runs as user %u, not %u", socket,
                         (unsigned)uid, (unsigned)geteuid());
    s->agent_pid = pid;
    return DTP_OK;
}

static bool is_settled(void *user)
{
    const struct session *s = user;

    return s->state >= SESSION_MEMBER;
}

/* Waits for the welcome; at the deadline the root is asked to say who is missing. PENDING: try again. */
static dtp_status wait_welcome(struct session *s, int64_t deadline_ns, dtp_error *err)
{
    dtp_status st = dtpi_ctx_wait(s->ctx, is_settled, s, deadline_ns, err);

    if (st == DTP_ERR_TIMEOUT && s->newcomer)
        return dtpi_fail(err, st, "no re-form took this newcomer in within %d ms", s->timeout_ms);
    if (st == DTP_ERR_TIMEOUT) {
        dtpi_buf b = session_begin(s, DTPI_F_EXPIRE, DTPI_WORLD_ID, 0, 0);
        if (s->state == SESSION_JOINING)
            session_send(s, &b);
        else
            dtpi_buf_free(&b);
        st = dtpi_ctx_wait(s->ctx, is_settled, s,
                           dtp_ctx_now_ns(s->ctx) + GROUP_GRACE_MS * DTPI_NS_PER_MS, err);
    }
    if (st == DTP_ERR_TIMEOUT)
        return dtpi_fail(err, st, "rank %d of %d: the agent did not answer within %d ms", s->rank,
                         s->world, s->timeout_ms);
    if (st < 0)
        return st;
    if (s->state == SESSION_AGAIN)
        return DTP_PENDING;
    return s->state == SESSION_FAILED ? join_failed(s, err) : DTP_OK;
}

/* The agent gives the secret first; it runs as our user, or as root. */
bool session_take_secret(struct session *s, const uint8_t *data, size_t bytes)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(s->ctx));
    const uint8_t *gift;
    size_t n_gift;
    uint8_t kind;

    if (!s->hs.asks || !dtpi_hs_read_gift(data, bytes, &kind, &gift, &n_gift) ||
        kind != DTPI_HS_PLAIN || n_gift != DTP_SECRET_BYTES)
        return false;
    dtpi_hs_set_secret(&s->hs, gift);
    sodium_memzero((uint8_t *)(uintptr_t)gift, n_gift);     /* in the link's buffer */
    dtpi_hs_hello(&s->hs, &b);
    session_send(s, &b);
    return true;
}

static dtp_status say_hello(struct session *s, const dtp_group_opts *o, dtp_error *err)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(s->ctx));

    dtpi_hs_init(&s->hs, &(dtpi_hs_opts){
        .role = DTPI_HS_RANK, .job = s->job, .attempt = s->attempt,
        .world = (uint32_t)s->world, .who = s->rank,
        .secret = o->insecure ? NULL : o->secret, .asks = !o->insecure && o->munge,
        .encrypts = o->encrypt });
    dtpi_hs_hello(&s->hs, &b);
    /* One that was closed at once is met again. */
    if (!session_send(s, &b) && !dtpi_link_is_broken(s->link))
        return dtpi_fail(err, DTP_ERR_NOMEM, "rank %d has no memory for a message to its agent", s->rank);
    return DTP_OK;
}

/* Meets the agent that is there now. PENDING: it was that of a group that ends. */
static dtp_status meet(struct session *s, const dtp_group_opts *o, const char *socket,
                       int64_t deadline_ns, dtp_error *err)
{
    DTPI_AUTO_FD int fd = -1;

    dtp_status st = reach(s, socket, deadline_ns, &fd, err);
    if (st >= 0)
        st = check_agent(s, socket, fd, err);
    if (st < 0)
        return st;
    s->state = SESSION_PROVING;
    s->agent_left = s->is_proven = s->is_told = false;
    st = dtpi_link_open(s->ctx, fd, DTPI_HS_MAX_FRAME, &session_link_ops, s, &s->link, err);
    if (st < 0)
        return st;
    fd = -1;
    session_watch_agent(s);
    st = say_hello(s, o, err);
    return st < 0 ? st : wait_welcome(s, deadline_ns, err);
}

static dtp_status meet_and_join(struct session *s, const dtp_group_opts *o, const char *socket,
                                int64_t deadline_ns, dtp_error *err)
{
    dtp_status st;

    while ((st = meet(s, o, socket, deadline_ns, err)) == DTP_PENDING) {
        dtpi_link_close(DTPI_TAKE(s->link));
        session_watch_none(s);      /* its end is no end of what this rank waits for */
        st = rest(s->ctx, RETRY_MAX_US * 1000LL, deadline_ns, err);
        if (st < 0)
            return st == DTP_ERR_TIMEOUT ? no_agent(s, socket, err) : st;
    }
    return st;
}

/* Where the agent is met, and whether this rank is to start it. */
static dtp_status find_socket(const dtp_group_opts *o, char *derived, size_t room, bool *is_host_out,
                              dtp_error *err)
{
    if (sodium_init() < 0)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "libsodium does not start");
    *is_host_out = !o->agent && o->local_rank == 0 && o->rank != DTP_RANK_NEW;
    if (!o->agent)
        return derive_socket(o, derived, room, err);
    *derived = '\0';
    return DTP_OK;
}

void session_say_why(struct session *s, const dtp_group_opts *o, const dtp_error *why)
{
    const int64_t until = dtp_ctx_now_ns(s->ctx) + LAST_WORDS_MS * DTPI_NS_PER_MS;
    char derived[64];
    bool is_host;

    if (s->is_told || why->status == DTP_ERR_TIMEOUT || o->rank == DTP_RANK_NEW)
        return;
    if (s->link && s->is_proven) {
        session_announce(s, why);
        return;
    }
    dtpi_link_close(DTPI_TAKE(s->link));
    if (find_socket(o, derived, sizeof(derived), &is_host, NULL) < 0)
        return;
    const char *socket = o->agent ? o->agent : derived;
    if (is_host && !s->host) {
        host_say_why(s->ctx, o, socket, why);
        return;
    }
    s->last_words = why;
    s->state = SESSION_PROVING;
    meet(s, o, socket, until, NULL);
    s->last_words = NULL;
}

/* The agent of this node, where this rank hosts it. */
static dtp_status start_agent(struct session *s, const dtp_group_opts *o, const dtpi_board_opts *board,
                              const char *socket, int64_t deadline_ns, struct meet **meet_out,
                              dtp_error *err)
{
    if (board)
        return meet_start(s, o, board, socket, deadline_ns, meet_out, err);
    return o->local_rank == 0 && o->rank != DTP_RANK_NEW ? host_start(s->ctx, o, false, socket, &s->host, err) : DTP_OK;
}

dtp_status session_connect(struct session *s, const dtp_group_opts *o, const dtpi_board_opts *board,
                           int64_t deadline_ns, dtp_error *err)
{
    DTPI_AUTO(meet) struct meet *meeting = NULL;
    char derived[64];
    bool is_host;

    dtp_status st = find_socket(o, derived, sizeof(derived), &is_host, err);
    if (st < 0)
        return st;
    const char *socket = o->agent ? o->agent : derived;
    s->may_try_again = !o->agent && !is_host;
    if (!o->agent)
        st = start_agent(s, o, board, socket, deadline_ns, &meeting, err);
    return st < 0 ? st : meet_and_join(s, o, socket, deadline_ns, err);
}
