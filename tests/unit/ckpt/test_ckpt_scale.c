/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large headers and plans: what they need in memory is asserted, what they need in time is printed.
 * With DTP_TEST_LONG a header of 1.3 million tensors and a plan of 4.2 million boxes.
 */
#include "check.h"

#include <time.h>

#include "ckpt/link.h"
#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/plan.h"
#include "ckpt/save.h"
#include "ckpt/st.h"
#include "files/mem.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

/* An allocator that knows what is in use and what was at most. */
typedef struct meter {
    size_t now, most;
} meter;

static void *meter_alloc(void *user, size_t bytes, size_t align)
{
    meter *m = user;

    m->now += bytes;
    m->most = DTPI_MAX(m->most, m->now);
    return dtpi_malloc_allocator.alloc(NULL, bytes, align);
}

static void meter_free(void *user, void *p, size_t bytes)
{
    ((meter *)user)->now -= bytes;
    dtpi_malloc_allocator.free(NULL, p, bytes);
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool is_long(void)
{
    return check_is_long();
}

static void test_large_header_is_read_in_little_memory(void **state)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(A);
    const uint64_t n = is_long() ? 1300000 : 20000;
    const int64_t dim = 4;
    char name[64];
    meter m = { 0 };
    const dtp_allocator counting = { meter_alloc, meter_free, &m };
    dtpi_st st;

    (void)state;
    dtpi_st_write_begin(&b);
    for (uint64_t i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "lay.%llu.w", (unsigned long long)(i * 7919 % n));
        dtpi_st_write_tensor(&b, name, strlen(name), "U8", 1, &dim, 4 * i, 4 * i + 4);
    }
    assert_ok(dtpi_st_write_end(&b, 0, ERR));
    const double from = seconds();
    assert_ok(dtpi_st_read(&counting, (char *)b.data + 8, b.len - 8, 4 * n, "f", &st, ERR));
    print_message("header: %zu tensors, %.1f MB, %.2f times that in memory, %.3f s\n", st.n,
                  (double)b.len / 1e6, (double)m.most / (double)b.len, seconds() - from);
    assert_int_equal(st.n, n);
    assert_true(m.most < 3 * b.len);        /* and the header itself */
    dtpi_st_free(&st);
    assert_int_equal(m.now, 0);
}

/* What `n_ranks` ranks declare of `n_tensors` tensors cut by rows. */
static void fill_plan(dtpi_plan *plan, int32_t n_ranks, uint32_t n_tensors)
{
    const int64_t shape[] = { 4 * n_ranks, 512 }, extent[] = { 4, 512 };
    char name[64];

    for (int32_t r = 0; r < n_ranks; r++)
        for (uint32_t t = 0; t < n_tensors; t++) {
            const int64_t offset[] = { 4 * r, 0 };
            snprintf(name, sizeof(name), "layers.%u.attention.wq.weight", t);
            assert_ok(dtpi_plan_add(plan, r, t, name, DTP_BF16, 2, shape, offset, extent, ERR));
        }
}

static void test_large_plan_is_made_in_64_bytes_a_box(void **state)
{
    const int32_t n_ranks = is_long() ? 4096 : 64;
    const uint32_t n_tensors = is_long() ? 1024 : 256;
    const size_t n = (size_t)n_ranks * n_tensors;
    meter m = { 0 };
    const dtp_allocator counting = { meter_alloc, meter_free, &m };
    dtpi_layout layout;
    dtpi_plan plan;

    (void)state;
    dtpi_plan_init(&plan, &counting);
    const double from = seconds();
    assert_ok(dtpi_plan_reserve(&plan, n, 4 * n, ERR));
    fill_plan(&plan, n_ranks, n_tensors);
    const double added = seconds();
    assert_ok(dtpi_plan_finish(&plan, ERR));
    print_message("plan: %zu boxes, %.1f bytes each, added in %.3f s, finished in %.3f s\n",
                  plan.n_boxes, (double)m.most / (double)n, added - from, seconds() - added);
    assert_int_equal(plan.n_boxes, n);
    assert_int_equal(plan.n_tensors, n_tensors);
    assert_true(m.most <= 64 * n);
    assert_ok(dtpi_layout_make(&plan, n_ranks - 1, &layout, ERR));
    assert_int_equal(layout.n, n_tensors);
    dtpi_layout_free(&layout);
    dtpi_plan_free(&plan);
    assert_int_equal(m.now, 0);
}

