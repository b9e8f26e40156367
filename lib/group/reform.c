/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reform.c - the next generation: who goes on is gathered up, the members come down. Pure.
 *
 * An agent is complete when every live rank below it has called. The root forms when all are complete,
 * or at the first deadline with those who called. A generation is a fence: whatever carries an older
 * one is dropped, and what must not be lost at it is said again behind it.
 */
#include "group/core_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

#define FLUSH_AFTER_NS (5 * DTPI_NS_PER_MS)

/* No deadline, on the wire. */
enum { NO_DEADLINE = UINT32_MAX };

static int compare_ranks(const void *a, const void *b)
{
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : *(const int32_t *)a > *(const int32_t *)b;
}

/* Among ascending ones. */
static bool is_member(const int32_t *ranks, uint32_t n, int32_t rank)
{
    return n > 0 && bsearch(&rank, ranks, n, sizeof(rank), compare_ranks) != NULL;
}

void core_reform_free(dtpi_core *c)
{
    dtpi_buf_free(&c->reform.callers);
}

static void reform_reset(dtpi_core *c)
{
    struct core_reform *r = &c->reform;

    dtpi_buf_reset(&r->callers);
    r->is_on = r->said = false;
    r->n_sent = 0;
    r->deadline_ns = r->flush_at_ns = INT64_MAX;
    r->min_size = 0;
    for (uint32_t i = 0; i < c->n_locals; i++)
        c->locals[i].calls = false;
    for (uint32_t i = 0; i < c->n_children; i++)
        c->children[i].complete = c->children[i].came_back = false;
}

void core_reform_init(dtpi_core *c)
{
    c->reform.callers = dtpi_buf_init(&c->a);
    reform_reset(c);
}

static uint32_t n_callers(const dtpi_core *c)
{
    return (uint32_t)(c->reform.callers.len / sizeof(int32_t));
}

static int32_t *callers(const dtpi_core *c)
{
    return (int32_t *)(void *)c->reform.callers.data;
}

/* ---- ranges on the wire ---- */

void dtpi_ranges_write(dtpi_buf *b, const int32_t *ranks, uint32_t n)
{
    const size_t at = b->len;
    uint32_t n_ranges = 0;

    dtpi_wr_u32(b, 0);
    for (uint32_t i = 0, end; i < n; i = end) {
        end = i + 1;
        while (end < n && ranks[end] == ranks[end - 1] + 1)
            end++;
        dtpi_wr_u32(b, (uint32_t)ranks[i]);
        dtpi_wr_u32(b, end - i);
        n_ranges++;
    }
    for (size_t i = 0; !b->failed && i < 4; i++)
        b->data[at + i] = (uint8_t)(n_ranges >> (8 * i));
}

bool dtpi_ranges_read(dtpi_rd *r, uint32_t limit, dtpi_buf *out)
{
    const uint32_t n = dtpi_rd_u32(r);
    int64_t last = -1;

    if (r->failed || n > r->left / 8)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t first = dtpi_rd_u32(r), count = dtpi_rd_u32(r);
        if (count == 0 || first >= limit || count > limit - first || (int64_t)first <= last)
            return false;
        for (uint32_t k = 0; k < count; k++) {
            const int32_t rank = (int32_t)(first + k);
            dtpi_buf_append(out, &rank, sizeof(rank));
        }
        last = (int64_t)first + count - 1;
    }
    return true;
}

/* ---- gathering up ---- */

static bool local_is_due(const struct core_local *l)
{
    return l->used && l->joined && !l->left && !l->calls;
}

/* Nobody behind this child can still call. */
static bool child_is_empty(dtpi_core *c, uint32_t slot)
{
    if (c->children[slot].came_back)
        return false;
    struct core_group *g = core_group_find(c, DTPI_WORLD_ID);
    const struct core_source *s = g ? core_source_of_child(g, slot) : NULL;

    return !s || s->n_left == s->n;
}

