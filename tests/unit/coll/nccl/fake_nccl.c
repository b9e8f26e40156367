/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nccl.c - stands in for libnccl.so.2 in several processes: checks and writes down what each rank
 * gives it, and lets a communicator come up when all ranks of it have called.
 *
 * The notes lie in a shared file that FAKE_NCCL names; see notes.h. With FAKE_OLD it is an NCCL of 2.13.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/nccl_api.h"
#include "notes.h"

#define EXPORT __attribute__((visibility("default")))

static notes *open_notes(void)
{
    static notes *shared;
    const char *path = getenv("FAKE_NCCL");

    if (!shared && path) {
        const int fd = open(path, O_RDWR | O_CLOEXEC);
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    return shared;
}

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    *version = 23203;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    notes *n = open_notes();
    const uint32_t index = __atomic_fetch_add(&n->n_made, 1, __ATOMIC_SEQ_CST);
    const int32_t pid = (int32_t)getpid();

    if (n->fail_id)
        return ncclSystemError;
    memset(id->internal, 0x5c, sizeof(id->internal));
    memcpy(id->internal, &pid, sizeof(pid));
    memcpy(id->internal + 60, &index, sizeof(index));
    return ncclSuccess;
}

typedef struct fake_comm {
    int n_ranks, rank;
} fake_comm;

static ncclResult_t begin(ncclComm_t *comm, int n_ranks, int rank, int n_ids, const ncclUniqueId *ids,
                          const int *config_blocking, int function)
{
    notes *n = open_notes();
    fake_comm *c = malloc(sizeof(*c));

    if (!c || rank < 0 || rank >= n_ranks || n_ids < 1 || n_ids > NOTES_IDS || n_ranks > NOTES_RANKS) {
        free(c);
        return ncclInvalidArgument;
    }
    note *mine = &n->ranks[rank];
    mine->n_ranks = n_ranks;
    mine->n_ids = n_ids;
    mine->function = function;
    mine->config_blocking = config_blocking ? *config_blocking : -1;
    mine->pid = (int32_t)getpid();
    memcpy(mine->ids, ids, (size_t)n_ids * sizeof(*ids));
    *c = (fake_comm){ n_ranks, rank };
    *comm = (ncclComm_t)(void *)c;
    __atomic_fetch_add(&n->n_begun, 1, __ATOMIC_SEQ_CST);
    const int waits = config_blocking && *config_blocking == 0;
    return waits && rank % 2 ? ncclInProgress : ncclSuccess;    /* NCCL says the one or the other */
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank)
{
    return begin(comm, n_ranks, rank, 1, &id, NULL, NOTE_RANK);
}

#ifndef FAKE_OLD
/* Head of every ncclConfig_t. */
typedef struct head {
    size_t size;
    unsigned int magic, version;
    int blocking;
} head;

static int is_config(const void *config)
{
    const head *h = config;

    return h && h->size >= sizeof(*h) && h->magic == 0xcafebeef && h->version >= 21400;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
    if (!is_config(config))
        return ncclInvalidArgument;
    return begin(comm, n_ranks, rank, 1, &id, &((const head *)(const void *)config)->blocking,
                 NOTE_CONFIG);
}

EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int n_ranks, int rank, int n_ids,
                                             ncclUniqueId *ids, ncclConfig_t *config)
{
    if (config && !is_config(config))
        return ncclInvalidArgument;
    return begin(comm, n_ranks, rank, n_ids, ids,
                 config ? &((const head *)(const void *)config)->blocking : NULL, NOTE_SCALABLE);
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    const fake_comm *c = (const void *)comm;
    notes *n = open_notes();

    if (n->fail_rank == c->rank + 1)
        *result = ncclRemoteError;
    else
        *result = (int)__atomic_load_n(&n->n_begun, __ATOMIC_SEQ_CST) < c->n_ranks + (int)n->n_late
                      ? ncclInProgress
                      : ncclSuccess;
    return ncclSuccess;
}
#endif

EXPORT ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)send, (void)recv, (void)count, (void)type, (void)op, (void)comm, (void)stream;
    return ncclInvalidUsage;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    __atomic_fetch_add(&open_notes()->n_destroyed, 1, __ATOMIC_SEQ_CST);
    free((void *)comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    __atomic_fetch_add(&open_notes()->n_aborted, 1, __ATOMIC_SEQ_CST);
    free((void *)comm);
    return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSystemError ? "unhandled system error" : "remote process exited";
}
