/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_failmalloc.c - every allocation of the process fails once, those of libraries too: the
 * answer is OK or NOMEM, never a crash, and nothing leaks. Runs with failmalloc.c preloaded.
 *
 * Each use runs in a child; a shared page tells which allocation it was at when it died.
 */
#include "check.h"

#include <ftw.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dtp/dtp.h>

#include "failmalloc.h"

/* A child writes its findings here. */
typedef struct page {
    long nth;
    char text[1000];
} page;

static page *shared;
static char tmp_dir[] = "/tmp/dtp-failmalloc-XXXXXX";

static dtp_status use_ctx(dtp_ctx *ctx, dtp_error *err)
{
    return dtp_ctx_dispatch(ctx, 0, err);
}

/* A recorded machine is read without hwloc, which asserts that its own allocations succeed. */
static dtp_status use_topo(dtp_ctx *ctx, dtp_error *err)
{
    dtp_topo_opts o = DTP_TOPO_OPTS_INIT;
    dtp_topo *topo = NULL;
    char *text = NULL;

    o.fsroot = "/";
    dtp_status st = dtp_topo_load(ctx, &o, &topo, err);
    if (st >= 0)
        st = dtp_topo_render(topo, DTP_TOPO_TEXT, &text, err);
    dtp_text_free(text);
    dtp_topo_close(topo);
    return st;
}

static dtp_status use_group(dtp_ctx *ctx, dtp_error *err)
{
    dtp_group *group = NULL;
    void *all = NULL;

    dtp_status st = dtp_group_join(ctx, NULL, &group, err);
    if (st >= 0)
        st = dtp_group_allgather(group, "x", 1, &all, NULL, NULL, 0, err);
    if (st >= 0)
        st = dtp_group_set(group, "key", "value", 5, 0, err);
    dtp_group_free(all);
    dtp_group_close(group);
    return st;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static dtp_status use_ckpt(dtp_ctx *ctx, dtp_error *err)
{
    float data[4] = { 1, 2, 3, 4 };
    const int64_t shape[1] = { 4 };
    dtp_ckpt_tensor t = {
        .size = sizeof(t), .name = "w", .dtype = DTP_F32, .n_dims = 1, .shape = shape, .data = data
    };
    dtp_ckpt_save_opts o = DTP_CKPT_SAVE_OPTS_INIT;
    dtp_ckpt *ckpt = NULL;
    static uint64_t step;

    o.codec = DTP_CODEC_ZSTD;
    o.no_sync = 1;
    o.keep_last = 2;
    dtp_status st = dtp_ckpt_save(ctx, NULL, tmp_dir, ++step, &t, 1, &o, err);
    if (st >= 0)
        st = dtp_ckpt_open(ctx, tmp_dir, step, &ckpt, err);
    if (st >= 0)
        st = dtp_ckpt_read(ckpt, &t, 1, err);
    dtp_ckpt_close(ckpt);
    return st;
}

typedef dtp_status (*use_fn)(dtp_ctx *ctx, dtp_error *err);

static dtp_status run_once(use_fn use, dtp_error *err)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    dtp_ctx *ctx = NULL;

    o.module_dir = check_module_dir();
    dtp_status st = dtp_ctx_open(&o, &ctx, err);
    if (st >= 0)
        st = use(ctx, err);
    dtp_ctx_close(ctx);
    return st;
}

/* With the nth allocation failing; true when there was none such any more. */
static bool run_failing(use_fn use, long nth)
{
    const long alive = failmalloc_alive();
    dtp_error err = { 0 };

    shared->nth = nth;
    failmalloc_arm(nth);
    const dtp_status st = run_once(use, &err);
    const bool failed = failmalloc_disarm();
    if (st < 0 && st != DTP_ERR_NOMEM)
        snprintf(shared->text, sizeof(shared->text), "%s: %s", dtp_status_name(st), err.text);
    else if (st == DTP_ERR_NOMEM && !err.text[0])
        snprintf(shared->text, sizeof(shared->text), "no text");
    else if (failmalloc_alive() != alive)
        snprintf(shared->text, sizeof(shared->text), "%ld blocks leak (%s)",
                 failmalloc_alive() - alive, dtp_status_name(st));
    return !failed;
}

static int child_main(use_fn use)
{
    dtp_error err;

    /* What libraries allocate once and keep is no leak: twice without a failure first. */
    for (int i = 0; i < 2; i++) {
        const dtp_status st = run_once(use, &err);
        if (st < 0) {
            snprintf(shared->text, sizeof(shared->text), "without a failure: %s", err.text);
            return 1;
        }
    }
    for (long nth = 1; !run_failing(use, nth); nth++)
        if (shared->text[0])
            return 1;
    return shared->text[0] ? 1 : 0;
}

static void check_use(use_fn use)
{
    int status;

    if (!failmalloc_arm) {
        print_message("skipped: failmalloc is not preloaded\n");
        skip();
    }
    memset(shared, 0, sizeof(*shared));
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(child_main(use));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("allocation %ld failing: killed by signal %d", shared->nth, WTERMSIG(status));
    if (WEXITSTATUS(status))
        fail_msg("allocation %ld failing: %s", shared->nth, shared->text);
    print_message("%ld allocations failed one by one\n", shared->nth - 1);
}

static void test_context(void **state)
{
    check_use(use_ctx);
}

static void test_topology(void **state)
{
    check_use(use_topo);
}

static void test_group_of_one(void **state)
{
    check_use(use_group);
}

static void test_checkpoint(void **state)
{
    check_use(use_ckpt);
}

static int open_shared(void **state)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED || !mkdtemp(tmp_dir);
}

static int close_shared(void **state)
{
    munmap(shared, sizeof(*shared));
    return nftw(tmp_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_topology),
        cmocka_unit_test(test_group_of_one),
        cmocka_unit_test(test_checkpoint),
    };
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
