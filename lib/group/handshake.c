/* SPDX-License-Identifier: Apache-2.0 */
/* handshake.c - mutual proof of the job secret with libsodium's BLAKE2b. */
#include "group/handshake.h"

#include <sodium.h>
#include <stdio.h>

#include "base/text.h"
#include "group/frame.h"

/* "dtp" and a bell that no text protocol rings first. */
enum { HS_MAGIC = 0x07707464, HS_HELLO = 1, HS_CHALLENGE = 2, HS_PROOF = 3, HS_REFUSE = 4 };
enum { FLAG_INSECURE = 1 };

static const uint8_t no_secret[DTP_SECRET_BYTES] = "libdtp: no secret, by agreement";

void dtpi_hs_init(dtpi_hs *hs, dtpi_hs_role role, const char *job, uint32_t attempt, int32_t who,
                  const uint8_t *secret)
{
    memset(hs, 0, sizeof(*hs));
    memcpy(hs->key, secret ? secret : no_secret, sizeof(hs->key));
    hs->insecure = !secret;
    hs->role = (uint8_t)role;
    hs->attempt = attempt;
    hs->who = who;
    snprintf(hs->job, sizeof(hs->job), "%s", job);
}

void dtpi_hs_wipe(dtpi_hs *hs)
{
    sodium_memzero(hs, sizeof(*hs));
}

static void begin(dtpi_buf *b, uint8_t type)
{
    dtpi_wr_u32(b, HS_MAGIC);
    dtpi_wr_u16(b, DTPI_WIRE_VERSION);
    dtpi_wr_u8(b, type);
}

/* BLAKE2b keyed with the secret over a label and the messages so far. */
static void derive(const dtpi_hs *hs, const char *label, uint8_t *out)
{
    crypto_generichash_state s;

    crypto_generichash_init(&s, hs->key, sizeof(hs->key), DTPI_HS_PROOF_BYTES);
    crypto_generichash_update(&s, (const uint8_t *)label, strlen(label) + 1);
    crypto_generichash_update(&s, hs->hello, hs->n_hello);
    crypto_generichash_update(&s, hs->challenge, hs->n_challenge);
    crypto_generichash_final(&s, out, DTPI_HS_PROOF_BYTES);
}

void dtpi_hs_keys(const dtpi_hs *hs, uint8_t *client_to_server, uint8_t *server_to_client)
{
    derive(hs, "libdtp session client to server", client_to_server);
    derive(hs, "libdtp session server to client", server_to_client);
}

/* ---- client ---- */

void dtpi_hs_hello(dtpi_hs *hs, dtpi_buf *b)
{
    uint8_t nonce[DTPI_HS_NONCE_BYTES];
    const size_t at = b->len;

    randombytes_buf(nonce, sizeof(nonce));
    begin(b, HS_HELLO);
    dtpi_wr_u8(b, hs->role);
    dtpi_wr_u8(b, hs->insecure ? FLAG_INSECURE : 0);
    dtpi_wr_u32(b, hs->attempt);
    dtpi_wr_u32(b, (uint32_t)hs->who);
    dtpi_wr_text(b, hs->job);
    dtpi_buf_append(b, nonce, sizeof(nonce));
    if (b->failed)
        return;
    hs->n_hello = b->len - at;
    memcpy(hs->hello, b->data + at, hs->n_hello);
}

static dtp_status read_refusal(dtpi_rd *r, dtp_error *err)
{
    char text[DTP_ERROR_TEXT];
    const dtp_status st = (dtp_status)dtpi_rd_u32(r);

    if (!dtpi_rd_text(r, text, sizeof(text)) || !dtpi_rd_done(r) || st >= 0 ||
        st < DTP_ERR_INTERRUPTED)
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed refusal from the agent");
    return dtpi_fail(err, st, "%s", text);
}

dtp_status dtpi_hs_answer(dtpi_hs *hs, const uint8_t *data, size_t bytes, dtpi_buf *b,
                          dtp_error *err)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);
    uint8_t want[DTPI_HS_PROOF_BYTES];

    if (dtpi_rd_u32(&r) != HS_MAGIC)
        return dtpi_fail(err, DTP_ERR_PROTO, "what answers there is no agent of libdtp");
    const uint16_t version = dtpi_rd_u16(&r);
    const uint8_t type = dtpi_rd_u8(&r);
    if (r.failed)
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed challenge from the agent");
    if (type == HS_REFUSE)
        return read_refusal(&r, err);
    if (version != DTPI_WIRE_VERSION)
        return dtpi_fail(err, DTP_ERR_VERSION, "the agent speaks wire version %u, this rank %d",
                         version, DTPI_WIRE_VERSION);
    const uint8_t *nonce = dtpi_rd_bytes(&r, DTPI_HS_NONCE_BYTES);
    const uint8_t *proof = dtpi_rd_bytes(&r, DTPI_HS_PROOF_BYTES);
    if (type != HS_CHALLENGE || !dtpi_rd_done(&r))
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed challenge from the agent");
    memcpy(hs->challenge, nonce, DTPI_HS_NONCE_BYTES);
    hs->n_challenge = DTPI_HS_NONCE_BYTES;
    derive(hs, "libdtp server proof", want);
    if (sodium_memcmp(want, proof, sizeof(want)) != 0)
        return dtpi_fail(err, DTP_ERR_AUTH, "the agent has another secret for job %s (DTP_SECRET)",
                         hs->job);
    derive(hs, "libdtp client proof", want);
    begin(b, HS_PROOF);
    dtpi_buf_append(b, want, sizeof(want));
    return DTP_OK;
}

