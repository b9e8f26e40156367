/* SPDX-License-Identifier: Apache-2.0 */
/* opts.c - reads and fills structs that start with `size`, so that old and new callers mix. */
#include "base/base.h"

dtp_status dtpi_opts_read(void *opts_out, size_t own_bytes, const void *user, dtp_error *err)
{
    size_t user_bytes;

    memset(opts_out, 0, own_bytes);
    if (!user) {
        memcpy(opts_out, &own_bytes, sizeof(own_bytes));
        return DTP_OK;
    }
    memcpy(&user_bytes, user, sizeof(user_bytes));
    if (user_bytes < sizeof(size_t) || user_bytes > 65536)
        return dtpi_fail(err, DTP_ERR_INVAL, "option struct: size %zu was not set by *_INIT",
                         user_bytes);
    for (size_t i = own_bytes; i < user_bytes; i++)
        if (((const unsigned char *)user)[i])
            return dtpi_fail(err, DTP_ERR_VERSION,
                             "option struct: an option at byte %zu is newer than this library (%s)",
                             i, DTPI_VERSION);
    memcpy(opts_out, user, DTPI_MIN(own_bytes, user_bytes));
    memcpy(opts_out, &own_bytes, sizeof(own_bytes));
    return DTP_OK;
}

dtp_status dtpi_result_write(void *user, const void *own, size_t own_bytes, dtp_error *err)
{
    size_t user_bytes;

    memcpy(&user_bytes, user, sizeof(user_bytes));
    if (user_bytes < sizeof(size_t) || user_bytes > 65536)
        return dtpi_fail(err, DTP_ERR_INVAL, "result struct: size %zu was not set", user_bytes);
    memset(user, 0, user_bytes);
    memcpy(user, own, DTPI_MIN(own_bytes, user_bytes));
    memcpy(user, &user_bytes, sizeof(user_bytes));
    return DTP_OK;
}
