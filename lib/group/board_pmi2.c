/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_pmi2.c - PMI-2's wire protocol, as Slurm speaks it on the descriptor PMI_FD (srun --mpi=pmi2).
 *
 * Slurm takes one `init` from a process and hangs at a second: where MPI in the same process uses
 * PMI-2, this board cannot. So it is used only when it was asked for, or nothing else can be.
 * Source: "PMI-2 wire protocol" of MPICH; observed with Slurm 22.05.
 */
#include "group/board_pmi.h"

#include <stdio.h>

#include "base/text.h"
#include "group/board_wire.h"

enum { ROOM = 2048 };

struct pmi2 {
    const dtp_allocator *a;
    board_wire w;
};

bool board_pmi2_length(const char *six, size_t max, size_t *bytes_out)
{
    char text[7];
    size_t from = 0, to = 6;
    int64_t n;

    memcpy(text, six, 6);
    while (from < to && text[from] == ' ')
        from++;
    while (to > from && text[to - 1] == ' ')
        to--;
    text[to] = '\0';
    if (!dtpi_parse_i64(text + from, 1, (int64_t)max, &n))
        return false;
    *bytes_out = (size_t)n;
    return true;
}

/* One "name=value;" at `*text`, moved behind it; the value unescaped. False at the end or when malformed. */
static bool next_field(const char **text, const char **name_out, size_t *name_bytes_out,
                       char *value_out, size_t room)
{
    const char *p = *text;
    const size_t name_bytes = strcspn(p, "=;");
    size_t n = 0;

    if (p[name_bytes] != '=')
        return false;
    *name_out = p;
    *name_bytes_out = name_bytes;
    for (p += name_bytes + 1; *p; p++) {
        if (*p == ';' && p[1] != ';')
            break;
        p += *p == ';';
        if (n + 1 >= room)
            return false;
        value_out[n++] = *p;
    }
    value_out[n] = '\0';
    *text = *p ? p + 1 : p;
    return true;
}

bool board_pmi2_field(const char *text, const char *name, char *value_out, size_t room)
{
    char value[ROOM];
    const char *at;
    size_t n;

    while (next_field(&text, &at, &n, value, sizeof(value)))
        if (n == strlen(name) && memcmp(at, name, n) == 0) {
            const size_t bytes = strlen(value);
            if (bytes >= room)
                return false;
            memcpy(value_out, value, bytes + 1);
            return true;
        }
    return false;
}

/* Asks "cmd=<what>;..." and takes "cmd=<what>-response;rc=0;...". */
static dtp_status ask(struct pmi2 *p, const char *what, const char *rest, char *answer_out,
                      int64_t until_ns, dtp_error *err)
{
    char text[ROOM], six[6], got[60] = "", want[60], rc[16] = "";
    size_t bytes = 0;
    const int n = snprintf(text, sizeof(text), "%6dcmd=%s;%s",
                           (int)(strlen(what) + strlen(rest) + 5), what, rest);

    dtp_status st = board_wire_send(&p->w, text, (size_t)n, until_ns, err);
    if (st >= 0)
        st = board_wire_receive(&p->w, six, sizeof(six), until_ns, err);
    if (st < 0)
        return st;
    if (!board_pmi2_length(six, ROOM - 1, &bytes))
        return dtpi_fail(err, DTP_ERR_PROTO, "PMI-2 answers %s with length '%.6s'", what, six);
    st = board_wire_receive(&p->w, answer_out, bytes, until_ns, err);
    if (st < 0)
        return st;
    answer_out[bytes] = '\0';
    snprintf(want, sizeof(want), "%s-response", what);
    if (memchr(answer_out, '\0', bytes) || !board_pmi2_field(answer_out, "cmd", got, sizeof(got)) ||
        strcmp(got, want) != 0 || !board_pmi2_field(answer_out, "rc", rc, sizeof(rc)) ||
        strcmp(rc, "0") != 0)
        return dtpi_fail(err, DTP_ERR_PROTO, "PMI-2 answers %s with '%.80s'", what, answer_out);
    return DTP_OK;
}

static dtp_status start(struct pmi2 *p, int64_t until_ns, dtp_error *err)
{
    static const char init[] = "cmd=init pmi_version=2 pmi_subversion=0\n";
    char line[ROOM], version[16] = "";

    dtp_status st = board_wire_check(&p->w, err);
    if (st >= 0)
        st = board_wire_send(&p->w, init, strlen(init), until_ns, err);
    if (st >= 0)
        st = board_wire_line(&p->w, line, sizeof(line), until_ns, err);
    if (st < 0)
        return st;
    if (!board_pmi1_field(line, "pmi_version", version, sizeof(version)) || strcmp(version, "2") != 0)
        return dtpi_fail(err, DTP_ERR_PROTO, "PMI-2 answers init with '%.80s'", line);
    return DTP_OK;
}

static dtp_status pmi2_open(const dtp_allocator *a, const dtpi_board_opts *o, int64_t until_ns,
                            void **state_out, dtp_error *err)
{
    struct pmi2 *p = dtpi_alloc(a, sizeof(*p));

    if (!p)
        return dtpi_fail_nomem(err, sizeof(*p));
    p->a = a;
    p->w = (board_wire){ o->fd, "PMI-2", o->interrupted, o->user };
    const dtp_status st = start(p, until_ns, err);
    if (st < 0) {
        dtpi_free(a, p, sizeof(*p));
        return st;
    }
    *state_out = p;
    return DTP_OK;
}

static dtp_status pmi2_put(void *state, const char *key, const char *value, int64_t until_ns,
                           dtp_error *err)
{
    char rest[ROOM / 2 + 256], answer[ROOM];

    snprintf(rest, sizeof(rest), "key=%s;value=%s;", key, value);
    return ask(state, "kvs-put", rest, answer, until_ns, err);
}

static dtp_status pmi2_sync(void *state, int64_t until_ns, dtp_error *err)
{
    char answer[ROOM];

    return ask(state, "kvs-fence", "", answer, until_ns, err);
}

static dtp_status pmi2_get(void *state, const char *key, char *value_out, int64_t until_ns,
                           dtp_error *err)
{
    char rest[256], answer[ROOM], found[16] = "";

    snprintf(rest, sizeof(rest), "jobid=;srcid=-1;key=%s;", key);
    const dtp_status st = ask(state, "kvs-get", rest, answer, until_ns, err);
    if (st < 0)
        return st;
    if (!board_pmi2_field(answer, "found", found, sizeof(found)) || strcmp(found, "TRUE") != 0)
        return DTP_END;
    return board_pmi2_field(answer, "value", value_out, DTPI_BOARD_VALUE)
               ? DTP_OK
               : dtpi_fail(err, DTP_ERR_PROTO, "PMI-2 gives no value of %s", key);
}

static void pmi2_close(void *state)
{
    struct pmi2 *p = state;

    dtpi_free(p->a, p, sizeof(*p));
}

const dtpi_board_ops dtpi_board_pmi2 = {
    .name = "pmi2", .open = pmi2_open, .put = pmi2_put, .sync = pmi2_sync, .get = pmi2_get,
    .close = pmi2_close,
};
