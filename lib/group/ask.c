/* SPDX-License-Identifier: Apache-2.0 */
/* ask.c - questions of a rank to its agent: keys and values, node memory. */
#include "group/group_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/text.h"

/* ---- questions and answers ---- */

static void ask(dtp_group *g, const char *key, struct question *q)
{
    struct session *s = g->session;

    q->group = g;
    q->key = key;
    q->session = s;
    q->seq = ++s->next_seq;
    q->fd = -1;
    q->value = dtpi_buf_init(dtpi_ctx_alloc(s->ctx));
    q->next = s->questions;
    s->questions = q;
}

static void unlist(struct question *q)
{
    for (struct question **p = &q->session->questions; *p; p = &(*p)->next)
        if (*p == q) {
            *p = q->next;
            return;
        }
}

/* Why a question about a key failed. */
static dtp_status say_key(const char *key, dtp_status st, dtp_error *err)
{
    switch (st) {
    case DTP_ERR_NOT_FOUND:
        return dtpi_fail(err, st, "key '%s' is not set", key);
    case DTP_ERR_LIMIT:
        return dtpi_fail(err, st, "key '%s': the group's keys hold too much", key);
    case DTP_ERR_FORMAT:
        return dtpi_fail(err, st, "key '%s' is not a number", key);
    case DTP_ERR_RANGE:
        return dtpi_fail(err, st, "key '%s': the sum has more than 64 bits", key);
    default:
        return st;
    }
}

static void read_answer(struct question *q, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    const dtp_status st = (dtp_status)dtpi_rd_u32(&r);
    size_t bytes = 0;
    const uint8_t *value = dtpi_rd_block(&r, DTP_GROUP_MAX_MSG, &bytes);

    if (!dtpi_rd_done(&r) || st > 0) {
        dtpi_fail(&q->error, DTP_ERR_PROTO, "malformed answer from the agent");
    } else if (st < 0 && bytes) {
        dtpi_fail(&q->error, st, "%.*s", (int)bytes, (const char *)value);
    } else if (st < 0) {
        dtpi_fail(&q->error, st, "%s", dtp_status_text(st));
        if (q->key)
            say_key(q->key, st, &q->error);
    } else if (!dtpi_buf_append(&q->value, value, bytes)) {
        dtpi_fail_nomem(&q->error, bytes);
    }
}

void asks_answer(struct session *s, const dtpi_frame *f, int fd)
{
    struct question *q = s->questions;

    while (q && q->seq != f->seq)
        q = q->next;
    if (!q) {
        dtpi_close_fd(&fd);
        return;
    }
    unlist(q);
    read_answer(q, f);
    q->fd = fd;
    q->done = true;
}

void asks_fail(struct session *s, const dtp_error *why)
{
    while (s->questions) {
        struct question *q = s->questions;
        s->questions = q->next;
        q->error = *why;
        q->done = true;
    }
}

void asks_cancel(dtp_group *g)
{
    for (struct question **at = &g->session->questions; *at;) {
        struct question *q = *at;
        if (q->group != g) {
            at = &q->next;
            continue;
        }
        *at = q->next;
        dtpi_fail(&q->error, DTP_ERR_CANCELED, "the group was closed by another thread");
        q->done = true;
    }
}

static bool is_answered(void *user)
{
    const struct question *q = user;

    return q->done || atomic_load(&q->session->has_verdict);
}

/*
 * Sends and waits; where it ends with `q->done` the group may be closed. What it holds (value, fd) is the
 * caller's afterwards, also after a failure.
 */
static dtp_status ask_and_wait(dtp_group *g, struct question *q, dtpi_buf *b_take,
                               int64_t deadline_ns, dtp_error *err)
{
    struct session *s = g->session;
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(b_take);

    if (!m) {
        unlist(q);
        return dtpi_fail_nomem(err, 0);
    }
    if (!dtpi_link_send(s->link, m, NULL, 0) && !dtpi_link_is_broken(s->link)) {
        unlist(q);
        return dtpi_fail_nomem(err, 0);
    }
    const dtp_status st = dtpi_ctx_wait_lending(g->ctx, is_answered, q, deadline_ns, err);
    if (q->done) {
        if (q->error.status < 0 && err)
            *err = q->error;
        return q->error.status;
    }
    unlist(q);
    return st < 0 ? st : session_verdict(s, err);
}

static void question_free(struct question *q)
{
    dtpi_buf_free(&q->value);
    dtpi_close_fd(&q->fd);
}

/* ---- key-value ---- */

static dtp_status check_key(const char *key, dtp_error *err)
{
    const size_t n = key ? strlen(key) : 0;

    if (n == 0 || n > 255 || !dtpi_utf8_ok(key, n))
        return dtpi_fail(err, DTP_ERR_INVAL, "a key has 1 to 255 bytes of text, this one %zu", n);
    return DTP_OK;
}

