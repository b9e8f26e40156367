/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest reader: a good text changed in one place, its checksum made right again, is refused. */
#include "ranks.h"

#include "base/sum.h"
#include "ckpt/json.h"
#include "ckpt/manifest.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

/* A text with a right checksum behind it. */
static char *seal(const char *body)
{
    char *text = malloc(strlen(body) + DTPI_MANIFEST_TAIL + 1);

    sprintf(text, "%s,\"checksum\":\"%016llx\"}\n", body, (unsigned long long)dtpi_sum64(body, strlen(body)));
    return text;
}

static dtp_status read_sealed(const char *body, dtpi_manifest *m)
{
    char *text = seal(body);
    const dtp_status st = dtpi_manifest_read(A, text, strlen(text), "manifest.json", m, ERR);

    free(text);
    return st;
}

static dtp_status try_body(const char *body)
{
    dtpi_manifest m;
    const dtp_status st = read_sealed(body, &m);

    if (st >= 0)
        dtpi_manifest_free(&m);
    return st;
}

#define FILES                                                                                       \
    "\"files\":[{\"name\":\"a.safetensors\",\"rank\":0,\"bytes\":4128,\"header_bytes\":4096,"          \
    "\"header_sum\":\"0000000000000001\",\"digest\":\"0000000000000002\"}]"
#define BOX0                                                                                        \
    "{\"file\":0,\"offset\":[0,0],\"extent\":[1,4],\"bytes\":[0,16],\"sums\":\"AAAAAAAAAAA=\"}"
#define BOX1                                                                                        \
    "{\"file\":0,\"key\":\"w@1,0\",\"offset\":[1,0],\"extent\":[1,4],\"bytes\":[16,32],\"sums\":\"AQAAAAAAAAA=\"}"
#define TENSOR "{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[2,4],\"boxes\":[" BOX0 "," BOX1 "]}"
#define BODY                                                                                        \
    "{\"format\":\"dtp-ckpt\",\"version\":1,\"step\":3,\"world_size\":1,\"attempt\":0,\"generation\":0,"   \
    "\"id\":\"00000000000000ff\",\"codec\":\"none\",\"chunk_bytes\":4096,\"meta\":{\"a\":[1]}," FILES      \
    ",\"tensors\":[" TENSOR "]"

#define BODY2                                                                                       \
    "{\"format\":\"dtp-ckpt\",\"version\":2,\"step\":3,\"world_size\":2,\"attempt\":0,\"generation\":0,"   \
    "\"id\":\"00000000000000ff\",\"codec\":\"none\",\"chunk_bytes\":4096,\"parent\":2,\"lineage\":[2,1],"  \
    "\"meta\":{\"a\":[1]},\"files\":[{\"name\":\"a.safetensors\",\"rank\":0,\"bytes\":4128,"             \
    "\"header_bytes\":4096,\"header_sum\":\"0000000000000001\",\"digest\":\"0000000000000002\","         \
    "\"part\":\"a.bin\",\"part_bytes\":200,\"part_sum\":\"0000000000000003\"}],"                        \
    "\"tensors\":[{\"name\":\"v\",\"dtype\":\"i64\",\"shape\":[],\"boxes\":[[0]]},"                     \
    "{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[2,4],\"boxes\":[[0,0,0,1,4],[0,1,0,1,4,\"w@1,0\"]]}]"

/* `body` with the first `from` replaced. */
static char *change_body(const char *body, const char *from, const char *to)
{
    const char *at = strstr(body, from);
    char *text = malloc(strlen(body) + strlen(to) + 1);

    if (!at)
        fail_msg("%s is not there", from);
    sprintf(text, "%.*s%s%s", (int)(at - body), body, to, at + strlen(from));
    return text;
}

static char *change(const char *from, const char *to)
{
    return change_body(BODY, from, to);
}

static void test_good_manifest_is_read(void **state)
{
    dtpi_manifest m;
    uint32_t i;

    (void)state;
    assert_ok(read_sealed(BODY, &m));
    assert_int_equal(m.step, 3);
    assert_int_equal(m.id, 255);
    assert_string_equal((char *)m.meta.data, "{\"a\":[1]}");
    assert_true(dtpi_mf_find(&m, "w", &i));
    assert_int_equal(dtpi_mf_tensor_at(&m, i)->n_boxes, 2);
    assert_string_equal(dtpi_mf_text(&m, dtpi_mf_box_at(&m, 1)->key_at), "w@1,0");
    assert_int_equal(dtpi_mf_sum(&m, dtpi_mf_box_at(&m, 1), 0), 1);
    dtpi_manifest_free(&m);
}

