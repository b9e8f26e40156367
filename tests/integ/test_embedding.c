/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_embedding.c - a host process is the same before and after: signals, threads, descriptors,
 * environment, and what else a guest could change. docs/embedding.md says what is compared.
 */
#include "check.h"

#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dtp/dtp.h>

#include "gpu/gpu.h"
#include "group/group.h"

extern char **environ;

/* ---- what a guest could change ---- */

enum { SNAPSHOT_MAX = 1 << 18 };

typedef struct snapshot {
    char text[SNAPSHOT_MAX];
    size_t len;
} snapshot;

static void add(snapshot *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(snapshot *s, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    const int n = vsnprintf(s->text + s->len, sizeof(s->text) - s->len, fmt, ap);
    va_end(ap);
    assert_true(n >= 0 && (size_t)n < sizeof(s->text) - s->len);
    s->len += (size_t)n;
}

/* Blocked, ignored and caught signals; 32 and 33 are glibc's, caught from the first thread on. */
static void add_signals(snapshot *s)
{
    const unsigned long long glibc = 3ull << 31;
    unsigned long long mask;
    char line[256], what;
    FILE *f = fopen("/proc/self/status", "re");

    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "Sig%c%*2s: %llx", &what, &mask) == 2 && strchr("BIC", what))
            add(s, "signals %c %llx\n", what, mask & ~glibc);
    fclose(f);
    for (int sig = 1; sig < NSIG; sig++) {
        struct sigaction sa;
        if (sigaction(sig, NULL, &sa) == 0 && sa.sa_handler != SIG_DFL)
            add(s, "handler of %d: %p\n", sig, (void *)sa.sa_handler);
    }
}

static int by_number(const struct dirent **a, const struct dirent **b)
{
    return atoi((*a)->d_name) - atoi((*b)->d_name);
}

/* Entries of a /proc folder with what they point to; the folder's own descriptor is left out. */
static void add_entries(snapshot *s, const char *dir)
{
    struct dirent **names;
    const int n = scandir(dir, &names, NULL, by_number);

    assert_true(n >= 0);
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX], target[PATH_MAX] = "";
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
        struct stat st;
        const ssize_t len = readlink(path, target, sizeof(target) - 1);
        if (names[i]->d_name[0] != '.' && lstat(path, &st) == 0)
            add(s, "%s -> %.*s\n", path, len > 0 ? (int)len : 0, target);
        free(names[i]);
    }
    free(names);
}

static void add_rest(snapshot *s)
{
    char cwd[PATH_MAX], name[17] = "";
    int subreaper = -1, death_signal = -1;
    cpu_set_t cpus;
    stack_t stack;

    for (char **e = environ; *e; e++)
        add(s, "env %s\n", *e);
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    const mode_t mask = umask(022);
    umask(mask);
    prctl(PR_GET_NAME, name);
    prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
    prctl(PR_GET_PDEATHSIG, &death_signal);
    CPU_ZERO(&cpus);
    sched_getaffinity(0, sizeof(cpus), &cpus);
    sigaltstack(NULL, &stack);
    add(s, "cwd %s\numask %o\nname %s\nsubreaper %d\ndeath signal %d\ncpus %d\nlocale %s\n", cwd,
        (unsigned)mask, name, subreaper, death_signal, CPU_COUNT(&cpus), setlocale(LC_ALL, NULL));
    add(s, "altstack %p\n", stack.ss_sp);
    for (int r = 0; r < RLIM_NLIMITS; r++) {
        struct rlimit lim;
        if (getrlimit(r, &lim) == 0)
            add(s, "limit %d: %lld %lld\n", r, (long long)lim.rlim_cur, (long long)lim.rlim_max);
    }
}

static void take(snapshot *s)
{
    s->len = 0;
    add_signals(s);
    add_entries(s, "/proc/self/task");
    add_entries(s, "/proc/self/fd");
    add_rest(s);
}

static snapshot before, after;

/* A thread that was joined stays in /proc for a moment: look again, for a while, before it counts. */
static void take_after(void)
{
    for (int i = 0; i < 400; i++) {
        take(&after);
        if (after.len == before.len && memcmp(after.text, before.text, after.len) == 0)
            return;
        usleep(5000);
    }
}

/* Names the first line that differs. */
static void assert_same(const char *what)
{
    const char *a = before.text, *b = after.text;

    while (*a && *b && *a == *b) {
        a++;
        b++;
    }
    if (*a == *b)
        return;
    while (a > before.text && a[-1] != '\n') {
        a--;
        b--;
    }
    fail_msg("%s changed the process: before '%.*s', after '%.*s'", what, (int)strcspn(a, "\n"), a,
             (int)strcspn(b, "\n"), b);
}

/* ---- what a host does with the library ---- */

static dtp_ctx *open_ctx(void)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    dtp_ctx *ctx = NULL;

    o.module_dir = check_module_dir();
    assert_ok(dtp_ctx_open(&o, &ctx, ERR));
    return ctx;
}

static void use_ctx(dtp_ctx *ctx)
{
    assert_status(DTP_PENDING, dtp_ctx_dispatch(ctx, 1, ERR));
}

static void use_topo(dtp_ctx *ctx)
{
    dtp_topo *topo = NULL;
    char *text = NULL;

    assert_ok(dtp_topo_load(ctx, NULL, &topo, ERR));
    assert_ok(dtp_topo_render(topo, DTP_TOPO_JSON, &text, ERR));
    dtp_text_free(text);
    dtp_topo_close(topo);
}

