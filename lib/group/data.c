/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - bulk data between the ranks of a group. */
#include "group/group_internal.h"

dtp_status dtpi_group_data_open(dtp_group *g, int64_t deadline_ns, dtp_error *err)
{
    (void)g;
    (void)deadline_ns;
    return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "no network module is built in");
}

dtp_status dtpi_group_send(dtp_group *g, int32_t to, uint32_t tag, const void *data, size_t bytes,
                           dtpi_xfer *x, dtp_error *err)
{
    return dtpi_group_data_open(g, 0, err);
}

dtp_status dtpi_group_recv(dtp_group *g, int32_t from, uint32_t tag, void *data, size_t bytes,
                           dtpi_xfer *x, dtp_error *err)
{
    return dtpi_group_data_open(g, 0, err);
}

bool dtpi_group_data_progress(dtp_group *g)
{
    (void)g;
    return false;
}

void dtpi_group_data_lane(dtp_group *g, int32_t rank, char *text_out, size_t room)
{
    (void)g;
    (void)rank;
    text_out[0] = '\0';
}

void group_data_close(dtp_group *g)
{
    (void)g;
}