void pairs_free(dtp_group *g)
{
    if (g->keys.a)
        dtpi_keys_free(&g->keys);
}

/* The keys of a group of one, which keeps them itself. */
static dtpi_keys *keys_alone(dtp_group *g)
{
    g->keys.a = dtpi_ctx_alloc(g->ctx);
    return &g->keys;
}

static dtp_status say_key_alone(const char *key, dtp_status st, dtp_error *err)
{
    return st == DTP_ERR_NOMEM ? dtpi_fail_nomem(err, 0) : say_key(key, st, err);
}

static dtp_status set(dtp_group *g, const char *key, const void *value, size_t bytes, int timeout_ms,
                      dtp_error *err)
{
    struct question q = { 0 };

    dtp_status st = check_key(key, err);
    if (st >= 0 && bytes > DTP_GROUP_MAX_MSG)
        st = dtpi_fail(err, DTP_ERR_LIMIT, "a value of %zu bytes: at most %d are possible", bytes,
                       DTP_GROUP_MAX_MSG);
    if (st >= 0)
        st = dtpi_group_check(g, err);
    if (st < 0)
        return st;
    if (!g->session->link)
        return say_key_alone(key, dtpi_keys_set(keys_alone(g), key, value, bytes), err);
    ask(g, key, &q);
    dtpi_buf b = session_begin(g->session, DTPI_F_SET, g->id, 0, q.seq);
    dtpi_wr_text(&b, key);
    dtpi_wr_block(&b, value, bytes);
    st = ask_and_wait(g, &q, &b, dtpi_ctx_deadline(g->ctx, timeout_ms, dtpi_group_timeout_ms(g)), err);
    question_free(&q);
    if (st == DTP_ERR_TIMEOUT)
        return dtpi_fail(err, st, "setting key '%s': no answer in time", key);
    return st;
}

dtp_status dtp_group_set(dtp_group *g, const char *key, const void *value, size_t bytes,
                         int timeout_ms, dtp_error *err)
{
    dtp_ctx *const ctx = g->ctx;       /* the group may be closed meanwhile */

    dtp_status st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return st;
    st = set(g, key, value, bytes, timeout_ms, err);
    dtpi_ctx_leave(ctx);
    return dtpi_noun(err, "group", st);
}

static dtp_status give_value(const uint8_t *value, size_t bytes, void **value_out, size_t *bytes_out,
                             dtp_error *err)
{
    void *copy = malloc(bytes + 1);

    if (!copy)
        return dtpi_fail_nomem(err, bytes);
    if (bytes)
        memcpy(copy, value, bytes);
    ((char *)copy)[bytes] = '\0';       /* handy for text */
    *value_out = copy;
    if (bytes_out)
        *bytes_out = bytes;
    return DTP_OK;
}

struct reader_alone {
    struct question q;
    const char *key;
};

static bool is_set_alone(void *user)
{
    struct reader_alone *w = user;

    return is_answered(&w->q) || dtpi_keys_find(&w->q.group->keys, w->key);
}

/* Only another thread can set the key, or abort. */
static dtp_status lookup_alone(dtp_group *g, const char *key, int timeout_ms, void **value_out,
                               size_t *bytes_out, dtp_error *err)
{
    const bool waits = timeout_ms >= 0 && !dtpi_keys_find(keys_alone(g), key);
    struct reader_alone w = { .key = key };
    dtp_status st = DTP_OK;

    if (waits) {
        ask(g, key, &w.q);
        st = dtpi_ctx_wait_lending(g->ctx, is_set_alone, &w,
                                   dtpi_ctx_deadline(g->ctx, timeout_ms, dtpi_group_timeout_ms(g)),
                                   err);
        if (w.q.done) {
            if (err)
                *err = w.q.error;
            return w.q.error.status;
        }
        unlist(&w.q);
    }
    if (st == DTP_ERR_TIMEOUT)
        return dtpi_fail(err, st, "key '%s' was not set in time", key);
    if (st >= 0 && atomic_load(&g->session->has_verdict))
        st = session_verdict(g->session, err);
    if (st < 0)
        return st;
    const dtpi_pair *p = dtpi_keys_find(&g->keys, key);
    return p ? give_value(p->value, p->bytes, value_out, bytes_out, err)
             : say_key(key, DTP_ERR_NOT_FOUND, err);
}

