/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder.c - preloaded into any program: writes down, in one order for all its threads and processes,
 * what it does to files below DTP_CRASH_DIR into DTP_CRASH_LOG.
 *
 * It sees calls of libc, not those that go around it: io_uring, and renames of programs that call the
 * kernel themselves, which it finds out when they close the file. Files mapped for writing are not seen.
 */
#undef _FILE_OFFSET_BITS        /* open and open64 are two names here */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "crash/model.h"
#include "crash/record.h"

#define EXPORT __attribute__((visibility("default")))
/* The function that this one stands before. */
#define REAL(symbol, type) ((type)real_of(&real_##symbol, #symbol))
#define SLOT(symbol) static _Atomic(void *) real_##symbol;

enum { MAX_FILES = 8192 };

typedef struct known {
    dev_t dev;
    ino_t inode;
    char *path;
} known;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static known files[MAX_FILES];
static size_t n_files;
static char root[PATH_MAX];
static int log_fd = -1;
static pid_t log_pid;

static void *real_of(_Atomic(void *) *slot, const char *symbol)
{
    void *p = *slot;

    if (!p)
        *slot = p = dlsym(RTLD_NEXT, symbol);
    return p;
}

SLOT(open) SLOT(open64) SLOT(openat) SLOT(openat64) SLOT(fopen) SLOT(fopen64) SLOT(write) SLOT(pwrite)
SLOT(pwrite64) SLOT(writev) SLOT(ftruncate) SLOT(ftruncate64) SLOT(fallocate) SLOT(fallocate64)
SLOT(posix_fallocate) SLOT(posix_fallocate64) SLOT(fsync) SLOT(fdatasync) SLOT(close) SLOT(rename)
SLOT(renameat) SLOT(renameat2) SLOT(link) SLOT(linkat) SLOT(unlink) SLOT(unlinkat) SLOT(rmdir)
SLOT(mkdir) SLOT(mkdirat)

typedef int (*open_fn)(const char *, int, ...);
typedef int (*openat_fn)(int, const char *, int, ...);
typedef ssize_t (*write_fn)(int, const void *, size_t);
typedef ssize_t (*pwrite_fn)(int, const void *, size_t, off_t);
typedef int (*fd_fn)(int);
typedef int (*path_fn)(const char *);
typedef int (*two_fn)(const char *, const char *);

/* ---- failing on demand ---- */

static _Atomic long fail_left;  /* calls about our files until one fails; 0: none will */
static _Atomic int fail_how;

EXPORT void crash_fail(long nth, int how)
{
    fail_how = how;
    fail_left = nth;
}

EXPORT int crash_fail_is_over(void)
{
    return fail_left == 0;
}

/* Whether this call is the one, and may fail so; sets errno. */
static bool fails(bool may_interrupt)
{
    if (fail_left == 0 || --fail_left > 0 || fail_how == CRASH_SHORT || (fail_how == EINTR && !may_interrupt))
        return false;
    errno = fail_how;
    return true;
}

/* The same for a write of `*bytes`, which may become fewer. */
static bool fails_to_write(size_t *bytes)
{
    if (fail_left == 1 && fail_how == CRASH_SHORT && *bytes > 1)
        *bytes /= 2;
    return fails(true);
}

/* ---- the log ---- */

static void open_log(void)
{
    const char *dir = getenv("DTP_CRASH_DIR"), *path = getenv("DTP_CRASH_LOG");

    if (log_pid == getpid() || !dir || !path)
        return;
    if (!realpath(dir, root))
        return;
    /* A child that was forked has to have a lock of its own. */
    if (log_fd >= 0)
        REAL(close, fd_fn)(log_fd);
    log_fd = REAL(open, open_fn)(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    log_pid = getpid();
}

/* One at a time, of all processes; false: nothing is recorded. */
static bool enter(void)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

    pthread_mutex_lock(&mutex);
    open_log();
    if (log_fd < 0) {
        pthread_mutex_unlock(&mutex);
        return false;
    }
    while (fcntl(log_fd, F_OFD_SETLKW, &lock) < 0 && errno == EINTR)
        ;
    return true;
}

