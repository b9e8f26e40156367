/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.h - bytes in, fewer bytes out: one chunk at a time, each decodable alone (random access).
 *
 * A chunk that would not shrink is stored as it is: a stored size equal to the plain size says so. So
 * a codec never makes data larger, and a reader needs only the two sizes and the name.
 */
#ifndef DTPI_CODEC_H
#define DTPI_CODEC_H

#include "base/base.h"

typedef struct dtpi_codec dtpi_codec;

struct dtpi_codec_ops {
    const char *name;           /* in files and options */

    /* Optional: NULL where the codec keeps no state. Makes `state` of a codec. May not block. */
    dtp_status (*open)(dtpi_codec *codec, dtp_error *err);
    /* Optional: frees `state`. */
    void (*close)(dtpi_codec *codec);

    /*
     * Optional: NULL stores every chunk plain. Encodes `bytes` bytes of numbers of type `dtype` into at
     * most `room`; sets `*bytes_out` to 0 where the result would not fit.
     */
    dtp_status (*encode)(dtpi_codec *codec, const void *in, size_t bytes, dtp_dtype dtype, void *out,
                         size_t room, size_t *bytes_out, dtp_error *err);
    /* As encode. Decodes to exactly `plain_bytes` bytes, else FORMAT; never writes beyond them. */
    dtp_status (*decode)(dtpi_codec *codec, const void *in, size_t bytes, void *out,
                         size_t plain_bytes, dtp_error *err);
};

/* One user at a time: each thread opens its own. */
struct dtpi_codec {
    const struct dtpi_codec_ops *ops;
    const dtp_allocator *a;
    void *state;
};

/* The codecs that were built, ending with NULL. */
extern const struct dtpi_codec_ops *const dtpi_codecs[];

/* Errors: UNSUPPORTED (no codec of that name), NOMEM. Close it. */
dtp_status dtpi_codec_open(const dtp_allocator *a, const char *name, dtpi_codec *codec_out,
                           dtp_error *err);
void dtpi_codec_close(dtpi_codec *codec);

/*
 * The stored form of a chunk: points `*stored_out` at `in` itself or at `scratch` (room for `bytes`).
 */
dtp_status dtpi_codec_store(dtpi_codec *codec, const void *in, size_t bytes, dtp_dtype dtype,
                            void *scratch, const void **stored_out, size_t *stored_bytes_out,
                            dtp_error *err);
/* The plain bytes of a stored chunk of a codec; equal sizes are copied. */
dtp_status dtpi_codec_restore(dtpi_codec *codec, const void *stored, size_t stored_bytes,
                              void *out, size_t bytes, dtp_error *err);

#endif /* DTPI_CODEC_H */
