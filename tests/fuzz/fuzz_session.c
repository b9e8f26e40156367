/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_session.c - an agent that has gone mad: what it sends to a rank that has calls and a question
 * waiting. Input: records {type, lane, group, generation, seq, length, body}; other header bytes are right.
 */
#include "fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

#include "group/group_internal.h"

enum { WORLD = 4, N_CALLS = 4 };

struct rank {
    dtp_ctx *ctx;
    dtp_group *g;
    dtp_op *ops[N_CALLS];
    struct question asked;
    int peer_fd;
};

static void rank_open(struct rank *r, bool is_member)
{
    static const uint8_t kinds[N_CALLS] = { DTPI_KIND_BARRIER, DTPI_KIND_GATHER, DTPI_KIND_SPLIT,
                                            DTPI_KIND_GATHER };
    static const uint8_t data[8];
    struct session *s;
    int fd[2];

    FUZZ_CHECK(dtp_ctx_open(NULL, &r->ctx, NULL) == DTP_OK);
    const dtp_allocator *a = dtpi_ctx_alloc(r->ctx);
    r->g = dtpi_alloc(a, sizeof(*r->g));
    s = r->g->session = dtpi_alloc(a, sizeof(*s));
    s->control = dtpi_alloc(a, sizeof(*s->control));
    s->control_is_heap = true;
    r->g->ctx = s->ctx = r->ctx;
    r->g->id = DTPI_WORLD_ID;
    r->g->size = s->world = WORLD;
    r->g->rank = s->rank = 1;
    s->n_groups = 1;
    s->generation = 1;
    s->agent_pidfd = -1;
    s->state = is_member ? SESSION_MEMBER : SESSION_JOINING;
    pthread_mutex_init(&s->mutex, NULL);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
    FUZZ_CHECK(dtpi_link_open(r->ctx, fd[0], DTPI_LINK_MAX_FRAME, &session_link_ops, s, &s->link, NULL) ==
               DTP_OK);
    r->peer_fd = fd[1];
    r->asked = (struct question){ .group = r->g, .session = s, .seq = 9, .fd = -1,
                                  .value = dtpi_buf_init(a) };
    s->questions = &r->asked;
    for (int i = 0; i < N_CALLS; i++)
        FUZZ_CHECK(call_start(r->g, (uint8_t)(i / 3), kinds[i], 0, data, sizeof(data), INT64_MAX,
                              &r->ops[i], NULL) >= 0);
}

static void rank_close(struct rank *r)
{
    r->g->session->questions = NULL;
    dtpi_buf_free(&r->asked.value);
    dtpi_close_fd(&r->asked.fd);
    for (int i = 0; i < N_CALLS; i++)
        dtp_op_cancel(r->ops[i]);
    for (int i = 0; i < N_CALLS; i++)
        dtp_op_free(r->ops[i]);
    close(r->peer_fd);
    dtp_group_close(r->g);
    dtp_ctx_close(r->ctx);
}

static void one(struct rank *r, dtpi_rd *in)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const uint8_t type = dtpi_rd_u8(in), lane = dtpi_rd_u8(in), group = dtpi_rd_u8(in),
                  generation = dtpi_rd_u8(in), seq = dtpi_rd_u8(in);
    const size_t want = dtpi_rd_u8(in), n = DTPI_MIN(want, in->left);
    const uint8_t *body = dtpi_rd_bytes(in, n);
    const dtpi_frame f = { .type = type, .lane = lane, .generation = generation % 3, .seq = seq % 12,
                           .group = group % 4, .rank = -1 };
    struct session *s = r->g->session;

    if (!body)
        return;
    dtpi_frame_begin(&b, &f);
    dtpi_buf_append(&b, body, n);
    session_link_ops.frame(s->link, s, b.data, b.len);
    dtpi_buf_free(&b);
    FUZZ_CHECK(s->verdict.n_failed <= WORLD && memchr(s->verdict.text, 0, sizeof(s->verdict.text)));
    FUZZ_CHECK(memchr(s->join_error.text, 0, sizeof(s->join_error.text)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    dtpi_rd in = dtpi_rd_init(data, bytes);
    struct rank r = { 0 };

    if (bytes < 8 || bytes > 2048)
        return 0;
    rank_open(&r, dtpi_rd_u8(&in) & 1);
    while (in.left > 0 && !in.failed)
        one(&r, &in);
    rank_close(&r);
    return 0;
}
