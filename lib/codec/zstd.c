/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zstd.c - a chunk is one zstd frame (RFC 8878) at level 1, without zstd's own checksum: the caller
 * keeps one over the stored bytes. The two contexts are made once and reused.
 */
#include "codec/codec.h"

#include <zstd.h>
#include <zstd_errors.h>

extern const struct dtpi_codec_ops dtpi_codec_zstd;

enum { LEVEL = 1 };

typedef struct zstd_state {
    ZSTD_CCtx *in;
    ZSTD_DCtx *out;
} zstd_state;

static void zstd_close(dtpi_codec *codec)
{
    zstd_state *s = codec->state;

    ZSTD_freeCCtx(s->in);
    ZSTD_freeDCtx(s->out);
    dtpi_free(codec->a, s, sizeof(*s));
}

static dtp_status zstd_open(dtpi_codec *codec, dtp_error *err)
{
    zstd_state *s = dtpi_alloc(codec->a, sizeof(*s));

    if (!s)
        return dtpi_fail_nomem(err, sizeof(*s));
    s->in = ZSTD_createCCtx();
    s->out = ZSTD_createDCtx();
    codec->state = s;
    if (!s->in || !s->out) {
        zstd_close(codec);
        return dtpi_fail_nomem(err, 0);
    }
    ZSTD_CCtx_setParameter(s->in, ZSTD_c_compressionLevel, LEVEL);
    return DTP_OK;
}

static dtp_status zstd_encode(dtpi_codec *codec, const void *in, size_t bytes, dtp_dtype dtype,
                              void *out, size_t room, size_t *bytes_out, dtp_error *err)
{
    zstd_state *s = codec->state;
    const size_t n = ZSTD_compress2(s->in, out, room, in, bytes);

    (void)dtype;
    if (ZSTD_isError(n)) {
        if (ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
            return dtpi_fail_nomem(err, 0);
        *bytes_out = 0;         /* does not fit: the chunk stays plain */
        return DTP_OK;
    }
    *bytes_out = n;
    return DTP_OK;
}

static dtp_status zstd_decode(dtpi_codec *codec, const void *in, size_t bytes, void *out,
                              size_t plain_bytes, dtp_error *err)
{
    zstd_state *s = codec->state;
    const size_t n = ZSTD_decompressDCtx(s->out, out, plain_bytes, in, bytes);

    if (ZSTD_isError(n))
        return dtpi_fail(err, DTP_ERR_FORMAT, "bad zstd frame: %s", ZSTD_getErrorName(n));
    if (n != plain_bytes)
        return dtpi_fail(err, DTP_ERR_FORMAT, "a zstd frame of %zu bytes instead of %zu", n,
                         plain_bytes);
    return DTP_OK;
}

const struct dtpi_codec_ops dtpi_codec_zstd = {
    .name = "zstd",
    .open = zstd_open,
    .close = zstd_close,
    .encode = zstd_encode,
    .decode = zstd_decode,
};
