/* SPDX-License-Identifier: Apache-2.0 */
/* handshake.c - mutual proof of the job secret with libsodium's BLAKE2b. */
#include "group/handshake.h"

#include <sodium.h>
#include <stdio.h>

#include "base/text.h"
#include "group/frame.h"

/* "dtp" and a bell that no text protocol rings first. */
enum { HS_MAGIC = 0x07707464, HS_HELLO = 1, HS_CHALLENGE = 2, HS_PROOF = 3, HS_REFUSE = 4,
       HS_ASK = 5, HS_GIVE = 6, HS_HEARD = 7 };
/* Messages that a server took; or it has refused, and waits for HEARD. */
enum { TOOK_HELLO = 1, TOOK_PROOF = 2, REFUSED = 3 };
enum { FLAG_INSECURE = 1, FLAG_ENCRYPTS = 2, FLAGS = 3 };

static const uint8_t no_secret[DTP_SECRET_BYTES] = "libdtp: no secret, by agreement";

void dtpi_hs_init(dtpi_hs *hs, const dtpi_hs_opts *o)
{
    memset(hs, 0, sizeof(*hs));
    memcpy(hs->key, o->secret ? o->secret : no_secret, sizeof(hs->key));
    hs->role = (uint8_t)o->role;
    hs->asks = o->asks && !o->secret;
    hs->self = (dtpi_hs_self){
        .flags = (uint8_t)((o->secret || o->asks ? 0 : FLAG_INSECURE) | (o->encrypts ? FLAG_ENCRYPTS : 0)),
        .attempt = o->attempt, .generation = o->generation, .world = o->world, .who = o->who,
    };
    hs->peer.who = -1;
    snprintf(hs->self.version, sizeof(hs->self.version), "%s", DTPI_VERSION);
    snprintf(hs->self.job, sizeof(hs->self.job), "%s", o->job);
    snprintf(hs->self.host, sizeof(hs->self.host), "%s", o->host ? o->host : "");
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
static void prove(const dtpi_hs *hs, const char *label, uint8_t *out)
{
    crypto_generichash_state s;

    crypto_generichash_init(&s, hs->key, sizeof(hs->key), DTPI_HS_PROOF_BYTES);
    crypto_generichash_update(&s, (const uint8_t *)label, strlen(label) + 1);
    crypto_generichash_update(&s, hs->hello, hs->n_hello);
    crypto_generichash_update(&s, hs->challenge, hs->n_challenge);
    crypto_generichash_final(&s, out, DTPI_HS_PROOF_BYTES);
}

void dtpi_hs_seals(const dtpi_hs *hs, dtpi_seal *client_to_server, dtpi_seal *server_to_client)
{
    prove(hs, "libdtp session client to server", client_to_server->key);
    prove(hs, "libdtp session server to client", server_to_client->key);
    client_to_server->encrypts = server_to_client->encrypts = hs->self.flags & FLAG_ENCRYPTS;
}

/* The same over a label, the HELLO that came before, if any, and `data`. */
static void compute_tag(const dtpi_hs *hs, const char *label, const uint8_t *data, size_t bytes,
                        uint8_t *tag_out)
{
    crypto_generichash_state s;

    crypto_generichash_init(&s, hs->key, sizeof(hs->key), DTPI_HS_TAG_BYTES);
    crypto_generichash_update(&s, (const uint8_t *)label, strlen(label) + 1);
    crypto_generichash_update(&s, hs->hello, hs->n_hello);
    crypto_generichash_update(&s, data, bytes);
    crypto_generichash_final(&s, tag_out, DTPI_HS_TAG_BYTES);
}

static void add_tag(const dtpi_hs *hs, const char *label, dtpi_buf *b, size_t at)
{
    uint8_t tag[DTPI_HS_TAG_BYTES];

    if (b->failed)
        return;
    compute_tag(hs, label, b->data + at, b->len - at, tag);
    dtpi_buf_append(b, tag, sizeof(tag));
}

/* The last bytes are the tag over those before them. */
static bool tag_fits(const dtpi_hs *hs, const char *label, const uint8_t *data, size_t bytes)
{
    uint8_t tag[DTPI_HS_TAG_BYTES];

    compute_tag(hs, label, data, bytes - sizeof(tag), tag);
    return sodium_memcmp(tag, data + bytes - sizeof(tag), sizeof(tag)) == 0;
}

/* ---- client ---- */

static void ask(const dtpi_hs *hs, dtpi_buf *b)
{
    begin(b, HS_ASK);
    dtpi_wr_u8(b, hs->role);
    dtpi_wr_u32(b, (uint32_t)hs->self.who);
    dtpi_wr_text(b, hs->self.host);
    dtpi_wr_u32(b, hs->self.attempt);
    dtpi_wr_text(b, hs->self.job);
}

/* What comes before `attempt` keeps its place in every version: a refusal can name who came. */
void dtpi_hs_hello(dtpi_hs *hs, dtpi_buf *b)
{
    uint8_t nonce[DTPI_HS_NONCE_BYTES];
    const size_t at = b->len;

    if (hs->asks) {
        ask(hs, b);
        return;
    }
    randombytes_buf(nonce, sizeof(nonce));
    begin(b, HS_HELLO);
    dtpi_wr_u8(b, hs->role);
    dtpi_wr_u8(b, hs->self.flags);
    dtpi_wr_u32(b, (uint32_t)hs->self.who);
    dtpi_wr_text(b, hs->self.version);
    dtpi_wr_text(b, hs->self.host);
    dtpi_wr_u32(b, hs->self.attempt);
    dtpi_wr_u32(b, hs->self.generation);
    dtpi_wr_u32(b, hs->self.world);
    dtpi_wr_text(b, hs->self.job);
    dtpi_buf_append(b, nonce, sizeof(nonce));
    add_tag(hs, "libdtp hello", b, at);
    if (b->failed)
        return;
    hs->n_hello = b->len - at;
    memcpy(hs->hello, b->data + at, hs->n_hello);
}

static const char heard_label[] = "libdtp client heard";

static void say_heard(dtpi_hs *hs, const uint8_t *nonce, dtpi_buf *b)
{
    uint8_t proof[DTPI_HS_PROOF_BYTES];

    if (sodium_is_zero(nonce, DTPI_HS_NONCE_BYTES))
        return;
    memcpy(hs->challenge, nonce, DTPI_HS_NONCE_BYTES);
    hs->n_challenge = DTPI_HS_NONCE_BYTES;
    prove(hs, heard_label, proof);
    begin(b, HS_HEARD);
    dtpi_buf_append(b, proof, sizeof(proof));
}

static dtp_status read_refusal(dtpi_hs *hs, dtpi_rd *r, const uint8_t *data, size_t bytes,
                               dtpi_buf *b, dtp_error *err)
{
    char text[DTP_ERROR_TEXT];
    const dtp_status st = (dtp_status)dtpi_rd_u32(r);

    dtpi_rd_text(r, text, sizeof(text));
    const uint8_t *nonce = dtpi_rd_bytes(r, DTPI_HS_NONCE_BYTES);
    dtpi_rd_bytes(r, DTPI_HS_TAG_BYTES);
    if (!dtpi_rd_done(r) || st >= 0 || st < DTP_ERR_INTERRUPTED || !dtpi_utf8_ok(text, strlen(text)))
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed refusal from the agent");
    hs->is_proven = tag_fits(hs, "libdtp refusal", data, bytes);
    if (hs->is_proven)
        say_heard(hs, nonce, b);
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
        return read_refusal(hs, &r, data, bytes, b, err);
    if (version != DTPI_WIRE_VERSION)
        return dtpi_fail(err, DTP_ERR_VERSION, "the agent speaks wire version %u, this rank %d",
                         version, DTPI_WIRE_VERSION);
    const uint8_t *challenge = dtpi_rd_bytes(&r, sizeof(hs->challenge));
    const uint8_t *proof = dtpi_rd_bytes(&r, DTPI_HS_PROOF_BYTES);
    if (type != HS_CHALLENGE || !dtpi_rd_done(&r))
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed challenge from the agent");
    memcpy(hs->challenge, challenge, sizeof(hs->challenge));
    hs->n_challenge = sizeof(hs->challenge);
    prove(hs, "libdtp server proof", want);
    if (sodium_memcmp(want, proof, sizeof(want)) != 0)
        return dtpi_fail(err, DTP_ERR_AUTH, "the agent has another secret for job %s (DTP_SECRET)",
                         hs->self.job);
    prove(hs, "libdtp client proof", want);
    begin(b, HS_PROOF);
    dtpi_buf_append(b, want, sizeof(want));
    return DTP_OK;
}

/* ---- server ---- */

bool dtpi_hs_may_be_hello(const uint8_t *data, size_t bytes)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);
    const uint32_t length = dtpi_rd_u32(&r);

    if (!r.failed && (length == 0 || length > DTPI_HS_MAX_FRAME))
        return false;
    const uint32_t magic = dtpi_rd_u32(&r);
    return r.failed || magic == HS_MAGIC;
}

