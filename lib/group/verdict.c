/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict.c - one judge: deaths go up to the root, one verdict comes down to everybody.
 *
 * The root waits a moment after the first death, so that ranks that die together are named together.
 */
#include "group/core_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

/* Who has no parent yet judges alone when it was sought for so long. */
#define SEEK_NS DTPI_NS_PER_S
#define GATHER_NS (2 * DTPI_NS_PER_MS)

static int compare_ranks(const void *a, const void *b)
{
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : *(const int32_t *)a > *(const int32_t *)b;
}

/* In the numbers of this generation. */
static void format_ranks(const dtpi_core *c, const int32_t *ranks, uint32_t n, char *text_out,
                         size_t room)
{
    dtpi_buf b = dtpi_buf_init(&c->a);

    for (uint32_t i = 0; i < n; i++) {
        const int32_t index = core_index_of(c, ranks[i]);
        dtpi_buf_append(&b, &index, sizeof(index));
    }
    if (b.failed)
        snprintf(text_out, room, "(%u of them)", n);
    else
        dtpi_format_ranks((const int32_t *)(const void *)b.data, n, text_out, room);
    dtpi_buf_free(&b);
}

static int32_t *dead_list(const dtpi_core *c, uint32_t *n_out)
{
    *n_out = (uint32_t)(c->dead.len / sizeof(int32_t));
    return (int32_t *)(void *)c->dead.data;
}

/* Once, however often the death is told. */
static void add_dead(dtpi_core *c, int32_t rank)
{
    uint32_t *cell = core_cell_for(&c->below, rank);

    if (!cell)
        c->dead.failed = true;
    if (!cell || *cell & CORE_NAMED)
        return;
    *cell |= CORE_NAMED;
    dtpi_buf_append(&c->dead, &rank, sizeof(rank));
}

static void forget_dead(dtpi_core *c)
{
    uint32_t n;
    const int32_t *list = dead_list(c, &n);

    for (uint32_t i = 0; i < n; i++)
        *core_cell_for(&c->below, list[i]) &= ~(uint32_t)CORE_NAMED;
    dtpi_buf_reset(&c->dead);
}

/* The set of ranks is copied; without memory the verdict names none. */
static void keep_verdict(dtpi_core *c, const dtpi_verdict *v)
{
    c->verdict = *v;
    c->verdict.failed =
        v->n_failed ? dtpi_alloc_array(&c->a, v->n_failed, sizeof(*v->failed)) : NULL;
    if (c->verdict.failed)
        memcpy(c->verdict.failed, v->failed, v->n_failed * sizeof(*v->failed));
    else
        c->verdict.n_failed = 0;
}

void core_verdict_drop(dtpi_core *c)
{
    dtpi_free(&c->a, c->verdict.failed, c->verdict.n_failed * sizeof(*c->verdict.failed));
    c->verdict = (dtpi_verdict){ .status = DTP_OK };
    c->has_verdict = c->verdict_due = c->told_deaths = false;
    c->death_text[0] = '\0';
    forget_dead(c);
}

/* An abort after a failure says that nobody is to wait for a re-form: it replaces status and text. */
static bool is_final(const dtpi_core *c, dtp_status status)
{
    return c->has_verdict &&
           (status != DTP_ERR_ABORTED || c->verdict.status == DTP_ERR_ABORTED);
}

/* Tried twice; without it the members see the end of their connections. */
static dtpi_msg *verdict_msg(dtpi_core *c)
{
    dtpi_msg *m = NULL;

    for (int i = 0; i < 2 && !m; i++) {
        dtpi_buf b = core_begin(c, DTPI_F_VERDICT, DTPI_WORLD_ID, 0, 0, -1);
        dtpi_verdict_write(&b, &c->verdict);
        m = dtpi_msg_new(&b);
    }
    return m;
}

void core_apply(dtpi_core *c, const dtpi_verdict *v)
{
    if (is_final(c, v->status))
        return;
    if (c->has_verdict) {
        c->verdict.status = v->status;
        memcpy(c->verdict.text, v->text, sizeof(c->verdict.text));
    } else {
        keep_verdict(c, v);
    }
    c->has_verdict = true;
    c->verdict_due = false;
    c->ops->verdict(c->user, &c->verdict);
    DTPI_AUTO(msg) dtpi_msg *m = verdict_msg(c);
    for (uint32_t i = 0; i < c->n_locals; i++)
        if (core_is_local_member(c, i))
            m ? core_send_local(c, i, m) : c->ops->drop_local(c->user, i);
    for (uint32_t i = 0; i < c->n_children; i++)
        if (c->children[i].used)
            m ? core_send_child(c, i, m) : c->ops->drop_child(c->user, i);
    /* Not now: who found that memory is out may be among the calls that a new generation frees. */
    core_reform_check_soon(c);
}