static bool is_complete(dtpi_core *c)
{
    for (uint32_t i = 0; i < c->n_locals; i++)
        if (local_is_due(&c->locals[i]))
            return false;
    for (uint32_t i = 0; i < c->n_children; i++)
        if (c->children[i].used && !c->children[i].complete && !child_is_empty(c, i))
            return false;
    return !core_has_orphans(c);
}

static void note_call(dtpi_core *c, uint32_t remaining_ms, uint32_t min_size)
{
    struct core_reform *r = &c->reform;

    r->is_on = true;
    r->min_size = DTPI_MAX(r->min_size, min_size);
    if (remaining_ms != NO_DEADLINE)
        r->deadline_ns = DTPI_MIN(r->deadline_ns, c->now + remaining_ms * DTPI_NS_PER_MS);
    if (r->flush_at_ns == INT64_MAX)
        r->flush_at_ns = c->now + FLUSH_AFTER_NS;
}

static uint32_t remaining_ms(const dtpi_core *c)
{
    if (c->reform.deadline_ns == INT64_MAX)
        return NO_DEADLINE;
    return c->reform.deadline_ns <= c->now
               ? 0
               : (uint32_t)((c->reform.deadline_ns - c->now + DTPI_NS_PER_MS - 1) / DTPI_NS_PER_MS);
}

/* What has not gone up yet, or at the top all: the living, each once (who comes back says it again). */
static void sort_callers(dtpi_core *c)
{
    struct core_reform *r = &c->reform;

    if (!c->has_parent)
        r->n_sent = 0;
    const uint32_t n = n_callers(c) - r->n_sent;
    uint32_t kept = 0;

    if (n == 0)
        return;
    int32_t *list = callers(c) + r->n_sent;
    if (n > 1)
        qsort(list, n, sizeof(*list), compare_ranks);
    for (uint32_t i = 0; i < n; i++)
        if ((kept == 0 || list[i] != list[kept - 1]) && !core_is_dead(c, list[i]) &&
            !core_has_left(c, list[i]))
            list[kept++] = list[i];
    r->callers.len = (r->n_sent + kept) * sizeof(int32_t);
}

static void send_up(dtpi_core *c, bool complete)
{
    struct core_reform *r = &c->reform;
    dtpi_buf b = core_begin(c, DTPI_F_REFORM, DTPI_WORLD_ID, 0, r->round, -1);

    sort_callers(c);
    dtpi_wr_u32(&b, remaining_ms(c));
    dtpi_wr_u32(&b, r->min_size);
    dtpi_wr_u8(&b, complete);
    const uint32_t n = n_callers(c) - r->n_sent;
    dtpi_ranges_write(&b, n ? callers(c) + r->n_sent : NULL, n);
    b.failed |= r->callers.failed;
    core_to_parent(c, &b);
    r->n_sent = n_callers(c);
    r->flush_at_ns = INT64_MAX;
    r->said = r->said || complete;
}

void core_reform_flush(dtpi_core *c)
{
    if (c->has_parent && n_callers(c) > c->reform.n_sent)
        send_up(c, false);
}

void core_reform_again(dtpi_core *c)
{
    c->reform.n_sent = 0;
    c->reform.said = false;
    core_reform_flush(c);
    core_reform_check(c);
}

static void form(dtpi_core *c);
static bool apply_formed(dtpi_core *c, dtpi_msg *m);
static void form_failed(dtpi_core *c, dtp_status status, const char *text);

static bool is_aborted(const dtpi_core *c)
{
    return c->has_verdict && c->verdict.status == DTP_ERR_ABORTED;
}

void core_reform_check(dtpi_core *c)
{
    struct core_reform *r = &c->reform;

    if (!c->has_table || c->ended || (!r->is_on && !c->has_verdict) || is_aborted(c))
        return;
    if (c->has_parent) {
        if (!r->said && is_complete(c))
            send_up(c, true);
    } else if (!c->is_judge && r->is_on && !c->is_orphan) {
        form_failed(c, DTP_ERR_PEER, "re-form: the root agent is gone, and no agent that stands by for "
                    "it was reached");
    } else if (c->is_judge && r->is_on && !c->verdict_due && is_complete(c)) {
        sort_callers(c);
        if (n_callers(c) > 0 && n_callers(c) + dtpi_core_n_newcomers(c) >= r->min_size)
            form(c);
    }
}