/* A manifest of `n_files` ranks with a box each of `n_tensors` tensors. */
static void fill_manifest(dtpi_manifest *m, uint32_t n_files, uint32_t n_tensors)
{
    const int64_t shape[] = { 4 * n_files, 512 };
    char name[64];

    m->chunk_bytes = 4096;
    memcpy(m->codec, "none", 5);
    dtpi_buf_append(&m->meta, "{}", 2);
    for (uint32_t f = 0; f < n_files; f++) {
        const dtpi_mf_file file = { .name_at = (uint32_t)m->text.len, .part_at = (uint32_t)m->text.len,
                                    .rank = (int32_t)f, .bytes = 4096, .header_bytes = 4096,
                                    .part_bytes = 1 };
        snprintf(name, sizeof(name), "shard-%05u-of-%05u.bin", f, n_files);
        dtpi_buf_append(&m->text, name, strlen(name) + 1);
        dtpi_buf_append(&m->file_buf, &file, sizeof(file));
    }
    for (uint32_t t = 0; t < n_tensors; t++) {
        dtpi_mf_tensor tensor = { .name_at = (uint32_t)m->text.len, .dtype = DTP_BF16, .n_dims = 2,
                                  .dims_at = m->dims.len / 8, .first_box = dtpi_mf_n_boxes(m),
                                  .n_boxes = n_files };
        tensor.name_bytes = (uint32_t)snprintf(name, sizeof(name), "layers.%06u.attention.wq.weight", t);
        dtpi_buf_append(&m->text, name, strlen(name) + 1);
        dtpi_buf_append(&m->dims, shape, sizeof(shape));
        for (uint32_t f = 0; f < n_files; f++) {
            const int64_t dims[] = { 4 * f, 0, 4, 512 };
            const dtpi_mf_box b = { .home = f, .key_at = tensor.name_at, .dims_at = m->dims.len / 8,
                                    .base = DTPI_NO_BASE };
            dtpi_buf_append(&m->dims, dims, sizeof(dims));
            dtpi_buf_append(&m->box_buf, &b, sizeof(b));
        }
        dtpi_buf_append(&m->tensor_buf, &tensor, sizeof(tensor));
    }
}

static void test_large_manifest_is_small(void **state)
{
    const uint32_t n_files = is_long() ? 4096 : 64, n_tensors = is_long() ? 1024 : 256;
    const size_t n = (size_t)n_files * n_tensors;
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(A);
    meter use = { 0 };
    const dtp_allocator counting = { meter_alloc, meter_free, &use };
    dtpi_manifest m, again;

    (void)state;
    assert_ok(dtpi_manifest_init(&m, A, ERR));
    fill_manifest(&m, n_files, n_tensors);
    const double from = seconds();
    assert_ok(dtpi_manifest_check(&m, "m", ERR));
    const double checked = seconds();
    assert_ok(dtpi_manifest_write(&m, &text, ERR));
    const double written = seconds();
    assert_ok(dtpi_manifest_read(&counting, (char *)text.data, text.len, "m", &again, ERR));
    print_message("manifest: %zu boxes, %.1f bytes each, checked in %.3f s, written in %.3f s, read in "
                  "%.3f s with %.0f bytes of memory a box\n", n, (double)text.len / (double)n,
                  checked - from, written - checked, seconds() - written,
                  (double)use.most / (double)n);
    assert_int_equal(dtpi_mf_n_boxes(&again), n);
    assert_true(text.len < 40 * n);
    dtpi_manifest_free(&again);
    dtpi_manifest_free(&m);
    assert_int_equal(use.now, 0);
}

/* Names, scalars and their bytes. */
typedef struct crowd {
    size_t n;
    dtp_ckpt_tensor *tensors;
    char (*names)[24];
    uint32_t *values;
} crowd;

static void crowd_make(crowd *c, size_t n)
{
    *c = (crowd){ n, calloc(n, sizeof(*c->tensors)), calloc(n, sizeof(*c->names)),
                  calloc(n, sizeof(*c->values)) };
    for (size_t i = 0; i < n; i++) {
        c->values[i] = (uint32_t)i * 2654435761u;
        snprintf(c->names[i], sizeof(c->names[i]), "expert.%zu.scale", i);
        c->tensors[i] = (dtp_ckpt_tensor){ .size = sizeof(*c->tensors), .name = c->names[i],
                                           .dtype = DTP_F32, .data = &c->values[i] };
    }
}

static void crowd_free(crowd *c)
{
    free(c->tensors);
    free(c->names);
    free(c->values);
}

static void test_a_million_tensors_are_saved_by_one_rank(void **state)
{
    static const dtpi_log silent = { 0 };
    const dtp_ckpt_save_opts opts = { .size = sizeof(opts) };
    DTPI_AUTO(load) dtpi_load *l = NULL;
    dtpi_files *files = NULL;
    dtpi_link link;
    uint32_t value = 0;
    crowd c;

    (void)state;
    crowd_make(&c, check_is_long() ? 1200000 : 10000);
    assert_ok(dtpi_files_mem_open(A, &files, ERR));
    dtpi_link_alone(&link);
    const dtpi_save_in in = { .a = A, .log = &silent, .files = files, .link = &link, .dir = "ck",
                              .step = 1, .tensors = c.tensors, .n_tensors = c.n, .opts = &opts, .id = 7 };
    const double from = seconds();
    assert_ok(dtpi_save(&in, ERR));
    const double saved = seconds();
    assert_ok(dtpi_load_open(A, files, "ck", 1, &l, ERR));
    assert_ok(dtpi_load_verify(l, NULL, NULL, ERR));
    print_message("%zu tensors saved in %.3f s, verified in %.3f s\n", c.n, saved - from,
                  seconds() - saved);
    const dtp_ckpt_tensor t = { .size = sizeof(t), .name = c.names[c.n - 1], .dtype = DTP_F32,
                                .data = &value };
    assert_ok(dtpi_load_read(l, &t, ERR));
    assert_int_equal(value, c.values[c.n - 1]);
    dtpi_load_close(DTPI_TAKE(l));
    dtpi_files_close(files);
    crowd_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_header_is_read_in_little_memory),
        cmocka_unit_test(test_large_plan_is_made_in_64_bytes_a_box),
        cmocka_unit_test(test_large_manifest_is_small),
        cmocka_unit_test(test_a_million_tensors_are_saved_by_one_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
