/* SPDX-License-Identifier: Apache-2.0 */
/* locks.c - OFD locks on byte ranges of one file; the kernel forgets them with the last holder. */
#include "launch/locks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

enum { SLOT = 64, GPU_BASE = 1 << 20 };

dtp_status dtpi_locks_open(const char *dir, int *fd_out, dtp_error *err)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/locks", dir) >= (int)sizeof(path))
        return dtpi_fail(err, DTP_ERR_INVAL, "run directory '%.80s...' has too long a name", dir);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open %s: %m", path);
    *fd_out = fd;
    return DTP_OK;
}

static struct flock range(short type, off_t from, off_t bytes)
{
    return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = bytes };
}

/* Marks what is locked in [from, to); the kernel names any one lock: both sides are asked again. */
static dtp_status query(int fd, off_t base, off_t from, off_t to, dtpi_cpuset *set, dtp_error *err)
{
    while (from < to) {
        struct flock lock = range(F_WRLCK, from, to - from);
        if (fcntl(fd, F_OFD_GETLK, &lock) < 0)
            return dtpi_fail(err, DTP_ERR_IO, "cannot query the locks: %m");
        if (lock.l_type == F_UNLCK)
            return DTP_OK;
        const off_t first = DTPI_MAX(lock.l_start, from);
        const off_t end = lock.l_len ? DTPI_MIN(lock.l_start + lock.l_len, to) : to;
        for (off_t at = first; at < end; at += SLOT)
            dtpi_cpuset_set(set, (uint32_t)((at - base) / SLOT));
        const dtp_status st = query(fd, base, from, first, set, err);
        if (st < 0)
            return st;
        from = end;
    }
    return DTP_OK;
}

dtp_status dtpi_locks_busy(int fd, dtpi_cpuset *cpus_out, dtpi_cpuset *gpus_out, dtp_error *err)
{
    const off_t bytes = (off_t)DTPI_CPUSET_MAX * SLOT;
    dtpi_cpuset cpus = { { 0 } }, gpus = { { 0 } };

    dtp_status st = query(fd, 0, 0, bytes, &cpus, err);
    if (st >= 0)
        st = query(fd, GPU_BASE, GPU_BASE, GPU_BASE + bytes, &gpus, err);
    if (st < 0)
        return st;
    *cpus_out = cpus;
    *gpus_out = gpus;
    return DTP_OK;
}

static void release(int fd, off_t base, const dtpi_cpuset *set, int32_t before)
{
    for (int32_t i = dtpi_cpuset_next(set, 0); i >= 0 && i != before;
         i = dtpi_cpuset_next(set, (uint32_t)i + 1)) {
        struct flock lock = range(F_UNLCK, base + (off_t)i * SLOT, SLOT);
        fcntl(fd, F_OFD_SETLK, &lock);
    }
}

static dtp_status busy(int fd, const char *what, int32_t index, off_t at, dtp_error *err)
{
    char holder[SLOT + 1] = "";

    const ssize_t n = pread(fd, holder, SLOT, at);
    holder[n > 0 ? n : 0] = '\0';
    return dtpi_fail(err, DTP_ERR_BUSY, "%s %d is held by job '%s'", what, index, holder);
}

static dtp_status take(int fd, const char *what, off_t base, const char *holder,
                       const dtpi_cpuset *set, dtp_error *err)
{
    char slot[SLOT] = "";

    snprintf(slot, sizeof(slot), "%s", holder);
    for (int32_t i = dtpi_cpuset_next(set, 0); i >= 0; i = dtpi_cpuset_next(set, (uint32_t)i + 1)) {
        const off_t at = base + (off_t)i * SLOT;
        struct flock lock = range(F_WRLCK, at, SLOT);
        if (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
            const dtp_status st =
                errno == EAGAIN || errno == EACCES
                    ? busy(fd, what, i, at, err)
                    : dtpi_fail(err, DTP_ERR_IO, "cannot lock %s %d: %m", what, i);
            release(fd, base, set, i);
            return st;
        }
        if (pwrite(fd, slot, SLOT, at) != SLOT) {
            const dtp_status st = dtpi_fail(err, dtpi_status_of_errno(errno),
                                            "cannot write who holds %s %d: %m", what, i);
            release(fd, base, set, -1);
            return st;
        }
    }
    return DTP_OK;
}

dtp_status dtpi_locks_take(int fd, const char *holder, const dtpi_cpuset *cpus,
                           const dtpi_cpuset *gpus, dtp_error *err)
{
    dtp_status st = take(fd, "core", 0, holder, cpus, err);
    if (st < 0)
        return st;
    st = take(fd, "GPU", GPU_BASE, holder, gpus, err);
    if (st < 0)
        release(fd, 0, cpus, -1);
    return st;
}