static bool is_newcomer(const dtpi_hs *hs)
{
    return hs->role == DTPI_HS_RANK && hs->peer.who == DTP_RANK_NEW;
}

/* "rank 3", "a newcomer", "the agent of rank 3 (node host2)". */
static const char *name_peer(const dtpi_hs *hs, char *out, size_t room)
{
    const dtpi_hs_self *p = &hs->peer;
    const char *const node = p->host[0] ? p->host : "?";

    if (is_newcomer(hs))
        snprintf(out, room, "a newcomer");
    else if (hs->role == DTPI_HS_RANK)
        snprintf(out, room, "rank %d", p->who);
    else if (p->who >= 0)
        snprintf(out, room, "the agent of rank %d (node %s)", p->who, node);
    else
        snprintf(out, room, "the agent of node %s", node);
    return out;
}

/* The part that every version understands. */
static bool read_prefix(dtpi_hs *hs, dtpi_rd *r, uint8_t *type_out, uint8_t *role_out)
{
    dtpi_hs_self *p = &hs->peer;

    *type_out = dtpi_rd_u8(r);
    if (*type_out != HS_HELLO)
        return false;
    *role_out = dtpi_rd_u8(r);
    p->flags = dtpi_rd_u8(r);
    p->who = (int32_t)dtpi_rd_u32(r);
    dtpi_rd_text(r, p->version, sizeof(p->version));
    dtpi_rd_text(r, p->host, sizeof(p->host));
    return !r->failed && *role_out == hs->role && dtpi_utf8_ok(p->version, strlen(p->version)) &&
           dtpi_utf8_ok(p->host, strlen(p->host));
}

