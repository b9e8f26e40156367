/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - how the recorder writes down what a program does below a folder: a head and its bytes. */
#ifndef DTP_TESTS_CRASH_RECORD_H
#define DTP_TESTS_CRASH_RECORD_H

#include <stdint.h>

enum { RECORD_MARK = 100 };     /* beside the kinds of crash_kind: the program's own word, in `at` */

/* Followed by path, to and data. Paths are relative to the folder, "" is itself. */
typedef struct record_head {
    uint32_t kind;
    uint32_t path_bytes, to_bytes;
    uint32_t unused;
    uint64_t inode;             /* of the file or folder; one of a file that is gone may come again */
    uint64_t at;
    uint64_t bytes;
} record_head;

/* Recorder's, in any program: marks that something was promised. Absent where it is not preloaded. */
void crash_mark(uint64_t what) __attribute__((weak));

enum { CRASH_SHORT = -1 };      /* instead of an error: a write of fewer bytes */

/* The nth call about the folder from now on, of this process, fails with an error, or CRASH_SHORT. */
void crash_fail(long nth, int how) __attribute__((weak));
int crash_fail_is_over(void) __attribute__((weak));

#endif /* DTP_TESTS_CRASH_RECORD_H */
