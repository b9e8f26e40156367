/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_secret.c - hands the job's secret over where the launcher carries none.
 *
 * The root's agent makes it. Ranks get it from their agent, as processes of the same user (the kernel
 * says so); agents get it from their parent in a MUNGE credential that their user alone can read.
 */
#include "group/agent_internal.h"

#include <sodium.h>

#include "group/munge.h"

/* A credential serves all who ask for a while: each machine may read it once. */
enum { CREDENTIAL_MS = 100 };

void agent_secret_make(dtpi_agent *agent)
{
    randombytes_buf(agent->secret, sizeof(agent->secret));
    agent->lacks_secret = false;
}

static dtp_status renew_credential(dtpi_agent *agent, dtp_error *err)
{
    const int64_t now = dtp_ctx_now_ns(agent->ctx);

    if (agent->credential[0] && now - agent->credential_ns < CREDENTIAL_MS * DTPI_NS_PER_MS)
        return DTP_OK;
    agent->credential[0] = '\0';
    const dtp_status st = dtpi_munge_encode(agent->munge, agent->job, agent->o.attempt, agent->secret,
                                            agent->credential, err);
    agent->credential_ns = now;
    return st;
}

dtp_status agent_secret_give(struct agent_conn *conn, dtp_error *err)
{
    dtpi_agent *agent = conn->agent;
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(agent->ctx));

    if (!agent->o.munge)
        return dtpi_fail(err, DTP_ERR_AUTH, "the secret of job %s is not handed over by MUNGE: it has to be "
                         "set on all ranks (DTP_SECRET)", agent->job);
    if (agent->secret_trouble.status < 0) {
        *err = agent->secret_trouble;
        return err->status;
    }
    if (agent->lacks_secret)
        return conn->hs.role == DTPI_HS_RANK
                   ? DTP_PENDING
                   : dtpi_fail(err, DTP_ERR_BUSY, "node %s waits for the secret itself", agent->host);
    if (conn->hs.role == DTPI_HS_RANK) {
        dtpi_hs_give(&b, DTPI_HS_PLAIN, agent->secret, sizeof(agent->secret));
    } else {
        const dtp_status st = renew_credential(agent, err);
        if (st < 0)
            return st;
        dtpi_hs_give(&b, DTPI_HS_MUNGE, agent->credential, strlen(agent->credential));
    }
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    if (!m)
        return dtpi_fail_nomem(err, 0);
    if (dtpi_link_send(conn->link, m, NULL, 0) && dtpi_link_is_idle(conn->link))
        sodium_memzero(m->buf.data, m->buf.len);
    return DTP_OK;
}

/* Also those that seek the parent at other addresses go on with it. */
static void spread(dtpi_agent *agent)
{
    for (struct agent_conn *conn = agent->conns; conn; conn = conn->next)
        if (conn->role == CONN_STRANGER || conn->role == CONN_CONNECTING)
            dtpi_hs_set_secret(&conn->hs, agent->secret);
    agent_door_secret_is_there(agent);
}

void agent_secret_failed(dtpi_agent *agent, dtp_status status, const char *why)
{
    if (!agent->lacks_secret || agent->secret_trouble.status < 0)
        return;
    dtpi_fail(&agent->secret_trouble, status, "%s", why);
    agent_door_secret_is_there(agent);
}

static dtp_status take(dtpi_agent *agent, uint8_t kind, const uint8_t *data, size_t bytes, dtp_error *err)
{
    char text[DTPI_MUNGE_TEXT];

    if (!agent->lacks_secret)
        return DTP_OK;          /* another address gave it before */
    if (kind != DTPI_HS_MUNGE || bytes >= sizeof(text) || memchr(data, 0, bytes))
        return dtpi_fail(err, DTP_ERR_PROTO, "malformed gift of the secret");
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    const dtp_status st = dtpi_munge_decode(agent->munge, agent->job, agent->o.attempt, text,
                                            agent->secret, err);
    if (st < 0)
        return st;
    agent->lacks_secret = false;
    spread(agent);
    return DTP_OK;
}

dtp_status agent_secret_take(struct agent_conn *conn, const uint8_t *data, size_t bytes, dtp_error *err)
{
    dtpi_buf b = dtpi_buf_init(dtpi_ctx_alloc(conn->agent->ctx));
    const uint8_t *gift;
    size_t n_gift;
    uint8_t kind;

    if (!dtpi_hs_read_gift(data, bytes, &kind, &gift, &n_gift))
        return DTP_PENDING;
    const dtp_status st = take(conn->agent, kind, gift, n_gift, err);
    if (st < 0)
        return st;
    dtpi_hs_set_secret(&conn->hs, conn->agent->secret);
    dtpi_hs_hello(&conn->hs, &b);
    DTPI_AUTO(msg) dtpi_msg *m = dtpi_msg_new(&b);
    if (!m || !dtpi_link_send(conn->link, m, NULL, 0))
        return dtpi_fail(err, DTP_ERR_IO, "cannot answer the parent");
    return DTP_OK;
}
