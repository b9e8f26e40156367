/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.c - the folder of a job. All a supervisor needs to take over is in it; nothing else is.
 *
 * Making and replacing folders is one at a time per run directory, under a lock.
 */
#include "job/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <dtp/group.h>

#include "base/text.h"

enum { MAX_FOLDER_DEPTH = 8, MAX_HELD_BYTES = 128 << 10 };

/* ---- the run directory ---- */

/* `make`: where there is none. To look at jobs makes nothing. */
static dtp_status find_run_dir(const char *wanted, bool make, char path_out[PATH_MAX],
                               dtp_error *err)
{
    char path[PATH_MAX];
    struct stat sb;

    if (wanted)
        snprintf(path, sizeof(path), "%s", wanted);
    else if (geteuid() == 0)
        snprintf(path, sizeof(path), "/run/dtp");
    else
        snprintf(path, sizeof(path), "/tmp/dtp-%u", (unsigned)geteuid());
    if (wanted && strlen(wanted) > PATH_MAX - 256)
        return dtpi_fail(err, DTP_ERR_INVAL, "run directory: the name has more than %d bytes",
                         PATH_MAX - 256);
    if (!make && access(path, F_OK) < 0 && errno == ENOENT)
        return dtpi_fail(err, DTP_ERR_NOT_FOUND, "there is no run directory %s", path);
    if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make run directory %s: %m",
                         path);
    /* In /tmp anyone could have put a folder or link there before us. */
    if (lstat(path, &sb) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot look at %s: %m", path);
    if (!wanted && (!S_ISDIR(sb.st_mode) || sb.st_uid != geteuid() || (sb.st_mode & 022)))
        return dtpi_fail(err, DTP_ERR_PERM, "run directory %s belongs to or is open to others",
                         path);
    if (!realpath(path, path_out))
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot resolve run directory %s: %m",
                         path);
    if (stat(path_out, &sb) < 0 || !S_ISDIR(sb.st_mode))
        return dtpi_fail(err, DTP_ERR_INVAL, "run directory %s is not a folder", path);
    return DTP_OK;
}

static bool path_of(const char *dir, const char *file, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%s/%s", dir, file) < PATH_MAX;
}

/* ---- files ---- */

static dtp_status write_file(const char *dir, const char *file, const void *data, size_t bytes,
                             dtp_error *err)
{
    char path[PATH_MAX];

    if (!path_of(dir, file, path))
        return dtpi_fail(err, DTP_ERR_INVAL, "%s has too long a name", dir);
    DTPI_AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make %s: %m", path);
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno != EINTR)
            return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot write %s: %m", path);
        done += n > 0 ? (size_t)n : 0;
    }
    return DTP_OK;
}

static dtp_status read_file(const char *dir, const char *file, uint64_t max, dtpi_buf *out,
                            dtp_error *err)
{
    char path[PATH_MAX];

    if (!path_of(dir, file, path))
        return dtpi_fail(err, DTP_ERR_INVAL, "%s has too long a name", dir);
    DTPI_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open %s: %m", path);
    while (out->len <= max) {
        uint8_t *p = dtpi_buf_reserve(out, 65536);
        if (!p)
            return dtpi_fail_nomem(err, out->len);
        const ssize_t n = read(fd, p, 65536);
        if (n == 0)
            return DTP_OK;
        if (n < 0 && errno != EINTR)
            return dtpi_fail(err, DTP_ERR_IO, "cannot read %s: %m", path);
        out->len += n > 0 ? (size_t)n : 0;
    }
    return dtpi_fail(err, DTP_ERR_LIMIT, "%s has more than %llu bytes", path,
                     (unsigned long long)max);
}

/* Removes what is in the folder `name` of `dir_fd`, and the folder. */
static void remove_tree(int dir_fd, const char *name, int depth)
{
    struct dirent *d;

    const int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || depth == 0) {
        if (fd >= 0)
            close(fd);
        return;
    }
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return;
    }
    while ((d = readdir(dir))) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, d->d_name, 0) < 0)
            remove_tree(fd, d->d_name, depth - 1);
    }
    closedir(dir);
    unlinkat(dir_fd, name, AT_REMOVEDIR);
}

/* ---- alive ---- */

static int open_alive(const dtpi_record *r)
{
    char path[PATH_MAX];

    if (!path_of(r->dir, "alive", path))
        return -1;
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

bool dtpi_record_lock(dtpi_record *r)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

    if (r->alive_fd >= 0)
        return true;
    r->alive_fd = open_alive(r);
    if (r->alive_fd >= 0 && fcntl(r->alive_fd, F_OFD_SETLK, &lock) < 0)
        dtpi_close_fd(&r->alive_fd);
    return r->alive_fd >= 0;
}

void dtpi_record_unlock(dtpi_record *r)
{
    dtpi_close_fd(&r->alive_fd);
}