static void test_good_manifest_of_version_2_is_read(void **state)
{
    dtpi_manifest m;
    uint32_t i;

    (void)state;
    assert_ok(read_sealed(BODY2, &m));
    assert_int_equal(m.version, 2);
    assert_true(m.has_parent);
    assert_int_equal(m.parent, 2);
    assert_int_equal(m.n_lineage, 2);
    assert_int_equal(m.lineage[1], 1);
    assert_true(dtpi_mf_find(&m, "w", &i));
    assert_int_equal(dtpi_mf_tensor_at(&m, i)->n_boxes, 2);
    assert_string_equal(dtpi_mf_text(&m, dtpi_mf_box_at(&m, 1)->key_at), "w");
    assert_string_equal(dtpi_mf_text(&m, dtpi_mf_box_at(&m, 2)->key_at), "w@1,0");
    assert_int_equal(dtpi_mf_dims(&m, dtpi_mf_box_at(&m, 2)->dims_at)[0], 1);
    assert_int_equal(dtpi_mf_file_at(&m, 0)->n_boxes, 3);
    assert_false(dtpi_mf_file_at(&m, 0)->placed);
    dtpi_manifest_free(&m);
}

static void test_members_may_come_in_any_order_and_unknown_ones_pass(void **state)
{
    char *text = change("\"step\":3,", "");
    char *more = malloc(strlen(text) + 64);

    (void)state;
    sprintf(more, "%s,\"new\":[{\"x\":null}],\"step\":3", text);
    assert_ok(try_body(more));
    free(text);
    free(more);
    text = change("\"offset\":[0,0],\"extent\":[1,4]", "\"extent\":[1,4],\"note\":\"\",\"offset\":[0,0]");
    assert_ok(try_body(text));
    free(text);
}

static const struct change {
    const char *from, *to;
    dtp_status want;
} cases[] = {
    { "\"version\":1", "\"version\":3", DTP_ERR_VERSION },
    { "\"version\":1", "\"version\":0", DTP_ERR_VERSION },
    { "\"version\":1", "\"version\":2", DTP_ERR_FORMAT },
    { "dtp-ckpt", "dtp_ckpt", DTP_ERR_FORMAT },
    { "\"step\":3", "\"step\":3,\"step\":3", DTP_ERR_FORMAT },
    { "\"step\":3,", "", DTP_ERR_FORMAT },
    { "\"step\":3", "\"step\":-3", DTP_ERR_FORMAT },
    { "\"step\":3", "\"step\":3.0", DTP_ERR_FORMAT },
    { "\"step\":3", "\"step\":18446744073709551616", DTP_ERR_FORMAT },
    { "\"world_size\":1", "\"world_size\":4294967296", DTP_ERR_FORMAT },
    { "00000000000000ff", "00000000000000fg", DTP_ERR_FORMAT },
    { "00000000000000ff", "ff", DTP_ERR_FORMAT },
    { "\"codec\":\"none\"", "\"codec\":\"\"", DTP_ERR_FORMAT },
    { "\"codec\":\"none\"", "\"codec\":\"a\\\"b\"", DTP_ERR_FORMAT },
    { "\"codec\":\"none\"", "\"codec\":\"0123456789abcdef\"", DTP_ERR_FORMAT },
    { "\"chunk_bytes\":4096", "\"chunk_bytes\":0", DTP_ERR_FORMAT },
    { "\"chunk_bytes\":4096", "\"chunk_bytes\":4097", DTP_ERR_FORMAT },
    { "\"chunk_bytes\":4096", "\"chunk_bytes\":2147483648", DTP_ERR_FORMAT },
    { "{\"a\":[1]}", "[1]", DTP_ERR_FORMAT },
    { "{\"a\":[1]}", "{\"a\":}", DTP_ERR_FORMAT },
    { "\"a.safetensors\"", "\"../a.safetensors\"", DTP_ERR_FORMAT },
    { "\"a.safetensors\"", "\"/etc/passwd\"", DTP_ERR_FORMAT },
    { "\"a.safetensors\"", "\"\"", DTP_ERR_FORMAT },
    { "\"bytes\":4128", "\"bytes\":4127", DTP_ERR_FORMAT },
    { "\"bytes\":4128", "\"bytes\":4129", DTP_ERR_FORMAT },
    { "\"bytes\":4128", "\"bytes\":100", DTP_ERR_FORMAT },
    { "\"bytes\":4128", "\"bytes\":18446744073709551615", DTP_ERR_FORMAT },
    { "\"header_bytes\":4096", "\"header_bytes\":4128", DTP_ERR_FORMAT },
    { "\"digest\":\"0000000000000002\"", "\"digest\":2", DTP_ERR_FORMAT },
    { "\"name\":\"w\"", "\"name\":\"\"", DTP_ERR_FORMAT },
    { "\"f32\"", "\"f31\"", DTP_ERR_FORMAT },
    { "\"f32\"", "\"F32\"", DTP_ERR_FORMAT },
    { "\"f32\"", "\"f64\"", DTP_ERR_FORMAT },
    { "\"shape\":[2,4]", "\"shape\":[3,4]", DTP_ERR_CORRUPT },     /* a hole */
    { "\"shape\":[2,4]", "\"shape\":[1,4]", DTP_ERR_FORMAT },      /* a box outside */
    { "\"shape\":[2,4]", "\"shape\":[2,4,1]", DTP_ERR_FORMAT },
    { "\"shape\":[2,4]", "\"shape\":[2,9223372036854775807]", DTP_ERR_FORMAT },
    { "\"shape\":[2,4]", "\"shape\":[1,1,1,1,1,1,1,1,1]", DTP_ERR_FORMAT },
    { "\"offset\":[1,0]", "\"offset\":[0,0]", DTP_ERR_CORRUPT },   /* an overlap */
    { "\"offset\":[1,0]", "\"offset\":[1]", DTP_ERR_FORMAT },
    { "\"offset\":[1,0]", "\"offset\":[1,1]", DTP_ERR_FORMAT },
    { "\"extent\":[1,4]", "\"extent\":[0,4]", DTP_ERR_FORMAT },
    { "\"extent\":[1,4]", "\"extent\":[1,3]", DTP_ERR_FORMAT },
    { "\"bytes\":[0,16]", "\"bytes\":[16,32]", DTP_ERR_FORMAT },
    { "\"bytes\":[0,16]", "\"bytes\":[16,0]", DTP_ERR_FORMAT },
    { "\"bytes\":[16,32]", "\"bytes\":[17,33]", DTP_ERR_FORMAT },
    { "\"file\":0", "\"file\":1", DTP_ERR_FORMAT },
    { "AAAAAAAAAAA=", "", DTP_ERR_FORMAT },
    { "AAAAAAAAAAA=", "AAAAAAAAAAB=", DTP_ERR_FORMAT },
    { "AAAAAAAAAAA=", "AAAAAAAAAAAAAAAAAAAAAA==", DTP_ERR_FORMAT },
    { "\"sums\":\"AAAAAAAAAAA=\"", "\"sums\":\"AAAAAAAAAAA=\",\"sizes\":\"AAAAAA==\"", DTP_ERR_FORMAT },
    { "\"sums\":\"AAAAAAAAAAA=\"", "\"sums\":\"AAAAAAAAAAA=\",\"sizes\":\"EQAAAA==\"", DTP_ERR_FORMAT },
    { "\"tensors\":[", "\"tensors\":[" TENSOR ",", DTP_ERR_FORMAT },
    { "\"tensors\":[", "\"tensors\":{", DTP_ERR_FORMAT },
};

