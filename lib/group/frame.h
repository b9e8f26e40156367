/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.h - the messages of a group: a fixed header {version, type, lane, attempt, generation, seq,
 * group, rank} and a body. docs/formats/wire.md describes them.
 */
#ifndef DTPI_GROUP_FRAME_H
#define DTPI_GROUP_FRAME_H

#include <dtp/group.h>

#include "base/wire.h"

enum { DTPI_WIRE_VERSION = 1, DTPI_FRAME_BYTES = 32, DTPI_WORLD_MAX = 1 << 24, DTPI_HOST_MAX = 64 };

/* The group of all ranks. */
#define DTPI_WORLD_ID 1ull

typedef enum dtpi_frame_type {
    DTPI_F_JOIN = 1,        /* rank up: I am here */
    DTPI_F_REFUSE = 2,      /* agent down: status, text; the connection ends */
    DTPI_F_ROWS = 3,        /* agent up: rows of one node */
    DTPI_F_TABLE = 4,       /* down: everybody is here */
    DTPI_F_WELCOME = 5,     /* agent to rank, with the control page and the table */
    DTPI_F_UP = 6,          /* a contribution to a collective call */
    DTPI_F_DOWN = 7,        /* its result */
    DTPI_F_EXPIRE = 8,      /* up: somebody's deadline passed */
    DTPI_F_PROBE = 9,       /* down: say at once who is missing */
    DTPI_F_SET = 10,        /* key-value, up */
    DTPI_F_GET = 11,
    DTPI_F_FORGET = 12,     /* a reader waits no longer */
    DTPI_F_VALUE = 13,      /* the answer, down */
    DTPI_F_LEAVE = 14,      /* up: `rank` left `group` */
    DTPI_F_DEATH = 15,      /* up: ranks that died */
    DTPI_F_VERDICT = 16,    /* down: the group has failed, and why */
    DTPI_F_ABORT = 17,      /* up */
    DTPI_F_MEMORY = 18,     /* rank to agent: node memory wanted */
    DTPI_F_MEMORY_IS = 19,  /* agent to rank, with a descriptor */
    DTPI_F_BEAT = 20,       /* between agents */
    DTPI_F_BYE = 21,        /* an agent ends in order */
    DTPI_F_NODE = 22,       /* parent to child: which node I am */
    DTPI_F_UCX = 23,        /* between agents: an address, to go on over UCX */
    DTPI_F_SWITCH = 24,     /* between agents: the last message over TCP */
    DTPI_F_CHANGE = 25,     /* key-value, up: add, compare and set, append, unset, count */
    DTPI_F_REFORM = 26,     /* up: these ranks go on in the next generation */
    DTPI_F_FORMED = 27,     /* down: its members; or why there is none */
    DTPI_F_PAD = 28,        /* between agents, after the proof: do large messages pass? */
    DTPI_F_LOST = 29,       /* between agents, up: a child's agent ended */
    DTPI_F_FAILED = 30,     /* rank up: I cannot go on, and why */
    DTPI_F_COME = 31,       /* between agents, after the proof: who I am, and where I was sent */
    DTPI_F_PLACE = 32,      /* and the answer: my child, or another's */
    DTPI_F_ORPHANS = 33,    /* up: ranks whose agents lost their way to the root and may come back */
    DTPI_F_ATTACH = 34,     /* up: these came back, through the sender */
    DTPI_F_NEW = 35,        /* up: one that wants to be taken in by a re-form, or no longer */
    DTPI_F_END = 36
} dtpi_frame_type;

typedef struct dtpi_frame {
    uint8_t type;
    uint8_t lane;
    uint32_t attempt;
    uint32_t generation;
    uint32_t seq;
    uint64_t group;
    int32_t rank;
    const uint8_t *body;        /* lent */
    size_t bytes;
} dtpi_frame;

/* Kinds of collective calls. */
typedef enum dtpi_kind {
    DTPI_KIND_BARRIER = 0,
    DTPI_KIND_GATHER = 1,
    DTPI_KIND_BROADCAST = 2,
    DTPI_KIND_SPLIT = 3,        /* a gather of {color, key} that makes groups */
    DTPI_KIND_END = 4
} dtpi_kind;

const char *dtpi_kind_name(uint8_t kind);

/* Reads the header; false unless it is one of this version. */
bool dtpi_frame_read(const void *data, size_t bytes, dtpi_frame *out);
/* Writes the header; the body follows by wr_*. */
void dtpi_frame_begin(dtpi_buf *b, const dtpi_frame *f);

/* A contribution, as a rank sends it. */
void dtpi_up_write(dtpi_buf *b, uint8_t kind, uint32_t index, int32_t root, const void *data,
                   size_t bytes);

/* Head of a result. */
typedef struct dtpi_down {
    uint8_t kind;
    dtp_status status;
    int32_t rank;               /* whom the failure names, -1 nobody */
    char text[DTP_ERROR_TEXT];
    dtpi_rd rest;
} dtpi_down;
bool dtpi_down_read(const dtpi_frame *f, dtpi_down *out);

/* The group that `color` of a split makes; and the order of its members. */
enum { DTPI_SPLIT_BYTES = 8 };      /* of an item, on the wire */
typedef struct dtpi_split_item {
    int32_t color, key;
    uint32_t index;             /* in the parent group */
} dtpi_split_item;
uint64_t dtpi_split_id(uint64_t parent, uint8_t lane, uint32_t seq, int32_t color);
/* Reads the items of a split's result and sorts them by color, key, index; false where malformed. */
bool dtpi_split_read(dtpi_rd *r, uint32_t n, dtpi_split_item *items_out);
/* The members of `color` among sorted items; false unless the one with `index` is there. */
bool dtpi_split_find(const dtpi_split_item *items, uint32_t n, int32_t color, uint32_t index,
                     uint32_t *first_out, uint32_t *n_out);

/* A failure of the whole group. */
typedef struct dtpi_verdict {
    dtp_status status;
    char text[DTP_ERROR_TEXT];
    uint32_t n_failed;
    int32_t *failed;            /* ascending */
} dtpi_verdict;
/* Writes the body. */
void dtpi_verdict_write(dtpi_buf *b, const dtpi_verdict *v);
/* `failed_out` has room for `world` ranks. */
bool dtpi_verdict_read(const dtpi_frame *f, uint32_t world, dtpi_verdict *out, int32_t *failed_out);

/* Ranges of ranks below `limit`, ascending: appended to `out` one by one, int32_t. */
void dtpi_ranges_write(dtpi_buf *b, const int32_t *ranks, uint32_t n);
bool dtpi_ranges_read(dtpi_rd *r, uint32_t limit, dtpi_buf *out);
/*
 * The body of FORMED; `members_out` gets the identities, ascending, `new_out` begins at the number of
 * newcomers.
 */
bool dtpi_formed_read(const dtpi_frame *f, uint32_t limit, dtp_status *status_out, char *text_out,
                      size_t room, dtpi_buf *members_out, dtpi_rd *new_out);
/* A newcomer as FORMED names it; their identities follow each other. */
typedef struct dtpi_newcomer {
    uint64_t id;
    uint32_t node, local_rank;
    int32_t pid;
} dtpi_newcomer;
bool dtpi_newcomer_read(dtpi_rd *r, dtpi_newcomer *out);

#endif /* DTPI_GROUP_FRAME_H */