void core_reform_check_soon(dtpi_core *c)
{
    c->reform.is_due = true;
}

void core_on_reform_local(dtpi_core *c, uint32_t slot, const dtpi_frame *f)
{
    struct core_local *l = &c->locals[slot];
    dtpi_rd rd = dtpi_rd_init(f->body, f->bytes);
    const uint32_t remaining = dtpi_rd_u32(&rd), min_size = dtpi_rd_u32(&rd);

    if (!dtpi_rd_done(&rd) || !c->has_table || l->left || l->calls || f->seq != c->reform.round)
        return;
    l->calls = true;
    dtpi_buf_append(&c->reform.callers, &l->rank, sizeof(l->rank));
    note_call(c, remaining, min_size);
    core_reform_check(c);
}

bool core_on_reform_child(dtpi_core *c, uint32_t slot, const dtpi_frame *f)
{
    dtpi_rd rd = dtpi_rd_init(f->body, f->bytes);
    const uint32_t remaining = dtpi_rd_u32(&rd), min_size = dtpi_rd_u32(&rd);
    const uint8_t complete = dtpi_rd_u8(&rd);
    const size_t before = c->reform.callers.len;

    if (f->seq != c->reform.round)
        return true;
    if (!dtpi_ranges_read(&rd, core_limit(c), &c->reform.callers) || !dtpi_rd_done(&rd)) {
        c->reform.callers.len = before;
        return false;
    }
    /* Those who have come back through another are named there. */
    int32_t *ranks = callers(c);
    uint32_t kept = (uint32_t)(before / sizeof(int32_t));
    for (uint32_t i = kept; i < n_callers(c); i++)
        if (core_child_of(c, ranks[i]) == (int32_t)slot)
            ranks[kept++] = ranks[i];
    c->reform.callers.len = kept * sizeof(int32_t);
    if (c->reform.callers.len > before)
        note_call(c, remaining, min_size);
    c->children[slot].complete |= complete;
    core_reform_check(c);
    return true;
}

void core_reform_lost(dtpi_core *c, const int32_t *lost, uint32_t n)
{
    int32_t *ranks = callers(c);
    uint32_t kept = 0, sent = 0;

    for (uint32_t i = 0; i < n_callers(c); i++) {
        if (is_member(lost, n, ranks[i]))
            continue;
        sent += i < c->reform.n_sent;
        ranks[kept++] = ranks[i];
    }
    c->reform.n_sent = sent;
    c->reform.callers.len = kept * sizeof(int32_t);
}

/* ---- forming ---- */

static void tell_formed(dtpi_core *c, dtpi_msg *m)
{
    for (uint32_t i = 0; i < c->n_children; i++)
        if (c->children[i].used)
            core_send_child(c, i, m);
}

/* There is no new group, and why; all may call again. */
static void form_failed(dtpi_core *c, dtp_status status, const char *text)
{
    dtpi_buf b = core_begin(c, DTPI_F_FORMED, DTPI_WORLD_ID, 0, c->reform.round, -1);

    dtpi_wr_u32(&b, (uint32_t)status);
    dtpi_wr_text(&b, text);
    dtpi_wr_u32(&b, 0);         /* no members */
    dtpi_wr_u32(&b, 0);         /* no newcomers */
    DTPI_AUTO(msg) dtpi_msg *m = core_msg(c, &b);
    tell_formed(c, m);
    for (uint32_t i = 0; m && i < c->n_locals; i++)
        if (core_is_local_member(c, i))
            core_send_local(c, i, m);
    c->reform.round++;
    reform_reset(c);
}

