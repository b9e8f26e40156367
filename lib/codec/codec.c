/* SPDX-License-Identifier: Apache-2.0 */
/* codec.c - opens codecs by name, and the rule that a chunk which does not shrink stays plain. */
#include "codec/codec.h"

dtp_status dtpi_codec_open(const dtp_allocator *a, const char *name, dtpi_codec *codec_out,
                           dtp_error *err)
{
    for (size_t i = 0; dtpi_codecs[i]; i++) {
        if (strcmp(dtpi_codecs[i]->name, name) != 0)
            continue;
        dtpi_codec codec = { .ops = dtpi_codecs[i], .a = a };
        if (codec.ops->open) {
            const dtp_status st = codec.ops->open(&codec, err);
            if (st < 0)
                return st;
        }
        *codec_out = codec;
        return DTP_OK;
    }
    return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "no codec is named %s", name);
}

void dtpi_codec_close(dtpi_codec *codec)
{
    if (codec->ops && codec->ops->close)
        codec->ops->close(codec);
    codec->ops = NULL;
    codec->state = NULL;
}

dtp_status dtpi_codec_store(dtpi_codec *codec, const void *in, size_t bytes, dtp_dtype dtype,
                            void *scratch, const void **stored_out, size_t *stored_bytes_out,
                            dtp_error *err)
{
    size_t n = 0;

    if (codec->ops->encode && bytes > 1) {
        const dtp_status st =
            codec->ops->encode(codec, in, bytes, dtype, scratch, bytes - 1, &n, err);
        if (st < 0)
            return st;
    }
    *stored_out = n ? scratch : in;
    *stored_bytes_out = n ? n : bytes;
    return DTP_OK;
}

dtp_status dtpi_codec_restore(dtpi_codec *codec, const void *stored, size_t stored_bytes,
                              void *out, size_t bytes, dtp_error *err)
{
    if (stored_bytes == bytes) {
        if (bytes)
            memcpy(out, stored, bytes);
        return DTP_OK;
    }
    if (stored_bytes > bytes || !codec->ops->decode)
        return dtpi_fail(err, DTP_ERR_FORMAT,
                         "%zu stored bytes cannot be a chunk of %zu by codec %s", stored_bytes,
                         bytes, codec->ops->name);
    return codec->ops->decode(codec, stored, stored_bytes, out, bytes, err);
}
