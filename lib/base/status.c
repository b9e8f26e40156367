/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - names and texts of the status codes, from one list. */
#include "base/base.h"

#define STATUS_LIST(X)                                                                              \
    X(DTP_OK, "done")                                                                               \
    X(DTP_PENDING, "the operation goes on")                                                         \
    X(DTP_END, "nothing more to give")                                                              \
    X(DTP_ERR_INVAL, "an argument is wrong or the call is out of order")                            \
    X(DTP_ERR_NOMEM, "out of memory")                                                               \
    X(DTP_ERR_IO, "input or output failed")                                                         \
    X(DTP_ERR_TIMEOUT, "the deadline passed")                                                       \
    X(DTP_ERR_BUSY, "in use by another")                                                            \
    X(DTP_ERR_CANCELED, "cancelled")                                                                \
    X(DTP_ERR_ABORTED, "aborted")                                                                   \
    X(DTP_ERR_FORKED, "the handle belongs to the parent process")                                   \
    X(DTP_ERR_NOT_FOUND, "not found")                                                               \
    X(DTP_ERR_EXISTS, "already there")                                                              \
    X(DTP_ERR_UNSUPPORTED, "not supported here")                                                    \
    X(DTP_ERR_PERM, "not allowed")                                                                  \
    X(DTP_ERR_AUTH, "the peer could not prove the job secret")                                      \
    X(DTP_ERR_FORMAT, "malformed")                                                                  \
    X(DTP_ERR_TRUNCATED, "ends too early")                                                          \
    X(DTP_ERR_CORRUPT, "a checksum does not match")                                                 \
    X(DTP_ERR_RANGE, "out of range")                                                                \
    X(DTP_ERR_NOSPC, "no space left")                                                               \
    X(DTP_ERR_PROTO, "a peer broke the protocol")                                                   \
    X(DTP_ERR_VERSION, "versions do not fit together")                                              \
    X(DTP_ERR_PEER, "ranks are missing or died")                                                    \
    X(DTP_ERR_LIMIT, "not enough of a resource")                                                    \
    X(DTP_ERR_EXEC, "a program could not be started")                                               \
    X(DTP_ERR_INTERRUPTED, "interrupted by the caller")

const char *dtp_status_name(dtp_status status)
{
    switch (status) {
#define NAME_CASE(code, text) \
    case code:                \
        return #code;
        STATUS_LIST(NAME_CASE)
#undef NAME_CASE
    default:
        return "unknown";
    }
}

const char *dtp_status_text(dtp_status status)
{
    switch (status) {
#define TEXT_CASE(code, text) \
    case code:                \
        return text;
        STATUS_LIST(TEXT_CASE)
#undef TEXT_CASE
    default:
        return "unknown status";
    }
}

const char *dtp_version(void)
{
    return DTPI_VERSION;
}
