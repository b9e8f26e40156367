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

#define GATHER_NS (2 * DTPI_NS_PER_MS)

static int compare_ranks(const void *a, const void *b)
{
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : *(const int32_t *)a > *(const int32_t *)b;
}

void core_apply(dtpi_core *c, const dtpi_verdict *v)
{
    if (c->has_verdict)
        return;
    c->has_verdict = true;
    c->verdict_due = false;
    c->verdict.status = v->status;
    memcpy(c->verdict.text, v->text, sizeof(c->verdict.text));
    c->verdict.n_failed = v->n_failed;
    if (v->n_failed)
        memcpy(c->verdict.failed, v->failed, v->n_failed * sizeof(*v->failed));
    c->ops->verdict(c->user, &c->verdict);
    dtpi_buf b = core_begin(c, DTPI_F_VERDICT, DTPI_WORLD_ID, 0, 0, -1);
    dtpi_verdict_write(&b, &c->verdict);
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    for (uint32_t i = 0; i < c->n_locals; i++)
        if (c->locals[i].used && !c->locals[i].left)
            core_send_local(c, i, m);
    for (uint32_t i = 0; i < c->n_children; i++)
        if (c->children[i].used)
            core_send_child(c, i, m);
}

void core_death_up(dtpi_core *c, const dtpi_verdict *v)
{
    dtpi_buf b = core_begin(c, DTPI_F_DEATH, DTPI_WORLD_ID, 0, 0, -1);

    dtpi_verdict_write(&b, v);
    core_to_parent(c, &b);
}

void core_decide_missing(dtpi_core *c)
{
    char ranks[160];
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->o.world_size; i++)
        if (!c->rows[i].known)
            c->dead[n++] = (int32_t)i;
    dtpi_format_ranks(c->dead, n, ranks, sizeof(ranks));
    core_decide(c, DTP_ERR_PEER, c->dead, n, "rank%s %s of %u never joined", n == 1 ? "" : "s", ranks,
                c->o.world_size);
}

void core_decide(dtpi_core *c, dtp_status status, const int32_t *failed, uint32_t n_failed,
                 const char *fmt, ...)
{
    dtpi_verdict v = { .status = status, .n_failed = n_failed };
    va_list ap;

    if (c->has_verdict)
        return;
    va_start(ap, fmt);
    vsnprintf(v.text, sizeof(v.text), fmt, ap);
    va_end(ap);
    v.failed = c->dead;         /* room for all */
    if (n_failed)
        memmove(v.failed, failed, n_failed * sizeof(*failed));
    /* A contradiction seen below the root goes to everybody through the root. */
    if (c->has_parent)
        core_death_up(c, &v);
    else
        core_apply(c, &v);
}

/* ---- deaths ---- */

static bool already_dead(const dtpi_core *c, int32_t rank)
{
    return c->rows[rank].dead || c->rows[rank].left;
}

void core_deaths(dtpi_core *c, const int32_t *ranks, uint32_t n, const char *text)
{
    dtpi_verdict up = { .status = DTP_ERR_PEER };

    if (c->has_verdict || n == 0)
        return;
    if (c->has_parent) {
        snprintf(up.text, sizeof(up.text), "%s", text);
        up.n_failed = n;
        up.failed = (int32_t *)(uintptr_t)ranks;
        core_death_up(c, &up);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        bool known = false;
        for (uint32_t k = 0; k < c->n_dead && !known; k++)
            known = c->dead[k] == ranks[i];
        if (!known)
            c->dead[c->n_dead++] = ranks[i];
    }
    if (c->verdict_due && c->n_dead > n) {
        c->death_text[0] = '\0';            /* several: named by their numbers */
        return;
    }
    snprintf(c->death_text, sizeof(c->death_text), "%s", text);
    if (!c->verdict_due) {
        c->verdict_due = true;
        c->verdict_at_ns = c->now + GATHER_NS;
    }
}

void core_death_of_local(dtpi_core *c, int32_t rank, int32_t pid, const char *cause)
{
    char text[DTP_ERROR_TEXT];

    /* A second word about the same death only adds its cause. */
    if (c->rows[rank].left || (c->rows[rank].dead && !cause))
        return;
    const bool joined = c->rows[rank].known;
    c->rows[rank].dead = true;
    snprintf(text, sizeof(text), "rank %d of %u (node %s, pid %d) died%s%s%s%s", rank,
             c->o.world_size, c->host, pid, joined ? "" : " before it joined", cause ? " (" : "",
             cause ? cause : "", cause ? ")" : "");
    core_deaths(c, &rank, 1, text);
}

void core_verdict_tick(dtpi_core *c)
{
    dtpi_verdict v = { .status = DTP_ERR_PEER };
    char ranks[160];

    if (!c->verdict_due || c->now < c->verdict_at_ns)
        return;
    qsort(c->dead, c->n_dead, sizeof(*c->dead), compare_ranks);
    v.failed = c->dead;
    v.n_failed = c->n_dead;
    if (c->death_text[0]) {
        memcpy(v.text, c->death_text, sizeof(v.text));
    } else {
        dtpi_format_ranks(c->dead, c->n_dead, ranks, sizeof(ranks));
        snprintf(v.text, sizeof(v.text), "ranks %s of %u died", ranks, c->o.world_size);
    }
    core_apply(c, &v);
}

