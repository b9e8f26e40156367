/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_pmi1.c - PMI-1's text protocol, as Hydra speaks it on the descriptor PMI_FD.
 *
 * Hydra takes the end of a process that asked something and never said `finalize` for a crash, and kills
 * the others. So that is said, unless MPI is in this process: MPI says it at its own end, needs the socket
 * until then, and finds it as it was, for there is no `init` here. Between a question and its answer
 * nothing else happens.
 * Source: MPICH's PMI-1 (https://www.mpich.org/documentation, "PMI wire protocol"); observed with
 * Hydra 4.0.2 and 5.0.2.
 */
#include "group/board_pmi.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

#include "base/text.h"
#include "group/board_wire.h"

enum { LINE = 2048, KVS = 256, FINALIZE_MS = 200 };

struct pmi1 {
    const dtp_allocator *a;
    board_wire w;
    char kvs[KVS];
};

bool board_pmi1_field(const char *line, const char *name, char *value_out, size_t room)
{
    const size_t n = strlen(name);

    while (*line) {
        line += strspn(line, " ");
        const size_t len = strcspn(line, " ");
        if (len > n && memcmp(line, name, n) == 0 && line[n] == '=') {
            if (len - n - 1 >= room)
                return false;
            memcpy(value_out, line + n + 1, len - n - 1);
            value_out[len - n - 1] = '\0';
            return true;
        }
        line += len;
    }
    return false;
}

/* Sends `line` and takes an answer that must be `want`. */
static dtp_status ask(struct pmi1 *p, const char *line, const char *want, char *answer_out,
                      int64_t until_ns, dtp_error *err)
{
    char cmd[40] = "";

    dtp_status st = board_wire_send(&p->w, line, strlen(line), until_ns, err);
    if (st >= 0)
        st = board_wire_line(&p->w, answer_out, LINE, until_ns, err);
    if (st < 0)
        return st;
    if (!board_pmi1_field(answer_out, "cmd", cmd, sizeof(cmd)) || strcmp(cmd, want) != 0)
        return dtpi_fail(err, DTP_ERR_PROTO, "PMI-1 answers '%.60s' where %s was due", answer_out, want);
    return DTP_OK;
}

static dtp_status pmi1_open(const dtp_allocator *a, const dtpi_board_opts *o, int64_t until_ns,
                            void **state_out, dtp_error *err)
{
    char answer[LINE];
    struct pmi1 *p = dtpi_alloc(a, sizeof(*p));

    if (!p)
        return dtpi_fail_nomem(err, sizeof(*p));
    p->a = a;
    p->w = (board_wire){ o->fd, "PMI-1", o->interrupted, o->user };
    dtp_status st = board_wire_check(&p->w, err);
    if (st >= 0)
        st = ask(p, "cmd=get_my_kvsname\n", "my_kvsname", answer, until_ns, err);
    if (st >= 0 && !board_pmi1_field(answer, "kvsname", p->kvs, sizeof(p->kvs)))
        st = dtpi_fail(err, DTP_ERR_PROTO, "PMI-1 gives no name of its key-value space");
    if (st < 0) {
        dtpi_free(a, p, sizeof(*p));
        return st;
    }
    *state_out = p;
    return DTP_OK;
}

static dtp_status pmi1_put(void *state, const char *key, const char *value, int64_t until_ns,
                           dtp_error *err)
{
    struct pmi1 *p = state;
    char line[LINE], answer[LINE], rc[16] = "";

    snprintf(line, sizeof(line), "cmd=put kvsname=%s key=%s value=%s\n", p->kvs, key, value);
    const dtp_status st = ask(p, line, "put_result", answer, until_ns, err);
    if (st < 0)
        return st;
    board_pmi1_field(answer, "rc", rc, sizeof(rc));
    return strcmp(rc, "0") == 0 ? DTP_OK
                                : dtpi_fail(err, DTP_ERR_EXISTS, "PMI-1 does not take %s: %.60s", key,
                                            answer);
}

static dtp_status pmi1_sync(void *state, int64_t until_ns, dtp_error *err)
{
    char answer[LINE];

    return ask(state, "cmd=barrier_in\n", "barrier_out", answer, until_ns, err);
}

static dtp_status pmi1_get(void *state, const char *key, char *value_out, int64_t until_ns,
                           dtp_error *err)
{
    struct pmi1 *p = state;
    char line[LINE], answer[LINE], rc[16] = "";

    snprintf(line, sizeof(line), "cmd=get kvsname=%s key=%s\n", p->kvs, key);
    const dtp_status st = ask(p, line, "get_result", answer, until_ns, err);
    if (st < 0)
        return st;
    board_pmi1_field(answer, "rc", rc, sizeof(rc));
    if (strcmp(rc, "0") != 0)
        return DTP_END;
    return board_pmi1_field(answer, "value", value_out, DTPI_BOARD_VALUE)
               ? DTP_OK
               : dtpi_fail(err, DTP_ERR_PROTO, "PMI-1 gives no value of %s", key);
}

static int is_mpi(struct dl_phdr_info *info, size_t bytes, void *user)
{
    const char *slash = strrchr(info->dlpi_name, '/');

    (void)bytes;
    (void)user;
    return strncmp(slash ? slash + 1 : info->dlpi_name, "libmpi", 6) == 0;
}

static bool has_mpi(void)
{
    return dl_iterate_phdr(is_mpi, NULL) != 0 || dlsym(RTLD_DEFAULT, "MPI_Init") != NULL;
}

static void pmi1_close(void *state)
{
    struct pmi1 *p = state;
    char answer[LINE];

    if (!has_mpi())
        ask(p, "cmd=finalize\n", "finalize_ack", answer,
            dtpi_board_now_ns() + FINALIZE_MS * DTPI_NS_PER_MS, NULL);
    dtpi_free(p->a, p, sizeof(*p));
}

const dtpi_board_ops dtpi_board_pmi1 = {
    .name = "pmi1", .open = pmi1_open, .put = pmi1_put, .sync = pmi1_sync, .get = pmi1_get,
    .close = pmi1_close,
};
