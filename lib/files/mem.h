/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h - files in memory that remember every operation: the double for tests of durability.
 *
 * An operation can be made to fail with an errno, the room can be bounded, and a test can read what
 * was done and build what a crash after any operation may leave (tests/crash).
 */
#ifndef DTPI_FILES_MEM_H
#define DTPI_FILES_MEM_H

#include "files/files.h"

/* What an operation did. `node` is a file or folder, numbered as they were made. */
typedef enum dtpi_mem_kind {
    DTPI_MEM_CREATE,            /* of `at` bytes */
    DTPI_MEM_WRITE,
    DTPI_MEM_CUT,               /* size becomes `at` */
    DTPI_MEM_SYNC,
    DTPI_MEM_SYNC_LOST,         /* failed: what was not durable may never become so */
    DTPI_MEM_PUBLISH,           /* a rename to `to` */
    DTPI_MEM_SYNC_DIR,
    DTPI_MEM_MAKE_DIR,
    DTPI_MEM_REMOVE,
    DTPI_MEM_REMOVE_DIR
} dtpi_mem_kind;

#define DTPI_MEM_ROOT UINT32_MAX        /* node of the folder in which paths begin */

/* Lent by the files. */
typedef struct dtpi_mem_op {
    dtpi_mem_kind kind;
    uint32_t node;
    const char *path, *to;
    uint64_t at;
    const uint8_t *data;
    size_t bytes;
} dtpi_mem_op;

/* Any thread may use it. */
dtp_status dtpi_files_mem_open(const dtp_allocator *a, dtpi_files **files_out, dtp_error *err);

/* Operations that changed something so far. */
uint32_t dtpi_files_mem_n_ops(dtpi_files *files);
/* Text of operation `i`, such as "write step-1/x 0+4096", for messages. */
void dtpi_files_mem_op_text(dtpi_files *files, uint32_t i, char *text_out, size_t room);

void dtpi_files_mem_op(dtpi_files *files, uint32_t i, dtpi_mem_op *op_out);

/* Is called at the beginning of every call, by its thread: a test chooses who goes on. */
void dtpi_files_mem_hook(dtpi_files *files, void (*hook)(void *user), void *user);

/*
 * Calls so far, reading ones too; the `nth` call from now on (1: the next) fails with `e`; 0: none. A
 * write that fails has written half, a failed sync or close has lost what was not durable; where
 * `late`, a rename that fails was done all the same.
 */
uint32_t dtpi_files_mem_n_calls(dtpi_files *files);
void dtpi_files_mem_fail(dtpi_files *files, uint32_t nth, int e);
void dtpi_files_mem_fail_late(dtpi_files *files, bool late);
/*
 * Nothing is done from the `nth` call from now on, as if those who call were killed before it; 0: others
 * live on with what they left.
 */
void dtpi_files_mem_die(dtpi_files *files, uint32_t nth);
/* Bytes that all files together may have. */
void dtpi_files_mem_limit(dtpi_files *files, uint64_t bytes);

/* Changes stored bytes behind the back of everybody: flips `mask` at `at`. Errors: NOT_FOUND, RANGE. */
dtp_status dtpi_files_mem_flip(dtpi_files *files, const char *path, uint64_t at, uint8_t mask,
                               dtp_error *err);
/* Cuts or extends a file. */
dtp_status dtpi_files_mem_resize(dtpi_files *files, const char *path, uint64_t bytes,
                                 dtp_error *err);

#endif /* DTPI_FILES_MEM_H */
