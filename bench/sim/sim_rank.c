/* SPDX-License-Identifier: Apache-2.0 */
/* sim_rank.c - a rank in simulation: proves itself, joins, passes a barrier, or hears a verdict. */
#include <stdlib.h>
#include <string.h>

#include "base/sum.h"
#include "sim_internal.h"

enum { GRACE_MS = 2000 };

void sim_rank_over(struct sim_rank *r, dtp_status status)
{
    struct sim *s = r->sim;

    if (r->state == SIM_OVER)
        return;
    r->state = SIM_OVER;
    r->result.status = status;
    r->result.end_ns = dtpi_loop_now(s->loop);
    s->n_over += !s->is_out[r->rank];
    free(r->hs);
    r->hs = NULL;
}

static dtpi_buf begin(const struct sim_rank *r, uint8_t type, uint32_t seq)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_frame f = { .type = type, .generation = 1, .seq = seq, .group = DTPI_WORLD_ID,
                           .rank = (int32_t)r->rank };

    dtpi_frame_begin(&b, &f);
    return b;
}

/* ---- deadlines ---- */

static void gives_up(void *user, uint64_t key)
{
    struct sim_rank *r = user;

    if (r->state == key)
        sim_rank_over(r, DTP_ERR_TIMEOUT);
}

/* The group is asked who is missing. */
static void deadline(void *user, uint64_t key)
{
    struct sim_rank *r = user;

    if (r->state != key)
        return;
    if (r->state >= SIM_JOINING) {
        dtpi_buf b = begin(r, DTPI_F_EXPIRE, r->state == SIM_CALLING);
        sim_send(r->sim, r->chan, 0, &b);
    }
    dtpi_loop_proc_at(r->proc, dtpi_loop_now(r->sim->loop) + GRACE_MS * DTPI_NS_PER_MS, gives_up, r, key);
}

static void set_deadline(struct sim_rank *r)
{
    const struct sim *s = r->sim;

    if (s->o.n_faults)
        dtpi_loop_proc_at(r->proc, dtpi_loop_now(s->loop) + s->o.timeout_ns, deadline, r,
                          (uint64_t)r->state);
}

/* ---- messages ---- */

static void prove(struct sim_rank *r, dtpi_msg *m)
{
    struct sim *s = r->sim;
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    dtp_error err;

    const dtp_status st = dtpi_hs_answer(r->hs, m->buf.data, m->buf.len, &b, &err);
    if (st < 0) {
        dtpi_buf_free(&b);
        sim_rank_over(r, st);
        return;
    }
    free(r->hs);
    r->hs = NULL;
    s->result->n_proof_messages += 3;
    sim_send(s, r->chan, 0, &b);
    dtpi_loop_count(r->chan, true);
    r->state = SIM_JOINING;
    b = begin(r, DTPI_F_JOIN, 0);
    dtpi_wr_u32(&b, s->o.n_ranks);
    dtpi_wr_u32(&b, r->rank - r->agent->first);
    dtpi_wr_u32(&b, r->rank + 1);       /* a process id of its own */
    sim_send(s, r->chan, 0, &b);
    set_deadline(r);
}

static void welcome(struct sim_rank *r)
{
    struct sim *s = r->sim;
    sim_result *all = s->result;

    if (r->state != SIM_JOINING)
        return;
    dtpi_loop_work(s->loop, s->o.row_ns * s->o.n_ranks);
    all->joined_ns = dtpi_loop_now(s->loop) + s->o.row_ns * s->o.n_ranks;
    all->join_rounds = DTPI_MAX(all->join_rounds, dtpi_loop_proc_chain(r->proc));
    r->state = SIM_CALLING;
    dtpi_buf b = begin(r, DTPI_F_UP, 1);
    dtpi_up_write(&b, DTPI_KIND_BARRIER, r->rank, 0, NULL, 0);
    sim_send(s, r->chan, 0, &b);
    set_deadline(r);
}

static void result(struct sim_rank *r, const dtpi_frame *f)
{
    sim_result *all = r->sim->result;
    dtpi_down down;

    if (r->state != SIM_CALLING || f->seq != 1 || !dtpi_down_read(f, &down))
        return;
    if (down.status < 0 && !all->text[0])
        memcpy(all->text, down.text, sizeof(all->text));
    all->rounds = DTPI_MAX(all->rounds, dtpi_loop_proc_chain(r->proc));
    sim_rank_over(r, down.status);
}

