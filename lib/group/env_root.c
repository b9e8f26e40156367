/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env_root.c - where the nodes of a group meet: an address that somebody said, a launcher's board, or
 * ports that follow from the job's number.
 *
 * What must be equal on all ranks follows from variables that are: a root that puts its address on a
 * board is never sought behind a port.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/hostlist.h"
#include "base/text.h"
#include "group/env_internal.h"
#include "group/tree.h"

enum {
    PORT_MAX = 65535,
    PORTS_BEHIND_MASTER = 8,    /* MASTER_PORT itself is torch's store */
    /* Above what Linux gives to those who connect (32768-60999), 8 ports for each of 566 steps. */
    STEP_PORT_FIRST = 61000,
    STEP_PORTS = 8,
    STEP_SLOTS = (65536 - STEP_PORT_FIRST) / STEP_PORTS,
};

/* ---- boards ---- */

static dtp_status use_board(struct found *f, const char *kind, const char *place, dtp_error *err)
{
    int64_t fd = -1;

    if (place && strlen(place) >= sizeof(f->place))
        return dtpi_fail(err, DTP_ERR_FORMAT, "board '%.60s...' has too long a name", place);
    if (strncmp(kind, "pmi", 3) == 0 && strcmp(kind, "pmix") != 0) {
        const dtp_status st = env_number_from_env("PMI_FD", 0, INT32_MAX, &fd, err);
        if (st < 0)
            return st;
        if (fd < 0)
            return dtpi_fail(err, DTP_ERR_FORMAT, "board %s needs PMI_FD, which is not set", kind);
    }
    snprintf(f->place, sizeof(f->place), "%s", place ? place : "");
    f->board = (dtpi_board_opts){ .kind = kind, .place = place ? f->place : NULL, .fd = (int)fd };
    return DTP_OK;
}

/* DTP_BOARD: none, a folder, file:FOLDER, tcpstore:HOST:PORT, pmi1, pmi2, pmix. */
static dtp_status board_from_env(const char *text, struct found *f, dtp_error *err)
{
    static const char *const plain[] = { "pmi1", "pmi2", "pmix" };

    if (text[0] == '/')
        return use_board(f, "file", text, err);
    if (strncmp(text, "file:", 5) == 0 && text[5])
        return use_board(f, "file", text + 5, err);
    if (strncmp(text, "tcpstore:", 9) == 0 && text[9])
        return use_board(f, "tcpstore", text + 9, err);
    for (size_t i = 0; i < DTPI_ARRAY_LEN(plain); i++)
        if (strcmp(text, plain[i]) == 0)
            return use_board(f, plain[i], NULL, err);
    return dtpi_fail(err, DTP_ERR_FORMAT, "DTP_BOARD is '%.60s', not none, a folder's path, "
                                          "tcpstore:HOST:PORT, pmi1, pmi2 or pmix", text);
}

/* ---- addresses ---- */

/* "host:first-last", with brackets where the host is an IPv6 address. */
static void set_ports(const char *host, uint32_t first, uint32_t last, char *text_out, size_t room)
{
    const bool is_v6 = strchr(host, ':') && host[0] != '[';
    char end[12] = "";

    if (last > first)
        snprintf(end, sizeof(end), "-%u", last);
    snprintf(text_out, room, "%s%.240s%s:%u%s", is_v6 ? "[" : "", host, is_v6 ? "]" : "", first, end);
}

/* MASTER_ADDR and MASTER_PORT: torch's store where it is known to run there, else the ports behind it. */
static dtp_status master_from_env(const struct launcher *l, const char *addr, bool may_board,
                                  struct found *f, dtp_error *err)
{
    const char *has_store = env_text_from_env("TORCHELASTIC_USE_AGENT_STORE");
    int64_t port = 0;
    char place[sizeof(f->root)];

    const dtp_status st = env_number_from_env("MASTER_PORT", 1, PORT_MAX, &port, err);
    if (st < 0)
        return st;
    if (port == 0)
        return dtpi_fail(err, DTP_ERR_FORMAT, "MASTER_ADDR is set, but MASTER_PORT is not");
    if (may_board && l->kind == LAUNCHER_TORCHRUN && has_store && strcmp(has_store, "True") == 0) {
        set_ports(addr, (uint32_t)port, (uint32_t)port, place, sizeof(place));
        return use_board(f, "tcpstore", place, err);
    }
    if (port == PORT_MAX)
        return dtpi_fail(err, DTP_ERR_FORMAT, "MASTER_PORT=%d leaves no port behind it: set DTP_ROOT", PORT_MAX);
    set_ports(addr, (uint32_t)port + 1, DTPI_MIN((uint32_t)port + PORTS_BEHIND_MASTER, (uint32_t)PORT_MAX),
              f->root, sizeof(f->root));
    f->o.root = f->root;
    return DTP_OK;
}

/* ---- Slurm ---- */

struct nth {
    uint32_t left;
    char name[240];
};

/* The name that was looked for ends the walk. */
static dtp_status take_nth(void *user, const char *name)
{
    struct nth *n = user;

    if (n->left-- > 0)
        return DTP_OK;
    snprintf(n->name, sizeof(n->name), "%s", name);
    return DTP_ERR_CANCELED;
}

