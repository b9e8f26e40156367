/* SPDX-License-Identifier: Apache-2.0 */
/* posix.h - opens the POSIX member of the family. */
#ifndef DTPI_FILES_POSIX_H
#define DTPI_FILES_POSIX_H

#include "files/files.h"

dtp_status dtpi_files_posix_open(const dtp_allocator *a, dtpi_files **files_out, dtp_error *err);

#endif /* DTPI_FILES_POSIX_H */