void core_death_up(dtpi_core *c, const dtpi_verdict *v)
{
    dtpi_buf b = core_begin(c, DTPI_F_DEATH, DTPI_WORLD_ID, 0, 0, -1);

    c->told_deaths = true;
    dtpi_verdict_write(&b, v);
    core_to_parent(c, &b);
}

void core_decide(dtpi_core *c, dtp_status status, const int32_t *failed, uint32_t n_failed,
                 const char *fmt, ...)
{
    dtpi_verdict v = { .status = status, .n_failed = n_failed };
    va_list ap;

    if (is_final(c, status))
        return;
    va_start(ap, fmt);
    vsnprintf(v.text, sizeof(v.text), fmt, ap);
    va_end(ap);
    v.failed = (int32_t *)(uintptr_t)failed;
    /* A contradiction seen below the root goes to everybody through the root. */
    if (c->has_parent)
        core_death_up(c, &v);
    else
        core_apply(c, &v);
}

/* ---- deaths ---- */

static bool already_dead(const dtpi_core *c, int32_t rank)
{
    return core_is_dead(c, rank) || core_has_left(c, rank);
}

void core_deaths(dtpi_core *c, const int32_t *ranks, uint32_t n, const char *text)
{
    dtpi_verdict up = { .status = DTP_ERR_PEER };
    uint32_t n_dead;

    if (n == 0)
        return;
    /* A re-form must not count on them, whether the group has failed already or not. */
    core_reform_flush(c);
    core_reform_lost(c, ranks, n);
    if (c->has_parent) {
        snprintf(up.text, sizeof(up.text), "%s", text);
        up.n_failed = n;
        up.failed = (int32_t *)(uintptr_t)ranks;
        core_death_up(c, &up);
        return;
    }
    if (c->has_verdict)
        return;
    for (uint32_t i = 0; i < n; i++)
        add_dead(c, ranks[i]);
    if (c->dead.failed) {
        core_nomem(c);
        return;
    }
    dead_list(c, &n_dead);
    if (c->verdict_due && n_dead > n) {
        c->death_text[0] = '\0';            /* several: named by their numbers */
        return;
    }
    snprintf(c->death_text, sizeof(c->death_text), "%s", text);
    if (!c->verdict_due) {
        c->verdict_due = true;
        /* Who has not met the root yet does not judge, and who seeks it again waits a while. */
        c->verdict_at_ns = c->is_judge || c->is_alone       ? c->now + GATHER_NS
                           : c->had_parent || c->has_table ? c->now + SEEK_NS
                                                           : INT64_MAX;
    }
}

void core_death_of_local(dtpi_core *c, int32_t rank, int32_t pid, const char *cause)
{
    char text[DTP_ERROR_TEXT];

    /* A second word about the same death only adds its cause. */
    if (core_has_left(c, rank) || (core_is_dead(c, rank) && !cause) || core_index_of(c, rank) < 0)
        return;
    const bool joined = core_is_known(c, rank);
    core_set_dead(c, rank);
    snprintf(text, sizeof(text), "rank %d of %u (node %s, pid %d) died%s%s%s%s",
             core_index_of(c, rank), core_world_n(c), c->host, pid, joined ? "" : " before it joined", cause ? " (" : "",
             cause ? cause : "", cause ? ")" : "");
    core_deaths(c, &rank, 1, text);
}

void core_failure_of_local(dtpi_core *c, int32_t rank, int32_t pid, const char *why)
{
    char text[DTP_ERROR_TEXT];

    if (already_dead(c, rank) || core_index_of(c, rank) < 0)
        return;
    /* Its end, which follows, is no news. */
    core_set_dead(c, rank);
    core_set_left(c, rank);
    snprintf(text, sizeof(text), "rank %d of %u (node %s, pid %d) failed: %s", core_index_of(c, rank),
             core_world_n(c), c->host, pid, why);
    core_deaths(c, &rank, 1, text);
}

void core_on_failed(dtpi_core *c, uint32_t slot, const dtpi_frame *f)
{
    struct core_local *l = &c->locals[slot];
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    char why[DTP_ERROR_TEXT];

    dtpi_rd_text(&r, why, sizeof(why));
    l->left = true;
    if (core_is_rank(c, l->rank))
        core_failure_of_local(c, l->rank, l->pid, dtpi_rd_done(&r) ? why : "no reason given");
}

