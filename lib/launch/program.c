/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - finds a program as execvp would, but says what is wrong with the one it found. */
#include "launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char default_path[] = "/usr/local/bin:/usr/bin:/bin";

/* 0: a program; else the errno that executing it would give. */
static int check(const char *path)
{
    struct stat sb;

    if (stat(path, &sb) < 0)
        return errno;
    if (!S_ISREG(sb.st_mode) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0)
        return EACCES;
    return 0;
}

static dtp_status refuse(const char *name, int error, dtp_error *err)
{
    errno = error;
    if (error == ENOENT || error == ENOTDIR) {
        errno = ENOENT;
        return dtpi_fail(err, DTP_ERR_EXEC, "program '%s' not found", name);
    }
    if (error == EACCES)
        return dtpi_fail(err, DTP_ERR_EXEC, "'%s' is not an executable program", name);
    return dtpi_fail(err, DTP_ERR_EXEC, "cannot execute '%s': %m", name);
}

static bool join(char *out, const char *cwd, const char *dir, size_t dir_len, const char *name)
{
    const bool relative = dir_len == 0 || dir[0] != '/';
    int n;

    if (relative && cwd)
        n = snprintf(out, PATH_MAX, "%s/%.*s%s%s", cwd, (int)dir_len, dir, dir_len ? "/" : "",
                     name);
    else
        n = snprintf(out, PATH_MAX, "%.*s%s%s", (int)dir_len, dir, dir_len ? "/" : "./", name);
    return n > 0 && n < PATH_MAX;
}

static dtp_status find_with_slash(const char *name, const char *cwd, char *path_out, dtp_error *err)
{
    const bool fits = name[0] != '/' && cwd
                          ? snprintf(path_out, PATH_MAX, "%s/%s", cwd, name) < PATH_MAX
                          : snprintf(path_out, PATH_MAX, "%s", name) < PATH_MAX;
    const int error = fits ? check(path_out) : ENAMETOOLONG;

    return error ? refuse(name, error, err) : DTP_OK;
}

dtp_status dtpi_find_program(const char *name, const char *path_list, const char *cwd,
                             char path_out[PATH_MAX], dtp_error *err)
{
    char path[PATH_MAX];
    int worst = ENOENT;

    if (!*name)
        return refuse(name, ENOENT, err);
    if (strchr(name, '/'))
        return find_with_slash(name, cwd, path_out, err);
    for (const char *p = path_list ? path_list : default_path; p; ) {
        const size_t len = strcspn(p, ":");
        if (join(path, cwd, p, len, name)) {
            const int error = check(path);
            if (error == 0) {
                memcpy(path_out, path, strlen(path) + 1);
                return DTP_OK;
            }
            if (error == EACCES)
                worst = EACCES;
        }
        p = p[len] ? p + len + 1 : NULL;
    }
    return refuse(name, worst, err);
}
