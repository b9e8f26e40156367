/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_plain.c - what the machine can do: plain files, a plain copy, and fio with direct I/O. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "ckpt.h"

static double seconds_since(int64_t begin)
{
    return (double)(bench_now_ns() - begin) * 1e-9;
}

static double complain(const char *path)
{
    fprintf(stderr, "dtp-bench ckpt: %s: %s\n", path, strerror(errno));
    return -1;
}

static void path_of(char *out, size_t room, const ckpt_options *o, int rank)
{
    snprintf(out, room, "%s/plain-%d", o->work, rank);
}

double ckpt_plain_write(const ckpt_options *o, int rank, const uint8_t *data, uint64_t bytes)
{
    char path[4096];
    bool ok;

    path_of(path, sizeof(path), o, rank);
    const int64_t begin = bench_now_ns();
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ok = fd >= 0;
    for (uint64_t at = 0; ok && at < bytes;) {
        const ssize_t n = pwrite(fd, data + at, DTPI_MIN(bytes - at, (uint64_t)CKPT_BLOCK), (off_t)at);
        ok = n > 0;
        at += ok ? (uint64_t)n : 0;
    }
    ok = ok && (o->no_sync || fsync(fd) == 0);
    const double s = seconds_since(begin);
    if (!ok)
        complain(path);
    if (fd >= 0)
        close(fd);
    return ok ? s : -1;
}

/* Up to `bytes` bytes of a file from `from`. */
static ssize_t read_some(const char *path, uint64_t from, uint8_t *data, uint64_t bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t at = 0;

    if (fd < 0)
        return -1;
    while (at < bytes) {
        const ssize_t n = pread(fd, data + at, DTPI_MIN(bytes - at, (uint64_t)CKPT_BLOCK), (off_t)(from + at));
        if (n <= 0)
            break;
        at += (uint64_t)n;
    }
    close(fd);
    return (ssize_t)at;
}

double ckpt_plain_read(const ckpt_options *o, int rank, int n, uint8_t *data, uint64_t room)
{
    uint64_t begin = o->bytes / (uint64_t)n * (uint64_t)rank, file_at = 0;
    const uint64_t end = DTPI_MIN(begin + DTPI_MIN(o->bytes / (uint64_t)n, room), o->bytes);
    const int64_t t0 = bench_now_ns();
    char path[4096];

    for (int i = 0; i < o->ranks && begin < end; i++) {
        struct stat sb;
        path_of(path, sizeof(path), o, i);
        if (stat(path, &sb) < 0)
            return complain(path);
        const uint64_t file_end = file_at + (uint64_t)sb.st_size;
        if (begin < file_end) {
            const uint64_t bytes = DTPI_MIN(end, file_end) - begin;
            if (read_some(path, begin - file_at, data, bytes) != (ssize_t)bytes)
                return complain(path);
            data += bytes;
            begin += bytes;
        }
        file_at = file_end;
    }
    return seconds_since(t0);
}

double ckpt_plain_copy(uint8_t *to, uint64_t room, const uint8_t *from, uint64_t bytes)
{
    const int64_t begin = bench_now_ns();

    for (uint64_t at = 0; at < bytes; at += room) {
        memcpy(to, from + at, DTPI_MIN(room, bytes - at));
        __asm__ volatile("" ::"r"(to) : "memory");
    }
    return seconds_since(begin);
}

/* ---- fio ---- */

/* Field `nth` (from 1) of a line of fio's terse format, version 3. */
static double field(const char *line, int nth)
{
    for (int i = 1; i < nth && line; i++) {
        line = strchr(line, ';');
        line = line ? line + 1 : NULL;
    }
    return line ? strtod(line, NULL) : 0;
}

double ckpt_fio(const ckpt_options *o, bool write, int n)
{
    enum { READ_KIB = 7, WRITE_KIB = 48 };
    char command[8192], line[8192] = "";
    double best = 0;

    snprintf(command, sizeof(command),
             "fio --name=plain --directory='%s' --rw=%s --bs=4m --size=%llu --numjobs=%d --direct=1 --ioengine=io_uring "
             "--iodepth=8 --end_fsync=%d --group_reporting --output-format=terse --terse-version=3 2>&1",
             o->work, write ? "write" : "read", (unsigned long long)(o->bytes / (uint64_t)n), n, write);
    for (int i = 0; i < DTPI_MIN(o->rounds, 3); i++) {
        for (int job = 0; write && job < n; job++) {
            snprintf(line, sizeof(line), "%s/plain.%d.0", o->work, job);
            remove(line);
        }
        FILE *f = popen(command, "re");
        while (f && fgets(line, sizeof(line), f))
            if (strncmp(line, "3;fio", 5) == 0)
                best = DTPI_MAX(best, field(line, write ? WRITE_KIB : READ_KIB) * 1024);
        if (f)
            pclose(f);
    }
    if (best <= 0)
        fprintf(stderr, "dtp-bench ckpt: fio gives no figure here: %s%s", line, strchr(line, '\n') ? "" : "\n");
    return best;
}

/* ---- trees ---- */

static int drop_one(const char *path, const struct stat *sb, int kind, struct FTW *ftw)
{
    (void)sb, (void)ftw;
    const int fd = kind == FTW_F ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    return 0;
}

void ckpt_drop_cache(const char *path)
{
    nftw(path, drop_one, 16, FTW_PHYS);
}

static int remove_one(const char *path, const struct stat *sb, int kind, struct FTW *ftw)
{
    (void)sb, (void)kind, (void)ftw;
    remove(path);
    return 0;
}

void ckpt_remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_PHYS | FTW_DEPTH);
}
