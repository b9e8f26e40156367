/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hostile.c - strangers storm the doors of a group's agents, over TCP and the Unix sockets of the
 * nodes, while its ranks join and call: nothing fails, and it hardly takes longer.
 *
 * The storm also costs the machine what it costs to make it, so it is compared with the same storm at
 * the door of a stand-in that accepts and closes. `test_hostile bench [rounds]` measures and prints JSON Lines;
 * without arguments nothing may fail, whatever the time.
 */
#include "unit/group/ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "group/agent.h"
#include "group/handshake.h"
#include "net/sock.h"

enum { N_NODES = 2, PER_NODE = 4, N_RANKS = N_NODES * PER_NODE, HELD = 200, SHARE_OF_A_MS = 10 };
enum { ENOUGH = 1000, MAX_TURNS = 30 };
enum { AT_NOBODY, AT_STAND_IN, AT_US, N_PLACES };

static const uint8_t secret[DTP_SECRET_BYTES] = "a secret of thirty-two bytes...";

struct shared {
    _Atomic int place;          /* of the storm */
    _Atomic int stop;
    _Atomic uint64_t n_sent[N_PLACES], n_failed;
    _Atomic int n_joined;
    int64_t join_ns, barriers_ns;
    _Atomic int64_t agents_us;  /* processor time of the agents */
    int64_t stand_in_us;
};

struct world {
    struct shared *sh;
    char job[48];
    uint16_t port[N_PLACES];
    int n_barriers;
    int64_t start_ns;
};

static void name_of(const struct world *w, int place, int node, char *out, size_t room)
{
    snprintf(out, room, "@dtp-hostile-%s-%d-%d", w->job, place, node);
}

static void give_up(const char *what, int status)
{
    fprintf(stderr, "test_hostile: %s 0x%x\n", what, (unsigned)status);
    exit(1);
}

static int64_t processor_us(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

/* ---- the storm ---- */

static int to_tcp(const struct world *w, int place, uint64_t r)
{
    /* Half of it from one address, half from many. */
    const uint32_t host = r & 1 ? 1 : (uint32_t)(0x10000 + (r >> 8) % 0x10000);
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl((127u << 24) + host) };
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(w->port[place]),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const struct linger no_wait = { .l_onoff = 1 };
    const int one = 1;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &no_wait, sizeof(no_wait));
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&own, sizeof(own)) < 0 ||
        (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 && errno != EINPROGRESS)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int to_unix(const struct world *w, int place, uint64_t r)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    char name[100];

    name_of(w, place, (int)(r >> 8) % N_NODES, name, sizeof(name));
    const size_t n = strlen(name);
    memcpy(sa.sun_path, name, n);
    sa.sun_path[0] = '\0';
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&sa, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A HELLO of another job, without its secret, or (replayed) always the same. */
static size_t make_hello(dtpi_hs_role role, uint64_t r, uint8_t *out, size_t room)
{
    static const uint8_t other[DTP_SECRET_BYTES] = "another";
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator), framed = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_hs hs;

    dtpi_hs_init(&hs, &(dtpi_hs_opts){ .role = role, .job = "other", .generation = 1, .world = 8,
                                       .who = (int32_t)(r % 8), .host = "evil", .secret = other });
    dtpi_hs_hello(&hs, &b);
    dtpi_wr_block(&framed, b.data, b.len);
    const size_t n = DTPI_MIN(framed.len, room);
    memcpy(out, framed.data, n);
    dtpi_buf_free(&b);
    dtpi_buf_free(&framed);
    return n;
}

static size_t garbage(uint64_t r, bool is_unix, uint8_t *out, size_t room)
{
    static uint8_t recorded[2][512];
    static size_t n_recorded[2];
    static const uint8_t ucx[16] = { 0x78, 0x56, 0x34, 0x12, 0xbe, 0xba, 0xfe, 0xca };
    uint64_t seed = r;

    memset(out, 0, room);
    switch (r >> 32 & 7) {
    case 0:
        return 0;               /* a port scan */
    case 1:
        return 64;              /* zeros */
    case 2:
        memcpy(out, ucx, sizeof(ucx));
        return 64;
    case 3:
        memcpy(out, "GET / HTTP/1.1\r\n\r\n", 18);
        return 18;
    case 4:
        return make_hello(is_unix ? DTPI_HS_RANK : DTPI_HS_AGENT, r, out, room) / 2;
    case 5:
        return make_hello(is_unix ? DTPI_HS_RANK : DTPI_HS_AGENT, r, out, room);
    case 6:
        if (!n_recorded[is_unix])
            n_recorded[is_unix] = make_hello(is_unix ? DTPI_HS_RANK : DTPI_HS_AGENT, 0,
                                             recorded[is_unix], sizeof(recorded[0]));
        memcpy(out, recorded[is_unix], n_recorded[is_unix]);
        return n_recorded[is_unix];
    default:
        for (size_t i = 0; i < 300; i++)
            out[i] = (uint8_t)check_random(&seed);
        return 1 + r % 300;
    }
}