/* ---- server ---- */

static dtp_status check_hello(const dtpi_hs *hs, uint8_t role, uint8_t flags, uint32_t attempt,
                              const char *job, dtp_error *err)
{
    const char *who = role == DTPI_HS_RANK ? "rank" : "the agent of rank";

    if (role != hs->role || (flags & ~FLAG_INSECURE))
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed hello");
    if (strcmp(job, hs->job) != 0)
        return dtpi_fail(err, DTP_ERR_AUTH, "%s %d belongs to job %s, this is job %s", who, hs->who,
                         job, hs->job);
    if (attempt != hs->attempt)
        return dtpi_fail(err, DTP_ERR_INVAL, "%s %d belongs to attempt %u of job %s, this is attempt %u",
                         who, hs->who, attempt, hs->job, hs->attempt);
    if ((flags & FLAG_INSECURE) && !hs->insecure)
        return dtpi_fail(err, DTP_ERR_AUTH,
                         "%s %d came without a secret, the group has one (DTP_INSECURE must be "
                         "the same on all ranks)", who, hs->who);
    if (!(flags & FLAG_INSECURE) && hs->insecure)
        return dtpi_fail(err, DTP_ERR_AUTH,
                         "%s %d came with a secret, the group has none (DTP_INSECURE must be the "
                         "same on all ranks)", who, hs->who);
    return DTP_OK;
}

static dtp_status serve_hello(dtpi_hs *hs, const uint8_t *data, size_t bytes, dtpi_buf *b,
                              dtp_error *err)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);
    uint8_t proof[DTPI_HS_PROOF_BYTES];
    char job[64];

    dtpi_rd_u32(&r);
    dtpi_rd_u16(&r);
    const uint8_t type = dtpi_rd_u8(&r);
    const uint8_t role = dtpi_rd_u8(&r);
    const uint8_t flags = dtpi_rd_u8(&r);
    const uint32_t attempt = dtpi_rd_u32(&r);
    hs->who = (int32_t)dtpi_rd_u32(&r);
    dtpi_rd_text(&r, job, sizeof(job));
    dtpi_rd_bytes(&r, DTPI_HS_NONCE_BYTES);
    if (type != HS_HELLO || !dtpi_rd_done(&r) || bytes > sizeof(hs->hello))
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed hello");
    const dtp_status st = check_hello(hs, role, flags, attempt, job, err);
    if (st < 0)
        return st;
    memcpy(hs->hello, data, bytes);
    hs->n_hello = bytes;
    randombytes_buf(hs->challenge, DTPI_HS_NONCE_BYTES);
    hs->n_challenge = DTPI_HS_NONCE_BYTES;
    derive(hs, "libdtp server proof", proof);
    begin(b, HS_CHALLENGE);
    dtpi_buf_append(b, hs->challenge, DTPI_HS_NONCE_BYTES);
    dtpi_buf_append(b, proof, sizeof(proof));
    hs->state = 1;
    return DTP_PENDING;
}

static dtp_status serve_proof(dtpi_hs *hs, const uint8_t *data, size_t bytes, dtp_error *err)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);
    uint8_t want[DTPI_HS_PROOF_BYTES];

    dtpi_rd_u32(&r);
    dtpi_rd_u16(&r);
    const uint8_t type = dtpi_rd_u8(&r);
    const uint8_t *proof = dtpi_rd_bytes(&r, DTPI_HS_PROOF_BYTES);
    if (type != HS_PROOF || !dtpi_rd_done(&r))
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed proof");
    derive(hs, "libdtp client proof", want);
    if (sodium_memcmp(want, proof, sizeof(want)) != 0)
        return dtpi_fail(err, DTP_ERR_AUTH, "rank %d has another secret for job %s (DTP_SECRET)",
                         hs->who, hs->job);
    hs->state = 2;
    return DTP_OK;
}

dtp_status dtpi_hs_serve(dtpi_hs *hs, const uint8_t *data, size_t bytes, dtpi_buf *b,
                         dtp_error *err)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);

    if (dtpi_rd_u32(&r) != HS_MAGIC)
        return dtpi_fail(err, DTP_ERR_PROTO, "a stranger");
    const uint16_t version = dtpi_rd_u16(&r);
    if (r.failed)
        return dtpi_fail(err, DTP_ERR_PROTO, "a stranger");
    if (version != DTPI_WIRE_VERSION)
        return dtpi_fail(err, DTP_ERR_VERSION, "a peer speaks wire version %u, this agent %d (%s)",
                         version, DTPI_WIRE_VERSION, DTPI_VERSION);
    switch (hs->state) {
    case 0:
        return serve_hello(hs, data, bytes, b, err);
    case 1:
        return serve_proof(hs, data, bytes, err);
    default:
        return dtpi_fail(err, DTP_ERR_PROTO, "a second handshake");
    }
}

void dtpi_hs_refuse(dtpi_buf *b, const dtp_error *err)
{
    begin(b, HS_REFUSE);
    dtpi_wr_u32(b, (uint32_t)err->status);
    dtpi_wr_text(b, err->text);
}