static dtp_status lookup(dtp_group *g, const char *key, void **value_out, size_t *bytes_out,
                         int timeout_ms, dtp_error *err)
{
    struct session *s = g->session;
    struct question q = { 0 };

    dtp_status st = check_key(key, err);
    if (st >= 0)
        st = dtpi_group_check(g, err);
    if (st < 0)
        return st;
    if (!s->link)
        return lookup_alone(g, key, timeout_ms, value_out, bytes_out, err);
    ask(g, key, &q);
    dtpi_buf b = session_begin(s, DTPI_F_GET, g->id, 0, q.seq);
    dtpi_wr_u8(&b, timeout_ms >= 0);
    dtpi_wr_text(&b, key);
    st = ask_and_wait(g, &q, &b, dtpi_ctx_deadline(g->ctx, DTPI_MAX(timeout_ms, 0),
                                                   dtpi_group_timeout_ms(g)), err);
    if (st == DTP_OK)
        st = give_value(q.value.data, q.value.len, value_out, bytes_out, err);
    else if (!q.done) {
        b = session_begin(s, DTPI_F_FORGET, g->id, 0, q.seq);
        session_send(s, &b);
    }
    question_free(&q);
    if (st == DTP_ERR_TIMEOUT)
        return dtpi_fail(err, st, "key '%s' was not set in time", key);
    return st;
}

dtp_status dtp_group_lookup(dtp_group *g, const char *key, void **value_out, size_t *bytes_out,
                            int timeout_ms, dtp_error *err)
{
    dtp_ctx *const ctx = g->ctx;       /* the group may be closed meanwhile */

    dtp_status st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return st;
    st = lookup(g, key, value_out, bytes_out, timeout_ms, err);
    dtpi_ctx_leave(ctx);
    return dtpi_noun(err, "group", st);
}

/* ---- changes ---- */

static dtp_status change_alone(dtp_group *g, const dtpi_change *c, dtpi_buf *answer_out,
                               dtp_error *err)
{
    const dtpi_changed done = dtpi_keys_change(keys_alone(g), c);

    if (done.status < 0)
        return say_key_alone(c->key, done.status, err);
    dtpi_keys_answer(&g->keys, c, &done, answer_out);
    return answer_out->failed ? dtpi_fail_nomem(err, c->n_value) : DTP_OK;
}

static dtp_status ask_change(dtp_group *g, const dtpi_change *c, int64_t deadline_ns,
                             dtpi_buf *answer_out, dtp_error *err)
{
    struct question q = { 0 };

    ask(g, c->key, &q);
    dtpi_buf b = session_begin(g->session, DTPI_F_CHANGE, g->id, 0, q.seq);
    dtpi_change_write(&b, c);
    const dtp_status st = ask_and_wait(g, &q, &b, deadline_ns, err);
    if (st == DTP_OK) {
        *answer_out = q.value;
        q.value = dtpi_buf_init(answer_out->a);
    }
    question_free(&q);
    if (st == DTP_ERR_TIMEOUT)
        return dtpi_fail(err, st, "changing key '%s': no answer in time", c->key);
    return st;
}

/* `key` NULL: the change concerns none. The answer is the caller's to free, also after a failure. */
static dtp_status change(dtp_group *g, dtpi_change *c, const char *key, int timeout_ms,
                         dtpi_buf *answer_out, dtp_error *err)
{
    dtp_ctx *const ctx = g->ctx;       /* the group may be closed meanwhile */

    dtp_status st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return st;
    *answer_out = dtpi_buf_init(dtpi_ctx_alloc(ctx));
    st = key ? check_key(key, err) : DTP_OK;
    if (st >= 0 && (c->n_expected > DTP_GROUP_MAX_MSG || c->n_value > DTP_GROUP_MAX_MSG))
        st = dtpi_fail(err, DTP_ERR_LIMIT, "a value of %zu bytes: at most %d are possible",
                       DTPI_MAX(c->n_expected, c->n_value), DTP_GROUP_MAX_MSG);
    if (st >= 0)
        st = dtpi_group_check(g, err);
    if (st >= 0) {
        snprintf(c->key, sizeof(c->key), "%s", key ? key : "");
        st = g->session->link
                 ? ask_change(g, c, dtpi_ctx_deadline(g->ctx, timeout_ms, dtpi_group_timeout_ms(g)),
                              answer_out, err)
                 : change_alone(g, c, answer_out, err);
    }
    dtpi_ctx_leave(ctx);
    return dtpi_noun(err, "group", st);
}

static dtp_status take_number(dtp_status st, dtpi_buf *answer, uint64_t *number_out, dtp_error *err)
{
    dtpi_rd r = dtpi_rd_init(answer->data, answer->len);
    const uint64_t number = dtpi_rd_u64(&r);

    if (st >= 0 && !dtpi_rd_done(&r))
        st = dtpi_noun(err, "group", dtpi_fail(err, DTP_ERR_PROTO, "malformed answer from the agent"));
    dtpi_buf_free(answer);
    if (st >= 0)
        *number_out = number;
    return st;
}

