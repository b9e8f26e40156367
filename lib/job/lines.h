/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h - cuts a stream of bytes into lines; pure. */
#ifndef DTPI_JOB_LINES_H
#define DTPI_JOB_LINES_H

#include "base/buf.h"

/* A longer line is given in pieces of this many bytes. */
enum { DTPI_LINE_MAX = 64 << 10 };

/* Gets a line without its newline, terminated; it may hold any byte, NUL too. */
typedef void (*dtpi_line_fn)(void *user, const char *line, size_t bytes);

/* Adds bytes; `part` (a caller's buffer per stream) keeps what has no newline yet. */
void dtpi_lines_feed(dtpi_buf *part, const void *data, size_t bytes, dtpi_line_fn fn, void *user);
/* The stream has ended: gives a last line without newline. */
void dtpi_lines_end(dtpi_buf *part, dtpi_line_fn fn, void *user);

#endif /* DTPI_JOB_LINES_H */
