/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handshake.h - mutual proof of the job secret, before anything of a peer is believed. Pure.
 *
 * HELLO (client) -> CHALLENGE with the server's proof -> PROOF (client). A proof is BLAKE2b keyed with
 * the secret over the role of the prover and both messages before it, so it is bound to job, attempt,
 * generation, rank, node, world size, versions, flags, roles and both nonces and cannot be reflected or
 * replayed. A HELLO carries a tag of the same key, so that a stranger is known by its first message
 * and learns nothing from the refusal. A HELLO may be an echo of an earlier run: where one cannot fit, the
 * refusal asks for a word that only its author can give (HEARD), before others act on it. Without a secret (insecure) the same words are spoken with a
 * fixed key, and both sides must say so.
 */
#ifndef DTPI_GROUP_HANDSHAKE_H
#define DTPI_GROUP_HANDSHAKE_H

#include <dtp/group.h>

#include "base/wire.h"
#include "net/seal.h"

enum {
    DTPI_HS_MAX_FRAME = 512,
    DTPI_HS_NONCE_BYTES = 32,
    DTPI_HS_PROOF_BYTES = 32,
    DTPI_HS_TAG_BYTES = 16
};

typedef enum dtpi_hs_role {
    DTPI_HS_RANK = 1,           /* a rank meets its agent */
    DTPI_HS_AGENT = 2           /* an agent meets its parent */
} dtpi_hs_role;

typedef struct dtpi_hs_opts {
    dtpi_hs_role role;          /* of the client */
    const char *job;
    uint32_t attempt;
    uint32_t generation;        /* 0: not yet part of one */
    uint32_t world;             /* 0: unknown */
    int32_t who;                /* rank, or that of the agent's process; -1: none */
    const char *host;           /* name of the own node */
    const uint8_t *secret;      /* NULL: insecure, unless it */
    bool asks;                  /* for the secret, first */
    bool encrypts;
} dtpi_hs_opts;

/* What is said about oneself. */
typedef struct dtpi_hs_self {
    uint8_t flags;
    uint32_t attempt, generation, world;
    int32_t who;
    char version[16];           /* of the library */
    char job[64], host[65];
} dtpi_hs_self;

typedef struct dtpi_hs {
    uint8_t key[DTP_SECRET_BYTES];
    uint8_t role;
    bool asks;                  /* has no secret yet */
    uint8_t state;              /* messages that were taken */
    dtpi_hs_self self, peer;    /* the server knows its peer after HELLO */
    bool is_ours;               /* server: the HELLO was made, now or once, with the secret */
    bool disagrees;             /* server: ours, of this job and generation, waited for, and it cannot fit */
    bool is_heard;              /* server: and its author said so, now */
    bool is_proven;             /* client: a refusal came from somebody with the secret */
    uint8_t hello[DTPI_HS_MAX_FRAME];
    size_t n_hello;
    uint8_t challenge[DTPI_HS_NONCE_BYTES + 4];         /* with the server's generation, but in a refusal */
    size_t n_challenge;
} dtpi_hs;

void dtpi_hs_init(dtpi_hs *hs, const dtpi_hs_opts *opts);
void dtpi_hs_wipe(dtpi_hs *hs);

/* Cheap: whether the first bytes of a stream can be a HELLO, length field included; unknown: true. */
bool dtpi_hs_may_be_hello(const uint8_t *data, size_t bytes);

/* Client: writes HELLO, or ASK. */
void dtpi_hs_hello(dtpi_hs *hs, dtpi_buf *b);
/*
 * Client: reads CHALLENGE, writes PROOF: OK when proven. Or reads a refusal, and where that asks for it writes
 * HEARD, to be sent. AUTH, VERSION, PROTO, and what a refusal says.
 */
dtp_status dtpi_hs_answer(dtpi_hs *hs, const uint8_t *data, size_t bytes, dtpi_buf *b,
                          dtp_error *err);
/*
 * Server: reads HELLO (PENDING, CHALLENGE written) or PROOF (OK). Failures: refuse and close. After the refusal
 * of one that `disagrees` it reads HEARD: the same failure again, and `is_heard`.
 */
dtp_status dtpi_hs_serve(dtpi_hs *hs, const uint8_t *data, size_t bytes, dtpi_buf *b,
                         dtp_error *err);
/* The refusal that tells `err` to the client, proven where the HELLO was; one that `disagrees` is asked for HEARD. */
void dtpi_hs_refuse(dtpi_hs *hs, dtpi_buf *b, const dtp_error *err);

/*
 * Before it, where a launcher carries no secret: ASK (client) -> GIVE with the secret, plain to a process
 * of the same user on this machine, else in a MUNGE credential, or REFUSE.
 */
typedef enum dtpi_hs_gift { DTPI_HS_PLAIN = 1, DTPI_HS_MUNGE = 2 } dtpi_hs_gift;
/* Server: PENDING where it is no ASK; OK where it is one of this job and attempt. */
dtp_status dtpi_hs_serve_ask(dtpi_hs *hs, const uint8_t *data, size_t bytes, dtp_error *err);
void dtpi_hs_give(dtpi_buf *b, dtpi_hs_gift kind, const void *data, size_t bytes);
/* Client: false where it is no GIVE. `data_out` is lent. */
bool dtpi_hs_read_gift(const uint8_t *data, size_t bytes, uint8_t *kind_out, const uint8_t **data_out,
                       size_t *bytes_out);
/* It has been given. */
void dtpi_hs_set_secret(dtpi_hs *hs, const uint8_t *secret);

/* What protects the session, by direction: encrypts where both said so. */
void dtpi_hs_seals(const dtpi_hs *hs, dtpi_seal *client_to_server, dtpi_seal *server_to_client);

#endif /* DTPI_GROUP_HANDSHAKE_H */
