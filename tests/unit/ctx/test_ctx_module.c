/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctx/ctx.h"

static char dir[PATH_MAX];
static dtp_ctx *ctx;

static int open_here(void **state)
{
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    const char *build = getenv("DTP_TEST_BUILD");

    snprintf(dir, sizeof(dir), "%s/tests/unit/ctx", build ? build : ".");
    o.module_dir = dir;
    return dtp_ctx_open(&o, &ctx, NULL);
}

static int close_ctx(void **state)
{
    dtp_ctx_close(ctx);
    return 0;
}

static void test_module_is_loaded_and_stays(void **state)
{
    const void *ops = NULL, *again = NULL;

    assert_ok(dtpi_module_load(ctx, "fixture-good", &ops, ERR));
    assert_string_equal(ops, "operations of fixture-good");
    assert_ok(dtpi_module_load(ctx, "fixture-good", &again, ERR));
    assert_ptr_equal(ops, again);
    dtp_ctx_close(ctx);
    assert_int_equal(open_here(NULL), 0);
    assert_string_equal(ops, "operations of fixture-good");
}

static void test_missing_module_is_named(void **state)
{
    const void *ops = NULL;

    assert_status(DTP_ERR_UNSUPPORTED, dtpi_module_load(ctx, "topo-nowhere", &ops, ERR));
    assert_text("module topo-nowhere is not installed");
    assert_null(ops);
}

static void test_module_of_another_interface_is_refused(void **state)
{
    const void *ops = NULL;

    assert_status(DTP_ERR_VERSION, dtpi_module_load(ctx, "fixture-old", &ops, ERR));
    assert_text("interface 999");
    assert_status(DTP_ERR_VERSION, dtpi_module_load(ctx, "fixture-renamed", &ops, ERR));
    assert_null(ops);
}

static void test_library_that_is_no_module_is_refused(void **state)
{
    const void *ops = NULL;

    assert_status(DTP_ERR_UNSUPPORTED, dtpi_module_load(ctx, "fixture-none", &ops, ERR));
    assert_text("not a libdtp module");
}

static void test_file_that_is_no_library_is_refused(void **state)
{
    const void *ops = NULL;
    char own[] = "/tmp/dtp-module-XXXXXX", path[PATH_MAX];
    dtp_ctx_opts o = DTP_CTX_OPTS_INIT;
    dtp_ctx *c = NULL;

    assert_non_null(mkdtemp(own));
    snprintf(path, sizeof(path), "%s/bad.so", own);
    FILE *f = fopen(path, "w");
    fputs("\x7f"
          "ELF garbage",
          f);
    fclose(f);
    o.module_dir = own;
    assert_ok(dtp_ctx_open(&o, &c, ERR));
    assert_status(DTP_ERR_UNSUPPORTED, dtpi_module_load(c, "bad", &ops, ERR));
    assert_text("cannot load module bad");
    dtp_ctx_close(c);
    unlink(path);
    rmdir(own);
}

static void test_files_are_found_beside_the_library(void **state)
{
    char path[PATH_MAX], tight[8];

    assert_true(dtpi_find_beside(ctx, "fixture-good.so", path, sizeof(path)));
    assert_int_equal(strncmp(path, dir, strlen(dir)), 0);
    assert_false(dtpi_find_beside(ctx, "fixture-good.so", tight, sizeof(tight)));
    assert_false(dtpi_find_beside(ctx, "no-such-file", path, sizeof(path)));
    /* The test itself holds the library here. */
    assert_true(dtpi_find_beside(ctx, "test_ctx_module", path, sizeof(path)));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_here, close_ctx)
    const struct CMUnitTest tests[] = {
        TEST(test_module_is_loaded_and_stays),
        TEST(test_missing_module_is_named),
        TEST(test_module_of_another_interface_is_refused),
        TEST(test_library_that_is_no_module_is_refused),
        TEST(test_file_that_is_no_library_is_refused),
        TEST(test_files_are_found_beside_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
