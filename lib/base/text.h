/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - strict numbers from text, and sets of ranks as text. */
#ifndef DTPI_TEXT_H
#define DTPI_TEXT_H

#include "base/base.h"

/* The whole text as a decimal number within [min, max]; false for anything else. */
bool dtpi_parse_i64(const char *text, int64_t min, int64_t max, int64_t *out);

/* Bytes with an optional suffix K, M, G (1024): "64M". */
bool dtpi_parse_bytes(const char *text, uint64_t *out);

/* 2n hex digits to n bytes; false for anything else. */
bool dtpi_parse_hex(const char *text, uint8_t *out, size_t bytes);
void dtpi_format_hex(const uint8_t *data, size_t bytes, char *text_out);    /* 2n + 1 characters */

/*
 * Ascending numbers as ranges, "17, 40-47"; what does not fit ends in "... and 311 more", never
 * inside a number.
 */
void dtpi_format_ranks(const int32_t *ranks, size_t n, char *text_out, size_t room);

/* Valid UTF-8 without NUL, surrogates and overlong forms. */
bool dtpi_utf8_ok(const char *text, size_t bytes);

/* Makes it one line of valid UTF-8, in place: control characters become blanks, broken bytes '?'. */
void dtpi_text_flatten(char *text);

/* 1 to max of [A-Za-z0-9._-], not starting with '.' or '-'. */
bool dtpi_name_ok(const char *name, size_t max);

#endif /* DTPI_TEXT_H */
