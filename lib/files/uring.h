/* SPDX-License-Identifier: Apache-2.0 */
/* uring.h - opens the member that goes around the page cache. */
#ifndef DTPI_FILES_URING_H
#define DTPI_FILES_URING_H

#include "files/files.h"

/* Errors: UNSUPPORTED (the kernel or a filter of system calls refuses io_uring), NOMEM. */
dtp_status dtpi_files_uring_open(const dtp_allocator *a, dtpi_files **files_out, dtp_error *err);

#endif /* DTPI_FILES_URING_H */