/* Those who did not call are told, and are no concern of the group any more. */
static void leave_out(dtpi_core *c, const int32_t *members, uint32_t n)
{
    for (uint32_t i = 0; i < c->n_locals; i++) {
        struct core_local *l = &c->locals[i];
        if (!l->used || !l->joined || is_member(members, n, l->rank))
            continue;
        core_refuse(c, i, DTP_ERR_PEER, "rank %d of %u was left out of generation %u: it did not call "
                    "re-form in time",
                    core_index_of(c, l->rank), core_world_n(c), c->generation + 1);
        l->left = true;
    }
}

static void forget_groups(dtpi_core *c)
{
    while (c->groups) {
        struct core_group *g = c->groups;
        c->groups = g->next;
        core_group_free(c, g);
    }
}

static bool add_world(dtpi_core *c)
{
    int32_t *copy = dtpi_alloc_array(&c->a, c->n_members, sizeof(*copy));

    if (!copy)
        return false;
    memcpy(copy, c->members, c->n_members * sizeof(*copy));
    if (core_group_add(c, DTPI_WORLD_ID, copy, c->n_members))
        return true;
    dtpi_free(&c->a, copy, c->n_members * sizeof(*copy));
    return false;
}

/* Begins the next generation with the members, ascending; the message says it to all below. */
static void begin_generation(dtpi_core *c, int32_t *members_take, uint32_t n, dtpi_msg *m,
                             dtpi_rd new)
{
    leave_out(c, members_take, n);
    for (int32_t i = 0; i < (int32_t)core_limit(c); i++)
        if (!is_member(members_take, n, i))
            core_set_dead(c, i);
    tell_formed(c, m);
    forget_groups(c);
    core_verdict_drop(c);
    dtpi_free(&c->a, c->members, c->n_members * sizeof(*c->members));
    c->members = members_take;
    c->n_members = n;
    const bool fits = core_newcomers_take(c, new);
    c->generation++;
    dtpi_msg_unref(c->formed);
    c->formed = dtpi_msg_ref(m);
    c->reform.round = 0;
    reform_reset(c);
    if (!fits || !add_world(c)) {
        core_nomem(c);
        return;
    }
    if (c->ops->formed) {
        c->ops->formed(c->user, m);
    } else {
        for (uint32_t i = 0; i < c->n_locals; i++)
            if (core_is_local_member(c, i))
                core_send_local(c, i, m);
    }
    core_say_again(c);
}

static dtpi_msg *formed_msg(dtpi_core *c)
{
    DTPI_AUTO_BUF dtpi_buf members = dtpi_buf_init(&c->a);
    DTPI_AUTO_BUF dtpi_buf new = dtpi_buf_init(&c->a);
    dtpi_buf b = core_begin(c, DTPI_F_FORMED, DTPI_WORLD_ID, 0, c->reform.round, -1);

    dtpi_buf_append(&members, callers(c), c->reform.callers.len);
    core_newcomers_write(c, &new, &members);
    dtpi_wr_u32(&b, DTP_OK);
    dtpi_wr_text(&b, "");
    dtpi_ranges_write(&b, (const int32_t *)(const void *)members.data,
                      (uint32_t)(members.len / sizeof(int32_t)));
    dtpi_buf_append(&b, new.data, new.len);
    b.failed |= members.failed || new.failed || c->reform.callers.failed;
    return dtpi_msg_new(&b);
}

bool dtpi_formed_read(const dtpi_frame *f, uint32_t limit, dtp_status *status_out, char *text_out,
                      size_t room, dtpi_buf *members_out, dtpi_rd *new_out)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    dtpi_newcomer new;

    *status_out = (dtp_status)dtpi_rd_u32(&r);
    dtpi_rd_text(&r, text_out, room);
    /* A newcomer takes twenty bytes: so many more identities there can be. */
    if (r.failed || *status_out > 0 ||
        !dtpi_ranges_read(&r, limit + (uint32_t)(f->bytes / 20), members_out))
        return false;
    *new_out = r;
    const uint32_t n_new = dtpi_rd_u32(&r);
    for (uint32_t i = n_new; i > 0 && !r.failed; i--)
        dtpi_newcomer_read(&r, &new);
    if (!dtpi_rd_done(&r))
        return false;
    if (members_out->failed || members_out->len == 0)
        return *status_out < 0 || members_out->failed;
    /* Ascending: the last is of the newcomers, or was there before. */
    const int32_t *members = (const int32_t *)(const void *)members_out->data;
    return (uint32_t)members[members_out->len / sizeof(*members) - 1] < limit + n_new;
}

