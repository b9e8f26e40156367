/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep.c - finds processes in /proc that nobody holds a handle of: children that a subreaper has
 * inherited, and what a shim that was killed has left behind.
 *
 * A process id may be another process a moment later, so a signal goes through a pidfd that was
 * opened before the check.
 */
#include "launch/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel gives arguments and environment of a process 6 MiB at most (execve(2)). */
enum { STAT_BYTES = 512, ENVIRON_BYTES = 6 << 20 };

static ssize_t read_proc(pid_t pid, const char *file, char *out, size_t room)
{
    char path[64];
    size_t len = 0;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    DTPI_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    while (len < room) {
        const ssize_t n = read(fd, out + len, room - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    return (ssize_t)len;
}

/* State letter and parent of a process; the name between the brackets may hold anything. */
static bool read_stat(pid_t pid, char *state_out, pid_t *parent_out)
{
    char text[STAT_BYTES];

    const ssize_t n = read_proc(pid, "stat", text, sizeof(text) - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *p = strrchr(text, ')');
    int parent;
    if (!p || sscanf(p + 1, " %c %d", state_out, &parent) != 2)
        return false;
    *parent_out = parent;
    return true;
}

/* Calls `each` for every process there is. */
static void each_process(void (*each)(void *user, pid_t pid), void *user)
{
    DIR *dir = opendir("/proc");
    struct dirent *d;

    if (!dir)
        return;
    while ((d = readdir(dir))) {
        char *end;
        const long pid = strtol(d->d_name, &end, 10);
        if (*end == '\0' && pid > 0)
            each(user, (pid_t)pid);
    }
    closedir(dir);
}

/* ---- children ---- */

typedef struct children {
    int signal;
    bool (*keep)(void *user, pid_t pid);
    void *user;
    pid_t self;
    uint32_t n;
} children;

static void signal_child(void *user, pid_t pid)
{
    children *c = user;
    pid_t parent;
    char state;

    if (!read_stat(pid, &state, &parent) || parent != c->self || state == 'Z' || state == 'X')
        return;
    if (c->keep && c->keep(c->user, pid))
        return;
    /* Our own child: its id cannot be another's before we have reaped it. */
    if (c->signal == 0 || kill(pid, c->signal) == 0)
        c->n++;
}

uint32_t dtpi_signal_children(int signal, bool (*keep)(void *user, pid_t pid), void *user)
{
    children c = { .signal = signal, .keep = keep, .user = user, .self = getpid() };

    each_process(signal_child, &c);
    return c.n;
}

/* ---- by a mark in the environment ---- */

typedef struct marked {
    const char *mark;
    int signal;
    char *room;
    uint32_t n;
} marked;

static bool has_mark(const char *env, size_t bytes, const char *mark)
{
    const size_t len = strlen(mark) + 1;

    for (const char *p = env, *end = env + bytes; (size_t)(end - p) >= len;) {
        if (memcmp(p, mark, len) == 0)
            return true;
        p = memchr(p, 0, (size_t)(end - p));
        if (!p)
            break;
        p++;
    }
    return false;
}

static void signal_marked(void *user, pid_t pid)
{
    marked *m = user;
    pid_t parent;
    char state;

    if (pid == getpid())
        return;
    DTPI_AUTO_FD int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0 || !read_stat(pid, &state, &parent) || state == 'Z' || state == 'X')
        return;
    const ssize_t n = read_proc(pid, "environ", m->room, ENVIRON_BYTES - 1);
    if (n <= 0)
        return;
    m->room[n] = '\0';
    if (!has_mark(m->room, (size_t)n + 1, m->mark))
        return;
    if (m->signal == 0 || syscall(SYS_pidfd_send_signal, fd, m->signal, NULL, 0) == 0)
        m->n++;
}

uint32_t dtpi_sweep(const dtp_allocator *a, const char *mark, int signal)
{
    marked m = { .mark = mark, .signal = signal,
                 .room = dtpi_alloc_aligned(a, ENVIRON_BYTES, sizeof(void *)) };

    if (m.room)
        each_process(signal_marked, &m);
    dtpi_free(a, m.room, ENVIRON_BYTES);
    return m.n;
}
