/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys.c - files through plain system calls: pwrite and pread in a loop, fallocate before the first
 * byte, fsync, renameat2, flock-like locks that belong to the open file (OFD).
 */
#include "files/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Linux moves at most 0x7ffff000 bytes a call; less keeps a signal's wait short. */
enum { MAX_PIECE = 64 << 20, RESERVED_AT_ONCE = 1 << 30 };

static dtp_status fail_errno(dtp_error *err, const char *what, const char *path)
{
    return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot %s %s: %m", what, path);
}

void dtpi_sys_close(dtpi_files *files)
{
    dtpi_free(files->a, files, sizeof(*files));
}

static dtp_status file_new(dtpi_files *files, const char *path, int fd_take, dtpi_file **file_out,
                           dtp_error *err)
{
    dtpi_sys_file *f = dtpi_alloc(files->a, sizeof(*f));
    char *copy = dtpi_text_dup(files->a, path);

    if (!f || !copy) {
        dtpi_text_free(files->a, copy);
        dtpi_free(files->a, f, sizeof(*f));
        dtpi_close_fd(&fd_take);
        return dtpi_fail_nomem(err, sizeof(*f));
    }
    f->base.files = files;
    f->base.path = copy;
    f->fd = fd_take;
    f->direct_fd = -1;
    *file_out = &f->base;
    return DTP_OK;
}

