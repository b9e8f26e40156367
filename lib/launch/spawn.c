/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn.c - clone with shared memory, set up, exec: one process a call, failures known at return.
 *
 * posix_spawn cannot set processors or a death signal before exec; this is the same technique with
 * the few calls that are needed. Between clone and exec only system calls are made.
 */
#include "launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK_BYTES = 64 << 10, KEEP_FROM = 64 };

/* What the child reads and, on failure, writes: it runs in the parent's memory. */
typedef struct setup {
    const dtpi_spawn_req *req;
    int in_fd, out_fd, err_fd;
    pid_t parent;
    int error;                  /* errno of the step that failed; 0: the program runs */
    const char *step;
} setup;

/*
 * The child has a table of descriptors of its own, which starts as the few that it needs: copying and closing
 * those of all ranks before would make n starts take n^2 time.
 */
static bool own_files(const setup *s)
{
    const int top = DTPI_MAX(DTPI_MAX(s->in_fd, s->out_fd), DTPI_MAX(s->err_fd, s->req->keep_fd));

    return syscall(SYS_close_range, top + 1, ~0u, CLOSE_RANGE_UNSHARE) == 0 || unshare(CLONE_FILES) == 0;
}

static int give_up(setup *s, const char *step)
{
    s->error = errno ? errno : EINVAL;
    s->step = step;
    return 127;
}

/* Signal handlers of the parent must not run in the child: defaults first, then the empty mask. */
static void reset_signals(void)
{
    const struct sigaction dfl = { .sa_handler = SIG_DFL };
    sigset_t none;

    for (int sig = 1; sig < NSIG; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            sigaction(sig, &dfl, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int set_affinity(const dtpi_cpuset *cpus)
{
    return (int)syscall(SYS_sched_setaffinity, 0, sizeof(cpus->bits), cpus->bits);
}

__attribute__((no_sanitize("address", "undefined"))) static int child_main(void *arg)
{
    setup *s = arg;
    const dtpi_spawn_req *req = s->req;

    if (!own_files(s))
        return give_up(s, "cannot have descriptors of its own");
    reset_signals();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != s->parent)
        return give_up(s, "cannot tie to the shim");
    if (setpgid(0, 0) < 0)
        return give_up(s, "cannot make a process group");
    if (req->cpus && set_affinity(req->cpus) < 0)
        return give_up(s, "cannot bind to its processors");
    if (dup2(s->in_fd, 0) < 0 || dup2(s->out_fd, 1) < 0 || dup2(s->err_fd, 2) < 0)
        return give_up(s, "cannot set its input and output");
    if (req->keep_fd >= 0 && fcntl(req->keep_fd, F_SETFD, 0) < 0)
        return give_up(s, "cannot inherit the locks");
    if (req->files && setrlimit(RLIMIT_NOFILE, req->files) < 0)
        return give_up(s, "cannot restore the limit of descriptors");
    if (req->cwd && chdir(req->cwd) < 0)
        return give_up(s, "chdir");
    execve(req->path, (char *const *)(uintptr_t)req->argv, (char *const *)(uintptr_t)req->envp);
    return give_up(s, NULL);
}

static dtp_status describe(const setup *s, dtp_error *err)
{
    const dtpi_spawn_req *req = s->req;

    errno = s->error;
    if (!s->step)
        return dtpi_fail(err, DTP_ERR_EXEC, "cannot execute '%s': %m", req->path);
    if (strcmp(s->step, "chdir") == 0)
        return dtpi_fail(err, dtpi_status_of_errno(s->error), "cannot enter folder '%s': %m",
                         req->cwd);
    return dtpi_fail(err, dtpi_status_of_errno(s->error), "%s: %m", s->step);
}

/* Runs the child until it has executed the program or failed. */
static dtp_status run_child(setup *s, dtpi_child *child, dtp_error *err)
{
    sigset_t all, old;

    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
        return dtpi_fail(err, DTP_ERR_NOMEM, "cannot map a stack: %m");
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    child->pid = clone(child_main, stack + STACK_BYTES,
                       CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_PIDFD | SIGCHLD, s, &child->pidfd);
    const int saved = errno;
    sigprocmask(SIG_SETMASK, &old, NULL);
    munmap(stack, STACK_BYTES);
    errno = saved;
    if (child->pid < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot start a process: %m");
    if (s->error) {
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
        dtpi_close_fd(&child->pidfd);
        return describe(s, err);
    }
    return DTP_OK;
}

static dtp_status make_pipe(int *read_fd, int *write_fd, dtp_error *err)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make a pipe: %m");
    *read_fd = fds[0];
    *write_fd = fds[1];
    if (fcntl(*read_fd, F_SETFL, O_NONBLOCK) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot set up a pipe: %m");
    return DTP_OK;
}

/* What the parent keeps goes to high numbers, so that the child's stay below them (own_files). */
static void keep_high(int *fd)
{
    const int high = fcntl(*fd, F_DUPFD_CLOEXEC, KEEP_FROM);

    if (high < 0)
        return;     /* at the limit: only slower */
    close(*fd);
    *fd = high;
}

dtp_status dtpi_spawn(const dtpi_spawn_req *req, dtpi_child *child_out, dtp_error *err)
{
    DTPI_AUTO_FD int in_fd = -1, out_r = -1, out_w = -1, err_r = -1, err_w = -1;
    dtpi_child child = { .pid = -1, .pidfd = -1, .out_fd = -1, .err_fd = -1 };

    in_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in_fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open /dev/null: %m");
    dtp_status st = make_pipe(&out_r, &out_w, err);
    if (st >= 0)
        st = make_pipe(&err_r, &err_w, err);
    if (st < 0)
        return st;
    keep_high(&out_r);
    keep_high(&err_r);
    setup s = { .req = req, .in_fd = in_fd, .out_fd = out_w, .err_fd = err_w, .parent = getpid() };
    st = run_child(&s, &child, err);
    if (st < 0)
        return st;
    keep_high(&child.pidfd);
    child.out_fd = dtpi_take_fd(&out_r);
    child.err_fd = dtpi_take_fd(&err_r);
    *child_out = child;
    return DTP_OK;
}

dtp_status dtpi_raise_files(uint64_t need, struct rlimit *old_out, dtp_error *err)
{
    struct rlimit lim;

    if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot read the limit of descriptors: %m");
    *old_out = lim;
    if (lim.rlim_max < need)
        return dtpi_fail(err, DTP_ERR_LIMIT, "need %llu descriptors, limit %llu",
                         (unsigned long long)need, (unsigned long long)lim.rlim_max);
    lim.rlim_cur = lim.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &lim) < 0)
        return dtpi_fail(err, DTP_ERR_LIMIT, "cannot raise the limit of descriptors: %m");
    return DTP_OK;
}