static dtp_status other_wire(dtpi_hs *hs, dtpi_rd *r, uint16_t version, dtp_error *err)
{
    char who[128] = "a peer";
    uint8_t type, role;

    if (read_prefix(hs, r, &type, &role))
        name_peer(hs, who, sizeof(who));
    return dtpi_fail(err, DTP_ERR_VERSION,
                     "%s speaks wire version %u (libdtp %s), this agent %d (libdtp %s)", who, version,
                     hs->peer.version[0] ? hs->peer.version : "?", DTPI_WIRE_VERSION, DTPI_VERSION);
}

/* Of one who need not have the secret: nothing is said that it does not know. */
static dtp_status check_secret(const dtpi_hs *hs, const char *who, dtp_error *err)
{
    const uint8_t theirs = hs->peer.flags & FLAG_INSECURE, ours = hs->self.flags & FLAG_INSECURE;

    if (theirs && !ours)
        return dtpi_fail(err, DTP_ERR_AUTH,
                         "%s came without a secret, the group has one (DTP_INSECURE must be the same on "
                         "all ranks)", who);
    if (ours && !theirs)
        return dtpi_fail(err, DTP_ERR_AUTH,
                         "%s came with a secret, the group has none (DTP_INSECURE must be the same on "
                         "all ranks)", who);
    if (!hs->is_ours)
        return dtpi_fail(err, DTP_ERR_AUTH, "%s has another secret for job %s (DTP_SECRET)", who,
                         hs->peer.job);
    return DTP_OK;
}

static dtp_status check_membership(const dtpi_hs *hs, const char *who, dtp_error *err)
{
    const dtpi_hs_self *p = &hs->peer, *s = &hs->self;

    if (strcmp(p->job, s->job) != 0)
        return dtpi_fail(err, DTP_ERR_AUTH, "%s belongs to job %s, this is job %s", who, p->job, s->job);
    if (p->attempt != s->attempt)
        return dtpi_fail(err, DTP_ERR_INVAL, "%s belongs to attempt %u of job %s, this is attempt %u",
                         who, p->attempt, s->job, s->attempt);
    if (p->generation && p->generation != s->generation)
        return dtpi_fail(err, DTP_ERR_INVAL, "%s belongs to generation %u, this is generation %u", who,
                         p->generation, s->generation);
    return DTP_OK;
}