int dtpi_sys_open_fd(const char *path, int flags, mode_t mode)
{
    int fd;

    do {
        fd = open(path, flags | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

static dtp_status fail_nospc(dtp_error *err, const char *path, uint64_t want, uint64_t have)
{
    errno = ENOSPC;
    return dtpi_fail(err, DTP_ERR_NOSPC, "no space for %s: %llu bytes wanted, %llu missing", path,
                     (unsigned long long)want, (unsigned long long)(want > have ? want - have : 1));
}

/* Bytes free to us on the file system of `fd`; UINT64_MAX where it does not say. */
static uint64_t free_bytes(int fd)
{
    struct statvfs v;

    if (fstatvfs(fd, &v) < 0 || v.f_blocks == 0)
        return UINT64_MAX;
    return (uint64_t)v.f_bavail * v.f_frsize;
}

/*
 * Signals wait meanwhile: on tmpfs each takes back what a call has reserved so far, and a timer that ticks
 * faster than the call (a profiler's) would let it begin anew for ever. Between two pieces they are heard.
 */
static int reserve_piece(int fd, uint64_t at, uint64_t bytes)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    do {
        rc = fallocate(fd, 0, (off_t)at, (off_t)bytes);
    } while (rc < 0 && errno == EINTR);
    const int e = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = e;
    return rc;
}

/* Takes the blocks before a byte is written, so that a full disk is found at once. */
static dtp_status reserve(int fd, const char *path, uint64_t bytes, dtp_error *err)
{
    const uint64_t have = free_bytes(fd);
    uint64_t at = 0;
    int rc = 0;

    if (bytes > INT64_MAX)
        return dtpi_fail(err, DTP_ERR_RANGE, "%s cannot have %llu bytes", path,
                         (unsigned long long)bytes);
    if (have < bytes)
        return fail_nospc(err, path, bytes, have);
    while (at < bytes && rc == 0) {
        const uint64_t n = DTPI_MIN(bytes - at, (uint64_t)RESERVED_AT_ONCE);
        rc = reserve_piece(fd, at, n);
        at += rc == 0 ? n : 0;
    }
    if (rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)
        return DTP_OK;
    if (errno == ENOSPC)
        return fail_nospc(err, path, bytes, have == UINT64_MAX ? 0 : at + free_bytes(fd));
    return fail_errno(err, "reserve space for", path);
}

dtp_status dtpi_sys_create(dtpi_files *files, const char *path, uint64_t bytes,
                               dtpi_file **file_out, dtp_error *err)
{
    DTPI_AUTO_FD int fd = dtpi_sys_open_fd(path, O_WRONLY | O_CREAT | O_EXCL, 0666);

    if (fd < 0)
        return fail_errno(err, "create", path);
    dtp_status st = reserve(fd, path, bytes, err);
    if (st >= 0)
        st = file_new(files, path, dtpi_take_fd(&fd), file_out, err);
    if (st >= 0)
        DTPI_CONTAINER(*file_out, dtpi_sys_file, base)->expected = bytes;
    else
        unlink(path);
    return st;
}

dtp_status dtpi_sys_open(dtpi_files *files, const char *path, dtpi_file **file_out,
                             uint64_t *bytes_out, dtp_error *err)
{
    /* NONBLOCK: a FIFO in the place of a file must not hold us. */
    DTPI_AUTO_FD int fd = dtpi_sys_open_fd(path, O_RDONLY | O_NONBLOCK, 0);
    struct stat s;

    if (fd < 0 || fstat(fd, &s) < 0)
        return fail_errno(err, "open", path);
    if (!S_ISREG(s.st_mode))
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s is not a plain file", path);
    const dtp_status st = file_new(files, path, dtpi_take_fd(&fd), file_out, err);
    if (st >= 0)
        *bytes_out = (uint64_t)s.st_size;
    return st;
}

dtp_status dtpi_sys_fail_write(const dtpi_sys_file *f, uint64_t at, size_t left, dtp_error *err)
{
    if (errno != ENOSPC && errno != EDQUOT)
        return fail_errno(err, "write", f->base.path);
    return fail_nospc(err, f->base.path, f->expected ? f->expected : at + left,
                      f->expected > at + left ? at : f->expected ? f->expected - left : at);
}

dtp_status dtpi_sys_write(dtpi_file *file, uint64_t at, const void *data, size_t bytes,
                              dtp_error *err)
{
    dtpi_sys_file *f = DTPI_CONTAINER(file, dtpi_sys_file, base);
    const uint8_t *p = data;

    while (bytes > 0) {
        const ssize_t n = pwrite(f->fd, p, DTPI_MIN(bytes, (size_t)MAX_PIECE), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return dtpi_sys_fail_write(f, at, bytes, err);
        p += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return DTP_OK;
}

dtp_status dtpi_sys_read(dtpi_file *file, uint64_t at, void *data, size_t bytes, dtp_error *err)
{
    dtpi_sys_file *f = DTPI_CONTAINER(file, dtpi_sys_file, base);
    uint8_t *p = data;

    while (bytes > 0) {
        const ssize_t n = pread(f->fd, p, DTPI_MIN(bytes, (size_t)MAX_PIECE), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_errno(err, "read", file->path);
        if (n == 0)
            return dtpi_fail(err, DTP_ERR_TRUNCATED, "%s ends at byte %llu, %zu bytes too early",
                             file->path, (unsigned long long)at, bytes);
        p += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return DTP_OK;
}

dtp_status dtpi_sys_set_size(dtpi_file *file, uint64_t bytes, dtp_error *err)
{
    const dtpi_sys_file *f = DTPI_CONTAINER(file, dtpi_sys_file, base);
    int rc;

    do {
        rc = ftruncate(f->fd, (off_t)bytes);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? fail_errno(err, "cut", file->path) : DTP_OK;
}

dtp_status dtpi_sys_sync(dtpi_file *file, dtp_error *err)
{
    const dtpi_sys_file *f = DTPI_CONTAINER(file, dtpi_sys_file, base);
    int rc;

    do {
        rc = fsync(f->fd);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? fail_errno(err, "sync", file->path) : DTP_OK;
}

dtp_status dtpi_sys_close_file(dtpi_file *file, dtp_error *err)
{
    dtpi_sys_file *f = DTPI_CONTAINER(file, dtpi_sys_file, base);
    const dtp_allocator *a = file->files->a;
    struct flock unlock = { .l_type = F_UNLCK, .l_whence = SEEK_SET };
    dtp_status st = DTP_OK;

    /* A child that was forked meanwhile holds the same open file, and would keep the lock. */
    if (f->locked)
        fcntl(f->fd, F_OFD_SETLK, &unlock);
    /* Linux frees the descriptor whatever close says; EINTR is no failure. */
    if (close(f->fd) < 0 && errno != EINTR)
        st = fail_errno(err, "close", file->path);
    dtpi_close_fd(&f->direct_fd);
    dtpi_text_free(a, file->path);
    dtpi_free(a, f, sizeof(*f));
    return st;
}

dtp_status dtpi_sys_publish(dtpi_files *files, const char *from, const char *to, bool replace,
                                dtp_error *err)
{
    if (replace) {
        if (rename(from, to) < 0)
            return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot rename %s to %s: %m", from,
                             to);
        return DTP_OK;
    }
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return DTP_OK;
    if (errno == EEXIST)
        return dtpi_fail(err, DTP_ERR_EXISTS, "%s is already there", to);
    if (errno != EINVAL && errno != ENOSYS)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot rename %s to %s: %m", from, to);
    /* A file system without the flag (NFS): a second name, then without the first. */
    if (link(from, to) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot link %s to %s: %m", from, to);
    return unlink(from) < 0 ? fail_errno(err, "remove", from) : DTP_OK;
}

dtp_status dtpi_sys_sync_dir(dtpi_files *files, const char *path, dtp_error *err)
{
    DTPI_AUTO_FD int fd = dtpi_sys_open_fd(path, O_RDONLY | O_DIRECTORY, 0);
    int rc;

    if (fd < 0)
        return fail_errno(err, "open", path);
    /* EINVAL: a file system that cannot sync folders keeps them in order itself. */
    do {
        rc = fsync(fd);
    } while (rc < 0 && errno == EINTR);
    if (rc < 0 && errno != EINVAL)
        return fail_errno(err, "sync", path);
    return DTP_OK;
}

dtp_status dtpi_sys_make_dir(dtpi_files *files, const char *path, bool *made_out,
                                 dtp_error *err)
{
    struct stat s;

    if (mkdir(path, 0777) == 0) {
        *made_out = true;
        return DTP_OK;
    }
    if (errno != EEXIST)
        return fail_errno(err, "make folder", path);
    if (stat(path, &s) < 0)
        return fail_errno(err, "look at", path);
    if (!S_ISDIR(s.st_mode))
        return dtpi_fail(err, DTP_ERR_EXISTS, "%s is not a folder", path);
    *made_out = false;
    return DTP_OK;
}

dtp_status dtpi_sys_list(dtpi_files *files, const char *path,
                             dtp_status (*each)(void *user, const char *name, dtp_error *err),
                             void *user, dtp_error *err)
{
    dtp_status st = DTP_OK;
    DIR *d = opendir(path);

    if (!d)
        return fail_errno(err, "open folder", path);
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e && errno)
            st = fail_errno(err, "read folder", path);
        if (!e || st < 0)
            break;
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            st = each(user, e->d_name, err);
        if (st < 0)
            break;
    }
    closedir(d);
    return st;
}

dtp_status dtpi_sys_size(dtpi_files *files, const char *path, uint64_t *bytes_out,
                             dtp_error *err)
{
    struct stat s;

    if (stat(path, &s) < 0)
        return fail_errno(err, "look at", path);
    *bytes_out = (uint64_t)s.st_size;
    return DTP_OK;
}

dtp_status dtpi_sys_remove(dtpi_files *files, const char *path, dtp_error *err)
{
    return unlink(path) < 0 ? fail_errno(err, "remove", path) : DTP_OK;
}

dtp_status dtpi_sys_remove_dir(dtpi_files *files, const char *path, dtp_error *err)
{
    return rmdir(path) < 0 ? fail_errno(err, "remove folder", path) : DTP_OK;
}

dtp_status dtpi_sys_lock(dtpi_files *files, const char *path, dtpi_file **file_out,
                             dtp_error *err)
{
    DTPI_AUTO_FD int fd = dtpi_sys_open_fd(path, O_RDWR | O_CREAT, 0666);
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    bool held = true;

    if (fd < 0)
        return fail_errno(err, "open", path);
    if (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
        if (errno == EAGAIN || errno == EACCES)
            return dtpi_fail(err, DTP_ERR_BUSY, "another process holds %s", path);
        if (errno != ENOLCK && errno != ENOTSUP && errno != EINVAL)
            return fail_errno(err, "lock", path);
        held = false;
    }
    const dtp_status st = file_new(files, path, dtpi_take_fd(&fd), file_out, err);
    if (st < 0)
        return st;
    DTPI_CONTAINER(*file_out, dtpi_sys_file, base)->locked = held;
    return held ? DTP_OK : DTP_PENDING;
}