static void leave(void)
{
    struct flock unlock = { .l_type = F_UNLCK, .l_whence = SEEK_SET };
    const int e = errno;

    fcntl(log_fd, F_OFD_SETLK, &unlock);
    pthread_mutex_unlock(&mutex);
    errno = e;
}

static void say(uint32_t kind, uint64_t inode, const char *path, const char *to, uint64_t at,
                const void *data, size_t bytes)
{
    const record_head h = { kind, path ? (uint32_t)strlen(path) : 0, to ? (uint32_t)strlen(to) : 0, 0,
                            inode, at, bytes };
    struct iovec v[4] = {
        { (void *)&h, sizeof(h) }, { (void *)path, h.path_bytes }, { (void *)to, h.to_bytes },
        { (void *)data, bytes },
    };

    if (((ssize_t(*)(int, const struct iovec *, int))real_of(&real_writev, "writev"))(log_fd, v, 4) !=
        (ssize_t)(sizeof(h) + h.path_bytes + h.to_bytes + bytes)) {
        static const char text[] = "recorder: cannot write the log\n";
        REAL(write, write_fn)(2, text, sizeof(text) - 1);
        abort();
    }
}

/* ---- paths ---- */

/* `path` below the folder, without "." and ".."; NULL: it lies elsewhere. */
static const char *below(int at_fd, const char *path, char out[PATH_MAX])
{
    char whole[2 * PATH_MAX] = "", link[64], *p;
    size_t n = 0;

    if (!path)
        return NULL;
    if (path[0] != '/') {
        snprintf(link, sizeof(link), at_fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at_fd);
        const ssize_t len = readlink(link, whole, PATH_MAX - 1);
        whole[len < 0 ? 0 : len] = '\0';
    }
    snprintf(whole + strlen(whole), PATH_MAX, "/%s", path);
    for (char *save = NULL, *part = strtok_r(whole, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
        if (strcmp(part, ".") == 0)
            continue;
        if (strcmp(part, "..") == 0) {
            out[n] = '\0';
            p = strrchr(out, '/');
            n = p ? (size_t)(p - out) : 0;
            continue;
        }
        if (n + strlen(part) + 2 > PATH_MAX)
            return NULL;
        n += (size_t)sprintf(out + n, "/%s", part);
    }
    out[n] = '\0';
    const size_t len = strlen(root);
    if (strncmp(out, root, len) != 0 || (out[len] != '/' && out[len] != '\0'))
        return NULL;
    return out[len] ? out + len + 1 : out + len;
}

static known *find(const struct stat *s)
{
    for (size_t i = n_files; i-- > 0;)
        if (files[i].dev == s->st_dev && files[i].inode == s->st_ino)
            return &files[i];
    return NULL;
}

static void know(const struct stat *s, const char *path)
{
    known *k = find(s);

    if (!k && n_files == MAX_FILES)
        abort();
    if (!k)
        k = &files[n_files++];
    else
        free(k->path);
    *k = (known){ s->st_dev, s->st_ino, strdup(path) };
}

/* The file behind a descriptor, where it is one of ours. */
static known *of_fd(int fd, struct stat *s)
{
    return fstat(fd, s) == 0 && S_ISREG(s->st_mode) ? find(s) : NULL;
}

/* ---- opening ---- */

typedef struct opening {
    bool ours, was_there;
    struct stat before;
    char buf[PATH_MAX];
    const char *path;
} opening;

static void before_open(opening *o, int at_fd, const char *path)
{
    o->path = below(at_fd, path, o->buf);
    o->ours = o->path != NULL;
    o->was_there = o->ours && fstatat(at_fd, path, &o->before, 0) == 0;
}

static void after_open(opening *o, int fd, int flags)
{
    struct stat s;

    if (!o->ours || fd < 0 || fstat(fd, &s) < 0 || !S_ISREG(s.st_mode))
        return;
    if (!o->was_there)
        say(CRASH_CREATE, s.st_ino, o->path, NULL, 0, NULL, 0);
    else if ((flags & O_TRUNC) && o->before.st_size > 0)
        say(CRASH_CUT, s.st_ino, o->path, NULL, 0, NULL, 0);
    if ((flags & O_ACCMODE) != O_RDONLY)
        know(&s, o->path);
}

#define OPEN(symbol)                                                                               \
    EXPORT int symbol(const char *path, int flags, ...)                                            \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;                \
        va_end(ap);                                                                                \
        opening o;                                                                                 \
        if ((flags & O_ACCMODE) == O_RDONLY || !enter())                                           \
            return REAL(symbol, open_fn)(path, flags, mode);                                       \
        before_open(&o, AT_FDCWD, path);                                                           \
        const int fd = o.ours && fails(true) ? -1 : REAL(symbol, open_fn)(path, flags, mode);      \
        after_open(&o, fd, flags);                                                                 \
        leave();                                                                                   \
        return fd;                                                                                 \
    }

