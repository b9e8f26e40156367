/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf.h - a byte buffer that grows, with a sticky failure: write as often as you like, ask once.
 */
#ifndef DTPI_BUF_H
#define DTPI_BUF_H

#include "base/base.h"

typedef struct dtpi_buf {
    const dtp_allocator *a;
    uint8_t *data;
    size_t len;
    size_t cap;
    bool failed;                /* an append ran out of memory; nothing is appended any more */
} dtpi_buf;

static inline dtpi_buf dtpi_buf_init(const dtp_allocator *a)
{
    return (dtpi_buf){ .a = a };
}

void dtpi_buf_free(dtpi_buf *b);
static inline void dtpi_buf_reset(dtpi_buf *b)
{
    b->len = 0;
    b->failed = false;
}

/* Room for `bytes` more; NULL when there is none. Does not move len. */
uint8_t *dtpi_buf_reserve(dtpi_buf *b, size_t bytes);
bool dtpi_buf_append(dtpi_buf *b, const void *data, size_t bytes);
bool dtpi_buf_printf(dtpi_buf *b, const char *fmt, ...) DTPI_PRINTF(2, 3);

/* Drops the first `bytes` bytes. */
void dtpi_buf_consume(dtpi_buf *b, size_t bytes);

/* Terminated text of the buffer (the terminator is not counted in len); NULL when it failed. */
const char *dtpi_buf_text(dtpi_buf *b);

#define DTPI_AUTO_BUF __attribute__((cleanup(dtpi_buf_free)))

#endif /* DTPI_BUF_H */
