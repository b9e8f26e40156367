/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_pmix.c - PMIx as a board: Open MPI's mpirun, srun --mpi=pmix, prterun. A module, for libpmix
 * brings threads, hwloc and libevent.
 *
 * Rank 0 commits, the others ask for what rank 0 has: the servers fetch it, so nobody has to take part
 * in a fence. PMIx counts its users, so that MPI in the same process may come before or after; it is
 * given up when the process ends: Open MPI 4 cannot start in a process that gave it up before, and its
 * mpirun takes a process that never does for one that crashed.
 * Source: PMIx standard 3 and later, https://pmix.github.io/standard
 */
#include <pmix.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "group/board.h"

struct pmix {
    const dtp_allocator *a;
    pmix_proc_t self;
    unsigned turn;
};

/* What PMIx has given once it gives for ever: every group of a process has keys of its own. */
static _Atomic unsigned n_turns;

/* The process that uses PMIx, which is the process's as a whole; 0: none yet. */
static _Atomic pid_t user_pid;

__attribute__((destructor)) static void give_up(void)
{
    /* A forked child shares its parent's connection. */
    if (atomic_load(&user_pid) == getpid())
        PMIx_Finalize(NULL, 0);
}

static dtp_status failed(dtp_error *err, const char *doing, pmix_status_t rc)
{
    return dtpi_fail(err, DTP_ERR_IO, "PMIx: cannot %s: %s", doing, PMIx_Error_string(rc));
}

static dtp_status pmix_open(const dtp_allocator *a, const dtpi_board_opts *o, int64_t until_ns,
                            void **state_out, dtp_error *err)
{
    struct pmix *p = dtpi_alloc(a, sizeof(*p));

    (void)until_ns;
    if (!p)
        return dtpi_fail_nomem(err, sizeof(*p));
    p->a = a;
    pmix_status_t rc = PMIx_Init(&p->self, NULL, 0);
    if (rc == PMIX_SUCCESS && atomic_exchange(&user_pid, getpid()) != getpid())
        rc = PMIx_Init(&p->self, NULL, 0);
    dtp_status st = rc == PMIX_SUCCESS ? DTP_OK : failed(err, "reach the launcher", rc);
    if (st >= 0 && p->self.rank != (pmix_rank_t)o->rank) {
        st = dtpi_fail(err, DTP_ERR_FORMAT, "PMIx says rank %u, the environment says %d", p->self.rank,
                       o->rank);
        PMIx_Finalize(NULL, 0);
    }
    if (st < 0) {
        dtpi_free(a, p, sizeof(*p));
        return st;
    }
    p->turn = atomic_fetch_add(&n_turns, 1);
    *state_out = p;
    return DTP_OK;
}

static void key_of_turn(const struct pmix *p, const char *key, char *own_out)
{
    snprintf(own_out, DTPI_BOARD_KEY + 16, "%s-%u", key, p->turn);
}

static dtp_status pmix_put(void *state, const char *key, const char *value, int64_t until_ns,
                           dtp_error *err)
{
    char text[DTPI_BOARD_VALUE], own_key[DTPI_BOARD_KEY + 16];
    pmix_value_t v = { .type = PMIX_STRING, .data.string = text };

    (void)until_ns;
    key_of_turn(state, key, own_key);
    memcpy(text, value, strlen(value) + 1);
    pmix_status_t rc = PMIx_Put(PMIX_GLOBAL, own_key, &v);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Commit();
    return rc == PMIX_SUCCESS ? DTP_OK : failed(err, "put an address", rc);
}

/* Rank 0's value, or END where it did not come within a second or two. */
static dtp_status pmix_get(void *state, const char *key, char *value_out, int64_t until_ns, dtp_error *err)
{
    const struct pmix *p = state;
    const int64_t left_s = (until_ns - dtpi_board_now_ns()) / DTPI_NS_PER_S;
    int seconds = (int)DTPI_MIN(DTPI_MAX(left_s, (int64_t)1), (int64_t)2);
    pmix_proc_t root = p->self;
    pmix_value_t *v = NULL;
    pmix_info_t info;
    char own_key[DTPI_BOARD_KEY + 16];
    dtp_status st = DTP_OK;

    root.rank = 0;
    key_of_turn(p, key, own_key);
    PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &seconds, PMIX_INT);
    const pmix_status_t rc = PMIx_Get(&root, own_key, &info, 1, &v);
    PMIX_INFO_DESTRUCT(&info);
    /* PMIX_ERROR: what a server of version 5 tells a client of version 4 before rank 0 has committed. */
    if (rc == PMIX_ERR_NOT_FOUND || rc == PMIX_ERR_TIMEOUT || rc == PMIX_ERR_PROC_ENTRY_NOT_FOUND ||
        rc == PMIX_ERROR)
        return DTP_END;
    if (rc != PMIX_SUCCESS)
        return failed(err, "get an address", rc);
    if (v->type != PMIX_STRING || !v->data.string || strlen(v->data.string) >= DTPI_BOARD_VALUE)
        st = dtpi_fail(err, DTP_ERR_PROTO, "PMIx gives no text for %s", key);
    else
        memcpy(value_out, v->data.string, strlen(v->data.string) + 1);
    PMIX_VALUE_RELEASE(v);
    return st;
}

static void pmix_close(void *state)
{
    struct pmix *p = state;

    PMIx_Finalize(NULL, 0);
    dtpi_free(p->a, p, sizeof(*p));
}

static const dtpi_board_ops pmix_ops = {
    .name = "pmix", .open = pmix_open, .put = pmix_put, .get = pmix_get, .close = pmix_close,
};

DTPI_MODULE(group_pmix, "group-pmix", &pmix_ops);
