/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - what supervisor and shim say to each other: frames over a Unix stream socket.
 *
 * A frame is u32 bytes-that-follow, u8 type, then the fields that wire.c lists for the type, in
 * little-endian order. Texts and lists carry their terminators, so that a decoded message lends
 * pointers into the frame. The first word of a connection is HELLO with magic and version.
 *
 * A start runs: ASK_PORTS -> PORTS, ATTEMPT, RANK for every rank, GO -> STARTED or FAILED; then
 * OUTPUT and EXIT as they come, GONE when no process of the gang is left and all output is sent.
 */
#ifndef DTPI_LAUNCH_WIRE_H
#define DTPI_LAUNCH_WIRE_H

#include "base/buf.h"

enum {
    DTPI_SHIM_MAGIC = 0x6d696873,   /* "shim" */
    DTPI_SHIM_VERSION = 1,
    DTPI_SHIM_MAX_FRAME = 4 << 20,
    DTPI_SHIM_MAX_LIST = 65536,     /* texts in a list */
    DTPI_SHIM_MAX_RANKS = 65536,
    DTPI_SHIM_MAX_PORTS = 8192
};

typedef enum dtpi_shim_type {
    /* to the shim */
    DTPI_SHIM_HELLO = 1,        /* magic, version, role, output */
    DTPI_SHIM_ASK_PORTS = 2,    /* n: reserve so many TCP ports for the next attempt */
    DTPI_SHIM_ATTEMPT = 3,      /* attempt, n, grace_ms, name (agent's socket), secret (file), cwd, argv,
                                   env */
    DTPI_SHIM_RANK = 4,         /* rank, cpus, env of its own */
    DTPI_SHIM_GO = 5,
    DTPI_SHIM_END = 6,          /* grace_ms: end the gang; 0: kill it now */
    DTPI_SHIM_CANCEL = 7,       /* from a control connection: cancel the job */

    /* from the shim */
    DTPI_SHIM_WELCOME = 64,     /* version, pid, bytes: of the journal until now; rest follows here */
    DTPI_SHIM_REFUSED = 65,     /* status, text */
    DTPI_SHIM_PORTS = 66,       /* data: u16 little-endian each */
    DTPI_SHIM_STARTED = 67,     /* attempt, data: u32 pid of each rank */
    DTPI_SHIM_FAILED = 68,      /* attempt, status, code (errno), rank, text: nothing was started */
    DTPI_SHIM_EXIT = 69,        /* attempt, rank, code (wait status) */
    DTPI_SHIM_OUTPUT = 70,      /* rank, stream, data: raw bytes; none: the stream has ended */
    DTPI_SHIM_GONE = 71,        /* attempt: no process is left */
    DTPI_SHIM_CANCELED = 72,    /* someone asked to cancel; the answer to CANCEL as well */
    DTPI_SHIM_ENDING = 73,      /* attempt: END takes effect; later deaths are its work */
    DTPI_SHIM_REFORMED = 74     /* attempt, n: the survivors formed a new generation of n ranks */
} dtpi_shim_type;

enum { DTPI_SHIM_SUPERVISOR = 1, DTPI_SHIM_CONTROL = 2 };       /* role */
enum { DTPI_SHIM_OUTPUT_NEW = 0, DTPI_SHIM_OUTPUT_ALL = 1 };    /* output: from now, from the start */

/* Texts one after the other, each with its terminator. */
typedef struct dtpi_texts {
    uint32_t n;
    const char *data;
    size_t bytes;
} dtpi_texts;

typedef struct dtpi_shim_msg {
    uint32_t type;
    uint32_t magic, version, role, output;
    uint32_t attempt, n, pid;
    int32_t rank, status, code, grace_ms, stream;
    uint64_t bytes;
    const char *name, *secret, *cwd, *text, *cpus;
    dtpi_texts argv, env;
    const uint8_t *data;
    size_t data_bytes;
} dtpi_shim_msg;

/* Appends the frame of `msg`, or nothing; NULL texts go as "". Errors: LIMIT (too large), NOMEM. */
dtp_status dtpi_shim_encode(dtpi_buf *b, const dtpi_shim_msg *msg, dtp_error *err);

/*
 * Takes one frame from the front of `data`: OK and its length in `*used_out`, PENDING when it is not
 * all there. `msg_out` lends from `data`. Errors: PROTO (names what is wrong).
 */
dtp_status dtpi_shim_decode(const void *data, size_t bytes, dtpi_shim_msg *msg_out,
                            size_t *used_out, dtp_error *err);

const char *dtpi_shim_type_name(uint32_t type);

/* ---- lists ---- */

/* Appends a text with its terminator and counts it. */
void dtpi_texts_add(dtpi_buf *b, uint32_t *n, const char *text);
/* The next text of a list that decode has checked; start with `at` = NULL, NULL at the end. */
const char *dtpi_texts_next(const dtpi_texts *list, const char *at);

#endif /* DTPI_LAUNCH_WIRE_H */
