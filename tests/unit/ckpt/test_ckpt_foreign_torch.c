/* SPDX-License-Identifier: Apache-2.0 */
/* Files of torch in tests/data/ckpt/foreign (made by its make.py), and archives that are wrong in one way. */
#include "zips.h"

#include <locale.h>

#include "ckpt/load.h"
#include "files/posix.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

static void open_fixture(dtpi_files *files, const char *name, dtpi_load **l)
{
    const char *source = getenv("DTP_TEST_SOURCE");
    char path[DTPI_PATH_MAX];

    snprintf(path, sizeof(path), "%s/tests/data/ckpt/foreign/%s", source ? source : ".", name);
    assert_ok(dtpi_load_open_path(A, files, path, l, ERR));
}

/* Tensor `name` is of type `dtype` and shape [a, b] and holds `want`. */
static void assert_holds(dtpi_load *l, const char *name, dtp_dtype dtype, int64_t a, int64_t b,
                         const void *want, size_t bytes)
{
    const int64_t shape[] = { a, b };
    uint8_t got[256] = { 0 };
    const dtp_ckpt_tensor t = {
        sizeof(t), name, dtype, a < 0 ? 0 : b < 0 ? 1 : 2, shape, NULL, NULL, got
    };

    assert_ok(dtpi_load_read(l, &t, ERR));
    if (memcmp(got, want, bytes) != 0)
        fail_msg("%s holds other bytes", name);
}

/* Element i of `n` is a + i * b. */
static void assert_floats(dtpi_load *l, const char *name, int64_t rows, int64_t columns, float a,
                          float down, float right)
{
    float want[64];
    const int64_t n = columns < 0 ? 1 : columns;

    for (int64_t r = 0; r < DTPI_MAX(rows, 1); r++)
        for (int64_t c = 0; c < n; c++)
            want[r * n + c] = a + (float)r * down + (float)c * right;
    assert_holds(l, name, DTP_F32, rows, columns, want, (size_t)(DTPI_MAX(rows, 1) * n) * 4);
}

static void test_a_state_dict_of_torch_save_is_read(void **state)
{
    static const struct {
        const char *name;
        dtp_dtype dtype;
    } types[] = {
        { "float64", DTP_F64 },   { "float32", DTP_F32 }, { "float16", DTP_F16 },
        { "bfloat16", DTP_BF16 }, { "int64", DTP_I64 },   { "int32", DTP_I32 },
        { "int16", DTP_I16 },     { "int8", DTP_I8 },     { "uint64", DTP_U64 },
        { "uint32", DTP_U32 },    { "uint16", DTP_U16 },  { "uint8", DTP_U8 },
        { "float8_e4m3fn", DTP_F8_E4M3 }, { "float8_e5m2", DTP_F8_E5M2 },
    };
    static const int16_t i16[] = { 0, 1, 2, 3, 4, 5 };
    static const uint16_t bf16[] = { 0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0 };
    static const uint8_t e4m3[] = { 0, 0x38, 0x40, 0x44, 0x48, 0x4a };
    DTPI_AUTO(files) dtpi_files *files = NULL;
    DTPI_AUTO(load) dtpi_load *l = NULL;
    char name[64];
    uint32_t i;

    (void)state;
    assert_ok(dtpi_files_posix_open(A, &files, ERR));
    open_fixture(files, "plain.pt", &l);
    assert_string_equal(l->m.format, "torch");
    for (size_t k = 0; k < DTPI_ARRAY_LEN(types); k++) {
        snprintf(name, sizeof(name), "model.%s", types[k].name);
        assert_holds(l, name, types[k].dtype, 2, 3, "", 0);
    }
    assert_holds(l, "model.int16", DTP_I16, 2, 3, i16, sizeof(i16));
    assert_holds(l, "model.bfloat16", DTP_BF16, 2, 3, bf16, sizeof(bf16));
    assert_holds(l, "model.float8_e4m3fn", DTP_F8_E4M3, 2, 3, e4m3, sizeof(e4m3));
    assert_holds(l, "model.bool", DTP_BOOL, 2, -1, "\1\0", 2);
    assert_floats(l, "model.rows", 2, 6, 6, 6, 1);
    assert_floats(l, "model.columns", 4, 2, 2, 6, 1);
    assert_floats(l, "model.turned", 6, 4, 0, 1, 6);
    assert_floats(l, "model.tied", 4, 6, 0, 6, 1);
    assert_floats(l, "model.scalar", -1, -1, 3.5f, 0, 0);
    assert_floats(l, "model.parameter", 3, -1, 0, 1, 0);
    assert_floats(l, "opt.state.0.m", 2, -1, 0, 1, 0);
    assert_true(dtpi_mf_find(&l->m, "model.empty", &i));
    assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
    assert_string_equal((char *)l->m.meta.data,
                        "{\"source\":\"torch\",\"values\":{\"epoch\":3,\"name\":\"h\xc3\xa9\","
                        "\"opt.groups.0.betas.0\":0.5,\"opt.groups.0.betas.1\":0.25,"
                        "\"none\":null},\"left_out\":[\"bytes\"]}");
}