static dtp_status set_from_list(const char *list, uint32_t node, uint32_t first, char *text_out, size_t room,
                                dtp_error *err)
{
    struct nth n = { .left = node };

    const dtp_status st = dtpi_hostlist_expand(list, take_nth, &n, err);
    if (st == DTP_ERR_CANCELED) {
        set_ports(n.name, first, first + STEP_PORTS - 1, text_out, room);
        return DTP_OK;
    }
    return st < 0 ? st : dtpi_fail(err, DTP_ERR_FORMAT, "node list %.80s has no node %u", list, node);
}

/*
 * Ports that follow from job and step: every agent takes its first free one, the others try all. The
 * parent of a node is known by its name too.
 */
static dtp_status derived_from_env(struct found *f, dtp_error *err)
{
    const char *list = env_text_from_env("SLURM_STEP_NODELIST");
    int64_t job = 0, step = 0;

    if (!list)
        list = env_text_from_env("SLURM_JOB_NODELIST");
    if (!list)
        return dtpi_fail(err, DTP_ERR_FORMAT, "SLURM_STEP_ID is set, but SLURM_STEP_NODELIST is not: set "
                                              "DTP_ROOT or DTP_BOARD");
    dtp_status st = env_number_from_env("SLURM_JOB_ID", 0, UINT32_MAX, &job, err);
    if (st >= 0)
        st = env_number_from_env("SLURM_STEP_ID", 0, UINT32_MAX, &step, err);
    if (st < 0)
        return st;
    const uint64_t mixed = ((uint64_t)job * 2654435761u + (uint64_t)step * 40503u) % STEP_SLOTS;
    const uint32_t first = STEP_PORT_FIRST + (uint32_t)mixed * STEP_PORTS;
    st = set_from_list(list, 0, first, f->root, sizeof(f->root), err);
    f->o.root = f->root;
    if (st < 0 || f->o.node == 0 || f->o.n_nodes == 0 || f->o.parent)
        return st;
    const uint32_t radix = f->o.radix ? (uint32_t)f->o.radix
                                      : dtpi_tree_radix((uint32_t)f->o.world_size, (uint32_t)f->o.n_nodes);
    st = set_from_list(list, dtpi_tree_parent((uint32_t)f->o.node, radix), first, f->parent,
                       sizeof(f->parent), err);
    f->o.parent = f->parent;
    if (!f->o.listen)
        snprintf(f->listen, sizeof(f->listen), ":%u-%u", first, first + STEP_PORTS - 1);
    f->o.listen = f->o.listen ? f->o.listen : f->listen;
    return st;
}

static dtp_status slurm_from_env(const struct launcher *l, struct found *f, bool may_board, dtp_error *err)
{
    if (may_board && env_text_from_env("PMIX_NAMESPACE"))
        return use_board(f, "pmix", NULL, err);
    if (!env_slurm_is_arbitrary_from_env(l))
        return derived_from_env(f, err);
    if (may_board && env_text_from_env("PMI_FD"))
        return use_board(f, "pmi2", NULL, err);
    return dtpi_fail(err, DTP_ERR_FORMAT, "SLURM_DISTRIBUTION=%.40s does not say where rank 0 is: set "
                                          "DTP_ROOT or DTP_BOARD", env_text_from_env("SLURM_DISTRIBUTION"));
}

/* ---- together ---- */

static dtp_status check_explicit(const char *root, const char *board, dtp_error *err)
{
    if (root && board && strcmp(board, "none") != 0)
        return dtpi_fail(err, DTP_ERR_FORMAT, "DTP_ROOT=%.60s contradicts DTP_BOARD=%.60s: set one of them",
                         root, board);
    return DTP_OK;
}

dtp_status env_root_from_env(const struct launcher *l, struct found *f, dtp_error *err)
{
    const char *root = env_text_from_env("DTP_ROOT"), *board = env_text_from_env("DTP_BOARD");
    const char *addr = env_text_from_env("MASTER_ADDR");
    const bool may_board = !board || strcmp(board, "none") != 0;
    const bool is_one_node = f->o.local_size == 0 || f->o.local_size == f->o.world_size;

    const dtp_status st = check_explicit(root, board, err);
    if (st < 0)
        return st;
    f->o.root = root;
    if (root || is_one_node || env_text_from_env("DTP_AGENT"))
        return DTP_OK;
    if (board && may_board)
        return board_from_env(board, f, err);
    if (addr && l->kind != LAUNCHER_DTP)
        return master_from_env(l, addr, may_board, f, err);
    if (l->kind == LAUNCHER_SLURM)
        return slurm_from_env(l, f, may_board, err);
    if (may_board && l->kind == LAUNCHER_OPEN_MPI && env_text_from_env("PMIX_NAMESPACE"))
        return use_board(f, "pmix", NULL, err);
    if (may_board && l->kind == LAUNCHER_HYDRA && env_text_from_env("PMI_FD"))
        return use_board(f, "pmi1", NULL, err);
    return DTP_OK;
}
