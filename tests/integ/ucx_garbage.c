/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx_garbage.c - what UCX does when strangers talk to the ports it opens: a fresh worker of net-ucx on `lo` for
 * each kind of garbage. Prints a line a kind for docs/embedding.md; fails only where a port that is not on the
 * chosen device is open. Argument: folder of modules.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ctx/ctx.h"
#include "net/net.h"

enum { PORTS = 16, RUN_MS = 400 };

struct ports {
    int n;
    uint16_t port[PORTS];
    uint32_t address[PORTS];    /* network order */
};

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- the victim ---- */

static bool is_ours(unsigned long inode)
{
    char path[300], link[64], want[64];
    DIR *d = opendir("/proc/self/fd");
    bool found = false;

    snprintf(want, sizeof(want), "socket:[%lu]", inode);
    for (struct dirent *e; !found && (e = readdir(d));) {
        snprintf(path, sizeof(path), "/proc/self/fd/%.200s", e->d_name);
        const ssize_t n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = '\0';
        found = strcmp(link, want) == 0;
    }
    closedir(d);
    return found;
}

static void find_ports(struct ports *out)
{
    char line[300];
    FILE *f = fopen("/proc/self/net/tcp", "r");

    while (f && fgets(line, sizeof(line), f)) {
        unsigned address, port, state;
        unsigned long inode;
        if (sscanf(line, "%*d: %x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*u %*d %lu", &address, &port, &state,
                   &inode) == 4 && state == 0x0a && is_ours(inode) && out->n < PORTS) {
            out->address[out->n] = address;
            out->port[out->n++] = (uint16_t)port;
        }
    }
    if (f)
        fclose(f);
}

static int n_messages;

static void on_message(void *user, const uint8_t *data, size_t bytes)
{
    (void)user;
    n_messages += bytes == 5 && memcmp(data, "hello", 5) == 0;
}

static void quiet(void *user, dtp_log_level level, const char *topic, const char *text)
{
    (void)user;
    (void)level;
    (void)topic;
    (void)text;
}

static void progress_for(const struct dtpi_net_ops *ops, dtpi_net *net, int ms)
{
    for (const int64_t end = now_ms() + ms; now_ms() < end;)
        if (!ops->progress(net))
            usleep(200);
}

/* Exit code 0: it still works after what came; 2: it lives, but no message passes. */
static void victim(const char *modules, int out_fd)
{
    const dtp_ctx_opts co = { .size = sizeof(co), .module_dir = modules, .log = quiet,
                              .log_level = DTP_LOG_ERROR };
    const struct dtpi_net_ops *ops;
    struct ports ports = { 0 };
    char version[32] = "";
    dtpi_net_ep *ep;
    dtp_error err;
    dtpi_net *net;
    dtp_ctx *ctx;
    size_t bytes;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dtp_ctx_open(&co, &ctx, &err) < 0 || dtpi_module_load(ctx, "net-ucx", (const void **)&ops, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        _exit(9);
    }
    const dtpi_net_opts o = { .allocator = dtpi_ctx_alloc(ctx), .log = dtpi_ctx_log(ctx),
                              .transports = "tcp", .devices = "lo", .message = on_message };
    if (ops->open(&o, &net, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        _exit(9);
    }
    ops->version(version, sizeof(version));
    find_ports(&ports);
    if (write(out_fd, version, sizeof(version)) != sizeof(version) ||
        write(out_fd, &ports, sizeof(ports)) != sizeof(ports))
        _exit(9);
    progress_for(ops, net, RUN_MS);
    const void *address = ops->address(net, &bytes);
    if (ops->connect(net, address, bytes, &ep, &err) < 0 || ops->post(ep, "hello", 5, &err) < 0)
        _exit(2);
    progress_for(ops, net, 200);
    _exit(n_messages == 1 ? 0 : 2);
}

/* ---- the strangers ---- */

static const uint8_t magic[8] = { 0x78, 0x56, 0x34, 0x12, 0xbe, 0xba, 0xfe, 0xca };

static size_t make(int kind, uint8_t *out)
{
    memset(out, 0, 65536);
    for (size_t i = 0; kind >= 6 && kind <= 9 && i < 4096; i++)
        out[i] = (uint8_t)rand();
    switch (kind) {
    case 0: return 0;
    case 1: return 1;
    case 2: return 64;
    case 3: return 65536;
    case 4: memcpy(out, magic, 8); return 4;
    case 5: memcpy(out, magic, 8); return 8;
    case 6: return 64;
    case 7: return 4096;
    case 8: memcpy(out, magic, 8); return 64;
    case 9: memcpy(out, magic, 8); return 4096;
    case 10: memcpy(out, magic, 8); return 64;
    case 11: memcpy(out, "GET / HTTP/1.1\r\n\r\n", 18); return 18;
    default: return 0;
    }
}

static const char *const kinds[] = { "connects and closes", "1 zero byte", "64 zero bytes", "64 KiB of zeros",
    "half of UCX's magic", "UCX's magic", "64 random bytes", "4096 random bytes", "UCX's magic, 56 random bytes",
    "UCX's magic, 4088 random bytes", "UCX's magic, 56 zero bytes", "an HTTP request", "200 that say nothing" };

static int stranger(uint32_t address, uint16_t port, int kind)
{
    static uint8_t bytes[65536];
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = address };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (!address)
        sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        close(fd);
        return -1;
    }
    const size_t n = make(kind, bytes);
    if (n && send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        perror("send");
    return fd;
}

static int run_kind(const char *modules, int kind)
{
    struct ports ports = { 0 };
    char version[32] = "", words[64];
    int p[2], status, bad = 0, fds[201], n = 0;

    if (pipe(p) < 0)
        return 1;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        victim(modules, p[1]);
    close(p[1]);
    if (read(p[0], version, sizeof(version)) != sizeof(version) ||
        read(p[0], &ports, sizeof(ports)) != sizeof(ports)) {
        waitpid(pid, &status, 0);
        return 77;
    }
    for (int i = 0; i < ports.n; i++) {
        const int times = kind == 12 ? 200 : 3;
        for (int k = 0; k < times && n < 200; k++) {
            const int fd = stranger(ports.address[i], ports.port[i], kind);
            if (fd >= 0)
                fds[n++] = fd;
            if (kind != 12 && n)
                close(fds[--n]);
        }
        bad += ports.address[i] != htonl(INADDR_LOOPBACK);
    }
    waitpid(pid, &status, 0);
    while (n)
        close(fds[--n]);
    close(p[0]);
    if (WIFSIGNALED(status))
        snprintf(words, sizeof(words), "the process ends (signal %d)", WTERMSIG(status));
    else
        snprintf(words, sizeof(words), "%s", WEXITSTATUS(status) == 0 ? "survives and works"
                                             : WEXITSTATUS(status) == 2 ? "survives, but no message passes"
                                                                        : "fails");
    printf("UCX %s, %d port%s at %s: %s: %s\n", version, ports.n, ports.n == 1 ? "" : "s",
           bad ? "other addresses too" : "the chosen device alone", kinds[kind], words);
    return bad ? 1 : 0;
}

int main(int argc, char **argv)
{
    int rc = 0;

    srand(42);
    for (int kind = 0; kind < (int)(sizeof(kinds) / sizeof(kinds[0])); kind++) {
        const int st = run_kind(argv[argc > 1 ? 1 : 0], kind);
        if (st == 77)
            return 77;
        rc |= st;
    }
    return rc;
}
