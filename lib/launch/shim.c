/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim.c - starts the shim program with a socket to it, or connects to one.
 *
 * The program forks once, when it is still small, and its first process ends at once; that one is
 * waited for by its own id. Where a host's waitpid(-1) was quicker, nothing is lost: what counts is
 * the answer on the socket.
 */
#include "launch/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Above the numbers that the shim expects, so that no dup2 overwrites a source. */
enum { FIRST_FREE_FD = 16 };

static dtp_status add_fd(posix_spawn_file_actions_t *fa, int fd, int as, int *moved_out,
                         dtp_error *err)
{
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FREE_FD);

    if (moved < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot copy a descriptor: %m");
    *moved_out = moved;
    if (posix_spawn_file_actions_adddup2(fa, moved, as) != 0)
        return dtpi_fail_nomem(err, 0);
    return DTP_OK;
}

static dtp_status run(const dtpi_shim_start *start, posix_spawn_file_actions_t *fa,
                      posix_spawnattr_t *attr, dtp_error *err)
{
    const char *argv[] = { start->program, start->job_dir, NULL };
    sigset_t all, none;
    pid_t pid;

    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(attr, &all);
    posix_spawnattr_setsigmask(attr, &none);
    posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF |
                                       POSIX_SPAWN_SETSIGMASK);
    const int e = posix_spawn(&pid, start->program, fa, attr, (char *const *)(uintptr_t)argv,
                              (char *const *)(uintptr_t)start->env);
    if (e) {
        errno = e;
        return dtpi_fail(err, DTP_ERR_EXEC, "cannot start the shim %s: %m", start->program);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return DTP_OK;
}

static dtp_status prepare(const dtpi_shim_start *start, int conn_fd, int moved[3],
                          posix_spawn_file_actions_t *fa, dtp_error *err)
{
    dtp_status st = add_fd(fa, conn_fd, DTPI_SHIM_FD_CONN, &moved[0], err);
    if (st >= 0)
        st = add_fd(fa, start->alive_fd, DTPI_SHIM_FD_ALIVE, &moved[1], err);
    if (st >= 0 && start->locks_fd >= 0)
        st = add_fd(fa, start->locks_fd, DTPI_SHIM_FD_LOCKS, &moved[2], err);
    if (st < 0)
        return st;
    /* What the caller has open under that number must not be taken for its locks. */
    if (start->locks_fd < 0 && posix_spawn_file_actions_addclose(fa, DTPI_SHIM_FD_LOCKS) != 0)
        return dtpi_fail_nomem(err, 0);
    if (posix_spawn_file_actions_addopen(fa, 0, "/dev/null", O_RDONLY, 0) != 0 ||
        posix_spawn_file_actions_addopen(fa, 1, "/dev/null", O_WRONLY, 0) != 0 ||
        posix_spawn_file_actions_adddup2(fa, 1, 2) != 0)
        return dtpi_fail_nomem(err, 0);
    return DTP_OK;
}

dtp_status dtpi_shim_spawn(const dtpi_shim_start *start, int *fd_out, dtp_error *err)
{
    int pair[2], moved[3] = { -1, -1, -1 };
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make a socket: %m");
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&attr);
    dtp_status st = prepare(start, pair[1], moved, &fa, err);
    if (st >= 0)
        st = run(start, &fa, &attr, err);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    for (size_t i = 0; i < DTPI_ARRAY_LEN(moved); i++)
        dtpi_close_fd(&moved[i]);
    dtpi_close_fd(&pair[1]);
    if (st < 0) {
        dtpi_close_fd(&pair[0]);
        return st;
    }
    *fd_out = pair[0];
    return DTP_OK;
}

dtp_status dtpi_shim_connect(const char *job_dir, int *fd_out, dtp_error *err)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };

    /* Through the folder's descriptor: a socket's name has at most 107 bytes, a folder's more. */
    DTPI_AUTO_FD int dir = open(job_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open %s: %m", job_dir);
    /* Non-blocking: a shim that is stopped accepts nobody, and its queue of callers is short. */
    DTPI_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make a socket: %m");
    snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/sock", dir);
    if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0) {
        if (errno == ECONNREFUSED || errno == ENOENT)
            return dtpi_fail(err, DTP_ERR_NOT_FOUND, "no shim listens in %s", job_dir);
        if (errno == EAGAIN)
            return dtpi_fail(err, DTP_ERR_BUSY, "the shim in %s accepts nobody at present", job_dir);
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot reach the shim in %s: %m",
                         job_dir);
    }
    *fd_out = dtpi_take_fd(&fd);
    return DTP_OK;
}
