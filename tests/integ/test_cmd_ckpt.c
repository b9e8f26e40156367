/* SPDX-License-Identifier: Apache-2.0 */
/* What `dtp ckpt` prints of names and metadata that would break its lines. */
#include "check.h"

#include <ftw.h>
#include <sys/stat.h>
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
        cmocka_unit_test(test_show_keeps_an_object_or_tensor_on_one_line),
    };

    return cmocka_run_group_tests(tests, make_base, drop_base);
}
