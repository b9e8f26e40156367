/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_part.c - any bytes as a part, with a right checksum behind them, laid over a small manifest: what is
 * taken lies inside its files, and its sums and sizes are there.
 */
#include "fuzz.h"

#include "base/sum.h"
#include "ckpt/part.h"

static const char body[] =
    "{\"format\":\"dtp-ckpt\",\"version\":2,\"step\":3,\"world_size\":1,\"attempt\":0,\"generation\":0,"
    "\"id\":\"00000000000000ff\",\"codec\":\"none\",\"chunk_bytes\":4096,\"lineage\":[2],\"meta\":{},"
    "\"files\":[{\"name\":\"a\",\"rank\":0,\"bytes\":12288,\"header_bytes\":4096,\"header_sum\":"
    "\"0000000000000000\",\"digest\":\"0000000000000000\",\"part\":\"p\",\"part_bytes\":1,\"part_sum\":"
    "\"0000000000000000\"}],\"tensors\":[{\"name\":\"v\",\"dtype\":\"u8\",\"shape\":[4096],\"boxes\":"
    "[[0,0,4096]]},{\"name\":\"w\",\"dtype\":\"u8\",\"shape\":[4097],\"boxes\":[[0,0,4000],[0,4000,97]]}]";

static void check_box(const dtpi_manifest *m, const dtpi_mf_box *b, uint64_t bytes)
{
    uint32_t length = 0;

    for (;; b = dtpi_mf_base_at(m, b->base)) {
        const dtpi_mf_file *f = dtpi_mf_file_at(m, b->file);
        uint64_t stored = 0;
        for (uint64_t c = 0; c < b->n_chunks; c++) {
            FUZZ_CHECK(dtpi_mf_stored_bytes(m, b, bytes, c) <= dtpi_mf_chunk_bytes(m, bytes, c));
            stored += dtpi_mf_stored_bytes(m, b, bytes, c);
            dtpi_mf_sum(m, b, c);
        }
        FUZZ_CHECK(stored == b->end - b->begin && f->header_bytes + b->end <= f->bytes);
        if (b->base == DTPI_NO_BASE)
            return;
        FUZZ_CHECK(++length <= DTPI_PART_MAX_CHAIN);
    }
}

static void place(dtpi_manifest *m, const void *data, size_t bytes)
{
    dtpi_part_view view;
    dtp_error err;

    if (dtpi_part_open(data, bytes, "x", &view, &err) < 0 ||
        dtpi_part_place(m, 0, &view, "x", &err) < 0)
        return;
    for (uint32_t i = 0; i < dtpi_mf_n_boxes(m); i++)
        check_box(m, dtpi_mf_box_at(m, i),
                  dtpi_mf_box_bytes(m, dtpi_mf_tensor_of(m, i), dtpi_mf_box_at(m, i)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[sizeof(body) + DTPI_MANIFEST_TAIL];
    uint8_t *own = malloc(bytes + DTPI_PART_TAIL);
    dtpi_manifest m;
    dtp_error err;

    FUZZ_CHECK(own);
    snprintf(text, sizeof(text), "%s,\"checksum\":\"%016llx\"}\n", body,
             (unsigned long long)dtpi_sum64(body, sizeof(body) - 1));
    FUZZ_CHECK(dtpi_manifest_read(&dtpi_malloc_allocator, text, sizeof(text) - 1, "x", &m, &err) >= 0);
    if (bytes)
        memcpy(own, data, bytes);
    const uint64_t sum = dtpi_sum64(own, bytes);
    memcpy(own + bytes, &sum, sizeof(sum));
    place(&m, own, bytes + DTPI_PART_TAIL);
    dtpi_manifest_free(&m);
    free(own);
    return 0;
}