/* One of ours that cannot fit: world sizes of ranks are compared where they join. */
static dtp_status check_agreement(const dtpi_hs *hs, const char *who, dtp_error *err)
{
    const dtpi_hs_self *p = &hs->peer, *s = &hs->self;
    const bool theirs = p->flags & FLAG_ENCRYPTS, ours = s->flags & FLAG_ENCRYPTS;

    if (strcmp(p->version, s->version) != 0)
        return dtpi_fail(err, DTP_ERR_VERSION, "%s has libdtp %s, the agent of node %s has %s", who,
                         p->version, s->host, s->version);
    if (hs->role == DTPI_HS_AGENT && p->world && s->world && p->world != s->world)
        return dtpi_fail(err, DTP_ERR_INVAL, "%s says world size %u, that of node %s says %u", who,
                         p->world, s->host, s->world);
    if (theirs != ours)
        return dtpi_fail(err, DTP_ERR_INVAL,
                         "%s says encrypt %d, the agent of node %s says %d (DTP_ENCRYPT must be the same "
                         "on all ranks)", who, theirs, s->host, ours);
    return DTP_OK;
}

static dtp_status check_hello(dtpi_hs *hs, const uint8_t *data, size_t bytes, dtp_error *err)
{
    char who[128];

    name_peer(hs, who, sizeof(who));
    hs->is_ours = tag_fits(hs, "libdtp hello", data, bytes);
    dtp_status st = check_secret(hs, who, err);
    if (st >= 0)
        st = check_membership(hs, who, err);
    if (st < 0)
        return st;
    st = check_agreement(hs, who, err);
    /* Nobody waits for a newcomer: those who are there go on without it. */
    hs->disagrees = st < 0 && !is_newcomer(hs);
    return st;
}

static dtp_status serve_hello(dtpi_hs *hs, dtpi_rd *r, const uint8_t *data, size_t bytes, dtpi_buf *b,
                              dtp_error *err)
{
    dtpi_hs_self *p = &hs->peer;
    uint8_t proof[DTPI_HS_PROOF_BYTES], type, role;

    if (!read_prefix(hs, r, &type, &role))
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed hello");
    p->attempt = dtpi_rd_u32(r);
    p->generation = dtpi_rd_u32(r);
    p->world = dtpi_rd_u32(r);
    dtpi_rd_text(r, p->job, sizeof(p->job));
    dtpi_rd_bytes(r, DTPI_HS_NONCE_BYTES + DTPI_HS_TAG_BYTES);
    if (!dtpi_rd_done(r) || (p->flags & ~FLAGS) || bytes > sizeof(hs->hello) ||
        !dtpi_utf8_ok(p->job, strlen(p->job)))
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed hello");
    const dtp_status st = check_hello(hs, data, bytes, err);
    memcpy(hs->hello, data, bytes);
    hs->n_hello = bytes;
    if (st < 0)
        return st;
    randombytes_buf(hs->challenge, DTPI_HS_NONCE_BYTES);
    for (int i = 0; i < 4; i++)
        hs->challenge[DTPI_HS_NONCE_BYTES + i] = (uint8_t)(hs->self.generation >> (8 * i));
    hs->n_challenge = sizeof(hs->challenge);
    prove(hs, "libdtp server proof", proof);
    begin(b, HS_CHALLENGE);
    dtpi_buf_append(b, hs->challenge, sizeof(hs->challenge));
    dtpi_buf_append(b, proof, sizeof(proof));
    hs->state = TOOK_HELLO;
    return DTP_PENDING;
}

static dtp_status check_proof(dtpi_hs *hs, dtpi_rd *r, uint8_t type, const char *label, dtp_error *err)
{
    uint8_t want[DTPI_HS_PROOF_BYTES];
    const uint8_t theirs = dtpi_rd_u8(r);
    const uint8_t *proof = dtpi_rd_bytes(r, DTPI_HS_PROOF_BYTES);
    char who[128];

    if (theirs != type || !dtpi_rd_done(r))
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed proof");
    prove(hs, label, want);
    if (sodium_memcmp(want, proof, sizeof(want)) != 0)
        return dtpi_fail(err, DTP_ERR_AUTH, "%s has another secret for job %s (DTP_SECRET)",
                         name_peer(hs, who, sizeof(who)), hs->self.job);
    return DTP_OK;
}

