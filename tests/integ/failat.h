/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failat.h - for a program that cannot call the preloaded library: the environment says what fails.
 *
 * FAIL_AT="PROGRAM KIND N": the Nth call (or allocation) of that program fails; FAIL_LOG=FILE is told.
 */
#ifndef DTP_TESTS_FAILAT_H
#define DTP_TESTS_FAILAT_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char *program_invocation_short_name;

/* 0: nothing fails here. */
static inline long failat_nth(const char *kind)
{
    const char *text = getenv("FAIL_AT");
    char program[32], what[32];
    long nth;

    if (!text || sscanf(text, "%31s %31s %ld", program, what, &nth) != 3 ||
        strcmp(program, program_invocation_short_name) != 0 || strcmp(what, kind) != 0)
        return 0;
    return nth;
}

/* By system calls alone: the names of libc may be ours. */
static inline void failat_say(const char *name, int error)
{
    const char *path = getenv("FAIL_LOG");
    char line[80];

    if (!path)
        return;
    const int n = snprintf(line, sizeof(line), "%s %d\n", name, error);
    const long fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0)
        return;
    syscall(SYS_write, fd, line, n);
    syscall(SYS_close, fd);
}

#endif /* DTP_TESTS_FAILAT_H */