/* The program may speak a language that writes 0,5. */
static void test_metadata_is_json_in_every_language(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = NULL;
    DTPI_AUTO(load) dtpi_load *l = NULL;

    (void)state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8"))
        skip();
    assert_ok(dtpi_files_posix_open(A, &files, ERR));
    open_fixture(files, "plain.pt", &l);
    setlocale(LC_NUMERIC, "C");
    assert_non_null(strstr((char *)l->m.meta.data, "\"opt.groups.0.betas.0\":0.5,"));
}

static void assert_dcp(dtpi_load *l)
{
    static const int64_t replica[] = { 0, 1, 2, 3 };
    uint16_t columns[35];

    for (int i = 0; i < 35; i++) {
        const float v = (float)i;
        uint32_t bits;
        memcpy(&bits, &v, 4);
        columns[i] = (uint16_t)(bits >> 16);
    }
    assert_floats(l, "rows", 5, 7, 0, 7, 1);
    assert_holds(l, "columns", DTP_BF16, 5, 7, columns, sizeof(columns));
    assert_holds(l, "replica", DTP_I64, 4, -1, replica, sizeof(replica));
}

static void test_a_folder_of_dcp_is_read(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = NULL;
    DTPI_AUTO(load) dtpi_load *l = NULL, *hf = NULL;
    uint32_t i;

    (void)state;
    assert_ok(dtpi_files_posix_open(A, &files, ERR));
    open_fixture(files, "dcp", &l);
    assert_string_equal(l->m.format, "dcp");
    assert_dcp(l);
    assert_floats(l, "turned", 3, 2, 0, 1, 3);
    assert_true(dtpi_mf_find(&l->m, "epoch", &i));      /* a pickle: handed out as bytes */
    assert_int_equal(dtpi_mf_tensor_at(&l->m, i)->dtype, DTP_U8);
    assert_string_equal((char *)l->m.meta.data, "{\"source\":\"dcp\",\"raw\":[\"epoch\"]}");
    open_fixture(files, "dcp-hf", &hf);
    assert_dcp(hf);
}

static void test_its_metadata_file_stands_for_the_folder(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = NULL;
    DTPI_AUTO(load) dtpi_load *l = NULL;

    (void)state;
    assert_ok(dtpi_files_posix_open(A, &files, ERR));
    open_fixture(files, "dcp/.metadata", &l);
    assert_dcp(l);
}

/* ---- memory that ends ---- */

static size_t allowed, live;

static void *scarce_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    if (allowed == 0)
        return NULL;
    allowed--;
    live++;
    return A->alloc(A->user, bytes, align);
}

static void scarce_free(void *user, void *p, size_t bytes)
{
    (void)user;
    live--;
    A->free(A->user, p, bytes);
}

/* Opens `name` with every number of allocations that is too few. */
static void open_with_few(const char *name)
{
    static const dtp_allocator scarce = { scarce_alloc, scarce_free, NULL };
    const char *source = getenv("DTP_TEST_SOURCE");
    char path[DTPI_PATH_MAX];
    dtp_status st = DTP_ERR_NOMEM;

    snprintf(path, sizeof(path), "%s/tests/data/ckpt/%s", source ? source : ".", name);
    for (size_t n = 0; st != DTP_OK; n++) {
        dtpi_files *files = NULL;
        dtpi_load *l = NULL;
        allowed = n;
        live = 0;
        st = dtpi_files_posix_open(&scarce, &files, ERR);
        if (st >= 0)
            st = dtpi_load_open_path(&scarce, files, path, &l, ERR);
        if (st != DTP_OK && st != DTP_ERR_NOMEM)
            fail_msg("%s with %zu allocations: %s", name, n, ERR->text);
        dtpi_load_close(l);
        dtpi_files_close(files);
        assert_int_equal(live, 0);
    }
}