bool dtpi_record_is_alive(const dtpi_record *r)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

    DTPI_AUTO_FD int fd = open_alive(r);
    if (fd < 0)
        return errno != ENOENT;
    return fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

/* ---- making a job's folder ---- */

static dtp_status write_secret(const dtpi_record *r, dtp_error *err)
{
    uint8_t secret[DTP_SECRET_BYTES];
    char text[2 * DTP_SECRET_BYTES + 1];

    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
        return dtpi_fail(err, DTP_ERR_IO, "cannot get random bytes: %m");
    dtpi_format_hex(secret, sizeof(secret), text);
    text[sizeof(text) - 1] = '\n';
    const dtp_status st = write_file(r->dir, "secret", text, sizeof(text), err);
    explicit_bzero(secret, sizeof(secret));
    explicit_bzero(text, sizeof(text));
    return st;
}

static bool set_dir(dtpi_record *r, const char *name)
{
    return snprintf(r->dir, sizeof(r->dir), "%s/jobs/%s", r->run_dir, name) < (int)sizeof(r->dir);
}

/* Makes r->dir for `name`; an ended job's folder makes room. */
static dtp_status make_folder(dtpi_record *r, const char *name, bool replace, dtp_error *err)
{
    if (!set_dir(r, name))
        return dtpi_fail(err, DTP_ERR_INVAL, "run directory %s has too long a name", r->run_dir);
    if (mkdir(r->dir, 0700) < 0) {
        if (errno != EEXIST)
            return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make folder %s: %m", r->dir);
        if (!replace || dtpi_record_is_alive(r))
            return dtpi_fail(err, DTP_ERR_EXISTS, "job '%s' is running already", name);
        remove_tree(AT_FDCWD, r->dir, MAX_FOLDER_DEPTH);
        if (mkdir(r->dir, 0700) < 0)
            return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make folder %s: %m", r->dir);
    }
    if (!dtpi_record_lock(r))
        return dtpi_fail(err, DTP_ERR_IO, "cannot lock %s/alive: %m", r->dir);
    return DTP_OK;
}

/* A name nobody has: time, process, and a counter where that is not enough. */
static dtp_status make_named_folder(dtpi_record *r, dtpi_spec *spec, dtp_error *err)
{
    const time_t now = time(NULL);
    char stamp[32], name[64];
    struct tm tm;

    if (spec->name)
        return make_folder(r, spec->name, true, err);
    strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", gmtime_r(&now, &tm));
    for (int i = 0; i < 1000; i++) {
        const char *dash = i ? "-" : "";
        char number[8] = "";
        if (i)
            snprintf(number, sizeof(number), "%d", i + 1);
        snprintf(name, sizeof(name), "job-%s-%d%s%s", stamp, (int)getpid(), dash, number);
        const dtp_status st = make_folder(r, name, false, err);
        if (st == DTP_ERR_EXISTS)
            continue;
        if (st < 0)
            return st;
        spec->name = dtpi_text_dup(spec->a, name);
        return spec->name ? DTP_OK : dtpi_fail_nomem(err, 0);
    }
    return dtpi_fail(err, DTP_ERR_EXISTS, "no free name for a job in %s", r->run_dir);
}

static dtp_status lock_run_dir(const char *run_dir, int *fd_out, dtp_error *err)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    char path[PATH_MAX];

    if (!path_of(run_dir, "jobs", path))
        return dtpi_fail(err, DTP_ERR_INVAL, "run directory %s has too long a name", run_dir);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make folder %s: %m", path);
    if (!path_of(run_dir, "create", path))
        return dtpi_fail(err, DTP_ERR_INVAL, "run directory %s has too long a name", run_dir);
    DTPI_AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fcntl(fd, F_OFD_SETLKW, &lock) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot lock %s: %m", path);
    *fd_out = dtpi_take_fd(&fd);
    return DTP_OK;
}

dtp_status dtpi_record_create(dtpi_record *r, const char *run_dir, dtpi_spec *spec, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(spec->a);
    DTPI_AUTO_FD int lock = -1;

    r->alive_fd = -1;
    dtp_status st = find_run_dir(run_dir, true, r->run_dir, err);
    if (st >= 0)
        st = lock_run_dir(r->run_dir, &lock, err);
    if (st >= 0)
        st = make_named_folder(r, spec, err);
    if (st < 0)
        return st;
    dtpi_spec_encode(spec, &b);
    st = b.failed ? dtpi_fail_nomem(err, 0) : write_file(r->dir, "spec", b.data, b.len, err);
    if (st >= 0)
        st = write_secret(r, err);
    if (st >= 0)
        st = write_file(r->dir, "journal", NULL, 0, err);
    if (st < 0) {
        remove_tree(AT_FDCWD, r->dir, MAX_FOLDER_DEPTH);
        dtpi_record_unlock(r);
    }
    return st;
}