static void one_stranger(const struct world *w, int place, uint64_t r, int *held)
{
    const bool is_unix = r >> 40 & 1;
    const int fd = is_unix ? to_unix(w, place, r) : to_tcp(w, place, r);
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    uint8_t bytes[512];

    if (fd < 0) {
        atomic_fetch_add(&w->sh->n_failed, 1);
        return;
    }
    const size_t n = garbage(r, is_unix, bytes, sizeof(bytes));
    if (poll(&p, 1, 0) >= 0 && n && send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        atomic_fetch_add(&w->sh->n_failed, 1);
    /* Some stay and say nothing more; most end, some of them before they can have been read. */
    if (r >> 48 & 3) {
        close(fd);
    } else {
        if (*held)
            close(*held);
        *held = fd;
    }
    atomic_fetch_add(&w->sh->n_sent[place], 1);
}

/* Ten a millisecond. */
static void storm(const struct world *w, int unused)
{
    uint64_t seed = 42, n = 0;
    int held[HELD] = { 0 };
    int64_t next = ranks_now_ns();

    (void)unused;
    while (!atomic_load(&w->sh->stop)) {
        const int place = atomic_load(&w->sh->place);
        for (int i = 0; place != AT_NOBODY && i < SHARE_OF_A_MS; i++) {
            const uint64_t r = check_random(&seed);
            one_stranger(w, place, r, &held[n++ % HELD]);
        }
        next += 1000000;
        const int64_t left = next - ranks_now_ns();
        if (left > 0)
            usleep((useconds_t)(left / 1000));
        else if (left < -100000000)
            next = ranks_now_ns();
    }
}

/* Accepts and closes, and nothing else: what a storm costs at least. */
static void stand_in(const struct world *w, int tcp_fd)
{
    struct pollfd p[1 + N_NODES] = { { .fd = tcp_fd, .events = POLLIN } };

    for (int i = 0; i < N_NODES; i++) {
        char name[100];
        int fd;
        name_of(w, AT_STAND_IN, i, name, sizeof(name));
        RANK_OK(dtpi_unix_listen(name, &fd, ERR));
        p[1 + i] = (struct pollfd){ .fd = fd, .events = POLLIN };
    }
    while (!atomic_load(&w->sh->stop)) {
        if (poll(p, 1 + N_NODES, 100) <= 0)
            continue;
        for (int i = 0; i < 1 + N_NODES; i++)
            if (p[i].revents) {
                const int fd = accept4(p[i].fd, NULL, NULL, SOCK_CLOEXEC);
                if (fd >= 0)
                    close(fd);
            }
    }
    w->sh->stand_in_us = processor_us();
}

/* ---- the group ---- */

static void run_agent(const struct world *w, int node)
{
    char name[100], root[40];
    dtpi_agent *agent;
    dtp_ctx *ctx;

    name_of(w, AT_US, node, name, sizeof(name));
    snprintf(root, sizeof(root), "127.0.0.1:%u", w->port[AT_US]);
    const dtpi_agent_opts o = { .job = w->job, .world_size = N_RANKS, .n_local = PER_NODE, .socket = name,
                                .root = root, .is_root = node == 0, .secret = secret,
                                .timeout_ms = 20000 };
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtpi_agent_open(ctx, &o, &agent, ERR));
    while (!dtpi_agent_is_done(agent) || !dtpi_agent_is_idle(agent))
        RANK_CHECK(dtp_ctx_dispatch(ctx, -1, ERR) >= 0);
    dtpi_agent_close(agent);
    dtp_ctx_close(ctx);
    atomic_fetch_add(&w->sh->agents_us, processor_us());
}

static void run_rank(const struct world *w, int rank)
{
    char name[100], root[40];
    dtp_group *g;
    dtp_ctx *ctx;

    name_of(w, AT_US, rank / PER_NODE, name, sizeof(name));
    snprintf(root, sizeof(root), "127.0.0.1:%u", w->port[AT_US]);
    const dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = N_RANKS,
                               .local_rank = rank % PER_NODE, .local_size = PER_NODE, .job = w->job,
                               .root = root, .agent = name, .secret = secret, .timeout_ms = 20000 };
    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    RANK_OK(dtp_group_join(ctx, &o, &g, ERR));
    if (rank == 0)
        w->sh->join_ns = ranks_now_ns() - w->start_ns;
    RANK_OK(dtp_group_barrier(g, 0, ERR));
    const int64_t start = ranks_now_ns();
    for (int i = 0; i < w->n_barriers; i++)
        RANK_OK(dtp_group_barrier(g, 0, ERR));
    if (rank == 0)
        w->sh->barriers_ns = ranks_now_ns() - start;
    RANK_CHECK(dtp_group_failed(g, NULL, 0) == 0);
    dtp_group_close(g);
    dtp_ctx_close(ctx);
}

