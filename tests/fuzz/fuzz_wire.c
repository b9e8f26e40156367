/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_wire.c - a message read field by field: never past the end, failure stays. */
#include "fuzz.h"

#include "base/wire.h"

static void read_field(dtpi_rd *r, uint8_t kind)
{
    char text[64];
    size_t bytes = 0;

    switch (kind % 6) {
    case 0:
        dtpi_rd_u8(r);
        break;
    case 1:
        dtpi_rd_u16(r);
        break;
    case 2:
        dtpi_rd_u32(r);
        break;
    case 3:
        dtpi_rd_u64(r);
        break;
    case 4:
        if (dtpi_rd_block(r, 1000, &bytes))
            FUZZ_CHECK(bytes <= 1000);
        break;
    default:
        if (dtpi_rd_text(r, text, sizeof(text)))
            FUZZ_CHECK(strlen(text) < sizeof(text));
        else
            FUZZ_CHECK(r->failed && text[0] == '\0');
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);

    while (r.left > 0 && !r.failed) {
        const size_t left = r.left;
        read_field(&r, dtpi_rd_u8(&r));
        FUZZ_CHECK(r.left < left);
    }
    if (r.failed) {
        FUZZ_CHECK(dtpi_rd_u64(&r) == 0 && !dtpi_rd_bytes(&r, 0) && !dtpi_rd_done(&r));
    } else {
        FUZZ_CHECK(dtpi_rd_done(&r));
    }
    return 0;
}
