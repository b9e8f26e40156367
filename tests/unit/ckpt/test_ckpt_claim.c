/* SPDX-License-Identifier: Apache-2.0 */
/* Two writers of one step where no lock keeps them apart: the late one is refused, whenever it comes. */
#include "ranks.h"

#include "ckpt/claim.h"

static const int64_t shape[] = { 8 };

static void test_a_claims_name_reads_back(void **state)
{
    const dtpi_claim c = { 0x0123456789abcdef, 7, UINT32_MAX, 42 };
    char name[DTPI_CLAIM_NAME];
    dtpi_claim back;

    (void)state;
    dtpi_claim_name(&c, name);
    assert_string_equal(name, "claim-0123456789abcdef-00000007-ffffffff.000000000000002a");
    assert_true(dtpi_claim_parse(name, &back));
    assert_memory_equal(&back, &c, sizeof(c));
    for (size_t i = 0; name[i]; i++) {
        const char was = name[i];
        name[i] = 'X';
        assert_false(dtpi_claim_parse(name, &back));
        name[i] = '\0';
        assert_false(dtpi_claim_parse(name, &back));
        name[i] = was;
    }
    strcat(name, "0");
    assert_false(dtpi_claim_parse(name, &back));
}

static void test_attempts_come_before_generations_and_jobs_are_strangers(void **state)
{
    const dtpi_claim c = { 1, 2, 3, 9 };

    (void)state;
    assert_false(dtpi_claim_is_newer(&c, &c));
    assert_true(dtpi_claim_is_newer(&(dtpi_claim){ 1, 2, 4, 0 }, &c));
    assert_true(dtpi_claim_is_newer(&(dtpi_claim){ 1, 3, 0, 0 }, &c));
    assert_false(dtpi_claim_is_newer(&(dtpi_claim){ 1, 1, 9, 0 }, &c));
    assert_false(dtpi_claim_is_newer(&(dtpi_claim){ 1, 2, 2, 0 }, &c));
    assert_false(dtpi_claim_is_newer(&(dtpi_claim){ 2, 3, 4, 0 }, &c));
}

/* As on a file system that has no locks. */
static dtpi_files *files_without_locks(void)
{
    static struct dtpi_files_ops ops;
    dtpi_files *files = mem_files();

    ops = *files->ops;
    ops.lock = NULL;
    files->ops = &ops;
    return files;
}

/* A link of one rank that lets another writer in before its acknowledgement. */
typedef struct crossing {
    dtpi_link base;
    rank_run *other;
    dtp_status other_status;
    char other_text[256];
    int n_said;
} crossing;

static dtp_status say(dtpi_link *link, const void *data, size_t bytes, dtpi_link_each each, void *user,
                      dtp_error *err)
{
    crossing *c = (crossing *)(void *)link;

    (void)err;
    if (++c->n_said == 4) {     /* after the declaration, and lengths and bytes of the list */
        c->other_status = dtpi_save(&c->other->in, ERR);
        snprintf(c->other_text, sizeof(c->other_text), "%s", check_err.text);
    }
    each(user, 0, data, bytes);
    return DTP_OK;
}

/* Writer `a` is under way with step 1 when `b` saves it. */
static dtp_status cross(dtpi_files *files, uint32_t attempt_a, uint32_t attempt_b, crossing *c)
{
    rank_run a[1], b[1];

    ranks_init(a, 1, files, "ck");
    ranks_init(b, 1, files, "ck");
    give(&a[0], "w", DTP_F32, 1, shape, NULL, NULL, 1);
    give(&b[0], "w", DTP_F32, 1, shape, NULL, NULL, 2);
    dtpi_link_alone(&b[0].link.base);
    b[0].link.base.attempt = attempt_b;
    b[0].in.step = 1;
    b[0].in.id = 0xb;
    b[0].in.n_tensors = b[0].n;
    *c = (crossing){ .base = { .size = 1, .attempt = attempt_a, .max_bytes = 4096, .gather = say },
                     .other = &b[0] };
    a[0].in.link = &c->base;
    a[0].in.step = 1;
    a[0].in.id = 0xa;
    a[0].in.n_tensors = a[0].n;
    const dtp_status st = dtpi_save(&a[0].in, ERR);
    ranks_free(a, 1);
    ranks_free(b, 1);
    return st;
}

static dtp_status has_bytes_of(dtpi_files *files, uint64_t seed)
{
    dtpi_load *l = NULL;

    const dtp_status st = dtpi_load_open(&dtpi_malloc_allocator, files, "ck", 1, &l, ERR);
    if (st < 0)
        return st;
    assert_ok(read_known(l, "w", DTP_F32, 1, shape, NULL, NULL, seed));
    dtpi_load_close(l);
    return DTP_OK;
}

static void test_a_newer_attempt_takes_the_step_from_a_late_writer(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = files_without_locks();
    crossing c;

    (void)state;
    assert_status(DTP_ERR_BUSY, cross(files, 1, 2, &c));
    assert_int_equal(c.other_status, DTP_OK);
    assert_ok(has_bytes_of(files, 2));
}

static void test_a_late_writer_does_not_get_the_step(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = files_without_locks();
    crossing c;

    (void)state;
    assert_ok(cross(files, 2, 1, &c));
    assert_int_equal(c.other_status, DTP_ERR_BUSY);
    assert_non_null(strstr(c.other_text, "attempt 2, generation 0 of this job writes this step ("
                                         "ck/step-00000000000000000001/claim-"));
    assert_non_null(strstr(c.other_text, "): attempt 1, generation 0 is late"));
    assert_ok(has_bytes_of(files, 1));
}

static void test_of_two_equal_writers_one_gets_the_step(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = files_without_locks();
    crossing c;

    (void)state;
    assert_status(DTP_ERR_BUSY, cross(files, 1, 1, &c));
    assert_text("another save writes ck/step-00000000000000000001 now");
    assert_int_equal(c.other_status, DTP_OK);
    assert_ok(has_bytes_of(files, 2));
}

static dtp_status count_name(void *user, const char *name, dtp_error *err)
{
    (void)err;
    *(int *)user += strncmp(name, DTPI_CLAIM_PREFIX, strlen(DTPI_CLAIM_PREFIX)) == 0;
    return DTP_OK;
}

static void test_no_claim_is_left(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = files_without_locks();
    crossing c;
    int n = 0;

    (void)state;
    assert_ok(cross(files, 2, 1, &c));
    assert_ok(files->ops->list(files, "ck/step-00000000000000000001", count_name, &n, ERR));
    assert_int_equal(n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_claims_name_reads_back),
        cmocka_unit_test(test_attempts_come_before_generations_and_jobs_are_strangers),
        cmocka_unit_test(test_a_newer_attempt_takes_the_step_from_a_late_writer),
        cmocka_unit_test(test_a_late_writer_does_not_get_the_step),
        cmocka_unit_test(test_of_two_equal_writers_one_gets_the_step),
        cmocka_unit_test(test_no_claim_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