dtp_status dtp_group_add(dtp_group *g, const char *key, int64_t delta, int64_t *sum_out,
                         int timeout_ms, dtp_error *err)
{
    dtpi_change c = { .op = DTPI_CHANGE_ADD, .delta = delta };
    dtpi_buf answer = { 0 };
    uint64_t sum = 0;

    dtp_status st = change(g, &c, key ? key : "", timeout_ms, &answer, err);
    st = take_number(st, &answer, &sum, err);
    if (st >= 0 && sum_out)
        *sum_out = (int64_t)sum;
    return st;
}

dtp_status dtp_group_compare_set(dtp_group *g, const char *key, const void *expected,
                                 size_t n_expected, const void *desired, size_t n_desired,
                                 void **value_out, size_t *bytes_out, int timeout_ms,
                                 dtp_error *err)
{
    dtpi_change c = { .op = DTPI_CHANGE_COMPARE, .expected = expected, .n_expected = n_expected,
                      .value = desired, .n_value = n_desired };
    dtpi_buf answer = { 0 };

    dtp_status st = change(g, &c, key ? key : "", timeout_ms, &answer, err);
    if (st >= 0 && value_out)
        st = dtpi_noun(err, "group", give_value(answer.data, answer.len, value_out, bytes_out, err));
    dtpi_buf_free(&answer);
    return st;
}

dtp_status dtp_group_append(dtp_group *g, const char *key, const void *value, size_t bytes,
                            int timeout_ms, dtp_error *err)
{
    dtpi_change c = { .op = DTPI_CHANGE_APPEND, .value = value, .n_value = bytes };
    dtpi_buf answer = { 0 };

    const dtp_status st = change(g, &c, key ? key : "", timeout_ms, &answer, err);
    dtpi_buf_free(&answer);
    return st;
}

dtp_status dtp_group_unset(dtp_group *g, const char *key, int timeout_ms, dtp_error *err)
{
    dtpi_change c = { .op = DTPI_CHANGE_UNSET };
    dtpi_buf answer = { 0 };

    const dtp_status st = change(g, &c, key ? key : "", timeout_ms, &answer, err);
    dtpi_buf_free(&answer);
    return st;
}

dtp_status dtp_group_n_keys(dtp_group *g, uint64_t *n_out, int timeout_ms, dtp_error *err)
{
    dtpi_change c = { .op = DTPI_CHANGE_COUNT };
    dtpi_buf answer = { 0 };

    const dtp_status st = change(g, &c, NULL, timeout_ms, &answer, err);
    return take_number(st, &answer, n_out, err);
}

/* ---- node memory ---- */

static dtp_status memory_alone(size_t bytes, int *fd_out, dtp_error *err)
{
    DTPI_AUTO_FD int fd = memfd_create("dtp-node", MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make a memory file of %zu bytes: %m",
                         bytes);
    *fd_out = dtpi_take_fd(&fd);
    return DTP_OK;
}

static dtp_status node_memory(dtp_group *g, uint32_t tag, size_t bytes, int64_t deadline_ns,
                              int *fd_out, dtp_error *err)
{
    struct question q = { 0 };

    dtp_status st = dtpi_group_check(g, err);
    if (st < 0)
        return st;
    if (!g->session->link)
        return memory_alone(bytes, fd_out, err);
    ask(g, NULL, &q);
    dtpi_buf b = session_begin(g->session, DTPI_F_MEMORY, g->id, 0, q.seq);
    dtpi_wr_u32(&b, tag);
    dtpi_wr_u64(&b, bytes);
    st = ask_and_wait(g, &q, &b, deadline_ns, err);
    if (st == DTP_ERR_TIMEOUT)
        dtpi_fail(err, st, "node memory %u: no answer from the agent in time", tag);
    if (st == DTP_OK && q.fd < 0)
        st = dtpi_fail(err, DTP_ERR_LIMIT, "node memory %u: the descriptor did not come through", tag);
    if (st == DTP_OK)
        *fd_out = dtpi_take_fd(&q.fd);
    question_free(&q);
    return st;
}

dtp_status dtpi_group_node_memory(dtp_group *g, uint32_t tag, size_t bytes, int64_t deadline_ns,
                                  int *fd_out, dtp_error *err)
{
    dtp_status st = dtpi_ctx_enter(g->ctx, err);

    if (st < 0)
        return st;
    st = node_memory(g, tag, bytes, deadline_ns, fd_out, err);
    dtpi_ctx_leave(g->ctx);
    return dtpi_noun(err, "group", st);
}