#define OPENAT(symbol)                                                                             \
    EXPORT int symbol(int at_fd, const char *path, int flags, ...)                                 \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;                \
        va_end(ap);                                                                                \
        opening o;                                                                                 \
        if ((flags & O_ACCMODE) == O_RDONLY || !enter())                                           \
            return REAL(symbol, openat_fn)(at_fd, path, flags, mode);                              \
        before_open(&o, at_fd, path);                                                              \
        const int fd =                                                                             \
            o.ours && fails(true) ? -1 : REAL(symbol, openat_fn)(at_fd, path, flags, mode);        \
        after_open(&o, fd, flags);                                                                 \
        leave();                                                                                   \
        return fd;                                                                                 \
    }

#define FOPEN(symbol)                                                                              \
    EXPORT FILE *symbol(const char *path, const char *mode)                                        \
    {                                                                                              \
        opening o;                                                                                 \
        if ((mode[0] == 'r' && !strchr(mode, '+')) || !enter())                                    \
            return REAL(symbol, FILE * (*)(const char *, const char *))(path, mode);               \
        before_open(&o, AT_FDCWD, path);                                                           \
        FILE *f = REAL(symbol, FILE * (*)(const char *, const char *))(path, mode);                \
        after_open(&o, f ? fileno(f) : -1, mode[0] == 'w' ? O_WRONLY | O_TRUNC : O_WRONLY);        \
        leave();                                                                                   \
        return f;                                                                                  \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
FOPEN(fopen)
FOPEN(fopen64)

EXPORT int creat(const char *path, mode_t mode)
{
    return open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

/* ---- data ---- */

/* Where a write without a place of its own goes. */
static uint64_t place(int fd, const struct stat *s)
{
    const off_t at = lseek(fd, 0, SEEK_CUR);

    return fcntl(fd, F_GETFL) & O_APPEND ? (uint64_t)s->st_size : at < 0 ? 0 : (uint64_t)at;
}

static void wrote(const known *k, uint64_t at, const void *data, ssize_t n)
{
    if (n > 0)
        say(CRASH_WRITE, k->inode, k->path, NULL, at, data, (size_t)n);
}

EXPORT ssize_t write(int fd, const void *data, size_t bytes)
{
    struct stat s;

    if (n_files == 0 || !enter())
        return REAL(write, write_fn)(fd, data, bytes);
    const known *k = of_fd(fd, &s);
    const uint64_t at = k ? place(fd, &s) : 0;
    if (!k)
        leave();                /* a pipe may block */
    const ssize_t n = k && fails_to_write(&bytes) ? -1 : REAL(write, write_fn)(fd, data, bytes);
    if (k) {
        wrote(k, at, data, n);
        leave();
    }
    return n;
}

#define PWRITE(symbol)                                                                             \
    EXPORT ssize_t symbol(int fd, const void *data, size_t bytes, off_t at)                        \
    {                                                                                              \
        struct stat s;                                                                             \
        if (n_files == 0 || !enter())                                                              \
            return REAL(symbol, pwrite_fn)(fd, data, bytes, at);                                   \
        const known *k = of_fd(fd, &s);                                                            \
        const ssize_t n =                                                                          \
            k && fails_to_write(&bytes) ? -1 : REAL(symbol, pwrite_fn)(fd, data, bytes, at);       \
        if (k)                                                                                     \
            wrote(k, (uint64_t)at, data, n);                                                       \
        leave();                                                                                   \
        return n;                                                                                  \
    }

PWRITE(pwrite)
PWRITE(pwrite64)

EXPORT ssize_t writev(int fd, const struct iovec *v, int n_v)
{
    ssize_t all = 0;

    if (n_files == 0)
        return REAL(writev, ssize_t (*)(int, const struct iovec *, int))(fd, v, n_v);
    for (int i = 0; i < n_v; i++) {
        const ssize_t n = write(fd, v[i].iov_base, v[i].iov_len);
        if (n < 0)
            return all ? all : n;
        all += n;
        if ((size_t)n < v[i].iov_len)
            break;
    }
    return all;
}

static void resized(int fd, int rc, crash_kind kind, uint64_t to)
{
    struct stat s;
    const known *k = rc == 0 ? of_fd(fd, &s) : NULL;

    if (k)
        say(kind, k->inode, k->path, NULL, to, NULL, 0);
}

#define RESIZE(symbol, params, args, kind, to)                                                     \
    EXPORT int symbol params                                                                       \
    {                                                                                              \
        struct stat s;                                                                             \
        if (n_files == 0 || !enter())                                                              \
            return REAL(symbol, int (*) params)args;                                               \
        const int rc = of_fd(fd, &s) && fails(true) ? -1 : REAL(symbol, int (*) params)args;       \
        resized(fd, rc, kind, (uint64_t)(to));                                                     \
        leave();                                                                                   \
        return rc;                                                                                 \
    }

RESIZE(ftruncate, (int fd, off_t n), (fd, n), CRASH_CUT, n)
RESIZE(ftruncate64, (int fd, off_t n), (fd, n), CRASH_CUT, n)
RESIZE(fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n), CRASH_GROW, mode ? 0 : at + n)
RESIZE(fallocate64, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n), CRASH_GROW, mode ? 0 : at + n)
RESIZE(posix_fallocate, (int fd, off_t at, off_t n), (fd, at, n), CRASH_GROW, at + n)
RESIZE(posix_fallocate64, (int fd, off_t at, off_t n), (fd, at, n), CRASH_GROW, at + n)