static const struct change cases2[] = {
    { "\"version\":2", "\"version\":1", DTP_ERR_FORMAT },
    { "\"version\":2", "\"version\":3", DTP_ERR_VERSION },
    { "\"parent\":2", "\"parent\":\"2\"", DTP_ERR_FORMAT },
    { "[2,1]", "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", DTP_ERR_FORMAT },
    { "\"part\":\"a.bin\",", "", DTP_ERR_FORMAT },
    { "\"part_bytes\":200,", "", DTP_ERR_FORMAT },
    { "\"a.bin\"", "\"../a.bin\"", DTP_ERR_FORMAT },
    { "\"name\":\"w\"", "\"name\":\"u\"", DTP_ERR_FORMAT },     /* not in order */
    { "\"name\":\"w\"", "\"name\":\"v\"", DTP_ERR_FORMAT },
    { "[[0]]", "[]", DTP_ERR_CORRUPT },
    { "[[0]]", "[[0],[0]]", DTP_ERR_CORRUPT },
    { "[[0]]", "[[1]]", DTP_ERR_FORMAT },
    { "[[0]]", "[[]]", DTP_ERR_FORMAT },
    { "[[0]]", "[[0,0,1]]", DTP_ERR_FORMAT },
    { "[[0]]", "[[0,\"k\",1]]", DTP_ERR_FORMAT },
    { "[[0]]", "[[-1]]", DTP_ERR_FORMAT },
    { "[[0]]", "[0]", DTP_ERR_FORMAT },
    { "[0,0,0,1,4]", "[0,0,0,1]", DTP_ERR_FORMAT },
    { "[0,0,0,1,4]", "[0,0,0,1,5]", DTP_ERR_FORMAT },
    { "[0,0,0,1,4]", "[0,0,0,1,3]", DTP_ERR_CORRUPT },
    { "[0,0,0,1,4]", "[0,0,0,2,4]", DTP_ERR_CORRUPT },
    { "[0,0,0,1,4]", "[0,0,0,1,4,5]", DTP_ERR_FORMAT },
    { "[0,0,0,1,4]", "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", DTP_ERR_FORMAT },
};