static void test_memory_that_ends_is_said_and_nothing_leaks(void **state)
{
    static const char *const names[] = { "foreign/plain.pt", "foreign/dcp", "foreign/dcp-hf",
                                         "foreign/indexed" };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(names); i++)
        open_with_few(names[i]);
}

/* ---- archives of our own ---- */

/* torch._utils._rebuild_tensor_v2(('storage', FloatStorage, '0', 'cpu', 4), OFFSET, (SHAPE,), (STRIDE,), False, ()) */
#define VIEW(offset, shape, stride)                                                                 \
    "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"        \
    "0X\3\0\0\0cpuK\4tQ" offset shape stride "\x89)tR"
/* The same of which the stored numbers are not the values: torch keeps that as a bit. */
#define LAZY(bits)                                                                                  \
    "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"        \
    "0X\3\0\0\0cpuK\4tQK\0K\4\x85K\1\x85\x89)" bits "tR"
#define PICKLE(body) "\x80\x02" body "."
#define DICT(key, value) "}X\1\0\0\0" key value "s"

static dtpi_files *fresh_files(void)
{
    dtpi_files *files = NULL;
    bool made = false;

    assert_ok(dtpi_files_mem_open(A, &files, ERR));
    assert_ok(files->ops->make_dir(files, "d", &made, ERR));
    return files;
}

static dtp_status open_pickle(const char *pickle, size_t bytes, dtpi_load **l)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    zip_maker z = zip_begin();

    zip_put(&z, "a/data.pkl", pickle, bytes);
    zip_put(&z, "a/byteorder", "little", 6);
    zip_put(&z, "a/data/0", "0123456789abcdef", 16);
    zip_end(&z);
    put_bytes(files, "d/x.pt", z.out.data, z.out.len);
    zip_free(&z);
    const dtp_status st = dtpi_load_open_path(A, files, "d/x.pt", l, ERR);
    if (st >= 0) {
        dtpi_load_close(*l);
        *l = NULL;
    }
    return st;
}

