/* SPDX-License-Identifier: Apache-2.0 */
/* link_group.c - the ranks of a save talk over their group, on the lane of checkpoints. */
#include "ckpt/link.h"
#include "group/group.h"

static dtp_status gather_group(dtpi_link *link, const void *data, size_t bytes, dtpi_buf *out,
                               size_t *sizes_out, dtp_error *err)
{
    const dtpi_group_link *l = DTPI_CONTAINER(link, dtpi_group_link, base);
    const int64_t deadline = dtpi_ctx_deadline(dtpi_group_ctx(l->group), l->timeout_ms,
                                               dtpi_group_timeout_ms(l->group));
    dtp_op *op = NULL;

    dtp_status st =
        dtpi_group_allgather_on(l->group, DTPI_LANE_CKPT, data, bytes, deadline, &op, err);
    if (st < 0)
        return st;
    const dtpi_gathered *all = dtpi_group_gathered(op);
    memcpy(sizes_out, all->sizes, (size_t)link->size * sizeof(*sizes_out));
    if (!dtpi_buf_append(out, all->data, all->bytes))
        st = dtpi_fail_nomem(err, all->bytes);
    dtp_op_free(op);
    return st;
}

void dtpi_link_group(dtpi_group_link *link, dtp_group *group, int32_t timeout_ms)
{
    *link = (dtpi_group_link){
        .base = {
            .rank = dtp_group_rank(group),
            .size = dtp_group_size(group),
            .attempt = dtp_group_attempt(group),
            .generation = dtp_group_generation(group),
            .max_bytes = DTP_GROUP_MAX_MSG / 4 * 3,
            .gather = gather_group,
        },
        .group = group,
        .timeout_ms = timeout_ms,
    };
}
