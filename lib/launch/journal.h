/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.h - what happened to a job, one line an event: written by the shim as it happens, and
 * read by a supervisor that attaches. The entries are the events of the job's state machine.
 *
 *     MS attempt A N          a gang of N ranks was started (MS: milliseconds since 1970)
 *     MS rank A R PID         one of its ranks
 *     MS exit A R W           rank R ended with wait status W
 *     MS ending A             the gang is being ended: what dies from here on is no cause
 *     MS reformed A N         the survivors of attempt A formed a new generation of N ranks
 *     MS gone A               no process of attempt A is left
 *     MS failed A S E R TEXT  attempt A could not start: status S, errno E, rank R (-1 none)
 *     MS lost A               the shim of attempt A died
 *     MS cancel               someone asked to cancel
 *     MS end STATE CODE       what the supervisor concluded
 */
#ifndef DTPI_LAUNCH_JOURNAL_H
#define DTPI_LAUNCH_JOURNAL_H

#include "base/buf.h"

enum { DTPI_JOURNAL_MAX_LINE = 512, DTPI_JOURNAL_MAX_BYTES = 64 << 20 };

typedef enum dtpi_journal_type {
    DTPI_JOURNAL_ATTEMPT = 1,
    DTPI_JOURNAL_RANK,
    DTPI_JOURNAL_EXIT,
    DTPI_JOURNAL_ENDING,
    DTPI_JOURNAL_GONE,
    DTPI_JOURNAL_FAILED,
    DTPI_JOURNAL_LOST,
    DTPI_JOURNAL_CANCEL,
    DTPI_JOURNAL_END,
    DTPI_JOURNAL_REFORMED
} dtpi_journal_type;

typedef struct dtpi_journal_entry {
    dtpi_journal_type type;
    int64_t ms;
    uint32_t attempt, n;
    int32_t rank, pid, wstatus;
    int32_t status, code;       /* of a failed start; state and exit code of END */
    char text[DTP_ERROR_TEXT];
} dtpi_journal_entry;

/* Appends one line. */
void dtpi_journal_format(dtpi_buf *b, const dtpi_journal_entry *e);

/*
 * Writes one line, with the time of now, to a journal that is open for reading and appending. What an
 * earlier write left cut short is ended first: only that line is lost. Errors: NOMEM, IO, NOSPC.
 */
dtp_status dtpi_journal_append(int fd, dtpi_journal_entry e, dtp_error *err);

/*
 * Reads one line, `bytes` long without its newline. Errors: FORMAT. A last line without a newline
 * is a write cut short: not to be read.
 */
dtp_status dtpi_journal_parse(const char *line, size_t bytes, dtpi_journal_entry *out,
                              dtp_error *err);

#endif /* DTPI_LAUNCH_JOURNAL_H */
