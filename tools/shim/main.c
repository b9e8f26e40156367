/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - dtp-shim: owns the ranks of one job on this node. Started by libdtp, not by hand.
 *
 *     dtp-shim JOB_FOLDER        with the descriptors that launch/shim.h lists
 */
#include "shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch/shim.h"

/* Out of the way of ranks that use low numbers themselves. */
enum { LOCKS_FD_FROM = 64 };

void shim_journal(shim *s, dtpi_journal_entry e)
{
    dtp_error err;

    if (dtpi_journal_append(s->journal_fd, e, &err) < 0)
        shim_notice(s, "%s", err.text);
}

void shim_notice(shim *s, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text) - 1, fmt, ap);
    va_end(ap);
    n = DTPI_MIN(DTPI_MAX(n, 0), (int)sizeof(text) - 2);
    text[n] = '\n';
    serve_tell(s, &(dtpi_shim_msg){ .type = DTPI_SHIM_OUTPUT, .rank = -1, .stream = 2,
                                    .data = (const uint8_t *)text, .data_bytes = (size_t)n + 1 });
}

/* The caller waits for the first process only; init inherits this one. */
static void detach(void)
{
    const pid_t pid = fork();

    if (pid < 0)
        _exit(1);
    if (pid > 0)
        _exit(0);
    setsid();
}

/* Only the descriptors that were handed over stay open, and none of them leaks into a rank. */
static dtp_status adopt_fds(shim *s, dtp_error *err)
{
    close_range(DTPI_SHIM_FD_LOCKS + 1, ~0u, 0);
    if (fcntl(DTPI_SHIM_FD_CONN, F_SETFD, FD_CLOEXEC) < 0 ||
        fcntl(DTPI_SHIM_FD_ALIVE, F_SETFD, FD_CLOEXEC) < 0)
        return dtpi_fail(err, DTP_ERR_INVAL, "started without its descriptors");
    s->locks_fd = fcntl(DTPI_SHIM_FD_LOCKS, F_DUPFD_CLOEXEC, LOCKS_FD_FROM);
    /* The limit of descriptors may be lower than that. */
    if (s->locks_fd < 0 && errno == EINVAL)
        s->locks_fd = fcntl(DTPI_SHIM_FD_LOCKS, F_DUPFD_CLOEXEC, DTPI_SHIM_FD_LOCKS + 1);
    if (s->locks_fd < 0 && errno != EBADF)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot keep the locks: %m");
    close(DTPI_SHIM_FD_LOCKS);
    return DTP_OK;
}

static dtp_status open_folder(shim *s, const char *dir, dtp_error *err)
{
    const char *slash = strrchr(dir, '/');
    snprintf(s->name, sizeof(s->name), "%.63s", slash ? slash + 1 : dir);
    if (chdir(dir) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot enter %s: %m", dir);
    if (mkdir("logs", 0700) < 0 && errno != EEXIST)
        return dtpi_fail(err, DTP_ERR_IO, "cannot make %s/logs: %m", dir);
    s->journal_fd = open("journal", O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (s->journal_fd < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot open %s/journal: %m", dir);
    return DTP_OK;
}

/* ---- signals ---- */

typedef struct signals {
    dtpi_source source;
    shim *shim;
} signals;

static void on_signal(dtpi_source *source, uint32_t revents)
{
    shim *s = DTPI_CONTAINER(source, signals, source)->shim;
    struct signalfd_siginfo info;

    (void)revents;
    while (read(source->fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            gang_reap(s);
        else if (info.ssi_signo == SIGTERM) {
            s->quit_asked = true;
            gang_end(s, s->gang.msg.grace_ms);
        }
    }
}

static dtp_status open_signals(shim *s, signals *sig, dtp_error *err)
{
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    for (const int *p = (const int[]){ SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, 0 }; *p; p++)
        sigaddset(&set, *p);
    sigprocmask(SIG_BLOCK, &set, NULL);
    *sig = (signals){ .shim = s };
    sig->source = (dtpi_source){ .events = EPOLLIN, .ready = on_signal };
    sig->source.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (sig->source.fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open a signalfd: %m");
    return dtpi_source_add(s->ctx, &sig->source, err);
}

/* ---- running ---- */

static bool is_needed(const shim *s)
{
    return s->gang.phase != PHASE_NONE ||
           (!s->released && serve_has_supervisor(s) && !s->quit_asked);
}

static dtp_status run(shim *s, signals *sig, dtp_error *err)
{
    dtp_status st = dtp_ctx_open(NULL, &s->ctx, err);
    if (st < 0)
        return st;
    s->a = dtpi_ctx_alloc(s->ctx);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot become a subreaper: %m");
    st = open_signals(s, sig, err);
    if (st >= 0)
        st = serve_open(s, DTPI_SHIM_FD_CONN, err);
    bool is_first = true;
    while (st >= 0 && (is_first || is_needed(s))) {
        st = dtp_ctx_dispatch(s->ctx, -1, err);
        serve_tidy(s);
        /* Until its first HELLO the one who started the shim counts as a supervisor. */
        is_first = is_first && !s->supervisor && dtpi_conn_is_open(&s->conns[0]);
    }
    return st;
}

/* The one who started the shim learns why it ends. */
static void say_why(shim *s, const dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const dtpi_shim_msg msg = { .type = DTPI_SHIM_REFUSED, .status = err->status,
                                .text = err->text };

    if (serve_has_supervisor(s))
        serve_tell(s, &msg);
    else if (dtpi_shim_encode(&b, &msg, NULL) >= 0 &&
             write(DTPI_SHIM_FD_CONN, b.data, b.len) != (ssize_t)b.len)
        return;
}

int main(int argc, char **argv)
{
    static shim s = { .journal_fd = -1, .locks_fd = -1 };
    static signals sig;
    dtp_error err = { 0 };

    if (argc != 2) {
        fprintf(stderr, "usage: dtp-shim JOB_FOLDER (started by libdtp)\n");
        return 2;
    }
    dtp_status st = adopt_fds(&s, &err);
    if (st < 0) {
        fprintf(stderr, "dtp-shim: %s\n", err.text);
        return 2;
    }
    detach();
    st = open_folder(&s, argv[1], &err);
    if (st >= 0)
        st = run(&s, &sig, &err);
    if (st < 0)
        say_why(&s, &err);
    if (s.ctx) {
        gang_drop(&s);
        serve_close(&s);
        dtpi_source_remove(s.ctx, &sig.source);
    }
    dtp_ctx_close(s.ctx);
    return st < 0 ? 1 : 0;
}