/* ---- syncs ---- */

static void synced(int fd, int rc)
{
    char buf[PATH_MAX], link[64], target[PATH_MAX];
    struct stat s;

    /* Nothing was dropped where a signal came first. */
    if ((rc < 0 && errno == EINTR) || fstat(fd, &s) < 0)
        return;
    const known *k = find(&s);
    if (k && S_ISREG(s.st_mode))
        say(rc == 0 ? CRASH_SYNC : CRASH_SYNC_LOST, s.st_ino, k->path, NULL, 0, NULL, 0);
    if (!S_ISDIR(s.st_mode))
        return;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, target, sizeof(target) - 1);
    target[n < 0 ? 0 : n] = '\0';
    const char *path = below(AT_FDCWD, target, buf);
    if (path)
        say(rc == 0 ? CRASH_SYNC_DIR : CRASH_SYNC_LOST, s.st_ino, path, NULL, 0, NULL, 0);
}

static bool is_ours(int fd)
{
    struct stat s;

    return fstat(fd, &s) == 0 && (S_ISDIR(s.st_mode) || find(&s));
}

#define SYNC(symbol)                                                                               \
    EXPORT int symbol(int fd)                                                                      \
    {                                                                                              \
        if (!enter())                                                                              \
            return REAL(symbol, fd_fn)(fd);                                                        \
        const int rc = is_ours(fd) && fails(true) ? -1 : REAL(symbol, fd_fn)(fd);                  \
        synced(fd, rc);                                                                            \
        leave();                                                                                   \
        return rc;                                                                                 \
    }

SYNC(fsync)
SYNC(fdatasync)

/* A file that has another name than it was known by was renamed behind our back. */
EXPORT int close(int fd)
{
    char buf[PATH_MAX], link[64], target[PATH_MAX];
    struct stat s;

    if (n_files == 0 || fd == log_fd || !enter())
        return REAL(close, fd_fn)(fd);
    known *k = of_fd(fd, &s);
    if (k) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(link, target, sizeof(target) - 1);
        target[n < 0 ? 0 : n] = '\0';
        const char *path = below(AT_FDCWD, target, buf);
        if (path && s.st_nlink > 0 && strcmp(path, k->path) != 0) {
            say(CRASH_RENAME, s.st_ino, k->path, path, 0, NULL, 0);
            know(&s, path);
        }
    }
    /* Closed all the same, as Linux does. */
    const int rc = REAL(close, fd_fn)(fd);
    const bool failed = k && fails(true);
    leave();
    return failed ? -1 : rc;
}