static void try_changes(const char *body, const struct change *changes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *text = change_body(body, changes[i].from, changes[i].to);
        const dtp_status got = try_body(text);
        if (got != changes[i].want)
            fail_msg("%s -> %s: expected %s, got %s: %s", changes[i].from, changes[i].to,
                     dtp_status_name(changes[i].want), dtp_status_name(got), check_err.text);
        assert_text("manifest.json");
        free(text);
    }
}

static void test_one_wrong_thing_is_refused(void **state)
{
    (void)state;
    try_changes(BODY, cases, DTPI_ARRAY_LEN(cases));
    try_changes(BODY2, cases2, DTPI_ARRAY_LEN(cases2));
}

static void test_sizes_of_coded_chunks_are_taken(void **state)
{
    char *text = change("\"sums\":\"AAAAAAAAAAA=\"", "\"sums\":\"AAAAAAAAAAA=\",\"sizes\":\"EAAAAA==\"");

    (void)state;
    assert_ok(try_body(text));
    free(text);
}

static void test_text_cut_anywhere_is_refused(void **state)
{
    char *text = seal(BODY);
    const size_t n = strlen(text);
    dtpi_manifest m;

    (void)state;
    for (size_t i = 0; i < n; i++) {
        const dtp_status st = dtpi_manifest_read(A, text, i, "m", &m, ERR);
        assert_true(st == DTP_ERR_TRUNCATED || st == DTP_ERR_CORRUPT);
    }
    assert_ok(dtpi_manifest_read(A, text, n, "m", &m, ERR));
    dtpi_manifest_free(&m);
    free(text);
}

static void test_what_is_read_writes_back_the_same(void **state)
{
    DTPI_AUTO_BUF dtpi_buf one = dtpi_buf_init(A), two = dtpi_buf_init(A);
    dtpi_manifest m, again;

    (void)state;
    assert_ok(read_sealed(BODY2, &m));
    assert_ok(dtpi_manifest_write(&m, &one, ERR));
    assert_ok(dtpi_manifest_read(A, (char *)one.data, one.len, "m", &again, ERR));
    assert_ok(dtpi_manifest_write(&again, &two, ERR));
    assert_int_equal(one.len, two.len);
    assert_memory_equal(one.data, two.data, one.len);
    dtpi_manifest_free(&m);
    dtpi_manifest_free(&again);
}

static void test_callers_metadata_is_one_object(void **state)
{
    (void)state;
    assert_ok(dtpi_manifest_check_meta("{}", ERR));
    assert_ok(dtpi_manifest_check_meta(" {\"a\": [1, {\"b\": null}]} ", ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_manifest_check_meta("", ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_manifest_check_meta("[]", ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_manifest_check_meta("{} {}", ERR));
    assert_status(DTP_ERR_FORMAT, dtpi_manifest_check_meta("{'a':1}", ERR));
}

static void test_metadata_that_is_taken_can_be_read_again(void **state)
{
    char meta[8 * DTPI_JSON_MAX_DEPTH];

    (void)state;
    for (int depth = DTPI_JSON_MAX_DEPTH - 3; depth <= DTPI_JSON_MAX_DEPTH + 1; depth++) {
        char *at = stpcpy(meta, "{\"a\":");
        for (int i = 1; i < depth; i++)
            at = stpcpy(at, "[");
        for (int i = 1; i < depth; i++)
            at = stpcpy(at, "]");
        strcpy(at, "}");
        char *text = change("{\"a\":[1]}", meta);
        const dtp_status st = dtpi_manifest_check_meta(meta, ERR);
        assert_int_equal(st, depth < DTPI_JSON_MAX_DEPTH ? DTP_OK : DTP_ERR_FORMAT);
        assert_int_equal(st, try_body(text));
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_manifest_is_read),
        cmocka_unit_test(test_good_manifest_of_version_2_is_read),
        cmocka_unit_test(test_members_may_come_in_any_order_and_unknown_ones_pass),
        cmocka_unit_test(test_one_wrong_thing_is_refused),
        cmocka_unit_test(test_sizes_of_coded_chunks_are_taken),
        cmocka_unit_test(test_text_cut_anywhere_is_refused),
        cmocka_unit_test(test_what_is_read_writes_back_the_same),
        cmocka_unit_test(test_callers_metadata_is_one_object),
        cmocka_unit_test(test_metadata_that_is_taken_can_be_read_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
