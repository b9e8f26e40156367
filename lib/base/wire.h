/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - a cursor over bytes from outside: little-endian numbers, bounded blocks, sticky failure.
 *
 * A reader that ran past the end stays failed and gives zeros: read a whole message, ask once.
 * Writing is dtpi_buf_append with the put helpers.
 */
#ifndef DTPI_WIRE_H
#define DTPI_WIRE_H

#include "base/buf.h"

typedef struct dtpi_rd {
    const uint8_t *p;
    size_t left;
    bool failed;
} dtpi_rd;

static inline dtpi_rd dtpi_rd_init(const void *data, size_t bytes)
{
    return (dtpi_rd){ .p = data, .left = bytes };
}

uint8_t dtpi_rd_u8(dtpi_rd *r);
uint16_t dtpi_rd_u16(dtpi_rd *r);
uint32_t dtpi_rd_u32(dtpi_rd *r);
uint64_t dtpi_rd_u64(dtpi_rd *r);
/* `bytes` bytes, lent; NULL when they are not there. */
const uint8_t *dtpi_rd_bytes(dtpi_rd *r, size_t bytes);
/* A block with a u32 length of at most `max`; NULL, failed and 0 bytes otherwise. */
const uint8_t *dtpi_rd_block(dtpi_rd *r, size_t max, size_t *bytes_out);
/* A block copied as text into `text_out` (room includes the terminator); refuses NUL inside. */
bool dtpi_rd_text(dtpi_rd *r, char *text_out, size_t room);
/* All read, nothing failed, nothing left over. */
static inline bool dtpi_rd_done(const dtpi_rd *r)
{
    return !r->failed && r->left == 0;
}

void dtpi_wr_u8(dtpi_buf *b, uint8_t v);
void dtpi_wr_u16(dtpi_buf *b, uint16_t v);
void dtpi_wr_u32(dtpi_buf *b, uint32_t v);
void dtpi_wr_u64(dtpi_buf *b, uint64_t v);
void dtpi_wr_block(dtpi_buf *b, const void *data, size_t bytes);
void dtpi_wr_text(dtpi_buf *b, const char *text);

#endif /* DTPI_WIRE_H */