static void member(int i, int n, void *user)
{
    const struct world *w = user;

    (void)n;
    if (i < N_NODES)
        run_agent(w, i);
    else
        run_rank(w, i - N_NODES);
}

/* One group from start to end; its times are in `sh` then. */
static void run_group(struct world *w)
{
    pid_t pids[RANKS_MAX];
    int status[RANKS_MAX];

    w->start_ns = ranks_now_ns();
    ranks_start(N_NODES + N_RANKS, member, w, pids);
    ranks_wait(N_NODES + N_RANKS, pids, status);
    for (int i = 0; i < N_NODES + N_RANKS; i++)
        if (status[i])
            give_up("a member ended with status", status[i]);
}

/* ---- running ---- */

/* Below the range from which the kernel takes ports for those who connect: the strangers hold many. */
static int listen_anywhere(uint16_t *port_out)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    for (unsigned i = 0; i < 1000; i++) {
        const uint16_t port = (uint16_t)(10000 + ((unsigned)getpid() * 37 + i * 11) % 20000);
        const struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        if (bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) == 0 && listen(fd, 4096) == 0) {
            *port_out = port;
            return fd;
        }
    }
    give_up("cannot listen", errno);
    return -1;
}

static pid_t start(void (*fn)(const struct world *w, int fd), const struct world *w, int fd)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fn(w, fd);
        _exit(0);
    }
    return pid;
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static double median_ms(int64_t *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), compare);
    return (double)v[n / 2] / 1e6;
}

static void measure(struct world *w, int rounds, bool prints)
{
    static const char *const places[N_PLACES] = { "nobody", "stand-in", "us" };
    int64_t *join = calloc((size_t)rounds * N_PLACES, sizeof(*join));
    int64_t *barriers = calloc((size_t)rounds * N_PLACES, sizeof(*barriers));
    double span_s[N_PLACES] = { 0 }, agents_ms[N_PLACES] = { 0 };

    for (int i = 0; i < rounds; i++)
        for (int place = 0; place < N_PLACES; place++) {
            atomic_store(&w->sh->place, place);
            const int64_t t = ranks_now_ns();
            atomic_store(&w->sh->agents_us, 0);
            run_group(w);
            agents_ms[place] += (double)w->sh->agents_us / 1000 / rounds;
            span_s[place] += (double)(ranks_now_ns() - t) / 1e9;
            join[place * rounds + i] = w->sh->join_ns;
            barriers[place * rounds + i] = w->sh->barriers_ns;
        }
    for (int place = 0; prints && place < N_PLACES; place++)
        printf("{\"bench\": \"hostile\", \"storm_at\": \"%s\", \"per_s\": %.0f, \"ranks\": %d, "
               "\"rounds\": %d, \"join_ms\": %.2f, \"barriers\": %d, \"barriers_ms\": %.2f, "
               "\"agents_cpu_ms\": %.1f}\n",
               places[place], (double)w->sh->n_sent[place] / span_s[place], N_RANKS, rounds,
               median_ms(&join[place * rounds], rounds), w->n_barriers,
               median_ms(&barriers[place * rounds], rounds), agents_ms[place]);
    free(join);
    free(barriers);
}

int main(int argc, char **argv)
{
    const bool is_bench = argc > 1 && strcmp(argv[1], "bench") == 0;
    struct world w = { .n_barriers = is_bench ? 3000 : 1000 };

    signal(SIGPIPE, SIG_IGN);
    snprintf(w.job, sizeof(w.job), "%s", ranks_job());
    w.sh = mmap(NULL, sizeof(*w.sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const int stand_in_fd = listen_anywhere(&w.port[AT_STAND_IN]);
    close(listen_anywhere(&w.port[AT_US]));
    const pid_t helpers[2] = { start(stand_in, &w, stand_in_fd), start(storm, &w, -1) };
    if (is_bench)
        measure(&w, argc > 2 ? atoi(argv[2]) : 11, true);
    /* Groups until enough have come: how many come to one depends on the machine. */
    for (int i = 0; !is_bench && i < MAX_TURNS && w.sh->n_sent[AT_US] <= ENOUGH; i++)
        measure(&w, 1, false);
    atomic_store(&w.sh->stop, 1);
    for (int i = 0; i < 2; i++) {
        int status;
        waitpid(helpers[i], &status, 0);
        if (status)
            give_up("the storm or its stand-in ended with status", status);
    }
    if (is_bench)
        printf("# a stranger costs the stand-in %.1f us of processor time\n",
               (double)w.sh->stand_in_us / (double)w.sh->n_sent[AT_STAND_IN]);
    printf("# %llu strangers came, %llu found no door open\n",
           (unsigned long long)w.sh->n_sent[AT_US], (unsigned long long)w.sh->n_failed);
    return w.sh->n_sent[AT_US] > ENOUGH ? 0 : 1;
}
