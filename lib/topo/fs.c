/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs.c - reads the small files of sysfs and procfs.
 *
 * A recorded machine is read through openat2(RESOLVE_IN_ROOT), so that neither ".." nor a symbolic link
 * leads out of its folder; without openat2 (Linux 5.6) it is refused.
 */
#include "topo/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text.h"
#include "topo/parse.h"

/* The longest list: every second processor of DTPI_CPUSET_MAX. */
enum { LIST_BYTES = 24 << 10 };

static void note_trouble(dtpi_topo_fs *fs)
{
    if (errno == ENOMEM || errno == EMFILE || errno == ENFILE)
        fs->trouble = errno;
}

/* Opens below the root; `flags` beside O_CLOEXEC. -1 where it cannot. */
static int open_below(dtpi_topo_fs *fs, const char *path, int flags)
{
    struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC), .resolve = RESOLVE_IN_ROOT };

    const int fd = fs->recorded ? (int)syscall(SYS_openat2, fs->root, path, &how, sizeof(how))
                                : openat(fs->root, path, flags | O_CLOEXEC);
    if (fd < 0)
        note_trouble(fs);
    return fd;
}

dtp_status dtpi_topo_fs_open(dtpi_topo_fs *fs, const char *fsroot, dtp_error *err)
{
    fs->recorded = fsroot != NULL;
    fs->trouble = 0;
    fs->root = open(fsroot ? fsroot : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fs->root < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open %s: %m",
                         fsroot ? fsroot : "/");
    DTPI_AUTO_FD int probe = open_below(fs, ".", O_PATH);
    if (probe < 0) {
        dtpi_close_fd(&fs->root);
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "cannot stay inside %s: openat2: %m", fsroot);
    }
    return DTP_OK;
}

dtp_status dtpi_topo_fs_finish(dtpi_topo_fs *fs, dtp_status st, dtp_error *err)
{
    dtpi_close_fd(&fs->root);
    if (!fs->trouble)
        return st;
    errno = fs->trouble;
    return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot read all of the topology: %m");
}

static bool make_path(char *path_out, size_t room, const char *fmt, va_list ap)
{
    const int n = vsnprintf(path_out, room, fmt, ap);

    return n > 0 && (size_t)n < room;
}

#define PATH_FROM_ARGS(path, fmt)                                                                   \
    char path[PATH_MAX];                                                                            \
    va_list ap_;                                                                                    \
    va_start(ap_, fmt);                                                                             \
    const bool path##_ok = make_path(path, sizeof(path), fmt, ap_);                                 \
    va_end(ap_)

static ssize_t read_all(dtpi_topo_fs *fs, const char *path, void *data_out, size_t room)
{
    DTPI_AUTO_FD int fd = open_below(fs, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    struct stat info;
    size_t len = 0;

    if (fd < 0 || fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
        return -1;
    while (len < room) {
        const ssize_t n = read(fd, (char *)data_out + len, room - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    return (ssize_t)len;
}

static bool read_text(dtpi_topo_fs *fs, const char *path, char *text_out, size_t room)
{
    const ssize_t n = read_all(fs, path, text_out, room - 1);

    if (n < 0)
        return false;
    text_out[n] = '\0';
    size_t len = strlen(text_out);
    while (len && (text_out[len - 1] == '\n' || text_out[len - 1] == ' '))
        text_out[--len] = '\0';
    return true;
}

bool dtpi_topo_fs_text(dtpi_topo_fs *fs, char *text_out, size_t room, const char *fmt, ...)
{
    PATH_FROM_ARGS(path, fmt);
    return path_ok && read_text(fs, path, text_out, room);
}

ssize_t dtpi_topo_fs_bytes(dtpi_topo_fs *fs, void *data_out, size_t room, const char *fmt, ...)
{
    PATH_FROM_ARGS(path, fmt);
    return path_ok ? read_all(fs, path, data_out, room) : -1;
}

bool dtpi_topo_fs_number(dtpi_topo_fs *fs, int64_t *out, const char *fmt, ...)
{
    char text[32];

    PATH_FROM_ARGS(path, fmt);
    return path_ok && read_text(fs, path, text, sizeof(text)) &&
           dtpi_parse_i64(text, INT64_MIN + 1, INT64_MAX, out);
}

bool dtpi_topo_fs_cpus(dtpi_topo_fs *fs, dtpi_cpuset *out, const char *dir, const char *list,
                       const char *mask)
{
    char path[PATH_MAX];
    char text[LIST_BYTES];
    bool ok = false;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, list) < sizeof(path))
        ok = read_text(fs, path, text, LIST_BYTES) && dtpi_cpuset_parse(text, out, NULL) == DTP_OK;
    if (!ok && mask && (size_t)snprintf(path, sizeof(path), "%s/%s", dir, mask) < sizeof(path))
        ok = read_text(fs, path, text, LIST_BYTES) && dtpi_topo_parse_cpumask(text, out);
    return ok;
}

DIR *dtpi_topo_fs_dir(dtpi_topo_fs *fs, const char *fmt, ...)
{
    PATH_FROM_ARGS(path, fmt);
    const int fd = path_ok ? open_below(fs, path, O_RDONLY | O_DIRECTORY) : -1;
    if (fd < 0)
        return NULL;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        note_trouble(fs);
        close(fd);
    }
    return dir;
}

bool dtpi_topo_fs_exists(dtpi_topo_fs *fs, const char *fmt, ...)
{
    PATH_FROM_ARGS(path, fmt);
    DTPI_AUTO_FD int fd = path_ok ? open_below(fs, path, O_PATH) : -1;
    return fd >= 0;
}

bool dtpi_topo_fs_link(dtpi_topo_fs *fs, char *name_out, size_t room, const char *fmt, ...)
{
    char target[PATH_MAX];

    PATH_FROM_ARGS(path, fmt);
    DTPI_AUTO_FD int fd = path_ok ? open_below(fs, path, O_PATH | O_NOFOLLOW) : -1;
    if (fd < 0)
        return false;
    const ssize_t n = readlinkat(fd, "", target, sizeof(target) - 1);
    if (n <= 0)
        return false;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    return (size_t)snprintf(name_out, room, "%s", slash ? slash + 1 : target) < room;
}

const char *dtpi_topo_fs_next(DIR *dir)
{
    const struct dirent *e;

    while ((e = readdir(dir)))
        if (e->d_name[0] != '.')
            return e->d_name;
    return NULL;
}
