/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handshake.h - mutual proof of the job secret, before anything of a peer is believed. Pure.
 *
 * HELLO (client) -> CHALLENGE with the server's proof -> PROOF (client). A proof is BLAKE2b keyed with
 * the secret over the role of the prover and both messages before it, so it is bound to job, attempt,
 * role and both nonces and cannot be reflected or replayed. Without a secret (insecure) the same words
 * are spoken with a fixed key, and both sides must say so.
 */
#ifndef DTPI_GROUP_HANDSHAKE_H
#define DTPI_GROUP_HANDSHAKE_H

#include <dtp/group.h>

#include "base/wire.h"

enum { DTPI_HS_MAX_FRAME = 512, DTPI_HS_NONCE_BYTES = 32, DTPI_HS_PROOF_BYTES = 32 };

typedef enum dtpi_hs_role {
    DTPI_HS_RANK = 1,           /* a rank meets its agent */
    DTPI_HS_AGENT = 2           /* an agent meets its parent */
} dtpi_hs_role;

typedef struct dtpi_hs {
    uint8_t key[DTP_SECRET_BYTES];
    bool insecure;
    uint8_t role;
    uint32_t attempt;
    char job[64];
    int32_t who;                /* rank, for texts; of the client */
    uint8_t state;              /* messages seen */
    uint8_t hello[DTPI_HS_MAX_FRAME];
    size_t n_hello;
    uint8_t challenge[DTPI_HS_NONCE_BYTES + 16];
    size_t n_challenge;
} dtpi_hs;

/* `secret` NULL: insecure. */
void dtpi_hs_init(dtpi_hs *hs, dtpi_hs_role role, const char *job, uint32_t attempt, int32_t who,
                  const uint8_t *secret);
void dtpi_hs_wipe(dtpi_hs *hs);

/* Client: writes HELLO. */
void dtpi_hs_hello(dtpi_hs *hs, dtpi_buf *b);
/* Client: reads CHALLENGE or a refusal, writes PROOF. OK when proven. AUTH, VERSION, PROTO. */
dtp_status dtpi_hs_answer(dtpi_hs *hs, const uint8_t *data, size_t bytes, dtpi_buf *b,
                          dtp_error *err);
/* Server: reads HELLO (PENDING, CHALLENGE written) or PROOF (OK). Failures: refuse and close. */
dtp_status dtpi_hs_serve(dtpi_hs *hs, const uint8_t *data, size_t bytes, dtpi_buf *b,
                         dtp_error *err);
/* The refusal that tells `err` to the client. */
void dtpi_hs_refuse(dtpi_buf *b, const dtp_error *err);

/* Keys of the session, by direction. */
void dtpi_hs_keys(const dtpi_hs *hs, uint8_t *client_to_server, uint8_t *server_to_client);

#endif /* DTPI_GROUP_HANDSHAKE_H */
