/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_planes.c - a coded chunk of byte planes, and a zstd frame read by our reader and by libzstd, which must
 * agree. The first byte chooses.
 */
#include "fuzz.h"

#include <zstd.h>

#include "codec/codec.h"
#include "codec/huf.h"

/* Opened once: it brings a megabyte of room. */
static dtpi_codec *planes(void)
{
    static dtpi_codec codec;
    dtp_error err;

    if (!codec.ops)
        FUZZ_CHECK(dtpi_codec_open(&dtpi_malloc_allocator, "planes", &codec, &err) >= 0);
    return &codec;
}

static void decode_chunk(const uint8_t *data, size_t bytes, size_t plain)
{
    dtp_error err;
    uint8_t *out = malloc(plain);

    FUZZ_CHECK(out);
    dtpi_codec_restore(planes(), data, bytes, out, plain, &err);
    free(out);
}

/* What our reader takes, libzstd takes too, with the same bytes. */
static void read_frame(const uint8_t *data, size_t bytes)
{
    static dtpi_huf_table table;
    const size_t n = bytes > 9 ? data[5] | (size_t)data[6] << 8 | (size_t)(data[7] & 3) << 16 : 0;
    uint8_t *a = malloc(n + 1), *b = malloc(n + 1);

    FUZZ_CHECK(a && b);
    table.n_head = 0;
    if (dtpi_huf_decode(data, bytes, a, n, &table)) {
        FUZZ_CHECK(ZSTD_decompress(b, n, data, bytes) == n);
        FUZZ_CHECK(memcmp(a, b, n) == 0);
    }
    free(a);
    free(b);
}

/* Any bytes come back from what we write of them. */
static void write_and_read(const uint8_t *data, size_t bytes)
{
    static const dtp_dtype types[] = { DTP_BF16, DTP_F32, DTP_F64, DTP_U8, DTP_I64, DTP_F16, DTP_I32, DTP_C64 };
    const size_t times = 1 + 20000 / (bytes + 1), n = bytes * times;
    uint8_t *in = malloc(n + 1), *scratch = malloc(n + 1), *out = malloc(n + 1);
    const void *stored;
    size_t stored_bytes = 0;
    dtp_error err;

    FUZZ_CHECK(in && scratch && out);
    for (size_t i = 0; i < n; i++)
        in[i] = bytes % 3 && i % 16 > 1 ? 0 : (uint8_t)(data[i % bytes] >> (i / bytes & 1));
    FUZZ_CHECK(dtpi_codec_store(planes(), in, n, types[bytes % 8], scratch, &stored, &stored_bytes, &err) >= 0);
    FUZZ_CHECK(stored_bytes <= n);
    FUZZ_CHECK(dtpi_codec_restore(planes(), stored, stored_bytes, out, n, &err) >= 0);
    FUZZ_CHECK(memcmp(in, out, n) == 0);
    free(in);
    free(scratch);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    if (data[0] % 3 == 0)
        decode_chunk(data + 1, bytes - 1, 64 + (size_t)data[0] * 40);
    else if (data[0] % 3 == 1)
        read_frame(data + 1, bytes - 1);
    else
        write_and_read(data + 1, bytes - 1);
    return 0;
}