static void test_impossible_tensors_are_refused(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
        dtp_status status;
        const char *says;
    } cases[] = {
#define CASE(body) PICKLE(body), sizeof(PICKLE(body)) - 1
        { CASE(DICT("w", VIEW("K\0", "K\4\x85", "K\1\x85"))), DTP_OK, "" },
        { CASE(DICT("w", VIEW("K\1", "K\4\x85", "K\1\x85"))), DTP_ERR_FORMAT, "beyond its storage" },
        { CASE(DICT("w", VIEW("K\0", "K\5\x85", "K\1\x85"))), DTP_ERR_FORMAT, "beyond its storage" },
        { CASE(DICT("w", VIEW("K\0", "K\2\x85", "K\4\x85"))), DTP_ERR_FORMAT, "beyond its storage" },
        { CASE(DICT("w", VIEW("J\xff\xff\xff\xff", "K\1\x85", "K\1\x85"))), DTP_ERR_FORMAT,
          "beyond its storage" },
        { CASE(DICT("w", VIEW("K\0", "J\xff\xff\xff\xff\x85", "K\1\x85"))), DTP_ERR_FORMAT,
          "negative" },
        { CASE(DICT("w", VIEW("K\0", "K\4\x85", "J\xff\xff\xff\xff\x85"))), DTP_ERR_FORMAT,
          "negative" },
        { CASE(DICT("w", VIEW("K\0", "K\4\x85", "K\1K\1\x86"))), DTP_ERR_FORMAT, "unknown way" },
        { CASE(DICT("w", VIEW("K\0", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85", "K\1\x85"))),
          DTP_ERR_FORMAT, "" },
        { CASE(DICT("w", VIEW("K\0", "J\0\0\0\x7fJ\0\0\0\x7fJ\0\0\0\x7f\x87", "K\0K\0K\0\x87"))),
          DTP_ERR_FORMAT, "" },
        { CASE(DICT("w", VIEW("K\0", "J\0\0\0\x10\x85", "K\0\x85"))), DTP_ERR_UNSUPPORTED,
          "scattered" },
        { CASE(DICT("w", VIEW("K\0", "J\0\0\0\x7fK\0\x86", "K\1K\1\x86"))), DTP_OK, "" },
        { CASE(DICT("w", VIEW("K\0", ")", ")"))), DTP_OK, "" },
        { CASE(DICT("w", LAZY("N"))), DTP_OK, "" },
        { CASE(DICT("w", LAZY("}"))), DTP_OK, "" },
        { CASE(DICT("w", LAZY("}X\4\0\0\0conj\x88s"))), DTP_ERR_UNSUPPORTED, "conjugate" },
        { CASE(DICT("w", LAZY("}X\3\0\0\0neg\x88s"))), DTP_ERR_UNSUPPORTED, "negative" },
        { CASE(DICT("\0", VIEW("K\0", "K\4\x85", "K\1\x85"))), DTP_ERR_FORMAT, "NUL" },
        { CASE(DICT("\xff", VIEW("K\0", "K\4\x85", "K\1\x85"))), DTP_ERR_FORMAT, "UTF-8" },
        { CASE("}(X\1\0\0\0w" VIEW("K\0", "K\4\x85", "K\1\x85") "X\1\0\0\0w" VIEW(
              "K\0", "K\4\x85", "K\1\x85") "u"),
          DTP_ERR_CORRUPT, "there 2 times" },
        { CASE(DICT("w", "ctorch._utils\n_rebuild_tensor_v2\n)R")), DTP_ERR_FORMAT, "unknown way" },
        { CASE("})Ns"), DTP_ERR_UNSUPPORTED, "neither text nor number" },
    };
    dtpi_load *l = NULL;

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(cases); i++) {
        memset(ERR, 0, sizeof(*ERR));
        const dtp_status st = open_pickle(cases[i].text, cases[i].bytes, &l);
        if (st != cases[i].status || !strstr(ERR->text, cases[i].says))
            fail_msg("case %zu: %s: %s", i, dtp_status_name(st), ERR->text);
    }
}

/* Lists of one list, doubled and doubled: the walk gives up, in bounded time and memory. */
static void test_endless_state_dicts_are_refused(void **state)
{
    dtpi_buf b = dtpi_buf_init(A);
    dtpi_load *l = NULL;

    (void)state;
    dtpi_buf_append(&b, "\x80\x02N", 3);
    for (int i = 0; i < 60; i++)
        dtpi_buf_append(&b, "2\x86", 2);
    dtpi_buf_append(&b, ".", 1);
    assert_status(DTP_ERR_LIMIT, open_pickle((const char *)b.data, b.len, &l));
    assert_text("without end");
    dtpi_buf_free(&b);
    assert_status(DTP_ERR_LIMIT, open_pickle("\x80\x02]q\0h\0a.", 9, &l));
}

static const char one_pickle[] = PICKLE(DICT("w", VIEW("K\0", "K\4\x85", "K\1\x85")));

/* Tensor "w" of four floats. */
static zip_maker good_archive(bool is_wide)
{
    zip_maker z = zip_begin();

    z.is_wide = is_wide;
    zip_put(&z, "a/data.pkl", one_pickle, sizeof(one_pickle) - 1);
    zip_put(&z, "a/data/0", "0123456789abcdef", 16);
    zip_end(&z);
    return z;
}

/* What torch writes beyond 4 GiB, or 65535 members. */
static void test_an_archive_with_64_bit_numbers_is_read(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    DTPI_AUTO(load) dtpi_load *l = NULL;
    zip_maker z = good_archive(true);

    (void)state;
    put_bytes(files, "d/x", z.out.data, z.out.len);
    assert_ok(dtpi_load_open_path(A, files, "d/x", &l, ERR));
    assert_holds(l, "w", DTP_F32, 4, -1, "0123456789abcdef", 16);
    zip_free(&z);
}

/* Every byte of a good archive set to each of several values: refused or read, never worse. */
static void test_no_byte_of_an_archive_is_trusted(void **state)
{
    static const uint8_t values[] = { 0, 1, 0x7f, 0x80, 0xff };

    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        zip_maker z = good_archive(wide);
        for (size_t i = 0; i < z.out.len * DTPI_ARRAY_LEN(values); i++) {
            DTPI_AUTO(files) dtpi_files *files = fresh_files();
            DTPI_AUTO(load) dtpi_load *l = NULL;
            uint8_t *byte = &z.out.data[i / DTPI_ARRAY_LEN(values)];
            const uint8_t old = *byte;
            *byte = values[i % DTPI_ARRAY_LEN(values)];
            put_bytes(files, "d/x", z.out.data, z.out.len);
            *byte = old;
            if (dtpi_load_open_path(A, files, "d/x", &l, ERR) >= 0)
                dtpi_load_verify(l, NULL, NULL, ERR);
        }
        zip_free(&z);
    }
}

