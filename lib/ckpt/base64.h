/* SPDX-License-Identifier: Apache-2.0 */
/* base64.h - RFC 4648 base64 with padding, strict: arrays of numbers inside JSON. */
#ifndef DTPI_CKPT_BASE64_H
#define DTPI_CKPT_BASE64_H

#include "base/buf.h"

void dtpi_base64_put(dtpi_buf *out, const void *data, size_t bytes);

/* Appends the decoded bytes; false when the text is not base64 or memory is out (out->failed). */
bool dtpi_base64_get(dtpi_buf *out, const char *text, size_t chars, size_t *bytes_out);

#endif /* DTPI_CKPT_BASE64_H */
