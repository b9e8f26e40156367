/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn.h - starts one process from data: program, arguments, environment, folder, processors.
 *
 * The child shares the parent's memory until it has executed the program (as vfork does), so that a
 * failure is known here, with its cause, when the call returns. It gets a process group of its own,
 * /dev/null as input, pipes as output, default signals, and SIGKILL when the calling thread's
 * process dies. Meant for the small shim: single-threaded callers only.
 */
#ifndef DTPI_LAUNCH_SPAWN_H
#define DTPI_LAUNCH_SPAWN_H

#include <limits.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/cpuset.h"

typedef struct dtpi_spawn_req {
    const char *path;                   /* the program, as dtpi_find_program wrote it */
    const char *const *argv;
    const char *const *envp;
    const char *cwd;                    /* NULL: the caller's */
    const dtpi_cpuset *cpus;            /* NULL: the caller's */
    int keep_fd;                        /* stays open in the child under its number; -1: none */
    const struct rlimit *files;         /* RLIMIT_NOFILE of the child; NULL: the caller's */
} dtpi_spawn_req;

typedef struct dtpi_child {
    pid_t pid;                          /* its process group too */
    int pidfd;
    int out_fd, err_fd;                 /* ends to read, non-blocking, CLOEXEC */
} dtpi_child;

/* Errors: EXEC (errno kept: ENOENT, EACCES, ENOEXEC ...), LIMIT (descriptors, processes), IO, PERM.
 */
dtp_status dtpi_spawn(const dtpi_spawn_req *req, dtpi_child *child_out, dtp_error *err);

/*
 * Where `name` is found: as it stands when it has a slash (relative to `cwd`), else in `path_list`
 * (PATH; NULL: /usr/local/bin:/usr/bin:/bin). Errors: EXEC with ENOENT or EACCES, naming the
 * program.
 */
dtp_status dtpi_find_program(const char *name, const char *path_list, const char *cwd,
                             char path_out[PATH_MAX], dtp_error *err);

/*
 * Raises the soft limit of descriptors to the hard one and checks that `need` fit; `old_out` gets
 * what it was, to restore in children. Errors: LIMIT ("need 2048 descriptors, limit 1024").
 */
dtp_status dtpi_raise_files(uint64_t need, struct rlimit *old_out, dtp_error *err);

/*
 * Counts the processes whose environment holds `mark` (NAME=VALUE, whole) and sends them `signal`
 * (0: none). For what a dead shim has left behind. Never the caller itself.
 */
uint32_t dtpi_sweep(const dtp_allocator *a, const char *mark, int signal);

/*
 * Sends `signal` to every child of the calling process but those for which keep(user, pid) is true
 * (NULL: none is kept); returns how many were signalled. Zombies do not count.
 */
uint32_t dtpi_signal_children(int signal, bool (*keep)(void *user, pid_t pid), void *user);

#endif /* DTPI_LAUNCH_SPAWN_H */
