/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_manifest.c - any bytes with a right checksum behind them; what is taken of version 2 writes back to
 * a text that reads the same, and the numbers of version 1 hold what loading relies on.
 */
#include "fuzz.h"

#include "base/sum.h"
#include "ckpt/manifest.h"

static void check_boxes(const dtpi_manifest *m)
{
    for (size_t i = 0; i < dtpi_mf_n_tensors(m); i++) {
        const dtpi_mf_tensor *t = dtpi_mf_tensor_at(m, i);
        for (uint32_t k = 0; k < t->n_boxes; k++) {
            const dtpi_mf_box *b = dtpi_mf_box_at(m, t->first_box + k);
            const dtpi_mf_file *f = dtpi_mf_file_at(m, b->file);
            const uint64_t bytes = dtpi_mf_box_bytes(m, t, b);
            uint64_t stored = 0;
            for (uint64_t c = 0; c < b->n_chunks; c++) {
                FUZZ_CHECK(dtpi_mf_stored_bytes(m, b, bytes, c) <= dtpi_mf_chunk_bytes(m, bytes, c));
                stored += dtpi_mf_stored_bytes(m, b, bytes, c);
                dtpi_mf_sum(m, b, c);
            }
            FUZZ_CHECK(stored == b->end - b->begin && f->header_bytes + b->end <= f->bytes);
        }
    }
}

static void check_again(const dtpi_manifest *m)
{
    DTPI_AUTO_BUF dtpi_buf one = dtpi_buf_init(&dtpi_malloc_allocator);
    DTPI_AUTO_BUF dtpi_buf two = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_manifest again;
    dtp_error err;

    FUZZ_CHECK(dtpi_manifest_write(m, &one, &err) >= 0);
    FUZZ_CHECK(dtpi_manifest_read(m->a, (const char *)one.data, one.len, "x", &again, &err) >= 0);
    FUZZ_CHECK(dtpi_manifest_write(&again, &two, &err) >= 0);
    FUZZ_CHECK(one.len == two.len && memcmp(one.data, two.data, one.len) == 0);
    dtpi_manifest_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + DTPI_MANIFEST_TAIL + 1);
    dtpi_manifest m;
    dtp_error err;

    FUZZ_CHECK(text);
    if (bytes)
        memcpy(text, data, bytes);
    sprintf(text + bytes, ",\"checksum\":\"%016llx\"}\n", (unsigned long long)dtpi_sum64(text, bytes));
    if (dtpi_manifest_read(&dtpi_malloc_allocator, text, bytes + DTPI_MANIFEST_TAIL, "x", &m, &err) >= 0) {
        if (m.version == 1)
            check_boxes(&m);
        else
            check_again(&m);
        dtpi_manifest_free(&m);
    }
    /* And without the favour of a right checksum. */
    if (dtpi_manifest_read(&dtpi_malloc_allocator, (const char *)data, bytes, "x", &m, &err) >= 0)
        dtpi_manifest_free(&m);
    free(text);
    return 0;
}
