/* SPDX-License-Identifier: Apache-2.0 */
#include "failalloc.h"

#include <dlfcn.h>
#include <limits.h>

#include "gpu/gpu.h"

static char dir[PATH_MAX];
static char lines[1000];

static void keep_line(void *user, dtp_log_level level, const char *topic, const char *text)
{
    strncat(lines, text, sizeof(lines) - strlen(lines) - 2);
    strcat(lines, "\n");
}

static dtp_ctx *open_in(const char *sub, const dtp_allocator *a)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    const char *build = getenv("DTP_TEST_BUILD");
    dtp_ctx *ctx = NULL;

    lines[0] = '\0';
    snprintf(dir, sizeof(dir), "%s/tests/unit/gpu%s", build ? build : ".", sub);
    o.log = keep_line;
    o.log_level = DTP_LOG_INFO;
    o.allocator = a;
    assert_ok(dtp_ctx_open(&o, &ctx, ERR));
    assert_ok(dtpi_gpu_set_dir(ctx, dir, ERR));
    return ctx;
}

/* How often the fake was started and not shut down. */
static int n_open(void)
{
    char path[PATH_MAX + 32];

    snprintf(path, sizeof(path), "%s/libnvidia-ml.so.1", dir);
    void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(handle);
    const int *n = dlsym(handle, "fake_nvml_open");
    const int result = *n;
    dlclose(handle);
    return result;
}

static void test_gpus_are_listed_with_what_is_known(void **state)
{
    dtp_ctx *ctx = open_in("", NULL);
    dtpi_gpu_list *list = NULL;

    setenv("FAKE_NVML", "plain", 1);
    assert_ok(dtpi_gpu_list_new(ctx, &list, ERR));
    assert_int_equal(list->n, 2);
    const dtpi_gpu_info *a = &list->gpus[0], *b = &list->gpus[1];
    assert_string_equal(a->uuid, "GPU-00000000");
    assert_string_equal(a->name, "NVIDIA Fake 0");
    assert_string_equal(a->pci, "0000:3b:00.0");
    assert_string_equal(b->pci, "0001:3c:01.0");
    assert_true(a->mem_bytes == 80ll << 30);
    assert_int_equal(a->numa, 1);
    assert_true(a->has_cpus);
    assert_int_equal(dtpi_cpuset_count(&a->cpus), 5);
    assert_true(dtpi_cpuset_has(&a->cpus, 64));
    assert_true(a->mig == DTP_UNKNOWN);
    /* Unknown stays unknown. */
    assert_true(b->mem_bytes == DTP_UNKNOWN);
    assert_true(b->numa == DTP_UNKNOWN);
    assert_false(b->has_cpus);
    assert_int_equal(b->mig, 1);
    assert_int_equal(dtpi_gpu_links(list, 0, 1), 4);
    assert_int_equal(dtpi_gpu_links(list, 1, 0), 4);
    assert_int_equal(dtpi_gpu_links(list, 0, 0), 0);
    assert_int_equal(n_open(), 0);
    dtpi_gpu_list_free(ctx, list);
    dtp_ctx_close(ctx);
    assert_string_equal(lines, "");
}

static void test_links_through_switches_are_the_fewer(void **state)
{
    dtp_ctx *ctx = open_in("", NULL);
    dtpi_gpu_list *list = NULL;

    setenv("FAKE_NVML", "switch", 1);
    assert_ok(dtpi_gpu_list_new(ctx, &list, ERR));
    assert_int_equal(dtpi_gpu_links(list, 0, 1), 3);
    assert_int_equal(dtpi_gpu_links(list, 1, 0), 3);
    assert_int_equal(dtpi_gpu_links(list, 1, 1), 0);
    dtpi_gpu_list_free(ctx, list);
    dtp_ctx_close(ctx);
}

static void test_gpu_that_cannot_be_opened_is_left_out(void **state)
{
    dtp_ctx *ctx = open_in("", NULL);
    dtpi_gpu_list *list = NULL;

    setenv("FAKE_NVML", "lost", 1);
    assert_ok(dtpi_gpu_list_new(ctx, &list, ERR));
    assert_int_equal(list->n, 1);
    assert_string_equal(lines, "GPU 1 is left out: a fake error\n");
    dtpi_gpu_list_free(ctx, list);
    dtp_ctx_close(ctx);
}

static void test_driver_that_does_not_start_gives_none(void **state)
{
    dtp_ctx *ctx = open_in("", NULL);
    dtpi_gpu_list *list = NULL;

    setenv("FAKE_NVML", "broken", 1);
    assert_ok(dtpi_gpu_list_new(ctx, &list, ERR));
    assert_int_equal(list->n, 0);
    assert_string_equal(lines, "NVML does not start: a fake error\n");
    assert_int_equal(n_open(), 0);
    dtpi_gpu_list_free(ctx, list);
    dtp_ctx_close(ctx);
}

static void test_absence_is_said_once(void **state)
{
    dtp_ctx *ctx = open_in("/empty", NULL);
    dtpi_gpu_list *list = NULL;

    for (int i = 0; i < 3; i++) {
        assert_ok(dtpi_gpu_list_new(ctx, &list, ERR));
        assert_int_equal(list->n, 0);
        dtpi_gpu_list_free(ctx, list);
    }
    assert_non_null(strstr(lines, "libnvidia-ml.so.1 is not used: "));
    assert_ptr_equal(strchr(lines, '\n'), strrchr(lines, '\n'));
    dtp_ctx_close(ctx);
}

static void test_library_that_lacks_functions_is_absent(void **state)
{
    dtp_ctx *ctx = open_in("/old", NULL);
    dtpi_gpu_list *list = NULL;

    assert_ok(dtpi_gpu_list_new(ctx, &list, ERR));
    assert_int_equal(list->n, 0);
    assert_string_equal(lines, "libnvidia-ml.so.1 is not used: it has no nvmlShutdown\n");
    dtpi_gpu_list_free(ctx, list);
    dtp_ctx_close(ctx);
}

static void test_every_failing_allocation_is_told(void **state)
{
    setenv("FAKE_NVML", "plain", 1);
    FOR_EACH_FAILURE(f)
    {
        dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
        dtpi_gpu_list *list = NULL;
        dtp_ctx *ctx = NULL;

        o.allocator = failalloc_of(&f);
        if (!failalloc_ok(&f, dtp_ctx_open(&o, &ctx, ERR)))
            continue;
        if (failalloc_ok(&f, dtpi_gpu_set_dir(ctx, dir, ERR)) &&
            failalloc_ok(&f, dtpi_gpu_list_new(ctx, &list, ERR)))
            dtpi_gpu_list_free(ctx, list);
        dtp_ctx_close(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus_are_listed_with_what_is_known),
        cmocka_unit_test(test_links_through_switches_are_the_fewer),
        cmocka_unit_test(test_gpu_that_cannot_be_opened_is_left_out),
        cmocka_unit_test(test_driver_that_does_not_start_gives_none),
        cmocka_unit_test(test_absence_is_said_once),
        cmocka_unit_test(test_library_that_lacks_functions_is_absent),
        cmocka_unit_test(test_every_failing_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