static void verdict(struct sim_rank *r, const dtpi_frame *f)
{
    struct sim *s = r->sim;
    int32_t *failed = malloc(s->o.n_ranks * sizeof(*failed));
    dtpi_verdict v;

    if (!failed || !dtpi_verdict_read(f, s->o.n_ranks, &v, failed)) {
        free(failed);
        sim_rank_over(r, DTP_ERR_PROTO);
        return;
    }
    r->result.n_failed = v.n_failed;
    r->result.failed_sum = dtpi_sum64(failed, v.n_failed * sizeof(*failed));
    for (uint32_t i = 0; !s->result->text[0] && i < v.n_failed; i++)
        s->result->is_lost[failed[i]] = 1;
    if (!s->result->text[0])
        memcpy(s->result->text, v.text, sizeof(s->result->text));
    free(failed);
    sim_rank_over(r, v.status);
}

static void refused(struct sim_rank *r, const dtpi_frame *f)
{
    dtpi_rd rd = dtpi_rd_init(f->body, f->bytes);
    const dtp_status st = (dtp_status)dtpi_rd_u32(&rd);
    char text[DTP_ERROR_TEXT];

    if (dtpi_rd_text(&rd, text, sizeof(text)) && !r->sim->result->text[0])
        memcpy(r->sim->result->text, text, sizeof(text));
    sim_rank_over(r, st < 0 ? st : DTP_ERR_PROTO);
}

static void frame(void *user, uint64_t key, dtpi_msg *m)
{
    struct sim_rank *r = user;
    dtpi_frame f;

    (void)key;
    if (r->state == SIM_PROVING) {
        prove(r, m);
        return;
    }
    if (!dtpi_frame_read(m->buf.data, m->buf.len, &f))
        return;
    sim_count(r->sim, f.type);
    if (r->state == SIM_OVER)
        return;
    if (f.type == DTPI_F_WELCOME)
        welcome(r);
    else if (f.type == DTPI_F_DOWN)
        result(r, &f);
    else if (f.type == DTPI_F_VERDICT)
        verdict(r, &f);
    else if (f.type == DTPI_F_REFUSE)
        refused(r, &f);
}

/* The agent has ended: all ranks of the node are lost to the others, and know it from the table. */
static void closed(void *user, uint64_t key)
{
    struct sim_rank *r = user;
    const struct sim_agent *a = r->agent;
    int32_t *lost = r->state == SIM_CALLING ? malloc(a->n * sizeof(*lost)) : NULL;

    (void)key;
    for (uint32_t i = 0; lost && i < a->n; i++)
        lost[i] = (int32_t)(a->first + i);
    if (lost) {
        r->result.n_failed = a->n;
        r->result.failed_sum = dtpi_sum64(lost, a->n * sizeof(*lost));
    }
    free(lost);
    sim_rank_over(r, DTP_ERR_PEER);
}

/* ---- meeting the agent ---- */

static void meet(void *user, uint64_t key);

static void met(void *user, uint64_t key, dtpi_loop_chan *chan)
{
    struct sim_rank *r = user;
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_hs_opts room;

    (void)key;
    if (!chan) {
        dtpi_loop_proc_at(r->proc, dtpi_loop_now(r->sim->loop) + 500000, meet, r, 0);
        return;
    }
    r->chan = chan;
    r->hs = malloc(sizeof(*r->hs));
    if (!r->hs) {
        r->sim->failed = true;
        return;
    }
    dtpi_hs_init(r->hs, sim_hs_opts(DTPI_HS_RANK, r->sim->o.n_ranks, (int32_t)r->rank, &room));
    dtpi_hs_hello(r->hs, &b);
    sim_send(r->sim, chan, 0, &b);
}

static void meet(void *user, uint64_t key)
{
    struct sim_rank *r = user;
    const dtpi_loop_side side = { .shared = frame, .closed = closed, .user = r, .proc = r->proc };

    (void)key;
    if (!dtpi_loop_dial(r->sim->loop, &r->agent->near, &side, met))
        r->sim->failed = true;
}

void sim_rank_main(void *user, uint64_t unused)
{
    struct sim_rank *r = user;
    struct sim *s = r->sim;

    (void)unused;
    s->result->spawned_ns = DTPI_MAX(s->result->spawned_ns, dtpi_loop_now(s->loop));
    r->main_cpu_ns = dtpi_loop_proc_cpu_ns(r->proc);
    dtpi_loop_work(s->loop, s->o.main_ns);
    if (s->o.main_ns)
        dtpi_loop_proc_at(r->proc, dtpi_loop_now(s->loop) + s->o.main_ns, meet, r, 0);
    else
        meet(r, 0);
}