dtp_status dtpi_record_open(dtpi_record *r, const char *run_dir, const char *name, dtpi_spec *spec,
                            dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(spec->a);

    r->alive_fd = -1;
    dtp_status st = find_run_dir(run_dir, false, r->run_dir, err);
    if (st < 0)
        return st;
    if (!dtpi_name_ok(name, 63) || !set_dir(r, name))
        return dtpi_fail(err, DTP_ERR_INVAL, "'%.70s' is no name of a job", name ? name : "");
    if (access(r->dir, F_OK) < 0 && errno == ENOENT)
        return dtpi_fail(err, DTP_ERR_NOT_FOUND, "no job '%s' in %s", name, r->run_dir);
    st = read_file(r->dir, "spec", DTPI_SPEC_MAX_RECORD, &b, err);
    return st < 0 ? st : dtpi_spec_decode(spec, b.data, b.len, err);
}

/* ---- journal ---- */

dtp_status dtpi_record_write(const dtpi_record *r, const dtpi_journal_entry *e, dtp_error *err)
{
    char path[PATH_MAX];

    if (!path_of(r->dir, "journal", path))
        return dtpi_fail(err, DTP_ERR_INVAL, "%s has too long a name", r->dir);
    DTPI_AUTO_FD int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open %s: %m", path);
    return dtpi_journal_append(fd, *e, err);
}

dtp_status dtpi_record_read(const dtpi_record *r, const dtp_allocator *a, uint64_t bytes,
                            void (*each)(void *user, const dtpi_journal_entry *e), void *user,
                            dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(a);
    size_t at = 0;

    const dtp_status st = read_file(r->dir, "journal", DTPI_JOURNAL_MAX_BYTES, &b, err);
    if (st < 0)
        return st;
    const size_t end = (size_t)DTPI_MIN(bytes, (uint64_t)b.len);
    while (at < end) {
        dtpi_journal_entry e;
        const uint8_t *nl = memchr(b.data + at, '\n', end - at);
        if (!nl)
            break;
        if (dtpi_journal_parse((const char *)b.data + at, (size_t)(nl - b.data) - at, &e, NULL) >=
            0)
            each(user, &e);
        at = (size_t)(nl - b.data) + 1;
    }
    return DTP_OK;
}

/* ---- held ---- */

dtp_status dtpi_record_put_held(const dtpi_record *r, const char *cpus, const char *gpus,
                                dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    if (!dtpi_buf_printf(&b, "%s\n%s\n", cpus, gpus))
        return dtpi_fail_nomem(err, 0);
    return write_file(r->dir, "held", b.data, b.len, err);
}

dtp_status dtpi_record_get_held(const dtpi_record *r, const dtp_allocator *a, dtpi_cpuset *cpus_out,
                                dtpi_cpuset *gpus_out, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(a);

    dtp_status st = read_file(r->dir, "held", MAX_HELD_BYTES, &b, err);
    if (st == DTP_ERR_NOT_FOUND) {
        memset(cpus_out, 0, sizeof(*cpus_out));
        memset(gpus_out, 0, sizeof(*gpus_out));
        return DTP_OK;
    }
    const char *text = st < 0 ? NULL : dtpi_buf_text(&b);
    if (!text)
        return st < 0 ? st : dtpi_fail_nomem(err, 0);
    char *gpus = memchr(b.data, '\n', b.len);
    if (!gpus)
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s/held is damaged", r->dir);
    *gpus++ = '\0';
    st = dtpi_cpuset_parse(text, cpus_out, err);
    return st < 0 ? st : dtpi_cpuset_parse(gpus, gpus_out, err);
}

/* ---- list ---- */

static int is_job(const struct dirent *d)
{
    return dtpi_name_ok(d->d_name, 63);
}

dtp_status dtpi_record_list(const char *run_dir, const dtp_allocator *a, char **text_out,
                            dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(a);
    char dir[PATH_MAX], path[PATH_MAX];
    struct dirent **names = NULL;

    const dtp_status st = find_run_dir(run_dir, false, dir, err);
    const bool is_new = st == DTP_ERR_NOT_FOUND && !run_dir;    /* nobody has started a job yet */
    if (st < 0 && !is_new)
        return st;
    if (!is_new && !path_of(dir, "jobs", path))
        return dtpi_fail(err, DTP_ERR_INVAL, "run directory %s has too long a name", dir);
    const int n = is_new ? 0 : scandir(path, &names, is_job, alphasort);
    if (n < 0 && errno != ENOENT)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot read folder %s: %m", path);
    for (int i = 0; i < n; i++) {
        dtpi_buf_printf(&b, "%s\n", names[i]->d_name);
        free(names[i]);
    }
    free(names);
    const char *text = dtpi_buf_text(&b);
    *text_out = text ? dtpi_text_dup(&dtpi_malloc_allocator, text) : NULL;
    return *text_out ? DTP_OK : dtpi_fail_nomem(err, b.len);
}
