/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - the tokenizer: one step of a small state machine per call, `expect` says what may come.
 */
#include "ckpt/json.h"

#include <inttypes.h>

#include "base/text.h"

enum { VALUE, VALUE_OR_END, KEY, KEY_OR_END, COMMA_OR_END, DONE };

dtpi_json dtpi_json_init(const char *text, size_t bytes)
{
    return (dtpi_json){ .base = text, .p = text, .end = text + bytes, .expect = VALUE };
}

bool dtpi_json_refuse(dtpi_json *j, const char *problem)
{
    if (!j->problem)
        j->problem = problem;
    return false;
}

static dtpi_json_token fail(dtpi_json *j, const char *problem)
{
    dtpi_json_refuse(j, problem);
    return DTPI_JSON_ERROR;
}

static void skip_blanks(dtpi_json *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r'))
        j->p++;
}

/* Four hex digits at `p`; -1 where they are not. */
static int32_t hex4(const char *p, const char *end)
{
    int32_t v = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const char c = p[i];
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* A code point after "\u" at `p` (which it moves), pairs included; -1 where it is none. */
static int32_t code_point(const char **p, const char *end)
{
    const int32_t high = hex4(*p, end);

    if (high <= 0 || (high >= 0xdc00 && high <= 0xdfff))
        return -1;
    *p += 4;
    if (high < 0xd800 || high > 0xdbff)
        return high;
    if (end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u')
        return -1;
    const int32_t low = hex4(*p + 2, end);
    if (low < 0xdc00 || low > 0xdfff)
        return -1;
    *p += 6;
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

/* After a backslash; moves past the escape. */
static bool scan_escape(dtpi_json *j)
{
    if (j->p == j->end)
        return dtpi_json_refuse(j, "a string does not end");
    const char c = *j->p++;
    if (c == 'u')
        return code_point(&j->p, j->end) >= 0 ||
               dtpi_json_refuse(j, "a \\u escape is no code point, or NUL");
    return strchr("\"\\/bfnrt", c) && c ? true : dtpi_json_refuse(j, "unknown escape");
}

/* At the opening quote. */
static bool scan_string(dtpi_json *j)
{
    bool wide = false;

    j->text = ++j->p;
    j->escaped = false;
    for (;;) {
        if (j->p == j->end)
            return dtpi_json_refuse(j, "a string does not end");
        const unsigned char c = (unsigned char)*j->p;
        if (c == '"')
            break;
        if (c < 0x20)
            return dtpi_json_refuse(j, "a control character in a string");
        j->p++;
        wide |= c >= 0x80;
        if (c == '\\') {
            j->escaped = true;
            if (!scan_escape(j))
                return false;
        }
    }
    j->text_bytes = (size_t)(j->p - j->text);
    j->p++;
    if (wide && !dtpi_utf8_ok(j->text, j->text_bytes))
        return dtpi_json_refuse(j, "a string is not valid UTF-8");
    return true;
}

static bool is_digit(const dtpi_json *j)
{
    return j->p < j->end && *j->p >= '0' && *j->p <= '9';
}

static bool scan_digits(dtpi_json *j)
{
    if (!is_digit(j))
        return dtpi_json_refuse(j, "a number lacks digits");
    while (is_digit(j))
        j->p++;
    return true;
}

static bool scan_number(dtpi_json *j)
{
    j->text = j->p;
    j->escaped = false;
    if (*j->p == '-')
        j->p++;
    if (j->p < j->end && *j->p == '0') {
        j->p++;
        if (is_digit(j))
            return dtpi_json_refuse(j, "a number begins with 0");
    } else if (!scan_digits(j)) {
        return false;
    }
    if (j->p < j->end && *j->p == '.') {
        j->p++;
        if (!scan_digits(j))
            return false;
    }
    if (j->p < j->end && (*j->p == 'e' || *j->p == 'E')) {
        j->p++;
        if (j->p < j->end && (*j->p == '+' || *j->p == '-'))
            j->p++;
        if (!scan_digits(j))
            return false;
    }
    j->text_bytes = (size_t)(j->p - j->text);
    return true;
}

static dtpi_json_token scan_word(dtpi_json *j)
{
    static const struct {
        const char *word;
        dtpi_json_token token;
    } words[] = { { "true", DTPI_JSON_TRUE },
                  { "false", DTPI_JSON_FALSE },
                  { "null", DTPI_JSON_NULL } };

    for (size_t i = 0; i < DTPI_ARRAY_LEN(words); i++) {
        const size_t n = strlen(words[i].word);
        if ((size_t)(j->end - j->p) >= n && memcmp(j->p, words[i].word, n) == 0) {
            j->p += n;
            return words[i].token;
        }
    }
    return fail(j, "expected a value");
}

/* A value ended: what may come now. */
static void after_value(dtpi_json *j)
{
    j->expect = j->depth ? COMMA_OR_END : DONE;
}

static dtpi_json_token open_level(dtpi_json *j, bool object)
{
    if (j->depth == DTPI_JSON_MAX_DEPTH)
        return fail(j, "nested too deeply");
    j->p++;
    j->in_object = j->in_object << 1 | object;
    j->depth++;
    j->expect = object ? KEY_OR_END : VALUE_OR_END;
    return object ? DTPI_JSON_OBJECT : DTPI_JSON_ARRAY;
}

static dtpi_json_token close_level(dtpi_json *j)
{
    const bool object = j->in_object & 1;

    j->p++;
    j->in_object >>= 1;
    j->depth--;
    after_value(j);
    return object ? DTPI_JSON_OBJECT_END : DTPI_JSON_ARRAY_END;
}

static dtpi_json_token next_value(dtpi_json *j)
{
    switch (*j->p) {
    case '{':
        return open_level(j, true);
    case '[':
        return open_level(j, false);
    case '"':
        if (!scan_string(j))
            return DTPI_JSON_ERROR;
        after_value(j);
        return DTPI_JSON_STRING;
    case '-':
    case '0' ... '9':
        if (!scan_number(j))
            return DTPI_JSON_ERROR;
        after_value(j);
        return DTPI_JSON_NUMBER;
    default:
        after_value(j);
        return scan_word(j);
    }
}

static dtpi_json_token next_key(dtpi_json *j)
{
    if (*j->p != '"')
        return fail(j, "expected a name");
    if (!scan_string(j))
        return DTPI_JSON_ERROR;
    skip_blanks(j);
    if (j->p == j->end || *j->p != ':')
        return fail(j, "expected ':'");
    j->p++;
    j->expect = VALUE;
    return DTPI_JSON_KEY;
}

dtpi_json_token dtpi_json_next(dtpi_json *j)
{
    if (j->problem)
        return DTPI_JSON_ERROR;
    skip_blanks(j);
    if (j->p == j->end)
        return j->expect == DONE ? DTPI_JSON_END : fail(j, "the text ends too early");
    const bool object = j->in_object & 1;
    const bool closes = *j->p == (object ? '}' : ']');

    if (j->expect == COMMA_OR_END && *j->p == ',') {
        j->p++;
        skip_blanks(j);
        if (j->p == j->end)
            return fail(j, "the text ends too early");
        return object ? next_key(j) : next_value(j);
    }
    switch (j->expect) {
    case VALUE:
        return next_value(j);
    case VALUE_OR_END:
        return closes ? close_level(j) : next_value(j);
    case KEY_OR_END:
        return closes ? close_level(j) : next_key(j);
    case COMMA_OR_END:
        return closes ? close_level(j)
                      : fail(j, object ? "expected ',' or '}'" : "expected ',' or ']'");
    default:
        return fail(j, "text after the end of the document");
    }
}

/* ---- what callers do with tokens ---- */

static size_t put_utf8(char *out, int32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* The escape at `p`, after its backslash, into `out`; moves `p`. It was checked when scanned. */
static size_t decode_escape(const char **p, const char *end, char *out)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char c = *(*p)++;

    if (c == 'u')
        return put_utf8(out, code_point(p, end));
    const char *at = strchr(from, c);
    out[0] = at ? to[at - from] : c;
    return 1;
}

const char *dtpi_json_plain(const dtpi_json *j, dtpi_buf *scratch, size_t *bytes_out)
{
    const char *end = j->text + j->text_bytes;

    if (!j->escaped) {
        *bytes_out = j->text_bytes;
        return j->text;
    }
    dtpi_buf_reset(scratch);
    char *out = (char *)dtpi_buf_reserve(scratch, j->text_bytes);
    if (!out)
        return NULL;
    size_t n = 0;
    for (const char *p = j->text; p < end;) {
        if (*p == '\\') {
            p++;
            n += decode_escape(&p, end, out + n);
        } else {
            out[n++] = *p++;
        }
    }
    *bytes_out = n;
    return out;
}

char dtpi_json_peek(dtpi_json *j)
{
    skip_blanks(j);
    const char *p = j->p;

    if (j->expect == COMMA_OR_END && p < j->end && *p == ',')
        do
            p++;
        while (p < j->end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'));
    return p < j->end ? *p : 0;
}

bool dtpi_json_expect(dtpi_json *j, dtpi_json_token want)
{
    static const char *const problems[] = {
        [DTPI_JSON_END] = "expected the end",    [DTPI_JSON_OBJECT] = "expected an object",
        [DTPI_JSON_ARRAY] = "expected an array", [DTPI_JSON_STRING] = "expected a string",
        [DTPI_JSON_NUMBER] = "expected a number",
    };
    const dtpi_json_token got = dtpi_json_next(j);

    if (got == want)
        return true;
    return dtpi_json_refuse(j, want < DTPI_ARRAY_LEN(problems) && problems[want]
                                   ? problems[want]
                                   : "not expected here");
}

bool dtpi_json_u64(dtpi_json *j, uint64_t *out)
{
    uint64_t v = 0;

    if (!dtpi_json_expect(j, DTPI_JSON_NUMBER))
        return false;
    for (size_t i = 0; i < j->text_bytes; i++) {
        const char c = j->text[i];
        if (c < '0' || c > '9')
            return dtpi_json_refuse(j, "expected a whole number");
        if (__builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(c - '0'), &v))
            return dtpi_json_refuse(j, "a number is too large");
    }
    *out = v;
    return true;
}

bool dtpi_json_skip(dtpi_json *j)
{
    const uint32_t depth = j->depth;
    dtpi_json_token t = dtpi_json_next(j);

    if (t == DTPI_JSON_OBJECT || t == DTPI_JSON_ARRAY) {
        while (t != DTPI_JSON_ERROR && j->depth > depth)
            t = dtpi_json_next(j);
        return t != DTPI_JSON_ERROR;
    }
    return t >= DTPI_JSON_STRING || dtpi_json_refuse(j, "expected a value");
}

/* Letters that begin where a value should: most often NaN, which JSON does not have. */
static int wrong_word(const dtpi_json *j)
{
    int n = 0;

    while (n < j->end - j->p && n < 16 && (j->p[n] | 0x20) >= 'a' && (j->p[n] | 0x20) <= 'z')
        n++;
    return j->problem && strcmp(j->problem, "expected a value") == 0 ? n : 0;
}

dtp_status dtpi_json_fail(const dtpi_json *j, const char *what, dtp_error *err)
{
    const int n = wrong_word(j);

    return dtpi_fail(err, DTP_ERR_FORMAT, "%s: byte %zu: %s%s%.*s", what, (size_t)(j->p - j->base),
                     j->problem ? j->problem : "not expected here", n ? ", not " : "", n, j->p);
}

void dtpi_json_put(dtpi_buf *b, const char *text, size_t bytes)
{
    size_t from = 0;

    dtpi_buf_append(b, "\"", 1);
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        dtpi_buf_append(b, text + from, i - from);
        if (c < 0x20)
            dtpi_buf_printf(b, "\\u%04x", c);
        else
            dtpi_buf_printf(b, "\\%c", c);
        from = i + 1;
    }
    dtpi_buf_append(b, text + from, bytes - from);
    dtpi_buf_append(b, "\"", 1);
}

void dtpi_json_put_u64(dtpi_buf *b, uint64_t v)
{
    char text[20];
    size_t at = sizeof(text);

    do
        text[--at] = (char)('0' + v % 10);
    while (v /= 10);
    dtpi_buf_append(b, text + at, sizeof(text) - at);
}

void dtpi_json_put_dims(dtpi_buf *b, const char *key, uint32_t n, const int64_t *dims)
{
    dtpi_buf_append(b, "\"", 1);
    dtpi_buf_append(b, key, strlen(key));
    dtpi_buf_append(b, "\":[", 3);
    for (uint32_t i = 0; i < n; i++) {
        dtpi_buf_append(b, ",", i ? 1 : 0);
        dtpi_json_put_u64(b, (uint64_t)dims[i]);
    }
    dtpi_buf_append(b, "]", 1);
}