static void test_archives_cut_anywhere_are_refused(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        zip_maker z = good_archive(wide);
        for (size_t n = 4; n < z.out.len; n++) {
            DTPI_AUTO(files) dtpi_files *files = fresh_files();
            dtpi_load *l = NULL;
            put_bytes(files, "d/x", z.out.data, n);
            assert_status(DTP_ERR_FORMAT, dtpi_load_open_path(A, files, "d/x", &l, ERR));
        }
        zip_free(&z);
    }
}

static void test_members_must_be_stored_and_single(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    zip_maker z = zip_begin(), twice = zip_begin(), big = zip_begin();
    dtpi_load *l = NULL;

    (void)state;
    zip_put(&z, "a/data.pkl", "\x80\x02}.", 4);
    z.dir.data[10] = 8;
    zip_end(&z);
    put_bytes(files, "d/deflated", z.out.data, z.out.len);
    assert_status(DTP_ERR_UNSUPPORTED, dtpi_load_open_path(A, files, "d/deflated", &l, ERR));
    zip_put(&twice, "a/data.pkl", "\x80\x02}.", 4);
    zip_put(&twice, "a/data.pkl", "\x80\x02}.", 4);
    zip_end(&twice);
    put_bytes(files, "d/twice", twice.out.data, twice.out.len);
    assert_status(DTP_ERR_FORMAT, dtpi_load_open_path(A, files, "d/twice", &l, ERR));
    assert_text("there twice");
    zip_put(&big, "a/data.pkl", "\x80\x02}.", 4);
    zip_put(&big, "a/byteorder", "big", 3);
    zip_end(&big);
    put_bytes(files, "d/big", big.out.data, big.out.len);
    assert_status(DTP_ERR_UNSUPPORTED, dtpi_load_open_path(A, files, "d/big", &l, ERR));
    assert_text("little-endian");
    zip_free(&z);
    zip_free(&twice);
    zip_free(&big);
}

static void test_the_metadata_of_dcp_is_not_trusted(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
        dtp_status status;
        const char *says;
    } cases[] = {
        { CASE("}"), DTP_ERR_FORMAT, "no Metadata" },
        { CASE("ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}b"), DTP_ERR_FORMAT,
          "no storage_data" },
        { CASE("ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81."), DTP_ERR_FORMAT, "" },
        { CASE("cposix\nsystem\nX\2\0\0\0id\x85R"), DTP_ERR_UNSUPPORTED, "posix.system" },
        { CASE("ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}(X\x0c\0\0\0storage_data}X"
               "\x13\0\0\0state_dict_metadata}X\1\0\0\0aNsub"),
          DTP_ERR_FORMAT, "state_dict_metadata is not understood" },
        { CASE("ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}(X\x0c\0\0\0storage_data}X"
               "\1\0\0\0aNsX\x13\0\0\0state_dict_metadata}ub"),
          DTP_ERR_FORMAT, "storage_data is not understood" },
        { CASE("ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}(X\x0c\0\0\0storage_data}X"
               "\x13\0\0\0state_dict_metadata}X\1\0\0\0a"
               "ctorch.distributed.checkpoint.metadata\nBytesStorageMetadata\n)\x81sub"),
          DTP_ERR_NOT_FOUND, "stored nowhere" },
    };

    (void)state;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(cases); i++) {
        DTPI_AUTO(files) dtpi_files *files = fresh_files();
        dtpi_load *l = NULL;
        put_bytes(files, "d/.metadata", cases[i].text, cases[i].bytes);
        memset(ERR, 0, sizeof(*ERR));
        const dtp_status st = dtpi_load_open_path(A, files, "d", &l, ERR);
        if (st != cases[i].status || !strstr(ERR->text, cases[i].says))
            fail_msg("case %zu: %s: %s", i, dtp_status_name(st), ERR->text);
    }
}

static void put_text(dtpi_buf *b, const char *text)
{
    dtpi_buf_append(b, "X", 1);
    put_le(b, strlen(text), 4);
    dtpi_buf_append(b, text, strlen(text));
}

