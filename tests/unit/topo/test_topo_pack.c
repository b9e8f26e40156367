/* SPDX-License-Identifier: Apache-2.0 */
/* A topology survives being packed, and nothing else is taken for one. */
#include "facts.h"
#include "failalloc.h"
#include "tree.h"

#include "topo/pack.h"

static dtp_ctx *ctx;

typedef struct packed {
    dtpi_buf shape, own;
} packed;

static packed pack(const dtp_topo *topo)
{
    packed p = { dtpi_buf_init(&dtpi_malloc_allocator), dtpi_buf_init(&dtpi_malloc_allocator) };

    dtpi_topo_pack(topo, &p.shape, &p.own);
    assert_false(p.shape.failed || p.own.failed);
    return p;
}

static void packed_free(packed *p)
{
    dtpi_buf_free(&p->shape);
    dtpi_buf_free(&p->own);
}

static dtp_topo *load(char *root, const char *xml)
{
    dtp_topo_opts opts = { .size = sizeof(opts) };
    dtp_topo *topo = NULL;
    char path[1024];

    if (xml) {
        data_path(path, sizeof(path), xml);
        opts.hwloc_xml = path;
    } else {
        tree_unpack(root, "gpu-node.tree");
        opts.fsroot = root;
    }
    assert_ok(dtp_topo_load(ctx, &opts, &topo, ERR));
    return topo;
}

static void check_same(const dtp_topo *a, const dtp_topo *b)
{
    static const dtp_topo_format formats[] = { DTP_TOPO_TEXT, DTP_TOPO_JSON, DTP_TOPO_MATRIX };

    for (size_t i = 0; i < DTPI_ARRAY_LEN(formats); i++) {
        char *ta = NULL, *tb = NULL;
        assert_ok(dtp_topo_render(a, formats[i], &ta, ERR));
        assert_ok(dtp_topo_render(b, formats[i], &tb, ERR));
        assert_string_equal(ta, tb);
        dtp_text_free(ta);
        dtp_text_free(tb);
    }
    for (int type = DTP_TOPO_MACHINE; type <= DTP_TOPO_NVME; type++)
        assert_int_equal(dtp_topo_count(a, (dtp_topo_type)type), dtp_topo_count(b, (dtp_topo_type)type));
}

static void test_a_packed_machine_comes_back_as_it_was(void **state)
{
    static const char *const sources[] = { NULL, "two-nodes.xml" };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(sources); i++) {
        char root[] = "/tmp/dtp-topo-XXXXXX";
        dtp_topo *topo = load(root, sources[i]), *back = NULL;
        packed p = pack(topo);
        assert_ok(dtpi_topo_unpack(&dtpi_malloc_allocator, p.shape.data, p.shape.len, p.own.data, p.own.len,
                                   &back, ERR));
        check_same(topo, back);
        dtp_topo_close(back);
        dtp_topo_close(topo);
        packed_free(&p);
        if (!sources[i])
            tree_remove(root);
    }
}

static void test_machines_that_differ_in_gids_only_share_a_shape(void **state)
{
    char root[] = "/tmp/dtp-topo-XXXXXX";
    dtp_topo *topo = load(root, NULL);
    packed a = pack(topo), b;
    bool found = false;

    (void)state;
    for (uint32_t i = 0; i < topo->n_objs; i++)
        if (topo->objs[i].gid) {
            topo->objs[i].gid = "fe80::1234";
            found = true;
        }
    assert_true(found);
    b = pack(topo);
    assert_int_equal(dtpi_topo_id(a.shape.data, a.shape.len), dtpi_topo_id(b.shape.data, b.shape.len));
    assert_true(a.own.len != b.own.len || memcmp(a.own.data, b.own.data, a.own.len) != 0);
    packed_free(&b);
    topo->objs[0].mem_bytes = 12345;
    b = pack(topo);
    assert_int_not_equal(dtpi_topo_id(a.shape.data, a.shape.len), dtpi_topo_id(b.shape.data, b.shape.len));
    packed_free(&a);
    packed_free(&b);
    dtp_topo_close(topo);
    tree_remove(root);
}

static void test_cut_and_bent_bytes_are_refused_or_harmless(void **state)
{
    char root[] = "/tmp/dtp-topo-XXXXXX";
    dtp_topo *topo = load(root, NULL), *back = NULL;
    packed p = pack(topo);
    uint64_t seed = check_seed();

    (void)state;
    for (size_t n = 0; n < p.shape.len; n += 1 + n / 16)
        assert_status(DTP_ERR_FORMAT, dtpi_topo_unpack(&dtpi_malloc_allocator, p.shape.data, n, p.own.data,
                                                       p.own.len, &back, ERR));
    for (int i = 0; i < 300; i++) {
        const size_t at = check_random(&seed) % p.shape.len;
        const uint8_t was = p.shape.data[at];
        p.shape.data[at] = (uint8_t)check_random(&seed);
        back = NULL;
        if (dtpi_topo_unpack(&dtpi_malloc_allocator, p.shape.data, p.shape.len, p.own.data, p.own.len,
                             &back, ERR) >= 0) {
            char *text = NULL;
            assert_ok(dtp_topo_render(back, DTP_TOPO_TEXT, &text, ERR));
            dtp_text_free(text);
        }
        dtp_topo_close(back);
        p.shape.data[at] = was;
    }
    packed_free(&p);
    dtp_topo_close(topo);
    tree_remove(root);
}

static void test_without_memory_it_says_so_and_leaks_nothing(void **state)
{
    char root[] = "/tmp/dtp-topo-XXXXXX";
    dtp_topo *topo = load(root, NULL);
    packed p = pack(topo);

    (void)state;
    FOR_EACH_FAILURE(f) {
        dtp_topo *back = NULL;
        if (failalloc_ok(&f, dtpi_topo_unpack(failalloc_of(&f), p.shape.data, p.shape.len, p.own.data,
                                              p.own.len, &back, ERR)))
            dtp_topo_close(back);
    }
    packed_free(&p);
    dtp_topo_close(topo);
    tree_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_packed_machine_comes_back_as_it_was),
        cmocka_unit_test(test_machines_that_differ_in_gids_only_share_a_shape),
        cmocka_unit_test(test_cut_and_bent_bytes_are_refused_or_harmless),
        cmocka_unit_test(test_without_memory_it_says_so_and_leaks_nothing),
    };
    assert_ok(dtp_ctx_open(NULL, &ctx, ERR));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dtp_ctx_close(ctx);
    return failed;
}
