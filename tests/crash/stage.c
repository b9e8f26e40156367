/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - who goes on, and an exchange that the last to arrive completes for everybody. */
#include "crash/stage.h"

static _Thread_local int my_rank = -1;

/* With the mutex held: somebody who can go on is chosen. */
static void pass(stage *s)
{
    int can[MAX_RANKS], n = 0;

    for (int i = 0; i < s->n; i++)
        if (s->alive[i] && !s->waits[i])
            can[n++] = i;
    s->turn = n ? can[check_random(&s->seed) % (unsigned)n] : -1;
    pthread_cond_broadcast(&s->moved);
}

static void await(stage *s, int rank)
{
    while (s->turn != rank)
        pthread_cond_wait(&s->moved, &s->mutex);
}

/* Threads of a pool are no actors: they work while their rank waits for them. */
static void before_call(void *user)
{
    stage *s = user;

    if (my_rank < 0)
        return;
    pthread_mutex_lock(&s->mutex);
    pass(s);
    await(s, my_rank);
    pthread_mutex_unlock(&s->mutex);
}

static void complete(stage *s)
{
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->n; k++)
            s->said[i].each(s->said[i].user, k, s->said[k].data, s->said[k].bytes);
    memset(s->waits, 0, sizeof(s->waits));
    s->n_waiting = 0;
}

static dtp_status say(dtpi_link *link, const void *data, size_t bytes, dtpi_link_each each, void *user,
                      dtp_error *err)
{
    stage *s = ((rank_link *)(void *)link)->user;
    const int rank = link->rank;

    (void)err;
    pthread_mutex_lock(&s->mutex);
    s->said[rank].data = data;
    s->said[rank].bytes = bytes;
    s->said[rank].each = each;
    s->said[rank].user = user;
    s->waits[rank] = true;
    if (++s->n_waiting == s->n)
        complete(s);
    pass(s);
    await(s, rank);
    pthread_mutex_unlock(&s->mutex);
    return DTP_OK;
}

static void *act(void *arg)
{
    rank_run *r = arg;
    stage *s = r->link.user;

    my_rank = r->link.base.rank;
    pthread_mutex_lock(&s->mutex);
    await(s, my_rank);
    pthread_mutex_unlock(&s->mutex);
    r->status = dtpi_save(&r->in, &r->err);
    pthread_mutex_lock(&s->mutex);
    if (r->status >= 0 && s->n_ops_acked == UINT32_MAX)
        s->n_ops_acked = dtpi_files_mem_n_ops(s->files);
    s->alive[my_rank] = false;
    pass(s);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

dtp_status stage_save(stage *s, rank_run *ranks, int n, uint64_t step, uint64_t id)
{
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->moved, NULL);
    s->n = n;
    s->turn = -1;
    s->n_waiting = 0;
    s->files = ranks[0].in.files;
    s->n_ops_acked = UINT32_MAX;
    dtpi_files_mem_hook(s->files, before_call, s);
    for (int i = 0; i < n; i++) {
        rank_run *r = &ranks[i];
        s->alive[i] = true;
        s->waits[i] = false;
        r->link.user = s;
        r->link.base.gather = say;
        r->in.step = step;
        r->in.n_tensors = r->n;
        r->in.id = id;
        memset(&r->err, 0, sizeof(r->err));
        assert_int_equal(pthread_create(&r->thread, NULL, act, r), 0);
    }
    pthread_mutex_lock(&s->mutex);
    pass(s);
    pthread_mutex_unlock(&s->mutex);
    for (int i = 0; i < n; i++)
        pthread_join(ranks[i].thread, NULL);
    dtpi_files_mem_hook(s->files, NULL, NULL);
    pthread_cond_destroy(&s->moved);
    pthread_mutex_destroy(&s->mutex);
    for (int i = 1; i < n; i++)
        assert_int_equal(ranks[i].status, ranks[0].status);
    return ranks[0].status;
}