/* Those who may come back are waited for, so that only what is lost is named. */
static bool verdict_is_due(const dtpi_core *c)
{
    return c->verdict_due && c->now >= c->verdict_at_ns && !core_has_orphans(c);
}

/* A parent is there: what was to be judged here without one is judged above. */
void core_deaths_up(dtpi_core *c)
{
    dtpi_verdict v = { .status = DTP_ERR_PEER };

    if (!c->verdict_due || c->has_verdict)
        return;
    c->verdict_due = false;
    v.failed = dead_list(c, &v.n_failed);
    if (v.n_failed > 1)
        qsort(v.failed, v.n_failed, sizeof(*v.failed), compare_ranks);
    if (c->death_text[0])
        memcpy(v.text, c->death_text, sizeof(v.text));
    else
        core_text_of_deaths(c, v.failed, v.n_failed, v.text, sizeof(v.text));
    core_death_up(c, &v);
    forget_dead(c);
}

void core_text_of_deaths(const dtpi_core *c, const int32_t *ranks, uint32_t n, char *text_out, size_t room)
{
    char list[160];

    format_ranks(c, ranks, n, list, sizeof(list));
    snprintf(text_out, room, "rank%s %s of %u died", n == 1 ? "" : "s", list, core_world_n(c));
}

void core_verdict_tick(dtpi_core *c)
{
    dtpi_verdict v = { .status = DTP_ERR_PEER };

    if (!verdict_is_due(c))
        return;
    v.failed = dead_list(c, &v.n_failed);
    if (v.n_failed)
        qsort(v.failed, v.n_failed, sizeof(*v.failed), compare_ranks);
    if (c->death_text[0]) {
        memcpy(v.text, c->death_text, sizeof(v.text));
    } else {
        core_text_of_deaths(c, v.failed, v.n_failed, v.text, sizeof(v.text));
    }
    c->verdict_due = false;
    /* A parent may have come in the meantime. */
    if (c->has_parent)
        core_death_up(c, &v);
    else
        core_apply(c, &v);
}

/* ---- an agent ends ---- */

/* Ranks that an agent's end takes away: those of its node. */
static void lost_with(dtpi_core *c, uint64_t node_id, dtpi_buf *lost)
{
    DTPI_AUTO_BUF dtpi_buf all = dtpi_buf_init(&c->a);
    const uint32_t node = core_node_find(c, node_id);

    if (node == CORE_NO_NODE)
        return;
    lost->failed |= !core_ranks_of_node(c, node, &all);
    for (size_t i = 0; i < all.len / sizeof(int32_t); i++) {
        const int32_t rank = ((const int32_t *)(const void *)all.data)[i];
        if (!already_dead(c, rank))
            dtpi_buf_append(lost, &rank, sizeof(rank));
    }
}

static void report_lost(dtpi_core *c, const dtpi_buf *list)
{
    const uint32_t n = (uint32_t)(list->len / sizeof(int32_t));
    const int32_t *lost = (const int32_t *)(const void *)list->data;
    char text[DTP_ERROR_TEXT], ranks[120];

    if (list->failed)
        core_nomem(c);
    if (list->failed || n == 0)
        return;
    const uint32_t node = core_node_of(c, lost[0]);
    if (n == 1 && core_node_host_rank(c, node) == lost[0]) {
        snprintf(text, sizeof(text), "rank %d of %u (node %s, pid %d) died",
                 core_index_of(c, lost[0]), core_world_n(c), core_node_host(c, node), core_pid_of(c, lost[0]));
    } else {
        format_ranks(c, lost, n, ranks, sizeof(ranks));
        snprintf(text, sizeof(text), "rank%s %s of %u lost: the agent of node %s ended",
                 n == 1 ? "" : "s", ranks, core_world_n(c), core_node_host(c, node));
    }
    for (uint32_t i = 0; i < n; i++)
        core_set_dead(c, lost[i]);
    core_deaths(c, lost, n, text);
}

/* Dead, and no longer reached through anybody. */
static void forget_lost(dtpi_core *c, const dtpi_buf *list)
{
    const int32_t *lost = (const int32_t *)(const void *)list->data;

    core_reform_flush(c);
    core_reform_lost(c, lost, (uint32_t)(list->len / sizeof(int32_t)));
    for (size_t i = 0; i < list->len / sizeof(int32_t); i++) {
        core_set_dead(c, lost[i]);
        core_drop_below(c, lost[i]);
    }
}

