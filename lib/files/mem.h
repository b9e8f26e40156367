/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h - files in memory that remember every operation: the double for tests of durability.
 *
 * An operation can be made to fail with an errno, the room can be bounded, and the state that a crash
 * after any operation would leave can be built and used like any other files.
 */
#ifndef DTPI_FILES_MEM_H
#define DTPI_FILES_MEM_H

#include "files/files.h"

/* What a crash keeps of what was not synced. */
typedef enum dtpi_mem_crash {
    DTPI_MEM_ALL = 0,           /* everything: the process died, the machine did not */
    DTPI_MEM_SYNCED = 1,        /* only synced data, and names of synced folders */
    DTPI_MEM_NAMES = 2,         /* all names; data that was not synced reads as zeros */
    DTPI_MEM_TORN = 3,          /* everything, but the last write is cut in half */
    DTPI_MEM_CRASH_END = 4
} dtpi_mem_crash;

/* Any thread may use it. */
dtp_status dtpi_files_mem_open(const dtp_allocator *a, dtpi_files **files_out, dtp_error *err);

/* Operations that changed something so far. */
uint32_t dtpi_files_mem_n_ops(dtpi_files *files);
/* Text of operation `i`, such as "write step-1/x 0+4096", for messages. */
void dtpi_files_mem_op_text(dtpi_files *files, uint32_t i, char *text_out, size_t room);

/* Files as a crash after the first `n_ops` operations leaves them. Close it. Errors: NOMEM. */
dtp_status dtpi_files_mem_crash(dtpi_files *files, uint32_t n_ops, dtpi_mem_crash how,
                                dtpi_files **files_out, dtp_error *err);

/* Calls so far, reading ones too; the `nth` call from now on (1: the next) fails with `e`; 0: none. */
uint32_t dtpi_files_mem_n_calls(dtpi_files *files);
void dtpi_files_mem_fail(dtpi_files *files, uint32_t nth, int e);
/* Bytes that all files together may have. */
void dtpi_files_mem_limit(dtpi_files *files, uint64_t bytes);

/* Changes stored bytes behind the back of everybody: flips `mask` at `at`. Errors: NOT_FOUND, RANGE. */
dtp_status dtpi_files_mem_flip(dtpi_files *files, const char *path, uint64_t at, uint8_t mask,
                               dtp_error *err);
/* Cuts or extends a file. */
dtp_status dtpi_files_mem_resize(dtpi_files *files, const char *path, uint64_t bytes,
                                 dtp_error *err);

#endif /* DTPI_FILES_MEM_H */
