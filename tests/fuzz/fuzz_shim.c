/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the shim protocol: what is accepted must encode to the same bytes. */
#include "fuzz.h"

#include "launch/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t at = 0, used = 0;
    dtpi_shim_msg msg;

    while (at < size && dtpi_shim_decode(data + at, size - at, &msg, &used, NULL) == DTP_OK) {
        DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
        if (dtpi_shim_encode(&b, &msg, NULL) != DTP_OK || b.len != used ||
            memcmp(b.data, data + at, used) != 0)
            abort();
        for (const char *t = dtpi_texts_next(&msg.argv, NULL); t; t = dtpi_texts_next(&msg.argv, t))
            if (strlen(t) > msg.argv.bytes)
                abort();
        at += used;
    }
    return 0;
}
