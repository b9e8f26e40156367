/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `dtp topo` and `dtp ckpt` say of files: one line that names a bad one and exit code 1; names and
 * metadata that would break a line do not.
 */
#include "check.h"

#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dtp/ckpt.h>

static char base[] = "/tmp/dtp-test-cmd-ckpt-XXXXXX";

static void save_odd(void)
{
    const dtp_ckpt_save_opts opts = { .size = sizeof(opts), .meta_json = "{\n  \"lr\":\t0.5\n}" };
    uint8_t byte = 1;
    const dtp_ckpt_tensor t = { sizeof(t), "a\nb \x1b[2J", DTP_U8, 0, NULL, NULL, NULL, &byte };
    dtp_ctx *ctx = NULL;

    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    assert_ok(dtp_ckpt_save(ctx, NULL, base, 1, &t, 1, &opts, ERR));
    dtp_ctx_close(ctx);
}

static void show(const char *format, char *out, size_t room)
{
    const char *build = getenv("DTP_TEST_BUILD");
    char command[2048];

    snprintf(command, sizeof(command), "'%s/tools/dtp' ckpt show '%s' --format %s", build ? build : ".", base, format);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    out[fread(out, 1, room - 1, p)] = '\0';
    assert_int_equal(pclose(p), 0);
}

static void test_show_keeps_an_object_or_tensor_on_one_line(void **state)
{
    char out[4096];

    (void)state;
    save_odd();
    show("json", out, sizeof(out));
    assert_non_null(strstr(out, ",\"meta\":{   \"lr\": 0.5 }}\n{\"tensor\":\"a\\u000ab \\u001b[2J\","));
    assert_string_equal(strrchr(out, '}'), "}\n");
    show("text", out, sizeof(out));
    assert_non_null(strstr(out, "\nmeta: {   \"lr\": 0.5 }\n"));
    assert_non_null(strstr(out, "  a b  [2J\n"));
}

/* Runs `dtp ARGS` (with %s for the source tree) and keeps what it says on stderr; its exit code. */
static int complain(const char *args, char *out, size_t room)
{
    const char *build = getenv("DTP_TEST_BUILD"), *source = getenv("DTP_TEST_SOURCE");
    char command[4096], filled[2048];

    snprintf(filled, sizeof(filled), args, source ? source : ".");
    snprintf(command, sizeof(command), "'%s/tools/dtp' %s 2>&1 >/dev/null", build ? build : ".", filled);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    out[fread(out, 1, room - 1, p)] = '\0';
    const int status = pclose(p);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_bad_files_are_named_in_one_line(void **state)
{
    static const char *const cases[][2] = {
        { "topo --xml /nowhere/node.xml", "dtp topo: cannot open /nowhere/node.xml: No such file" },
        { "topo --xml /dev/null", "dtp topo: /dev/null is not a regular file" },
        { "topo --xml %s/tests/data/topo/gpu-node.tree", "gpu-node.tree:1: " },
        { "topo --fsroot /nowhere", "dtp topo: cannot open /nowhere: No such file" },
        { "topo --fsroot %s/tests", "holds no sys/devices/system/cpu" },
        { "ckpt verify %s/tests/data/ckpt/bad-cut", "shard-00001-of-00002" },
        { "ckpt verify %s/tests/data/ckpt/bad-flip", "tensor w: chunk 0 of 2: checksum mismatch" },
        { "ckpt verify %s/tests/data/ckpt/bad-header", "header: checksum mismatch" },
        { "ckpt verify %s/tests/data/ckpt/bad-missing", "shard-00000-of-00002" },
        { "ckpt verify %s/tests/data/ckpt/bad-manifest", "manifest.json: checksum mismatch" },
        { "ckpt verify %s/tests/data/ckpt/bad-manifest-cut", "manifest.json does not end in its checksum" },
        { "ckpt show %s/tests/data/ckpt/bad-none", "dtp ckpt: no complete checkpoint under" },
        { "ckpt ls /nowhere", "dtp ckpt: cannot open folder /nowhere: No such file" },
    };
    char out[4096];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int rc = complain(cases[i][0], out, sizeof(out));
        if (rc != 1 || !strstr(out, cases[i][1]) || strchr(out, '\n') != out + strlen(out) - 1)
            fail_msg("dtp %s: exit code %d: %s", cases[i][0], rc, out);
    }
    assert_int_equal(complain("ckpt ls %s/tests/data/ckpt/bad-cut", out, sizeof(out)), 1);
    assert_int_equal(complain("ckpt verify %s/tests/data/ckpt/good", out, sizeof(out)), 0);
    assert_string_equal(out, "");
}

static int make_base(void **state)
{
    (void)state;
    return mkdtemp(base) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *f)
{
    (void)s;
    (void)kind;
    (void)f;
    return remove(path);
}

static int drop_base(void **state)
{
    (void)state;
    return nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_files_are_named_in_one_line),
        cmocka_unit_test(test_show_keeps_an_object_or_tensor_on_one_line),
    };

    return cmocka_run_group_tests(tests, make_base, drop_base);
}
