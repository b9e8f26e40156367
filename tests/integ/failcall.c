/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failcall.c - preloaded into a test: fails the Nth system call of the whole process, of all that a
 * bootstrap makes, with an error that the kernel could give there.
 *
 * Calls that libc makes for itself are not seen. getrandom fails with EINTR alone: libsodium ends the
 * process where there is no randomness, which the kernel does not refuse once it has started.
 */
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/types.h>

#include "failat.h"
#include "failcall.h"

#define EXPORT __attribute__((visibility("default")))
/* `fn` under the name that the test's and libdtp's objects ask for. */
#define NAMED(fn, symbol)                                                                          \
    extern __typeof__(fn) fn##_##symbol __asm__(#symbol)                                           \
        __attribute__((alias(#fn), visibility("default")));

static _Atomic long left = -1; /* calls until one fails; negative: none will */
static _Atomic unsigned variant;
static _Atomic(const char *) failed_name;
static _Atomic int failed_errno;

EXPORT void failcall_arm(long nth, unsigned which)
{
    atomic_store(&failed_name, NULL);
    atomic_store(&variant, which);
    atomic_store(&left, nth);
}

EXPORT const char *failcall_disarm(int *errno_out)
{
    atomic_store(&left, -1);
    *errno_out = atomic_load(&failed_errno);
    return atomic_load(&failed_name);
}

__attribute__((constructor)) static void arm_from_env(void)
{
    const long nth = failat_nth("call");

    if (nth > 0)
        failcall_arm(nth, (unsigned)nth);
}

/* Whether this call is the one; sets errno to one of `errors`, a list that ends in 0. */
static int fails(const char *name, const int *errors)
{
    unsigned n = 0;

    if (atomic_load_explicit(&left, memory_order_relaxed) < 0 || atomic_fetch_sub(&left, 1) != 1)
        return 0;
    atomic_store(&left, -1);
    while (errors[n])
        n++;
    const int e = errors[atomic_load(&variant) % n];
    failat_say(name, e);
    errno = e;
    atomic_store(&failed_errno, e);
    atomic_store(&failed_name, name);
    return 1;
}

#define ERRORS(...) ((const int[]){ __VA_ARGS__, 0 })

/* A call `symbol` that gives -1 with one of the errors. */
#define CALL(ret, symbol, params, args, ...)                                                       \
    static ret my_##symbol params                                                                  \
    {                                                                                              \
        static _Atomic(void *) real;                                                               \
        if (fails(#symbol, ERRORS(__VA_ARGS__)))                                                   \
            return (ret)-1;                                                                        \
        if (!atomic_load(&real))                                                                   \
            atomic_store(&real, dlsym(RTLD_NEXT, #symbol));                                        \
        return ((ret(*) params)atomic_load(&real)) args;                                           \
    }                                                                                              \
    NAMED(my_##symbol, symbol)

/* A network may cut a connection; that to a process of this machine ends with the process. */
static int is_inet(int fd)
{
    static _Atomic(void *) real;
    socklen_t n = sizeof(int);
    int domain = 0;

    if (!atomic_load(&real))
        atomic_store(&real, dlsym(RTLD_NEXT, "getsockopt"));
    ((int (*)(int, int, int, void *, socklen_t *))atomic_load(&real))(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n);
    return domain == AF_INET || domain == AF_INET6;
}

#define CALL_SOCKET(symbol, is_const, ...)                                                         \
    static ssize_t my_##symbol(int fd, is_const void *m, int flags)                                \
    {                                                                                              \
        static _Atomic(void *) real;                                                               \
        if (is_inet(fd) ? fails(#symbol, ERRORS(__VA_ARGS__, ECONNRESET))                          \
                        : fails(#symbol, ERRORS(__VA_ARGS__)))                                     \
            return -1;                                                                             \
        if (!atomic_load(&real))                                                                   \
            atomic_store(&real, dlsym(RTLD_NEXT, #symbol));                                        \
        return ((ssize_t (*)(int, is_const void *, int))atomic_load(&real))(fd, m, flags);         \
    }                                                                                              \
    NAMED(my_##symbol, symbol)

CALL(int, socket, (int domain, int type, int protocol), (domain, type, protocol), EMFILE, ENOBUFS, ENFILE)
CALL(int, bind, (int fd, const void *sa, socklen_t n), (fd, sa, n), ENOMEM, EACCES)
CALL(int, listen, (int fd, int n), (fd, n), EADDRINUSE)
CALL(int, accept4, (int fd, void *sa, socklen_t *n, int flags), (fd, sa, n, flags), EMFILE, ECONNABORTED,
     ENOMEM, EINTR)
CALL(int, connect, (int fd, const void *sa, socklen_t n), (fd, sa, n), ENOMEM, ECONNREFUSED, EINTR, EAGAIN)
CALL_SOCKET(sendmsg, const, ENOBUFS, EINTR, EAGAIN)
CALL_SOCKET(recvmsg, , ENOMEM, EINTR, EAGAIN)
CALL(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), EINTR)
CALL(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), EINTR, EIO)
CALL(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at), ENOSPC, EINTR)
CALL(ssize_t, pwrite64, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at), ENOSPC, EINTR)
CALL(int, epoll_create1, (int flags), (flags), EMFILE)
CALL(int, epoll_ctl, (int fd, int op, int other, void *ev), (fd, op, other, ev), ENOMEM, ENOSPC)
CALL(int, epoll_wait, (int fd, void *ev, int n, int ms), (fd, ev, n, ms), EINTR)
CALL(int, eventfd, (unsigned n, int flags), (n, flags), EMFILE, ENOMEM)
CALL(int, timerfd_create, (int clock, int flags), (clock, flags), EMFILE, ENOMEM)
CALL(int, memfd_create, (const char *name, unsigned flags), (name, flags), EMFILE, ENOMEM, ENOSYS)
CALL(int, ftruncate, (int fd, off_t n), (fd, n), EINTR, ENOSPC)
CALL(int, ftruncate64, (int fd, off_t n), (fd, n), EINTR, ENOSPC)
CALL(void *, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t at), (p, n, prot, flags, fd, at),
     ENOMEM)
CALL(void *, mmap64, (void *p, size_t n, int prot, int flags, int fd, off_t at), (p, n, prot, flags, fd, at),
     ENOMEM)
CALL(int, poll, (struct pollfd *p, nfds_t n, int ms), (p, n, ms), EINTR, ENOMEM)
CALL(int, fstat, (int fd, void *st), (fd, st), ENOMEM)
CALL(int, fstat64, (int fd, void *st), (fd, st), ENOMEM)
CALL(int, getsockopt, (int fd, int level, int name, void *p, socklen_t *n), (fd, level, name, p, n), ENOBUFS)
CALL(int, setsockopt, (int fd, int level, int name, const void *p, socklen_t n), (fd, level, name, p, n),
     ENOMEM)
CALL(int, getsockname, (int fd, void *sa, socklen_t *n), (fd, sa, n), ENOBUFS)
CALL(int, getpeername, (int fd, void *sa, socklen_t *n), (fd, sa, n), ENOTCONN)
CALL(int, gethostname, (char *name, size_t n), (name, n), ENAMETOOLONG)
CALL(ssize_t, getrandom, (void *p, size_t n, unsigned flags), (p, n, flags), EINTR)
CALL(int, getifaddrs, (void **list), (list), ENOBUFS, EMFILE)
CALL(int, dup, (int fd), (fd), EMFILE)

/* ---- the name service, where nobody answers ---- */

static _Atomic int n_names;

EXPORT int failcall_n_names(void)
{
    return atomic_load(&n_names);
}

static int my_getaddrinfo(const char *host, const char *service, const void *hints, void **list)
{
    (void)host, (void)service, (void)hints, (void)list;
    atomic_fetch_add(&n_names, 1);
    return EAI_AGAIN;
}
NAMED(my_getaddrinfo, getaddrinfo)

static int my_getnameinfo(const void *sa, socklen_t n, char *host, socklen_t n_host, char *service,
                          socklen_t n_service, int flags)
{
    (void)sa, (void)n, (void)host, (void)n_host, (void)service, (void)n_service, (void)flags;
    atomic_fetch_add(&n_names, 1);
    return EAI_AGAIN;
}
NAMED(my_getnameinfo, getnameinfo)

static void *my_gethostbyname(const char *name)
{
    (void)name;
    atomic_fetch_add(&n_names, 1);
    return NULL;
}
NAMED(my_gethostbyname, gethostbyname)

/* Closed all the same, as Linux does. */
static int my_close(int fd)
{
    static _Atomic(void *) real;

    if (!atomic_load(&real))
        atomic_store(&real, dlsym(RTLD_NEXT, "close"));
    const int rc = ((int (*)(int))atomic_load(&real))(fd);
    return fails("close", ERRORS(EIO, EINTR)) ? -1 : rc;
}
NAMED(my_close, close)

/* Names with arguments that may be absent; those that a call does not have are passed on unused. */
#define CALL_OPEN(symbol)                                                                          \
    static int my_##symbol(const char *path, int flags, ...)                                       \
    {                                                                                              \
        static _Atomic(void *) real;                                                               \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        const mode_t mode = va_arg(ap, mode_t);                                                    \
        va_end(ap);                                                                                \
        if (fails(#symbol, ERRORS(EMFILE, EACCES)))                                                \
            return -1;                                                                             \
        if (!atomic_load(&real))                                                                   \
            atomic_store(&real, dlsym(RTLD_NEXT, #symbol));                                        \
        return ((int (*)(const char *, int, ...))atomic_load(&real))(path, flags, mode);           \
    }                                                                                              \
    NAMED(my_##symbol, symbol)
CALL_OPEN(open)
CALL_OPEN(open64)

#define CALL_FCNTL(symbol)                                                                         \
    static int my_##symbol(int fd, int cmd, ...)                                                   \
    {                                                                                              \
        static _Atomic(void *) real;                                                               \
        va_list ap;                                                                                \
        va_start(ap, cmd);                                                                         \
        void *arg = va_arg(ap, void *);                                                            \
        va_end(ap);                                                                                \
        if (fails(#symbol, ERRORS(EMFILE, EPERM)))                                                 \
            return -1;                                                                             \
        if (!atomic_load(&real))                                                                   \
            atomic_store(&real, dlsym(RTLD_NEXT, #symbol));                                        \
        return ((int (*)(int, int, ...))atomic_load(&real))(fd, cmd, arg);                         \
    }                                                                                              \
    NAMED(my_##symbol, symbol)
CALL_FCNTL(fcntl)
CALL_FCNTL(fcntl64)

/* pidfd_open and futex. */
static long my_syscall(long number, ...)
{
    static _Atomic(void *) real;
    long a[6];
    va_list ap;

    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (fails("syscall", ERRORS(EMFILE, ENOSYS, EPERM)))
        return -1;
    if (!atomic_load(&real))
        atomic_store(&real, dlsym(RTLD_NEXT, "syscall"));
    return ((long (*)(long, ...))atomic_load(&real))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
NAMED(my_syscall, syscall)

/* The error is the answer. */
static int my_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    static _Atomic(void *) real;

    if (fails("pthread_create", ERRORS(EAGAIN)))
        return EAGAIN;
    if (!atomic_load(&real))
        atomic_store(&real, dlsym(RTLD_NEXT, "pthread_create"));
    return ((int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))atomic_load(&real))(
        t, attr, run, arg);
}
NAMED(my_pthread_create, pthread_create)