/* ---- names ---- */

typedef struct naming {
    char buf[PATH_MAX], to_buf[PATH_MAX];
    const char *path, *to;
    struct stat s;
    bool ours;
} naming;

static void before_name(naming *n, int fd, const char *path, int to_fd, const char *to)
{
    n->path = below(fd, path, n->buf);
    n->to = to ? below(to_fd, to, n->to_buf) : NULL;
    n->ours = n->path && (!to || n->to) && fstatat(fd, path, &n->s, AT_SYMLINK_NOFOLLOW) == 0;
}

static void after_name(naming *n, int rc, crash_kind kind)
{
    if (rc != 0 || !n->ours)
        return;
    say(kind, n->s.st_ino, n->path, n->to, 0, NULL, 0);
    if (kind == CRASH_RENAME && find(&n->s))
        know(&n->s, n->to);
}

#define NAME(symbol, params, args, kind, fd, path, to_fd, to)                                      \
    EXPORT int symbol params                                                                       \
    {                                                                                              \
        naming n;                                                                                  \
        if (!enter())                                                                              \
            return REAL(symbol, int (*) params)args;                                               \
        before_name(&n, fd, path, to_fd, to);                                                      \
        const int rc = n.ours && fails(false) ? -1 : REAL(symbol, int (*) params)args;             \
        after_name(&n, rc, kind);                                                                  \
        leave();                                                                                   \
        return rc;                                                                                 \
    }

NAME(rename, (const char *a, const char *b), (a, b), CRASH_RENAME, AT_FDCWD, a, AT_FDCWD, b)
NAME(renameat, (int f, const char *a, int g, const char *b), (f, a, g, b), CRASH_RENAME, f, a, g, b)
NAME(renameat2, (int f, const char *a, int g, const char *b, unsigned flags), (f, a, g, b, flags),
     CRASH_RENAME, f, a, g, b)
NAME(link, (const char *a, const char *b), (a, b), CRASH_LINK, AT_FDCWD, a, AT_FDCWD, b)
NAME(linkat, (int f, const char *a, int g, const char *b, int flags), (f, a, g, b, flags), CRASH_LINK, f,
     a, g, b)
NAME(unlink, (const char *a), (a), CRASH_REMOVE, AT_FDCWD, a, 0, NULL)
NAME(unlinkat, (int f, const char *a, int flags), (f, a, flags), CRASH_REMOVE, f, a, 0, NULL)
NAME(rmdir, (const char *a), (a), CRASH_REMOVE, AT_FDCWD, a, 0, NULL)

static void made_dir(int at_fd, const char *path, int rc)
{
    char buf[PATH_MAX];
    struct stat s;
    const char *p = below(at_fd, path, buf);

    if (rc == 0 && p && fstatat(at_fd, path, &s, 0) == 0)
        say(CRASH_MAKE_DIR, s.st_ino, p, NULL, 0, NULL, 0);
}

EXPORT int mkdir(const char *path, mode_t mode)
{
    if (!enter())
        return REAL(mkdir, int (*)(const char *, mode_t))(path, mode);
    const int rc = fails(false) ? -1 : REAL(mkdir, int (*)(const char *, mode_t))(path, mode);
    made_dir(AT_FDCWD, path, rc);
    leave();
    return rc;
}

EXPORT int mkdirat(int at_fd, const char *path, mode_t mode)
{
    if (!enter())
        return REAL(mkdirat, int (*)(int, const char *, mode_t))(at_fd, path, mode);
    const int rc = REAL(mkdirat, int (*)(int, const char *, mode_t))(at_fd, path, mode);
    made_dir(at_fd, path, rc);
    leave();
    return rc;
}

/* ---- the program's own word ---- */

EXPORT void crash_mark(uint64_t what)
{
    if (!enter())
        return;
    say(RECORD_MARK, 0, NULL, NULL, what, NULL, 0);
    leave();
}
