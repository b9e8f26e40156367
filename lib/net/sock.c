/* SPDX-License-Identifier: Apache-2.0 */
/* sock.c - Unix sockets: listening, connecting, who is at the other end. */
#include "net/sock.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

static dtp_status unix_address(const char *name, struct sockaddr_un *sa, socklen_t *len_out,
                               dtp_error *err)
{
    const size_t n = strlen(name);

    memset(sa, 0, sizeof(*sa));
    sa->sun_family = AF_UNIX;
    if (n == 0 || n >= sizeof(sa->sun_path))
        return dtpi_fail(err, DTP_ERR_INVAL, "socket name '%.64s' has %zu characters, 1 to %zu fit",
                         name, n, sizeof(sa->sun_path) - 1);
    memcpy(sa->sun_path, name, n);
    if (name[0] == '@')
        sa->sun_path[0] = '\0';
    *len_out = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (name[0] == '@' ? 0 : 1));
    return DTP_OK;
}

/* A path whose owner is gone stays in the file system; a full queue is a sign of life. */
static void remove_stale(const char *name)
{
    DTPI_AUTO_FD int fd = -1;
    struct stat st;

    if (lstat(name, &st) == 0 && S_ISSOCK(st.st_mode) &&
        dtpi_unix_connect(name, &fd, NULL) == DTP_PENDING && errno == ECONNREFUSED)
        unlink(name);
}

dtp_status dtpi_unix_listen(const char *name, int *fd_out, dtp_error *err)
{
    struct sockaddr_un sa;
    socklen_t len;

    dtp_status st = unix_address(name, &sa, &len, err);
    if (st < 0)
        return st;
    DTPI_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open a Unix socket: %m");
    if (name[0] != '@') {
        remove_stale(name);
        fchmod(fd, 0600);
    }
    if (bind(fd, (struct sockaddr *)&sa, len) < 0)
        return dtpi_fail(err, errno == EADDRINUSE ? DTP_ERR_EXISTS : dtpi_status_of_errno(errno),
                         "cannot bind socket %s: %m", name);
    if (name[0] != '@' && chmod(name, 0600) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot protect socket %s: %m", name);
    if (listen(fd, BACKLOG) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot listen on socket %s: %m", name);
    *fd_out = dtpi_take_fd(&fd);
    return DTP_OK;
}

dtp_status dtpi_unix_connect(const char *name, int *fd_out, dtp_error *err)
{
    struct sockaddr_un sa;
    socklen_t len;

    dtp_status st = unix_address(name, &sa, &len, err);
    if (st < 0)
        return st;
    DTPI_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open a Unix socket: %m");
    if (connect(fd, (struct sockaddr *)&sa, len) < 0) {
        if (errno == ECONNREFUSED || errno == ENOENT || errno == EAGAIN || errno == EINTR)
            return DTP_PENDING;
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot connect to socket %s: %m", name);
    }
    *fd_out = dtpi_take_fd(&fd);
    return DTP_OK;
}

dtp_status dtpi_unix_peer(int fd, uid_t *uid_out, pid_t *pid_out, dtp_error *err)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot read a peer's credentials: %m");
    *uid_out = cred.uid;
    *pid_out = cred.pid;
    return DTP_OK;
}
