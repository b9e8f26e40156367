/* SPDX-License-Identifier: Apache-2.0 */
/* talk.c - notes, then texts where a note says that a rank failed. */
#include "ckpt/talk.h"

void dtpi_talk_fail(dtpi_talk *t, dtp_status st, const dtp_error *err)
{
    if (st >= 0 || t->failure.status < 0)
        return;
    t->failure = *err;
    t->failure.status = st;
}

/* ---- notes ---- */

typedef struct hearing {
    dtpi_talk *talk;
    uint8_t kind;
    void (*hear)(void *user, int32_t rank, const dtpi_note *n);
    void *user;
    dtp_status status;          /* a note that is none */
    dtp_error *err;
    int32_t failed;             /* the lowest rank that failed; -1: none */
    dtp_status why;
} hearing;

static void hear_note(void *user, int32_t rank, const void *data, size_t bytes)
{
    hearing *h = user;
    dtpi_note n;

    if (h->status < 0)
        return;
    h->status = dtpi_note_read(data, bytes, h->kind, rank, &n, h->err);
    if (h->status < 0)
        return;
    if (n.status >= 0) {
        if (h->hear)
            h->hear(h->user, rank, &n);
        return;
    }
    h->talk->root_failed |= rank == 0;
    if (h->failed < 0) {
        h->failed = rank;
        h->why = n.status;
    }
}

/* ---- texts ---- */

/* A failure that names ranks already stays as it is. */
static void agree(dtpi_talk *t, int32_t rank, const dtp_error *failure)
{
    t->agreed = *failure;
    if (failure->rank >= 0 || t->link->size == 1)
        return;
    dtpi_fail_rank(&t->agreed, failure->status, rank, "rank %d: %s", rank, failure->text);
    t->agreed.sys_errno = failure->sys_errno;
}

static dtp_status read_text(const dtpi_pieces *all, int32_t rank, dtp_error *failure_out,
                            dtp_error *err)
{
    dtpi_rd r = dtpi_rd_init(all->data.data + all->at[rank], all->at[rank + 1] - all->at[rank]);

    return dtpi_msg_get_failure(&r, rank, failure_out, err);
}

/* A rank without memory knows the status alone. */
static dtp_status tell_why(dtpi_talk *t, int32_t rank, dtp_status why, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf mine = dtpi_buf_init(t->a);
    dtp_error failure = { 0 };
    dtpi_pieces all;

    if (t->failure.status < 0)
        dtpi_msg_put_failure(&mine, &t->failure);
    const bool has_text = !mine.failed;
    dtp_status st = dtpi_link_exchange(t->a, t->link, mine.data, has_text ? mine.len : 0, &all, err);
    if (st >= 0) {
        if (all.at[rank + 1] > all.at[rank])
            st = read_text(&all, rank, &failure, err);
        dtpi_pieces_free(t->a, &all);
    }
    if (st < 0 && st != DTP_ERR_NOMEM)
        return st;
    if (failure.status >= 0) {
        dtpi_fail(&failure, why, "%s", dtp_status_text(why));
        failure.rank = -1;
    }
    agree(t, rank, &failure);
    return DTP_OK;
}

dtp_status dtpi_talk_note(dtpi_talk *t, dtpi_note *mine,
                          void (*hear)(void *user, int32_t rank, const dtpi_note *n), void *user,
                          dtp_error *err)
{
    hearing h = { .talk = t, .kind = mine->kind, .hear = hear, .user = user, .err = err,
                  .failed = -1 };
    uint8_t raw[DTPI_NOTE_BYTES];

    mine->status = t->failure.status;
    dtpi_note_write(mine, raw);
    const dtp_status st =
        dtpi_link_notes(t->link, raw, dtpi_note_bytes(mine->kind), hear_note, &h, err);
    if (st < 0 || h.status < 0)
        return st < 0 ? st : h.status;
    return h.failed < 0 ? DTP_OK : tell_why(t, h.failed, h.why, err);
}

dtp_status dtpi_talk_all(dtpi_talk *t, const dtpi_buf *mine, dtpi_pieces *out, dtp_error *err)
{
    dtp_error own = { 0 };

    const dtp_status st = dtpi_link_exchange(t->a, t->link, mine->data, mine->len, out, &own);
    if (st == DTP_ERR_NOMEM) {
        dtpi_talk_fail(t, st, &own);
        return DTP_OK;
    }
    if (st < 0)
        *err = own;
    return st;
}
