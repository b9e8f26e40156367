/* SPDX-License-Identifier: Apache-2.0 */
/* Pickles are data: values come out, attacks do not get in, and memory stays with the bytes. */
#include "check.h"

#include "ckpt/pickle.h"

static size_t now, most;

static void *count_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    now += bytes;
    most = DTPI_MAX(most, now);
    return dtpi_malloc_allocator.alloc(NULL, bytes, align);
}

static void count_free(void *user, void *p, size_t bytes)
{
    (void)user;
    now -= bytes;
    dtpi_malloc_allocator.free(NULL, p, bytes);
}

static const dtp_allocator counting = { count_alloc, count_free, NULL };

#define READ(text, p) dtpi_pickle_read(&counting, text, sizeof(text) - 1, "x.pkl", p, ERR)

static const dtpi_pk_node *root_of(const dtpi_pickle *p)
{
    return dtpi_pk_at(p, p->root);
}

static void test_values_come_out(void **state)
{
    /* {"a": 5, "b": [True, None, -1, 1.5], "c": (300, -2, b"xy")} */
    static const char text[] =
        "\x80\x04\x95\x32\0\0\0\0\0\0\0}\x94(\x8c\x01"
        "a\x94K\x05\x8c\x01"
        "b\x94]\x94(\x88NJ\xff\xff\xff\xffG?\xf8\0\0\0\0\0\0e\x8c\x01"
        "c\x94M,\x01\x8a\x01\xfe"
        "C\x02xy\x87\x94u.";
    dtpi_pickle p;
    int64_t ints[2];
    uint32_t n;

    (void)state;
    assert_ok(READ(text, &p));
    const dtpi_pk_node *a = dtpi_pk_get(&p, root_of(&p), "a"), *b, *c;
    assert_true(dtpi_pk_is(a, DTPI_PK_INT) && a->i == 5);
    b = dtpi_pk_get(&p, root_of(&p), "b");
    assert_true(dtpi_pk_is(b, DTPI_PK_LIST) && b->n == 4);
    assert_int_equal(dtpi_pk_kid(&p, b, 0)->i, 1);
    assert_int_equal(dtpi_pk_kid(&p, b, 1)->kind, DTPI_PK_NONE);
    assert_int_equal(dtpi_pk_kid(&p, b, 2)->i, -1);
    assert_true(dtpi_pk_kid(&p, b, 3)->f > 1.49 && dtpi_pk_kid(&p, b, 3)->f < 1.51);
    assert_null(dtpi_pk_kid(&p, b, 4));
    c = dtpi_pk_get(&p, root_of(&p), "c");
    assert_true(dtpi_pk_is(c, DTPI_PK_TUPLE) && c->n == 3);
    assert_int_equal(dtpi_pk_kid(&p, c, 0)->i, 300);
    assert_int_equal(dtpi_pk_kid(&p, c, 1)->i, -2);
    assert_false(dtpi_pk_ints(&p, c, 2, ints, &n));
    assert_null(dtpi_pk_get(&p, root_of(&p), "d"));
    dtpi_pickle_free(&p);
    assert_int_equal(now, 0);
}

static void test_a_size_is_a_record_of_numbers(void **state)
{
    dtpi_pickle p;
    int64_t ints[4];
    uint32_t n = 0;

    (void)state;
    assert_ok(READ("\x80\x02"
                   "ctorch\nSize\nq\0K\x02K\x03\x86q\x01\x85q\x02Rq\x03.",
                   &p));
    assert_true(dtpi_pk_is_object(root_of(&p), DTPI_PK_SIZE));
    assert_true(dtpi_pk_ints(&p, root_of(&p), 4, ints, &n));
    assert_int_equal(n, 2);
    assert_int_equal(ints[1], 3);
    dtpi_pickle_free(&p);
}

static void test_attributes_of_an_ordered_dict_are_passed_over(void **state)
{
    dtpi_pickle p;

    (void)state;
    assert_ok(READ("\x80\x02"
                   "ccollections\nOrderedDict\n)Rq\0X\x01\0\0\0aK\x07s}X\x09\0\0\0_metadataNsb.",
                   &p));
    assert_int_equal(dtpi_pk_get(&p, root_of(&p), "a")->i, 7);
    assert_int_equal(root_of(&p)->n, 2);
    dtpi_pickle_free(&p);
}

