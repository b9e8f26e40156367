/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - runs a function as N forked ranks; a child that fails says why and exits with 1. */
#ifndef DTP_TESTS_RANKS_H
#define DTP_TESTS_RANKS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <dtp/group.h>

#include "check.h"

enum { RANKS_MAX = 64 };

/* In a child: an assertion without cmocka. */
#define RANK_CHECK(cond)                                                                            \
    do {                                                                                            \
        if (!(cond)) {                                                                              \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, rank_me, #cond);             \
            _exit(1);                                                                               \
        }                                                                                           \
    } while (0)
#define RANK_STATUS(want, expr)                                                                     \
    do {                                                                                            \
        memset(&check_err, 0, sizeof(check_err));                                                   \
        const dtp_status got_ = (expr);                                                             \
        if (got_ != (want)) {                                                                       \
            fprintf(stderr, "%s:%d: rank %d: %s: expected %s, got %s: %s\n", __FILE__, __LINE__,     \
                    rank_me, #expr, dtp_status_name(want), dtp_status_name(got_), check_err.text);   \
            _exit(1);                                                                               \
        }                                                                                           \
    } while (0)
#define RANK_OK(expr) RANK_STATUS(DTP_OK, expr)
#define RANK_TEXT(part) RANK_CHECK(strstr(check_err.text, (part)) != NULL || (fprintf(stderr, "text: %s\n", check_err.text), 0))

static int rank_me __attribute__((unused)) = -1;

static inline int64_t ranks_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Of 127.0.0.1, below the range from which the kernel takes ports for those who connect. */
static inline uint16_t ranks_free_port(void)
{
    static unsigned n;

    for (;;) {
        const uint16_t port = (uint16_t)(10000 + ((unsigned)getpid() * 31 + n++ * 7) % 20000);
        struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const bool ok = bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0;
        close(fd);
        if (ok)
            return port;
    }
}

/* A job name that no other test uses. */
static inline const char *ranks_job(void)
{
    static char name[48];
    static int n;

    snprintf(name, sizeof(name), "test-%d-%d", (int)getpid(), n++);
    return name;
}

static inline void ranks_start(int n, void (*fn)(int rank, int n, void *user), void *user,
                               pid_t *pids_out)
{
    fflush(NULL);
    for (int i = 0; i < n; i++) {
        pids_out[i] = fork();
        if (pids_out[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(30);
            rank_me = i;
            fn(i, n, user);
            _exit(0);
        }
    }
}

/* Wait status of each. */
static inline void ranks_wait(int n, const pid_t *pids, int *status_out)
{
    for (int i = 0; i < n; i++)
        waitpid(pids[i], &status_out[i], 0);
}

static inline void ranks_run(int n, void (*fn)(int rank, int n, void *user), void *user)
{
    pid_t pids[RANKS_MAX];
    int status[RANKS_MAX];

    ranks_start(n, fn, user, pids);
    ranks_wait(n, pids, status);
    for (int i = 0; i < n; i++)
        if (status[i] != 0)
            fail_msg("rank %d ended with status 0x%x", i, status[i]);
}

#endif /* DTP_TESTS_RANKS_H */
