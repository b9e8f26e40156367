/* SPDX-License-Identifier: Apache-2.0 */
/* registry.c - the codecs that were built. */
#include "codec/codec.h"

extern const struct dtpi_codec_ops dtpi_codec_none;
extern const struct dtpi_codec_ops dtpi_codec_zstd;
extern const struct dtpi_codec_ops dtpi_codec_planes;

const struct dtpi_codec_ops *const dtpi_codecs[] = { &dtpi_codec_none, &dtpi_codec_zstd,
                                                    &dtpi_codec_planes, NULL };