/* What attackers write: each wants something to be called, or memory to be taken. */
#define TEXT(s) s, sizeof(s) - 1
static const struct attack {
    const char *what, *text;
    size_t bytes;
    dtp_status status;
    const char *says;
} attacks[] = {
    { "os.system, protocol 0", TEXT("cos\nsystem\n(S'id'\ntR."), DTP_ERR_UNSUPPORTED, "os.system" },
    { "posix.system", TEXT("\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."),
      DTP_ERR_UNSUPPORTED, "posix.system" },
    { "builtins.eval", TEXT("\x80\x02" "c__builtin__\neval\nX\x03\0\0\0" "1+1\x85R."),
      DTP_ERR_UNSUPPORTED, "__builtin__.eval" },
    { "builtins.exec by NEWOBJ", TEXT("\x80\x04\x8c\x08" "builtins\x8c\x04" "exec\x93)\x81."),
      DTP_ERR_UNSUPPORTED, "builtins.exec" },
    { "getattr chain", TEXT("\x80\x04\x8c\x08" "builtins\x8c\x07getattr\x93."), DTP_ERR_UNSUPPORTED,
      "getattr" },
    { "dotted name", TEXT("\x80\x04\x8c\x05torch\x8c\x10" "hub.load.__call_\x93."),
      DTP_ERR_UNSUPPORTED, "torch.hub" },
    { "torch.load of another", TEXT("\x80\x02" "ctorch\nload\nX\x01\0\0\0x\x85R."),
      DTP_ERR_UNSUPPORTED, "torch.load" },
    { "numpy", TEXT("\x80\x02" "cnumpy.core.multiarray\n_reconstruct\n."), DTP_ERR_UNSUPPORTED,
      "_reconstruct" },
    { "INST", TEXT("(S'id'\nios\nsystem\n."), DTP_ERR_UNSUPPORTED, "opcode" },
    { "OBJ", TEXT("\x80\x02(" "ctorch\nSize\no."), DTP_ERR_UNSUPPORTED, "opcode" },
    { "extension registry", TEXT("\x80\x02\x82\x01."), DTP_ERR_UNSUPPORTED, "opcode 0x82" },
    { "out-of-band buffer", TEXT("\x80\x05\x97."), DTP_ERR_UNSUPPORTED, "opcode 0x97" },
    { "calling a result", TEXT("\x80\x02" "ctorch\nSize\n)R)R."), DTP_ERR_FORMAT, "no class" },
    { "calling a type", TEXT("\x80\x02" "ctorch\nfloat32\n)R."), DTP_ERR_FORMAT, "a type is called" },
    { "calling a text", TEXT("\x80\x02X\x01\0\0\0x)R."), DTP_ERR_FORMAT, "no class" },
    { "state of a number", TEXT("\x80\x02K\x01}b."), DTP_ERR_FORMAT, "state" },
    { "memo bomb", TEXT("\x80\x02Nr\xff\xff\xff\x7f."), DTP_ERR_FORMAT, "memo" },
    { "memo never put", TEXT("\x80\x02h\x05."), DTP_ERR_FORMAT, "never put" },
    { "huge frame", TEXT("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN."), DTP_ERR_TRUNCATED,
      "frame" },
    { "huge text", TEXT("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), DTP_ERR_TRUNCATED,
      "ends within" },
    { "huge bytes", TEXT("\x80\x04\x42\xff\xff\xff\xff."), DTP_ERR_TRUNCATED, "ends within" },
    { "huge integer", TEXT("\x80\x02\x8b\xff\xff\xff\x7f."), DTP_ERR_TRUNCATED, "ends within" },
    { "negative integer length", TEXT("\x80\x02\x8b\xff\xff\xff\xff."), DTP_ERR_TRUNCATED, "ends" },
    { "protocol 0", TEXT("(dp0\n."), DTP_ERR_UNSUPPORTED, "opcode 0x70" },
    { "protocol 6", TEXT("\x80\x06N."), DTP_ERR_VERSION, "protocol 6" },
    { "no end", TEXT("\x80\x02N"), DTP_ERR_TRUNCATED, "ends" },
    { "nothing", TEXT(""), DTP_ERR_TRUNCATED, "ends" },
    { "empty stack", TEXT("\x80\x02."), DTP_ERR_FORMAT, "more or less" },
    { "two values", TEXT("\x80\x02NN."), DTP_ERR_FORMAT, "more or less" },
    { "bytes behind", TEXT("\x80\x02N.cos\nsystem\n"), DTP_ERR_FORMAT, "bytes follow" },
    { "a mark as value", TEXT("\x80\x02(."), DTP_ERR_FORMAT, "" },
    { "a mark in a tuple", TEXT("\x80\x02N(N\x87."), DTP_ERR_FORMAT, "too little" },
    { "a mark as list", TEXT("\x80\x02((Ne."), DTP_ERR_FORMAT, "too little" },
    { "append to nothing", TEXT("\x80\x02Na."), DTP_ERR_FORMAT, "too little" },
    { "append to a tuple", TEXT("\x80\x02)Na."), DTP_ERR_FORMAT, "cannot hold" },
    { "key without value", TEXT("\x80\x02}(Nu."), DTP_ERR_FORMAT, "cannot hold" },
    { "pop of nothing", TEXT("\x80\x02" "0."), DTP_ERR_FORMAT, "nothing" },
    { "no mark", TEXT("\x80\x02Nt."), DTP_ERR_FORMAT, "no mark" },
    { "a name without end", TEXT("\x80\x02" "ctorch"), DTP_ERR_FORMAT, "does not end" },
    { "a dict of arguments", TEXT("\x80\x02" "ccollections\nOrderedDict\nN\x85R."), DTP_ERR_FORMAT,
      "arguments" },
};

static void test_attacks_are_refused_within_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(attacks); i++) {
        const struct attack *k = &attacks[i];
        dtpi_pickle p;
        now = most = 0;
        memset(ERR, 0, sizeof(*ERR));
        const dtp_status st = dtpi_pickle_read(&counting, k->text, k->bytes, "x.pkl", &p, ERR);
        if (st != k->status || !strstr(ERR->text, k->says))
            fail_msg("%s: %s: %s", k->what, dtp_status_name(st), ERR->text);
        assert_int_equal(now, 0);
        assert_true(most < 64 << 10);
    }
}

