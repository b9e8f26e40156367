/* SPDX-License-Identifier: Apache-2.0 */
/* posix.c - the member that needs nothing but plain system calls. */
#include "files/posix.h"

#include "files/sys.h"

static const struct dtpi_files_ops posix_ops = {
    .name = "posix",
    .create = dtpi_sys_create,
    .open = dtpi_sys_open,
    DTPI_SYS_OPS,
};

dtp_status dtpi_files_posix_open(const dtp_allocator *a, dtpi_files **files_out, dtp_error *err)
{
    dtpi_files *files = dtpi_alloc(a, sizeof(*files));

    if (!files)
        return dtpi_fail_nomem(err, sizeof(*files));
    *files = (dtpi_files){ .ops = &posix_ops, .a = a };
    *files_out = files;
    return DTP_OK;
}
