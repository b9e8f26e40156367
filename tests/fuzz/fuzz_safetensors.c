/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_safetensors.c - a whole file: length, header, data; memory is bounded by the header. */
#include "fuzz.h"

#include "ckpt/st.h"

static size_t now, most;

static void *count_alloc(void *user, size_t bytes, size_t align)
{
    now += bytes;
    most = now > most ? now : most;
    return dtpi_malloc_allocator.alloc(user, bytes, align);
}

static void count_free(void *user, void *p, size_t bytes)
{
    now -= bytes;
    dtpi_malloc_allocator.free(user, p, bytes);
}

static void check_entries(const dtpi_st *st, uint64_t data_bytes)
{
    uint64_t sum = 0;

    FUZZ_CHECK(st->data_bytes == data_bytes);
    for (size_t i = 0; i < st->n; i++) {
        const dtpi_st_entry *e = dtpi_st_get(st, i);
        FUZZ_CHECK(e->end <= data_bytes && e->begin <= e->end);
        FUZZ_CHECK(dtpi_st_find(st, dtpi_st_name(st, e), e->name_bytes) == e);
        sum += e->end - e->begin;
    }
    FUZZ_CHECK(sum == data_bytes);
    dtpi_st_meta(st, "format");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const dtp_allocator counting = { count_alloc, count_free, NULL };
    uint64_t n = 0;
    dtp_error err;
    dtpi_st st;

    if (bytes < 8 || dtpi_st_header_bytes(data, bytes, "x", &n, &err) < 0)
        return 0;
    FUZZ_CHECK(n <= bytes - 8);
    now = most = 0;
    if (dtpi_st_read(&counting, (const char *)data + 8, n, bytes - 8 - n, "x", &st, &err) >= 0) {
        check_entries(&st, bytes - 8 - n);
        dtpi_st_free(&st);
    }
    FUZZ_CHECK(now == 0);
    FUZZ_CHECK(most <= 8 * n + 4096);
    return 0;
}
