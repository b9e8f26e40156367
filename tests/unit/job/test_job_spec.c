/* SPDX-License-Identifier: Apache-2.0 */
/* Job specs: checks name the field, YAML names line and field, the record reads back what was
 * written. */
#include "check.h"

#include "job/spec.h"

static const char *const argv_true[] = { "true", NULL };

typedef struct fixture {
    dtpi_spec spec;
} fixture;

static int set_up(void **state)
{
    static fixture f;

    dtpi_spec_init(&f.spec, &dtpi_malloc_allocator);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    dtpi_spec_free(&((fixture *)*state)->spec);
    return 0;
}

static void test_defaults_are_filled(void **state)
{
    fixture *f = *state;
    const dtp_job_spec u = { .size = sizeof(u), .argv = argv_true, .n_ranks = 4 };

    assert_ok(dtpi_spec_copy(&f->spec, &u, ERR));
    assert_int_equal(f->spec.min_ranks, 4);
    assert_int_equal(f->spec.grace_ms, 5000);
    assert_int_equal(f->spec.max_restarts, 0);
    assert_int_equal(f->spec.argv.n, 1);
    assert_null(f->spec.name);
}

static void test_what_is_wrong_is_named_by_field(void **state)
{
    static const char *const empty[] = { NULL };
    static const char *const no_equals[] = { "A", NULL };
    static const char *const no_name[] = { "=1", NULL };
    static const char *const own[] = { "DTP_RANK=1", NULL };
    const struct {
        dtp_job_spec u;
        const char *text;
    } cases[] = {
        { { .argv = argv_true }, "ranks: 0 is not within 1 and 65536" },
        { { .argv = argv_true, .n_ranks = 70000 }, "ranks: 70000" },
        { { .argv = argv_true, .n_ranks = 2, .min_ranks = 3 },
          "min_ranks: 3 is not within 1 and 2" },
        { { .argv = argv_true, .n_ranks = 2, .grace_ms = -1 }, "grace: -1" },
        { { .argv = argv_true, .n_ranks = 2, .name = "a/b" }, "name: 'a/b'" },
        { { .argv = argv_true, .n_ranks = 2, .name = "" }, "name: ''" },
        { { .argv = argv_true, .n_ranks = 2, .name = "..." }, "name: '...'" },
        { { .argv = argv_true, .n_ranks = 2, .env = no_equals }, "env: 'A'" },
        { { .argv = argv_true, .n_ranks = 2, .env = no_name }, "env: '=1'" },
        { { .argv = argv_true, .n_ranks = 2, .env = own },
          "env: DTP_RANK is set by the job itself" },
        { { .argv = empty, .n_ranks = 2 }, "no program" },
        { { .n_ranks = 2 }, "no program" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        DTPI_AUTO_SPEC dtpi_spec s;
        dtp_job_spec u = cases[i].u;
        u.size = sizeof(u);
        dtpi_spec_init(&s, &dtpi_malloc_allocator);
        assert_status(DTP_ERR_INVAL, dtpi_spec_copy(&s, &u, ERR));
        assert_text(cases[i].text);
    }
}

static dtp_status parse(dtpi_spec *s, const char *text)
{
    return dtpi_spec_parse(s, text, strlen(text), ERR);
}

static void test_yaml_fills_all_fields(void **state)
{
    fixture *f = *state;

    assert_ok(parse(&f->spec, "name: digits\n"
                              "ranks: 4\n"
                              "min_ranks: 2\n"
                              "max_restarts: 3\n"
                              "gpus_per_rank: 1\n"
                              "cores_per_rank: 2\n"
                              "bind: false\n"
                              "grace: 2.5\n"
                              "reform: 1\n"
                              "ckpt: /data/ckpt\n"
                              "cwd: /srv\n"
                              "command: [python3, train.py, '--lr', 0.1]\n"
                              "env:\n"
                              "  OMP_NUM_THREADS: 2\n"
                              "  EMPTY: ''\n"));
    assert_ok(dtpi_spec_check(&f->spec, ERR));
    assert_string_equal(f->spec.name, "digits");
    assert_int_equal(f->spec.n_ranks, 4);
    assert_int_equal(f->spec.min_ranks, 2);
    assert_int_equal(f->spec.max_restarts, 3);
    assert_int_equal(f->spec.gpus_per_rank, 1);
    assert_int_equal(f->spec.cores_per_rank, 2);
    assert_int_equal(f->spec.no_bind, 1);
    assert_int_equal(f->spec.grace_ms, 2500);
    assert_int_equal(f->spec.reform_ms, 1000);
    assert_string_equal(f->spec.ckpt_dir, "/data/ckpt");
    assert_string_equal(f->spec.cwd, "/srv");
    assert_int_equal(f->spec.argv.n, 4);
    assert_memory_equal(f->spec.argv.buf.data, "python3\0train.py\0--lr\0" "0.1", 26);
    assert_int_equal(f->spec.env.n, 2);
    assert_memory_equal(f->spec.env.buf.data, "OMP_NUM_THREADS=2\0EMPTY=", 25);
}

static void test_yaml_that_is_wrong_is_named_by_line_and_field(void **state)
{
    static const struct {
        const char *yaml, *text;
    } cases[] = {
        { "", "the file is empty" },
        { "- 1\n", "line 1: a mapping of fields is expected" },
        { "ranks: 4\nrankz: 3\n", "line 2: unknown field 'rankz'" },
        { "ranks: four\n", "line 1: ranks: a number is expected" },
        { "ranks: 4\nranks: 5\n", "line 2: ranks: given twice" },
        { "ranks: [1]\n", "line 1: ranks: a plain value is expected" },
        { "ranks: -1\n", "ranks: a number is expected" },
        { "ranks: 99999999999\n", "ranks: a number is expected" },
        { "grace: soon\n", "grace: a number of seconds is expected" },
        { "grace: nan\n", "grace: a number of seconds is expected" },
        { "bind: maybe\n", "bind: true or false is expected" },
        { "command: python\n", "command: a list of the program" },
        { "command: [a, [b]]\n", "command: a plain value is expected" },
        { "env: [A]\n", "env: a mapping of names" },
        { "env: {A: [1]}\n", "env: a plain value is expected" },
        { "name: &a x\n", "anchors, aliases and tags are not read" },
        { "name: !!str x\n", "anchors, aliases and tags are not read" },
        { "ranks: 1\n---\nranks: 2\n", "a second document" },
        { "name: \"a\\0b\"\n", "the value holds a NUL" },
        { "name: [\n", "line" },
        { "\tname: x\n", "line" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        DTPI_AUTO_SPEC dtpi_spec s;
        dtpi_spec_init(&s, &dtpi_malloc_allocator);
        assert_status(DTP_ERR_FORMAT, parse(&s, cases[i].yaml));
        assert_text(cases[i].text);
    }
}

static void test_a_huge_file_is_refused(void **state)
{
    fixture *f = *state;

    assert_status(DTP_ERR_LIMIT, dtpi_spec_parse(&f->spec, "", DTPI_SPEC_MAX_FILE + 1, ERR));
}

static void test_the_record_reads_back_what_was_written(void **state)
{
    fixture *f = *state;
    static const char *const env[] = { "A=1", "B=\xff\xfe", NULL };
    const dtp_job_spec u = { .size = sizeof(u), .argv = argv_true, .n_ranks = 4, .min_ranks = 2,
                             .env = env, .env_base = env, .name = "n", .ckpt_dir = "/c",
                             .reform_ms = 7 };
    DTPI_AUTO_SPEC dtpi_spec copy;
    DTPI_AUTO_BUF dtpi_buf a = dtpi_buf_init(&dtpi_malloc_allocator);
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    dtpi_spec_init(&copy, &dtpi_malloc_allocator);
    assert_ok(dtpi_spec_copy(&f->spec, &u, ERR));
    dtpi_spec_encode(&f->spec, &a);
    assert_ok(dtpi_spec_decode(&copy, a.data, a.len, ERR));
    dtpi_spec_encode(&copy, &b);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    assert_null(copy.cwd);
    for (size_t cut = 0; cut < a.len; cut++) {
        DTPI_AUTO_SPEC dtpi_spec part;
        dtpi_spec_init(&part, &dtpi_malloc_allocator);
        assert_true(dtpi_spec_decode(&part, a.data, cut, NULL) < 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_defaults_are_filled, set_up, tear_down),
        cmocka_unit_test(test_what_is_wrong_is_named_by_field),
        cmocka_unit_test_setup_teardown(test_yaml_fills_all_fields, set_up, tear_down),
        cmocka_unit_test(test_yaml_that_is_wrong_is_named_by_line_and_field),
        cmocka_unit_test_setup_teardown(test_a_huge_file_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_record_reads_back_what_was_written, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
