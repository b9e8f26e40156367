/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huf.h - zstd frames (RFC 8878) that hold nothing but one block of Huffman-coded literals, written and read
 * several times faster than by libzstd on bytes of few bits, such as exponents.
 *
 * What is written any zstd reads. What is read is only what is written here: for every other frame the
 * reader says so and libzstd has the word. Pure.
 */
#ifndef DTPI_CODEC_HUF_H
#define DTPI_CODEC_HUF_H

#include "base/base.h"

enum {
    DTPI_HUF_BITS = 11,         /* longest code that zstd allows */
    DTPI_HUF_MIN = 4096,        /* bytes; fewer are not worth a table */
    DTPI_HUF_MAX = 128 << 10    /* bytes of one zstd block */
};

/* Codes of all values: `bits` 0 where a value has none. All zero: none were made. */
typedef struct dtpi_huf_codes {
    uint8_t bits[256];
    uint16_t code[256];
    unsigned max_bits;
    unsigned first, last;       /* values with a code */
    float cost;                 /* bits a byte where they were made */
} dtpi_huf_codes;

/* What the last frame was read with, for the next one with the same codes. All zero at first. */
typedef struct dtpi_huf_table {
    uint64_t entries[1 << DTPI_HUF_BITS];   /* four symbols or fewer that 11 bits begin with */
    uint16_t singles[1 << DTPI_HUF_BITS];   /* one symbol, and its bits above it */
    uint8_t head[80];           /* the weights as they were written */
    size_t n_head;
} dtpi_huf_table;

/* Writes the codes of `n` bytes as one bit stream; 0 where there is no room. */
typedef size_t dtpi_huf_stream_fn(const dtpi_huf_codes *codes, const uint8_t *in, size_t n, uint8_t *out,
                                  size_t room);
typedef struct dtpi_huf_kernels {
    const char *name;
    dtpi_huf_stream_fn *stream;
    /* Smallest and largest byte. */
    void (*range)(const uint8_t *in, size_t n, uint8_t *min_out, uint8_t *max_out);
} dtpi_huf_kernels;

extern const dtpi_huf_kernels dtpi_huf_base;
#ifdef __x86_64__
extern const dtpi_huf_kernels dtpi_huf_avx512;
#endif
const dtpi_huf_kernels *dtpi_huf_best(void);
/* By name ("base", "avx512"); NULL where it is not there or would not run here. */
const dtpi_huf_kernels *dtpi_huf_find(const char *name);

/*
 * Writes a frame of `n` bytes, DTPI_HUF_MIN to DTPI_HUF_MAX. `codes` of a frame before are taken again where
 * they do as well: making them and reading them costs time. 0 where the frame would not fit, or where libzstd is
 * to write it (values beyond 128, one value alone).
 */
size_t dtpi_huf_encode(const dtpi_huf_kernels *k, dtpi_huf_codes *codes, const uint8_t *in, size_t n,
                       uint8_t *out, size_t room);

/* Reads a frame of exactly `n` bytes; false where libzstd is to judge it. `out` may have been written to. */
bool dtpi_huf_decode(const uint8_t *frame, size_t bytes, uint8_t *out, size_t n, dtpi_huf_table *table);

#endif /* DTPI_CODEC_HUF_H */
