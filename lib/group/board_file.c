/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_file.c - a folder that all nodes see as a board (DTP_BOARD=/path): a key is a file, written
 * under another name and renamed, so that a reader sees all of it or nothing.
 *
 * Files of another user are not believed. A job's earlier attempts are other names and are removed; a
 * file that an earlier run with the same job and attempt left is overwritten by the next root.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "group/board.h"

enum { PATH = 1024 };

struct board_folder {
    const dtp_allocator *a;
    char path[PATH];
    char prefix[DTPI_BOARD_KEY];    /* "dtp-<job>-" */
    uint32_t attempt;
};

static dtp_status file_open(const dtp_allocator *a, const dtpi_board_opts *o, int64_t until_ns,
                            void **state_out, dtp_error *err)
{
    struct stat st;

    (void)until_ns;
    if (strlen(o->place) >= PATH - DTPI_BOARD_KEY - 32)
        return dtpi_fail(err, DTP_ERR_INVAL, "board %.60s... has too long a name", o->place);
    if (stat(o->place, &st) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot use board %s: %m", o->place);
    if (!S_ISDIR(st.st_mode))
        return dtpi_fail(err, DTP_ERR_INVAL, "board %s is no folder", o->place);
    struct board_folder *f = dtpi_alloc(a, sizeof(*f));
    if (!f)
        return dtpi_fail_nomem(err, sizeof(*f));
    f->a = a;
    f->attempt = o->attempt;
    snprintf(f->path, sizeof(f->path), "%s", o->place);
    dtpi_board_key(o->job, 0, "", f->prefix);
    f->prefix[strlen(f->prefix) - 2] = '\0';       /* without the attempt */
    *state_out = f;
    return DTP_OK;
}

/* True for a file of an attempt before this one. */
static bool is_earlier(const struct board_folder *f, const char *name)
{
    const size_t n = strlen(f->prefix);
    char text[16];
    int64_t attempt;

    if (strncmp(name, f->prefix, n) != 0)
        return false;
    const size_t digits = strspn(name + n, "0123456789");
    if (digits == 0 || digits >= sizeof(text) || name[n + digits] != '-')
        return false;
    memcpy(text, name + n, digits);
    text[digits] = '\0';
    return dtpi_parse_i64(text, 0, UINT32_MAX, &attempt) && attempt < f->attempt;
}

/* Best effort: somebody else may be doing the same. */
static void remove_earlier(const struct board_folder *f)
{
    DIR *d = opendir(f->path);
    const struct dirent *e;

    while (d && (e = readdir(d)) != NULL)
        if (is_earlier(f, e->d_name))
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
}

static dtp_status write_new(const char *path, const char *value, dtp_error *err)
{
    DTPI_AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    const size_t bytes = strlen(value);

    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot create %s: %m", path);
    if (write(fd, value, bytes) != (ssize_t)bytes || fsync(fd) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot write %s: %m", path);
    return DTP_OK;
}

static dtp_status file_put(void *state, const char *key, const char *value, int64_t until_ns,
                           dtp_error *err)
{
    const struct board_folder *f = state;
    char path[PATH + DTPI_BOARD_KEY], temp[PATH + DTPI_BOARD_KEY + 40];

    (void)until_ns;
    remove_earlier(f);
    snprintf(path, sizeof(path), "%s/%s", f->path, key);
    snprintf(temp, sizeof(temp), "%s/.%s.%ld.%lld", f->path, key, (long)getpid(),
             (long long)dtpi_board_now_ns());
    dtp_status st = write_new(temp, value, err);
    if (st >= 0 && rename(temp, path) < 0)
        st = dtpi_fail(err, dtpi_status_of_errno(errno), "cannot rename to %s: %m", path);
    if (st < 0)
        unlink(temp);
    return st;
}

static dtp_status file_get(void *state, const char *key, char *value_out, int64_t until_ns,
                           dtp_error *err)
{
    const struct board_folder *f = state;
    struct stat st;

    (void)until_ns;
    /* Opening the folder makes a network file system look whether its names have changed. */
    DTPI_AUTO_FD int dir = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open board %s: %m", f->path);
    DTPI_AUTO_FD int fd = openat(dir, key, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ESTALE))
        return DTP_END;
    if (fd < 0 || fstat(fd, &st) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open %s/%s: %m", f->path, key);
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return dtpi_fail(err, DTP_ERR_PERM, "%s/%s is no file of user %u", f->path, key,
                         (unsigned)geteuid());
    const ssize_t n = read(fd, value_out, DTPI_BOARD_VALUE - 1);
    if (n < 0)
        return errno == ESTALE ? DTP_END
                               : dtpi_fail(err, DTP_ERR_IO, "cannot read %s/%s: %m", f->path, key);
    value_out[n] = '\0';
    return DTP_OK;
}

static void file_close(void *state)
{
    struct board_folder *f = state;

    dtpi_free(f->a, f, sizeof(*f));
}

const dtpi_board_ops dtpi_board_file = {
    .name = "file", .is_lasting = true, .open = file_open, .put = file_put, .get = file_get, .close = file_close,
};
