/* SPDX-License-Identifier: Apache-2.0 */
/* agent_ucx.c - carries control messages between agents: over the TCP link. */
#include "group/agent_internal.h"

void agent_seal(struct agent_conn *conn, const uint8_t *key_out, const uint8_t *key_in)
{
    dtpi_link_seal(conn->link, key_out, key_in);
}

void agent_carrier_offer(struct agent_conn *conn)
{
    (void)conn;
}

bool agent_carrier_frame(struct agent_conn *conn, const uint8_t *data, size_t bytes)
{
    (void)conn;
    (void)data;
    (void)bytes;
    return false;
}

void agent_carry(struct agent_conn *conn, dtpi_msg *msg)
{
    dtpi_link_send(conn->link, msg, NULL, 0);
}

void agent_carrier_close(struct agent_conn *conn)
{
    (void)conn;
}

void agent_carriers_close(dtpi_agent *agent)
{
    (void)agent;
}