/* ---- an agent ends ---- */

/* Ranks of a node that its agent's end takes away; only the agent's host where a rank hosts it. */
static uint32_t lost_with(dtpi_core *c, bool (*hit)(const dtpi_core *, const dtpi_row *, uint64_t),
                          uint64_t key, int32_t *lost)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->o.world_size; i++) {
        const dtpi_row *row = &c->rows[i];
        if (!row->known || already_dead(c, (int32_t)i) || !hit(c, row, key))
            continue;
        const int32_t host_rank = c->nodes[row->node].host_rank;
        if (host_rank < 0 || host_rank == (int32_t)i || c->rows[host_rank].left)
            lost[n++] = (int32_t)i;
    }
    return n;
}

static void report_lost(dtpi_core *c, const int32_t *lost, uint32_t n)
{
    char text[DTP_ERROR_TEXT], ranks[120];

    if (n == 0)
        return;
    const dtpi_row *row = &c->rows[lost[0]];
    const dtpi_node *node = &c->nodes[row->node];
    if (n == 1 && node->host_rank == lost[0]) {
        snprintf(text, sizeof(text), "rank %d of %u (node %s, pid %d) died", lost[0],
                 c->o.world_size, node->host, row->pid);
    } else {
        dtpi_format_ranks(lost, n, ranks, sizeof(ranks));
        snprintf(text, sizeof(text), "rank%s %s of %u lost: the agent of node %s ended",
                 n == 1 ? "" : "s", ranks, c->o.world_size, node->host);
    }
    core_deaths(c, lost, n, text);
}

static bool via_child(const dtpi_core *c, const dtpi_row *row, uint64_t slot)
{
    (void)c;
    return row->via == (int32_t)slot;
}

static bool on_node(const dtpi_core *c, const dtpi_row *row, uint64_t id)
{
    return c->nodes[row->node].id == id;
}

void core_child_died(dtpi_core *c, uint32_t slot)
{
    int32_t *lost;

    if (c->has_verdict || c->children[slot].bye)
        return;
    lost = dtpi_alloc_array(&c->a, c->o.world_size, sizeof(*lost));
    if (!lost) {
        core_nomem(c);
        return;
    }
    const uint32_t n = lost_with(c, via_child, slot, lost);
    report_lost(c, lost, n);
    dtpi_free(&c->a, lost, c->o.world_size * sizeof(*lost));
}

void core_parent_died(dtpi_core *c, dtp_status status, const char *why)
{
    if (c->has_verdict)
        return;
    if (status < 0 || !c->has_table) {
        core_decide(c, status < 0 ? status : DTP_ERR_PEER, NULL, 0, "%s",
                    status < 0 ? why : "the root agent ended before all ranks had joined");
        return;
    }
    int32_t *lost = dtpi_alloc_array(&c->a, c->o.world_size, sizeof(*lost));
    if (!lost) {
        core_nomem(c);
        return;
    }
    const uint32_t n = lost_with(c, on_node, c->parent_node, lost);
    if (n == 0)
        core_decide(c, DTP_ERR_PEER, NULL, 0, "the root agent ended");
    report_lost(c, lost, n);
    dtpi_free(&c->a, lost, c->o.world_size * sizeof(*lost));
}

/* ---- messages ---- */

void core_on_death(dtpi_core *c, const dtpi_frame *f)
{
    dtpi_verdict v;
    int32_t *failed = dtpi_alloc_array(&c->a, c->o.world_size, sizeof(*failed));

    if (!failed) {
        core_nomem(c);
        return;
    }
    if (dtpi_verdict_read(f, c->o.world_size, &v, failed)) {
        for (uint32_t i = 0; i < v.n_failed; i++)
            c->rows[failed[i]].dead = true;
        if (v.status == DTP_ERR_PEER && v.n_failed > 0)
            core_deaths(c, v.failed, v.n_failed, v.text);
        else
            core_decide(c, v.status, v.failed, v.n_failed, "%s", v.text);
    }
    dtpi_free(&c->a, failed, c->o.world_size * sizeof(*failed));
}

void core_on_verdict(dtpi_core *c, const dtpi_frame *f)
{
    dtpi_verdict v;
    int32_t *failed = dtpi_alloc_array(&c->a, c->o.world_size, sizeof(*failed));

    if (!failed) {
        core_nomem(c);
        return;
    }
    if (dtpi_verdict_read(f, c->o.world_size, &v, failed))
        core_apply(c, &v);
    dtpi_free(&c->a, failed, c->o.world_size * sizeof(*failed));
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
    core_decide(c, DTP_ERR_ABORTED, NULL, 0, "aborted by rank %d: %s", f->rank, reason);
}
