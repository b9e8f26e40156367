/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - runs a fuzz target without a fuzzer: its corpus, then mutations of it from a seed.
 *
 * Every input ends at a page that cannot be read, so that a parser that looks one byte too far dies
 * at once. An input that kills the target is written to crash-TARGET, named on stderr, and can be
 * given back as an argument.
 *
 *     fuzz_wire FILE|DIR...       DTP_FUZZ_RUNS (5000) mutations, DTP_TEST_SEED (fresh)
 */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { INPUT_MAX = 64 * 1024, CORPUS_MAX = 4096, PAGE_BYTES = 4096 };

typedef struct input {
    uint8_t *data;
    size_t bytes;
} input;

static input corpus[CORPUS_MAX];
static size_t n_corpus;
static uint8_t *page_end; /* one past the last readable byte */
static const char *target;
static volatile const uint8_t *running;
static volatile size_t running_bytes;
static uint64_t rng;

static uint64_t next_random(void)
{
    uint64_t z = (rng += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static size_t below(size_t n)
{
    return n ? next_random() % n : 0;
}

/* Keeps the input that killed the target; only calls that a signal handler may make. */
static void on_crash(int sig)
{
    static char path[256];
    size_t at = 0;

    for (const char *part = "crash-"; *part; part++)
        path[at++] = *part;
    for (const char *part = target; *part && at < sizeof(path) - 1; part++)
        path[at++] = *part;
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd >= 0 && write(fd, (const void *)(uintptr_t)running, running_bytes) >= 0) {
        const char text[] = ": this input kills the target\n";
        if (write(2, path, at) < 0 || write(2, text, sizeof(text) - 1) < 0)
            _exit(99);
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

static void guard_open(void)
{
    uint8_t *p = mmap(NULL, INPUT_MAX + PAGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    FUZZ_CHECK(p != MAP_FAILED);
    FUZZ_CHECK(mprotect(p + INPUT_MAX, PAGE_BYTES, PROT_NONE) == 0);
    page_end = p + INPUT_MAX;
}

static void run_one(const uint8_t *data, size_t bytes)
{
    uint8_t *at = page_end - bytes;

    if (bytes)
        memcpy(at, data, bytes);
    running = at;
    running_bytes = bytes;
    LLVMFuzzerTestOneInput(at, bytes);
}

static void add_file(const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        fprintf(stderr, "%s: cannot open %s\n", target, path);
        exit(2);
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && n_corpus < CORPUS_MAX) {
        input *in = &corpus[n_corpus++];
        const size_t want = st.st_size < INPUT_MAX ? (size_t)st.st_size : INPUT_MAX;
        in->data = malloc(want + 1);
        FUZZ_CHECK(in->data);
        const ssize_t n = read(fd, in->data, want);
        in->bytes = n > 0 ? (size_t)n : 0;
    }
    close(fd);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* A folder's files in order of name, so that a seed means the same everywhere. */
static void add_path(const char *path)
{
    struct dirent **names;
    const int n = scandir(path, &names, NULL, by_name);

    if (n < 0) {
        add_file(path);
        return;
    }
    for (int i = 0; i < n; i++) {
        char file[4096];
        snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.')
            add_file(file);
        free(names[i]);
    }
    free(names);
}

static void set_number(uint8_t *data, size_t bytes, size_t at)
{
    static const uint64_t odd[] = { 0,          1,          0x7f,           0x80,
                                    0xff,       0x7fff,     0xffff,         0x7fffffff,
                                    0x80000000, 0xffffffff, UINT64_MAX / 2, UINT64_MAX };
    const uint64_t v = odd[below(sizeof(odd) / sizeof(odd[0]))];
    const size_t width = (size_t)1 << below(4);

    for (size_t i = 0; i < width && at + i < bytes; i++)
        data[at + i] = (uint8_t)(v >> (8 * i));
}

/* Copies a piece of `from` over or into `data`; returns the new number of bytes. */
static size_t insert_piece(uint8_t *data, size_t bytes, const input *from)
{
    const size_t start = below(from->bytes + 1), n = below(from->bytes - start + 1);
    const size_t at = below(bytes + 1);
    const size_t room = INPUT_MAX - bytes;
    const size_t take = n < room ? n : room;

    memmove(data + at + take, data + at, bytes - at);
    if (take)
        memcpy(data + at, from->data + start, take);
    return bytes + take;
}

/* One random change; returns the new number of bytes. */
static size_t mutate(uint8_t *data, size_t bytes)
{
    static const char marks[] = "\0\n\r\t \"\\{}[]:,-+.e0189xX/\x7f\x80\xc0\xed\xff";
    const size_t at = below(bytes);
    size_t n;

    switch (below(8)) {
    case 0:
        return below(bytes + 1);
    case 1:
        n = below(bytes - at + 1);
        memmove(data + at, data + at + n, bytes - at - n);
        return bytes - n;
    case 2:
        return insert_piece(data, bytes, &corpus[below(n_corpus)]);
    case 3:
        return insert_piece(data, bytes,
                            &(input){ (uint8_t *)(uintptr_t)marks, sizeof(marks) - 1 });
    case 4:
        set_number(data, bytes, at);
        return bytes;
    case 5:
        if (bytes)
            data[at] = (uint8_t)marks[below(sizeof(marks) - 1)];
        return bytes;
    case 6:
        if (bytes)
            data[at] = (uint8_t)next_random();
        return bytes;
    default:
        if (bytes)
            data[at] ^= (uint8_t)(1u << below(8));
        return bytes;
    }
}

static void run_mutations(unsigned long n_runs)
{
    static uint8_t data[INPUT_MAX];

    for (unsigned long i = 0; i < n_runs; i++) {
        const input *from = &corpus[below(n_corpus)];
        size_t bytes = from->bytes;

        if (bytes)
            memcpy(data, from->data, bytes);
        for (size_t k = 1 + below(8); k > 0; k--)
            bytes = mutate(data, bytes);
        run_one(data, bytes);
    }
}

int main(int argc, char **argv)
{
    const char *runs = getenv("DTP_FUZZ_RUNS"), *seed = getenv("DTP_TEST_SEED");
    const char *slash = strrchr(argv[0], '/');

    target = slash ? slash + 1 : argv[0];
    rng = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    printf("seed: DTP_TEST_SEED=0x%llx\n", (unsigned long long)rng);
    fflush(stdout);
    guard_open();
    for (int i = 1; i < argc; i++)
        add_path(argv[i]);
    signal(SIGSEGV, on_crash);
    signal(SIGBUS, on_crash);
    signal(SIGABRT, on_crash);
    run_one(NULL, 0);
    for (size_t i = 0; i < n_corpus; i++)
        run_one(corpus[i].data, corpus[i].bytes);
    if (n_corpus == 0)
        corpus[n_corpus++] = (input){ calloc(1, 1), 1 };
    run_mutations(runs ? strtoul(runs, NULL, 0) : 5000);
    printf("%s: %zu files and their mutations passed\n", target, n_corpus);
    for (size_t i = 0; i < n_corpus; i++)
        free(corpus[i].data);
    return 0;
}
