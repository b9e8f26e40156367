/* SPDX-License-Identifier: Apache-2.0 */
/* none.c - the codec that stores every chunk as it is; the reference of the family. */
#include "codec/codec.h"

extern const struct dtpi_codec_ops dtpi_codec_none;

const struct dtpi_codec_ops dtpi_codec_none = { .name = "none" };