static dtp_status serve_proof(dtpi_hs *hs, dtpi_rd *r, dtp_error *err)
{
    const dtp_status st = check_proof(hs, r, HS_PROOF, "libdtp client proof", err);

    if (st >= 0)
        hs->state = TOOK_PROOF;
    return st;
}

/* Who was refused is there, and is no echo. */
static dtp_status serve_heard(dtpi_hs *hs, dtpi_rd *r, dtp_error *err)
{
    char who[128];

    hs->state = TOOK_PROOF;
    const dtp_status st = check_proof(hs, r, HS_HEARD, heard_label, err);
    hs->is_heard = st >= 0;
    hs->disagrees = hs->is_heard;
    if (st < 0)
        return st;
    return check_agreement(hs, name_peer(hs, who, sizeof(who)), err);
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
        return other_wire(hs, &r, version, err);
    switch (hs->state) {
    case 0:
        return serve_hello(hs, &r, data, bytes, b, err);
    case TOOK_HELLO:
        return serve_proof(hs, &r, err);
    case REFUSED:
        return serve_heard(hs, &r, err);
    default:
        return dtpi_fail(err, DTP_ERR_PROTO, "a second handshake");
    }
}

void dtpi_hs_refuse(dtpi_hs *hs, dtpi_buf *b, const dtp_error *err)
{
    static const uint8_t none[DTPI_HS_TAG_BYTES];
    const size_t at = b->len;

    sodium_memzero(hs->challenge, sizeof(hs->challenge));
    if (hs->disagrees) {
        randombytes_buf(hs->challenge, DTPI_HS_NONCE_BYTES);
        hs->n_challenge = DTPI_HS_NONCE_BYTES;
        hs->state = REFUSED;
    }
    begin(b, HS_REFUSE);
    dtpi_wr_u32(b, (uint32_t)err->status);
    dtpi_wr_text(b, err->text);
    dtpi_buf_append(b, hs->challenge, DTPI_HS_NONCE_BYTES);
    if (hs->is_ours)
        add_tag(hs, "libdtp refusal", b, at);
    else
        dtpi_buf_append(b, none, sizeof(none));
}

/* ---- before it ---- */

dtp_status dtpi_hs_serve_ask(dtpi_hs *hs, const uint8_t *data, size_t bytes, dtp_error *err)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);
    dtpi_hs_self *p = &hs->peer;
    char who[128];

    if (dtpi_rd_u32(&r) != HS_MAGIC || dtpi_rd_u16(&r) != DTPI_WIRE_VERSION ||
        dtpi_rd_u8(&r) != HS_ASK || r.failed)
        return DTP_PENDING;
    const uint8_t role = dtpi_rd_u8(&r);
    p->who = (int32_t)dtpi_rd_u32(&r);
    dtpi_rd_text(&r, p->host, sizeof(p->host));
    p->attempt = dtpi_rd_u32(&r);
    dtpi_rd_text(&r, p->job, sizeof(p->job));
    if (!dtpi_rd_done(&r) || role != hs->role || hs->state)
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed question for the secret");
    if (strcmp(p->job, hs->self.job) != 0 || p->attempt != hs->self.attempt)
        return dtpi_fail(err, DTP_ERR_AUTH,
                         "%s asks for the secret of job %s (attempt %u), which is not this one",
                         name_peer(hs, who, sizeof(who)), p->job, p->attempt);
    return DTP_OK;
}

void dtpi_hs_give(dtpi_buf *b, dtpi_hs_gift kind, const void *data, size_t bytes)
{
    begin(b, HS_GIVE);
    dtpi_wr_u8(b, (uint8_t)kind);
    dtpi_wr_block(b, data, bytes);
}

bool dtpi_hs_read_gift(const uint8_t *data, size_t bytes, uint8_t *kind_out, const uint8_t **data_out,
                       size_t *bytes_out)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);

    if (dtpi_rd_u32(&r) != HS_MAGIC || dtpi_rd_u16(&r) != DTPI_WIRE_VERSION || dtpi_rd_u8(&r) != HS_GIVE)
        return false;
    *kind_out = dtpi_rd_u8(&r);
    *data_out = dtpi_rd_block(&r, DTPI_HS_MAX_FRAME, bytes_out);
    return dtpi_rd_done(&r);
}

void dtpi_hs_set_secret(dtpi_hs *hs, const uint8_t *secret)
{
    memcpy(hs->key, secret, sizeof(hs->key));
    hs->asks = false;
}
