/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - a strict pull tokenizer for JSON (RFC 8259): no tree, no allocation, every byte looked at.
 *
 * Stricter than most: UTF-8 is checked, lone surrogates and NUL are refused, numbers follow the
 * grammar, depth is bounded. Duplicate names are the caller's to find, who knows what a name means.
 */
#ifndef DTPI_CKPT_JSON_H
#define DTPI_CKPT_JSON_H

#include "base/buf.h"

typedef enum dtpi_json_token {
    DTPI_JSON_ERROR = 0,
    DTPI_JSON_END,              /* the document is complete */
    DTPI_JSON_OBJECT,
    DTPI_JSON_OBJECT_END,
    DTPI_JSON_ARRAY,
    DTPI_JSON_ARRAY_END,
    DTPI_JSON_KEY,              /* its value follows */
    DTPI_JSON_STRING,
    DTPI_JSON_NUMBER,
    DTPI_JSON_TRUE,
    DTPI_JSON_FALSE,
    DTPI_JSON_NULL
} dtpi_json_token;

enum { DTPI_JSON_MAX_DEPTH = 64 };

typedef struct dtpi_json {
    const char *base, *p, *end;
    const char *text;           /* key, string (without quotes, as written) or number: lent */
    size_t text_bytes;
    bool escaped;               /* the text holds escapes: use dtpi_json_plain */
    uint8_t expect;
    uint32_t depth;
    uint64_t in_object;         /* a bit per level */
    const char *problem;        /* after ERROR: what was wrong */
} dtpi_json;

dtpi_json dtpi_json_init(const char *text, size_t bytes);

/* The next token; ERROR stays. */
dtpi_json_token dtpi_json_next(dtpi_json *j);

/*
 * The text of the last key or string without escapes: the span itself, or decoded into `scratch`
 * (emptied first). NULL: out of memory.
 */
const char *dtpi_json_plain(const dtpi_json *j, dtpi_buf *scratch, size_t *bytes_out);

/* The first character of the next token, commas passed over; 0 at the end. Checks nothing. */
char dtpi_json_peek(dtpi_json *j);
/* The next token must be a plain number without sign, fraction and exponent. */
bool dtpi_json_u64(dtpi_json *j, uint64_t *out);
/* Skips the next value whole. */
bool dtpi_json_skip(dtpi_json *j);
/* Next token is `want`; else ERROR with a problem. */
bool dtpi_json_expect(dtpi_json *j, dtpi_json_token want);
/* Makes the tokenizer fail with the caller's own problem; returns false. */
bool dtpi_json_refuse(dtpi_json *j, const char *problem);

/* FORMAT with the place and the problem: "WHAT: byte 17: expected ':'". */
dtp_status dtpi_json_fail(const dtpi_json *j, const char *what, dtp_error *err);

/* Appends a quoted string. */
void dtpi_json_put(dtpi_buf *b, const char *text, size_t bytes);
/* Appends a number. */
void dtpi_json_put_u64(dtpi_buf *b, uint64_t v);
/* Appends "KEY":[1,2,3], numbers that are not negative. */
void dtpi_json_put_dims(dtpi_buf *b, const char *key, uint32_t n, const int64_t *dims);

#endif /* DTPI_CKPT_JSON_H */