/* The root knows who is on the node. */
void core_node_lost(dtpi_core *c, uint64_t node)
{
    DTPI_AUTO_BUF dtpi_buf lost = dtpi_buf_init(&c->a);

    if (c->has_table) {
        lost_with(c, node, &lost);
        forget_lost(c, &lost);
    }
    if (c->has_parent) {
        dtpi_buf b = core_begin(c, DTPI_F_LOST, DTPI_WORLD_ID, 0, 0, -1);
        dtpi_wr_u64(&b, node);
        core_to_parent(c, &b);
        return;
    }
    if (!c->has_table)
        lost_with(c, node, &lost);
    report_lost(c, &lost);
}

void core_on_lost(dtpi_core *c, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    const uint64_t node = dtpi_rd_u64(&r);

    if (dtpi_rd_done(&r))
        core_node_lost(c, node);
}

void core_child_died(dtpi_core *c, uint32_t slot)
{
    if (c->children[slot].bye)
        return;
    if (c->children[slot].node)
        core_node_lost(c, c->children[slot].node);
    core_orphans_of(c, slot);
}

void core_parent_died(dtpi_core *c, dtp_status status, const char *why)
{
    c->is_alone = true;
    if (c->has_verdict)
        return;
    if (status < 0 || !c->has_table) {
        core_decide(c, status < 0 ? status : DTP_ERR_PEER, NULL, 0, "%s",
                    status < 0 ? why : "the root agent ended before all ranks had joined");
        return;
    }
    DTPI_AUTO_BUF dtpi_buf lost = dtpi_buf_init(&c->a);
    lost_with(c, c->parent_node, &lost);
    if (lost.len == 0 && !lost.failed)
        core_decide(c, DTP_ERR_PEER, NULL, 0, "the root agent ended");
    report_lost(c, &lost);
}

/* ---- messages ---- */

/* Room for the ranks that a message of this size can name, and one. */
static int32_t *room_for(dtpi_core *c, const dtpi_frame *f, size_t *n_out)
{
    *n_out = f->bytes / sizeof(int32_t) + 1;
    int32_t *failed = dtpi_alloc_array(&c->a, *n_out, sizeof(*failed));
    if (!failed)
        core_nomem(c);
    return failed;
}

void core_on_death(dtpi_core *c, const dtpi_frame *f)
{
    dtpi_verdict v;
    size_t n_room;
    int32_t *failed = room_for(c, f, &n_room);

    if (!failed)
        return;
    if (dtpi_verdict_read(f, core_limit(c), &v, failed)) {
        for (uint32_t i = 0; i < v.n_failed; i++)
            core_set_dead(c, failed[i]);
        if (v.status == DTP_ERR_PEER && v.n_failed > 0)
            core_deaths(c, v.failed, v.n_failed, v.text);
        else
            core_decide(c, v.status, v.failed, v.n_failed, "%s", v.text);
    }
    dtpi_free(&c->a, failed, n_room * sizeof(*failed));
}

/* Applies a verdict, or passes one of a child's on to the parent; nothing malformed either way. */
static void take_verdict(dtpi_core *c, const dtpi_frame *f, const dtpi_in *pass_on)
{
    dtpi_verdict v;
    size_t n_room;
    int32_t *failed = room_for(c, f, &n_room);

    if (!failed)
        return;
    const bool ok = dtpi_verdict_read(f, core_limit(c), &v, failed);
    if (ok && pass_on) {
        DTPI_AUTO(msg) dtpi_msg *m = core_keep(c, pass_on);
        core_send_parent(c, m);
    } else if (ok) {
        core_apply(c, &v);
    }
    dtpi_free(&c->a, failed, n_room * sizeof(*failed));
}

void core_on_verdict(dtpi_core *c, const dtpi_frame *f)
{
    take_verdict(c, f, NULL);
}

void core_on_verdict_below(dtpi_core *c, const dtpi_frame *f, const dtpi_in *in)
{
    if (!c->has_verdict)
        take_verdict(c, f, c->has_parent ? in : NULL);
}

void core_on_abort(dtpi_core *c, const dtpi_frame *f)
{
    dtpi_rd r = dtpi_rd_init(f->body, f->bytes);
    char reason[DTP_ERROR_TEXT];

    if (!dtpi_rd_text(&r, reason, sizeof(reason)))
        return;
    if (c->has_parent) {
        dtpi_buf b = core_begin(c, DTPI_F_ABORT, DTPI_WORLD_ID, 0, 0, f->rank);
        dtpi_wr_text(&b, reason);
        core_to_parent(c, &b);
        return;
    }
    core_decide(c, DTP_ERR_ABORTED, NULL, 0, "aborted by rank %d: %s", core_index_of(c, f->rank), reason);
}