#define META "ctorch.distributed.checkpoint.metadata\n"

/* A thousand tensors share one list that holds one empty chunk a thousand times. */
static void test_chunks_shared_without_end_are_refused(void **state)
{
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    dtpi_buf b = dtpi_buf_init(A);
    dtpi_load *l = NULL;
    char name[16];

    (void)state;
    dtpi_buf_printf(&b, "\x80\x02" META "Metadata\n)\x81}(");
    put_text(&b, "storage_data");
    dtpi_buf_append(&b, "}", 1);
    put_text(&b, "state_dict_metadata");
    dtpi_buf_append(&b, "}(", 2);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        put_text(&b, name);
        if (i > 0) {
            dtpi_buf_append(&b, "h\1", 2);
            continue;
        }
        dtpi_buf_printf(&b, META "TensorStorageMetadata\n)\x81}(");
        put_text(&b, "properties");
        dtpi_buf_printf(&b, META "TensorProperties\n)\x81" "ctorch\nfloat32\n\x85" "b");
        put_text(&b, "size");
        dtpi_buf_append(&b, "K", 1);
        put_le(&b, 0, 1);
        dtpi_buf_append(&b, "\x85", 1);
        put_text(&b, "chunks");
        dtpi_buf_printf(&b, "](" META "ChunkStorageMetadata\n)\x81}(");
        put_text(&b, "offsets");
        dtpi_buf_append(&b, "K\0\x85", 3);
        put_text(&b, "sizes");
        dtpi_buf_append(&b, "K\0\x85ub", 5);
        dtpi_buf_append(&b, "q\0", 2);
        for (int k = 0; k < 1000; k++)
            dtpi_buf_append(&b, "h\0", 2);
        dtpi_buf_append(&b, "eub", 3);
        dtpi_buf_append(&b, "q\1", 2);
    }
    dtpi_buf_append(&b, "uub.", 4);
    put_bytes(files, "d/.metadata", b.data, b.len);
    assert_status(DTP_ERR_LIMIT, dtpi_load_open_path(A, files, "d", &l, ERR));
    assert_text("shared without end");
    dtpi_buf_free(&b);
}

/* ---- folders of our own ---- */

typedef struct chunk {
    int64_t begin;              /* its first row of tensor "t"; it has two */
    uint64_t at;                /* in the file; every archive is the same */
} chunk;

static void put_i64(dtpi_buf *b, int64_t v)
{
    dtpi_buf_append(b, "\x8a\x08", 2);
    put_le(b, (uint64_t)v, 8);
}

/* A pair of integers under `key`. */
static void put_pair(dtpi_buf *b, const char *key, int64_t first, int64_t second)
{
    put_text(b, key);
    put_i64(b, first);
    put_i64(b, second);
    dtpi_buf_append(b, "\x86", 1);
}

/* `.metadata` of a tensor of `rows` rows and a column, in chunks of two rows. */
static void put_metadata(dtpi_buf *b, int64_t rows, const chunk *c, int n, uint64_t archive_bytes)
{
    dtpi_buf_printf(b, "\x80\x02" META "Metadata\n)\x81}(");
    put_text(b, "storage_data");
    dtpi_buf_append(b, "}(", 2);
    for (int i = 0; i < n; i++) {
        dtpi_buf_printf(b, META "MetadataIndex\n)\x81}(");
        put_text(b, "fqn");
        put_text(b, "t");
        put_pair(b, "offset", c[i].begin, 0);
        dtpi_buf_printf(b, "ub" "ctorch.distributed.checkpoint.filesystem\n_StorageInfo\n)\x81}(");
        put_text(b, "relative_path");
        put_text(b, "x");
        put_text(b, "offset");
        put_i64(b, (int64_t)c[i].at);
        put_text(b, "length");
        put_i64(b, (int64_t)archive_bytes);
        dtpi_buf_append(b, "ub", 2);
    }
    dtpi_buf_append(b, "u", 1);
    put_text(b, "state_dict_metadata");
    dtpi_buf_append(b, "}", 1);
    put_text(b, "t");
    dtpi_buf_printf(b, META "TensorStorageMetadata\n)\x81}(");
    put_text(b, "properties");
    dtpi_buf_printf(b, META "TensorProperties\n)\x81" "ctorch\nfloat32\n\x85" "b");
    put_pair(b, "size", rows, 1);
    put_text(b, "chunks");
    dtpi_buf_append(b, "](", 2);
    for (int i = 0; i < n; i++) {
        dtpi_buf_printf(b, META "ChunkStorageMetadata\n)\x81}(");
        put_pair(b, "offsets", c[i].begin, 0);
        put_pair(b, "sizes", 2, 1);
        dtpi_buf_append(b, "ub", 2);
    }
    dtpi_buf_append(b, "eubsub.", 7);
}

