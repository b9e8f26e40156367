/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c - bounded reading of bytes from outside, and its counterpart for writing. */
#include "base/wire.h"

const uint8_t *dtpi_rd_bytes(dtpi_rd *r, size_t bytes)
{
    const uint8_t *p = r->p;

    if (r->failed || bytes > r->left) {
        r->failed = true;
        return NULL;
    }
    if (bytes)
        r->p += bytes;
    r->left -= bytes;
    return p;
}

static uint64_t rd_le(dtpi_rd *r, size_t bytes)
{
    const uint8_t *p = dtpi_rd_bytes(r, bytes);
    uint64_t v = 0;

    if (!p)
        return 0;
    for (size_t i = bytes; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

uint8_t dtpi_rd_u8(dtpi_rd *r)
{
    return (uint8_t)rd_le(r, 1);
}

uint16_t dtpi_rd_u16(dtpi_rd *r)
{
    return (uint16_t)rd_le(r, 2);
}

uint32_t dtpi_rd_u32(dtpi_rd *r)
{
    return (uint32_t)rd_le(r, 4);
}

uint64_t dtpi_rd_u64(dtpi_rd *r)
{
    return rd_le(r, 8);
}

const uint8_t *dtpi_rd_block(dtpi_rd *r, size_t max, size_t *bytes_out)
{
    const uint32_t bytes = dtpi_rd_u32(r);

    if (bytes > max)
        r->failed = true;
    const uint8_t *p = dtpi_rd_bytes(r, bytes);
    *bytes_out = p ? bytes : 0;
    return p;
}

bool dtpi_rd_text(dtpi_rd *r, char *text_out, size_t room)
{
    size_t bytes;

    assert(room > 0);
    const uint8_t *p = dtpi_rd_block(r, room - 1, &bytes);

    if (!p || memchr(p, 0, bytes)) {
        r->failed = true;
        text_out[0] = '\0';
        return false;
    }
    memcpy(text_out, p, bytes);
    text_out[bytes] = '\0';
    return true;
}

static void wr_le(dtpi_buf *b, uint64_t v, size_t bytes)
{
    uint8_t raw[8];

    for (size_t i = 0; i < bytes; i++)
        raw[i] = (uint8_t)(v >> (8 * i));
    dtpi_buf_append(b, raw, bytes);
}

void dtpi_wr_u8(dtpi_buf *b, uint8_t v)
{
    wr_le(b, v, 1);
}

void dtpi_wr_u16(dtpi_buf *b, uint16_t v)
{
    wr_le(b, v, 2);
}

void dtpi_wr_u32(dtpi_buf *b, uint32_t v)
{
    wr_le(b, v, 4);
}

void dtpi_wr_u64(dtpi_buf *b, uint64_t v)
{
    wr_le(b, v, 8);
}

void dtpi_wr_block(dtpi_buf *b, const void *data, size_t bytes)
{
    if (bytes > UINT32_MAX) {
        b->failed = true;
        return;
    }
    dtpi_wr_u32(b, (uint32_t)bytes);
    dtpi_buf_append(b, data, bytes);
}

void dtpi_wr_text(dtpi_buf *b, const char *text)
{
    dtpi_wr_block(b, text, strlen(text));
}
