/* SPDX-License-Identifier: Apache-2.0 */
/* files.c - what every member of the family shares: paths, whole small files, folders with parents. */
#include "files/files.h"

#include <stdio.h>
#include <stdlib.h>

#include "files/posix.h"
#include "files/uring.h"

dtp_status dtpi_files_open(const dtp_allocator *a, const char *name, dtpi_files **files_out,
                           dtp_error *err)
{
    if (name && strcmp(name, "posix") == 0)
        return dtpi_files_posix_open(a, files_out, err);
    if (name && strcmp(name, "uring") != 0)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "no file driver is named %s: uring or posix",
                         name);
    dtp_status st = dtpi_files_uring_open(a, files_out, err);
    if (!name && st == DTP_ERR_UNSUPPORTED)
        st = dtpi_files_posix_open(a, files_out, err);
    return st;
}

const char *dtpi_files_name_from_env(void)
{
    const char *name = getenv("DTP_CKPT_FILES");

    return name && *name ? name : NULL;
}

void dtpi_files_close(dtpi_files *files)
{
    if (files)
        files->ops->close(files);
}

void dtpi_file_drop(dtpi_file *file)
{
    if (file)
        file->files->ops->close_file(file, NULL);
}

dtp_status dtpi_path_join(char path_out[DTPI_PATH_MAX], const char *dir, const char *name,
                          dtp_error *err)
{
    const size_t len = strlen(dir);
    const char *slash = len > 0 && dir[len - 1] == '/' ? "" : "/";
    const int n = snprintf(path_out, DTPI_PATH_MAX, "%s%s%s", dir, slash, name);

    if (n < 0 || n >= DTPI_PATH_MAX)
        return dtpi_fail(err, DTP_ERR_LIMIT, "path is longer than %d bytes: %.40s...",
                         DTPI_PATH_MAX - 1, dir);
    return DTP_OK;
}

/* Bytes of the folder above the first `n` bytes of `path`; 0: the current one, `n`: there is none. */
static size_t parent_bytes(const char *path, size_t n)
{
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

/* The folder of the first `n` bytes of `path`, which is given back as it was. */
static dtp_status make_first(dtpi_files *files, char *path, size_t n, bool *made_out,
                             dtp_error *err)
{
    const char next = path[n];

    path[n] = '\0';
    const dtp_status st = files->ops->make_dir(files, path, made_out, err);
    path[n] = next;
    return st;
}

static dtp_status sync_first(dtpi_files *files, char *path, size_t n, dtp_error *err)
{
    const char next = path[n];

    if (n == 0)
        return files->ops->sync_dir(files, ".", err);
    path[n] = '\0';
    const dtp_status st = files->ops->sync_dir(files, path, err);
    path[n] = next;
    return st;
}

/*
 * A folder that was there may have been made by somebody who was killed before he could make its name
 * durable. Folders above, of others, may be closed to us.
 */
static dtp_status sync_found(dtpi_files *files, char *path, size_t n, dtp_error *err)
{
    const dtp_status st = sync_first(files, path, n, err);

    return st == DTP_ERR_PERM || st == DTP_ERR_UNSUPPORTED ? DTP_OK : st;
}

/* One buffer for all levels: a path may have 2000 of them. */
static dtp_status make_dirs(dtpi_files *files, char *path, size_t n, bool no_sync, dtp_error *err)
{
    const size_t up = parent_bytes(path, n), top = parent_bytes(path, up);
    bool made = false;

    dtp_status st = make_first(files, path, n, &made, err);
    if (st == DTP_ERR_NOT_FOUND && up > 0 && up < n) {
        st = make_dirs(files, path, up, no_sync, err);
        if (st >= 0)
            st = make_first(files, path, n, &made, err);
    } else if (st >= 0 && made && !no_sync && top < up) {
        st = sync_found(files, path, top, err);
    }
    if (st < 0 || no_sync || up == n)
        return st;
    return made ? sync_first(files, path, up, err) : sync_found(files, path, up, err);
}

dtp_status dtpi_files_make_dirs(dtpi_files *files, const char *path, bool no_sync, dtp_error *err)
{
    char own[DTPI_PATH_MAX];
    const size_t n = strlen(path);

    if (n >= sizeof(own))
        return dtpi_fail(err, DTP_ERR_LIMIT, "path is longer than %d bytes: %.40s...",
                         DTPI_PATH_MAX - 1, path);
    memcpy(own, path, n + 1);
    return make_dirs(files, own, n, no_sync, err);
}

dtp_status dtpi_files_read_all(dtpi_files *files, const char *path, uint64_t max, dtpi_buf *out,
                               dtp_error *err)
{
    DTPI_AUTO(file) dtpi_file *file = NULL;
    uint64_t bytes = 0;

    dtp_status st = files->ops->open(files, path, &file, &bytes, err);
    if (st < 0)
        return st;
    if (bytes > max)
        return dtpi_fail(err, DTP_ERR_LIMIT, "%s has %llu bytes, more than %llu", path,
                         (unsigned long long)bytes, (unsigned long long)max);
    dtpi_buf_reset(out);
    uint8_t *p = dtpi_buf_reserve(out, (size_t)bytes + 1);
    if (!p)
        return dtpi_fail_nomem(err, (size_t)bytes);
    st = files->ops->read(file, 0, p, (size_t)bytes, err);
    if (st >= 0)
        out->len = (size_t)bytes;
    return st;
}

static dtp_status write_all(dtpi_files *files, const char *path, const void *data, size_t bytes,
                            bool no_sync, dtp_error *err)
{
    DTPI_AUTO(file) dtpi_file *file = NULL;

    dtp_status st = files->ops->create(files, path, bytes, &file, err);
    if (st < 0)
        return st;
    st = files->ops->write(file, 0, data, bytes, err);
    if (st >= 0 && !no_sync)
        st = files->ops->sync(file, err);
    if (st >= 0)
        st = files->ops->close_file(DTPI_TAKE(file), err);
    if (st < 0)
        files->ops->remove(files, path, NULL);
    return st;
}

dtp_status dtpi_files_publish_all(dtpi_files *files, const char *dir, const char *temp,
                                  const char *path, const void *data, size_t bytes, bool no_sync,
                                  dtp_error *err)
{
    dtp_status st = write_all(files, temp, data, bytes, no_sync, err);

    if (st < 0)
        return st;
    st = files->ops->publish(files, temp, path, false, err);
    if (st < 0) {
        files->ops->remove(files, temp, NULL);
        return st;
    }
    return no_sync ? DTP_OK : files->ops->sync_dir(files, dir, err);
}