/* Doubling a hundred times costs a hundred steps: what is shared stays shared. */
static void test_a_billion_laughs_stay_small(void **state)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_pickle p;

    (void)state;
    dtpi_buf_append(&b, "\x80\x02)", 3);
    for (int i = 0; i < 100; i++)
        dtpi_buf_append(&b, "2\x86", 2);
    dtpi_buf_append(&b, ".", 1);
    now = most = 0;
    assert_ok(dtpi_pickle_read(&counting, b.data, b.len, "x.pkl", &p, ERR));
    assert_true(most < 64 << 10);
    dtpi_pickle_free(&p);
    dtpi_buf_free(&b);
}

/* A list that holds itself is legal, and no look at it may go round for ever. */
static void test_a_list_may_hold_itself(void **state)
{
    dtpi_pickle p;
    int64_t ints[4];
    uint32_t n;

    (void)state;
    assert_ok(READ("\x80\x02]q\0h\0a.", &p));
    assert_ptr_equal(dtpi_pk_kid(&p, root_of(&p), 0), root_of(&p));
    assert_false(dtpi_pk_ints(&p, root_of(&p), 4, ints, &n));
    dtpi_pickle_free(&p);
}

/* Memory grows with the pickle, whatever its opcodes are. */
static void test_memory_is_linear_in_the_pickle(void **state)
{
    static const char *const parts[] = { "]", "]a", "N", "}", "(", "K\1", "]q\0", "2", "]\x94", "\x8f" };
    enum { N = 100000 };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(parts); i++) {
        dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
        dtpi_pickle p;
        dtpi_buf_append(&b, "\x80\x02]", 3);
        while (b.len < N)
            dtpi_buf_append(&b, parts[i], i == 6 ? 3 : strlen(parts[i]));
        now = most = 0;
        if (dtpi_pickle_read(&counting, b.data, b.len, "x.pkl", &p, ERR) >= 0)
            dtpi_pickle_free(&p);
        assert_int_equal(now, 0);
        assert_true(most < 96 * (size_t)N);
        dtpi_buf_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_come_out),
        cmocka_unit_test(test_a_size_is_a_record_of_numbers),
        cmocka_unit_test(test_attributes_of_an_ordered_dict_are_passed_over),
        cmocka_unit_test(test_attacks_are_refused_within_bounds),
        cmocka_unit_test(test_a_billion_laughs_stay_small),
        cmocka_unit_test(test_a_list_may_hold_itself),
        cmocka_unit_test(test_memory_is_linear_in_the_pickle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