static void use_gpu(dtp_ctx *ctx)
{
    dtpi_gpu_versions v;

    assert_ok(dtpi_gpu_probe(ctx, &v, ERR));
}

static void use_group_of_one(dtp_ctx *ctx)
{
    dtp_group *group = NULL;

    assert_ok(dtp_group_join(ctx, NULL, &group, ERR));
    assert_ok(dtp_group_barrier(group, 0, ERR));
    dtp_group_close(group);
}

/*
 * One of two ranks; rank 0 hosts the agent in a thread of its own. With `data` both open the data
 * path, which loads UCX, and meet again.
 */
static dtp_status join_two(dtp_ctx *ctx, int rank, const char *job, bool data, dtp_error *err)
{
    static const uint8_t secret[DTP_SECRET_BYTES] = "not a real secret, but 32 bytes";
    dtp_group_opts o = DTP_GROUP_OPTS_INIT;
    dtp_group *group = NULL;

    o.rank = o.local_rank = rank;
    o.world_size = 2;
    o.job = job;
    o.secret = secret;
    o.timeout_ms = 20000;
    dtp_status st = dtp_group_join(ctx, &o, &group, err);
    if (st < 0)
        return st;
    if (data)
        st = dtpi_group_data_open(group, INT64_MAX, err);
    if (st >= 0)
        st = dtp_group_barrier(group, 0, err);
    dtp_group_close(group);
    return st;
}

static void use_two_ranks(dtp_ctx *ctx, bool data)
{
    char job[64];
    int status;

    snprintf(job, sizeof(job), "embedding-%d", (int)getpid());
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
        dtp_ctx *own = NULL;
        dtp_error err;
        o.module_dir = check_module_dir();
        dtp_status st = dtp_ctx_open(&o, &own, &err);
        if (st >= 0)
            st = join_two(own, 1, job, data, &err);
        dtp_ctx_close(own);
        _exit(st < 0 ? 1 : 0);
    }
    const dtp_status st = join_two(ctx, 0, job, data, ERR);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(st, DTP_OK);
    assert_int_equal(status, 0);
}

static void use_group_of_two(dtp_ctx *ctx)
{
    use_two_ranks(ctx, false);
}

static void use_network(dtp_ctx *ctx)
{
    const void *ops;

    if (dtpi_module_load(ctx, "net-ucx", &ops, ERR) == DTP_ERR_UNSUPPORTED) {
        print_message("skipped: %s\n", ERR->text);
        return;
    }
    use_two_ranks(ctx, true);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void use_ckpt(dtp_ctx *ctx)
{
    char dir[] = "/tmp/dtp-embedding-XXXXXX";
    float data[4] = { 1, 2, 3, 4 };
    const int64_t shape[1] = { 4 };
    dtp_ckpt_tensor t = {
        .size = sizeof(t), .name = "w", .dtype = DTP_F32, .n_dims = 1, .shape = shape, .data = data
    };
    dtp_ckpt_save_opts o = DTP_CKPT_SAVE_OPTS_INIT;
    dtp_ckpt *ckpt = NULL;

    o.codec = DTP_CODEC_ZSTD;
    assert_non_null(mkdtemp(dir));
    assert_ok(dtp_ckpt_save(ctx, NULL, dir, 7, &t, 1, &o, ERR));
    assert_ok(dtp_ckpt_open(ctx, dir, 7, &ckpt, ERR));
    assert_ok(dtp_ckpt_read(ckpt, &t, 1, ERR));
    dtp_ckpt_close(ckpt);
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const struct {
    const char *name;
    void (*use)(dtp_ctx *ctx);
} uses[] = {
    { "a context", use_ctx },
    { "dtp_topo_load", use_topo },
    { "looking for GPU libraries", use_gpu },
    { "a group of one", use_group_of_one },
    { "a group of two", use_group_of_two },
    { "data over the network", use_network },
    { "saving and reading a checkpoint", use_ckpt },
};

static void check_uses(void)
{
    for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
        take(&before);
        dtp_ctx *ctx = open_ctx();
        uses[i].use(ctx);
        dtp_ctx_close(ctx);
        take_after();
        assert_same(uses[i].name);
    }
}

static void test_process_is_the_same_before_and_after(void **state)
{
    check_uses();
}

static void on_signal(int sig)
{
}

/* A host with handlers, blocked signals and an alternate stack of its own keeps them. */
static void test_handlers_of_the_host_stay(void **state)
{
    static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGHUP, SIGCHLD, SIGPIPE };
    static char stack_memory[64 * 1024];
    const stack_t stack = { .ss_sp = stack_memory, .ss_size = sizeof(stack_memory) };
    struct sigaction sa = { .sa_handler = on_signal }, old[7];
    sigset_t set, old_set;

    for (size_t i = 0; i < 7; i++)
        sigaction(signals[i], &sa, &old[i]);
    sigaltstack(&stack, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, &old_set);
    check_uses();
    sigprocmask(SIG_SETMASK, &old_set, NULL);
    for (size_t i = 0; i < 7; i++)
        sigaction(signals[i], &old[i], NULL);
}

static void *nothing(void *arg)
{
    return arg;
}

/* With the first thread of a process glibc and sanitizers start what they then keep. */
static int start_a_thread(void **state)
{
    pthread_t t;

    return pthread_create(&t, NULL, nothing, NULL) || pthread_join(t, NULL);
}

/* Takes a pattern of names: a library is loaded once in a process, so that each test wants its own. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_process_is_the_same_before_and_after),
        cmocka_unit_test(test_handlers_of_the_host_stay),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, start_a_thread, NULL);
}