/* Opens a folder whose file "x" holds two archives of two rows, each a run of its own. */
static dtp_status open_chunks(int64_t rows, const chunk *c, int n, uint64_t *archive_bytes_out)
{
    static const char pickle[] = PICKLE(VIEW("K\0", "K\2K\1\x86", "K\2K\1\x86"));
    DTPI_AUTO(files) dtpi_files *files = fresh_files();
    dtpi_buf b = dtpi_buf_init(A);
    zip_maker z = zip_begin();
    dtpi_load *l = NULL;

    zip_put(&z, "a/data.pkl", pickle, sizeof(pickle) - 1);
    zip_put(&z, "a/data/0", "0123456789abcdef", 16);
    zip_end(&z);
    const size_t bytes = z.out.len;
    put_metadata(&b, rows, c, n, bytes);
    put_bytes(files, "d/.metadata", b.data, b.len);
    dtpi_buf_reset(&b);
    dtpi_buf_append(&b, z.out.data, bytes);
    dtpi_buf_append(&b, z.out.data, bytes);
    put_bytes(files, "d/x", b.data, b.len);
    *archive_bytes_out = bytes;
    dtpi_buf_free(&b);
    zip_free(&z);
    const dtp_status st = dtpi_load_open_path(A, files, "d", &l, ERR);
    dtpi_load_close(l);
    return st;
}

static void test_chunks_lie_inside_of_every_shape(void **state)
{
    const chunk last = { INT64_MAX - 1, 0 }, beyond = { INT64_MAX, 0 }, before = { -1, 0 };
    uint64_t bytes = 0;

    (void)state;
    assert_status(DTP_ERR_FORMAT, open_chunks(INT64_MAX, &last, 1, &bytes));
    assert_status(DTP_ERR_FORMAT, open_chunks(INT64_MAX, &beyond, 1, &bytes));
    assert_text("outside");
    assert_status(DTP_ERR_FORMAT, open_chunks(4, &before, 1, &bytes));
    assert_text("outside");
}

static void test_no_byte_belongs_to_two_chunks(void **state)
{
    uint64_t bytes = 0;

    (void)state;
    const chunk one = { 0, 0 };
    assert_ok(open_chunks(2, &one, 1, &bytes));
    const chunk apart[] = { { 0, bytes }, { 2, 0 } }, same[] = { { 0, 0 }, { 2, 0 } };
    const chunk near[] = { { 0, 0 }, { 2, bytes - 1 } };
    assert_ok(open_chunks(4, apart, 2, &bytes));
    assert_status(DTP_ERR_FORMAT, open_chunks(4, same, 2, &bytes));
    assert_text("share bytes of file x");
    assert_status(DTP_ERR_FORMAT, open_chunks(4, near, 2, &bytes));
    assert_text("share bytes of file x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_state_dict_of_torch_save_is_read),
        cmocka_unit_test(test_metadata_is_json_in_every_language),
        cmocka_unit_test(test_a_folder_of_dcp_is_read),
        cmocka_unit_test(test_its_metadata_file_stands_for_the_folder),
        cmocka_unit_test(test_memory_that_ends_is_said_and_nothing_leaks),
        cmocka_unit_test(test_impossible_tensors_are_refused),
        cmocka_unit_test(test_endless_state_dicts_are_refused),
        cmocka_unit_test(test_an_archive_with_64_bit_numbers_is_read),
        cmocka_unit_test(test_no_byte_of_an_archive_is_trusted),
        cmocka_unit_test(test_archives_cut_anywhere_are_refused),
        cmocka_unit_test(test_members_must_be_stored_and_single),
        cmocka_unit_test(test_chunks_shared_without_end_are_refused),
        cmocka_unit_test(test_the_metadata_of_dcp_is_not_trusted),
        cmocka_unit_test(test_chunks_lie_inside_of_every_shape),
        cmocka_unit_test(test_no_byte_belongs_to_two_chunks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