/* True also where the message is malformed, and nothing happens; false without memory. */
static bool apply_formed(dtpi_core *c, dtpi_msg *m)
{
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(&c->a);
    char text[DTP_ERROR_TEXT];
    dtp_status status;
    dtpi_frame f;
    dtpi_rd new;

    if (!dtpi_frame_read(m->buf.data, m->buf.len, &f) ||
        !dtpi_formed_read(&f, core_limit(c), &status, text, sizeof(text), &list, &new))
        return true;
    if (status < 0) {
        form_failed(c, status, text);
        return true;
    }
    const uint32_t n = (uint32_t)(list.len / sizeof(int32_t));
    int32_t *members = list.failed ? NULL : dtpi_alloc_array(&c->a, n, sizeof(*members));
    if (!members)
        return false;
    memcpy(members, list.data, n * sizeof(*members));
    begin_generation(c, members, n, m, new);
    return true;
}

static void form(dtpi_core *c)
{
    uint32_t here, all;
    char text[DTP_ERROR_TEXT];

    sort_callers(c);
    if (!core_has_quorum(c, &here, &all)) {
        snprintf(text, sizeof(text), "re-form: ranks of %u of %u nodes are here, and at least half of "
                 "the nodes must go on%s", here, all, c->o.is_root ? "" : ", more without the root agent");
        form_failed(c, DTP_ERR_PEER, text);
        return;
    }
    DTPI_AUTO(msg) dtpi_msg *m = formed_msg(c);
    if (!m || !apply_formed(c, m))
        form_failed(c, DTP_ERR_NOMEM, "the root agent is out of memory");
}

/* From the parent: the root has formed, or not. */
void core_on_formed(dtpi_core *c, const dtpi_frame *f, const dtpi_in *in)
{
    DTPI_AUTO(msg) dtpi_msg *m = NULL;

    if (!c->has_table || f->seq != c->reform.round)
        return;
    m = core_keep(c, in);
    if (m && !apply_formed(c, m))
        core_nomem(c);
}

/* ---- time, and an end ---- */

void core_reform_tick(dtpi_core *c)
{
    struct core_reform *r = &c->reform;
    char text[DTP_ERROR_TEXT];

    if (r->is_due) {
        r->is_due = false;
        core_reform_check(c);
    }
    if (!r->is_on)
        return;
    if (c->has_parent) {
        if (c->now >= r->flush_at_ns)
            core_reform_flush(c);
        return;
    }
    if (!c->is_judge || c->now < r->deadline_ns)
        return;
    if (is_aborted(c)) {
        form_failed(c, c->verdict.status, c->verdict.text);
        return;
    }
    const uint32_t n = n_callers(c) + dtpi_core_n_newcomers(c), least = DTPI_MAX(r->min_size, 1u);
    if (n_callers(c) > 0 && n >= least) {
        form(c);
        return;
    }
    snprintf(text, sizeof(text), "re-form: %u of %u ranks called in time, at least %u are wanted",
             n, core_world_n(c), least);
    form_failed(c, DTP_ERR_PEER, text);
}

int64_t core_reform_next_ns(const dtpi_core *c)
{
    const struct core_reform *r = &c->reform;

    if (r->is_due)
        return c->now;
    if (!r->is_on)
        return INT64_MAX;
    return c->has_parent ? r->flush_at_ns : c->is_judge ? r->deadline_ns : INT64_MAX;
}
